"""What a launch begins on, by value: a new launch, or the one that a killed launcher has left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.clearing import Clearance
from launcher.run.ground import Former, OnDisk, Wanted, is_there
from launcher.run.sentences import UnknownLeft
from launcher.run.values import ErrorKind, Key, Left, Outcome, Trouble
from launcher.schedulers.description import Description
from rendezvous.wire.errors import (
    NotFound,
    RdzvError,
    RunOver,
    StorageFull,
    TooManyRequests,
    Unavailable,
    UsageError,
)
from rendezvous.wire.run import EpochEnd, NodeState, Phase, SlotState
from tests.launcher.drive import FOREIGN, SILENT, SLURM, Drive, Steps, facts, over, slot, status

FORMER = Former("k7f2a9c1xy", "h1", "slurm", owns_registry=True, port=29_600, fingerprint="f")
WANTED = Wanted("h1", "slurm", "f")
STANDING = replace(WANTED, standing=True)
EXISTS = Trouble(ErrorKind.RUN_EXISTS, "run_exists", "it is held")
TAKEN = Trouble(ErrorKind.OTHER, "usage", "port 29600 is taken", "", 2)
LEFT = Left(Key(1, 1, "rdzv-k7f2a9c1xy-1-1"), SLURM, "100")


@pytest.mark.parametrize(
    ("node", "silent", "there"),
    [
        (None, None, False),
        (NodeState.LEFT, 0.0, False),
        (NodeState.LOST, 0.0, False),
        (NodeState.RUNNING, 4.9, True),
        (NodeState.RUNNING, 5.0, False),
    ],
)
def test_24_who_could_still_hear(node: NodeState | None, silent: float | None, there: bool) -> None:
    assert is_there(slot(1, its=node, silent_seconds=silent)) is there


# --- the way there

ENDED: list[EpochEnd] = [EpochEnd(epoch=1, message="node 1 failed")]
HERE = slot(1, its=NodeState.RUNNING, silent_seconds=0.0)
STEPS: Steps = {
    "opened": lambda drive, _: drive.answer(do.OpenFormer),
    "taken": lambda drive, _: drive.refuse(do.OpenFormer, TAKEN),
    "same": lambda drive, _: drive.status(slot(1), version=17),
    "arming": lambda drive, _: drive.status(slot(1), phase=Phase.ARMING),
    "restarting": lambda drive, _: drive.status(
        slot(1), phase=Phase.RESTARTING, version=17, ended=ENDED
    ),
    "arms-again": lambda drive, _: drive.status(
        slot(1), phase=Phase.ARMING, version=17, ended=ENDED
    ),
    "lives": lambda drive, _: drive.status(HERE, phase=Phase.RUNNING, version=4),
    "lost": lambda drive, _: drive.status(phase=Phase.RUNNING, version=4),
    "over": lambda drive, _: drive.came(over(reason="it is over")),
    "silent": lambda drive, _: drive.refuse((do.AskStatus, do.CreateRun, do.CancelRun), SILENT),
    "foreign": lambda drive, _: drive.refuse(do.AskStatus, FOREIGN),
    "down": lambda drive, _: drive.scheduler_silent(do.Describe, "down"),
    "exists": lambda drive, _: drive.refuse(do.CreateRun, EXISTS),
    "hears": lambda drive, _: drive.cancelled(status(HERE, phase=Phase.RUNNING, version=4)),
    "learns": lambda drive, _: drive.cancelled(over(HERE, version=5)),
    "still": lambda drive, _: drive.came(over(HERE, version=5)),
    "left": lambda drive, _: drive.cancelled(over(slot(1, its=NodeState.LEFT))),
    "refused": lambda drive, _: drive.refuse(do.Establish, TAKEN),
}
NEW = "establish Fresh(kept=())"
RESUMED = "say Resumes k7f2a9c1xy waiting; establish Resumed(seen=16)"
HELD = f"say BeginsAnew port_held {TAKEN.message}; {NEW}"
OTHER_OPTIONS = "say EndsFormer gathering other_options; cancel run other_options"
OTHER_SCHEDULER = "say EndsFormer gathering other_scheduler; cancel run other_scheduler"
ENDS_RESTARTING = "say EndsFormer restarting running; cancel run running"
UNKNOWN = "say BeginsAnew silent; close child"
OTHER_PORT, SAME_PORT = replace(WANTED, port=30_000), replace(WANTED, port=29_600)
NOT_OURS = replace(FORMER, owns_registry=False)
BOTHS = replace(NOT_OURS, same_registry=True)
REQUEUED, AGAIN = replace(WANTED, restarts=1), "say Requeued 1"
STAYS = "say FormerStays k7f2a9c1xy; say KeepsLeft 1; close board; end unavailable"


@pytest.mark.parametrize(
    ("former", "wanted", "script", "then"),
    [
        # 17, 19, 26, 28: where nobody is asked the ground is made at once
        (None, WANTED, "", NEW),
        (None, STANDING, "", NEW),
        (replace(FORMER, host="h2"), WANTED, "", f"say BeginsAnew other_host h2; {NEW}"),
        (replace(FORMER, ended=True), WANTED, "", NEW),
        (NOT_OURS, WANTED, "", NEW),
        (FORMER, STANDING, "", NEW),
        (replace(NOT_OURS, has_keys=False), STANDING, "", NEW),
        (replace(NOT_OURS, ended=True), STANDING, "", NEW),
        (None, WANTED, "refused", "close board; end usage"),  # 32
        # 20: the former port is tried for ten seconds
        (FORMER, WANTED, "", "open former"),
        (FORMER, WANTED, "taken 0.21", "0.2: open former"),
        (FORMER, WANTED, "taken 0.21 " * 47 + "taken", ""),
        (FORMER, WANTED, "taken 0.21 " * 48 + "taken", HELD),
        # 21: the former registry is started and asked for ten seconds
        (FORMER, WANTED, "opened", "start child; ask status -1 0.0"),
        (FORMER, WANTED, "opened silent 0.05", "0.05: ask status -1 0.0"),
        (FORMER, WANTED, "opened" + " silent 0.5" * 19 + " silent", ""),
        (FORMER, WANTED, "opened" + " silent 0.5" * 20 + " silent", UNKNOWN),
        (FORMER, WANTED, "opened foreign", UNKNOWN),
        (FORMER, WANTED, "opened foreign closed", NEW),
        (FORMER, WANTED, f"opened {'dies 0.7 ' * 4} dies", f"break off AskStatus; {UNKNOWN}"),
        (FORMER, WANTED, "opened over", "say BeginsAnew over it is over; close child"),
        # 22, D2, D9: the same launch is taken up with the registry that was asked, from now on
        (FORMER, WANTED, "opened same", "create run"),
        (FORMER, WANTED, "opened arming", "create run"),
        (replace(FORMER, fingerprint=""), WANTED, "opened same", "create run"),
        (FORMER, WANTED, "opened same created", RESUMED),
        (FORMER, SAME_PORT, "opened same created", RESUMED),
        (FORMER, OTHER_PORT, "opened same created", f"say PortKept 30000 29600; {RESUMED}"),  # D1
        (FORMER, WANTED, "opened same created made", "ask status -1 2.0; follow events 16"),
        (FORMER, WANTED, "opened same created made events-fail 0.2", "0.2: follow events 16"),
        # between two epochs it is as before the first go, and what has ended is known
        (FORMER, WANTED, "opened restarting", "create run"),
        (FORMER, WANTED, "opened restarting created", RESUMED),
        (FORMER, WANTED, "opened restarting created made restarting", "ask status 17 2.0"),
        (FORMER, WANTED, "opened arms-again created", RESUMED),
        (NOT_OURS, STANDING, "opened restarting", ENDS_RESTARTING),
        # 22, 23: the comparison is tried again, and another job ends the former one
        (FORMER, WANTED, "opened same silent 0.05", "0.05: create run"),
        (FORMER, WANTED, "opened same exists", OTHER_OPTIONS),
        (replace(FORMER, fingerprint="g"), WANTED, "opened same", OTHER_OPTIONS),
        (replace(FORMER, starter="docker"), WANTED, "opened same", OTHER_SCHEDULER),
        # 24: its nodes have fifteen seconds to hear of it unless they have left
        (FORMER, WANTED, "opened lives", "say EndsFormer running running; cancel run running"),
        (FORMER, WANTED, "opened lives learns", "ask status 5 1.0"),
        (FORMER, WANTED, "opened lives learns 14.9 still", "ask status 5 1.0"),
        (FORMER, WANTED, "opened lives learns 15 still", "close child"),
        # 24: while a silent node keeps the run from its end, it is cancelled again
        (FORMER, WANTED, "opened lives hears", ""),
        (FORMER, WANTED, "opened lives hears 1", "1: cancel run running"),
        (FORMER, WANTED, "opened lives hears 1 learns", "ask status 5 1.0"),
        (FORMER, WANTED, "opened lives" + " hears 1" * 14 + " hears", ""),
        (FORMER, WANTED, "opened lives" + " hears 1" * 15 + " hears", "close child"),
        (FORMER, WANTED, "opened lost left", "close child"),
        # 24: a registry that goes away meanwhile stops nothing
        (FORMER, WANTED, "opened lives silent 0.25", "0.2: cancel run running"),
        (FORMER, WANTED, "opened lives" + " silent 0.5" * 30 + " silent", "close child"),
        (FORMER, WANTED, "opened lives learns silent", "close child"),
        (FORMER, WANTED, f"opened lives {'dies 0.7 ' * 5}", ""),
        # 17: a killed launcher's run at a standing registry is ended, where it is known there
        (NOT_OURS, STANDING, "opened", "ask status -1 0.0"),
        (NOT_OURS, STANDING, "opened same", "say EndsFormer gathering running; cancel run running"),
        (NOT_OURS, STANDING, "opened same left", NEW),
        (NOT_OURS, STANDING, "opened foreign", NEW),
        (NOT_OURS, STANDING, "opened silent", ""),
        (NOT_OURS, STANDING, "opened" + " silent 1" * 10 + " silent", NEW),
        # 17: nothing is ended while the registry of both launches does not answer
        (BOTHS, STANDING, "opened silent", "say StandingWaits nobody answers"),
        (BOTHS, STANDING, "opened silent 1 silent", ""),
        (BOTHS, STANDING, "opened" + " silent 1" * 19 + " silent", ""),
        (BOTHS, STANDING, "opened" + " silent 1" * 20 + " silent", STAYS),
        (BOTHS, STANDING, "opened same" + " silent 1" * 14 + " silent", ""),
        (BOTHS, STANDING, "opened same" + " silent 1" * 15 + " silent", STAYS),
        # a job that was requeued says so once, and otherwise does what any other launcher does
        (None, REQUEUED, "", f"{AGAIN} BeginsAnew nothing_former; {NEW}"),
        (None, replace(REQUEUED, standing=True), "", f"{AGAIN} BeginsAnew nothing_former; {NEW}"),
        (replace(FORMER, ended=True), REQUEUED, "", f"{AGAIN} BeginsAnew over; {NEW}"),
        (replace(FORMER, host="h2"), REQUEUED, "", f"{AGAIN} BeginsAnew other_host h2; {NEW}"),
        (FORMER, REQUEUED, "opened same created", RESUMED.replace("say", AGAIN)),
        (
            FORMER,
            REQUEUED,
            "opened lost",
            f"{AGAIN} EndsFormer running running; cancel run running",
        ),
        (FORMER, REQUEUED, "opened lost left closed", NEW),
        # D6: a signal before the launch ends what was begun, which can still be resumed
        (FORMER, WANTED, "opened signal", "say EndsRun 15; break off AskStatus; close child"),
        (FORMER, WANTED, "opened signal signal", "say EndsAtOnce 15 True"),
        (FORMER, WANTED, "opened signal closed", "close board; end 15"),
    ],
)
def test_17_to_32_what_is_done_about_the_former_launch(
    former: Former | None, wanted: Wanted, script: str, then: str
) -> None:
    found = OnDisk(former, (LEFT,) if former is BOTHS else ())
    drive = Drive.new(facts(owns=not wanted.standing), found, wanted)
    assert drive.play(f"begin {script}", STEPS) == then


# --- beside the launch


def test_90_what_is_left_is_ended_by_cancel_as_well_and_an_adapter_may_fail() -> None:
    machine = Clearance.of((LEFT,), (), 10.0)
    machine.step(said.Begin(), 0.0)
    assert machine.step(said.SignalCame(2), 0.0) == []
    assert machine.step(said.PartFailed(999, "?"), 0.0) == []
    machine.step(said.PartFailed(1, "KeyError('x')"), 0.0)
    due = machine.due()
    assert due is not None
    assert machine.step(said.Due(), due) == [do.Describe(2, LEFT.key, "100")]
    done = machine.step(said.Described(2, Description(SlotState.ENDED)), due)
    assert done == [do.Note(LEFT.key, "100", gone=True), do.End(Outcome(None))]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StorageFull("full"), ErrorKind.STORAGE_FULL),
        (Unavailable("away"), ErrorKind.NOT_NOW),
        (TooManyRequests("wait"), ErrorKind.NOT_NOW),
        (RunOver("over"), ErrorKind.RUN_OVER),
        (NotFound("what"), ErrorKind.NOT_FOUND),
        (UsageError("odd"), ErrorKind.OTHER),
    ],
)
def test_errors_are_values(error: RdzvError, kind: ErrorKind) -> None:
    assert Trouble.of(error).kind is kind
    assert not Trouble.of(error).told


def test_that_a_registry_is_there_is_part_of_an_errors_value() -> None:
    error = Unavailable("no database")
    error.told = True
    assert Trouble.of(error) == Trouble(
        ErrorKind.NOT_NOW, "unavailable", "no database", "", 85, told=True
    )


# --- what the ledger has left

ENDS = "say EndsRun 15; break off Describe"
ONE_LEFT = OnDisk(left=(LEFT,))
GONE_PROFILE = OnDisk(left=(LEFT,), unknown=(UnknownLeft("rdzv-old-2-1", "no such profile"),))
OWN_LEFT = OnDisk(FORMER, left=(LEFT,), own=(Left(Key(1, 1), SLURM, "100"),))
KEPT = "establish Fresh(kept=('rdzv-old-2-1', 'rdzv-k7f2a9c1xy-1-1'))"
UNKNOWN_LEFT = "say UnknownLeft rdzv-old-2-1 no such profile"


@pytest.mark.parametrize(
    ("found", "script", "then"),
    [
        # 26: what a former launch has left is ended before it is forgotten
        (ONE_LEFT, "", "say EndsLeft 1; describe 1.1 100"),
        (ONE_LEFT, "running told 0.2 ended", f"note 1.1 100 gone; {NEW}"),
        (ONE_LEFT, "signal", f"{ENDS}; say KeepsLeft 1; close board; end 15"),  # D6
        # 27, D5: what could not be ended is said and stays in the ledger
        (GONE_PROFILE, "", f"{UNKNOWN_LEFT}; say EndsLeft 1; describe 1.1 100"),
        (GONE_PROFILE, "100 down", f"say MayBeLeft 100 silent; {KEPT}"),
        # 26: what is resumed is not ended, until the end
        (OWN_LEFT, "opened same created made", "ask status -1 2.0; follow events 16"),
        (OWN_LEFT, "opened same created made end", "describe 100"),
    ],
)
def test_26_27_what_is_done_about_what_former_launches_have_left(
    found: OnDisk, script: str, then: str
) -> None:
    assert Drive.new(None, found).play(f"begin {script}", STEPS) == then
