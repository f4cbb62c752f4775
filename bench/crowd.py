"""Many nodes in one process: a lean client of the registry, without a framework.

Each node has a connection of its own and does what an agent does: join, watch, check the table
against its digest, acknowledge, watch, leave. Requests carry the headers that the real client
sends; sockets are read by epoll.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from bench.offer import make_join
from rendezvous.talk.credentials import SERVER_NAME, RunKeys
from rendezvous.talk.http_network import client_context
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.reports import LeaveReport, Report
from rendezvous.wire.table import canonical_json

_HEADERS = (
    f"Host: {SERVER_NAME}\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nConnection: keep-alive\r\n"
    "User-Agent: python-httpx/0.28.1\r\nContent-Type: application/json\r\n"
)
# The registry gives a TLS handshake 5 s, and makes some hundreds in a second.
_STARTS_AT_ONCE = 512
_LIMIT_SECONDS = 120.0
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")
_BUFFER = memoryview(bytearray(1 << 20))


class WrongAnswer(Exception):
    """The registry answered what no node can use."""


class State(Enum):
    """How far a simulated node has come."""

    CLOSED = auto()
    OPENING = auto()
    READY = auto()
    JOINING = auto()
    WATCHING = auto()
    LEAVING = auto()
    LEFT = auto()


@dataclass(slots=True)
class SimulatedNode:
    """One node and its connection."""

    slot: int
    connection: socket.socket | ssl.SSLSocket | None = None
    state: State = State.CLOSED
    join: bytes = b""
    watch: bytes = b""
    credential: str = ""
    after: int = 0
    ack: bytes = b""
    received: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Progress:
    """How many nodes of a crowd have come how far in this round, and when the last one did."""

    parked: set[int] = field(default_factory=set)
    with_table: int = 0
    running: int = 0
    left: int = 0
    table_at: float = 0.0
    running_at: float = 0.0


class TableCheck:
    """Checks each answer that brings a table against the digest that it names.

    The canonical form is parsed and hashed for the first of equal answers; the others are good if
    they are equal to it, byte for byte.
    """

    def __init__(self) -> None:
        self._checked = b""
        self._view: dict[str, Any] = {}

    def view(self, body: bytes, *, zipped: bool) -> dict[str, Any]:
        """The view in this answer; raises WrongAnswer when its table is not what it says."""
        if body == self._checked:
            return self._view
        view: dict[str, Any] = json.loads(gzip.decompress(body) if zipped else body)
        if view.get("table") is not None:
            digest = hashlib.sha256(canonical_json(view["table"])).hexdigest()
            if digest != view["digest"]:
                raise WrongAnswer(f"the table has digest {digest}, not {view['digest']}")
            self._checked, self._view = body, view
        return view


class Crowd:
    """The nodes of some slots, in one run after the other, on connections that stay.

    Args:
        place: Where the registry is.
        slots: The slots whose nodes live here.
    """

    def __init__(self, place: RegistryPlace, slots: Iterable[int]) -> None:
        self._place = place
        self._context = client_context(place.proof) if place.proof else None
        self._epoll = select.epoll()
        self._check = TableCheck()
        self._by_file: dict[int, SimulatedNode] = {}
        self._to_open: deque[SimulatedNode] = deque()
        self._starting: set[int] = set()
        self._joins_at_once = False
        self.nodes = {slot: SimulatedNode(slot) for slot in slots}
        self.progress = Progress()

    # --- what the driver asks for -------------------------------------------------------------

    def open(self, *, join: bool = False) -> None:
        """Open all connections; with `join`, each node joins as soon as its own is open."""
        self._joins_at_once = join
        self._to_open.extend(self.nodes.values())
        if not join:
            self.pump(lambda: not self._to_open and not self._starting)

    def prepare(self, keys: RunKeys) -> None:
        """Write the joins of the next run."""
        self._run = f"/v1/runs/{keys.run}/nodes"
        self.progress = Progress()
        for node in self.nodes.values():
            body = make_join(keys, node.slot).model_dump_json().encode()
            node.join = self._request("POST", "", keys.join_token(node.slot, 1).text(), body)

    def arrive(self, slots: Iterable[int]) -> None:
        """Have these nodes join."""
        for slot in slots:
            self._join(self.nodes[slot])

    def pump(self, done: Callable[[], bool]) -> None:
        """Serve all nodes until something is true."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the nodes came to {self.progress} within {_LIMIT_SECONDS:g} s")
            self.turn(0.1)

    def turn(self, seconds: float, watched: int = -1) -> bool:
        """Serve who can be served; returns whether the file `watched` has something."""
        while self._to_open and len(self._starting) < _STARTS_AT_ONCE:
            self._open(self._to_open.popleft())
        seen = False
        for file, _ in self._epoll.poll(seconds):
            node = self._by_file.get(file)
            if node is None:
                seen |= file == watched
            elif node.state is State.OPENING:
                self._shake_hands(node)
            else:
                self._receive(node)
        return seen

    def watch_file(self, file: int) -> None:
        """Have `turn` come back for this file as well."""
        self._epoll.register(file, select.EPOLLIN)

    # --- connections --------------------------------------------------------------------------

    def _open(self, node: SimulatedNode) -> None:
        connection = socket.create_connection((self._place.addresses[0], self._place.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self._starting.add(node.slot)
        node.connection, node.state = connection, State.OPENING
        if self._context is not None:
            node.connection = self._context.wrap_socket(
                connection, server_hostname=SERVER_NAME, do_handshake_on_connect=False
            )
        self._by_file[node.connection.fileno()] = node
        self._epoll.register(node.connection.fileno(), select.EPOLLIN)
        self._shake_hands(node)

    def _shake_hands(self, node: SimulatedNode) -> None:
        if isinstance(node.connection, ssl.SSLSocket):
            try:
                node.connection.do_handshake()
            except ssl.SSLWantReadError:
                return
        node.state = State.READY
        if self._joins_at_once:
            self._join(node)
        else:
            self._starting.discard(node.slot)

    def _request(self, method: str, path: str, credential: str, body: bytes = b"") -> bytes:
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        head = f"{method} {self._run}{path} HTTP/1.1\r\n{_HEADERS}{length}"
        return f"{head}Authorization: Bearer {credential}\r\n\r\n".encode() + body

    def _send(self, node: SimulatedNode, request: bytes, state: State) -> None:
        assert node.connection is not None
        node.state = state
        sent = node.connection.send(request)
        assert sent == len(request), "a request fits into an empty socket"

    def _receive(self, node: SimulatedNode) -> None:
        """Take in what has come; act on it when it is a whole answer."""
        assert node.connection is not None
        received = node.received
        while True:
            try:
                count = node.connection.recv_into(_BUFFER)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not count:
                raise WrongAnswer(f"the registry closed the connection of slot {node.slot}")
            received += _BUFFER[:count]
            if (whole := _whole_answer(received)) is not None:
                received.clear()
                self._act(node, *whole)
                return

    # --- what a node does ---------------------------------------------------------------------

    def _join(self, node: SimulatedNode) -> None:
        self._send(node, node.join, State.JOINING)

    def _watch(self, node: SimulatedNode) -> None:
        ack, node.ack = node.ack, b""
        self._send(node, node.watch % (node.after, ack), State.WATCHING)

    def _act(self, node: SimulatedNode, head: bytes, body: bytes) -> None:
        if not head.startswith(b"HTTP/1.1 200 "):
            raise WrongAnswer(f"slot {node.slot}: {head[:40]!r} {body[:300]!r}")
        if node.state is State.WATCHING:
            zipped = b"content-encoding: gzip" in head
            self._take_in(node, self._check.view(body, zipped=zipped))
        elif node.state is State.LEAVING:
            node.state = State.LEFT
            self.progress.left += 1
        else:
            self._joined(node, json.loads(body)["credential"])

    def _joined(self, node: SimulatedNode, credential: str) -> None:
        self._starting.discard(node.slot)
        node.after = 0
        # The number is put in for each poll, the rest is written once.
        path = f"/{node.slot}/watch?after="
        node.watch = self._request("GET", path + "%d%s", credential)
        node.credential = credential
        self._watch(node)

    def _take_in(self, node: SimulatedNode, view: dict[str, Any]) -> None:
        """What a node does with news; a poll without any is repeated."""
        progress, now = self.progress, time.monotonic()
        news = view["seq"] != node.after
        node.after = view["seq"]
        if view["phase"] == "finished":
            self._report(node, LeaveReport(), State.LEAVING)
            return
        if news and view["phase"] == "arming":
            progress.with_table += 1
            progress.table_at = now
            node.ack = b"&epoch=%d&ack=%s" % (view["epoch"], view["digest"].encode())
            self._watch(node)
            return
        if news and view["phase"] == "running":
            progress.running += 1
            progress.running_at = now
        progress.parked.add(node.slot)
        self._watch(node)

    def _report(self, node: SimulatedNode, report: Report, state: State) -> None:
        body = report.model_dump_json().encode()
        path = f"/{node.slot}/reports"
        self._send(node, self._request("POST", path, node.credential, body), state)


def _whole_answer(received: bytearray) -> tuple[bytes, bytes] | None:
    """Head and body of the answer, once all of it is there."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    stated = _LENGTH.search(received, 0, end + 2)
    if stated is None:
        raise WrongAnswer(f"an answer without its length: {bytes(received[:200])!r}")
    length = int(stated.group(1))
    if len(received) < end + 4 + length:
        return None
    return bytes(received[:end]), bytes(received[end + 4 :])
