"""Starts a case through the real `rdzv launch`, on two nodes of this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.causes.injected import Case
from tests.support.launching import Outcome, launching

NODES = 2
LIMIT_SECONDS = 100.0
# Two ranks without torchrun, whose import of torch takes most of a quick test's time.
_BARE = 'RANK=$NODE_RANK WORLD_SIZE=$NNODES exec "$0" train.py'


@dataclass(frozen=True)
class Seen:
    """How it ended.

    Attributes:
        outcome: What the launcher said.
        result: `result.json`.
        logs: Of each node, by its rank.
    """

    outcome: Outcome
    result: dict[str, Any]
    logs: list[str]


def guilty_rank(case: Case) -> int:
    """The global rank of who is to blame."""
    return case.guilty[NODES * case.each]


def guilty_node(case: Case) -> int:
    """The rank, and the slot, of the node where that is."""
    return guilty_rank(case) // case.each


def start(case: Case, folder: Path) -> Seen:
    """Run it to its end."""
    (folder / "train.py").write_text(case.program)
    options = ["--nnodes", str(NODES), "--nproc-per-node", str(case.each)]
    command = ["train.py"]
    if case.bare:
        options, command = [*options, "--framework", "command"], ["sh", "-c", _BARE, sys.executable]
    env = {"GUILTY": str(guilty_rank(case)), "FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
    env |= {"PYTHONUNBUFFERED": "1", **case.env}
    state = folder / "state"
    with (
        case.by(folder) as by,
        launching(state, *options, command=command, env=env, by=by, cwd=folder) as launched,
    ):
        outcome = launched.finish(LIMIT_SECONDS)
    run = state / "r"
    logs = [(run / "logs" / f"node-{n}.log").read_text(errors="replace") for n in range(NODES)]
    return Seen(outcome, json.loads((run / "result.json").read_text()), logs)
