"""Replicas as an operator starts them, on a real PostgreSQL, under real launches."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import ssl
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from rendezvous.registry.journal import Record
from rendezvous.registry.membership import BEAT_SECONDS, JUDGE_SECONDS
from rendezvous.registry.postgres_schema import READ
from rendezvous.registry.replay import replay
from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import RegistryString, group_token_text
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.run import EventLine, Phase
from tests.launcher.command import rdzv
from tests.support.launching import RDZV, Launched, environment, launching, shell
from tests.support.postgres import GUARDED, Postgres, one_primary, programs
from tests.support.waiting import until
from worker.offer.ports import find_free
from worker.preflight.checks import NODE_CHECKS

HUSH = "canary-PASSWORD"
JUDGES_AFTER = JUDGE_SECONDS + BEAT_SECONDS
"""Seconds after its start in which a replica replaces nobody."""


pytestmark = [pytest.mark.faults, pytest.mark.real_time, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A primary alone."""
    with one_primary() as made:
        yield made


class Replicas:
    """Some `rdzv serve`, on one database; its user needs a password."""

    def __init__(self, folder: Path, postgres: Postgres, count: int = 3) -> None:
        self.folder, self.postgres, self.count = folder, postgres, count
        # Outside of what outgoing connections get, and not where other processes of the tests look.
        self.ports: list[int] = []
        for _ in range(count):
            first = self.ports[-1] + 1 if self.ports else 20_000 + os.getpid() % 8_000
            port = find_free(first)
            assert port is not None
            self.ports.append(port)
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]
        self.token = group_token_text(new_secret())
        self.passwords = folder / "pgpass"
        self.passwords.write_text(f"*:*:*:*:{HUSH}\n")
        self.passwords.chmod(0o600)
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.credential = ""

    def begin(self, number: int, database: str, *more: str) -> None:
        words = [RDZV, "serve", "--journal", self.postgres.dsn(database, user=GUARDED)]
        words += ["--port", str(self.ports[number]), "--advertise", self.addresses[number]]
        for address in self.addresses:
            words += ["--registry-address", address]
        words += more
        env = environment(
            self.folder / str(number), RDZV_TOKEN=self.token, PGPASSFILE=str(self.passwords)
        )
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env)
        self.processes[number] = process

    def said(self, number: int) -> str:
        """Its next line."""
        stderr = self.processes[number].stderr
        assert stderr is not None
        return stderr.readline()

    def start(self, number: int, database: str, *more: str) -> None:
        self.begin(number, database, *more)
        said = self.said(number)
        assert "(TLS); launchers use it with RDZV_REGISTRY_FILE=" in said, said
        self.credential = said.rsplit("RDZV_REGISTRY_FILE=", 1)[1].strip()
        assert is_ready(self.addresses[number])

    def registry(self) -> str:
        """The RDZV_REGISTRY that an operator gives to launchers."""
        words = [word for one in self.addresses for word in ("--registry-address", one)]
        result = rdzv("token", "registry", *words, env={"RDZV_TOKEN": self.token})
        assert result.exit_code == 0
        return result.stdout.strip()

    def kill(self, address: str) -> None:
        process = self.processes.pop(self.addresses.index(address))
        process.kill()
        process.communicate()

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.communicate(timeout=30)
        self.processes.clear()


def is_ready(address: str) -> bool:
    """What a load balancer or a kubelet asks, which verifies no certificate."""
    with contextlib.suppress(OSError):
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(f"https://{address}/readyz", context=context) as answer:
            return bool(answer.status == 200)
    return False


@pytest.fixture
def replicas(tmp_path: Path, postgres: Postgres) -> Iterator[Replicas]:
    made = Replicas(tmp_path, postgres)
    try:
        yield made
    finally:
        made.end()


def new_database(postgres: Postgres) -> str:
    """An empty one, as docs/standing.md says: its owner is a user without further rights."""

    async def make() -> str:
        await postgres.execute(_ROLE)
        name = await postgres.new_database()
        await postgres.execute(f"ALTER DATABASE {name} OWNER TO {GUARDED}")
        return name

    return asyncio.run(make())


_ROLE = f"""DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{GUARDED}') THEN
    CREATE ROLE {GUARDED} LOGIN PASSWORD '{HUSH}'; END IF; END $$"""
