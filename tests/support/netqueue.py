"""Holds back packets that the kernel queues (NFQUEUE), each for a time of its own.

    python -m tests.support.netqueue QUEUE SECONDS JITTER [SEED]

Each packet waits SECONDS -+ JITTER, evenly spread, so packets overtake each other. To be run as
root in the network namespace whose rules queue the packets; says "ready" once it holds the queue.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 3 << 8
_PACKET, _VERDICT, _CONFIG = _SUBSYSTEM, _SUBSYSTEM | 1, _SUBSYSTEM | 2
_REQUEST, _ACK = 1, 4
_ERROR = 2
_ATTR_PACKET_HEADER, _ATTR_VERDICT = 1, 2
_ATTR_COMMAND, _ATTR_PARAMETERS, _ATTR_MOST = 1, 2, 3
_BIND, _COPY_META, _ACCEPT = 1, 1, 1
_MOST_PACKETS = 100_000
_SO_RCVBUFFORCE = 33  # Python does not name it


class Queue:
    """One kernel queue of packets, each known by its number."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        # Beyond what the machine allows: too much that waits for this process would end it.
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        self._socket.bind((0, 0))
        self._configure(_attribute(_ATTR_COMMAND, struct.pack(">BxH", _BIND, 0)))
        parameters = struct.pack(">IB", 0, _COPY_META)
        self._configure(_attribute(_ATTR_PARAMETERS, parameters))
        self._configure(_attribute(_ATTR_MOST, struct.pack(">I", _MOST_PACKETS)))

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def packets(self) -> list[int]:
        """The numbers of the packets that have come."""
        return [
            struct.unpack_from(">I", attributes[_ATTR_PACKET_HEADER])[0]
            for kind, body in _messages(self._socket.recv(1 << 20))
            if kind == _PACKET and (attributes := dict(_attributes(body[4:])))
        ]

    def let_go(self, packet: int) -> None:
        """Send a packet on its way."""
        self._send(_VERDICT, _attribute(_ATTR_VERDICT, struct.pack(">II", _ACCEPT, packet)))

    def _configure(self, attribute: bytes) -> None:
        self._send(_CONFIG, attribute, _ACK)
        kind, body = next(_messages(self._socket.recv(1 << 16)))
        (code,) = struct.unpack_from("=i", body)
        if kind != _ERROR or code != 0:
            raise OSError(-code, "the kernel does not give the queue")

    def _send(self, kind: int, attribute: bytes, flags: int = 0) -> None:
        body = struct.pack(">BBH", socket.AF_UNSPEC, 0, self._number) + attribute
        header = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, 0, 0)
        self._socket.sendto(header + body, (0, 0))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        yield kind, data[16:length]
        data = data[(length + 3) & ~3 :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


def hold_back(queue: Queue, seconds: float, jitter: float, chance: random.Random) -> None:
    """Hold back every packet for its time, for ever."""
    held: list[tuple[float, int]] = []
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        readable, _, _ = select.select([queue], [], [], wait)
        now = time.monotonic()
        if readable:
            for packet in queue.packets():
                due = now + max(0.0, chance.uniform(seconds - jitter, seconds + jitter))
                heapq.heappush(held, (due, packet))
        while held and held[0][0] <= now:
            queue.let_go(heapq.heappop(held)[1])


def main(number: str, seconds: str, jitter: str, seed: str = "1") -> None:
    """Run as the module's docstring says."""
    queue = Queue(int(number))
    print("ready", flush=True)
    hold_back(queue, float(seconds), float(jitter), random.Random(int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
