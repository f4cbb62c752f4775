"""The keeper: a small process that starts the training program and lets nothing of it escape.

    agent  ->  keeper  ->  program (torchrun)  ->  its workers

torchrun gives each of its workers a session of its own, so a signal to a process group leaves them
behind, holding their GPUs. The keeper is a *subreaper*: a process below it that loses its parent
becomes the keeper's child, so as long as the keeper has no child, nothing is left. It is a process
of its own because it has to outlive an agent that is ended by SIGKILL.

Each process is told once to end: a second SIGTERM would enter a handler that saves a checkpoint a
second time. torchrun passes SIGTERM on to its workers itself, so the keeper leaves these to it.

    python -I -S keeper.py LIFELINE GRACE -- PROGRAM [ARGUMENT ...]

LIFELINE is the number of an open socket to the agent. The agent says `T` (end everything: SIGTERM,
GRACE seconds, SIGKILL), `L` (the same of a program that is ending its processes already: without
SIGTERM) or `K` (SIGKILL at once); its end of file, which is also what remains of a killed agent,
means `T`. The keeper says `started PID` and `ended CODE` (negative: by that signal),
a line each. What the program leaves behind when it ends by itself is ended like that as well. Where
the program itself ended well, it has a moment to end by itself, and the keeper names what is still
there: `left COUNT`, and for the first few `child PID SECONDS COMMAND`.

It is run by its path in a bare interpreter, so it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

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

KILL_SECONDS = 10.0
"""How long SIGKILL is repeated: a process stuck in a driver or a file server may never end."""

_HYDRAS_MARK = b"PMI_RANK="  # MPICH's and Intel's
_MARKS = (b"TORCHELASTIC_RUN_ID=", b"OMPI_COMM_WORLD_RANK=", _HYDRAS_MARK)
_MOST_NAMED = 5
_COMMAND_LENGTH = 60


class Process(NamedTuple):
    """One process as /proc/PID/stat shows it; `started` tells a number that was used again."""

    pid: int
    parent: int
    group: int
    state: str
    started: int
    status: int

    def age_seconds(self) -> float:
        """Time since its start."""
        ticks = os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / ticks  # noqa: TID251


def prctl(option: int, value: int) -> None:
    """Call prctl(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *(ctypes.c_ulong(v) for v in (value, 0, 0, 0))) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def read_process(pid: int) -> Process | None:
    """Look at one process; None when it is gone. A zombie's `status` is its wait status."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, 4096)
        finally:
            os.close(fd)
    except OSError:
        return None
    # The name of the program, in parentheses, may hold blanks and parentheses itself.
    fields = text.rpartition(b")")[2].split()
    parent, group = int(fields[1]), int(fields[2])
    return Process(pid, parent, group, fields[0].decode(), int(fields[19]), int(fields[49]))


def command_of(pid: int) -> str:
    """A process's command in a few words; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).decode(errors="replace").split("\0")
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read().decode(errors="replace").strip()
    except OSError:
        return ""
    return short_command(words, name)


def short_command(words: list[str], name: str) -> str:
    """The program's name, and the script or module that it runs; `name` where it has no words.

    Every other argument is left out: it may hold a secret.
    """
    first, *arguments = (words[0].split() or [name])[:1] + words[1:]
    shown = [os.path.basename(first)]
    for before, word in zip([first, *arguments], arguments, strict=False):
        if before == "-m":
            shown += ["-m", word]
            break
        if word.endswith((".py", ".sh")) and not set(word) & set(" =:\n"):
            shown += [os.path.basename(word)]
            break
    text = "".join(c if c.isprintable() else "?" for c in " ".join(shown))
    return text[:_COMMAND_LENGTH]


def processes() -> list[Process]:
    """Every process of this machine (or container) that can be seen."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def descendants(root: int, spare: frozenset[int] = frozenset()) -> list[Process]:
    """Everything below `root`, parents first, without `spare` and all that is below these."""
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [root]
    for parent in parents:
        kept = [child for child in children.get(parent, []) if child.pid not in spare]
        found += kept
        parents += [child.pid for child in kept]
    return found


def worker_groups(
    everyone: list[Process], added: Callable[[Process], set[bytes]], ignores: Callable[[int], bool]
) -> set[int]:
    """The process groups of the ranks of torchrun or mpirun, which pass SIGTERM on to them: each
    rank leads one. `ignores`: whether a process ignores SIGTERM, and so passes none on."""
    pids = {process.pid for process in everyone}
    leaders = [p for p in everyone if p.pid == p.group and p.parent in pids]
    return {p.pid for p in leaders if added(p) and not ignores(p.parent)}


def hydras_proxies(
    everyone: list[Process], groups: set[int], added: Callable[[Process], set[bytes]]
) -> set[int]:
    """What mpiexec (MPICH's and Intel's) has put between itself and its ranks: it is told by that,
    and tells the ranks each time that it is told. One that loses its mpiexec ends by itself."""
    workers = [p for p in everyone if p.pid in groups]
    parents = {p.parent for p in workers if any(m.startswith(_HYDRAS_MARK) for m in added(p))}
    return {p.pid for p in everyone if p.pid in parents and p.parent != os.getpid()}


def added_marks(process: Process) -> set[bytes]:
    """What torchrun or mpirun has added to a rank's environment; it may have some of it itself."""
    return marks_of(process.pid) - marks_of(process.parent)


