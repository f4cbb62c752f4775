"""Many schedules, from seeds: `python -m tests.simulation --schedules 5000`.

The search goes on where the last one ended (see `progress`), after the seeds that have failed.
With `--seed` it begins there, with `--restarts` it tries only what may start again, and with
`--losses` only runs that outlive their nodes: nothing of that is kept. With `--bugs` the seeds are
looked for that show the planted bugs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

from rendezvous.registry.journal import Record
from rendezvous.registry.sqlite_journal import SqliteJournal
from tests.simulation.faults import words
from tests.simulation.generate import generate, outlives_nodes, starts_again
from tests.simulation.history import Violation
from tests.simulation.planted import BUGS
from tests.simulation.progress import Kept, Totals, kept_in, version_of_code
from tests.simulation.schedule import Schedule, from_json
from tests.simulation.search import keep, search, stored
from tests.simulation.shrink import shrink
from tests.simulation.world import fails_like, simulate

OUT = Path("build/simulate")


def run_seeds(seeds: Iterable[int]) -> Totals:
    """Simulate the schedules of these seeds."""
    totals = Totals()
    gc.disable()  # once a chunk is enough, and a third faster
    gc.freeze()  # what is there by now stays: only what the chunk leaves is looked at
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
        if arguments.bug or _kind(arguments) or arguments.seed is not None:
            return _run(arguments, arguments.seed or 0, None)
    with kept_in(OUT, version_of_code()) as kept:
        return _replay(kept) or _run(arguments, kept.progress.next_seed, kept)


def _replay(kept: Kept) -> int:
    """Run the seeds again that have failed; those that pass are taken out."""
    if not (seeds := list(kept.progress.failed)):
        return 0
    totals = run_seeds(seeds)
    kept.replayed(totals)
    print(f"{len(seeds) - len(totals.failed)} of {len(seeds)} seeds that failed before pass now")
    return _explain(totals.failed) if totals.failed else 0


def _run(arguments: argparse.Namespace, first: int, kept: Kept | None) -> int:
    """Run the seeds from `first` on, until somebody breaks it off; returns the exit code."""
    seeds = seeds_from(first, arguments.schedules, _kind(arguments))
    chunks = [seeds[at : at + arguments.chunk] for at in range(0, len(seeds), arguments.chunk)]
    start, totals, code = time.monotonic(), Totals(), 0
    pool = multiprocessing.get_context("fork").Pool(arguments.jobs, _begin_worker)
    try:
        for chunk, part in zip(chunks, pool.imap(run_seeds, chunks), strict=True):
            totals.add(part)
            if kept is not None:
                assert isinstance(chunk, range)
                kept.take(chunk, part)
            if totals.failed or time.monotonic() - start > arguments.seconds:
                break
    except KeyboardInterrupt:
        code = 130
    finally:
        pool.terminate()
    _summary(totals, time.monotonic() - start)
    if kept is not None:
        print(kept.progress.words(kept.version), flush=True)
    return _explain(totals.failed) if totals.failed else code


def _kind(arguments: argparse.Namespace) -> Callable[[int], bool] | None:
    """Which seeds are tried; None: all."""
    if arguments.losses:
        return outlives_nodes
    return starts_again if arguments.restarts else None


def seeds_from(first: int, count: int, kind: Callable[[int], bool] | None = None) -> Sequence[int]:
    """So many seeds from the first on, of a kind."""
    if kind is not None:
        return [*itertools.islice(filter(kind, itertools.count(first)), count)]
    return range(first, first + count)


def _begin_worker() -> None:
    """Leave it to the search what Ctrl-C means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, help="begin here, and leave what is kept alone")
    of_restarts = "only seeds whose programs may start again; leave what is kept alone"
    parser.add_argument("--restarts", action="store_true", help=of_restarts)
    of_losses = "only seeds of runs that outlive their nodes; leave what is kept alone"
    parser.add_argument("--losses", action="store_true", help=of_losses)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--chunk", type=int, default=20, help="seeds at a time (default 20)")
    parser.add_argument("--schedule", type=Path, help="run the schedule in this JSON file")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant this bug first")
    of_bugs = "find a schedule for each planted bug (with this in its name), and store its seed"
    parser.add_argument("--bugs", nargs="?", const="", metavar="TEXT", help=of_bugs)
    return parser


def _search(text: str, most: int) -> int:
    keep({name: found for name, found in stored().items() if name in BUGS})
    bugs = [bug for name, bug in BUGS.items() if text in name]
    missed = search(bugs, most, lambda words: print(words, flush=True))
    print(f"{len(bugs) - len(missed)} of {len(bugs)} are caught; not caught: {missed or 'none'}")
    return 1 if missed else 0


def _summary(totals: Totals, seconds: float) -> None:
    print(
        f"{totals.schedules} schedules in {seconds:.1f} s ({totals.schedules / seconds:.0f}/s): "
        f"{totals.events} steps, {totals.seconds / 3600:.1f} virtual hours, "
        f"{totals.records} events in journals, {totals.faults.total()} faults"
    )
    for kind, number in totals.faults.most_common():
        print(f"  {number:8d}  {kind}")


def _explain(failed: list[tuple[int, Violation]]) -> int:
    seed, violation = failed[0]
    print(f"\nseed {seed}: {violation.invariant} does not hold: {violation.words}")
    _write(shrink(generate(seed), lambda schedule: fails_like(violation, schedule)))
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
