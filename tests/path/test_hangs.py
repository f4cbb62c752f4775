"""Real ranks that hang: a look names the one that the others wait for, and a stall ends in time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.launching import Launched, launching, rdzv
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
def test_a_look_names_the_rank_that_all_wait_for(tmp_path: Path) -> None:
    options = ("--nnodes", "2", "--nproc-per-node", "2")
    command = ["torchrun", *train(tmp_path, "hangs")]
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
def test_a_stall_ends_the_run_and_names_the_rank(tmp_path: Path) -> None:
    options = ("--nnodes", "2", "--framework", "env", "--stall", "end", "--stall-timeout", "5")
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


SLOW = """
import random, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
go, late = torch.ones(1), 0.02 * (dist.get_rank() == int(sys.argv[1]))
until = time.monotonic() + 100
while go.item():
    time.sleep(0.05 + 0.005 * random.random() + late)
    dist.all_reduce(torch.ones(1024))
    go.fill_(time.monotonic() < until)
    dist.all_reduce(go, op=dist.ReduceOp.MIN)
dist.barrier()
"""


@pytest.mark.nightly
@pytest.mark.faults
@pytest.mark.torch
@pytest.mark.timeout(180)
@pytest.mark.parametrize("slow", [2, -1])
def test_a_slow_rank_is_named_with_its_cost_and_no_other(tmp_path: Path, slow: int) -> None:
    (tmp_path / "train.py").write_text(SLOW)
    options = ("--nnodes", "2", "--nproc-per-node", "2")
    command = ["torchrun", str(tmp_path / "train.py"), str(slow)]
    with launching(tmp_path / "s", *options, command=command) as launched:
        outcome = launched.finish(150.0)
    assert outcome.code == 0, outcome.err
    named = re.findall(r"(rank \d+|node \d+) .* makes the others wait, up to (\S+) ms", outcome.err)
    assert [who for who, _ in named] == ["rank 2"] * (slow == 2)
    assert all(10 < float(cost) < 40 for _, cost in named)
