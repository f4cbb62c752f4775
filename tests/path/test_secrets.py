"""Variables of a person on the whole path: each program has them, and nobody else the secrets."""

from __future__ import annotations

import hashlib
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.canaries import Canaries
from tests.support.launching import RDZV, environment, launch, launching, shell
from tests.support.waiting import until

TOKEN = "canary-of-the-hub-5up3r"
OTHER = "canary-of-the-store-0dd"
SUMS = "printenv HF_TOKEN ODD | sha256sum | cut -c 1-64"
SUM = hashlib.sha256(f"{TOKEN}\n{OTHER}\n".encode()).hexdigest()
OPTIONS = ("--framework", "command", "--secret-env", "ODD", "--env", "LR=0.{slot}")

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(150)]


@pytest.fixture
def secrets(tmp_path: Path) -> tuple[str, ...]:
    """The options that give the secrets, from a file."""
    file = tmp_path / "given.env"
    file.write_text(f"# of the team\nHF_TOKEN={TOKEN}\nODD={OTHER}\n")
    return ("--env-file", str(file))


def canaries() -> Canaries:
    found = Canaries()
    for name, text in (("HF_TOKEN", TOKEN), ("ODD", OTHER)):
        found.add(name, text.encode())
    return found


def rdzvs_own(pid: int) -> Iterator[psutil.Process]:
    """The launcher, its registry and its agents: all of its processes but the programs."""
    for process in (one := psutil.Process(pid), *one.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "rdzv" in " ".join(process.cmdline()[:3]):
                yield process


def test_a_secret_reaches_each_program_and_stands_nowhere_else(
    tmp_path: Path, secrets: tuple[str, ...]
) -> None:
    go = tmp_path / "go"
    sums = f"({SUMS}; echo $LR) > sum-$NODE_RANK"
    script = f"{sums}; until [ -e {go} ]; do sleep 0.1; done"
    options = ("--nnodes", "2", *OPTIONS, *secrets, "--log-level", "debug")
    state = tmp_path / "state"
    with launching(state, *options, command=shell(script), cwd=tmp_path) as one:
        one.wait_for_phase("running")
        files = [tmp_path / f"sum-{node}" for node in (0, 1)]
        until(lambda: all(path.exists() and path.read_text().count("\n") == 2 for path in files))
        own = [process.pid for process in rdzvs_own(one.process.pid)]
        assert len(own) >= 4
        for pid in own:
            assert canaries().find(Path(f"/proc/{pid}/cmdline").read_bytes()) == set()
        agents = [pid for pid in own if b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert canaries().find_in_processes(agents) == {}
        shown = subprocess.run(
            [RDZV, "status", "r", "--env", "1"],
            capture_output=True,
            env=environment(state),
            check=True,
        ).stdout
        go.touch()
        outcome = one.finish()
    assert outcome.code == 0, outcome.err
    assert [path.read_text().split() for path in files] == [[SUM, "0.0"], [SUM, "0.1"]]
    assert canaries().find_in_files(state) == {}
    assert canaries().find((outcome.out + outcome.err).encode() + shown) == set()
    assert b"HF_TOKEN=(hidden)" in shown
    assert b"LR=0.1 " in shown


@pytest.mark.faults
@pytest.mark.parametrize("who", ["registry", "launcher"])
def test_the_secrets_are_sent_again_after_a_kill(
    who: str, tmp_path: Path, secrets: tuple[str, ...]
) -> None:
    """A node that joins before it has them, and one that joins after it gets them all the same."""
    come = tmp_path / "come"
    waits = f"while [ <<SLOT>> = 2 ] && [ ! -e {come} ]; do sleep 0.05; done"
    (tmp_path / "worker.yaml").write_text(
        f"argv: [sh, -c, '{waits}; exec rdzv worker --parent $PPID \"$@\"', sh,"
        " <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    options = ("--nnodes", "3", *OPTIONS, *secrets, "--worker-spec", str(tmp_path / "worker.yaml"))
    command = shell(f"{SUMS} > sum-$NODE_RANK")
    state = tmp_path / "state"
    with launching(state, *options, command=command, cwd=tmp_path) as one:
        one.wait_for("joined", 2)
        if who == "registry":
            one.child("_registry").send_signal(signal.SIGKILL)
            come.touch()
            outcome = one.finish()
        else:
            one.process.kill()
            one.process.wait()
            come.touch()
    if who == "launcher":
        outcome = launch(state, *options, command=command, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert [(tmp_path / f"sum-{node}").read_text().strip() for node in range(3)] == [SUM] * 3
    assert canaries().find_in_files(state) == {}
