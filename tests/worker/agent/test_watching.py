"""The watch: news, heart-beat, and the loss of the registry."""

from __future__ import annotations

import signal

import pytest

from rendezvous.wire.errors import Fenced, NotFound, RdzvError, RegistryLost, TooManyRequests
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import Phase
from tests.worker.agent.drive import (
    AWAY,
    RESULT,
    WHOLE,
    Drive,
    armed,
    joined,
    notes,
    running,
    told,
    without_words,
)
from worker.agent.actions import CloseSocket, Drop, End, Flush, Start, Stop, Tell, Visit, Watch
from worker.agent.inputs import Done
from worker.agent.notices import Note
from worker.agent.state import Cause
from worker.agent.watching import seconds_of_try
from worker.program.ending import Ending


def ends_of(drive: Drive) -> RdzvError:
    """The error that the node ends with."""
    assert drive.node.ends is not None
    assert isinstance(drive.node.ends.error, RdzvError)
    return drive.node.ends.error


def test_news_is_answered_with_the_next_watch_from_there_on() -> None:
    drive = joined()
    drive.now = 9.0
    actions = drive.view(reason="1 of 2 nodes joined", poll_seconds=3.0)
    assert notes(actions) == [Note.RUN_WAITS]
    assert without_words(actions) == (Watch(8, after=1, poll=3.0, limit=115.0),)


def test_news_that_was_taken_in_is_not_taken_in_again() -> None:
    drive = joined()
    drive.verify()
    drive.answer(Visit, Done)
    actions = drive.verify(epoch=2, seq=1)
    assert [type(action) for action in without_words(actions)] == [Watch]


def test_a_registry_that_comes_back_with_less_is_believed() -> None:
    drive = joined()
    drive.verify(seq=9)
    drive.verify(seq=3, epoch=2)
    assert drive.the(Watch).after == 3
    assert [visit.epoch for visit in drive.all(Visit)] == [2]


def test_what_is_waited_for_is_said_when_it_changes_but_for_the_times_in_it() -> None:
    drive = joined()
    assert notes(drive.view(reason="waiting for slot 0, 50 s left", topic=1)) == [Note.RUN_WAITS]
    assert notes(drive.view(reason="waiting for slot 0, 40 s left", topic=1)) == []
    assert notes(drive.view(reason="waiting for slot 2, 40 s left", topic=2)) == [Note.RUN_WAITS]


@pytest.mark.parametrize(
    ("left", "had_last", "expected"),
    [
        (120.0, False, (116.0, False)),
        (4.5, False, (0.5, False)),
        (4.0, False, (4.0, True)),
        (1.0, False, (4.0, True)),
        (-5.0, False, (4.0, True)),
        (3.0, True, (3.0, False)),
        (-5.0, True, (0.0, False)),
    ],
)
def test_the_time_that_is_left_ends_with_one_try_of_full_length(
    left: float, had_last: bool, expected: object
) -> None:
    assert seconds_of_try(left, WHOLE, had_last=had_last) == expected


@pytest.mark.parametrize("error", [AWAY, TooManyRequests("wait")])
def test_a_registry_away_for_a_moment_disturbs_nobody(error: RdzvError) -> None:
    drive = joined()
    drive.now = 119.9
    actions = drive.fails(Watch, error)
    assert notes(actions) == [Note.REGISTRY_SILENT]
    (watch,) = without_words(actions)
    assert watch == Watch(8, after=0, poll=2.0, limit=WHOLE, pause=True)
    drive.now = 119.95
    (watch,) = without_words(drive.fails(Watch, error))
    assert isinstance(watch, Watch)
    assert watch.limit == pytest.approx(0.05)


def test_a_registry_that_answers_is_given_the_whole_time_again() -> None:
    drive = joined()
    drive.now = 119.0
    drive.fails(Watch)
    drive.now = 120.0
    drive.view()
    assert drive.the(Watch).limit == 116.0
    assert drive.node.member is not None
    assert not drive.node.member.had_last_try


