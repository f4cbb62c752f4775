"""What a launch begins on: a new launch, or the one that a killed launcher has left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from launcher.cleanup.orphans import end_left
from launcher.launch.recovery import is_there
from rendezvous.wire.errors import RunExists, SchedulerError, UsageError
from rendezvous.wire.run import EpochEnd, NodeState, Phase, SlotState
from tests.launcher.drive import SILENT, UNEXPECTED, Drive, Steps, over, says, slot, status
from tests.launcher.outer import BLIND, ONE, SLURM, UNUSABLE, Facts, Former, Key, Left

FORMER, WANTED, STANDING = Former(), Facts(), Facts(owns=False)
EXISTS = RunExists("it is held")
TAKEN = UsageError("port 29600 is taken")
LEFT = Left(ONE, SLURM, "100")


def test_24_who_could_still_hear() -> None:
    gone = [(None, None), (NodeState.LEFT, 0.0), (NodeState.LOST, 0.0), (NodeState.RUNNING, 5.0)]
    assert not any(is_there(slot(1, its=node, silent_seconds=silent)) for node, silent in gone)
    assert is_there(slot(1, its=NodeState.RUNNING, silent_seconds=4.9))


# --- the way there

BETWEEN: dict[str, Any] = {"ended": [EpochEnd(epoch=1, message="node 1 failed")], "version": 17}
HERE = slot(1, its=NodeState.RUNNING, silent_seconds=0.0)
STEPS: Steps = {
    "same": status(slot(1), version=17),
    "arming": status(slot(1), phase=Phase.ARMING),
    "restarting": status(slot(1), phase=Phase.RESTARTING, **BETWEEN),
    "arms-again": status(slot(1), phase=Phase.ARMING, **BETWEEN),
    "lives": status(HERE, phase=Phase.RUNNING, version=4),
    "lost": status(phase=Phase.RUNNING, version=4),
    "over": over(reason="it is over"),
    "silent": (("ask status", "create run", "cancel run"), SILENT),
    "unfound": ("find", SchedulerError("it is away")),
    "down": ("describe", SchedulerError("down")),
    "exists": ("create run", EXISTS),
    "hears": ("cancel run", status(HERE, phase=Phase.RUNNING, version=4)),
    "learns": ("cancel run", over(HERE, version=5)),
    "still": over(HERE, version=5),
    "left": ("cancel run", over(slot(1, its=NodeState.LEFT))),
    "taken": lambda drive, _: drive.breaks.update({"open former": TAKEN}),
    "free": lambda drive, _: drive.breaks.clear(),
    "no-port": lambda drive, _: drive.breaks.update({"listen": TAKEN}),
}
QUIETER = ("show", "show event", "run features")
ASKS = "open former; ask status -1 0.0; start child"
NEW = "make room; listen; write record; create run; start child"
AT_STANDING = "make room; write record; create run"
FOLLOWS = "write record; ask status -1 2.0; follow events 16"
RESUMED = "resuming launch k7f2a9c1xy: waiting"
PORT_KEPT = "--port 30000 has no effect: the workers of this launch use port 29600"
STOPS = "say SIGTERM: stopping before anything has started"
ANEW = "starting a new launch"
HELD = "say the previous launch cannot be resumed: port 29600 is taken"
IS_OVER = f"the previous launch has ended: it is over; {ANEW}"
WAS_OVER = f"the previous launch has ended; {ANEW}"
ELSEWHERE = "run 'r' was launched on h2; there is nothing to resume on this host: " + ANEW
LOG = "see /state/r/former-logs/registry.log"
NO_REGISTRY = f"its registry does not start or does not know it ({LOG})"
UNKNOWN = says(f"the previous launch cannot be resumed: {NO_REGISTRY}; {ANEW}")
IN_FOLDER = "set RDZV_STATE_DIR to a folder that all nodes share"
NOTHING = f"/state/r holds no previous launch: {ANEW}; {IN_FOLDER}"
KILLED, CHANGED = "its launcher had ended", "its COMMAND or options were different"
OTHER_PORT, SAME_PORT = replace(WANTED, port=30_000), replace(WANTED, port=29_600)
NOT_OURS, DONE = replace(FORMER, owns_registry=False), replace(FORMER, ended=True)
OTHER_JOB, OTHER_STARTER = replace(FORMER, fingerprint="g"), replace(FORMER, starter="docker")
REMOTE = replace(FORMER, host="h2")
BOTHS = replace(NOT_OURS, same_registry=True)
REQUEUED, AGAIN = replace(WANTED, restarts=1), "the job was requeued (restart 1): "
MAY_EXIST = "1 worker run of the previous launch may still exist"
STAYS = (
    "say launch k7f2a9c1xy, which may still be on the registry, is not changed; "
    f"say {MAY_EXIST}| end them with 'rdzv cancel r'; close board; end unavailable"
)
SLOW = "say the standing registry has not created the run yet: nobody answers"


def ends(phase: str, why: str) -> str:
    """The former launch is ended."""
    was = f"the previous launch of run 'r' was {phase}, and {why}: rdzv ends what is left of it"
    return f"{was} and starts a new launch; cancel run {why}"


OTHER_WORK = ends("gathering", CHANGED)
RESUMES = f"say {RESUMED}; {FOLLOWS}"


@pytest.mark.parametrize(
    ("script", "then"),
    [
        # 20: the former port is tried for ten seconds
        ("taken begin", "open former"),
        ("taken begin 0.21", "0.2: open former"),
        ("taken begin 1 free 0.2", f"0.2: {ASKS}"),
        ("taken begin 9.7 0.2", "0.1: open former"),
        ("taken begin 10.1 0.2", f"0.1: open former; {HELD}; {NEW}"),
        # 21: the former registry is started and asked for ten seconds
        ("begin", ASKS),
        ("begin silent 0.05", "0.05: ask status -1 0.0"),
        ("begin" + " silent 0.5" * 19 + " silent", ""),
        ("begin" + " silent 0.5" * 20 + " silent", f"{UNKNOWN}; close child"),
        ("begin forgets", f"{UNKNOWN}; close child"),
        ("begin forgets closed", NEW),
        (f"begin {'dies 0.7 ' * 4} dies", f"break off ask status; {UNKNOWN}; close child"),
        ("begin over", f"{says(IS_OVER)}; close child"),
        # 22, D2, D9: the same launch is taken up with the registry that was asked, from now on
        ("begin same", "create run"),
        ("begin arming", "create run"),
        ("begin same created", RESUMES),
        ("begin same created events-fail 0.2", "0.2: follow events 16"),
        # between two epochs it is as before the first go, and what has ended is known
        ("begin restarting", "create run"),
        ("begin restarting created", RESUMES),
        ("begin restarting created restarting", "ask status 17 2.0"),
        ("begin arms-again created", RESUMES),
        # 22, 23: the comparison is tried again, and another job ends the former one
        ("begin same silent 0.05", "0.05: create run"),
        ("begin same exists", f"say {OTHER_WORK}"),
        # 24: its nodes have fifteen seconds to hear of it unless they have left
        ("begin lives", f"say {ends('running', KILLED)}"),
        ("begin lives learns", "ask status 5 1.0"),
        ("begin lives learns 14.9 still", "ask status 5 1.0"),
        ("begin lives learns 15 still", "close child"),
        # 24: while a silent node keeps the run from its end, it is cancelled again
        ("begin lives hears", ""),
        ("begin lives hears 1", f"1: cancel run {KILLED}"),
        ("begin lives hears 1 learns", "ask status 5 1.0"),
        ("begin lives" + " hears 1" * 14 + " hears", ""),
        ("begin lives" + " hears 1" * 15 + " hears", "close child"),
        ("begin lost left", "close child"),
        # 24: a registry that goes away meanwhile stops nothing
        ("begin lives silent 0.25", f"0.2: cancel run {KILLED}"),
        ("begin lives" + " silent 0.5" * 30 + " silent", "close child"),
        ("begin lives learns silent", "close child"),
        (f"begin lives {'dies 0.7 ' * 5}", ""),
        # D6: a signal before the launch ends what was begun, which can still be resumed
        ("begin signal", f"{STOPS}; break off ask status; close child"),
        ("begin signal signal", "say SIGTERM again: killing all nodes now"),
        ("begin signal closed", "close board; end 15"),
    ],
)
def test_20_to_24_d2_d9_what_is_done_about_a_launch_like_this_one(script: str, then: str) -> None:
    assert Drive(WANTED, FORMER).play(script, STEPS, QUIETER, then) == then


@pytest.mark.parametrize(
    ("former", "wanted", "script", "then"),
    [
        # 17, 19, 26, 28: where nobody is asked the ground is made at once
        (None, WANTED, "begin", NEW),
        (None, STANDING, "begin", AT_STANDING),
        (None, replace(STANDING, others=None), "begin", AT_STANDING),  # beside a group token too
        (REMOTE, WANTED, "begin", f"{says(ELSEWHERE)}; {NEW}"),
        (DONE, WANTED, "begin", NEW),
        (NOT_OURS, WANTED, "begin", NEW),
        (FORMER, STANDING, "begin", AT_STANDING),
        (replace(NOT_OURS, has_keys=False), STANDING, "begin", AT_STANDING),
        (replace(NOT_OURS, ended=True), STANDING, "begin", AT_STANDING),
        (None, WANTED, "no-port begin", "make room; listen; close board; end usage"),  # 32
        # 22, D2, D9: the same launch is taken up with the registry that was asked, from now on
        (replace(FORMER, fingerprint=""), WANTED, "begin same", "create run"),
        (FORMER, SAME_PORT, "begin same created", RESUMES),
        (FORMER, OTHER_PORT, "begin same created", f"say {PORT_KEPT}; {RESUMES}"),  # D1
        # between two epochs it is as before the first go, and what has ended is known
        (NOT_OURS, STANDING, "begin restarting", f"say {ends('restarting', KILLED)}"),
        # 22, 23: the comparison is tried again, and another job ends the former one
        (OTHER_JOB, WANTED, "begin same", f"say {OTHER_WORK}"),
        (OTHER_STARTER, WANTED, "begin same", f"say {OTHER_WORK}"),
        # 17: a killed launcher's run at a standing registry is ended, where it is known there
        (NOT_OURS, STANDING, "begin", "ask status -1 0.0"),
        (NOT_OURS, STANDING, "begin same", f"say {ends('gathering', KILLED)}"),
        (NOT_OURS, STANDING, "begin same left", AT_STANDING),
        (NOT_OURS, STANDING, "begin forgets", AT_STANDING),
        (NOT_OURS, STANDING, "begin silent", ""),
        (NOT_OURS, STANDING, "begin" + " silent 1" * 10 + " silent", AT_STANDING),
        # 17: nothing is ended while the registry of both launches does not answer
        (BOTHS, STANDING, "begin silent", SLOW),
        (BOTHS, STANDING, "begin silent 1 silent", ""),
        (BOTHS, STANDING, "begin" + " silent 1" * 19 + " silent", ""),
        (BOTHS, STANDING, "begin" + " silent 1" * 20 + " silent", STAYS),
        (BOTHS, STANDING, "begin same" + " silent 1" * 14 + " silent", ""),
        (BOTHS, STANDING, "begin same" + " silent 1" * 15 + " silent", STAYS),
        # a job that was requeued says so once, and otherwise does what any other launcher does
        (None, REQUEUED, "begin", f"{says(AGAIN + NOTHING)}; {NEW}"),
        (None, replace(REQUEUED, owns=False), "begin", f"{says(AGAIN + NOTHING)}; {AT_STANDING}"),
        (DONE, REQUEUED, "begin", f"{says(AGAIN + WAS_OVER)}; {NEW}"),
        (REMOTE, REQUEUED, "begin", f"{says(AGAIN + ELSEWHERE)}; {NEW}"),
        (FORMER, REQUEUED, "begin same created", f"say {AGAIN}{RESUMED}; {FOLLOWS}"),
        (FORMER, REQUEUED, "begin lost", f"say {AGAIN}{ends('running', KILLED)}"),
        (FORMER, REQUEUED, "begin lost left closed", NEW),
    ],
)
def test_17_to_32_d3_d4_what_is_done_about_each_kind_of_launch(
    former: Former | None, wanted: Facts, script: str, then: str
) -> None:
    drive = Drive(wanted, former, *([LEFT] * (former is BOTHS)))
    assert drive.play(script, STEPS, QUIETER, then) == then


# --- what the ledger has left

BEFORE = Left(ONE, SLURM, "100", of="old")
GONE = Left(Key(2, 1), UNUSABLE, of="older")
ENDING = f"say {MAY_EXIST}: ending them; describe 100"
END_THEM = says(f"{MAY_EXIST}; end them with 'rdzv cancel r'")
STOPPED = f"{STOPS}; break off describe; {END_THEM}; close board; end 15"
UNKNOWN_LEFT = "say worker run rdzv-older-2-1 may still exist: no such profile"
STILL = "say worker run rdzv-old-1-1 (slot 1, id 100) may still exist: down| end it with: end 100"
KEPT = NEW.replace("room", "room rdzv-older-2-1 rdzv-old-1-1")


@pytest.mark.parametrize(
    ("former", "left", "script", "then"),
    [
        # 26: what a former launch has left is ended before it is forgotten
        (None, [BEFORE], "begin", ENDING),
        (None, [BEFORE], "begin running told 0.2 ended", f"note 100 gone; {NEW}"),
        (None, [BEFORE], "begin signal", STOPPED),  # D6
        # 27, D5: what could not be ended is said and stays in the ledger
        (None, [BEFORE, GONE], "begin", f"{UNKNOWN_LEFT}; {ENDING}"),
        (None, [BEFORE, GONE], "begin 100 down", f"{STILL}; {KEPT}"),
        # 26: what is resumed is not ended, until the end
        (FORMER, [LEFT], "begin same created", RESUMES),
        (FORMER, [LEFT], "begin same created end", "describe 100"),
        (FORMER, [BEFORE], "begin same created end", "close child"),  # another launch's
    ],
)
def test_26_27_d5_what_is_done_about_what_former_launches_have_left(
    former: Former | None, left: list[Left], script: str, then: str
) -> None:
    assert Drive(None, former, *left).play(script, STEPS, QUIETER, then) == then


# --- without a launch


def ends_left(*left: Left, **scheduler: Any) -> tuple[Drive, list[str], asyncio.Task[bool]]:
    """What `rdzv cancel` does of a launch without a launcher, and what it says."""
    drive, said = Drive(None, None, *left), list[str]()
    for one in drive._schedulers.values():
        vars(one).update(scheduler)
    ledger, context = drive.folder.ledger, drive.prepared.context
    work = end_left(ledger, context, said.append, grace=10.0, world=drive)
    task = drive.loop.create_task(work)
    drive.turn()
    return drive, said, task


def test_90_what_is_left_is_ended_by_cancel_as_well_and_an_adapter_may_fail() -> None:
    drive, said, task = ends_left(BEFORE, Left(Key(2, 1), SLURM, "7", of="old"))
    assert said == ["2 worker runs of the previous launch may still exist: ending them"]
    drive.answer("describe", UNEXPECTED)
    drive.described(ONE, SlotState.ENDED)
    drive.wait(0.2)
    drive.described(Key(2, 1), SlotState.ENDED)
    assert task.result()
    assert [one.words for one in drive.of("note")] == ["note 100 gone", "note 2.1 7 gone"]


NO_ID = replace(BEFORE, handle="")
LOST = "unfound 80 unfound"
UNSEEN = "the scheduler did not answer its submission and cannot look it up"


@pytest.mark.parametrize(
    ("left", "script", "command", "words"),
    [
        (BEFORE, "queued told 80 queued:R told", "scancel 100", ": it is queued: R; {}scancel 100"),
        (BEFORE, "running told 80 running told", "", ": it is running"),
        (replace(NO_ID, starter=BLIND), "missed", "", f": {UNSEEN}; look for a run with that name"),
        (NO_ID, LOST, "", ": it is away; look for a run with that name"),
        (NO_ID, LOST, "ssh n3 end", ": it is away; {}ssh n3 end"),
    ],
)
def test_88_what_is_left_is_said_with_the_command_that_ends_it(
    left: Left, script: str, command: str, words: str
) -> None:
    drive, said, task = ends_left(left, cancel_words=lambda *_: command)
    drive.play(script, STEPS)
    assert not task.result()
    known = ", id 100" if left.handle else ""
    begins = f"worker run rdzv-old-1-1 (slot 1{known}) may still exist"
    assert said[1:] == [begins + words.format("end it with: ")]
