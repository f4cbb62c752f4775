"""Worker runs that newer ones replace: ended beside them before the go, in front of them after it.

In a run that goes on after a node's loss the newer one is submitted only once no older one can run
its program any more: its scheduler says that it is over, or the registry that its node has been
silent for longer than any program outlives that. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from launcher.run.actions import News, Say
from launcher.run.ending import Ended, say_left
from launcher.run.runs import Run, Runs, Step
from launcher.run.sentences import StandKind, WaitsForOlder
from launcher.run.submitting import Submitting
from launcher.run.values import Key
from rendezvous.wire.run import SlotState

END_AGAIN_SECONDS: Final = 60.0
_MOST_DOUBLINGS: Final = 5


@dataclass(slots=True)
class Replacing:
    """Submits newer worker runs when nothing older is in their way."""

    shared: Runs
    submitting: Submitting

    def begin(self, key: Key, run: Run, now: float) -> None:
        """The registry has heard that it is about to be submitted."""
        self.end_older(key, now)
        run.step = Step.OLDER
        self._go_on(key, run)

    def end_older(self, key: Key, now: float) -> None:
        """End what it replaces."""
        for older in list(self.shared.of_slot[key.slot]):
            if older < key:
                self.shared.end(older, now)

    def see(self, now: float) -> None:
        """The registry has told how the run stands: a fence may have passed."""
        for key, run in list(self.shared.runs.items()):
            if run.step is Step.OLDER:
                self._go_on(key, run)
            elif self._is_left(key, run) and now >= run.release_at:
                self.shared.end(key, now)

    def go_on(self, slot: int) -> None:
        """Whoever waited for what has ended may be submitted."""
        for key in self._waiting(slot):
            self._go_on(key, self.shared.runs[key])

    def ended(self, one: Ended, now: float) -> None:
        """What came of an end; it is tried again ever more rarely, unless somebody waits for it."""
        run, outlives = self.shared.runs[one.key], self.shared.outlives
        waiting = self._waiting(one.key.slot)
        if one.gone:
            self.tell_over(one.key, run)
        else:
            doublings = 0 if outlives and waiting else run.releases
            run.release_at = now + END_AGAIN_SECONDS * 2**doublings
            run.releases = min(run.releases + 1, _MOST_DOUBLINGS)
            if waiting and not outlives:
                say_left(self.shared.desk, [one])
        self.go_on(one.key.slot)
        if outlives and self._waiting(one.key.slot) and self._may_run(one.key):
            self.shared.desk.do(Say(WaitsForOlder(one.key, one.handle, one.stand)))

    def tell_over(self, key: Key, run: Run) -> None:
        """Its scheduler says that one is over that is replaced, or was lost for good: the registry
        need not wait for its fence. That a script was taken away says nothing of what a person has
        started with it."""
        shared, seen = self.shared, self.shared.seen.get(key.slot)
        is_older = shared.outlives and shared.started and not shared.is_newest(key)
        is_news = is_older or (seen is not None and shared.is_given_up(seen))
        if is_news and not (run.starter.by_hand or self.submitting.stopped):
            shared.tell(key, run, News(SlotState.ENDED, run.handle))

    def _go_on(self, key: Key, run: Run) -> None:
        if not (self.shared.started and self._is_held(key)):
            self.submitting.begin(key, run)

    def _is_held(self, key: Key) -> bool:
        """Whether an older one is in its way."""
        shared, seen = self.shared, self.shared.seen.get(key.slot)
        older = [each for each in shared.of_slot[key.slot] if each < key]
        if not shared.outlives:
            return any(each in shared.ends.ends or shared.runs[each].end_after for each in older)
        is_fenced = seen is not None and seen.fenced
        return any(map(self._is_unplaced if is_fenced else self._may_run, older))

    def _is_unplaced(self, key: Key) -> bool:
        """Whether it is being ended, and its scheduler has yet to say where it was: the newer one
        is not to start there."""
        end, hosts = self.shared.ends.ends.get(key), self.submitting.hosts
        is_asked = end is not None and end.stand.how is not StandKind.SILENT
        places = self.shared.facts.places
        return places.avoids and places.tells and is_asked and not hosts.host(key)

    def _is_left(self, key: Key, run: Run) -> bool:
        """Whether it is an older one that could not be ended."""
        return self.shared.outlives and run.releases > 0 and not self.shared.is_newest(key)

    def _may_run(self, key: Key) -> bool:
        run = self.shared.runs[key]
        return not run.gone or run.starter.by_hand

    def _waiting(self, slot: int) -> list[Key]:
        runs, keys = self.shared.runs, self.shared.of_slot.get(slot, ())
        return [key for key in keys if runs[key].step is Step.OLDER]
