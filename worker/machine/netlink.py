"""The network interfaces of this process's own namespace, as the kernel lists them.

Asked over rtnetlink(7), as the C library's getifaddrs does, and by ethtool's ioctl for the speed:
/sys may be hidden, or show another network namespace's.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterator

from rendezvous.frozen import frozen

_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_GET_LINK, _GET_ADDRESS = 18, 22
_NAME, _MTU = 3, 4  # attributes of a link
_PEER, _LOCAL = 1, 2  # attributes of an address; without a peer, the first may be its own
_RUNNING = 0x40
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_LINK, _ADDRESS = struct.Struct("=BxHiII"), struct.Struct("=BBBBI")
_SIOCETHTOOL, _GET_SETTINGS = 0x8946, 1
_SPEED_UNKNOWN = 0xFFFF_FFFF


@frozen
class Link:
    """What the kernel says of one interface; its speed is 0 where the driver gives none."""

    is_running: bool
    mtu: int
    speed_mbps: int
    addresses: tuple[str, ...]


def links() -> dict[str, Link]:
    """Every interface by its name, with its addresses in CIDR form. Raises OSError."""
    addresses: dict[int, list[str]] = {}
    for (family, prefix, _, _, index), said in _dump(_GET_ADDRESS, _ADDRESS):
        address = said.get(_LOCAL) or said.get(_PEER)
        if family in (socket.AF_INET, socket.AF_INET6) and address:
            cidr = f"{socket.inet_ntop(family, address)}/{prefix}"
            addresses.setdefault(index, []).append(cidr)
    found = {}
    for (_, _, index, flags, _), said in _dump(_GET_LINK, _LINK):
        name = os.fsdecode(said[_NAME].rstrip(b"\0"))
        mtu = int.from_bytes(said.get(_MTU, b""), sys.byteorder)
        own = tuple(addresses.get(index, ()))
        found[name] = Link(bool(flags & _RUNNING), mtu, _speed(name), own)
    return found


def _speed(name: str) -> int:
    """How many Mbit/s the interface's driver tells; 0 where it does not."""
    settings = array.array("H", struct.pack("=I40x", _GET_SETTINGS))
    request = struct.pack("16sP", os.fsencode(name), settings.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
            fcntl.ioctl(door, _SIOCETHTOOL, request)
    except OSError:
        return 0
    found = settings[14] << 16 | settings[6]
    return 0 if found == _SPEED_UNKNOWN else found


def _dump(kind: int, form: struct.Struct) -> Iterator[tuple[tuple[int, ...], dict[int, bytes]]]:
    """All of a kind: the fixed part of each, and its attributes."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + _LINK.size, kind, _DUMP, 1, 0) + bytes(_LINK.size))
        while True:
            for what, body in _parts(kernel.recv(1 << 16), _HEADER):
                if what == _DONE:
                    return
                if what == _ERROR:
                    code = -int.from_bytes(body[:4], sys.byteorder, signed=True)
                    raise OSError(code, os.strerror(code))
                yield form.unpack_from(body), dict(_parts(body[form.size :], _ATTRIBUTE))


def _parts(data: bytes, header: struct.Struct) -> Iterator[tuple[int, bytes]]:
    """The messages, or attributes, that follow each other: their kinds and contents."""
    while len(data) >= header.size:
        length, kind = header.unpack_from(data)[:2]
        yield kind, data[header.size : length]
        data = data[length + 3 & ~3 :]
