"""The second corpus, in `rdzv launch`: the result names who is to blame, and why, in its words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.causes.second import Fault
from tests.causes.second_ends import FAULTS
from tests.support.launching import launching

LIMIT_SECONDS = 100.0

pytestmark = [pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(150)]


def _start(fault: Fault, folder: Path) -> dict[str, Any]:
    (folder / "train.py").write_text(fault.program)
    options = ["--nnodes", str(fault.nodes), "--nproc-per-node", str(fault.each)]
    if fault.framework == "command":
        options = ["--nnodes", str(fault.nodes)]
    env = {"FOLDER": str(folder), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **fault.env}
    state, options = folder / "state", [*options, "--framework", fault.framework]
    with launching(state, *options, command=[*fault.command], env=env, cwd=folder) as launched:
        launched.finish(LIMIT_SECONDS)
    told: dict[str, Any] = json.loads((state / "r" / "result.json").read_text())
    return told


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=[pytest.mark.torch] * (fault.framework != "env"))
        for fault in FAULTS
    ],
)
def test_the_result_names_who_and_why(fault: Fault, tmp_path: Path) -> None:
    result = _start(fault, tmp_path)
    told = {name: result[name] for name in ("cause", "certain", "slot", "worker_rank", "message")}
    assert (result["status"], result["certain"]) == ("failed", True), told
    for pattern in fault.says:
        assert re.search(pattern, told["message"]), (pattern, told)
    if not fault.guilty:
        return
    assert told["slot"] in {rank // fault.each for rank in fault.guilty}, told
    if fault.ranks_known:
        assert told["worker_rank"] in fault.guilty, told
