"""What it takes to start programs that have failed again: `python -m bench.restarts`.

`python -m bench` measures it beside all else, and keeps it; this prints these rows alone.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from bench import killed
from bench.hosts import name_mapped_loopback
from bench.machine import describe, watching
from bench.meeting import Restart, meeting
from bench.registry import raise_file_limit
from bench.rows import HEADER, Figure, Report, Row, row

Work = Callable[[], Iterable[Row | Figure]]

_EACH = 2
"""Restarts of one run."""
_RESTART_BY_GO = 1.5


def of_registry(nodes: int, rounds: int, *, tls: bool) -> Iterator[Row | Figure]:
    """The registry's part, beside the first start of the same runs: programs that end at once.

    `restart` is of programs that end while their node holds its next watch back, which brings the
    report. In `restart_new` each takes longer, and a connection is opened for the report.
    """
    system = "rdzv-tls" if tls else "rdzv"
    with meeting(nodes, tls=tls, processes=2 if tls and nodes > 1_000 else 1) as met:
        met.open()
        met.restarts(1, 1)  # the first run of a fresh process is not counted
        kept = met.restarts(rounds, _EACH)
        new = met.restarts(max(1, rounds // 2), _EACH, at_once=False)
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


def works(sizes: Sequence[int], rounds: int, killed_rounds: int, *, peers: bool) -> Iterator[Work]:
    """All of it, in parts that are measured one after the other; without peers rdzv alone."""
    for nodes in sizes:
        for tls in (False, True):
            yield partial(of_registry, nodes, rounds, tls=tls)
    if killed_rounds:
        yield partial(killed.beside_torchrun, killed_rounds, killed.PEERS if peers else ())
    if killed_rounds and peers:
        yield killed.as_shipped


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.restarts", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[64, 512, 2_048])
    parser.add_argument("--rounds", type=int, default=5, help="0: not the registry's part")
    parser.add_argument("--killed", type=int, default=3, help="rounds with a killed worker, or 0")
    parser.add_argument("--no-peers", action="store_true", help="rdzv alone")
    arguments = parser.parse_args()
    raise_file_limit()
    name_mapped_loopback()
    report = Report(describe())
    print(f"{describe()}\n{HEADER}")
    sizes = arguments.nodes if arguments.rounds else ()
    for work in works(sizes, arguments.rounds, arguments.killed, peers=not arguments.no_peers):
        with watching() as load:
            done = list(work())
        for one in done:
            report.add(one, load.others_percent)


if __name__ == "__main__":
    main()
