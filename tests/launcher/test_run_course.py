"""The course of a launch: created, followed, left by its nodes, ended, written down."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.port import LauncherPort
from rendezvous.wire.errors import NotFound
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
    over,
    result,
    slot,
    status,
)
from tests.launcher.outer import Facts, facts

GO = Phase.RUNNING
ODD = RunReport(run="r", findings=[Finding(check="L12", level="warn")])
HERE = slot(1, its=NodeState.RUNNING)
BOTH = (HERE, slot(2, its=NodeState.LEFT), slot(3))
WANTS = slot(1, 0, 1)
UNWRITTEN: dict[str, Any] = {"unwritten_seconds": 121.0, "trouble": "full"}
ONCE = EpochEnd(epoch=1, message="it was stopped", then="it was requested")
AGAIN = EpochEnd(epoch=2, message="node 3 failed", code="x", ran_seconds=10_900.0, then="so")
ENDED: dict[str, Any] = {"ended": [ONCE]}
TWICE: dict[str, Any] = {"ended": [ONCE, AGAIN]}
BACK_OFF: dict[str, Any] = ENDED | {"phase": Phase.RESTARTING}


def breaks(kind: str) -> Any:
    """A step from which on this fails as nobody expected."""
    return lambda drive, _: drive.breaks.update({kind: KeyError(kind)})


def untold(**more: Any) -> Any:
    """A step: the run is over, and slot 2 has not heard of it."""
    return lambda drive, _: drive.came(over(untold=[2], result=result(**more)))


KEEPS = ("keep", "keep report")
STEPS: Steps = {
    "uncreated": lambda drive, _: drive.refuse("create run", SILENT),
    "refused": lambda drive, _: drive.refuse("create run", FOREIGN),
    # how the run stands
    "silent": lambda drive, _: drive.refuse("ask status", SILENT),
    "late": lambda drive, _: drive.refuse("ask status", SILENT, drawn=1.0),
    "not-now": lambda drive, _: drive.refuse("ask status", NOT_NOW),
    "forgets": lambda drive, _: drive.refuse("ask status", FOREIGN),
    "full": lambda drive, _: drive.refuse("ask status", FULL),
    "stands": lambda drive, _: drive.status(version=7),
    "wants": lambda drive, _: drive.status(WANTS),
    "trouble": lambda drive, _: drive.status(WANTS, trouble="full"),
    "slow": lambda drive, _: drive.status(trouble="slow"),
    "forming-unwritten": lambda drive, _: drive.status(**UNWRITTEN, phase=Phase.ARMING),
    "running-unwritten": lambda drive, _: drive.status(**UNWRITTEN, phase=GO),
    "go": lambda drive, _: drive.status(phase=GO, digest="d1", epoch=1),
    "go-wants": lambda drive, _: drive.status(
        slot(1, 0, 1, awaited=True), phase=GO, digest="d1", epoch=1, trouble="full"
    ),
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
    "over-untold-both": lambda drive, _: drive.came(over(untold=[0, 2, 3])),
    "over-untold-late": untold(code="join_timeout"),
    "over-untold-well": untold(status="ok"),
    "over-unchecked": lambda drive, _: drive.came(over(result=result("preflight_failed", 87))),
    "over-unverified": lambda drive, _: drive.came(over(result=result("verification_failed", 81))),
    # what is told, kept and shown
    "unheard": lambda drive, _: drive.refuse("tell slot", FULL),
    "unheard-now": lambda drive, _: drive.refuse("tell slot", NOT_NOW),
    "unwanted": lambda drive, _: drive.refuse("tell slot", OVER),
    "cancelled": lambda drive, _: drive.cancelled(status(HERE, version=4)),
    "cancelled-left": lambda drive, _: drive.cancelled(status(everyone_left=True)),
    "still-here": lambda drive, _: drive.status(HERE, version=4),
    "kept-odd": lambda drive, _: drive.answer(KEEPS, None, ODD),
    "unkept": lambda drive, _: drive.refuse(KEEPS, SILENT),
    "kept": lambda drive, _: drive.answer(KEEPS, None, RunReport(run="r")),
    "ground-fails": breaks("make room"),
    "child-fails": lambda drive, _: drive.fails("start child"),
    "close-fails": lambda drive, _: drive.fails("close child"),
    "result-fails": breaks("write result"),
    "cancel-fails": lambda drive, _: drive.fails("cancel run"),
    "board-fails": breaks("show"),
    "dies-7": lambda drive, _: drive.answer("start child", None, -7),
    "dies-24": lambda drive, _: drive.answer("start child", None, -24),
    "features": lambda drive, _: drive.answer("run features"),
    "words": lambda drive, _: drive.answer("fetch words"),
    "words-fail": lambda drive, _: drive.fails("fetch words"),
    "events-broken": lambda drive, _: drive.events(17, broken=True),
    "events-over": lambda drive, _: drive.events(9, broken=False),
}
OWN, STANDING, SYMMETRIC = facts(), facts(owns=False), facts(others=None)
QUIETER = ("show event", "run features", "listen", "write record")
BEGUN = "begin created "
GIVES_UP = " uncancelled closed"
DOWN = "close board; write result "
ASKS, SEES = "ask status 1 2.0", "show; ask status 1 2.0"
EVENTS = "break off follow events"
FAILS = f"cancel run its launcher failed: ...; {EVENTS}"
SLOW = "say the standing registry has not created the run yet: nobody answers"
STOPS = "say SIGTERM: ...; cancel run its launcher failed: run 'r' was stopped before it started"
NOT_NOW_YET = "say the registry answers, but cannot serve run 'r' just now: no database"
NO_ROOM = "the disk is full; make room"
FULL_SAID = "say " + NO_ROOM.replace(";", ",")
ON_FULL = DOWN + "storage_full for 120 s, the disk is full; end"
UNWRITABLE = DOWN + "storage_full for 121 s, full; end"
NO_BOARD = "close board; end KeyError('show')"
FAULT = "close board; end KeyError('x')"
WARNS = "say 1 warning of the checks: rdzv status r --checks"
FINDS = "say warn    L12  "
PARTS = "break off ask status; fetch words"
LATE = "say slot 1 did not end within 18 s; break off ask status"
WAITS_FOR = "waiting for at most 30 s to send the result to slot"
WAITS = f"show; say {WAITS_FOR}"
AT_ONCE = "say SIGTERM again: ...; close child; break off ask status"
LOST = "say the registry was lost after the run had ended: no such run"
FAILED = DOWN + "program_failed node 1 failed; end"
FIRST, SECOND = "say epoch 1 ended within 10 s: it was stopped", "say epoch 2 ended after 3 h: ..."


@pytest.mark.parametrize(
    ("of", "script", "then"),
    [
        # 33: the registry is started beside the creation, unless it stands
        (OWN, "begin", "make room; create run; start child"),
        (STANDING, "begin", "make room; create run"),
        (STANDING, BEGUN + "end", f"show; {FAILED}"),
        # 40: a creation that is not answered is tried again, and given up after twenty seconds
        (OWN, "begin uncreated", ""),
        (OWN, "begin uncreated 0.05", "0.05: create run"),
        (OWN, "begin" + " uncreated 1" * 20 + " uncreated 1", "0.05: create run"),
        (OWN, "begin" + " uncreated 1" * 21 + " uncreated", FAILS.partition(";")[0]),
        (STANDING, "begin uncreated", SLOW),
        (STANDING, "begin uncreated 1 uncreated", ""),
        # 41: a signal before the creation ends it
        (OWN, "begin uncreated signal", STOPS),
        (OWN, "begin uncreated signal 1", ""),
        # 53, 95: whatever fails as nobody expected, the launch comes to its end, without a result
        (OWN, "ground-fails begin", "make room; close board; end KeyError('make room')"),
        (OWN, "begin child-fails", "break off create run; close child"),
        (OWN, "begin child-fails closed", FAULT),
        # 100: a symmetric registry stays for nodes that nobody can cancel
        (SYMMETRIC, BEGUN + "over-untold", f"{WAITS} 2, which has not joined yet; {ASKS}"),
        (SYMMETRIC, BEGUN + "40 over-untold-both", f"{WAITS}s 2-3, which have not ...; {ASKS}"),
        (SYMMETRIC, BEGUN + "over-untold 30", "30: break off ask status"),  # nobody is late
        (SYMMETRIC, BEGUN + "over-untold-late", "show"),
        (SYMMETRIC, BEGUN + "over-untold-well", "show"),
        (SYMMETRIC, BEGUN + "signal over-untold", "show; break off cancel run"),
    ],
)
def test_33_to_41_100_what_is_done_for_each_kind_of_launch(
    of: Facts, script: str, then: str
) -> None:
    assert Drive.new(of).play(script, STEPS, QUIETER, then) == then


@pytest.mark.parametrize(
    ("script", "then"),
    [
        # 34, 35: it is started again after ever longer pauses, five times within thirty seconds
        ("dies", "start child"),
        ("dies dies 0.21", "0.2: start child"),
        ("dies dies 0.2 dies 0.41", "0.4: start child"),
        ("dies dies 0.2 dies 0.4 dies 0.6 dies", f"close child; break off ask status; {EVENTS}"),
        ("dies dies end 1", ""),
        ("dies 8 " * 20 + "dies 0.7", "0.4: start child"),
        # 42, 43, 45: a launcher that cannot go on tells its nodes and waits a moment
        ("forgets", FAILS),
        ("forgets 1.1", ""),
        ("signal forgets", f"break off cancel run; {FAILS}"),
        ("signal uncancelled forgets 1", ""),
        ("forgets cancelled", "ask status 4 0.5"),
        ("forgets cancelled 2.9 still-here", "ask status 4 0.5"),
        ("forgets cancelled 3.1 still-here", "close child"),
        ("forgets cancelled-left", "close child"),
        # 44: a registry that does not answer is asked again with jitter until it is lost
        ("", "ask status -1 2.0; follow events 0"),
        ("stands", "show; ask status 7 2.0"),
        ("late 0.51", "0.5: ask status -1 2.0"),
        ("silent 5 " * 24 + "silent 5", "0.2: ask status -1 2.0"),
        ("silent 5 " * 25 + "silent", FAILS),
        # 44: one that says 'not now' is there, for an hour since its last real answer
        ("not-now", NOT_NOW_YET),
        ("not-now 1 not-now", ""),
        ("not-now 0.2", "0.2: ask status -1 2.0"),
        ("not-now 100 " * 36 + "silent 0.5", "0.2: ask status -1 2.0"),
        ("not-now 100 " * 37 + "not-now", ""),
        ("not-now 100 " * 37 + "not-now 21 not-now 1 not-now", FAILS),
        ("not-now 100 " * 37 + "stands " + "not-now 100 " * 35 + "not-now", ""),
        ("not-now 1 " + "silent 5 " * 25 + "silent", FAILS),
        # 44: a launcher that was stopped has one try left, each time
        ("1000 silent 0.5", "0.2: ask status -1 2.0"),
        ("1000 silent 0.5 stands silent 0.5", "0.2: ask status 7 2.0"),
        # 46: a status is shown first, then its trouble once, then the slots
        ("trouble", f"show; say full; tell slot submitting; {ASKS}"),
        ("go-wants", f"show; say full; tell slot submitting; keep; {ASKS}"),
        ("trouble trouble", SEES),
        ("trouble slow", f"show; say slow; {ASKS}"),
        # 38, 39: a journal that stays full ends the launch before the go; any answer clears it
        ("wants unheard", FULL_SAID),
        ("wants unheard 119 wants heard 10 wants", SEES),
        ("wants unheard 120.5 wants" + GIVES_UP, ON_FULL),
        ("wants unheard 1 unheard 119.5 wants" + GIVES_UP, ON_FULL),
        ("wants unheard 100 unwanted 20.5 wants" + GIVES_UP, ON_FULL),
        ("wants unheard 100 unheard-now 20.5 wants", SEES),
        ("forming-unwritten" + GIVES_UP, UNWRITABLE),
        ("running-unwritten", f"show; say full; {ASKS}"),
        ("full", FULL_SAID),
        ("full 119 stands 100 stands", "show; ask status 7 2.0"),
        # 47, D8: the table is kept once an epoch, with a further try, and odd things are said
        ("go", f"show; keep; {ASKS}"),
        ("go go", SEES),
        ("go unkept", ""),
        ("go unkept go", SEES),
        ("go unkept 1", "1: keep"),
        ("go kept-odd", WARNS),
        ("go kept go", SEES),
        ("go kept go-again", f"show; keep; {ASKS}"),
        ("over-sealed unkept 1 kept-odd", f"{WARNS}; {PARTS}"),
        ("over-sealed 18", "18: break off ask status; break off keep; fetch words"),
        ("go forgets", f"break off keep; {FAILS}"),
        # an epoch that has ended is said once; the next one is kept at its go, and what its checks
        # have found is said where it is new
        ("go kept restarts", f"show; {FIRST}; {ASKS}"),
        ("go kept goes-again", f"show; {FIRST}; keep; {ASKS}"),
        ("go kept restarts restarts", SEES),
        ("go kept restarts restarts-again", f"show; {SECOND}; {ASKS}"),
        ("go kept restarts restarts-again restarts-again", SEES),
        ("go kept restarts arms-again", SEES),
        ("go kept restarts arms-again goes-again", f"show; keep; {ASKS}"),
        ("go kept restarts goes-again kept", ""),
        ("go kept restarts goes-again kept-odd", WARNS),
        ("go kept-odd restarts goes-again kept-odd", ""),
        ("go kept-odd go-again kept go kept-odd", WARNS),
        ("go restarts unkept 1", ""),
        ("go kept restarts restarts-unwritten" + GIVES_UP, UNWRITABLE),
        # 48, D8: findings of a failed start are said before the registry goes, if they come
        ("over-unchecked", f"show; keep report; {ASKS}"),
        ("9 over-unchecked unkept 0.9", ""),
        ("over-unchecked unkept 1", "1: keep report"),
        ("over-unchecked unkept 1 kept-odd", f"{FINDS}; break off ask status"),
        ("over-unverified unkept 1 unkept 1 unkept", "break off ask status"),
        ("over-unverified unkept 1 unkept 1 unkept 2", ""),
        # 49: nodes have their grace and eight seconds to leave, from the first result on
        ("3 over-here 5 over-here 13.1", f"13: {LATE}"),
        # 50: then the events are shown to their end, or for three seconds
        ("over features 3.1", "3: break off follow events; close child"),
        ("over features 2 dies 1.1", "1: break off follow events; close child"),
        ("over features events-over", "close child"),
        ("features over events-over", "close child"),  # they had ended before
        # events that ended before everyone had left are asked for at once, and only once
        ("events-over over features", "follow events 9"),
        ("events-over over features events-over", "close child"),
        ("events-over over features events-broken 0.2", "0.2: follow events 17"),
        # of a run whose programs were started, and failed, their ranks' last words are kept as well
        ("go kept over-sealed", "show; fetch words"),
        ("go kept over-sealed-well", "show"),
        ("go kept over-sealed features", ""),
        ("go kept over-sealed words", ""),
        ("go kept events-over over-sealed words features", "follow events 9"),
        ("go kept events-over over-sealed features words-fail", "follow events 9"),
        ("go kept over-sealed features words events-over", "close child"),
        # and of an epoch a while after it has ended
        ("go kept restarts 4.9", ""),
        ("go kept restarts 5", "5: fetch words"),
        ("go kept restarts 5 words restarts 9", ""),
        ("go kept restarts 5 words-fail 9", ""),
        ("go kept restarts forgets", FAILS),
        # 51: events go on after the last one that was shown, and end nothing
        ("events-broken 0.2", "0.2: follow events 17"),
        ("events-fail 0.2", "0.2: follow events 0"),
        # 53, 95: whatever fails as nobody expected, the launch comes to its end, without a result
        ("end result-fails closed", f"{FAILED} KeyError('write result')"),
        ("board-fails stands", f"show; {FAILS}"),
        ("board-fails stands cancel-fails", "close child"),  # that does not keep it either
        ("board-fails stands cancel-fails closed", NO_BOARD),
        ("over-here board-fails over-here cancel-fails closed", NO_BOARD),
        # D7: what is lost after the result does not lose it
        ("over-here forgets", f"{LOST}; close child; break off follow events"),
        ("over-here signal signal", f"{AT_ONCE}; break off cancel run; {EVENTS}"),
        ("over-here forgets closed", FAILED),
        ("over-here" + " dies 1" * 5 + " closed", FAILED),
        ("over-here signal signal closed", f"{FAILED} 15"),
        ("over-here" + " silent 1" * 18 + " features closed", FAILED),
    ],
)
def test_34_to_53_what_is_done_at_each_step(script: str, then: str) -> None:
    assert Drive.new().play(BEGUN + script, STEPS, QUIETER, then) == then


LOSES, UNCREATED = "registry_lost 85: ", "uncreated 1 " * 21 + "uncreated"
UNMADE = "the standing registry did not create the run within 20 s: nobody answers; try"
NOT_UP = "the registry did not start within 20 s: nobody answers"
SILENCE = "the registry of run 'r' does not answer: nobody answers; try"
ENDS, NO_WORDS = "the registry ended 5 times within 30 s", "; its last output: no room; "
BUS = "created" + " dies-7 1 dies 1" * 2 + " dies 1"
ROOM, SEE = (
    "its state folder may have no room: see df and the quota there; ",
    "see " + "/state/r/logs/registry.log",
)
UNHEARD, ENDED_AT_ONCE = " uncancelled 1" * 10, "cancelled 143: run 'r' was ended immediately"
UNANSWERED = ": its registry did not answer within 10 s; "


@pytest.mark.parametrize(
    ("of", "script", "told"),
    [
        (STANDING, UNCREATED, LOSES + UNMADE),
        (OWN, UNCREATED, f"{LOSES}{NOT_UP}; {SEE}"),
        (OWN, "created " + "silent 5 " * 25 + "silent", LOSES + SILENCE),
        (OWN, "created" + " dies 1" * 5, LOSES + ENDS + NO_WORDS + SEE),
        (OWN, "created" + " dies-24 1" * 5, f"{LOSES}{ENDS} (SIGXCPU){NO_WORDS}{SEE}"),
        (OWN, BUS, f"{LOSES}{ENDS} (SIGBUS){NO_WORDS}{ROOM}{SEE}"),
        (OWN, "created wants unheard 121 wants", f"storage_full 85: for 121 s, {NO_ROOM}"),
        (OWN, "signal uncreated", "cancelled 143: run 'r' was stopped before it started; "),
        (OWN, "created signal signal", f"{ENDED_AT_ONCE} by a second signal; "),
        (OWN, f"created signal {UNHEARD}", f"{ENDED_AT_ONCE}{UNANSWERED}"),
        (OWN, "refused", "not_found 77: no such run; "),
    ],
)
def test_94_why_a_launch_could_not_go_on(of: Facts, script: str, told: str) -> None:
    drive = Drive.new(of)
    drive.play(f"begin {script}", STEPS)
    if drive.all_open("cancel run"):
        drive.refuse("cancel run", SILENT)
    if of is OWN:
        drive.answer("close child")
    (found,) = [one.of for one in drive.of("write result")]
    assert f"{found.code} {found.exit_code}: {found.message}; {found.hint}" == told
    assert found.status == ("cancelled" if found.code == "cancelled" else "failed")


@pytest.mark.parametrize(
    ("of", "script", "words"),
    [
        (SYMMETRIC, "over-untold-both", f"{WAITS_FOR}s 2-3, which have not joined yet"),
        (OWN, "wants unheard", NO_ROOM),
        (OWN, "go restarts restarts-again", "epoch 2 ended after 3 h: node 3 failed; so"),
    ],
)
def test_what_is_said_on_the_way(of: Facts, script: str, words: str) -> None:
    drive = Drive.new(of)
    drive.play(BEGUN + script, STEPS)
    assert drive.said()[-1] == words


def test_53_95_the_board_is_closed_though_the_registry_cannot_be_ended() -> None:
    drive = Drive.new()
    drive.play(BEGUN + "end close-fails", STEPS)
    assert drive.of("end")
    assert drive.of("close board")


def test_43_a_reason_is_cut_where_nodes_would_be_told_too_much() -> None:
    drive = Drive.new().following()
    drive.refuse("ask status", NotFound("x" * 400))
    assert drive.open("cancel run").of == "its launcher failed: ".ljust(300, "x")


def test_what_a_launcher_fails_with_names_the_epochs_that_have_ended() -> None:
    for script, epochs in (("forgets" + GIVES_UP, [ONCE]), ("end closed", [])):
        drive = Drive.new()
        drive.play(BEGUN + "go kept restarts " + script, STEPS)
        assert drive.of("write result")[0].of.epochs == epochs  # the registry's result has them


def test_50_52_features_run_from_the_first_status_on_and_finish_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parted: list[object] = []
    monkeypatch.setattr(LauncherPort, "part", lambda port: parted.append(port))
    drive = Drive.new().following()
    assert (len(drive.all_open("run features")), parted) == (1, [])
    drive.came(over())
    assert len(parted) == 1
    drive.wait(4.9)
    assert len(drive.all_open("run features")) == 1
    drive.wait(0.2)
    assert drive.all_open("run features") == []
    assert len(drive.of("run features")) == 1


# ---- secrets ------------------------------------------------------------------------------------

SENDS = facts(secrets=("TOKEN",))


def test_the_secrets_are_sent_once_and_again_to_a_registry_that_has_lost_them() -> None:
    """At first too where a launch is taken up again: those of the launcher before may be others."""
    drive, counts = Drive.new(SENDS).following(), list[int]()
    for wants, answer in ((False, None), (False, None), (True, SILENT), (True, None)):
        drive.status(wants_secrets=wants)
        counts.append(len(drive.of("send secrets")))
        if drive.all_open("send secrets") and len(counts) < 4:
            drive.answer("send secrets", None, answer)
    drive.status(wants_secrets=True)  # the try before it is under way
    counts.append(len(drive.of("send secrets")))
    assert counts == [1, 1, 2, 3, 3]
    drive.came(over())  # once the nodes have left nothing is on its way any more
    assert drive.all_open("send secrets") == []


def test_a_registry_that_refuses_the_secrets_ends_the_launch() -> None:
    drive = Drive.new(SENDS).following()
    drive.status(wants_secrets=True)
    drive.refuse("send secrets", FOREIGN)
    assert drive.all_open("cancel run")


def test_no_secrets_are_sent_where_there_are_none_or_the_run_is_over() -> None:
    drive, late = Drive.new().following(), Drive.new(SENDS).following()
    drive.status(wants_secrets=True)
    late.came(over(left=False, wants_secrets=True))
    assert drive.of("send secrets") == late.of("send secrets") == []
