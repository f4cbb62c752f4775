"""Where events are kept: what the registry needs of a journal, and one in memory.

A journal keeps bytes in one order for each run. `append` returns when the records are durable, and
not before; the caller puts many records into one call, so that they share one commit.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from rendezvous.registry.quotas import refuse_clash
from rendezvous.wire.errors import RegistryError, StorageFull, UsageError
from rendezvous.wire.tenant import Tenant
from rendezvous.wire.words import printable

logger = logging.getLogger(__name__)

JOURNAL = 3
"""The version of the records that this rdzv writes, and reads. Each change of an event, of the
run's state or of the forms in `rendezvous.run.changes` is another one: a field that is passed over
would be lost."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event of one run.

    `number` counts from 1 in each run and occurs once; `at` is seconds of the registry's clock.
    """

    run: str
    number: int
    at: float
    body: bytes


class Journal(Protocol):
    """What the service needs of a journal."""

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        """Make the records durable, all of a run's or none; returns by run why its are not.

        Of a run whose records were refused nothing is durable that was not before: read it again.
        """

    async def runs(self) -> list[str]:
        """The names of all runs that have records, in the order of their first ones.

        Raises UsageError where the journal cannot be read, Unavailable where it is away.
        """

    async def read(self, run: str) -> list[Record]:
        """The records of a run, in their order: all that was ever made durable.

        Raises as `runs` does.
        """

    async def drop(self, runs: Sequence[str]) -> None:
        """Remove the records of these runs; raises StorageFull or Unavailable."""

    async def tenants(self) -> list[Tenant]:
        """All tenants, in any order; raises as `runs` does."""

    async def put_tenant(self, tenant: Tenant) -> None:
        """Keep a tenant, in place of the one of its name.

        Raises TenantClash (see `quotas.refuse_clash`), StorageFull or Unavailable.
        """

    async def remove_tenant(self, name: str) -> bool:
        """Keep it no longer; whether there was one. Raises StorageFull or Unavailable."""

    async def close(self) -> None:
        """Let go of files, threads and connections."""


class MemoryJournal:
    """Keeps records as long as the process lives."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, Record]] = {}
        self._tenants: dict[str, Tenant] = {}

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        refused: dict[str, RegistryError] = {}
        for run, some in by_run(records).items():
            kept, new = self._runs.setdefault(run, {}), {record.number: record for record in some}
            if len(new) < len(some) or not new.keys().isdisjoint(kept):
                refused[run] = StorageFull(f"the journal holds a record of run '{run}' already")
            else:
                kept |= new
        return refused

    async def runs(self) -> list[str]:
        return [run for run, kept in self._runs.items() if kept]

    async def read(self, run: str) -> list[Record]:
        return list(self._runs.get(run, {}).values())

    async def drop(self, runs: Sequence[str]) -> None:
        for run in runs:
            self._runs.pop(run, None)

    async def tenants(self) -> list[Tenant]:
        return list(self._tenants.values())

    async def put_tenant(self, tenant: Tenant) -> None:
        refuse_clash(self._tenants.values(), tenant)
        self._tenants[tenant.name] = tenant

    async def remove_tenant(self, name: str) -> bool:
        return self._tenants.pop(name, None) is not None

    async def close(self) -> None:
        """See the protocol."""


def by_run(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each run, in their order."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.run, []).append(record)
    return found


def load_tenants(bodies: Iterable[str]) -> list[Tenant]:
    """Tenants as a journal keeps them; one that this version cannot read is refused everything."""
    found = []
    for body in bodies:
        try:
            found.append(Tenant.model_validate_json(body))
        except ValidationError as exc:
            logger.error("a tenant cannot be read by this version of rdzv: %s", exc)
    return found


@contextlib.contextmanager
def applying(record: Record) -> Iterator[None]:
    """Say which record it is that cannot be applied; raises UsageError."""
    event = f"event {record.number} of run '{printable(record.run, 63)}'"
    try:
        yield
    except ValidationError as exc:
        raise UsageError(
            f"{event} is unknown to this version of rdzv",
            hint="use the version of rdzv that wrote the journal",
        ) from exc
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as exc:
        raise UsageError(
            f"{event} does not follow from the events before it",
            hint="the journal was changed or has lost records; move it away to start with an "
            "empty one",
        ) from exc
