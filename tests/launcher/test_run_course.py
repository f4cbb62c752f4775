"""The course of a launch by value: created, followed, left by its nodes, ended, written down."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.values import Key, LaunchFacts
from rendezvous.wire.node import Finding
from rendezvous.wire.run import EpochEnd, NodeState, Phase, RunReport
from tests.launcher.drive import (
    FOREIGN,
    FULL,
    NOT_NOW,
    OVER,
    SILENT,
    Drive,
    Steps,
    facts,
    over,
    result,
    slot,
    status,
)

ONE = Key(1, 1)
GO = Phase.RUNNING
REPORT = RunReport(run="llama")
ODD = RunReport(run="llama", findings=[Finding(check="L12", level="warn")])
HERE = slot(1, its=NodeState.RUNNING)
BOTH = (HERE, slot(2, its=NodeState.LEFT), slot(3))
WANTS = slot(1, 0, 1)
UNWRITTEN: dict[str, Any] = {
    "unwritten_seconds": 121.0,
    "trouble": "full",
    "elapsed_seconds": 377.0,
}
TOO_LATE = result("join_timeout")
ENDED: dict[str, Any] = {"ended": [EpochEnd(epoch=1, message="node 1 failed")]}
TWICE: dict[str, Any] = {"ended": [*ENDED["ended"], EpochEnd(epoch=2, message="node 3 failed")]}
BACK_OFF: dict[str, Any] = ENDED | {"phase": Phase.RESTARTING}
STEPS: Steps = {
    "uncreated": lambda drive, _: drive.refuse(do.CreateRun, SILENT),
    "refused": lambda drive, _: drive.refuse(do.CreateRun, FOREIGN),
    # how the run stands
    "silent": lambda drive, _: drive.refuse(do.AskStatus, SILENT),
    "late": lambda drive, _: drive.take(said.Unanswered(drive.id(do.AskStatus), SILENT, 1.0)),
    "not-now": lambda drive, _: drive.refuse(do.AskStatus, NOT_NOW),
    "forgets": lambda drive, _: drive.refuse(do.AskStatus, FOREIGN),
    "full": lambda drive, _: drive.refuse(do.AskStatus, FULL),
    "stands": lambda drive, _: drive.status(version=7),
    "wants": lambda drive, _: drive.status(WANTS),
    "trouble": lambda drive, _: drive.status(WANTS, trouble="full"),
    "slow": lambda drive, _: drive.status(trouble="slow"),
    "forming-unwritten": lambda drive, _: drive.status(**UNWRITTEN, phase=Phase.ARMING),
    "running-unwritten": lambda drive, _: drive.status(**UNWRITTEN, phase=GO),
    "go": lambda drive, _: drive.status(phase=GO, digest="d1", epoch=1),
    "go-again": lambda drive, _: drive.status(phase=GO, digest="d2", epoch=2),
    "restarts": lambda drive, _: drive.status(**BACK_OFF, digest="d1", epoch=1),
    "restarts-unwritten": lambda drive, _: drive.status(**UNWRITTEN, **BACK_OFF),
    "restarts-again": lambda drive, _: drive.status(**BACK_OFF | TWICE, digest="d2", epoch=2),
    "arms-again": lambda drive, _: drive.status(**ENDED, phase=Phase.ARMING, digest="d2", epoch=2),
    "goes-again": lambda drive, _: drive.status(**ENDED, phase=GO, digest="d2", epoch=2),
    "over": lambda drive, _: drive.came(over(HERE)),
    "over-sealed": lambda drive, _: drive.came(over(digest="d1", epoch=1)),
    "over-sealed-well": lambda drive, _: drive.came(
        over(digest="d1", epoch=1, result=result(status="ok"))
    ),
    "over-here": lambda drive, _: drive.came(over(*BOTH, left=False)),
    "over-untold": lambda drive, _: drive.came(over(untold=[0, 2])),
    "over-untold-late": lambda drive, _: drive.came(over(untold=[2], result=TOO_LATE)),
    "over-untold-well": lambda drive, _: drive.came(over(untold=[2], result=result(status="ok"))),
    "over-unchecked": lambda drive, _: drive.came(over(result=result("preflight_failed", 87))),
    "over-unverified": lambda drive, _: drive.came(over(result=result("verification_failed", 81))),
    # what is told, kept and shown
    "unheard": lambda drive, _: drive.refuse(do.TellSlot, FULL),
    "unheard-now": lambda drive, _: drive.refuse(do.TellSlot, NOT_NOW),
    "unwanted": lambda drive, _: drive.refuse(do.TellSlot, OVER),
    "cancelled": lambda drive, _: drive.cancelled(status(HERE, version=4)),
    "cancelled-left": lambda drive, _: drive.cancelled(status(everyone_left=True)),
    "still-here": lambda drive, _: drive.status(HERE, version=4),
    "kept-odd": lambda drive, _: drive.take(said.ReportCame(drive.id(do.Keep), ODD)),
    "unkept": lambda drive, _: drive.refuse((do.Keep, do.KeepReport), SILENT),
    "kept": lambda drive, _: drive.take(
        said.ReportCame(drive.id((do.Keep, do.KeepReport)), REPORT)
    ),
    "establish-fails": lambda drive, _: drive.fails(do.Establish),
    "child-fails": lambda drive, _: drive.fails(do.StartChild),
    "close-fails": lambda drive, _: drive.fails(do.CloseChild),
    "result-fails": lambda drive, _: drive.fails(do.WriteResult),
    "cancel-fails": lambda drive, _: drive.fails(do.CancelRun),
    "board-fails": lambda drive, _: drive.take(said.PartFailed(said.NO_ACTION, "no terminal")),
    "features": lambda drive, _: drive.kept(),
    "features-fail": lambda drive, _: drive.fails(do.RunFeatures),
    "words": lambda drive, _: drive.answer(do.FetchWords),
    "words-fail": lambda drive, _: drive.fails(do.FetchWords),
    "events-broken": lambda drive, _: drive.take(
        said.EventsOver(drive.id(do.FollowEvents), 17, broken=True, jitter=0.0)
    ),
    "events-over": lambda drive, _: drive.take(
        said.EventsOver(drive.id(do.FollowEvents), 9, broken=False)
    ),
}
QUIET = (do.RunFeatures, do.FinishFeatures)
OWN, STANDING, SYMMETRIC = facts(), facts(owns=False), facts(others=None)
BEGUN = "begin made created "
GIVES_UP = " uncancelled closed"
DOWN = "close board; write result "
ASKS, SEES = "ask status 1 2.0", "show; ask status 1 2.0"
FAILS = "break off FollowEvents; cancel run ByFailure"
ON_FULL = DOWN + "StorageLost 120.5 the disk is full make room"
PARTS = "break off AskStatus; fetch words"
CHILD_LOST = DOWN + "ChildLost 5 30.0 no room 1"
NOT_CREATED = DOWN + "NotCreated 20.0 unavailable False"
BOARD_FAULT = "close board; end fault NoneType"
LATE = "say DidNotLeave (1,) 18.0; break off AskStatus"
LOST = "say LostAfterResult; break off FollowEvents; close child"
UNWRITABLE = "StorageLost 121.0 full"
FAILED_RESULT = DOWN + "program_failed"


@pytest.mark.parametrize(
    ("of", "script", "then"),
    [
        # 33: the registry is started before the run is created, unless it stands
        (OWN, "begin made", "start child; create run"),
        (STANDING, "begin made", "create run"),
        (STANDING, BEGUN + "end", FAILED_RESULT),
        # 34, 35: it is started again after ever longer pauses, five times within thirty seconds
        (OWN, BEGUN + "dies", "start child"),
        (OWN, BEGUN + "dies dies 0.21", "0.2: start child"),
        (OWN, BEGUN + "dies dies 0.2 dies 0.41", "0.4: start child"),
        (OWN, BEGUN + "dies dies 0.2 dies 0.4 dies 0.6 dies closed", CHILD_LOST),
        (OWN, BEGUN + "dies dies end 1", ""),
        (OWN, BEGUN + "dies 8 " * 20 + "dies 0.7", "0.4: start child"),
        # 40: a creation that is not answered is tried again, and given up after twenty seconds
        (OWN, "begin made uncreated", ""),
        (OWN, "begin made uncreated 0.05", "0.05: create run"),
        (OWN, "begin made" + " uncreated 1" * 20 + " uncreated 1", "0.05: create run"),
        (OWN, "begin made" + " uncreated 1" * 21 + " uncreated", "cancel run ByFailure"),
        (OWN, "begin made" + " uncreated 1" * 21 + " uncreated" + GIVES_UP, NOT_CREATED),
        (STANDING, "begin made uncreated", "say StandingWaits nobody answers"),
        (STANDING, "begin made uncreated 1 uncreated", ""),
        (OWN, "begin made refused" + GIVES_UP, DOWN + "Refusal not_found"),
        # 41: a signal before the creation ends it
        (OWN, "begin made uncreated signal", "say EndsRun 15 10.0; cancel run ByFailure"),
        (OWN, "begin made uncreated signal 1", ""),
        (OWN, "begin made signal uncreated" + GIVES_UP, DOWN + "EndedBeforeBegun"),
        # 42, 43, 45: a launcher that cannot go on tells its nodes and waits a moment
        (OWN, BEGUN + "forgets", FAILS),
        (OWN, BEGUN + "forgets 1.1", ""),
        (OWN, BEGUN + "signal forgets", FAILS.replace(";", "; break off CancelRun;")),
        (OWN, BEGUN + "signal uncancelled forgets 1", ""),
        (OWN, BEGUN + "forgets cancelled", "ask status 4 0.5"),
        (OWN, BEGUN + "forgets cancelled 2.9 still-here", "ask status 4 0.5"),
        (OWN, BEGUN + "forgets cancelled 3.1 still-here", "close child"),
        (OWN, BEGUN + "forgets cancelled-left", "close child"),
        (OWN, BEGUN + "forgets cancelled-left closed", DOWN + "Refusal not_found"),
        # 44: a registry that does not answer is asked again with jitter until it is lost
        (OWN, BEGUN, "ask status -1 2.0; follow events 0"),
        (OWN, BEGUN + "stands", "show; ask status 7 2.0"),
        (OWN, BEGUN + "late 0.51", "0.5: ask status -1 2.0"),
        (OWN, BEGUN + "silent 5 " * 24 + "silent 5", "0.2: ask status -1 2.0"),
        (OWN, BEGUN + "silent 5 " * 25 + "silent", FAILS),
        (OWN, BEGUN + "silent 5 " * 25 + "silent" + GIVES_UP, DOWN + "Silent unavailable"),
        # 44: one that says 'not now' is there, for an hour since its last real answer
        (OWN, BEGUN + "not-now", "say RegistryNotNow no database"),
        (OWN, BEGUN + "not-now 1 not-now", ""),
        (OWN, BEGUN + "not-now 0.2", "0.2: ask status -1 2.0"),
        (OWN, BEGUN + "not-now 100 " * 36 + "silent 0.5", "0.2: ask status -1 2.0"),
        (OWN, BEGUN + "not-now 100 " * 37 + "not-now", ""),
        (OWN, BEGUN + "not-now 100 " * 37 + "not-now 21 not-now 1 not-now", FAILS),
        (OWN, BEGUN + "not-now 100 " * 37 + "stands " + "not-now 100 " * 35 + "not-now", ""),
        (
            OWN,
            BEGUN + "not-now 1 " + "silent 5 " * 25 + "silent" + GIVES_UP,
            DOWN + "Silent unavailable",
        ),
        # 44: a launcher that was stopped has one try left, each time
        (OWN, BEGUN + "1000 silent 0.5", "0.2: ask status -1 2.0"),
        (OWN, BEGUN + "1000 silent 0.5 stands silent 0.5", "0.2: ask status 7 2.0"),
        # 46: a status is shown first, then its trouble once, then the slots
        (OWN, BEGUN + "trouble", f"show; say RegistryTrouble full; tell slot submitting; {ASKS}"),
        (OWN, BEGUN + "trouble trouble", SEES),
        (OWN, BEGUN + "trouble slow", f"show; say RegistryTrouble slow; {ASKS}"),
        # 38, 39: a journal that stays full ends the launch before the go; any answer clears it
        (OWN, BEGUN + "wants unheard", "say RegistryTrouble the disk is full make room"),
        (OWN, BEGUN + "wants unheard 119 wants heard 10 wants", SEES),
        (OWN, BEGUN + "wants unheard 120.5 wants" + GIVES_UP, ON_FULL),
        (OWN, BEGUN + "wants unheard 1 unheard 119.5 wants" + GIVES_UP, ON_FULL),
        (OWN, BEGUN + "wants unheard 100 unwanted 20.5 wants" + GIVES_UP, ON_FULL),
        (OWN, BEGUN + "wants unheard 100 unheard-now 20.5 wants", SEES),
        (OWN, BEGUN + "forming-unwritten" + GIVES_UP, DOWN + "StorageLost 121.0 full"),
        (OWN, BEGUN + "running-unwritten", f"show; say RegistryTrouble full; {ASKS}"),
        (OWN, BEGUN + "full", "say RegistryTrouble the disk is full make room"),
        (OWN, BEGUN + "full 119 stands 100 stands", "show; ask status 7 2.0"),
        # 47, D8: the table is kept once an epoch, with a further try, and odd things are said
        (OWN, BEGUN + "go", f"show; keep; {ASKS}"),
        (OWN, BEGUN + "go go", SEES),
        (OWN, BEGUN + "go unkept", ""),
        (OWN, BEGUN + "go unkept go", SEES),
        (OWN, BEGUN + "go unkept 1", "1: keep"),
        (OWN, BEGUN + "go kept", "say Warnings"),
        (OWN, BEGUN + "go kept go", SEES),
        (OWN, BEGUN + "go kept go-again", f"show; keep; {ASKS}"),
        (OWN, BEGUN + "over-sealed unkept 1 kept", f"say Warnings; {PARTS}"),
        (OWN, BEGUN + "over-sealed 18", "18: break off AskStatus; break off Keep; fetch words"),
        (OWN, BEGUN + "go forgets", f"break off Keep; {FAILS}"),
        # an epoch that has ended is said once; the next one is kept at its go, and what its checks
        # have found is said where it is new
        (OWN, BEGUN + "go kept restarts", f"show; say EpochEnded; {ASKS}"),
        (OWN, BEGUN + "go kept goes-again", f"show; say EpochEnded; keep; {ASKS}"),
        (OWN, BEGUN + "go kept restarts restarts", SEES),
        (OWN, BEGUN + "go kept restarts restarts-again", f"show; say EpochEnded; {ASKS}"),
        (OWN, BEGUN + "go kept restarts restarts-again restarts-again", SEES),
        (OWN, BEGUN + "go kept restarts arms-again", SEES),
        (OWN, BEGUN + "go kept restarts arms-again goes-again", f"show; keep; {ASKS}"),
        (OWN, BEGUN + "go kept restarts goes-again kept", ""),
        (OWN, BEGUN + "go kept restarts goes-again kept-odd", "say Warnings"),
        (OWN, BEGUN + "go kept-odd go-again kept go kept-odd", "say Warnings"),
        (OWN, BEGUN + "go restarts unkept 1", ""),
        (OWN, BEGUN + "go kept restarts restarts-unwritten" + GIVES_UP, DOWN + UNWRITABLE),
        # 48, D8: findings of a failed start are said before the registry goes, if they come
        (OWN, BEGUN + "over-unchecked", f"show; keep report; {ASKS}"),
        (OWN, BEGUN + "9 over-unchecked unkept 0.9", ""),
        (OWN, BEGUN + "over-unchecked unkept 1", "1: keep report"),
        (OWN, BEGUN + "over-unchecked unkept 1 kept", "say Findings; break off AskStatus"),
        (OWN, BEGUN + "over-unverified unkept 1 unkept 1 unkept", "break off AskStatus"),
        (OWN, BEGUN + "over-unverified unkept 1 unkept 1 unkept 2", ""),
        # 49: nodes have their grace and eight seconds to leave, from the first result on
        (OWN, BEGUN + "3 over-here 5 over-here 13.1", f"13: {LATE}"),
        # 100: a symmetric registry stays for nodes that nobody can cancel
        (SYMMETRIC, BEGUN + "over-untold", f"show; say WaitsForOthers (2,) 30.0; {ASKS}"),
        (SYMMETRIC, BEGUN + "40 over-untold", f"show; say WaitsForOthers (2,) 30.0; {ASKS}"),
        (SYMMETRIC, BEGUN + "over-untold 30", "30: break off AskStatus"),  # nobody is late
        (SYMMETRIC, BEGUN + "over-untold-late", "show"),
        (SYMMETRIC, BEGUN + "over-untold-well", "show"),
        (SYMMETRIC, BEGUN + "signal over-untold", "show; break off CancelRun"),
        # 50: then the events are shown to their end, or for three seconds
        (OWN, BEGUN + "over features 3.1", "3: break off FollowEvents; close child"),
        (OWN, BEGUN + "over features 2 dies 1.1", "1: break off FollowEvents; close child"),
        (OWN, BEGUN + "over features events-over", "close child"),
        (OWN, BEGUN + "over features-fail events-over", "close child"),
        # events that ended before everyone had left are asked for at once, and only once
        (OWN, BEGUN + "events-over over features", "follow events 9"),
        (OWN, BEGUN + "events-over over features events-over", "close child"),
        (OWN, BEGUN + "events-over over features events-broken 0.2", "0.2: follow events 17"),
        # of a run whose programs were started, and failed, their ranks' last words are kept as well
        (OWN, BEGUN + "go kept over-sealed", "show; fetch words"),
        (OWN, BEGUN + "go kept over-sealed-well", "show"),
        (OWN, BEGUN + "go kept over-sealed features", ""),
        (OWN, BEGUN + "go kept over-sealed words", ""),
        (OWN, BEGUN + "go kept events-over over-sealed words features", "follow events 9"),
        (OWN, BEGUN + "go kept events-over over-sealed features words-fail", "follow events 9"),
        (OWN, BEGUN + "go kept over-sealed features words events-over", "close child"),
        # and of an epoch a while after it has ended
        (OWN, BEGUN + "go kept restarts 4.9", ""),
        (OWN, BEGUN + "go kept restarts 5", "5: fetch words"),
        (OWN, BEGUN + "go kept restarts 5 words restarts 9", ""),
        (OWN, BEGUN + "go kept restarts 5 words-fail 9", ""),
        (OWN, BEGUN + "go kept restarts forgets", FAILS),
        # 51: events go on after the last one that was shown, and end nothing
        (OWN, BEGUN + "events-broken 0.2", "0.2: follow events 17"),
        (OWN, BEGUN + "events-fail 0.2", "0.2: follow events 0"),
        # 53, 95: whatever fails as nobody expected, the launch comes to its end, without a result
        (OWN, "begin establish-fails", "close board; end fault Establish"),
        (OWN, "begin made child-fails", "break off CreateRun; close child"),
        (OWN, "begin made child-fails closed", "close board; end fault StartChild"),
        (OWN, BEGUN + "end close-fails", "close board; end fault CloseChild"),
        (OWN, BEGUN + "end closed result-fails", "end fault WriteResult"),
        (OWN, BEGUN + "board-fails", f"break off AskStatus; {FAILS}"),
        (OWN, BEGUN + "board-fails board-fails", ""),
        (OWN, BEGUN + "board-fails cancel-fails", "close child"),  # that does not keep it either
        (OWN, BEGUN + "board-fails cancel-fails closed", BOARD_FAULT),
        (OWN, BEGUN + "over-here board-fails cancel-fails closed", BOARD_FAULT),
        # D7: what is lost after the result does not lose it
        (OWN, BEGUN + "over-here forgets", LOST),
        (OWN, BEGUN + "over-here forgets closed", FAILED_RESULT),
        (OWN, BEGUN + "over-here" + " dies 1" * 5 + " closed", FAILED_RESULT),
        (OWN, BEGUN + "over-here signal signal closed", FAILED_RESULT),
        (OWN, BEGUN + "over-here" + " silent 1" * 18 + " features closed", FAILED_RESULT),
    ],
)
def test_33_to_53_what_is_done_at_each_step(of: LaunchFacts, script: str, then: str) -> None:
    assert Drive.new(of).play(script, STEPS, QUIET) == then


def test_what_a_launcher_fails_with_names_the_epochs_that_have_ended() -> None:
    drive = Drive.new()
    drive.play(BEGUN + "go kept restarts forgets" + GIVES_UP, STEPS)
    assert drive.of(do.WriteResult)[0].verdict.epochs == (ENDED["ended"][0],)
    drive = Drive.new()
    drive.play(BEGUN + "go kept restarts end closed", STEPS)
    assert drive.of(do.WriteResult)[0].verdict.epochs == ()  # the result has them


def test_50_52_features_run_from_the_first_status_on_and_finish_at_the_end() -> None:
    drive = Drive.new().following()
    assert len(drive.all_open(do.RunFeatures)) == 1
    assert drive.of(do.FinishFeatures) == []
    drive.came(over())
    assert len(drive.of(do.FinishFeatures)) == 1
    drive.wait(4.9)
    assert len(drive.all_open(do.RunFeatures)) == 1
    drive.wait(0.2)
    assert drive.all_open(do.RunFeatures) == []
    assert len(drive.of(do.RunFeatures)) == 1


def test_features_that_have_ended_before_are_not_waited_for() -> None:
    drive = Drive.new().following()
    drive.answer(do.RunFeatures)
    drive.came(over())
    assert drive.all_open(do.CloseChild) == []
    drive.take(said.EventsOver(drive.id(do.FollowEvents), 9, broken=False))
    assert drive.all_open(do.CloseChild)


def test_a_machine_is_a_value_that_can_be_copied_and_compared() -> None:
    one, other = Drive.new().running(ONE), Drive.new().running(ONE)
    assert one.machine == other.machine == copy.deepcopy(one.machine)
    one.signal()
    assert one.machine != other.machine


# ---- secrets ------------------------------------------------------------------------------------

SENDS = replace(facts(), sends_secrets=True)


def sends(drive: Drive) -> int:
    """How often it has begun to send the sealed variables."""
    return len(drive.of(do.SendSecrets))


def test_the_secrets_are_sent_once_and_again_to_a_registry_that_has_lost_them() -> None:
    drive = Drive.new(SENDS).following()
    drive.status(wants_secrets=True)
    assert sends(drive) == 1
    drive.answer(do.SendSecrets)
    drive.status(version=2)
    assert sends(drive) == 1
    drive.status(wants_secrets=True)  # it was restarted
    assert sends(drive) == 2
    drive.refuse(do.SendSecrets, SILENT)
    drive.status(wants_secrets=True)
    assert sends(drive) == 3
    drive.status(wants_secrets=True)  # the try before it is under way
    assert (sends(drive), len(drive.all_open(do.SendSecrets))) == (3, 1)


def test_a_launch_that_is_taken_up_again_sends_its_own_secrets() -> None:
    """Those of the launcher before it may be others; a standing registry still has them."""
    drive = Drive.new(SENDS).following()
    drive.status()
    assert sends(drive) == 1


def test_a_registry_that_refuses_the_secrets_ends_the_launch() -> None:
    drive = Drive.new(SENDS).following()
    drive.status(wants_secrets=True)
    drive.refuse(do.SendSecrets, FOREIGN)
    assert drive.all_open(do.CancelRun)


def test_no_secrets_are_sent_where_there_are_none_or_the_run_is_over() -> None:
    drive = Drive.new().following()
    drive.status(wants_secrets=True)
    late = Drive.new(SENDS).following()
    late.came(over(left=False, wants_secrets=True))
    assert (sends(drive), sends(late)) == (0, 0)


def test_secrets_that_are_on_their_way_are_no_more_once_the_nodes_have_left() -> None:
    drive = Drive.new(SENDS).following()
    drive.status(wants_secrets=True)
    drive.came(over())
    assert not drive.all_open(do.SendSecrets)
