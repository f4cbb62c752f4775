"""Finds the processes of a node's ranks, and asks those that have the hook how far they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from worker.look import proc as processes
from worker.look.asking import ask

BETWEEN_SECONDS = 0.2
"""From one look to the next: what moves shows it; and who holds the GIL is silent so long."""

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
    return Known(pid or 0)


def importing(folder: Path, ranks: Iterable[int]) -> bool | None:
    """Whether a rank is importing torch; None where none has begun to.

    Args:
        folder: What RDZV_LOOK_FOLDER names for these ranks.
        ranks: The local ranks.
    """
    asked = ask(folder, ranks, b"status", BETWEEN_SECONDS)
    stages = {answer.stage for answer in asked.answers.values() if answer is not None}
    if asked.silent or "importing" in stages:  # who loads a library may not answer
        return True
    return False if stages and not asked.without else None
