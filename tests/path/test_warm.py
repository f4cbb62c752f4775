"""A real launch whose ranks are forked: all that a node does with them is as with torchrun."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.path.test_hook import WHERE, seen
from tests.support.launching import RDZV, Launched, launching, lives, rdzv
from tests.support.waiting import until
from worker.contracts.framework import PROGRAMS

pytestmark = [
    pytest.mark.faults,
    pytest.mark.real_time,
    pytest.mark.torch,
    pytest.mark.timeout(120),
]
ZYGOTE = f"{PROGRAMS}/warm/zygote.py"
AGAIN = f"""
{WHERE}
import time
from torch.distributed import init_process_group, barrier, destroy_process_group
init_process_group("gloo")
number, again = os.environ["RANK"], str(int(os.environ["RDZV_EPOCH"]) - 1)
for n in range(2_000 if again == "1" else 9):
    sys.stdout.write(f"{{again}} {{number}} " + number * (n % 300) + "\\n")
barrier()
if again == "0":
    pathlib.Path(sys.argv[1], f"waits-{{number}}").touch()
    time.sleep(600)
destroy_process_group()
"""
HANGS = """
import os, sys, time
if os.environ["RDZV_EPOCH"] != "1":
    sys.exit(3)
open(sys.argv[1] + "/" + os.environ["RANK"], "w")
time.sleep(600)
"""


def test_ranks_have_their_own_streams_and_start_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(AGAIN)
    size = ("--nnodes", "1", "--nproc-per-node", "2", "--warm", "on")
    command = [str(tmp_path / "train.py"), str(tmp_path)]
    with launching(tmp_path / "s", *size, command=command) as launched:
        until(lambda: all((tmp_path / f"waits-{n}").exists() for n in range(2)))
        rdzv(launched.state, "restart", "r")
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert "--warm off" not in outcome.err
    lines = sorted(outcome.out.splitlines())
    expected = [
        f"{again} {rank} {rank * (n % 300)}"
        for again, count in (("0", 9), ("1", 2_000))
        for rank in "01"
        for n in range(count)
    ]
    assert lines == sorted(expected), outcome.err
    for rank, (out, err, path, folder, _) in enumerate(seen(tmp_path)):
        assert (out, err) == (f"{folder}/{rank}.stdout", f"{folder}/{rank}.stderr")
        assert path.endswith("worker/look/site")
    logs = tmp_path / "s" / "r" / "logs"
    kept = {path.name for path in logs.glob("rank-*.log")}
    assert {"rank-0.log", "rank-1.log"} <= kept


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["agent", "launch", "keeper", "starter"])
def test_nothing_is_left_of_what_was_forked(tmp_path: Path, what: str) -> None:
    (tmp_path / "train.py").write_text(HANGS)
    size = ("--nnodes", "2", "--nproc-per-node", "2", "--warm", "on", "--grace", "1")
    command = [str(tmp_path / "train.py"), str(tmp_path)]
    with launching(tmp_path / "s", *size, command=command) as launched:
        until(lambda: all((tmp_path / f"{rank}").exists() for rank in range(4)))
        [zygote, *_] = [p for p in launched.children() if ZYGOTE in p.cmdline() and _is_first(p)]
        agent = zygote.parent()
        assert agent is not None
        [keeper] = [p for p in agent.children() if p != zygote and ZYGOTE in p.cmdline()]
        [starter] = keeper.children()
        family = [*agent.children(recursive=True)]
        if what == "launch":
            launched.signal(signal.SIGTERM)
        else:
            {"agent": agent, "keeper": keeper, "starter": starter}[what].kill()
        outcome = launched.finish()
    assert outcome.code != 0
    assert not any(lives(one.pid) for one in family)
    assert forked(launched) == []


def _is_first(process: psutil.Process) -> bool:
    """Whether it is a zygote, and not what was forked from it: its parent is an agent."""
    parent = process.parent()
    children = parent.children() if parent is not None else []
    first = min((c for c in children if ZYGOTE in c.cmdline()), key=lambda c: c.create_time())
    return parent is not None and ZYGOTE not in parent.cmdline() and process == first


def forked(launched: Launched) -> list[int]:
    """What has this test's script among its words."""
    script = str(launched.state.parent / "train.py")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            words = process.cmdline()
            if script in words and RDZV not in words and process.pid != os.getpid():
                found.append(process.pid)
    return found
