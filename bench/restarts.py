"""What it takes to start programs that have failed again: `python -m bench.restarts [--quick]`.

Without arguments `python -m bench` measures it beside all else; this prints these rows alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from bench.meeting import Restart, meeting
from bench.rows import Figure, Row, row

_EACH = 2
"""Restarts of one run."""
_RESTART_BY_GO = 1.5


def of_registry(nodes: int, rounds: int, *, tls: bool) -> Iterator[Row | Figure]:
    """The registry's part, beside the first start of the same runs: programs that end at once.

    `restart` reports the ends on connections that are open, as of programs that send metrics;
    `restart_new` on such as each node opens for it, as after a minute in which it had no report.
    """
    system = "rdzv-tls" if tls else "rdzv"
    with meeting(nodes, tls=tls, processes=2 if tls and nodes > 1_000 else 1) as met:
        met.open()
        met.restarts(1, 1)  # the first run of a fresh process is not counted
        kept = met.restarts(rounds, _EACH)
        new = met.restarts(max(1, rounds // 2), _EACH, kept=False)
    yield _row(system, nodes, "restart", kept)
    yield _row(system, nodes, "restart_new", new)
    ratio = statistics.median(one.go / one.first_go for one in kept)
    note = f"{system}: from the failure's report until all are told to start, by the first go"
    yield Figure(
        "restart_by_go", nodes, round(ratio, 2), "times", _RESTART_BY_GO, len(kept), note=note
    )


def _row(system: str, nodes: int, what: str, found: Sequence[Restart]) -> Row:
    def median(of: Callable[[Restart], float]) -> float:
        return round(statistics.median(map(of, found)), 1)

    note = (
        f"all ends told {median(lambda one: one.told)}, table {median(lambda one: one.table)}, "
        f"first go {median(lambda one: one.first_go)} ms"
    )
    times, cpu = [one.go for one in found], [one.cpu for one in found]
    return row(system, nodes, what, times, journal="sqlite", cpu_seconds=cpu, note=note)
