"""Which processes below an agent a signal informs; each other one would die of it.

A process that handles a signal shows that in its status. Four kinds do without being a rank: a
shell with an EXIT trap handles it to end, a launcher or rdzv's own starter to pass it on to
processes that may not be able to handle it yet, and what a rank has forked because the rank does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from worker.program.process_table import Details, Process, descendants, read_details, send

_SHELLS = ("ash", "bash", "busybox", "dash", "fish", "ksh", "ksh93", "mksh", "sh", "zsh")
_OF_MPI = ("hydra_pmi_proxy", "mpiexec", "mpiexec.hydra", "mpirun", "orted", "orterun")
_OF_PRTE = ("prte", "prted", "prterun")
_OTHERS = ("apptainer", "singularity", "srun", "starter", "starter-suid", "timeout", "uv")
NOT_RANKS = frozenset((*_SHELLS, *_OF_MPI, *_OF_PRTE, *_OTHERS))
"""Shells, and what passes signals on to others: by the names of their files."""

_STARTERS = (b"torchrun", b"accelerate", b"deepspeed", b"horovodrun")
_MODULES = (b"torch.distributed.run", b"torch.distributed.launch", b"deepspeed.launcher.launch")
LAUNCHERS = frozenset((*_STARTERS, *_MODULES, b"deepspeed.launcher.runner"))
"""The same of Python's: a command, or a module. SIGINT and SIGHUP make them end their ranks."""

_OWN_PROGRAM = (b"-I", b"-S")
"""How rdzv starts Python for what it keeps beside a program."""

Told = frozenset[tuple[int, int]]
"""Processes that received a signal, by number and start."""


def to_inform(
    found: Iterable[Process], number: int, told: Told, look: Callable[[int], tuple[str, Details]]
) -> list[Process]:
    """The topmost processes that handle the signal and have not received it. Pure.

    Args:
        found: What is there, parents first.
        number: The signal.
        told: Who has received it.
        look: The name of a process's file, and what else is known of it.
    """
    chosen, below = [], set[int]()
    for process in found:
        if process.parent in below or (process.pid, process.started) in told:
            below.add(process.pid)
        elif _handles(number, *look(process.pid)):
            below.add(process.pid)
            chosen.append(process)
    return chosen


def _handles(number: int, file: str, details: Details) -> bool:
    if not file or file in NOT_RANKS or details.words[1:3] == _OWN_PROGRAM:
        return False
    launches = any(os.path.basename(word) in LAUNCHERS for word in details.words[1:4])
    return number in details.caught and not launches


def inform(number: int, told: Told) -> Told:
    """Send a signal to each process below this one that handles it, and has not received it yet.

    Returns who has received it. What other nodes have started here is below this process as well.
    """
    chosen = to_inform(descendants(os.getpid()), number, told, _look)
    for process in chosen:
        send(process.pid, number)
    return told | {(process.pid, process.started) for process in chosen}


def _look(pid: int) -> tuple[str, Details]:
    try:
        file = os.readlink(f"/proc/{pid}/exe")
    except OSError:  # it is gone, or not ours
        return "", Details()
    return os.path.basename(file.removesuffix(" (deleted)")), read_details(pid)
