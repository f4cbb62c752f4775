"""The end of a launch: signals, its worker runs told to end, the registry, the result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, cast

import pytest

from launcher.cleanup.endings import Endings, Tracked
from launcher.plan.plan import WorkerRun
from launcher.schedulers.contract import NothingSubmitted
from rendezvous.wire.errors import SchedulerError, StorageFull
from rendezvous.wire.run import NodeState, Phase, SlotState
from tests.launcher.drive import QUIET, UNEXPECTED, Drive, Steps, ends, over, result, slot, status
from tests.launcher.outer import BLIND, LOCAL, ONE, SLURM, Facts, Key, Starter, Told
from worker.machine.shortage import cpu_time_met

TWO = Key(2, 1)
RUNNING, ENDED = SlotState.RUNNING, SlotState.ENDED


class Alone(Drive):
    """The ends of worker runs without their launch; what comes of each is told."""

    def __init__(self, *keys: Key, starter: Starter = SLURM, **more: Any) -> None:
        super().__init__(Facts(others=starter))
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

    def extend(self) -> None:
        """They have their whole time again."""
        for end in self.ends.under_way.values():
            self.loop.call_soon(end.extend)
        self.turn()


ASKED = ("find", "describe", "cancel worker run")
ALONE: Steps = {
    "nameless": ("find", ""),
    "silent": (ASKED, SchedulerError("you may not")),
    "troubled": (ASKED, SchedulerError("error 500")),
    "hurry": lambda drive, _: cast(Alone, drive).hurry(),
    "extended": lambda drive, _: cast(Alone, drive).extend(),
    "other-begins": lambda drive, _: cast(Alone, drive).end_of(TWO, SLURM, by_itself=60.0),
}
CANCEL, AT_100 = "cancel worker run 100 12.0", "cancel worker run 100 0.0"
HANGS = "break off cancel worker run; left"
SLOW = {"starter": Starter("slow", 20.0)}
EVER_LONGER = "running told 0.2 running 0.4 running 0.8 running 1.6 running"
LONGER = "running told 0.2 running 0.4 running 0.8 running"
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
        # 81: it is asked ever more rarely, and told again 20 s after its grace: a node that has its
        # grace would take being told again for a hurry
        ({}, f"{LONGER} 0.9", ""),
        ({}, f"{LONGER} 1 running 1", "1: describe 100"),
        ({}, LONGER + " 1 running" * 28, ""),
        ({}, LONGER + " 1 running" * 29, CANCEL),
        # 81: one that is ended already has its whole time from now on
        ({}, "running told 70 extended running told", ""),
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
        ({}, "running hurry other-begins running", "cancel worker run 2.1 100 0.0"),
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


# --- the launch


LAUNCH: Steps = {
    "cancelled-over": ("cancel run", over()),
    "cancelled-soon": ("cancel run", status(phase=Phase.RUNNING)),
    "submit-fails": ("submit", UNEXPECTED),
    "find-fails": ("find", UNEXPECTED),
    "create-fails": ("create run", UNEXPECTED),
    "cancel-fails": ("cancel run", KeyError("later")),
    "killed": ends(result("program_failed", 129, slot=1)),
    "ends-128": ends(result("program_failed", 128, slot=1)),
    "known-preempted": ends(result("preempted", 88, slot=1)),
    "other-failed": ends(result("program_failed", 1, slot=2)),
    "other-failed-lost": ends(result("program_failed", 1, slot=2), slot(1, its=NodeState.LOST)),
    "there": status(slot(1, its=NodeState.RUNNING, node=0), phase=Phase.RUNNING),
    "there-lost": ends(result("node_lost", 82, slot=1), slot(1, its=NodeState.LOST)),
    "wants": status(slot(2, 0, 1)),
    "released": status(slot(1), phase=Phase.RUNNING),
    "over-here": over(slot(1, its=NodeState.RUNNING), left=False),
    "advised": ("submit", NothingSubmitted("no", hint="by hand")),
    "unwritable": lambda drive, _: drive.breaks.update({"write result": StorageFull("full")}),
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
    "say waiting for the worker runs of slot 1 to end, as their scheduler reports| press Ctrl-C to "
    "stop waiting"
)
UNSEEN_YET = "it is not listed| look for a run with that name"
LEFT = f"say worker run rdzv-n3wl4unch1-1-1 (slot 1) may still exist: {UNSEEN_YET}"
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
        ("begin", "signal 0.2", f"0.1: {CANCEL_RUN}"),  # a creation that hangs holds it not up
        ("ending", "ended closed signal", ""),
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
        ("submitting", "advised", "note gone; tell slot failed no by hand"),  # 94
        # 53: a submission that fails as nobody expected may have been made all the same
        ("submitting", "submit-fails", "cancel run its launcher failed: KeyError('x')"),
        ("submitting", "submit-fails cancelled-left", "find"),
        ("submitting", f"submit-fails cancelled-left {GONE}", FAULT),
        ("begin", "create-fails cancel-fails closed", FAULT),  # the first one of two
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
    drive = Drive.at(start)
    assert drive.play(script, LAUNCH, (*QUIET, "follow events"), then) == then


ITS_LOSS = "there-lost 10 running told 1 ended"


def explained(drive: Drive) -> list[str]:
    """Tell what the registry hears that may be why the run has failed; it completes nothing."""
    words = []
    while calls := drive.all_open("explain"):
        key, news = calls[-1].key, calls[-1].of
        assert key is not None
        words.append(f"{key.slot} {news.cause or news.state}: {news.detail}")
        drive.answer("explain", drive.over)
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
        # one that goes on after all is told to end, and then nothing more is said of how it ended
        ("running", f"there 1 failed:NODE_FAIL {ITS_LOSS}", ["1 failed: NODE_FAIL"]),
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
    drive = Drive.at(start)
    drive.play(script, LAUNCH)
    assert explained(drive) == words


def test_64_d13_an_answer_that_comes_when_it_was_given_up_is_learnt_all_the_same() -> None:
    drive = Drive()

    async def submit(*_: object, **__: object) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await drive.ask("submit", ONE)
        return "101"

    drive.prepared.others.submit = submit  # type: ignore[method-assign]
    drive.submitting(ONE)
    then = f"{AT_ONCE}; break off cancel run; break off submit; note 101; describe 101"
    assert drive.play("signal signal", LAUNCH, (*QUIET, "follow events"), then) == then


def test_of_two_that_were_preempted_the_one_of_the_result_comes_first() -> None:
    drive = Drive().running(ONE, TWO)
    drive.wait(1.0)
    for key in (ONE, TWO):
        drive.described(key, SlotState.FAILED, f"taken {key.slot}", preempted=True)
    lost = [slot(number, its=NodeState.LOST) for number in (1, 2)]
    drive.end(*lost, result=result("node_lost", 86, slot=2))
    assert explained(drive) == ["2 preempted: taken 2", "1 preempted: taken 1"]


def test_of_two_explanations_the_first_that_completes_the_result_is_written() -> None:
    drive = Drive().running(ONE, TWO)
    drive.wait(1.0)
    for key in (ONE, TWO):
        drive.described(key, SlotState.FAILED, preempted=True)
    lost = [slot(number, its=NodeState.LOST) for number in (1, 2)]
    drive.end(*lost, result=result("node_lost", 86, slot=2))
    drive.answer("explain", over(result=result("preempted", 88, message="it was preempted")))
    assert drive.all_open("explain") == []
    then = "close board; write result preempted it was preempted; end"
    assert drive.play("closed", LAUNCH, (*QUIET, "follow events"), then) == then


def test_79_d13_nothing_begins_while_submissions_are_waited_for() -> None:
    drive = Drive().submitting(*(Key(number, 1) for number in range(1, 31)))
    drive.end()
    for submission in drive.all_open("submit"):
        drive.answer("submit", "7", submission.key)
    assert len(drive.of("submit")) == 16
    assert len(drive.all_open("describe")) == 16


def test_80_all_that_runs_has_as_long_as_two_looks_to_end_by_itself() -> None:
    drive = Drive(Facts(others=Starter("slow", 20.0))).ending(ONE)
    since = drive.now
    while not drive.of("cancel worker run") and drive.now < 100.0:
        if drive.all_open("describe"):
            drive.described(ONE, RUNNING)
        drive.wait(0.5)
    assert 40.0 <= drive.now - since < 46.0


@pytest.fixture
def cpu_time(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a launch has told of its limits, and "over" once it has ended."""
    told: list[Any] = []

    @contextlib.contextmanager
    def watched(met: Any, used_up: Any) -> Iterator[None]:
        told.extend((met, used_up))
        yield
        told.append("over")

    monkeypatch.setattr("launcher.launch.launch.cpu_time_watched", watched)
    return told


def test_95_what_its_processor_time_comes_to_is_said_and_ends_it(cpu_time: list[Any]) -> None:
    drive = Drive().following()
    cpu_time[0](7, 9)
    assert drive.said() == [cpu_time_met(7, 9)]
    cpu_time[1](9)
    cpu_time[1](11)  # the first one is raised
    drive.turn()
    reason = drive.open("cancel run").of
    assert reason.startswith("its launcher failed: ")
    assert "9 s" in reason
    assert drive.play("uncancelled closed", LAUNCH) == "close board; end arming_failed"
    assert cpu_time[2:] == ["over"]


def test_95_processor_time_that_is_used_up_at_the_end_takes_no_result(cpu_time: list[Any]) -> None:
    drive = Drive().ending(ONE)
    drive.signal()  # as the end has begun, it is as a second one
    cpu_time[1](9)
    drive.described(ONE, SlotState.ENDED)
    written = "write result program_failed node 1 failed"
    assert drive.play("closed", LAUNCH) == f"close board; {written}; end"
