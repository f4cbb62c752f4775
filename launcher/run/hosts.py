"""On which hosts worker runs start, by where those before them have failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from launcher.run.actions import Say
from launcher.run.runs import Run, Runs
from launcher.run.sentences import (
    AvoidsHosts,
    CannotAvoid,
    NoOtherHost,
    Sentence,
    StartsAgainOn,
    StartsElsewhere,
)
from launcher.run.values import Key
from rendezvous.wire.run import SlotState

WAITS_FOR_OTHER_SECONDS: Final = 60.0
"""In a queue, for another host than those where the slot's worker runs have failed: meanwhile the
other nodes may be idle, and in a cluster that the run fills there is none."""


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
        run.host = run.where.host or ("" if not places.hosts else self.host(key))
        if not failed:
            return
        if not places.hosts:
            told = AvoidsHosts if places.avoids else CannotAvoid
            self._say(told(key, tuple(failed)))
        elif run.host == failed[-1]:
            self._say(StartsAgainOn(key.slot, run.host))
        else:
            self._say(StartsElsewhere(key, run.host, failed[-1]))

    def avoided(self, key: Key, run: Run) -> tuple[str, ...]:
        """The hosts that it may not have as others of its slot have failed there."""
        return tuple(self._failed(key)) if run.where.avoid else ()

    def refused(self, key: Key, run: Run, words: str) -> bool:
        """Its scheduler takes it for nothing: whether it may have one without hosts to avoid."""
        return self._forgive(key, run, words)

    def waits_in_vain(self, key: Key, run: Run, state: SlotState, now: float) -> bool:
        """Whether one that waits in its queue has waited long enough for another host."""
        if state is not SlotState.QUEUED:
            run.queued_at = None
            return False
        run.queued_at = now if run.queued_at is None else run.queued_at
        return now - run.queued_at >= WAITS_FOR_OTHER_SECONDS and self._forgive(key, run)

    def _forgive(self, key: Key, run: Run, words: str = "") -> bool:
        hosts = self.avoided(key, run)
        if not hosts or run.end_after or not self.shared.is_newest(key):
            return False
        self.forgiven[key.slot] = key.generation
        self._say(NoOtherHost(key.slot, hosts, words))
        return True

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
        older = [one for one in sorted(self.shared.of_slot[key.slot]) if one < key]
        hosts = [self._failed_on(one) for one in older if one.generation > since]
        return list(dict.fromkeys(filter(None, reversed(hosts))))[::-1]

    def _failed_on(self, key: Key) -> str:
        """Its host, if it has failed there: a preemption is no fault of the host's."""
        return self.host(key) if self.shared.runs[key].preempted is None else ""

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


def not_on(hosts: tuple[str, ...]) -> str:
    """A clause for a queue's line; empty where nothing is avoided."""
    return f"not on {', '.join(hosts)}" if hosts else ""
