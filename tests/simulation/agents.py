"""The agent that ships, in a simulated process: what it does is recorded for the judge.

Nothing here decides for an agent. `worker.agent.take_part` runs on the virtual loop, with the real
client; this module gives it an outer world (`AgentEnvironment`): sensors, ports, a hosts file, a
program, and a network, and writes down what really happened.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rendezvous.client import RegistryClient
from rendezvous.errors import ArmingFailed, ExitCode, RdzvError, RunError
from rendezvous.schema import (
    AckReport,
    Candidate,
    EndpointTable,
    ExitReport,
    Finding,
    JoinReply,
    JoinRequest,
    NodeView,
    PairProbe,
    Phase,
    ProbePlan,
    ProbeReport,
    Refusal,
    RefuseReport,
    Report,
    ReportReply,
    Result,
)
from rendezvous.security import Credential, JoinString, RegistryPlace, sign_candidate
from tests.simulation import agent_promises, invariants
from tests.simulation.agent_promises import ORPHAN_SECONDS
from tests.simulation.history import Facts, Failure
from tests.simulation.loop import Machine, forever
from tests.simulation.network import BESIDE, LOOPBACK
from tests.simulation.program import SimulatedProgram, draw_course
from tests.simulation.schedule import Launch
from worker.agent import AgentEnvironment, take_part
from worker.nccl.verdict import Verdict
from worker.probe.packets import Identity
from worker.resolver import Resolver
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tests.simulation.world import World

GRACE_SECONDS = 3.0
_SICK = Finding(check="L12", level="fail", cause="RDMA cannot register memory")
_PROBE_PORT = 7_000


def framework_of(launch: Launch) -> Any:
    """What launches the programs."""
    return "openmpi" if launch.led else "torchrun" if launch.ranks_each else "command"


def command_of(launch: Launch) -> list[str]:
    """COMMAND."""
    return ["mpirun", "train"] if launch.led else ["train.py"]


class RecordingClient(RegistryClient):
    """The real client; what it is told and what it tells is judged."""

    process: Process

    async def join(self, run: str, request: JoinRequest) -> JoinReply:
        """See the base class."""
        reply = await super().join(run, request)
        self.process.note_join(request.join_id, reply)
        return reply

    async def refuse(self, run: str, slot: int, refusal: Refusal) -> ReportReply:
        """See the base class."""
        self.process.told_refusal = True
        return await super().refuse(run, slot, refusal)

    async def watch(self, run: str, slot: int, after: int, poll: float) -> NodeView:
        """See the base class."""
        view = await super().watch(run, slot, after, poll)
        self.process.note_view(view)
        return view

    async def report(self, run: str, slot: int, report: Report) -> ReportReply:
        """See the base class; a node that is stuck has nothing to say before the go."""
        if self.process.stuck and isinstance(report, ProbeReport | AckReport | RefuseReport):
            await forever()
        report = self.process.world.told_by(self.process, report)
        self.process.note_report(report)
        reply = await super().report(run, slot, report)
        self.process.world.history.judge(invariants.OF_REPORTS, self.process, report)
        return reply


class Process:
    """One process of an agent, and its program.

    Args:
        world: Where it lives.
        facts: Its launch.
        join: What its worker run was submitted with.
        number: Counts the processes of a simulation: no two have the same address or join id.
    """

    def __init__(self, world: World, facts: Facts, join: JoinString, number: int) -> None:
        self.world, self.facts, self.join, self.number = world, facts, join, number
        self.slot, self.generation = join.slot, join.generation
        self.launch = facts.launch
        self.machine = Machine(
            world.loop, f"{facts.launch.run}/{join.slot}.{join.generation}#{number}"
        )
        beside = join.place.addresses[0] in LOOPBACK
        self.path = world.network.path(facts.index, BESIDE if beside else join.slot)
        self.door = world.network.door(self.path)
        self.draw = random.Random(f"{world.schedule.seed} process {number}")
        self.ended: int | None = None
        self.troubled = False
        self.was_paused = False
        self.stuck = False
        self.stops_unasked = False
        self.fault = ""
        self.released = False
        self.was_slow = False
        self.incarnation = 0
        self.seq = 0
        self.epoch = 0
        self.armed: EndpointTable | None = None
        self.armed_for: dict[str, int] = {}
        self.acked = ""
        self.result: Result | None = None
        self.started_at: float | None = None
        self.failed_at: float | None = None
        self.gone: Failure | None = None
        self.client: RegistryClient | None = None
        self.program: SimulatedProgram | None = None
        self.program_code: int | None = None
        self.program_ended_at: float | None = None
        self.signal_told = False
        self.signal = 0
        self.signals_told = 0
        self.was_killed = False
        self.told_refusal = False
        self.needs_hosts = False
        self.heard_at = 0.0
        self.views_at: deque[float] = deque(maxlen=100)

    @property
    def name(self) -> str:
        """How it is named in violations."""
        return f"{self.machine.name} (incarnation {self.incarnation})"

    @property
    def serves(self) -> bool:
        """Whether it has no program of its own: it is there for that of slot 0."""
        return self.launch.led and self.slot != 0

    @property
    def token(self) -> Credential:
        """With which it joins."""
        return self.join.token

    @property
    def index(self) -> int:
        """The place of its launch in the schedule."""
        return self.facts.index

    # --- life ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let it live."""
        self.machine.run(self._live())

    async def _live(self) -> None:
        try:
            code = await take_part(
                self._settings(), self.join, command_of(self.launch), self._outside()
            )
        except RdzvError as exc:
            code, self.fault = int(exc.exit_code), exc.code
        self._note_end()
        self.ended = code
        self.machine.kill()
        self.door.process_ended()

    def _settings(self) -> WorkerSettings:
        launch = self.launch
        self.needs_hosts = self.world.marked("hosts refused", self) is not None
        require: Any = "require" if self.needs_hosts else "auto"
        return WorkerSettings(
            framework=framework_of(launch),
            nnodes=f"{launch.least}:{launch.nodes}",
            hosts=require,
            join_timeout=launch.join_timeout,
            orphan_timeout=ORPHAN_SECONDS,
            grace=GRACE_SECONDS,
            log_dir=Path("/simulated"),
            nccl_log="on" if launch.follows_network else "off",
            require_rdma=launch.follows_network and launch.nodes > 2,
        )

    def tell_to_end(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal that ends it."""
        if self.ended is not None or not self.machine.alive:
            return
        self.signals_told += 1 if number != signal.SIGQUIT else 2
        if not self.signal_told:
            self.signal_told, self.signal = True, number
            self.troubled = True
            self.note_failure()
        if not self.machine.signal(number):
            self.die(silent=False)

    def die(self, *, silent: bool) -> None:
        """The process is killed; its host closes its connections, or is gone as well."""
        if not self.machine.alive:
            return
        self.troubled = True
        self.note_failure(silent=silent)
        self._note_end(silent=silent)
        self.machine.kill()
        self.ended, self.was_killed = 137, True
        if not silent:
            self.door.process_ended()

    # --- what is written down -----------------------------------------------------------------

    def note_failure(self, *, silent: bool = False) -> None:
        """It failed while its program ran: one of these is the first cause."""
        if self.started_at is None or self.failed_at is not None or self.program_code is not None:
            return
        self.failed_at = self.world.loop.time()
        self.facts.failures.append(Failure(self.failed_at, self.slot, self.incarnation, silent))
        for call in list(self.facts.on_failure):
            call(self.number)

    def _note_end(self, *, silent: bool = False) -> None:
        """It is gone: of one that could not tell of its failure this is all that is known."""
        self.gone = Failure(self.world.loop.time(), self.slot, self.incarnation, silent)
        if self.program_code is None and self.started_at is not None:
            self.note_program_end(137, was_told=True)

    def note_join(self, join_id: str, reply: JoinReply) -> None:
        """The registry has taken it in."""
        self.incarnation = reply.incarnation
        self.heard_at = self.world.loop.time()
        self.facts.owners[self.slot, reply.incarnation] = self
        self.world.history.judge(invariants.OF_JOINS, self, join_id)

    def note_view(self, view: NodeView) -> None:
        """It was told this."""
        self.world.history.judge(invariants.OF_VIEWS, self, view)
        self.heard_at = self.world.loop.time()
        self.views_at.append(self.heard_at)
        self.world.history.judge(agent_promises.OF_AGENT_VIEWS, self)
        self.seq, self.epoch = view.seq, view.epoch
        if view.result is not None and self.result is None:
            self.result = view.result
            self.facts.told.append(view.result)
        if self.slot in view.released and view.phase is Phase.RUNNING:
            self.released = True
        goes = view.phase is Phase.RUNNING and not view.stop and not self.released
        if self.serves and goes and self.started_at is None and not self.signal_told:
            self._note_start()

    def note_report(self, report: Report) -> None:
        """It tells this, for the first time or again."""
        if isinstance(report, ExitReport) and report.exit_code == ExitCode.PREFLIGHT_FAILED:
            self.note_failure()
        self.world.history.judge(agent_promises.OF_AGENT_REPORTS, self, report)
        told = (self.slot, self.incarnation, getattr(report, "digest", ""))
        if isinstance(report, AckReport) and told not in self.facts.acks:
            self.acked = report.digest
            self.facts.acks.add(told)

    def _note_start(self) -> None:
        self.world.history.judge(invariants.OF_STARTS, self, self.acked)
        self.facts.starts.append((self.slot, self.incarnation, self.acked))
        self.started_at = self.world.loop.time()

    def note_program_end(self, code: int, *, was_told: bool) -> None:
        """Its main process has ended."""
        if self.program_code is None:
            self.program_code = 0 if self.serves and was_told else code
            self.program_ended_at = self.world.loop.time()

    # --- its outer world ----------------------------------------------------------------------

    def _outside(self) -> AgentEnvironment:
        return AgentEnvironment(
            environ={"PATH": "/usr/bin", "HOME": "/root"},
            dial=self._dial,
            in_thread=self._in_thread,
            listen=lambda *_, **__: _Listener(),
            probe=self._probe,
            resolver=partial(Resolver, lambda _: frozenset(), in_thread=self._in_thread),
            look_ahead=self._look_ahead,
            make_offer=self._offer,
            why_unusable=lambda *_: "",
            is_free=self._is_free,
            find_free=self._find_free,
            missing_of=lambda *_: "",
            read_conf=lambda _: {},
            hosts_block=lambda *_: _HostsFile(self),
            restore_stale=_nothing_stale,
            known_names=lambda *_: {},
            write_files=lambda *_: None,
            write_shims=lambda *_: None,
            make_private=lambda _: None,
            local_socket=_Socket,
            nccl_log=lambda *_, **__: _NcclLog(self),
            sink=_Sink,
            start=self._start,
        )

    def _dial(self, place: RegistryPlace, credential: Credential | str | None) -> RegistryClient:
        client = self.world.client(place, self.path, self.door, credential, kind=RecordingClient)
        assert isinstance(client, RecordingClient)
        client.process = self
        self.client = client
        return client

    async def _in_thread(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """In a while; it goes on where its caller is broken off."""
        slow = getattr(work, "__name__", "") == "arm"
        seconds = self.world.arming_seconds(self) if slow else 0.001

        async def go() -> Any:
            await asyncio.sleep(seconds)
            return work(*args, **options)

        thread = asyncio.ensure_future(go())
        thread.add_done_callback(_look_at)
        return await asyncio.shield(thread)

    def _look_ahead(self, *_: Any) -> None:
        fault = self.world.marked("refuses", self)
        if fault is not None:
            raise (RunError if fault.count > 1 else ArmingFailed)("there is no GPU")

    def _offer(self, *_: Any, probe_port: int | None, **__: Any) -> JoinRequest:
        launch = self.launch
        high, low = divmod(self.number, 250)
        candidates = [
            Candidate(
                interface=f"eth{network}",
                address=f"10.{network + 1}.{high}.{low + 1}",
                prefix_length=16,
            )
            for network in range(launch.networks)
        ]
        request = JoinRequest(
            slot=self.slot,
            generation=self.generation,
            join_id=f"join-{self.number:012d}",
            hostname=f"host{self.number}",
            nproc_per_node=max(1, launch.ranks_each),
            candidates=candidates,
            findings=[_SICK] if self.world.marked("sick", self) else [],
            probe_port=probe_port,
            requested_rank=launch.ranks[self.slot],
        )
        return self._signed(self.world.offered(self, request))

    def _signed(self, request: JoinRequest) -> JoinRequest:
        signed = [
            sign_candidate(
                candidate,
                self.join.row_key,
                run=self.launch.run,
                launch_id=self.facts.launch_id,
                slot=self.slot,
                hostname=request.hostname,
                nproc_per_node=request.nproc_per_node,
            )
            for candidate in request.candidates
        ]
        return request.model_copy(update={"candidates": signed})

    async def _probe(
        self, identity: Identity, plan: ProbePlan, slots: Iterable[int]
    ) -> list[PairProbe]:
        """Visit the peers; what was really proven is noted for the judge."""
        await asyncio.sleep(0.02 * self.draw.random())
        peers, slots = {peer.slot: peer for peer in plan.peers}, list(slots)
        left_out = self.world.leaves_out(self, slots)
        pairs = []
        for slot in slots:
            good = self.world.reaches(self, slot, peers[slot].interface)
            if slot != left_out:
                pairs.append(PairProbe(slot=slot, outcome="ok" if good else "timeout"))
            if good and slot != left_out:
                self.facts.proven.add((self.slot, self.incarnation, slot, peers[slot].address))
        return pairs

    def _is_free(self, port: int) -> bool:
        fault = self.world.marked("port taken", self)
        return fault is None or self.facts.ports_taken >= fault.count

    def _find_free(self, port: int) -> int | None:
        fault = self.world.marked("port taken", self)
        return port + 2 if fault is None or fault.seconds else None

    async def _start(
        self, argv: Sequence[str], env: Mapping[str, str], *, grace_seconds: float, output: Any
    ) -> SimulatedProgram:
        await asyncio.sleep(0.01)
        self._note_start()
        seconds, code = self.launch.program[self.slot]
        if self.world.marked("program fails", self):
            seconds, code = 0.5, 1
        course = draw_course(self.draw, seconds, code, self.launch.ranks_each)
        course = self.world.course_of(self, course)
        self.program = SimulatedProgram(self, course, grace_seconds)
        if self.launch.contagion:
            self.facts.on_failure.append(self._caught_it)
        return self.program

    def _caught_it(self, from_whom: int) -> None:
        """A peer's failure makes this program fail as well, a little later."""
        if from_whom != self.number:
            seconds = self.launch.contagion * (0.5 + self.draw.random())
            loop, context = self.world.loop, self.machine.context
            loop.call_later(seconds, self.fail_program, 134, context=context)

    def fail_program(self, code: int) -> None:
        """Something makes the program fail."""
        if self.program is not None:
            call, context = self.program.end_by_itself, self.machine.context
            self.world.loop.call_soon(call, code, context=context)


def _look_at(thread: asyncio.Future[Any]) -> None:
    """Nobody may have waited for it."""
    if not thread.cancelled():
        thread.exception()


def _nothing_stale(_: Path) -> Collection[str]:
    return []


class _Listener:
    """Answers the peers' probes: whether it is reached the world knows."""

    port = _PROBE_PORT

    def close(self) -> None:
        """Answer no longer."""


class _HostsFile:
    """A hosts file that may not be written."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def install(
        self,
        table: EndpointTable,
        own_slot: int,
        resolved: Mapping[str, AbstractSet[str]] | None = None,
    ) -> str | None:
        """Write the table's names."""
        is_refused = self._process.world.marked("hosts refused", self._process) is not None
        if not (is_refused and self._process.needs_hosts):  # else it goes on by address
            self._process.armed_for[table.digest()] = table.epoch
        if is_refused:
            raise ArmingFailed("it is read-only")
        self._process.armed = table
        return None

    def remove(self) -> None:
        """Take them away."""
        self._process.armed = None


class _Socket:
    """A socket at which no process of the program has anything to say."""

    def __init__(self, **_: Any) -> None:
        self.path = ""

    async def open(self, environ: Mapping[str, str]) -> str:
        """Listen."""
        self.path = "/simulated/agent"
        return self.path

    async def hear_out(self, seconds: float) -> None:
        """Nobody speaks."""

    async def close(self) -> None:
        """Answer nobody."""


class _NcclLog:
    """What NCCL says of its network."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def verdicts(self) -> AsyncIterator[Verdict]:
        """What is to be said of it."""
        await asyncio.sleep(1.5)
        fault = self._process.world.marked("falls back", self._process)
        if fault is None:
            yield Verdict("as_expected", "ok", "NCCL uses InfiniBand (mlx5_0)")
        elif fault.count > 1:
            yield Verdict("fallback", "warn", "NCCL uses sockets")
        else:
            yield Verdict("fallback", "fail", "NCCL uses sockets, and RDMA is required")
        await forever()

    def trouble(self) -> str:
        """What stands between the program and its network."""
        return "a port is down"


class _Sink:
    """A program's output."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.tail = ["step 1", "Traceback: boom"]

    def write(self, stream: Any, data: bytes) -> None:
        """Take it."""

    def idle(self) -> None:
        """Nothing more for now."""

    def close(self) -> None:
        """Nothing more."""
