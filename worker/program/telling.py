"""Who is told to end, so that each process is told once, whatever has started it. Pure.

A second SIGTERM would enter a handler that saves a checkpoint a second time, and Lightning's
broadcasts once more, for which no other rank waits. What launchers do with one of their own:

- torchrun and mpirun (Open MPI's) pass it on to the process group of each rank; MPICH's and Intel's
  mpiexec to its proxies, which tell the ranks. These are left to them.
- Lightning's Trainer passes it on to the ranks that it has started, and is one itself. Also left.
- DeepSpeed's launcher of one node tells its ranks one after the other, each when the one before
  has ended. That takes longer than any grace, and where a rank has failed of its own, all are told
  once more. It has nothing else left to do: it is killed, and its ranks are told.
- horovodrun tells what runs its ranks, which gives them 5 s. It has their output to read: it is
  held still until everything else is told, and then finds nothing to pass it on to.

The keeper imports it in a bare interpreter: nothing but the standard library is there.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from worker.program.process_table import Details, Process

_HYDRAS = b"PMI_RANK="  # MPICH's and Intel's
_LED = (b"TORCHELASTIC_RUN_ID=", b"OMPI_COMM_WORLD_RANK=", _HYDRAS)
_DEEPSPEEDS = (b"-m", b"deepspeed.launcher.launch")
_HOROVODS = b"horovodrun"

Known = Mapping[int, Details]


class Order(NamedTuple):
    """What is done to everything below a keeper, in this order.

    Attributes:
        hold: Stopped until the end of this.
        kill: SIGKILL.
        tell: SIGTERM; last of all, also to what is held.
        groups: Of ranks that are left to their launcher, for as long as they have it.
        heard: Pids that nobody needs to tell any more, should they lose their parent.
    """

    hold: list[Process]
    kill: list[Process]
    tell: list[Process]
    groups: set[int]
    heard: set[int]


def order_of(everyone: list[Process], known: Known, keeper: int) -> Order:
    """How all of it ends.

    Args:
        everyone: Below the keeper, parents before their children.
        known: What is known of these, and of the keeper, by pid.
        keeper: Its pid.
    """
    groups = _groups_of_ranks(everyone, known)
    proxies = _proxies(everyone, known, groups, keeper)
    untold = _below(everyone, _lightnings_ranks(everyone, known))
    ours = [p for p in everyone if p.group not in groups and p.pid not in proxies | untold]
    hold = [p for p in ours if _is_horovodrun(known[p.pid].words)]
    kill = [p for p in ours if _is_deepspeeds(known[p.pid].words)]
    tell = [p for p in ours if p not in hold and p not in kill]
    return Order(hold, kill, tell, groups, {p.pid for p in everyone} - groups - untold)


def forsaken(everyone: list[Process], order: Order, keeper: int) -> list[Process]:
    """What nobody but the keeper tells to end: a child that was born while its parent was being
    told, and the group of a rank whose launcher has ended without telling it."""
    orphans = {process.pid for process in everyone if process.parent == keeper} - order.heard
    return [p for p in everyone if p.pid in orphans or p.group in orphans & order.groups]


def _groups_of_ranks(everyone: list[Process], known: Known) -> set[int]:
    """Each rank leads one. A launcher that ignores SIGTERM passes none on."""
    pids = {process.pid for process in everyone}
    ranks = [p for p in everyone if p.pid == p.group and p.parent in pids]
    ranks = [p for p in ranks if signal.SIGTERM not in known[p.parent].ignored]
    return {p.pid for p in ranks if _added(p, known, *_LED)}


def _proxies(everyone: list[Process], known: Known, groups: set[int], keeper: int) -> set[int]:
    """What Hydra's mpiexec has put between itself and its ranks. One that loses it ends itself."""
    parents = {p.parent for p in everyone if p.pid in groups and _added(p, known, _HYDRAS)}
    return {p.pid for p in everyone if p.pid in parents and p.parent != keeper}


def _lightnings_ranks(everyone: list[Process], known: Known) -> set[int]:
    """Those that the first rank of a node has started; they have LOCAL_RANK, but no RANK.

    Where the script handles SIGTERM, that is the Trainer, or stands for it.
    """
    handlers = {p.pid for p in everyone if _is_python_with_handler(known[p.pid])}
    children = [p for p in everyone if p.parent in handlers]
    children = [p for p in children if _added(p, known, b"LOCAL_RANK=")]
    return {p.pid for p in children if not _added(p, known, b"RANK=")}


def _is_python_with_handler(details: Details) -> bool:
    """Whether it is a Python program that handles SIGTERM itself."""
    is_python = _name(b"".join(details.words[:1])).startswith(b"python")
    return is_python and signal.SIGTERM in details.caught


def _is_deepspeeds(words: tuple[bytes, ...]) -> bool:
    """Whether a command is DeepSpeed's launcher of one node."""
    return _DEEPSPEEDS in pairwise(words)


def _is_horovodrun(words: tuple[bytes, ...]) -> bool:
    """Whether a command is horovodrun: a script, which follows its interpreter."""
    return _HOROVODS in map(_name, words[:2])


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _added(process: Process, known: Known, *names: bytes) -> set[bytes]:
    """What of it was added to a process's environment; its parent may have some of it itself."""
    added = known[process.pid].environment - known[process.parent].environment
    return {item for item in added if item.startswith(names)}


def _below(everyone: list[Process], roots: set[int]) -> set[int]:
    """These, and all that they have started."""
    found = set(roots)
    for process in everyone:  # parents first
        if process.parent in found:
            found.add(process.pid)
    return found
