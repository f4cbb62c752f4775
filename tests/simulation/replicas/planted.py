"""Bugs of replicas to be planted, each of which a schedule must show; and the search for those."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rendezvous.registry.shared_journal import Holding, InDoubt, Overtaken
from rendezvous.wire.errors import RegistryError, Unavailable
from tests.simulation.history import Violation
from tests.simulation.planting import (
    Bug,
    Function,
    Part,
    always,
    but,
    by_name,
    nothing,
    put,
    replace,
    while_set,
    wrap,
)
from tests.simulation.replicas.schedule import generate
from tests.simulation.replicas.world import collected, simulate
from tests.support.shared_engine import Row

SEEDS = Path(__file__).with_name("seeds.json")
Found = tuple[int, str]
"""The seed that shows a bug, and the invariant that does not hold."""

_WRITE = "rendezvous.registry.sequencer:Sequencer._write"
_REFUSED = "tests.support.shared_engine:Engine._refused"


def _owners(engine: Any, me: str, run: str, _records: Any, epoch: int) -> Mapping[str, Holding]:
    """As if the one that writes was the owner."""
    return {**engine.owners, run: Holding(run, me, epoch)}


class _SeenByItself(Row):
    """What a replica's own clock has shown stays."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "seen" or "seen" not in vars(self):
            super().__setattr__(name, value)


def _forgets_epochs(real: Function, engine: Any, me: str, epochs: Mapping[str, int]) -> None:
    real(engine, me, epochs)
    for run, epoch in epochs.items():
        if engine.owners.get(run) == Holding(run, None, epoch):
            del engine.owners[run]


class _Early:
    """A journal of which some runs were read before."""

    def __init__(self, journal: Any, early: dict[str, Any]) -> None:
        self.journal, self.early = journal, early

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)

    async def read(self, run: str) -> Any:
        return self.early.pop(run, None) or await self.journal.read(run)


async def _reads_early(real: Function, replica: Any, wanted: list[Holding]) -> None:
    journal = replica._journal
    try:
        early = {one.run: await journal.read(one.run) for one in wanted}
    except Unavailable:
        early = {}
    replica._loads._journal = _Early(journal, early)
    await real(replica, wanted)


async def _once(real: Function, replica: Any) -> bool:
    await real(replica)
    return False


async def _gives_nothing(_replica: Any) -> bool:
    await asyncio.sleep(1.0)
    return True


async def _proves_nothing(_loads: Any, _run: str) -> bool:
    return True


async def _written_in_doubt(real: Function, *args: Any) -> Mapping[str, Any]:
    errors = await real(*args)
    return {run: why for run, why in errors.items() if not isinstance(why, InDoubt)}


async def _certainly_not(real: Function, sequencer: Any, errors: Mapping[str, Any]) -> None:
    await real(
        sequencer,
        {
            run: why
            if isinstance(why, Overtaken) or not isinstance(why, Unavailable)
            else RegistryError(why.message, hint=why.hint)
            for run, why in errors.items()
        },
    )


async def _tells_all(
    real: Function, sequencer: Any, view: Function, *rest: Any, **more: Any
) -> Any:
    if sequencer.standstill:
        return view(sequencer.clock.now())
    return await real(sequencer, view, *rest, **more)


def _membership(name: str, function: Function) -> Part:
    return replace(f"rendezvous.registry.membership:Membership.{name}", function)


