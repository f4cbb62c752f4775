"""Many schedules of replicas, from seeds: `python -m tests.simulation.replicas --schedules 5000`.

A schedule that fails is shortened and left in build/simulate. With `--bugs` the seeds are looked
for that show the planted bugs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from tests.simulation.history import Violation
from tests.simulation.replicas.planted import BUGS, keep, search, stored
from tests.simulation.replicas.schedule import Fault, Schedule, from_json, generate
from tests.simulation.replicas.shrinking import shrink
from tests.simulation.replicas.world import collected, fails_like, simulate

OUT = Path("build/simulate")
Part = tuple[int, float, int, Counter[str], list[tuple[int, Violation]]]
"""Schedules, virtual seconds, records, faults, and what failed."""


def run_seeds(seeds: Sequence[int]) -> Part:
    """Simulate the schedules of these seeds."""
    seconds, records, faults = 0.0, 0, Counter[str]()
    failed = list[tuple[int, Violation]]()
    for seed in collected(iter(seeds)):
        report = simulate(generate(seed))
        seconds += report.seconds
        records += len(report.records)
        faults += report.faults
        if report.violation is not None:
            failed.append((seed, report.violation))
    return len(seeds), seconds, records, faults, failed


def main() -> int:
    """Run schedules until the count is reached or the time is over; say which have failed."""
    arguments = _parser().parse_args()
    if arguments.bugs is not None:
        keep({name: found for name, found in stored().items() if name in BUGS})
        missed = search([name for name in BUGS if arguments.bugs in name], arguments.schedules)
        print(f"not caught: {missed or 'none'}")
        return 1 if missed else 0
    with BUGS[arguments.bug].planted() if arguments.bug else nullcontext():
        if arguments.schedule:
            return _one(from_json(arguments.schedule.read_text()))
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    chunks = [seeds[at : at + arguments.chunk] for at in range(0, len(seeds), arguments.chunk)]
    start, done, seconds, records = time.monotonic(), 0, 0.0, 0
    faults, failed = Counter[str](), list[tuple[int, Violation]]()
    with multiprocessing.get_context("fork").Pool(arguments.jobs) as pool:
        for part in pool.imap(run_seeds, chunks):
            done, seconds, records = done + part[0], seconds + part[1], records + part[2]
            faults += part[3]
            failed += part[4]
            for seed, violation in part[4]:
                print(
                    f"seed {seed}: {violation.invariant} does not hold: {violation.words}",
                    flush=True,
                )
            if len(failed) >= arguments.failures or time.monotonic() - start > arguments.seconds:
                break
        pool.terminate()
    passed = time.monotonic() - start
    print(
        f"{done} schedules of replicas in {passed:.1f} s ({done / passed:.0f}/s): "
        f"{seconds / 3600:.1f} virtual hours, {records} records, {faults.total()} faults"
    )
    for kind, number in faults.most_common():
        print(f"  {number:8d}  {kind}")
    return _explain(*failed[0]) if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.replicas")
    parser.add_argument("--schedules", type=int, default=1_000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="begin here (default 0)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--chunk", type=int, default=20, help="seeds at a time (default 20)")
    parser.add_argument("--schedule", type=Path, help="run the schedule in this JSON file")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant this bug first")
    of_bugs = "find a schedule for each planted bug (with this in its name), and store its seed"
    parser.add_argument("--bugs", nargs="?", const="", metavar="TEXT", help=of_bugs)
    return parser


def _explain(seed: int, violation: Violation) -> int:
    schedule = shrink(generate(seed), lambda shorter: fails_like(violation, shorter))
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / f"replicas-{seed}.json"
    file.write_text(schedule.to_json())
    print(f"\nthe shortest schedule found of seed {seed}:")
    _print(schedule)
    print(f"run it again:  python -m tests.simulation.replicas --schedule {file}")
    return 1


def _one(schedule: Schedule) -> int:
    """Run one schedule and tell what came of it."""
    violation = simulate(schedule).violation
    if violation is None:
        print("every invariant holds")
        return 0
    _print(schedule)
    return 1


def _print(schedule: Schedule) -> None:
    for launch in schedule.launches:
        print(f"  {launch}")
    for fault in schedule.faults:
        print(f"  {_words(fault)}")
    violation = simulate(schedule).violation
    assert violation is not None
    print(f"at {violation.at:.3f} s {violation.invariant}: {violation.words}")


def _words(fault: Fault) -> str:
    when = fault.when if isinstance(fault.when, str) else f"{fault.when:.3f} s"
    return f"{when}: {fault.what}, host {fault.host}, {fault.seconds:g} s, {fault.amount:g}"


if __name__ == "__main__":
    sys.exit(main())
