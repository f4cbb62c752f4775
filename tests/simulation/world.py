"""One simulation: a registry, launchers, nodes, and the faults of a schedule."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from starlette.types import ASGIApp

from rendezvous import schema
from rendezvous.client import REQUEST_SECONDS, RegistryClient
from rendezvous.errors import RdzvError
from rendezvous.schema import AckReport, ExitReport, Job, JoinRequest, Phase
from rendezvous.security import Credential, RunKeys, hkdf, registry_credential
from rendezvous.server import service as service_module
from rendezvous.server.guard import Connection
from rendezvous.server.journal import Record
from rendezvous.server.service import Service
from tests.simulation import invariants
from tests.simulation.agents import Process
from tests.simulation.asgi import app_of
from tests.simulation.disk import Disk, SimulatedJournal
from tests.simulation.faults import KINDS
from tests.simulation.history import Facts, History, Violation
from tests.simulation.launcher import Launcher, Scheduler
from tests.simulation.loop import Machine, VirtualLoop
from tests.simulation.network import Door, Network, Path, place_of
from tests.simulation.program import Course
from tests.simulation.schedule import OTHER_JOBS, Fault, Launch, Schedule

_SECRET = hashlib.sha256(b"simulation").digest()
_KEY = hkdf(_SECRET, "nodes")
_OPERATOR = registry_credential(_SECRET)
_OPERATOR_SHA256 = _OPERATOR.sha256()
_JOB = "a" * 64
_CALM_SECONDS = 240.0
_LOOK_SECONDS = 0.5
_AFTER_SECONDS = 2.0
_MOST_SECONDS = 3_000.0


@dataclass(frozen=True)
class Registry:
    """One process of the registry."""

    machine: Machine
    service: Service
    app: ASGIApp
    connections: list[Connection] = field(default_factory=list)


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
        self.network = Network(self.loop, self.history, schedule.seed)
        self.disk = Disk(self._at_commit, self.history.dropped)
        self.history.world = self
        self.operator = _OPERATOR
        self.counts: Counter[str] = Counter()
        self.marks: dict[tuple[str, int, int], Fault] = {}
        self.schedulers: list[Scheduler] = []
        self.launchers: list[Launcher] = []
        self.registry_was_down = False
        self.registry_is_gone = False
        self.is_undisturbed = not schedule.faults
        self._keys: list[RunKeys] = []
        self._facts: list[Facts] = []
        self._random = random.Random(f"{schedule.seed} world")
        self._boots = 0
        self._outside = Machine(self.loop, "outside")
        self._calm_at = 0.0
        self._ended_at: float | None = None
        self._triggers: dict[tuple[str, int, str], list[Fault]] = {}
        self._kinds: Counter[str] = Counter()

    # --- the course of things -----------------------------------------------------------------

    def run(self) -> Report:
        """Simulate to the end, or to the first violation."""
        with _keep_finished(self.schedule.keep_finished), _quiet():
            for index, launch in enumerate(self.schedule.launches):
                self._prepare(index, launch)
            self._plan_faults()
            self.start_registry()
            self.later(_LOOK_SECONDS, self._look)
            self.loop.drive(_MOST_SECONDS)
            if self.history.violation is None:
                self.history.judge(invariants.OF_ENDS, self)
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
        """Have something happen, whichever machine asks for it."""
        self._calm_at = max(self._calm_at, self.loop.time() + seconds)
        self.loop.call_later(seconds, call, *arguments, context=self.loop.nobody)

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
        elif now > self._calm_at + _CALM_SECONDS:
            self._halt()
        self.loop.call_later(_LOOK_SECONDS, self._look, context=self.loop.nobody)

    def _is_over(self) -> bool:
        if any(process.ended is None for process in self.history.processes):
            return False
        launches = self.schedule.launches
        if len(self.launchers) < len(launches) or not all(x.ended for x in self.launchers):
            return False
        registry = self.network.registry
        if not self.registry_is_gone and (registry is None or registry.machine.paused):
            return False
        runs = self.history.runs.values()
        return self.registry_is_gone or all(run.phase is Phase.FINISHED for run in runs)

    # --- the registry -------------------------------------------------------------------------

    def start_registry(self) -> None:
        """Start a registry's process on what is durable."""
        self._boots += 1
        machine = Machine(self.loop, f"registry#{self._boots}")
        service = Service(
            SimulatedJournal(self.disk, machine), _KEY, _OPERATOR_SHA256, clock=self.loop.time
        )
        self.network.registry = Registry(machine, service, app_of(service))
        machine.run(self._serve(service))

    async def _serve(self, service: Service) -> None:
        try:
            service.recover()
            await service.serve()
        except Exception as exc:  # noqa: BLE001 (whatever it is, it is a finding)
            self.history.fail("the_registry_never_fails_inside", f"its sequencer ended: {exc!r}")

    def crash_registry(self, down: float) -> None:
        """Kill it where it stands; 0 seconds: for ever."""
        registry = self.network.registry
        if registry is None:
            return
        self.registry_was_down = True
        now = self.loop.time()
        self.history.gaps.append((now, now + (down or 1e9)))
        registry.machine.kill()
        self.network.registry_died()
        if down:
            self.later(down, self.start_registry)
        else:
            self.registry_is_gone = True

    # --- launches -----------------------------------------------------------------------------

    def _prepare(self, index: int, launch: Launch) -> None:
        keys = RunKeys(_SECRET, launch.run, f"launch{index:04d}")
        facts = Facts(launch, keys.launch_id, index)
        self.history.facts[keys.launch_id] = facts
        self._keys.append(keys)
        self._facts.append(facts)
        self.schedulers.append(Scheduler(self, facts))
        self.later(launch.at, self._launch, index, False)
        most = launch.at + max(q + b for q, b in zip(launch.queue, launch.boot, strict=True))
        self._calm_at = max(self._calm_at, most + max(s for s, _ in launch.program))

    def _launch(self, index: int, resumes: bool) -> None:
        launcher = Launcher(self, self._facts[index], self._keys[index], self.schedulers[index])
        self.launchers.append(launcher)
        launcher.begin(resumes=resumes)

    def kill_launcher(self, index: int, back_after: float) -> None:
        """End a launcher's process; another one with its state comes later, or never."""
        mine = [x for x in self.launchers if x.belongs_to(index) and not x.ended]
        for launcher in mine:
            launcher.die()
            if back_after:
                self.later(back_after, self._launch, index, True)

    def cancel(self, index: int) -> None:
        """A person cancels the run, when there is a registry to ask."""
        self.spawn(self._cancel(index))

    async def _cancel(self, index: int) -> None:
        facts, admin = self._facts[index], self._keys[index].admin
        path = self.network.path(index, -2)
        with contextlib.suppress(RdzvError):
            door = self.network.door(path)
            async with self.client(facts.launch, path, door, admin) as person:
                await person.cancel(facts.launch.run, "enough")
                self.history.judge(invariants.OF_CANCELS, facts)

    def client(
        self,
        launch: Launch,
        path: Path,
        door: Door,
        credential: Credential | str | None,
        seconds: float = REQUEST_SECONDS,
        kind: type[RegistryClient] = RegistryClient,
    ) -> RegistryClient:
        """The client of a process of this launch, on this host."""
        return kind(
            place_of(launch.addresses),
            credential,
            request_seconds=seconds,
            network=door,
            draw=path.random,
        )

    # --- nodes --------------------------------------------------------------------------------

    def start_process(self, facts: Facts, slot: int, generation: int) -> Process:
        """A worker run's agent begins."""
        number = len(self.history.processes)
        facts.began_at[number] = self.loop.time()
        process = Process(self, facts, self._keys[facts.index], slot, generation, number)
        self.history.processes.append(process)
        process.begin()
        return process

    def start_twin(self, process: Process) -> None:
        """A second worker run with the token of the first."""
        self.start_process(process.facts, process.slot, process.generation)

    def marked(self, what: str, process: Process) -> Fault | None:
        """What goes wrong with this node, if that does."""
        return self.marks.get((what, process.index, process.slot))

    def reaches(self, process: Process, peer: int, interface: str) -> bool:
        """Whether a node reaches a peer over the addresses of an interface."""
        index = process.index
        cut = any(("network cut", index, slot) in self.marks for slot in (process.slot, peer))
        if cut and interface == "eth0":
            return False
        follower = (process.slot + 1) % process.launch.slots
        return self.marked("unreachable", process) is None or peer != follower

    def leaves_out(self, process: Process, peers: list[int]) -> int | None:
        """The peer of which a node says nothing."""
        return peers[0] if self.marked("silent probes", process) and peers else None

    def arming_seconds(self, process: Process) -> float:
        """How long a node takes to prepare."""
        mark = self.marks.pop(("slow arm", process.index, process.slot), None)
        process.was_slow |= mark is not None
        return 0.003 if mark is None else mark.seconds

    def course_of(self, process: Process, course: Course) -> Course:
        """How its program goes, with what goes wrong with it."""
        if (lag := self.marked("slow exit", process)) is not None:
            course = replace(course, drain=lag.seconds)
        if (slow := self.marked("slow stop", process)) is not None:
            course = replace(course, reaction=slow.seconds)
        return course

    def offered(self, process: Process, request: JoinRequest) -> JoinRequest:
        """How a node joins: by its place in the network, and maybe with another job."""
        launch, number = process.launch, process.number
        changes: dict[str, Any] = {"hostname": f"host{number + 7}", "job": Job(command_digest=_JOB)}
        if launch.subnets > 1:
            changes["candidates"] = [
                candidate.model_copy(
                    update={
                        "address": f"10.{net}.{process.slot % launch.subnets}.{number + 1}",
                        "prefix_length": 24,
                    }
                )
                for net, candidate in enumerate(request.candidates)
            ]
        if process.slot == 0 and launch.free_port:
            changes["master_port"] = launch.free_port
        mark = self.marked("other job", process)
        other = "" if mark is None else OTHER_JOBS[mark.count - 1]
        if other == "size":
            changes["job"] = Job(nnodes="99")
        elif other == "framework":
            changes["job"] = Job(framework="mpi")
        elif other == "command":
            changes["job"] = Job(command_digest="f" * 64)
        elif other == "version":
            changes["facts"] = request.facts.model_copy(update={"rdzv_version": "99.0.0"})
        return request.model_copy(update=changes)

    def told_by(self, process: Process, report: schema.Report) -> schema.Report:
        """What a node of another make would say in its place: of another table, or of its stop."""
        if isinstance(report, AckReport) and self.marked("other table", process):
            process.troubled = True
            return report.model_copy(update={"digest": "0" * 64})
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
        KINDS[fault.what].apply(self, fault)

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


def _kind_of(record: Record) -> str:
    return record.body.split(b'"kind":"', 1)[1].split(b'"', 1)[0].decode()


@contextmanager
def _keep_finished(seconds: float) -> Iterator[None]:
    """How long the registry keeps finished runs."""
    with mock.patch.object(service_module, "_KEEP_FINISHED_SECONDS", seconds):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """The registry logs each failed commit, of which there are many here."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def simulate(schedule: Schedule) -> Report:
    """Run a schedule."""
    return World(schedule).run()
