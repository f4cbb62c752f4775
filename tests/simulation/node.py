"""One node's agent as it behaves on the wire: the steps of `worker.agent`, by the same names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from rendezvous.peers import peers_of
from rendezvous.compat import timeout
from rendezvous.errors import (
    ExitCode,
    Fenced,
    JoinTimeout,
    RdzvError,
    RegistryError,
    RegistryLost,
    RunOver,
    SlotTaken,
    TooManyRequests,
    UsageError,
)
from rendezvous.retry import until_answered
from rendezvous.schema import (
    AckReport,
    Candidate,
    ExitReport,
    Finding,
    Job,
    JoinReply,
    JoinRequest,
    LeaveReport,
    NodeView,
    PairProbe,
    Phase,
    ProbePlan,
    ProbeReport,
    Refusal,
    RefuseReport,
    Report,
    Result,
    printable,
)
from rendezvous.security import Credential
from tests.simulation import invariants
from tests.simulation.history import Facts, Failure
from tests.simulation.loop import Machine

if TYPE_CHECKING:
    from tests.simulation.world import World

_LEAVE_SECONDS = 3.0
_ORPHAN_SECONDS = 60.0
_REFUSE_SECONDS = 60.0
_STOP_SECONDS = 0.3
_SICK = Finding(check="L12", level="fail", cause="RDMA cannot register memory")


class Process:
    """The agent of one worker run, and its program.

    Args:
        world: Where it lives.
        facts: Its launch.
        slot: Its slot.
        generation: Of its worker run.
        token: Its join token.
        number: Counts the processes of a simulation: no two have the same address or join id.
    """

    def __init__(
        self,
        world: World,
        facts: Facts,
        slot: int,
        generation: int,
        token: Credential,
        number: int,
    ) -> None:
        self.world, self.facts, self.slot, self.generation = world, facts, slot, generation
        self.number = number
        self.launch = facts.launch
        self.machine = Machine(world.loop, f"{facts.launch.run}/{slot}.{generation}#{number}")
        self.path = world.network.path(facts.index, slot)
        self.door = world.network.door(self.path)
        self.client = world.client(self.launch, self.path, self.door, token)
        self.ended: int | None = None
        self.troubled = False
        self.was_paused = False
        self.stuck = False
        self.released = False
        self.was_slow = False
        self.incarnation = 0
        self.last_heard = 0.0
        self.seq = 0
        self.epoch = 0
        self.acked = ""
        self.result: Result | None = None
        self.started_at: float | None = None
        self.failed_at: float | None = None
        self.gone: Failure | None = None
        self.program_code: int | None = None
        self.program_ended_at: float | None = None
        self.signal_told = False
        self.token = token
        self._stopping = False
        self._result_known_at = 0.0
        self._one_arms = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._program_over: asyncio.Future[int] = world.loop.create_future()
        self._over: asyncio.Future[int] = world.loop.create_future()

    @property
    def name(self) -> str:
        """How it is named in violations."""
        return f"{self.machine.name} (incarnation {self.incarnation})"

    @property
    def serves(self) -> bool:
        """Whether it has no program of its own: it is there for that of slot 0."""
        return self.launch.led and self.slot != 0

    # --- life ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let it live."""
        self.machine.run(self._run())

    async def _run(self) -> None:
        fault: RdzvError | None = None
        self._start("node", self._live())
        try:
            code = await self._over
        except RdzvError as exc:
            fault, code = exc, int(exc.exit_code)
        for task in self._tasks.values():
            task.cancel()
        if fault is not None and not isinstance(
            fault, Fenced | RunOver | RegistryError | RegistryLost
        ):
            await self._say_goodbye(self._exit_report(int(code), printable(fault.message, 600)))
        self._end_program(137)
        await self._say_goodbye(LeaveReport())
        self._note_end()
        await self.client.close()
        self.ended = code
        self.machine.kill()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        if name in self._tasks:
            work.close()
            return
        task = self._tasks[name] = self.machine.run(work)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or self._over.done():
            return
        error = task.exception()
        if isinstance(error, RdzvError):
            self._over.set_exception(error)
        elif error is not None:
            raise error

    def tell_to_end(self) -> None:
        """TERM."""
        if self.signal_told or self.ended is not None or not self.machine.alive:
            return
        self.signal_told = True
        self.troubled = True
        self._note_failure()
        self.world.loop.call_soon(self._begin_quit, context=self.machine.context)

    def _begin_quit(self) -> None:
        self._start("quit", self._quit())

    async def _quit(self) -> None:
        if "program" in self._tasks:
            self._end_program(143)
            await self._program_over
            await asyncio.sleep(_STOP_SECONDS)
        else:
            words = "its agent was told to end (SIGTERM)"
            await self._say_goodbye(self._exit_report(143, words))
        if not self._over.done():
            self._over.set_result(143)

    async def _say_goodbye(self, report: Report) -> None:
        if not self.incarnation:
            return
        with contextlib.suppress(RdzvError, TimeoutError):
            async with timeout(_LEAVE_SECONDS):
                await self._report(lambda: report)

    def die(self, *, silent: bool) -> None:
        """The process is killed; its host closes its connections, or is gone as well."""
        if not self.machine.alive:
            return
        self.troubled = True
        self._note_failure(silent=silent)
        self._note_end(silent=silent)
        self.machine.kill()
        self.ended = 137
        if not silent:
            self.door.process_ended()

    def _note_failure(self, *, silent: bool = False) -> None:
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

    # --- what it asks and says ----------------------------------------------------------------

    async def _enter(self) -> JoinReply:
        loop, limit = self.world.loop, self.launch.join_timeout
        deadline = loop.time() + limit + max(self.launch.queue)
        request = self._offer()
        while True:
            try:
                reply = await self.client.join(self.launch.run, request)
            except (RegistryError, SlotTaken, TooManyRequests) as exc:
                if loop.time() > deadline:
                    raise JoinTimeout(f"could not join: {exc.message}") from exc
                await asyncio.sleep(self.client.pause())
                continue
            self.incarnation = reply.incarnation
            self.facts.owners[self.slot, reply.incarnation] = self
            self.last_heard = loop.time()
            self.world.history.judge(invariants.OF_JOINS, self, request.join_id)
            return reply

    def _offer(self) -> JoinRequest:
        high, low = divmod(self.number, 250)
        return JoinRequest(
            slot=self.slot,
            generation=self.generation,
            join_id=f"join-{self.number:012d}",
            hostname=f"host{self.number}",
            nproc_per_node=1,
            candidates=[
                Candidate(
                    interface=f"eth{network}",
                    address=f"10.{network + 1}.{high}.{low + 1}",
                    prefix_length=16,
                )
                for network in range(self.launch.networks)
            ],
            findings=[_SICK] if self.world.is_sick(self) else [],
            probe_port=7_000,
            requested_rank=self.launch.ranks[self.slot],
            job=Job(nnodes="99") if self.world.has_other_job(self) else Job(),
        )

    async def _report(self, make: Callable[[], Report]) -> None:
        await self.client.report(self.launch.run, self.slot, make())
        self.world.history.judge(invariants.OF_REPORTS, self, make())

    async def _tell(self, make: Callable[[], Report]) -> None:
        """Report until it is taken in; the report is made anew for each try."""
        loop = self.world.loop
        deadline = loop.time() + _ORPHAN_SECONDS
        while True:
            try:
                await self._report(make)
            except (RegistryError, TooManyRequests):
                since = self._result_known_at
                if since and loop.time() > since + _LEAVE_SECONDS:
                    return
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(self.client.pause())
            else:
                return

    # --- the watch ----------------------------------------------------------------------------

    async def _refuse(self, refusal: Refusal) -> None:
        """Tell why it does not join: see `worker.refusal`."""
        run, slot = self.launch.run, self.slot
        with contextlib.suppress(RdzvError):
            await until_answered(
                lambda: self.client.refuse(run, slot, refusal),
                seconds=_REFUSE_SECONDS,
                pause=self.client.pause,
            )

    async def _live(self) -> None:
        if (refusal := self.world.refusal_to_join(self)) is not None:
            await self._refuse(refusal)
            raise UsageError(refusal.reason)
        reply = await self._enter()
        poll, after, heard = reply.poll_seconds, 0, self.world.loop.time()
        while True:
            try:
                view = await self.client.watch(self.launch.run, self.slot, after, poll)
            except (RegistryError, TooManyRequests) as exc:
                self._check_orphaned(heard, exc)
                await asyncio.sleep(self.client.pause())
                continue
            heard = self.world.loop.time()
            poll = view.poll_seconds
            self.world.history.judge(invariants.OF_VIEWS, self, view)
            self.seq, self.epoch = view.seq, view.epoch
            if view.seq != after:
                after = view.seq
                await self._take_in(view)

    def _check_orphaned(self, heard: float, cause: RdzvError) -> None:
        if not self._result_known_at and self.world.loop.time() - heard >= _ORPHAN_SECONDS:
            self._note_failure()
            raise RegistryLost(f"the registry has not answered: {cause.message}")

    async def _take_in(self, view: NodeView) -> None:
        if view.result is not None:
            self._start("finish", self._finish(view.result))
        elif self.slot in view.released:
            if view.phase is Phase.RUNNING and not self._over.done():
                self.released = True
                self._over.set_result(0)
        elif self.stuck and view.phase in (Phase.VERIFYING, Phase.ARMING):
            return
        elif view.phase is Phase.VERIFYING:
            if view.plan is not None and self.slot in [peer.slot for peer in view.plan.peers]:
                report = ProbeReport(epoch=view.epoch, pairs=self._probe(view.epoch, view.plan))
                await self._tell(lambda: report)
        elif view.phase is Phase.ARMING and view.table is not None:
            self._start(f"arm {view.epoch}", self._prepare(view))
        elif view.phase is Phase.RUNNING and view.stop:
            self._start("stop", self._stop_program())
        elif view.phase is Phase.RUNNING and not self.signal_told:
            self._go(view)

    def _probe(self, epoch: int, plan: ProbePlan) -> list[PairProbe]:
        """Visit the peers; what was really proven is noted for the judge."""
        peers = {peer.slot: peer for peer in plan.peers}
        slots = peers_of(list(peers), self.slot, epoch)
        left_out = self.world.leaves_out(self, slots)
        pairs = []
        for slot in slots:
            good = self.world.reaches(self, slot, peers[slot].interface)
            if slot != left_out:
                pairs.append(PairProbe(slot=slot, outcome="ok" if good else "timeout"))
            if good and slot != left_out:
                address = peers[slot].address
                self.facts.proven.add((self.slot, self.incarnation, slot, address))
        return pairs

    async def _prepare(self, view: NodeView) -> None:
        async with self._one_arms:
            report = await self._arm(view)
        await self._tell(lambda: report)

    async def _arm(self, view: NodeView) -> AckReport | RefuseReport:
        assert view.table is not None
        await asyncio.sleep(self.world.arming_seconds(self))
        row = view.table.row_of_slot(self.slot)
        if row is None:
            reason = "the table does not hold this node as it joined"
            return RefuseReport(epoch=view.epoch, code="bad_table", reason=reason)
        refusal = self.world.refusal(self, view.table, row)
        if refusal is not None:
            return refusal
        self.acked = view.digest
        self.facts.acks.add((self.slot, self.incarnation, view.digest))
        return AckReport(epoch=view.epoch, digest=view.digest)

    # --- the program --------------------------------------------------------------------------

    def _go(self, view: NodeView) -> None:
        if "program" not in self._tasks:
            self.world.history.judge(invariants.OF_STARTS, self, view)
            self.facts.starts.append((self.slot, self.incarnation, view.digest))
            self._start("program", self._run_program(view))

    async def _run_program(self, view: NodeView) -> None:
        loop = self.world.loop
        self.started_at = loop.time()
        seconds, code = self.launch.program[self.slot]
        fails = self.world.program_fails(self)
        if fails is not None:
            seconds, code = fails, 1
        if not self.serves:
            loop.call_later(seconds, self._program_ends, code)
        if self.launch.contagion:
            self.facts.on_failure.append(self._caught_it)
        code = await self._program_over
        await asyncio.sleep(self.world.lag(self) if code else 0.0)
        await self._tell(lambda: self._exit_report(code, ""))

    def _caught_it(self, from_whom: int) -> None:
        """A peer's failure makes this program fail as well, a little later."""
        if from_whom != self.number:
            seconds = self.launch.contagion * (0.5 + self.path.random.random())
            loop, context = self.world.loop, self.machine.context
            loop.call_later(seconds, self._program_ends, 134, context=context)

    def fail_program(self, code: int) -> None:
        """Something makes the program fail."""
        loop = self.world.loop
        loop.call_soon(self._program_ends, code, context=self.machine.context)

    def _program_ends(self, code: int) -> None:
        """By itself."""
        if self._program_over.done() or self.serves:
            return
        if code != 0 and not self._stopping:
            self._note_failure()
        self._end_program(code)

    def _end_program(self, code: int) -> None:
        if not self._program_over.done():
            self.program_code = code
            if self.started_at is not None:
                self.program_ended_at = self.world.loop.time()
            self._program_over.set_result(code)

    def _exit_report(self, code: int, message: str) -> ExitReport:
        now = self.world.loop.time()
        own = self.failed_at is not None
        return ExitReport(
            epoch=self.epoch,
            exit_code=code,
            age_seconds=now - self.failed_at if self.failed_at is not None else 0.0,
            stopped=self._stopping and not own and not self.signal_told,
            message=message,
        )

    async def _stop_program(self) -> None:
        self._stopping = True
        await asyncio.sleep(_STOP_SECONDS)
        if "program" in self._tasks:
            self._end_program(0 if self.serves else 143)
            await asyncio.wait({self._tasks["program"]})

    async def _finish(self, result: Result) -> None:
        self._result_known_at = self.world.loop.time()
        self.result = result
        self.facts.told.append(result)
        await self._stop_program()
        if not self._over.done():
            self._over.set_result(result.exit_code)


def code_of(process: Process) -> int:
    """What the scheduler says that it ended with."""
    return int(ExitCode.INTERNAL) if process.ended is None else process.ended
