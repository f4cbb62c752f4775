"""The registry's door on connections that are no sockets: bytes in, answers out."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import h11
from uvicorn.server import ServerState

from rendezvous.registry.app import make_app
from rendezvous.registry.journal import MemoryJournal, Record
from rendezvous.registry.options import Options
from rendezvous.registry.service import Service
from rendezvous.run.decision import dump_entry
from rendezvous.run.events import Created, Event, Joined
from rendezvous.run.protocol import decide
from rendezvous.run.state import create
from rendezvous.serving.connection_rules import ConnectionRules
from rendezvous.serving.http11 import GuardedProtocol
from rendezvous.serving.limiter import Strangers
from rendezvous.serving.room import Room
from rendezvous.talk.credentials import SERVER_NAME, node_credential
from tests.support.registry import Launch

_LAUNCH = Launch("demo", secret=bytes(32))
_NODE = node_credential(bytes(32), "demo", _LAUNCH.keys.launch_id, 0, 1).text()
_HEAD = f"Host: {SERVER_NAME}\r\nAuthorization: Bearer r.{'A' * 43}\r\n"
_GOOD = f"Host: {SERVER_NAME}\r\nAuthorization: Bearer {_NODE}\r\n"
_TURNS = 100


async def _recovered() -> Service:
    """A registry with one run, in which slot 0 is filled."""
    journal = MemoryJournal()
    spec = _LAUNCH.spec(2, lease_seconds=3600)
    run = create("demo", spec, 0.0)
    happened: list[Event] = [Created(run="demo", spec=spec), Joined(request=_LAUNCH.join(0))]
    for number, event in enumerate(happened):
        body = dump_entry(event, decide(run, event, 0.0))
        await journal.append([Record("demo", number + 1, 0.0, body)])
    service = Service(journal, bytes(32), "", options=Options(trust_close=False))
    await service.sequencer.recover()
    return service


class Wire(asyncio.Transport):
    """One end of a connection: keeps what is written, and the socket options that are set."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        super().__init__({"socket": sock, "peername": (peer, 4711)})
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        """See the base class."""
        assert not self.closed, "written after its end"
        self.written += data

    def is_closing(self) -> bool:
        """See the base class."""
        return self.closed

    def close(self) -> None:
        """See the base class."""
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        """See the base class."""

    def resume_reading(self) -> None:
        """See the base class."""


class Door:
    """The real application behind the real protocol, for one connection at a time."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.sock = socket.socket()
        self.peers = 0
        service = self.loop.run_until_complete(_recovered())
        self.serving = self.loop.create_task(service.serve())
        self.app = make_app(service, allowed_hosts=[SERVER_NAME])
        self.state = ServerState()

    def feed(self, pieces: list[bytes]) -> bytes:
        """What a peer gets that sends these pieces and closes; nothing is left behind."""
        return self.loop.run_until_complete(self._feed(pieces))

    async def _feed(self, pieces: list[bytes]) -> bytes:
        # Each from an address of its own, or all of them would soon have to wait for their turn.
        self.peers += 1
        wire = Wire(self.sock, str(ipaddress.IPv4Address("10.0.0.0") + self.peers))
        protocol = GuardedProtocol(self.app, self.state, self.loop, rules=ConnectionRules(Room(10)))
        protocol.connection_made(wire)
        for piece in pieces:
            if not wire.closed:
                protocol.data_received(piece)
                await self._rest()
        protocol.connection_lost(None)
        await self._rest()
        assert not self.serving.done(), "the registry has ended"
        assert not self.state.connections
        parked = list(self.state.tasks)
        # A poll of the node goes on until its time is over, and a stranger's request beyond the
        # first ones until it may be answered: neither is waited for here.
        is_paced = protocol.connection.asked > Strangers.CONNECTION.burst
        assert not parked or is_paced or _NODE.encode() in b"".join(pieces)
        for task in parked:
            task.cancel()
        await asyncio.gather(*parked, return_exceptions=True)
        return wire.written

    async def _rest(self) -> None:
        for _ in range(_TURNS):
            if not self.state.tasks:
                return
            await asyncio.sleep(0)


_doors: list[Door] = []


def check_door(data: bytes) -> None:
    """Every answer is whole HTTP, and none says that the registry failed."""
    if not _doors:
        _doors.append(Door())
    # The first byte says where the peer pauses.
    cut = data[0] if data else 0
    pieces = [piece for piece in (data[1 : 1 + cut], data[1 + cut :]) if piece]
    for status in statuses(_doors[0].feed(pieces)):
        assert status < 500, status


def statuses(answers: bytes) -> list[int]:
    """The statuses of answers that stand one after the other; raises when one is not whole."""
    found = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("Host", SERVER_NAME)]))
        client.receive_data(head + b"\r\n\r\n")
        answer = client.next_event()
        assert isinstance(answer, h11.Response | h11.InformationalResponse)
        found.append(answer.status_code)
        length = int(dict(answer.headers).get(b"content-length", b"0"))
        bodiless = rest.startswith(b"HTTP/1.1 ") or not rest  # the answer to a HEAD
        assert bodiless or len(rest) >= length
        answers = rest if bodiless else rest[length:]
    return found


def door_seeds() -> list[bytes]:
    """A request of each manner."""
    report = '{"kind": "probe", "epoch": 0}'
    size = len(report)
    requests = [
        f"GET /v1/runs/demo/nodes/0/watch HTTP/1.1\r\n{_GOOD}\r\n" * 2,
        f"GET /v1/runs/demo/nodes/0/watch HTTP/1.1\r\n{_GOOD}Connection: close\r\n\r\nGET /",
        f"GET /v1/runs/demo/nodes/0/watch HTTP/1.1\r\n{_GOOD}Content-Length: 3\r\n\r\nabcGET /",
        (
            f"GET /v1/runs/demo/nodes/0/watch HTTP/1.1\r\n{_GOOD}Accept-Encoding: gzip\r\n\r\nPOST "
            f"/v1/runs/demo/nodes/0/reports HTTP/1.1\r\n{_GOOD}Content-Length: {size}\r\n\r\n"
            f"{report}GET /v1/runs/demo/nodes/0/watch?after=99 HTTP/1.1\r\n{_GOOD}\r\n"
        ),
        f"GET /healthz HTTP/1.1\r\n{_HEAD}\r\n",
        f"GET /v1/runs/demo/nodes/0/watch?after=3 HTTP/1.1\r\n{_HEAD}\r\n" * 3,
        f"GET /v1/runs/demo/nodes/0/watch HTTP/1.1\r\nHost: {SERVER_NAME}\r\n\r\n" * 3,
        (
            "GET /v1/runs/demo/nodes/0/watch?after=99 HTTP/1.1\r\n"
            f"{_GOOD.replace('n.0.1.', 'n.0.01.')}\r\n"
        ),
        f"POST /v1/runs/demo/nodes HTTP/1.1\r\n{_HEAD}Content-Length: 2\r\n\r\n{{}}",
        f"PUT /v1/runs/demo HTTP/1.1\r\n{_HEAD}Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
        f"POST / HTTP/1.1\r\n{_HEAD}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        f"GET / HTTP/1.1\r\n{_HEAD}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        f"HEAD /metrics HTTP/1.0\r\n{_HEAD}Connection: keep-alive\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        f"CONNECT a:1 HTTP/1.1\r\n{_HEAD}\r\n",
        "DELETE /v1/runs/demo?reason=%0a%ff HTTP/1.1\r\nHost: evil\r\nOrigin: null\r\n\r\n",
    ]
    return [bytes([0xFF if n % 2 else 20]) + text.encode() for n, text in enumerate(requests)]
