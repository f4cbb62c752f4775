"""Each planted bug is caught by a schedule that the real code passes.

The everyday suite tries some of them, `make test-planted` all. When the generator or the simulator
is changed: `python -m tests.simulation --bugs --schedules 5000` finds the seeds anew.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.simulation.planted import BUGS
from tests.simulation.search import is_good, shown, stored

CAUGHT = stored()
SHARE = 9
"""Each push tries one bug in so many, always the same."""


def but_planted(name: str) -> object:
    marks = () if crc32(name.encode()) % SHARE == 0 else pytest.mark.planted
    return pytest.param(name, marks=marks)


def test_every_planted_bug_has_a_schedule_that_shows_it() -> None:
    assert CAUGHT.keys() == BUGS.keys()


@pytest.mark.timeout(300)  # what is awaited for ever takes many steps
@pytest.mark.parametrize("name", [but_planted(name) for name in CAUGHT])
def test_a_planted_bug_is_caught(name: str) -> None:
    seed, invariant = CAUGHT[name]
    violation = shown(BUGS[name], seed)
    assert violation is not None
    assert (violation.invariant, is_good(seed)) == (invariant, True)
