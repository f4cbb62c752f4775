"""The topics of one run: what is kept of them, what its nodes are asked, and what is judged by it.

All of it is in memory: a registry that is started again knows none of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TypeVar

from rendezvous.channel import Asked, Published
from rendezvous.feature import Lazy, declared
from rendezvous.registry.questions import Questions
from rendezvous.registry.topics import Judge, TopicStore
from rendezvous.run.events import Event, Noted, StopAsked
from rendezvous.run.features import Remark
from rendezvous.run.state import Run
from rendezvous.wire.question import Question
from rendezvous.wire.run import Phase

logger = logging.getLogger(__name__)

R = TypeVar("R")
_SLOT = {Noted: attrgetter("slot"), StopAsked: attrgetter("then.slot")}
"""By the kind of what a judge may find."""


class RunTopics:
    """Those of one run; for its judges it is their `JudgePort`.

    Args:
        now: The run's clock.
        wake: Lets the nodes learn that they are asked.
    """

    def __init__(self, now: Callable[[], float], wake: Callable[[], None]) -> None:
        self.now = now
        self._wake = wake
        self._kept: dict[str, TopicStore] = {}
        self._questions: dict[str, Questions] = {}
        self._judges: dict[Lazy, Judge | None] | None = None
        """By what makes them."""

    def store(self, topic: Published) -> TopicStore:
        """What is kept of a topic."""
        if (found := self._kept.get(topic.name)) is None:
            found = self._kept[topic.name] = topic.store.load()()
        return found

    def questions(self, topic: Asked) -> Questions:
        """The questions of a topic."""
        if (found := self._questions.get(topic.name)) is None:
            found = self._questions[topic.name] = Questions(topic, self._wake)
        return found

    def open(self, now: float) -> Question | None:
        """The question that nodes are to answer now."""
        opened = (one.open(now) for one in self._questions.values())
        return next((one for one in opened if one is not None), None)

    def close(self) -> None:
        """Answer everyone who waits for answers."""
        for questions in self._questions.values():
            questions.close()

    def events(self, run: Run, now: float) -> list[Event]:
        """What the judges have found."""

        def ask(judge: Judge) -> list[Event]:
            found = [*judge.events(run, now)]
            if any(_SLOT[type(e)](e) not in (None, *range(len(run.slots))) for e in found):
                raise ValueError(f"the run has no such slot: {found!r}")
            return found

        return [event for found in self._judged(run, ask) for event in found]

    def remark(self, run: Run, now: float) -> Remark | None:
        """What the first judge that has found something has a person shown."""

        def ask(judge: Judge) -> Remark | None:
            if not isinstance(found := judge.remark(run, now), Remark | None):
                raise TypeError(f"{found!r} is not a remark")
            return found

        return next((one for one in self._judged(run, ask) if one is not None), None)

    def _judged(self, run: Run, ask: Callable[[Judge], R]) -> Iterator[R]:
        """What each judge answers, from the first moment on in which the programs run; one that
        fails is asked no more."""
        if self._judges is None:
            if run.phase is not Phase.RUNNING:
                return
            self._judges = {one.judge: None for one in declared() if one.judge is not None}
        for made_by, judge in [*self._judges.items()]:
            try:
                judge = self._judges[made_by] = judge or made_by.load()(self)
                found = ask(judge)
            except Exception:
                logger.exception("run %s continues without %s, which failed", run.id, made_by.path)
                del self._judges[made_by]
            else:
                yield found
