"""A node that cannot hear of its registry: its program ends before the run may start another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.errors import Fenced, TooManyRequests
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import Phase, RestartFacts
from tests.worker.agent.drive import (
    AWAY_NOW,
    BASE,
    GONE,
    LATE,
    LED,
    NOT_NOW,
    PROGRAM,
    RULES,
    STOP,
    TAKEN,
    TERM,
    UNTOLD,
    Drive,
    in_words,
    m,
    outcome,
    rank,
    table,
    to,
    told,
)
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.notices import Note, text_of
from worker.program.ending import Ending
from worker.program.family import Failure

FENCE = 60.0
"""With a grace of 10 s: TERM after 48 s, killed after 60 s."""
SECOND = table(2, 29_501)
FACTS = RestartFacts(outlives_nodes=True, replacements=1, last_failure="node 0 was lost")
AGAIN = m.view(Phase.RESTARTING, restarts=FACTS)
STOPPED = m.ended(Ending(143, 50.0, was_told=True))
BUSY, REFUSED = m.fails(do.Watch, TooManyRequests("wait")), m.fails(do.Watch, NOT_NOW)
FENCED = m.fails(do.Watch, Fenced("another node has this slot"))
CUT, WAKES = m.after(48.0), m.after(300.0)
NEWS = m.go(restarts=FACTS)


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # TERM in time for its grace, and what is left is killed before the registry goes on.
        ("running", [m.after(47.9)], "due:48"),
        ("running", [CUT], "FENCED Stop due:60"),
        ("running", [CUT, m.after(11.9)], "due:60"),
        ("running", [CUT, m.after(12.0)], "FENCE_OVER Kill"),
        ("running", [CUT, m.after(12.0), m.after(1.0)], ""),
        ("running", [CUT, STOPPED], "Tell:Exit(143,stopped,fenced)@50"),
        ("running", [CUT, STOPPED, m.after(12.0)], ""),
        # Who wakes up when all is over has no time for a grace.
        ("running", [WAKES], "FENCED Stop FENCE_OVER Kill"),
        ("running", [m.at(300.0), NEWS], "MayRun RUN_WAITS Watch FENCED Stop FENCE_OVER Kill"),
        ("running", [m.at(300.0), LATE], "REGISTRY_SILENT Watch(4) FENCED Stop FENCE_OVER Kill"),
        # What is being started ends as soon as it runs.
        ("starting", [CUT], "FENCED due:60"),
        ("starting", [CUT, m.started()], "Stop due:60"),
        ("starting", [CUT, m.after(12.0)], "FENCE_OVER"),
        ("starting", [WAKES, m.started()], "Kill Stop"),
        # What runs here for other nodes ends as well, and so does a node that only serves.
        ("serving", [CUT], "FENCED Stop CloseRemote due:60"),
        ("serving", [CUT, GONE], "due:60"),
        ("serving", [CUT, GONE, m.after(12.0)], "FENCE_OVER Kill"),
        ("serving", [CUT, GONE, m.answer(do.CloseRemote)], "Flush"),
        (
            "serving",
            [CUT, GONE, m.answer(do.CloseRemote), m.answer(do.Flush)],
            "Tell:Exit(0,stopped,fenced)",
        ),
        # What ends for another reason has no longer either.
        ("running", [m.after(40.0), STOP, m.after(20.0)], "FENCE_OVER Kill"),
        ("running", [m.after(45.0), TERM, TAKEN], "Stop due:60"),
        ("running", [m.after(45.0), TERM, TAKEN, m.after(15.0)], "FENCE_OVER Kill"),
        ("running", [m.after(30.0), FENCED], "Stop due:60 ends:REFUSED"),
        ("running", [m.after(30.0), FENCED, m.after(30.0)], "FENCE_OVER Kill"),
        ("running", [m.after(30.0), FENCED, GONE], "Leave"),
        ("running", [CUT, m.at(50.0), FENCED], "due:60 ends:REFUSED"),
        ("running", [TERM, TAKEN, TERM, m.after(60.0)], ""),  # it is killed already
        # Without a program there is nothing to end.
        ("joined", [WAKES], ""),
        ("armed", [WAKES], ""),
        ("running", [m.ended(Ending(0, 5.0)), WAKES], ""),
    ],
)
def test_a_program_ends_before_the_fence_is_over(begin: str, steps: list[Any], does: str) -> None:
    said = outcome(begin, *steps, fence=FENCE)
    assert said.replace(" Drop:Watch", "").replace("Drop:Watch ", "") == does


def test_what_keeps_a_program_knows_from_the_first_until_when_it_may_run() -> None:
    drive = to("armed", fence=FENCE)
    drive.at(7.0)
    drive.view(Phase.ARMING)
    drive.at(9.0)
    actions = drive.go(restarts=FACTS)
    allowed = [action for action in actions if isinstance(action, do.MayRun | do.Start)]
    assert [type(action) for action in allowed] == [do.MayRun, do.Start]
    assert allowed[0] == do.MayRun(7.0 + FENCE)


@pytest.mark.parametrize("begin", ["running", "serving"])
def test_a_run_that_ends_with_a_node_has_no_fence(begin: str) -> None:
    assert outcome(begin, m.after(119.0)) == ""


@pytest.mark.parametrize(
    ("steps", "due"),
    [
        # An answer shows that the registry had heard of the node when it was asked, not later.
        ([m.at(10.0), NEWS], 48.0),
        ([m.at(10.0), NEWS, m.at(12.0), NEWS], 58.0),
        ([m.at(10.0), NEWS, m.at(12.0), m.go(seq=4, restarts=FACTS)], 58.0),
        ([m.at(20.0), AWAY_NOW, m.at(25.0), NEWS], 68.0),
        ([m.at(20.0), LATE, m.at(25.0), NEWS], 68.0),
        ([m.at(20.0), REFUSED, m.at(25.0), NEWS], 68.0),
        # No answer, or one that only says "not now", shows nothing.
        ([m.at(20.0), AWAY_NOW], 48.0),
        ([m.at(20.0), LATE], 48.0),
        ([m.at(20.0), BUSY], 48.0),
        ([m.at(20.0), REFUSED], 48.0),
        ([m.at(20.0), REFUSED, m.at(40.0), REFUSED], 48.0),
    ],
)
def test_the_fence_counts_from_when_the_registry_must_have_heard(
    steps: list[Any], due: float
) -> None:
    drive = to("running", fence=FENCE)
    for step in steps:
        step(drive)
    assert drive.due == due


def test_not_now_keeps_the_node_and_not_its_program() -> None:
    """It may be another registry that says so, and the node's own has started its ranks anew."""
    drive = to("running", fence=FENCE)
    for now in range(1, 48):
        drive.at(float(now))
        assert "FENCED" not in in_words(drive.fails(do.Watch, NOT_NOW))
    drive.at(48.0)
    assert "FENCED Stop" in in_words(drive.fails(do.Watch, NOT_NOW))
    drive.at(500.0)
    assert "FENCE_OVER Kill" in in_words(drive.fails(do.Watch, NOT_NOW))
    assert drive.node.ends is None


