"""Topics: what nodes publish for a run's readers, and what readers ask of its nodes. Pure.

*Published*: a node sends messages, and the registry keeps of them what the topic's `store` decides.
*Asked*: a reader asks all nodes something, and each answers once, in turn.

Neither the journal nor the run's machine knows of either. They are kept in memory and bounded: a
registry that is started again has lost them, and nodes that publish on fill them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal


@dataclass(frozen=True)
class Lazy:
    """An object that is imported when it is first needed.

    Attributes:
        path: `package.module:name`.
    """

    path: str

    @property
    def module(self) -> str:
        """The name of the module."""
        return self.path.partition(":")[0]

    @property
    def name(self) -> str:
        """The name of the object in it."""
        return self.path.partition(":")[2]

    def load(self) -> Any:
        """Import it."""
        return getattr(import_module(self.module), self.name)


_REPLY = Lazy("rendezvous.wire.reports:ReportReply")

Scope = Literal["read", "look", "logs"]
"""The scope of the credentials that open a topic: see `rendezvous.registry.access`."""


@dataclass(frozen=True)
class Published:
    """Topic on which nodes send messages.

    Attributes:
        name: Readers GET it at `/v1/runs/{run}/NAME`.
        path: Nodes POST to it at `/v1/runs/{run}/nodes/{node}/PATH`.
        message: The model of a message.
        response: The model of what readers get; None: the registry alone reads it.
        store: Makes what a run keeps of it, a `TopicStore` of
            `rendezvous.registry.topics`.
        query: The model of a reader's query; None: it has none.
        reply: The model of the answer to a node.
        scope: Who may read it.
        interval: Seconds from one message of a node to its next, at least.
        rate: Messages a second of all nodes of a run together, at most.
        between_watches: A message waits, some seconds, until the connection of the node's watch is
            free: one of its own would cost the registry more than all else that it has of a node.
            For what is sent now and then, and is in no hurry.
        counts: What a registry counts of it, for `/metrics`; empty: nothing.
    """

    name: str
    path: str
    message: Lazy
    store: Lazy
    response: Lazy | None = None
    query: Lazy | None = None
    reply: Lazy = _REPLY
    scope: Scope = "read"
    interval: float = 1.0
    rate: int = 500
    between_watches: bool = False
    counts: str = ""

    def pause(self, nodes: int) -> float:
        """Seconds from one message of a node to its next, in a run of so many nodes."""
        return max(self.interval, nodes / self.rate)

    def stagger(self, node: int) -> float:
        """Seconds until it is this node's turn, where all nodes begin at once."""
        return node / self.rate


@dataclass(frozen=True)
class Asked:
    """Topic on which the nodes that run programs are asked something.

    One question is open at a time; a reader who asks while it is gets its number.

    Attributes:
        name: Readers POST to `/v1/runs/{run}/NAME` to ask, and GET the answers there; nodes POST
            theirs to `/v1/runs/{run}/nodes/{node}/NAME`.
        answer: The model of a node's answer, an `Answer` of `rendezvous.wire.question`.
        response: The model of all answers, an `Answers`.
        scope: Who may ask, and read; None: the registry alone.
        noun: A question of this topic, in messages.
        seconds: How long nodes may take to answer, and `each` more for each of many.
        rest: Seconds from one question to the next.
        rate: Answers a second of all nodes together, at most.
        run_bytes: What the answers to one question may have.
        counts: What a registry counts of it, for `/metrics`; empty: nothing.
    """

    name: str
    answer: Lazy
    response: Lazy
    scope: Scope | None = "read"
    noun: str = "question"
    seconds: float = 5.0
    each: float = 0.002
    rest: float = 5.0
    rate: int = 1_000
    run_bytes: int = 8 << 20
    counts: str = ""

    def stagger(self, node: int) -> float:
        """Seconds until it is this node's turn to answer."""
        return node / self.rate
