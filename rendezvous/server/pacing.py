"""The nodes of a run are asked now and then when their ranks called their collectives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rendezvous import pace
from rendezvous.run import stragglers
from rendezvous.run.events import Event
from rendezvous.run.state import Run
from rendezvous.server.looks import Looks
from rendezvous.wire.errors import NotFound, RdzvError
from rendezvous.wire.look import LookCall


class Pacing:
    """The watch over who makes the others wait in one run; in memory.

    Args:
        looks: In which the nodes answer.
        begin: Asks them; raises RdzvError.
    """

    def __init__(self, looks: Looks, begin: Callable[[float], LookCall]) -> None:
        self._looks = looks
        self._begin = begin
        self._watch = pace.PaceWatch()

    def events(self, run: Run, now: float) -> list[Event]:
        """What is found; the nodes are asked for it."""
        is_over = self._looks.is_over(self._watch.look, now)
        epoch = stragglers.watched_epoch(run)
        self._watch, wanted = pace.step(self._watch, epoch, now, is_over=is_over)
        match wanted:
            case pace.Ask():
                with contextlib.suppress(RdzvError):  # again with the next sweep
                    self._watch = pace.asked(self._watch, self._begin(now).look, now)
            case pace.Judge():
                with contextlib.suppress(NotFound):
                    return self._judged(run, wanted, now)
        return []

    def _judged(self, run: Run, wanted: pace.Judge, now: float) -> list[Event]:
        found = pace.judge(self._looks.read(wanted.look, now))
        told = run.straggler
        before: pace.Who = (told.slot, told.worker_rank) if told is not None else "nobody"
        self._watch, news = pace.judged(self._watch, found, before, now)
        return [] if news is None else [stragglers.found_event(news.straggler)]