# fmt: off
BUGS = by_name(
    Bug("no fence", wrap(_REFUSED, while_set(lambda engine, *_: engine, owners=_owners))),
    Bug("claim whatever the epoch",
        replace("rendezvous.registry.shared_journal:Holding.__eq__", always(True),
                within="tests.support.shared_engine:Engine.claim")),
    Bug("epochs begin again after a drop",
        wrap("tests.support.shared_engine:Engine.drop", _forgets_epochs)),
    Bug("leases by a replica's clock",
        wrap("tests.support.shared_engine:Engine.beat", lambda real, engine, me, row, *rest: real(
            engine, me, _SeenByItself(**vars(row)), *rest))),
    # Without the last part the journal refuses what does not follow, and the run is read again.
    Bug("read before the claim",
        wrap("rendezvous.registry.replica:Replica._claim", _reads_early),
        wrap(_REFUSED, while_set(lambda engine, *_: engine, written=lambda *_: {}))),
    Bug("what is lost is kept",
        wrap("rendezvous.registry.replica:Replica._follow", lambda real, replica, beat: real(
            replica, but(beat, lost=())))),
    Bug("doubts are not looked into",
        replace("rendezvous.registry.replica:Replica._doubtful", lambda _replica: [])),
    Bug("an end looks only once", wrap("rendezvous.registry.replica:Replica._give_all", _once)),
    Bug("an end keeps its runs",
        replace("rendezvous.registry.replica:Replica._give_all", _gives_nothing)),
    Bug("what has ended is served at once",
        replace("rendezvous.registry.loading:Loads._is_proven", _proves_nothing)),
    Bug("judged as soon as the engine is back",
        _membership("may_judge", lambda members, now: members.is_sure(now))),
    Bug("always sure", _membership("is_sure", always(True))),
    Bug("the dead live", _membership("living", lambda members: [*members.members])),
    Bug("nobody is the heir",
        _membership("claims", lambda _members, beat, _now: list(beat.given))),
    Bug("in doubt is written", wrap(_WRITE, _written_in_doubt)),
    Bug("in doubt is not written",
        wrap("rendezvous.registry.sequencer:Sequencer._take_back", _certainly_not)),
    Bug("time goes on without the engine",
        replace("rendezvous.registry.clock:RegistryClock.hold", nothing)),
    Bug("time stands still for ever",
        replace("rendezvous.registry.clock:RegistryClock.go_on", nothing)),
    Bug("told what is under way",
        wrap("rendezvous.registry.sequencer:Sequencer.look", _tells_all)),
    Bug("who waits is not told of a move",
        replace("rendezvous.registry.live_run:LiveRun.leave", lambda live, why: put(live, away=why),
                within="rendezvous.registry.runs:Runs.let_go")),
    Bug("the doubtful is served",
        replace("rendezvous.registry.runs:Runs.doubt",
                lambda runs, name, _why: name in runs.here and runs.on_doubt())),
    Bug("every replica's clock is the run's",
        replace("rendezvous.registry.live_run:LiveRun.now", lambda live: live._clock())),
    Bug("what was read is not made",
        replace("rendezvous.registry.live_run:LiveRun.is_made", nothing)),
)
# fmt: on


def stored() -> dict[str, Found]:
    """What is known, by bug."""
    known: dict[str, list[object]] = json.loads(SEEDS.read_text())
    return {name: (int(str(seed)), str(invariant)) for name, (seed, invariant) in known.items()}


def keep(known: dict[str, Found]) -> None:
    """Write what is known, a line for each bug."""
    lines = [f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known)]
    SEEDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def search(names: Iterable[str], most: int) -> list[str]:
    """Find a schedule for each bug among the first seeds; returns the bugs that had none."""
    missed = []
    for name in names:
        known = stored()
        found = _first(BUGS[name], range(most))
        print(f"{name}: {found or f'not caught by {most} schedules'}", flush=True)
        known.pop(name, None)
        keep(known if found is None else known | {name: found})
        missed += [] if found is not None else [name]
    return missed


def _first(bug: Bug, seeds: Iterable[int]) -> Found | None:
    left = collected(iter(seeds))
    while True:
        with bug.planted():
            for seed in left:
                if (violation := simulate(generate(seed)).violation) is not None:
                    break
            else:
                return None
        if is_good(seed):
            return seed, violation.invariant


def shown(name: str, seed: int) -> Violation | None:
    """What the schedule of a seed shows of a bug."""
    with BUGS[name].planted():
        return simulate(generate(seed)).violation


@functools.cache
def is_good(seed: int) -> bool:
    """Whether the real code passes."""
    return simulate(generate(seed)).violation is None
