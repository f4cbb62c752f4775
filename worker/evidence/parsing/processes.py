"""A process's limits and state, as /proc tells them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rendezvous.cause.facts import FactKind
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Fact
from worker.evidence.parsing.telling import fact
from worker.machine.groups import UNLIMITED

_LIMITS = {
    "Max open files": "nofile",
    "Max processes": "nproc",
    "Max file size": "fsize",
    "Max address space": "as",
    "Max locked memory": "memlock",
    "Max cpu time": "cpu",
}
_LIMIT = re.compile(r"^(Max [a-z ]+?) {2,}([0-9]+) ", re.MULTILINE)


@frozen
class State:
    """What a process does: the letter of /proc/PID/stat, and what it waits in."""

    pid: int
    letter: str
    place: str = ""


def limits_in(text: str) -> dict[str, int]:
    """The soft limits of /proc/PID/limits that may end a program; those that limit nothing are not
    told."""
    found = ((_LIMITS.get(match[1]), int(match[2])) for match in _LIMIT.finditer(text))
    return {name: limit for name, limit in found if name and limit < UNLIMITED}


def limit_facts(by_rank: Mapping[int | None, Mapping[str, int]]) -> list[Fact]:
    """A fact for each limit: without a rank where all ranks have the same.

    Args:
        by_rank: None is the agent, of whom they inherit.
    """
    found = []
    for name in _LIMITS.values():
        told = {rank: limits.get(name) for rank, limits in by_rank.items()}
        if len(set(told.values())) == 1:
            told = {None: next(iter(told.values()))}
        found += [
            fact(FactKind.RLIMIT, path=name, limit=limit, rank=rank)
            for rank, limit in told.items()
            if limit is not None
        ]
    return found


def state_in(stat: str, wchan: str) -> State | None:
    """The process of /proc/PID/stat and /proc/PID/wchan, which is 0 where it may not be known."""
    before, _, after = stat.rpartition(")")  # the program's name may hold anything
    pid, letter = before.partition(" ")[0], after[1:2]
    if not pid.isdecimal() or not letter.isalpha():
        return None
    place = wchan.strip()
    return State(int(pid), letter, "" if place == "0" else place)


def state_facts(states: Mapping[int, State]) -> list[Fact]:
    """The ranks that are stopped, or wait for a disk: by rank."""
    return [
        fact(FactKind.STATE, value=state.pid, words=_words(state), rank=rank)
        for rank, state in states.items()
        if state.letter in ("T", "t", "D")
    ]


def _words(state: State) -> str:
    """`T`, or `D nfs_wait_bit_killable`."""
    return f"D {state.place}".strip() if state.letter == "D" else "T"
