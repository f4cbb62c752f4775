"""A program on its table: what is seen of it, said of it, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2
from typing import Any

import pytest

from rendezvous.wire.errors import ExitCode, RunError
from rendezvous.wire.reports import ExitReport, ProgressReport
from rendezvous.wire.run import Phase
from tests.worker.agent.drive import (
    CLOSES,
    GONE,
    NCCL,
    PROGRAM,
    SOCKET,
    STOP,
    TAKEN,
    TERM,
    UNTOLD,
    Drive,
    in_words,
    m,
    outcome,
    rank,
    to,
    told,
    without_words,
)
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.notices import text_of
from worker.nccl.verdict import NetworkVerdict
from worker.program.ending import Ending, LeftBehind
from worker.program.family import Failure

RUN = "running"
WORDS = inputs.OwnWords(("a line", "CUDA out of memory"), None, "/logs/node-1.log")
FAILED = (rank(0), rank(1, 50.0, 7))
CERTAIN = (rank(0, 50.2, 143), rank(1, 50.0, 7))
AFTER_A_WARNING = (rank(0, 59.9, 143), rank(1, 50.0, 7))
RESTARTED = (rank(0), rank(1, started=50.5))
LATE = (rank(0), rank(1, 50.0, 0))
MAIN = inputs.MainEnd(5, 50.0)
ENDED, LEFT = Ending(3, 49.0), Ending(0, 50.0, left=LeftBehind(2))
LAUNCHER_GONE = m.signal(SIGTERM, parent_lives=False)
BY_RANK = Ending(1, 59, Failure(50, 101, 7, 1, 1))
STOPPED = Ending(143, 51.0, was_told=True)


def is_so(*children: Any, main: Any = None) -> Any:
    """The program's processes are so, and nobody has asked."""
    return m.seen(*children, main=main)


def asked(*children: Any, main: Any = None) -> Any:
    """They are so when the machine has asked for them."""
    return m.seen(*children, main=main, words=WORDS)


def network(level: Any) -> Any:
    """NCCL says what it uses."""
    verdict = NetworkVerdict("fallback", level, "sockets")
    return lambda drive: drive.feed(inputs.NetworkSaid(drive.program, verdict))


def broken(what: str) -> Any:
    """Something that the run does without has failed."""
    return m.feed(inputs.PartBroken(what, OSError("no space")))


def at(seconds: float, contract: Any = PROGRAM) -> Drive:
    """A node whose program has been running for so long."""
    drive = to("running", contract=contract)
    drive.now = seconds
    return drive


