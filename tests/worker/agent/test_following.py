"""A program on its table: what is seen of it, said of it, and how it ends."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.errors import ExitCode, RunError
from rendezvous.wire.reports import ExitReport, LeaveReport, ProgressReport
from rendezvous.wire.run import Phase
from tests.worker.agent.drive import (
    AWAY,
    PROGRAM,
    RESULT,
    Drive,
    notes,
    of_kind,
    rank,
    running,
    serving,
    starting,
    told,
    without_words,
)
from worker.agent.actions import (
    CloseRemote,
    CloseSocket,
    Flush,
    Kill,
    LookAtProgram,
    PassSignal,
    ReadTrouble,
    Start,
    Stop,
    Tell,
    Watch,
)
from worker.agent.inputs import (
    MainEnd,
    NetworkSaid,
    OwnWords,
    PartBroken,
    ProgramGone,
    ProgramSeen,
    Started,
    TroubleRead,
)
from worker.agent.notices import Note, text_of
from worker.agent.state import Cause
from worker.nccl.verdict import NetworkVerdict
from worker.program.ending import Ending, LeftBehind
from worker.program.family import Failure, Family

WORDS = OwnWords(("a line", "CUDA out of memory"), None, "/logs/node-1.log")
NCCL = replace(PROGRAM, nccl_log="/logs/%p.log")
FAILED = (rank(0), rank(1, 50.0, 7))
CERTAIN = (rank(0, 50.2, 143), rank(1, 50.0, 7))


def at(seconds: float, **how: Any) -> Drive:
    """A node whose program has been running for so long."""
    drive = running(**how)
    drive.now = seconds
    return drive


# --- what fails while it goes on ------------------------------------------------------------------


def test_a_failed_main_process_is_reported_after_a_second_while_what_it_started_goes_on() -> None:
    drive = at(50.0)
    assert drive.seen(main=MainEnd(5, 50.0)) == ()
    assert drive.due == 51.0
    assert drive.after(1.0) == (LookAtProgram(drive.program),)
    actions = drive.seen(main=MainEnd(5, 50.0), words=WORDS)
    assert notes(actions) == [Note.MAIN_ENDED_REPORTED]
    report = ExitReport(
        epoch=1, exit_code=5, ran_seconds=50.0, tail=list(WORDS.tail), log=WORDS.log
    )
    assert without_words(actions) == (Tell(16, report=report, began_at=51.0, since=50.0),)
    assert drive.all(Start)
    assert drive.due is None
    assert drive.after(9.0) == ()


def test_a_main_process_that_ended_well_is_waited_for_until_nothing_is_left() -> None:
    drive = at(50.0)
    assert drive.seen(main=MainEnd(0, 50.0)) == ()
    assert drive.due is None


def test_the_rank_that_the_main_process_failed_of_is_named_in_the_early_report() -> None:
    drive = at(50.5)
    drive.seen(*CERTAIN, main=MainEnd(1, 50.5))
    drive.after(1.0)
    (report,) = told(drive.seen(*CERTAIN, main=MainEnd(1, 50.5), words=WORDS))
    assert isinstance(report, ExitReport)
    assert (report.exit_code, report.worker_rank) == (7, 1)


def test_nothing_is_said_of_a_rank_as_if_its_launcher_went_on_when_that_has_failed() -> None:
    drive = at(50.0)
    drive.seen(*FAILED)
    drive.now = 50.9
    drive.seen(*FAILED, main=MainEnd(1, 50.9))
    assert drive.due == 51.9
    assert drive.seen(*FAILED, main=MainEnd(1, 50.9), words=WORDS) == ()


def test_a_rank_that_failed_is_a_warning_once_while_its_launcher_goes_on() -> None:
    drive = at(50.0)
    drive.seen(*FAILED)
    assert drive.due == 51.0
    assert drive.after(1.0) == (LookAtProgram(drive.program),)
    actions = drive.seen(*FAILED, words=WORDS)
    assert notes(actions) == [Note.RANK_FAILED]
    (report,) = told(actions)
    assert isinstance(report, ProgressReport)
    assert report.warning
    assert [tell.needed for tell in of_kind(actions, Tell)] == [False]
    assert drive.due is None
    assert drive.seen(*FAILED, words=WORDS) == ()


def test_a_rank_that_its_launcher_starts_again_within_the_second_is_not_worth_a_word() -> None:
    drive = at(50.0)
    drive.seen(*FAILED)
    again = rank(1, started=50.3, seen_at=50.3)
    drive.seen(*FAILED, again)
    assert drive.due is None
    assert drive.after(5.0) == ()


def test_an_end_that_is_certain_is_reported_before_the_launcher_has_ended() -> None:
    drive = at(50.0)
    drive.seen(*FAILED)
    drive.now = 50.2
    drive.seen(*CERTAIN)
    drive.now = 51.0
    actions = drive.after(0.0)
    assert actions == (LookAtProgram(drive.program),)
    actions = drive.seen(*CERTAIN, words=WORDS)
    assert notes(actions) == [Note.RANK_FAILED_REPORTED]
    (tell,) = of_kind(actions, Tell)
    assert tell.since == 50.0
    assert tell.needed
    assert isinstance(tell.report, ExitReport)
    assert (tell.report.exit_code, tell.report.worker_rank) == (7, 1)
    assert drive.due is None


def test_an_end_that_becomes_certain_after_the_warning_is_given_a_second_more() -> None:
    drive = at(50.0)
    drive.seen(*FAILED)
    drive.now = 51.0
    drive.seen(*FAILED, words=WORDS)
    drive.now = 60.0
    drive.seen(rank(0, 59.9, 143), FAILED[1])
    assert drive.due == 61.0


def test_where_the_launcher_does_not_end_all_ranks_no_end_is_certain() -> None:
    drive = at(50.0, contract=replace(PROGRAM, fatal_workers=False))
    drive.seen(*CERTAIN)
    drive.now = 51.0
    assert notes(drive.seen(*CERTAIN, words=WORDS)) == [Note.RANK_FAILED]
    assert drive.due is None


def test_ranks_that_end_late_are_named_once() -> None:
    drive = at(50.0)
    children = (rank(0), rank(1, 50.0, 0))
    drive.seen(*children)
    assert drive.due == 60.0
    assert drive.after(10.0) == (LookAtProgram(drive.program),)
    actions = drive.seen(*children, words=WORDS)
    assert notes(actions) == [Note.RANKS_LATE]
    (report,) = told(actions)
    assert isinstance(report, ProgressReport)
    assert report.words.startswith("waiting for rank 0 to end")
    assert drive.due is None


@pytest.mark.parametrize("ended_at", [n + 0.1 * k for n in range(0, 400, 37) for k in range(9)])
def test_when_it_is_due_it_has_something_to_say(ended_at: float) -> None:
    drive = at(ended_at)
    drive.seen(rank(0), rank(1, ended_at, 0))
    assert drive.due is not None
    drive.now = drive.due
    drive.seen(rank(0), rank(1, ended_at, 0), words=WORDS)
    assert drive.due is None


def test_nothing_is_reported_ahead_of_a_program_that_was_told_to_end() -> None:
    drive = at(50.0)
    drive.stop()
    drive.seen(*CERTAIN, main=MainEnd(1, 50.0))
    assert drive.due is None
    drive.now = 60.0
    assert drive.seen(*CERTAIN, main=MainEnd(1, 50.0), words=WORDS) == ()


def test_nothing_is_said_of_a_program_that_nobody_knows_or_that_is_gone() -> None:
    drive = at(50.0)
    assert drive.feed(ProgramSeen(999, Family(None, FAILED), MainEnd(1, 1.0), WORDS)) == ()
    assert drive.feed(Started(999)) == ()
    assert drive.feed(NetworkSaid(999, NetworkVerdict("fallback", "warn", "sockets"))) == ()
    drive.gone(Ending(0, 51.0))
    assert drive.seen(*FAILED, words=WORDS) == ()


# --- its network ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "note", "warning"), [("ok", Note.TOLD, False), ("warn", Note.WARNED, True)]
)
def test_what_nccl_uses_is_progress_and_a_surprise_a_warning(
    level: Any, note: Note, warning: bool
) -> None:
    drive = at(50.0)
    actions = drive.feed(
        NetworkSaid(drive.program, NetworkVerdict("fallback", level, "it uses sockets"))
    )
    assert notes(actions) == [note]
    report = ProgressReport(epoch=1, words="it uses sockets", warning=warning)
    assert without_words(actions) == (Tell(16, report=report, began_at=50.0, needed=False),)


def test_a_network_that_may_not_be_ends_the_run_while_the_program_goes_on() -> None:
    drive = at(50.0)
    actions = drive.feed(NetworkSaid(drive.program, NetworkVerdict("fallback", "fail", "sockets")))
    report = ExitReport(
        epoch=1, exit_code=ExitCode.PREFLIGHT_FAILED, by_agent=True, message="sockets"
    )
    assert notes(actions) == [Note.WARNED]
    assert without_words(actions) == (Tell(16, report=report, began_at=50.0),)
    assert drive.all(Start)


def test_of_a_program_that_is_stopped_the_network_is_no_matter() -> None:
    drive = at(50.0)
    drive.stop()
    said = NetworkSaid(drive.program, NetworkVerdict("fallback", "fail", "sockets"))
    assert drive.feed(said) == ()


# --- told to end ----------------------------------------------------------------------------------


def test_a_stop_ends_the_program_once_and_the_watch_goes_on() -> None:
    drive = running()
    assert drive.stop() == (Watch(16, after=4, poll=2.0, limit=116.0), Stop(drive.program))
    assert [type(action) for action in drive.stop()] == [Watch]


def test_a_stop_ends_what_runs_for_other_nodes_as_well_and_says_what_was_waited_for() -> None:
    drive = serving()
    actions = drive.view(Phase.RUNNING, stop=True, reason="node 0 failed")
    assert of_kind(actions, Stop) == [Stop(drive.program)]
    (close,) = of_kind(actions, CloseRemote)
    assert close.why.note is Note.RUN_ENDING
    assert text_of(close.why) == "the run is ending: node 0 failed"


def test_an_agent_that_ends_for_itself_says_so_to_those_that_wait_for_commands() -> None:
    drive = serving()
    drive.breaks(Watch)
    close = drive.the(CloseRemote)
    assert close.why.note is Note.AGENT_ENDING
    assert text_of(close.why).startswith("this node's agent is ending: ")


def test_a_stop_while_the_program_is_being_started_is_carried_out_once_it_runs() -> None:
    drive = starting()
    assert not of_kind(drive.stop(), Stop)
    assert drive.feed(Started(drive.program)) == (Stop(drive.program),)


def test_a_signal_while_the_program_is_being_started_stops_it_once_it_runs() -> None:
    drive = starting()
    drive.signal(signal.SIGTERM)
    assert drive.feed(Started(drive.program)) == (Stop(drive.program),)


def test_quit_while_the_program_is_being_started_kills_it_once_it_runs() -> None:
    drive = starting()
    drive.signal(signal.SIGQUIT)
    assert drive.feed(Started(drive.program)) == (Kill(drive.program), Stop(drive.program))


def test_quit_kills_the_program_without_a_grace() -> None:
    drive = running()
    actions = without_words(drive.signal(signal.SIGQUIT))
    assert actions == (Kill(drive.program), Stop(drive.program))


def test_a_second_signal_kills_the_program_within_its_grace() -> None:
    drive = running()
    assert without_words(drive.signal(signal.SIGTERM)) == (Stop(drive.program),)
    assert drive.signal(signal.SIGINT) == (Kill(drive.program),)


def test_a_second_signal_kills_what_runs_for_other_nodes_though_this_one_only_served() -> None:
    drive = serving()
    drive.signal(signal.SIGTERM)
    drive.answer(Tell)
    drive.gone()
    assert drive.all(CloseRemote)
    assert drive.signal(signal.SIGTERM) == (Kill(drive.program),)
    drive.answer(CloseRemote)
    assert drive.signal(signal.SIGTERM) == ()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_that_end_nothing_are_passed_to_the_program(number: int) -> None:
    drive = running()
    assert drive.signal(number) == (PassSignal(drive.program, number),)
    assert drive.node.signal is None
    drive.gone(Ending(0, 1.0))
    assert drive.signal(number) == ()


# --- its end --------------------------------------------------------------------------------------


def test_when_nothing_is_left_its_last_words_are_sent_on_and_then_its_end_reported() -> None:
    drive = at(50.0)
    ending = Ending(3, 49.0)
    actions = drive.gone(ending, WORDS)
    assert notes(actions) == [Note.TOLD]
    assert without_words(actions) == (Flush(16, program=drive.program),)
    report = ExitReport(
        epoch=1, exit_code=3, ran_seconds=49.0, tail=list(WORDS.tail), log=WORDS.log
    )
    assert drive.answer(Flush) == (Tell(17, report=report, began_at=50.0, since=49.0),)
    assert drive.taken() == ()
    assert drive.node.ends is None


def test_a_fault_in_sending_metrics_is_said_and_the_end_is_reported_all_the_same() -> None:
    drive = at(50.0)
    drive.gone(Ending(0, 50.0))
    actions = drive.breaks(Flush)
    assert notes(actions) == [Note.PART_BROKEN]
    assert len(told(actions)) == 1
    assert drive.node.ends is None


@pytest.mark.parametrize("what", ["sending metrics", "remote commands", "following NCCL's log"])
def test_a_fault_in_what_the_run_does_without_is_said_and_ends_nothing(what: str) -> None:
    drive = running()
    actions = drive.feed(PartBroken(what, OSError("no space")))
    assert notes(actions) == [Note.PART_BROKEN]
    assert without_words(actions) == ()
    assert drive.node.ends is None


def test_what_a_program_left_behind_is_a_warning_to_all() -> None:
    drive = at(50.0)
    actions = drive.gone(Ending(0, 50.0, left=LeftBehind(2)))
    assert notes(actions) == [Note.TOLD, Note.WARNED]
    (report,) = told(actions)
    assert isinstance(report, ProgressReport)
    assert report.warning


def test_a_program_that_failed_is_reported_with_the_trouble_in_nccls_log() -> None:
    drive = at(50.0, contract=NCCL)
    drive.gone(Ending(3, 50.0))
    actions = drive.answer(Flush)
    assert actions == (ReadTrouble(17, program=drive.program, limit=1.0),)
    (report,) = told(drive.answer(ReadTrouble, TroubleRead, "port mlx5_0:1 is down"))
    assert isinstance(report, ExitReport)
    assert (report.exit_code, report.message) == (3, "port mlx5_0:1 is down")


@pytest.mark.parametrize("how", ["late", "breaks"])
def test_an_end_is_reported_though_nccls_log_cannot_be_read(how: str) -> None:
    drive = at(50.0, contract=NCCL)
    drive.gone(Ending(3, 50.0))
    drive.answer(Flush)
    actions = drive.late(ReadTrouble) if how == "late" else drive.breaks(ReadTrouble)
    assert [isinstance(report, ExitReport) for report in told(actions)] == [True]


def test_nccls_log_is_not_asked_about_a_program_that_was_stopped_or_ended_well() -> None:
    drive = at(50.0, contract=NCCL)
    drive.gone(Ending(0, 50.0))
    assert [type(action) for action in drive.answer(Flush)] == [Tell]
    drive = at(50.0, contract=NCCL)
    drive.stop()
    drive.now = 51.0
    drive.gone(Ending(143, 51.0, was_told=True))
    assert [type(action) for action in drive.answer(Flush)] == [Tell]


def test_an_end_that_was_reported_ahead_is_reported_again_when_nothing_is_left() -> None:
    drive = at(50.0)
    drive.seen(main=MainEnd(5, 50.0))
    drive.now = 51.0
    drive.seen(main=MainEnd(5, 50.0), words=WORDS)
    drive.taken()
    drive.now = 70.0
    drive.gone(Ending(5, 50.0))
    (tell,) = of_kind(drive.answer(Flush), Tell)
    assert tell.since == 50.0


def test_a_program_that_cannot_be_started_is_this_nodes_own_fault() -> None:
    drive = starting()
    error = RunError("no such file: train")
    assert [type(action) for action in without_words(drive.fails(Start, error))][-1] is CloseSocket
    assert drive.node.ends is not None
    assert drive.node.ends.cause is Cause.FAULT
    (report,) = told(drive.answer(CloseSocket))
    assert report == ExitReport(epoch=1, exit_code=1, by_agent=True, message=error.message)
    assert told(drive.answer(Tell)) == [LeaveReport()]
    assert drive.leaves().error is error


def test_a_program_that_cannot_be_started_after_a_signal_is_reported_with_the_signal() -> None:
    drive = starting()
    drive.now = 7.0
    drive.signal(signal.SIGTERM)
    drive.now = 9.0
    (tell,) = of_kind(drive.breaks(Start), Tell)
    assert isinstance(tell.report, ExitReport)
    assert (tell.report.exit_code, tell.since) == (143, 7.0)
    drive.taken()
    assert drive.leaves().code == 143


def test_a_node_that_ends_for_its_own_fault_reports_no_end_of_its_program() -> None:
    drive = running()
    drive.breaks(Watch)
    assert [type(a) for a in without_words(drive.gone(Ending(143, 1.0)))][-1] is CloseSocket
    assert not drive.all(Flush)


# --- serving --------------------------------------------------------------------------------------


def test_a_node_that_serves_reports_a_stop_once_what_ran_here_for_others_has_ended() -> None:
    drive = serving()
    drive.stop()
    assert drive.gone() == ()
    assert [type(action) for action in drive.answer(CloseRemote)] == [Flush]
    (tell,) = of_kind(drive.answer(Flush), Tell)
    assert tell.report == ExitReport(epoch=1, exit_code=0, stopped=True)
    assert tell.since is None


def test_a_node_that_serves_reports_the_same_when_the_commands_have_ended_first() -> None:
    drive = serving()
    drive.stop()
    assert drive.answer(CloseRemote) == ()
    assert [type(action) for action in drive.gone()] == [Flush]
    assert len(told(drive.answer(Flush))) == 1


def test_a_fault_in_ending_remote_commands_holds_up_nothing() -> None:
    drive = serving()
    drive.stop()
    drive.gone()
    actions = drive.breaks(CloseRemote)
    assert notes(actions) == [Note.PART_BROKEN]
    assert [type(action) for action in without_words(actions)] == [Flush]


def test_a_node_that_serves_says_that_it_was_told_to_end_before_it_ends_anything() -> None:
    drive = serving()
    drive.now = 40.0
    actions = without_words(drive.signal(signal.SIGTERM))
    (tell,) = actions
    assert isinstance(tell, Tell)
    assert isinstance(tell.report, ExitReport)
    assert (tell.report.exit_code, tell.report.by_agent) == (143, True)
    assert (tell.since, tell.limit, tell.is_last_word) == (40.0, 3.0, True)
    assert drive.due is None
    drive.now = 43.0
    actions = drive.late(Tell)
    assert [type(action) for action in actions] == [Stop, CloseRemote]
    drive.gone()
    drive.answer(CloseRemote)
    assert not told(drive.answer(Flush))


def test_a_node_that_serves_and_was_stopped_before_the_signal_reports_the_stop() -> None:
    drive = serving()
    drive.stop()
    drive.now = 5.0
    (report,) = told(drive.signal(signal.SIGTERM))
    assert report == ExitReport(epoch=1, exit_code=0, stopped=True)


def test_a_result_ends_a_node_that_serves_as_a_stop_does() -> None:
    drive = serving()
    actions = drive.result()
    assert [type(action) for action in without_words(actions)] == [Watch, Stop, CloseRemote]
    drive.gone()
    drive.answer(CloseRemote)
    assert told(drive.answer(Flush)) == [ExitReport(epoch=1, exit_code=0, stopped=True)]
    drive.taken()
    assert drive.leaves().code == RESULT.exit_code


def test_progress_that_the_registry_never_takes_in_ends_nothing() -> None:
    drive = at(50.0)
    drive.feed(NetworkSaid(drive.program, NetworkVerdict("fallback", "warn", "sockets")))
    drive.now = 171.0
    drive.fails(Tell, AWAY)
    assert drive.fails(Tell, AWAY) == ()
    assert drive.node.ends is None


def test_the_first_failure_that_the_program_ends_of_is_the_one_that_is_reported() -> None:
    drive = at(60.0)
    drive.answer(Start, ProgramGone, Ending(1, 59.0, Failure(50.0, 101, 7, 1, 1)), WORDS)
    (tell,) = of_kind(drive.answer(Flush), Tell)
    assert isinstance(tell.report, ExitReport)
    assert (tell.report.exit_code, tell.report.worker_rank, tell.since) == (7, 1, 50.0)


def test_ranks_that_end_late_are_named_also_after_the_end_was_reported_ahead() -> None:
    drive = at(50.0)
    children = (rank(0), rank(1, 50.0, 0))
    drive.seen(*children, main=MainEnd(5, 50.0))
    drive.now = 51.0
    drive.seen(*children, main=MainEnd(5, 50.0), words=WORDS)
    assert drive.due == 60.0
    drive.now = 60.0
    actions = drive.seen(*children, main=MainEnd(5, 50.0), words=WORDS)
    assert notes(actions) == [Note.RANKS_LATE]
