"""Sends what the ranks of a failed program have printed last."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.last_words import send_words
from rendezvous.wire.errors import RdzvError
from worker.agent.actions import SendWords
from worker.agent.last_words import Printed, last_lines, whole_text
from worker.program.rank_words import RankWords


def printed_by(said: RankWords | None, node: int, first_rank: int) -> Printed:
    """What the ranks of a node have printed last, by global rank; `first_rank` is its first one."""
    lines: dict[int | None, list[str]] = {}
    for local in said.ranks() if said is not None else []:
        rank = None if local is None else first_rank + local
        lines[rank] = [text for _, text, _ in said.lines(local, sys.maxsize)] if said else []
    return Printed(node, lines)


async def send_last_words(
    asked: SendWords, printed: Printed, client: RegistryClient, join: JoinString
) -> None:
    """One try of each message; the first that is refused, or gets no answer, is the last one."""
    await asyncio.sleep(asked.wait)
    sent = False
    with contextlib.suppress(RdzvError):
        for said in last_lines(asked.epoch, printed):
            reply = await send_words(client, join.run, join.slot, said)
            if reply.wants and not sent:
                sent = True
                rank = asked.rank if reply.rank is None else reply.rank
                for piece in whole_text(asked.epoch, printed, rank):
                    await send_words(client, join.run, join.slot, piece)
