"""A connection to a peer that is visited."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from typing import NamedTuple

from worker.probe.packets import BULK_BYTES
from worker.probe.waiting import Waits

_SEND_BUFFER_BYTES = 4 * BULK_BYTES  # what is sent is taken at once
_RECEIVED_AT_ONCE = BULK_BYTES + 1_024
_TCP_INFO_BYTES = 160
_MIN_RTT = struct.Struct("=I")
_MIN_RTT_AT = 148
_NO_MIN_RTT = 0xFFFF_FFFF
_RECVERR = {
    socket.AF_INET: (socket.IPPROTO_IP, 11),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25),
}
_EXTENDED_ERROR = struct.Struct("=IBBBBII")  # struct sock_extended_err; the offender comes behind
_OF_ICMP = (2, 3)
_ADDRESS_AT = {socket.AF_INET: slice(4, 8), socket.AF_INET6: slice(8, 24)}  # in a sockaddr
_IP_BIND_ADDRESS_NO_PORT = 24  # the port is chosen when connecting, which allows for more of them


class IcmpError(NamedTuple):
    """What ICMP said of a connection that failed: type, code, and who said it."""

    type: int
    code: int
    offender: str


class PeerConnection:
    """A connection to a peer: a context manager, read in the running event loop.

    Leaner than the loop's own transports, which would cost more than all else.

    Args:
        address: Of the peer.
        source: This node's address to leave by; the kernel's choice if empty.
        waits: Read its socket, and end what lasts too long.
    """

    def __init__(self, address: str, source: str, waits: Waits) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._source = source
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._awaited: asyncio.Future[bool] | None = None
        self._size = 0
        self._received = b""
        self._error: OSError | None = None
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._file = self._socket.fileno()
        self.icmp: IcmpError | None = None
        with contextlib.suppress(OSError):  # without it the kernel keeps errors to itself
            self._socket.setsockopt(*_RECVERR[family], 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> PeerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._waits.readers.remove(self._file)
        self._socket.close()

    @property
    def waiting(self) -> int:
        """Bytes that have come and were not received yet."""
        return len(self._received)

    async def connect(self, address: str, port: int, ends: float) -> None:
        """Connect until then. Raises OSError, of which TimeoutError is one."""
        if self._source:
            with contextlib.suppress(OSError):  # Linux before 4.2
                self._socket.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            self._socket.bind((self._source, 0))
        number = self._socket.connect_ex((address, port))
        if number == errno.EINPROGRESS:
            number = self._socket.connect_ex((address, port))  # near peers have accepted by now
        if number == errno.EALREADY:
            # By its number: the loop writes out a socket that it does not know, addresses and all.
            self._loop.add_writer(self._file, self._settle)
            self._awaited = self._waits.alarm.wait(ends)
            try:
                in_time = await self._awaited
            finally:
                self._loop.remove_writer(self._file)
            if not in_time:
                raise TimeoutError
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self.icmp = self._read_icmp()
            raise OSError(number, os.strerror(number))
        self._waits.readers.add(self._file, self._take_in)

    def _read_icmp(self) -> IcmpError | None:
        family = self._socket.family
        try:
            _, ancillary, _, _ = self._socket.recvmsg(1, 512, socket.MSG_ERRQUEUE)
        except OSError:  # it was no ICMP, or Linux is older than 5.10
            return None
        for level, kind, data in ancillary:
            if (level, kind) == _RECVERR[family]:
                _, origin, type_, code, *_ = _EXTENDED_ERROR.unpack_from(data)
                address = data[_EXTENDED_ERROR.size :][_ADDRESS_AT[family]]
                if origin in _OF_ICMP and address:
                    return IcmpError(type_, code, socket.inet_ntop(family, address))
        return None

    def send(self, data: bytes) -> None:
        """Send all of it; the socket's buffer has room for it. Raises OSError."""
        if self._socket.send(data) < len(data):
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    async def receive(self, size: int, ends: float) -> bytes:
        """The next `size` bytes, which come until then. Raises OSError, as `connect` does."""
        if len(self._received) < size and self._error is None:
            self._size = size
            self._awaited = self._waits.alarm.wait(ends)
            if not await self._awaited:
                raise TimeoutError
        if len(self._received) < size and self._error is not None:
            raise self._error
        data, self._received = self._received[:size], self._received[size:]
        return data

    def _take_in(self) -> None:
        try:
            more = self._socket.recv(_RECEIVED_AT_ONCE)
            if not more:
                raise ConnectionResetError(errno.ECONNRESET, "closed")
        except BlockingIOError:
            return
        except OSError as exc:
            self._error = exc
            self._waits.readers.remove(self._file)
            self._settle()
            return
        self._received = self._received + more if self._received else more
        if len(self._received) >= self._size:
            self._settle()

    def _settle(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(True)

    def least_rtt(self) -> float | None:
        """Seconds, as the kernel has measured them, however busy this process is; None if not."""
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            (microseconds,) = _MIN_RTT.unpack_from(info, _MIN_RTT_AT)
        except (OSError, struct.error):  # an older kernel
            return None
        return None if microseconds == _NO_MIN_RTT else microseconds / 1e6
