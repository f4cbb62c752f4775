"""An engine that replicas share, in memory; it may be slow, away, or out of reach for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rendezvous.server.journal import Record, by_run
from rendezvous.server.quotas import refuse_clash
from rendezvous.server.shared_journal import (
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
    has_session: bool = True
    drains: bool = False
    usage: Usages = field(default_factory=dict)


@dataclass
class Engine:
    """What is durable, and who has written it.

    Attributes:
        now: The engine's own clock.
        written: By run, the epoch and the record of each number, in the order of the commits.
        slow_seconds: Of each commit.
        is_full: Commits are refused.
        at_commit: Called with what has just become durable, and the epochs of its runs.
    """

    now: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    written: dict[str, dict[int, tuple[int, Record]]] = field(default_factory=dict)
    owners: dict[str, Holding] = field(default_factory=dict)
    replicas: dict[str, Row] = field(default_factory=dict)
    tenants: dict[str, Tenant] = field(default_factory=dict)
    tenant_changes: int = 0
    is_away: bool = False
    is_full: bool = False
    slow_seconds: float = _WAY_SECONDS
    at_commit: Callable[[list[Record]], None] = lambda records: None

    def restart(self) -> None:
        """All sessions end."""
        for row in self.replicas.values():
            row.has_session = False

    def records(self, run: str) -> list[Record]:
        return [record for _, record in self.written.get(run, {}).values()]


class EngineJournal:
    """A replica's connection to it: see `SharedJournal`.

    Attributes:
        is_cut: This replica does not reach the engine.
        loses_answers: So many of the next commits happen, and their answers are lost.
    """

    def __init__(self, engine: Engine, replica: str) -> None:
        self.engine = engine
        self.id = replica
        self.epochs: dict[str, int] = {}
        self.is_cut = False
        self.loses_answers = 0

    async def _reach(self, seconds: float = _WAY_SECONDS) -> Engine:
        """On the way there, or back; raises Unavailable."""
        await asyncio.sleep(seconds)
        if self.is_cut or self.engine.is_away:
            raise Unavailable(AWAY)
        return self.engine

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        runs = by_run(records)
        try:
            engine = await self._reach(self.engine.slow_seconds)
        except Unavailable as exc:
            return dict.fromkeys(runs, exc)
        errors = {run: self._refused(run, some) for run, some in runs.items()}
        good = [record for record in records if errors[record.run] is None]
        for record in good:
            known = engine.written.setdefault(record.run, {})
            known[record.number] = self.epochs[record.run], record
        engine.at_commit(good)
        try:
            await self._reach()
            if self.loses_answers:
                self.loses_answers -= 1
                raise Unavailable(AWAY)
        except Unavailable as exc:
            return dict.fromkeys(runs, InDoubt(exc.message))
        return {run: error for run, error in errors.items() if error is not None}

    def _refused(self, run: str, records: list[Record]) -> RegistryError | None:
        engine = self.engine
        if engine.owners.get(run) != Holding(run, self.id, self.epochs.get(run, -1)):
            return Overtaken("another replica has it")
        if engine.is_full or not {one.number for one in records}.isdisjoint(
            engine.written.get(run, {})
        ):
            return StorageFull("the disk is full" if engine.is_full else "it is taken")
        return None

    async def beat(
        self, address: str, *, lease_seconds: float, drains: bool = False, usage: Usages = UNUSED
    ) -> Beat:
        engine = await self._reach()
        now = engine.now()
        engine.replicas[self.id] = Row(address, now, True, drains, usage)
        members = tuple(
            Member(one, row.address, now - row.seen, row.has_session, row.drains, row.usage)
            for one, row in engine.replicas.items()
        )
        alive = {m.id for m in members if m.has_session and m.silent_seconds < lease_seconds}
        mine = {h.run for h in engine.owners.values() if h == Holding(h.run, self.id, h.epoch)}
        lost = [r for r, e in self.epochs.items() if engine.owners[r] != Holding(r, self.id, e)]
        given = [engine.owners[run] for run in mine - (self.epochs.keys() - set(lost))]
        left = [h for h in engine.owners.values() if h.owner is not None and h.owner not in alive]
        for run in lost:
            del self.epochs[run]
        changes = engine.tenant_changes
        await self._reach()
        return Beat(members, tuple(lost), tuple(sorted(given, key=str)), tuple(left), changes)

    async def owner(self, run: str) -> Holding | None:
        return (await self._reach()).owners.get(run)

    async def claim(self, wanted: Sequence[Holding]) -> Mapping[str, int]:
        engine, claimed = await self._reach(), dict[str, int]()
        for holding in wanted:
            known = engine.owners.get(holding.run)
            if known == holding or (known is None and not holding.epoch):
                claimed[holding.run] = holding.epoch + 1
                engine.owners[holding.run] = Holding(holding.run, self.id, holding.epoch + 1)
        for run in claimed:
            self.epochs.pop(run, None)
        await self._reach()
        self.epochs |= claimed
        return claimed

    async def hand_over(self, run: str, to: str | None) -> bool:
        epoch = self.epochs.pop(run, -1)
        engine = await self._reach()
        if engine.owners.get(run) != Holding(run, self.id, epoch):
            return False
        engine.owners[run] = replace(engine.owners[run], owner=to, epoch=epoch + 1)
        return True

    async def leave(self) -> None:
        (await self._reach()).replicas.pop(self.id, None)

    async def runs(self) -> list[str]:
        return [run for run, kept in (await self._reach()).written.items() if kept]

    async def read(self, run: str) -> list[Record]:
        return (await self._reach()).records(run)

    async def drop(self, runs: Sequence[str]) -> None:
        engine = await self._reach()
        for run in runs:
            epoch = self.epochs.pop(run, -1)
            if engine.owners.get(run) == Holding(run, self.id, epoch):
                engine.written.pop(run, None)
                engine.owners[run] = Holding(run, None, epoch)

    async def tenants(self) -> list[Tenant]:
        return list((await self._reach()).tenants.values())

    async def put_tenant(self, tenant: Tenant) -> None:
        engine = await self._reach()
        refuse_clash(engine.tenants.values(), tenant)
        engine.tenants[tenant.name] = tenant
        engine.tenant_changes += 1

    async def remove_tenant(self, name: str) -> bool:
        engine = await self._reach()
        engine.tenant_changes += 1
        return engine.tenants.pop(name, None) is not None

    async def close(self) -> None:
        """See the protocol."""
