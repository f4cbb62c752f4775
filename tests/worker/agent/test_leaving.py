"""How a node ends: in which order, what is told, and that the hosts file is put back."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGHUP, SIGTERM
from typing import Any

import pytest

from rendezvous.wire.errors import ArmingFailed, Fenced, Mismatch, RunOver
from rendezvous.wire.reports import ExitReport, LeaveReport
from tests.worker.agent.drive import (
    CLOSES,
    OVER,
    PROGRAM,
    READIED,
    RESULT,
    RULES,
    SOCKET,
    TAKEN,
    TERM,
    m,
    outcome,
    table,
    to,
    told,
)
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.notices import Note, notice
from worker.program.ending import Ending

KILLED = Ending(143, 0.0)
STOPPED = Ending(143, 0.0, was_told=True)
OTHER = RESULT.model_copy(update={"exit_code": 9})
LAUNCHER_GONE = m.signal(SIGTERM, parent_lives=False)
EXHAUSTED = m.feed(inputs.Exhausted(ArmingFailed("the CPU time is used up")))
FENCED = Fenced("the slot is empty")
NEARLY = m.closes(do.CloseSocket, do.Tell, do.CloseClient)
LEFT = m.closes(do.CloseSocket, do.Tell)
"""All of its last steps but the hosts file."""
LATE = (notice(Note.WARNED, words="late"),)


def test_each_last_step_begins_when_the_one_before_it_is_over() -> None:
    drive = to("armed")
    watch = drive.node.count + 1
    assert drive.result()[:2] == (do.Watch(watch, after=3, poll=2.0, limit=116.0), do.Drop(watch))
    (leave,) = drive.answer(do.CloseSocket)
    assert leave == do.Tell(
        watch + 2, report=LeaveReport(), began_at=0.0, limit=3.0, is_last_word=True
    )
    assert drive.answer(do.Tell) == (do.CloseClient(watch + 3),)
    assert drive.answer(do.CloseClient) == (do.RemoveHosts(watch + 4, limit=10.0),)
    assert drive.answer(do.RemoveHosts) == (do.End(3),)


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # The program is ended first, and its end reported.
        ("running", [OVER], "Watch Stop ends:RESULT"),
        ("running", [OVER, m.ended(STOPPED)], "Tell:Exit(143,stopped)@0 due:3"),
        ("running", [OVER, m.ended(STOPPED), TAKEN], "Drop:Watch RUN_OVER Leave"),
        ("running", [OVER, m.result(OTHER)], "Watch(4)"),
        ("running", [OVER, m.result(OTHER), m.ended(STOPPED), TAKEN, CLOSES], "End:3"),
        # A signal is told where no program's end will say it; its code is the exit code.
        ("running", [TERM], "SIGNAL Tell:Depart:last ends:SIGNAL"),
        ("running", [TERM, TAKEN], "Stop"),
        ("running", [TERM, m.ended(KILLED)], "Tell:Exit(143)@0 due:3"),
        ("running", [TERM, m.ended(KILLED), TAKEN, CLOSES], "End:143"),
        ("joined", [TERM], "SIGNAL Tell:Exit(143):last ends:SIGNAL"),
        ("joined", [m.signal(SIGHUP), TAKEN, CLOSES], "End:129"),
        # Of a signal, a result, a refusal and a fault the first one counts.
        ("running", [TERM, OVER, m.ended(KILLED), TAKEN, CLOSES], "End:143"),
        ("running", [OVER, TERM, m.ended(KILLED), TAKEN, CLOSES], "End:3"),
        ("joined", [OVER, TERM, CLOSES], "End:3"),
        ("running", [m.breaks(do.Watch), TERM], "SIGNAL"),
        ("armed", [TERM, m.fails(do.Watch, FENCED), m.fails(do.Tell, FENCED)], "Leave"),
        # Where the launcher is gone nobody is told anything.
        ("armed", [LAUNCHER_GONE], "SIGNAL Drop:Watch Leave ends:SIGNAL"),
        ("armed", [LAUNCHER_GONE, SOCKET], "CloseClient"),
        ("armed", [TERM, LAUNCHER_GONE, TAKEN, SOCKET], "CloseClient"),
        # A node's own fault is told, with its own age, and what the registry has said is not.
        ("verifying", [m.breaks(do.Visit), SOCKET], "Tell:Exit(70,agent)@0:last"),
        ("armed", [m.breaks(do.Watch), SOCKET, m.late(do.Tell)], "Tell:Leave:last"),
        ("running", [m.breaks(do.Watch), m.at(9), m.gone(), SOCKET], "Tell:Exit(70,agent)@0:last"),
        ("joined", [m.at(3), m.breaks(do.Watch), m.at(9), SOCKET], "Tell:Exit(70,agent)@3:last"),
        # One that the kernel is about to end says so before.
        ("running", [EXHAUSTED, m.gone(), SOCKET], "Tell:Exit(82,agent)@0:last"),
        ("joined", [EXHAUSTED, SOCKET], "Tell:Exit(82,agent)@0:last"),
        ("joined", [OVER, EXHAUSTED, SOCKET], "Tell:Leave:last"),
        ("joined", [m.fails(do.Watch, FENCED), SOCKET], "Tell:Leave:last"),
        ("joined", [m.fails(do.Watch, RunOver("over")), SOCKET], "Tell:Leave:last"),
        ("joined", [m.breaks(do.Watch), CLOSES], "End:ValueError"),
        # What fails among the last steps is said and holds up nothing.
        ("joined", [OVER, m.breaks(do.CloseSocket)], "PART_BROKEN Tell:Leave:last"),
        ("joined", [OVER, SOCKET, m.breaks(do.Tell)], "CloseClient"),
        ("joined", [OVER, LEFT, m.breaks(do.CloseClient)], "PART_BROKEN RemoveHosts"),
        ("joined", [OVER, LEFT, m.fails(do.CloseClient)], "PART_BROKEN RemoveHosts"),
        ("joined", [OVER, NEARLY, m.late(do.RemoveHosts)], "HOSTS_HANG End:3"),
        ("joined", [OVER, NEARLY, m.after(1.0), TERM], "SIGNAL"),  # they are being put back already
        ("joined", [OVER, NEARLY, m.fails(do.RemoveHosts)], "HOSTS_NOT_BACK End:3"),
        ("joined", [OVER, NEARLY, m.breaks(do.RemoveHosts)], "HOSTS_NOT_BACK End:3"),
        # The hosts file waits for the thread that may write it, but not for ever.
        ("arming", [m.at(20), OVER, NEARLY, m.after(9.9)], "due:30"),
        ("arming", [m.at(20), OVER, NEARLY, m.after(10)], "HOSTS_HANG End:3"),
        ("arming", [OVER, NEARLY, m.after(10), READIED], ""),
        ("arming", [OVER, READIED, CLOSES], "End:3"),
        # One that is over does and says nothing more.
        ("joined", [OVER, CLOSES, TERM], ""),
        ("joined", [OVER, CLOSES, m.feed(inputs.Done(999, LATE))], ""),
        ("joined", [OVER, CLOSES, m.after(99.0)], ""),
    ],
)
def test_what_a_node_that_ends_does(begin: str, steps: list[Any], does: str) -> None:
    assert outcome(begin, *steps) == does


def test_the_word_in_which_the_nodes_differ_is_shown_with_the_result() -> None:
    given = RESULT.model_copy(update={"command_word": 4})
    assert do.ShowWord(4) in to("joined").result(given)


@pytest.mark.parametrize(
    ("begin", "faults", "epoch", "code", "words"),
    [
        ("verifying", [m.breaks(do.Visit)], 0, 70, "an internal error in rdzv: Value"),
        ("acknowledging", [m.fails(do.Tell, Mismatch("not this run"))], 1, 77, "not this run"),
        # Of the epoch that was acknowledged, although it arms for a later one.
        ("armed", [m.arm(table(epoch=2)), m.fails(do.Arm, ArmingFailed("full"))], 1, 82, "full"),
    ],
)
def test_a_nodes_own_fault_is_told_in_words(
    begin: str, faults: list[Any], epoch: int, code: int, words: str
) -> None:
    drive = to(begin)
    for step in faults:
        step(drive)
    (report,) = told(drive.answer(do.CloseSocket))
    assert isinstance(report, ExitReport)
    assert (report.epoch, report.exit_code, report.by_agent) == (epoch, code, True)
    assert report.message.startswith(words)
    assert told(drive.answer(do.Tell)) == [LeaveReport()]


def test_the_hosts_file_has_what_is_left_of_its_time() -> None:
    drive = to("arming")
    drive.now = 20.0
    drive.result()
    NEARLY(drive)
    drive.now = 24.0
    drive.answer(do.Arm, inputs.Armed, PROGRAM)
    assert drive.the(do.RemoveHosts).limit == 6.0


def test_without_a_hosts_file_the_node_ends_when_its_connections_are_closed() -> None:
    drive = to("joined", replace(RULES, hosts_file=""))
    drive.result()
    assert NEARLY(drive) == (do.End(3),)
