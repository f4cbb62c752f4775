"""The course of a launch by value: created, followed, left by its nodes, ended, written down."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import ByFailure, BySignal
from launcher.run.sentences import (
    DidNotLeave,
    EndsAtOnce,
    EndsRun,
    Findings,
    LostAfterResult,
    RegistryTrouble,
    ResultUnwritten,
    StandingWaits,
    WaitsForOthers,
    Warnings,
)
from launcher.run.values import (
    ChildLost,
    EndedAtOnce,
    EndedBeforeBegun,
    Key,
    NotCreated,
    Refusal,
    Silent,
    StorageLost,
    Verdict,
)
from rendezvous.wire.run import NodeState, Phase, RunReport, SlotState
from tests.launcher.drive import (
    FOREIGN,
    FULL,
    LOCAL,
    SILENT,
    Drive,
    facts,
    over,
    result,
    slot,
    status,
)

ONE = Key(1, 1)
REPORT = RunReport(run="llama")


def kinds(done: list[do.Action]) -> list[str]:
    return [type(action).__name__ for action in done]


def child_ends(drive: Drive, words: str = "no room") -> list[do.Action]:
    return drive.take(said.ChildEnded(drive.open(do.StartChild).id, 1, words))


def outcome(drive: Drive) -> object:
    """How it ended, once the registry is down and the result written."""
    if drive.all_open(do.CloseChild):
        drive.take(said.Done(drive.open(do.CloseChild).id))
    if drive.all_open(do.WriteResult):
        drive.take(said.Done(drive.open(do.WriteResult).id))
    (end,) = drive.of(do.End)
    return end.outcome


def verdict(drive: Drive) -> Verdict | None:
    found = outcome(drive)
    return found.verdict  # type: ignore[attr-defined, no-any-return]


# --- the registry's process


def test_33_the_registry_is_started_before_the_run_is_created() -> None:
    drive = Drive.new().creating()
    assert kinds(drive.last) == ["StartChild", "CreateRun"]


def test_33_a_standing_registry_is_not_started_and_not_closed() -> None:
    drive = Drive.new(facts(owns=False)).creating()
    assert kinds(drive.last) == ["CreateRun"]
    drive.answer(do.CreateRun)
    drive.end()
    assert drive.of(do.CloseChild) == []
    assert verdict(drive) == Verdict(result())


def test_34_it_is_started_again_at_once_and_then_after_ever_longer_pauses() -> None:
    drive = Drive.new().following()
    pauses = []
    for _ in range(4):
        child_ends(drive)
        before = drive.now
        if not drive.all_open(do.StartChild):
            due = drive.machine.desk.times["child"][0]
            drive.wait(due - drive.now)
        pauses.append(round(drive.now - before, 1))
    assert pauses == [0.0, 0.2, 0.4, 0.6]


def test_35_five_starts_within_thirty_seconds_end_the_launch_with_its_last_words() -> None:
    drive = Drive.new().following()
    for _ in range(4):
        child_ends(drive)
        drive.wait(1.0)
    child_ends(drive, "no room")
    assert drive.machine.course.stage == "closing"
    assert verdict(drive) == Verdict(failure=ChildLost(5, 30.0, "no room"))


def test_34_starts_that_lie_further_back_do_not_count() -> None:
    drive = Drive.new().following()
    for _ in range(20):
        child_ends(drive)
        drive.wait(8.0)
        drive.status(slot(1))
    assert drive.machine.course.stage == "following"


def test_36_while_runs_are_ended_it_is_not_started_again_and_closed_after_them() -> None:
    drive = Drive.new().ending(ONE)
    child_ends(drive)
    drive.wait(1.0)
    assert len(drive.of(do.StartChild)) == 1
    drive.described(ONE, SlotState.ENDED)
    assert kinds(drive.last) == ["Note", "CloseChild"]


def test_d7_a_registry_that_is_lost_after_the_result_does_not_lose_it() -> None:
    drive = Drive.new().following()
    drive.came(over(slot(1, node=NodeState.RUNNING), left=False))
    for _ in range(5):
        child_ends(drive)
        drive.wait(1.0)
    assert drive.said() == [LostAfterResult(ChildLost(5, 30.0, "no room"))]
    assert verdict(drive) == Verdict(result())


# --- creating


def test_40_a_creation_that_is_not_answered_is_tried_again_soon() -> None:
    drive = Drive.new().creating()
    drive.refuse(do.CreateRun, SILENT)
    assert drive.all_open(do.CreateRun) == []
    assert kinds(drive.wait(0.05)) == ["CreateRun"]


def test_40_after_twenty_seconds_it_is_given_up() -> None:
    drive = Drive.new().creating()
    while drive.machine.course.stage == "creating":
        drive.refuse(do.CreateRun, SILENT)
        drive.wait(1.0)
    assert 20.0 < drive.now < 23.0
    drive.refuse(do.CancelRun, SILENT)
    assert verdict(drive) == Verdict(failure=NotCreated(20.0, SILENT, standing=False))


def test_40_of_a_standing_registry_it_is_said_once_that_it_does_not_answer_yet() -> None:
    drive = Drive.new(facts(owns=False)).creating()
    for _ in range(5):
        drive.refuse(do.CreateRun, SILENT)
        drive.wait(0.1)
    assert drive.said() == [StandingWaits("nobody answers")]


@pytest.mark.parametrize("waits", [True, False])
def test_41_a_signal_before_the_creation_ends_it(waits: bool) -> None:
    drive = Drive.new().creating()
    if waits:
        drive.refuse(do.CreateRun, SILENT)
        drive.signal()
    else:
        drive.signal()
        drive.refuse(do.CreateRun, SILENT)
    assert drive.wait(1.0) == []
    drive.refuse(do.CancelRun, SILENT)
    assert verdict(drive) == Verdict(failure=EndedBeforeBegun())


def test_42_a_creation_that_is_refused_ends_it() -> None:
    drive = Drive.new().creating()
    drive.refuse(do.CreateRun, FOREIGN)
    drive.refuse(do.CancelRun, FOREIGN)
    assert verdict(drive) == Verdict(failure=Refusal(FOREIGN))


def test_43_a_launcher_that_cannot_go_on_tells_its_nodes_and_waits_a_moment() -> None:
    drive = Drive.new().following()
    drive.refuse(do.AskStatus, FOREIGN)
    assert drive.open(do.CancelRun).reason == ByFailure(Refusal(FOREIGN))
    here = status(slot(1, node=NodeState.RUNNING), version=4)
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, here))
    assert drive.open(do.AskStatus) == do.AskStatus(drive.open(do.AskStatus).id, 4, 0.5)
    drive.now += 3.1
    drive.came(here)
    assert verdict(drive) == Verdict(failure=Refusal(FOREIGN))


def test_43_it_does_not_wait_for_nodes_that_have_left() -> None:
    drive = Drive.new().following()
    drive.refuse(do.AskStatus, FOREIGN)
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, status(everyone_left=True)))
    assert drive.machine.course.stage == "closing"


# --- following


def test_44_the_next_status_is_asked_for_above_the_last_version() -> None:
    drive = Drive.new().following()
    assert drive.open(do.AskStatus) == do.AskStatus(drive.open(do.AskStatus).id, -1, 2.0)
    drive.status(version=7)
    assert drive.open(do.AskStatus).after == 7


def test_44_a_registry_that_does_not_answer_is_asked_again_with_jitter() -> None:
    drive = Drive.new().following()
    drive.take(said.Unanswered(drive.open(do.AskStatus).id, SILENT, jitter=1.0))
    drive.wait(0.49)
    assert drive.all_open(do.AskStatus) == []
    drive.wait(0.02)
    assert drive.all_open(do.AskStatus)


def test_44_after_the_orphan_timeout_the_launch_is_over() -> None:
    drive = Drive.new().following()
    while drive.machine.course.stage == "following":
        drive.refuse(do.AskStatus, SILENT)
        drive.wait(5.0)
    assert 120.0 < drive.now < 132.0
    drive.refuse(do.CancelRun, SILENT)
    assert verdict(drive) == Verdict(failure=Silent(SILENT))


def test_44_a_launcher_that_was_stopped_has_one_try_left() -> None:
    drive = Drive.new().following()
    drive.now += 1000.0
    drive.refuse(do.AskStatus, SILENT)
    drive.wait(0.5)
    assert drive.machine.course.stage == "following"
    drive.status()
    drive.refuse(do.AskStatus, SILENT)
    drive.wait(0.5)
    assert drive.machine.course.stage == "following"


def test_d7_a_registry_that_is_silent_after_the_result_does_not_lose_it() -> None:
    drive = Drive.new().following()
    drive.came(over(slot(1, node=NodeState.RUNNING), left=False))
    for _ in range(40):
        if drive.machine.course.stage != "leaving":
            break
        drive.refuse(do.AskStatus, SILENT)
        drive.wait(0.5)
    assert drive.now == 18.0
    drive.answer(do.FetchMetrics)
    assert verdict(drive) == Verdict(result())


def test_45_a_run_that_the_registry_has_forgotten_ends_the_launch() -> None:
    drive = Drive.new().following()
    drive.refuse(do.AskStatus, FOREIGN)
    assert drive.machine.course.stage == "failing"


def test_d7_and_after_the_result_it_does_not_lose_it() -> None:
    drive = Drive.new().following()
    drive.came(over(slot(1, node=NodeState.RUNNING), left=False))
    drive.refuse(do.AskStatus, FOREIGN)
    assert verdict(drive) == Verdict(result())


def test_46_a_status_is_shown_first_then_its_trouble_then_the_slots() -> None:
    drive = Drive.new().following()
    done = drive.status(slot(1, 0, 1), trouble="the disk is full")
    assert kinds(done) == ["Show", "Say", "TellSlot", "AskStatus"]


def test_37_the_same_trouble_is_said_once() -> None:
    drive = Drive.new().following()
    for words in ("full", "full", "slow"):
        drive.status(trouble=words)
    assert drive.said() == [RegistryTrouble("full"), RegistryTrouble("slow")]


def test_38_a_journal_that_stays_full_ends_the_launch_and_any_answer_clears_it() -> None:
    drive = Drive.new().following()
    drive.status(slot(1, 0, 1))
    drive.refuse(do.TellSlot, FULL)
    drive.wait(119.0)
    drive.status(slot(1, 0, 1))
    drive.answer(do.TellSlot)
    drive.now += 10
    drive.status(slot(1, 0, 1))
    assert drive.machine.course.stage == "following"
    assert drive.said() == [RegistryTrouble(FULL.message, FULL.hint)]


def test_38_longer_than_the_orphan_timeout_is_too_long() -> None:
    drive = Drive.new().following()
    drive.status(slot(1, 0, 1))
    drive.refuse(do.TellSlot, FULL)
    drive.wait(120.5)
    drive.status(slot(1, 0, 1))
    drive.refuse(do.CancelRun, SILENT)
    assert verdict(drive) == Verdict(failure=StorageLost(120.5, FULL.message, FULL.hint))


@pytest.mark.parametrize(("phase", "stage"), [("arming", "failing"), ("running", "following")])
def test_38_before_the_go_nothing_goes_on_that_cannot_be_written(phase: str, stage: str) -> None:
    drive = Drive.new().following()
    drive.status(phase=Phase(phase), unwritten_seconds=121.0, trouble="full")
    assert drive.machine.course.stage == stage


def test_39_a_status_that_meets_a_full_disk_says_so_and_does_not_count() -> None:
    drive = Drive.new().following()
    drive.refuse(do.AskStatus, FULL)
    drive.wait(119.0)
    drive.status()
    drive.now += 100
    drive.status()
    assert drive.said() == [RegistryTrouble(FULL.message, FULL.hint)]
    assert drive.machine.course.stage == "following"


def started(**more: object) -> object:
    return status(slot(1, rank=1), phase=Phase.RUNNING, digest="d1", epoch=1, **more)


def test_47_the_table_is_kept_once_an_epoch_and_odd_things_are_said() -> None:
    drive = Drive.new().following()
    drive.came(started())  # type: ignore[arg-type]
    drive.take(said.ReportCame(drive.open(do.Keep).id, REPORT))
    drive.came(started())  # type: ignore[arg-type]
    assert len(drive.of(do.Keep)) == 1
    assert drive.said() == [Warnings(REPORT)]
    drive.status(phase=Phase.RUNNING, digest="d2", epoch=2)
    assert len(drive.of(do.Keep)) == 2


def test_d8_what_could_not_be_kept_is_tried_again() -> None:
    drive = Drive.new().following()
    drive.came(started())  # type: ignore[arg-type]
    drive.refuse(do.Keep, SILENT)
    drive.wait(1.0)
    drive.take(said.ReportCame(drive.open(do.Keep).id, REPORT))
    drive.came(started())  # type: ignore[arg-type]
    assert len(drive.of(do.Keep)) == 2


def test_48_d8_findings_of_a_failed_start_are_said_before_the_registry_goes() -> None:
    drive = Drive.new().following()
    drive.came(over(result=result("preflight_failed", 87)))
    drive.refuse(do.KeepReport, SILENT)
    assert drive.machine.course.stage == "leaving"
    drive.wait(1.0)
    drive.take(said.ReportCame(drive.open(do.KeepReport).id, REPORT))
    assert drive.said() == [Findings(REPORT)]
    assert drive.machine.course.stage == "parting"


def test_d8_they_are_not_waited_for_for_ever() -> None:
    drive = Drive.new().following()
    drive.came(over(result=result("verification_failed", 81)))
    for _ in range(3):
        drive.refuse(do.KeepReport, SILENT)
        drive.wait(1.0)
    assert drive.machine.course.stage == "parting"


# --- leaving


def test_49_with_everyone_left_it_may_go() -> None:
    drive = Drive.new().following()
    drive.came(over(slot(1, node=NodeState.LEFT)))
    assert drive.machine.course.stage == "parting"


def test_49_nodes_have_their_grace_and_eight_seconds_to_leave() -> None:
    drive = Drive.new().following()
    here = [slot(1, node=NodeState.RUNNING), slot(2, node=NodeState.LEFT), slot(3)]
    drive.came(over(*here, left=False))
    drive.wait(17.9)
    assert drive.said() == []
    drive.wait(0.2)
    assert drive.said() == [DidNotLeave((1,), 18.0)]
    assert drive.machine.course.stage == "parting"


def test_100_a_symmetric_registry_stays_for_nodes_that_nobody_can_cancel() -> None:
    drive = Drive.new(facts(others=None)).following()
    drive.came(over(untold=[0, 2]))
    assert drive.said() == [WaitsForOthers((2,), 30.0)]
    drive.wait(29.0)
    assert drive.machine.course.stage == "leaving"
    drive.wait(1.0)
    assert drive.machine.course.stage == "parting"
    assert len(drive.said()) == 1  # everyone has left: nobody is late


@pytest.mark.parametrize("more", [{"code": "join_timeout"}, {"status": "ok"}])
def test_100_not_after_a_join_timeout_or_a_good_end(more: dict[str, Any]) -> None:
    drive = Drive.new(facts(others=None)).following()
    drive.came(over(untold=[2], result=result(**more)))
    assert drive.machine.course.stage == "parting"


def test_50_metrics_are_fetched_once_more_and_events_shown_to_their_end() -> None:
    drive = Drive.new().following()
    assert kinds(drive.came(over()))[-1] == "FetchMetrics"
    drive.answer(do.FetchMetrics)
    assert drive.machine.course.stage == "parting"
    drive.take(said.EventsOver(drive.open(do.FollowEvents).id, 9, broken=False))
    assert drive.machine.course.stage == "closing"


def test_50_for_three_seconds_at_most() -> None:
    drive = Drive.new().following()
    drive.came(over())
    drive.answer(do.FetchMetrics)
    drive.wait(2.9)
    assert drive.machine.course.stage == "parting"
    drive.wait(0.2)
    assert drive.machine.course.stage == "closing"


def test_51_events_go_on_after_the_last_one_that_was_shown() -> None:
    drive = Drive.new().following()
    assert drive.open(do.FollowEvents).after == 0
    drive.take(said.EventsOver(drive.open(do.FollowEvents).id, 17, broken=True, jitter=0.0))
    drive.wait(0.2)
    assert drive.open(do.FollowEvents).after == 17


def test_51_what_is_shown_ends_nothing() -> None:
    drive = Drive.new().following()
    drive.take(said.PartFailed(drive.open(do.FollowEvents).id, "ValueError()"))
    drive.wait(0.2)
    assert drive.machine.course.stage == "following"
    assert drive.all_open(do.FollowEvents)


def test_52_metrics_are_kept_each_second() -> None:
    drive = Drive.new().following()
    drive.wait(1.0)
    drive.answer(do.FetchMetrics)
    assert drive.all_open(do.FetchMetrics) == []
    drive.wait(1.0)
    assert len(drive.of(do.FetchMetrics)) == 2


def test_53_a_part_that_fails_as_nobody_expected_ends_the_launch_with_that() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.take(said.PartFailed(number, "KeyError('x')"))
    assert drive.open(do.CancelRun).reason == ByFailure("KeyError('x')")
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, status(everyone_left=True)))
    for _ in range(2):
        drive.found(ONE, None)  # it may have been made all the same
        drive.wait(1.0)
    assert outcome(drive).fault == number  # type: ignore[attr-defined]
    assert drive.of(do.WriteResult) == []


def fails(drive: Drive, kind: type[Any]) -> int:
    """The newest of this kind fails as nobody expected."""
    number: int = drive.open(kind).id
    drive.take(said.PartFailed(number, "KeyError('x')"))
    return number


def test_53_a_part_that_fails_while_submissions_are_waited_for_is_waited_for_no_more() -> None:
    drive = Drive.new().submitting(ONE)
    drive.end()
    fails(drive, do.Submit)
    assert drive.open(do.Find).key == ONE


@pytest.mark.parametrize("kind", [do.Establish, do.StartChild, do.CloseChild, do.WriteResult])
def test_53_whatever_fails_the_launch_comes_to_its_end(kind: type[Any]) -> None:
    drive = Drive.new().begin()
    if kind is not do.Establish:
        drive.take(said.Done(drive.open(do.Establish).id))
    if kind not in (do.Establish, do.StartChild):
        drive.answer(do.CreateRun)
        drive.end()
    if kind is do.WriteResult:
        drive.take(said.Done(drive.open(do.CloseChild).id))
    number = fails(drive, kind)
    assert outcome(drive).fault == number  # type: ignore[attr-defined]


def test_53_a_board_that_fails_ends_the_launch() -> None:
    drive = Drive.new().following()
    drive.take(said.PartFailed(said.NO_ACTION, "ValueError('no terminal')"))
    assert drive.machine.course.stage == "failing"
    drive.take(said.PartFailed(said.NO_ACTION, "ValueError('no terminal')"))
    assert len(drive.of(do.CancelRun)) == 1
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, status(everyone_left=True)))
    assert outcome(drive).fault == said.NO_ACTION  # type: ignore[attr-defined]


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.signal()
    drive.signal()
    assert drive.take(said.Done(999)) == []
    assert drive.take(said.SubmitTroubled(number, ONE, "error 500")) == []


def test_53_an_adapter_that_fails_while_it_ends_a_run_is_asked_again() -> None:
    drive = Drive.new().ending(ONE)
    fails(drive, do.Describe)
    assert drive.machine.course.stage == "ending"
    drive.wait(1.0)
    assert drive.all_open(do.Describe)


def test_49_the_result_that_was_seen_first_is_the_result() -> None:
    drive = Drive.new().following()
    here = slot(1, node=NodeState.RUNNING)
    drive.came(over(here, left=False))
    drive.wait(5.0)
    drive.came(over(here, left=False))
    assert drive.machine.course.leaving.since == 0.0


# --- signals


def test_91_a_signal_cancels_at_the_registry_which_tells_the_nodes() -> None:
    drive = Drive.new().following()
    assert drive.signal(15) == [
        do.Say(EndsRun(15)),
        do.CancelRun(drive.open(do.CancelRun).id, BySignal(15)),
    ]
    drive.status(slot(1, 0, 1))
    assert drive.of(do.TellSlot) == []


def test_91_a_run_whose_verdict_is_waited_for_is_cancelled_again() -> None:
    drive = Drive.new().following()
    drive.signal(15)
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, status(phase=Phase.RUNNING)))
    assert drive.all_open(do.CancelRun) == []
    drive.wait(1.0)
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, over()))
    drive.wait(1.0)
    assert drive.all_open(do.CancelRun) == []


def test_101_a_run_that_somebody_cancels_ends_as_any_other() -> None:
    drive = Drive.new().ending(ONE)
    assert drive.of(do.CancelRun) == []
    cancelled = result("cancelled", 84, status="cancelled")
    drive = Drive.new().following()
    drive.came(over(result=cancelled))
    drive.part()
    assert verdict(drive) == Verdict(cancelled)
    assert outcome(drive).signal is None  # type: ignore[attr-defined]
    assert (drive.of(do.CancelRun), drive.said()) == ([], [])


def test_91_for_ten_seconds_and_then_everything_ends_at_once() -> None:
    drive = Drive.new().running(ONE)
    drive.signal()
    while drive.machine.course.stage == "following":
        drive.refuse(do.CancelRun, SILENT)
        drive.wait(0.1)
    assert 10.0 <= drive.now < 10.3
    drive.described(ONE, SlotState.RUNNING)
    assert drive.open(do.CancelWorkerRun).grace == 0.0
    drive.told(ONE)
    drive.wait(0.2)
    drive.described(ONE, SlotState.ENDED)
    assert verdict(drive) == Verdict(failure=EndedAtOnce(10.0))


@pytest.mark.parametrize("waits", [True, False])
def test_91_a_run_that_is_over_needs_no_answer_to_its_cancel(waits: bool) -> None:
    drive = Drive.new().running(ONE)
    drive.signal()
    if waits:
        drive.refuse(do.CancelRun, SILENT)
    drive.came(over(slot(1, 1, 1, node=NodeState.RUNNING), left=False))
    assert drive.all_open(do.CancelRun) == []
    drive.wait(1.0)
    assert drive.all_open(do.CancelRun) == []


def test_92_a_second_signal_ends_everything_at_once() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.signal(2)
    done = drive.signal(15)
    assert done[0] == do.Say(EndsAtOnce(15, again=True))
    assert do.BreakOff(number) in done
    for _ in range(2):
        drive.found(ONE, None)
        drive.wait(1.0)
    assert verdict(drive) == Verdict(failure=EndedAtOnce())
    assert outcome(drive).signal == 2  # type: ignore[attr-defined]


def test_92_a_first_signal_while_runs_are_ended_hurries_and_is_not_the_launchs_end() -> None:
    drive = Drive.new().ending(ONE)
    drive.described(ONE, SlotState.RUNNING)
    assert drive.signal()[0] == do.Say(EndsAtOnce(15, again=False))
    drive.described(ONE, SlotState.ENDED) if drive.all_open(do.Describe) else drive.told(ONE)
    drive.wait(1.0)
    if drive.all_open(do.Describe):
        drive.described(ONE, SlotState.ENDED)
    assert outcome(drive).signal is None  # type: ignore[attr-defined]
    assert verdict(drive) == Verdict(result())


def test_d7_a_second_signal_after_the_result_does_not_lose_it() -> None:
    drive = Drive.new().following()
    drive.signal()
    drive.came(over(slot(1, node=NodeState.RUNNING), left=False))
    drive.signal()
    assert verdict(drive) == Verdict(result())


# --- the end


def test_89_runs_then_registry_then_board_then_result() -> None:
    drive = Drive.new().ending(ONE)
    drive.described(ONE, SlotState.ENDED)
    assert kinds(drive.last) == ["Note", "CloseChild"]
    drive.take(said.Done(drive.open(do.CloseChild).id))
    assert kinds(drive.last) == ["CloseBoard", "WriteResult"]
    drive.take(said.Done(drive.open(do.WriteResult).id))
    assert kinds(drive.last) == ["End"]
    assert drive.take(said.Due()) == [] == drive.wait(600)
    assert drive.all_open(do.StartChild) == [
        action for _, action in drive.machine.desk.open.values()
    ]


def test_94_a_result_that_cannot_be_written_is_said() -> None:
    drive = Drive.new().following()
    drive.end()
    drive.take(said.Done(drive.open(do.CloseChild).id))
    drive.take(said.NotWritten(drive.open(do.WriteResult).id, "no room"))
    assert drive.said() == [ResultUnwritten("no room")]
    assert verdict(drive) == Verdict(result())


def test_95_a_fault_of_rdzvs_own_writes_no_result_though_the_runs_is_known() -> None:
    drive = Drive.new().following()
    drive.came(over(slot(1, node=NodeState.RUNNING), left=False))
    drive.take(said.PartFailed(drive.open(do.AskStatus).id, "KeyError()"))
    drive.refuse(do.CancelRun, SILENT)
    drive.take(said.Done(drive.open(do.CloseChild).id))
    assert drive.of(do.WriteResult) == []
    assert len(drive.of(do.End)) == 1


@pytest.mark.parametrize(
    ("code", "exit_code", "says"),
    [
        ("node_lost", 86, "PREEMPTED"),
        ("program_failed", 143, "PREEMPTED"),
        ("program_failed", 3, ""),
    ],
)
def test_what_a_signal_or_a_silence_leaves_open_its_scheduler_may_know(
    code: str, exit_code: int, says: str
) -> None:
    drive = Drive.new().running(ONE)
    drive.wait(1.0)
    drive.described(ONE, SlotState.FAILED, "PREEMPTED")
    ended = result(code, exit_code, slot=1)
    drive.came(over(slot(1), result=ended))
    drive.part()
    assert verdict(drive) == Verdict(ended, says=says)


def test_a_machine_is_a_value_that_can_be_recorded() -> None:
    one, other = Drive.new().running(ONE), Drive.new().running(ONE)
    assert one.machine == other.machine
    assert copy.deepcopy(one.machine) == one.machine
    one.signal()
    assert one.machine != other.machine


def test_a_step_does_not_cost_more_with_more_slots() -> None:
    """Two thousand worker runs: describing one of them touches nothing of the others."""
    drive = Drive.new(facts(here=LOCAL, others=LOCAL))
    keys = [Key(number, 1) for number in range(2048)]
    drive.submitting(*keys[:8])
    drive.status(*(slot(key.slot, 0, 1) for key in keys))
    before = len(drive.machine.desk.open)
    drive.submitted(keys[0], "100")
    assert abs(len(drive.machine.desk.open) - before) <= 1
    assert len(drive.last) <= 2
