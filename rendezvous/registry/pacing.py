"""The nodes of a run are asked now and then when their ranks called their collectives.

What they answer is merged as it comes, so that nothing else waits for the sum of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from rendezvous import pace
from rendezvous.registry.questions import nodes_of
from rendezvous.run import stragglers
from rendezvous.run.events import Event
from rendezvous.run.state import Run
from rendezvous.wire.pace import PACE, PaceAnswer
from rendezvous.wire.question import Question

ANSWER_SECONDS = 5.0
"""How long nodes may take to answer."""
SECONDS_EACH = 0.01
"""More for each node: they answer one after the other, in a little less."""


@dataclass
class _Asked:
    """What the nodes were asked last: who is to answer, and what came."""

    number: int
    epoch: int
    began_at: float
    until: float
    awaited: set[int]
    timeline: pace.Timeline = field(default_factory=pace.Timeline)

    def is_over(self, now: float) -> bool:
        return not self.awaited or now >= self.until


class Pacing:
    """The watch over who makes the others wait in one run; in memory.

    Args:
        wake: Lets the nodes hear that they are asked.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._watch = pace.PaceWatch()
        self._number = secrets.randbits(48)
        self._asked = _Asked(0, 0, 0.0, 0.0, set())

    def events(self, run: Run, now: float) -> list[Event]:
        """What is found; the nodes are asked for it."""
        epoch = stragglers.watched_epoch(run)
        is_over = self._asked.is_over(now)
        self._watch, wanted = pace.step(self._watch, epoch, now, is_over=is_over)
        match wanted:
            case pace.Ask():
                self._ask(run, now)
            case pace.Judge():
                return self._judged(run, now)
        return []

    def _ask(self, run: Run, now: float) -> None:
        self._number += 1
        awaited = set(nodes_of(run))
        until = now + ANSWER_SECONDS + len(awaited) * SECONDS_EACH
        self._asked = _Asked(self._number, run.epoch, now, until, awaited)
        self._watch = pace.asked(self._watch, now)
        self._wake()

    def _judged(self, run: Run, now: float) -> list[Event]:
        groups, self._asked.timeline = self._asked.timeline.groups(), pace.Timeline()
        told = stragglers.found_in(run)
        before: pace.Who = (told.slot, told.rank) if told is not None else "nobody"
        self._watch, news = pace.judged(self._watch, pace.judge(groups), before, now)
        return [] if news is None else [stragglers.noted(run, news.straggler)]

    def open(self, now: float) -> Question | None:
        """What the nodes are asked now: the calls that their ranks have made before this moment of
        the registry's clock."""
        asked = self._asked
        if asked.is_over(now):
            return None
        return Question(number=asked.number, topic=PACE, data={"before": asked.began_at})

    def take(self, slot: int, report: PaceAnswer, now: float) -> None:
        """Merge what a node answers; what comes late, or again, is left out."""
        asked = self._asked
        if report.number != asked.number or report.epoch != asked.epoch or asked.is_over(now):
            return
        if slot in asked.awaited:
            asked.awaited.discard(slot)
            if report.pace is not None:
                asked.timeline.add(slot, report.pace)
