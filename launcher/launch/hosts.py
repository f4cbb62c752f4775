"""On which hosts worker runs start, by where those before them have failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from launcher.launch.slot_run import SlotRun, SlotRuns
from launcher.plan.avoiding import Places
from launcher.schedulers.description import Description
from rendezvous.wire.run import Phase, SlotState
from rendezvous.wire.words import listed

WAITS_FOR_OTHER_SECONDS: Final = 60.0
"""In a queue, for another host than those where the slot's worker runs have failed, while the other
nodes may be idle: in a cluster that the run fills there is none."""
_WITHOUT_AVOID = "its worker spec has no <<AVOID>>"
_CANNOT_AVOID = "hosts cannot be avoided"


@dataclass(eq=False, repr=False)
class Hosts:
    """Chooses where each worker run starts.

    Attributes:
        runs: All worker runs of the launch.
        places: The hosts on which its nodes may start.
        say_once: Shows a sentence to the person, once for each key.
    """

    runs: SlotRuns
    places: Places
    say_once: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self._forgiven: dict[int, int] = {}
        """By slot: up to which generation its hosts are not avoided, as no other was there."""

    def choose(self, run: SlotRun) -> None:
        """Decide where one starts that is about to be submitted, and say what is not usual."""
        places, failed, slot = self.places, self._failed(run), run.slot
        if run.scheduler.loopback:
            return
        run.where = places.where(failed, self._taken(slot), list(self._all_failed()))
        if places.hosts:
            run.host, run.named = run.where.host or self.host(run), True
        if not failed:
            in_vain = places.avoids and not places.tells
            if in_vain and any(map(_may_have_failed, self.runs.older(run))):
                again = f"slot {slot} may start on the same host again"
                self.say_once(f"{again}: its scheduler names no hosts", _CANNOT_AVOID)
            return
        if places.hosts and run.host == failed[-1]:
            words = f"slot {slot} starts on {run.host} again: no other host of the list is free"
            key = words
        elif places.hosts:
            words = f"slot {slot} starts on {run.host}, not on {failed[-1]}"
            key = f"{run.generation} {words}"
        elif places.avoids:
            words = f"slot {slot}: rdzv asks for another host than {listed(failed)}"
            key = f"{run.generation} {words}"
        else:
            words = f"slot {slot} may start on {listed(failed)} again: {_WITHOUT_AVOID}"
            key = _CANNOT_AVOID
        self.say_once(words, key)

    def queue_words(self, run: SlotRun) -> str:
        """Return a clause for a queue's line; empty where nothing is avoided."""
        hosts = self._avoided(run)
        return f"another host than {listed(hosts)} is asked for" if hosts else ""

    def refused(self, run: SlotRun, words: str) -> bool:
        """Whether a worker run may have any host, after its scheduler has found none for it."""
        return self._forgive(run, run.generation - 1, f"it was refused ({words})")

    def waits_in_vain(self, run: SlotRun, found: Description, now: float) -> bool:
        """Whether one that waits in its queue has waited long enough for another host: it has none
        that is being made ready, and no programs run without it."""
        is_given = found.state is not SlotState.QUEUED or bool(found.host)
        if is_given or self.runs.view.phase is Phase.RUNNING:
            run.queued_at = None
            return False
        run.queued_at = now if run.queued_at is None else run.queued_at
        is_long = now - run.queued_at >= WAITS_FOR_OTHER_SECONDS
        return is_long and self._forgive(run, run.generation)

    def _forgive(self, run: SlotRun, until: int, refused: str = "") -> bool:
        hosts = self._avoided(run)
        if not hosts or run.end_after or not self.runs.is_newest(run):
            return False
        self._forgiven[run.slot] = until
        others = listed(hosts)
        why = f"another host than {others} has not come free within 60 s"
        why = f"with other hosts than {others} only, {refused}" if refused else why
        words = f"slot {run.slot} may start on any host: {why}"
        self.say_once(words, words)
        return True

    def _avoided(self, run: SlotRun) -> tuple[str, ...]:
        """The hosts that it may not have as others of its slot have failed there."""
        return tuple(self._failed(run)) if run.where.avoid else ()

    # --- where others were --------------------------------------------------------------------

    def host(self, run: SlotRun) -> str:
        """Return where it is or was; empty where that is not known."""
        hosts = self.places.hosts
        return run.host or (hosts[run.slot] if hosts else "")

    def _failed(self, run: SlotRun) -> list[str]:
        """List where older worker runs of its slot have failed, the newest last."""
        since = self._forgiven.get(run.slot, 0)
        hosts = [self._failed_on(one) for one in self.runs.older(run) if one.generation > since]
        return list(dict.fromkeys(filter(None, reversed(hosts))))[::-1]

    def _failed_on(self, run: SlotRun) -> str:
        """Return its host, if it has failed there."""
        return self.host(run) if _may_have_failed(run) else ""

    def _all_failed(self) -> Iterator[str]:
        """Yield where replaced worker runs were, in their order."""
        runs = self.runs
        return (self._failed_on(run) for run in runs.all if not runs.is_newest(run))

    def _taken(self, slot: int) -> set[str]:
        """The named hosts that other slots have: for their newest worker run, or for an older one
        of which it is not known that it is over."""
        runs, hosts = self.runs, self.places.hosts
        newest = {one: of[-1] for one, of in runs.of_slot.items() if of}
        taken = {host for one, host in enumerate(hosts) if one not in newest and one != slot}
        for run in runs.all:
            seen = runs.view.slots.get(run.slot)
            is_its = run is newest[run.slot] and not (seen and runs.view.goes_without(seen))
            if run.slot != slot and (is_its or not run.gone):
                taken.add(self.host(run))
        return taken


def _may_have_failed(run: SlotRun) -> bool:
    """Whether its host may be why it has ended: a preemption is no fault of the host's, nor is
    what became of it while no launcher was there to see."""
    return run.preempted is None and not run.lost_track
