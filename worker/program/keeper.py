"""The keeper: a small process that starts the training program and lets nothing of it escape.

    agent  ->  keeper  ->  program (torchrun)  ->  its workers

torchrun gives each of its workers a session of its own, so a signal to a process group leaves them
behind, holding their GPUs. The keeper is a *subreaper*: a process below it that loses its parent
becomes the keeper's child, so as long as the keeper has no child, nothing is left. It is a process
of its own because it has to outlive an agent that is ended by SIGKILL.

Each process is told once to end, by the keeper or by its own launcher: see `telling`.

    python -I -S keeper.py LIFELINE GRACE -- PROGRAM [ARGUMENT ...]

LIFELINE is the number of an open socket to the agent. The agent says `T` (end everything: SIGTERM,
GRACE seconds, SIGKILL), `L` (the same of a program that is ending its processes already: without
SIGTERM) or `K` (SIGKILL at once); its end of file, which is also what remains of a killed agent,
means `T`. `FMILLISECONDS;` says that another node may take this one's place: all is killed at that
time of the monotonic clock unless another is said, as the agent may stand still, and the end of
file means `K`; nothing is started where that time is over at the start. The keeper says `started
PID` and `ended CODE` (negative: by that signal), a line each. What the program leaves behind when
it ends by itself is ended like that as well. Where the program itself ended well, it has a moment
to end by itself, and the keeper names what is still there: `left COUNT`, and for the first few
`child PID SECONDS COMMAND`.

It is run by its path in a bare interpreter, so it imports nothing but the standard library and the
modules beside it that say the same of themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

if not __package__:  # run by its path
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))

from worker.program.first_line import first_line_problem, is_noexec
from worker.program.process_table import (
    KILL_SECONDS,
    Process,
    command_of,
    descendants,
    kill,
    read_details,
    send,
    still_there,
    terminate,
    wake,
)
from worker.program.telling import Order, forsaken, order_of

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

FORWARDED = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
        signal.SIGWINCH,
        signal.SIGXCPU,
    }
)
"""What the keeper passes on to the program's main process."""

ENDS_ITSELF_SECONDS = 0.5
"""What a program leaves behind may end by itself for so long: helpers that see their parent's end.
"""

LOOK_SECONDS = 0.5
_FENCE = re.compile(rb"F(\d+);")
_MOST_NAMED = 5


