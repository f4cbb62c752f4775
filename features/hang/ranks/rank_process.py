"""Which process is a rank of this node: one that says so itself, or the one that is known."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from features.hang.ranks import proc as processes

_HERE = re.compile(r"([0-9]{1,10}) ([0-9]{1,20}) ([0-9]{1,3})\Z")


class Known(NamedTuple):
    """The process of a rank; `signal` is 0 where there is no hook in it."""

    pid: int
    signal: int = 0


def find(folder: Path, rank: int, pid: int | None, proc: Path) -> Known:
    """The process that is a local rank: what says so of itself, if it is the one that is known, or
    was started by it, as by a shell; else that one."""
    try:
        words = _HERE.match(os.readlink(folder / f"{rank}.here"))
    except OSError:
        words = None
    if words is not None:
        own, started, number = map(int, words.groups())
        process = processes.read_process(proc, own)
        is_it = process.lives and process.started == started
        if is_it and (pid is None or processes.is_below(proc, own, pid)):
            return Known(own, number)
        if pid is None and not process.lives:  # it has ended: it was not left out
            return Known(own)
    return Known(pid or 0)
