"""What keeps a registry from its work: no room for connections, and what fails again and again."""

from __future__ import annotations

import logging

import pytest

from rendezvous.server.room import MAX_REFUSALS, RESERVE, Room, Seat
from rendezvous.server.trouble import Trouble
from tests.support.served import FakeClock


def room(*, limit: int = 1_024, connections: int = 10_000) -> Room:
    return Room(connections, limit=lambda: limit, clock=FakeClock())


@pytest.mark.parametrize(
    ("left", "seat"),
    [(RESERVE + 1, Seat.FREE), (RESERVE, Seat.LAST), (9, Seat.LAST), (8, Seat.NONE)],
)
def test_the_last_descriptors_are_kept_for_those_who_are_told(left: int, seat: Seat) -> None:
    assert room(limit=1_024).seat(1, 1_024 - left) is seat


@pytest.mark.parametrize(
    ("above", "seat"),
    [(0, Seat.FREE), (1, Seat.LAST), (MAX_REFUSALS, Seat.LAST), (1 + MAX_REFUSALS, Seat.NONE)],
)
def test_connections_above_the_cap_are_told_and_those_far_above_are_dropped(
    above: int, seat: Seat
) -> None:
    assert room(limit=100_000, connections=10).seat(10 + above, 20) is seat


def test_what_is_short_is_told_as_long_as_somebody_is_refused() -> None:
    clock = FakeClock()
    limits = [64]
    tight = Room(10, limit=lambda: limits[0], clock=clock)
    assert tight.words() == ""
    tight.seat(1, 40)
    assert "it may open 64 files" in tight.words()
    assert "ulimit -n" in tight.refusal().message
    clock.seconds += 60
    assert tight.words() == ""
    limits[0] = 4_096  # the limit is read anew
    assert tight.seat(1, 40) is Seat.FREE
    tight.seat(11, 60)
    assert "its 10 connections" in tight.words()


def test_it_is_logged_once_for_all_who_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    tight = room(limit=64)
    for number in range(20):
        tight.seat(number, 60)
    assert len(caplog.records) == 1


def test_what_fails_again_and_again_has_failed_since_the_first_time_until_it_is_done() -> None:
    trouble = Trouble()
    assert (trouble.words(100.0), trouble.seconds(100.0)) == ("", 0.0)
    for now in (100.0, 105.0, 114.0):
        trouble.failed("full", now)
    assert (trouble.words(120.0), trouble.seconds(120.0)) == ("full", 20.0)
    trouble.over()
    assert (trouble.words(121.0), trouble.seconds(121.0)) == ("", 0.0)
    trouble.failed("full again", 123.0)
    assert (trouble.words(125.0), trouble.seconds(125.0)) == ("full again", 2.0)


def test_what_nobody_tries_any_more_is_no_trouble() -> None:
    trouble = Trouble()
    trouble.failed("full", 100.0)
    assert trouble.words(110.0) == "full"
    assert (trouble.words(110.1), trouble.seconds(110.1)) == ("", 0.0)
    trouble.failed("full", 111.0)
    assert trouble.seconds(112.0) == 1.0
