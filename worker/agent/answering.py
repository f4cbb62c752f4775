"""Answers a look: where the ranks of this node are, or when they called their collectives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.looks import answer_look, registry_clock
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.look import LookReport
from worker.agent.actions import AnswerLook
from worker.agent.environment import AgentEnvironment
from worker.look.parsing.arrivals import Clock, pace_of

MOST_BYTES = 8 << 20
"""Of calls, that all nodes of a run tell together."""
LEAST_OWN_BYTES, MOST_OWN_BYTES = 6 << 10, 48 << 10
"""That each node may tell in any case, and at most: a request may have 64 KiB."""
_CLOCK_TRIES = 5


class RanksToSee(NamedTuple):
    """The ranks of a program.

    Attributes:
        folder: What RDZV_LOOK_FOLDER names for them; empty: nobody is to look.
        pids: The processes of the local ranks; None where nobody knows it.
        first_rank: The global rank of local rank 0.
        launcher: The process of the program, which may be a rank itself; None: not known.
    """

    folder: str
    pids: Mapping[int, int | None]
    first_rank: int
    launcher: int | None = None


class Answering:
    """What a node answers.

    Args:
        environment: The outer world.
        client: Of the registry.
        join: Of this node.
    """

    def __init__(
        self, environment: AgentEnvironment, client: RegistryClient, join: JoinString
    ) -> None:
        self._environment = environment
        self._client = client
        self._join = join

    async def answer(self, asked: AnswerLook, ranks: RanksToSee | None) -> None:
        """Look now, and tell it when it is this node's turn.

        Args:
            asked: What is wanted.
            ranks: None: no program runs here.
        """
        due = asyncio.get_running_loop().time() + asked.delay
        report = LookReport(look=asked.look, epoch=asked.epoch, words=asked.why)
        with contextlib.suppress(RdzvError):  # whoever asks sees that this node has not answered
            if asked.pace_before is not None:
                report = await self._with_pace(report, ranks, due, asked)
            elif ranks is not None:
                report = await self._with_ranks(report, ranks)
            elif asked.program is not None:
                words = "its program has not been started yet"
                report = report.model_copy(update={"words": words})
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await answer_look(self._client, self._join.run, self._join.slot, report)

    async def _with_ranks(self, report: LookReport, ranks: RanksToSee) -> LookReport:
        """Add where the ranks are; why not, where that cannot be seen."""
        began = asyncio.get_running_loop().time()
        try:
            seen = await self._environment.in_thread(self._environment.where_ranks_are, *ranks)
        except Exception as exc:  # noqa: BLE001 (who looks is shown why there is nothing to see)
            words = f"looking at its processes failed: {type(exc).__name__}"
            return report.model_copy(update={"words": words})
        seconds = asyncio.get_running_loop().time() - began
        lists = {"unstarted": [*seen.unstarted], "held_back": [*seen.held_back]}
        found = {**seen._asdict(), **lists}
        return report.model_copy(update={"seconds": seconds, **found})

    async def _with_pace(
        self, report: LookReport, ranks: RanksToSee | None, due: float, asked: AnswerLook
    ) -> LookReport:
        """Add when the ranks called. Raises RdzvError."""
        before = asked.pace_before
        if ranks is None or not ranks.folder or before is None:
            return report
        # At once: all ranks of the run are held for a moment, and better at the same one.
        read = self._environment.calls
        calls = await self._environment.in_thread(read, ranks.folder, ranks.pids, ranks.first_rank)
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        clock = await self._clock()
        most = bytes_told(asked.nodes)
        pace = await self._environment.in_thread(pace_of, calls, clock, before, most)
        return report.model_copy(update={"pace": pace})

    async def _clock(self) -> Clock:
        """The registry's, by the quickest of several answers. Raises RdzvError."""
        found = []
        for _ in range(_CLOCK_TRIES):
            sent = self._environment.wall()
            now = await registry_clock(self._client, self._join.run, self._join.slot)
            heard = self._environment.wall()
            found.append(((heard - sent) / 2, now - (sent + heard) / 2))
        error, ahead = min(found)
        return Clock(ahead, max(0.0, error))


def bytes_told(nodes: int) -> int:
    """How many bytes one of so many nodes may tell of its calls with."""
    return max(LEAST_OWN_BYTES, min(MOST_OWN_BYTES, MOST_BYTES // nodes))
