"""Real ranks that hang: a look names the one that the others wait for, and a stall ends in time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import Launched, launching, rdzv
from tests.support.nightly import at_night
from tests.support.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

TRAIN = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
folder, rank = pathlib.Path(sys.argv[1]), dist.get_rank()

def load_batch():
    (folder / "hangs").touch()
    time.sleep(600)

def save():
    until = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < until:
        (folder / "checkpoint").write_bytes(bytes(4 << 20))
        time.sleep(0.5)

for step in range(60):
    if rank == 1 and step == 30:
        {"hangs": load_batch, "saves": save}[sys.argv[2]]()
    dist.all_reduce(torch.ones(1024))
    time.sleep(0.02)
dist.barrier()
os._exit(0)
"""


def train(folder: Path, *words: str) -> list[str]:
    """A training of which rank 1 does something else in the middle."""
    (folder / "train.py").write_text(TRAIN)
    return [str(folder / "train.py"), str(folder), *words]


def looked(launched: Launched, *options: str) -> dict[str, object]:
    """What a look finds."""
    found: dict[str, object] = json.loads(rdzv(launched.state, "look", "r", "--json", *options))
    return found


@pytest.mark.faults
@pytest.mark.torch
@pytest.mark.parametrize("forked", [False, at_night(True)])
def test_a_look_names_the_rank_that_all_wait_for(tmp_path: Path, forked: bool) -> None:
    options = ("--nnodes", "2", "--nproc-per-node", "2", *["--warm", "on"] * forked)
    command = [*["torchrun"] * (not forked), *train(tmp_path, "hangs")]
    with launching(tmp_path / "s", *options, command=command) as launched:
        until((tmp_path / "hangs").exists)
        found = looked(launched, "--again", "6")
        verdict = found["verdict"]
        assert isinstance(verdict, dict)
        assert (verdict["rule"], verdict["odd"], verdict["certain"]) == ("behind", [1], True)
        assert "all_reduce #31 (float32[1024]) of default_pg" in verdict["sentence"]
        assert "load_batch (train.py:11)" in verdict["sentence"]
        words = rdzv(launched.state, "look", "r")
        assert "rank 1 (node 0, " in words
        assert "3 ranks, 0, 2-3:" in words


@pytest.mark.nightly
@pytest.mark.faults
@pytest.mark.parametrize(
    "how", [("--framework", "env"), pytest.param(("--warm", "on"), marks=pytest.mark.torch)]
)
def test_a_stall_ends_the_run_and_names_the_rank(tmp_path: Path, how: tuple[str, ...]) -> None:
    options = ("--nnodes", "2", *how, "--stall", "end", "--stall-timeout", "5")
    with launching(tmp_path / "s", *options, command=train(tmp_path, "hangs")) as launched:
        outcome = launched.finish()
    assert outcome.code == 89, outcome.err
    assert "stalled: rank 0 has waited" in outcome.last_line
    assert "load_batch (train.py:11)" in outcome.last_line
    result = json.loads((launched.folder / "result.json").read_text())
    assert (result["code"], result["cause"]) == ("stalled", "stalled")


@pytest.mark.nightly
@pytest.mark.faults
def test_a_rank_that_saves_for_long_is_never_ended(tmp_path: Path) -> None:
    options = ("--nnodes", "2", "--framework", "env", "--stall", "end", "--stall-timeout", "5")
    with launching(tmp_path / "s", *options, command=train(tmp_path, "saves", "40")) as launched:
        outcome = launched.finish(90.0)
    assert outcome.code == 0, outcome.err
    assert "nothing has moved" not in outcome.err


SPAWNS = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def stuck(folder):
    (folder / "hangs").touch()
    time.sleep(600)

def work(local, node, folder):
    rank = 2 * node + local
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    for step in range(9):
        if (rank, step) == (3, 5):
            stuck(folder)
        dist.all_reduce(torch.ones(8))

if __name__ == "__main__":
    mp.spawn(work, args=(int(os.environ["RANK"]), pathlib.Path(sys.argv[1])), nprocs=2)
"""


@pytest.mark.nightly
@pytest.mark.faults
@pytest.mark.torch
def test_a_child_of_a_rank_that_hangs_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNS)
    command = ["torchrun", str(tmp_path / "train.py"), str(tmp_path)]
    with launching(tmp_path / "s", "--nnodes", "2", command=command) as launched:
        until((tmp_path / "hangs").exists)

        def named() -> dict[str, Any] | None:
            verdict: Any = looked(launched)["verdict"]
            return verdict if verdict["odd"] else None

        verdict = until(named, 60.0)
        assert (verdict["rule"], verdict["odd"]) == ("children", [1])
        assert "3 of these 4 are in all_reduce" in verdict["sentence"]
        assert "is not: it is in stuck (train.py:9)" in verdict["sentence"]
        words = rdzv(launched.state, "look", "r")
        assert "started by rank 1 (node 1, " in words
        assert "3 processes, started by ranks 0-1:" in words


STARTS = """
import sys, time
import torch.distributed as dist

def wait_for_data(seconds, works):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(1.0)
        sum(range(2_000_000 * works))

rank = int(__import__("os").environ["RANK"])
if rank == 1:
    wait_for_data(*map(int, sys.argv[1:3]))
dist.init_process_group("gloo")
dist.barrier()
"""


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["env", "torchrun"])
def test_a_start_that_never_comes_to_a_collective_is_ended(framework: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STARTS)
    words = [str(tmp_path / "train.py"), "600", "0"]
    command = words if framework == "env" else ["torchrun", *words]
    more = ("--framework", "env") if framework == "env" else ()
    options = ("--nnodes", "2", *more, "--stall", "end", "--stall-timeout", "6")
    with launching(tmp_path / "s", *options, command=command) as launched:
        outcome = launched.finish(60.0)
    assert outcome.code == 89, outcome.err
    assert "stalled: rank 1 (node 1, " in outcome.last_line
    assert "in wait_for_data (train.py:" in outcome.last_line


@pytest.mark.nightly
@pytest.mark.faults
def test_a_slow_start_that_is_at_work_is_never_ended(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STARTS)
    options = ("--nnodes", "2", "--framework", "env", "--stall", "end", "--stall-timeout", "8")
    command = [str(tmp_path / "train.py"), "60", "1"]
    with launching(tmp_path / "s", *options, command=command) as launched:
        outcome = launched.finish(100.0)
    assert outcome.code == 0, outcome.err
    assert "nothing has moved" not in outcome.err


WAITS = """
import time

def wait_for_the_other_launcher():
    time.sleep(600)

wait_for_the_other_launcher()
"""


@pytest.mark.nightly
@pytest.mark.faults
def test_launchers_that_start_no_rank_are_named_and_ended(tmp_path: Path) -> None:
    (tmp_path / "launcher.py").write_text(WAITS)
    size = ("--nnodes", "2", "--nproc-per-node", "2", "--framework", "command")
    options = (*size, "--stall", "end", "--stall-timeout", "6")
    command = [sys.executable, str(tmp_path / "launcher.py")]
    with launching(tmp_path / "s", *options, command=command) as launched:
        outcome = launched.finish(60.0)
    assert outcome.code == 89, outcome.err
    assert "no rank has a process yet: on node 0 its launcher" in outcome.last_line
    assert "wait_for_the_other_launcher (launcher.py:5)" in outcome.last_line
