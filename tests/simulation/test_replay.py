"""A run comes out of its journal as it was decided, whichever rules the reader has.

Journals are those of simulated schedules: restarts, losses, spares, shrinking, stalls. Each is read
with every constant of the policy changed, and with a cause table that is emptied, turned, extended.
"""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

import features.hang.rules
import rendezvous.cause
import rendezvous.proof
import rendezvous.run
from rendezvous.cause.table import BY_ID, Then
from rendezvous.registry.journal import Record
from rendezvous.registry.live_run import LiveRun
from rendezvous.run import events
from rendezvous.run.decision import load_entry
from rendezvous.run.fold import apply
from rendezvous.run.protocol import decide
from rendezvous.run.state import Run, create
from tests.simulation.generate import generate, outlives_nodes, starts_again
from tests.simulation.world import simulate
from tests.support.differences import differences
from tests.support.nightly import at_night

EACH = 20
"""Schedules in one test."""
_POLICY = (
    rendezvous.cause,
    features.hang.rules,
    rendezvous.proof,
    rendezvous.run,
)


def policy_modules() -> Iterator[ModuleType]:
    for package in _POLICY:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def changed(value: Any) -> Any:
    """Another constant of its kind; None: it is none."""
    if type(value) in (int, float):
        return value * 3 + 1
    if type(value) is tuple and value and all(type(one) in (int, float) for one in value):
        return tuple(one * 3 + 1 for one in value)
    return None


def emptied() -> None:
    BY_ID.clear()


def turned() -> None:
    """What stays goes, what goes stays; and each sentence is another one."""
    for name, row in BY_ID.items():
        then = Then.HOPELESS if row.then is not Then.HOPELESS else next(iter(Then))
        BY_ID[name] = replace(row, then=then, hint="another hint")


def extended() -> None:
    row = next(iter(BY_ID.values()))
    BY_ID["invented"] = replace(row, id="invented")


@contextmanager
def other_rules(table: Callable[[], None]) -> Iterator[int]:
    """Another version's policy; yields how many constants are changed."""
    with ExitStack() as undo:
        count = 0
        for module in policy_modules():
            for name, value in list(vars(module).items()):
                if name.isupper() and (other := changed(value)) is not None:
                    undo.enter_context(patch.object(module, name, other))
                    count += 1
        undo.enter_context(patch.dict(BY_ID))
        table()
        yield count


def recorded(seed: int) -> tuple[list[Record], dict[tuple[str, int], bytes]]:
    """The journal of a schedule, and the state after each of its events, as it was decided."""
    states: dict[tuple[str, int], bytes] = {}
    decide = LiveRun.decide

    def watched(live: LiveRun, event: events.Event, now: float) -> Record:
        record = decide(live, event, now)
        states[record.run, record.number] = pickle.dumps((record.body, live.run))
        return record

    with patch.object(LiveRun, "decide", watched):
        report = simulate(generate(seed))
    assert report.violation is None
    return report.records, states


def replay(records: list[Record], states: dict[tuple[str, int], bytes]) -> int:
    """Compare the state after each event; returns how many there were."""
    runs: dict[str, Run] = {}
    for record in records:
        event, decision = load_entry(record.body)
        if isinstance(event, events.Created):
            runs[record.run] = create(record.run, event.spec, record.at)
        apply(run := runs[record.run], event, decision)
        body, then = pickle.loads(states[record.run, record.number])
        if body == record.body:  # else this one was never durable, and was decided anew
            assert run == then, differences(run, then)
            assert (run.digest, run.result, run.table) == (then.digest, then.result, then.table)
    return len(records)


def seeds(first: int) -> Iterator[int]:
    """Every other one of a run whose programs may start again, or that outlives its nodes."""
    hard = (seed for seed in range(10**6) if starts_again(seed) or outlives_nodes(seed))
    easy = iter(range(10**6))
    for place in range(first + EACH):
        seed = next(hard if place % 2 else easy)
        if place >= first:
            yield seed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", [0, *(at_night(first) for first in range(EACH, 2_000, EACH))])
def test_a_journal_is_replayed_alike_under_other_rules(first: int) -> None:
    happened = 0
    for seed in seeds(first):
        records, states = recorded(seed)
        for table in (emptied, turned, extended):
            with other_rules(table) as constants:
                assert constants > 50
                happened += replay(records, states)
    assert happened > 1_000


def decided_again(records: list[Record]) -> dict[str, Run]:
    """The runs as the present rules decide on the same events."""
    runs: dict[str, Run] = {}
    for record in records:
        event, _ = load_entry(record.body)
        if isinstance(event, events.Created):
            runs[record.run] = create(record.run, event.spec, record.at)
        decide(runs[record.run], event, record.at)
    return runs


def test_other_rules_decide_otherwise() -> None:
    """So that the test above can fail: a replay that decided anew would come to another state."""
    differ = 0
    for seed in seeds(0):
        records, _ = recorded(seed)
        runs = decided_again(records)
        with other_rules(turned):
            try:
                differ += decided_again(records) != runs
            except (AssertionError, LookupError, ValueError):
                differ += 1
    assert differ > EACH / 4
