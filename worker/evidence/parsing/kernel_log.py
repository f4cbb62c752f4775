"""The kernel's log: what it has said since, who was killed for memory, and GPUs' errors. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rendezvous.frozen import frozen

_PREFIX = re.compile(r"<[0-9]+>(?:\[ *([0-9]+\.[0-9]+)\](?:\[[^\]]*\])?)? ?")
_KILLED = re.compile(r"\b(Memory cgroup out|Out) of memory:.* Killed process ([0-9]+) \(")
_OLD_KILLED = re.compile(r"\b(Memory cgroup out|Out) of memory: Kill process ([0-9]+) \(")
_XID = re.compile(r"\bNVRM: Xid \(")
_XID_PID = re.compile(r"\bpid='?([0-9]+)")


@frozen
class Killed:
    """A process that was killed for memory; `in_group` tells whether a group's limit was met.

    `pid` is the host's number, which is another one in a container.
    """

    pid: int
    in_group: bool
    line: str


@frozen
class Xid:
    """An error of a GPU; `pid`, the host's number, is 0 where none is named."""

    line: str
    pid: int = 0


def last_line(text: str) -> str:
    """The newest line of the log: what `lines_since` takes as the beginning."""
    return (text.rstrip("\n").splitlines() or [""])[-1]


def lines_since(text: str, last: str) -> list[str]:
    """What the log has said after a line of it, without time and level.

    Where that line has been overwritten, the kernel's own times tell; lines without a time do not
    count then, since they may be old.
    """
    lines = text.splitlines()
    for place in range(len(lines) - 1, -1, -1):
        if last and lines[place] == last:
            return [_said(line) for line in lines[place + 1 :]]
    began = _time(last) if last else -1.0
    if began is None:
        return []
    return [_said(line) for line in lines if (time := _time(line)) is not None and time > began]


def killed_in(lines: Iterable[str]) -> list[Killed]:
    """Who was killed for memory, in order."""
    found = []
    for line in lines:
        if match := _KILLED.search(line) or _OLD_KILLED.search(line):
            found.append(Killed(int(match[2]), match[1] != "Out", line))
    return found


def xids_in(lines: Iterable[str]) -> list[Xid]:
    """The errors of NVIDIA's driver, in order, each once."""
    found: dict[str, Xid] = {}
    for line in lines:
        if _XID.search(line):
            match = _XID_PID.search(line)
            found.setdefault(line, Xid(line, int(match[1]) if match else 0))
    return list(found.values())


def _time(line: str) -> float | None:
    found = _PREFIX.match(line)
    return float(found[1]) if found and found[1] else None


def _said(line: str) -> str:
    found = _PREFIX.match(line)
    return line[found.end() :] if found else line
