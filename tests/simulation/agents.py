"""The agent that ships, in a simulated process and world: what really happens is written down."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from rendezvous.channel import Published
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.talk.macs import sign_join, word_macs
from rendezvous.wire.errors import ExitCode, RdzvError
from rendezvous.wire.node import Candidate, Finding, Job, JoinReply, JoinRequest, Refusal
from rendezvous.wire.node import Facts as MachineFacts
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.relay import RelayMail
from rendezvous.wire.reports import (
    AckReport,
    ExitReport,
    LeaveReport,
    RefuseReport,
    Report,
    ReportReply,
)
from rendezvous.wire.run import NO_RESTARTS, Phase, Result
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import PairProbe, ProbePlan, ProbeReport
from rendezvous.wire.watch import NodeView
from tests.simulation.agent_promises import ORPHAN_SECONDS, UNFORESEEN
from tests.simulation.doors import Doors, Unforeseen
from tests.simulation.epochs import Life
from tests.simulation.history import Facts, Failure
from tests.simulation.leaving import Going, awaits_notice
from tests.simulation.network import BESIDE, LOOPBACK, OTHER_HOST
from tests.simulation.program import NotStarted, SimulatedProgram, draw_course
from tests.simulation.talking import Command, newest_question, newest_view
from tests.support.virtual_time import Machine, forever
from worker.agent import AgentEnvironment, take_part
from worker.probe.packets import Identity
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tests.simulation.world import World

GRACE_SECONDS = 3.0
_SICK = Finding(check="L12", level="fail", cause="RDMA cannot register memory")
_WORDS = ["train.py", "--lr", "0.1"]


class RecordingClient(RegistryClient):
    """The real client; what it is told and what it tells is judged."""

    process: Process

    async def connect(self) -> str:
        self.process.doors.may_break("connect")
        return await super().connect()

    async def close(self) -> None:
        self.process.doors.may_break("close_client")
        await super().close()

    async def publish(self, topic: Published, run: str, slot: int, message: BaseModel) -> BaseModel:
        self.process.doors.may_break("publish")
        if topic.name == "metrics":
            self.process.world.history.judge(process=self.process, batch=message)
        return await super().publish(topic, run, slot, message)

    async def relay_take(self, run: str, slot: int, after: int, session: str) -> RelayMail:
        self.process.doors.may_break("relay_take")
        return await super().relay_take(run, slot, after, session)

    async def join(self, run: str, request: JoinRequest) -> JoinReply:
        self.process.doors.may_break("join")
        request = replace(request, needs_torchrun=self.process.needs_torchrun)
        reply = await super().join(run, request)
        self.process.note_join(request.join_id, reply)
        return reply

    async def refuse(self, run: str, slot: int, refusal: Refusal) -> ReportReply:
        self.process.told_refusal = True
        return await super().refuse(run, slot, refusal)

    async def watch(
        self,
        run: str,
        slot: int,
        after: int,
        poll: float,
        brings: AckReport | ExitReport | None = None,
        look: int = 0,
        views: int = 0,
        importing: bool = False,
    ) -> NodeView:
        """See the base class; a node that is stuck has nothing to acknowledge."""
        if self.process.stuck and isinstance(brings, AckReport):
            brings = None
        self.process.doors.may_break("watch")
        if brings is not None:
            told = self.process.world.told_by(self.process, brings)
            brings = cast("AckReport | ExitReport", told)
            self.process.note_report(brings)
        view = await super().watch(run, slot, after, poll, brings, look, views, importing)
        if brings is not None:
            self.process.note_answered(brings)
        self.process.note_view(view)
        return self.process.told_to(view)

    async def report(self, run: str, slot: int, report: Report) -> ReportReply:
        """See the base class; a node that is stuck has nothing to say before the go."""
        if self.process.stuck and isinstance(report, ProbeReport | AckReport | RefuseReport):
            await forever()
        with self.process.going.saying(self.process, report):
            self.process.doors.may_break("report")
            report = self.process.world.told_by(self.process, report)
            self.process.note_report(report)
            reply = await super().report(run, slot, report)
        self.process.note_answered(report)
        return reply


class Process:
    """One process of an agent, and its program; no two have the same number."""

    def __init__(self, world: World, facts: Facts, join: JoinString, number: int) -> None:
        self.world, self.facts, self.number = world, facts, number
        self.join: JoinString = join
        self.slot, self.generation = join.slot, join.generation
        self.launch = facts.launch
        self.machine = Machine(
            world.loop, f"{facts.launch.run}/{join.slot}.{join.generation}#{number}"
        )
        beside = join.place.addresses[0] in LOOPBACK
        self.path = world.network.path(facts.index, BESIDE if beside else self._place())
        self.door = world.network.door(self.path)
        self.draw = random.Random(f"{world.schedule.seed} process {number}")
        self.ended: int | None = None
        self.troubled = self.was_paused = self.stuck = self.stops_unasked = self.released = False
        self.was_slow = self.signal_told = self.was_killed = self.told_refusal = False
        self.needs_hosts = self.parent_is_gone = self.spoke_without_parent = self.told_end = False
        self.keeps_names = self.stood_by = self.stands_by = self.is_cold = False
        self.fault = self.acked = self.unfit = self.unready = self.go_digest = ""
        self.incarnation = self.seq = self.epoch = self.signal = self.signals_told = 0
        self.question = self.newest_view = 0
        self.armed: EndpointTable | None = None
        self.armed_for: dict[str, int] = {}
        self.by_torchrun: dict[str, bool] = {}
        """Of each table, whether torchrun would start its ranks here."""
        self.result: Result | None = None
        self.started_at: float | None = None
        self.failed_at: float | None = None
        self.released_at: float | None = None
        self.gone: Failure | None = None
        self.client: RegistryClient | None = None
        self.program: SimulatedProgram | None = None
        self.lives: list[Life] = []
        self.program_code: int | None = None
        self.rank_code: int | None = None
        """Of the first of its ranks that failed; the program itself ends with 1 then."""
        self.program_ended_at: float | None = None
        self.signalled_at = self.heard_at = 0.0
        self.hurried_at: float | None = None
        self.passed: list[int] = []
        self.doors = Doors(self)
        self.going = Going()
        self.views_at: deque[float] = deque(maxlen=100)
        self.commands: list[Command] = []
        """Those that its programs wait for."""

    def _place(self) -> int:
        """Its host: where nodes are replaced, a newer worker run of a slot has another one."""
        is_other = self.launch.outlives_nodes and self.generation > 1
        return self.slot + OTHER_HOST * self.generation if is_other else self.slot

    @property
    def name(self) -> str:
        return f"{self.machine.name} (incarnation {self.incarnation})"

    @property
    def serves(self) -> bool:
        """Whether it has no program of its own: it is there for that of rank 0."""
        if not self.launch.led or not self.launch.outlives_nodes:
            return self.launch.led and self.slot != 0
        table = self.facts.sealed.get(self.acked)
        row = table.row_of_slot(self.slot) if table is not None else None
        return row is None or row.node != 0

    @property
    def node(self) -> int:
        """Its number in the table that it has accepted: its ranks are counted from it."""
        table = self.facts.sealed.get(self.acked)
        row = table.row_of_slot(self.slot) if table is not None else None
        return self.slot if row is None else row.node

    @property
    def needs_torchrun(self) -> bool:
        """Whether torchrun alone can start its ranks; another node in its place is like most."""
        return self.slot in self.launch.torchruns and self.generation == 1

    @property
    def logs(self) -> Path:
        """Where its programs' output is: of most of them nobody writes or reads it."""
        talks = self.launch.talks
        return self.world.folder / f"logs-{self.number}" if talks else Path("/simulated")

    @property
    def index(self) -> int:
        return self.facts.index

    # --- life ---------------------------------------------------------------------------------

    def begin(self) -> None:
        self.machine.run(self._live())

    async def _live(self) -> None:
        try:
            code = await take_part(
                self._settings(), self.join, self.launch.command, self._outside()
            )
        except RdzvError as exc:
            code, self.fault = int(exc.exit_code), exc.code
        except Unforeseen:
            code, self.fault = int(ExitCode.INTERNAL), UNFORESEEN
        self._note_end()
        self.ended = code
        self.machine.kill()
        self.door.process_ended()

    def _settings(self) -> WorkerSettings:
        launch = self.launch
        self.needs_hosts = self.world.marked("hosts refused", self) is not None
        require: Any = "require" if self.needs_hosts else "auto"
        if self.world.marked("names unwanted", self):
            require = "off"
        return WorkerSettings(
            framework=launch.framework,
            nnodes=f"{launch.least}:{launch.nodes}",
            hosts=require,
            join_timeout=launch.join_timeout,
            orphan_timeout=ORPHAN_SECONDS,
            grace=GRACE_SECONDS,
            parent=1,
            log_dir=self.logs,
            allow_exec=launch.talks,
            notice_file=Path("/simulated/notice") if awaits_notice(self) else None,
            nccl_log="on" if launch.follows_network else "off",
            require_rdma=launch.follows_network and launch.nodes > 2,
        )

    def tell_to_end(self, number: int = signal.SIGTERM, *, again: bool = True) -> None:
        if self.ended is not None or not self.machine.alive:
            return
        if again or not self.signal_told:
            self.signals_told += 1 if number != signal.SIGQUIT else 2
        if self.signals_told > 1 and self.hurried_at is None:
            self.hurried_at = self.world.loop.time()
        if not self.signal_told:
            self.signal_told, self.signal = True, number
            self.signalled_at = self.world.loop.time()
            self.troubled = True
            self.note_failure()
        if not self.machine.signal(number):
            self.die(silent=False)

    def pass_on(self, number: int) -> None:
        program = self.program
        if program is not None and program.main_ended is None and self.machine.handlers:
            self.passed.append(number)
        self.machine.signal(number)

    def lose_parent(self) -> None:
        """Its launcher's process is gone, and its kernel tells it to end: nobody is in a hurry."""
        self.parent_is_gone = True
        self.tell_to_end(again=False)

    def die(self, *, silent: bool) -> None:
        """The process is killed; its host closes its connections, or is gone as well."""
        if not self.machine.alive:
            return
        self.troubled = True
        unseen = silent or self.path.hides_an_end(self.world.loop.time())
        self.note_failure(silent=unseen)
        self._note_end(silent=unseen)
        self.machine.kill()
        self.ended, self.was_killed = 137, True
        if not silent:
            self.door.process_ended()

    # --- what is written down -----------------------------------------------------------------

    def note_failure(self, *, silent: bool = False) -> None:
        """It failed while its program ran: one of these is the first cause."""
        if self.started_at is not None and self.failed_at is None and self.program_code is None:
            self._note_failed(self.world.loop.time(), silent=silent)

    def _note_failed(self, at: float, *, silent: bool) -> None:
        self.failed_at = at
        if self.lives:
            self.lives[-1].failed_at = at
        epoch = self._epoch_of(self.acked)
        self.facts.failures.append(Failure(at, self.slot, self.incarnation, silent, epoch))
        for call in list(self.facts.on_failure):
            call(self.number)

    def note_unfit(self, door: str) -> None:
        """It cannot go on, for what it meets at this door: it has to say so."""
        self.troubled, self.unfit = True, self.unfit or door

    def note_no_start(self) -> None:
        """Its program cannot be started: that is its failure, unless it was told to end before."""
        at = self.signalled_at if self.signal_told else self.world.loop.time()
        self._note_failed(at, silent=False)

    def note_armed(self, table: EndpointTable) -> None:
        """It is ready for a table; where it writes no names, nothing else shows it."""
        if self.world.marked("names unwanted", self):
            self.armed_for[table.digest()] = table.epoch

    def _note_end(self, *, silent: bool = False) -> None:
        """It is gone: of one that could not tell of its failure this is all that is known."""
        self.gone = Failure(self.world.loop.time(), self.slot, self.incarnation, silent)
        if self.program_code is None and self.started_at is not None:
            self.note_program_end(137, was_told=True)

    def note_join(self, join_id: str, reply: JoinReply) -> None:
        self.incarnation = reply.incarnation
        self.heard_at = self.world.loop.time()
        self.facts.owners[self.slot, reply.incarnation] = self
        self.world.history.judge(process=self, join_id=join_id)

    def note_view(self, view: NodeView) -> None:
        self.heard_at = self.world.loop.time()
        self.views_at.append(self.heard_at)
        self.world.history.judge(process=self, view=view)
        facts = view.restarts or NO_RESTARTS
        self.is_cold |= facts.cold
        if view.table is not None:
            by_torchrun = self.needs_torchrun or facts.by_torchrun
            self.by_torchrun.setdefault(view.table.digest(), by_torchrun)
        self.seq, self.epoch = view.seq, view.epoch
        self.question = newest_question(view) or self.question
        self.newest_view = newest_view(view) or self.newest_view
        if view.result is not None and self.result is None:
            self.result = view.result
            self.facts.told.append(view.result)
        is_out = self.slot in view.released and view.phase in (Phase.RUNNING, Phase.FINISHED)
        if is_out or self.slot in view.retired:
            self.released, self.released_at = True, self.released_at or self.heard_at
        by = view.phase is Phase.RUNNING and not self.released and self._stands_by(view)
        self.stood_by |= by
        if view.phase is Phase.RUNNING:
            self.stands_by = by
        goes = view.phase is Phase.RUNNING and not view.stop and not self.released
        goes &= not by and (not self.lives or self.lives[-1].epoch < view.epoch)
        late = self.heard_at - self.door.traffic.arrived_at > self.launch.fence
        goes &= not (late and self.launch.outlives_nodes)  # its time was over before it began
        if self.serves and goes and not self.signal_told:
            self._note_start()

    def _stands_by(self, view: NodeView) -> bool:
        table = self.facts.sealed.get(view.digest)
        out = table is not None and table.row_of_slot(self.slot) is None
        return self.launch.outlives_nodes and out

    def note_report(self, report: Report) -> None:
        self.told_end |= isinstance(report, ExitReport)
        again = self.launch.max_restarts or self.launch.outlives_nodes
        if isinstance(report, ExitReport) and self.serves and again:
            self.note_program_end(0, was_told=True)
        if isinstance(report, ExitReport | LeaveReport):
            self.spoke_without_parent |= self.parent_is_gone and self.started_at is None
        if isinstance(report, ExitReport) and report.exit_code == ExitCode.PREFLIGHT_FAILED:
            self.note_failure()
        self.world.history.judge(process=self, told=report)
        told = (self.slot, self.incarnation, getattr(report, "digest", ""))
        if isinstance(report, AckReport) and told not in self.facts.acks:
            self.acked = report.digest
            self.facts.acks.add(told)

    def note_answered(self, report: Report) -> None:
        for life in self.lives:
            life.is_told |= isinstance(report, ExitReport) and report.epoch == life.epoch
        self.world.history.judge(process=self, report=report)

    def told_to(self, view: NodeView) -> NodeView:
        """What it is told of the table: its registry may not be honest."""
        fault = self.world.marked("forged", self)
        if fault is not None and fault.count == 1 and view.table is not None:
            first, *rows = view.table.rows
            forged = replace(first, hostname="elsewhere")
            table = view.table.model_copy(update={"rows": [forged, *rows]})
            self.troubled = True
            view = view.model_copy(update={"table": table})
        elif fault is not None and fault.count > 1 and view.phase is Phase.RUNNING:
            self.troubled = True
            view = view.model_copy(update={"digest": "f" * 64})
        if view.phase is Phase.RUNNING:
            self.go_digest = view.digest
        return view

    def _note_start(self) -> None:
        self.world.history.judge(process=self, digest=self.acked)
        self.facts.starts.append((self.slot, self.incarnation, self.acked))
        self.started_at = now = self.world.loop.time()
        self.failed_at = self.program_ended_at = self.program_code = self.rank_code = None
        self.passed = []
        self.lives.append(Life(self._epoch_of(self.acked), self.acked, now))

    def _epoch_of(self, digest: str) -> int:
        table = self.facts.sealed.get(digest)
        return table.epoch if table is not None else 0

    def note_program_end(self, code: int, *, was_told: bool) -> None:
        if self.program_code is None:
            self.program_code = 0 if self.serves and was_told else code
            self.program_ended_at = self.world.loop.time()
            if self.lives:
                self.lives[-1].ended_at = self.program_ended_at
                self.lives[-1].unheard = self.program_ended_at - self.door.traffic.arrived_at
                self.lives[-1].code = self.program_code

    # --- its outer world ----------------------------------------------------------------------

    def _outside(self) -> AgentEnvironment:
        return self.doors.environment(
            dial=self._dial, probe=self._probe, make_offer=self._make_offer, start=self._start
        )

    def _dial(self, place: RegistryPlace, credential: Credential | str | None) -> RegistryClient:
        client = self.world.client(place, self.path, self.door, credential, kind=RecordingClient)
        assert isinstance(client, RecordingClient)
        client.process = self
        self.client = client
        return client

    def _make_offer(self, *_: Any, probe_port: int | None, **__: Any) -> JoinRequest:
        self.doors.check_offer()
        launch = self.launch
        high, low = divmod(self.number, 250)
        candidates = [
            Candidate(
                interface=f"eth{net}", address=f"10.{net + 1}.{high}.{low + 1}", prefix_length=16
            )
            for net in range(launch.networks)
        ]
        request = JoinRequest(
            protocol=PROTOCOL,
            job=Job(),
            facts=MachineFacts(),
            slot=self.slot,
            generation=self.generation,
            join_id=f"join-{self.number:012d}",
            hostname=f"host{self.number}",
            nproc_per_node=max(1, launch.ranks_each),
            candidates=candidates,
            findings=[_SICK] if self.world.marked("sick", self) else [],
            probe_port=probe_port,
            requested_node=launch.ranks[self.slot],
        )
        offered = self._worded(self.world.offered(self, request))
        key, launch_id = self.join.row_key, self.facts.launch_id
        return sign_join(offered, key, run=launch.run, launch_id=launch_id)

    def _worded(self, request: JoinRequest) -> JoinRequest:
        """Where one of a launch has another COMMAND word by word, all of them show theirs."""
        others = [slot for what, index, slot in self.world.marks if what == "other word"]
        if not others:
            return request
        words, run = [*_WORDS[:2], "0.9"] if self.slot in others else _WORDS, self.launch.run
        macs = word_macs(self.join.row_key, words, run=run, launch_id=self.facts.launch_id)
        return replace(request, job=replace(request.job, command_words=macs))

    async def _probe(
        self, identity: Identity, plan: ProbePlan, slots: Iterable[int]
    ) -> list[PairProbe]:
        """Visit the peers; what was really proven is noted for the judge."""
        self.doors.may_break("probe")
        if (late := self.world.marked("slow visits", self)) is not None:
            await asyncio.sleep(late.seconds)
        await asyncio.sleep(0.02 * self.draw.random())
        peers, slots = {peer.slot: peer for peer in plan.peers}, list(slots)
        left_out = slots[0] if slots and self.world.marked("silent probes", self) else None
        pairs = []
        for slot in slots:
            good = self.world.reaches(self, slot, peers[slot].interface)
            if slot != left_out:
                pairs.append(PairProbe(slot=slot, outcome="ok" if good else "timeout"))
            if good and slot != left_out:
                self.facts.proven.add((self.slot, self.incarnation, slot, peers[slot].address))
        return pairs

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        grace_seconds: float,
        until: float | None,
        **_: Any,
    ) -> SimulatedProgram | NotStarted:
        if (late := self.world.marked("slow start", self)) is not None:
            await asyncio.sleep(late.seconds)
        await asyncio.sleep(0.01)
        self.doors.check_start()
        if until is not None and self.world.loop.time() >= until:
            return NotStarted(self.world.loop.time())
        self._note_start()
        start = len({digest for _, _, digest in self.facts.starts}) - 1
        seconds, code = self.launch.program_of(start, self.slot)
        self.world.later(seconds if start else 0.0, int)  # it is not over before
        if self.world.marked("program fails", self):
            seconds, code = 0.5, 1
        if start:
            self.world.stays_busy(seconds)
        course = draw_course(self.draw, seconds, code, self.launch.ranks_each)
        course = self.world.course_of(self, course)
        self.program = SimulatedProgram(self, course, grace_seconds)
        self.lives[-1].program = self.program
        if self.launch.contagion and self._caught_it not in self.facts.on_failure:
            self.facts.on_failure.append(self._caught_it)
        return self.program

    def _caught_it(self, from_whom: int) -> None:
        """A peer's failure makes this program fail as well, a little later."""
        if from_whom != self.number:
            seconds = self.launch.contagion * (0.5 + self.draw.random())
            loop, context = self.world.loop, self.machine.context
            loop.call_later(seconds, self.fail_program, 134, self.program, context=context)

    def fail_program(self, code: int, program: SimulatedProgram | None = None) -> None:
        """This one, or that which runs."""
        program = program or self.program
        if program is not None:
            call, context = program.end_by_itself, self.machine.context
            self.world.loop.call_soon(call, code, context=context)
