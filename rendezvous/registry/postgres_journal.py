"""The journal of several replicas: a PostgreSQL database, best with standbys that it waits for.

An event is written by one statement that holds its run's row until the commit is acknowledged, and
only where this replica's epoch is in that row: see `shared_journal`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rendezvous.registry import postgres_schema as sql
from rendezvous.registry import postgres_tenants
from rendezvous.registry import postgres_writes as writes
from rendezvous.registry.commits import Commits
from rendezvous.registry.journal import JOURNAL, Record, by_run
from rendezvous.registry.postgres_beats import Beats
from rendezvous.registry.postgres_line import (
    FOREIGN_STATEMENT,
    LIMIT_SECONDS,
    Line,
    T,
    Work,
    shares_sessions,
)
from rendezvous.registry.postgres_place import Place
from rendezvous.registry.postgres_trouble import asyncpg
from rendezvous.registry.quotas import usages_text
from rendezvous.registry.shared_journal import (
    UNUSED,
    Away,
    Beat,
    Holding,
    InDoubt,
    Overtaken,
    Usages,
)
from rendezvous.wire.errors import (
    RegistryError,
    StorageFull,
    TenantClash,
    Unavailable,
    UsageError,
)
from rendezvous.wire.tenant import Tenant


class PostgresJournal:
    """One replica's view of it; raises as `SharedJournal` says.

    There are four connections, each made when it is first needed: one for events, one for beats,
    one for whatever else is asked and one for removing old runs, so that none of these waits for
    another.
    """

    def __init__(self, place: Place, id: str, version: int) -> None:  # noqa: A002
        """See `open`."""
        self._place = place
        self._id, self.version = id, version
        self._appends = Line(place)
        self.commits = Commits(time.monotonic, (*_OF_ONE_RUN, TenantClash))
        self._beats = Beats(place, id, version, self.commits)
        self._asks = Line(place)
        self._drops = Line(place)
        self._appending = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self.clock: Callable[[], float] = time.monotonic
        self._held: dict[str, int] = {}  # the epochs of the runs that are claimed
        self._ahead: dict[str, float] = {}
        self._claiming: Counter[str] = Counter()
        self._doubtful: set[str] = set()

    @classmethod
    async def open(cls, dsn: str, id: str, version: int = JOURNAL) -> PostgresJournal:  # noqa: A002
        """The journal at this URL, which is made where there is none yet.

        Args:
            dsn: As libpq has it: `postgresql://user:password@host1,host2/database`. A pooler before
                it must give each connection a session of its own.
            id: Of this process alone: 16 random bytes, in hex. `version` is that of its records.

        Raises Away where it cannot be reached now, another UsageError where that would not change.
        """
        if asyncpg is None:
            raise UsageError(
                "a journal in PostgreSQL needs asyncpg, which is not installed",
                hint="pip install 'rdzv[postgres]'",
            )
        journal = cls(Place(dsn), id, version)
        try:
            if await shares_sessions([journal._asks, journal._beats.line]):
                raise UsageError(
                    f"a pooler before the journal {journal._place.text} gives its sessions to "
                    "transactions, and a replica lives by the lock that its session holds",
                    hint=_POOL_SESSIONS,
                )
            await journal._asks.run(partial(sql.prepare, place=journal._place.text))
        except Unavailable as exc:
            await journal.close()
            kind = UsageError if journal._place.is_refused else Away
            raise kind(exc.message, hint=exc.hint) from exc
        except asyncpg.PostgresError as exc:
            await journal.close()
            raise UsageError(
                f"the journal {journal._place.text} cannot be prepared: {exc}", hint=_cure(exc)
            ) from exc
        except UsageError:
            await journal.close()
            raise
        journal._place.conceal()
        return journal

    @property
    def id(self) -> str:
        """See the protocol."""
        return self._id

    @property
    def epochs(self) -> Mapping[str, int]:
        """See the protocol."""
        return self._held

    def ahead(self, run: str) -> float:
        """See the protocol."""
        return self._ahead.get(run, -math.inf)

    # Events

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        """See the protocol; it goes on where the caller is cancelled."""
        task = asyncio.create_task(self._append(by_run(records)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _append(self, runs: dict[str, list[Record]]) -> Mapping[str, RegistryError]:
        async with self._appending:  # what the one before it has met counts for the next
            refused = {run: why_not for run in runs if (why_not := self._why_not(run))}
            ready = {run: some for run, some in runs.items() if run not in refused}
            return refused | await self._written(ready) if ready else refused

    def _why_not(self, run: str) -> RegistryError | None:
        if run not in self._held:
            return _overtaken(run)
        if run in self._doubtful:
            return InDoubt(f"the last write of run '{run}' is in doubt: claim and read it first")
        return None

    async def _written(self, runs: dict[str, list[Record]]) -> dict[str, RegistryError]:
        epochs = {run: self._held[run] for run in runs}
        try:
            kept = await self._commit(self._appends, partial(writes.insert, self._id, epochs, runs))
        except InDoubt as exc:
            self._doubtful |= {run for run, epoch in epochs.items() if self._held.get(run) == epoch}
            return dict.fromkeys(runs, exc)
        except Unavailable as exc:
            return dict.fromkeys(runs, exc)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
            if len(runs) > 1 and isinstance(exc, _OF_ONE_RUN):
                return await self._one_by_one(runs)
            if isinstance(exc, (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)):
                return dict.fromkeys(runs, self._unasked(exc))
            return dict.fromkeys(runs, self._unwritten(exc))
        lost = epochs.keys() - kept
        self._let_go({run: epochs[run] for run in lost})
        return {run: _overtaken(run) for run in lost}

    async def _one_by_one(self, runs: dict[str, list[Record]]) -> dict[str, RegistryError]:
        refused: dict[str, RegistryError] = {}
        for run, some in runs.items():
            why_not = self._why_not(run)
            refused |= {run: why_not} if why_not else await self._written({run: some})
        return refused

    def _unwritten(self, exc: Exception) -> StorageFull:
        error = StorageFull(
            f"the journal {self._place.text} could not be written: {exc}",
            hint=f"{_cure(exc)}; the registry keeps serving what it has",
        )
        error.__cause__ = exc
        return error

    async def runs(self) -> list[str]:
        """See the protocol; the order is that in which the runs were first claimed."""
        return [row["run"] for row in await self._read(sql.RUNS)]

    async def read(self, run: str) -> list[Record]:
        """See the protocol."""
        return [Record(*row) for row in await self._read(sql.READ, run)]

    async def _read(self, query: str, *arguments: str) -> Sequence[Any]:
        try:
            return await self._asks.run(lambda connection: connection.fetch(query, *arguments))
        except asyncpg.PostgresError as exc:
            raise UsageError(
                f"the journal {self._place.text} cannot be read: {exc}", hint=_cure(exc)
            ) from exc

    async def drop(self, runs: Sequence[str]) -> None:
        """Remove the events of those of these runs that this replica holds; nobody owns them then.

        Raises StorageFull or Unavailable.
        """
        for run in runs:
            if (epoch := self._forget(run)) is None:
                continue
            try:
                await self._commit(
                    self._drops, partial(writes.delete, run, self._id, epoch, self.clock())
                )
            except asyncpg.PostgresError as exc:  # it was undone
                self._held.setdefault(run, epoch)
                raise self._unwritten(exc) from exc

    # Tenants

    async def tenants(self) -> list[Tenant]:
        """See the protocol."""
        return await self._ask(self._asks, postgres_tenants.read)

    async def put_tenant(self, tenant: Tenant) -> None:
        """See the protocol."""
        await self._change(self._asks, partial(postgres_tenants.put, tenant=tenant))

    async def remove_tenant(self, name: str) -> bool:
        """See the protocol."""
        return await self._change(self._asks, partial(postgres_tenants.remove, name=name))

    # Owners

    async def owner(self, run: str) -> Holding | None:
        """See the protocol."""
        row = await self._ask(self._asks, lambda one: one.fetchrow(sql.OWNER, run))
        return None if row is None else Holding(*row)

    async def claim(self, wanted: Sequence[Holding]) -> Mapping[str, int]:
        """See the protocol."""
        some, now = {holding.run: holding for holding in wanted}, self.clock()
        owners, epochs = [h.owner for h in some.values()], [h.epoch for h in some.values()]
        arguments = self._id, list(some), owners, epochs, now, self.version
        self._claiming.update(some.keys())
        try:
            rows = await self._change(self._asks, lambda one: one.fetch(sql.CLAIM, *arguments))
        finally:
            self._claiming -= Counter(some.keys())
        claimed = {row["run"]: row["epoch"] for row in rows}
        # Not where the caller was cancelled: the next beat names those as given.
        self._held |= claimed
        self._ahead |= {row["run"]: row["clock"] - now for row in rows}
        self._doubtful -= claimed.keys()
        return claimed

    async def hand_over(self, run: str, to: str | None) -> bool:
        """See the protocol."""
        if (epoch := self._forget(run)) is None:
            return False
        arguments = run, self._id, epoch, to, self.clock()
        given = await self._change(self._asks, lambda one: one.fetchval(sql.SET_OWNER, *arguments))
        return given is not None

    # Members

    async def beat(
        self, address: str, *, lease_seconds: float, drains: bool = False, usage: Usages = UNUSED
    ) -> Beat:
        """See the protocol, and `postgres_members` for who counts as alive."""
        held = dict(self._held)
        row = address, self.clock(), drains, usages_text(dict(usage))
        members, owned, tenants = await self._ask(
            self._beats.line, partial(self._beats.report, row, lease_seconds)
        )
        own = {one.run: one.epoch for one in owned if one.owner == self._id}
        lost = {
            run: epoch
            for run, epoch in held.items()
            if own.get(run) != epoch and self._held.get(run) == epoch and run not in self._claiming
        }
        given = [run for run in own if run not in self._held and run not in self._claiming]
        self._let_go(lost)
        return Beat(
            members=members,
            lost=tuple(lost),
            given=tuple(one for one in owned if one.run in given),
            left=tuple(one for one in owned if one.owner != self._id),
            tenants=tenants,
        )

    async def probe(self) -> None:
        """See the protocol; where a commit has failed, it needs room as that may have done."""
        try:
            await self._commit(self._drops, partial(writes.probe, self.commits.has_failed))
        except asyncpg.PostgresError as exc:
            raise self._unwritten(exc) from exc

    async def leave(self) -> None:
        """See the protocol."""
        try:
            stopped = self._id, self.clock()
            await self._change(self._asks, lambda one: one.execute(sql.STOP_CLOCKS, *stopped))
        finally:
            await self._ask(self._beats.line, lambda one: one.execute(sql.LEAVE, self._id))
            await self._beats.line.close()

    async def close(self) -> None:
        """Wait for what is being written, then close all connections."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=LIMIT_SECONDS)
        for line in (self._appends, self._asks, self._drops, self._beats.line):
            await line.close()
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _commit(self, line: Line, work: Work[T]) -> T:
        """Do this, which has to last; raises as `Line.run`."""
        try:
            return await line.run(work, self.commits)
        except asyncpg.PostgresError as exc:
            if not isinstance(exc, _OF_ONE_RUN):
                self.commits.reason, self.commits.hint = _reason(exc), _cure(exc)
            raise

    async def _change(self, line: Line, work: Work[T]) -> T:
        """As `_ask`, of what has to last."""
        return await self._ask(line, work, self.commits)

    async def _ask(self, line: Line, work: Work[T], commits: Commits | None = None) -> T:
        """Do this; whatever the server has against it, it is for a later time."""
        try:
            return await line.run(work, commits)
        except asyncpg.PostgresError as exc:
            raise self._unasked(exc) from exc

    def _unasked(self, exc: Exception) -> Unavailable:
        return Unavailable(
            f"the journal {self._place.text} could not be asked: {exc}", hint=_cure(exc)
        )

    def _let_go(self, runs: Mapping[str, int]) -> None:
        for run, epoch in runs.items():
            if self._held.get(run) == epoch:
                self._forget(run)

    def _forget(self, run: str) -> int | None:
        """Hold it no more; returns the epoch that it was held with."""
        self._ahead.pop(run, None)
        self._doubtful.discard(run)
        return self._held.pop(run, None)


