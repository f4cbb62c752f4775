"""Each planted bug is caught by a schedule that the real code passes.

When the generator or the simulator is changed: `python -m tests.simulation --bugs --schedules 5000`
finds the seeds anew.
"""

from __future__ import annotations

import pytest

from tests.simulation.generate import generate
from tests.simulation.planted import BUGS
from tests.simulation.search import shown, stored
from tests.simulation.world import simulate

CAUGHT = stored()


def test_every_planted_bug_has_a_schedule_that_shows_it() -> None:
    assert CAUGHT.keys() == BUGS.keys()


@pytest.mark.parametrize("name", list(CAUGHT))
def test_a_planted_bug_is_caught(name: str) -> None:
    seed, invariant = CAUGHT[name]
    violation = shown(BUGS[name], seed)
    assert violation is not None
    assert violation.invariant == invariant


@pytest.mark.parametrize("seed", sorted({seed for seed, _ in CAUGHT.values()}))
def test_the_real_code_passes_the_schedules_that_show_the_bugs(seed: int) -> None:
    assert simulate(generate(seed)).violation is None
