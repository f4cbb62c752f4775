"""What a benchmark prints, and writes as JSON: a row for each figure, and the load beside it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

ROWS = Path(__file__).parent / "out" / "rows.json"
TOO_MUCH_PERCENT = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = (1, 2, 3, 8)  # user, nice, system, steal of the line "cpu" in /proc/stat


@dataclass(frozen=True, slots=True)
class Row:
    """One figure at one size: the median and the largest of its rounds.

    Attributes:
        last: The 99th percentile; of fewer than 100 rounds the largest.
        others_percent: Of the machine, what other work used meanwhile.
    """

    what: str
    nodes: int
    median: float
    last: float
    unit: str
    rounds: int
    note: str = ""
    others_percent: float = 0.0


Work = Callable[[], Iterable[Row]]


def row(what: str, nodes: int, values: Sequence[float], unit: str = "ms", note: str = "") -> Row:
    """Summarize the rounds; one that never ended is infinite, and only counted in the note.

    Raises StatisticsError when no round ended.
    """
    ordered = sorted(value for value in values if math.isfinite(value))
    if failed := len(values) - len(ordered):
        note = f"{failed} of {len(values)} rounds never ended; {note}"
    if not ordered:
        raise statistics.StatisticsError(f"{what} at {nodes} nodes: {note}")
    last = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    median = statistics.median(ordered)
    return Row(what, nodes, round(median, 2), round(last, 2), unit, len(ordered), note)


def describe() -> str:
    """Processor, cores, kernel and interpreter, in one line."""
    text = Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    name = names[0] if names else platform.machine()
    release = platform.release().split("-")[0]
    return f"{os.cpu_count()} cores, {name}, Linux {release}, Python {platform.python_version()}"


class Report:
    """Prints each row as it comes, and writes all that there are.

    Args:
        mode: Said in each note when it is not the whole benchmark.
    """

    def __init__(self, mode: str = "") -> None:
        self._mode = mode
        self.rows: list[Row] = []
        print(f"{describe()}\n{'what':<28} {'nodes':>6} {'median':>11} {'last':>11} rounds")

    def measure(self, work: Work) -> None:
        """Do this work; a run that is broken off later has not been for nothing."""
        began, busy, own = os.times().elapsed, _busy_seconds(), _own_seconds()
        done = list(work())
        seconds = max(os.times().elapsed - began, 0.001)
        others = (_busy_seconds() - busy) - (_own_seconds() - own)
        percent = max(0.0, 100 * others / seconds / (os.cpu_count() or 1))
        for one in done:
            self.add(one, percent)
        ROWS.parent.mkdir(exist_ok=True)
        ROWS.write_text(json.dumps([asdict(one) for one in self.rows], indent=1) + "\n")

    def add(self, one: Row, others_percent: float) -> None:
        """Take one row, and print it."""
        note = ", ".join(filter(None, (self._mode, one.note)))
        others = round(others_percent, 1)
        self.rows.append(replace(one, note=note, others_percent=others))
        if others > TOO_MUCH_PERCENT:
            note = f"(others used {others:.0f} % of the machine)  {note}"
        figures = f"{one.median:>11,.2f} {one.last:>11,.2f} {one.rounds:>6}"
        print(f"{one.what:<28} {one.nodes:>6} {figures} {one.unit:<8} {note}", flush=True)


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
