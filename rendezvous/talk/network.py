"""The network as a client of a registry sees it: what `http_network` does on real sockets.

A simulator implements the same few calls on a virtual clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from rendezvous.frozen import frozen
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.talk.join_string import RegistryPlace

HEADERS = {"host": SERVER_NAME, "accept-encoding": "gzip"}
"""Sent by a line with each request, beside the request's own."""
UNREACHED = "x-rdzv-unreached"
"""Names the replica, as HOST:PORT, to which a client was sent and could not connect."""


@frozen
class Request:
    """One request.

    Attributes:
        target: Path and query, encoded.
        headers: In small letters, beside `HEADERS` and the body's length.
        body: None: no body.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


@frozen
class Answer:
    """A whole answer; the names of its headers are in small letters, its body is not compressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """An answer that comes bit by bit. All calls raise NetworkFailure when it breaks off."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    async def read(self) -> bytes:
        """All of it."""

    def lines(self) -> AsyncIterator[str]:
        """Line by line, as they come."""


class Line(Protocol):
    """The way to one address: as many connections as there are requests at a time.

    A connection on which no answer came, or whose request was cancelled, is closed; the others are
    kept for the next request. Where no whole answer comes, NetworkFailure is raised.
    """

    @property
    def base(self) -> str:
        """The base URL."""

    async def request(self, request: Request, seconds: float) -> Answer:
        """Send a request and wait so long for the next bit of the answer."""

    def stream(self, request: Request, quiet: float) -> AbstractAsyncContextManager[Stream]:
        """Send a request whose answer may be quiet for so many seconds."""

    def anew(self) -> Line:
        """Another line to the same address, trusted as this one, that has no connection yet."""

    async def aclose(self) -> None:
        """Close all connections."""


class Network(Protocol):
    """Where addresses are looked up and lines are opened."""

    async def addresses_of(self, name: str, seconds: float) -> list[str]:
        """The addresses of a name, at least one, else NetworkFailure; an address is its own."""

    async def open(self, place: RegistryPlace, address: str, seconds: float) -> Line:
        """A line to an IP address of that place, with a port of its own or without.

        Nothing is sent to whoever has not proven what the place says: NetworkFailure is raised.
        `seconds` is the time-out of each connection that is opened, and of what is sent on it.
        """