def test_a_held_watch_counts_from_when_it_was_sent() -> None:
    drive = to("running", is_quick=True, fence=FENCE)
    drive.at(9.0)
    drive.go(stop=True, restarts=FACTS)  # held, for the end of the program
    drive.at(9.5)
    STOPPED(drive)
    member = drive.node.member
    assert member is not None
    assert (member.known_at, member.asked_at) == (0.0, 9.5)
    drive.at(10.0)
    AGAIN(drive)
    assert drive.node.member is not None
    assert drive.node.member.known_at == 9.5


@pytest.mark.parametrize(
    ("grace", "fence", "poll", "expected"),
    [
        (10.0, 60.0, 2.0, [48.0, 60.0]),
        (50.0, 60.0, 2.0, [8.0, 60.0]),
        (100.0, 60.0, 2.0, [6.0, 60.0]),  # a node that hears each watch is never stopped
        (100.0, 60.0, 30.0, [60.0, 60.0]),
    ],
)
def test_a_grace_that_is_longer_than_the_fence_is_cut_short(
    grace: float, fence: float, poll: float, expected: list[float]
) -> None:
    drive = to("running", replace(RULES, grace=grace), fence=fence)
    drive.go(poll_seconds=poll)
    found = [drive.due]
    drive.after(expected[0])
    assert drive.node.program is not None
    assert drive.node.program.fenced
    found.append(drive.due or drive.now)
    assert found == expected


def test_the_report_says_that_the_fence_ended_it_whatever_failed_before() -> None:
    drive = to("running", fence=FENCE)
    CUT(drive)
    (report,) = told(drive.ended(Ending(143, 50.0, was_told=True)))
    expected = {"epoch": 1, "exit_code": 143, "ran_seconds": 50.0, "fenced": True, "stopped": True}
    assert isinstance(report, ExitReport)
    assert report.model_dump(include={*expected}) == expected
    drive = to("running", fence=FENCE)
    drive.at(47.0)
    drive.seen(rank(1, 47.0, 1))
    drive.after(1.0)
    (report,) = told(drive.ended(Ending(1, 49.0, Failure(47.0, 101, 1, 1, 1))))
    assert isinstance(report, ExitReport)
    assert (report.fenced, report.stopped, report.rank) == (True, False, 1)


