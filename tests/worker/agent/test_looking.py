"""A look in a node's machine: it is answered once, at its turn, and the node watches on."""

from __future__ import annotations

import pytest

from rendezvous.wire.run import Phase
from tests.worker.agent.drive import DIGEST, Drive, in_words, rank, to
from worker.agent.actions import AnswerLook, Watch
from worker.agent.looking import ANSWERS_A_SECOND, PACES_A_SECOND, pids_by_local_rank
from worker.program.family import Child, Family

NUMBER = 1_000


def looked(drive: Drive, number: int | None = NUMBER, **more: object) -> list[AnswerLook]:
    """What it does about a look that comes with the same news as before."""
    done = drive.view(
        Phase.RUNNING, seq=drive.the(Watch).after, digest=DIGEST, epoch=1, look=number, **more
    )
    return [action for action in done if isinstance(action, AnswerLook)]


def test_a_look_is_answered_once_at_the_nodes_turn() -> None:
    drive = to("running")
    (asked,) = looked(drive)
    assert asked == AnswerLook(NUMBER, 1, drive.program, 1 / ANSWERS_A_SECOND, nodes=2)
    assert drive.the(Watch).look == NUMBER
    assert looked(drive) == []
    assert looked(drive, None) == []
    assert drive.the(Watch).look == NUMBER
    assert [one.look for one in looked(drive, NUMBER + 1)] == [NUMBER + 1]


def test_when_its_ranks_called_is_told_more_slowly() -> None:
    (asked,) = looked(to("running"), pace_before=61.25)
    assert (asked.pace_before, asked.delay) == (61.25, 1 / PACES_A_SECOND)


def test_the_node_watches_on_at_the_same_moment() -> None:
    drive = to("running")
    done = drive.view(Phase.RUNNING, seq=drive.the(Watch).after, epoch=1, look=NUMBER)
    assert in_words(done) == "AnswerLook Watch"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("starting", "its program has not been started yet"),
        ("serving", "it serves the program of node 0 and runs no other"),
    ],
)
def test_a_node_without_a_program_says_why(state: str, why: str) -> None:
    (asked,) = looked(to(state))
    assert (asked.program, asked.why) == (None, why)


def test_a_node_whose_program_has_ended_says_so() -> None:
    drive = to("running")
    drive.ended()
    (asked,) = looked(drive)
    assert (asked.program, asked.why) == (None, "its program has ended")


def test_a_node_that_has_no_table_has_nothing_to_answer() -> None:
    drive = to("joined")
    done = drive.view(Phase.GATHERING, look=NUMBER)
    assert not any(isinstance(action, AnswerLook) for action in done)


def test_the_processes_of_the_ranks_are_those_that_the_keeper_knows() -> None:
    family = Family(None, (rank(0), rank(1), Child(7, 0.0, 0.0)))
    assert pids_by_local_rank(family, 5, 3) == {0: 100, 1: 101, 2: None}


def test_a_program_that_is_a_rank_itself_is_looked_at() -> None:
    assert pids_by_local_rank(Family(), 5, 1) == {0: 5}
    assert pids_by_local_rank(Family(), None, 1) == {0: None}
    assert pids_by_local_rank(Family(), 5, 2) == {0: None, 1: None}
