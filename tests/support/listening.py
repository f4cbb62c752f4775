"""A socket of an emulated host, for a stand-in that serves in the test's own process."""

from __future__ import annotations

import ctypes
import socket
import threading

from tests.support.netlab import Host

_CLONE_NEWNET = 0x40000000


def listen_on(host: Host) -> socket.socket:
    """A listening socket on an emulated host; it belongs there, whoever serves it."""
    found: list[socket.socket] = []

    def listen() -> None:
        with open(f"/run/netns/{host.namespace}", "rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        found.append(socket.create_server((host.address, 0), backlog=128))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    return found[0]
