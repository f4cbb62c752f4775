"""What a journal alone leads to, beside what the registry that has written it has decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rendezvous.registry.journal import Record
from rendezvous.registry.live_run import LiveRun
from tests.support.differences import differences

if TYPE_CHECKING:
    from tests.simulation.history import History


def compare(history: History, served: Mapping[str, LiveRun], records: Sequence[Record]) -> None:
    """Fail where a run is another one than its records say, once they are all durable."""
    for name, number in {record.run: record.number for record in records}.items():
        live = served.get(name)
        if live is not None and live.number == number and live.run != history.runs[name]:
            words = "; ".join(differences(history.runs[name], live.run))
            history.fail("the_journal_leads_to_the_same_state", words)
