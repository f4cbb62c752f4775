"""Replicas among faults: some schedules each push, and each planted bug is caught by one.

`make simulate` runs many. When the generator or the simulator is changed:
`python -m tests.simulation.replicas --bugs --schedules 5000` finds the seeds of the bugs anew.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.simulation.replicas.__main__ import run_seeds
from tests.simulation.replicas.planted import BUGS, is_good, shown, stored
from tests.simulation.replicas.schedule import generate
from tests.simulation.replicas.world import simulate

CAUGHT = stored()
_SHARE = 9
"""Each push tries one bug in so many, always the same."""


def but_planted(name: str) -> object:
    marks = () if crc32(name.encode()) % _SHARE == 0 else pytest.mark.planted
    return pytest.param(name, marks=marks)


_LATER = [pytest.param(first, marks=pytest.mark.planted) for first in range(20, 100, 20)]


@pytest.mark.parametrize("first", [0, *_LATER])
def test_every_invariant_holds_among_faults(first: int) -> None:
    assert run_seeds(range(first, first + 20))[-1] == []


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(100, 1_000, 100))
def test_every_invariant_holds_in_many_schedules(first: int) -> None:
    assert run_seeds(range(first, first + 100))[-1] == []


def test_a_calm_schedule_ends_well() -> None:
    calm = generate(3).without(())
    report = simulate(calm)
    assert report.violation is None
    assert report.faults.total() == 0
    assert report.records


def test_the_same_schedule_goes_the_same_way() -> None:
    first, second = simulate(generate(1)), simulate(generate(1))
    assert first.records == second.records
    assert first.events == second.events


def test_a_run_that_is_being_removed_at_the_very_end_is_not_missed() -> None:
    assert is_good(32_344)


def test_every_kind_of_fault_is_drawn() -> None:
    faults = [fault for seed in range(300) for fault in generate(seed).faults]
    assert {fault.what for fault in faults} == {
        *("kill", "die", "stop", "cut", "cut up", "cut down", "isolated", "away", "restart"),
        *("slow", "full", "drain", "roll", "all die", "lost answer", "node dies"),
    }


# --- planted bugs ---------------------------------------------------------------------------------


def test_every_planted_bug_has_a_schedule_that_shows_it() -> None:
    assert CAUGHT.keys() == BUGS.keys()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [but_planted(name) for name in CAUGHT])
def test_a_planted_bug_is_caught(name: str) -> None:
    seed, invariant = CAUGHT[name]
    violation = shown(name, seed)
    assert violation is not None
    assert (violation.invariant, is_good(seed)) == (invariant, True)


@pytest.mark.parametrize("name", list(BUGS))
def test_every_bug_fits_the_code_as_it_stands(name: str) -> None:
    BUGS[name].check()
