"""Many schedules, from seeds: `python -m tests.simulation --schedules 5000`.

The search goes on where the last one ended (see `progress`), after the seeds that have failed.
With `--seed` it begins there, and nothing of it is kept. With `--bugs` the seeds are looked for
that show the planted bugs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, nullcontext
from multiprocessing.pool import IMapIterator
from pathlib import Path
from types import FrameType

from rendezvous.server.journal import Record, SqliteJournal
from tests.simulation.faults import words
from tests.simulation.generate import generate
from tests.simulation.history import Violation
from tests.simulation.planted import BUGS
from tests.simulation.progress import Kept, Totals, kept_in, version_of_code
from tests.simulation.schedule import Schedule, from_json
from tests.simulation.search import keep, search, stored
from tests.simulation.shrink import shrink
from tests.simulation.world import simulate

OUT = Path("build/simulate")
_LOOK_SECONDS = 0.2


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
        if arguments.bug or arguments.seed is not None:
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
    """Run the seeds from `first` on; returns the exit code."""
    seeds = range(first, first + arguments.schedules)
    chunks = [seeds[at : at + arguments.chunk] for at in range(0, len(seeds), arguments.chunk)]
    start = time.monotonic()
    totals = Totals()
    with BrokenOff() as off, closing(_parts(chunks, arguments.jobs, off.is_asked)) as parts:
        for chunk, part in parts:
            totals.add(part)
            if kept is not None:
                kept.take(chunk, part)
            _progress(totals, start)
            if totals.failed or time.monotonic() - start > arguments.seconds:
                break
    _summary(totals, time.monotonic() - start)
    if kept is not None:
        print(kept.progress.words(kept.version), flush=True)
    return _explain(totals.failed) if totals.failed else off.code


class BrokenOff:
    """Takes the first SIGINT or SIGTERM as a wish; the second one does what it always does."""

    def __init__(self) -> None:
        self.code = 0
        self._former = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}

    def __enter__(self) -> BrokenOff:
        for number in self._former:
            signal.signal(number, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def is_asked(self) -> bool:
        """Whether one came."""
        return self.code != 0

    def _came(self, number: int, _: FrameType | None) -> None:
        self.code = 128 + number
        self.__exit__()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, help="begin here, and leave what is kept alone")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--chunk", type=int, default=20, help="seeds at a time (default 20)")
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
    keep({name: found for name, found in stored().items() if name in BUGS})
    bugs = [bug for name, bug in BUGS.items() if text in name]
    missed = search(bugs, most, lambda words: print(words, flush=True))
    print(f"{len(bugs) - len(missed)} of {len(bugs)} are caught; not caught: {missed or 'none'}")
    return 1 if missed else 0


def _parts(
    chunks: list[range], jobs: int, is_asked: Callable[[], bool]
) -> Generator[tuple[range, Totals], None, None]:
    """What came of each chunk of seeds, in order, until somebody asks for the end."""
    if jobs == 1:
        for chunk in chunks:
            if is_asked():
                return
            yield chunk, run_seeds(chunk)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _begin_worker) as pool:
        parts = pool.imap(run_seeds, chunks)
        for chunk in chunks:
            while (part := _next(parts)) is None:
                if is_asked():
                    return
            yield chunk, part


def _next(parts: IMapIterator[Totals]) -> Totals | None:
    """The next part, or None when it takes longer."""
    try:
        return parts.next(timeout=_LOOK_SECONDS)
    except multiprocessing.TimeoutError:
        return None


def _begin_worker() -> None:
    """Leave it to the search what a signal means; it ends its workers by SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
