"""Floods of a real registry while a healthy run forms, and another one trains."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest

from rendezvous.compat import timeout
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.talk.retry import retry_pause
from rendezvous.wire.errors import RegistryError
from rendezvous.wire.run import Phase
from tests.support.nightly import at_night
from tests.support.registry import Launch, Node, Registry, running, unverified
from tests.support.waiting import soon

NODES = 16
FLOOD_SECONDS = 10.0
SPAWNED = get_context("spawn")
FLOODS = [
    at_night("bad logins", False),
    ("answers never read", False),
    at_night("half headers", True),
    at_night("nothing sent", True),
    at_night("connect and go", True),
]
ENDLESS = ("bad logins", "answers never read", "connect and go")

pytestmark = [pytest.mark.real_time, pytest.mark.fuzz, pytest.mark.timeout(120)]


# The strangers

HEAD = f"Host: {SERVER_NAME}\r\n".encode()
BAD = b"Authorization: Bearer n.0.1." + b"A" * 43 + b"\r\n"
LOGIN = b"GET /v1/runs/demo/nodes/0/watch HTTP/1.1\r\n" + HEAD + BAD + b"\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n"
_PIPELINED = 10
_MANY = 1_000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Tally:
    """What became of the flood."""

    connections: int = 0
    ended: int = 0
    slowest_end: float = 0.0
    requests: int = 0


@dataclass
class Flood:
    """Where to, and what became of it."""

    port: int
    tls: bool
    seconds: float = FLOOD_SECONDS
    tally: Tally = field(default_factory=Tally)

    async def connect(self, *, quiet: bool = False) -> Streams:
        """A connection; a quiet one speaks no TLS."""
        context = unverified() if self.tls and not quiet else None
        # The server may end it before our side of the handshake is through.
        made = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
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


def send(kind: str, port: int, tls: bool) -> Tally:
    """All of a flood at once: for a process of its own."""

    async def work() -> Tally:
        count, one = KINDS[kind]
        flood = Flood(port, tls)
        await asyncio.gather(*(one(flood) for _ in range(count)))
        return flood.tally

    return asyncio.run(work())


# The registry, and those who use it


def megabytes(registry: Registry) -> float:
    """Resident memory of the registry."""
    return float(psutil.Process(registry.pid).memory_info().rss) / 2**20


def established(registry: Registry) -> bool:
    """Whether the registry has a connection."""
    connections = psutil.Process(registry.pid).net_connections("tcp")
    return any(each.status == psutil.CONN_ESTABLISHED for each in connections)


@contextlib.asynccontextmanager
async def nodes_of(registry: Registry, launch: Launch) -> AsyncIterator[list[Node]]:
    """The nodes of a run, which have not joined yet."""
    await registry.create(launch, NODES)
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Node(registry.place, launch, slot))
            for slot in range(NODES)
        ]


async def form(registry: Registry, number: int) -> float:
    """A run of its own comes to its go and ends; how long it took."""
    async with nodes_of(registry, Launch(f"healthy-{number}")) as nodes:
        started = time.monotonic()
        views = await asyncio.gather(*(node.run() for node in nodes))
        took = time.monotonic() - started
        assert len({view.digest for view in views}) == 1
        ends = await asyncio.gather(*(node.finish() for node in nodes))
        assert {end.result.status for end in ends if end.result} == {"ok"}
    return took


async def look(registry: Registry, seconds: list[float]) -> None:
    """A person looks at the runs until cancelled; how long each answer took."""
    async with registry.client() as client:
        while True:
            started = time.monotonic()
            await client.runs()
            seconds.append(time.monotonic() - started)
            await asyncio.sleep(0.02)


async def hold(node: Node) -> None:
    """Watch, as a node does that trains, until cancelled."""
    while True:
        try:
            await node.watch()
        except RegistryError:
            await asyncio.sleep(retry_pause())


@pytest.mark.parametrize(("kind", "tls"), FLOODS)
async def test_a_flood_costs_a_healthy_run_no_node(tmp_path: Path, kind: str, tls: bool) -> None:
    standing = Launch("standing")
    with running(tmp_path, tls=tls) as registry, ProcessPoolExecutor(1, SPAWNED) as pool:
        async with nodes_of(registry, standing) as nodes:
            await asyncio.gather(*(node.run() for node in nodes))
            await form(registry, 0)
            before, formed, answers = megabytes(registry), list[float](), list[float]()
            beside = asyncio.gather(*(hold(node) for node in nodes), look(registry, answers))
            loop = asyncio.get_running_loop()
            flooding = loop.run_in_executor(pool, send, kind, registry.port, tls)
            while not flooding.done() or not formed:
                formed.append(await form(registry, len(formed) + 1))
            tally = await flooding
            status = await registry.status(standing)
            beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beside
        await soon(lambda: not established(registry))
        growth = megabytes(registry) - before
        print(f"{max(formed):.2f} s, {max(answers):.2f} s; {tally}; {growth:+.0f} MB")
        assert (status.phase, status.result) == (Phase.RUNNING, None)
        assert [slot.incarnation for slot in status.slots] == [1] * NODES
        if kind not in ENDLESS:
            assert tally.ended == tally.connections
            assert tally.slowest_end < 15
        assert max(formed) < 20
        assert sorted(answers)[int(len(answers) * 0.99)] < 5  # a lease is 15: no node is near it
        # With TLS, some 50 kB stay for each connection that there ever was at once.
        assert growth < (120 if tls else 40)
        assert "Traceback" not in registry.log
