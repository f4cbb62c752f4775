"""How a launch starts rdzv's own processes on this machine: its registry, and the nodes here.

Nine tenths of such a process's start are imports that this process has made already, so the first
ones are forked from it: while it is single-threaded, before its event loop. Each waits for its
orders: a command line, an environment, and the files it shall have. It is then what the same
command would be, but that nobody may look into its memory, as into the launcher's; whatever cannot
be had this way is started as a command.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import fcntl
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from launcher.options import outside_environment
from rendezvous.compat import timeout
from rendezvous.door import own_command
from rendezvous.secret_variables import anonymous_file

OWN_COMMAND = tuple(own_command())
"""`rdzv` itself, in the interpreter that runs now."""

Become = Callable[[str], Callable[[], None]]
"""Imports what a word of `rdzv` needs; what it returns runs that word with `sys.argv`."""

_OWN_PREFIX = "RDZV_"
_READ_AT_START = ("LANG", "LC_", "LD_", "MALLOC_", "PYTHON")
_STREAMS = (0, 1, 2)
_MOST_FORKS = 16
_MOST_DESCRIPTORS = 16
_IDLE_SECONDS = 60.0
"""How long a fork waits for its orders."""
_ALONE_SECONDS = 5.0
"""How long it may take to be in a session of its own: from then on its group can be signalled."""


class OwnProcess(Protocol):
    """A child of this process."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """How it ended, as `subprocess` has it; None while it runs."""

    async def wait(self) -> int:
        """Its exit code, once it has ended."""

    def send_signal(self, number: int) -> None:
        """Send it; raises ProcessLookupError when it has ended."""


async def end(process: OwnProcess, number: int, kill_after: float) -> None:
    """Send this signal, and KILL after so many seconds; returns when it has ended."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    try:
        async with timeout(kill_after):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


