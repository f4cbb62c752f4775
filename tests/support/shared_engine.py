"""An engine that replicas share, in memory; it may be slow, away, or out of reach for one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rendezvous.frozen import frozen
from rendezvous.registry.commits import Commits
from rendezvous.registry.journal import JOURNAL, Record, by_run
from rendezvous.registry.quotas import refuse_clash
from rendezvous.registry.shared_journal import (
    UNUSED,
    Beat,
    Holding,
    InDoubt,
    Member,
    Overtaken,
    Usages,
)
from rendezvous.wire.errors import RegistryError, StorageFull, Unavailable
from rendezvous.wire.tenant import Tenant

AWAY = "the engine is away"
_WAY_SECONDS = 0.0005


@dataclass
class Row:
    """A replica, as the engine has it."""

    address: str
    seen: float
    clock: float = 0.0
    has_session: bool = True
    drains: bool = False
    usage: Usages = field(default_factory=dict)
    reads: int = JOURNAL


@frozen
class Claim:
    """What a replica has with a run: its epoch, and by how much its time is ahead."""

    epoch: int
    ahead: float


@dataclass
class Engine:
    """What is durable, and who has written it.

    Attributes:
        now: The engine's own clock.
        written: By run, the epoch and the record of each number, in the order of the commits.
        slow_seconds: Of each commit.
        is_full: Commits are refused.
    """

    now: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    written: dict[str, dict[int, tuple[int, Record]]] = field(default_factory=dict)
    owners: dict[str, Holding] = field(default_factory=dict)
    clocks: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    """By run its time, and what its owner's own clock showed then; None: it stands still."""
    replicas: dict[str, Row] = field(default_factory=dict)
    tenants: dict[str, Tenant] = field(default_factory=dict)
    tenant_changes: int = 0
    is_away: bool = False
    is_full: bool = False
    slow_seconds: float = _WAY_SECONDS

    def restart(self) -> None:
        """All sessions end."""
        for row in self.replicas.values():
            row.has_session = False

    def records(self, run: str) -> list[Record]:
        return [record for _, record in self.written.get(run, {}).values()]

    # --- what a call does ---------------------------------------------------------------------

    def append(
        self, me: str, records: list[Record], epochs: Mapping[str, int]
    ) -> Mapping[str, RegistryError]:
        errors, good = dict[str, RegistryError](), list[Record]()
        for run, some in by_run(records).items():
            error = self._refused(me, run, some, epochs.get(run, -1))
            if error is not None:
                errors[run] = error
                continue
            for record in some:
                self.written.setdefault(run, {})[record.number] = epochs.get(run, -1), record
            good += some
        for record in good:
            self.committed(record, epochs.get(record.run, -1))
        return errors

    def _refused(
        self, me: str, run: str, records: list[Record], epoch: int
    ) -> RegistryError | None:
        if not self._has(me, run, epoch):
            return Overtaken("another replica has it")
        known = self.written.get(run, {})
        if self.is_full or not {one.number for one in records}.isdisjoint(known):
            return StorageFull("the disk is full" if self.is_full else "it is taken")
        return None

    def beat(self, me: str, row: Row, epochs: Mapping[str, int], lease_seconds: float) -> Beat:
        """What a replica with this row and these epochs learns."""
        now = self.now()
        self.replicas[me] = row
        row.seen = now
        members = tuple(
            Member(one, row.address, now - row.seen, row.has_session, row.drains, row.usage, reads)
            for one, row in self.replicas.items()
            for reads in (row.reads,)
        )
        alive = {member.id for member in members if member.is_alive(lease_seconds)}
        mine = {h.run: h.epoch for h in self.owners.values() if h.owner == me}
        lost = [run for run, epoch in epochs.items() if mine.get(run) != epoch]
        given = [self.owners[run] for run in mine if epochs.get(run) != mine[run]]
        left = [h for h in self.owners.values() if h.owner is not None and h.owner not in alive]
        return Beat(members, tuple(lost), tuple(given), tuple(left), self.tenant_changes)

    def claim(self, me: str, wanted: Sequence[Holding], clock: float) -> dict[str, Claim]:
        claimed, before = dict[str, Claim](), dict(self.owners)
        for holding in wanted:
            known = self.owners.get(holding.run)
            if known is not None and known.owner is not None and known.version != self._reads(me):
                continue
            if known == holding or (known is None and not holding.epoch):
                if holding.owner is None:
                    at = clock
                else:
                    row = self.replicas.get(holding.owner)
                    shown = clock if holding.owner == me else row.clock if row else -math.inf
                    at = self._time(holding.run, shown)
                claimed[holding.run] = Claim(holding.epoch + 1, at - clock)
                self.clocks[holding.run] = at, clock
                reads = self._reads(me)
                self.owners[holding.run] = Holding(holding.run, me, holding.epoch + 1, reads)
        self.claimed(me, {run: one.epoch for run, one in claimed.items()}, before)
        return claimed

    def _time(self, run: str, shown: float) -> float:
        """Of a run, where its owner's clock shows this."""
        clock, counted = self.clocks[run]
        return clock if counted is None else clock + max(shown - counted, 0.0)

    def _has(self, me: str, run: str, epoch: int) -> bool:
        known = self.owners.get(run)
        return known is not None and (known.owner, known.epoch) == (me, epoch)

    def _reads(self, replica: str | None) -> int:
        row = self.replicas.get(replica or "")
        return JOURNAL if row is None else row.reads

    def hand_over(self, me: str, run: str, epoch: int, to: str | None, clock: float) -> bool:
        if not self._has(me, run, epoch):
            return False
        known = self.owners[run]
        if to is not None and self._reads(to) != known.version:
            return False
        self.owners[run] = replace(known, owner=to, epoch=epoch + 1)
        self.clocks[run] = self._time(run, clock), None
        return True

    def leave(self, me: str, clock: float) -> None:
        for run, holding in self.owners.items():
            if holding.owner == me:
                self.clocks[run] = self._time(run, clock), None
        self.replicas.pop(me, None)

    def drop(self, me: str, epochs: Mapping[str, int]) -> None:
        for run, epoch in epochs.items():
            if self._has(me, run, epoch):
                self.written.pop(run, None)
                self.owners[run] = replace(self.owners[run], owner=None)
                self.dropped(run)

    def put_tenant(self, tenant: Tenant) -> None:
        refuse_clash(self.tenants.values(), tenant)
        self.tenants[tenant.name] = tenant
        self.tenant_changes += 1

    def remove_tenant(self, name: str) -> bool:
        self.tenant_changes += 1
        return self.tenants.pop(name, None) is not None

    # --- for whoever judges -------------------------------------------------------------------

    def committed(self, record: Record, epoch: int) -> None:
        """This has just become durable, with this epoch."""

    def claimed(self, me: str, claimed: Mapping[str, int], before: Mapping[str, Holding]) -> None:
        """These were claimed with these epochs; who owned what before."""

    def dropped(self, run: str) -> None:
        """A run's records were removed."""


