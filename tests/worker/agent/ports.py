"""The node parts of features in the hands of a test, with what their core offers them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rendezvous.channel import Published
from rendezvous.feature import Feature, Lazy
from rendezvous.wire.table import EndpointTable
from tests.worker.agent.drive import SERVING, SLOT, at_once, table
from tests.worker.test_table import join
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.arming import NodeSpec
from worker.agent.environment import AgentEnvironment
from worker.agent.port import NodePort, Parts, RunningRanks
from worker.program.local_socket import Request, Take
from worker.settings import WorkerSettings

Part = Callable[[NodePort], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Loaded(Lazy):
    """A part that is there already."""

    part: Part

    def load(self) -> Part:
        """See the base class."""
        return self.part


class Node:
    """A node with these parts: what its registry receives, and what its machine is fed.

    Attributes:
        error: What the registry answers instead; `seconds`: after so long.
        client: Its registry in place of this.
        free: Whether the watch leaves its connection free at once.
        ranks: Those of its program.
    """

    def __init__(
        self,
        *parts: Part,
        in_thread: Callable[..., Awaitable[Any]] = at_once,
        client: Any = None,
        **settings: Any,
    ) -> None:
        features = tuple(Feature(f"f{n}", node=Loaded("", part)) for n, part in enumerate(parts))
        environment = AgentEnvironment(
            environ={"PATH": "/bin"}, in_thread=in_thread, features=lambda: features
        )
        own: dict[str, Any] = {"framework": "command", "log_dir": Path("/logs")}
        spec = NodeSpec(WorkerSettings(**own | settings), join(SLOT), ["train"], remote=False)
        own_socket: Any = self
        self.parts = Parts(
            spec, environment, client or own_socket, own_socket, self._feed, self._begin
        )
        self.received: list[tuple[float, str, BaseModel]] = []
        self.fed: list[inputs.Input] = []
        self.takes: dict[str, Take] = {}
        self.error: Exception | None = None
        self.seconds = 0.0
        self.free = True
        self.ranks: RunningRanks | None = None
        self.begun: list[asyncio.Task[None]] = []

    def _feed(self, said: inputs.Input) -> None:
        self.fed.append(said)
        if said == inputs.Publish() and self.free:
            self.leaves_free()

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self.begun.append(asyncio.create_task(work, name=name))

    def leaves_free(self) -> asyncio.Task[None]:
        """The watch leaves its connection free for one message."""
        return asyncio.create_task(self.parts.publish_next())

    def starts(self, number: int = 1, given: EndpointTable | None = None) -> None:
        """A program is started, and runs."""
        self.parts.starts(do.Start(number, given or table(), SERVING), lambda: self.ranks)
        self.parts.runs(number)

    def gone(self) -> None:
        """It is gone, or the node ends."""
        self.parts.runs(None)

    def ask(self, request: Request) -> str:
        """What a process of the program is answered."""
        return self.takes[request["do"]](request)

    # --- its registry, and its socket ---------------------------------------------------------

    async def publish(self, topic: Published, run: str, slot: int, message: BaseModel) -> BaseModel:
        """Receive a message."""
        assert (run, slot) == (self.parts.spec.join.run, SLOT)
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        now = round(asyncio.get_running_loop().time(), 3)
        self.received.append((now, topic.name, message))
        return message

    def add(self, name: str, take: Take) -> None:
        """Take requests of this name."""
        self.takes[name] = take


def of_nodes(count: int) -> EndpointTable:
    """A table of so many nodes, in which this one is number 1."""
    first, own = table().rows
    others = [replace(own, node=n, slot=n + 1, hostname=f"n{n}") for n in range(2, count)]
    return table().model_copy(update={"rows": [first, own, *others]})
