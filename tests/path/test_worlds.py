"""Real ranks that form other worlds than the table's: that is said, however short they live."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.support.launching import launching
from tests.support.nightly import at_night

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

PROGRAM = """
import os, sys
import torch.distributed as dist

if sys.argv[1] == "alone":
    store = f"file://{sys.argv[2]}/store-{os.environ['NODE_RANK']}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
else:
    dist.init_process_group("gloo")
    dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.faults
@pytest.mark.parametrize(
    ("kind", "strict", "code"),
    [
        at_night("alone", False, 0),
        at_night("alone", True, ExitCode.WRONG_WORLD),
        at_night("one", True, 0),
    ],
)
def test_a_run_is_ok_without_reserve_only_in_one_world(
    kind: str, strict: bool, code: int, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    options = ("--nnodes", "2", "--framework", "env", *["--strict"] * strict)
    command = [sys.executable, str(script), kind, str(tmp_path)]
    with launching(tmp_path / "s", *options, command=command) as launched:
        outcome = launched.finish()
    assert outcome.code == code, outcome.err
    result = json.loads((tmp_path / "s" / "r" / "result.json").read_text())
    is_alone = kind == "alone"
    assert (result["status"] == "failed") == (is_alone and strict)
    assert "wrong_world" in (result["code"], result["warning"]) or not is_alone
    said = "each node was alone: it formed a torch.distributed world of 1 process"
    last = outcome.err.splitlines()[-1]
    assert (said in last) == is_alone
    assert (f"run 'r' ok, but {said}" in last) == (is_alone and not strict)
