"""A disk that outlives the registry, and the journal on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from rendezvous.server.journal import Record
from rendezvous.wire.errors import StorageFull
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
        self.full_until = self.slow_until = self.slow_seconds = 0.0
        self.lies = self.failed = 0
        self.journal = 0
        """Counts the journals; what is written to one that is deleted is nowhere."""
        self._at_commit = at_commit
        self._at_drop = at_drop

    def commit(self, records: list[Record]) -> None:
        new = {(record.run, record.number): record for record in records}
        if len(new) < len(records) or not new.keys().isdisjoint(self.records):
            raise StorageFull("the journal holds a record of that run and number already")
        self._at_commit("before", records)
        self.records |= new
        self._at_commit("after", records)

    def renew(self) -> None:
        self.records = {}
        self.journal += 1

    def drop(self, run: str) -> None:
        self._at_drop(run)
        self.records = {key: record for key, record in self.records.items() if key[0] != run}


class SimulatedJournal:
    """The journal of one registry process; see `rendezvous.server.journal.Journal`."""

    def __init__(self, disk: Disk, machine: Machine) -> None:
        self._disk = disk
        self._machine = machine
        self._number = disk.journal

    async def append(self, records: list[Record]) -> None:
        disk, now = self._disk, asyncio.get_running_loop().time()
        await asyncio.sleep(disk.slow_seconds if now < disk.slow_until else _WRITE_SECONDS)
        self._check_space()
        if self._number != disk.journal:
            return
        disk.commit(records)
        if not self._machine.alive:
            await forever()
        if disk.lies:
            disk.lies -= 1
            disk.failed += 1
            raise StorageFull(LIE)

    def _check_space(self) -> None:
        if asyncio.get_running_loop().time() < self._disk.full_until:
            self._disk.failed += 1
            raise StorageFull(FULL)

    def read(self, run: str | None = None) -> Iterator[Record]:
        yield from [one for one in self._disk.records.values() if run in (None, one.run)]

    async def drop(self, run: str) -> None:
        await asyncio.sleep(_WRITE_SECONDS)
        self._check_space()
        if self._number == self._disk.journal:
            self._disk.drop(run)

    async def close(self) -> None:
        """See the protocol."""
