"""What a benchmark says: rows and figures, printed as a table and written as JSON."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

OUT = Path(__file__).parent / "out"
ROWS = OUT / "rendezvous.json"
FIGURES = OUT / "figures.json"
TOO_MUCH_PERCENT = 5.0


@dataclass(frozen=True, slots=True)
class Row:
    """One system at one size: milliseconds of the slowest node, over the rounds."""

    system: str
    nodes: int
    what: str
    median_ms: float
    p99_ms: float
    rounds: int
    journal: str = ""
    cpu_s: float | None = None
    others_percent: float = 0.0
    note: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value beside its target, if it has one."""

    what: str
    nodes: int
    value: float
    unit: str
    target: float | None
    rounds: int = 1
    others_percent: float = 0.0
    note: str = ""
    machine: str = ""


def row(
    system: str,
    nodes: int,
    what: str,
    milliseconds: Sequence[float],
    *,
    journal: str = "",
    cpu_seconds: Sequence[float] = (),
    note: str = "",
) -> Row:
    """Median and p99 of the rounds (of fewer than 100 the largest), and the CPU time of one.

    A round that never ended is infinite: it is in the note, not in the figures. Raises
    StatisticsError when no round ended.
    """
    ordered = sorted(value for value in milliseconds if math.isfinite(value))
    if failed := len(milliseconds) - len(ordered):
        note = f"{failed} of {len(milliseconds)} rounds never ended; {note}"
    if not ordered:
        raise statistics.StatisticsError(f"{system} at {nodes} nodes: {note}")
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return Row(
        system,
        nodes,
        what,
        round(statistics.median(ordered), 2),
        round(p99, 2),
        len(ordered),
        journal,
        round(statistics.mean(cpu_seconds), 4) if cpu_seconds else None,
        note=note,
    )


class Report:
    """Prints each row as it comes, and writes all that there are.

    Args:
        machine: Where they were measured.
        mode: Said in each note when it is not the whole benchmark.
    """

    def __init__(self, machine: str, mode: str = "") -> None:
        self._machine = machine
        self._mode = mode
        self.rows: list[Row] = []
        self.figures: list[Figure] = []

    def add(self, one: Row | Figure, others_percent: float) -> None:
        """Take one result, and print it."""
        note = ", ".join(filter(None, (self._mode, one.note)))
        others = round(others_percent, 1)
        more = _warning(others) + (f"  {note}" if note else "")
        if isinstance(one, Row):
            self.rows.append(replace(one, others_percent=others, note=note, machine=self._machine))
            name = one.system + (f" ({one.journal})" if one.journal else "")
            figures = f"{one.median_ms:>9.1f} {one.p99_ms:>9.1f} {one.rounds:>6}"
            print(f"{name:<18} {one.nodes:>6} {one.what:<12} {figures}{more}", flush=True)
        else:
            self.figures.append(
                replace(one, others_percent=others, note=note, machine=self._machine)
            )
            figures = f"{one.value:>9.2f} {one.unit:<9} {_beside_target(one)}"
            print(f"{one.what:<18} {one.nodes:>6} {figures}{more}", flush=True)

    def write(self) -> None:
        """Write both files."""
        OUT.mkdir(exist_ok=True)
        for path, values in ((ROWS, self.rows), (FIGURES, self.figures)):
            path.write_text(json.dumps([asdict(value) for value in values], indent=1) + "\n")


def _beside_target(one: Figure) -> str:
    if one.target is None:
        return ""
    return f"<= {one.target:g}{'' if one.value <= one.target else '  MISSED'}"


def _warning(others_percent: float) -> str:
    if others_percent <= TOO_MUCH_PERCENT:
        return ""
    return f"  (others used {others_percent:.0f} % of the machine)"


HEADER = f"{'system':<18} {'nodes':>6} {'what':<12} {'median ms':>9} {'p99 ms':>9} {'rounds':>6}"
