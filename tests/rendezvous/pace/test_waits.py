"""Whether the others wait for a late call, by value and over many draws."""

from __future__ import annotations

import math
import random

import pytest

from rendezvous.pace.waits import Wait, wait_for

STEPS = 60


def drawn(seed: int, *, waits: bool, wanders: bool = False, drift: float = 0.0) -> Wait:
    """Of a lateness of 0.2 in steps of 1."""
    chance = random.Random(seed)
    late, pauses, at = [], [], 0.5
    for step in range(STEPS):
        at = at + chance.gauss(0, 0.04) if wanders else 0.2 + chance.gauss(0, 0.04)
        slowly = drift * math.sin(step / 6)
        late.append(max(0.0, at + slowly / 4))
        pauses.append(1.0 + slowly + chance.gauss(0, 0.04) + waits * late[-1])
    return wait_for(late, late[1:] + late[:1], pauses, 0.001)


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_they_wait(drift: float) -> None:
    found = [drawn(seed, waits=True, drift=drift) for seed in range(100)]
    assert sum(one.may for one in found) >= 95
    assert all((one.last, one.of) == (STEPS, STEPS) for one in found)
    assert all(0.15 < one.seconds < 0.25 and 0.1 < one.least < one.seconds for one in found)
    assert drift or sum(one.ends for one in found) >= 95


@pytest.mark.parametrize("drift", [0.0, 0.2])
@pytest.mark.parametrize("wanders", [False, True])
def test_they_do_not_wait(drift: float, wanders: bool) -> None:
    """Each lateness tells it in 9 of 10 cases, even where another process group holds the ranks
    together; two looks have to agree."""
    found = [drawn(seed, waits=False, wanders=wanders, drift=drift) for seed in range(100)]
    assert sum(one.may for one in found) <= (0 if wanders else 10)


def test_they_go_on_before_it_has_come() -> None:
    assert wait_for([0.2] * 40, [0.2] * 40, [0.25] * 40, 0.0).may
    assert not wait_for([0.2] * 40, [0.2] * 40, [0.15] * 40, 0.0).may
    assert wait_for([0.2] * 40, [0.2] * 40, [0.15] * 40, 0.1).may  # by clocks that are so wrong
    assert wait_for([0.2] * 40, [0.2] * 40, [0.15] + [0.25] * 39, 0.0).may


def test_where_nothing_varies_they_may_wait_and_it_does_not_end() -> None:
    assert wait_for([0.2] * 40, [0.0] * 40, [1.0] * 40, 0.0) == Wait(0.2, 0.2, True, False, 40, 40)


def test_it_is_surely_late_where_it_is_so_in_more_than_half_of_the_steps() -> None:
    often, seldom = [0.2] * 75 + [0.0] * 25, [0.2] * 60 + [0.0] * 40
    assert wait_for(often, often, [1.0] * 100, 0.0)[:2] == (0.2, 0.2)
    assert wait_for(seldom, seldom, [1.0] * 100, 0.0)[:2] == (0.2, 0.0)
