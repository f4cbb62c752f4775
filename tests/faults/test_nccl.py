"""NCCL falls back to sockets on one host of an InfiniBand run: it is said, or the run ends.

The programs do to their logs what NCCL does; hosts, launcher and workers as in `test_rdma`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.faults.test_rdma import SICK, SIZE, SOUND, machines, sentence
from tests.support.cluster import Cluster
from tests.support.launching import shell
from tests.support.record import record

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]

WORKER = Path(__file__).parents[1] / "worker"
FELL_BACK = "NCCL uses sockets (eth0), and InfiniBand or RoCE was expected: libibverbs"


def program(done: Path) -> list[str]:
    """On one host what NCCL says without libibverbs, on the others what it says with InfiniBand."""
    play = shlex.join([sys.executable, str(WORKER / "programs/like_nccl.py")])
    logs = shlex.quote(str(WORKER / "nccl"))
    wait = f"until test -e {shlex.quote(str(done))}; do sleep 0.2; done"
    which = f"if test $NODE_RANK = {SICK}; then log=no_library; else log=ib; fi"
    return shell(f"{which}; {play} {logs}/$log.log 0 0; {wait}")


def since_the_go(run: Cluster, kind: str) -> float:
    """Seconds from the go to the first event of this kind."""
    at = {event["kind"]: event["at_seconds"] for event in reversed(run.launched.events())}
    began = [e["at_seconds"] for e in run.launched.events() if e["phase"] == "running"]
    return float(str(at[kind])) - float(str(began[0]))


def test_a_fall_back_of_one_host_is_a_warning_on_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    options = ("--nccl-log", "on")
    with machines(tmp_path, monkeypatch, SOUND, *options, command=program(done)) as run:
        run.launched.wait_for("progressed", SIZE)
        done.touch()
        outcome = run.finish()
        seconds = since_the_go(run, "progressed")
    assert outcome.code == 0, outcome.err
    (line,) = [line for line in outcome.err.splitlines() if "NCCL uses" in line]
    said = line.partition(" s  ")[2]
    record("NCCL falls back from InfiniBand to sockets on one node", said, seconds)
    assert said.startswith(f"node 1 (h1, slot 1): {FELL_BACK}")


@pytest.mark.nightly
def test_where_rdma_is_required_a_fall_back_ends_the_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = tmp_path / "never"
    options = ("--require-rdma",)
    with machines(tmp_path, monkeypatch, SOUND, *options, command=program(never)) as run:
        outcome = run.finish()
        said, seconds = sentence(outcome), since_the_go(run, "exited")
    record("NCCL falls back to sockets on one node, `--require-rdma`", said, seconds)
    assert outcome.code == ExitCode.PREFLIGHT_FAILED, outcome.err
    assert "node 1 (h1, slot 1)" in said
    assert FELL_BACK in said
