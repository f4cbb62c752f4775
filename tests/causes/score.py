"""Says how right the sentences of a corpus are, and counts the verdicts.

    python -m tests.causes.score [--old] [FOLDER...]

Without a folder: the corpora of public threads and of the seeds; with --old, the earlier ones, too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.rendezvous.cause.corpus import ENTRIES, FAULTS, Seeing, seen
from tests.rendezvous.cause.public import PUBLIC, SEEDS, WAYS, Way, entries_in
from tests.rendezvous.cause.verdicts import (
    BEST_FIRST,
    RIGHT,
    STEPS,
    WRONG,
    Expected,
    Told,
    step_told,
    told_of,
    verdict,
)

Scored = tuple[str, str, str, Told | None]
"""The name of an entry, its verdict, that on what to do, and what is said of it."""


def of_old() -> Iterator[Scored]:
    """The first four corpora."""
    for entry in ENTRIES:
        told = told_of(seen(entry, Seeing()))
        yield _scored(entry.id, entry.expected, told)
    for fault in FAULTS:
        told = told_of(fault.nodes())
        yield _scored(fault.name, fault.expected, told)


def of_public(folder: Path, way: Way | None = None) -> Iterator[Scored]:
    """One in which an entry is a file; without a way, by the one in which it is least right."""
    for one in entries_in(folder):
        yield _scored(one.name, one.expected, (one.worst() if way is None else one.scored(way))[1])


def _scored(name: str, expected: Expected, told: Told | None) -> Scored:
    return name, verdict(expected, told), step_told(expected, told), told


def table(scored: list[Scored]) -> str:
    """The counts, and of what is told as certain how much is right."""
    counts = Counter(found for _, found, _, _ in scored)
    steps = Counter(step for _, found, step, _ in scored if found == RIGHT)
    told_right = ", ".join(f"{steps[name]} {name}" for name in STEPS)
    lines = [f"{counts[name]:4} {name}" for name in BEST_FIRST]
    lines[0] += f" (what to do: {told_right})"
    sure = [found for _, found, _, told in scored if told is not None and told.certain]
    right = sum(found not in WRONG for found in sure)
    share = f"{right / len(sure):.1%}" if sure else "-"
    lines.append(f"{len(scored):4} in all; {len(sure)} told as certain, of which {share} right")
    return "\n".join(lines)


def main() -> None:
    """Score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", action="store_true")
    parser.add_argument("folders", nargs="*", type=Path)
    ask = parser.parse_args()
    folders = ask.folders or [PUBLIC, SEEDS]
    old = [*of_old()] if ask.old else []
    scored = [*old, *(one for each in folders for one in of_public(each))]
    for name, found, step, told in scored:
        shown = f"right ({step})" if found == RIGHT else found
        print(f"{name}: {shown.upper() if found in WRONG else shown}: {told}")
    print(f"\nby the way in which each is least right:\n{table(scored)}")
    for way in WAYS:
        seen_so = [*old, *(one for each in folders for one in of_public(each, way))]
        print(f"\nas {way.name} would see it:\n{table(seen_so)}")


if __name__ == "__main__":
    main()