class EngineJournal:
    """A replica's connection to it: see `SharedJournal`.

    Attributes:
        is_cut: This replica does not reach the engine.
        loses_answers: So many of the next commits happen, and their answers are lost.
    """

    def __init__(self, engine: Engine, replica: str, version: int = JOURNAL) -> None:
        self.version = version
        self.engine = engine
        self.id = replica
        self.clock: Callable[[], float] = engine.now
        self.commits = Commits(engine.now, (Overtaken,))
        self.epochs: dict[str, int] = {}
        self._ahead: dict[str, float] = {}
        self.is_cut = False
        self.loses_answers = 0

    def ahead(self, run: str) -> float:
        return self._ahead[run] if run in self.epochs else -math.inf

    async def _reach(self, seconds: float = _WAY_SECONDS) -> Engine:
        """On the way there, or back; raises Unavailable."""
        await asyncio.sleep(seconds)
        if self.is_cut or self.engine.is_away:
            raise Unavailable(AWAY)
        return self.engine

    async def _reach_to_commit(self) -> Engine:
        """The same, where it waits for as long as the engine is slow."""
        left, began = self.engine.slow_seconds, self.engine.now()
        while left > 0:
            await asyncio.sleep(min(left, 0.1))
            left = began + self.engine.slow_seconds - self.engine.now()
        return await self._reach(0.0)

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        runs = by_run(records)
        try:
            with self.commits.one():
                return await self._append(records)
        except (InDoubt, Unavailable, StorageFull) as exc:
            return dict.fromkeys(runs, exc)

    async def _append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        engine = await self._reach_to_commit()
        errors = engine.append(self.id, records, self.epochs)
        try:
            await self._reach()
            if self.loses_answers:
                self.loses_answers -= 1
                raise Unavailable(AWAY)
        except Unavailable as exc:
            raise InDoubt(exc.message) from exc
        if engine.is_full and len(errors) == len(by_run(records)):
            raise StorageFull("the disk is full")
        return errors

    async def probe(self) -> None:
        with self.commits.one():
            engine = await self._reach_to_commit()
            if engine.is_full:
                raise StorageFull("the disk is full")

    async def beat(
        self, address: str, *, lease_seconds: float, drains: bool = False, usage: Usages = UNUSED
    ) -> Beat:
        engine = await self._reach()
        row = Row(address, engine.now(), self.clock(), True, drains, usage, self.version)
        beat = engine.beat(self.id, row, self.epochs, lease_seconds)
        for run in beat.lost:
            del self.epochs[run]
        await self._reach()
        return beat

    async def owner(self, run: str) -> Holding | None:
        return (await self._reach()).owners.get(run)

    async def claim(self, wanted: Sequence[Holding]) -> Mapping[str, int]:
        now = self.clock()
        claimed = (await self._reach()).claim(self.id, wanted, now)
        for run in claimed:
            self.epochs.pop(run, None)
        await self._reach()
        self._ahead |= {run: one.ahead for run, one in claimed.items()}
        epochs = {run: one.epoch for run, one in claimed.items()}
        self.epochs |= epochs
        return epochs

    async def hand_over(self, run: str, to: str | None) -> bool:
        epoch = self.epochs.pop(run, -1)
        return (await self._reach()).hand_over(self.id, run, epoch, to, self.clock())

    async def leave(self) -> None:
        (await self._reach()).leave(self.id, self.clock())

    async def runs(self) -> list[str]:
        return [run for run, kept in (await self._reach()).written.items() if kept]

    async def read(self, run: str) -> list[Record]:
        return (await self._reach()).records(run)

    async def drop(self, runs: Sequence[str]) -> None:
        epochs = {run: self.epochs.pop(run, -1) for run in runs}
        (await self._reach()).drop(self.id, epochs)

    async def tenants(self) -> list[Tenant]:
        return list((await self._reach()).tenants.values())

    async def put_tenant(self, tenant: Tenant) -> None:
        (await self._reach()).put_tenant(tenant)

    async def remove_tenant(self, name: str) -> bool:
        return (await self._reach()).remove_tenant(name)

    async def close(self) -> None:
        """See the protocol."""
