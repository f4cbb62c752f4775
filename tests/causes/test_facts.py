"""Facts of a real kernel and of real peers, from the node that sees them to the sentence of a run.

`tests/worker/evidence` holds each kind of fact to the real thing by itself; here a launch tells it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import launching
from tests.worker.evidence.test_look import control_group
from tests.worker.evidence.test_places import mounted, needs_root
from worker.evidence.control_groups import MEMORY

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

_BARE = 'RANK=$NODE_RANK exec "$0" train.py'
EATS = """import os, time
time.sleep(1)
held = [bytearray(64 << 20) for _ in range(100)] if os.environ["RANK"] == "1" else time.sleep(60)
"""
FILLS = """import os, time
time.sleep(1)
if os.environ["RANK"] == "1":
    path = os.path.abspath("disk/checkpoint.pt")
    print(f"saving {path!r}")
    with open(path, "wb") as file:
        file.write(bytes(8 << 20))
time.sleep(60)
"""
LOSES_A_PEER = """import os, signal, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(1000):
    dist.all_reduce(torch.ones(8))
    if (dist.get_rank(), step) == (2, 40):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def launched(folder: Path, program: str, *options: str, by: tuple[str, ...] = ()) -> dict[str, Any]:
    """The `result.json` of the program on two nodes."""
    (folder / "train.py").write_text(program)
    command = ["train.py"] if "torchrun" in options else ["sh", "-c", _BARE, sys.executable]
    options = ("--nnodes", "2", "--framework", *options)
    state = folder / "state"
    with launching(state, *options, command=command, cwd=folder, by=by) as one:
        one.finish(100.0)
    result: dict[str, Any] = json.loads((state / "r" / "result.json").read_text())
    return result


def test_a_program_that_is_killed_at_its_groups_limit_of_memory_is_told_so(tmp_path: Path) -> None:
    with control_group(MEMORY, 1 << 30) as group:
        join = ("sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh")
        result = launched(tmp_path, EATS, "command", by=join)
    assert (result["cause"], result["slot"], result["certain"]) == ("memory_limit", 1, True), result
    assert "1 GiB" in result["message"]


@needs_root
def test_a_disk_that_is_full_is_told_with_what_is_free(tmp_path: Path) -> None:
    with mounted("tmpfs", "size=2m,mode=1777", tmp_path / "disk") as disk:
        result = launched(tmp_path, FILLS, "command")
    assert (result["cause"], result["slot"], result["certain"]) == ("disk_full", 1, True), result
    assert f"{disk}: 0 bytes of 2 MiB free" in result["message"], result


@pytest.mark.torch
@pytest.mark.nightly
def test_of_real_peers_the_one_that_was_killed_is_named(tmp_path: Path) -> None:
    result = launched(tmp_path, LOSES_A_PEER, "torchrun", "--nproc-per-node", "2")
    assert (result["cause"], result["rank"], result["certain"]) == ("killed", 2, True)
