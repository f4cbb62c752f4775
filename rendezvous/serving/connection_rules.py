"""What every connection to the registry is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from rendezvous.serving.room import Room


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that a peer has for each step."""

    handshake: float = 5.0
    """TLS, from the connection being accepted."""
    header: float = 5.0
    """A complete header: from the connection being opened, then from the header's first byte."""
    body: float = 10.0
    """A complete body, from its header."""
    idle: float = 75.0
    """The next request, from the answer to the last one."""
    unacknowledged: float = 10.0
    """Bytes that we sent and the peer's kernel does not take."""


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """What every connection is held to."""

    room: Room
    """How many there may be; more are answered with 503."""
    may_pass: Callable[[Scope], bool] = lambda scope: False
    """Whether a request is served all the same."""
    timeouts: Timeouts = Timeouts()
