"""What a journal alone leads to, beside what the registry that has written it has decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from rendezvous.registry.journal import Record
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.replay import replay
from rendezvous.run.decision import load_entry
from rendezvous.run.events import Created, Event
from rendezvous.run.fold import apply
from rendezvous.run.state import Run, create
from tests.support.differences import differences

if TYPE_CHECKING:
    from tests.simulation.disk import Disk
    from tests.simulation.history import History


def compare(history: History, served: Mapping[str, LiveRun], records: Sequence[Record]) -> None:
    """Fail where a run is another one than its records say, once they are all durable."""
    for name, number in {record.run: record.number for record in records}.items():
        live = served.get(name)
        if live is not None and live.number == number and live.run != history.runs[name]:
            words = "; ".join(differences(history.runs[name], live.run))
            history.fail("the_journal_leads_to_the_same_state", words)


class Replays:
    """A second state of each run in each registry, changed by what is to be journalled alone."""

    def __init__(self, history: History, disk: Disk) -> None:
        self._history = history
        self._disk = disk
        self._runs: dict[int, tuple[Run, Run]] = {}
        """By identity: a run, and its replay."""

    @contextmanager
    def following(self) -> Iterator[None]:
        """Compare a run with its replay after each decision on it."""
        decide = LiveRun.decide

        def decided(live: LiveRun, event: Event, now: float) -> Record:
            record = decide(live, event, now)
            self._compare(live.run, self._replayed(live.run, record))
            return record

        with patch.object(LiveRun, "decide", decided):
            yield

    def end(self) -> None:
        """Compare all of them, as something beside the last decision may have changed one."""
        for run, replayed in self._runs.values():
            self._compare(run, replayed)

    def _replayed(self, run: Run, record: Record) -> Run:
        event, decision = load_entry(record.body)
        if id(run) not in self._runs:
            begun = (
                create(run.id, event.spec, record.at)
                if isinstance(event, Created)
                else self._read(run.id)
            )
            self._runs[id(run)] = run, begun
        replayed = self._runs[id(run)][1]
        apply(replayed, event, decision)
        return replayed

    def _read(self, name: str) -> Run:
        """The run as a registry finds it that comes back on the journal."""
        runs: dict[str, Run] = {}
        records = [one for one in self._disk.records.values() if one.run == name]
        deque(replay(records, runs), maxlen=0)
        return runs[name]

    def _compare(self, run: Run, replayed: Run) -> None:
        if run != replayed:
            words = "; ".join(differences(replayed, run))
            self._history.fail("whatever_changes_a_run_is_journalled", words)
