"""A disk that outlives the registry, and the journal on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rendezvous.registry.journal import Record, by_run
from rendezvous.registry.quotas import refuse_clash
from rendezvous.wire.errors import RegistryError, StorageFull
from rendezvous.wire.tenant import Tenant
from tests.support.virtual_time import Machine, forever

FULL = "no space left on device"
LIE = "the disk says that it did not keep what it has kept"
_WRITE_SECONDS = 0.0005


class Disk:
    """What is durable; it tells of records right before and after they become so."""

    def __init__(
        self,
        at_commit: Callable[[str, list[Record]], None],
        at_drop: Callable[[str], None],
    ) -> None:
        self.records: dict[tuple[str, int], Record] = {}
        self.tenants: dict[str, Tenant] = {}
        self.full_until = self.slow_until = self.slow_seconds = 0.0
        self.lies = self.failed = 0
        self.journal = 0
        """Counts the journals; what is written to one that is deleted is nowhere."""
        self._at_commit = at_commit
        self._at_drop = at_drop

    def commit(self, records: list[Record]) -> dict[str, RegistryError]:
        refused: dict[str, RegistryError] = {}
        for run, some in by_run(records).items():
            new = {(record.run, record.number): record for record in some}
            if len(new) < len(some) or not new.keys().isdisjoint(self.records):
                refused[run] = StorageFull("the journal holds a record of that number already")
        kept = [record for record in records if record.run not in refused]
        self._at_commit("before", kept)
        self.records |= {(record.run, record.number): record for record in kept}
        self._at_commit("after", kept)
        return refused

    def renew(self) -> None:
        self.records = {}
        self.journal += 1

    def drop(self, run: str) -> None:
        self._at_drop(run)
        self.records = {key: record for key, record in self.records.items() if key[0] != run}


class SimulatedJournal:
    """The journal of one registry process; see `rendezvous.registry.journal.Journal`."""

    def __init__(self, disk: Disk, machine: Machine) -> None:
        self._disk = disk
        self._machine = machine
        self._number = disk.journal

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        disk, now = self._disk, asyncio.get_running_loop().time()
        await asyncio.sleep(disk.slow_seconds if now < disk.slow_until else _WRITE_SECONDS)
        if self._is_full():
            return dict.fromkeys(by_run(records), StorageFull(FULL))
        if self._number != disk.journal:
            return {}
        refused = disk.commit(records)
        if not self._machine.alive:
            await forever()
        if disk.lies:
            disk.lies -= 1
            disk.failed += 1
            return dict.fromkeys(by_run(records), StorageFull(LIE))
        return refused

    def _is_full(self) -> bool:
        is_full = asyncio.get_running_loop().time() < self._disk.full_until
        self._disk.failed += is_full
        return is_full

    async def runs(self) -> list[str]:
        return list(by_run(self._disk.records.values()))

    async def read(self, run: str) -> list[Record]:
        return [one for one in self._disk.records.values() if one.run == run]

    async def drop(self, runs: Sequence[str]) -> None:
        await asyncio.sleep(_WRITE_SECONDS)
        if self._is_full():
            raise StorageFull(FULL)
        if self._number == self._disk.journal:
            for run in runs:
                self._disk.drop(run)

    async def tenants(self) -> list[Tenant]:
        return list(self._disk.tenants.values())

    async def put_tenant(self, tenant: Tenant) -> None:
        refuse_clash(self._disk.tenants.values(), tenant)
        self._disk.tenants[tenant.name] = tenant

    async def remove_tenant(self, name: str) -> bool:
        return self._disk.tenants.pop(name, None) is not None

    async def close(self) -> None:
        """See the protocol."""
