"""Which worker runs a launch submits, takes up again, describes and lets go, by value."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import News
from launcher.run.ground import Former, OnDisk
from launcher.run.sentences import LedgerUnwritable, MayBeLeft
from launcher.run.values import Key, LaunchFacts, Left, Starter
from rendezvous.wire.run import Phase, SlotState
from tests.launcher.drive import FOREIGN, OVER, SILENT, SLURM, Drive, facts, over, slot

ONE, TWO, ONE_AGAIN = Key(1, 1), Key(2, 1), Key(1, 2)
NEVER_LOOKS = Starter("vessl", 1.0, finds=False)
SUBMITTING, RUNNING, FAILED = SlotState.SUBMITTING, SlotState.RUNNING, SlotState.FAILED
ENDED, GO = SlotState.ENDED, Phase.RUNNING


def resumed(*left: Left, facts_: LaunchFacts | None = None) -> Drive:
    """A launch that a killed launcher had begun; slot 1 is looked for where one was left."""
    former = Former("k7f2a9c1xy", "h1", "slurm", owns_registry=True, port=29_600, fingerprint="f")
    drive = Drive.new(facts_, OnDisk(former, own=left)).begin()
    drive.take(said.Done(drive.open(do.OpenFormer).id))
    drive.status(slot(1))
    drive.answer(do.CreateRun)
    drive.take(said.Done(drive.open(do.Establish).id))
    if left:
        drive.status(slot(1))
    return drive


def asked(numbers: range = range(1, 2), told: int = 0) -> Drive:
    """The registry wants these slots, and has heard so of the first of them."""
    drive = Drive.new().following()
    drive.status(*(slot(number, 0, 1) for number in numbers))
    for number in numbers[:told]:
        drive.answer(do.TellSlot, Key(number, 1))
    return drive


def replaced(drive: Drive, phase: Phase = Phase.GATHERING) -> list[do.Action]:
    """The registry wants the next generation of slot 1, and has heard that it comes."""
    drive.status(slot(1, 1, 2, rank=1 if phase is GO else None), phase=phase)
    return drive.answer(do.TellSlot, ONE_AGAIN)


def troubled(drive: Drive, number: int) -> list[do.Action]:
    return drive.take(said.SubmitTroubled(number, ONE, "busy"))


def later(drive: Drive, state: SlotState, detail: str = "") -> list[do.Action]:
    """A second later slot 1's run is described so."""
    drive.wait(1.0)
    return drive.described(ONE, state, detail)


def news(drive: Drive, key: Key = ONE) -> list[tuple[str, str, str]]:
    """What the registry was told of a worker run."""
    told = [action.news for action in drive.of(do.TellSlot) if action.key == key]
    return [(each.state.value, each.handle, each.detail) for each in told]


def keys(drive: Drive, kind: type[Any]) -> list[Key]:
    return [action.key for action in drive.of(kind)]


# --- submitting


def test_54_56_intent_ledger_submission_id_news_description_in_this_order() -> None:
    drive = asked()
    for _ in range(3):
        drive.status(slot(1, 0, 1), slot(2, 0, 1))  # asked for once, however often it is wanted
    assert keys(drive, do.TellSlot) == [ONE, TWO]
    assert drive.open(do.TellSlot, ONE).news == News(SUBMITTING)
    assert drive.of(do.WriteIntent) == []
    assert drive.answer(do.TellSlot, ONE) == [do.WriteIntent(drive.open(do.WriteIntent).id, ONE)]
    assert drive.written(ONE) == [do.Submit(drive.open(do.Submit).id, ONE)]
    assert drive.submitted(ONE, "100") == [
        do.Note(ONE, "100", gone=False),
        do.TellSlot(drive.open(do.TellSlot).id, ONE, News(SlotState.SUBMITTED, "100")),
    ]
    describe = drive.answer(do.TellSlot, ONE)
    assert describe == [do.Describe(drive.open(do.Describe).id, ONE, "100")]


