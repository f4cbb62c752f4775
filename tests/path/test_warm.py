"""A real launch whose ranks are forked: all that a node does with them is as with torchrun."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.path.test_hangs import looked, train
from tests.path.test_look import WHERE, seen
from tests.support.launching import RDZV, Launched, launch, launching, lives, rdzv
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
import sys
from torch.distributed import init_process_group, barrier, destroy_process_group
init_process_group("gloo")
number, again = os.environ["RANK"], os.environ["RDZV_RESTARTS"]
for n in range(2_000):
    sys.stdout.write(f"{{again}} {{number}} " + number * (n % 300) + "\\n")
barrier()
if again == "0" and number == "1":
    raise ValueError("no such data")
barrier()
destroy_process_group()
"""
HANGS = "import os, sys, time\nopen(sys.argv[1] + '/' + os.environ['RANK'], 'w')\ntime.sleep(600)\n"


def test_ranks_have_their_own_streams_and_start_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(AGAIN)
    size = ("--nnodes", "1", "--nproc-per-node", "2", "--max-restarts", "1")
    command = [str(tmp_path / "train.py"), str(tmp_path)]
    outcome = launch(tmp_path / "s", *size, "--warm", "on", command=command)
    assert outcome.code == 0, outcome.err
    assert "--warm off" not in outcome.err
    assert "ok after 1 restart" in outcome.last_line
    assert "rank 1 ended with exit code 1: ValueError: no such data (train.py:" in outcome.last_line
    lines = sorted(outcome.out.splitlines())
    expected = [f"{a} {r} {r * (n % 300)}" for a in "01" for r in "01" for n in range(2_000)]
    assert lines == sorted(expected)
    for rank, (out, err, path, folder, _) in enumerate(seen(tmp_path)):
        assert (out, err) == (f"{folder}/{rank}.stdout", f"{folder}/{rank}.stderr")
        assert path.endswith("worker/look/site")
    logs = tmp_path / "s" / "r" / "logs"
    kept = {path.name for path in logs.glob("rank-*.log")}
    assert {"rank-0.log", "rank-1.log"} <= kept


def test_a_look_names_the_rank_that_all_wait_for_and_a_stall_ends_the_run(tmp_path: Path) -> None:
    size = ("--nnodes", "2", "--nproc-per-node", "2", "--warm", "on")
    stall = ("--stall", "end", "--stall-timeout", "15")
    command = train(tmp_path, "hangs")
    with launching(tmp_path / "s", *size, *stall, command=command) as launched:
        until((tmp_path / "hangs").exists)
        found = looked(launched, "--again", "6")
        verdict = found["verdict"]
        assert isinstance(verdict, dict)
        assert (verdict["rule"], verdict["odd"], verdict["certain"]) == ("behind", [1], True)
        assert "load_batch (train.py:11)" in verdict["sentence"]
        assert "rank 1 (node 0, " in rdzv(launched.state, "look", "r")
        outcome = launched.finish()
    assert outcome.code == 89, outcome.err
    assert "load_batch (train.py:11)" in outcome.last_line
    assert forked(launched) == []


@pytest.mark.parametrize("what", ["agent", "keeper", "starter", "launch"])
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


def test_a_node_that_cannot_fork_says_why_and_starts_cold(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nprint('parent', os.getppid())\n")
    size = ("--nnodes", "1", "--warm", "on", "--warm-import", "no_such_module")
    outcome = launch(tmp_path / "s", *size, command=[str(tmp_path / "train.py")])
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("parent")
    assert (
        "--warm on: this node starts its processes as with --warm off: the import of "
        "no_such_module failed with ModuleNotFoundError"
    ) in outcome.err


def test_what_torchrun_would_do_more_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    command = [str(tmp_path / "train.py")]
    outcome = launch(
        tmp_path / "s", "--nnodes", "1", "--warm", "on", "--framework", "env", command=command
    )
    assert outcome.code == 64
    assert "--framework env does not start its processes by torchrun" in outcome.err