_OWNER = """
SELECT m.address FROM rdzv.runs r JOIN rdzv.replicas m ON m.id = r.owner WHERE r.run = 'r'
"""


def owner_of(postgres: Postgres, database: str) -> str:
    """The address of the replica that has run 'r'; empty where none that is known has it."""
    return asyncio.run(postgres.execute(_OWNER, database)) or ""


def lines_of(postgres: Postgres, database: str) -> list[EventLine]:
    """What has happened in run 'r'."""

    async def read() -> list[Record]:
        connection = await asyncpg.connect(postgres.dsn(database))
        try:
            return [Record(*row) for row in await connection.fetch(READ, "r")]
        finally:
            await connection.close()

    return [line for _, line in replay(asyncio.run(read()))]


def wait_for_phase(postgres: Postgres, database: str, phase: Phase) -> None:
    until(lambda: [line.phase for line in lines_of(postgres, database)][-1:] == [phase])


def counts(postgres: Postgres, database: str) -> dict[str, int]:
    """Events of the run, by kind; the numbers of all have no gap."""
    lines = lines_of(postgres, database)
    assert [line.number for line in lines] == [*range(1, len(lines) + 1)]
    return Counter(line.kind for line in lines)


@contextlib.contextmanager
def launch(replicas: Replicas, folder: Path) -> Iterator[Launched]:
    """A launch of two nodes, whose programs run until the folder has the file `end`."""
    script = f"while [ ! -e {folder}/end ]; do sleep 0.05; done; echo done"
    env = {"RDZV_REGISTRY": replicas.registry()}
    options = ("--nnodes", "2", "--framework", "command")
    with launching(folder / "s", *options, command=shell(script), env=env) as launched:
        yield launched


def test_a_launch_outlives_its_replica_while_it_gathers_and_while_it_runs(
    replicas: Replicas, postgres: Postgres, tmp_path: Path
) -> None:
    database = new_database(postgres)
    for number in range(3):
        replicas.start(number, database)
    printed = RegistryString.parse(Path(replicas.credential).read_text())
    made = RegistryString.parse(replicas.registry())
    assert made.credential == printed.credential
    assert made.place == replace(printed.place, port=made.place.port)  # each address has its own
    time.sleep(JUDGES_AFTER)
    with launch(replicas, tmp_path) as launched:
        until(lambda: lines_of(postgres, database))
        first = owner_of(postgres, database)
        replicas.kill(first)
        until(lambda: owner_of(postgres, database) not in ("", first))
        wait_for_phase(postgres, database, Phase.RUNNING)
        replicas.start(replicas.addresses.index(first), database)
        second = owner_of(postgres, database)
        replicas.kill(second)
        until(lambda: owner_of(postgres, database) not in ("", second))
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] done", "[1] done"]
    kinds = counts(postgres, database)
    wanted = {"created": 1, "joined": 2, "restarted": 2, "acked": 2, "left": 2, "lost": 0}
    assert {kind: kinds[kind] for kind in wanted} == wanted


def test_a_replica_that_listens_on_loopback_alone_speaks_tls_as_its_token_says(
    replicas: Replicas, postgres: Postgres, tmp_path: Path
) -> None:
    """With --behind-ingress it does not, and the token is made with --plain."""
    database = new_database(postgres)
    replicas.start(0, database, "--listen", "127.0.0.1")
    printed = RegistryString.parse(Path(replicas.credential).read_text())
    made = RegistryString.parse(replicas.registry())
    assert (made.place.trust, made.place.proof) == (printed.place.trust, printed.place.proof)
    assert "ready, rdzv " in asked(replicas, 0)
    replicas.begin(1, database, "--listen", "127.0.0.1", "--behind-ingress")
    assert "(TLS)" not in replicas.said(1)
    url = f"http://{replicas.addresses[1]}/readyz"
    until(lambda: urllib.request.urlopen(url).status == 200)


