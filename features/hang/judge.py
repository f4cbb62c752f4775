"""Looks at a run in which nothing moves, and makes of what is found what the core journals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from features.hang import LOOKS, QUIET, rules, stall, watch
from features.hang.registry import Quiet
from features.hang.stall import Silence, Silences
from features.hang.wire import RunLook
from rendezvous.registry.topics import Event, JudgePort, Noted, Remark, Run, names_of
from rendezvous.wire.errors import NotFound, RdzvError
from rendezvous.wire.words import duration_text

_OLD_SECONDS = 180.0
"""A silence since then would have been reported."""


class Judge:
    """The watch over the silences of one run; in memory: a restarted registry begins again."""

    def __init__(self, port: JudgePort) -> None:
        self._quiet: Quiet = port.store(QUIET)
        self._looks = port.questions(LOOKS)
        self._watch = watch.StallWatch()
        self._known: Silences = {}
        """Silences of the last round."""
        self._was_silent = False
        self._newest_look = 0
        self._began_at = port.now()

    def events(self, run: Run, now: float) -> list[Event]:
        """Find out what has become known, and have the ranks looked at for it."""
        silences = self._quiet.of(run, now)
        found: list[Event] = [*self._changes(run, silences, now), *self._looked(run, now)]
        overdue = stall.is_overdue(run, silences, now, self._watch.worked_at)
        self._watch, wanted = watch.step(
            self._watch,
            stall.silent_since(run, silences),
            now,
            is_over=self._looks.is_over(self._watch.newest, now),
            again=stall.again_seconds(run, LOOKS.rest),
            hurry=overdue,
        )
        match wanted:
            case watch.Ask():
                with contextlib.suppress(RdzvError):  # there was a look just before
                    number = self._looks.ask(run, now).number
                    self._watch = watch.asked(self._watch, number, now)
            case watch.Judge():
                found += self._judged(run, silences, wanted, now)
        return found

    def remark(self, run: Run, now: float) -> Remark | None:
        """Say of a silence what a person is shown meanwhile."""
        return stall.remark_of(run, self._quiet.of(run, now), now)

    def _changes(self, run: Run, silences: Silences, now: float) -> Iterator[Noted]:
        """Note what the nodes have reported since the last round."""
        before, self._known = self._known, silences
        since, was_silent = stall.silent_since(run, silences), self._was_silent
        self._was_silent = since is not None
        found = stall.found_in(run)
        lost = [slot for slot in before if self._quiet.is_lost(run, slot, now)]
        moved = [n for n, one in before.items() if _has_moved(one, run, n, silences)]
        moved = [slot for slot in moved if slot not in lost]
        is_new = now - self._began_at < 4 * QUIET.pause(len(run.slots))
        if found is not None and not moved and not lost and not is_new:
            # A registry before this one, or a note that was lost: they would have sent anew.
            moved = [] if run.stop else [slot for slot in stall.own(run) if slot not in silences]
            moved = [slot for slot in moved if not self._quiet.is_lost(run, slot, now)]
        is_over = bool(moved) and run.stop_asked is None
        kept = None if is_over else run.notes.get(stall.NAME)
        if is_over and found is not None:
            yield stall.moved_again(moved, found, now)
        elif moved:
            whose = "its" if len(moved) == 1 else "their"
            words = f"{names_of(run, moved, 3)}: {whose} ranks move again"
            yield stall.remarked(moved, words, kept)
        if lost:
            words = f"{names_of(run, lost, 3)}: it is not known any more whether anything moves"
            yield stall.remarked(lost, words, kept)
        quieter = [slot for slot, one in silences.items() if before.get(slot) != one]
        if quieter:
            is_first = not was_silent or bool(moved)
            if is_first and since is not None and stall.quiet_since(run, silences) is None:
                words = stall.unjudged(run, duration_text(now - since))
                yield stall.remarked(quieter, words, kept, usual=False)
            else:
                passed = duration_text(now - max(silences[slot].since for slot in quieter))
                words = f"{names_of(run, quieter, 3)}: nothing has moved for {passed}"
                yield stall.remarked(quieter, words, kept)

    def _looked(self, run: Run, now: float) -> Iterator[Noted]:
        """Keep what a person's look has found; what is old, while something moves, says nothing."""
        note, number = run.notes.get(stall.NAME), self._looks.newest
        former = self._newest_look
        is_new = number != former and self._looks.is_over(number, now)
        self._newest_look = number if is_new else former
        if stall.found_in(run) is not None:
            return
        if is_new and number != self._watch.newest:
            before = None
            with contextlib.suppress(NotFound):
                before = self._read(former, now) if former else None
            yield from stall.looked(self._read(number, now), before, now)
        elif note is not None and not self._was_silent and now - note.since > _OLD_SECONDS:
            yield stall.remarked([], "the ranks were looked at long ago", None)

    def _judged(self, run: Run, silences: Silences, pair: watch.Judge, now: float) -> list[Event]:
        try:
            former, newest = (self._read(n, now) for n in (pair.former, pair.newest))
        except NotFound:
            self._watch = watch.forgotten(self._watch)
            return []
        verdict = rules.look_at(newest, former)
        seconds = self._watch.asked_at - self._watch.former_at
        works = watch.at_work(verdict, former, newest, seconds)
        if works or verdict.rule == "moving":
            self._watch = replace(self._watch, worked_at=now)
        if not watch.is_stuck(verdict, works):
            return []
        is_early = stall.quiet_since(run, silences) is None
        said, notes = (verdict.rule, verdict.odd, works, is_early), list[Noted]()
        if said != self._watch.told or stall.found_in(run) is None:
            self._watch = replace(self._watch, told=said)
            brief = rules.look_at(newest, former, brief="untimed").sentence
            found = stall.finding(
                f"until then nothing had moved for {{time}}: {brief}", newest, verdict.next_step
            )
            notes.append(stall.noted(run, silences, verdict, works, now, found))
        if stall.is_overdue(run, silences, now, self._watch.worked_at):
            note = notes[-1] if notes else run.notes[stall.NAME]
            return [*notes, stall.stop_asked(note, now)]
        return [*notes]

    def _read(self, number: int, now: float) -> RunLook:
        """Raises NotFound."""
        return RunLook.model_validate_json(self._looks.written(number, now).plain)


def _has_moved(before: Silence, run: Run, slot: int, silences: Silences) -> bool:
    """Tell whether something has moved on a silent node; the end of its program is no move."""
    now = silences.get(slot)
    return before.is_of(run, slot) and (now is None or now.number != before.number)