def test_56_a_local_worker_run_needs_no_ledger() -> None:
    drive = asked(range(1))
    key = Key(0, 1)
    assert drive.answer(do.TellSlot) == [do.Submit(drive.open(do.Submit).id, key)]
    told = do.TellSlot(0, key, News(SlotState.SUBMITTED, "77"))
    first = drive.submitted(key, "77")[0]
    assert isinstance(first, do.TellSlot)
    assert (first.key, first.news) == (told.key, told.news)


def test_57_a_run_that_is_over_has_nothing_submitted_and_stops_nothing() -> None:
    drive = asked()
    assert drive.refuse(do.TellSlot, OVER) == []
    assert drive.machine.slots.shared.runs == {}
    drive.wait(60)
    assert drive.of(do.WriteIntent) == []
    drive = Drive.new().submitting(ONE)
    drive.submitted(ONE, "101")
    drive.refuse(do.TellSlot, OVER, ONE)
    assert drive.open(do.Describe).key == ONE


def test_58_news_that_nobody_answers_are_told_again_with_jitter_for_ever() -> None:
    drive = asked()
    for _ in range(50):
        drive.take(said.Unanswered(drive.open(do.TellSlot).id, SILENT, jitter=0.5))
        meanwhile = drive.all_open(do.TellSlot) + drive.wait(0.3)
        assert not [action for action in meanwhile if isinstance(action, do.TellSlot)]
        drive.wait(0.06)
        assert drive.open(do.TellSlot).news.state is SUBMITTING


def test_59_without_a_ledger_nothing_is_submitted_and_each_reason_is_said_once() -> None:
    drive = asked(told=1)
    for error in ("full", "full", "gone"):
        drive.take(said.NotWritten(drive.open(do.WriteIntent).id, error, jitter=1.0))
        drive.wait(0.6)
    assert drive.said() == [LedgerUnwritable("full"), LedgerUnwritable("gone")]
    assert drive.of(do.Submit) == []
    drive.written(ONE)
    assert keys(drive, do.Submit) == [ONE]


def test_56_sixteen_are_submitted_at_once_and_the_rest_when_a_place_is_free() -> None:
    drive = asked(range(1, 41), told=40)
    assert len(drive.all_open(do.WriteIntent)) == 16
    for action in drive.all_open(do.WriteIntent):
        drive.written(action.key)
    assert len(drive.all_open(do.Submit)) == 16
    drive.submitted(ONE, "101")
    assert [action.key for action in drive.all_open(do.WriteIntent)] == [Key(17, 1)]


@pytest.mark.parametrize("ends", ["signal", "result", "failure"])
def test_d11_nothing_that_waits_for_its_turn_is_submitted_after_the_end_has_begun(
    ends: str,
) -> None:
    drive = asked(range(1, 41), told=30)
    for action in drive.all_open(do.WriteIntent)[:8]:
        drive.written(action.key)
    before = len(drive.of(do.Submit))
    if ends == "signal":
        drive.signal()
    elif ends == "result":
        drive.came(over(*(slot(number, 0, 1) for number in range(1, 41)), left=False))
    else:
        drive.refuse(do.AskStatus, FOREIGN)
    for submission in drive.all_open(do.Submit):
        drive.submitted(submission.key, "7")
    drive.wait(1.0)
    assert (before, len(drive.of(do.Submit))) == (8, 8)
    assert drive.all_open(do.WriteIntent) == []


def test_54_d11_a_newer_generation_takes_the_older_one_out_of_the_queue() -> None:
    drive = asked(told=1)
    drive.status(slot(1, 1, 2))
    assert drive.all_open(do.WriteIntent) == []
    drive.answer(do.TellSlot, ONE_AGAIN)
    drive.written(ONE_AGAIN)
    assert keys(drive, do.Submit) == [ONE_AGAIN]
    drive = asked(range(1, 20), told=19)
    drive.status(slot(18, 1, 2))  # one of those that wait for their turn
    for key in (ONE, TWO):
        drive.written(key)
        drive.submitted(key, "101")
    assert Key(17, 1) in keys(drive, do.WriteIntent)
    assert Key(18, 1) not in keys(drive, do.WriteIntent)