def test_a_registry_that_is_silent_for_the_orphan_timeout_is_given_up() -> None:
    drive = joined()
    drive.now = 116.0
    actions = drive.late(Watch)
    assert without_words(actions) == (Watch(8, after=0, poll=2.0, limit=WHOLE),)
    drive.now = 120.0
    actions = drive.late(Watch)
    assert isinstance(ends_of(drive), RegistryLost)
    assert "did not answer" in ends_of(drive).message
    assert drive.leaves() == End(0, ends_of(drive))


def test_a_process_that_was_stopped_for_long_tries_once_more_before_it_gives_up() -> None:
    drive = joined()
    drive.now = 3_600.0
    actions = drive.late(Watch)
    assert without_words(actions) == (Watch(8, after=0, poll=2.0, limit=WHOLE),)
    drive.view()
    assert drive.node.ends is None
    drive.now = 9_000.0
    drive.late(Watch)
    drive.late(Watch)
    assert isinstance(ends_of(drive), RegistryLost)


def test_the_last_problem_that_was_seen_is_the_one_that_is_said_in_the_end() -> None:
    drive = joined()
    drive.now = 118.0
    drive.fails(Watch)
    drive.now = 121.0
    drive.late(Watch)
    assert "nobody listens" in ends_of(drive).message


def test_a_lost_registry_ends_the_program_and_is_told_nothing() -> None:
    drive = running()
    program = drive.program
    drive.now = 116.0
    drive.late(Watch)
    drive.now = 130.0
    actions = drive.fails(Watch)
    assert without_words(actions) == (Stop(program),)
    actions = drive.gone(Ending(143, 131.0, was_told=True))
    assert not told(actions)
    assert drive.all(CloseSocket)
    assert isinstance(drive.leaves().error, RegistryLost)


def test_a_refused_watch_ends_the_node_and_its_program() -> None:
    drive = running()
    actions = drive.fails(Watch, Fenced("newer"))
    assert without_words(actions) == (Stop(drive.program),)
    assert drive.node.ends is not None
    assert drive.node.ends.cause is Cause.REFUSED
    drive.gone(Ending(143, 1.0))
    assert told(drive.answer(CloseSocket)) == [LeaveReport()]
    assert drive.leaves() == End(0, ends_of(drive))


def test_a_watch_that_breaks_is_this_nodes_own_fault() -> None:
    drive = joined()
    drive.breaks(Watch)
    assert drive.node.ends is not None
    assert drive.node.ends.cause is Cause.FAULT


@pytest.mark.parametrize("error", [NotFound("no such run"), Fenced("newer")])
def test_a_refusal_after_the_result_changes_nothing(error: RdzvError) -> None:
    drive = running()
    drive.result()
    assert drive.fails(Watch, error) == ()
    assert not drive.all(Watch)
    assert drive.all(Start)
    drive.gone(Ending(143, 1.0))
    drive.answer(Flush)
    drive.taken()
    assert drive.leaves() == End(RESULT.exit_code)


def test_a_refusal_after_a_signal_changes_nothing() -> None:
    drive = armed()
    drive.signal(signal.SIGTERM)
    assert drive.fails(Watch, Fenced("newer")) == ()
    drive.answer(Tell)
    assert drive.leaves() == End(143)


def test_a_silent_registry_does_not_hold_up_or_end_a_node_that_knows_the_result() -> None:
    drive = running()
    drive.result()
    drive.now = 500.0
    assert drive.late(Watch) == (Watch(17, after=4, poll=2.0, limit=WHOLE),)
    assert drive.node.ends is not None
    assert drive.node.ends.cause is Cause.RESULT


def test_a_node_with_a_long_grace_asks_in_its_own_time_however_long_the_registry_is_silent() -> (
    None
):
    drive = running()
    drive.now = 119.0
    drive.fails(Watch)
    drive.signal(signal.SIGTERM)
    drive.now = 150.0
    assert drive.late(Watch) == (Watch(17, after=3, poll=2.0, limit=WHOLE),)


def test_gathering_again_undoes_nothing() -> None:
    drive = armed()
    assert [type(a) for a in without_words(drive.view(Phase.GATHERING, epoch=2))] == [Watch]
    assert not [a for a in drive.node.effects.values() if isinstance(a, Drop)]
