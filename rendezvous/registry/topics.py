"""Topics in the registry: what it gives to what a feature keeps of them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

from rendezvous.channel import Asked, Newest, Published
from rendezvous.feature import Feature
from rendezvous.registry.questions import Questions
from rendezvous.run.events import Event
from rendezvous.run.features import Remark
from rendezvous.run.state import Node, Run


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


def published(features: tuple[Feature, ...]) -> list[Published]:
    """The topics on which nodes send messages."""
    found = (topic for feature in features for topic in feature.topics)
    return [topic for topic in found if isinstance(topic, Published)]


def asked(features: tuple[Feature, ...]) -> list[Asked]:
    """The topics on which nodes are asked."""
    found = (topic for feature in features for topic in feature.topics)
    return [topic for topic in found if isinstance(topic, Asked)]


def counted(features: tuple[Feature, ...]) -> list[Published | Asked]:
    """The topics of which a registry counts something."""
    return [topic for feature in features for topic in feature.topics if topic.counts]