def test_62_a_submission_that_fails_may_exist_all_the_same_and_is_ended_by_its_name() -> None:
    drive = Drive.new().submitting(ONE)
    drive.submit_failed(ONE, "error 500")
    assert news(drive)[-1] == ("failed", "", "error 500")
    assert not drive.machine.slots.shared.runs[ONE].gone
    assert drive.of(do.Note) == []
    drive.answer(do.TellSlot, ONE)
    replaced(drive)
    assert drive.open(do.Find).key == ONE


def test_62_what_was_refused_for_certain_is_noted_as_gone_before_it_is_told() -> None:
    drive = Drive.new().submitting(ONE)
    told = drive.submit_failed(ONE, certain=True)
    assert [type(action) for action in told] == [do.Note, do.TellSlot]
    assert told[0] == do.Note(ONE, "", gone=True)
    drive = Drive.new().submitting(ONE)
    replaced(drive, GO)
    assert drive.all_open(do.WriteIntent) == []
    drive.submit_failed(ONE, certain=True)  # and the newer one goes on
    assert drive.open(do.WriteIntent).key == ONE_AGAIN


def test_63_a_further_try_waits_until_the_registry_has_heard_of_the_first() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    troubled(drive, number)
    assert news(drive)[-1] == ("submitting", "", "busy")
    assert drive.answer(do.TellSlot, ONE) == [do.TryAgain(number)]


def test_63_nothing_is_tried_again_after_the_end_or_a_signal() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    troubled(drive, number)
    assert drive.refuse(do.TellSlot, OVER, ONE) == [do.BreakOff(number)]
    drive.signal()
    assert not drive.machine.slots.shared.runs[ONE].gone
    drive = Drive.new().submitting(ONE)
    drive.signal()
    assert troubled(drive, number) == [do.BreakOff(number)]
    drive = Drive.new().submitting(ONE)
    troubled(drive, number)
    assert do.BreakOff(number) in drive.signal()
    drive = Drive.new().submitting(ONE)
    drive.end()
    assert drive.machine.slots.end.settling
    troubled(drive, number)
    assert drive.machine.slots.end.ending


def test_53_a_registry_that_refuses_to_hear_of_a_slot_ends_the_launch() -> None:
    drive = asked()
    drive.refuse(do.TellSlot, FOREIGN)
    assert drive.machine.course.stage == "failing"


def test_63_a_slot_that_is_left_out_or_replaced_is_not_tried_again_but_looked_for() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.status(slot(1, 1, 1), phase=GO)
    ended = troubled(drive, number)
    assert ended == [do.BreakOff(number), do.Find(drive.open(do.Find).id, ONE)]
    drive = Drive.new().submitting(ONE)
    troubled(drive, number)
    drive.status(slot(1, 1, 1), phase=GO)
    drive.answer(do.TellSlot, ONE)
    assert drive.of(do.TryAgain) == []
    assert drive.open(do.Find).key == ONE
    drive = Drive.new().submitting(ONE)
    replaced(drive)
    troubled(drive, number)
    assert drive.open(do.Find).key == ONE


# --- older generations


def test_60_d10_before_the_go_the_older_one_is_ended_beside_the_newer_one() -> None:
    """The registry refuses the older one's node in any case."""
    drive = Drive.new().running(ONE)
    assert [type(action) for action in replaced(drive)] == [do.Describe, do.WriteIntent]
    drive.described(ONE, RUNNING)
    cancel = drive.open(do.CancelWorkerRun)
    assert cancel == do.CancelWorkerRun(cancel.id, ONE, "101", 12.0)


def test_60_d10_from_the_go_on_the_newer_one_waits_until_the_older_one_is_gone() -> None:
    drive = Drive.new().running(ONE)
    assert [type(action) for action in replaced(drive, GO)] == [do.Describe]
    drive.described(ONE, RUNNING)
    drive.told(ONE)
    drive.wait(0.2)
    note, write = drive.described(ONE, ENDED)
    assert note == do.Note(ONE, "101", True)
    assert write == do.WriteIntent(drive.open(do.WriteIntent).id, ONE_AGAIN)


