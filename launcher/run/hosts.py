"""On which hosts worker runs start, by where those before them have failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from launcher.run.actions import Say
from launcher.run.runs import Run, Runs, Step
from launcher.run.sentences import (
    AvoidsHosts,
    CannotAvoid,
    NoOtherHost,
    Sentence,
    StartsAgainOn,
    StartsElsewhere,
)
from launcher.run.values import Key, Left
from launcher.schedulers.description import Description
from rendezvous.wire.run import Phase, SlotState
from rendezvous.wire.words import listed

WAITS_FOR_OTHER_SECONDS: Final = 60.0
"""In a queue, for another host than those where the slot's worker runs have failed, while the other
nodes may be idle: in a cluster that the run fills there is none."""


@dataclass(slots=True)
class Hosts:
    """Chooses where each worker run starts.

    Attributes:
        forgiven: By slot: up to which generation its hosts are not avoided, as no other was there.
        told: What was said: once is enough.
    """

    shared: Runs
    forgiven: dict[int, int] = field(default_factory=dict)
    told: set[Sentence] = field(default_factory=set)

    def choose(self, key: Key, run: Run) -> None:
        """Decide where one starts that is about to be submitted, and say what is not usual."""
        places, failed = self.shared.facts.places, self._failed(key)
        if run.starter.loopback:
            return
        run.where = places.where(failed, self._taken(key.slot), list(self._all_failed()))
        if places.hosts:
            run.host, run.named = run.where.host or self.host(key), True
        if not failed:
            in_vain = places.avoids and not places.tells
            if in_vain and any(map(self._may_have_failed, self._older(key))):
                self._say_cannot(key, failed)
            return
        if not places.hosts and places.avoids:
            self._say(AvoidsHosts(key, tuple(failed)))
        elif not places.hosts:
            self._say_cannot(key, failed)
        elif run.host == failed[-1]:
            self._say(StartsAgainOn(key.slot, run.host))
        else:
            self._say(StartsElsewhere(key, run.host, failed[-1]))

    def former(self, one: Left) -> Run:
        """A worker run of a former launcher. A host that no spec has read is none."""
        host = one.host if self.shared.facts.places.hosts else ""
        return Run(one.starter, Step.REST, one.handle, host=host, named=bool(host))

    def avoided(self, key: Key, run: Run) -> tuple[str, ...]:
        """The hosts that it may not have as others of its slot have failed there."""
        return tuple(self._failed(key)) if run.where.avoid else ()

    def refused(self, key: Key, run: Run, words: str) -> bool:
        """Its scheduler has no such host: whether this one may have any."""
        return self._forgive(key, run, key.generation - 1, words)

    def waits_in_vain(self, key: Key, run: Run, found: Description, now: float) -> bool:
        """Whether one that waits in its queue has waited long enough for another host: it has none
        that is being made ready, and no programs run without it."""
        is_given = found.state is not SlotState.QUEUED or bool(found.host)
        if is_given or self.shared.phase is Phase.RUNNING:
            run.queued_at = None
            return False
        run.queued_at = now if run.queued_at is None else run.queued_at
        return now - run.queued_at >= WAITS_FOR_OTHER_SECONDS and self._forgive(
            key, run, key.generation
        )

    def _forgive(self, key: Key, run: Run, until: int, words: str = "") -> bool:
        hosts = self.avoided(key, run)
        if not hosts or run.end_after or not self.shared.is_newest(key):
            return False
        self.forgiven[key.slot] = until
        self._say(NoOtherHost(key.slot, hosts, words))
        return True

    def _say_cannot(self, key: Key, failed: list[str]) -> None:
        if not any(isinstance(one, CannotAvoid) for one in self.told):
            self._say(CannotAvoid(key, tuple(failed)))

    def _say(self, sentence: Sentence) -> None:
        if sentence not in self.told:
            self.told.add(sentence)
            self.shared.desk.do(Say(sentence))

    # --- where others were --------------------------------------------------------------------

    def host(self, key: Key) -> str:
        """Where it is or was; empty where that is not known."""
        hosts = self.shared.facts.places.hosts
        end = self.shared.ends.ends.get(key)
        known = self.shared.runs[key].host or (end.host if end is not None else "")
        return known or (hosts[key.slot] if hosts else "")

    def _failed(self, key: Key) -> list[str]:
        """Where older worker runs of its slot have failed, the newest last."""
        since = self.forgiven.get(key.slot, 0)
        hosts = [self._failed_on(one) for one in self._older(key) if one.generation > since]
        return list(dict.fromkeys(filter(None, reversed(hosts))))[::-1]

    def _older(self, key: Key) -> list[Key]:
        return [one for one in sorted(self.shared.of_slot[key.slot]) if one < key]

    def _failed_on(self, key: Key) -> str:
        """Its host, if it has failed there."""
        return self.host(key) if self._may_have_failed(key) else ""

    def _may_have_failed(self, key: Key) -> bool:
        """Whether its host may be why it has ended: a preemption is no fault of the host's, nor is
        what became of it while no launcher was there to see."""
        run = self.shared.runs[key]
        return run.preempted is None and not run.lost_track

    def _all_failed(self) -> Iterator[str]:
        """Where worker runs were in whose place there is another one, in their order."""
        shared = self.shared
        return (self._failed_on(key) for key in shared.runs if not shared.is_newest(key))

    def _taken(self, slot: int) -> set[str]:
        """The named hosts that other slots have: for their newest worker run, or for an older one
        of which it is not known that it is over."""
        shared, hosts = self.shared, self.shared.facts.places.hosts
        newest = {one: max(keys) for one, keys in shared.of_slot.items() if keys}
        taken = {host for one, host in enumerate(hosts) if one not in newest and one != slot}
        for key, run in shared.runs.items():
            seen = shared.seen.get(key.slot)
            is_its = key == newest[key.slot] and not (seen and shared.goes_without(seen))
            if key.slot != slot and (is_its or not run.gone):
                taken.add(self.host(key))
        return taken


def asks_for(hosts: tuple[str, ...]) -> str:
    """A clause for a queue's line; empty where nothing is avoided."""
    return f"another host than {listed(hosts)} is asked for" if hosts else ""
