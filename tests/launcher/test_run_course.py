"""The course of a launch by value: created, followed, left by its nodes, ended, written down."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import ByFailure
from launcher.run.sentences import (
    DidNotLeave,
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
    Outcome,
    Refusal,
    Silent,
    StorageLost,
    Verdict,
)
from rendezvous.wire.run import NodeState, Phase, RunReport, RunStatus, SlotState
from tests.launcher.drive import FOREIGN, FULL, SILENT, Drive, facts, over, result, slot
from tests.launcher.drive import status as status_of

ONE = Key(1, 1)
REPORT = RunReport(run="llama")
HERE = slot(1, node=NodeState.RUNNING)
LEFT = status_of(everyone_left=True)
LOST = ChildLost(5, 30.0, "no room")
WANTS = slot(1, 0, 1)
FULL_SAID = RegistryTrouble(FULL.message, FULL.hint)


def kinds(done: list[do.Action]) -> list[str]:
    return [type(action).__name__ for action in done]


def following(facts_: Any = None) -> Drive:
    return Drive.new(facts_).following()


def creating(facts_: Any = None) -> Drive:
    return Drive.new(facts_).creating()


def leaving() -> Drive:
    """The result is known, and a node is still here."""
    drive = following()
    drive.came(over(HERE, left=False))
    return drive


def child_ends(drive: Drive, times: int = 1, pause: float = 0.0) -> None:
    for _ in range(times):
        drive.take(said.ChildEnded(drive.open(do.StartChild).id, 1, "no room"))
        drive.wait(pause)


def cancelled(drive: Drive, found: RunStatus) -> None:
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, found))


def silent(drive: Drive, kind: type[Any], stage: str, pause: float) -> None:
    """Nobody answers this as long as the launch stays in this stage."""
    while drive.machine.course.stage == stage:
        drive.refuse(kind, SILENT)
        drive.wait(pause)


def stage(drive: Drive) -> str:
    return drive.machine.course.stage


def outcome(drive: Drive) -> Outcome:
    """How it ended, once the registry is down and the result written."""
    if drive.all_open(do.CancelRun) and stage(drive) == "failing":
        drive.refuse(do.CancelRun, SILENT)
    for kind in (do.CloseChild, do.WriteResult):
        if drive.all_open(kind):
            drive.take(said.Done(drive.open(kind).id))
    (end,) = drive.of(do.End)
    return end.outcome


def verdict(drive: Drive) -> Verdict | None:
    return outcome(drive).verdict


def failure(drive: Drive) -> object:
    found = verdict(drive)
    return found and found.failure


# --- the registry's process


def test_33_the_registry_is_started_before_the_run_is_created_unless_it_stands() -> None:
    assert kinds(creating().last) == ["StartChild", "CreateRun"]
    drive = creating(facts(owns=False))
    assert kinds(drive.last) == ["CreateRun"]
    drive.answer(do.CreateRun)
    drive.end()
    assert drive.of(do.CloseChild) == []
    assert verdict(drive) == Verdict(result())


def test_34_it_is_started_again_at_once_and_then_after_ever_longer_pauses() -> None:
    drive, pauses = following(), []
    for _ in range(4):
        child_ends(drive)
        before = drive.now
        if not drive.all_open(do.StartChild):
            drive.wait(drive.machine.desk.times["child"][0] - drive.now)
        pauses.append(round(drive.now - before, 1))
    assert pauses == [0.0, 0.2, 0.4, 0.6]


def test_35_five_starts_within_thirty_seconds_end_the_launch_with_its_last_words() -> None:
    drive = following()
    child_ends(drive, 4, 1.0)
    child_ends(drive)
    assert stage(drive) == "closing"
    assert failure(drive) == LOST
    drive = following()
    for _ in range(20):  # starts that lie further back do not count
        child_ends(drive, 1, 8.0)
        drive.status(slot(1))
    assert stage(drive) == "following"


def test_36_while_runs_are_ended_it_is_not_started_again_and_closed_after_them() -> None:
    drive = Drive.new().ending(ONE)
    child_ends(drive, 1, 1.0)
    assert len(drive.of(do.StartChild)) == 1
    drive.described(ONE, SlotState.ENDED)
    assert kinds(drive.last) == ["Note", "CloseChild"]


# --- creating


def test_40_a_creation_that_is_not_answered_is_tried_again_soon_and_given_up_in_the_end() -> None:
    drive = creating()
    drive.refuse(do.CreateRun, SILENT)
    assert drive.all_open(do.CreateRun) == []
    assert kinds(drive.wait(0.05)) == ["CreateRun"]
    silent(drive, do.CreateRun, "creating", 1.0)
    assert drive.said() == []
    assert 20.0 < drive.now < 23.0
    assert failure(drive) == NotCreated(20.0, SILENT, standing=False)


def test_40_of_a_standing_registry_it_is_said_once_that_it_does_not_answer_yet() -> None:
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
    assert failure(drive) == EndedBeforeBegun()


def test_42_43_a_launcher_that_cannot_go_on_tells_its_nodes_and_waits_a_moment() -> None:
    drive = creating()
    drive.refuse(do.CreateRun, FOREIGN)
    assert failure(drive) == Refusal(FOREIGN)
    drive = following()
    drive.refuse(do.AskStatus, FOREIGN)  # rule 45: the registry has forgotten the run
    assert drive.open(do.CancelRun).reason == ByFailure(Refusal(FOREIGN))
    drive.wait(1.1)
    assert drive.all_open(do.FollowEvents) == [] == drive.all_open(do.FetchMetrics)
    here = status_of(HERE, version=4)
    cancelled(drive, here)
    assert drive.open(do.AskStatus) == do.AskStatus(drive.open(do.AskStatus).id, 4, 0.5)
    drive.now += 3.1
    drive.came(here)
    assert failure(drive) == Refusal(FOREIGN)
    drive = following()
    drive.refuse(do.AskStatus, FOREIGN)
    cancelled(drive, LEFT)
    assert stage(drive) == "closing"


# --- following


def test_44_a_registry_that_does_not_answer_is_asked_again_with_jitter_until_it_is_lost() -> None:
    drive = following()
    assert drive.open(do.AskStatus) == do.AskStatus(drive.open(do.AskStatus).id, -1, 2.0)
    drive.status(version=7)
    assert drive.open(do.AskStatus).after == 7  # above the last version
    drive.take(said.Unanswered(drive.open(do.AskStatus).id, SILENT, jitter=1.0))
    drive.wait(0.49)
    assert drive.all_open(do.AskStatus) == []
    drive.wait(0.02)
    assert drive.all_open(do.AskStatus)
    silent(drive, do.AskStatus, "following", 5.0)
    assert 120.0 < drive.now < 132.0
    assert failure(drive) == Silent(SILENT)


def test_44_a_launcher_that_was_stopped_has_one_try_left() -> None:
    drive = following()
    drive.now += 1000.0
    for _ in range(2):
        drive.refuse(do.AskStatus, SILENT)
        drive.wait(0.5)
        assert stage(drive) == "following"
        drive.status()


def test_d7_what_is_lost_after_the_result_does_not_lose_it() -> None:
    drive = leaving()
    for _ in range(40):
        if stage(drive) == "leaving":
            drive.refuse(do.AskStatus, SILENT)
            drive.wait(0.5)
    assert drive.now == 18.0
    drive.answer(do.FetchMetrics)
    assert verdict(drive) == Verdict(result())
    drive = leaving()
    drive.refuse(do.AskStatus, FOREIGN)
    assert verdict(drive) == Verdict(result())
    drive = leaving()
    child_ends(drive, 5, 1.0)
    assert drive.said() == [LostAfterResult(LOST)]
    assert verdict(drive) == Verdict(result())


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
    assert (stage(drive), drive.said()) == ("following", [FULL_SAID])
    drive = following()
    drive.status(WANTS)
    drive.refuse(do.TellSlot, FULL)
    drive.wait(120.5)
    drive.status(WANTS)
    assert failure(drive) == StorageLost(120.5, FULL.message, FULL.hint)


@pytest.mark.parametrize(("phase", "then"), [("arming", "failing"), ("running", "following")])
def test_38_before_the_go_nothing_goes_on_that_cannot_be_written(phase: str, then: str) -> None:
    drive = following()
    drive.status(phase=Phase(phase), unwritten_seconds=121.0, trouble="full")
    assert stage(drive) == then


def test_39_a_status_that_meets_a_full_disk_says_so_and_does_not_count() -> None:
    drive = following()
    drive.refuse(do.AskStatus, FULL)
    drive.wait(119.0)
    drive.status()
    drive.now += 100
    drive.status()
    assert (stage(drive), drive.said()) == ("following", [FULL_SAID])


def test_47_the_table_is_kept_once_an_epoch_and_odd_things_are_said() -> None:
    started = status_of(slot(1, rank=1), phase=Phase.RUNNING, digest="d1", epoch=1)
    drive = following()
    drive.came(started)
    drive.refuse(do.Keep, SILENT)  # D8: what could not be kept is tried again
    drive.wait(1.0)
    drive.take(said.ReportCame(drive.open(do.Keep).id, REPORT))
    drive.came(started)
    assert len(drive.of(do.Keep)) == 2
    assert drive.said() == [Warnings(REPORT)]
    drive.status(phase=Phase.RUNNING, digest="d2", epoch=2)
    assert len(drive.of(do.Keep)) == 3


def test_48_d8_findings_of_a_failed_start_are_said_before_the_registry_goes() -> None:
    drive = following()
    drive.came(over(result=result("preflight_failed", 87)))
    drive.refuse(do.KeepReport, SILENT)
    assert stage(drive) == "leaving"
    drive.wait(1.0)
    drive.take(said.ReportCame(drive.open(do.KeepReport).id, REPORT))
    assert (stage(drive), drive.said()) == ("parting", [Findings(REPORT)])
    drive = following()
    drive.came(over(result=result("verification_failed", 81)))
    for _ in range(3):  # and not for ever
        drive.refuse(do.KeepReport, SILENT)
        drive.wait(1.0)
    assert stage(drive) == "parting"


# --- leaving


def test_49_nodes_have_their_grace_and_eight_seconds_to_leave() -> None:
    drive = following()
    drive.came(over(HERE, slot(2, node=NodeState.LEFT), slot(3), left=False))
    drive.wait(17.9)
    assert drive.said() == []
    drive.wait(0.2)
    assert (stage(drive), drive.said()) == ("parting", [DidNotLeave((1,), 18.0)])


def test_100_a_symmetric_registry_stays_for_nodes_that_nobody_can_cancel() -> None:
    drive = following(facts(others=None))
    drive.came(over(untold=[0, 2]))
    drive.wait(29.0)
    assert stage(drive) == "leaving"
    drive.wait(1.0)  # everyone has left: nobody is late
    assert (stage(drive), drive.said()) == ("parting", [WaitsForOthers((2,), 30.0)])


@pytest.mark.parametrize("more", [{"code": "join_timeout"}, {"status": "ok"}])
def test_100_not_after_a_join_timeout_or_a_good_end(more: dict[str, Any]) -> None:
    drive = following(facts(others=None))
    drive.came(over(untold=[2], result=result(**more)))
    assert stage(drive) == "parting"


def test_50_metrics_are_fetched_once_more_and_events_shown_to_their_end_or_three_seconds() -> None:
    drive = following()
    assert kinds(drive.came(over(slot(1, node=NodeState.LEFT))))[-1] == "FetchMetrics"
    drive.answer(do.FetchMetrics)
    drive.wait(2.9)
    assert stage(drive) == "parting"
    drive.wait(0.2)
    assert stage(drive) == "closing"
    drive = following()
    drive.came(over())
    drive.part()
    assert stage(drive) == "closing"


def test_51_events_go_on_after_the_last_one_that_was_shown_and_end_nothing() -> None:
    drive = following()
    assert drive.open(do.FollowEvents).after == 0
    drive.take(said.EventsOver(drive.open(do.FollowEvents).id, 17, broken=True, jitter=0.0))
    drive.wait(0.2)
    assert drive.open(do.FollowEvents).after == 17
    drive.take(said.PartFailed(drive.open(do.FollowEvents).id, "ValueError()"))
    drive.wait(0.2)
    assert stage(drive) == "following"
    assert drive.all_open(do.FollowEvents)
    drive.wait(1.0 - drive.now)  # rule 52: metrics are kept each second
    drive.answer(do.FetchMetrics)
    assert drive.all_open(do.FetchMetrics) == []
    drive.wait(1.0)
    assert len(drive.of(do.FetchMetrics)) == 2


def fails(drive: Drive, kind: type[Any]) -> int:
    """The newest of this kind fails as nobody expected."""
    number: int = drive.open(kind).id
    drive.take(said.PartFailed(number, "KeyError('x')"))
    return number


def test_53_a_part_that_fails_as_nobody_expected_ends_the_launch_with_that() -> None:
    drive = Drive.new().submitting(ONE)
    number = fails(drive, do.Submit)
    assert drive.open(do.CancelRun).reason == ByFailure("KeyError('x')")
    cancelled(drive, LEFT)
    for _ in range(2):
        drive.found(ONE, None)  # it may have been made all the same
        drive.wait(1.0)
    assert outcome(drive).fault == number
    assert drive.of(do.WriteResult) == []
    drive = Drive.new().submitting(ONE)
    drive.end()
    fails(drive, do.Submit)  # nothing waits for it any more
    assert drive.open(do.Find).key == ONE
    fails(drive, do.Find)  # and an adapter that fails now is asked again
    assert stage(drive) == "ending"
    drive.wait(1.0)
    assert drive.all_open(do.Find)


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
    if drive.all_open(do.CloseChild):
        drive.take(said.Done(drive.open(do.CloseChild).id))
    assert outcome(drive).fault == number


def test_53_a_board_that_fails_ends_the_launch() -> None:
    drive = following()
    for _ in range(2):
        drive.take(said.PartFailed(said.NO_ACTION, "ValueError('no terminal')"))
        assert stage(drive) == "failing"
    assert len(drive.of(do.CancelRun)) == 1
    cancelled(drive, LEFT)
    assert outcome(drive).fault == said.NO_ACTION


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.signal()
    drive.signal()
    assert drive.take(said.Done(999)) == []
    assert drive.take(said.SubmitTroubled(number, ONE, "error 500")) == []


def test_49_the_result_that_was_seen_first_is_the_result() -> None:
    drive = leaving()
    drive.wait(5.0)
    drive.came(over(HERE, left=False))
    assert drive.machine.course.leaving.since == 0.0
