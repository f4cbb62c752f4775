"""The end of a launch by value: signals, its worker runs told to end, the registry, the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import BySignal
from launcher.run.desk import Desk
from launcher.run.ending import Ended, Endings
from launcher.run.sentences import (
    EndsAtOnce,
    EndsRun,
    MayBeLeft,
    ResultUnwritten,
    Stand,
    StandKind,
    WaitsForRuns,
)
from launcher.run.values import EndedAtOnce, Key, Starter, Verdict
from launcher.schedulers.description import Description
from rendezvous.wire.run import NodeState, Phase, SlotState
from tests.launcher.drive import (
    LOCAL,
    SILENT,
    SLURM,
    Drive,
    facts,
    kinds,
    over,
    result,
    slot,
    status,
)

ONE, TWO = Key(1, 1), Key(2, 1)
RUNNING, ENDED = SlotState.RUNNING, SlotState.ENDED
BLIND = Starter("vessl", 1.0, finds=False)
NO_ID, BY_ITSELF = {"handle": ""}, {"by_itself": 60.0}
LATE = 12.0 + 60.1  # ten of the run's grace, what the agent needs beyond, and the limit
ANSWERS: dict[str, tuple[type[said.SchedulerAnswer], object]] = {
    "listed": (said.Found, "100"),
    "missed": (said.Found, None),
    "silent": (said.SchedulerSilent, "you may not"),
    "troubled": (said.SchedulerSilent, "error 500"),
}


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

    def open(self, key: Key = ONE) -> Any:
        """What its scheduler is asked or told just now."""
        return next((action for (_, k), action in self.desk.open.values() if k == key), None)

    def asks(self, key: Key = ONE) -> str:
        """The same in words: with id and grace."""
        action = self.open(key)
        more = (getattr(action, name, "") for name in ("handle", "grace"))
        return " ".join([type(action).__name__, *map(str, more)]).strip() if action else ""

    def answer(self, what: type[said.SchedulerAnswer], *values: object, key: Key = ONE) -> Ending:
        action = self.open(key)
        self.desk.close(action.id)
        self.ends.take(key, what(action.id, *values), self.now)  # type: ignore[arg-type]
        return self._drain()

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

    def play(self, script: str) -> Ending:
        """Answers, waits in seconds, 'hurry', and 'late': nothing was done until it is too late."""
        for word in script.split():
            if word == "told":
                self.answer(said.RunTold)
            elif word in ANSWERS:
                self.answer(*ANSWERS[word])
            elif word == "hurry":
                self.ends.hurry(self.now)
            elif word == "late":
                self.now += LATE
                self.wait(0.0)
            elif word[0].isdigit():
                self.wait(float(word))
            else:
                self.described(SlotState(word), "n17")
        return self

    def stands(self) -> str:
        """What is asked, or what has come of it."""
        if not self.ended:
            return self.asks()
        (one,) = self.ended
        if one.gone:
            return f"gone {one.handle} {one.over.state if one.over else ''}".strip()
        return f"left: {one.stand.how} {one.stand.state} {one.stand.detail}".strip()

    def _drain(self) -> Ending:
        self.ended += self.ends.ended
        self.ends.ended.clear()
        return self


@pytest.mark.parametrize(
    ("begin", "script", "then"),
    [
        # 81: described, told once with the grace, believed when it is over
        ({}, "", "Describe 100"),
        ({}, "running", "CancelWorkerRun 100 12.0"),
        ({}, "running told 0.1", ""),
        ({}, "running told 0.2", "Describe 100"),
        ({}, "running told 0.2 running", ""),
        ({}, "running told 0.2 running 0.4 ended", "gone 100"),
        # 80: one that may run may end by itself, and one that is queued is told at once
        (BY_ITSELF, "running 0.2", "Describe 100"),
        (BY_ITSELF | {"starter": BLIND}, "unknown 0.2", "Describe 100"),
        (BY_ITSELF, "queued", "CancelWorkerRun 100 12.0"),
        (BY_ITSELF, "running 0.2 60 running", "CancelWorkerRun 100 12.0"),
        # 82: without an id it is looked for twice, a second apart, where somebody can look
        (NO_ID, "", "Find"),
        (NO_ID, "missed 0.9", ""),
        (NO_ID, "missed 1.0", "Find"),
        (NO_ID, "missed 1.0 listed", "Describe 100"),
        (NO_ID, "missed 1.0 missed", "gone"),
        (NO_ID | {"starter": BLIND}, "missed", "left: cannot_look unknown"),
        # 83: in no known state it is gone only if it is not listed either
        ({}, "unknown", "Find"),
        ({}, "unknown listed", "CancelWorkerRun 100 12.0"),
        ({}, "unknown missed", "gone 100 ended"),
        ({"starter": BLIND}, "unknown", "CancelWorkerRun 100 12.0"),
        # 84: its own end is kept, unless it was told to
        ({}, "ended", "gone 100 ended"),
        ({}, "failed", "gone 100 failed"),
        ({}, "running told 0.2 failed", "gone 100"),
        # 85: it is given up after its time, with how it stands, or why it could not be told
        ({}, "running told late running told", "left: state running n17"),
        ({}, "troubled 1 troubled 1 troubled 1 troubled 1 troubled 1", "Describe 100"),
        ({}, "troubled 1 late troubled", "left: silent unknown error 500"),
        ({}, "running silent 0.2 late running silent", "left: silent unknown you may not"),
        ({}, "running silent hurry 1 running 8", "left: silent unknown you may not"),  # it hangs
        ({}, "running troubled 0.2 running told late running told", "left: state running n17"),
        # 85: in a hurry it is told without a grace, and again; but two looks stay a second apart
        ({}, "running hurry", "CancelWorkerRun 100 0.0"),
        ({}, "running told hurry running", "CancelWorkerRun 100 0.0"),
        (NO_ID, "missed 0.1 hurry 0.9", ""),
        (NO_ID, "missed 0.1 hurry 1.0 listed", "Describe 100"),
        ({}, "running hurry 7.9", "CancelWorkerRun 100 0.0"),
        ({}, "running hurry 8.1", "left: state running n17"),
    ],
)
def test_80_to_85_how_the_end_of_a_worker_run_stands(
    begin: dict[str, Any], script: str, then: str
) -> None:
    end = Ending().begin(**begin).play(script)
    assert end.stands() == then
    assert not end.ended or end.desk.open == {}


def test_81_it_is_asked_ever_more_rarely_and_told_again_after_twenty_seconds() -> None:
    end, pauses = Ending().begin().play("running told"), []
    while not end.desk.open:
        before, due = end.now, end.desk.due()
        assert due is not None
        end.wait(due - before).described(RUNNING)
        pauses.append(round(end.now - before, 1))
    assert pauses[:5] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert 20.0 < end.now < 22.0
    assert end.asks() == "CancelWorkerRun 100 12.0"


def test_85_a_hurry_breaks_off_the_gentle_cancel_once_and_waits_for_nothing_that_comes_later() -> (
    None
):
    end = Ending().begin().play("running")
    gentle = end.open()
    end.desk.flush()
    end.play("hurry")
    cancel = do.CancelWorkerRun(gentle.id + 1, ONE, "100", 0.0)
    assert end.desk.flush() == [do.BreakOff(gentle.id), cancel]
    assert end.play("hurry").desk.flush() == []
    end.begin(TWO, by_itself=60.0).described(RUNNING, key=TWO)
    assert end.asks(TWO) == "CancelWorkerRun 100 0.0"


def test_86_commands_have_sixteen_places_and_what_is_done_here_needs_none() -> None:
    end = Ending()
    for number in range(20):
        end.begin(Key(number, 1))
    for number in range(20, 40):  # a child that takes its whole grace holds up no other
        end.begin(Key(number, 1), LOCAL).described(RUNNING, key=Key(number, 1))
    assert len(end.desk.open) == 36
    end.described(ENDED, key=Key(3, 1))
    assert end.asks(Key(16, 1)) == "Describe 100"
    end.play("hurry 8.1")  # and those that still wait for their turn are given up too
    assert len(end.ended) == 40
    assert (end.ends.commands, list(end.desk.open)) == (0, [])


def test_81_one_that_is_ended_already_has_its_whole_time_from_now_on() -> None:
    end = Ending().begin().play("running told")
    end.now = 70.0
    end.ends.extend(ONE, end.now)
    assert end.wait(0).play("running told").ended == []


# --- all of them


def test_79_what_is_ended_already_goes_on_as_it_is() -> None:
    drive = Drive.new().running(ONE)
    drive.status(slot(1), phase=Phase.RUNNING)  # released
    drive.end()
    assert [action.key for action in drive.all_open(do.Describe)] == [ONE]
    assert len(drive.machine.ends.ends) == 1


def test_79_d13_a_submission_under_way_is_waited_for_ten_seconds() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.id(do.Submit)
    drive.end()
    assert drive.all_open(do.Find) == [] == drive.all_open(do.Describe)
    assert do.BreakOff(number) in drive.wait(10.0)
    assert drive.open(do.Find).key == ONE
    drive = Drive.new().submitting(ONE)
    drive.end()
    drive.submitted(ONE, "100")  # its answer has the id by which it is ended
    assert drive.open(do.Describe).handle == "100"
    drive = Drive.new().submitting(ONE)
    drive.end()
    drive.submit_failed(ONE, certain=True)
    assert drive.stage == "closing"


def test_d13_an_answer_that_comes_when_it_was_given_up_is_learnt_all_the_same() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.id(do.Submit)
    drive.signal()
    drive.signal()
    assert drive.take(said.SubmitTroubled(number, ONE, "error 500")) == []
    assert drive.take(said.Done(999)) == []  # nobody waits for that
    drive.take(said.Submitted(number, ONE, "100"))
    drive.found(ONE, None)
    drive.wait(1.0)
    assert drive.machine.ends.ends[ONE].handle == "100"


def test_79_d13_nothing_begins_while_submissions_are_waited_for() -> None:
    drive = Drive.new().submitting(*(Key(number, 1) for number in range(1, 31)))
    drive.end()
    for submission in drive.all_open(do.Submit):
        drive.submitted(submission.key, "7")
    assert len(drive.of(do.Submit)) == 16
    assert len(drive.machine.ends.ends) == 16


def test_80_all_that_runs_has_as_long_as_two_looks_to_end_by_itself() -> None:
    drive = Drive.new(facts(others=Starter("slow", 20.0))).ending(ONE)
    assert drive.machine.ends.ends[ONE].wait_until == drive.now + 40.0


def test_87_after_ten_seconds_it_is_said_once_what_is_waited_for() -> None:
    drive = Drive.new().ending(ONE, TWO)
    drive.described(ONE, ENDED)
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


# --- signals


def test_91_a_signal_cancels_at_the_registry_which_tells_the_nodes() -> None:
    drive = Drive.new().following()
    done = drive.signal(15)
    assert done == [do.Say(EndsRun(15)), do.CancelRun(drive.id(do.CancelRun), BySignal(15))]
    drive.status(slot(1, 0, 1))
    assert drive.of(do.TellSlot) == []
    for found, again in ((status(phase=Phase.RUNNING), True), (over(), False)):
        drive.cancelled(found)  # a run whose verdict is waited for is cancelled again
        assert drive.all_open(do.CancelRun) == []
        drive.wait(1.0)
        assert bool(drive.all_open(do.CancelRun)) is again


def test_91_for_ten_seconds_and_then_everything_ends_at_once() -> None:
    drive = Drive.new().running(ONE)
    drive.signal()
    drive.unanswered(do.CancelRun, 0.1)
    assert 10.0 <= drive.now < 10.3
    drive.described(ONE, RUNNING)
    assert drive.open(do.CancelWorkerRun).grace == 0.0
    drive.told(ONE)
    drive.wait(0.2)
    drive.described(ONE, ENDED)
    assert drive.verdict() == Verdict(failure=EndedAtOnce(10.0))


@pytest.mark.parametrize("waits", [True, False])
def test_91_a_run_that_is_over_needs_no_answer_to_its_cancel(waits: bool) -> None:
    drive = Drive.new().running(ONE)
    drive.signal()
    if waits:
        drive.refuse(do.CancelRun, SILENT)
    drive.came(over(slot(1, node=NodeState.RUNNING), left=False))
    assert drive.all_open(do.CancelRun) == []
    drive.wait(1.0)
    assert drive.all_open(do.CancelRun) == []


def test_92_a_second_signal_ends_everything_at_once() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.id(do.Submit)
    drive.signal(2)
    done = drive.signal(15)
    assert done[0] == do.Say(EndsAtOnce(15, again=True))
    assert do.BreakOff(number) in done
    for _ in range(2):
        drive.found(ONE, None)
        drive.wait(1.0)
    assert drive.verdict() == Verdict(failure=EndedAtOnce())
    assert drive.outcome().signal == 2


def test_92_a_first_signal_while_runs_are_ended_hurries_and_is_not_the_launchs_end() -> None:
    drive = Drive.new().ending(ONE)
    drive.described(ONE, RUNNING)
    assert drive.signal()[0] == do.Say(EndsAtOnce(15, again=False))
    drive.wait(1.0)
    drive.described(ONE, ENDED)
    assert (drive.outcome().signal, drive.verdict()) == (None, Verdict(result()))


# --- the end


def test_36_89_runs_then_registry_then_board_then_result() -> None:
    drive = Drive.new().ending(ONE)
    drive.child_ends(1, 1.0)
    assert len(drive.of(do.StartChild)) == 1  # it is not started again
    drive.described(ONE, ENDED)
    assert kinds(drive.last) == ["Note", "CloseChild"]
    assert kinds(drive.answer(do.CloseChild)) == ["CloseBoard", "WriteResult"]
    assert kinds(drive.answer(do.WriteResult)) == ["End"]
    assert drive.take(said.Due()) == [] == drive.wait(600)
    assert drive.machine.desk.open == {}


def test_94_a_result_that_cannot_be_written_is_said() -> None:
    drive = Drive.new().following()
    drive.end()
    drive.answer(do.CloseChild)
    drive.take(said.NotWritten(drive.id(do.WriteResult), "no room"))
    assert drive.said() == [ResultUnwritten("no room")]
    assert drive.verdict() == Verdict(result())


CANCELLED = result("cancelled", 84, status="cancelled")


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        (result("node_lost", 86, slot=1), "PREEMPTED"),
        (result("program_failed", 143, slot=1), "PREEMPTED"),
        (result("program_failed", 3, slot=1), ""),
        (CANCELLED, ""),  # by `rdzv cancel`: as any other
    ],
)
def test_what_a_signal_or_a_silence_leaves_open_its_scheduler_may_know(
    ended: Any, says: str
) -> None:
    drive = Drive.new().running(ONE)
    drive.wait(1.0)
    drive.described(ONE, SlotState.FAILED, "PREEMPTED")
    drive.end(slot(1), result=ended)
    assert drive.verdict() == Verdict(ended, says=says)
    assert (drive.outcome().signal, drive.of(do.CancelRun), drive.said()) == (None, [], [])
