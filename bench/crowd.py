"""Many nodes in one process: a lean client of the registry, without a framework.

Each node has a connection of its own and does what an agent does: join, watch, check the table
against its digest, acknowledge, watch, leave. One that is told to stop its program reports the end
with its next watch; where programs take longer, on a second connection, beside the watch.
Requests carry the headers that the real client sends; sockets are read by epoll.
"""

from __future__ import annotations

import gzip
import json
import re
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from pydantic_core import to_json

from bench.tls import TlsSocket
from rendezvous.talk.credentials import SERVER_NAME, RunKeys
from rendezvous.talk.http_network import client_context
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.macs import sign_join
from rendezvous.talk.retry import retry_pause
from rendezvous.wire.node import Candidate, Facts, Job, JoinRequest, LinkKind
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.reports import ExitReport, LeaveReport, ProgressReport, Report
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView, OtherDigest, read_view

_HEADERS = (
    f"Host: {SERVER_NAME}\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nConnection: keep-alive\r\n"
    "User-Agent: python-httpx/0.28.1\r\nContent-Type: application/json\r\n"
)
# A connection without a request is closed after 5 s, which many take to open.
_GREETING = f"GET /healthz HTTP/1.1\r\n{_HEADERS}\r\n".encode()
# The registry gives a TLS handshake 5 s, and makes some hundreds in a second.
_STARTS_AT_ONCE = 128
_LIMIT_SECONDS = 120.0
MOST_TELLERS = 200
"""The page shows so many slots unless it is asked for more."""
_STOPPED = 143
_FAILED = 1
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")
_BUFFER = memoryview(bytearray(1 << 20))


_LINKS = (
    ("eth0", 20, LinkKind.ETHERNET, 1_500, 25_000, "holds the route to the registry"),
    ("ib0", 60, LinkKind.IPOIB, 2_044, 200_000, "physical and up"),
)


def make_join(keys: RunKeys, slot: int) -> JoinRequest:
    """A node of a usual cluster: one Ethernet and one InfiniBand address, eight GPUs."""
    candidates = [
        Candidate(
            interface=interface,
            address=f"10.{network + slot // 65_536}.{slot // 256 % 256}.{slot % 256}",
            prefix_length=8,
            kind=kind,
            mtu=mtu,
            speed_mbps=speed,
            reason=reason,
        )
        for interface, network, kind, mtu, speed, reason in _LINKS
    ]
    join = JoinRequest(
        slot=slot,
        generation=1,
        join_id=f"join-of-slot-{slot:06d}",
        hostname=f"worker-{slot}",
        nproc_per_node=8,
        candidates=candidates,
        master_port=29_500 if slot == 0 else None,
        protocol=PROTOCOL,
        job=Job(),
        facts=Facts(
            rdzv_version="0.1.0", python_version="3.11.7", gpus=8, cpus=96, boot_id="0" * 36
        ),
    )
    return sign_join(join, keys.row_key, run=keys.run, launch_id=keys.launch_id)


class WrongAnswer(Exception):
    """The registry answered what no node can use."""


