"""The former launches of a run: what each ended with, and where the logs of the last one are."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from launcher.show.run_list import former_row, in_short
from launcher.state.former_launches import former_launches
from launcher.state.state_dir import StateDir

_SHOWN = 3


def former_lines(state: StateDir) -> list[str]:
    """The newest ones, a line for each, below how the run stands."""
    launches = former_launches(state.path)
    lines = [f"before   {in_short(former_row(state, one))}" for one in launches[:_SHOWN]]
    if (more := len(launches) - len(lines)) > 0:
        lines.append(f"         and {more} more: rdzv status --all")
    if lines and os.path.isdir(state.former_logs):  # those of older ones are not kept
        lines.insert(1, f"         its logs: {state.former_logs}")
    return lines


def former_values(state: StateDir) -> dict[str, Any]:
    """All of them that are kept, as JSON has them below how the run stands."""
    rows = [asdict(former_row(state, one)) for one in former_launches(state.path)]
    return {"former_launches": rows}


def launched_before(state: StateDir) -> str:
    """Tell how the launch of this run ended whose place a new one takes; empty where none did.

    Before the new launch makes room for itself.
    """
    record, result = state.record(), state.result()
    if record is None or result is None:
        return ""
    failed = f"failed (exit code {result.exit_code})"
    how = {"ok": "ended ok", "failed": failed}.get(result.status, "was cancelled")
    return f"rdzv: run '{state.run}' was launched before, and {how}: rdzv status {state.run}"
