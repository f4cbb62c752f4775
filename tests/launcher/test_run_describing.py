"""How the worker runs of a launch are described, told of, released and ended, by value."""

from __future__ import annotations

from itertools import pairwise

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import News
from launcher.run.values import Key, Starter
from rendezvous.wire.run import NodeState, SlotState
from tests.launcher.drive import LOCAL, SLURM, Drive, facts, over, slot
from tests.launcher.test_run_slots import ENDED, FAILED, GO, ONE, RUNNING, TWO, keys, later, news

KEEPS = Starter("vessl", 1.0, keeps_logs=True)


@pytest.mark.parametrize(
    ("starter", "slots", "pause"), [(LOCAL, 40, 0.1), (SLURM, 3, 1.0), (SLURM, 40, 4.0)]
)
def test_71_a_scheduler_that_serves_others_is_asked_less_often(
    starter: Starter, slots: int, pause: float
) -> None:
    drive = Drive.new(facts(here=starter, others=starter))
    drive.running(*(Key(number, 1) for number in range(slots)))
    for seconds, count in ((pause - 0.01, 0), (0.02, slots)):
        done = drive.wait(seconds)
        assert len([action for action in done if isinstance(action, do.Describe)]) == count


def test_72_the_same_is_not_told_twice_and_other_words_after_a_second() -> None:
    drive = Drive.new().running(ONE)
    told = len(news(drive))
    later(drive, RUNNING)
    later(drive, RUNNING, "on n17")
    assert news(drive)[told:] == [("running", "101", "on n17")]
    drive = Drive.new(facts(others=Starter("slurm", 0.5))).running(ONE)
    drive.wait(0.5)
    drive.described(ONE, RUNNING, "on n17")  # within a second they are not
    assert len(news(drive)) == told


def test_72_a_queue_is_told_again_before_the_registry_forgets_it() -> None:
    drive = Drive.new().running(ONE)
    later(drive, SlotState.QUEUED, "2nd")
    drive.answer(do.TellSlot, ONE)
    told = len(news(drive))
    while not drive.all_open(do.TellSlot, ONE):
        later(drive, SlotState.QUEUED, "2nd")
    assert 31.0 <= drive.now <= 33.0
    assert news(drive)[told:] == [("queued", "101", "2nd")]


def test_73_a_scheduler_that_does_not_answer_is_told_as_unknown_and_ends_nothing() -> None:
    drive = Drive.new().running(ONE)
    drive.wait(1.0)
    drive.take(said.SchedulerSilent(drive.open(do.Describe).id, "error 500"))
    assert news(drive)[-1] == ("unknown", "101", "error 500")
    drive.answer(do.TellSlot, ONE)
    drive.wait(1.0)
    assert drive.open(do.Describe).key == ONE


def test_74_one_that_is_over_is_noted_then_told_and_not_asked_about_again() -> None:
    drive = Drive.new().running(ONE)
    assert later(drive, FAILED, "OOM")[0] == do.Note(ONE, "101", gone=True)
    assert news(drive)[-1] == ("failed", "101", "OOM")
    drive.answer(do.TellSlot, ONE)
    drive.wait(60)
    assert drive.all_open(do.Describe) == []


def test_d12_one_whose_node_is_there_is_not_believed_to_be_over() -> None:
    drive = Drive.new().running(ONE)
    drive.status(slot(1, node=NodeState.RUNNING, rank=1), phase=GO)
    later(drive, ENDED, "not in the list")
    assert drive.of(do.Note)[-1].gone is False
    assert news(drive)[-1][0] == "ended"
    drive.answer(do.TellSlot, ONE)
    later(drive, ENDED, "not in the list")  # asked about all the same
    drive.came(over(slot(1, node=NodeState.LEFT)))
    drive.part()
    drive.described(ONE, RUNNING)
    drive.wait(3.0)
    drive.described(ONE, RUNNING)
    assert drive.open(do.CancelWorkerRun).key == ONE


