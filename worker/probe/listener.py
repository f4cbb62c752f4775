"""Where a node answers its peers' probes, from before it joins until the go.

Only who proves to be a node of the run is answered; the rest is bounded: a connection that does not
begin with a hello is closed, so is one whose hello was said before (somebody has overheard it), and
of too many that have said nothing yet the oldest. No connection lasts longer than a visit may.

Sockets are read in the event loop without its transports, which would cost more than all else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

from worker.machine.kernel import ephemeral_range, reserved_ports
from worker.probe.packets import BULK_BYTES, HELLO_BYTES, RECEIPT, Identity, Packets
from worker.probe.ports import ports_to_try
from worker.probe.waiting import Readers

_BACKLOG = 1_024
_MOST_UNPROVEN = 256
_MOST_AT_ONCE = 64
_LIFE_SECONDS = 10.0
_MOST_NONCES = 65_536  # some 10 MiB; the nodes of a run say fewer hellos by far
_PAUSE_SECONDS = 0.1
_SEND_BUFFER_BYTES = 4 * BULK_BYTES  # so that whatever is answered fits in at once


class ProbeListener:
    """Answers probes by TCP and UDP, on all addresses and one port; in the running event loop.

    Which port it is, `worker.probe.ports` says.

    Args:
        identity: Who answers.
        clock: Seconds since 1970, for the peers to compare with theirs.
        loopback: All nodes live on this machine: nobody else is listened to.
        within: The first and the last port that will do; None: any.
        avoid: Ports that something else of the run will need.
        life_seconds: How long a connection may last.

    Raises:
        OSError: No port can be had.

    Attributes:
        port: Where it answers.
    """

    def __init__(
        self,
        identity: Identity,
        clock: Callable[[], float] = time.time,  # noqa: TID251 (the skew is what is asked)
        *,
        loopback: bool = False,
        within: tuple[int, int] | None = None,
        avoid: Collection[int] = (),
        life_seconds: float = _LIFE_SECONDS,
    ) -> None:
        self._packets = Packets(identity)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        taken = {*avoid, *reserved_ports()} if within is None else {*avoid}
        ports = ports_to_try(identity.launch_id, ephemeral_range(), within, taken)
        self._stream, self._datagrams = _bind(ports, avoid, loopback=loopback)
        self.port: int = self._stream.getsockname()[1]
        self._life_seconds = life_seconds
        self._visitors: dict[socket.socket, _Visitor] = {}
        self._nonces: dict[bytes, None] = {}
        self._buffer = bytearray(HELLO_BYTES)
        self._pause: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._readers = Readers()
        self._readers.add(self._stream.fileno(), self._accept)
        self._readers.add(self._datagrams.fileno(), self._echo)

    def __enter__(self) -> ProbeListener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer no longer."""
        for timer in (self._pause, self._sweeping):
            if timer is not None:
                timer.cancel()
        for visitor in [*self._visitors.values()]:
            self._dismiss(visitor)
        self._readers.close()
        self._stream.close()
        self._datagrams.close()

    def _accept(self) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                sock, peer = self._stream.accept()
            except BlockingIOError:
                return
            except OSError:  # there is no file left for it, or it is gone again
                self._readers.remove(self._stream.fileno())
                self._pause = self._loop.call_later(
                    _PAUSE_SECONDS, self._readers.add, self._stream.fileno(), self._accept
                )
                return
            sock.setblocking(False)
            visitor = _Visitor(sock, peer[0], self._loop.time())
            self._readers.add(sock.fileno(), partial(self._serve, visitor))
            self._visitors[sock] = visitor
            self._make_room()
            if self._sweeping is None:
                self._sweeping = self._loop.call_later(self._life_seconds, self._sweep)

    def _make_room(self) -> None:
        """Close the oldest of too many who have proven nothing."""
        if len(self._visitors) > _MOST_UNPROVEN:
            unproven = [visitor for visitor in self._visitors.values() if not visitor.proven]
            for visitor in unproven[: len(unproven) - _MOST_UNPROVEN]:
                self._dismiss(visitor)

    def _sweep(self) -> None:
        """Close who has been here too long, and come back when the next one has."""
        self._sweeping = None
        for visitor in [*self._visitors.values()]:
            ends = visitor.came + self._life_seconds
            if ends > self._loop.time():
                self._sweeping = self._loop.call_at(ends, self._sweep)
                return
            self._dismiss(visitor)

    def _dismiss(self, visitor: _Visitor) -> None:
        if self._visitors.pop(visitor.sock, None) is not None:
            self._readers.remove(visitor.sock.fileno())
            visitor.sock.close()

    def _serve(self, visitor: _Visitor) -> None:
        """Take in what has come, and answer it; close when it is nothing that a node would send."""
        try:
            data = visitor.sock.recv(BULK_BYTES + HELLO_BYTES)
            if data and self._answered(visitor, data):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._dismiss(visitor)

    def _answered(self, visitor: _Visitor, data: bytes) -> bool:
        if not visitor.proven:
            visitor.hello += data
            if len(visitor.hello) < HELLO_BYTES:
                return True
            said = self._packets.read_hello("tcp", visitor.hello[:HELLO_BYTES])
            if said is None or not self._is_new(said.nonce):
                return False
            visitor.proven = True
            clock, source = self._clock(), visitor.source
            visitor.sock.send(
                self._packets.reply("tcp", said, clock=clock, source=source, size=HELLO_BYTES)
            )
            data = visitor.hello[HELLO_BYTES:]
            if said.receiver != self._packets.slot:  # it learns who is here, and wants no more
                return False
        if not data:
            return True
        if not visitor.echoed:
            visitor.sock.send(RECEIPT)  # apart: it arrives where packets of full size do not
        visitor.echoed += len(data)
        return visitor.echoed <= BULK_BYTES and visitor.sock.send(data) == len(data)

    def _is_new(self, nonce: bytes) -> bool:
        """Whether a hello was not said before: a node says none twice."""
        if nonce in self._nonces:
            return False
        self._nonces[nonce] = None
        if len(self._nonces) > _MOST_NONCES:
            del self._nonces[next(iter(self._nonces))]
        return True

    def _echo(self) -> None:
        """Tell the nodes of the run which of their datagrams have arrived, in full length."""
        for _ in range(_MOST_AT_ONCE):
            try:
                size, peer = self._datagrams.recvfrom_into(self._buffer, 0, socket.MSG_TRUNC)
                said = self._packets.read_hello("udp", bytes(self._buffer[:size]))
                if said is not None:
                    clock, source = self._clock(), peer[0]
                    reply = self._packets.reply("udp", said, clock=clock, source=source, size=size)
                    self._datagrams.sendto(reply, peer)
            except OSError:  # nothing is left, or the answer finds no way
                return


