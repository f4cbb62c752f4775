"""Forks the processes of a node, and sees them through; itself forked below a keeper.

It is there when the node arms, and says on a socket `{"armed": true}`, or `{"cannot": WHY}` where
MASTER_PORT's store cannot listen. At the go it is given its order, one JSON object:

    words     what each process executes, as Python takes it: SCRIPT or -m MODULE, and arguments
    set       what is set in the environment, name by name, and `unset` what is taken out of it
    ranks     for each process what it has beside that

Words are bytes, written as Latin-1. No order means that nobody wants the processes any more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from worker.programs.early_torchrun import await_store
from worker.programs.processes import Processes
from worker.programs.warm.rank import Handlers, become
from worker.programs.warm.store import CannotListen, Store, await_all_ended

GRACE_SECONDS = 30.0
"""Seconds that torchrun gives the processes of a node to end, where nobody asks for more."""
_GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_TOLD_BY = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Forked:
    """A child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """Wait for its end, so that no zombie is left."""
        return os.waitpid(self.pid, 0)[1]


class OwnRanks(Processes):
    """The processes of this node, each in a session of its own as torchrun's are.

    Args:
        words: The program of each, as Python takes it.
        environs: The whole environment of each.
    """

    seen_seconds = 0.03  # the kernel tells the agent at once, and our last line tells it as well

    def __init__(self, words: Sequence[str], environs: Sequence[Mapping[str, str]]) -> None:
        first = int(environs[0]["RANK"])
        count = len(environs)
        grace = grace_of(environs[0])
        super().__init__(argparse.Namespace(rank=first, processes=count, grace=grace))
        self._words = words
        self._environs = environs

    @property
    def is_told(self) -> bool:
        """Whether somebody has told it to end."""
        return self._ending

    def run(self) -> int:
        """Start all, see them through; returns the exit code."""
        for number in _TOLD_BY:
            signal.signal(number, lambda number, frame: self._on_stop_signal(number))
        return super().run()

    def _on_stop_signal(self, number: int) -> None:
        """Each leads a group, which is left to us."""
        self._set_limit()
        self._signal(number)

    def _signal(self, number: int) -> None:
        for process in self._running.values():
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:  # it does not lead one yet
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)


class ForkedProcesses(OwnRanks):
    """The processes of this node, each forked.

    Args:
        words: As of `OwnRanks`.
        environs: The same.
        handlers: How signals are handled in them.
        store: Of this node.
    """

    def __init__(
        self,
        words: Sequence[str],
        environs: Sequence[Mapping[str, str]],
        handlers: Handlers,
        store: Store | None,
    ) -> None:
        super().__init__(words, environs)
        self._handlers = handlers
        self._store = store
        self._all_forked = os.pipe()

    def _start(self, local_rank: int) -> None:
        # What it is sent before it has handlers of its own waits until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if (pid := os.fork()) == 0:
            os.setsid()
            become(self._words, self._environs[local_rank], self._handlers, self._let_go)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._running[local_rank] = Forked(pid)

    def _all_started(self) -> None:
        for fd in self._all_forked:
            os.close(fd)

    def _let_go(self) -> None:
        """Be one of the processes: close our files, and begin when all are there. What one did
        meanwhile would hold up the forks of the others."""
        waits, holds = self._all_forked
        os.close(holds)
        os.read(waits, 1)
        for fd in (waits, *self._wake):
            os.close(fd)
        if self._store is not None:
            self._store.let_go()


def start_node(orders: socket.socket, port: int | None, said: int, handlers: Handlers) -> int:
    """Arm, and fork the processes at the go; the exit code. Raises Become in each of these.

    Args:
        orders: The socket to the agent.
        port: Where MASTER_PORT's store listens; None: on another node.
        said: What the imports have printed, and nobody has shown yet.
        handlers: How signals are handled in the processes.
    """
    try:
        store = Store(port) if port is not None else None
    except (CannotListen, OSError) as error:
        orders.send(json.dumps({"cannot": f"MASTER_PORT's store: {error}"}).encode())
        return 1
    orders.send(json.dumps({"armed": True}).encode())
    order = _read(orders)
    if not order:
        return 0
    _show(said)
    environ = _followed(order)
    folder = room_for_errors(environ)
    # Nothing of this may run in one of the processes, which Become takes out of here.
    code = _run(order, environ, store, folder, handlers)
    shutil.rmtree(folder, ignore_errors=True)
    if store is not None:
        store.close()
    return code


def _run(
    order: Mapping[str, Any],
    environ: Mapping[str, str],
    store: Store | None,
    folder: str,
    handlers: Handlers,
) -> int:
    if store is None:
        await_store(environ)
    processes = ForkedProcesses(*ranks_of(order, environ, folder), handlers, store)
    code = processes.run()
    await_others(processes, code, environ, serves=store is not None)
    return code


def room_for_errors(environ: Mapping[str, str]) -> str:
    """Make a folder for the files in which processes write how they have failed: beside the agent's
    socket, which goes with the agent, whatever becomes of this process.

    Args:
        environ: The environment of the node.
    """
    place = os.path.dirname(environ.get("RDZV_SOCKET", ""))
    return tempfile.mkdtemp(prefix="torchelastic_", dir=place or None)


def ranks_of(
    order: Mapping[str, Any], environ: Mapping[str, str], folder: str
) -> tuple[list[str], list[dict[str, str]]]:
    """Read the program of an order, and the environment of each process.

    Args:
        order: As above.
        environ: The environment of the node.
        folder: Of `room_for_errors`.
    """
    environs = [{**environ, **_texts(own), _ERROR_FILE: ""} for own in order["ranks"]]
    for own in environs:
        own[_ERROR_FILE] = f"{folder}/{own['RANK']}/error.json"
        os.mkdir(os.path.dirname(own[_ERROR_FILE]))
    return [_text(word) for word in order["words"]], environs


def await_others(
    processes: OwnRanks, code: int, environ: Mapping[str, str], *, serves: bool
) -> None:
    """Wait for the other nodes where this one's processes have ended well and others need its
    store.

    Args:
        processes: Of this node; they are over.
        code: Their exit code.
        environ: The environment of the node.
        serves: Whether the store is this node's.
    """
    nodes = int(environ["NNODES"])
    if code == 0 and nodes > 1:
        await_all_ended(
            *(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), nodes),
            serves=serves,
            goes_on=lambda: not processes.is_told,
        )


def grace_of(environ: Mapping[str, str]) -> float:
    """Seconds that the processes have to end, as torchrun reads them."""
    try:
        return float(int(environ[_GRACE]))
    except (KeyError, ValueError):
        return GRACE_SECONDS


def _read(orders: socket.socket) -> Any:
    """Wait for the order; None: nobody wants one."""
    said = b"".join(iter(lambda: orders.recv(65_536), b""))
    orders.close()
    return json.loads(said) if said else None


def _followed(order: Mapping[str, Any]) -> dict[str, str]:
    """The environment of the order."""
    unset = {_text(name) for name in order["unset"]}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | _texts(order["set"])


def _show(said: int) -> None:
    """Show once what the imports have printed: all that are forked share the place in it."""
    while data := os.read(said, 65_536):
        os.write(2, data)
    os.close(said)


def _texts(named: Mapping[str, str]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in named.items()}


def _text(word: str) -> str:
    return os.fsdecode(word.encode("latin-1"))
