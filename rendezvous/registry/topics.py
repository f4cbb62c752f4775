"""Topics in the registry: what it gives to what a feature keeps of them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

from rendezvous.channel import Published
from rendezvous.feature import Feature
from rendezvous.run.state import Run


class Sent(NamedTuple):
    """A message that has come.

    Attributes:
        run: The run as it is now.
        slot: Of the node that has sent it, and its `incarnation`.
        message: An instance of the topic's `message`.
        now: Seconds, by the run's clock.
    """

    run: Run
    slot: int
    incarnation: int
    message: Any
    now: float


class Keeps(Protocol):
    """What a run keeps of a published topic."""

    def take(self, sent: Sent) -> tuple[BaseModel | None, int]:
        """Keep of a message what is worth it. Raises RdzvError.

        Returns:
            The answer to the node, None for the usual one, and how much is to be counted.
        """

    def written(self, run: Run, query: Any, now: float) -> bytes:
        """What a reader gets, as JSON of the topic's `shown`."""


def published(features: tuple[Feature, ...]) -> list[Published]:
    """The topics on which nodes send messages."""
    found = (topic for feature in features for topic in feature.topics)
    return [topic for topic in found if isinstance(topic, Published)]
