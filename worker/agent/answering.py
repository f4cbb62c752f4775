"""Answers the questions of features to this node."""

from __future__ import annotations

import asyncio
import contextlib

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.questions import answer
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.question import Answer
from worker.agent.actions import AnswerQuestion
from worker.agent.port import Parts, RunningRanks
from worker.agent.questions import ANSWERS_A_SECOND, NOT_STARTED

NOT_KNOWN = "no part of its rdzv answers this question"


class Answers:
    """What a node answers.

    Args:
        client: Of the registry.
        join: Of this node.
        parts: The features' parts, which know the answers to their own questions.
    """

    def __init__(self, client: RegistryClient, join: JoinString, parts: Parts) -> None:
        self._client = client
        self._join = join
        self._parts = parts

    async def answer(self, asked: AnswerQuestion, ranks: RunningRanks | None) -> None:
        """See now what the answer is, and send it when it is this node's turn.

        Args:
            asked: What is wanted.
            ranks: None: no program runs here.
        """
        question = asked.question
        topic, make = self._parts.answers.get(question.topic, (None, None))
        turn = topic.stagger(asked.node) if topic is not None else asked.node / ANSWERS_A_SECOND
        due = asyncio.get_running_loop().time() + turn
        why = asked.why or (NOT_STARTED if ranks is None else "" if make else NOT_KNOWN)
        said = Answer(number=question.number, epoch=asked.epoch, words=why)
        with contextlib.suppress(RdzvError):  # whoever asks sees that this node has not answered
            if ranks is not None and make is not None:
                said = await make(question, ranks)
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await answer(self._client, question.topic, self._join.run, self._join.slot, said)