def marks_of(pid: int) -> set[bytes]:
    """What there is of it in a process's environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return {item for item in file.read().split(b"\0") if item.startswith(_MARKS)}
    except OSError:
        return set()


def ignores_sigterm(pid: int) -> bool:
    """Whether the process has turned SIGTERM off."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigIgn:")]
    except OSError:
        return False
    return bool(int(masks[0], 16) >> (signal.SIGTERM - 1) & 1)


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone, or no longer ours to signal (setuid)."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def terminate(everyone: list[Process]) -> set[int]:
    """SIGTERM to all; a stopped process is woken, or it would never see it. Returns their pids."""
    for process in everyone:
        send(process.pid, signal.SIGTERM)
        if process.state == "T":
            send(process.pid, signal.SIGCONT)
    return {process.pid for process in everyone}


def kill(everyone: list[Process]) -> None:
    """SIGKILL to all."""
    for process in everyone:
        send(process.pid, signal.SIGKILL)


class Keeper:
    """One program and all that comes of it."""

    def __init__(self, lifeline: int, grace_seconds: float) -> None:
        self._lifeline = lifeline
        self._grace_seconds = grace_seconds
        self._main = 0
        self._code: int | None = None
        self._told_to_stop = False
        self._told_to_kill = False
        self._ends_itself = False
        self._alone = False
        self._poll = select.poll()
        self._signals, self._signals_in = os.pipe()

    def run(self, command: list[str]) -> int:
        """Start the program, wait, end what is left; its exit code, 128 + n for signal n."""
        self._prepare()
        try:
            self._main = start(command)
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
        self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        self._read_lifeline()
        self._forward_signals()
        self._reap()

    def _read_lifeline(self) -> None:
        if self._lifeline < 0:
            return
        try:
            told = os.read(self._lifeline, 64)
        except BlockingIOError:
            return
        except OSError:  # reset: the agent went away with a line unread
            told = b""
        self._told_to_stop = True
        self._told_to_kill |= b"K" in told
        self._ends_itself |= b"L" in told
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
        told: set[int] = set()
        groups: set[int] = set()
        if not self._alone and not self._told_to_kill:
            everyone = descendants(os.getpid())
            groups = worker_groups(everyone, added_marks, ignores_sigterm)
            proxies = hydras_proxies(everyone, groups, added_marks)
            terminate([p for p in everyone if p.group not in groups and p.pid not in proxies])
            told = {process.pid for process in everyone} - groups
        deadline = time.monotonic() + self._grace_seconds
        while not self._alone and not self._told_to_kill and time.monotonic() < deadline:
            self._turn(deadline - time.monotonic())
            told |= terminate(forsaken(os.getpid(), told, groups))
        deadline = time.monotonic() + KILL_SECONDS
        while not self._alone and time.monotonic() < deadline:
            kill(descendants(os.getpid()))
            self._turn(0.01)
        if not self._alone:
            complain(still_there(descendants(os.getpid())))


def forsaken(keeper: int, told: set[int], groups: set[int]) -> list[Process]:
    """What nobody but the keeper tells to end: a child that was born while its parent was being
    told, and the group of a worker whose torchrun has ended without telling it."""
    everyone = descendants(keeper)
    orphans = {process.pid for process in everyone if process.parent == keeper} - told
    return [p for p in everyone if p.pid in orphans or p.group in orphans & groups]


def still_there(left: list[Process]) -> str:
    """The sentence about processes that outlived SIGKILL."""
    pids = ", ".join(f"{process.pid} (state {process.state})" for process in left)
    return f"SIGKILL did not end these processes within {KILL_SECONDS:.0f} s: {pids}"


def unsigned(code: int) -> int:
    """The exit code as a shell gives it: 128 + n for signal n."""
    return code if code >= 0 else 128 - code


def complain(sentence: str) -> None:
    """One line on standard error, which the agent reads together with the program's."""
    with contextlib.suppress(OSError):  # nobody reads any more
        os.write(2, f"rdzv: {sentence}\n".encode("utf-8", "surrogateescape"))


def start(command: list[str]) -> int:
    """Fork and execute the command; its pid."""
    keeper = os.getpid()
    # A signal that came between fork and exec would write into the keeper's own pipe.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        become(command, keeper)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return pid


def become(command: list[str], keeper: int) -> NoReturn:
    """Turn this fresh child into the program; it inherits 0, 1, 2 and the environment alone."""
    code = 126
    try:
        os.setsid()  # or a program's `kill 0` would reach the keeper
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvpe(command[0], command, original_environment())  # noqa: S606
    except OSError as error:
        code, reason = explain(command[0], error)
        complain(f"cannot start {command[0]!r}: {reason}")
    finally:
        os._exit(code)


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
            return 127, "the interpreter that its first line names does not exist"
        return 127, "there is no such file"
    if isinstance(error, PermissionError):
        return 126, "it is not an executable file (chmod +x?)"
    if error.errno == errno.ENOEXEC:
        return 126, "it has no #! line and is not a program for this machine"
    return 126, str(error.strerror)


def main(arguments: list[str]) -> int:
    """Run as the module's docstring says."""
    lifeline, grace_seconds, _, *command = arguments
    return Keeper(int(lifeline), float(grace_seconds)).run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