def test_d12_it_is_believed_once_its_node_has_left() -> None:
    drive = Drive.new().running(ONE)
    drive.status(slot(1, node=NodeState.RUNNING, rank=1), phase=GO)
    later(drive, ENDED)
    drive.answer(do.TellSlot, ONE)
    drive.status(slot(1, node=NodeState.LEFT, rank=1), phase=GO)
    assert later(drive, ENDED) == [do.Note(ONE, "101", gone=True)]
    drive.wait(60)
    assert drive.all_open(do.Describe) == []


def test_75_a_replaced_one_is_not_described_any_more() -> None:
    drive = Drive.new().running(ONE)
    drive.wait(1.0)
    describe = drive.open(do.Describe)
    assert do.BreakOff(describe.id) in drive.status(slot(1, 1, 2))


def test_76_77_one_that_ends_is_told_with_its_last_line_until_the_go() -> None:
    drive = Drive.new(facts(others=KEEPS)).running(ONE)
    later(drive, FAILED, "ImagePull")
    drive.take(said.LineRead(drive.open(do.ReadLastLine).id, "no such image"))
    assert drive.open(do.TellSlot).news == News(FAILED, "101", "ImagePull", "no such image")
    drive = Drive.new(facts(others=KEEPS)).running(ONE)
    drive.status(slot(1, rank=1, node=NodeState.LOST), phase=GO)
    later(drive, FAILED)
    assert drive.of(do.ReadLastLine) == []


def test_77_one_that_runs_and_does_not_call_is_told_again_with_its_last_line() -> None:
    drive = Drive.new(facts(others=KEEPS)).running(ONE, TWO)
    here = slot(2, state=RUNNING, seconds=20.0, node=NodeState.JOINED)
    drive.status(slot(1, state=RUNNING, seconds=20.0), here)
    for _ in range(32):
        drive.wait(1.0)
        for action in drive.all_open(do.Describe):
            drive.described(action.key, RUNNING)
    assert keys(drive, do.ReadLastLine) == [ONE]


# --- released


def test_78_from_the_go_on_a_worker_run_without_a_rank_is_ended_once() -> None:
    drive = Drive.new().running(ONE, TWO)
    for _ in range(2):
        drive.status(slot(1), slot(2, rank=1), phase=GO)
    assert [action.key for action in drive.all_open(do.Describe)] == [ONE]
    drive.described(ONE, RUNNING)
    assert drive.all_open(do.CancelWorkerRun) == []  # it may end by itself
    drive.wait(3.2)
    drive.described(ONE, RUNNING)
    assert [action.key for action in drive.all_open(do.CancelWorkerRun)] == [ONE]
    drive = Drive.new().following()
    drive.status(slot(1, 1, 2), slot(2, rank=1), phase=GO)  # and nothing is submitted for it
    assert drive.of(do.TellSlot) == []


def test_d14_one_that_cannot_be_ended_is_tried_again_ever_more_rarely() -> None:
    drive, begun = Drive.new().running(ONE), []
    for _ in range(300):
        before = len(drive.of(do.Describe))
        drive.status(slot(1), phase=GO)
        if len(drive.of(do.Describe)) > before:
            begun.append(drive.now)
        for action in drive.all_open(do.Describe):
            drive.now += 100  # it is late
            drive.take(said.SchedulerSilent(action.id, "you may not"))
        drive.wait(2.0)
    assert [after - earlier for earlier, after in pairwise(begun)] == [160.0, 220.0, 340.0]


def test_how_a_worker_run_ended_is_known_unless_this_launch_has_ended_it() -> None:
    drive = Drive.new().running(ONE, TWO, Key(3, 1))
    later(drive, FAILED, "CANCELLED")
    drive.described(Key(3, 1), FAILED)
    drive.signal()
    drive.signal()
    drive.described(TWO, RUNNING)
    drive.told(TWO)
    drive.wait(1.0)
    drive.described(TWO, FAILED, "CANCELLED by me")
    words = [drive.machine.slots.words_of_end(number) for number in (1, 2, 3, 4)]
    assert words == ["CANCELLED", "", "", ""]
