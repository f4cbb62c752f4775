"""All benchmarks in one run: `python -m bench` (= `make bench`); BENCH=quick for a look."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from bench import (
    agents,
    idle,
    looks,
    lost,
    machines,
    mesh,
    output,
    pages,
    restarts,
    standing,
    starts,
)
from bench.hosts import name_mapped_loopback
from bench.machine import describe, watching
from bench.meeting import Times, meeting
from bench.registry import raise_file_limit
from bench.rows import HEADER, Figure, Report, Row, row

_C10D_NOTE = "a process a node; at 256 it does not assemble"


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    mode: str
    rounds: int
    rdzv: tuple[int, ...]
    c10d: tuple[int, ...]
    tcpstore: tuple[int, ...]
    agents: tuple[int, ...]
    agent_rounds: int
    verify: tuple[int, ...]
    verify_rounds: int
    starts: int
    torchrun: tuple[int, ...]
    pairs: int
    idle: int
    thousands: int
    restarts: tuple[int, ...]
    restart_rounds: int
    killed: int
    looks: tuple[int, ...]
    pages: tuple[int, ...]


FULL = Plan(
    mode="",
    rounds=10,
    rdzv=(8, 64, 128, 512, 2_048),
    c10d=(8, 64, 128),
    tcpstore=(8, 64, 128, 512),
    agents=(8, 16, 32, 64),
    agent_rounds=2,
    verify=(4, 16, 64, 128),
    verify_rounds=5,
    starts=10,
    torchrun=(2, 4),
    pairs=5,
    idle=2_048,
    thousands=10_000,
    restarts=(64, 512, 2_048),
    restart_rounds=5,
    killed=5,
    looks=(4, 64, 1_024),
    pages=(4, 64, 1_024),
)
QUICK = Plan(
    mode="quick",
    rounds=1,
    rdzv=(8,),
    c10d=(2,),
    tcpstore=(8,),
    agents=(4,),
    agent_rounds=1,
    verify=(4,),
    verify_rounds=1,
    starts=2,
    torchrun=(2,),
    pairs=1,
    idle=64,
    thousands=0,
    restarts=(8,),
    restart_rounds=1,
    killed=1,
    looks=(4,),
    pages=(4,),
)


def _rdzv(nodes: int, rounds: int, *, tls: bool, journal: str) -> Iterator[Row | Figure]:
    system = "rdzv-tls" if tls else "rdzv"
    # One process takes longer to decrypt so many tables than the registry to send them.
    processes = 2 if tls and nodes > 1_000 else 1
    with meeting(nodes, tls=tls, journal=journal, processes=processes) as met:
        met.open()
        met.assembly(1)  # the first run of a fresh process is not counted
        measured: list[tuple[str, Times]] = [
            ("last_to_all", met.last_to_all(rounds)),
            ("assembly", met.assembly(rounds)),
        ]
    note = "nodes in 2 processes" if processes == 2 else ""
    for what, times in measured:
        yield row(
            system, nodes, what, times.table, journal=journal, cpu_seconds=times.cpu, note=note
        )
    last = measured[0][1]
    go, table = statistics.median(last.go), statistics.median(last.table)
    note = f"{system}, {journal}: last arrival until all were told to start"
    yield Figure("go", nodes, round(go, 2), "ms", None, rounds, note=note)
    yield Figure("go_by_table", nodes, round(go / table, 2), "times", 2.5, rounds, note=note)


def _peer(system: str, nodes: int, rounds: int) -> Iterator[Row | Figure]:
    from bench.peers import peers

    note = _C10D_NOTE if system == "c10d" else "bare: no credentials, no acknowledgement"
    with peers(system, nodes) as met:
        last, together = met.last_to_all(rounds), met.assembly(rounds)
    for what, times in (("last_to_all", last), ("assembly", together)):
        if any(map(math.isfinite, times)):
            yield row(system, nodes, what, times, note=note)
        else:
            words = f"rounds of {what} that ended; {note}"
            yield Figure(system, nodes, 0, f"of {len(times)}", None, len(times), note=words)


def _measure(report: Report, work: Callable[[], Iterable[Row | Figure]]) -> None:
    with watching() as load:
        done = list(work())
    for one in done:
        report.add(one, load.others_percent)
    report.write()  # each time: a run that is broken off has not been for nothing


_BY_TCPSTORE = {8: 2.5, 64: 0.7, 512: 0.1}
_TLS_BY_PLAIN = 1.5


def ratios(rows: Iterable[Row]) -> Iterator[Figure]:
    """What is asked of the table's time beside that of others, in the same run."""
    times = {
        (row.system, row.nodes): row.median_ms
        for row in rows
        if row.what == "last_to_all" and row.journal != "memory"
    }
    for (system, nodes), own in times.items():
        note = f"{own:g} ms"
        if system == "rdzv" and (bare := times.get(("tcpstore", nodes))) is not None:
            note += f", TCPStore {bare:g} ms"
            target = _BY_TCPSTORE.get(nodes)
            yield Figure(
                "table_by_tcpstore", nodes, round(own / bare, 2), "times", target, note=note
            )
        if system == "rdzv-tls" and (plain := times.get(("rdzv", nodes))) is not None:
            note += f", plain {plain:g} ms"
            yield Figure(
                "tls_by_plain", nodes, round(own / plain, 2), "times", _TLS_BY_PLAIN, note=note
            )


