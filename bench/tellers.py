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
    """Open one session and so many streams of it, and count what comes."""
    order = json.loads(await asyncio.to_thread(control.recv_bytes))
    link, run = urlsplit(order["link"]), order["run"]
    base = f"{link.scheme}://{link.netloc}/ui-api"
    async with httpx.AsyncClient(trust_env=False) as client:
        ticket = link.fragment.removeprefix("t=")
        opened = (await client.post(f"{base}/session", json={"ticket": ticket})).json()
        headers = {"x-rdzv-session": opened["session"]}
        state = (await client.get(f"{base}/runs/{run}/state", headers=headers)).json()
    path = f"/ui-api/runs/{run}/stream?after={state['n']}"
    lines = [f"GET {path} HTTP/1.1", f"Host: {link.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    request = ("\r\n".join(lines) + "\r\n\r\n").encode()
    streams = [
        await asyncio.open_connection(link.hostname, link.port) for _ in range(order["viewers"])
    ]
    for _, writer in streams:
        writer.write(request)
    firsts = await asyncio.gather(*(reader.read(65_536) for reader, _ in streams))
    assert all(first.startswith(b"HTTP/1.1 200") for first in firsts), firsts[0]
    control.send_bytes(b"{}")
    await asyncio.gather(*(_read_on(reader) for reader, _ in streams))


async def _read_on(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


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
