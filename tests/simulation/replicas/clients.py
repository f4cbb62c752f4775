"""Who asks replicas: the nodes of a run and its launcher, as far as they speak to a registry."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from rendezvous.registry.live_run import LiveRun
from rendezvous.talk.credentials import Credential, parse_credential
from rendezvous.wire.errors import Moved, RegistryError, RequestError
from rendezvous.wire.node import JoinReply, JoinRequest
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, Report
from rendezvous.wire.run import Phase, RunSpec, RunStatus
from rendezvous.wire.watch import NodeView
from tests.simulation.replicas.judge import Asking
from tests.simulation.replicas.schedule import HOSTS, Launch
from tests.support.registry import Launch as Keys
from tests.support.registry import all_reached

if TYPE_CHECKING:
    from tests.simulation.replicas.world import Process, World

T = TypeVar("T")

REQUEST_SECONDS = 2.0
_MOST_MOVES = 3
_STOPPED = 143
_PHASE_SECONDS = 30.0


class Client:
    """Asks one replica after the other, until one answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.at = world.draw.choice(HOSTS)
        self.times: list[float] = []

    async def ask(
        self, work: Callable[[Process], Awaitable[T]], patience: float = REQUEST_SECONDS
    ) -> T:
        """Go where it is said, and elsewhere when there is no answer; raises what is refused."""
        moves = 0
        while True:
            self.times.append(self.world.loop.time())
            tried = self.at
            try:
                return await self.world.call(tried, work, patience)
            except Moved as exc:
                self.at, moves = exc.address[0], moves + 1
                if moves % _MOST_MOVES:
                    continue
            except RegistryError:
                if self.at == tried:
                    self.at = HOSTS[(HOSTS.index(tried) + 1) % len(HOSTS)]
            await asyncio.sleep(self.world.draw.uniform(0.2, 0.5))


class Node(Client):
    """A node's agent, with a program that takes its time."""

    def __init__(self, world: World, launch: Launch, keys: Keys, slot: int) -> None:
        super().__init__(world)
        self.launch = launch
        self.keys = keys
        self.slot = slot
        self.asking = Asking(launch.lease, self.times)
        world.judge.askings[launch.run, keys.keys.launch_id, slot] = self.asking
        self.reply: JoinReply | None = None
        self.shown: Credential | None = None
        self.program: asyncio.Task[None] | None = None
        self._seq = self._done = self._started = self._reported = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.slot, self.reply.incarnation if self.reply is not None else 0

    async def run(self) -> None:
        """From its join until it knows the result."""
        await asyncio.sleep(self.launch.boot[self.slot])
        try:
            self.reply = await self.ask(self._join)
            self.shown = parse_credential(self.reply.credential)
            while not await self._follow(await self.ask(self._watch, self._patience())):
                pass
        except RequestError as exc:
            self.world.judge.refused(self.launch.run, self.keys.keys.launch_id, self.key, exc)
        finally:
            self.asking.ended = True
            if self.program is not None:
                self.program.cancel()

    def _patience(self) -> float:
        assert self.reply is not None
        return self.reply.poll_seconds + REQUEST_SECONDS

    async def _join(self, process: Process) -> JoinReply:
        run, launch = self.launch.run, self.keys.keys.launch_id
        token, request = _joining(self.keys, self.slot)
        _, reply = await process.service.join(run, token, request)
        self.world.judge.joined(process.name, run, launch, request.join_id, self.slot, reply)
        return reply

    async def _found(self, process: Process) -> LiveRun:
        await process.service.place.find(self.launch.run, self.shown)
        live = process.service.access.node(self.launch.run, self.slot, self.shown)
        process.service.heard(live, *self.key, None)
        return live

    async def _watch(self, process: Process) -> NodeView:
        live = await self._found(process)
        try:
            body = await process.service.watch(live, self._seq)
        except Moved:
            self.world.judge.sent_away(process.name, self.launch.run)
            raise
        view = NodeView.model_validate_json(body.plain)
        launch = self.keys.keys.launch_id
        self.world.judge.told_view(process.name, self.launch.run, launch, view)
        return view

    async def _tell(self, report: Report) -> None:
        async def tell(process: Process) -> None:
            live = await self._found(process)
            await process.service.report(live, *self.key, report)
            launch = self.keys.keys.launch_id
            self.world.judge.acked(process.name, self.launch.run, launch, self.key, report)

        await self.ask(tell)

    async def _follow(self, view: NodeView) -> bool:
        """Do what is asked of it; whether that was the last of it."""
        if view.seq < self._seq:
            return False
        self._seq = view.seq
        if view.result is not None:
            await self._tell(LeaveReport())
            return True
        if view.stop or view.phase is Phase.RESTARTING or view.epoch > self._started > 0:
            await self._stop(stopped=view.stop or view.phase is Phase.RESTARTING)
        if view.phase is Phase.VERIFYING and self._done < view.epoch and view.plan is not None:
            self._done = view.epoch
            await self._tell(all_reached(view, self.slot))
        elif view.phase is Phase.ARMING and view.table is not None:
            await self._tell(AckReport(epoch=view.epoch, digest=view.digest))
        elif view.phase is Phase.RUNNING and self._started < view.epoch:
            self._started = view.epoch
            self.program = asyncio.create_task(self._program(view.epoch))
        return False

    async def _program(self, epoch: int) -> None:
        seconds, code = self.launch.program[self.slot]
        await asyncio.sleep(seconds)
        self._reported = epoch
        with contextlib.suppress(RequestError):  # the poll hears of it as well
            await self._tell(ExitReport(epoch=epoch, exit_code=code))

    async def _stop(self, *, stopped: bool) -> None:
        if self.program is None or self._reported >= self._started:
            return
        self.program.cancel()
        self._reported = self._started
        await self._tell(ExitReport(epoch=self._started, exit_code=_STOPPED, stopped=stopped))


