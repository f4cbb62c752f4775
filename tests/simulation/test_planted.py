"""Each planted bug is caught by a schedule that the real code passes, and taken back after it.

The everyday suite tries some of them, `make test-planted` more, and `make nightly` all. When the
generator or the simulator is changed: `python -m tests.simulation --bugs --schedules 5000` finds
the seeds anew.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.simulation.planted import BUGS
from tests.simulation.search import is_good, shown, stored
from tests.support.nightly import at_night

CAUGHT = stored()
EVERYDAY, PUSH = 54, 9
"""The everyday suite tries one bug in so many, and each push; always the same."""
LONG = {
    "launch: a cancel is tried for ever",
    "launch: a full journal exits as failed",
    "launch: a silent registry is awaited for ever",
    "launch: nodes are awaited for ever",
    "launch: the journal is awaited for ever",
    "losses: who is released hears nothing",
    "node: a hosts file is awaited for ever",
    "node: any other table is of others",
    "queued for ever",
    "the clock goes on",
}
"""A third of the time for all: their schedules have the most steps. `make nightly` tries them."""


def but_planted(name: str) -> object:
    number = crc32(name.encode())
    if name in LONG or number % PUSH:
        return at_night(name)
    return pytest.param(name, marks=() if number % EVERYDAY == 0 else pytest.mark.planted)


def test_every_planted_bug_has_a_schedule_that_shows_it() -> None:
    assert CAUGHT.keys() == BUGS.keys()
    assert BUGS.keys() > LONG


@pytest.mark.timeout(300)  # what is awaited for ever takes many steps
@pytest.mark.parametrize("name", [but_planted(name) for name in CAUGHT])
def test_a_planted_bug_is_caught(name: str) -> None:
    seed, invariant = CAUGHT[name]
    violation = shown(BUGS[name], seed)
    assert violation is not None
    assert (violation.invariant, is_good(seed)) == (invariant, True)


@pytest.mark.parametrize("name", list(BUGS))
def test_every_bug_fits_the_product_as_it_stands(name: str) -> None:
    BUGS[name].check()
