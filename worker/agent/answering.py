"""Answers the questions to this node: those of features, and when its ranks called collectives."""

from __future__ import annotations

import asyncio
import contextlib

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.questions import answer
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.pace import PACE, PaceAnswer
from rendezvous.wire.question import Answer
from worker.agent.actions import AnswerQuestion
from worker.agent.environment import AgentEnvironment
from worker.agent.port import Parts, RunningRanks
from worker.agent.questions import ANSWERS_A_SECOND, NOT_STARTED
from worker.look.parsing.arrivals import pace_of

PACES_A_SECOND = 150
"""Where nobody waits for them, and each node asks for the registry's clock several times."""
MOST_BYTES = 8 << 20
"""Of calls, that all nodes of a run tell together."""
LEAST_OWN_BYTES, MOST_OWN_BYTES = 6 << 10, 48 << 10
"""That each node may tell in any case, and at most: a request may have 64 KiB."""
NOT_KNOWN = "no part of its rdzv answers this question"


class Answers:
    """What a node answers.

    Args:
        environment: The outer world.
        client: Of the registry.
        join: Of this node.
        parts: The features' parts, which know the answers to their own questions.
    """

    def __init__(
        self,
        environment: AgentEnvironment,
        client: RegistryClient,
        join: JoinString,
        parts: Parts,
    ) -> None:
        self._environment = environment
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
        is_pace = question.topic == PACE
        topic, make = self._parts.answers.get(question.topic, (None, None))
        usual = asked.node / (PACES_A_SECOND if is_pace else ANSWERS_A_SECOND)
        turn = topic.stagger(asked.node) if topic is not None else usual
        due = asyncio.get_running_loop().time() + turn
        why = asked.why or (NOT_STARTED if ranks is None else "" if make else NOT_KNOWN)
        said = Answer(number=question.number, epoch=asked.epoch, words=why)
        with contextlib.suppress(RdzvError):  # whoever asks sees that this node has not answered
            if is_pace:
                said = await self._pace(asked, ranks, due)
            elif ranks is not None and make is not None:
                said = await make(question, ranks)
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await answer(self._client, question.topic, self._join.run, self._join.slot, said)

    async def _pace(
        self, asked: AnswerQuestion, ranks: RunningRanks | None, due: float
    ) -> PaceAnswer:
        """When the ranks called. Raises RdzvError."""
        said = PaceAnswer(number=asked.question.number, epoch=asked.epoch, words=asked.why)
        if ranks is None or not ranks.folder:
            return said
        # At once: all ranks of the run are held for a moment, and better at the same one.
        read = self._environment.calls
        calls = await self._environment.in_thread(read, ranks.folder, ranks.pids, ranks.first_rank)
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        clock, before = await self._parts.clock(), asked.question.data.get("before", 0.0)
        most = bytes_told(asked.nodes)
        pace = await self._environment.in_thread(pace_of, calls, clock, before, most)
        return said.model_copy(update={"pace": pace})


def bytes_told(nodes: int) -> int:
    """How many bytes one of so many nodes may tell of its calls with."""
    return max(LEAST_OWN_BYTES, min(MOST_OWN_BYTES, MOST_BYTES // nodes))