class Launcher(Client):
    """Makes the launches of one name, one after the other, and waits for their ends."""

    def __init__(self, world: World, launches: list[Launch]) -> None:
        super().__init__(world)
        self.launches = launches
        self.nodes: list[Node] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.doing = "begins"

    async def run(self) -> None:
        for number, launch in enumerate(self.launches):
            await asyncio.sleep(launch.at)
            keys = _keys(launch.run, number)
            self.doing = f"makes {launch.run} {keys.keys.launch_id}"
            await self._launch(launch, keys)

    async def _launch(self, launch: Launch, keys: Keys) -> None:
        spec = _spec(launch, keys)
        try:
            await self.ask(lambda process: self._create(process, launch, spec))
        except RequestError as exc:
            known = self.world.judge.shadows.get(launch.run)
            ours = known is not None and known.launch == spec.launch_id
            if known is not None and self.world.judge.was_forgotten(launch.run, known.launch):
                return  # a creation that was stopped on its way for longer than its run was kept
            words = f"run {launch.run} {spec.launch_id} (ours: {ours}) cannot be made: {exc}"
            self.world.judge.fail("L2", words)
            return
        self.nodes = [Node(self.world, launch, keys, slot) for slot in range(launch.nodes)]
        self.tasks = [asyncio.create_task(node.run()) for node in self.nodes]
        cancel = asyncio.create_task(self._cancel(launch, keys)) if launch.cancel else None
        self.doing = f"waits for {launch.run} {spec.launch_id}"
        while not await self._is_over(launch, keys):
            await asyncio.sleep(self.world.draw.uniform(0.5, 1.5))
        self.doing = f"waits for the nodes of {launch.run} {spec.launch_id}"
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if cancel is not None:
            cancel.cancel()

    async def _create(self, process: Process, launch: Launch, spec: RunSpec) -> RunStatus:
        status = await process.service.create(launch.run, spec)
        self.world.judge.made(process.name, launch.run, spec.launch_id)
        return status

    async def _is_over(self, launch: Launch, keys: Keys) -> bool:
        async def status(process: Process) -> RunStatus:
            live = await self._found(process, launch, keys)
            status = await process.service.status(live)
            self.world.judge.told_status(process.name, launch.run, keys.keys.launch_id, status)
            return status

        try:
            return (await self.ask(status)).phase is Phase.FINISHED
        except RequestError as exc:
            self.world.judge.refused(launch.run, keys.keys.launch_id, None, exc)
            return True

    async def _cancel(self, launch: Launch, keys: Keys) -> None:
        async def cancel(process: Process) -> None:
            live = await self._found(process, launch, keys)
            await process.service.cancel(live, "it is enough")
            self.world.judge.cancelled(process.name, launch.run, keys.keys.launch_id)

        await asyncio.sleep(launch.cancel)
        with contextlib.suppress(RequestError):
            await self.ask(cancel)

    async def _found(self, process: Process, launch: Launch, keys: Keys) -> LiveRun:
        admin = _admin(keys)
        await process.service.place.find(launch.run, admin)
        return process.service.access.run(launch.run, admin, "write")


# The same in every schedule, and each derived once.


@functools.cache
def _keys(run: str, number: int) -> Keys:
    return Keys(run, f"launch{number:02d}", bytes(32))


@functools.cache
def _admin(keys: Keys) -> Credential:
    return keys.keys.admin


@functools.cache
def _joining(keys: Keys, slot: int) -> tuple[Credential, JoinRequest]:
    """What a node shows and says."""
    return keys.token(slot), keys.join(slot)


def _spec(launch: Launch, keys: Keys) -> RunSpec:
    return keys.spec(
        launch.nodes,
        lease_seconds=launch.lease,
        verify=launch.verify,
        max_restarts=launch.max_restarts,
        submit_retries=0,
        join_timeout_seconds=_PHASE_SECONDS,
        arm_timeout_seconds=_PHASE_SECONDS,
        verify_timeout_seconds=_PHASE_SECONDS,
    )
