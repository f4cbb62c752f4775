"""For each planted bug the schedule that shows it: `python -m tests.simulation --bugs`.

The seeds stand in `seeds.json`, by the invariant that does not hold. They change whenever the
generator or the simulator does; a seed that still shows its bug is kept, the others are looked for
again. What was found is written at once, so that a search can be broken off and gone on with.
"""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.simulation.generate import generate
from tests.simulation.history import Violation
from tests.simulation.planting import Bug
from tests.simulation.world import simulate

SEEDS = Path(__file__).with_name("seeds.json")
Found = tuple[int, str]
"""The seed that shows a bug, and the invariant that does not hold."""


def stored() -> dict[str, Found]:
    """What is known, by bug."""
    by_invariant: dict[str, dict[str, int]] = json.loads(SEEDS.read_text())
    return {
        name: (seed, invariant)
        for invariant, seeds in by_invariant.items()
        for name, seed in seeds.items()
    }


def keep(known: dict[str, Found]) -> None:
    """Write what is known, a line for each invariant."""
    lines = []
    for invariant in sorted({invariant for _, invariant in known.values()}):
        seeds = {name: seed for name, (seed, shown) in sorted(known.items()) if shown == invariant}
        lines.append(f"  {json.dumps(invariant)}: {json.dumps(seeds)}")
    SEEDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def search(bugs: Iterable[Bug], most: int, say: Callable[[str], None]) -> list[str]:
    """Find a schedule for each bug among the first `most` seeds; returns the bugs that had none."""
    missed = []
    for bug in bugs:
        known = stored()
        seed = known.pop(bug.name, (0, ""))[0]
        others = sorted({at for at, _ in known.values()})  # what shows one often shows another
        found = _first(bug, [seed]) or _first(bug, [*others, *range(most)])
        say(f"{bug.name}: {found or f'not caught by {most} schedules'}")
        keep(known if found is None else known | {bug.name: found})
        if found is None:
            missed.append(bug.name)
    return missed


def _first(bug: Bug, seeds: Iterable[int]) -> Found | None:
    left = iter(seeds)
    while (found := _violated(bug, left)) is not None:
        if is_good(found[0]):
            return found
    return None


def _violated(bug: Bug, seeds: Iterator[int]) -> Found | None:
    gc.disable()  # now and then is enough, and a third faster
    try:
        with bug.planted():
            for count, seed in enumerate(seeds):
                if count % 50 == 0:
                    gc.collect()
                if (violation := simulate(generate(seed)).violation) is not None:
                    return seed, violation.invariant
    finally:
        gc.enable()
    return None


def shown(bug: Bug, seed: int) -> Violation | None:
    """What the schedule of a seed shows of a bug."""
    with bug.planted():
        return simulate(generate(seed)).violation


@functools.cache
def is_good(seed: int) -> bool:
    """Whether the real code passes."""
    return simulate(generate(seed)).violation is None
