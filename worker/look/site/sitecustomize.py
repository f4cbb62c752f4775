"""The hook: what runs first in each Python process of a program, and gives a rank its own streams.

Python imports `sitecustomize` from the first folder of its path that has one. Ours does its work in
a rank, takes this folder off the path again, and then the user's own is imported as if there were
no other. Children find this folder by PYTHONPATH once more. With -I, -E or -S nothing of it runs.

A rank's stdout (stderr) is moved to a FIFO of its own only where it still is the very pipe that the
agent has made for the program: what somebody has redirected, or reads himself, stays as it is. The
agent says what the hook has to know in the folder that RDZV_LOOK_FOLDER names:

    streams          DEVICE:INODE of both pipes, and on a second line the variables that number a
                     rank here: those that the program has not been started with itself
    RANK.stdout      a FIFO for each local rank; the agent reads it
    RANK.stderr

It is the user's interpreter that runs this, of any version from 3.8, at each of its starts: it
imports what is there already (not even `__future__`), never raises and prints nothing. What it
cannot do it leaves.
"""

import os
import sys

FOLDER_VARIABLE = "RDZV_LOOK_FOLDER"
STREAMS_FILE = "streams"
RANK_VARIABLES = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
    "HOROVOD_LOCAL_RANK",
)
"""What numbers the ranks of a node, the surest first."""


def install() -> None:
    """Do the work of the hook in this process; once more in a rank that was forked from it."""
    try:
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder and any(name in os.environ for name in RANK_VARIABLES):
            _move_streams(folder)
    except Exception:  # noqa: BLE001, S110 (the user's program is more important)
        pass


def _move_streams(folder: str) -> None:
    pipes, names = read_streams(folder)
    rank = next((os.environ[name] for name in names if name in os.environ), "")
    for fd in (1, 2):
        new = open_own(folder, pipes, rank, fd)
        if new >= 0:
            os.dup2(new, fd, os.get_inheritable(fd))
            os.close(new)


def read_streams(folder: str) -> "tuple[list[str], list[str]]":
    """The pipes, stdout first, and the names of variables. Raises OSError where nobody reads."""
    fd = os.open(os.path.join(folder, STREAMS_FILE), os.O_RDONLY | os.O_CLOEXEC)
    try:
        pipes, names = os.read(fd, 4096).decode().split("\n")[:2]
    finally:
        os.close(fd)
    return pipes.split(), names.split()


def open_own(folder: str, pipes: "list[str]", rank: str, fd: int) -> int:
    """A rank's own stream for what `fd` is now; -1 where that is none of the pipes, or it has none.

    With 2>&1 both are the same pipe, and stay one stream.
    """
    try:
        pipe = identity(fd)
        if pipe not in pipes or not (rank.isdigit() and len(rank) < 5):
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
