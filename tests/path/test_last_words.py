"""The last words of a failed run's ranks on their whole way, and without the logs of its nodes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from rendezvous.wire.last_words import LAST_LINES, WHOLE_BYTES
from tests.support.launching import launch, rdzv

PROGRAM = """
import os, pathlib, sys, time
folder, rank, epoch = pathlib.Path(sys.argv[1]), os.environ["NODE_RANK"], os.environ["RDZV_EPOCH"]
for line in range(3000):
    print(f"rank {rank}, line {line} of the {epoch}. epoch")
# Who is stopped before it has printed has no last words.
sys.stdout.flush()
(folder / f"printed-{rank}").touch()
while len([*folder.glob("printed-*")]) < 2:
    time.sleep(0.01)
if rank == "1":
    raise RuntimeError("the disk of rank 1 is gone")
time.sleep(600)
"""
OPTIONS = ("--nnodes", "2", "--framework", "command", "--nproc-per-node", "1")

pytestmark = [pytest.mark.faults, pytest.mark.real_time, pytest.mark.timeout(120)]


def test_the_first_cause_is_read_when_the_logs_of_all_nodes_are_gone(tmp_path: Path) -> None:
    state, logs = tmp_path / "s", tmp_path / "logs"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    outcome = launch(state, *OPTIONS, "--log-dir", str(logs), command=command)
    assert outcome.code == 1, outcome.err
    assert "last output kept" not in outcome.last_line  # its log is here
    shutil.rmtree(logs)
    words = state / "r" / "last-words"
    assert json.loads((state / "r" / "result.json").read_text())["last_words"] == str(words)
    sent = {path.relative_to(words).as_posix(): path.read_text() for path in words.rglob("*.txt")}
    assert sorted(sent) == ["epoch-1/node-0.txt", "epoch-1/node-1.txt"]
    first, other = sent["epoch-1/node-1.txt"], sent["epoch-1/node-0.txt"]
    assert first.endswith("RuntimeError: the disk of rank 1 is gone\n")
    assert WHOLE_BYTES - 100 < len(first) <= WHOLE_BYTES + 1
    assert other.splitlines() == [
        f"rank 0, line {line} of the 1. epoch" for line in range(3000 - LAST_LINES, 3000)
    ]
    assert f"last output kept in {words}" in " ".join(rdzv(state, "status", "r").split())
    for which in ((), ("--rank", "1"), ("--node", "1")):
        shown = rdzv(state, "logs", "r", *which, "--lines", "1").splitlines()
        assert shown == [
            f"==> {words}/epoch-1/node-1.txt",
            "RuntimeError: the disk of rank 1 is gone",
        ]
