"""Nodes of a `--warm on` run of which one cannot fork its ranks: all meet, whatever the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.path.test_warm import ZYGOTE
from tests.support.launching import BIN, Launched, Outcome, launching, rdzv

pytestmark = [
    pytest.mark.faults,
    pytest.mark.real_time,
    pytest.mark.torch,
    pytest.mark.timeout(240),
]
MEETS = """
import os, pathlib, sys
epoch, node = os.environ["RDZV_EPOCH"], os.environ["GROUP_RANK"]
if [epoch, node] == sys.argv[2:]:
    sys.exit(3)
import torch, torch.distributed as d
words = pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_text()
how = next(name for name in ("zygote", "spawner", "torchrun") if name in words)
d.init_process_group("gloo")
total = torch.ones(1)
d.all_reduce(total)
print(f"{epoch} {node} {how} {int(total)}\\n", end="", flush=True)
d.barrier()
exec(sys.argv[1])
d.destroy_process_group()
"""
ODD = """
import os, pathlib, time
if os.environ["SLOT"] == os.environ["ODD"]:
    exec(os.environ["DOES"])
"""
FORKED, SPAWNED, TORCHRUN = "zygote", "spawner", "torchrun"
NEEDS_TORCHRUN = "another node can be started by torchrun alone, which waits for all others"


class Reason(NamedTuple):
    """Why one node of several does not fork its ranks.

    Attributes:
        said: What that node says.
        does: What the import of a module does there.
        shell: What precedes the start of its agent there.
        starts: What starts its ranks, and what those of the other nodes.
        options: Of the launch.
    """

    said: str
    does: str = ""
    shell: str = ""
    starts: tuple[str, str] = (SPAWNED, FORKED)
    options: tuple[str, ...] = ("--nproc-per-node", "2")


def torchrun(said: str, shell: str) -> Reason:
    """One for which all nodes start torchrun."""
    return Reason(said, shell=shell, starts=(TORCHRUN, TORCHRUN))


REASONS = {
    "import": Reason("the import of odd failed with ValueError: no", "raise ValueError('no')"),
    "threads": Reason(
        "the imports have left 1 threads running",
        "import threading\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    ),
    "process": Reason(
        "the imports have left a process running",
        "import subprocess\nsubprocess.Popen(['sleep', '5'])",
    ),
    "CUDA": Reason(
        "the imports have initialised CUDA",
        "import torch\ntorch.cuda._is_in_bad_fork = lambda: True",
    ),
    "killed": Reason("the process that imports ended by SIGKILL", "os.kill(os.getpid(), 9)"),
    "variable": Reason(
        "OMP_NUM_THREADS changed after the imports, which may have read it",
        shell=f"unset OMP_NUM_THREADS;taskset -p -c {min(os.sched_getaffinity(0))} $$ >&2;",
        options=("--nproc-per-node", "cpu"),
    ),
    "PET": torchrun(
        "PET_LOG_DIR is set, which only torchrun itself can follow", "export PET_LOG_DIR=/tmp;"
    ),
    "interpreter": torchrun(
        "PYTHON_EXEC is set, which only torchrun itself can follow",
        f"export PYTHON_EXEC={BIN}/python;",
    ),
    "script": torchrun("bin/torchrun is not torchrun's own script", 'PATH="$OTHER:$PATH";'),
    "off": torchrun("", "export RDZV_WARM=off;"),
}


@contextmanager
def mixed(
    folder: Path,
    odd: int,
    why: Reason,
    *options: str,
    nodes: int = 2,
    then: str = "pass",
    fails: tuple[str, ...] = (),
    waits: bool = False,
) -> Iterator[Launched]:
    """A launch of which one node is odd.

    Args:
        folder: Where all of it is.
        odd: The node's slot.
        why: What it is of.
        options: Of the launch.
        nodes: How many there are.
        then: What each rank does once all have met.
        fails: The epoch and the node whose ranks fail at once.
        waits: The other nodes begin when the odd one has seen why it is.
    """
    (folder / "train.py").write_text(MEETS)
    (folder / "odd.py").write_text(ODD)
    other = folder / "bin" / "torchrun"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec {BIN}/torchrun "$@"\n')
    other.chmod(0o755)
    spec = folder / "worker.yaml"
    gate = 'until [ -z "$WAITS" ] || [ -e "$SEEN" ]; do sleep 0.1; done'
    shell = f'if [ $SLOT = $ODD ]; then {why.shell} :; else {gate}; fi; exec rdzv worker "$@"'
    spec.write_text(
        f"argv: [sh, -c, {shell!r}, sh, <<WORKER_OPTIONS>>, --, <<COMMAND>>]\n"
        'env: {RDZV_JOIN: <<RDZV_JOIN>>, SLOT: "<<SLOT>>", RDZV_WARM: "on"}\n'
    )
    env = {
        "WAITS": "x" * waits,
        "ODD": f"{odd}",
        "DOES": why.does,
        "SEEN": f"{folder}/seen",
        "OTHER": f"{other.parent}",
    }
    size = ("--nnodes", f"{nodes}", "--worker-spec", f"{spec}", *why.options)
    with launching(
        folder / "s",
        *(*size, "--warm-import", "odd", *options),
        command=[str(folder / "train.py"), then, *fails],
        env={**env, "PYTHONPATH": str(folder)},
    ) as launched:
        yield launched


def met(outcome: Outcome, epoch: int, odd: int, why: Reason, nodes: int) -> None:
    """All ranks of an epoch have met, each started as it should be."""
    lines = [line.partition("] ")[2].split() for line in outcome.out.splitlines()]
    seen = {(int(node), how) for number, node, how, _ in lines if int(number) == epoch}
    its, others = why.starts
    assert seen == {(node, its if node == odd else others) for node in range(nodes)}, outcome.err
    totals = [int(total) for number, *_, total in lines if int(number) == epoch]
    assert totals == [len(totals)] * len(totals)


CELLS = [(reason, odd, nodes) for nodes in (2, 4) for reason in REASONS for odd in (0, nodes - 1)]


@pytest.mark.nightly
@pytest.mark.parametrize(("reason", "odd", "nodes"), CELLS)
def test_all_ranks_meet_where_one_node_does_not_fork(
    tmp_path: Path, reason: str, odd: int, nodes: int
) -> None:
    why = REASONS[reason]
    with mixed(tmp_path, odd, why, nodes=nodes) as launched:
        outcome = launched.finish(150)
    assert outcome.code == 0, outcome.err
    met(outcome, 1, odd, why, nodes)
    assert (f"rdzv[slot {odd}]: --warm on: this node starts" in outcome.err) is bool(why.said)
    assert why.said in outcome.err
    others = outcome.err.count(f"as with --warm off: {NEEDS_TORCHRUN}")
    assert others == (nodes - 1) * (why.starts[1] == TORCHRUN)


IS_SEEN = "pathlib.Path(os.environ['SEEN']).exists()"
SEES = "pathlib.Path(os.environ['SEEN']).touch()"
FAILS = "raise ValueError('no')"


@pytest.mark.nightly
@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("when", ["before the acknowledgement", "after the go"])
def test_all_ranks_meet_whenever_it_turns_out(tmp_path: Path, when: str, odd: int) -> None:
    before = when.startswith("before")
    does = SEES if before else f"while not {IS_SEEN}: pass"
    why = REASONS["import"]._replace(does=f"{does}\n{FAILS}")
    with mixed(tmp_path, odd, why, waits=before) as launched:
        if not before:
            launched.wait_for_phase("running")
            (tmp_path / "seen").touch()
        outcome = launched.finish(100)
    assert outcome.code == 0, outcome.err
    met(outcome, 1, odd, why, 2)
    order = [outcome.err.index(words) for words in (why.said, "; starting ")]
    assert (order[0] < order[1]) is before


@pytest.mark.nightly
@pytest.mark.parametrize("odd", [0, 1])
def test_all_ranks_meet_where_a_node_can_fork_no_more_at_a_restart(
    tmp_path: Path, odd: int
) -> None:
    why = REASONS["import"]._replace(does=f"if {IS_SEEN}: {FAILS}")
    then = "import time\nif epoch == '1': time.sleep(600)"
    with mixed(tmp_path, odd, why, then=then) as launched:
        lines: list[str] = []
        assert launched.process.stdout is not None
        while len(lines) < 4:
            lines.append(launched.process.stdout.readline())
        (tmp_path / "seen").touch()
        zygote_of(launched, odd).kill()
        rdzv(launched.state, "restart", "r")
        outcome = launched.finish(100)
    assert outcome.code == 0, outcome.err
    forked = why._replace(starts=(FORKED, FORKED))
    met(Outcome(0, "".join(lines), ""), 1, odd, forked, 2)
    met(outcome, 2, odd, why, 2)
    assert why.said in outcome.err


def zygote_of(launched: Launched, slot: int) -> psutil.Process:
    """What the agent of this slot forks its ranks from."""
    found = [p for p in launched.children() if ZYGOTE in p.cmdline()]
    found = [p for p in found if p.environ().get("SLOT") == f"{slot}"]
    return min(found, key=lambda process: process.create_time())


@pytest.mark.nightly
def test_a_first_start_that_fails_at_once_is_repeated_by_torchrun_on_all_nodes(
    tmp_path: Path,
) -> None:
    """Whichever of them fails: here the one that has forked nothing."""
    why = REASONS["import"]._replace(does=f"{SEES}\n{FAILS}", starts=(TORCHRUN, TORCHRUN))
    with mixed(tmp_path, 1, why, fails=("1", "1"), waits=True) as launched:
        outcome = launched.finish(100)
    assert outcome.code == 0, outcome.err
    met(outcome, 2, 1, why, 2)
    assert "starting again with --warm off, not counted as a restart" in outcome.err
