"""The end of a launch: signals, its worker runs told to end, the registry, the result."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from launcher.cleanup.endings import Endings, Tracked
from launcher.plan.plan import WorkerRun
from rendezvous.wire.errors import StorageFull
from rendezvous.wire.run import NodeState, Phase, Result, RunReport, SlotState
from tests.launcher.drive import (
    FOREIGN,
    QUIET,
    SILENT,
    Drive,
    Steps,
    over,
    result,
    slot,
    status,
)
from tests.launcher.outer import LOCAL, ONE, SLURM, Key, Starter, Told, facts

TWO = Key(2, 1)
RUNNING, ENDED = SlotState.RUNNING, SlotState.ENDED
BLIND = Starter("vessl", 1.0, finds=False)


class Alone(Drive):
    """The ends of worker runs without their launch; what comes of each is told."""

    def __init__(self, *keys: Key, starter: Starter = SLURM, **more: Any) -> None:
        super().__init__(facts(others=starter), None, ())
        self.ends = Endings(10.0)
        for key in keys or [ONE]:
            self.end_of(key, starter, **more)

    def end_of(
        self, key: Key, starter: Starter, handle: str = "100", by_itself: float = 0.0
    ) -> list[Told]:
        """One begins to end; returns what is done at first."""
        work = WorkerRun(*key, f"rdzv-x-{key.slot}-{key.generation}", {}, "spec")
        run = Tracked(work, self._schedulers[starter.name], starter.name, handle)
        self.loop.create_task(self._until_ended(run, key, by_itself))
        return self.turn()

    async def _until_ended(self, run: Tracked, key: Key, by_itself: float) -> None:
        self.ends.begin(run, by_itself=by_itself)
        await self.ends.until_ended(run)
        over = run.over.state if run.over else ""
        self.tell(*(("gone", key, run.handle, over) if run.gone else ("left", key, run.last_known)))

    def hurry(self) -> None:
        """They end at once."""
        self.loop.call_soon(self.ends.hurry)
        self.turn()


ASKED = ("find", "describe", "cancel worker run")
ALONE: Steps = {
    "nameless": lambda drive, key: drive.found(key, ""),
    "silent": lambda drive, _: drive.scheduler_silent(ASKED, "you may not"),
    "troubled": lambda drive, _: drive.scheduler_silent(ASKED, "error 500"),
    "hurry": lambda drive, _: drive.hurry(),  # type: ignore[attr-defined]
}
CANCEL, AT_100 = "cancel worker run 100 12.0", "cancel worker run 100 0.0"
HANGS = "break off cancel worker run; left"
SLOW = {"starter": Starter("slow", 20.0)}
EVER_LONGER = "running told 0.2 running 0.4 running 0.8 running 1.6 running"
NO_ID, BY_ITSELF = {"handle": ""}, {"by_itself": 60.0}
UNSEEN = "left the scheduler did not answer its submission and cannot look it up"


@pytest.mark.parametrize(
    ("of", "script", "then"),
    [
        # 81: described, told once with the grace, believed when it is over
        ({}, "ended", "gone 100 ended"),
        ({}, "running", CANCEL),
        ({}, "running told 0.2", "0.2: describe 100"),
        ({}, "running told 0.2 running", ""),
        ({}, "running told 0.2 running 0.4 ended", "gone 100"),
        (SLOW, f"{EVER_LONGER} 3.3", "3.2: describe 100"),
        (SLOW, f"{EVER_LONGER} 3.2 running 4.9", ""),
        (SLOW, f"{EVER_LONGER} 3.2 running 5", "5: describe 100"),
        # 80: one that may run may end by itself, and one that is queued is told at once
        (BY_ITSELF, "running 0.2", "0.2: describe 100"),
        (BY_ITSELF | {"starter": BLIND}, "unknown 0.2", "0.2: describe 100"),
        (BY_ITSELF, "queued", CANCEL),
        (BY_ITSELF, "running 0.2 60 running", CANCEL),
        (BY_ITSELF, "running 0.2 60 running told 1 running", ""),
        # 82: without an id it is looked for twice, a second apart, where somebody can look
        (NO_ID, "missed 1.0", "1: find"),
        (NO_ID, "missed 1.0 found", "describe 101"),
        (NO_ID, "missed 1.0 missed", "gone"),
        (NO_ID | {"starter": BLIND}, "missed", UNSEEN),
        # 83: in no known state it is gone only if it is not listed either
        ({}, "unknown", "find"),
        ({}, "unknown found", "cancel worker run 101 12.0"),
        ({}, "unknown nameless", CANCEL),
        ({}, "unknown missed", "gone 100 ended"),
        ({"starter": BLIND}, "unknown", CANCEL),
        # 84: its own end is kept, unless it was told to
        ({}, "failed", "gone 100 failed"),
        ({}, "running told 0.2 failed", "gone 100"),
        # 85: it is given up after its time, with how it stands, or why it could not be told
        ({}, "running told 71 running told", ""),
        ({}, "running told 72.1 running:n17 told", "left it is running: n17"),
        ({}, "troubled" + " 1 troubled" * 4 + " 1", "1: describe 100"),
        ({}, "troubled 1 72.1 troubled", "left error 500"),
        ({}, "running silent 0.2 72.1 running silent", "left you may not"),
        ({}, "running silent hurry 1 running 8", f"7: {HANGS} you may not"),
        ({}, "running troubled 0.2 running told 72.1 running:n17 told", "left it is running: n17"),
        # 85: in a hurry it is told without a grace, and again; but two looks stay a second apart
        ({}, "running hurry", f"break off cancel worker run; {AT_100}"),
        ({}, "running hurry hurry", ""),
        ({}, "running told hurry running", AT_100),
        ({}, "running told hurry running told 1 running", ""),  # it has heard of the hurry
        (NO_ID, "missed 0.1 hurry 1", "1: find"),
        (NO_ID, "missed 0.1 hurry 1.0 found", "describe 101"),
        ({}, "running:n17 hurry 8.1", f"8: {HANGS} it is running: n17"),
    ],
)
def test_80_to_85_how_the_end_of_a_worker_run_stands(
    of: dict[str, Any], script: str, then: str
) -> None:
    drive = Alone(**of)
    assert drive.play(script, ALONE, QUIET, then) == then
    assert drive.ends.under_way or drive.calls == []


def test_81_it_is_asked_ever_more_rarely_and_told_again_20_s_after_its_grace() -> None:
    """A node that has its grace would take being told again for a hurry."""
    drive, pauses, asked = Alone(), list[float](), 0.0
    drive.play("running told", ALONE)
    while not drive.all_open("cancel worker run"):
        while not drive.all_open("describe"):
            drive.wait(0.1)
        pauses.append(round(drive.told[-1].at - asked, 1))
        asked = drive.now
        drive.described(ONE, RUNNING)
    assert pauses[:5] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert 30.0 < drive.now < 32.0


def test_85_what_begins_to_end_in_a_hurry_is_told_at_once() -> None:
    drive = Alone()
    drive.play("running hurry", ALONE)
    drive.end_of(TWO, SLURM, by_itself=60.0)
    done = drive.described(TWO, RUNNING)
    assert [one.words for one in done] == ["cancel worker run 2.1 100 0.0"]


def test_86_commands_have_sixteen_places_and_what_is_done_here_needs_none() -> None:
    drive = Alone(*(Key(number, 1) for number in range(20)))
    for number in range(20, 40):  # a child that takes its whole grace holds up no other
        key = Key(number, 1)
        drive.end_of(key, LOCAL)
        drive.described(key, RUNNING)
    assert len(drive.calls) == 36
    drive.described(Key(3, 1), ENDED)
    assert drive.open("describe").key == Key(16, 1)
    drive.hurry()
    drive.wait(8.1)  # and those that still wait for their turn are given up too
    assert len(drive.of("gone")) + len(drive.of("left")) == 40
    assert drive.calls == []


def test_81_one_that_is_ended_already_has_its_whole_time_from_now_on() -> None:
    drive = Alone()
    drive.play("running told 70", ALONE)
    for end in drive.ends.under_way.values():
        drive.loop.call_soon(end.extend)
    drive.turn()
    assert drive.play("running told", ALONE, QUIET) == ""


# --- the launch


def cancelled(why: str) -> Result:
    """The registry's result of a run that was cancelled."""
    return result("cancelled", 84, status="cancelled", message=f"run 'r' was cancelled: {why}")