WAITS = m.feed(inputs.Waits("waiting for head:6379"))
WARNED, ASKED_LATE = network("warn"), asked(*LATE)


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # A failed main process is reported after a second, while what it started goes on.
        (RUN, [m.at(50), is_so(main=MAIN), m.after(1)], "LookAtProgram due:51"),
        (RUN, [m.at(51), asked(main=MAIN)], "MAIN_ENDED_REPORTED Tell:Exit(5)@50"),
        (RUN, [m.at(51), asked(main=MAIN), m.after(9)], ""),
        (RUN, [m.at(51), asked(main=inputs.MainEnd(1, 50))], "MAIN_ENDED_REPORTED Tell:Exit(1)@50"),
        (RUN, [m.at(51), asked(*CERTAIN, main=MAIN)], "MAIN_ENDED_REPORTED Tell:Exit(7,rank1)@50"),
        (RUN, [m.at(50), is_so(main=inputs.MainEnd(0, 50))], ""),
        # A rank that failed is a warning after a second, once; a launcher may start it again.
        (RUN, [m.at(50), is_so(*FAILED), m.after(1)], "LookAtProgram due:51"),
        (RUN, [m.at(50), is_so(*FAILED), m.at(51), asked(*FAILED)], "RANK_FAILED Tell:Progress"),
        (RUN, [m.at(50), is_so(*FAILED), m.at(50.5), is_so(*RESTARTED)], ""),
        (RUN, [m.at(50), is_so(*FAILED), asked(*FAILED, main=MAIN)], "due:51"),
        # That all end of it is certain: it is reported as soon as its words can have come.
        (RUN, [m.at(50.2), is_so(*CERTAIN)], "due:51.2"),
        (
            RUN,
            [m.at(50.2), is_so(*CERTAIN), m.at(51.2), asked(*CERTAIN)],
            "RANK_FAILED_REPORTED Tell:Exit(7,rank1)@50",
        ),
        (RUN, [m.at(50), is_so(*FAILED), m.at(50.9), is_so(*CERTAIN)], "due:51"),
        (
            RUN,
            [m.at(50.2), is_so(*CERTAIN), m.at(53), asked(*CERTAIN)],
            "RANK_FAILED_REPORTED Tell:Exit(7,rank1)@50",
        ),
        (
            RUN,
            [m.at(50.2), is_so(*CERTAIN), m.at(50.7), asked(*CERTAIN)],
            "RANK_FAILED Tell:Progress due:51.2",
        ),
        (RUN, [m.at(50), asked(*FAILED), m.at(60), is_so(*AFTER_A_WARNING)], "due:61"),
        # Ranks that end late are named once, also after the end was reported ahead.
        (RUN, [m.at(50), is_so(*LATE), m.after(10)], "LookAtProgram due:60"),
        (RUN, [m.at(60), ASKED_LATE], "RANKS_LATE Tell:Progress"),
        (RUN, [m.at(51), asked(*LATE, main=MAIN)], "MAIN_ENDED_REPORTED Tell:Exit(5)@50 due:60"),
        (
            RUN,
            [m.at(51), asked(*LATE, main=MAIN), m.at(60), ASKED_LATE],
            "RANKS_LATE Tell:Progress",
        ),
        # For what a process waits is told at most once a second, while the program may run on.
        (RUN, [m.at(50), WAITS], "Tell:Progress"),
        (RUN, [m.at(50), WAITS, m.at(50.9), WAITS], "due:51"),
        (RUN, [m.at(50), WAITS, m.at(50.9), WAITS, WAITS, m.after(0.1)], "Tell:Progress due:52"),
        (RUN, [m.at(50), WAITS, m.at(51), WAITS], "Tell:Progress"),
        (RUN, [m.at(50), STOP, WAITS], ""),
        ("armed", [WAITS], ""),
        # Nothing is reported ahead of a program that was told to end, or is gone.
        (RUN, [m.at(50), STOP, is_so(*CERTAIN, main=MAIN)], ""),
        (RUN, [m.at(50), STOP, m.at(60), asked(*CERTAIN, main=MAIN)], ""),
        (RUN, [m.at(50), m.gone(Ending(0, 50)), asked(*FAILED)], ""),
        (RUN, [m.at(50), is_so(*FAILED), m.gone(Ending(7, 50))], "TOLD Flush"),
        # What NCCL uses is progress, a surprise a warning, and what may not be ends the run.
        (RUN, [m.at(50), network("ok")], "TOLD Tell:Progress"),
        (RUN, [m.at(50), WARNED], "WARNED Tell:Progress"),
        (RUN, [m.at(50), network("fail")], "WARNED Tell:Exit(87,agent)"),
        (RUN, [STOP, network("fail")], ""),
        (RUN, [m.at(50), network("fail"), is_so(*FAILED), asked(*FAILED, main=MAIN)], ""),
        # Where a rank has failed before, the node is the cause since then.
        (
            RUN,
            [m.at(50), is_so(*FAILED), m.at(50.5), network("fail")],
            "WARNED Tell:Exit(87,agent)@50",
        ),
        (RUN, [WARNED, m.at(171), UNTOLD], "REPORT_WAITS Tell:Progress:pause"),
        (RUN, [WARNED, m.at(171), UNTOLD, UNTOLD], ""),
        # It is stopped once, and killed by a second signal or by QUIT.
        (RUN, [STOP, STOP], "Watch"),
        ("starting", [STOP], "Watch"),
        ("starting", [STOP, m.started()], "Stop"),
        ("starting", [TERM, TAKEN, m.started()], "Stop"),
        ("starting", [m.signal(SIGQUIT), m.started()], "Kill Stop"),
        (RUN, [m.signal(SIGQUIT)], "SIGNAL Kill Stop ends:SIGNAL"),
        (RUN, [TERM, m.signal(SIGINT)], "Kill"),
        # But who closes a terminal, or kills the launcher, is not in a hurry.
        (RUN, [m.signal(SIGHUP), m.signal(SIGHUP)], ""),
        (RUN, [m.signal(SIGHUP), TERM], ""),
        (RUN, [TERM, m.signal(SIGHUP)], ""),
        (RUN, [m.signal(SIGHUP), m.signal(SIGQUIT)], "Kill"),
        (RUN, [TERM, LAUNCHER_GONE], ""),
        (RUN, [TERM, LAUNCHER_GONE, LAUNCHER_GONE], "Kill"),
        (RUN, [LAUNCHER_GONE, LAUNCHER_GONE], ""),
        (RUN, [LAUNCHER_GONE, LAUNCHER_GONE, LAUNCHER_GONE], "Kill"),
        (RUN, [LAUNCHER_GONE, m.after(0.2), LAUNCHER_GONE], "Kill"),
        (RUN, [m.gone(Ending(0, 1.0)), m.signal(SIGUSR2)], ""),
        # When nothing is left, its last words are sent on, and then its end is reported.
        (RUN, [m.at(50), m.ended(ENDED)], "Tell:Exit(3)@49"),
        (RUN, [m.at(50), m.gone(LEFT)], "TOLD WARNED Tell:Progress Flush"),
        (RUN, [m.gone(Ending(0, 50)), m.breaks(do.Flush)], "PART_BROKEN Tell:Exit(0)@50"),
        (RUN, [m.at(60), m.ended(BY_RANK)], "Tell:Exit(7,rank1)@50"),
        (RUN, [m.at(51), asked(main=MAIN), TAKEN, m.ended(Ending(5, 50))], "Tell:Exit(5)@50"),
        # What it was told first counts: that is not overtaken, but by who leaves.
        (RUN, [m.at(51), asked(main=MAIN), m.ended(Ending(5, 50))], ""),
        (RUN, [m.at(50), network("fail"), m.ended(Ending(134, 51))], ""),
        (RUN, [network("fail"), TERM, m.ended(STOPPED)], "Tell:Exit(143)@0 due:3"),
        (RUN, [broken("remote commands")], "PART_BROKEN"),
        (RUN, [m.breaks(do.Watch), m.gone(Ending(143, 1.0))], "TOLD Leave"),
        # Of one that failed, NCCL's log is asked, which may hang.
        ("following", [m.ended(ENDED), m.late(do.ReadTrouble)], "Tell:Exit(3)@49"),
        ("following", [m.ended(ENDED), m.breaks(do.ReadTrouble)], "PART_BROKEN Tell:Exit(3)@49"),
        ("following", [m.ended(Ending(0, 50))], "Tell:Exit(0)@50"),
        ("following", [STOP, m.at(51), m.ended(STOPPED)], "Tell:Exit(143,stopped)@51"),
        # A program that cannot be started is this node's own fault, but for a signal before.
        ("starting", [m.fails(do.Start, RunError("no such file"))], "Drop:Watch Leave ends:FAULT"),
        ("starting", [m.fails(do.Start, RunError("no")), SOCKET], "Tell:Exit(1,agent)@0:last"),
        ("starting", [m.fails(do.Start, RunError("no")), CLOSES], "End:RunError"),
        ("starting", [m.at(7), TERM, m.at(9), m.breaks(do.Start)], "Tell:Exit(143)@7 due:12"),
        # A node that serves ends when what ran here for others has ended as well.
        ("serving", [STOP], "Watch Stop CloseRemote"),
        ("serving", [STOP, GONE, m.answer(do.CloseRemote)], "Flush"),
        ("serving", [STOP, GONE, m.breaks(do.CloseRemote)], "PART_BROKEN Flush"),
        ("serving", [STOP, m.answer(do.CloseRemote), GONE], "Flush"),
        ("serving", [STOP, m.answer(do.CloseRemote), m.ended()], "Tell:Exit(0,stopped)"),
        ("serving", [m.result()], "Watch Stop CloseRemote ends:RESULT"),
        # It says that it was told to end before it ends anything: rank 0 fails of that.
        ("serving", [m.at(40), TERM], "SIGNAL Tell:Exit(143,agent)@40:last ends:SIGNAL"),
        ("serving", [m.at(40), TERM, m.late(do.Tell)], "Stop CloseRemote"),
        ("serving", [WARNED, TERM], "SIGNAL Tell:Exit(143,agent)@0:last due:3 ends:SIGNAL"),
        ("serving", [TERM, TAKEN, m.answer(do.CloseRemote), m.ended()], "Drop:Watch Leave"),
        ("serving", [STOP, m.at(5), TERM], "SIGNAL Tell:Exit(0,stopped):last ends:SIGNAL"),
        ("serving", [TERM, TAKEN, GONE, TERM], "Kill"),
    ],
)
def test_what_a_node_does_with_its_program(begin: str, steps: list[Any], does: str) -> None:
    assert outcome(begin, *steps) == does