def test_60_d10_an_older_one_that_cannot_be_ended_is_said_and_not_waited_for_for_ever() -> None:
    drive = Drive.new().running(ONE)
    replaced(drive, GO)
    drive.now += 100
    done = drive.take(said.SchedulerSilent(drive.open(do.Describe, ONE).id, "down"))
    assert [type(a) for a in done if not isinstance(a, do.FetchMetrics)] == [do.Say, do.WriteIntent]
    assert isinstance(drive.said()[-1], MayBeLeft)


def test_d13_one_that_is_replaced_while_it_is_being_submitted_is_ended_by_its_id() -> None:
    drive = Drive.new().submitting(ONE)
    replaced(drive)
    assert drive.all_open(do.Find) == []
    drive.submitted(ONE, "101")
    assert drive.open(do.Describe) == do.Describe(drive.open(do.Describe).id, ONE, "101")
    drive.described(ONE, RUNNING)
    assert drive.open(do.CancelWorkerRun).handle == "101"


# --- taking up


def test_70_one_that_has_failed_is_submitted_again_when_the_registry_wants_it() -> None:
    drive = Drive.new().running(ONE)
    later(drive, FAILED, "PREEMPTED")
    drive.answer(do.TellSlot, ONE)
    before = len(drive.of(do.TellSlot))
    drive.status(slot(1))
    drive.wait(600.0)
    assert len(drive.of(do.TellSlot)) == before
    drive.status(slot(1, wanted=2))
    assert drive.open(do.TellSlot, ONE_AGAIN).news == News(SUBMITTING)


def test_55_65_what_a_former_launcher_has_submitted_is_found_and_taken_up() -> None:
    drive = resumed(Left(ONE, SLURM, ""))
    assert drive.found(ONE, "101") == [
        do.Note(ONE, "101", gone=False, whole=True),
        do.Describe(drive.open(do.Describe).id, ONE, "101"),
    ]
    assert drive.of(do.Submit) == []


def test_65_an_id_is_enough_where_its_scheduler_says_that_it_lives() -> None:
    drive = resumed(Left(ONE, NEVER_LOOKS, "101"))
    drive.found(ONE, None)
    drive.described(ONE, SlotState.QUEUED)
    assert drive.machine.slots.shared.runs[ONE].step == "described"


@pytest.mark.parametrize("state", [SlotState.UNKNOWN, ENDED, FAILED])
def test_67_one_that_is_not_there_is_submitted_as_the_next_generation(state: SlotState) -> None:
    drive = resumed(Left(ONE, SLURM, "101"))
    drive.found(ONE, None)
    drive.described(ONE, state)
    assert (drive.open(do.TellSlot).key, news(drive, ONE_AGAIN)) == (
        ONE_AGAIN,
        [("submitting", "", "")],
    )


def test_67_a_local_one_has_died_with_its_launcher_and_none_follows_after_a_signal() -> None:
    drive = resumed(facts_=facts())
    drive.status(slot(0))
    drive.found(Key(0, 1), None)
    assert drive.open(do.TellSlot).key == Key(0, 2)
    drive = resumed(Left(ONE, SLURM, ""))
    drive.signal()
    drive.found(ONE, None)
    assert drive.of(do.TellSlot) == []


def test_65_a_scheduler_that_does_not_answer_is_asked_again_and_nothing_is_submitted() -> None:
    drive = resumed(Left(ONE, SLURM, "101"))
    for _ in range(3):
        drive.take(said.SchedulerSilent(drive.open(do.Find).id, "error 500"))
        assert news(drive)[-1] == ("unknown", "101", "error 500")
        drive.answer(do.TellSlot)
        assert drive.all_open(do.Find) == []
        drive.wait(1.0)
    assert [action.key for action in drive.all_open(do.Find)] == [ONE]
    assert drive.of(do.Submit) == []


def test_66_68_one_that_is_replaced_while_it_is_looked_for_is_ended() -> None:
    drive = resumed(Left(ONE, SLURM, "101"))
    looking = drive.open(do.Find)
    assert do.BreakOff(looking.id) in drive.status(slot(1, 1, 2))
    drive.answer(do.TellSlot, ONE_AGAIN)
    assert drive.open(do.Describe).key == ONE
    assert drive.open(do.WriteIntent).key == ONE_AGAIN
