"""A run in which nothing moves is looked at by its registry, and what is found becomes events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from rendezvous import hang
from rendezvous.registry.looks import REST_SECONDS, Looks
from rendezvous.run import stalls
from rendezvous.run.events import Event, Noted
from rendezvous.run.state import Run
from rendezvous.wire.errors import NotFound, RdzvError
from rendezvous.wire.look import LookCall


class Stalling:
    """The watch over the silences of one run; in memory: a registry that comes back looks anew.

    Args:
        looks: Of the run.
        begin: Asks the nodes for another look; raises RdzvError.
    """

    def __init__(self, looks: Looks, begin: Callable[[float], LookCall]) -> None:
        self._looks = looks
        self._begin = begin
        self._watch = hang.StallWatch()

    def events(self, run: Run, now: float) -> list[Event]:
        """What is found while nothing moves on any node; the ranks are looked at for it."""
        overdue = stalls.is_overdue(run, now, self._watch.worked_at)
        self._watch, wanted = hang.step(
            self._watch,
            stalls.quiet_since(run),
            now,
            is_over=self._looks.is_over(self._watch.newest, now),
            again=stalls.again_seconds(run, REST_SECONDS),
            hurry=overdue,
        )
        match wanted:
            case hang.Ask():
                with contextlib.suppress(RdzvError):  # there was a look just before
                    self._watch = hang.asked(self._watch, self._begin(now).look, now)
            case hang.Judge():
                return self._judged(run, wanted, now)
        return []

    def _judged(self, run: Run, pair: hang.Judge, now: float) -> list[Event]:
        try:
            former, newest = (self._looks.read(n, now) for n in (pair.former, pair.newest))
        except NotFound:
            self._watch = hang.forgotten(self._watch)
            return []
        verdict = hang.look_at(newest, former)
        seconds = self._watch.asked_at - self._watch.former_at
        works = hang.at_work(verdict, former, newest, seconds)
        if works or verdict.rule == "moving":
            self._watch = replace(self._watch, worked_at=now)
        if not hang.is_stuck(verdict, works):
            return []
        told, notes = (verdict.rule, verdict.odd, works), list[Noted]()
        if told != self._watch.told:
            self._watch = replace(self._watch, told=told)
            notes.append(stalls.noted(run, verdict, works, now))
        if stalls.is_overdue(run, now, self._watch.worked_at):
            note = notes[-1] if notes else run.notes[stalls.FEATURE]
            return [*notes, stalls.stop_asked(note, now)]
        return [*notes]
