"""The runs of one registry by name, and how they come out of its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rendezvous.registry.clock import RegistryClock
from rendezvous.registry.journal import Journal, Record, applying
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.options import Options
from rendezvous.run import events
from rendezvous.run.decision import load_entry
from rendezvous.wire.errors import RegistryError, Unavailable
from rendezvous.wire.run import RunSpec

_REPLAY_EVENTS = 32
"""In one turn of the event loop: 10 ms, of a run with 512 nodes."""


class Runs:
    """All runs that a registry has.

    Attributes:
        here: Those that it serves.
        doubtful: Those of which it does not know what the journal holds, or whether they are still
            its own: nothing of them may be told, nor changed.
    """

    def __init__(self, journal: Journal, clock: RegistryClock, options: Options) -> None:
        self._journal = journal
        self._clock = clock
        self._options = options
        self.here: dict[str, LiveRun] = {}
        self.doubtful: dict[str, LiveRun] = {}
        self.on_doubt: Callable[[], None] = lambda: None

    def __contains__(self, name: object) -> bool:
        return name in self.here or name in self.doubtful

    def add(self, name: str, spec: RunSpec, now: float) -> LiveRun:
        """A new run; it takes the place of the one of that name, which has ended."""
        live = self.here[name] = self._new(name, spec, now, self.here.get(name))
        self._share_time()
        return live

    def _share_time(self) -> None:
        """All polls together are to cost no more than those of one run with as many nodes."""
        going = [live for live in self.here.values() if not live.has_ended]
        nodes = sum(live.run.spec.slots for live in going)
        for live in going:
            live.leases.lengthen(nodes)

    def _new(self, name: str, spec: RunSpec, now: float, replaced: LiveRun | None) -> LiveRun:
        return LiveRun(
            name, spec, now, replaced=replaced, options=self._options, clock=self._clock.now
        )

    async def recover(self) -> list[LiveRun]:
        """Build every run again from the journal, of which nothing has been told yet.

        Raises UsageError where a record cannot be read, or does not follow from the others.
        """
        latest = 0.0
        for name in await self._journal.runs():
            records = await self._journal.read(name)
            if (live := await self.replayed(records)) is not None:
                self.here[name] = live
                latest = max(latest, records[-1].at)
        self._clock.restart(latest)
        self._share_time()
        for live in self.here.values():
            live.grant_leases(live.now())
        return list(self.here.values())

    async def replayed(self, records: Sequence[Record]) -> LiveRun | None:
        """The run that these records tell of, which is not served yet; None where there are none.

        Others are served in between. Raises UsageError.
        """
        live: LiveRun | None = None
        for count, record in enumerate(records):
            if count % _REPLAY_EVENTS == _REPLAY_EVENTS - 1:
                await asyncio.sleep(0)
            with applying(record):
                event, decision = load_entry(record.body)
                if isinstance(event, events.Created):
                    live = self._new(record.run, event.spec, record.at, live)
                if live is None:
                    raise LookupError(record.run)
                live.apply(event, decision, record.at)
        if live is not None:
            live.is_made()
        return live

    async def rebuild(self, name: str) -> None:
        """Forget what could not be kept: the journal is the truth. Raises as `Journal.read`."""
        fresh = await self.replayed(await self._journal.read(name))
        before = self.here.pop(name, None)
        if before is not None and fresh is not None:
            live = self.here[name] = _in_place_of(before.durable(), fresh)
            live.publish(live.now())

    # --- with other replicas ------------------------------------------------------------------

    def check(self, live: LiveRun) -> None:
        """Raise why a run cannot be told of: what was decided of it last may never be written."""
        live.check_is_here()
        if self.here.get(live.run.id) is not live and not live.is_durable:
            raise Unavailable(f"run '{live.run.id}' is on its way")

    def goes_on(self, live: LiveRun) -> bool:
        """Whether the launch that this was goes on: it is set aside, or has been read again."""
        name = live.run.id
        known = self.doubtful.get(name) or self.here.get(name)
        return known is not None and known.run.spec.launch_id == live.run.spec.launch_id

    def set_aside(self, name: str) -> None:
        """Serve this run no more; who waits for news of it goes on waiting."""
        if (live := self.here.pop(name, None)) is not None:
            self.doubtful[name] = live.durable()

    def doubt(self, name: str, why: RegistryError) -> None:
        """Serve this run no more until it is known what has become of it."""
        if (live := self.here.get(name)) is not None:
            self.set_aside(name)
            live.leave(why)
            self.on_doubt()

    def take(self, fresh: LiveRun, latest: float) -> LiveRun:
        """Serve a run that was read, from that time of it on; it is not told yet."""
        before = self.doubtful.pop(fresh.run.id, None)
        fresh.go_on_from(latest)
        live = fresh
        if before is not None:
            live = _in_place_of(before, fresh)
            live.go_on_from(latest)
            live.away = None
        live.grant_leases(live.now())
        self.here[live.run.id] = live
        self._share_time()
        return live

    def let_go(self, name: str, why: RegistryError) -> None:
        """Another replica has this run now; whoever waits for news of it is told so."""
        live = self.here.pop(name, None) or self.doubtful.pop(name, None)
        if live is not None:
            live.leave(why)


def _in_place_of(before: LiveRun, fresh: LiveRun) -> LiveRun:
    """The same launch goes on as who waits for it knows it; of another one, the old one ends."""
    now = before.now()
    if fresh.run.spec.launch_id == before.run.spec.launch_id:
        before.take_over(fresh, now)
        return before
    before.wake_all()  # it was written all the same
    fresh.offset = before.offset
    fresh.grant_leases(now)
    return fresh
