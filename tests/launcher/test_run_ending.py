"""The end of a launch by value: signals, its worker runs told to end, the registry, the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.desk import Desk
from launcher.run.ending import Ended, Endings
from launcher.run.values import Key, Starter
from rendezvous.wire.run import NodeState, Phase, RunReport, SlotState
from tests.launcher.drive import (
    LOCAL,
    NOISE,
    SLURM,
    Drive,
    Steps,
    facts,
    over,
    result,
    slot,
    status,
)

ONE, TWO = Key(1, 1), Key(2, 1)
RUNNING, ENDED = SlotState.RUNNING, SlotState.ENDED
BLIND = Starter("vessl", 1.0, finds=False)
NO_ID, BY_ITSELF = {"handle": ""}, {"by_itself": 60.0}


@dataclass
class Alone:
    """Endings as a machine of their own, which also hands out what has come of them."""

    desk: Desk = field(default_factory=Desk)

    def __post_init__(self) -> None:
        self.ends = Endings(self.desk, 10.0)
        self.due = self.desk.due

    def step(self, what: said.Input, now: float) -> list[Any]:
        if isinstance(what, said.Answer) and (opened := self.desk.close(what.id)):
            self.ends.take(opened[0][1], what, now)
        while (name := self.desk.next_due(now)) is not None:
            assert isinstance(name, tuple)
            self.ends.look(name[1])
        ended, self.ends.ended = self.ends.ended, []
        return self.desk.flush() + list[Any](ended)


def ending(
    *keys: Key, starter: Starter = SLURM, handle: str = "100", by_itself: float = 0.0
) -> Drive:
    drive = Drive(Alone())
    for key in keys or [ONE]:
        drive.machine.ends.begin(key, starter, handle, drive.now, by_itself=by_itself)
    return drive


def hurry(drive: Drive, _: object = None) -> list[Any]:
    drive.machine.ends.hurry(drive.now)
    return drive.take(said.Due())


def too_late(drive: Drive, _: object) -> list[Any]:
    """Nothing was done until then: its grace, what the agent needs beyond, and the limit."""
    drive.now += 12.0 + 60.1
    return drive.take(said.Due())


ASKED = (do.Find, do.Describe, do.CancelWorkerRun)
ALONE: Steps = {
    "nameless": lambda drive, key: drive.found(key, ""),
    "silent": lambda drive, _: drive.scheduler_silent(ASKED, "you may not"),
    "troubled": lambda drive, _: drive.scheduler_silent(ASKED, "error 500"),
    "hurry": hurry,
    "late": too_late,
}
CANCEL, AT_100 = "cancel worker run 100 12.0", "cancel worker run 100 0.0"
HANGS = "break off CancelWorkerRun; left"


@pytest.mark.parametrize(
    ("of", "script", "then"),
    [
        # 81: described, told once with the grace, believed when it is over
        ({}, "", "describe 100"),
        ({}, "running", CANCEL),
        ({}, "running told 0.2", "0.2: describe 100"),
        ({}, "running told 0.2 running", ""),
        ({}, "running told 0.2 running 0.4 ended", "gone 100"),
        # 80: one that may run may end by itself, and one that is queued is told at once
        (BY_ITSELF, "running 0.2", "0.2: describe 100"),
        (BY_ITSELF | {"starter": BLIND}, "unknown 0.2", "0.2: describe 100"),
        (BY_ITSELF, "queued", CANCEL),
        (BY_ITSELF, "running 0.2 60 running", CANCEL),
        (BY_ITSELF, "running 0.2 60 running told 1 running", ""),
        # 82: without an id it is looked for twice, a second apart, where somebody can look
        (NO_ID, "", "find"),
        (NO_ID, "missed 1.0", "1: find"),
        (NO_ID, "missed 1.0 found", "describe 101"),
        (NO_ID, "missed 1.0 missed", "gone"),
        (NO_ID | {"starter": BLIND}, "missed", "left cannot_look unknown"),
        # 83: in no known state it is gone only if it is not listed either
        ({}, "unknown", "find"),
        ({}, "unknown found", "cancel worker run 101 12.0"),
        ({}, "unknown nameless", CANCEL),
        ({}, "unknown missed", "gone 100 ended"),
        ({"starter": BLIND}, "unknown", CANCEL),
        # 84: its own end is kept, unless it was told to
        ({}, "ended", "gone 100 ended"),
        ({}, "failed", "gone 100 failed"),
        ({}, "running told 0.2 failed", "gone 100"),
        # 85: it is given up after its time, with how it stands, or why it could not be told
        ({}, "running told 71 running told", ""),
        ({}, "running told late running:n17 told", "left state running n17"),
        ({}, "troubled" + " 1 troubled" * 4 + " 1", "1: describe 100"),
        ({}, "troubled 1 late troubled", "left silent unknown error 500"),
        ({}, "running silent 0.2 late running silent", "left silent unknown you may not"),
        ({}, "running silent hurry 1 running 8", f"7: {HANGS} silent unknown you may not"),
        ({}, "running troubled 0.2 running told late running:n17 told", "left state running n17"),
        # 85: in a hurry it is told without a grace, and again; but two looks stay a second apart
        ({}, "running hurry", f"break off CancelWorkerRun; {AT_100}"),
        ({}, "running hurry hurry", ""),
        ({}, "running told hurry running", AT_100),
        ({}, "running told hurry running told 1 running", ""),  # it has heard of the hurry
        (NO_ID, "missed 0.1 hurry 1", "1: find"),
        (NO_ID, "missed 0.1 hurry 1.0 found", "describe 101"),
        ({}, "running:n17 hurry 8.1", f"8: {HANGS} state running n17"),
    ],
)
def test_80_to_85_how_the_end_of_a_worker_run_stands(
    of: dict[str, Any], script: str, then: str
) -> None:
    drive = ending(**of)
    assert drive.play(f"begin {script}", ALONE) == then
    assert drive.machine.ends.ends or drive.machine.desk.open == {}


def test_81_it_is_asked_ever_more_rarely_and_told_again_20_s_after_its_grace() -> None:
    """A node that has its grace would take being told again for a hurry."""
    drive, pauses = ending(), []
    drive.play("begin running told", ALONE)
    while not drive.all_open(do.CancelWorkerRun):
        before, due = drive.now, drive.machine.due()
        drive.wait(due - before)
        drive.described(ONE, RUNNING)
        pauses.append(round(drive.now - before, 1))
    assert pauses[:5] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert 30.0 < drive.now < 32.0


def test_85_what_begins_to_end_in_a_hurry_is_told_at_once() -> None:
    drive = ending()
    drive.play("begin running hurry", ALONE)
    drive.machine.ends.begin(TWO, SLURM, "100", drive.now, by_itself=60.0)
    drive.take(said.Due())
    assert drive.described(TWO, RUNNING) == [do.CancelWorkerRun(drive.id(ASKED), TWO, "100", 0.0)]


def test_86_commands_have_sixteen_places_and_what_is_done_here_needs_none() -> None:
    drive = ending(*(Key(number, 1) for number in range(20))).begin()
    for number in range(20, 40):  # a child that takes its whole grace holds up no other
        key = Key(number, 1)
        drive.machine.ends.begin(key, LOCAL, "100", drive.now)
        drive.take(said.Due())
        drive.described(key, RUNNING)
    assert len(drive.all_open(object)) == 36
    drive.described(Key(3, 1), ENDED)
    assert drive.open(do.Describe).key == Key(16, 1)
    hurry(drive)
    drive.wait(8.1)  # and those that still wait for their turn are given up too
    assert len(drive.of(Ended)) == 40
    assert (drive.machine.ends.commands, drive.all_open(object)) == (0, [])


def test_81_one_that_is_ended_already_has_its_whole_time_from_now_on() -> None:
    drive = ending()
    drive.play("begin running told", ALONE)
    drive.now = 70.0
    drive.machine.ends.extend(ONE, drive.now)
    drive.take(said.Due())
    assert drive.play("running told", ALONE) == ""


# --- the launch


def sent(drive: Drive) -> int:
    """The id of the submission, which may have been given up."""
    return drive.of(do.Submit)[-1].id


LAUNCH: Steps = {
    "cancelled-over": lambda drive, _: drive.cancelled(over()),
    "cancelled-soon": lambda drive, _: drive.cancelled(status(phase=Phase.RUNNING)),
    "cancelled-left": lambda drive, _: drive.cancelled(status(everyone_left=True)),
    "submit-fails": lambda drive, _: drive.fails(do.Submit),
    "find-fails": lambda drive, _: drive.fails(do.Find),
    "node-lost": lambda drive, _: drive.end(result=result("node_lost", 86, slot=1)),
    "killed": lambda drive, _: drive.end(result=result("program_failed", 129, slot=1)),
    "ends-128": lambda drive, _: drive.end(result=result("program_failed", 128, slot=1)),
    "cancelled-by-rdzv": lambda drive, _: drive.end(result=result("cancelled", 84, slot=1)),
    "known-preempted": lambda drive, _: drive.end(result=result("preempted", 88, slot=1)),
    "other-job": lambda drive, _: drive.end(result=result("mismatch", 77, slot=1)),
    "other-failed": lambda drive, _: drive.end(result=result("program_failed", 1, slot=2)),
    "other-failed-lost": lambda drive, _: drive.end(
        slot(1, its=NodeState.LOST), result=result("program_failed", 1, slot=2)
    ),
    "wants": lambda drive, _: drive.status(slot(2, 0, 1)),
    "released": lambda drive, _: drive.status(slot(1), phase=Phase.RUNNING),
    "over-here": lambda drive, _: drive.came(over(slot(1, its=NodeState.RUNNING), left=False)),
    "stray": lambda drive, _: drive.take(said.Done(999)) + drive.take(said.PartFailed(999, "?")),
    "busy": lambda drive, key: drive.take(said.SubmitTroubled(sent(drive), key, "error 500")),
    "submitted": lambda drive, key: drive.take(said.Submitted(sent(drive), key, "101")),
    "refused": lambda drive, key: drive.submit_failed(key, certain=True),
    "unclear": lambda drive, key: drive.submit_failed(key, "error 500"),
    "advised": lambda drive, key: drive.submit_failed(key, "no", certain=True, hint="by hand"),
    "not-submitted": lambda drive, _: drive.end(result=result("scheduler_failed", 83, slot=1)),
    "written": lambda drive, _: drive.answer(do.WriteResult),
    "unwritten": lambda drive, _: drive.take(said.NotWritten(drive.id(do.WriteResult), "full")),
}
UNHEARD = "signal" + " uncancelled 0.5" * 20 + " uncancelled"
DOWN, GIVEN_UP = "close board; write result", "break off Submit; find"
FAILED = f"{DOWN} program_failed"
HURRIED = "break off CancelWorkerRun; cancel worker run 101 0.0"
ENDED_AT_ONCE = "close board; write result EndedAtOnce"
AT_ONCE = "say EndsAtOnce 15"
GONE, PREEMPTED = "missed 1 missed closed", "1 failed:PREEMPTED"
BY_SLURM, TOLD = "Preempted 1 slurm P", "Preempted 1 slurm"
LOST = "1: find; 8: break off Find; say MayBeLeft not_listed; close child"


@pytest.mark.parametrize(
    ("start", "script", "then"),
    [
        # 91: a signal cancels at the registry, which tells the nodes, and nothing more is submitted
        ("following", "signal", "say EndsRun 15 10.0; cancel run BySignal"),
        ("following", "signal wants", ""),
        # 91: a run whose verdict is waited for is cancelled again
        ("following", "signal cancelled-soon 1", "1: cancel run BySignal"),
        ("following", "signal cancelled-over 1", ""),
        # 91: for ten seconds, and then everything ends at once
        ("running", "signal uncancelled 0.1", "0.1: cancel run BySignal"),
        ("running", "signal" + " uncancelled 0.5" * 20, "0.1: cancel run BySignal"),
        ("running", UNHEARD, "break off Describe; describe 101"),
        ("running", f"{UNHEARD} running", "cancel worker run 101 0.0"),
        ("running", f"{UNHEARD} ended closed", "close board; write result EndedAtOnce 10.0"),
        # 91: a run that is over needs no answer to its cancel
        ("running", "signal over-here", "break off CancelRun"),
        ("following", "signal over-here 1", ""),
        ("following", "signal uncancelled over-here 1", ""),
        # 92: a second signal ends everything at once
        ("submitting", "signal signal", f"{AT_ONCE} True; break off CancelRun; {GIVEN_UP}"),
        ("submitting", "signal signal missed 1 missed closed", ENDED_AT_ONCE),
        ("submitting", "signal signal missed 1 missed closed written", "end 15"),
        # 92: but a terminal that closes is told by its kernel and by its shell
        ("submitting", "hang-up hang-up", ""),
        ("submitting", "signal hang-up", ""),
        ("submitting", "hang-up signal", "say EndsRun 15 10.0"),
        ("submitting", "hang-up signal signal", f"{AT_ONCE} True; break off CancelRun; {GIVEN_UP}"),
        ("ending", "running 3 running hang-up", ""),
        # 92: a first signal while runs are ended hurries, and is not the launch's end
        ("ending", "running 3 running signal", f"{AT_ONCE} False; {HURRIED}"),
        ("ending", "running signal 1 ended closed", FAILED),
        ("ending", "running signal 1 ended closed written", "end"),
        # 36, 89: runs, then registry, which is not started again, then board, then result
        ("ending", "dies", ""),
        ("ending", "ended", "note 101 gone; close child"),
        ("ending", "ended closed", FAILED),
        ("ending", "ended closed written", "end"),
        ("ending", "ended closed written signal", ""),
        ("ending", "ended closed unwritten", "say ResultUnwritten full; end"),  # 94
        # 79: what is ended already goes on as it is; a submission is waited for, for ten seconds
        ("running", "released end", ""),
        ("running", "released 70 end 6 running told", ""),  # it has its whole time from now on
        ("submitting", "end", ""),
        ("submitting", "end 10", "10: break off Submit; find"),
        ("submitting", "end submitted", "note 101; describe 101"),
        ("submitting", "end refused", "note gone; close child"),
        # D13: an answer that comes when it was given up is learnt all the same; another is dropped
        ("submitting", "signal signal submitted missed 1", "1: describe 101"),
        ("submitting", "signal signal busy", ""),
        ("following", "stray", ""),
        # 53: a submission that fails as nobody expected may have been made all the same
        ("submitting", "submit-fails", "cancel run ByFailure"),
        ("submitting", "submit-fails cancelled-left", "find"),
        ("submitting", f"submit-fails cancelled-left {GONE}", "close board; end fault Submit"),
        ("submitting", "end submit-fails", "find"),
        ("submitting", "end submit-fails find-fails", ""),
        ("submitting", "end submit-fails find-fails 1", "0.2: find"),  # an adapter is asked again
        # what a signal or a silence leaves open its scheduler may know
        ("running", f"{PREEMPTED} node-lost closed", f"{DOWN} node_lost PREEMPTED"),
        ("running", "1 ended:0 node-lost closed", f"{DOWN} node_lost"),
        ("running", "released 3.2 running told 0.2 failed:9 node-lost closed", f"{DOWN} node_lost"),
        ("running", "released failed:9 node-lost closed", f"{DOWN} node_lost 9"),
        ("following", "node-lost closed", f"{DOWN} node_lost"),
        ("running", f"{PREEMPTED} killed closed", f"{FAILED} PREEMPTED"),
        ("running", f"{PREEMPTED} ends-128 closed", FAILED),
        ("running", f"{PREEMPTED} cancelled-by-rdzv closed", f"{DOWN} cancelled"),
        # a preemption is the cause, also of what was told to end, or said it before it ended
        ("running", "1 failed!:P node-lost closed", f"{DOWN} node_lost {BY_SLURM}"),
        ("running", "1 failed!:P killed closed", f"{FAILED} {BY_SLURM}"),
        ("running", "1 failed!:P known-preempted closed", f"{DOWN} preempted P"),
        ("running", "1 running!:P heard 1 failed:9 killed closed", f"{FAILED} {BY_SLURM}"),
        ("running", "released 3.2 running! told 0.2 failed:9 killed closed", f"{FAILED} {TOLD}"),
        ("running", "1 failed!:P cancelled-by-rdzv closed", f"{DOWN} cancelled"),
        ("running", "1 failed!:P other-job closed", f"{DOWN} mismatch"),
        ("running", "1 failed!:P other-failed closed", f"{DOWN} program_failed"),
        ("running", "1 failed!:P other-failed-lost closed", f"{DOWN} program_failed {BY_SLURM}"),
        # what to do about a submission comes with the result that it leads to
        ("submitting", "advised not-submitted closed", f"{DOWN} scheduler_failed by hand"),
        ("submitting", "advised node-lost closed", f"{DOWN} node_lost"),
        ("following", "not-submitted closed", f"{DOWN} scheduler_failed"),
        # 87: after ten seconds it is said once what is waited for
        ("ending", "10", "10: say WaitsForRuns (1,)"),
        ("ending", "10 20", ""),
        # 88: what is left is said when all have ended; a later launcher ends it
        ("submitting", "unclear signal signal missed 8.1", LOST),
    ],
)
def test_36_to_94_how_a_launch_ends(start: str, script: str, then: str) -> None:
    drive: Drive = getattr(Drive.new(), start)(*[ONE] * (start != "following"))
    quiet = (*NOISE, do.AskStatus, do.FollowEvents)
    assert drive.play(script, LAUNCH, quiet) == then
    if drive.machine.course.stage == "over":
        assert drive.all_open(object) == drive.all_open(do.StartChild)


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


def test_what_is_fetched_last_is_broken_off_where_everything_ends_at_once() -> None:
    drive = Drive.new().running(ONE)
    drive.status(slot(1, 1, 1), digest="d", epoch=1, phase=Phase.RUNNING)
    drive.take(said.ReportCame(drive.id(do.Keep), RunReport(run="r")))
    failed = result("program_failed", 3)
    drive.came(over(slot(1, 1, 1), result=failed, digest="d", epoch=1))
    fetches = (do.RunFeatures, do.FetchWords)
    last = [one.id for one in drive.all_open(fetches)]
    assert len(last) == 2
    drive.signal()
    done = drive.signal(2)
    assert [one for one in done if isinstance(one, do.BreakOff) and one.id in last] == [
        do.BreakOff(number) for number in last
    ]
    assert drive.all_open(fetches) == []


def test_what_its_scheduler_said_before_it_was_told_to_end_is_not_forgotten() -> None:
    """One that goes on after all is told to end, and then nothing more is said of how it ended."""
    drive = Drive.new().running(ONE)
    there = slot(1, 1, 1, its=NodeState.RUNNING, node=0)
    drive.status(there, phase=Phase.RUNNING)
    drive.wait(1.0)
    drive.described(ONE, SlotState.FAILED, "NODE_FAIL")
    lost = result("node_lost", 82, slot=1)
    drive.end(slot(1, 1, 1, its=NodeState.LOST), result=lost)
    drive.wait(10.0)
    drive.described(ONE, SlotState.RUNNING)
    drive.take(said.RunTold(drive.id(do.CancelWorkerRun)))
    drive.wait(1.0)
    drive.described(ONE, SlotState.ENDED)
    drive.answer(do.CloseChild)
    assert drive.open(do.WriteResult).verdict.says == "NODE_FAIL"
