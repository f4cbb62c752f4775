"""The registry's clock: it stands still while the registry cannot work."""

from __future__ import annotations

import pytest

from rendezvous.registry.clock import RegistryClock
from rendezvous.run.leases import SWEEP_SECONDS


class Monotonic:
    def __init__(self) -> None:
        self.seconds = 7_000.0

    def __call__(self) -> float:
        return self.seconds


def made() -> tuple[RegistryClock, Monotonic, list[float]]:
    """A clock, what it runs on, and when it went on after a stall."""
    raw, stalls = Monotonic(), list[float]()
    return RegistryClock(raw, lambda: stalls.append(raw.seconds)), raw, stalls


def passing(clock: RegistryClock, raw: Monotonic, seconds: float) -> None:
    """Let time pass in which somebody looks at the clock all the time."""
    for _ in range(round(seconds / SWEEP_SECONDS)):
        raw.seconds += SWEEP_SECONDS
        clock.now()


def test_no_time_passes_while_it_is_held_and_who_was_gone_counts_anew() -> None:
    clock, raw, stalls = made()
    passing(clock, raw, 10)
    clock.hold()
    passing(clock, raw, 60)
    assert clock.now() == pytest.approx(10)
    clock.go_on()
    assert stalls == [raw.seconds]
    passing(clock, raw, 5)
    assert clock.now() == pytest.approx(15)
    assert clock.awake_seconds() == pytest.approx(5)


def test_a_stall_while_it_is_held_counts_once() -> None:
    clock, raw, stalls = made()
    clock.hold()
    raw.seconds += 100
    clock.go_on()
    assert (clock.now(), len(stalls)) == (0.0, 1)
    clock.go_on()  # nothing to go on from
    assert len(stalls) == 1


def test_what_a_node_has_measured_while_it_was_held_happened_right_after_it() -> None:
    clock, raw, _ = made()
    passing(clock, raw, 10)
    clock.hold()
    raw.seconds += 60
    clock.go_on()
    passing(clock, raw, 2)
    assert clock.own_age(1.0) == 1.0
    assert clock.own_age(50.0) < 2.0
    assert clock.own_age(50.0) < clock.own_age(55.0)
