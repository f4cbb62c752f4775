"""The machine of a measurement, and how much of it others used meanwhile."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = (1, 2, 3, 8)  # user, nice, system, steal of the line "cpu" in /proc/stat


def describe() -> str:
    """Processor, cores, kernel and interpreter, in one line."""
    text = Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    name = names[0] if names else platform.machine()
    release = platform.release().split("-")[0]
    return f"{os.cpu_count()} cores, {name}, Linux {release}, Python {platform.python_version()}"


@dataclass(slots=True)
class Load:
    """What happened on all cores while something was measured."""

    others_percent: float = 0.0


@contextlib.contextmanager
def watching() -> Iterator[Load]:
    """Measure how much of the machine others use; filled in at the end.

    A time-slice more or less of ours is counted as theirs: below some per cent it says nothing.
    """
    load = Load()
    began, busy, own = os.times().elapsed, _busy_seconds(), _own_seconds()
    yield load
    seconds = os.times().elapsed - began
    others = (_busy_seconds() - busy) - (_own_seconds() - own)
    cores = os.cpu_count() or 1
    load.others_percent = max(0.0, 100 * others / max(seconds, 0.001) / cores)


def _busy_seconds() -> float:
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return sum(int(fields[at]) for at in _BUSY) / _TICKS


def _own_seconds() -> float:
    """Of this process, and of its children, gone or not."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            cpu = child.cpu_times()
            total += cpu.user + cpu.system + cpu.children_user + cpu.children_system
    return total
