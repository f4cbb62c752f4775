"""Many schedules, from seeds: `python -m tests.simulation --schedules 5000`.

With `--bugs` the seeds are looked for that show the planted bugs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from rendezvous.server.journal import Record, SqliteJournal
from tests.simulation.faults import words
from tests.simulation.generate import generate
from tests.simulation.history import Violation
from tests.simulation.planted import BUGS
from tests.simulation.schedule import Schedule, from_json
from tests.simulation.search import forget_all_but, search
from tests.simulation.shrink import shrink
from tests.simulation.world import simulate

OUT = Path("build/simulate")
_CHUNK = 50


@dataclass
class Totals:
    """What many schedules came to."""

    schedules: int = 0
    events: int = 0
    records: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, Violation]] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Count these as well."""
        self.schedules += other.schedules
        self.events += other.events
        self.records += other.records
        self.seconds += other.seconds
        self.faults += other.faults
        self.failed += other.failed


def run_seeds(seeds: Iterable[int]) -> Totals:
    """Simulate the schedules of these seeds."""
    totals = Totals()
    gc.disable()  # once a chunk is enough, and a third faster
    for seed in seeds:
        report = simulate(generate(seed))
        totals.schedules += 1
        totals.events += report.events
        totals.records += len(report.records)
        totals.seconds += report.seconds
        totals.faults += report.faults
        if report.violation is not None:
            totals.failed.append((seed, report.violation))
    gc.enable()
    gc.collect()
    return totals


def main() -> int:
    """Run schedules until one fails, the count is reached, or the time is over."""
    arguments = _parser().parse_args()
    if arguments.bugs is not None:
        return _search(arguments.bugs, arguments.schedules)
    bug = BUGS[arguments.bug].planted() if arguments.bug else nullcontext()
    with bug:
        if arguments.schedule:
            return _one(from_json(arguments.schedule.read_text()))
        seeds = range(arguments.seed, arguments.seed + arguments.schedules)
        start = time.monotonic()
        totals = Totals()
        for part in _parts(seeds, arguments.jobs):
            totals.add(part)
            _progress(totals, start)
            if totals.failed or time.monotonic() - start > arguments.seconds:
                break
        _summary(totals, time.monotonic() - start)
        return _explain(totals.failed) if totals.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--schedule", type=Path, help="run the schedule in this JSON file")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant this bug first")
    parser.add_argument(
        "--bugs",
        nargs="?",
        const="",
        metavar="TEXT",
        help="find a schedule for each planted bug (with this in its name), and store its seed",
    )
    return parser


def _search(text: str, most: int) -> int:
    forget_all_but(BUGS)
    bugs = [bug for name, bug in BUGS.items() if text in name]
    missed = search(bugs, most, lambda words: print(words, flush=True))
    print(f"{len(bugs) - len(missed)} of {len(bugs)} are caught; not caught: {missed or 'none'}")
    return 1 if missed else 0


def _parts(seeds: range, jobs: int) -> Iterator[Totals]:
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    if jobs == 1:
        yield from map(run_seeds, chunks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(run_seeds, chunks)


def _progress(totals: Totals, start: float) -> None:
    if sys.stderr.isatty():
        rate = totals.schedules / max(0.001, time.monotonic() - start)
        sys.stderr.write(f"\r{totals.schedules} schedules, {rate:.0f}/s ")
        sys.stderr.flush()


def _summary(totals: Totals, seconds: float) -> None:
    count = sum(totals.faults.values())
    print(
        f"{totals.schedules} schedules in {seconds:.1f} s ({totals.schedules / seconds:.0f}/s): "
        f"{totals.events} steps, {totals.seconds / 3600:.1f} virtual hours, "
        f"{totals.records} events in journals, {count} faults of {len(totals.faults)} kinds"
    )
    for kind, number in sorted(totals.faults.items(), key=lambda item: -item[1]):
        print(f"  {number:8d}  {kind}")


def _explain(failed: list[tuple[int, Violation]]) -> int:
    seed, violation = failed[0]
    print(f"\nseed {seed}: {violation.invariant} does not hold: {violation.words}")

    def fails(schedule: Schedule) -> bool:
        found = simulate(schedule).violation
        return found is not None and found.invariant == violation.invariant

    _write(shrink(generate(seed), fails))
    return 1


def _one(schedule: Schedule) -> int:
    """Run one schedule and tell what came of it."""
    violation = simulate(schedule).violation
    if violation is None:
        print("every invariant holds")
        return 0
    _write(schedule)
    return 1


def _write(schedule: Schedule) -> None:
    """Print a failing schedule; leave it and its journal behind."""
    report = simulate(schedule)
    assert report.violation is not None
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / f"seed-{schedule.seed}.json"
    file.write_text(schedule.to_json())
    journal = OUT / f"seed-{schedule.seed}.sqlite"
    _write_journal(journal, report.records)
    print(f"\nthe shortest schedule found fails at {report.violation.at:.3f} s:")
    for launch in schedule.launches:
        print(f"  {launch}")
    for fault in schedule.faults:
        print(f"  {words(fault)}")
    print(f"{report.violation.invariant}: {report.violation.words}")
    print(f"look at it:    rdzv replay {journal}")
    print(f"run it again:  python -m tests.simulation --schedule {file}")


def _write_journal(path: Path, records: list[Record]) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)

    journal = SqliteJournal(path)

    async def fill() -> None:
        await journal.append(records)
        await journal.close()

    asyncio.run(fill())


if __name__ == "__main__":
    sys.exit(main())