class OwnProcesses:
    """Starts them; see the module."""

    def __init__(self) -> None:
        self._forks: dict[str, list[_Fork]] = {}

    def fork(self, word: str, count: int, become: Become) -> None:
        """Fork this process, so that the first ones that run this word of `rdzv` start at once.

        Where that is impossible, or could do harm, nothing happens; nor for the many nodes of a
        rehearsal, each of whose forks would keep files open here.
        """
        forks = self._forks.setdefault(word, [])
        with contextlib.suppress(OSError):  # no room for another process, or file
            while len(forks) < min(count, _MOST_FORKS) and _may_fork():
                forks.append(_fork(word, become))

    async def start(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        *,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
        for_programs: Collection[str] = (),
    ) -> OwnProcess:
        """Start a command in a session of its own, without standard input.

        A terminal's Ctrl-C is the launcher's to pass on.

        Args:
            argv: The command.
            environ: All of its environment.
            stdout: A descriptor; None: this process's own.
            stderr: Likewise.
            pass_fds: Descriptors that it shall have under the same numbers.
            for_programs: Names of variables that are for what it starts, and not for itself.

        Raises:
            OSError: It cannot be started.
            ValueError: A word or a variable has a NUL.
        """
        streams = [1 if stdout is None else stdout, 2 if stderr is None else stderr]
        if (fork := self._take(argv, environ, for_programs)) is not None:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                fork.order(argv, environ, streams, pass_fds)
                return fork
        return await asyncio.create_subprocess_exec(
            *argv,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End those that nobody has taken."""
        for forks in self._forks.values():
            for fork in forks:
                fork.dismiss()
        self._forks.clear()

    def _take(
        self, argv: Sequence[str], environ: Mapping[str, str], for_programs: Collection[str]
    ) -> _Fork | None:
        """A fork for a command of ours whose interpreter would start as this one did."""
        count, words = len(OWN_COMMAND), [*argv, *environ, *environ.values()]
        if (
            tuple(argv[:count]) != OWN_COMMAND
            or "\0" in "".join(words)
            or not _is_alike(environ, for_programs)
        ):
            return None
        forks = self._forks.get(argv[count], [])
        return forks.pop(0) if forks else None


def _is_alike(environ: Mapping[str, str], for_programs: Collection[str]) -> bool:
    """Whether only variables of ours differ, or of programs: others are read by libraries when they
    are loaded, and some of those that are for programs as well."""
    here, there = outside_environment(os.environ), outside_environment(environ)
    changed = {name for name in {*here, *there} if here.get(name) != there.get(name)}
    free = {name for name in for_programs if not name.startswith(_READ_AT_START)}
    return all(name.startswith(_OWN_PREFIX) for name in changed - free)


def _may_fork() -> bool:
    """Whether nothing would be lost: a thread does not come along, but the lock that it holds does;
    and how a fork ends is read from its pidfd, which some sandboxes and kernels before 5.3 lack."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # then no exit code can be read
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        return threading.active_count() == len(os.listdir("/proc/self/task")) == 1
    except (AttributeError, OSError):
        return False


class _Fork:
    """One, seen from the process that forked it."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._channel = channel
        self._pidfd = os.pidfd_open(pid)
        self._over: asyncio.Future[int] | None = None

    def order(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        streams: Sequence[int],
        pass_fds: Sequence[int],
    ) -> None:
        """Let it be this command. Raises OSError when it has ended."""
        self._over = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)
        words = {"argv": list(argv), "environ": dict(environ), "pass_fds": list(pass_fds)}
        with self._channel, anonymous_file("rdzv_orders", json.dumps(words).encode()) as file:
            socket.send_fds(self._channel, [b"."], [file.fileno(), *streams, *pass_fds])

    def dismiss(self) -> None:
        """It has nothing to do, and ends."""
        self._channel.close()
        os.close(self._pidfd)
        _end(self.pid)

    async def wait(self) -> int:
        """See OwnProcess."""
        assert self._over is not None
        return await asyncio.shield(self._over)

    def send_signal(self, number: int) -> None:
        """See OwnProcess; until it is reaped, its number is nobody else's."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        assert self._over is not None
        if not self._over.done():
            self._over.set_result(self.returncode)


# --- the fork's side


@dataclass(frozen=True)
class _Orders:
    argv: list[str]
    environ: dict[str, str]
    fds: dict[int, int]
    """Where each descriptor shall be, and where it is."""


def _fork(word: str, become: Become) -> _Fork:
    """Raises OSError: the machine has no room for it, or it does not get anywhere."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    gc.freeze()  # what both have is garbage in neither, and stays one copy in memory
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as undo, theirs:
        undo.callback(ours.close)
        # A Ctrl-C is for the whole session, which the fork is still in.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            if not (pid := os.fork()):
                _live(word, become, theirs, former)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        undo.callback(_end, pid)
        ours.settimeout(_ALONE_SECONDS)
        if not ours.recv(1):
            raise ChildProcessError
        fork = _Fork(pid, ours)
        undo.pop_all()
    return fork


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _live(word: str, become: Become, channel: socket.socket, mask: Collection[int]) -> NoReturn:
    """Wait for orders, carry them out, end; nothing of what called this is returned to."""
    code = 1
    try:
        os.setsid()
        atexit._clear()
        logging.getLogger().handlers.clear()
        _close_all_but({*_STREAMS, channel.fileno()})
        channel.send(b"!")
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        run = _imported(word, become)
        orders = _receive(channel)
        if orders is not None:
            code = _carried_out(orders, run)
    finally:
        # Its code is known: no signal changes it, and no handler of the launcher's is left to run.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with contextlib.suppress(Exception):
            logging.shutdown()
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _carried_out(orders: _Orders, run: Callable[[], None]) -> int:
    """Its exit code, as an interpreter ends."""
    try:
        _dress(orders)
        run()
    except SystemExit as exc:
        return _exit_code(exc.code)
    except BaseException:  # noqa: BLE001 (the last one who can tell)
        traceback.print_exc()
        return 1
    return 0


def _imported(word: str, become: Become) -> Callable[[], None]:
    """What runs the word; where it cannot be imported, that is said where the command would."""
    try:
        return become(word)
    except Exception as exc:  # noqa: BLE001 (raised again)
        failed = exc

    def fail() -> NoReturn:
        raise failed

    return fail


def _exit_code(said: object) -> int:
    """As the interpreter takes it."""
    if said is None:
        return 0
    if isinstance(said, int):
        return said & 0xFF
    sys.stderr.write(f"{said}\n")
    return 1


def _close_all_but(kept: set[int]) -> None:
    """The launcher's lock and sockets are not this process's."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(int(name))


def _receive(channel: socket.socket) -> _Orders | None:
    """None: the launcher has ended, or does not need this one."""
    with channel:
        channel.settimeout(_IDLE_SECONDS)
        said, fds, _, _ = socket.recv_fds(channel, 1, _MOST_DESCRIPTORS)
    if not said:
        return None
    with open(fds.pop(0), "rb") as file:
        file.seek(0)
        words = json.load(file)
    places = [*_STREAMS[1:], *words["pass_fds"]]
    return _Orders(words["argv"], words["environ"], dict(zip(places, fds, strict=True)))


def _dress(orders: _Orders) -> None:
    """Be the command, as far as anybody can see."""
    above = max(*orders.fds, *orders.fds.values()) + 1
    aside = {place: _moved(fd, above) for place, fd in orders.fds.items()}
    null = os.open(os.devnull, os.O_RDWR)
    if null:
        os.dup2(null, 0)
        os.close(null)
    for place, fd in aside.items():
        os.dup2(fd, place, inheritable=place in _STREAMS)
        os.close(fd)
    for name in [name for name in os.environ if name not in orders.environ]:
        del os.environ[name]
    for name, value in orders.environ.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    count = len(OWN_COMMAND)
    sys.orig_argv[:] = orders.argv
    sys.argv[:] = orders.argv[count - 1 :]
    _show_as(orders.argv)


def _moved(fd: int, above: int) -> int:
    """The same open file at a number that nothing is to have; as in `subprocess`, twice is safe."""
    new = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above)
    os.close(fd)
    return new


def _show_as(argv: Sequence[str]) -> None:
    """Have `ps` show this command, cut to the room that the launcher's command line had.

    The kernel shows the memory in which it has laid the words (proc(5): cmdline, arg_start).
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        shown = Path("/proc/self/cmdline").read_bytes()
        room = end - start
        if start and room == len(shown) and ctypes.string_at(start, room) == shown:
            words = b"".join(os.fsencode(word) + b"\0" for word in argv)
            cut = words[: room - 1].ljust(room, b"\0")
            ctypes.memmove(start, cut, room)
