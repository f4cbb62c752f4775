"""Each sentence of a launch, and each reason why it could not go on, in words."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from launcher.run import actions as do
from launcher.run import sentences as say
from launcher.run import values
from launcher.run.values import ErrorKind, Key, Trouble, Verdict, Why
from launcher.run.words import Names, cancel_reason, detail_of, lines, result_of
from rendezvous.wire.errors import PREEMPTED_HINT
from rendezvous.wire.run import EpochEnd, Phase, Result, SlotState


def ends_with(key: Key, handle: str) -> str:
    """The command that ends a worker run: of slot 1 by its id, of slot 3 by its name."""
    by_id = f"scancel {handle}" if handle and key.slot == 1 else ""
    return f"ssh n3 end-by-name {handle}".strip() if key.slot == 3 else by_id


def starts_with(key: Key, handle: str) -> str:
    """The command with which a person starts a worker run."""
    return f"sh {handle}"


def named(key: Key) -> str:
    """A worker run's name."""
    return f"rdzv-x-{key.slot}-{key.generation}"


NAMES = Names(
    "llama",
    Path("state/ledger"),
    Path("registry.log"),
    Path("former.log"),
    True,
    named,
    starts_with,
    ends_with,
)
ONE, TWO = Key(1, 1), Key(2, 1)
GONE = Trouble(ErrorKind.NOT_NOW, "registry_lost", "no route to host", "look at its network")
LOST = values.Silent(GONE)
UNLISTED = say.Stand(say.StandKind.NOT_LISTED)
UNSEEN = say.Stand(say.StandKind.CANNOT_LOOK)
DOWN = say.Stand(say.StandKind.SILENT, detail="slurmctld is down")
QUEUED = say.Stand(say.StandKind.STATE, SlotState.QUEUED, "Resources")
RUNS = say.Stand(say.StandKind.STATE, SlotState.RUNNING)
SENTENCES = [
    (
        say.AvoidsHosts(Key(1, 2), ("gpu-17", "gpu-3")),
        "slot 1: rdzv asks for another host than gpu-17, gpu-3",
    ),
    (
        say.CannotAvoid(Key(1, 2), ("gpu-17",)),
        "slot 1 may start on gpu-17 again: its worker spec has no <<AVOID>>",
    ),
    (
        say.CannotAvoid(Key(1, 2), ()),
        "slot 1 may start on the same host again: its scheduler names no hosts",
    ),
    (
        say.NoOtherHost(1, ("gpu-17",), "no such"),
        "slot 1 may start on any host: with other hosts than gpu-17 only, it was refused (no such)",
    ),
    (
        say.NoOtherHost(1, ("gpu-17",)),
        "slot 1 may start on any host: another host than gpu-17 has not come free within 60 s",
    ),
    (say.StartsElsewhere(Key(1, 2), "n3", "n1"), "slot 1 starts on n3, not on n1"),
    (
        say.StartsAgainOn(1, "n1"),
        "slot 1 starts on n1 again: no other host of the list is free",
    ),
    (
        say.StartsByHand(ONE, "/s/slot-1.sh"),
        "copy slot 1's script to its machine, and start it there: sh /s/slot-1.sh",
    ),
    (say.EndsRun(15, None), "SIGTERM: stopping before anything has started"),
    (
        say.EndsRun(2, 10.0),
        "Stopping all nodes (up to 10 s). Press Ctrl-C again to kill them now.",
    ),
    (say.EndsRun(1, 2.5), "SIGHUP (a closed terminal): stopping all nodes (up to 2.5 s)"),
    (say.EndsAtOnce(2, False), "Ctrl-C: killing all nodes now"),
    (say.EndsAtOnce(2, True), "Ctrl-C again: killing all nodes now"),
    (say.RegistryTrouble("the disk is full", "make room"), "the disk is full; make room"),
    (say.RegistryTrouble("the disk is full"), "the disk is full"),
    (
        say.RegistryNotNow("no database"),
        "the registry answers, but cannot serve run 'llama' just now: no database",
    ),
    (say.StandingWaits("busy"), "the standing registry has not created the run yet: busy"),
    (
        say.LedgerUnwritable("disk full"),
        "state/ledger cannot be written, so rdzv submits nothing: disk full",
    ),
    (say.DidNotLeave((1, 3), 9.6), "slots 1, 3 did not end within 10 s"),
    (
        say.WaitsForOthers((1, 3), 60.0),
        "waiting for at most 60 s to send the result to slots 1, 3, which have not joined yet",
    ),
    (
        say.WaitsForRuns((1,)),
        (
            "waiting for the worker runs of slot 1 to end, as their scheduler reports; press "
            "Ctrl-C to stop waiting"
        ),
    ),
    (say.ResultUnwritten("result.json: disk full"), "result.json: disk full"),
    (say.Resumes("abc", "it runs"), "resuming launch abc: it runs"),
    (
        say.Requeued(2, say.Resumes("abc", "it runs")),
        "the job was requeued (restart 2): resuming launch abc: it runs",
    ),
    (
        say.PortKept(29_700, 29_600),
        "--port 29700 has no effect: the workers of this launch use port 29600",
    ),
    (
        say.FormerStays("abc"),
        "launch abc, which may still be on the registry, is not changed",
    ),
    (
        say.KeepsLeft(2),
        ("2 worker runs of the previous launch may still exist; end them with 'rdzv cancel llama'"),
    ),
    (
        say.EndsFormer(Phase.GATHERING, Why.RUNNING),
        (
            "the previous launch of run 'llama' was gathering, and its launcher had ended: rdzv "
            "ends what is left of it and starts a new launch"
        ),
    ),
    (
        say.EndsFormer(Phase.RUNNING, Why.OTHER_OPTIONS),
        (
            "the previous launch of run 'llama' was running, and its COMMAND or options were "
            "different: rdzv ends what is left of it and starts a new launch"
        ),
    ),
    (say.EndsLeft(1), "1 worker run of the previous launch may still exist: ending them"),
    (say.EndsLeft(2), "2 worker runs of the previous launch may still exist: ending them"),
    (say.UnknownLeft("old", "no profile"), "worker run old may still exist: no profile"),
    (
        say.EpochEnded(
            EpochEnd(epoch=1, ran_seconds=10_900.0, message="node 1 failed", code="x", then="so")
        ),
        "epoch 1 ended after 3 h: node 1 failed; so",
    ),
    (  # a restart by hand, which was announced when it was requested
        say.EpochEnded(EpochEnd(epoch=1, ran_seconds=0.0, message="they were stopped", then="so")),
        "epoch 1 ended within 10 s: they were stopped",
    ),
    (
        say.LostAfterResult(LOST),
        (
            "the registry was lost after the run had ended: the registry of run 'llama' does "
            "not answer: no route to host"
        ),
    ),
    (
        say.BeginsAnew(Why.OTHER_HOST, "login1"),
        (
            "run 'llama' was launched on login1; there is nothing to resume on this host: "
            "starting a new launch"
        ),
    ),
    (
        say.BeginsAnew(Why.PORT_HELD, "port 29600 is taken"),
        "the previous launch cannot be resumed: port 29600 is taken",
    ),
    (
        say.BeginsAnew(Why.OVER, "cancelled"),
        "the previous launch has ended: cancelled; starting a new launch",
    ),
    (say.BeginsAnew(Why.OVER), "the previous launch has ended; starting a new launch"),
    (
        say.BeginsAnew(Why.NOTHING_FORMER),
        (
            "state holds no previous launch: starting a new launch; set RDZV_STATE_DIR to a "
            "folder that all nodes share"
        ),
    ),
    (
        say.BeginsAnew(Why.SILENT),
        (
            "the previous launch cannot be resumed: its registry does not start or does not know "
            "it (see former.log); starting a new launch"
        ),
    ),
    (
        say.MayBeLeft(ONE, "100", QUEUED),
        (
            "worker run rdzv-x-1-1 (slot 1, id 100) may still exist: it is queued: Resources; "
            "end it with: scancel 100"
        ),
    ),
    (
        say.MayBeLeft(TWO, "100", RUNS),
        "worker run rdzv-x-2-1 (slot 2, id 100) may still exist: it is running",
    ),
    (
        say.MayBeLeft(ONE, "", UNSEEN),
        (
            "worker run rdzv-x-1-1 (slot 1) may still exist: the scheduler did not answer its "
            "submission and cannot look it up; look for a run with that name"
        ),
    ),
    (
        say.MayBeLeft(TWO, "", DOWN),
        (
            "worker run rdzv-x-2-1 (slot 2) may still exist: slurmctld is down; look for a run "
            "with that name"
        ),
    ),
    (
        say.MayBeLeft(Key(3, 1), "", DOWN),
        (
            "worker run rdzv-x-3-1 (slot 3) may still exist: slurmctld is down; end it with: "
            "ssh n3 end-by-name"
        ),
    ),
    (
        say.MayBeLeft(TWO, "7", UNLISTED),
        "worker run rdzv-x-2-1 (slot 2, id 7) may still exist: it is not listed",
    ),
    (
        say.WaitsForOlder(ONE, "/s/slot-1.sh", say.Stand(say.StandKind.STATE, SlotState.ENDED)),
        (
            "what was started by hand as worker run rdzv-x-1-1 (slot 1, id /s/slot-1.sh) may still "
            "run; the next worker run of slot 1 waits until its program is surely over"
        ),
    ),
    (
        say.WaitsForOlder(ONE, "100", QUEUED),
        (
            "worker run rdzv-x-1-1 (slot 1, id 100) may still exist: it is queued: Resources; "
            "end it with: scancel 100; the next worker run of slot 1 waits until its program is "
            "surely over"
        ),
    ),
]