LAUNCH: Steps = {
    "cancelled-over": lambda drive, _: drive.cancelled(over()),
    "cancelled-soon": lambda drive, _: drive.cancelled(status(phase=Phase.RUNNING)),
    "cancelled-left": lambda drive, _: drive.cancelled(status(everyone_left=True)),
    "submit-fails": lambda drive, _: drive.fails("submit"),
    "forgets": lambda drive, _: drive.refuse("ask status", FOREIGN),
    "find-fails": lambda drive, _: drive.fails("find"),
    "node-lost": lambda drive, _: drive.end(result=result("node_lost", 86, slot=1)),
    "killed": lambda drive, _: drive.end(result=result("program_failed", 129, slot=1)),
    "ends-128": lambda drive, _: drive.end(result=result("program_failed", 128, slot=1)),
    "known-preempted": lambda drive, _: drive.end(result=result("preempted", 88, slot=1)),
    "other-failed": lambda drive, _: drive.end(result=result("program_failed", 1, slot=2)),
    "other-failed-lost": lambda drive, _: drive.end(
        slot(1, its=NodeState.LOST), result=result("program_failed", 1, slot=2)
    ),
    "wants": lambda drive, _: drive.status(slot(2, 0, 1)),
    "released": lambda drive, _: drive.status(slot(1), phase=Phase.RUNNING),
    "over-here": lambda drive, _: drive.came(over(slot(1, its=NodeState.RUNNING), left=False)),
    "submitted": lambda drive, key: drive.submitted(key, "101"),
    "refused": lambda drive, key: drive.submit_failed(key, certain=True),
    "unclear": lambda drive, key: drive.submit_failed(key, "error 500"),
    "advised": lambda drive, key: drive.submit_failed(key, "no", certain=True, hint="by hand"),
    "unwritable": lambda drive, _: drive.breaks.update({"write result": StorageFull("full")}),
    "ctrl-c": lambda drive, _: drive.signal(2),
    "ctrl-c-heard": lambda drive, _: drive.end(result=cancelled("SIGINT at the launcher")),
    "cancelled-by-somebody": lambda drive, _: drive.end(result=cancelled("wrong data")),
}
UNHEARD = "signal" + " uncancelled 0.5" * 20 + " uncancelled"
DOWN, GIVEN_UP = "close board; write result", "break off submit; find"
FAILED = f"{DOWN} program_failed node 1 failed"
HURRIED = "break off cancel worker run; cancel worker run 101 0.0"
AT_ONCE = "say SIGTERM again: killing all nodes now"
STOPS = "say SIGTERM: stopping all nodes (up to 10 s). A second SIGTERM kills them now."
STOPS_2 = "say Stopping all nodes (up to 10 s). Press Ctrl-C again to kill them now."
STOPS_1 = "say SIGHUP (a closed terminal): stopping all nodes (up to 10 s)"
CANCEL_RUN, CANCEL_2 = "cancel run SIGTERM at the launcher", "cancel run SIGINT at the launcher"
CANCEL_1 = "cancel run SIGHUP at the launcher"
WAITS = (
    "say waiting for the worker runs of slot 1 to end, as their scheduler reports, press Ctrl-C to "
    "stop waiting"
)
LEFT = "say worker run rdzv-n3wl4unch1-1-1 (slot 1) may still exist: it is not listed, look for ..."
UNLISTED = f"1: find; 8: break off find; {LEFT}; close child"
GONE, FAULT = "missed 1 missed closed", "close board; end KeyError('x')"


