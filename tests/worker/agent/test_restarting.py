"""A node whose program has ended, or is to end, and starts again on the next table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import Phase, RestartFacts
from rendezvous.wire.watch import DepartureNotice
from tests.worker.agent.drive import (
    PROGRAM,
    RULES,
    SERVING,
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
from worker.agent import inputs
from worker.program.ending import Ending

Step = Callable[[Drive], tuple[Any, ...]]
NOTICE = DepartureNotice(slot=0, node=0, seconds=40.0)
SECOND = table(2, 29_501)
FACTS = RestartFacts(restarts=1, max_restarts=3, last_failure="node 0 failed")
ARMS = m.arm(SECOND, restarts=FACTS)
WAITS = m.view(Phase.RESTARTING, restarts=FACTS)
GOES = m.go(SECOND, restarts=FACTS)
ENDS = m.gone(Ending(1, 0.0))
ENDED = m.ended(Ending(1, 0.0))
TAKEN = m.taken()


def restarted(*, led: bool = False) -> Drive:
    """A node whose second program runs."""
    contract = SERVING if led else PROGRAM
    drive = to("serving") if led else to("running")
    drive.stop()
    if led:
        drive.answer(do.CloseRemote)
    drive.ended(None if led else Ending(143, 0.0))
    drive.taken()
    drive.arm(SECOND, restarts=FACTS)
    drive.readied(contract)
    drive.taken()
    drive.go(SECOND, restarts=FACTS)
    drive.started()
    return drive


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # A program that has ended, and was reported, is in nobody's way.
        ("running", [ENDED, TAKEN, ARMS], "Watch SendWords Arm"),
        ("running", [m.stop(), ENDED, TAKEN, WAITS], "Watch SendWords"),
        ("running", [m.stop(), ENDED, TAKEN, WAITS, ARMS], "Watch Arm"),
        # Nothing is armed for before nothing of it is left, and the registry knows how it ended.
        ("running", [ARMS], "Watch Stop"),
        ("running", [m.stop(), ARMS], "Watch"),
        ("running", [ARMS, ENDS], "TOLD Flush"),
        ("running", [ARMS, ENDED], "Tell:Exit(1,stopped)@0"),
        ("running", [ARMS, ENDED, TAKEN], "SendWords Arm"),
        ("running", [ENDED, ARMS], "Watch"),
        ("running", [ENDED, ARMS, TAKEN], "SendWords Arm"),
        # A node that has heard neither of the stop nor of the new table ends its program late.
        ("running", [WAITS], "Watch Stop"),
        ("running", [m.verify(epoch=2)], "Watch Stop Listen Visit"),
        ("running", [m.view(Phase.GATHERING, epoch=2)], "Watch Stop"),
        # What serves rank 0's program is closed first.
        ("serving", [ARMS], "Watch Stop CloseRemote"),
        ("serving", [ARMS, m.gone(), m.answer(do.CloseRemote)], "Flush"),
        # It goes once it has agreed to the new table, and on no other.
        ("running", [ENDED, TAKEN, ARMS, m.readied(), TAKEN, GOES], "Watch STARTS Start"),
        ("running", [ENDED, TAKEN, GOES], "Watch Drop:Watch Leave ends:FAULT"),
        # Nor beside another program, whatever the registry says.
        ("running", [m.go(epoch=2)], "Watch Stop StopListening Drop:Watch ends:FAULT"),
    ],
)
def test_what_a_restart_asks_of_a_node(begin: str, steps: list[object], does: str) -> None:
    assert outcome(begin, *steps) == does


def test_each_program_is_told_of_those_before_it() -> None:
    drive = to("running")
    drive.stop()
    drive.ended(Ending(143, 0.0))
    drive.taken()
    drive.arm(SECOND, restarts=FACTS)
    assert drive.the(do.Arm).restarts == FACTS
    assert told(drive.readied()) == [AckReport(epoch=2, digest=SECOND.digest())]
    drive.taken()
    drive.go(SECOND, restarts=FACTS)
    start = drive.the(do.Start)
    assert (start.again, start.table) == (True, SECOND)
    assert to("running").the(do.Start).again is False


def test_the_first_program_of_a_resumed_node_has_a_log_of_its_epoch() -> None:
    """Between two epochs the launcher and all agents may have been started anew."""
    drive = to("joined")
    drive.arm(SECOND, restarts=FACTS)
    drive.readied()
    drive.taken()
    drive.go(SECOND, restarts=FACTS)
    assert drive.the(do.Start).again is True


def test_the_second_program_is_followed_as_the_first_one() -> None:
    drive = restarted()
    report = told(drive.ended(Ending(5, 0.0)))[0]
    assert isinstance(report, ExitReport)
    assert (report.epoch, report.exit_code, report.stopped) == (2, 5, False)
    drive.taken()
    assert in_words(drive.result()).endswith("Leave")


def test_a_node_that_may_start_again_goes_on_answering_its_peers() -> None:
    drive = to("armed")
    assert do.StopListening() not in drive.go(restarts=RestartFacts(max_restarts=3))


@pytest.mark.parametrize(
    ("answer", "does"),
    [
        (m.answer(do.Listen, inputs.Listening, 7_000), ""),
        (m.answer(do.Listen), ""),  # it still does, or never could
        (m.answer(do.Listen, inputs.Listening, None, "it is taken"), "Drop:Watch Drop:Visit Leave"),
        (m.breaks(do.Listen), "Drop:Watch Drop:Visit Leave"),
    ],
)
def test_a_node_that_its_peers_prove_anew_answers_them_again_or_says_that_it_cannot(
    answer: Step, does: str
) -> None:
    """It closed its port at the go, if nothing was to start again but by hand."""
    drive = to("running")
    for step in (ENDED, TAKEN, m.verify(epoch=2)):
        step(drive)
    assert drive.the(do.Listen).again is True
    before = drive.node.effects
    assert in_words(answer(drive), dict(before)) == does


def test_a_node_whose_port_was_taken_names_itself() -> None:
    drive = to("running")
    for step in (ENDED, TAKEN, m.verify(epoch=2)):
        step(drive)
    drive.answer(do.Listen, inputs.Listening, None, "it is taken")
    (report,) = told(drive.answer(do.CloseSocket))
    assert isinstance(report, ExitReport)
    words = "it cannot listen again for the other nodes' connection checks: it is taken"
    assert (report.by_agent, report.message) == (True, words)


def test_the_commands_of_other_nodes_are_of_one_epoch() -> None:
    drive = restarted(led=True)
    assert drive.node.program is not None
    assert drive.node.program.epoch == 2
    assert in_words(drive.stop()) == "Watch Stop CloseRemote"


@pytest.mark.parametrize("steps", [[ENDED, TAKEN, ARMS], [ENDED, TAKEN]])
def test_a_signal_between_two_programs_is_told_at_once(steps: list[Step]) -> None:
    drive = to("running")
    for step in steps:
        step(drive)
    (report,) = told(TERM(drive))
    assert isinstance(report, ExitReport)
    assert (report.exit_code, report.leaves) == (143, True)


def test_a_signal_while_a_program_ends_for_the_next_one_is_the_cause() -> None:
    """The run has gone on from that program; how it ends would excuse this node."""
    drive = to("running")
    for step in (m.stop(), ARMS, m.after(2.0), TERM, m.after(3.0)):
        step(drive)
    words = "its agent received SIGTERM"
    report = ExitReport(epoch=1, exit_code=143, leaves=True, message=words)
    assert told(drive.ended(Ending(143, 4.0))) == [report]
    assert drive.the(do.Tell).since == 2.0


def test_a_signal_while_what_it_served_is_closed_for_the_next_program_is_the_cause() -> None:
    drive = to("serving")
    for step in (m.stop(), ARMS, m.after(2.0)):
        step(drive)
    (report,) = told(TERM(drive))
    words = "its agent received SIGTERM"
    expected = ExitReport(epoch=1, exit_code=143, leaves=True, by_agent=True, message=words)
    assert report == expected


def test_a_program_that_a_signal_ends_says_that_its_node_leaves() -> None:
    drive = to("running")
    TERM(drive)
    (report,) = told(drive.ended(Ending(143, drive.now)))
    assert isinstance(report, ExitReport)
    assert report.leaves


def test_a_program_reports_how_far_it_came() -> None:
    drive = to("running")
    drive.gone(Ending(1, 0.0), inputs.OwnWords(progress=40))
    (report,) = told(drive.answer(do.Flush))
    assert isinstance(report, ExitReport)
    assert (report.progress, report.leaves) == (40, False)


def test_a_result_ends_a_program_of_an_epoch_before() -> None:
    drive = to("running")
    ARMS(drive)
    drive.result()
    assert "Arm" not in in_words(drive.ended(Ending(143, 0.0)))


@pytest.mark.parametrize(
    ("news", "begins"),
    [
        (m.stop(), False),
        (m.go(stop=True, restarts=RestartFacts(max_restarts=1)), True),
        (m.go(stop=True, restarts=RestartFacts(restarts=1, max_restarts=1)), False),
        (m.go(stop=True, restarts=RestartFacts(max_restarts=1), notice=NOTICE), False),
        (ARMS, True),
        (WAITS, True),
        (m.result(), False),
    ],
)
def test_what_may_follow_is_begun_while_the_program_ends(news: Step, begins: bool) -> None:
    """torchrun imports torch meanwhile; without an early start nothing is begun."""
    early = to("running", replace(RULES, early=True))
    assert (do.StartEarly() in news(early)) is begins
    if begins:  # once
        assert do.StartEarly() not in m.arm(table(3), restarts=FACTS)(early)
    assert do.StartEarly() not in news(to("running"))
