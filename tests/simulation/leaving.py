"""Nodes that will go: who said so and when, and what their programs were shown, for its judges."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import Run
from rendezvous.wire.asked import DrainRequest
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.reports import DepartReport, Report
from rendezvous.wire.run import Phase

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.history import Facts
    from tests.simulation.registry import Registry
    from tests.simulation.schedule import Fault
    from tests.simulation.world import World

MARGIN_SECONDS = 5.0
"""As the documentation has it, beside the grace."""
_HEEDED_WITH = (0, 3)


@dataclass(frozen=True)
class Told:
    """A departure that the registry has taken in: `at` on its clock, `now` in truth."""

    slot: int
    incarnation: int
    epoch: int
    seconds: float
    words: str
    at: float
    now: float

    def due_at(self, grace: float) -> float:
        """When all programs are to be stopped for it, on the registry's clock."""
        return self.at + max(0.0, self.seconds - grace - MARGIN_SECONDS)


@dataclass
class Departures:
    """Of one launch.

    Attributes:
        told: All that were taken in, in order.
        stops: When the programs of an epoch were stopped for one, in truth.
    """

    told: list[Told] = field(default_factory=list)
    stops: dict[int, float] = field(default_factory=dict)

    def of(self, epoch: int) -> list[Told]:
        return [told for told in self.told if told.epoch == epoch]


def who_leaves(facts: Facts, run: Run) -> list[Told]:
    """Who will go, and has not ended its program before all were stopped: the first one first."""
    departures, grace = facts.departures, run.spec.limits.grace_seconds
    stopped, ended = departures.stops.get(run.epoch), facts.exit_codes
    told = [
        one
        for one in departures.of(run.epoch)
        if (one.slot, one.incarnation) not in ended
        or (stopped is not None and facts.known_at[one.slot, one.incarnation] >= stopped)
    ]
    return sorted(told, key=lambda one: one.due_at(grace))


def due_at(facts: Facts, run: Run) -> float | None:
    """When the programs that run are to be stopped; None: nobody leaves."""
    grace = run.spec.limits.grace_seconds
    return next((told.due_at(grace) for told in who_leaves(facts, run)), None)


def is_in_table(facts: Facts, event: events.Departs) -> bool:
    """Whether a program runs on the node that will go: of a standby it is no matter."""
    return event.slot in facts.epochs.rows


def note_departures(facts: Facts, run: Run, event: Event, at: float, now: float) -> None:
    """Take down who will go, and whether all are stopped for it."""
    if isinstance(event, events.Departs) and is_in_table(facts, event):
        report = event.report
        facts.departures.told.append(
            Told(event.slot, event.incarnation, report.epoch, report.seconds, report.words, at, now)
        )
    began = run.stop and not facts.before.stop and run.phase is Phase.RUNNING
    if began and isinstance(event, events.Departs | events.DepartureDue):
        facts.departures.stops[run.epoch] = now


@dataclass
class Saying:
    """One try to tell the registry that this node will go."""

    began: float
    over: float | None = None
    is_heard: bool = False


@dataclass
class Going:
    """What one node said of a departure, and what its programs were shown, by epoch.

    Attributes:
        near: When its notice file was found, and the seconds in it.
        stops: With each that was shown, when all programs were to be stopped.
    """

    sayings: list[Saying] = field(default_factory=list)
    shown: dict[int, list[float]] = field(default_factory=dict)
    near: tuple[float, float] | None = None
    stops: dict[int, list[float]] = field(default_factory=dict)

    @contextmanager
    def saying(self, process: Process, report: Report) -> Iterator[None]:
        """Take down how long it takes to tell this."""
        if not isinstance(report, DepartReport):
            yield
            return
        said = Saying(process.world.loop.time())
        self.sayings.append(said)
        try:
            yield
            said.is_heard = True
        finally:
            said.over = process.world.loop.time()

    def show(self, process: Process, seconds: float) -> None:
        """Its program's notice file is written; some programs end of it by themselves."""
        now = process.world.loop.time()
        self.shown.setdefault(process.epoch, []).append(now)
        self.stops.setdefault(process.epoch, []).append(now + seconds)
        fault, program = process.world.marked("heeds notice", process), process.program
        if fault is None or program is None:
            return
        process.world.stays_busy(fault.seconds)
        loop, context = process.world.loop, process.machine.context
        code = _HEEDED_WITH[fault.count - 1]
        loop.call_later(fault.seconds, process.fail_program, code, program, context=context)


def awaits_notice(process: Process) -> bool:
    """Whether a notice file will appear on its machine."""
    faults = process.world.schedule.faults
    where = (process.index, process.slot)
    return any(fault.what == "notice" and (fault.launch, fault.slot) == where for fault in faults)


def drain(world: World, fault: Fault) -> None:
    """A person wants a node to go, when there is a registry to ask."""
    registry = world.network.registry
    if registry is not None:
        world.stays_busy(fault.seconds)
        registry.machine.run(_drain(world, registry, fault))


async def _drain(world: World, registry: Registry, fault: Fault) -> None:
    run = world.schedule.launches[fault.launch].run
    live = registry.service.sequencer.runs.get(run)
    if live is None:
        return
    asked, facts = DrainRequest(seconds=fault.seconds), world.history.of(live.run)
    runs = live.run.phase is Phase.RUNNING
    with contextlib.suppress(RdzvError):
        await registry.service.drain(live, fault.slot, asked)
        if runs:
            world.history.judge(facts=facts, drained=fault)
