"""One attempt at a table: probes, arming, the go; and what is not done any more."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from rendezvous.wire.errors import ArmingFailed, NotFound
from rendezvous.wire.reports import AckReport, RefuseReport
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import PairProbe, ProbeReport
from tests.worker.agent.drive import (
    DIGEST,
    LED,
    OK,
    PLAN,
    PROGRAM,
    RESULT,
    SERVING,
    SLOT,
    TABLE,
    Drive,
    armed,
    arming,
    joined,
    notes,
    of_kind,
    plan,
    running,
    starting,
    table,
    told,
    verifying,
    without_words,
)
from worker.agent.actions import (
    Arm,
    Drop,
    End,
    OpenRemote,
    SendMetrics,
    Start,
    StopListening,
    Tell,
    Visit,
    Watch,
)
from worker.agent.inputs import Armed, Failed, NotArmed, Visited
from worker.agent.notices import Note, notice
from worker.agent.state import Cause

OFFERED = frozenset({"ab" * 32})


def cause(drive: Drive) -> Cause:
    """Why it ends."""
    assert drive.node.ends is not None
    return drive.node.ends.cause


# --- verifying ------------------------------------------------------------------------------------


def test_the_peers_are_visited_beside_the_watch_once_in_an_epoch() -> None:
    drive = joined()
    actions = drive.verify()
    assert without_words(actions) == (
        Watch(8, after=1, poll=2.0, limit=116.0),
        Visit(9, epoch=1, plan=PLAN),
    )
    assert [type(action) for action in drive.verify()] == [Watch]


def test_what_the_visits_show_is_told_and_said_in_one_line() -> None:
    drive = verifying()
    actions = drive.answer(Visit, Visited, (OK,), 0.25)
    assert notes(actions) == [Note.PEERS_ANSWER]
    assert without_words(actions) == (
        Tell(10, report=ProbeReport(epoch=1, pairs=[OK]), began_at=0.0),
    )


def test_of_many_failures_the_first_eight_are_said_and_all_are_told() -> None:
    drive = joined()
    drive.verify(plan=plan(*range(12)))
    pairs = tuple(PairProbe(slot=slot, outcome="timeout") for slot in range(12) if slot != SLOT)
    actions = drive.answer(Visit, Visited, pairs, 20.0)
    assert notes(actions) == [Note.PEERS_ANSWER] + [Note.PEER_FAILED] * 8
    assert told(actions) == [ProbeReport(epoch=1, pairs=list(pairs))]


def test_the_visits_of_an_older_epoch_are_broken_off() -> None:
    drive = verifying()
    former = drive.the(Visit).number
    actions = without_words(drive.verify(epoch=2))
    assert actions[1:] == (Drop(former), Visit(11, epoch=2, plan=PLAN))


def test_visits_that_nobody_waits_for_any_more_are_broken_off() -> None:
    drive = verifying()
    former = drive.the(Visit).number
    assert Drop(former) in drive.view(Phase.GATHERING)


def test_a_node_that_is_in_no_plan_yet_waits() -> None:
    drive = joined()
    assert [type(action) for action in without_words(drive.verify(plan=None))] == [Watch]


def test_visits_that_break_are_this_nodes_own_fault() -> None:
    drive = verifying()
    drive.breaks(Visit)
    assert cause(drive) is Cause.FAULT


# --- arming ---------------------------------------------------------------------------------------


def test_a_table_is_armed_for_once_and_acknowledged_by_its_digest() -> None:
    drive = verifying()
    visit = drive.the(Visit).number
    actions = without_words(drive.arm())
    assert actions[1:] == (
        Drop(visit),
        Arm(11, table=TABLE, digest=DIGEST, former=None, offered=OFFERED),
    )
    assert [type(action) for action in drive.arm()] == [Watch]
    actions = drive.answer(Arm, Armed, PROGRAM)
    assert actions == (Tell(13, report=AckReport(epoch=1, digest=DIGEST), began_at=0.0),)
    assert [type(action) for action in drive.arm()] == [Watch]


def test_what_the_contract_changes_and_what_was_missing_is_said() -> None:
    drive = arming()
    missing = notice(Note.NO_HOSTFILE, folder="/logs", problem="full")
    contract = replace(PROGRAM, notes=["OMP_NUM_THREADS is 1"])
    assert notes(drive.answer(Arm, Armed, contract, (missing,))) == [Note.NO_HOSTFILE, Note.TOLD]


def refusal(code: str = "hosts") -> RefuseReport:
    """Of the first table."""
    return RefuseReport.model_validate({"epoch": 1, "code": code, "reason": "no right to write"})


def test_a_node_that_cannot_start_on_the_table_says_why_to_the_registry() -> None:
    drive = arming()
    actions = drive.answer(Arm, NotArmed, refusal())
    (tell,) = actions
    assert told(actions) == [refusal()]
    assert isinstance(tell, Tell)
    assert tell.needed
    assert drive.node.agreed is None


def test_a_bad_table_is_said_here_as_whoever_made_it_may_not_pass_it_on() -> None:
    drive = arming()
    actions = drive.answer(Arm, NotArmed, refusal("bad_table"))
    assert notes(actions) == [Note.TABLE_REFUSED]
    assert told(actions) == [refusal("bad_table")]


def test_the_next_table_waits_until_the_thread_of_the_one_before_has_ended() -> None:
    drive = arming()
    second = table(epoch=2)
    assert not of_kind(drive.arm(second), Arm)
    third = table(epoch=3)
    assert not of_kind(drive.arm(third), Arm)
    actions = drive.answer(Arm, Armed, PROGRAM)
    assert without_words(actions) == (
        Tell(15, report=AckReport(epoch=1, digest=DIGEST), began_at=0.0),
        Arm(16, table=third, digest=third.digest(), former=TABLE, offered=OFFERED),
    )


def test_a_refusal_of_an_older_table_is_told_as_well_and_the_newer_one_armed_for() -> None:
    drive = arming()
    drive.arm(table(epoch=2))
    actions = drive.answer(Arm, NotArmed, refusal())
    assert told(actions) == [refusal()]
    assert [arm.table.epoch for arm in of_kind(actions, Arm)] == [2]
    assert [arm.former for arm in of_kind(actions, Arm)] == [None]


def test_another_table_of_the_same_epoch_is_armed_for_and_judged_there() -> None:
    drive = armed()
    second = table(port=29_501)
    (arm,) = of_kind(drive.arm(second), Arm)
    assert (arm.table, arm.former) == (second, TABLE)


@pytest.mark.parametrize("how", ["fails", "breaks"])
def test_a_fault_in_arming_ends_the_node(how: str) -> None:
    drive = arming()
    if how == "fails":
        drive.fails(Arm, ArmingFailed("no disk"))
    else:
        drive.breaks(Arm)
    assert cause(drive) is Cause.FAULT


# --- the go ---------------------------------------------------------------------------------------


def test_at_the_go_the_program_starts_on_the_table_that_was_acknowledged() -> None:
    drive = armed()
    actions = drive.go()
    assert notes(actions) == [Note.STARTS]
    assert without_words(actions) == (
        Watch(14, after=3, poll=2.0, limit=116.0),
        StopListening(),
        SendMetrics(2),
        Start(15, table=TABLE, contract=PROGRAM),
    )
    assert [type(action) for action in without_words(drive.go())] == [Watch]


def test_where_commands_of_other_nodes_are_allowed_they_are_from_the_go_on() -> None:
    drive = armed(LED, SERVING)
    actions = drive.go()
    assert notes(actions) == [Note.SERVES]
    assert without_words(actions)[1:] == (
        StopListening(),
        OpenRemote(TABLE, DIGEST, SERVING),
        SendMetrics(2),
        Start(15, table=TABLE, contract=SERVING),
    )


def test_nobody_starts_on_a_table_that_it_has_not_acknowledged() -> None:
    drive = armed()
    actions = drive.go(table(port=29_501))
    assert not of_kind(actions, Start)
    assert cause(drive) is Cause.FAULT
    assert drive.node.ends is not None
    assert isinstance(drive.node.ends.error, ArmingFailed)


def test_nobody_starts_on_a_table_that_it_is_still_arming_for() -> None:
    drive = arming()
    assert not of_kind(drive.go(), Start)
    assert cause(drive) is Cause.FAULT


def test_a_node_starts_one_program_in_its_life_whatever_the_registry_says() -> None:
    drive = running()
    second = table(epoch=2)
    drive.arm(second)
    drive.answer(Arm, Armed, PROGRAM)
    assert not of_kind(drive.go(second), Start)
    assert len(drive.all(Start)) == 1


# --- nodes that the run goes without --------------------------------------------------------------


def test_a_spare_waits_until_the_go_and_ends_well_then() -> None:
    drive = joined()
    assert [type(a) for a in without_words(drive.arm(released=[SLOT]))] == [Watch]
    assert notes(drive.go(released=[SLOT])) == [Note.RELEASED_UNNEEDED]
    assert drive.leaves() == End(0)


def test_a_node_that_is_left_out_for_a_cause_says_it() -> None:
    drive = joined()
    actions = drive.go(released=[SLOT], why_released={SLOT: "nobody reaches it"})
    assert notes(actions)[-1] is Note.RELEASED
    assert drive.leaves() == End(0)


def test_a_spare_that_sees_release_and_result_at_once_ends_well() -> None:
    drive = joined()
    actions = drive.result(released=[SLOT])
    assert notes(actions)[1:] == [Note.RELEASED_UNNEEDED, Note.RUN_OVER]
    assert drive.leaves() == End(0)


def test_a_released_node_does_not_wait_for_the_report_of_its_visits() -> None:
    drive = verifying()
    drive.answer(Visit, Visited, (OK,), 0.1)
    report = drive.the(Tell).number
    actions = drive.go(released=[SLOT])
    assert Drop(report) in actions
    assert drive.leaves() == End(0)


# --- a node that is told to end -------------------------------------------------------------------


def test_after_a_signal_nothing_is_visited_armed_for_or_started() -> None:
    drive = joined()
    drive.signal(signal.SIGTERM)
    assert [type(a) for a in without_words(drive.verify())] == [Watch]
    assert [type(a) for a in drive.arm()] == [Watch]
    drive = armed()
    drive.signal(signal.SIGTERM)
    assert [type(a) for a in drive.go()] == [Watch]


def test_after_a_signal_visits_are_broken_off_and_nothing_is_told_of_them() -> None:
    drive = verifying()
    visit = drive.the(Visit).number
    assert Drop(visit) in drive.signal(signal.SIGTERM)
    assert drive.feed(Visited(visit, (OK,), 0.1)) == ()


def test_after_a_signal_a_table_is_not_acknowledged_and_no_acknowledgement_tried_again() -> None:
    drive = arming()
    drive.signal(signal.SIGTERM)
    assert not told(drive.answer(Arm, Armed, PROGRAM))
    drive = arming()
    drive.answer(Arm, Armed, PROGRAM)
    ack = drive.the(Tell).number
    assert Drop(ack) in drive.signal(signal.SIGTERM)
    assert drive.feed(Failed(ack, NotFound("no such run"))) == ()


def test_after_a_signal_a_table_is_not_refused() -> None:
    drive = arming()
    drive.signal(signal.SIGTERM)
    assert not told(drive.answer(Arm, NotArmed, refusal()))


def test_after_a_signal_the_next_table_is_not_armed_for() -> None:
    drive = arming()
    drive.arm(table(epoch=2))
    drive.signal(signal.SIGTERM)
    assert not of_kind(drive.answer(Arm, Armed, PROGRAM), Arm)


def test_a_stop_that_comes_before_any_go_asks_nothing_of_this_node() -> None:
    drive = armed()
    assert [type(a) for a in drive.stop()] == [Watch]
    assert not told(drive.result(RESULT))
    assert drive.leaves() == End(3)


def test_an_epoch_that_comes_back_after_another_one_is_an_attempt_of_its_own() -> None:
    drive = starting()
    assert [epoch.number for epoch in drive.node.epochs] == [1]
    drive.verify(epoch=2)
    assert [epoch.number for epoch in drive.node.epochs] == [1, 2]
    drive.verify(epoch=3)
    assert [epoch.number for epoch in drive.node.epochs] == [1, 3]
