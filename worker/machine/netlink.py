"""The network interfaces of this process's own namespace, as the kernel lists them.

Asked over rtnetlink(7), as the C library's getifaddrs does, and ethtool's ioctl for the speed:
/sys may be hidden, or show another network namespace's.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from collections.abc import Iterator

from rendezvous.frozen import frozen

_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_GET_LINK, _GET_ADDRESS = 18, 22
_NAME, _MTU = 3, 4  # attributes of a link
_PEER, _LOCAL = 1, 2  # attributes of an address: the second is missing where both are the same
_RUNNING = 0x40
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_SIOCETHTOOL, _GET_SETTINGS = 0x8946, 1
_SPEED_UNKNOWN = 0xFFFF_FFFF


@frozen
class Link:
    """What the kernel says of one interface; its speed is 0 where the driver gives none."""

    is_running: bool
    mtu: int
    speed_mbps: int
    addresses: tuple[str, ...] = ()


def links() -> dict[str, Link]:
    """Every interface by its name, with its addresses in CIDR form. Raises OSError."""
    found = {index: (name, flags, mtu) for index, name, flags, mtu in _links()}
    addresses: dict[int, list[str]] = {index: [] for index in found}
    for index, cidr in _addresses():
        addresses.get(index, []).append(cidr)
    return {
        name: Link(bool(flags & _RUNNING), mtu, speed(name), tuple(addresses[index]))
        for index, (name, flags, mtu) in found.items()
    }


def speed(name: str) -> int:
    """How many Mbit/s an interface makes by its driver; 0 when that is not known."""
    settings = array.array("H", struct.pack("=I40x", _GET_SETTINGS))
    request = struct.pack("16sP", os.fsencode(name), settings.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
            fcntl.ioctl(door, _SIOCETHTOOL, request)
    except OSError:
        return 0
    found = settings[14] << 16 | settings[6]
    return 0 if found == _SPEED_UNKNOWN else found


def _links() -> Iterator[tuple[int, str, int, int]]:
    for body in _dump(_GET_LINK):
        _, _, index, flags, _ = _LINK.unpack_from(body)
        said = _attributes(body[_LINK.size :])
        yield index, os.fsdecode(said[_NAME].rstrip(b"\0")), flags, _number(said[_MTU])


def _addresses() -> Iterator[tuple[int, str]]:
    for body in _dump(_GET_ADDRESS):
        family, prefix, _, _, index = _ADDRESS.unpack_from(body)
        said = _attributes(body[_ADDRESS.size :])
        if family in _FAMILIES and (address := said.get(_LOCAL) or said.get(_PEER)):
            yield index, f"{socket.inet_ntop(family, address)}/{prefix}"


def _dump(kind: int) -> Iterator[bytes]:
    """Ask for all of a kind; yields each answer without its header."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + _LINK.size, kind, _DUMP, 1, 0) + bytes(_LINK.size))
        while True:
            rest = kernel.recv(1 << 16)
            while rest:
                length, what, _, _, _ = _HEADER.unpack_from(rest)
                body, rest = rest[_HEADER.size : length], rest[_aligned(length) :]
                if what == _DONE:
                    return
                if what == _ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    raise OSError(code, os.strerror(code))
                yield body


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind] = data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return found


def _number(data: bytes) -> int:
    return int(struct.unpack("=I", data)[0])


def _aligned(length: int) -> int:
    return length + 3 & ~3
