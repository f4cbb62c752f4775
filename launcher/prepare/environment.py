"""The outer world of a launch, in one place: what the simulator replaces.

The clock is the running loop's, everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import click

from launcher.plan.plan import Plan
from launcher.prepare.registry_process import (
    last_words,
    listen,
    own_addresses,
    server_command,
    write_config,
)
from launcher.processes import Become, OwnProcess, OwnProcesses, end
from launcher.schedulers.catalog import make_scheduler
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.show.board import Board, make_board
from launcher.state.state_dir import StateDir
from launcher.terminal import fold_lines, width_of
from rendezvous.talk.credentials import Credential, new_secret
from rendezvous.talk.join_string import RegistryPlace
from worker.preflight.needs import missing_here
from worker.program.output import make_private
from worker.program.process import ending_signals

if TYPE_CHECKING:
    from rendezvous.talk.client import RegistryClient

_LAUNCH_ID_BYTES = 5
_BY_KERNEL = 0x80  # SI_KERNEL: a terminal's Ctrl-C


class Socket(Protocol):
    """A listening socket."""

    def getsockname(self) -> tuple[str, int]:
        """Return its address and port, first."""

    def close(self) -> None:
        """Give the port back."""


class Child(Protocol):
    """A process of the registry."""

    async def wait(self) -> int:
        """Return its exit code, once it has ended."""

    async def end(self, kill_after: float) -> None:
        """TERM, and KILL after so many seconds; returns when it has ended."""


class WordsKeeper(Protocol):
    """Store of the ranks' last output."""

    async def fetch(self) -> None:
        """Keep what is new at the registry, for a moment; what fails here ends nothing."""


class LaunchEnvironment:
    """This machine, as a launch sees it.

    Args:
        become: What a fork of this process does to be another part of rdzv; None: nothing is
            forked.
    """

    def __init__(self, become: Become | None = None) -> None:
        self._become = become
        self._processes = OwnProcesses()

    def jitter(self) -> float:
        """A number in 0 to 1."""
        return random.random()  # noqa: S311 (jitter)

    def launch_id(self) -> str:
        """A new launch id."""
        return secrets.token_hex(_LAUNCH_ID_BYTES)

    def secret(self) -> bytes:
        """A new secret."""
        return new_secret()

    def hostname(self) -> str:
        """Return this machine's host name."""
        return socket.gethostname()

    def addresses(self) -> list[str]:
        """Under which other machines might reach this one; may be none."""
        return own_addresses()

    def state(self, root: Path, run: str) -> StateDir:
        """The state directory of a run."""
        return StateDir(root, run)

    def scheduler(self, starter: str, context: SchedulerContext) -> Scheduler:
        """Return the scheduler of this name; raises UsageError."""
        return make_scheduler(starter, replace(context, processes=self._processes))

    def fork(self, word: str, count: int) -> None:
        """Have so many processes of this word of `rdzv` start at once; see `OwnProcesses`."""
        if self._become is not None:
            self._processes.fork(word, count, self._become)

    def dismiss(self) -> None:
        """End the forks that nobody needed."""
        self._processes.dismiss()

    def echo(self, words: str) -> None:
        """A line for the person, outside of the board's time."""
        click.echo(fold_lines(words, width_of(sys.stderr), len("rdzv: ")), err=True)

    def board(self, nodes: int, logs: Path, *, json_events: bool, verbose: bool) -> Board:
        """Make the board of this launch; see `make_board`."""
        return make_board(nodes, logs, json_events=json_events, verbose=verbose)

    def missing(self, plan: Plan, environ: Mapping[str, str]) -> str:
        """Return what COMMAND needs and this machine lacks; empty when nothing is known to be."""
        return missing_here(plan.settings.framework, plan.command, environ, leads=True)

    def client(
        self, place: RegistryPlace, credential: Credential, request_seconds: float
    ) -> RegistryClient:
        """The way to a registry."""
        from rendezvous.talk.client import RegistryClient  # not needed before the first line

        return RegistryClient(place, credential, request_seconds=request_seconds)

    def words_keeper(
        self, admin: RegistryClient, state: StateDir, say: Callable[[str], None]
    ) -> WordsKeeper:
        """Make the store of the ranks' last output, in the run's folder."""
        from launcher.state.last_words_files import LastWordsFiles  # needed where a run fails

        return LastWordsFiles(admin, state.run, state.last_words, say)

    def on_signals(self, tell: Callable[..., None]) -> None:
        """Have this told of each signal that ends a launch."""
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, partial(tell, int(number), pressed=False))
        if any(map(os.isatty, (0, 1, 2))):
            _read_interrupts(loop, tell)

    # --- the registry's process ---------------------------------------------------------------

    def listen(self, port: int, *, address: str, exact: bool) -> Socket:
        """A listening socket; raises UsageError."""
        return listen(port, address=address, exact=exact)

    def configure(self, state: StateDir, secret: bytes, *, tls: bool) -> RegistryPlace:
        """Write what the registry process reads; returns how it proves itself."""
        return write_config(state, secret, tls=tls)

    async def start_registry(self, state: StateDir, sock: Socket) -> Child:
        """Start it on this socket."""
        assert isinstance(sock, socket.socket)
        fd = sock.fileno()
        command = [*server_command(state, fd), "--parent", str(os.getpid())]
        with self._opened(registry_log(state)) as said:
            process = await self._processes.start(
                command, os.environ, stdout=said.fileno(), stderr=said.fileno(), pass_fds=[fd]
            )
        return _RegistryProcess(process)

    def _opened(self, log: Path) -> IO[bytes]:
        """Where the registry's process writes: its log, made again where somebody has removed it;
        what cannot be written costs a line, and not the run."""
        try:
            make_private(log.parent)
            log.touch(mode=0o600)
            return log.open("ab")
        except OSError as exc:
            self.echo(f"rdzv: the registry has no log: {log} cannot be written: {exc.strerror}")
            return open(os.devnull, "wb")

    def registry_words(self, state: StateDir) -> str:
        """The last words of the registry's processes."""
        try:
            (state.path / "registry.json").stat()
        except FileNotFoundError:
            return f"none; its folder {state.path} was removed while it ran"
        except OSError as exc:
            return f"none; its folder {state.path} cannot be used any more: {exc.strerror}"
        with contextlib.suppress(OSError):
            return last_words(registry_log(state))
        return "none"


def _read_interrupts(loop: asyncio.AbstractEventLoop, tell: Callable[..., None]) -> None:
    """Tell of each SIGINT whether a key of the terminal sent it: only a signalfd has its origin."""
    only = (1 << signal.SIGINT - 1).to_bytes(8, sys.byteorder).ljust(128, b"\0")
    fd = ctypes.CDLL(None).signalfd(-1, only, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        return

    def read() -> None:
        code = int.from_bytes(os.read(fd, 128)[8:12], sys.byteorder)
        tell(int(signal.SIGINT), pressed=code == _BY_KERNEL)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    loop.add_reader(fd, read)


def registry_log(state: StateDir) -> Path:
    """Return the path of the registry's log."""
    return state.logs / "registry.log"


class _RegistryProcess:
    """Registry process that is ended by TERM, and by KILL when that takes too long."""

    def __init__(self, process: OwnProcess) -> None:
        self._process = process

    async def wait(self) -> int:
        """See the protocol."""
        return await self._process.wait()

    async def end(self, kill_after: float) -> None:
        """See the protocol."""
        await end(self._process, signal.SIGTERM, kill_after)
