"""A look at ranks of a real torchrun, one of which does not come to the others' collective."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from features.hang.ranks.collect import collect, sample
from tests.worker.look.ranks import environment, folder_in, until

pytestmark = [pytest.mark.frameworks, pytest.mark.torch]

TRAIN = """
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
pair = dist.new_group([0, 1], group_desc="pair")
gradient = torch.ones(256, 4)
for _ in range(20):
    dist.all_reduce(gradient)

def load_batch():
    time.sleep(100)

if dist.get_rank() == 1:
    load_batch()
dist.all_reduce(gradient)
"""


@pytest.mark.timeout(180)
def test_the_odd_rank_and_what_the_others_wait_in(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    folder = folder_in(tmp_path)
    shutil.rmtree(tmp_path / "site-packages")  # the torch of a few lines
    env = {**environment(folder, None), "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    argv = [*torchrun, "--nproc-per-node=2", str(tmp_path / "train.py")]
    ranks = {0: None, 1: None}
    with subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: [each.called for each in sample(folder, ranks).values()] == [21, 20], 120)
            seen = collect(folder, ranks, 4)
        finally:
            process.terminate()
    stacks = [
        [frame.function for frame in seen.stacks[rank.stack or 0].frames] for rank in seen.ranks
    ]
    assert [(rank.rank, rank.stage, rank.recorder) for rank in seen.ranks] == [
        (4, "groups", "read"),
        (5, "groups", "read"),
    ]
    assert (stacks[0][0], stacks[1][0]) == ("all_reduce", "load_batch")
    told = [[(g.name, g.words, g.members, g.called) for g in rank.groups] for rank in seen.ranks]
    assert told == [
        [("0", "default_pg", "0-1", 21), ("1", "", "0-1", 0)],
        [("0", "default_pg", "0-1", 20), ("1", "", "0-1", 0)],
    ]
    newest = [rank.groups[0].calls[-1] for rank in seen.ranks]
    assert [(call.number, call.operation, call.what, call.done) for call in newest] == [
        (21, "all_reduce", "float32[256,4]", False),
        (20, "all_reduce", "float32[256,4]", True),
    ]
    assert [rank.called for rank in seen.ranks] == [0, 0]