@pytest.mark.nightly
def test_after_a_restore_from_a_backup_runs_go_on_and_none_that_knows_more_may_write(
    replicas: Replicas, postgres: Postgres, tmp_path: Path
) -> None:
    database, restored = new_database(postgres), new_database(postgres)
    replicas.start(0, database)
    with launch(replicas, tmp_path) as launched:
        wait_for_phase(postgres, database, Phase.RUNNING)
        text = call(postgres, "pg_dump", database)
        replicas.kill(replicas.addresses[0])
        call(postgres, "psql", restored, "--quiet", "--set=ON_ERROR_STOP=1", stdin=text)
        call(postgres, "psql", restored, f"--command={raising()}")
        for number in range(3):
            replicas.start(number, restored)
        until(lambda: owner_of(postgres, restored))
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    kinds = counts(postgres, restored)
    assert (kinds["joined"], kinds["restarted"], kinds["left"], kinds["lost"]) == (2, 1, 2, 0)


def test_a_run_that_is_newer_than_a_restored_backup_ends_and_its_programs_hear_of_it(
    replicas: Replicas, postgres: Postgres, tmp_path: Path
) -> None:
    """No replica may take it for one of its own: its nodes are told that it is not theirs."""
    database, restored = new_database(postgres), new_database(postgres)
    replicas.start(0, database)
    text = call(postgres, "pg_dump", database)
    script = f"trap 'echo saved; exit 0' TERM; touch {tmp_path}/runs; while :; do sleep 0.05; done"
    env = {"RDZV_REGISTRY": replicas.registry()}
    options = ("--nnodes", "1", "--framework", "command")
    with launching(tmp_path / "s", *options, command=shell(script), env=env) as launched:
        until((tmp_path / "runs").exists)
        replicas.kill(replicas.addresses[0])
        call(postgres, "psql", restored, "--quiet", "--set=ON_ERROR_STOP=1", stdin=text)
        call(postgres, "psql", restored, f"--command={raising()}")
        replicas.start(1, restored)
        outcome = launched.finish()
    assert outcome.code == ExitCode.REFUSED, outcome.err
    assert outcome.out.splitlines() == ["saved"]
    assert "there is no run 'r' here, or it is not yours" in outcome.last_line


@pytest.mark.nightly
def test_a_replica_says_what_it_waits_for_and_where_it_is_once_it_is_ready(
    tmp_path: Path,
) -> None:
    with one_primary() as postgres:
        replicas = Replicas(tmp_path, postgres, 2)
        database = new_database(postgres)
        postgres.stop()
        try:
            replicas.begin(0, database)
            said = replicas.said(0)
            place = f"postgresql://{GUARDED}@127.0.0.1:{postgres.port}/{database}"
            assert f"waiting for the database: the journal {place} cannot be reached: " in said
            assert said.endswith(
                "check the host and the port, and that the server runs and listens there\n"
            )
            assert "no answer" in asked(replicas, 1)
            replicas.begin(1, database)
            assert "waiting for the database" in replicas.said(1)
            replicas.processes[1].terminate()
            assert replicas.processes[1].wait(10) == 128 + signal.SIGTERM
            postgres.start()
            while "waiting for the database" in (said := replicas.said(0)):
                assert "if this lasts, see the log" in said
            assert said.startswith(f"rdzv: registry on port {replicas.ports[0]} of ")
            assert is_ready(replicas.addresses[0])
            assert "ready, rdzv " in asked(replicas, 0)
            postgres.stop()
            until(lambda: not is_ready(replicas.addresses[0]))
            assert "the right registry, but not ready: " in asked(replicas, 1)
        finally:
            replicas.end()


def asked(replicas: Replicas, code: int) -> str:
    """What `rdzv doctor` says of them."""
    skips = [word for check in NODE_CHECKS for word in ("--skip", check.id)]
    result = rdzv("doctor", *skips, env={"RDZV_REGISTRY": replicas.registry()})
    assert result.exit_code == code, result.output
    return result.stdout


def raising() -> str:
    """The statement of docs/standing.md that is to follow a restore."""
    text = (Path(__file__).parents[2] / "docs" / "standing.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"UPDATE rdzv\.runs SET [^;]*;", text)
    return str(found)


def call(postgres: Postgres, program: str, database: str, *options: str, stdin: str = "") -> str:
    """What a program of PostgreSQL's prints, as the user that rdzv has there."""
    words = [str(programs() / program), *options, postgres.dsn(database, user=GUARDED)]
    env = {**os.environ, "PGPASSWORD": HUSH}
    done = subprocess.run(words, input=stdin, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