def test_a_report_ahead_has_all_that_is_known_of_the_end() -> None:
    drive = at(51.0)
    known = {"tail": list(WORDS.tail), "log": WORDS.log}
    report = ExitReport.model_validate({"epoch": 1, "exit_code": 5, "ran_seconds": 50.0, **known})
    (tell,) = without_words(drive.seen(main=MAIN, words=WORDS))
    assert tell == do.Tell(16, report=report, began_at=51.0, since=50.0)
    assert drive.all(do.Start)


def test_where_the_launcher_does_not_end_all_ranks_no_end_is_certain() -> None:
    drive = at(50.0, replace(PROGRAM, fatal_workers=False))
    drive.seen(*CERTAIN)
    drive.now = 51.0
    assert in_words(drive.seen(*CERTAIN, words=WORDS)) == "RANK_FAILED Tell:Progress"
    assert drive.due is None


@pytest.mark.parametrize("ended_at", [n + 0.1 * k for n in range(0, 400, 37) for k in range(9)])
def test_when_it_is_due_it_has_something_to_say(ended_at: float) -> None:
    drive = at(ended_at)
    drive.seen(rank(0), rank(1, ended_at, 0))
    assert drive.due is not None
    drive.now = drive.due
    drive.seen(rank(0), rank(1, ended_at, 0), words=WORDS)
    assert drive.due is None


