"""Whether a TCP port can be had on this machine."""

from __future__ import annotations

import errno
import itertools
import socket

from worker.machine.kernel import ephemeral_range


def is_free(port: int) -> bool:
    """Whether a server could listen on this port, on every address, as torch's store does.

    SO_REUSEADDR is set as torch sets it: connections in TIME_WAIT do not count, a listener does.
    """
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as exc:
            if exc.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue
            return False
    return True


def find_free(start: int, ephemeral: tuple[int, int] | None = None) -> int | None:
    """The first free port from `start` on; None when there is none.

    One outside the ephemeral range is preferred: inside it, any outgoing connection may take it.
    """
    low, high = ephemeral or ephemeral_range()
    ports = range(start, 65_536)
    outside = (port for port in ports if not low <= port <= high)
    inside = (port for port in ports if low <= port <= high)
    return next((port for port in itertools.chain(outside, inside) if is_free(port)), None)
