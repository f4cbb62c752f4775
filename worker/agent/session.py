"""What an agent asks the registry and tells it: one try each, answered by one input."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rendezvous.compat import timeout
from rendezvous.talk.client import RegistryClient, aged
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.reports import Report
from worker.agent import actions as do
from worker.agent import inputs
from worker.offer.refusal import refuse

Answer = TypeVar("Answer")


class Session:
    """The agent's side of its talk with the registry.

    Args:
        client: Of the registry.
        join: What this node joins with.
    """

    def __init__(self, client: RegistryClient, join: JoinString) -> None:
        self._client = client
        self._join = join

    async def connect(self, asked: do.Connect) -> inputs.Input:
        """Find the registry."""
        await self._pause(asked.pause)
        return await self._ask(
            asked.number, self._client.connect, lambda base: inputs.Connected(asked.number, base)
        )

    async def join(self, asked: do.Join) -> inputs.Input:
        """Ask for the slot."""
        await self._pause(asked.pause)
        return await self._ask(
            asked.number,
            lambda: self._client.join(self._join.run, asked.offer),
            lambda reply: inputs.Joined(asked.number, reply, self._client.base),
        )

    async def refuse(self, asked: do.Refuse) -> inputs.Input:
        """Tell why this node does not join, as long as it may be heard."""
        await refuse(self._client, self._join, asked.error)
        return inputs.Done(asked.number)

    async def watch(self, asked: do.Watch) -> inputs.Input:
        """Ask for the next news."""
        await self._pause(asked.pause)
        run, slot = self._join.run, self._join.slot
        return await self._ask(
            asked.number,
            lambda: self._client.watch(run, slot, asked.after, asked.poll),
            lambda view: inputs.Viewed(asked.number, view),
            limit=asked.limit,
        )

    async def tell(self, asked: do.Tell) -> inputs.Input:
        """Send a report; what it tells of ages meanwhile."""
        await self._pause(asked.pause)
        run, slot = self._join.run, self._join.slot
        report = _with_age(asked)
        return await self._ask(
            asked.number,
            lambda: self._client.report(run, slot, report),
            lambda _: inputs.Done(asked.number),
            limit=asked.limit,
        )

    async def close(self, number: int) -> inputs.Input:
        """Close the connections."""
        await self._client.close()
        return inputs.Done(number)

    async def _pause(self, wanted: bool) -> None:
        if wanted:
            await asyncio.sleep(self._client.pause())

    @staticmethod
    async def _ask(
        number: int,
        ask: Callable[[], Awaitable[Answer]],
        answered: Callable[[Answer], inputs.Input],
        *,
        limit: float | None = None,
    ) -> inputs.Input:
        """Ask once; what the registry refuses, and its silence, are answers as well."""
        try:
            async with timeout(limit):
                return answered(await ask())
        except RdzvError as exc:
            return inputs.Failed(number, exc)
        except TimeoutError:
            return inputs.Late(number)


def _with_age(asked: do.Tell) -> Report:
    """The report as it is told now: the registry judges by age who failed first."""
    since = asked.began_at if asked.since is None else asked.since
    return aged(asked.report, max(0.0, asyncio.get_running_loop().time() - since))
