"""The course of a launch: created, followed, left by its nodes, ended, written down."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.port import LauncherPort
from rendezvous.wire.errors import NotFound
from rendezvous.wire.node import Finding
from rendezvous.wire.run import EpochEnd, NodeState, Phase, RunReport, SlotStatus
from tests.launcher.drive import (
    FOREIGN,
    FULL,
    NOT_NOW,
    SILENT,
    UNEXPECTED,
    Drive,
    Step,
    Steps,
    ends,
    over,
    result,
    says,
    slot,
    status,
)
from tests.launcher.outer import Facts

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


def ended(*codes: int | None) -> list[SlotStatus]:
    """Each node, as its program has ended."""
    return [slot(number, node=number, exit_code=code) for number, code in enumerate(codes)]


def cancelled(why: str) -> Step:
    """A step: it ends as somebody has cancelled it."""
    message = f"run 'r' was cancelled: {why}"
    return ends(result("cancelled", 84, status="cancelled", message=message))


KEEPS = ("keep", "keep report")
STEPS: Steps = {
    "uncreated": ("create run", SILENT),
    "refused": ("create run", FOREIGN),
    # how the run stands
    "silent": ("ask status", SILENT),
    "late": lambda drive, _: drive.answer("ask status", SILENT, drawn=1.0),
    "not-now": ("ask status", NOT_NOW),
    "full": ("ask status", FULL),
    "stands": status(version=7),
    "wants": status(WANTS),
    "trouble": status(WANTS, trouble="full"),
    "slow": status(trouble="slow"),
    "forming-unwritten": status(**UNWRITTEN, phase=Phase.ARMING),
    "running-unwritten": status(**UNWRITTEN, phase=GO),
    "go": status(phase=GO, digest="d1", epoch=1),
    "go-wants": status(slot(1, 0, 1, awaited=True), phase=GO, digest="d1", epoch=1, trouble="full"),
    "go-again": status(phase=GO, digest="d2", epoch=2),
    "restarts": status(**BACK_OFF, digest="d1", epoch=1),
    "restarts-unwritten": status(**UNWRITTEN, **BACK_OFF),
    "restarts-again": status(**BACK_OFF | TWICE, digest="d2", epoch=2),
    "arms-again": status(**ENDED, phase=Phase.ARMING, digest="d2", epoch=2),
    "goes-again": status(**ENDED, phase=GO, digest="d2", epoch=2),
    "over": over(HERE),
    "over-sealed": over(digest="d1", epoch=1),
    "over-sealed-well": over(digest="d1", epoch=1, result=result(status="ok")),
    "over-here": over(*BOTH, left=False),
    "over-untold": over(untold=[0, 2]),
    "over-untold-both": over(untold=[0, 2, 3]),
    "over-untold-late": over(untold=[2], result=result(code="join_timeout")),
    "over-untold-well": over(untold=[2], result=result(status="ok")),
    "over-unchecked": over(result=result("preflight_failed", 87)),
    "over-unverified": over(result=result("verification_failed", 81)),
    "ctrl-c-heard": cancelled("SIGINT at the launcher"),
    "cancelled-by-somebody": cancelled("wrong data"),
    # what is told, kept and shown
    "unheard": ("tell slot", FULL),
    "unheard-now": ("tell slot", NOT_NOW),
    "cancelled": ("cancel run", status(HERE, version=4)),
    "still-here": status(HERE, version=4),
    "kept-odd": (KEEPS, ODD),
    "unkept": (KEEPS, SILENT),
    "kept": (KEEPS, RunReport(run="r")),
    "ground-fails": breaks("make room"),
    "child-fails": ("start child", UNEXPECTED),
    "close-fails": ("close child", UNEXPECTED),
    "result-fails": breaks("write result"),
    "cancel-fails": ("cancel run", UNEXPECTED),
    "board-fails": breaks("show"),
    "dies-7": ("start child", -7),
    "dies-24": ("start child", -24),
    "wants-secrets": status(wants_secrets=True),
    "over-wants-secrets": over(left=False, wants_secrets=True),
    "sent": ("send secrets", None),
    "unanswered": ("send secrets", SILENT),
    "unsent": ("send secrets", FOREIGN),
    "features": ("run features", None),
    "words": ("fetch words", None),
    "words-fail": ("fetch words", UNEXPECTED),
    "told-to-end": ends(result(exit_code=143, cause="launcher_ended"), *ended(143, 0)),
    "left-as-told": ends(result("node_lost", 82), *ended(0, 143)),
    "time-limit": ends(result(exit_code=143, cause="time_limit"), *ended(143, 143)),
    "one-failed": ends(result(exit_code=1, cause="terminated"), *ended(1, 143)),
    "one-lost": ends(result("node_lost", 82), *ended(143, None)),
    "events-broken": ("follow events", (17, True)),
    "events-over": ("follow events", (9, False)),
}
OWN, STANDING, SYMMETRIC = Facts(), Facts(owns=False), Facts(others=None)
SENDS = Facts(secrets=("TOKEN",))
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
FULL_SAID = says(NO_ROOM)
ON_FULL = DOWN + "storage_full for 120 s, the disk is full; end"
UNWRITABLE = DOWN + "storage_full for 121 s, full; end"
NO_BOARD = "close board; end KeyError('show')"
FAULT = "close board; end KeyError('x')"
WARNS = "say 1 warning of the checks: rdzv status r --checks"
FINDS = "say warn    L12  "
PARTS = "break off ask status; fetch words"
LATE = "say slot 1 did not end within 18 s; break off ask status"
WAITS = "show; say waiting for at most 30 s to send the result to slot"
HAVE_NOT = "which have not joined yet"
AT_ONCE = "say SIGTERM again: ...; close child; break off ask status"
LOST = "say the registry was lost after the run had ended: no such run"
FAILED = DOWN + "program_failed node 1 failed; end"
FIRST = "say epoch 1 ended within 10 s: it was stopped"
SECOND = says("epoch 2 ended after 3 h: node 3 failed; so")


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
        (SYMMETRIC, BEGUN + "40 over-untold-both", f"{WAITS}s 2-3, {HAVE_NOT}; {ASKS}"),
        (SYMMETRIC, BEGUN + "over-untold 30", "30: break off ask status"),  # nobody is late
        (SYMMETRIC, BEGUN + "over-untold-late", "show"),
        (SYMMETRIC, BEGUN + "over-untold-well", "show"),
        (SYMMETRIC, BEGUN + "signal over-untold", "show; break off cancel run"),
        # sealed variables are sent at first, where a launch is taken up again too, as those of the
        # launcher before may be others; then to a registry that has lost them, a try at a time
        (SENDS, BEGUN + "wants", f"show; send secrets; tell slot submitting; {ASKS}"),
        (SENDS, BEGUN + "stands sent stands", "show; ask status 7 2.0"),
        (SENDS, BEGUN + "stands sent wants-secrets", f"show; send secrets; {ASKS}"),
        (SENDS, BEGUN + "stands unanswered wants-secrets", f"show; send secrets; {ASKS}"),
        (SENDS, BEGUN + "stands wants-secrets", SEES),
        (SENDS, BEGUN + "stands over", "show; break off send secrets"),
        # a registry that refuses them ends the launch, and none are sent late
        (SENDS, BEGUN + "wants-secrets unsent", f"break off ask status; {FAILS}"),
        (OWN, BEGUN + "wants-secrets", SEES),
        (SENDS, BEGUN + "over-wants-secrets", SEES),
    ],
)
def test_33_to_41_100_what_is_done_for_each_kind_of_launch(
    of: Facts, script: str, then: str
) -> None:
    assert Drive(of).play(script, STEPS, QUIETER, then) == then


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
        ("signal not-now", ""),
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
        ("go unkept 1 unkept 1 unkept over-unchecked 1", "1: keep report"),  # each by itself
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
        ("end close-fails", FAULT),
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
def test_34_to_53_95_what_is_done_at_each_step(script: str, then: str) -> None:
    assert Drive().play(BEGUN + script, STEPS, QUIETER, then) == then


LOSES, UNCREATED = "registry_lost 85: ", "uncreated 1 " * 21 + "uncreated"
UNMADE = "the standing registry did not create the run within 20 s: nobody answers; try"
NOT_UP = "the registry did not start within 20 s: nobody answers"
SILENCE = "the registry of run 'r' does not answer: nobody answers; try"
ENDS, NO_WORDS = "the registry ended 5 times within 30 s", "; its last output: no room; "
BUS = "created" + " dies-7 1 dies 1" * 2 + " dies 1"
ROOM = "its state folder may have no room: see df and the quota there; "
SEE = "see " + "/state/r/logs/registry.log"
UNHEARD, ENDED_AT_ONCE = " uncancelled 1" * 10, "cancelled 143: run 'r' was ended immediately"
REASON, BY_CTRL_C = "run 'r' was cancelled: wrong data; ", "you stopped run 'r' with Ctrl-C"
BY_TERM = "run 'r' was cancelled: SIGTERM at the launcher"
BY_INT = "run 'r' was cancelled: SIGINT at the launcher"
FROM_WHOM = (
    "it did not come from the keyboard: see the script or CI job that started rdzv",
    "who sent it is not known: ask the scheduler (a time limit, a preemption)",
)
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
        # 93: what a signal to the launcher has cancelled exits with it, and says who did it
        (OWN, "created signal cancelled-by-somebody", f"cancelled 143: {REASON}"),
        (OWN, "created ctrl-c cancelled-by-somebody", f"cancelled 130: {REASON}"),
        (OWN, "created ctrl-c ctrl-c-heard", f"cancelled 130: {BY_CTRL_C}; "),
        (OWN, "ctrl-c uncreated", f"cancelled 130: {BY_CTRL_C}, before it started; "),
        (OWN, "created sigint ctrl-c-heard", f"cancelled 130: {BY_INT}; {FROM_WHOM[0]}"),
        (OWN, "created signal node-lost", "node_lost 86: node 1 failed; "),
        # 93: programs that a signal has ended as well, whoever has told whom first
        (OWN, "created signal told-to-end", f"cancelled 143: {BY_TERM}; {FROM_WHOM[1]}"),
        (OWN, "created signal left-as-told", f"cancelled 143: {BY_TERM}; {FROM_WHOM[1]}"),
        (OWN, "created told-to-end", "program_failed 143: node 1 failed; "),
        (OWN, "created signal time-limit", "program_failed 143: node 1 failed; "),
        (OWN, "created signal one-failed", "program_failed 1: node 1 failed; "),
        (OWN, "created signal one-lost", "node_lost 82: node 1 failed; "),
        (OWN, "refused", "not_found 77: no such run; "),
    ],
)
def test_93_94_what_is_written_of_how_a_launch_has_ended(of: Facts, script: str, told: str) -> None:
    drive = Drive(of)
    drive.play(f"begin {script}", STEPS)
    if drive.all_open("cancel run"):
        drive.answer("cancel run", SILENT)
    if of is OWN:
        drive.answer("close child")
    (found,) = [one.of for one in drive.of("write result")]
    assert f"{found.code} {found.exit_code}: {found.message}; {found.hint}" == told
    assert found.status == ("cancelled" if found.code == "cancelled" else "failed")


@pytest.mark.parametrize("kind", ["restarted", "departs", "exited", "verdict", "cancelled"])
@pytest.mark.parametrize("signalled", [True, False])
def test_after_a_signal_the_end_of_rdzv_s_own_parts_is_no_news(
    kind: str, *, signalled: bool
) -> None:
    """It may be for a whole session: the registry and the agents have got it as well."""
    drive = Drive(OWN).following()
    if signalled:
        drive.signal()
    drive.answer("follow events", (1, False, kind))
    assert [one.of for one in drive.of("show event")] == [signalled]


def test_a_time_out_that_ends_the_run_is_said_by_its_last_line_alone() -> None:
    for phase, said in ((Phase.FINISHED, True), (Phase.GATHERING, False)):
        drive = Drive(OWN).following()
        drive.answer("follow events", (1, False, "timed_out", phase))
        assert [one.of for one in drive.of("show event")] == [said]


def test_what_is_fetched_last_is_broken_off_where_everything_ends_at_once() -> None:
    drive, fetches = Drive(), ("run features", "fetch words")
    for script, count in ((BEGUN + "go kept over-sealed", 2), ("signal ctrl-c", 0)):
        drive.play(script, STEPS)
        assert len(drive.all_open(fetches)) == count


def test_43_a_reason_is_cut_where_nodes_would_be_told_too_much() -> None:
    drive = Drive().following()
    drive.answer("ask status", NotFound("x" * 400))
    assert drive.open("cancel run").of == "its launcher failed: ".ljust(300, "x")


def test_what_a_launcher_fails_with_names_the_epochs_that_have_ended() -> None:
    for script, epochs in (("forgets" + GIVES_UP, [ONCE]), ("end closed", [])):
        drive = Drive()
        drive.play(BEGUN + "go kept restarts " + script, STEPS)
        assert drive.of("write result")[0].of.epochs == epochs  # the registry's result has them


def test_50_52_features_run_from_the_first_status_on_and_finish_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parted: list[object] = []
    monkeypatch.setattr(LauncherPort, "part", lambda port: parted.append(port))
    drive = Drive().following()
    assert (len(drive.all_open("run features")), parted) == (1, [])
    drive.answer("ask status", over())
    assert len(parted) == 1
    drive.wait(4.9)
    assert len(drive.all_open("run features")) == 1
    drive.wait(0.2)
    assert drive.all_open("run features") == []
    assert len(drive.of("run features")) == 1