@dataclass(slots=True)
class _Visitor:
    """A connection of a peer, or of a stranger."""

    sock: socket.socket
    source: str
    came: float
    proven: bool = False
    hello: bytes = b""
    echoed: int = 0


def _bind(
    ports: Iterable[int], avoid: Collection[int], *, loopback: bool
) -> tuple[socket.socket, socket.socket]:
    """Sockets for TCP and UDP on one port, the first of these that can be had; 0: any."""
    problem = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    for port in ports:
        with contextlib.ExitStack() as opened:
            try:
                stream = opened.enter_context(_bound(socket.SOCK_STREAM, port, loopback=loopback))
                stream.listen(_BACKLOG)
                chosen = stream.getsockname()[1]
                datagrams = opened.enter_context(
                    _bound(socket.SOCK_DGRAM, chosen, loopback=loopback)
                )
            except OSError as exc:
                problem = exc
                continue
            if chosen in avoid:
                continue
            opened.pop_all()
            return stream, datagrams
    raise problem


def _bound(kind: socket.SocketKind, port: int, *, loopback: bool) -> socket.socket:
    """A socket on all addresses of this machine, of both families if it has both."""
    try:
        sock = socket.socket(socket.AF_INET6, kind | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        address = "::"
    except OSError:
        sock = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)
        address = "0.0.0.0"  # noqa: S104 (which interface peers can come by is the question)
    try:
        if loopback:
            with contextlib.suppress(PermissionError):  # Linux before 5.7, without privileges
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        if kind == socket.SOCK_STREAM:  # its connections inherit these
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock
