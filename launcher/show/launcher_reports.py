"""The lines of a node's log without what its launcher printed at its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rendezvous.wire.run import Result
from worker.program.launcher_lines import LauncherLines, Why
from worker.program.log_file import read_log_name

MOST_LEFT_OUT = 200
"""Lines; more of them are no report of a launcher that is known."""


def may_have_reports(name: str) -> bool:
    """Return whether such a log holds what a launcher printed among the lines of its ranks."""
    return read_log_name(Path(name).name) is not None


def was_stopped(name: str, result: Result | None) -> bool:
    """Return whether rdzv stopped the launcher with this log: none that may have failed itself."""
    found = read_log_name(Path(name).name)
    if found is None or result is None:
        return False
    node, epoch = found[0], max(1, found[1])  # the first one's log has no number
    ends = {end.epoch: end for end in result.epochs}
    if (end := ends.get(epoch)) is not None:
        return end.node != node if end.node is not None else not end.code  # a person asked for it
    if result.status == "failed":
        return result.node not in (None, node)
    return result.status == "cancelled"


def without_reports(lines: Sequence[str], *, is_stopped: bool) -> tuple[list[str], int]:
    """Return the lines that a terminal shows, see `LauncherLines`, and how many reports had."""
    reader = LauncherLines(lambda local_rank: False)
    reader.is_stopped = is_stopped
    shown = [*(kept for line in lines for kept in reader.take(line)), *reader.end()]
    return shown, reader.folded.total() - reader.folded[Why.AT_START]
