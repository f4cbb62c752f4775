"""What the core offers to the node parts of features: facts, this node's programs, ways to report.

A part runs from the first start of a program here to the end of the agent, and its module is not
loaded before, but for agents that are forked. A part that raises costs one line in this node's log,
and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, cast

from pydantic import BaseModel

from rendezvous.channel import Asked, Published
from rendezvous.compat import timeout
from rendezvous.feature import Lazy, declared
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.question import Answer, Question
from worker.agent import inputs
from worker.agent.actions import Start
from worker.agent.arming import NodeSpec
from worker.agent.environment import AgentEnvironment, AgentSocket
from worker.options import observes
from worker.program.local_socket import Request, Take

_FLUSH_SECONDS = 1.0


def load_parts() -> None:
    """Import the parts of all features, for agents that are forked of this process."""
    for feature in declared():
        if feature.node is not None:
            with contextlib.suppress(Exception):  # the agents say what is wrong with it
                feature.node.load()


class RunningRanks(NamedTuple):
    """The ranks of the program that runs here.

    Attributes:
        folder: What RDZV_LOOK_FOLDER names for them; empty: no feature is to look at them.
        pids: The processes of the local ranks; None where it is not known.
        first_rank: The global rank of local rank 0.
        launcher: The process of the program, which may be a rank itself; None: not known.
        printed: Bytes that the ranks have printed.
        step: The highest step that is known of it.
    """

    folder: str
    pids: Mapping[int, int | None]
    first_rank: int
    launcher: int | None
    printed: int
    step: int | None


Answering = Callable[[Question, RunningRanks], Awaitable[Answer]]
"""Makes a node's answer."""