@pytest.mark.parametrize(("said", "words"), SENTENCES)
def test_what_a_launch_says(said: say.Sentence, words: str) -> None:
    assert list(lines(said, NAMES)) == [words]


def test_every_sentence_but_those_of_the_checks_is_in_the_table() -> None:
    every = {each.__name__ for each in say.Sentence.__subclasses__()}
    assert {type(said).__name__ for said, _ in SENTENCES} == every - {"Warnings", "Findings"}


STANDING = "the standing registry did not create the run within 20 s: no route to host"
NOT_UP = "the registry did not start within 20 s: no route to host"
SILENT = "the registry of run 'llama' does not answer: no route to host"
ENDED = "the registry ended 5 times within 30 s; its last output: Killed"
UNHEARD = "run 'llama' was ended immediately: its registry did not answer within 20 s"
REFUSED = Trouble(ErrorKind.OTHER, "too_late", "it is over", "begin anew", 80)
SEE, LOOK = "see registry.log", "look at its network"
FAILURES: list[tuple[values.Failure, tuple[str, int, str, str]]] = [
    (values.NotCreated(20.0, GONE, True), ("registry_lost", 85, STANDING, LOOK)),
    (values.NotCreated(20.0, GONE, False), ("registry_lost", 85, NOT_UP, SEE)),
    (LOST, ("registry_lost", 85, SILENT, LOOK)),
    (values.ChildLost(5, 30.0, "Killed"), ("registry_lost", 85, ENDED, SEE)),
    (
        values.ChildLost(5, 30.0, "Killed", -24),
        ("registry_lost", 85, ENDED.replace(";", " (SIGXCPU);"), SEE),
    ),
    (
        values.ChildLost(5, 30.0, "Killed", -7),
        (
            "registry_lost",
            85,
            ENDED.replace(";", " (SIGBUS);"),
            f"its state folder may have no room: see df and the quota there; {SEE}",
        ),
    ),
    (
        values.StorageLost(60.0, "it is full", "free"),
        ("storage_full", 85, "for 60 s, it is full", "free"),
    ),
    (values.EndedBeforeBegun(), ("cancelled", 84, "run 'llama' was stopped before it started", "")),
    (
        values.EndedAtOnce(),
        ("cancelled", 84, "run 'llama' was ended immediately by a second signal", ""),
    ),
    (values.EndedAtOnce(20.0), ("cancelled", 84, UNHEARD, "")),
    (values.Refusal(REFUSED), ("too_late", 80, "it is over", "begin anew")),
]


