"""A node that will go: what it says before it stops anything, and what its program is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.reports import DepartReport
from rendezvous.wire.watch import DepartureNotice
from tests.worker.agent.drive import (
    LED,
    POLL,
    PROGRAM,
    RULES,
    SERVING,
    TERM,
    Drive,
    in_words,
    m,
    to,
    told,
)
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.state import Rules
from worker.contracts import Contract
from worker.program.ending import Ending

NOTICE = DepartureNotice(slot=0, node=0, seconds=40.0, words="drained")
SPOT = inputs.DepartureNear(120.0, "its notice file /run/notice appeared")


def near(state: str = "running", rules: Rules = RULES, contract: Contract = PROGRAM) -> Drive:
    """A node on its way."""
    drive = to("joined", rules)
    if state != "joined":
        drive.arm()
        drive.readied(contract)
        drive.taken()
        drive.go()
        drive.started()
    return drive


def test_a_signal_is_told_before_the_program_is_stopped() -> None:
    drive = near()
    actions = TERM(drive)
    assert in_words(actions) == "SIGNAL Tell:Depart:last"
    assert told(actions) == [DepartReport(epoch=1, words="its agent received SIGTERM")]
    assert drive.the(do.Tell).limit == 1.0
    assert in_words(drive.taken()) == "Stop"
    assert in_words(drive.ended(Ending(143, 0.0))) == "Tell:Exit(143)@0"


@pytest.mark.parametrize("answer", [m.late(do.Tell), m.fails(do.Tell), m.breaks(do.Tell)])
def test_a_registry_that_is_away_holds_nothing_up(answer: object) -> None:
    drive = near()
    TERM(drive)
    assert callable(answer)
    assert in_words(answer(drive)) == "Stop"


def test_the_news_that_all_stop_stops_nothing_twice() -> None:
    drive = near()
    TERM(drive)
    assert in_words(drive.stop()) == "Watch(4)"
    assert in_words(drive.taken()) == "Stop"


def test_who_is_in_a_hurry_or_has_nobody_to_tell_stops_at_once() -> None:
    assert in_words(m.signal(3)(near())) == "SIGNAL Kill Stop"
    assert in_words(m.signal(15, parent_lives=False)(near())) == "SIGNAL Stop"
    assert "Tell:Exit(143,agent)" in in_words(TERM(near("serving", LED, SERVING)))


def test_a_notice_is_told_and_stops_nothing() -> None:
    drive = near()
    drive.at(5.0)
    actions = drive.feed(SPOT)
    assert in_words(actions) == "DEPARTS Tell:Depart@5:unneeded"
    assert told(actions) == [DepartReport(epoch=1, seconds=120.0, words=SPOT.words)]
    assert in_words(drive.feed(SPOT)) == ""


def test_a_notice_that_came_before_the_program_is_told_as_it_starts() -> None:
    drive = near("joined")
    assert in_words(drive.feed(SPOT)) == "DEPARTS"
    drive.arm()
    drive.readied()
    drive.taken()
    drive.at(50.0)
    (report,) = told(drive.go())
    assert report == DepartReport(epoch=1, seconds=70.0, words=SPOT.words)


@pytest.mark.parametrize("signal", [0, 10])
def test_the_program_is_shown_once_that_a_node_will_go(signal: int) -> None:
    drive = near(rules=replace(RULES, notice_signal=signal))
    actions = drive.go(notice=NOTICE)
    assert actions[1:] == (do.ShowDeparture(drive.program, NOTICE, signal),)
    assert in_words(drive.go(notice=NOTICE)) == "Watch"
    assert in_words(drive.go(stop=True, notice=NOTICE)) == "Watch Stop"
    assert drive.node.member is not None
    assert drive.node.member.poll == POLL


def test_the_program_is_shown_again_that_all_are_stopped_sooner() -> None:
    drive = near(rules=replace(RULES, notice_signal=10))
    drive.go(notice=NOTICE)
    drive.at(20.0)
    assert in_words(drive.go(notice=NOTICE.model_copy(update={"seconds": 19.5}))) == "Watch"
    sooner = DepartureNotice(slot=1, node=1, seconds=5.0, words="spot")
    assert drive.go(notice=sooner)[1:] == (do.ShowDeparture(drive.program, sooner, 10),)


def test_a_signal_is_told_also_after_a_notice_that_had_more_time() -> None:
    drive = near()
    drive.feed(SPOT)
    drive.taken()
    actions = TERM(drive)
    assert told(actions) == [DepartReport(epoch=1, words="its agent received SIGTERM")]
    assert in_words(drive.taken()) == "Stop"


def test_a_notice_that_comes_with_the_go_is_shown_once_the_program_runs() -> None:
    drive = near("joined", rules=replace(RULES, notice_signal=10))
    drive.arm()
    drive.readied()
    drive.taken()
    assert "ShowDeparture" not in in_words(drive.go(notice=NOTICE))
    assert drive.started() == (do.ShowDeparture(drive.program, NOTICE, 10),)
    assert in_words(drive.go(notice=NOTICE)) == "Watch"


def test_a_program_that_is_being_started_is_shown_it_before_it_is_stopped() -> None:
    drive = near("joined")
    drive.arm()
    drive.readied()
    drive.taken()
    drive.go()
    assert in_words(drive.go(stop=True, notice=NOTICE)) == "Watch"
    assert in_words(drive.started()) == "ShowDeparture Stop"


def test_a_program_that_is_stopped_at_once_is_shown_why() -> None:
    drive = near()
    assert in_words(drive.go(stop=True, notice=NOTICE)) == "Watch ShowDeparture Stop"


@pytest.mark.parametrize("over", [{"gone": True}, {"left_behind": True}, {"stop_at": 1.0}])
def test_of_a_program_that_is_over_or_told_to_end_no_departure_is_told(
    over: dict[str, Any],
) -> None:
    drive = near()
    assert drive.node.program is not None
    drive.node = replace(drive.node, program=replace(drive.node.program, **over))
    assert told(drive.feed(SPOT)) == []
    assert drive.node.departure is not None
