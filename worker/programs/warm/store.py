"""MASTER_PORT's store, in a process of its own: it listens before the node acknowledges its table.

Threads serve it, which would be lost in whatever is forked from their process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

from worker.program.keeper import PR_SET_PDEATHSIG, prctl

_LISTENS = b"1"
_HERE = "127.0.0.1"
_ENDED = "rdzv/ended"
"""Counts the nodes whose processes have ended well."""
_DIAL = timedelta(seconds=10)
_ENDED_SECONDS = 300.0
"""As long as torchrun waits for the others."""
_LOOK_SECONDS = 0.02
_IGNORED = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)


class CannotListen(Exception):
    """Why there is no store at the port."""


class Store:
    """A store that this process has started; it ends with it."""

    def __init__(self, port: int) -> None:
        """Raises CannotListen."""
        self._line, theirs = socket.socketpair()
        own = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._line.close()
            _serve(port, theirs, own)
        theirs.close()
        if (said := self._line.recv(4096)) != _LISTENS:
            self.close()
            raise CannotListen(said.decode(errors="replace") or "its process has ended")

    def let_go(self) -> None:
        """Close what a forked process has of it."""
        self._line.close()

    def close(self) -> None:
        """End it."""
        self._line.close()
        os.waitpid(self._pid, 0)


def _serve(port: int, line: socket.socket, parent: int) -> NoReturn:
    code = 1
    try:
        for number in _IGNORED:  # the processes of the node may need it until they have ended
            signal.signal(number, signal.SIG_IGN)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        store = _tcp_store(_HERE, port, is_master=True)
        line.send(_LISTENS)
        if os.getppid() == parent:
            line.recv(1)
        code = 0 if store else 1  # it serves for as long as it is named
    except Exception as error:  # noqa: BLE001 (torch's own, of several kinds)
        line.send(" ".join(f"{error}".split())[:1000].encode())
    finally:
        os._exit(code)


def serve_here(port: int) -> object:
    """Listen in this process, which forks nothing; it serves for as long as the answer is held.

    Raises CannotListen.
    """
    try:
        store: object = _tcp_store(_HERE, port, is_master=True)
    except Exception as error:  # torch's own, of several kinds
        raise CannotListen(" ".join(f"{error}".split())[:1000]) from error
    return store


def _tcp_store(host: str, port: int, *, is_master: bool) -> Any:
    torch: Any = sys.modules["torch.distributed"]
    return torch.TCPStore(host, port, is_master=is_master, timeout=_DIAL, wait_for_workers=False)


def await_all_ended(
    host: str, port: int, nodes: int, *, serves: bool, goes_on: Callable[[], bool]
) -> None:
    """Tell the store that this node's processes have ended well; who serves it waits for all.

    Args:
        host: MASTER_ADDR.
        port: MASTER_PORT.
        nodes: How many there are.
        serves: Whether the store is this node's.
        goes_on: False where this node is to end.
    """
    with contextlib.suppress(RuntimeError):  # nobody needs a store that is not there any more
        store = _tcp_store(_HERE if serves else host, port, is_master=False)
        count = store.add(_ENDED, 1)
        deadline = time.monotonic() + _ENDED_SECONDS
        while serves and count < nodes and time.monotonic() < deadline and goes_on():
            time.sleep(_LOOK_SECONDS)
            count = store.add(_ENDED, 0)
