"""One simulation: a registry, launchers, nodes, and the faults of a schedule."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from launcher.cleanup.orphans import end_left
from launcher.schedulers.contract import SchedulerContext
from launcher.state.state_dir import StateDir
from rendezvous.registry import retention
from rendezvous.registry.journal import Record
from rendezvous.run.admission import decide_restart
from rendezvous.talk.client import REQUEST_SECONDS, RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.node import Job, JoinRequest
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.reports import Report as NodeReport
from rendezvous.wire.run import Phase
from tests.simulation import network
from tests.simulation.agents import GRACE_SECONDS, Process
from tests.simulation.disk import Disk
from tests.simulation.faults import KINDS
from tests.simulation.history import Facts, History, Violation
from tests.simulation.launchers import Broken, Folder, Launcher, SimulatedEnvironment, join_by_token
from tests.simulation.network import Door, Network
from tests.simulation.program import Course
from tests.simulation.queues import Queues
from tests.simulation.registry import Registries, Registry
from tests.simulation.replaying import Replays, compare
from tests.simulation.schedule import OTHER_JOBS, Fault, Launch, Schedule
from tests.simulation.scheduler import SimulatedScheduler
from tests.simulation.talking import Talk
from tests.support.virtual_time import Machine, VirtualLoop
from worker.agent.watching import HOLD_SECONDS

_WORD = "a" * 16
"""What a node of a launch says of its COMMAND."""
_CALM_SECONDS = 240.0
_LOOK_SECONDS = 0.5
_AFTER_SECONDS = 2.0
_MOST_SECONDS = 3_000.0


@dataclass(frozen=True)
class Report:
    """What came of a simulation."""

    violation: Violation | None
    events: int
    seconds: float
    faults: Counter[str]
    records: list[Record]


class World:
    """Everything of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.loop = VirtualLoop(self._unexpected)
        self.history = History(self.loop.time, self._halt)
        self.network: Network = Network(self.loop, self.history, schedule.seed)
        self.disk = Disk(self._at_commit, self.history.dropped)
        self.history.world = self
        self._replays = Replays(self.history, self.disk)
        self.counts: Counter[str] = Counter()
        self.marks: dict[tuple[str, int, int], Fault] = {}
        self.schedulers: list[SimulatedScheduler] = []
        self.launchers: list[Launcher] = []
        self.registries: Registries = Registries(self)
        self.queues: Queues = Queues(self)
        self.talk: Talk = Talk(self)
        self.folder = Path()
        self.folder_full_until = self._calm_at = 0.0
        self.breaks: dict[int, str] = {}
        # Who is replaced at last may take as long again.
        self._longest_join = max(launch.join_timeout for launch in schedule.launches)
        self.owns_registry = any(launch.owns_registry for launch in schedule.launches)
        self._coming_back = 0
        self.registry_was_down = self.registry_is_gone = False
        self._outside = Machine(self.loop, "outside")
        self._ended_at: float | None = None
        self._triggers: dict[tuple[str, int, str], list[Fault]] = {}
        self._kinds: Counter[str] = Counter()

    # --- the course of things -----------------------------------------------------------------

    def run(self) -> Report:
        kept = mock.patch.object(retention, "_KEEP_FINISHED_SECONDS", self.schedule.keep_finished)
        with (
            kept,
            _quiet(),
            _folder() as self.folder,
            self.queues.bounded(),
            self.talk.going_on(),
            self._replays.following(),
        ):
            for index, launch in enumerate(self.schedule.launches):
                self._prepare(index, launch)
            self._plan_faults()
            if not self.owns_registry:
                self.registries.start()
            self.later(_LOOK_SECONDS, self._look)
            self.loop.drive(_MOST_SECONDS)
            self._replays.end()
            if self.history.violation is None:
                self.history.judge(world=self)
                for process in self.history.processes:
                    self.history.judge(process=process)
            violation = self.history.violation
            self.loop.dispose()
        return Report(
            violation,
            self.loop.steps,
            self.loop.time(),
            self.counts + self.network.counts + Counter({"commit failed": self.disk.failed}),
            list(self.disk.records.values()),
        )

    def _unexpected(self, words: str) -> None:
        self.history.fail("the_simulation_itself_does_not_fail", words)

    def _halt(self) -> None:
        self.loop.halted = True

    def later(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        self._calm_at = max(self._calm_at, self.loop.time() + seconds)
        self.loop.call_later(seconds, call, *arguments, context=self.loop.nobody)

    def stays_busy(self, seconds: float) -> None:
        """Something of the world itself goes on for so long."""
        self._calm_at = max(self._calm_at, self.loop.time() + seconds)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on that is no machine of ours: a scheduler."""
        self._outside.run(work)

    def _look(self) -> None:
        """End the simulation a little after everything has ended, or when it takes too long."""
        now = self.loop.time()
        if self._is_over():
            self._ended_at = self._ended_at or now
            if now - self._ended_at > _AFTER_SECONDS + min(self.schedule.keep_finished, 10.0):
                self._halt()
        elif now > self._calm_at + _CALM_SECONDS + self._longest_join:
            self._halt()
        self.loop.call_later(_LOOK_SECONDS, self._look, context=self.loop.nobody)

    def _is_over(self) -> bool:
        if any(process.ended is None for process in self.history.processes):
            return False
        begun = {launcher.index for launcher in self.launchers}
        if len(begun) < len(self.schedule.launches) or not all(x.ended for x in self.launchers):
            return False
        if self._coming_back or self.owns_registry:
            return not self._coming_back
        registry = self.network.registry
        if not self.registry_is_gone and (registry is None or registry.machine.paused):
            return False
        runs = self.history.runs.values()
        return self.registry_is_gone or all(run.phase is Phase.FINISHED for run in runs)

    # --- launches -----------------------------------------------------------------------------

    def _prepare(self, index: int, launch: Launch) -> None:
        self.schedulers.append(SimulatedScheduler(self, index))
        self.later(launch.at, self._launch, index)
        most = launch.at + max(q + b for q, b in zip(launch.queue, launch.boot, strict=True))
        self._calm_at = max(self._calm_at, most + max(s for s, _ in launch.program))
        if launch.symmetric:
            joins = [join_by_token(launch, index, slot) for slot in range(launch.slots)]
            self.history.facts[joins[0].launch_id] = Facts(launch, joins[0].launch_id, index)
            for slot in range(1, launch.slots):
                seconds = launch.at + launch.queue[slot] + launch.boot[slot]
                self.later(seconds, self.start_process, joins[slot])

    def come_by_itself(self, index: int, slot: int) -> None:
        """A platform starts a node of a group, as often as it likes."""
        self.start_process(join_by_token(self.schedule.launches[index], index, slot))

    def _launch_again(self, index: int) -> None:
        self._coming_back -= 1
        self._launch(index)

    def _launch(self, index: int) -> None:
        launcher = Launcher(self, index)
        self.launchers.append(launcher)
        launcher.begin()

    def new_launch(self, index: int) -> str:
        launch_id = f"launch{len(self.history.facts):04d}"
        facts = Facts(self.schedule.launches[index], launch_id, index)
        self.history.facts[launch_id] = facts
        return launch_id

    def kill_launcher(self, index: int, back_after: float) -> None:
        """End a launcher's process; another one with its state comes later, or never."""
        for launcher in self.live_launchers(index):
            launcher.die()
            self.registry_was_down |= launcher.launch.owns_registry
            if back_after:
                self._coming_back += 1
                self.later(back_after, self._launch_again, index)
            elif launcher.launch.owns_registry:
                self.registry_is_gone = True

    def may_break(self, index: int, part: str) -> None:
        """Something of a launcher fails as nobody expected, once, where that is to be."""
        if self.breaks.get(index) == part:
            del self.breaks[index]
            for launcher in self.live_launchers(index):
                launcher.was_broken = True
            raise Broken(part)

    def judge_of_launcher(self, scheduler: SimulatedScheduler, **about: Any) -> None:
        """Judge what a scheduler is asked by who has launched with it."""
        for launcher in self.live_launchers(scheduler.index):
            self.history.judge(launcher=launcher, **about)

    def live_launchers(self, index: int) -> list[Launcher]:
        return [x for x in self.launchers if x.index == index and not x.ended]

    def cancel(self, index: int) -> None:
        """A person cancels the run, when there is a registry to ask."""
        self.spawn(self._cancel(index))

    async def _cancel(self, index: int) -> None:
        run = self.schedule.launches[index].run
        state = StateDir(self.folder / str(index), run)
        record, keys = state.record(), state.keys()
        if record is None or keys is None:
            return
        path = self.network.path(index, -2)
        place = record.registry_place()
        with contextlib.suppress(RdzvError):
            async with self.client(place, path, self.network.door(path), keys.admin) as person:
                await person.cancel(run, "enough")
                self.history.judge(facts=self.history.facts[record.launch_id])

    def restart(self, index: int) -> None:
        """A person has the programs start again, when there is a registry to ask."""
        registry, run = self.network.registry, self.schedule.launches[index].run
        if registry is not None:
            registry.machine.run(self._restart(registry, run))

    async def _restart(self, registry: Registry, run: str) -> None:
        live = registry.service.sequencer.runs.get(run)
        if live is not None:
            with contextlib.suppress(RdzvError):
                await registry.service.sequencer.change_run(
                    live, lambda _: decide_restart(live.run, "new weights")
                )

    def clear(self, index: int) -> None:
        """A person ends what a killed launcher has left, where none has come after it."""
        if not self.live_launchers(index):
            last = [x for x in self.launchers if x.index == index][-1]
            Machine(self.loop, "a person").run(self._clear(last))

    async def _clear(self, last: Launcher) -> None:
        folder = Folder(self.folder / str(last.index), last)
        context = SchedulerContext(folder.path, {})
        outside = SimulatedEnvironment(last)
        folder.acquire()
        last.all_cleared = await end_left(
            folder.ledger, context, last.said.append, grace=GRACE_SECONDS, world=outside
        )
        folder.release()

    def client(
        self,
        place: RegistryPlace,
        path: network.Path,
        door: Door,
        credential: Credential | str | None,
        seconds: float = REQUEST_SECONDS,
        kind: type[RegistryClient] = RegistryClient,
    ) -> RegistryClient:
        return kind(place, credential, request_seconds=seconds, network=door, draw=path.random)

    # --- nodes --------------------------------------------------------------------------------

    def start_process(self, join: JoinString) -> Process:
        facts, number = self.history.facts[join.launch_id], len(self.history.processes)
        facts.began_at[number] = self.loop.time()
        self._calm_at = max(self._calm_at, self.loop.time())  # it may have been queued for minutes
        process = Process(self, facts, join, number)
        self.history.processes.append(process)
        process.begin()
        return process

    def marked(self, what: str, process: Process) -> Fault | None:
        return self.marks.get((what, process.index, process.slot))

    def reaches(self, process: Process, peer: int, interface: str) -> bool:
        """Whether a node reaches a peer over the addresses of an interface."""
        index = process.index
        cut = any(("network cut", index, slot) in self.marks for slot in (process.slot, peer))
        if cut and interface == "eth0":
            return False
        if any(("address lost", index, slot) in self.marks for slot in (process.slot, peer)):
            return False
        follower = (process.slot + 1) % process.launch.slots
        return self.marked("unreachable", process) is None or peer != follower

    def arming_seconds(self, process: Process) -> float:
        mark = self.marks.pop(("slow arm", process.index, process.slot), None)
        if mark is not None:
            process.was_slow |= mark.seconds > HOLD_SECONDS
            return mark.seconds
        # Some nodes are too late for the watch that would bring their acknowledgement.
        return HOLD_SECONDS + 0.05 if process.slot % 3 == 2 else 0.003

    def course_of(self, process: Process, course: Course) -> Course:
        if (lag := self.marked("slow exit", process)) is not None:
            course = replace(course, drain=lag.seconds)
        if (slow := self.marked("slow stop", process)) is not None:
            course = replace(course, reaction=slow.seconds)
        if (last := self.marked("finishes", process)) is not None:
            course = replace(course, reaction=last.seconds, finishes=True)
        return course

    def offered(self, process: Process, request: JoinRequest) -> JoinRequest:
        """How a node joins: by its place in the network, and maybe with another job."""
        launch, number = process.launch, process.number
        job = Job(framework=launch.framework, command_words=[_WORD])
        changes: dict[str, Any] = {"hostname": f"host{number + 7}", "job": job}
        if launch.subnets > 1:
            last = f"{process.slot % launch.subnets}.{number + 1}"
            changes["candidates"] = [
                replace(one, address=f"10.{net}.{last}", prefix_length=24)
                for net, one in enumerate(request.candidates)
            ]
        if process.slot == 0 and launch.free_port:
            changes["master_port"] = launch.free_port
        mark = self.marked("other job", process)
        other = "" if mark is None else OTHER_JOBS[mark.count - 1]
        if other == "protocol":
            changes["protocol"] = PROTOCOL + 1
        elif other == "framework":
            changes["job"] = Job(framework="mpi")
        elif other == "size":
            changes["job"] = replace(job, nnodes="99")
        elif other:
            changes["job"] = replace(job, command_words=["f" * 16])
        return replace(request, **changes)

    def told_by(self, process: Process, report: NodeReport) -> NodeReport:
        """What a node of another make would say in its place: of another table, or of its stop."""
        is_first = isinstance(report, AckReport) and process.acked != report.digest
        if is_first and self.marked("other table", process):  # it says the same when it repeats it
            process.troubled = True
            return report.model_copy(update={"digest": "0" * 64})
        if isinstance(report, AckReport) and process.launch.warm and not process.is_cold:
            report = report.model_copy(update={"warm": True})
        if isinstance(report, ExitReport) and (mark := self.marked("gets on", process)):
            step = 10 * len(process.lives) if mark.count > 1 else 10
            report = report.model_copy(update={"progress": step})
        if isinstance(report, ExitReport) and process.stops_unasked:
            return report.model_copy(update={"stopped": True})
        return report

    # --- faults -------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        for fault in self.schedule.faults:
            if isinstance(fault.when, str):
                kind, count, side = fault.when.split()
                self._triggers.setdefault((kind, int(count), side), []).append(fault)
            else:
                self.later(fault.when, self._apply, fault)

    def _apply(self, fault: Fault) -> None:
        self.counts[fault.what] += 1
        self._calm_at = max(self._calm_at, self.loop.time() + fault.seconds)
        KINDS[fault.what](self, fault)

    def _at_commit(self, side: str, records: list[Record]) -> None:
        """The moment before or after events become durable: where a crash hurts most."""
        for record in records:
            if side == "after":
                self.history.recorded(record)
            kind = _kind_of(record)
            if side == "before":
                self._kinds[kind] += 1
            for fault in self._triggers.pop((kind, self._kinds[kind], side), []):
                if fault.what == "registry crash":
                    self._apply(fault)
                else:
                    self.loop.call_soon(self._apply, fault, context=self.loop.nobody)
        if side == "after" and self.network.registry is not None:
            compare(self.history, self.network.registry.service.sequencer.runs, records)


def _kind_of(record: Record) -> str:
    return record.body.split(b'"kind":"', 1)[1].split(b'"', 1)[0].decode()


@contextmanager
def _folder() -> Iterator[Path]:
    """Where the state directories are: in memory, where there is such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@contextmanager
def _quiet() -> Iterator[None]:
    """The registry logs each failed commit, of which there are many here."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def simulate(schedule: Schedule) -> Report:
    return World(schedule).run()


def fails_like(violation: Violation, schedule: Schedule) -> bool:
    found = simulate(schedule).violation
    return found is not None and found.invariant == violation.invariant
