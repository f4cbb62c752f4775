"""The lines of a node's log without what its launcher printed at its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rendezvous.wire.run import Result
from worker.program.launcher_lines import LauncherLines
from worker.program.log_file import read_log_name

MOST_LEFT_OUT = 200
"""Lines; more of them are no report of a launcher that is known."""


def may_have_reports(name: str) -> bool:
    """Whether a log of this name holds what a launcher printed among the lines of its ranks."""
    return read_log_name(Path(name).name) is not None


def was_stopped(name: str, result: Result | None) -> bool:
    """Whether rdzv stopped the launcher with this log: none that may have failed of itself."""
    if result is None or result.status == "ok":
        return False
    found = read_log_name(Path(name).name)
    return result.status == "cancelled" or (
        found is not None and result.node is not None and found[0] != result.node
    )


def without_reports(lines: Sequence[str], *, is_stopped: bool) -> list[str]:
    """What a terminal shows of these lines, see `LauncherLines`."""
    reader = LauncherLines(lambda local_rank: False)
    reader.is_stopped = is_stopped
    return [*(kept for line in lines for kept in reader.take(line)), *reader.end()]
