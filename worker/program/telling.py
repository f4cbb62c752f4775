"""Who is told to end, so that each process is told once, whatever has started it. Pure.

A second SIGTERM would enter a handler that saves a checkpoint a second time, and Lightning's
broadcasts once more, for which no other rank waits. What launchers do with one of their own:

- torchrun and mpirun (Open MPI's) pass it on to the process group of each rank; MPICH's and Intel's
  mpiexec to its proxies, which tell the ranks. These are left to them.
- Lightning's Trainer passes it on to the ranks that it has started, and is one itself. These are
  left to it as well, but not for the whole grace: Lightning's Fabric looks the same from here, and
  tells nobody, and so may a launcher that somebody wrote.
- DeepSpeed's launcher of one node tells its ranks one after the other, each when the one before
  has ended. That takes longer than any grace, and where a rank has failed of its own, all are told
  once more. It has nothing else left to do: it is killed, and its ranks are told.
- horovodrun tells what runs its ranks, which gives them 5 s. It has their output to read: it is
  held still until everything else is told, and then finds nothing to pass it on to.
- `timeout` and its like tell their one command, which is told already, and end with it.

The keeper imports it in a bare interpreter: nothing but the standard library is there.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import NamedTuple

from worker.program.process_table import Details, Process

_HYDRAS = b"PMI_RANK="  # MPICH's and Intel's
_LED = (b"TORCHELASTIC_RUN_ID=", b"OMPI_COMM_WORLD_RANK=", _HYDRAS)
_DEEPSPEEDS = (b"-m", b"deepspeed.launcher.launch")
_HOROVODS = b"horovodrun"
_WRAPPERS = frozenset({b"runuser", b"su", b"timeout", b"tini"})

Known = Mapping[int, Details]
Words = tuple[bytes, ...]


class Order(NamedTuple):
    """What is done to everything below a keeper, in this order.

    Attributes:
        hold: Stopped until all others have been told; then SIGTERM.
        kill: SIGKILL.
        tell: SIGTERM.
        late: SIGTERM when half of the grace is over: ranks that their parent tells, or not.
        groups: Of ranks that are left to their launcher, for as long as they have it.
        heard: Pids that need not be told any more, should they lose their parent.
    """

    hold: list[Process]
    kill: list[Process]
    tell: list[Process]
    late: list[Process]
    groups: set[int]
    heard: set[int]


def order_of(everyone: list[Process], known: Known, keeper: int) -> Order:
    """How all of it ends.

    Args:
        everyone: Below the keeper.
        known: What is known of each, by pid.
        keeper: Its own pid.
    """
    groups = _groups_of_ranks(everyone, known)
    proxies = _proxies(everyone, known, groups, keeper)
    ours = [p for p in everyone if p.group not in groups and p.pid not in proxies]
    hold = [p for p in ours if _is_horovodrun(known[p.pid].words)]
    ranks = _ranks_of_a_rank(everyone, known)
    late = [p for p in ours if p.pid in ranks]
    kill = [p for p in ours if _is_deepspeeds(known[p.pid].words)]
    wrappers = _wrappers(everyone, known)
    special = {p.pid for p in (*hold, *late, *kill)} | wrappers
    tell = [p for p in ours if p.pid not in special]
    return Order(hold, kill, tell, late, groups, {p.pid for p in everyone} - groups)


def forsaken(everyone: list[Process], order: Order, keeper: int, is_late: bool) -> list[Process]:
    """Who is told now, as nobody else does it, or may not have done it; it is noted in the order.

    That is a child that was born while its parent was being told, the group of a rank whose
    launcher has ended without telling it, and, where half of the grace is over (`is_late`), the
    ranks that their parent has perhaps told.
    """
    orphans = {process.pid for process in everyone if process.parent == keeper} - order.heard
    found = [p for p in everyone if p.pid in orphans or p.group in orphans & order.groups]
    if is_late:
        waiting = {(process.pid, process.started) for process in order.late}
        found += [p for p in everyone if (p.pid, p.started) in waiting]
        order.late.clear()
    order.heard.update(process.pid for process in found)
    return found


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


def _ranks_of_a_rank(everyone: list[Process], known: Known) -> set[int]:
    """Those that the first rank of a node, which handles SIGTERM, has started as Lightning does:
    they have a LOCAL_RANK, but no RANK. With LOCAL_RANK=0 it starts what is no rank."""
    pythons = {p.pid for p in everyone if _is_python(known[p.pid].words)}
    parents = {pid for pid in pythons if signal.SIGTERM in known[pid].caught}
    children = [p for p in everyone if p.parent in parents and p.pid in pythons]
    children = [p for p in children if _added(p, known, b"LOCAL_RANK=") - {b"LOCAL_RANK=0"}]
    return {p.pid for p in children if not _added(p, known, b"RANK=")}


def _wrappers(everyone: list[Process], known: Known) -> set[int]:
    """What ends with its one command; if that is another user's, only the wrapper can tell it."""
    within_reach = {p.parent for p in everyone if known[p.pid].environment}
    return {pid for pid in within_reach & {*known} if _name(known[pid].words) in _WRAPPERS}


def _is_deepspeeds(words: Words) -> bool:
    """Whether a command is DeepSpeed's launcher of one node, and not what only starts that."""
    first = 2 if words[1:2] == (b"-u",) else 1
    return _is_python(words) and words[first : first + 2] == _DEEPSPEEDS


def _is_horovodrun(words: Words) -> bool:
    """Whether a command is horovodrun: a script, which follows its interpreter."""
    return _HOROVODS in (_name(words), _name(words[1:]))


def _is_python(words: Words) -> bool:
    return _name(words).startswith(b"python")


def _name(words: Words) -> bytes:
    """The first word's, without its folder; empty where there is none."""
    return b"".join(words[:1]).rpartition(b"/")[2]


def _added(process: Process, known: Known, *names: bytes) -> set[bytes]:
    """What of it was added to a process's environment; its parent may have some of it itself."""
    before = known[process.parent].environment
    added = known[process.pid].environment - before if before else frozenset()  # not to be read
    return {item for item in added if item.startswith(names)}