@pytest.mark.parametrize(
    ("start", "script", "then"),
    [
        # 91: a signal cancels at the registry, which tells the nodes, and nothing more is submitted
        ("following", "signal", f"{STOPS}; {CANCEL_RUN}"),
        ("following", "ctrl-c", f"{STOPS_2}; {CANCEL_2}"),
        ("following", "hang-up", f"{STOPS_1}; {CANCEL_1}"),
        ("following", "signal wants", ""),
        # 91: a run whose verdict is waited for is cancelled again
        ("following", "signal cancelled-soon 1", f"1: {CANCEL_RUN}"),
        ("following", "signal cancelled-over 1", ""),
        # 91: for ten seconds, and then everything ends at once
        ("running", "signal uncancelled 0.1", f"0.1: {CANCEL_RUN}"),
        ("running", "signal" + " uncancelled 0.5" * 20, f"0.1: {CANCEL_RUN}"),
        ("running", "signal 5 cancelled-soon 7 uncancelled 0.1", f"0.1: {CANCEL_RUN}"),
        ("running", UNHEARD, "break off describe; describe 101"),
        ("running", f"{UNHEARD} running", "cancel worker run 101 0.0"),
        ("running", f"{UNHEARD} ended closed", f"{DOWN} cancelled ...; end 15"),
        # 91: a run that is over needs no answer to its cancel
        ("running", "signal over-here", "break off cancel run"),
        ("following", "signal over-here 1", ""),
        ("following", "signal uncancelled over-here 1", ""),
        # 92: a second signal ends everything at once
        ("submitting", "signal signal", f"{AT_ONCE}; break off cancel run; {GIVEN_UP}"),
        ("submitting", f"signal signal {GONE}", f"{DOWN} cancelled ...; end 15"),
        # 92: but a terminal that closes is told by its kernel and by its shell
        ("submitting", "hang-up hang-up", ""),
        ("submitting", "signal hang-up", ""),
        ("submitting", "hang-up signal", STOPS),
        ("submitting", "hang-up signal signal", f"{AT_ONCE}; break off cancel run; {GIVEN_UP}"),
        ("ending", "running 3 running hang-up", ""),
        # 92: a first signal while runs are ended hurries, and is not the launch's end
        ("ending", "running 3 running signal", f"say SIGTERM: killing all nodes now; {HURRIED}"),
        ("ending", "running 3 running ctrl-c", f"say Ctrl-C: killing all nodes now; {HURRIED}"),
        ("ending", "running signal 1 ended closed", f"{FAILED}; end"),
        # 36, 89: runs, then registry, which is not started again, then board, then result
        ("ending", "dies", ""),
        ("ending", "ended", "note 101 gone; close child"),
        ("ending", "ended closed", f"{FAILED}; end"),
        ("ending", "unwritable ended closed", f"{FAILED}; say full; end"),  # 94
        # 79: what is ended already goes on as it is; a submission is waited for, for ten seconds
        ("running", "released end", ""),
        ("running", "released 70 end 6 running told", ""),  # it has its whole time from now on
        ("submitting", "end", ""),
        ("submitting", "end 10", "10: break off submit; find"),
        ("submitting", "end signal", f"say SIGTERM: killing all nodes now; {GIVEN_UP}"),
        ("submitting", "end submitted", "note 101; describe 101"),
        ("submitting", "end refused", "note gone; close child"),
        # 53: a submission that fails as nobody expected may have been made all the same
        ("submitting", "submit-fails", "cancel run its launcher failed: KeyError('x')"),
        ("submitting", "submit-fails cancelled-left", "find"),
        ("submitting", f"submit-fails cancelled-left {GONE}", FAULT),
        ("submitting", "end submit-fails", "find"),
        ("submitting", "end submit-fails find-fails", ""),
        ("submitting", "end submit-fails find-fails 1", "0.2: find"),  # an adapter is asked again
        # 43: what fails while the nodes are told of a first failure keeps nobody from hearing of it
        ("submitting", "forgets submit-fails", ""),
        ("submitting", "forgets submit-fails cancelled-left", "find"),
        ("submitting", f"forgets submit-fails cancelled-left {GONE}", FAULT),
        # 87: after ten seconds it is said once what is waited for
        ("ending", "10", f"10: {WAITS}"),
        ("ending", "10 20", ""),
        # 88: what is left is said when all have ended; a later launcher ends it
        ("submitting", "unclear signal signal missed 8.1", UNLISTED),
    ],
)
def test_36_to_94_how_a_launch_ends(start: str, script: str, then: str) -> None:
    drive: Drive = getattr(Drive.new(), start)(*[ONE] * (start != "following"))
    assert drive.play(script, LAUNCH, (*QUIET, "follow events"), then) == then


