"""The standing registry of specs/standing, on a real engine, while parts of it are killed."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rendezvous.registry.membership import JUDGE_SECONDS
from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import group_token_text
from tests.docker.compose import IMAGE, Compose
from tests.docker.engine import HOST, TOOLS, Engine, postgresql_image
from tests.docker.fetched import fetching, postgresql
from tests.support.launching import RDZV, Outcome
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*TOOLS),
    pytest.mark.netns,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("docker"),
]

PORTS = (29601, 29602, 29603)
OWNER = """SELECT m.address FROM rdzv.runs r JOIN rdzv.replicas m ON m.id = r.owner"""
KINDS = """SELECT convert_from(body, 'UTF8') FROM rdzv.events ORDER BY number"""


class Standing:
    """What `docker compose up` in specs/standing starts."""

    def __init__(self, compose: Compose, image: str) -> None:
        self.compose, self.engine = compose, compose.engine
        self.variables = {"RDZV_HOST": HOST, "RDZV_IMAGE": IMAGE, "POSTGRES_IMAGE": image}
        own = compose.folder / "secrets"
        own.mkdir(mode=0o700, exist_ok=True)
        self.token = own / "token"
        for name, text in (
            ("token", group_token_text(new_secret())),
            ("pgpass", f"*:*:*:*:{secrets.token_hex(24)}"),
        ):
            (own / name).touch(mode=0o600)
            (own / name).write_text(f"{text}\n")

    def call(self, *words: str) -> Outcome:
        return self.compose.run("--ansi=never", *words, **self.variables)

    def up(self) -> None:
        done = self.call("up", "--detach", "--no-build", "--wait")
        assert done.code == 0, done.out + done.err + self.call("logs").out

    def kill(self, service: str) -> None:
        (container,) = self.compose.containers(service)
        self.engine.docker("kill", container)

    def ask(self, query: str) -> list[str]:
        """What the primary answers, a row a line."""
        psql = ("psql", "--host=/tmp", "--username=postgres", "--dbname=rdzv", "--tuples-only")
        words = ("exec", "--user=postgres", self.compose.containers("db1")[0], *psql)
        return self.engine.docker(*words, "--no-align", f"--command={query}").splitlines()

    def owner(self) -> str:
        """The service of the replica that has the only run; empty: none does."""
        found = self.ask(OWNER)
        port = int(found[0].rpartition(":")[2]) if found else 0
        return f"replica{PORTS.index(port) + 1}" if found else ""

    def kinds(self) -> list[str]:
        return [json.loads(line)["kind"] for line in self.ask(KINDS)]

    def run_as_a_pod(self) -> None:
        """A further replica, with no more rights than specs/standing/kubernetes.yaml gives it."""
        secret = (self.token.parent / "pgpass").read_text().strip().rpartition(":")[2]
        token = self.token.read_text().strip()
        words = ["--detach", "--network=rdzv_default", "--user=65532:65532", "--read-only"]
        words += ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/run/rdzv"]
        words += [f"--env=RDZV_TOKEN={token}", f"--env=PGPASSWORD={secret}"]
        words += ["--env=RDZV_STATE_DIR=/run/rdzv", IMAGE, "rdzv", "serve", "--advertise=pod"]
        pod = self.engine.docker("run", *words, "--journal=postgresql://rdzv@db1/rdzv")
        members = "SELECT count(*) FROM rdzv.replicas"
        until(lambda: self.ask(members) == ["4"] or not self.engine.look(pod)["State"]["Running"])
        assert self.ask(members) == ["4"], self.engine.logs(pod)
        self.engine.docker("stop", pod)
        assert self.engine.look(pod)["State"]["ExitCode"] == 0
        assert self.ask(members) == ["3"]

    def registry(self) -> str:
        words = [RDZV, "token", "registry"]
        words += [word for port in PORTS for word in ("--registry-address", f"{HOST}:{port}")]
        env = self.engine.environ(RDZV_TOKEN_FILE=str(self.token))
        return subprocess.check_output(words, env=env, text=True).strip()


@pytest.fixture
def standing(docker: Engine, compose_2: Compose) -> Iterator[Standing]:
    with fetching() as kept:
        image = postgresql_image(docker, postgresql(kept))
    folder = compose_2.folder / "specs" / "standing"
    made = Standing(Compose(docker, compose_2.words, folder, []), image)
    try:
        yield made
    finally:
        made.call("down", "--volumes", "--timeout", "5")
        docker.remove_all()


def launch(standing: Standing, folder: Path) -> Outcome:
    """Rank 0 on the engine's own host, and two containers; all run until there is a file `end`."""
    script = f"while [ ! -e {folder}/end ]; do sleep 0.1; done; echo end of $NODE_RANK"
    words = [RDZV, "launch", "--rdzv-id", "r", "--nnodes", "3", "--framework", "command"]
    words += ["--scheduler", "docker", "--set", f"IMAGE={IMAGE}"]
    words += ["--set", f"OPTIONS=--volume {folder}:{folder}", "--", "sh", "-c", script]
    env = standing.engine.environ(RDZV_REGISTRY=standing.registry())
    argv = standing.engine.inside(words)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=150)
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.nightly
def test_a_launch_outlives_two_owners_and_a_standby(standing: Standing, tmp_path: Path) -> None:
    standing.up()
    following = "SELECT application_name FROM pg_stat_replication ORDER BY 1"
    assert standing.ask(following) == ["db2", "db3"]
    assert standing.ask("SHOW synchronous_standby_names") == ["ANY 1 (db1, db2, db3)"]
    standing.run_as_a_pod()
    time.sleep(JUDGE_SECONDS)
    with ThreadPoolExecutor() as pool:
        launched = pool.submit(launch, standing, tmp_path)
        until(lambda: launched.done() or "joined" in standing.kinds())
        first = standing.owner()
        standing.kill(first)
        until(lambda: launched.done() or standing.owner() not in ("", first))
        until(lambda: launched.done() or standing.kinds().count("acked") == 3)
        standing.kill("db2")
        standing.engine.docker("start", standing.compose.containers(first)[0])
        second = standing.owner()
        standing.kill(second)
        until(lambda: launched.done() or standing.owner() not in ("", second))
        (tmp_path / "end").touch()
        outcome = launched.result()
    assert outcome.code == 0, outcome.err
    kinds = standing.kinds()
    wanted = {"created": 1, "joined": 3, "acked": 3, "restarted": 2, "left": 3, "lost": 0}
    assert {kind: kinds.count(kind) for kind in wanted} == wanted