@pytest.mark.parametrize(("failure", "told"), FAILURES)
def test_why_a_launch_could_not_go_on(
    failure: values.Failure, told: tuple[str, int, str, str]
) -> None:
    result = result_of(Verdict(failure=failure), NAMES)
    assert (result.code, result.exit_code, result.message, result.hint) == told
    assert result.status == ("cancelled" if told[0] == "cancelled" else "failed")


def test_every_reason_is_in_the_table() -> None:
    assert {type(failure) for failure, _ in FAILURES} == set(typing.get_args(values.Failure))


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("", "slot 1 failed: preempted"),
        ("preempted", "slot 1 failed: preempted"),
        ("node is down", "slot 1 failed: preempted; the scheduler reports: node is down"),
        ("x" * 400, f"slot 1 failed: preempted; the scheduler reports: {'x' * 299}…"),
    ],
    ids=["nothing", "the same", "more", "too much"],
)
def test_a_result_ends_with_what_its_scheduler_says_unless_it_says_so_already(
    says: str, message: str
) -> None:
    result = Result(status="failed", exit_code=1, code="failed", message="slot 1 failed: preempted")
    assert result_of(Verdict(result, says=says), NAMES).message == message


@pytest.mark.parametrize(
    ("slot", "whose"), [(1, "its worker run"), (2, "the worker run of slot 2")]
)
def test_a_preemption_is_the_cause_whatever_the_registry_saw_of_it(slot: int, whose: str) -> None:
    result = Result(
        status="failed",
        exit_code=143,
        exit_code_of="program",
        code="program_failed",
        message="node 1 failed",
        slot=1,
    )
    verdict = Verdict(result, preempted=values.Preempted(slot, "/p/slurm.toml", "PREEMPTED: n0"))
    assert result_of(verdict, NAMES) == Result(
        status="failed",
        exit_code=88,
        code="preempted",
        cause="preempted",
        message=f"node 1 failed; slurm preempted {whose}: PREEMPTED: n0",
        hint=PREEMPTED_HINT,
        slot=1,
    )


