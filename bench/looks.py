"""What a look costs a registry, and how long it takes: `python -m bench.looks`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from bench.look_answer import ODD, RANKS
from bench.machine import describe, watching
from bench.meeting import meeting
from bench.registry import raise_file_limit
from bench.rows import HEADER, Figure, Report, Row, row
from features.hang.rules import look_at

_SECONDS = {4: 0.5, 64: 1.0, 1_024: 4.0}


def of_registry(nodes: int, rounds: int) -> Iterator[Row | Figure]:
    """From the request until a person could be shown the sentence; the nodes answer at their turn.

    What a node's own look takes (0.25 s) is not in it: no rank is there.
    """
    with meeting(nodes, tls=True) as met:
        met.open()
        found = met.looks(rounds)
        rss = met.registry.rss_bytes() / 1e6
    times = [one.seconds for one in found]
    for one in found:
        assert look_at(one.seen).odd == (ODD,), "the rank that all others wait for is not found"
    began = time.perf_counter()
    look_at(found[-1].seen)
    judged = 1000 * (time.perf_counter() - began)
    note = f"of {RANKS} ranks each; judged in {judged:.0f} ms, registry {rss:.0f} MB"
    milliseconds = [1000 * seconds for seconds in times]
    yield row(
        "rdzv-tls", nodes, "look", milliseconds, cpu_seconds=[one.cpu for one in found], note=note
    )
    worst = round(max(times), 2)
    yield Figure("look", nodes, worst, "s", _SECONDS.get(nodes), rounds, note="the slowest")


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.looks", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[*_SECONDS])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    raise_file_limit()
    report = Report(describe())
    print(f"{describe()}\n{HEADER}")
    for nodes in arguments.nodes:
        with watching() as load:
            done = list(of_registry(nodes, arguments.rounds))
        for one in done:
            report.add(one, load.others_percent)


if __name__ == "__main__":
    main()