def test_91_a_creation_that_hangs_holds_no_cancel_up() -> None:
    assert Drive.new().play("begin signal 0.2", LAUNCH, QUIET) == f"0.1: {CANCEL_RUN}"


def test_91_a_signal_after_the_end_leads_to_nothing() -> None:
    drive = Drive.new().ending(ONE)
    assert drive.play("ended closed signal", LAUNCH) == ""


REASON = "run 'r' was cancelled: wrong data"


def explained(drive: Drive) -> list[str]:
    """Tell what the registry hears that may be why the run has failed; it completes nothing."""
    words = []
    assert drive.launch is not None
    while calls := drive.all_open("explain"):
        key, news = calls[-1].key, calls[-1].of
        assert key is not None
        words.append(f"{key.slot} {news.cause or news.state}: {news.detail}")
        drive.answer("explain", None, over(result=drive.launch._following.result))
    return words


@pytest.mark.parametrize(
    ("start", "script", "words"),
    [
        # how the worker run of the slot that failed has ended, where it was not told to
        ("running", "1 failed:PREEMPTED node-lost", ["1 failed: PREEMPTED"]),
        ("running", "1 failed:9 killed", ["1 failed: 9"]),
        ("running", "1 failed:9 ends-128", ["1 failed: 9"]),
        ("running", "released failed:9 node-lost", ["1 failed: 9"]),
        ("running", "1 ended:0 node-lost", []),
        ("running", "released 3.2 running told 0.2 failed:9 node-lost", []),
        ("following", "node-lost", []),
        # a preemption, also of what was told to end, or said it before it ended
        ("running", "1 failed!:P node-lost", ["1 preempted: P"]),
        ("running", "1 failed!:P known-preempted", ["1 preempted: P"]),
        ("running", "1 running!:P heard 1 failed:9 killed", ["1 preempted: P"]),
        ("running", "released 3.2 running!:P told 0.2 failed:9 killed", ["1 preempted: P"]),
        ("running", "1 failed!:P other-failed", []),
        ("running", "1 failed!:P other-failed-lost", ["1 preempted: P"]),
    ],
)
def test_94_what_a_scheduler_has_said_may_be_why(start: str, script: str, words: list[str]) -> None:
    drive: Drive = getattr(Drive.new(), start)(*[ONE] * (start != "following"))
    drive.play(script, LAUNCH)
    assert explained(drive) == words