def run(plan: Plan) -> None:
    """Measure everything, and print and write as it goes."""
    report = Report(describe(), plan.mode)
    print(f"{describe()}\n{HEADER}")
    for nodes in plan.rdzv:
        for tls, journal in ((False, "memory"), (False, "sqlite"), (True, "sqlite")):
            _measure(report, partial(_rdzv, nodes, plan.rounds, tls=tls, journal=journal))
    for system, sizes in (("tcpstore", plan.tcpstore), ("c10d", plan.c10d)):
        for nodes in sizes:
            _measure(report, partial(_peer, system, nodes, plan.rounds))
    _measure(report, lambda: list(ratios(report.rows)))
    for nodes in plan.agents:
        _measure(report, partial(agents.last_to_all, nodes, plan.agent_rounds))
    for nodes in plan.verify:
        _measure(report, partial(mesh.verify, nodes, plan.verify_rounds))
    for nodes in plan.torchrun:
        _measure(report, partial(starts.beside_torchrun, nodes, plan.pairs))
    peers = not plan.mode
    for work in restarts.works(plan.restarts, plan.restart_rounds, plan.killed, peers=peers):
        _measure(report, work)
    for work in lost.works(lost.QUICK if plan.mode else lost.FULL):
        _measure(report, work)
    for nodes in plan.looks:
        _measure(report, partial(looks.of_registry, nodes, plan.agent_rounds))
    _measure(report, partial(machines.of_registry, plan.looks[-1], plan.agent_rounds))
    for work in pages.works(plan.pages, pages.QUICK if plan.mode else pages.FULL):
        _measure(report, work)
    for work in standing.works(standing.QUICK if plan.mode else standing.FULL):
        _measure(report, work)
    _figures(report, plan)


def _figures(report: Report, plan: Plan) -> None:
    if plan.thousands:
        for tls in (False, True):
            _measure(report, partial(idle.thousands, plan.thousands, tls=tls))
        _measure(report, partial(idle.parked, plan.thousands))
    _measure(report, partial(idle.idle, plan.idle, 3.0 if plan.mode else 10.0))
    _measure(report, partial(agents.figures, plan.agent_rounds))
    _measure(report, partial(agents.killed, plan.pairs))
    _measure(report, partial(agents.launch_to_exec, plan.agent_rounds))
    _measure(report, partial(starts.figures, plan.starts))
    _measure(report, partial(output.beside_torchrun, plan.pairs))


def main() -> None:
    """Run the benchmark that `BENCH` names."""
    mode = os.environ.get("BENCH", "")
    if mode not in ("", "quick"):
        sys.exit(f"BENCH is '{mode}'; 'quick' is known, or nothing for the whole benchmark")
    raise_file_limit()
    plan = QUICK if mode else FULL
    if not name_mapped_loopback():
        print("c10d at 8 nodes only: it needs a line for ::ffff:127.0.0.1 in /etc/hosts, or root")
        plan = replace(plan, c10d=plan.c10d[:1])
    run(plan)


if __name__ == "__main__":
    main()
