"""The floods, each a program of its own: `python -m tests.attack.floods KIND PORT TLS SECONDS`.

Prints one JSON object when it is through: how many connections were made, how many of them the
registry ended (and the slowest of these, in seconds), how many requests it took.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

from rendezvous.compat import timeout
from rendezvous.talk.credentials import SERVER_NAME

HEAD = f"Host: {SERVER_NAME}\r\n".encode()
BAD = b"Authorization: Bearer n.0.1." + b"A" * 43 + b"\r\n"
LOGIN = b"GET /v1/runs/demo/nodes/0/watch HTTP/1.1\r\n" + HEAD + BAD + b"\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n"
_PIPELINED = 10
_MANY = 1_000


@dataclass
class Tally:
    """What became of the flood."""

    connections: int = 0
    ended: int = 0
    slowest_end: float = 0.0
    requests: int = 0


@dataclass
class Flood:
    """Where to, and for how long."""

    port: int
    tls: bool
    seconds: float
    tally: Tally = field(default_factory=Tally)

    async def connect(
        self, *, quiet: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection; a quiet one speaks no TLS."""
        context = None
        if self.tls and not quiet:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        # The server may end it before our side of the handshake is through.
        name = SERVER_NAME if context else None
        made = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname=name
        )
        self.tally.connections += 1
        return made

    async def slow(self, begin: bytes, drip: bytes, *, quiet: bool = False) -> None:
        """Send a beginning, then a drop each second, until the other side has had enough."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            reader, writer = await self.connect(quiet=quiet)
            opened = time.monotonic()
            writer.write(begin)
            ended = asyncio.create_task(_to_end(reader))
            while not ended.done() and time.monotonic() - opened < self.seconds:
                await asyncio.wait({ended}, timeout=1)
                writer.write(drip)
            if ended.done():
                self.tally.ended += 1
                self.tally.slowest_end = max(self.tally.slowest_end, time.monotonic() - opened)
            ended.cancel()
            writer.transport.abort()

    async def ask(self, request: bytes, end: bytes) -> None:
        """The same request, as fast as it is answered."""
        reader, writer = await self.connect()
        with contextlib.suppress(TimeoutError):
            async with timeout(self.seconds):
                while True:
                    writer.write(request * _PIPELINED)
                    for _ in range(_PIPELINED):
                        await reader.readuntil(end)
                        self.tally.requests += 1
        writer.transport.abort()

    async def deaf(self, request: bytes) -> None:
        """The same request again and again, and no answer is read."""
        _, writer = await self.connect()
        with contextlib.suppress(TimeoutError, ConnectionError, ssl.SSLError):
            async with timeout(self.seconds):
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                while True:
                    writer.write(request * _MANY)
                    await writer.drain()
                    self.tally.requests += _MANY
        writer.transport.abort()

    async def doors(self) -> None:
        """Connect and go, as fast as it can be done."""
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                _, writer = await self.connect(quiet=True)
                writer.transport.abort()
            await asyncio.sleep(0)


async def _to_end(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while await reader.read(65536):
            pass


KINDS: dict[str, tuple[int, Callable[[Flood], Awaitable[None]]]] = {
    "nothing sent": (1000, lambda f: f.slow(b"", b"", quiet=True)),
    "half headers": (1000, lambda f: f.slow(b"GET /v1/runs HTTP/1.1\r\n" + HEAD, b"a: b\r\n")),
    "bad logins": (20, lambda f: f.ask(LOGIN, b"retryable")),
    "answers never read": (200, lambda f: f.deaf(HEALTH)),
    "connect and go": (20, Flood.doors),
}
"""How many at once, and what each of them does."""


async def run(kind: str, flood: Flood) -> Tally:
    """All of a flood at once."""
    count, one = KINDS[kind]
    await asyncio.gather(*(one(flood) for _ in range(count)))
    return flood.tally


if __name__ == "__main__":
    _, chosen, port, tls, seconds = sys.argv
    tally = asyncio.run(run(chosen, Flood(int(port), tls == "tls", float(seconds))))
    print(json.dumps(asdict(tally)))
