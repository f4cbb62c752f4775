"""A question in a node's machine: it is answered once, and the node watches on."""

from __future__ import annotations

import pytest

from rendezvous.wire.question import Question
from rendezvous.wire.run import Phase
from tests.worker.agent.drive import DIGEST, Drive, in_words, to
from worker.agent.actions import AnswerQuestion, Watch

NUMBER = 1_000


def question(number: int = NUMBER) -> Question:
    return Question(number=number, topic="looks")


def asked(drive: Drive, given: Question | None) -> list[AnswerQuestion]:
    """What it does about a question that comes with the same news as before."""
    done = drive.view(
        Phase.RUNNING, seq=drive.the(Watch).after, digest=DIGEST, epoch=1, question=given
    )
    return [action for action in done if isinstance(action, AnswerQuestion)]


def test_a_question_is_answered_once_with_all_that_says_when_it_is_the_nodes_turn() -> None:
    drive = to("running")
    (answer,) = asked(drive, question())
    assert answer == AnswerQuestion(question(), epoch=1, program=drive.program, node=1)
    assert drive.the(Watch).question == NUMBER
    assert asked(drive, question()) == []
    assert asked(drive, None) == []
    assert drive.the(Watch).question == NUMBER
    assert [one.question.number for one in asked(drive, question(NUMBER + 1))] == [NUMBER + 1]


def test_the_node_watches_on_at_the_same_moment() -> None:
    drive = to("running")
    done = drive.view(Phase.RUNNING, seq=drive.the(Watch).after, epoch=1, question=question())
    assert in_words(done) == "AnswerQuestion Watch"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("starting", "its program has not been started yet"),
        ("serving", "it serves the program of node 0 and runs no other"),
    ],
)
def test_a_node_without_a_program_says_why(state: str, why: str) -> None:
    (answer,) = asked(to(state), question())
    assert (answer.program, answer.why) == (None, why)


def test_a_node_whose_program_has_ended_says_so() -> None:
    drive = to("running")
    drive.ended()
    (answer,) = asked(drive, question())
    assert (answer.program, answer.why) == (None, "its program has ended")


def test_a_node_that_has_no_table_has_nothing_to_answer() -> None:
    drive = to("joined")
    done = drive.view(Phase.GATHERING, question=question())
    assert not any(isinstance(action, AnswerQuestion) for action in done)
    assert drive.the(Watch).question == NUMBER
