"""A node that stands by while the run goes on without it, and one that is retired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.reports import AckReport
from rendezvous.wire.run import Phase, RestartFacts
from rendezvous.wire.watch import DepartureNotice
from tests.worker.agent.drive import (
    CLOSES,
    OVER,
    RULES,
    SLOT,
    TAKEN,
    TERM,
    Drive,
    in_words,
    m,
    outcome,
    table,
    to,
    told,
)
from worker.agent import actions as do
from worker.program.ending import Ending

FENCE = 60.0
FACTS = RestartFacts(outlives_nodes=True)
LATER = RestartFacts(outlives_nodes=True, replacements=1, last_failure="node 0 was lost")
SECOND, OTHER = table(2, 29_501), table(port=29_501)
RUNS = m.go(reason="running on 2 nodes", topic=1, restarts=FACTS)
ENDED = m.ended(Ending(143, 0.0))
LEAVES = "Drop:Watch RUN_OVER Leave ends:RELEASED"
WHY = "another node has taken its place"
GONE: dict[str, Any] = {"retired": [SLOT], "why_released": {SLOT: WHY}}
UNKNOWN = "Drop:Watch Leave ends:FAULT"


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # It says so, instead of what the others wait for, and stays.
        ("joined", [RUNS], "STANDS_BY Watch"),
        ("joined", [RUNS, RUNS], "Watch"),
        ("joined", [RUNS, m.go(seq=1)], "Watch"),
        ("joined", [RUNS, m.go(stop=True, restarts=FACTS)], "Watch"),
        ("verifying", [m.answer(do.Visit), RUNS], "STANDS_BY Watch"),
        ("joined", [RUNS, m.view(Phase.RESTARTING, reason="later")], "RUN_WAITS Watch"),
        # It was asked to arm for the table before, and one was made without it.
        ("armed", [m.arm(SECOND), m.readied(), TAKEN, m.go(table(3, 29_502))], "STANDS_BY Watch"),
        # What it ran before still ends.
        ("running", [m.go(SECOND, restarts=LATER)], "MayRun STANDS_BY Watch Stop due:60"),
        ("running", [m.go(SECOND, restarts=LATER), ENDED], "Tell:Exit(143,stopped)@0"),
        # A go on a table that it was to arm for, and has not acknowledged, is nobody's plan.
        ("arming", [m.go(restarts=FACTS)], f"Watch {UNKNOWN}"),
        ("arming", [m.cannot_arm(), TAKEN, m.go(restarts=FACTS)], f"Watch {UNKNOWN}"),
        # Nor is one on another table of the epoch for whose table it has armed.
        ("armed", [m.go(OTHER, restarts=FACTS)], f"Watch {UNKNOWN}"),
        # It ends well: it has not failed with the others.
        ("joined", [RUNS, OVER], f"RUN_WAITS Watch {LEAVES}"),
        ("joined", [RUNS, OVER, CLOSES], "End:0"),
        ("joined", [RUNS, m.verify(epoch=2), OVER, CLOSES], "End:0"),
        ("joined", [m.view(restarts=LATER), m.result(restarts=LATER), CLOSES], "End:0"),
        ("joined", [RUNS, TERM, TAKEN, CLOSES], "End:143"),
        # A run that ends before any go concerns all of its nodes.
        ("joined", [m.result(restarts=FACTS), CLOSES], "End:3"),
        ("armed", [OVER, CLOSES], "End:3"),
        # And a node whose program was one of the newest is concerned between two epochs.
        ("running", [m.result(restarts=LATER), ENDED, TAKEN, CLOSES], "End:3"),
        ("running", [ENDED, TAKEN, m.verify(epoch=2), m.result(restarts=LATER), CLOSES], "End:3"),
        # One that the run needs no more is released, with all that it has.
        (
            "joined",
            [RUNS, m.go(released=[SLOT])],
            "RUN_WAITS Watch RELEASED_UNNEEDED Drop:Watch Leave ends:RELEASED",
        ),
    ],
)
def test_a_node_stands_by_while_the_run_goes_on_without_it(
    begin: str, steps: list[Any], does: str
) -> None:
    assert outcome(begin, *steps, fence=FENCE) == does


@pytest.mark.parametrize("begin", ["joined", "armed"])
def test_without_a_fence_a_node_that_has_not_agreed_to_the_go_ends(begin: str) -> None:
    assert outcome(begin, m.go(OTHER)).endswith("ends:FAULT")


def test_a_node_that_stood_by_takes_its_place_in_a_later_epoch() -> None:
    drive = to("joined", fence=FENCE)
    RUNS(drive)
    assert drive.due is None
    assert in_words(drive.verify(epoch=2, restarts=LATER)) == "RUN_WAITS Watch Visit"
    drive.visited()
    TAKEN(drive)
    assert in_words(drive.arm(SECOND, restarts=LATER)) == "Watch Arm"
    assert told(drive.readied()) == [AckReport(epoch=2, digest=SECOND.digest())]
    TAKEN(drive)
    assert in_words(drive.go(SECOND, restarts=LATER)) == "Watch MayRun STARTS Start"
    assert drive.the(do.Start).again
    drive.started()
    drive.result()
    drive.ended(Ending(143, 0.0))
    TAKEN(drive)
    assert drive.closes()[-1] == do.End(3)  # it is one of them now


def test_a_node_that_lost_its_rank_stands_by_and_ends_well() -> None:
    drive = to("running", fence=FENCE)
    for step in (m.stop(), ENDED, TAKEN, m.go(SECOND, restarts=LATER)):
        step(drive)
    assert (drive.node.program, drive.due) == (None, None)
    OVER(drive)
    assert drive.closes()[-1] == do.End(0)


def test_a_node_whose_run_outlives_others_goes_on_answering_its_peers() -> None:
    """A newcomer has to reach it while its program runs."""
    drive = to("armed", fence=FENCE)
    assert do.StopListening() not in drive.go(restarts=FACTS)
    assert do.StopListening() in to("armed", fence=FENCE).go()


Step = Callable[[Drive], tuple[Any, ...]]
NOTICE = DepartureNotice(slot=0, node=0, seconds=40.0)


@pytest.mark.parametrize(
    "news", [m.go(stop=True, restarts=FACTS), m.go(stop=True, restarts=FACTS, notice=NOTICE)]
)
def test_what_may_follow_a_loss_is_begun_while_the_program_ends(news: Step) -> None:
    early = to("running", replace(RULES, early=True), fence=FENCE)
    assert do.StartEarly() in news(early)


@pytest.mark.parametrize(
    ("begin", "phase", "does"),
    [
        ("joined", Phase.GATHERING, "Leave"),
        ("joined", Phase.RUNNING, "Leave"),
        ("verifying", Phase.VERIFYING, "Drop:Visit Leave"),
        ("arming", Phase.ARMING, "Leave"),
        ("armed", Phase.ARMING, "Leave"),
        ("acknowledging", Phase.RUNNING, "Drop:Tell Leave"),
        ("running", Phase.RUNNING, "Stop"),
        ("running", Phase.GATHERING, "Stop"),
        ("serving", Phase.RUNNING, "Stop CloseRemote"),
    ],
)
def test_a_retired_node_ends_at_once_and_well_whatever_the_run_does(
    begin: str, phase: Phase, does: str
) -> None:
    drive = to(begin, fence=FENCE)
    before, drive.is_quick = dict(drive.node.effects), True
    actions = drive.view(phase, **GONE)
    words = in_words([one for one in actions if not isinstance(one, do.MayRun)], before)
    words = words.removeprefix("RUN_WAITS ").replace("Drop:Watch ", "")
    watch = "" if phase is Phase.ARMING else "Watch "  # it may have something to bring soon
    assert words == f"{watch}RELEASED {does}"
    if drive.all(do.Arm):
        drive.readied()
    if drive.all(do.CloseRemote):
        drive.answer(do.CloseRemote)
    if drive.node.program is not None:
        serves = drive.node.program.serves
        drive.ended(None if serves else Ending(143, 0.0, was_told=True))
        assert [report.stopped for report in map(_exit, drive.all(do.Tell))] == [True]
        TAKEN(drive)
    assert drive.closes()[-1] == do.End(0)


def _exit(tell: do.Tell) -> Any:
    return tell.report


def test_why_a_node_is_retired_is_said() -> None:
    drive = to("running", fence=FENCE)
    said = [a.notice for a in drive.go(**GONE) if isinstance(a, do.Say)]
    assert [dict(one.values) for one in said if one.values] == [{"cause": WHY}]


def test_a_node_that_is_retired_with_the_result_ends_well_too() -> None:
    drive = to("running", fence=FENCE)
    drive.result(retired=[SLOT])
    drive.ended(Ending(143, 0.0, was_told=True))
    TAKEN(drive)
    assert drive.closes()[-1] == do.End(0)
