"""For each planted bug the schedule that shows it: `python -m tests.simulation --bugs`.

The seeds stand in `seeds.json`. They change whenever the generator or the simulator does; a seed
that still shows its bug is kept, the others are looked for again. What was found is written at
once, so that a search can be broken off and gone on with. Only such seeds are tried as execute what
a bug changes.
"""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.simulation.executed import Executed
from tests.simulation.generate import generate
from tests.simulation.history import Violation
from tests.simulation.patching import Bug
from tests.simulation.world import simulate

SEEDS = Path(__file__).with_name("seeds.json")
FOLDER = Path("build/simulate")
_STEP = 50

Caught = dict[str, tuple[int, str]]
"""By bug: the seed, and the invariant that does not hold."""


def stored() -> Caught:
    """The seeds that are known."""
    if not SEEDS.exists():
        return {}
    return {name: (int(seed), str(shown)) for name, (seed, shown) in _load().items()}


def _load() -> dict[str, list[int | str]]:
    found: dict[str, list[int | str]] = json.loads(SEEDS.read_text())
    return found


def search(bugs: Iterable[Bug], most: int, say: Callable[[str], None]) -> list[str]:
    """Find a schedule for each bug among the first `most` seeds; returns the bugs that had none."""
    missed, executed = [], Executed(FOLDER)
    for bug in bugs:
        found = _keep(bug, stored().get(bug.name)) or _find(bug, most, executed, say)
        say(f"{bug.name}: {found or f'not caught by {most} schedules'}")
        _write(bug.name, found)
        if found is None:
            missed.append(bug.name)
    return missed


def forget_all_but(names: Iterable[str]) -> None:
    """Take out of the file what is no bug any more."""
    kept = stored()
    _dump({name: kept[name] for name in names if name in kept})


def _keep(bug: Bug, known: tuple[int, str] | None) -> tuple[int, str] | None:
    if known is None or not _is_good(known[0]):
        return None
    violation = shown(bug, known[0])
    return None if violation is None else (known[0], violation.invariant)


def _find(
    bug: Bug, most: int, executed: Executed, say: Callable[[str], None]
) -> tuple[int, str] | None:
    """What shows one bug often shows another: the known seeds come first."""
    known = sorted({seed for seed, _ in stored().values()})
    seeds = list(dict.fromkeys([*known, *range(most)]))
    for at in range(0, len(seeds), _STEP):
        some = executed.of(bug.edits, seeds[at : at + _STEP])
        while (found := _first(bug, some)) is not None:
            seed, violation = found
            if _is_good(seed):
                return seed, violation.invariant
            say(f"seed {seed} fails without any bug")
            some = some[some.index(seed) + 1 :]
    return None


def _first(bug: Bug, seeds: Iterable[int]) -> tuple[int, Violation] | None:
    gc.disable()  # now and then is enough, and a third faster
    try:
        with bug.planted():
            for count, seed in enumerate(seeds):
                if count % 50 == 0:
                    gc.collect()
                if (violation := simulate(generate(seed)).violation) is not None:
                    return seed, violation
    finally:
        gc.enable()
    return None


def shown(bug: Bug, seed: int) -> Violation | None:
    """What the schedule of a seed shows of a bug."""
    with bug.planted():
        return simulate(generate(seed)).violation


@functools.cache
def _is_good(seed: int) -> bool:
    """Whether the real code passes."""
    return simulate(generate(seed)).violation is None


def _write(name: str, found: tuple[int, str] | None) -> None:
    known = stored()
    known.pop(name, None)
    if found is not None:
        known[name] = found
    _dump(known)


def _dump(known: Caught) -> None:
    lines = [f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(known.items())]
    SEEDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
