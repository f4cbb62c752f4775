"""The watch: news, heart-beat, and the loss of the registry."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.wire.errors import Fenced, NotFound, RegistryLost, TooManyRequests
from tests.worker.agent.drive import (
    AWAY_NOW,
    LATE,
    NOT_NOW,
    OVER,
    POLL,
    RULES,
    SOCKET,
    TERM,
    m,
    outcome,
    to,
)
from worker.agent import actions as do
from worker.agent.watching import seconds_of_try
from worker.program.ending import Ending

WHOLE = POLL + RULES.answer_seconds
"""Seconds within which a registry that is there answers a watch."""
BUSY, GONE = TooManyRequests("wait"), NotFound("no such run")
REFUSES, HOUR_OVER = m.fails(do.Watch, NOT_NOW), "REGISTRY_SILENT"
ENDS, REFUSED = m.ended(Ending(143, 1.0)), m.fails(do.Watch, GONE)
SAID = m.view(reason="waiting for slot 0, 50 s left", topic=1)
AGAIN = m.view(reason="40 s", topic=1)


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # What is waited for is said when it changes, but for the times in it.
        ("joined", [SAID], "RUN_WAITS Watch"),
        ("joined", [SAID, AGAIN], "Watch"),
        ("joined", [SAID, m.view(reason="40 s", topic=2)], "RUN_WAITS Watch"),
        # News that was taken in is not taken in again; one with less is believed.
        ("verifying", [m.answer(do.Visit), m.verify(epoch=2, seq=1)], "Watch"),
        ("joined", [m.verify(seq=9), m.verify(seq=3, epoch=2)], "Watch Drop:Visit Visit"),
        ("armed", [m.view(epoch=2)], "Watch"),
        # A registry away for a moment disturbs nobody.
        ("joined", [m.at(119.9), AWAY_NOW], "REGISTRY_SILENT Watch(4):pause"),
        ("joined", [m.at(119.9), m.fails(do.Watch, BUSY)], "REGISTRY_SILENT Watch(4):pause"),
        ("joined", [m.at(119.9), AWAY_NOW, m.at(119.95), AWAY_NOW], "Watch(0.05):pause"),
        ("joined", [m.at(119.0), AWAY_NOW, m.view()], "RUN_WAITS Watch"),
        # One that says that it cannot serve now is there, for an hour since its last real answer.
        ("joined", [m.at(119.9), REFUSES], "REGISTRY_NOT_NOW Watch:pause"),
        ("joined", [REFUSES, m.at(0.5), REFUSES], "Watch:pause"),
        ("joined", [REFUSES, m.at(0.5), AWAY_NOW], "REGISTRY_SILENT Watch:pause"),
        ("joined", [m.at(119.0), REFUSES, m.at(238.0), AWAY_NOW], "REGISTRY_SILENT Watch(4):pause"),
        ("joined", [m.at(3_600.0), LATE, REFUSES], "REGISTRY_NOT_NOW Watch:pause"),
        (
            "joined",
            [m.at(3_600.0), REFUSES, m.at(3_601.0), REFUSES],
            f"{HOUR_OVER} Watch:pause",
        ),
        ("joined", [m.at(3_600.0), REFUSES, m.at(3_720.0), REFUSES], f"{HOUR_OVER} Watch(4):pause"),
        (
            "joined",
            [m.at(3_600.0), REFUSES, m.at(3_720.0), REFUSES, m.at(3_721.0), REFUSES],
            "Leave ends:LOST",
        ),
        (
            "joined",
            [m.at(3_600.0), REFUSES, m.view(), m.at(7_200.0), REFUSES],
            "REGISTRY_NOT_NOW Watch:pause",
        ),
        ("running", [OVER, REFUSES], "Watch(4):pause"),
        # After the orphan time-out it is given up, but not before one try of full length.
        ("joined", [m.at(116.0), LATE], "REGISTRY_SILENT Watch(4)"),
        ("joined", [m.at(116.0), LATE, m.at(120.0), LATE], "Leave ends:LOST"),
        ("joined", [m.at(3_600.0), LATE], "REGISTRY_SILENT Watch(4)"),
        ("joined", [m.at(3_600.0), LATE, m.view()], "RUN_WAITS Watch"),
        ("joined", [m.at(3_600.0), LATE, m.view(), m.at(9e3), LATE], "REGISTRY_SILENT Watch(4)"),
        ("running", [m.at(116.0), LATE, m.at(130.0), AWAY_NOW], "Stop ends:LOST"),
        ("running", [m.at(130.0), LATE, LATE, m.gone(Ending(143, 9))], "TOLD Leave"),
        # A watch that is refused, or breaks, ends the node and its program.
        ("running", [m.fails(do.Watch, Fenced("newer"))], "Stop ends:REFUSED"),
        ("running", [REFUSED, m.gone(Ending(143, 1.0))], "TOLD Leave"),
        ("joined", [REFUSED, SOCKET], "Tell:Exit(77,agent)@0:last"),
        ("joined", [m.breaks(do.Watch)], "Leave ends:FAULT"),
        # A node that ends in order is held up neither by a refusal nor by silence.
        ("running", [OVER, REFUSED], ""),
        ("running", [OVER, REFUSED, ENDS], "Tell:Exit(143,stopped)@1 due:3"),
        ("armed", [TERM, REFUSED], ""),
        ("running", [OVER, m.at(500.0), LATE], "Watch(4)"),
        ("running", [m.at(119.0), AWAY_NOW, TERM, LATE], "Watch(4)"),
    ],
)
def test_what_comes_of_a_watch(begin: str, steps: list[Any], does: str) -> None:
    assert outcome(begin, *steps) == does


def test_the_next_watch_asks_from_there_on_as_the_registry_wants_it() -> None:
    drive = to("joined")
    drive.now = 9.0
    assert drive.view(poll_seconds=3.0)[-1] == do.Watch(8, after=1, poll=3.0, limit=115.0)
    drive.verify(seq=9)
    drive.verify(seq=3, epoch=2)
    assert (drive.the(do.Watch).after, drive.the(do.Watch).poll) == (3, POLL)
    drive.at(128.95)
    drive.fails(do.Watch)
    assert drive.the(do.Watch) == do.Watch(13, after=3, poll=POLL, limit=4.0, pause=True)


@pytest.mark.parametrize(
    ("left", "had_last", "expected"),
    [
        (120.0, False, (116.0, False)),
        (4.5, False, (0.5, False)),
        (4.0, False, (4.0, True)),
        (1.0, False, (4.0, True)),
        (-5.0, False, (4.0, True)),
        (3.0, True, (3.0, False)),
        (-5.0, True, (0.0, False)),
    ],
)
def test_the_time_that_is_left_ends_with_one_try_of_full_length(
    left: float, had_last: bool, expected: object
) -> None:
    assert seconds_of_try(left, WHOLE, had_last=had_last) == expected


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ([LATE], "did not answer"),
        ([AWAY_NOW], "nobody listens"),
        ([AWAY_NOW, m.view(), m.at(238.0), LATE], "did not answer"),
    ],
)
def test_the_last_problem_that_was_seen_is_the_one_that_is_said_in_the_end(
    before: list[Any], words: str
) -> None:
    drive = to("joined")
    drive.now = 118.0
    for step in before:
        step(drive)
    drive.now += 4.0
    drive.late(do.Watch)
    assert drive.node.ends is not None
    assert isinstance(drive.node.ends.error, RegistryLost)
    assert words in drive.node.ends.error.message
    assert drive.closes() == (do.End(0, drive.node.ends.error),)
