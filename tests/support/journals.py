"""Writing to journals in tests: what one journal needs first, and what is in it."""

from __future__ import annotations

from rendezvous.registry.journal import Journal, Record
from rendezvous.registry.postgres_journal import PostgresJournal
from rendezvous.registry.shared_journal import Holding
from rendezvous.wire.errors import RegistryError


def records(run: str, *numbers: int) -> list[Record]:
    """Records whose bodies can be told apart."""
    return [Record(run, number, number / 8, f"{number} of {run}".encode()) for number in numbers]


async def written(journal: Journal, wanted: list[Record]) -> dict[str, type[RegistryError]]:
    """Append these, to runs that are claimed first where a journal needs that; what was refused."""
    if isinstance(journal, PostgresJournal):
        for run in dict.fromkeys(record.run for record in wanted):
            await _claimed(journal, run)
    return {run: type(error) for run, error in (await journal.append(wanted)).items()}


async def _claimed(journal: PostgresJournal, run: str) -> None:
    holding = await journal.owner(run) or Holding(run, None, 0)
    if holding.owner != journal.id:
        assert await journal.claim([holding]) == {run: holding.epoch + 1}


async def contents(journal: Journal) -> list[Record]:
    """All its records, of one run after the other."""
    return [record for run in await journal.runs() for record in await journal.read(run)]