class State(Enum):
    """How far a simulated node has come."""

    CLOSED = auto()
    OPENING = auto()
    GREETING = auto()
    READY = auto()
    JOINING = auto()
    WATCHING = auto()
    TELLING = auto()
    LEAVING = auto()
    LEFT = auto()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the registry, as it came."""

    data: bytes
    head: bytes
    body: bytes

    @property
    def is_zipped(self) -> bool:
        """Whether the body is compressed."""
        return b"content-encoding: gzip" in self.head

    @staticmethod
    def in_bytes(received: bytearray) -> Answer | None:
        """The answer, once all of it is there."""
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return None
        stated = _LENGTH.search(received, 0, end + 2)
        if stated is None:
            raise WrongAnswer(f"an answer without its length: {bytes(received[:200])!r}")
        length = int(stated.group(1))
        if len(received) < end + 4 + length:
            return None
        data = bytes(received)
        return Answer(data, data[:end], data[end + 4 :])


@dataclass(slots=True)
class SimulatedNode:
    """One node and its connection; or its second one, which tells reports beside the watch."""

    slot: int
    connection: socket.socket | TlsSocket | None = None
    state: State = State.CLOSED
    join: bytes = b""
    watch: bytes = b""
    credential: str = ""
    after: int = 0
    ack: bytes = b""
    has: bytes = b""
    """The digest of the table that it has, as a watch tells it."""
    epoch: int = 0
    """Of the program that runs; 0 once its end was told."""
    sent: bytes = b""
    """What it asked last."""
    report: bytes = b""
    """What waits until a second connection is open."""
    received: bytearray = field(default_factory=bytearray)
    expected: Answer = Answer(b"", b"", b"")
    known: int = 0
    """Bytes that have come, of an answer that another node has checked: `expected`."""


@dataclass(slots=True)
class Progress:
    """How many nodes of a crowd have come how far in this round, and when the last one did.

    Each restart of the round adds to them once more.
    """

    parked: set[int] = field(default_factory=set)
    running: int = 0
    left: int = 0
    table_at: float = 0.0
    running_at: float = 0.0


class TableCheck:
    """Checks each answer that brings a table against the digest that it names.

    The first of equal answers is read as an agent reads it; `known` is that one. The others are
    good if they are equal to it, byte for byte.
    """

    def __init__(self) -> None:
        self.known = Answer(b"", b"", b"")
        self._view: NodeView | None = None

    def view(self, answer: Answer) -> NodeView:
        """What this answer says; raises WrongAnswer when its table is not what it says."""
        if self._view is not None and answer is self.known:
            return self._view
        body = gzip.decompress(answer.body) if answer.is_zipped else answer.body
        former = self._view.table if self._view is not None else None
        try:
            view = read_view(body, former)
        except OtherDigest as exc:
            raise WrongAnswer(str(exc)) from exc
        if view.table is not None:
            self.known, self._view = answer, view
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
        self._tellers = {slot: SimulatedNode(slot) for slot in self.nodes}
        self.progress = Progress()
        self._due: list[tuple[float, SimulatedNode]] = []
        """Who asks again, by its moment."""
        self.ends_at_once = True
        """Programs that are told to stop end while their node holds its next watch back."""

    # --- what the driver asks for -------------------------------------------------------------

    def open(self, *, join: bool = False) -> None:
        """Open all connections; with `join`, each node joins as soon as its own is open."""
        self._joins_at_once = join
        self._to_open.extend(self.nodes.values())
        if not join:
            self.pump(lambda: not self._to_open and not self._starting)

    def close_second(self) -> None:
        """Close them, once all they told was answered: a report opens its own again."""
        self._joins_at_once = False
        tellers = self._tellers.values()
        self.pump(lambda: all(one.state in (State.CLOSED, State.READY) for one in tellers))
        for one in tellers:
            if one.connection is not None:
                del self._by_file[one.connection.fileno()]
                one.connection.close()
            one.connection, one.state = None, State.CLOSED

    def prepare(self, keys: RunKeys) -> None:
        """Write the joins of the next run."""
        self._run = f"/v1/runs/{keys.run}/nodes"
        self.progress = Progress()
        for node in self.nodes.values():
            body = to_json(make_join(keys, node.slot))
            node.join = self._request("POST", "", keys.join_token(node.slot, 1).text(), body)

    def arrive(self, slots: Iterable[int]) -> None:
        """Have these nodes join."""
        for slot in slots:
            self._send(self.nodes[slot], self.nodes[slot].join, State.JOINING)

    def fail(self, slot: int) -> None:
        """Have the program of a node fail, which has got further than the one before it."""
        epoch = self.nodes[slot].epoch
        words = f"rank {slot}: the program of epoch {epoch} has failed"
        self._tell(
            self.nodes[slot],
            ExitReport(epoch=epoch, exit_code=_FAILED, rank=slot, message=words, progress=epoch),
        )

    def tell(self, first: int, count: int, pause: float) -> list[tuple[int, float, float]]:
        """Have the nodes tell lines in turn, one each pause: its mark, when it was sent, answered.

        The registry has committed it before it answers.
        """
        due, told = time.monotonic(), []
        slots = sorted(self.nodes)[:MOST_TELLERS]
        for mark in range(first, first + count):
            while (left := due - time.monotonic()) > 0:
                self.turn(left)
            node, sent = self.nodes[slots[mark % len(slots)]], time.monotonic()
            self._tell(node, ProgressReport(epoch=1, words=f"mark {mark}", warning=True))
            self.pump(lambda: self._tellers[node.slot].state is State.READY)  # noqa: B023
            told.append((mark, sent, time.monotonic()))
            due += pause
        return told

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
        due, self._due = self._due, []
        for at, node in due:
            if at <= time.monotonic():
                self._send(node, node.sent, node.state)
            else:
                self._due.append((at, node))
                seconds = min(seconds, max(0.0, at - time.monotonic()))
        seen = False
        for file, _ in self._epoll.poll(seconds):
            known = self._by_file.get(file)
            if known is None:
                seen |= file == watched
            elif known.state is State.OPENING:
                self._shake_hands(known)
            else:
                self._receive(known)
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
            node.connection = TlsSocket(connection, self._context, SERVER_NAME)
        self._by_file[node.connection.fileno()] = node
        self._epoll.register(node.connection.fileno(), select.EPOLLIN)
        self._shake_hands(node)

    def _shake_hands(self, node: SimulatedNode) -> None:
        if isinstance(node.connection, TlsSocket):
            try:
                node.connection.shake_hands()
            except BlockingIOError:
                return
        node.state = State.READY
        if self._joins_at_once:
            self._send(node, node.join, State.JOINING)
        elif node.report:
            self._starting.discard(node.slot)
            report, node.report = node.report, b""
            self._send(node, report, State.TELLING)
        else:
            self._send(node, _GREETING, State.GREETING)

    def _request(self, method: str, path: str, credential: str, body: bytes = b"") -> bytes:
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        head = f"{method} {self._run}{path} HTTP/1.1\r\n{_HEADERS}{length}"
        return f"{head}Authorization: Bearer {credential}\r\n\r\n".encode() + body

    def _send(self, node: SimulatedNode, request: bytes, state: State) -> None:
        assert node.connection is not None
        node.state, node.sent = state, request
        sent = node.connection.send(request)
        assert sent == len(request), "a request fits into an empty socket"

    def _receive(self, node: SimulatedNode) -> None:
        """Take in what has come; act on it when it is a whole answer."""
        assert node.connection is not None
        while True:
            try:
                count = node.connection.recv_into(_BUFFER)
            except BlockingIOError:
                return
            if not count:
                raise WrongAnswer(f"the registry closed the connection of slot {node.slot}")
            if self._take(node, _BUFFER[:count]):
                return

    def _take(self, node: SimulatedNode, data: memoryview) -> bool:
        """Add it to what has come, and act on the answer if it is whole; whether it was."""
        received = node.received
        if not received:
            if not node.known:
                node.expected = self._check.known
            if node.expected.data.startswith(data, node.known):
                node.known += len(data)
                if node.known < len(node.expected.data):
                    return False
                node.known = 0
                self._act(node, node.expected)
                return True
            received += node.expected.data[: node.known]
            node.known = 0
        received += data
        if (answer := Answer.in_bytes(received)) is None:
            return False
        received.clear()
        self._act(node, answer)
        return True

    # --- what a node does ---------------------------------------------------------------------

    def _watch(self, node: SimulatedNode) -> None:
        more, node.ack = node.ack or node.has, b""
        self._send(node, node.watch % (node.after, more), State.WATCHING)

    def _act(self, node: SimulatedNode, answer: Answer) -> None:
        if answer.head.startswith(b"HTTP/1.1 503 "):
            self._due.append((time.monotonic() + retry_pause(), node))
            return
        if not answer.head.startswith(b"HTTP/1.1 200 "):
            raise WrongAnswer(f"slot {node.slot}: {answer.head[:40]!r} {answer.body[:300]!r}")
        if node.state is State.WATCHING:
            self._take_in(node, self._check.view(answer))
        elif node.state is State.LEAVING:
            node.state = State.LEFT
            self.progress.left += 1
        elif node.state in (State.GREETING, State.TELLING):
            node.state = State.READY
            self._starting.discard(node.slot)
        else:
            self._joined(node, json.loads(answer.body)["credential"])

    def _joined(self, node: SimulatedNode, credential: str) -> None:
        self._starting.discard(node.slot)
        node.after, node.epoch, node.has = 0, 0, b""
        # The number is put in for each poll, the rest is written once.
        path = f"/{node.slot}/watch?after="
        node.watch = self._request("GET", path + "%d%s", credential)
        node.credential = credential
        self._watch(node)

    def _take_in(self, node: SimulatedNode, view: NodeView) -> None:
        """What a node does with news; a poll without any is repeated."""
        progress, now = self.progress, time.monotonic()
        news = view.seq != node.after
        node.after = view.seq
        if view.phase is Phase.FINISHED:
            self._send(node, self._report(node, LeaveReport()), State.LEAVING)
            return
        if news and view.phase is Phase.ARMING:
            progress.table_at = now
            digest = view.digest.encode()
            node.ack = b"&epoch=%d&ack=%s" % (view.epoch, digest)
            node.has = b"&has=%s" % digest if view.restarts is not None else b""
            self._watch(node)
            return
        if view.phase is Phase.RUNNING and view.stop:
            if node.epoch:
                report = ExitReport(epoch=view.epoch, exit_code=_STOPPED, stopped=True)
                if self.ends_at_once:
                    node.epoch = 0
                    progress.parked.add(node.slot)
                    path = f"watch?after={node.after}{node.has.decode()}"
                    told = self._report(node, report, path)
                    self._send(node, told, State.WATCHING)
                    return
                self._tell(node, report)
        elif news and view.phase is Phase.RUNNING:
            node.epoch = view.epoch
            progress.running += 1
            progress.running_at = now
        progress.parked.add(node.slot)
        self._watch(node)

    def _tell(self, node: SimulatedNode, report: Report) -> None:
        """Tell something beside the watch, on a second connection, opened for it."""
        if isinstance(report, ExitReport):
            node.epoch = 0
        request = self._report(node, report)
        teller = self._tellers[node.slot]
        if teller.state is State.CLOSED:
            teller.report = request
            self._to_open.append(teller)
        else:
            self._send(teller, request, State.TELLING)

    def _report(self, node: SimulatedNode, report: Report, path: str = "reports") -> bytes:
        body = report.model_dump_json().encode()
        return self._request("POST", f"/{node.slot}/{path}", node.credential, body)
