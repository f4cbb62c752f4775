"""A node in which nothing moves: no collective, no told step, no printed byte. Pure.

The ranks are sampled every few seconds. That nothing moves is not a failure: a checkpoint, an
evaluation and a compiler are silent as well. A node only tells the registry that it is quiet, once,
and that it moves again; what this means is judged of all nodes together, by looks at them.

How long silence has to last follows from the program: six times the longest silence before it, two
minutes at least. Before the first collectives it is half an hour: data are staged, models loaded.
"""

from __future__ import annotations

from dataclasses import replace

from rendezvous.frozen import frozen

SAMPLE_SECONDS = 10.0
LEAST_SECONDS = 120.0
TIMES_LONGEST = 6.0
NEVER_SECONDS = 1_800.0
MOST_CALLS = 20
"""Collectives of a rank after which it is on its way; so are told steps after `MOST_STEPS`."""
MOST_STEPS = 3


def sample_seconds(timeout: float | None) -> float:
    """From one sample to the next; a person may want an end after less than two minutes."""
    return SAMPLE_SECONDS if timeout is None else min(SAMPLE_SECONDS, max(1.0, timeout / 5))


@frozen
class Sample:
    """What has happened until now, in numbers that grow.

    Attributes:
        calls: Of each rank, how many collectives it has called, and how many have ended; -1: it
            does not answer.
        printed: Bytes that the program has written.
        step: The highest step that it has told; None: none.
    """

    calls: tuple[tuple[int, int], ...] = ()
    printed: int = 0
    step: int | None = None


@frozen
class Quiet:
    """What is known of a program's silences.

    Attributes:
        last: The newest sample.
        moved_at: When something was last seen to move, or the program began.
        longest: The longest silence that has ended, in seconds.
        steps: How often another step was told.
        told: Whether the registry knows that the node is quiet.
        least: Seconds that a silence has to last.
    """

    last: Sample
    moved_at: float
    longest: float = 0.0
    steps: int = 0
    told: bool = False
    least: float = LEAST_SECONDS

    @property
    def limit(self) -> float:
        """Seconds after which a silence is told."""
        calls = max((called for called, _ in self.last.calls), default=0)
        if calls < MOST_CALLS and self.steps < MOST_STEPS:
            return NEVER_SECONDS
        return max(self.least, TIMES_LONGEST * self.longest)


def seen(before: Quiet, sample: Sample, now: float) -> Quiet:
    """What is known with one more sample; a rank that does not answer stays where it was."""
    if len(sample.calls) == len(before.last.calls):
        pairs = zip(before.last.calls, sample.calls, strict=True)
        calls = tuple(now if now[0] >= 0 else was for was, now in pairs)
        sample = replace(sample, calls=calls)
    if sample == before.last:
        return before
    was_on_its_way = before.limit < NEVER_SECONDS
    return Quiet(
        sample,
        now,
        max(before.longest, now - before.moved_at) if was_on_its_way else 0.0,
        before.steps + (sample.step != before.last.step),
        before.told,
        before.least,
    )
