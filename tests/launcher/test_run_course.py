"""The course of a launch by value: created, followed, left by its nodes, ended, written down."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import ByFailure
from launcher.run.sentences import (
    DidNotLeave,
    EndsAtOnce,
    EndsRun,
    Findings,
    LostAfterResult,
    RegistryTrouble,
    StandingWaits,
    WaitsForOthers,
    Warnings,
)
from launcher.run.values import (
    ChildLost,
    EndedBeforeBegun,
    Key,
    NotCreated,
    Refusal,
    Silent,
    StorageLost,
    Verdict,
)
from rendezvous.wire.run import NodeState, Phase, RunReport
from tests.launcher.drive import FOREIGN, FULL, SILENT, Drive, facts, kinds, over, result, slot
from tests.launcher.drive import status as status_of

ONE = Key(1, 1)
REPORT = RunReport(run="llama")
HERE = slot(1, node=NodeState.RUNNING)
LEFT = status_of(everyone_left=True)
LOST = ChildLost(5, 30.0, "no room")
WANTS = slot(1, 0, 1)
FULL_SAID = RegistryTrouble(FULL.message, FULL.hint)


def following(facts_: Any = None) -> Drive:
    return Drive.new(facts_).following()


def creating(facts_: Any = None) -> Drive:
    return Drive.new(facts_).creating()


def leaving() -> Drive:
    """The result is known, and a node is still here."""
    drive = following()
    drive.came(over(HERE, left=False))
    return drive


# --- the registry's process


def test_33_the_registry_is_started_before_the_run_is_created_unless_it_stands() -> None:
    assert kinds(creating().last) == ["StartChild", "CreateRun"]
    drive = creating(facts(owns=False))
    assert kinds(drive.last) == ["CreateRun"]
    drive.answer(do.CreateRun)
    drive.end()
    assert drive.of(do.CloseChild) == []
    assert drive.verdict() == Verdict(result())


def test_34_35_it_is_started_again_after_ever_longer_pauses_five_times_in_thirty_seconds() -> None:
    drive, pauses = following(), []
    for _ in range(4):
        drive.child_ends()
        at, _ = drive.machine.desk.times.get("child", (drive.now, 0))
        pauses.append(round(at - drive.now, 1))
        drive.wait(at - drive.now)
    assert pauses == [0.0, 0.2, 0.4, 0.6]
    drive.child_ends()
    assert (drive.stage, drive.failure()) == ("closing", LOST)
    drive = following()
    for _ in range(20):  # starts that lie further back do not count
        drive.child_ends(1, 8.0)
        drive.status(slot(1))
    assert drive.stage == "following"


# --- creating


def test_40_a_creation_that_is_not_answered_is_tried_again_soon_and_given_up_in_the_end() -> None:
    drive = creating()
    drive.refuse(do.CreateRun, SILENT)
    assert drive.all_open(do.CreateRun) == []
    assert kinds(drive.wait(0.05)) == ["CreateRun"]
    drive.unanswered(do.CreateRun, 1.0)
    assert drive.said() == []
    assert 20.0 < drive.now < 23.0
    assert drive.failure() == NotCreated(20.0, SILENT, standing=False)
    drive = creating(facts(owns=False))
    for _ in range(5):
        drive.refuse(do.CreateRun, SILENT)
        drive.wait(0.1)
    assert drive.said() == [StandingWaits("nobody answers")]


@pytest.mark.parametrize("waits", [True, False])
def test_41_a_signal_before_the_creation_ends_it(waits: bool) -> None:
    drive = creating()
    if waits:
        drive.refuse(do.CreateRun, SILENT)
    drive.signal()
    if not waits:
        drive.refuse(do.CreateRun, SILENT)
    assert drive.wait(1.0) == []
    assert drive.failure() == EndedBeforeBegun()


def test_42_43_a_launcher_that_cannot_go_on_tells_its_nodes_and_waits_a_moment() -> None:
    drive = creating()
    drive.refuse(do.CreateRun, FOREIGN)
    assert drive.failure() == Refusal(FOREIGN)
    drive = following()
    drive.refuse(do.AskStatus, FOREIGN)  # rule 45: the registry has forgotten the run
    assert drive.open(do.CancelRun).reason == ByFailure(Refusal(FOREIGN))
    drive.wait(1.1)
    assert drive.all_open(do.FollowEvents) == [] == drive.all_open(do.FetchMetrics)
    here = status_of(HERE, version=4)
    drive.cancelled(here)
    assert drive.open(do.AskStatus) == do.AskStatus(drive.id(do.AskStatus), 4, 0.5)
    drive.now += 3.1
    drive.came(here)
    assert drive.failure() == Refusal(FOREIGN)
    drive = following()
    drive.refuse(do.AskStatus, FOREIGN)
    drive.cancelled(LEFT)
    assert drive.stage == "closing"


# --- following


def test_44_a_registry_that_does_not_answer_is_asked_again_with_jitter_until_it_is_lost() -> None:
    drive = following()
    assert drive.open(do.AskStatus) == do.AskStatus(drive.id(do.AskStatus), -1, 2.0)
    drive.status(version=7)
    assert drive.open(do.AskStatus).after == 7  # above the last version
    drive.take(said.Unanswered(drive.id(do.AskStatus), SILENT, jitter=1.0))
    drive.wait(0.49)
    assert drive.all_open(do.AskStatus) == []
    drive.wait(0.02)
    drive.unanswered(do.AskStatus, 5.0)
    assert 120.0 < drive.now < 132.0
    assert drive.failure() == Silent(SILENT)


def test_44_a_launcher_that_was_stopped_has_one_try_left() -> None:
    drive = following()
    drive.now += 1000.0
    for _ in range(2):
        drive.refuse(do.AskStatus, SILENT)
        drive.wait(0.5)
        assert drive.stage == "following"
        drive.status()


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (lambda drive: drive.refuse(do.AskStatus, FOREIGN), [LostAfterResult(Refusal(FOREIGN))]),
        (lambda drive: drive.child_ends(5, 1.0), [LostAfterResult(LOST)]),
        (lambda drive: [drive.signal(), drive.signal()], [EndsRun(15), EndsAtOnce(15, again=True)]),
        (lambda drive: drive.unanswered(do.AskStatus, 0.5), [DidNotLeave((1,), 18.0)]),
    ],
)
def test_d7_what_is_lost_after_the_result_does_not_lose_it(
    happens: Callable[[Drive], object], words: list[object]
) -> None:
    drive = leaving()
    happens(drive)
    if drive.stage == "parting":
        assert drive.now == 18.0
        drive.answer(do.FetchMetrics)
    assert (drive.said(), drive.verdict()) == (words, Verdict(result()))


def test_46_a_status_is_shown_first_then_its_trouble_once_then_the_slots() -> None:
    drive = following()
    done = drive.status(WANTS, trouble="full")
    assert kinds(done) == ["Show", "Say", "TellSlot", "AskStatus"]
    for words in ("full", "slow"):
        drive.status(trouble=words)
    assert drive.said() == [RegistryTrouble("full"), RegistryTrouble("slow")]


def test_38_a_journal_that_stays_full_ends_the_launch_and_any_answer_clears_it() -> None:
    drive = following()
    drive.status(WANTS)
    drive.refuse(do.TellSlot, FULL)
    drive.wait(119.0)
    drive.status(WANTS)
    drive.answer(do.TellSlot)
    drive.now += 10
    drive.status(WANTS)
    assert (drive.stage, drive.said()) == ("following", [FULL_SAID])
    drive = following()
    drive.status(WANTS)
    drive.refuse(do.TellSlot, FULL)
    drive.wait(120.5)
    drive.status(WANTS)
    assert drive.failure() == StorageLost(120.5, FULL.message, FULL.hint)


@pytest.mark.parametrize(("phase", "then"), [("arming", "failing"), ("running", "following")])
def test_38_before_the_go_nothing_goes_on_that_cannot_be_written(phase: str, then: str) -> None:
    drive = following()
    drive.status(phase=Phase(phase), unwritten_seconds=121.0, trouble="full")
    assert drive.stage == then


def test_39_a_status_that_meets_a_full_disk_says_so_and_does_not_count() -> None:
    drive = following()
    drive.refuse(do.AskStatus, FULL)
    drive.wait(119.0)
    drive.status()
    drive.now += 100
    drive.status()
    assert (drive.stage, drive.said()) == ("following", [FULL_SAID])


def test_47_the_table_is_kept_once_an_epoch_and_odd_things_are_said() -> None:
    started = status_of(slot(1, rank=1), phase=Phase.RUNNING, digest="d1", epoch=1)
    drive = following()
    drive.came(started)
    drive.refuse(do.Keep, SILENT)  # D8: what could not be kept is tried again
    drive.wait(1.0)
    drive.take(said.ReportCame(drive.id(do.Keep), REPORT))
    drive.came(started)
    assert len(drive.of(do.Keep)) == 2
    assert drive.said() == [Warnings(REPORT)]
    drive.status(phase=Phase.RUNNING, digest="d2", epoch=2)
    assert len(drive.of(do.Keep)) == 3


def test_48_d8_findings_of_a_failed_start_are_said_before_the_registry_goes() -> None:
    drive = following()
    drive.came(over(result=result("preflight_failed", 87)))
    drive.refuse(do.KeepReport, SILENT)
    assert drive.stage == "leaving"
    drive.wait(1.0)
    drive.take(said.ReportCame(drive.id(do.KeepReport), REPORT))
    assert (drive.stage, drive.said()) == ("parting", [Findings(REPORT)])
    drive = following()
    drive.came(over(result=result("verification_failed", 81)))
    for _ in range(3):  # and not for ever
        drive.refuse(do.KeepReport, SILENT)
        drive.wait(1.0)
    assert drive.stage == "parting"


# --- leaving


def test_49_nodes_have_their_grace_and_eight_seconds_to_leave_from_the_first_result_on() -> None:
    drive = following()
    here = over(HERE, slot(2, node=NodeState.LEFT), slot(3), left=False)
    drive.came(here)
    drive.wait(5.0)
    drive.came(here)
    drive.wait(12.9)
    assert drive.said() == []
    drive.wait(0.2)
    assert (drive.stage, drive.said()) == ("parting", [DidNotLeave((1,), 18.0)])


def test_100_a_symmetric_registry_stays_for_nodes_that_nobody_can_cancel() -> None:
    drive = following(facts(others=None))
    drive.came(over(untold=[0, 2]))
    drive.wait(29.0)
    assert drive.stage == "leaving"
    drive.wait(1.0)  # everyone has left: nobody is late
    assert (drive.stage, drive.said()) == ("parting", [WaitsForOthers((2,), 30.0)])


@pytest.mark.parametrize("more", [{"code": "join_timeout"}, {"status": "ok"}])
def test_100_not_after_a_join_timeout_or_a_good_end(more: dict[str, Any]) -> None:
    drive = following(facts(others=None))
    drive.came(over(untold=[2], result=result(**more)))
    assert drive.stage == "parting"


def test_50_metrics_are_fetched_once_more_and_events_shown_to_their_end_or_three_seconds() -> None:
    drive = following()
    assert kinds(drive.came(over(slot(1, node=NodeState.LEFT))))[-1] == "FetchMetrics"
    drive.answer(do.FetchMetrics)
    drive.wait(2.9)
    assert drive.stage == "parting"
    drive.wait(0.2)
    assert drive.stage == "closing"
    drive = following()
    drive.end()
    assert drive.stage == "closing"


def test_51_events_go_on_after_the_last_one_that_was_shown_and_end_nothing() -> None:
    drive = following()
    assert drive.open(do.FollowEvents).after == 0
    drive.take(said.EventsOver(drive.id(do.FollowEvents), 17, broken=True, jitter=0.0))
    drive.wait(0.2)
    assert drive.open(do.FollowEvents).after == 17
    drive.fails(do.FollowEvents)
    drive.wait(0.2)
    assert drive.stage == "following"
    assert drive.all_open(do.FollowEvents)
    drive.wait(1.0 - drive.now)  # rule 52: metrics are kept each second
    drive.answer(do.FetchMetrics)
    assert drive.all_open(do.FetchMetrics) == []
    drive.wait(1.0)
    assert len(drive.of(do.FetchMetrics)) == 2


# --- what nobody expected


def test_53_a_part_that_fails_as_nobody_expected_ends_the_launch_with_that() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.fails(do.Submit)
    assert drive.open(do.CancelRun).reason == ByFailure("KeyError('x')")
    drive.cancelled(LEFT)
    for _ in range(2):
        drive.found(ONE, None)  # it may have been made all the same
        drive.wait(1.0)
    assert drive.outcome().fault == number
    assert drive.of(do.WriteResult) == []
    drive = Drive.new().submitting(ONE)
    drive.end()
    drive.fails(do.Submit)  # nothing waits for it any more
    assert drive.open(do.Find).key == ONE
    drive.fails(do.Find)  # and an adapter that fails now is asked again
    assert drive.stage == "ending"
    drive.wait(1.0)
    assert drive.all_open(do.Find)


@pytest.mark.parametrize("kind", [do.Establish, do.StartChild, do.CloseChild, do.WriteResult])
def test_53_whatever_fails_the_launch_comes_to_its_end(kind: type[Any]) -> None:
    drive = Drive.new().begin()
    if kind is not do.Establish:
        drive.answer(do.Establish)
    if kind not in (do.Establish, do.StartChild):
        drive.answer(do.CreateRun)
        drive.end()
    if kind is do.WriteResult:
        drive.answer(do.CloseChild)
    number = drive.fails(kind)
    assert drive.of(do.CancelRun) == []  # nobody is there to hear of it
    assert drive.outcome().fault == number


def test_53_95_a_board_that_fails_ends_the_launch_without_a_result_though_the_runs_is_known() -> (
    None
):
    for drive in (following(), leaving()):
        for _ in range(2):
            drive.take(said.PartFailed(said.NO_ACTION, "ValueError('no terminal')"))
            assert drive.stage == "failing"
        assert len(drive.of(do.CancelRun)) == 1
        drive.fails(do.CancelRun)  # that does not keep it either
        assert drive.outcome().fault == said.NO_ACTION
        assert drive.of(do.WriteResult) == []


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.id(do.Submit)
    drive.signal()
    drive.signal()
    assert drive.take(said.Done(999)) == []
    assert drive.take(said.SubmitTroubled(number, ONE, "error 500")) == []


def test_a_machine_is_a_value_that_can_be_recorded() -> None:
    one, other = Drive.new().running(ONE), Drive.new().running(ONE)
    assert one.machine == other.machine == copy.deepcopy(one.machine)
    one.signal()
    assert one.machine != other.machine