def test_what_is_told_of_late_ranks_and_of_a_network_are_its_words() -> None:
    (report,) = told(at(60.0).seen(*LATE, words=WORDS))
    assert isinstance(report, ProgressReport)
    assert report.words.startswith("waiting for rank 0 to end")
    assert report.warning
    for level, warning in [("ok", False), ("warn", True)]:
        report = ProgressReport(epoch=1, words="sockets", warning=warning)
        assert told(network(level)(at(50.0))) == [report]
    failed: Any = {"exit_code": ExitCode.PREFLIGHT_FAILED, "by_agent": True, "message": "sockets"}
    assert told(network("fail")(at(50.0))) == [ExitReport(epoch=1, **failed)]


def test_a_program_that_failed_is_reported_with_the_trouble_in_nccls_log() -> None:
    drive = at(50.0, NCCL)
    drive.ended(Ending(3, 50.0))
    reading = drive.the(do.ReadTrouble)
    assert (reading.program, reading.limit) == (drive.program, 1.0)
    (report,) = told(drive.answer(do.ReadTrouble, inputs.TroubleRead, "mlx5_0:1 is down"))
    assert isinstance(report, ExitReport)
    assert (report.exit_code, report.message) == (3, "mlx5_0:1 is down")


@pytest.mark.parametrize(
    ("children", "contract", "ends_itself"),
    [
        (FAILED, PROGRAM, True),
        (RESTARTED, PROGRAM, False),
        (FAILED, replace(PROGRAM, fatal_workers=False), False),
    ],
)
def test_a_program_whose_launcher_ends_its_ranks_already_is_not_told_a_second_time(
    children: Any, contract: Any, ends_itself: bool
) -> None:
    drive = at(50.0, contract)
    drive.seen(*children)
    assert do.Stop(drive.program, ends_itself) in drive.stop()


def test_what_runs_for_other_nodes_is_ended_for_the_reason_that_this_one_has() -> None:
    drive = to("serving")
    drive.view(Phase.RUNNING, stop=True, reason="node 0 failed")
    assert text_of(drive.the(do.CloseRemote).why) == "the run is ending: node 0 failed"
    drive = to("serving")
    drive.breaks(do.Watch)
    assert text_of(drive.the(do.CloseRemote).why).startswith("this node's agent is ending: ")


def test_what_is_passed_and_stopped_is_the_program_that_was_started() -> None:
    drive = to("running")
    assert drive.signal(SIGUSR1) == (do.PassSignal(drive.program, SIGUSR1),)
    assert drive.node.signal is None
    drive.signal(SIGTERM)
    assert drive.taken() == (do.Stop(drive.program),)
    assert drive.signal(SIGTERM) == (do.Kill(drive.program),)


def test_the_newest_words_on_what_is_waited_for_are_told_one_a_second() -> None:
    drive = at(50)
    for number in range(10):
        drive.feed(inputs.Waits(f"waits {number}"))
    drive.feed(inputs.Waits("it is there", over=True))
    told = [(50.0, "waits 0", False)]
    for second in range(51, 61):
        drive.now = float(second)
        for action in drive.feed(inputs.Tick()):
            assert isinstance(action, do.Tell)
            assert isinstance(action.report, ProgressReport)
            told.append((drive.now, action.report.words, action.report.over))
    later = [(51.0 + n, f"waits {3 + n}", False) for n in range(7)]
    assert told == [told[0], *later, (58.0, "it is there", True)]