def prctl(option: int, value: int) -> None:
    """Call prctl(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *(ctypes.c_ulong(v) for v in (value, 0, 0, 0))) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fence(until: float) -> bytes:
    """What the agent says of a program that may run until then."""
    return b"F%d;" % round(until * 1000)


class Keeper:
    """One program and all that comes of it.

    Args:
        lifeline: The socket to the agent.
        grace_seconds: Between SIGTERM and SIGKILL.
        begin: Starts the program, and returns its pid. Raises OSError.
    """

    def __init__(
        self, lifeline: int, grace_seconds: float, begin: Callable[[list[str]], int]
    ) -> None:
        self._lifeline = lifeline
        self._grace_seconds = grace_seconds
        self._begin = begin
        self._main = 0
        self._code: int | None = None
        self._told_to_stop = False
        self._told_to_kill = False
        self._fence: float | None = None
        self._ends_itself = False
        self._alone = False
        self._poll = select.poll()
        self._signals, self._signals_in = os.pipe()

    def run(self, command: list[str]) -> int:
        """Start the program, wait, end what is left; its exit code, 128 + n for signal n."""
        self._prepare()
        self._read_lifeline()
        if self._is_over():
            complain(f"{command[0]!r} is not started: another node may have this one's place")
            return 128 + signal.SIGKILL
        try:
            self._main = self._begin(command)
        except OSError as error:
            complain(f"cannot start {command[0]!r}: {error.strerror}")
            return 126
        self._tell(f"started {self._main}")
        while self._code is None and not self._told_to_stop:
            self._turn(None)
        if self._ends_itself:
            self._await_end()
        if self._code == 0:
            self._name_what_is_left()
        self._end_everything()
        return 128 + signal.SIGKILL if self._code is None else unsigned(self._code)

    def let_go(self) -> None:
        """Close the keeper's files, in a process that was forked from it and executes nothing."""
        for fd in {self._lifeline, self._signals, self._signals_in} - {-1}:
            os.close(fd)

    def _prepare(self) -> None:
        os.set_inheritable(self._lifeline, False)
        for fd in (self._lifeline, self._signals, self._signals_in):
            os.set_blocking(fd, False)
        self._poll.register(self._lifeline, select.POLLIN)
        self._poll.register(self._signals, select.POLLIN)
        try:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        except OSError as error:
            complain(f"processes that lose their parent will not be ended: {error.strerror}")
        signal.set_wakeup_fd(self._signals_in, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _turn(self, seconds: float | None) -> None:
        """Sleep until there is news, at most so long, and take it in."""
        if self._fence is not None and not self._told_to_kill:
            left = self._fence - time.monotonic()
            seconds = left if seconds is None else min(left, seconds)
        self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        self._read_lifeline()
        if self._is_over():
            self._told_to_stop = self._told_to_kill = True
        self._forward_signals()
        self._reap()

    def _is_over(self) -> bool:
        return self._fence is not None and time.monotonic() >= self._fence

    def _read_lifeline(self) -> None:
        if self._lifeline < 0:
            return
        try:
            told = os.read(self._lifeline, 4096)
        except BlockingIOError:
            return
        except OSError:  # reset: the agent went away with a line unread
            told = b""
        fences, orders = _FENCE.findall(told), _FENCE.sub(b"", told)
        if fences:
            self._fence = int(fences[-1]) / 1000
        self._told_to_stop |= bool(orders) or not told
        self._told_to_kill |= b"K" in orders or (self._fence is not None and not told)
        self._ends_itself |= b"L" in orders
        if not told:
            self._poll.unregister(self._lifeline)
            os.close(self._lifeline)
            self._lifeline = -1

    def _forward_signals(self) -> None:
        try:
            numbers = os.read(self._signals, 4096)
        except BlockingIOError:
            return
        for number in numbers:
            # Once reaped, the number of the main process may be somebody else's.
            if number != signal.SIGCHLD and self._code is None:
                send(self._main, number)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._alone = True
                return
            if pid == 0:
                return
            if pid == self._main and self._code is None:
                self._code = os.waitstatus_to_exitcode(status)
                self._tell(f"ended {self._code}")

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the agent is gone: the end of file says so too
            os.write(self._lifeline, line.encode() + b"\n")

    def _await_end(self) -> None:
        """Let the program end what it is ending; what it then leaves has the rest of the grace."""
        deadline = time.monotonic() + self._grace_seconds
        wake(descendants(os.getpid()))
        while self._code is None and not self._told_to_kill:
            self._turn(deadline - time.monotonic())
            self._told_to_kill |= time.monotonic() >= deadline
        self._grace_seconds = max(0.0, deadline - time.monotonic())

    def _name_what_is_left(self) -> None:
        deadline = time.monotonic() + ENDS_ITSELF_SECONDS
        while not (self._alone or self._told_to_stop) and time.monotonic() < deadline:
            self._turn(deadline - time.monotonic())
        left = [p for p in descendants(os.getpid()) if p.state != "Z"]
        if left and not self._told_to_stop:
            named = [f"child {p.pid} {p.age_seconds():.0f} {command_of(p.pid)}" for p in left]
            self._tell("\n".join([f"left {len(left)}", *named[:_MOST_NAMED]]))

    def _end_everything(self) -> None:
        """Only the keeper can reap its children, so "no child" cannot be said too early."""
        if not (self._alone or self._told_to_kill):
            half = time.monotonic() + self._grace_seconds / 2
            deadline = half + self._grace_seconds / 2
            order = tell_to_end(descendants(os.getpid()))
            while not (self._alone or self._told_to_kill) and time.monotonic() < deadline:
                # Who loses its parent to another child of ours does so without a word to us.
                following = half if time.monotonic() < half else deadline
                self._turn(min(LOOK_SECONDS, following - time.monotonic()))
                is_late, everyone = time.monotonic() >= half, descendants(os.getpid())
                terminate(forsaken(everyone, order, os.getpid(), is_late))
                wake(everyone)
        deadline = time.monotonic() + KILL_SECONDS
        while not self._alone and time.monotonic() < deadline:
            kill(descendants(os.getpid()))
            self._turn(0.01)
        if not self._alone:
            complain(still_there(descendants(os.getpid())))


def tell_to_end(everyone: list[Process]) -> Order:
    """Tell all of it once, by the keeper or by its launcher; returns how that was done."""
    known = {process.pid: read_details(process.pid) for process in everyone}
    order = order_of(everyone, known, os.getpid())
    for process in order.hold:
        send(process.pid, signal.SIGSTOP)
    kill(order.kill)
    terminate(order.tell)
    for process in order.hold:
        send(process.pid, signal.SIGTERM)
        send(process.pid, signal.SIGCONT)
    return order


def unsigned(code: int) -> int:
    """The exit code as a shell gives it: 128 + n for signal n."""
    return code if code >= 0 else 128 - code


def complain(sentence: str) -> None:
    """One line on standard error, which the agent reads together with the program's."""
    with contextlib.suppress(OSError):  # nobody reads any more
        os.write(2, f"rdzv: {sentence}\n".encode("utf-8", "surrogateescape"))


def start(command: list[str]) -> int:
    """Fork and execute the command; its pid."""
    return fork(lambda keeper: become(command, keeper))


def fork(child: Callable[[int], NoReturn]) -> int:
    """Fork a process that begins with `child`, which is given the pid of this one; its pid."""
    own = os.getpid()
    # A signal that came between fork and exec would write into the keeper's own pipe.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        child(own)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return pid


def become(command: list[str], keeper: int) -> NoReturn:
    """Turn this fresh child into the program; it inherits 0, 1, 2 and the environment alone."""
    code = 126
    try:
        if settle(keeper):
            os.execvpe(command[0], command, original_environment())  # noqa: S606
    except OSError as error:
        code, reason = explain(command[0], error)
        complain(f"cannot start {command[0]!r}: {reason}")
    finally:
        os._exit(code)


def settle(keeper: int) -> bool:
    """Be below the keeper as its program is: a session and signals of its own; False: it is gone.

    Raises OSError.
    """
    os.setsid()  # or a program's `kill 0` would reach the keeper
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        return False
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return True


def original_environment() -> dict[bytes, bytes]:
    """The environment as it was given: Python itself adds LC_CTYPE to a C locale's."""
    with open("/proc/self/environ", "rb") as file:
        items = [item.partition(b"=") for item in file.read().split(b"\0")]
    return {name: value for name, equals, value in items if name and equals}


def explain(program: str, error: OSError) -> tuple[int, str]:
    """Exit code (a shell's: 127 not found, 126 not executable) and reason of a failed exec."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        if "/" not in program:
            return 127, "not found in any folder of PATH"
        if os.path.exists(program):
            return 127, first_line_problem(program) or "the interpreter that it needs is missing"
        return 127, "there is no such file"
    if isinstance(error, PermissionError):
        if is_noexec(program):
            return 126, "its file system is mounted noexec: name its interpreter, or copy it"
        return 126, "it is not an executable file (chmod +x?)"
    if error.errno == errno.ENOEXEC:
        unread = "it has no #! line and is not a program for this machine"
        return 126, first_line_problem(program) or unread
    return 126, str(error.strerror)


def main(arguments: list[str]) -> int:
    """Run as the module's docstring says."""
    lifeline, grace_seconds, _, *command = arguments
    return Keeper(int(lifeline), float(grace_seconds), start).run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
