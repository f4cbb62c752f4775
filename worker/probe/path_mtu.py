"""How large a packet may be on the way to a peer: datagrams that nobody may fragment.

One of the size that both ends' interfaces can take is sent first. Where it is lost, it is sent
again with all the usual sizes below it, and the largest that is answered counts. As packets are
also lost by chance, the largest gets some more tries before it is given up.

Where the first few peers are all mute, UDP is closed, and the rest are not asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence

from worker.probe.packets import HELLO_BYTES, NONCE_BYTES, REPLY_BYTES, Packets
from worker.probe.waiting import Alarm

# By family: the level, and its options MTU_DISCOVER and MTU, which Python does not name.
_OPTIONS = {4: (socket.IPPROTO_IP, 10, 14), 6: (socket.IPPROTO_IPV6, 23, 24)}
_PMTUDISC_DO = 2
_HEADER_BYTES = {4: 28, 6: 48}
_LARGEST_PACKET = 65_535
_USUAL_SIZES = (
    *(9_000, 8_896, 8_500, 8_000, 4_200, 4_092, 2_044, 1_500, 1_492, 1_480, 1_460, 1_450),
    *(1_440, 1_420, 1_400, 1_380, 1_360, 1_340, 1_320, 1_300, 1_280, 1_024, 576),
)
_TO_BE_SURE = 8
_MUTE_ENOUGH = 4


class PathMtu:
    """Asks peers of one family for the largest packet that reaches them.

    A context manager, to be used in an event loop.

    Args:
        packets: This node's.
        family: 4 or 6.
        source: The address of this node to ask from; the kernel's choice if empty.
        wait_seconds: How long until datagrams that are not answered count as lost.

    Raises:
        OSError: The family, or the address, is not to be had on this host.
    """

    def __init__(
        self, packets: Packets, family: int, source: str = "", wait_seconds: float = 0.4
    ) -> None:
        self._packets = packets
        self._family = family
        self._header = _HEADER_BYTES[family]
        self._wait_seconds = wait_seconds
        self._waiting: dict[bytes, _Asked] = {}
        self._mute = 0
        self._closed = False
        self._heard = False
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm()
        self._socket = _socket(family, source)

    def __enter__(self) -> PathMtu:
        self._loop.add_reader(self._socket.fileno(), self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        self._alarm.close()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    async def ask(self, slot: int, address: str, port: int, mtu: int) -> int | None:
        """Bytes of the largest packet that was answered; None when none was.

        Args:
            slot: The peer.
            address: Where it is.
            port: Where it answers.
            mtu: Of the interfaces at both ends, the smaller one.
        """
        largest = mtu - self._header
        is_loopback = mtu > _LARGEST_PACKET  # no packet is as large
        if self._closed or is_loopback or largest < HELLO_BYTES:
            return None
        nonce = os.urandom(NONCE_BYTES)
        hello = self._packets.hello("udp", slot, nonce)
        asked = self._waiting[nonce] = _Asked(largest)
        try:
            await self._send(hello, (address, port), [mtu], asked)
            if asked.best < largest:
                below = {size for size in (*_USUAL_SIZES, self._known(address)) if size < mtu}
                sizes = [mtu, *sorted(below, reverse=True)]
                await self._send(hello, (address, port), sizes, asked)
            if 0 < asked.best < largest:  # lost twice: by chance?
                await self._send(hello, (address, port), [mtu] * _TO_BE_SURE, asked)
        finally:
            del self._waiting[nonce]
        if not asked.best:
            self._count_mute()
        return asked.best + self._header if asked.best else None

    def _count_mute(self) -> None:
        self._mute += 1
        if self._mute >= _MUTE_ENOUGH and not self._heard:
            self._closed = True
            for asked in self._waiting.values():
                asked.settle()

    async def _send(
        self, hello: bytes, place: tuple[str, int], sizes: Sequence[int], asked: _Asked
    ) -> None:
        """Send packets of these sizes, the largest first, and wait a moment for the answers.

        A smaller one is not answered before a larger one, if that arrives.
        """
        if self._closed:
            return
        for size in sizes:
            with contextlib.suppress(OSError):  # too large for this very host, or no way there
                if size - self._header >= len(hello):
                    self._socket.sendto(hello.ljust(size - self._header, b"\0"), place)
        asked.settled = self._alarm.wait(self._loop.time() + self._wait_seconds)
        await asked.settled

    def _receive(self) -> None:
        while True:
            try:
                data = self._socket.recv(REPLY_BYTES + 1)
            except OSError:
                return
            reply = self._packets.read_reply("udp", data)
            asked = self._waiting.get(reply.nonce) if reply else None
            if reply and asked:
                self._heard = True
                asked.answered(reply.size)

    def _known(self, address: str) -> int:
        """What this host has heard of the way there by now, from routers on it; 0 if nothing."""
        level, _, mtu = _OPTIONS[self._family]
        with contextlib.suppress(OSError), _socket(self._family) as sock:
            sock.connect((address, 9))
            return sock.getsockopt(level, mtu)
        return 0


class _Asked:
    """Datagrams of several sizes: which have been answered?"""

    def __init__(self, largest: int) -> None:
        self.settled: asyncio.Future[bool] | None = None
        self.best = 0
        self._largest = largest

    def answered(self, size: int) -> None:
        self.best = max(self.best, min(size, self._largest))
        if self.best == self._largest:
            self.settle()

    def settle(self) -> None:
        if self.settled is not None and not self.settled.done():
            self.settled.set_result(True)


def _socket(family: int, source: str = "") -> socket.socket:
    """For datagrams that are lost rather than cut to pieces."""
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    sock = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, kind)
    level, discover, _ = _OPTIONS[family]
    try:
        sock.setsockopt(level, discover, _PMTUDISC_DO)
        if source:
            sock.bind((source, 0))
    except OSError:
        sock.close()
        raise
    return sock


def family_of(address: str) -> int:
    """4 or 6."""
    return 6 if ":" in address else 4
