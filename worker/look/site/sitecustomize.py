"""The hook: what runs first in each Python process of a program, and lets a rank be seen by itself.

Python imports `sitecustomize` from the first folder of its path that has one. Ours does its work in
a rank, takes this folder off the path again, and then the user's own is imported as if there were
no other. Children find this folder by PYTHONPATH once more. With -I, -E or -S nothing of it runs.

A rank's stdout (stderr) is moved to a FIFO of its own only where it still is the very pipe that the
agent has made for the program: what somebody has redirected, or reads himself, stays as it is.
In a launcher of ranks only Python's `sys.stderr` is moved, and not the file 2 that ranks inherit:
what comes by the launcher's FIFO is its own, whatever it looks like.

One process of a local rank is the rank: the first that lives. It can be asked where it is: its
thread, from when it imports torch (see `worker.look.answering`), and else by a signal, for which
faulthandler writes the stack of the main thread. That needs no GIL, but it also takes no care:
while any thread runs Python code it may crash the process, so who sends the signal has to know that
none does. What a rank starts has the same variables, and answers the signal alone, into the rank's
file; so does a launcher, which has none of them. A child that was forked needs nothing for that.

Each of them notes the worlds that it takes part in (see `worker.look.noting`), once it imports a
library that forms them: what a rank starts may be what takes part.

The agent says what the hook has to know in the folder that RDZV_LOOK_FOLDER names:

    streams          DEVICE:INODE of both pipes, and on a second line the variables that number a
                     rank here: those that the program has not been started with itself
    RANK.stdout      a FIFO for each local rank; the agent reads it
    RANK.stderr
    launcher.stderr  a FIFO for what the ranks' launcher itself prints
    RANK.here        made by the rank: a link to no file but the words PID STARTED SIGNAL, which is
                     there with all of its text or not at all
    RANK.stacks      what faulthandler writes
    RANK.socket      where the thread answers
    RANK.world...    what is noted of a world
    launcher.stacks  what faulthandler writes in processes that are no rank's

It is the user's interpreter that runs this, of any version from 3.8, at each of its starts: it
imports what is there already (not even `__future__`), never raises and prints nothing. What it
cannot do it leaves.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER_VARIABLE = "RDZV_LOOK_FOLDER"
STREAMS_FILE = "streams"
STACKS = ".stacks"
RANK_VARIABLES = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
    "HOROVOD_LOCAL_RANK",
)
"""What numbers the ranks of a node, the surest first."""


LAUNCHER = "launcher"
"""In place of a rank's number, in the names of files."""
_LAUNCHERS = ("torchrun", "accelerate", "accelerate-launch")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_FLAGS = "bBdEiIOPqRsSuvx"
"""Python's options without a value: `-um MODULE` and `-mMODULE` are `-m MODULE`."""
_TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"

SIGNAL = 7
"""Behind SIGRTMIN: the first two are taken by the C library, SIGUSR1 and SIGUSR2 by frameworks."""

HIGH_FILES = (1000, 250, 60)
"""Where the open file for stacks is put, and the socket after it: out of the program's way, which
may count on the numbers of what it opens, and close all that it does not know."""


def install() -> None:
    """Do the work of the hook in this process; once more in a rank that was forked from it."""
    try:
        folder, rank = os.environ.get(FOLDER_VARIABLE), ""
        is_launcher = folder and _is_launcher()
        if folder and (is_launcher or any(name in os.environ for name in RANK_VARIABLES)):
            pipes, names = read_streams(folder)
            rank = next((os.environ[name] for name in names if name in os.environ), "")
            if is_launcher and not rank:
                own_stderr(launcher_stream(folder))
            else:
                _move_streams(folder, pipes, rank)
        if folder and _is_number(rank):
            imports = Imports()
            if _claim(folder, rank):
                _let_look(folder, rank, imports)
            else:
                _catch_signal(os.path.join(folder, rank + STACKS))
            imports.wait(WORLDS, Beside("noting.py", folder, rank, forked=True))
        elif folder:
            _catch_signal(os.path.join(folder, LAUNCHER + STACKS))
    except Exception:  # noqa: BLE001, S110 (the user's program is more important)
        pass


