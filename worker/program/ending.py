"""How a program ended: facts, and the sentences that are made of them. Pure."""

from __future__ import annotations

import signal
from dataclasses import replace

from rendezvous.frozen import frozen
from worker.program.family import Failure, Family, ToldEnd, likely_cause, with_end

_KILLED = 128 + signal.SIGKILL


@frozen
class LeftBehind:
    """What a program that ended with 0 had left running: how many, and of the first few the pid,
    the age in seconds and the command."""

    count: int
    named: tuple[tuple[int, int, str], ...] = ()

    def words(self) -> str:
        """One sentence for a person."""
        which = [f"pid {pid} ({command}, {age} s old)" for pid, age, command in self.named]
        more = self.count - len(which)
        which += [f"and {more} more"] if more else []
        return (
            f"the program ended with exit code 0 and left {self.count} of its processes "
            f"running, which rdzv now ends: {', '.join(which)}"
        )


@frozen
class Ending:
    """How a program ended.

    Attributes:
        exit_code: 0 to 255, 128 + n for signal n.
        ended_at: When its main process ended, on the clock of the event loop.
        first_failure: The child that failed first of its own accord; None when none was seen. Of a
            program that was told to stop it is a rank that had failed before, seen as such: no
            guess.
        left: What had to be ended after the program had itself ended well.
        keeper_signal: The signal that killed the program's keeper, and it with it; 0 if none did.
        was_told: Whether this node had told it to end.
    """

    exit_code: int
    ended_at: float
    first_failure: Failure | None = None
    left: LeftBehind | None = None
    keeper_signal: int = 0
    was_told: bool = False

    @property
    def failed_rank(self) -> Failure | None:
        """The first failure, if it is a rank's: a helper may fail long before, and ends nothing."""
        first = self.first_failure
        return first if first is not None and first.rank is not None else None

    @property
    def began_to_fail_at(self) -> float:
        """When the first thing went wrong: a rank failed, or the program itself ended."""
        first = self.failed_rank
        return first.ended_at if first else self.ended_at

    @property
    def reason(self) -> str:
        """One sentence for a person."""
        words = self._keeper_words or f"the program ended with {code_words(self.exit_code)}"
        if (first := self.first_failure) is not None:
            rank = "" if first.rank is None else f" (rank {first.rank})"
            cause = f"process {first.pid}{rank} ended first with {code_words(first.exit_code)}"
            words = f"{cause}, then {words}"
        return "; ".join(filter(None, (words, self._killer_words)))

    @property
    def more_than_code(self) -> str:
        """What is to be said of it beside the exit code; empty when there is nothing."""
        return "; ".join(filter(None, (self._keeper_words, self._killer_words)))

    @property
    def _keeper_words(self) -> str:
        if not self.keeper_signal:
            return ""
        own = "" if self.was_told else ", which rdzv did not send,"
        return (
            f"{signal_name(self.keeper_signal)}{own} killed the program's keeper, and rdzv ended "
            "what was left of the program"
        )

    @property
    def _killer_words(self) -> str:
        code = self.first_failure.exit_code if self.first_failure else self.exit_code
        if code != _KILLED or self.was_told or self.keeper_signal:
            return ""
        return "rdzv did not send this signal"


def with_told_end(ending: Ending, family: Family, told: ToldEnd | None) -> Ending:
    """The same, where no end of a rank was seen that explains it, and its launcher has told one.

    Args:
        ending: Of the program.
        family: Its children.
        told: The process that failed first; None: nothing was told.
    """
    first = ending.first_failure
    if told is None or ending.was_told or not ending.exit_code:
        return ending
    if first is not None and (first.rank is not None or first.pid != told.pid):
        return ending
    return replace(ending, first_failure=likely_cause(with_end(family, told)))


def with_told_rank(ending: Ending, rank: int | None) -> Ending:
    """The same, without a failure that was seen of another rank than the one that failed first, as
    its starter has told: on a busy machine that one may have ended unseen. The exit code is its.

    Args:
        ending: Of the program.
        rank: The one that failed first; None: nothing was told.
    """
    first = ending.first_failure
    if rank is None or first is None or first.rank == rank or ending.was_told:
        return ending
    return replace(ending, first_failure=None)


def code_words(code: int) -> str:
    """An exit code, with the signal that it stands for."""
    name = signal_name(code - 128)
    return f"exit code {code} ({name})" if name else f"exit code {code}"


def signal_name(number: int) -> str:
    """Such as SIGTERM; empty when there is no such signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