_POOL_SESSIONS = "set pool_mode = session in pgbouncer.ini, or give the server's own address"
_OF_ONE_RUN = (
    ()
    if asyncpg is None
    else (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError, asyncpg.InterfaceError)
)
"""Errors that say nothing about the other runs of a call."""


def _overtaken(run: str) -> Overtaken:
    return Overtaken(
        f"another replica of the registry owns run '{run}'", hint="try again: it answers there"
    )


def _reason(exc: asyncpg.PostgresError) -> str:
    """Why the server commits nothing, as strangers may read it: its own words name its files."""
    full = isinstance(exc, asyncpg.DiskFullError)
    return "its disk is full" if full else f"it answers with SQLSTATE {exc.sqlstate}"


def _cure(exc: Exception) -> str:
    for kinds, cure in (
        (asyncpg.UniqueViolationError, "another program writes these tables: end it"),
        (FOREIGN_STATEMENT, _POOL_SESSIONS),
        (asyncpg.DiskFullError, "free space on the database's disk"),
        (asyncpg.OutOfMemoryError, "give the database more memory"),
        (
            asyncpg.InsufficientPrivilegeError,
            "give its user a schema that it may write to: CREATE SCHEMA rdzv AUTHORIZATION USER",
        ),
        (asyncpg.UndefinedTableError, "the tables were removed: restore them from a backup"),
    ):
        if isinstance(exc, kinds):
            return cure
    return "look into the database's own log"