def _move_streams(folder: str, pipes: "list[str]", rank: str) -> None:
    for fd in (1, 2):
        new = open_own(folder, pipes, rank, fd)
        if new >= 0:
            os.dup2(new, fd, os.get_inheritable(fd))
            os.close(new)


def _is_launcher() -> bool:
    """Return whether this process is one that starts the ranks: by its script, or its module."""
    name = (getattr(sys, "argv", None) or [""])[0]
    if name != "-m":
        return os.path.basename(name) in _LAUNCHERS
    words = getattr(sys, "orig_argv", [])[1:]  # since Python 3.10
    for word, after in zip(words, [*words[1:], ""]):  # noqa: B905 (since Python 3.10)
        flags, is_module, rest = word[1:].partition("m")
        if word[:1] == "-" and is_module and all(flag in _FLAGS for flag in flags):
            return (rest or after) in _MODULES
    return False


def launcher_stream(folder: str) -> int:
    """The launcher's own stream for its errors; -1: it has none, and writes where its ranks do.

    With this template torchrun may pass on lines of its ranks (`--tee`) as if they were its own.
    """
    if _TEMPLATE in os.environ:
        return -1
    try:
        return open_own(folder, read_streams(folder)[0], LAUNCHER, 2)
    except OSError:
        return -1


def own_stderr(fd: int) -> None:
    """Let Python's own errors go to `fd`, and not to the file that children inherit; -1: no."""
    if fd < 0 or sys.stderr is None:
        return
    fd = put_high(fd, 2)
    own = open(fd, "w", 1, sys.stderr.encoding, sys.stderr.errors, closefd=False)  # noqa: SIM115
    sys.stderr = own
    # A child that is no new program may be a rank.
    os.register_at_fork(after_in_child=lambda: os.dup2(2, fd, False))


def _is_number(rank: str) -> bool:
    return rank.isascii() and rank.isdigit() and len(rank) < 5


def _claim(folder: str, rank: str) -> bool:
    """Whether this process is the rank. torchrun starts another one where it has ended."""
    import _signal  # type: ignore[import-not-found]  # `signal` imports much

    own, here = os.getpid(), os.path.join(folder, rank + ".here")
    words = f"{own} {started(own)} {_signal.SIGRTMIN + SIGNAL}"
    try:
        os.symlink(words, here)
    except FileExistsError:
        pid, then = os.readlink(here).split()[:2]
        if int(pid) != own and started(int(pid)) == then:
            return False
        os.symlink(words, f"{here}.{own}")
        os.replace(f"{here}.{own}", here)
    return True


def started(pid: int) -> str:
    """When a process was started; empty where it is gone, or only waits to be reaped."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = os.read(fd, 4096).rpartition(b")")[2].split()
        finally:
            os.close(fd)
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def _let_look(folder: str, rank: str, imports: "Imports") -> None:
    import _thread

    # Not before there is torch, whose processes have threads anyway: one that forks is warned of
    # any thread that it has, since Python 3.12.
    imports.wait((TORCH,), Beside("answering.py", folder, rank, _thread.get_ident(), put_high))
    _catch_signal(os.path.join(folder, rank + STACKS))


def _catch_signal(path: str) -> None:
    """Let faulthandler write the main thread's stack, if nobody else handles the signal."""
    import _signal
    import faulthandler

    number = _signal.SIGRTMIN + SIGNAL
    with_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if with_gil and _signal.getsignal(number) == _signal.SIG_DFL:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = put_high(os.open(path, flags, 0o600), 0)
        faulthandler.register(number, file=fd, all_threads=False, chain=False)


