"""What happens while a page is measured: nodes that tell something, and other viewers.

Each lives in a process of its own: the browser's driver holds the loop of the benchmark's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import httpx

from bench.children import forked, heard
from rendezvous.compat import TaskGroup
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.reports import ProgressReport

MARK = "mark"
_LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Told:
    """A report of a node, by this machine's monotonic clock.

    Attributes:
        sent: When it was sent.
        answered: When its registry had answered: it had committed it before.
    """

    mark: int
    sent: float
    answered: float


class Teller:
    """Nodes whose programs tell how they are."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._told = 0

    def begin(self, rate: float, seconds: float) -> None:
        """Have the nodes tell so many lines a second in turn; `ended` waits for the last one."""
        count = round(rate * seconds)
        order = {"first": self._told + 1, "count": count, "pause": 1 / rate}
        self._told += count
        self._control.send_bytes(json.dumps(order).encode())

    def ended(self) -> list[Told]:
        """What was told, once all of it was."""
        said = json.loads(heard(self._control, _LIMIT_SECONDS))
        return [Told(*one) for one in said]


def _tell(
    control: Connection, place: RegistryPlace, run: str, credentials: Mapping[int, str]
) -> None:
    asyncio.run(_telling(control, place, run, credentials))


async def _telling(
    control: Connection, place: RegistryPlace, run: str, credentials: Mapping[int, str]
) -> None:
    keys = sorted(credentials.items())
    async with RegistryClient(place, keys[0][1]) as client:
        await client.connect()
        while True:
            order = json.loads(await asyncio.to_thread(control.recv_bytes))
            due, told = time.monotonic(), []
            for mark in range(order["first"], order["first"] + order["count"]):
                slot, credential = keys[mark % len(keys)]
                client.credential = credential
                await asyncio.sleep(due - time.monotonic())
                sent = time.monotonic()
                report = ProgressReport(epoch=1, words=f"{MARK} {mark}", warning=True)
                await client.report(run, slot, report)
                told.append((mark, sent, time.monotonic()))
                due += order["pause"]
            control.send_bytes(json.dumps(told).encode())


@contextlib.contextmanager
def teller(place: RegistryPlace, run: str, credentials: Mapping[int, str]) -> Iterator[Teller]:
    """A process that tells; ended afterwards."""
    with forked(_tell, [(place, run, credentials)]) as controls:
        yield Teller(controls[0])


# --- viewers ------------------------------------------------------------------------------------


def _view(control: Connection) -> None:
    asyncio.run(_viewing(control))


async def _viewing(control: Connection) -> None:
    """Open one session, and so many streams of it."""
    order = json.loads(await asyncio.to_thread(control.recv_bytes))
    link, run = urlsplit(order["link"]), order["run"]
    base = f"{link.scheme}://{link.netloc}/ui-api"
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=60.0) as client:
        ticket = link.fragment.removeprefix("t=")
        opened = (await client.post("/session", json={"ticket": ticket})).json()
        client.headers["x-rdzv-session"] = opened["session"]
        begun = [asyncio.Event() for _ in range(order["viewers"])]
        async with TaskGroup() as group:
            for one in begun:
                group.create_task(_keep_viewing(client, f"/runs/{run}", one))
            await asyncio.gather(*(one.wait() for one in begun))
            control.send_bytes(b"{}")


async def _keep_viewing(client: httpx.AsyncClient, run: str, begun: asyncio.Event) -> None:
    """As a page does: its state, and the stream after it, which may end because too much is new."""
    state = (await client.get(f"{run}/state")).json()
    begun.set()
    with contextlib.suppress(httpx.TransportError, OSError):  # the page has ended before them
        while True:
            await _read_stream(client, f"{client.base_url.path}{run.lstrip('/')}", state["n"])
            state = (await client.get(f"{run}/state")).json()


async def _read_stream(client: httpx.AsyncClient, run: str, after: int) -> None:
    """A lean reader: what 20 viewers cost is to be the page's, not theirs."""
    host, port = client.base_url.host, client.base_url.port
    reader, writer = await asyncio.open_connection(host, port)
    lines = [f"GET {run}/stream?after={after} HTTP/1.1", f"Host: {host}:{port}"]
    lines += [f"x-rdzv-session: {client.headers['x-rdzv-session']}", "Connection: close"]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    first = await reader.read(65_536)
    assert first.startswith(b"HTTP/1.1 200"), first
    while await reader.read(65_536):
        pass
    writer.close()


class Viewers:
    """Nobody, until asked."""

    def __init__(self, control: Connection) -> None:
        self._control = control

    def watch(self, link: str, run: str, count: int) -> None:
        """Read the stream of the page so many times from now on."""
        order = {"link": link, "run": run, "viewers": count}
        self._control.send_bytes(json.dumps(order).encode())
        heard(self._control, _LIMIT_SECONDS)


@contextlib.contextmanager
def viewers() -> Iterator[Viewers]:
    """A process that can view a page; ended afterwards."""
    with forked(_view, [()]) as controls:
        yield Viewers(controls[0])
