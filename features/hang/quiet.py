"""A node in which nothing moves: no collective, no told step, no printed byte. Pure.

The ranks are sampled every few seconds. That nothing moves is not a failure: a checkpoint, an
evaluation and a compiler are silent as well. A node only tells the registry that it is quiet, once,
and that it moves again; what this means is judged of all nodes together, by looks at them.

How long silence has to last follows from the program: six times the longest silence before it, two
minutes at least. Before the first collectives silence alone says little: data are staged, models
loaded. So a process at work counts as movement there, and what is quiet all the same is told as
*early* first: it is shown, and not judged. It is judged after the time that a person has given for
a stall, or after half an hour.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from rendezvous.frozen import frozen

SAMPLE_SECONDS = 10.0
LEAST_SECONDS = 120.0
TIMES_LONGEST = 6.0
NEVER_SECONDS = 1_800.0
EARLY_TIMES = 2.0
"""Factor by which each next report of a silence at the start comes later."""
MOST_CALLS = 20
"""Collectives of a rank after which it is on its way; so are told steps after `MOST_STEPS`."""
MOST_STEPS = 3
WORK_SHARE = 0.05
"""Share of a core: who waits in `init_process_group` asks the store a hundred times a second, and
uses less. Looks find whoever does less than this, and work all the same."""
WORK_BYTES = 26_000
"""A second, read or written; what only watches does less."""

Silence = Literal["", "early", "judged"]
"""Report of a node's silence to the registry: none, that it is so, or to look into it."""


def sample_seconds(timeout: float | None) -> float:
    """From one sample to the next; a person may want an end after less than two minutes."""
    return SAMPLE_SECONDS if timeout is None else min(SAMPLE_SECONDS, max(1.0, timeout / 5))


@frozen
class Sample:
    """What has happened until now, in numbers that grow.

    Attributes:
        calls: Of each rank, how many collectives it has called, and how many have ended; -1: it
            does not answer.
        printed: Bytes that the ranks have written; what a person saw last is counted alike.
        step: The highest step that it has told; None: none.
        work: Of each rank with its children the seconds of CPU and the bytes read and written, and
            last those of its launcher, where a rank's process is not known.
    """

    calls: tuple[tuple[int, int], ...] = ()
    printed: int = 0
    step: int | None = None
    work: tuple[tuple[float, int], ...] = ()

    @property
    def progress(self) -> tuple[object, ...]:
        """Values whose change shows that the program gets on."""
        return self.calls, self.printed, self.step


@frozen
class Quiet:
    """What is known of a program's silences.

    Attributes:
        last: The newest sample, and `sampled_at` when that was.
        moved_at: When something was last seen to move, or the program began.
        longest: The longest silence that has ended, in seconds.
        early: The longest one that was told before the program was on its way.
        steps: How often another step was told.
        told: What the registry knows.
        least: Seconds that a silence has to last.
        judged: Seconds after which a silence before the first collectives is looked into.
    """

    last: Sample
    moved_at: float
    sampled_at: float = 0.0
    longest: float = 0.0
    early: float = 0.0
    steps: int = 0
    told: Silence = ""
    least: float = LEAST_SECONDS
    judged: float = NEVER_SECONDS

    @property
    def is_on_its_way(self) -> bool:
        """Return whether the program made its first collectives, or reported its first steps."""
        calls = max((called for called, _ in self.last.calls), default=0)
        return calls >= MOST_CALLS or self.steps >= MOST_STEPS

    @property
    def limit(self) -> float:
        """Seconds after which a silence is judged."""
        if not self.is_on_its_way:
            return self.judged
        return max(self.least, TIMES_LONGEST * self.longest)

    def silence(self, now: float) -> Silence:
        """Report due of the silence that lasts now."""
        silent = now - self.moved_at
        if silent >= self.limit:
            return "judged"
        early = max(LEAST_SECONDS, EARLY_TIMES * self.early)
        return "early" if not self.is_on_its_way and silent >= early else ""


def first_quiet(began_at: float, timeout: float | None) -> Quiet:
    """What is known of a program that was not sampled yet.

    Args:
        began_at: When it was started.
        timeout: After how many seconds a person wants a stall to end the programs.
    """
    return Quiet(
        Sample(),
        began_at,
        sampled_at=began_at,
        least=min(LEAST_SECONDS, timeout or LEAST_SECONDS),
        judged=min(NEVER_SECONDS, timeout or NEVER_SECONDS),
    )


def seen(before: Quiet, sample: Sample, now: float) -> Quiet:
    """What is known with one more sample; a rank that does not answer stays where it was."""
    if len(sample.calls) == len(before.last.calls):
        pairs = zip(before.last.calls, sample.calls, strict=True)
        calls = tuple(now if now[0] >= 0 else was for was, now in pairs)
        sample = replace(sample, calls=calls)
    known = replace(before, last=sample, sampled_at=now)
    moves = sample.progress != before.last.progress
    if not moves and (before.is_on_its_way or not _is_at_work(before, sample, now)):
        return known
    silent = now - before.moved_at
    return replace(
        known,
        moved_at=now,
        longest=max(before.longest, silent) if before.is_on_its_way else 0.0,
        early=max(before.early, silent) if before.told else before.early,
        steps=before.steps + (sample.step != before.last.step),
    )


def _is_at_work(before: Quiet, sample: Sample, now: float) -> bool:
    """Return whether a process has done something since the sample before; ranks that are in a
    collective may use a whole core to wait."""
    seconds = now - before.sampled_at
    if len(sample.work) != len(before.last.work):
        return True
    inside = [called > max(0, ended) for called, ended in sample.calls]
    pairs = zip(before.last.work, sample.work, strict=True)
    return any(
        cpu - cpu_before > WORK_SHARE * seconds or abs(done - done_before) > WORK_BYTES * seconds
        for number, ((cpu_before, done_before), (cpu, done)) in enumerate(pairs)
        if not (number < len(inside) and inside[number])
    )