@pytest.mark.parametrize(
    ("script", "told"),
    [
        # 93: what a signal to the launcher has cancelled exits with it, and says who did it
        ("signal cancelled-by-somebody", f"cancelled 143: {REASON}; "),
        ("ctrl-c cancelled-by-somebody", f"cancelled 130: {REASON}; "),
        ("ctrl-c ctrl-c-heard", "cancelled 130: you stopped run 'r' with Ctrl-C; "),
        ("signal node-lost", "node_lost 86: node 1 failed; "),
    ],
)
def test_93_94_the_result_with_what_only_the_launcher_knows(script: str, told: str) -> None:
    drive = Drive.new().following()
    drive.play(f"{script} closed", LAUNCH)
    (found,) = [one.of for one in drive.of("write result")]
    assert f"{found.code} {found.exit_code}: {found.message}; {found.hint}" == told


def test_94_what_to_do_about_a_submission_comes_with_its_failure() -> None:
    drive = Drive.new().submitting(ONE)
    drive.play("advised", LAUNCH)
    assert drive.of("tell slot")[-1].of.hint == "by hand"


def test_93_ctrl_c_before_the_creation_is_said_to_have_stopped_it() -> None:
    drive = Drive.new()
    drive.play("begin ctrl-c", LAUNCH)
    drive.refuse("create run", SILENT)
    drive.play("uncancelled closed", LAUNCH)
    words = "you stopped run 'r' with Ctrl-C, before it started"
    assert drive.of("write result")[0].of.message == words