def test_what_to_do_about_a_submission_is_the_results_hint_unless_that_has_one() -> None:
    for own, hint in (("", "try it by hand: sbatch"), ("see the log", "see the log")):
        result = Result(status="failed", exit_code=83, code="failed", message="no", hint=own)
        verdict = Verdict(result, hint="try it by hand: sbatch")
        assert result_of(verdict, NAMES).hint == hint


def test_a_run_that_a_signal_to_the_launcher_cancelled_exits_with_it() -> None:
    codes = [
        result_of(Verdict(Result(status=status, exit_code=84, message=""), signal=15), NAMES)
        for status in ("cancelled", "failed")
    ]
    assert [result.exit_code for result in codes] == [143, 84]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (do.BySignal(2), "SIGINT at the launcher"),
        (do.ByFailure(values.EndedBeforeBegun()), "its launcher failed: run 'llama' was stopped"),
        (do.ByFailure("out of memory"), "its launcher failed: out of memory"),
        (Why.RUNNING, "its launcher had ended"),
        (Why.OTHER_OPTIONS, "its COMMAND or options were different"),
    ],
)
def test_why_a_run_is_cancelled(reason: do.CancelReason, words: str) -> None:
    assert cancel_reason(reason, NAMES).startswith(words)
    assert len(cancel_reason(do.ByFailure("x" * 400), NAMES)) == 300


@pytest.mark.parametrize(
    ("detail", "last", "words"),
    [
        ("Evicted", "", "Evicted"),
        ("", "no image", "its last line: 'no image'"),
        ("Evicted", "no\timage", r"Evicted; its last line: 'no\timage'"),
    ],
)
def test_what_the_registry_is_told_of_a_worker_run(detail: str, last: str, words: str) -> None:
    assert detail_of(do.News(SlotState.FAILED, "100", detail, last)) == words
