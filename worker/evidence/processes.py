"""Reads the limits and states of ranks, which may have ended, and whose a socket is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rendezvous.cause.facts import FactKind
from rendezvous.wire.evidence import Fact
from rendezvous.wire.words import printable
from worker.evidence.parsing.processes import (
    State,
    limit_facts,
    limits_in,
    state_facts,
    state_in,
)
from worker.evidence.parsing.sockets import Holder, holders_in
from worker.evidence.parsing.telling import fact
from worker.machine import sysfs
from worker.machine.limits import is_exempt, threads_of
from worker.program.process_table import short_command

STEADY_SECONDS = 0.1
"""Who waits for a disk all that time is told; any process does now and then."""

SEARCH_SECONDS = 0.4
"""To find whose a socket is: a machine may have a million of open files."""

_MOST_LETTERS = 100


def look_limits(ranks: Mapping[int, int], root: Path = Path("/")) -> list[Fact]:
    """The limits of the ranks, also of those that nobody has reaped, else those of this process."""
    found: dict[int | None, dict[str, int]] = {
        rank: limits_in(text)
        for rank, pid in ranks.items()
        if (text := sysfs.content(root / f"proc/{pid}/limits"))
    }
    facts = limit_facts(found or {None: limits_in(sysfs.content(root / "proc/self/limits"))})
    if not any(one.path == "nproc" for one in facts):
        return facts
    if is_exempt(os.getuid(), root):
        return [one for one in facts if one.path != "nproc"]
    count = float(threads_of(os.getuid(), root))
    return [
        one.model_copy(update={"value": count}) if one.path == "nproc" else one for one in facts
    ]


def look_states(
    ranks: Mapping[int, int],
    root: Path = Path("/"),
    sleep: Callable[[float], None] = time.sleep,
) -> list[Fact]:
    """The ranks that are stopped, or wait for a disk and still do a moment later."""
    states = _states(ranks, root)
    waiting = {rank: ranks[rank] for rank, state in states.items() if state.letter == "D"}
    if waiting:
        sleep(STEADY_SECONDS)
        later = _states(waiting, root)
        kept = {rank for rank, state in later.items() if state.letter == "D"}
        states = {r: s for r, s in states.items() if r not in waiting or r in kept} | {
            rank: later[rank] for rank in kept
        }
    return state_facts(states)


def look_ports(
    ports: Iterable[int],
    ranks: Mapping[int, int],
    root: Path = Path("/"),
    clock: Callable[[], float] = time.monotonic,
) -> list[Fact]:
    """Who has the ports; a port that is free again is not told."""
    wanted = [port for port in ports if 0 < port < 65_536]
    if not wanted:
        return []
    tables = [sysfs.content(root / f"proc/net/{name}") for name in ("tcp", "tcp6")]
    holders = holders_in(tables, wanted)
    sought = {holder.inode for holder in holders if holder.inode}
    owners = _owners(sought, root, clock() + SEARCH_SECONDS, clock) if sought else {}
    by_pid = {pid: rank for rank, pid in ranks.items()}
    return [
        fact(
            FactKind.PORT,
            value=holder.port,
            words=_holder_words(holder, owners.get(holder.inode), root),
            rank=by_pid.get(owners.get(holder.inode, 0)),
        )
        for holder in holders
    ]


def _states(ranks: Mapping[int, int], root: Path) -> dict[int, State]:
    found = {}
    for rank, pid in ranks.items():
        stat = sysfs.content(root / f"proc/{pid}/stat")
        state = state_in(stat, sysfs.content(root / f"proc/{pid}/wchan"))
        if state is not None:
            found[rank] = state
    return found


def _owners(
    inodes: set[int], root: Path, deadline: float, clock: Callable[[], float]
) -> dict[int, int]:
    """By socket, a process that has it open, as far as its files may be seen; the newest first."""
    missing = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, int] = {}
    pids = sorted((int(name) for name in _names(root / "proc") if name.isdecimal()), reverse=True)
    for pid in pids:
        if not missing or clock() > deadline:
            break
        folder = root / f"proc/{pid}/fd"
        for name in _names(folder):
            try:
                inode = missing.pop(os.readlink(folder / name), None)
            except OSError:
                continue
            if inode is not None:
                found[inode] = pid
    return found


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _holder_words(holder: Holder, pid: int | None, root: Path) -> str:
    if pid is None:
        words = holder.words
    else:
        command = sysfs.content(root / f"proc/{pid}/cmdline")[:4096].split("\0")
        name = sysfs.content(root / f"proc/{pid}/comm").strip()
        words = f"pid {pid} ({short_command(command, name)})"
    connected = "" if holder.listens or not holder.inode else ", connected"
    return printable(words, _MOST_LETTERS - len(connected)) + connected
