"""A first warm start that fails at once is repeated cold: once in a run, and not counted. Pure.

With `--warm on` a node forks its ranks from a process that has imported torch, which is not the
same as a start for every program. The epoch after it shows what the program does of itself: but
for the steps that were reached, it is judged as if the warm one had not been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rendezvous.run.lasted import ran_seconds
from rendezvous.run.state import Run, who
from rendezvous.wire.run import EpochEnd

if TYPE_CHECKING:
    from rendezvous.run.first_cause import FirstCause

AT_ONCE_SECONDS = 10.0
"""What the fork itself may have done to a program shows by then."""


def is_due(run: Run, found: FirstCause) -> bool:
    """Whether the epoch that has failed is to be repeated, with all of its nodes there."""
    starts, report = run.starts, found.report
    if starts.warm != run.epoch or starts.cold or report is None:
        return False
    if report.by_agent or report.fenced or run.stop_asked is not None:
        return False
    # From the go, or as its node has it: what is forked waits for imports, at times for minutes.
    seconds = ran_seconds(run, found.failed)
    if report.ran_seconds is not None:
        seconds = min(seconds, report.ran_seconds)
    return seconds <= AT_ONCE_SECONDS


def words_of(found: FirstCause) -> str:
    """What is decided, as a clause."""
    return (
        f"{who(found.failed)} failed within {AT_ONCE_SECONDS:.0f} s of a warm start; starting "
        "again with --warm off, not counted as a restart"
    )


def others(run: Run) -> list[EpochEnd]:
    """The epochs that are over, but for the one that was repeated."""
    starts = run.starts
    return [end for end in starts.ended if not starts.cold or end.epoch != starts.warm]