def put_high(fd: int, offset: int) -> int:
    """The open file, moved to one of the high numbers; that offset is for this kind alone.

    Raises:
        OSError: There is no room for it.
    """
    try:
        for number in HIGH_FILES:
            try:
                os.fstat(number + offset)
            except OSError:
                try:
                    return os.dup2(fd, number + offset, False)
                except OSError:  # more than the process may open
                    pass
    finally:
        os.close(fd)
    raise OSError


TORCH = "torch.distributed"
WORLDS = (TORCH, "jax")
"""Libraries that form worlds."""


class Beside:
    """Starts what lies beside this folder; `forked`: also in a process that is forked from here."""

    def __init__(self, name: str, *where: object, forked: bool = False) -> None:
        self.name = name
        self.where = where
        self.pid = 0 if forked else os.getpid()

    def start(self) -> None:
        """Run it, under no name that can be imported: the program would see that."""
        try:
            if self.pid in (0, os.getpid()):
                path = os.path.join(os.path.dirname(os.path.dirname(__file__)), self.name)
                own: Any = __spec__
                name = "rdzv_" + self.name[: -len(".py")]
                names: dict[str, Any] = {"__name__": name}
                exec(type(own.loader)(name, path).get_code(name), names)  # noqa: S102
                names["start"](*self.where)
        except Exception:  # noqa: BLE001, S110 (the user's program is more important)
            pass


class Imports:
    """Sees what is imported, and finds nothing: something begins with the first of some modules."""

    def __init__(self) -> None:
        self.waiting: list[tuple[tuple[str, ...], Beside]] = []

    def wait(self, modules: "tuple[str, ...]", begins: Beside) -> None:
        """Start it with the first of these modules; now, if there is one already."""
        if any(name in sys.modules for name in modules):
            begins.start()
            return
        self.waiting.append((modules, begins))
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """See one import."""
        due = [begins for modules, begins in self.waiting if name in modules]
        if due:
            self.waiting = [each for each in self.waiting if name not in each[0]]
            if not self.waiting and self in sys.meta_path:
                sys.meta_path.remove(self)
            for each in due:
                each.start()


def read_streams(folder: str) -> "tuple[list[str], list[str]]":
    """The pipes, stdout first, and the names of variables. Raises OSError where nobody reads."""
    fd = os.open(os.path.join(folder, STREAMS_FILE), os.O_RDONLY | os.O_CLOEXEC)
    try:
        pipes, names = os.read(fd, 4096).decode().split("\n")[:2]
    finally:
        os.close(fd)
    return pipes.split(), names.split()


def open_own(folder: str, pipes: "list[str]", rank: str, fd: int) -> int:
    """The stream of a rank, or of the `LAUNCHER`, for what `fd` is now; -1 where that is no pipe of
    the program, or it has none.

    With 2>&1 both are the same pipe, and stay one stream.
    """
    try:
        pipe = identity(fd)
        if pipe not in pipes or not (_is_number(rank) or rank == LAUNCHER):
            return -1
        name = f"{rank}.{('stdout', 'stderr')[pipes.index(pipe)]}"
        # Without a reader this fails at once, and does not wait for one.
        new = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(new, os.get_blocking(fd))
    except OSError:
        return -1
    return new


def identity(fd: int) -> str:
    """What an open file is, the same at both ends of a pipe: DEVICE:INODE. Raises OSError."""
    found = os.fstat(fd)
    return f"{found.st_dev}:{found.st_ino}"


def step_aside() -> None:
    """Let the user's own sitecustomize be imported in this one's place.

    Raises:
        ImportError: There is none. Python takes it as it would without this one.
    """
    here = os.path.dirname(__file__)
    sys.path[:] = [folder for folder in sys.path if folder != here]
    sys.path_importer_cache.pop(here, None)
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # type: ignore[import-not-found,unused-ignore]  # noqa: F401


if __name__ == "sitecustomize":
    install()
    step_aside()
