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
from tests.support.launching import shell
from tests.support.record import record

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]

WORKER = Path(__file__).parents[1] / "worker"
FELL_BACK = "NCCL uses sockets (eth0), and InfiniBand or RoCE was expected: libibverbs"


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("--nccl-log=on", 0),
        pytest.param("--require-rdma", ExitCode.PREFLIGHT_FAILED, marks=pytest.mark.nightly),
    ],
)
def test_a_fall_back_of_one_host_is_a_warning_or_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, code: int
) -> None:
    # On one host what NCCL says without libibverbs, on the others what it says with InfiniBand.
    play = shlex.join([sys.executable, str(WORKER / "programs/like_nccl.py")])
    logs = shlex.quote(str(WORKER / "nccl"))
    wait = f"until test -e {tmp_path}/done; do sleep 0.2; done"
    which = f"if test $NODE_RANK = {SICK}; then log=no_library; else log=ib; fi"
    command = shell(f"{which}; {play} {logs}/$log.log 0 0; {wait}")
    with machines(tmp_path, monkeypatch, SOUND, option, command=command) as run:
        if code == 0:
            run.launched.wait_for("progressed", SIZE)
            (tmp_path / "done").touch()
        outcome = run.finish()
    assert outcome.code == code, outcome.err
    said = sentence(outcome) if code else outcome.err
    assert "node 1 (h1, slot 1)" in said
    assert FELL_BACK in said
    record(f"NCCL falls back to sockets on one node, {option}", FELL_BACK)