class Parts:
    """The node parts of all features, in one agent.

    Args:
        spec: What this agent is.
        environment: The outer world.
        client: Of the registry.
        socket: Where this node's programs speak to their agent.
        feed: Tells the machine what happens.
        begin: Lets something go on until this agent ends.
    """

    def __init__(
        self,
        spec: NodeSpec,
        environment: AgentEnvironment,
        client: RegistryClient,
        socket: AgentSocket,
        feed: Callable[[inputs.Input], None],
        begin: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self.spec, self.environment, self.socket = spec, environment, socket
        self._client, self.feed, self._begin = client, feed, begin
        self._ports: list[NodePort] = []
        self._waiting: deque[tuple[asyncio.Event, asyncio.Event]] = deque()
        self._runs: int | None = None
        self._changed = asyncio.Event()
        self.node, self.nodes, self.epoch = 0, 1, 0
        self.ranks: Callable[[], RunningRanks | None] = lambda: None
        self.answers: dict[str, tuple[Asked, Answering]] = {}
        """By the name of the topic."""
        self.step: int | None = None
        """The highest step that the program has reported since its start; None: it has not."""

    # --- for the shell ------------------------------------------------------------------------

    def starts(self, asked: Start, ranks: Callable[[], RunningRanks | None]) -> None:
        """A program is started: the steps of one before are not its own."""
        self.node, self.nodes = self.spec.row(asked.table).node, len(asked.table.rows)
        self.epoch, self.ranks = asked.table.epoch, ranks
        self.step = None
        if self._ports:
            return
        for feature in self.environment.features():
            if feature.node is not None:
                port = NodePort(self, feature.name)
                self._ports.append(port)
                self._begin(feature.name, self._run(port, feature.node))

    async def _run(self, port: NodePort, part: Lazy) -> None:
        try:
            await part.load()(port)
        except Exception as exc:  # noqa: BLE001 (the run does without)
            port.failed(exc)

    def runs(self, number: int | None) -> None:
        """Take in which start's program runs here now; None: none does, or none is wanted."""
        if number != self._runs:
            self._runs = number
            self._changed.set()
            self._changed = asyncio.Event()

    async def flush(self) -> None:
        """Have the parts send what they still have of a program that has ended, for a moment."""
        await asyncio.gather(*map(self._flush, self._ports))

    async def _flush(self, port: NodePort) -> None:
        try:
            async with timeout(_FLUSH_SECONDS):
                await port.flush()
        except TimeoutError:
            pass
        except Exception as exc:  # noqa: BLE001 (the run does without)
            port.failed(exc)

    async def publish_next(self) -> None:
        """Have the message that has waited longest sent; one that nobody wants any more is gone."""
        if self._waiting:
            turn, over = self._waiting.popleft()
            turn.set()
            await over.wait()
        if self._waiting:
            self.feed(inputs.Publish())

    # --- for the ports ------------------------------------------------------------------------

    async def publish(self, topic: Published, message: BaseModel) -> BaseModel:
        """See `NodePort`."""
        join, turn, over = self.spec.join, asyncio.Event(), asyncio.Event()
        try:
            if topic.between_watches:
                self._waiting.append((turn, over))
                self.feed(inputs.Publish())
                await turn.wait()
            return await self._client.publish(topic, join.run, join.slot, message)
        finally:
            over.set()
            if (turn, over) in self._waiting:
                self._waiting.remove((turn, over))

    async def beside_programs(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """See `NodePort`."""
        while True:
            changed = asyncio.ensure_future(self._changed.wait())
            tasks: set[asyncio.Future[Any]] = {changed}
            if self._runs is not None:
                tasks.add(asyncio.ensure_future(work()))
            try:
                while not changed.done():
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    tasks -= done
                    for task in done:
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()


class NodePort:
    """What the node part of one feature has of the core.

    Attributes:
        settings: What the person said.
        observes: Whether what costs a running program something may be done.
        environ: The user's environment, as the program is to see it.
        log_folder: Where the logs of this run's nodes are.
        in_thread: Calls something in a thread that nobody has to wait for.
        activity: What the part does, for the line that says that it has failed.
        flush: Sends what the part still has of a program that has ended; broken off soon.
    """

    def __init__(self, parts: Parts, name: str) -> None:
        self._parts, self._failed = parts, False
        self.settings, self.environ = parts.spec.settings, parts.environment.environ
        self.observes = observes(self.settings)
        self.log_folder = parts.spec.log_folder(self.environ)
        self.in_thread = parts.environment.in_thread
        self.activity = f"the feature '{name}'"
        self.flush: Callable[[], Awaitable[None]] = _nothing

    @property
    def node(self) -> int:
        """The number of this node in the newest table."""
        return self._parts.node

    @property
    def nodes(self) -> int:
        """How many nodes the newest table has."""
        return self._parts.nodes

    @property
    def epoch(self) -> int:
        """The epoch of the newest table."""
        return self._parts.epoch

    def ranks(self) -> RunningRanks | None:
        """The ranks of the program that runs here; None: none does yet, or it is ending."""
        return self._parts.ranks()

    def answer(self, topic: Asked, make: Answering) -> None:
        """Answer the questions of a topic; each answer is sent when it is this node's turn. One is
        made at a time."""
        lock = asyncio.Lock()

        async def guarded(question: Question, ranks: RunningRanks) -> Answer:
            words = "it still makes the answer to the question before"
            if not lock.locked():
                try:
                    async with lock:
                        return Answer.model_validate(await make(question, ranks))
                except Exception as exc:  # noqa: BLE001 (the run does without)
                    self.failed(exc)
                    words = f"{self.activity} failed: {type(exc).__name__}"
            return Answer(number=question.number, epoch=self.epoch, words=words)

        self._parts.answers[topic.name] = topic, guarded

    def serve(self, name: str, take: Take) -> None:
        """Take in what programs say to RDZV_SOCKET with this name in "do"."""

        def guarded(request: Request) -> str:
            try:
                return take(request)
            except Exception as exc:  # noqa: BLE001 (the run does without)
                self.failed(exc)
                return f"{name}: an internal error in rdzv: {exc!r}"

        self._parts.socket.add(name, guarded)

    async def beside_programs(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work beside each program that runs here: it is cancelled when the program is gone
        or the node ends, and begun again with the next one. Raises what it raises."""
        await self._parts.beside_programs(work)

    async def every(self, topic: Published, make: Callable[[], Awaitable[BaseModel]]) -> None:
        """Publish a message beside each program that runs here: the first at this node's turn, then
        one each `topic.pause`. One is made at a time, and the newest counts: what the registry does
        not take is replaced by the next. Raises what `make` raises."""
        making: asyncio.Future[BaseModel] | None = None  # may hang, also beyond its program
        clock = asyncio.get_running_loop().time

        async def work() -> None:
            nonlocal making
            sending: asyncio.Task[None] | None = None
            await asyncio.sleep(topic.stagger(self.node))
            try:
                if making is not None:  # for a program before
                    await asyncio.wait({making})
                    making.result()
                while True:
                    due = clock() + topic.pause(self.nodes)
                    making = asyncio.ensure_future(make())
                    making.add_done_callback(self._check)
                    await asyncio.wait({making})
                    made, making = making, None
                    if sending is not None:
                        sending.cancel()
                    sending = asyncio.create_task(self._try_to_publish(topic, made.result()))
                    await asyncio.sleep(due - clock())
            finally:
                if sending is not None:
                    sending.cancel()

        await self.beside_programs(work)

    def _check(self, making: asyncio.Future[BaseModel]) -> None:
        """See what was made, whether its program is gone or not."""
        if not making.cancelled() and (error := making.exception()) is not None:
            self.failed(cast(Exception, error))

    async def _try_to_publish(self, topic: Published, message: BaseModel) -> None:
        try:
            await self.publish(topic, message)
        except RdzvError:
            pass
        except Exception as exc:  # noqa: BLE001 (the next one may be taken)
            self.failed(exc)

    async def publish(self, topic: Published, message: BaseModel) -> BaseModel:
        """Send a message; returns the registry's answer. Raises RdzvError.

        One of a topic `between_watches` waits until the node's watch leaves its connection free;
        who cancels this takes it back.
        """
        return await self._parts.publish(topic, message)

    def progressed(self, step: int) -> None:
        """Take in a step that the program has come to: the highest one counts."""
        self._parts.step = max(step, self._parts.step or 0)

    def failed(self, error: Exception) -> None:
        """Say, once, that this part has failed."""
        if not self._failed:
            self._failed = True
            self._parts.feed(inputs.PartBroken(self.activity, error))


async def _nothing() -> None:
    """Nothing is left to send."""
