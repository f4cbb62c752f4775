"""What the application knows of a peer's connection: who it is, and when and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Scope

from rendezvous.enums import StrEnum
from rendezvous.talk.credentials import Credential


class CloseReason(StrEnum):
    """How a connection ended. Only FIN and RST say something about the peer's process."""

    FIN = "fin"
    RST = "rst"
    LOST = "lost"
    """The network took it: no acknowledgement in time, or no route."""
    LOCAL = "local"
    """This side closed it."""


Answer = Callable[[bytes], Awaitable[bool]]


class Connection:
    """One peer's connection, at `scope["state"]["connection"]` of each of its requests."""

    __slots__ = (
        *("_callbacks", "answer", "asked", "authorization", "is_known", "paid_off_at", "peer"),
        "reason",
    )

    def __init__(self, peer: str, answer: Answer | None = None) -> None:
        self.peer = peer
        self.answer = answer
        """Writes a whole answer to the present request; False when ASGI must send it. Or None."""
        self.reason: CloseReason | None = None
        self.is_known = False
        """Whether a credential was proven on it."""
        self.authorization: tuple[bytes, Credential | None] = (b"", None)
        """The header that came last, and the credential in it: most requests bring the same."""
        self.asked = 0
        self.paid_off_at = 0.0
        """How many requests it brought before that, and their `limiter.Pace`."""
        self._callbacks: dict[tuple[Callable[..., object], tuple[object, ...]], None] = {}

    @property
    def closed(self) -> bool:
        """Whether it has ended; `reason` then says how."""
        return self.reason is not None

    def on_close(self, callback: Callable[..., object], *arguments: object) -> None:
        """Have `callback(*arguments, reason)` called in the event loop once the connection ended,
        in the order in which they were asked for.

        The same callback with the same arguments (hashable) counts once, so that each request of
        a connection may ask again. On a closed connection it is called all the same.
        """
        if self.reason is None:
            self._callbacks[callback, arguments] = None
        else:
            asyncio.get_running_loop().call_soon(callback, *(*arguments, self.reason))

    def end(self, reason: CloseReason) -> None:
        """The connection ended (called by the protocol)."""
        self.reason = reason
        self.answer = None  # else both would wait for the garbage collector, with what they read
        for callback, arguments in self._callbacks:
            # Through the loop, so that one that fails does not keep the others from being called.
            asyncio.get_running_loop().call_soon(callback, *(*arguments, reason))
        self._callbacks.clear()


def connection_of(scope: Scope) -> Connection | None:
    """The connection that a request came on; None: the server has none."""
    found: Connection | None = scope.get("state", {}).get("connection")
    return found