def test_the_sentence_says_since_when_and_why() -> None:
    drive = to("running", fence=FENCE)
    drive.at(12.0)
    NEWS(drive)
    NEWS(drive)
    actions = drive.after(48.0)
    (said,) = [a.notice for a in actions if isinstance(a, do.Say) and a.notice.note is Note.FENCED]
    assert text_of(said) == (
        "no news from the registry for 48 s (--fence-timeout): this node ends its program, because "
        "the run may start its ranks on another node"
    )


def test_who_waits_for_a_command_is_told_why_it_ends() -> None:
    drive = to("running", LED, fence=FENCE)
    drive.at(47.0)
    drive.fails(do.Watch)
    CUT(drive)
    why = text_of(drive.the(do.CloseRemote).why)
    assert why.startswith("this node has no news from its registry: the registry does not answer")


def empty_handed() -> Drive:
    """A node whose program was ended by its fence, and which watches on."""
    drive = to("running", fence=FENCE)
    CUT(drive)
    drive.at(50.0)
    drive.ended(Ending(143, 50.0, was_told=True))
    return drive


def test_its_end_is_told_once_the_registry_is_back_and_the_next_program_starts() -> None:
    drive = empty_handed()
    for now in (60.0, 70.0):
        drive.at(now)
        assert in_words(UNTOLD(drive)).endswith("Tell:Exit(143,stopped,fenced)@50:pause")
    # It has not been lost: the run goes on as it was, and then starts again.
    assert in_words(NEWS(drive)) == "RUN_WAITS Watch"
    TAKEN(drive)
    drive.view(Phase.RESTARTING, restarts=FACTS)
    assert drive.node.program is None
    drive.arm(SECOND, restarts=FACTS)
    assert told(drive.readied()) == [AckReport(epoch=2, digest=SECOND.digest())]
    TAKEN(drive)
    assert in_words(drive.go(SECOND, restarts=FACTS)) == "Watch MayRun STARTS Start"
    drive.started()
    assert drive.node.program is not None
    assert not drive.node.program.fenced
    assert drive.due == 70.0 + 48.0


def test_nothing_is_armed_for_before_the_registry_knows_of_its_end() -> None:
    drive = empty_handed()
    assert "Arm" not in in_words(drive.arm(SECOND, restarts=FACTS))
    assert in_words(TAKEN(drive)) == "Arm"


def test_a_node_with_empty_hands_waits_until_its_orphan_time_out() -> None:
    drive = empty_handed()
    drive.at(119.9)
    AWAY_NOW(drive)
    assert drive.node.ends is None
    drive.at(124.0)
    assert "Leave" in in_words(AWAY_NOW(drive))


@pytest.mark.parametrize(("now", "starts"), [(47.9, True), (48.0, False), (300.0, False)])
def test_a_go_that_was_too_long_on_its_way_starts_nothing(now: float, starts: bool) -> None:
    """It armed and acknowledged, and was cut off, or stopped, before the answer came."""
    drive = to("armed", fence=FENCE)
    drive.at(now)
    does = in_words(drive.go(restarts=FACTS)).removeprefix("RUN_WAITS ")
    if starts:
        assert does == "Watch MayRun STARTS Start"
        return
    assert does == "Watch FENCED Tell:Exit(0,stopped,fenced)"
    assert (drive.all(do.Start), drive.due) == ([], None)
    TAKEN(drive)
    # It can take part in what follows.
    assert in_words(drive.arm(SECOND, restarts=FACTS)) == "Watch Arm"
    drive.readied(PROGRAM)
    TAKEN(drive)
    assert in_words(drive.go(SECOND, restarts=FACTS)) == "Watch MayRun STARTS Start"


def test_a_go_that_comes_late_on_a_watch_that_was_just_sent_starts_the_program() -> None:
    drive = to("armed", fence=FENCE)
    drive.at(100.0)
    AWAY_NOW(drive)
    drive.at(101.0)
    assert in_words(drive.go(restarts=FACTS)).endswith("Start")
    drive.started()
    assert drive.due == 148.0


def test_the_join_is_the_first_that_the_registry_has_heard() -> None:
    """The first watch may never have arrived."""
    joined = to("joining", fence=FENCE)
    joined.at(7.0)
    joined.answer(do.Join, inputs.Joined, joined.reply, BASE)
    assert joined.node.member is not None
    assert joined.node.member.known_at == 0.0