def test_64_d13_an_answer_that_comes_when_it_was_given_up_is_learnt_all_the_same() -> None:
    drive = Drive.new()

    async def submit(*_: object, **__: object) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await drive.ask("submit", ONE)
        return "101"

    drive.prepared.others.submit = submit  # type: ignore[method-assign]
    drive.submitting(ONE)
    then = f"{AT_ONCE}; break off cancel run; break off submit; note 101; describe 101"
    assert drive.play("signal signal", LAUNCH, (*QUIET, "follow events"), then) == then


@pytest.mark.parametrize(
    ("start", "script", "words"),
    [
        ("ending", "10", "their scheduler reports; press Ctrl-C to stop waiting"),
        ("submitting", "unclear signal signal missed 8.1", "; look for a run with that name"),
    ],
)
def test_87_88_how_a_sentence_on_what_is_left_ends(start: str, script: str, words: str) -> None:
    drive: Drive = getattr(Drive.new(), start)(ONE)
    drive.play(script, LAUNCH)
    assert drive.said()[-1].endswith(words)


def test_of_two_that_were_preempted_the_one_of_the_result_comes_first() -> None:
    drive = Drive.new().running(ONE, TWO)
    drive.wait(1.0)
    for key in (ONE, TWO):
        drive.described(key, SlotState.FAILED, f"taken {key.slot}", preempted=True)
    lost = [slot(number, its=NodeState.LOST) for number in (1, 2)]
    drive.end(*lost, result=result("node_lost", 86, slot=2))
    assert explained(drive) == ["2 preempted: taken 2", "1 preempted: taken 1"]


def test_79_d13_nothing_begins_while_submissions_are_waited_for() -> None:
    drive = Drive.new().submitting(*(Key(number, 1) for number in range(1, 31)))
    drive.end()
    for submission in drive.all_open("submit"):
        drive.submitted(submission.key, "7")
    assert len(drive.of("submit")) == 16
    assert len(drive.all_open("describe")) == 16


def test_80_all_that_runs_has_as_long_as_two_looks_to_end_by_itself() -> None:
    drive = Drive.new(facts(others=Starter("slow", 20.0))).ending(ONE)
    told, since = drive.of("cancel worker run"), drive.now
    while not told and drive.now < 100.0:
        if drive.all_open("describe"):
            drive.described(ONE, RUNNING)
        drive.wait(0.5)
        told = drive.of("cancel worker run")
    assert 40.0 <= drive.now - since < 46.0


def test_what_is_fetched_last_is_broken_off_where_everything_ends_at_once() -> None:
    drive = Drive.new().running(ONE)
    drive.status(slot(1, 1, 1), digest="d", epoch=1, phase=Phase.RUNNING)
    drive.answer("keep", None, RunReport(run="r"))
    drive.came(over(slot(1, 1, 1), digest="d", epoch=1))
    fetches = ("run features", "fetch words")
    assert len(drive.all_open(fetches)) == 2
    drive.signal()
    drive.signal(2)
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
    drive.described(ONE, RUNNING)
    drive.answer("cancel worker run")
    drive.wait(1.0)
    drive.described(ONE, ENDED)
    assert explained(drive) == ["1 failed: NODE_FAIL"]
