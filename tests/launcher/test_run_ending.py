"""The end of worker runs by value: told, told again, gone only when their scheduler says so."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import Action
from launcher.run.desk import Desk
from launcher.run.ending import Ended, Endings
from launcher.run.sentences import MayBeLeft, Stand, StandKind, WaitsForRuns
from launcher.run.values import Key, Starter
from launcher.schedulers.description import Description
from rendezvous.wire.run import Phase, SlotState
from tests.launcher.drive import SLURM, Drive, facts, slot

ONE, TWO = Key(1, 1), Key(2, 1)
RUNNING, UNKNOWN = SlotState.RUNNING, SlotState.UNKNOWN
GRACE = 12.0  # ten of the run's, and what the agent needs beyond
BLIND = Starter("vessl", 1.0, finds=False)
HERE = Starter("local", 0.1, loopback=True)


@dataclass
class Ending:
    """Endings alone, on a clock of their own."""

    now: float = 0.0
    desk: Desk = field(default_factory=Desk)
    ended: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ends = Endings(self.desk, 10.0)

    def begin(
        self, key: Key = ONE, starter: Starter = SLURM, handle: str = "100", by_itself: float = 0.0
    ) -> Ending:
        self.ends.begin(key, starter, handle, self.now, by_itself=by_itself)
        return self

    def open(self, key: Key = ONE) -> Action:
        """What its scheduler is asked or told just now."""
        (found,) = (action for (_, k), action in self.desk.open.values() if k == key)
        return found

    def asks(self, key: Key = ONE) -> str:
        return type(self.open(key)).__name__

    def answer(self, what: type[said.SchedulerAnswer], *values: object, key: Key = ONE) -> Ending:
        action = self.open(key)
        self.desk.close(action.id)  # type: ignore[union-attr]
        self.ends.take(key, what(action.id, *values), self.now)  # type: ignore[union-attr, arg-type]
        self._drain()
        return self

    def described(self, state: SlotState, detail: str = "", key: Key = ONE) -> Ending:
        return self.answer(said.Described, Description(state, detail), key=key)

    def wait(self, seconds: float) -> Ending:
        until = self.now + seconds
        while (due := self.desk.due()) is not None and due <= until:
            self.now = max(due, self.now)
            name = self.desk.next_due(self.now)
            assert isinstance(name, tuple)
            self.ends.look(name[1], self.now)
            self._drain()
        self.now = until
        return self

    def hurry(self) -> Ending:
        self.ends.hurry(self.now)
        return self

    def _drain(self) -> None:
        self.ended += self.ends.ended
        self.ends.ended.clear()


def test_81_with_an_id_it_is_described_told_once_with_the_grace_and_believed_when_over() -> None:
    end = Ending().begin()
    assert end.open() == do.Describe(1, ONE, "100")
    end.described(RUNNING)
    assert end.open() == do.CancelWorkerRun(2, ONE, "100", GRACE)
    end.answer(said.RunTold).wait(0.2).described(RUNNING)
    assert end.ended == [] == list(end.desk.open)
    end.wait(0.4).described(SlotState.ENDED)
    assert [(each.key, each.gone) for each in end.ended] == [(ONE, True)]


def test_81_the_pause_doubles_up_to_the_schedulers_own() -> None:
    end, pauses = Ending().begin().described(RUNNING).answer(said.RunTold), []
    for _ in range(5):
        before = end.now
        due = end.desk.due()
        assert due is not None
        end.wait(due - before)
        pauses.append(round(end.now - before, 1))
        end.described(RUNNING)
    assert pauses == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_81_it_is_told_again_after_twenty_seconds() -> None:
    end = Ending().begin().described(RUNNING).answer(said.RunTold)
    while end.asks() if end.desk.open else True:
        if not end.desk.open:
            end.wait(0.1)
        elif end.asks() == "Describe":
            end.described(RUNNING)
        else:
            break
    assert 20.0 < end.now < 22.0
    assert end.asks() == "CancelWorkerRun"


@pytest.mark.parametrize("state", [RUNNING, UNKNOWN])
def test_80_one_that_may_run_may_end_by_itself_and_one_that_is_queued_is_told_at_once(
    state: SlotState,
) -> None:
    end = Ending().begin(ONE, BLIND, by_itself=60.0).begin(TWO, handle="101", by_itself=60.0)
    end.described(state).described(SlotState.QUEUED, key=TWO)
    assert end.asks(TWO) == "CancelWorkerRun"
    end.wait(0.2)
    assert end.asks(ONE) == "Describe"
    end.wait(60).described(state)
    assert end.asks(ONE) == "CancelWorkerRun"


def test_82_one_without_an_id_is_looked_for_twice_a_second_apart() -> None:
    end = Ending().begin(handle="")
    assert end.open() == do.Find(1, ONE)
    end.answer(said.Found, None).wait(0.9)
    assert not end.desk.open
    end.wait(0.1).answer(said.Found, "100")
    assert end.open() == do.Describe(3, ONE, "100")


def test_82_one_that_was_never_listed_is_gone() -> None:
    end = Ending().begin(handle="").answer(said.Found, None).wait(1.0).answer(said.Found, None)
    assert [(each.gone, each.handle) for each in end.ended] == [(True, "")]


def test_82_where_nobody_can_look_it_is_hopeless_at_once() -> None:
    end = Ending().begin(starter=BLIND, handle="").answer(said.Found, None)
    assert [(each.gone, each.stand) for each in end.ended] == [
        (False, Stand(StandKind.CANNOT_LOOK))
    ]


@pytest.mark.parametrize(("listed", "asks"), [("100", "CancelWorkerRun"), (None, "")])
def test_83_in_no_known_state_it_is_gone_only_if_it_is_not_listed_either(
    listed: str | None, asks: str
) -> None:
    end = Ending().begin().described(UNKNOWN)
    assert end.asks() == "Find"
    end.answer(said.Found, listed)
    assert [each.gone for each in end.ended] == ([] if listed else [True])
    assert (end.asks() if end.desk.open else "") == asks


def test_83_where_nobody_can_look_no_known_state_is_not_the_end() -> None:
    end = Ending().begin(starter=BLIND).described(UNKNOWN)
    assert end.asks() == "CancelWorkerRun"


@pytest.mark.parametrize("state", [SlotState.ENDED, SlotState.FAILED])
def test_84_one_that_is_over_is_not_told_and_its_own_end_is_kept(state: SlotState) -> None:
    end = Ending().begin().described(state, "CANCELLED")
    assert [(each.gone, each.over) for each in end.ended] == [
        (True, Description(state, "CANCELLED"))
    ]


def test_84_how_one_ended_that_was_told_to_says_nothing() -> None:
    end = Ending().begin().described(RUNNING).answer(said.RunTold).wait(0.2)
    assert end.described(SlotState.FAILED, "CANCELLED").ended[0].over is None


def test_85_it_is_given_up_after_its_time_with_how_it_stands() -> None:
    end = Ending().begin().described(RUNNING, "on n17").answer(said.RunTold)
    end.now += GRACE + 60.1
    end.wait(0).described(RUNNING, "on n17").answer(said.RunTold)  # once more
    (left,) = end.ended
    assert not left.gone
    assert left.stand == Stand(StandKind.STATE, RUNNING, "on n17")


def test_85_a_scheduler_that_does_not_answer_is_asked_again_and_its_words_are_kept() -> None:
    end = Ending().begin()
    for _ in range(5):
        end.answer(said.SchedulerSilent, "error 500").wait(1.0)
    assert end.ended == []
    end.now += GRACE + 60.1
    end.answer(said.SchedulerSilent, "error 500")
    assert end.ended[0].stand == Stand(StandKind.SILENT, detail="error 500")


def test_85_why_it_could_not_be_told_is_kept_though_it_is_known_to_run() -> None:
    end = Ending().begin().described(RUNNING)
    end.answer(said.SchedulerSilent, "you may not end this run").wait(0.2)
    end.now += GRACE + 60.1
    end.described(RUNNING).answer(said.SchedulerSilent, "you may not end this run")
    assert end.ended[0].stand == Stand(StandKind.SILENT, detail="you may not end this run")


def test_85_why_it_could_not_be_told_is_kept_though_it_was_seen_to_run_since() -> None:
    end = Ending().begin().described(RUNNING)
    end.answer(said.SchedulerSilent, "you may not end this run").hurry().wait(1.0)
    end.described(RUNNING).wait(8.0)  # the next command hangs
    assert end.ended[0].stand == Stand(StandKind.SILENT, detail="you may not end this run")


def test_85_one_that_was_told_in_the_end_and_runs_on_is_said_to_run() -> None:
    end = Ending().begin().described(RUNNING)
    end.answer(said.SchedulerSilent, "error 500").wait(0.2)
    end.described(RUNNING).answer(said.RunTold)
    end.now += GRACE + 60.1
    end.wait(0).described(RUNNING, "on n17").answer(said.RunTold)
    assert end.ended[0].stand == Stand(StandKind.STATE, RUNNING, "on n17")


def test_85_a_hurry_breaks_off_the_gentle_cancel_and_tells_it_without_a_grace() -> None:
    end = Ending().begin().described(RUNNING)
    gentle = end.open()
    end.desk.flush()
    end.hurry()
    assert end.desk.flush() == [
        do.BreakOff(gentle.id),  # type: ignore[union-attr]
        do.CancelWorkerRun(3, ONE, "100", 0.0),
    ]
    assert end.hurry().desk.flush() == []  # a second one changes nothing


def test_85_a_hurry_tells_again_what_was_told_gently() -> None:
    end = Ending().begin().described(RUNNING).answer(said.RunTold).hurry()
    end.described(RUNNING)
    assert end.open() == do.CancelWorkerRun(4, ONE, "100", 0.0)


def test_82_85_in_a_hurry_the_two_looks_are_a_second_apart_all_the_same() -> None:
    end = Ending().begin(handle="").answer(said.Found, None).wait(0.1).hurry()
    assert not end.desk.open  # it may be listed in a moment
    end.wait(0.9)
    assert not end.desk.open
    end.wait(0.1)
    assert end.answer(said.Found, "100").asks() == "Describe"


def test_85_in_a_hurry_nothing_is_waited_for_and_after_eight_seconds_it_is_given_up() -> None:
    end = Ending().hurry().begin(by_itself=60.0).described(RUNNING)
    assert end.open() == do.CancelWorkerRun(2, ONE, "100", 0.0)
    end.wait(7.9)
    assert end.ended == []
    end.wait(0.2)  # its command hangs
    assert [each.gone for each in end.ended] == [False]
    assert not end.desk.open


def test_86_commands_have_sixteen_places_and_what_is_done_here_needs_none() -> None:
    end = Ending()
    for number in range(20):
        end.begin(Key(number, 1))
    end.begin(Key(20, 1), HERE)
    assert len(end.desk.open) == 17
    end.described(SlotState.ENDED, key=Key(3, 1))
    assert end.asks(Key(16, 1)) == "Describe"


def test_81_a_child_that_takes_its_whole_grace_holds_up_no_other() -> None:
    end = Ending()
    for number in range(20):
        end.begin(Key(number, 1), HERE)
        end.described(RUNNING, key=Key(number, 1))
    end.begin(Key(30, 1))
    assert end.asks(Key(30, 1)) == "Describe"


def test_81_one_that_is_ended_already_has_its_whole_time_from_now_on() -> None:
    end = Ending().begin().described(RUNNING).answer(said.RunTold)
    end.now = 70.0
    end.ends.extend(ONE, end.now)
    end.wait(0).described(RUNNING).answer(said.RunTold)
    assert end.ended == []


def test_86_those_that_still_wait_for_their_turn_are_given_up_in_a_hurry_too() -> None:
    end = Ending()
    for number in range(20):
        end.begin(Key(number, 1))
    end.hurry().wait(8.1)
    assert len(end.ended) == 20
    assert (end.ends.commands, list(end.desk.open)) == (0, [])


# --- all of them


def test_79_what_is_ended_already_goes_on_as_it_is() -> None:
    drive = Drive.new().running(ONE)
    drive.status(slot(1), phase=Phase.RUNNING)  # released
    drive.end()
    assert [action.key for action in drive.all_open(do.Describe)] == [ONE]
    assert len(drive.machine.ends.ends) == 1


def test_79_a_submission_that_fails_is_not_waited_for_any_more() -> None:
    drive = Drive.new().submitting(ONE)
    drive.end()
    drive.submit_failed(ONE, certain=True)
    assert drive.machine.course.stage == "closing"


def test_79_d13_a_submission_under_way_is_waited_for_and_ended_by_its_id() -> None:
    drive = Drive.new().submitting(ONE)
    drive.end()
    assert drive.all_open(do.Find) == []
    assert drive.all_open(do.Describe) == []
    drive.submitted(ONE, "100")
    assert drive.open(do.Describe).handle == "100"


def test_79_after_ten_seconds_it_is_broken_off_and_looked_for() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.end()
    done = drive.wait(10.0)
    assert do.BreakOff(number) in done
    assert drive.open(do.Find).key == ONE


def test_79_in_a_hurry_it_is_broken_off_at_once() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.signal()
    assert do.BreakOff(number) in drive.signal()
    assert drive.open(do.Find).key == ONE


def test_d13_an_answer_that_comes_when_it_was_given_up_is_learnt_all_the_same() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.signal()
    drive.signal()
    drive.take(said.Submitted(number, ONE, "100"))
    drive.found(ONE, None)
    drive.wait(1.0)
    assert drive.machine.ends.ends[ONE].handle == "100"


def test_79_d13_nothing_begins_while_submissions_are_waited_for() -> None:
    drive = Drive.new().following()
    keys = [Key(number, 1) for number in range(1, 31)]
    drive.status(*(slot(key.slot, 0, 1) for key in keys))
    for key in keys:
        drive.answer(do.TellSlot, key)
    for action in drive.all_open(do.WriteIntent):
        drive.written(action.key)
    drive.end()
    for submission in drive.all_open(do.Submit):
        drive.submitted(submission.key, "7")
    assert len(drive.of(do.Submit)) == 16
    assert len(drive.machine.ends.ends) == 16


def test_80_all_that_runs_has_as_long_as_two_looks_to_end_by_itself() -> None:
    slow = Starter("slow", 20.0)
    drive = Drive.new(facts(others=slow)).ending(ONE)
    assert drive.machine.ends.ends[ONE].wait_until == drive.now + 40.0


def test_87_after_ten_seconds_it_is_said_once_what_is_waited_for() -> None:
    drive = Drive.new().ending(ONE, TWO)
    drive.described(ONE, SlotState.ENDED)
    drive.wait(30.0)
    assert drive.said() == [WaitsForRuns((2,))]


def test_88_what_is_left_is_said_when_all_have_ended() -> None:
    drive = Drive.new().submitting(ONE)
    drive.submit_failed(ONE)
    drive.signal()
    drive.signal()
    drive.found(ONE, None)
    drive.wait(8.1)
    assert drive.said()[-1] == MayBeLeft(ONE, "", Stand(StandKind.NOT_LISTED))
    assert drive.of(do.Note) == []  # a later launcher ends it
