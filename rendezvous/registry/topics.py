"""Topics in the registry: what it gives to what a feature keeps of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from rendezvous.channel import Asked, Published
from rendezvous.registry.questions import Questions
from rendezvous.run.events import Ending, Event, Noted, StopAsked
from rendezvous.run.features import Remark, data_of
from rendezvous.run.state import Node, Run, names_of
from rendezvous.wire.errors import TooLarge

__all__ = ["Judge", "JudgePort", "Newest", "NewestOfNodes", "Received", "Ring", "TopicStore"]
# What else a feature sees of the registry and of its runs:
__all__ += ["Ending", "Event", "Node", "Noted", "Remark", "Run", "StopAsked", "data_of", "names_of"]

K = TypeVar("K")


class Received(NamedTuple):
    """Message received from a node.

    Attributes:
        run: The run as it is now.
        slot: Of the node that has sent it, and its `incarnation`.
        message: An instance of the topic's `message`.
        now: Seconds, by the run's clock, which is monotonic.
    """

    run: Run
    slot: int
    incarnation: int
    message: Any
    now: float


class TopicStore(Protocol):
    """What a run keeps of a published topic."""

    def receive(self, received: Received) -> tuple[BaseModel | None, int]:
        """Store of a message what is worth it. Raises RdzvError.

        Returns:
            The answer to the node, None for the usual one, and how much is to be counted.
        """

    def to_json(self, run: Run, query: Any, now: float) -> bytes:
        """What a reader gets, as JSON of the topic's `response`."""


class Newest(Generic[K]):
    """The newest bytes of each key, bounded all together."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: dict[K, bytes] = {}
        self._size = 0

    def put(self, key: K, data: bytes) -> None:
        """Keep it in place of what the key had. Raises TooLarge, and keeps that then."""
        grown = self._size + len(data) - len(self._kept.get(key, b""))
        if grown > self._most:
            raise TooLarge(f"this run has sent more than {self._most >> 20} MiB of this")
        self._kept[key], self._size = data, grown

    def get(self, key: K) -> bytes | None:
        """The newest of a key."""
        return self._kept.get(key)

    def items(self) -> Iterator[tuple[K, bytes]]:
        """All of them."""
        return iter(self._kept.items())

    def clear(self) -> None:
        """Forget all of them."""
        self._kept.clear()
        self._size = 0


class Ring:
    """Numbered pieces, of which the oldest go when all have too many bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self.newest = 0
        """The number of the newest piece; they count from 1."""

    def put(self, data: bytes) -> None:
        """Keep it under the next number."""
        self.newest += 1
        self._kept.append((self.newest, data))
        self._size += len(data)
        while self._size > self._most:
            self._size -= len(self._kept.popleft()[1])

    def after(self, number: int, most: int) -> list[bytes]:
        """The oldest pieces numbered above, at most so many."""
        return list(islice((data for at, data in self._kept if at > number), most))


class NewestOfNodes:
    """The newest bytes of each node, bounded all together; those of a node that was in its slot
    before do not count."""

    def __init__(self, most_bytes: int) -> None:
        self._newest = Newest[int](most_bytes)
        self._came: dict[int, tuple[int, float]] = {}

    def put(self, received: Received, data: bytes) -> None:
        """Keep them in place of what the node has sent before. Raises TooLarge."""
        self._newest.put(received.slot, data)
        self._came[received.slot] = (received.incarnation, received.now)

    def get(self, slot: int, node: Node, now: float) -> tuple[bytes, float] | None:
        """The bytes of the node that is in a slot, and their age in seconds."""
        incarnation, at = self._came.get(slot, (0, 0.0))
        if incarnation != node.incarnation or (data := self._newest.get(slot)) is None:
            return None
        return data, max(0.0, now - at)


class JudgePort(Protocol):
    """What a judge is given of its run."""

    def now(self) -> float:
        """Seconds, by the run's clock."""

    def store(self, topic: Published) -> Any:
        """What is kept of a topic."""

    def questions(self, topic: Asked) -> Questions:
        """The questions of a topic."""


class Judge(Protocol):
    """Decisions of a feature about one run, from what its nodes have sent and answered.

    `Feature.judge` makes it from a `JudgePort`.
    """

    def events(self, run: Run, now: float) -> list[Event]:
        """New findings, `Noted` or `StopAsked`; called some times a second."""

    def remark(self, run: Run, now: float) -> Remark | None:
        """Observation to show in the status while the programs run."""
