"""The world of one schedule: hosts with replicas, the engine, those who ask, and the faults."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rendezvous.registry import retention
from rendezvous.registry.doors import Doors
from rendezvous.registry.journal import JOURNAL, Record
from rendezvous.registry.membership import BEAT_LIMIT_SECONDS, JUDGE_SECONDS, LEASE_SECONDS
from rendezvous.registry.replica import DRAIN_SECONDS, Replica
from rendezvous.registry.service import Service
from rendezvous.run.state import Run
from rendezvous.talk.credentials import hkdf
from rendezvous.wire.errors import RdzvError, Unavailable
from tests.simulation.history import Violation
from tests.simulation.replicas.clients import Launcher
from tests.simulation.replicas.engine import SimEngine, SimJournal
from tests.simulation.replicas.judge import Judge
from tests.simulation.replicas.schedule import HOSTS, OWNER, Fault, Launch, Schedule
from tests.support.served import OPERATOR, SECRET
from tests.support.virtual_time import Machine, VirtualLoop

KEY = hkdf(SECRET, "nodes")
T = TypeVar("T")

_SETTLED_SECONDS = 60.0
"""After the last fault has ended every run goes on to its end within this."""
_PROGRAM_SECONDS = 20.0
"""The longest program, with one that starts again."""
_BOOTED_SECONDS = 4_000.0
_GRACE_LOOKS = 30
_CALM_SECONDS = BEAT_LIMIT_SECONDS + JUDGE_SECONDS + 1.5
"""In which a last move ends."""


@dataclass
class Report:
    """What a schedule came to."""

    violation: Violation | None
    events: int
    seconds: float
    records: list[Record]
    faults: Counter[str] = field(default_factory=Counter)


class Process:
    """One process of a replica."""

    def __init__(self, world: World, host: int, number: int) -> None:
        self.name = f"{HOSTS[host]}{number}"
        self.host, self.version = host, JOURNAL
        self.loop = world.loop
        self.machine = Machine(world.loop, self.name)
        self.has_session = True
        self.awake_since = 0.0
        self.well_since = world.loop.time()
        self.parked: set[asyncio.Future[None]] = set()
        """Requests that it has not answered."""
        rate = world.schedule.rates[host]
        booted = _BOOTED_SECONDS + world.schedule.offsets[host] + 7.0 * number
        time = world.loop.time
        self.clock: Callable[[], float] = lambda: booted + time() * rate
        self.journal = SimJournal(world.engine, self)
        self.service = Service(self.journal, KEY, OPERATOR.sha256(), clock=self.clock)
        doors = Doors(KEY, OPERATOR.sha256(), self.journal.read, self.clock, asyncio.sleep)
        # a registry that has never had a run asks nodes to wait for the first one: one that comes
        # when its run is forgotten, after seconds here, would wait for ever
        self.service.access._had_a_run = True
        self.replica = self.service.place = Replica(
            self.journal, self.service.sequencer, doors, f"{HOSTS[host]}:29600"
        )
        self.is_leaving = False
        self.machine.run(self.service.serve())

    def end(self) -> None:
        """It leaves as it is told to."""

        async def leave() -> None:
            await self.replica.drain()
            self.service.closing.set()
            for _ in range(_GRACE_LOOKS):  # as its server does
                await asyncio.sleep(0.1)
                if not self.parked:
                    return

        self.is_leaving = True
        self.machine.run(leave()).add_done_callback(lambda _: self.kill())

    def kill(self, *, with_machine: bool = False) -> None:
        """It ends now; the engine hears of it, and who waits for its answers, unless the machine
        has died as well."""
        if not self.machine.alive:
            return
        self.machine.kill()
        if with_machine:
            return
        self.has_session = False
        if (row := self.journal.engine.replicas.get(self.name)) is not None:
            row.has_session = False
        for answer in self.parked:
            if not answer.done():
                answer.set_exception(Unavailable("the connection was closed"))


class World:
    """A schedule under way."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.draw = random.Random(schedule.seed)
        self.loop = VirtualLoop(lambda words: self.judge.fail("no error", words))
        self.judge = Judge(self.loop.time, self._halt)
        self.judge.awake_since = self._awake_since
        self.judge.is_well = self._is_well
        self.judge.slow_seconds = max([0.0, *(fault.amount for fault in schedule.faults)])
        self.engine = SimEngine(self.loop, self.draw, self.judge)
        self.engine.at_call = self._called
        self.hosts: list[Process | None] = [None] * len(HOSTS)
        self.isolated_until = [0.0] * len(HOSTS)
        self.away_until = 0.0
        self.applied = Counter[str]()
        self.people = Machine(self.loop, "people")
        self.launchers: list[Launcher] = []
        self.troubled_until = 0.0
        self._started = Counter[int]()
        self._counted = Counter[tuple[str, str]]()
        self._all: dict[str, Process] = {}
        self._timed = [fault for fault in schedule.faults if not isinstance(fault.when, str)]
        self._timed_until = max([float(one.when) + one.seconds for one in self._timed], default=0.0)

    def run(self) -> Report:
        with _quietly(self.schedule.keep_finished):
            for host in range(len(HOSTS)):
                self._later(0.1 * host, self._start, host)
            for fault in self._timed:
                assert isinstance(fault.when, float | int)
                self._later(fault.when, self._apply, fault, None)
            self._later(0.4, self.people.run, self._work())
            self.loop.drive(3_600.0)
            if self.judge.violation is None and not self.loop.halted:
                self.judge.fail("L1", "it goes on for ever")
            self.loop.dispose()
        records = [record for run in self.engine.written for record in self.engine.records(run)]
        return Report(
            self.judge.violation, self.loop.steps, self.loop.time(), records, self.applied
        )

    def _later(self, seconds: float, work: Callable[..., object], *args: object) -> None:
        self.loop.call_later(seconds, work, *args, context=self.loop.nobody)

    def _halt(self) -> None:
        self.loop.halted = True

    # --- people -------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Launch everything, and see that it comes to its end."""
        names: dict[str, list[Launch]] = {}
        for launch in self.schedule.launches:
            names.setdefault(launch.run, []).append(launch)
        self.launchers = [Launcher(self, launches) for launches in names.values()]
        tasks = [asyncio.create_task(launcher.run()) for launcher in self.launchers]
        for task in tasks:
            task.add_done_callback(self.people._check)
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.25)
            longest = len(max(names.values(), key=len))
            if self.loop.time() - self._end_of_faults() > _SETTLED_SECONDS + longest * (
                _PROGRAM_SECONDS
            ):
                going = zip(tasks, self.launchers, strict=True)
                words = [launcher.doing for task, launcher in going if not task.done()]
                self.judge.fail("L1", "; ".join(words))
        self._compare()
        if self.schedule.seed % 4 == 0 and self._end_of_faults() - self.loop.time() < _CALM_SECONDS:
            while (wait := self._end_of_faults() + _CALM_SECONDS - self.loop.time()) > 0:
                await asyncio.sleep(wait)
            while any(map(self._is_going, list(self.engine.written))):
                await asyncio.sleep(0.01)
            self._one_has_each()
            self._compare()
        self._halt()

    def _end_of_faults(self) -> float:
        return max(self.troubled_until, self._timed_until)

    def _is_going(self, run: str) -> bool:
        """Whether it is being removed: its owner serves it no more, and its records are there."""
        return any(p.service.sequencer.retention.is_going(run) for p in self._living())

    def _one_has_each(self) -> None:
        for run in self.engine.written:
            having = [p.name for p in self._living() if run in p.service.sequencer.runs]
            if len(having) != 1 and self._living():
                self.judge.fail("L1", f"run {run} is served by {having or 'nobody'} in the end")

    def _compare(self) -> None:
        """What owners have is what their records come to."""
        for process in self._living():
            for run, live in process.service.sequencer.runs.items():
                owned, shadow = self.engine.owners.get(run), self.judge.shadows.get(run)
                if owned is None or owned.owner != process.name or shadow is None:
                    continue
                if not live.is_durable or process.journal.epochs.get(run) != owned.epoch:
                    continue
                if live.number != shadow.number or _plain(live.run) != _plain(shadow.run):
                    words = f"number {live.number}, journal {shadow.number}"
                    self.judge.fail("I8", f"{process.name}: run {run} is another one: {words}")

    # --- the network of the nodes -------------------------------------------------------------

    async def call(self, host: str, work: Callable[[Process], Awaitable[T]], patience: float) -> T:
        """Ask whatever process is there; raises Unavailable where no answer comes."""
        place = HOSTS.index(host)
        await asyncio.sleep(0.0005 + 0.002 * self.draw.random())
        process = self.hosts[place]
        if process is None or not process.machine.alive or self._is_isolated(place):
            refused = (
                process is not None and not self._is_isolated(place) and not (process.has_session)
            )
            await asyncio.sleep(0.001 if refused or process is None else patience)
            raise Unavailable("nobody answers there")
        done: asyncio.Future[T] = self.loop.create_future()

        def answer(value: T | None, error: RdzvError | None) -> None:
            if done.done() or self._is_isolated(place) or not process.machine.alive:
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)  # type: ignore[arg-type]

        async def serve() -> None:
            try:
                value, error = await work(process), None
            except RdzvError as exc:
                value, error = None, exc
            self._later(0.0005 + 0.002 * self.draw.random(), answer, value, error)

        process.parked.add(done)  # type: ignore[arg-type]
        process.machine.run(serve())
        late = self.loop.call_later(patience, _give_up, done)
        try:
            return await done
        finally:
            late.cancel()
            process.parked.discard(done)

    def _is_isolated(self, host: int) -> bool:
        return self.loop.time() < self.isolated_until[host]

    # --- hosts --------------------------------------------------------------------------------

    def _start(self, host: int) -> None:
        known = self.hosts[host]
        if known is not None and known.machine.alive:
            return
        self._started[host] += 1
        process = self.hosts[host] = Process(self, host, self._started[host])
        self._all[process.name] = process
        self.troubled_until = max(self.troubled_until, self.loop.time() + 0.5)

    def _living(self) -> list[Process]:
        return [p for p in self.hosts if p is not None and p.machine.alive]

    def _awake_since(self, name: str) -> float:
        return self._all[name].awake_since

    def _is_well(self, name: str | None, run: str) -> bool:
        process, now = self._all[name or ""], self.loop.time()
        # a claim that was asked for before may be as slow as a commit
        seconds = LEASE_SECONDS + 1.0 + self.judge.slow_seconds
        well = [one for one in self._living() if now - one.well_since > seconds]
        knows = run in process.journal.epochs  # else it gives it away, or its claim was in vain
        stays = [one for one in well if not one.is_leaving]  # else it gives them to nobody
        # a run in doubt is claimed, changed and given: three commits, each of them that slow
        has_time = 3 * self.judge.slow_seconds < DRAIN_SECONDS
        gives = not process.is_leaving or (bool(stays) and has_time)
        return process in well and not process.machine.paused and knows and gives

    # --- faults -------------------------------------------------------------------------------

    def _called(self, call: str, side: str, process: Process) -> None:
        """A replica changes the engine: what is to go wrong then does so now."""
        self._counted[call, side] += 1
        when = f"{call} {self._counted[call, side]} {side}"
        for fault in self.schedule.faults:
            if fault.when == when:
                self._apply(fault, process)

    def _apply(self, fault: Fault, about: Process | None) -> None:
        self.applied[fault.what] += 1
        until = self.loop.time() + fault.seconds
        self.troubled_until = max(self.troubled_until, until)
        if fault.what in ("all die", "roll", "node dies"):
            getattr(self, "_" + fault.what.replace(" ", "_"))(fault)
        elif fault.what in ("away", "restart", "slow", "full"):
            self._trouble_engine(fault)
        elif (process := self._meant(fault, about)) is not None and process.machine.alive:
            getattr(self, "_" + fault.what.replace(" ", "_"))(process, fault)

    def _meant(self, fault: Fault, about: Process | None) -> Process | None:
        if fault.host != OWNER:
            return self.hosts[fault.host]
        having = Counter(h.owner for h in self.engine.owners.values())
        return about or max(
            self._living(), key=lambda one: (having[one.name], one.name), default=None
        )

    def _trouble_engine(self, fault: Fault) -> None:
        engine = self.engine
        if fault.what in ("away", "restart"):
            engine.restart()
        if fault.what == "away":
            engine.is_away, now = True, self.loop.time()
            self.judge.away.append((max(now, self.away_until), now + fault.seconds))
            self.away_until = max(self.away_until, now + fault.seconds)
            self._later(fault.seconds, self._come_back)
        elif fault.what == "full":
            engine.is_full = True
            self.judge.full_until = max(self.judge.full_until, self.loop.time() + fault.seconds)
            self._later(fault.seconds, setattr, engine, "is_full", False)
        elif fault.what == "slow":
            engine.slow_seconds = fault.amount
            self._later(fault.seconds, setattr, engine, "slow_seconds", 0.0)
            self.troubled_until += fault.amount

    def _come_back(self) -> None:
        self.engine.is_away = self.loop.time() < self.away_until - 0.001

    def _kill(self, process: Process, fault: Fault) -> None:
        process.kill()
        self._later(fault.seconds, self._start, process.host)

    def _die(self, process: Process, fault: Fault) -> None:
        process.kill(with_machine=True)
        self._later(fault.seconds, self._start, process.host)

    def _stop(self, process: Process, fault: Fault) -> None:
        if process.machine.paused:
            return
        process.machine.pause()
        self._is_ill(process, fault)
        self._later(fault.seconds, self._go_on, process)

    def _go_on(self, process: Process) -> None:
        process.awake_since = self.loop.time()
        process.machine.go_on()

    def _is_ill(self, process: Process, fault: Fault) -> None:
        until = self.loop.time() + fault.seconds
        process.well_since = max(process.well_since, until)

    def _cut(self, process: Process, fault: Fault) -> None:
        self._cut_up(process, fault)
        self._cut_down(process, fault)

    def _cut_up(self, process: Process, fault: Fault) -> None:
        process.journal.is_cut_up = True
        self._is_ill(process, fault)
        self._later(fault.seconds, setattr, process.journal, "is_cut_up", False)

    def _cut_down(self, process: Process, fault: Fault) -> None:
        process.journal.is_cut_down = True
        self._is_ill(process, fault)
        self._later(fault.seconds, setattr, process.journal, "is_cut_down", False)

    def _lost_answer(self, process: Process, fault: Fault) -> None:
        process.journal.loses_answers = 1

    def _isolated(self, process: Process, fault: Fault) -> None:
        until = self.loop.time() + fault.seconds
        self.isolated_until[process.host] = max(self.isolated_until[process.host], until)
        self.judge.isolated_until = max(self.judge.isolated_until, until)

    def _drain(self, process: Process, fault: Fault) -> None:
        if process.is_leaving:
            return
        self._later(0.0, process.machine.context.copy().run, process.end)
        self._comes_back(process, fault.seconds)

    def _comes_back(self, process: Process, seconds: float) -> None:
        """Another process is started once the one that ends has ended."""
        if self.hosts[process.host] is process and process.machine.alive:
            self.troubled_until = max(self.troubled_until, self.loop.time() + seconds + 0.5)
            self._later(0.5, self._comes_back, process, seconds)
        else:
            self._later(seconds, self._start, process.host)

    def _roll(self, fault: Fault) -> None:
        for host in range(len(HOSTS)):
            one = Fault(0.0, "drain", host, 0.2)
            seconds = host * (1.0 + fault.seconds)
            self.troubled_until = max(self.troubled_until, self.loop.time() + seconds + 1.0)
            self._later(seconds, self._apply, one, None)

    def _all_die(self, fault: Fault) -> None:
        for process in self._living():
            self._kill(process, fault)

    def _node_dies(self, fault: Fault) -> None:
        nodes = [(launcher, n) for launcher in self.launchers for n in range(len(launcher.nodes))]
        if nodes:
            launcher, number = self.draw.choice(nodes)
            launcher.nodes[number].asking.ended = True
            launcher.tasks[number].cancel()


def _give_up(done: asyncio.Future[T]) -> None:
    if not done.done():
        done.set_exception(Unavailable("no answer has come"))


def _plain(run: Run) -> tuple[object, ...]:
    return (
        run.spec.launch_id,
        run.version,
        run.seq,
        run.phase,
        run.epoch,
        run.digest,
        repr(run.slots),
    )


@contextmanager
def _quietly(keep_finished: float) -> Iterator[None]:
    """Replicas log what goes wrong, of which there is much here."""
    before = retention._KEEP_FINISHED_SECONDS
    logging.disable(logging.CRITICAL)
    retention._KEEP_FINISHED_SECONDS = keep_finished
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        retention._KEEP_FINISHED_SECONDS = before


def simulate(schedule: Schedule) -> Report:
    return World(schedule).run()


def fails_like(violation: Violation, schedule: Schedule) -> bool:
    found = simulate(schedule).violation
    return found is not None and found.invariant == violation.invariant


def collected(seeds: Iterator[int]) -> Iterator[int]:
    """Seeds, with the garbage of each one's world taken away at its end, which does not look at
    what was there before: a third faster."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for seed in seeds:
            yield seed
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
