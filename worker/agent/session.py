"""How an effect is carried out: one try, answered by one input; and what the registry is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rendezvous.compat import timeout
from rendezvous.talk.client import R, RegistryClient, aged
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import RdzvError
from worker.agent import actions as do
from worker.agent import inputs
from worker.machine.limits import named
from worker.offer.refusal import refuse


async def one_try(
    asked: do.Effect, work: Callable[[], Awaitable[inputs.Input]], pause: Callable[[], float]
) -> inputs.Input:
    """Do the work of an effect; what it is refused, and a limit that passes, are answers as well.

    Args:
        asked: The effect, with its pause and its limit where it has one.
        work: What is done within the limit.
        pause: Draws the length of a pause, in seconds.
    """
    if getattr(asked, "pause", False):
        await asyncio.sleep(pause())
    limit: float | None = getattr(asked, "limit", None)
    try:
        async with timeout(limit):
            return await work()
    except TimeoutError:
        if limit is None:  # a system call's own
            raise
        return inputs.Late(asked.number)
    except Exception as exc:
        error = named(exc)
        if not isinstance(error, RdzvError):
            raise
        return inputs.Failed(asked.number, error)


async def talk(asked: do.Effect, client: RegistryClient, join: JoinString) -> inputs.Input:
    """Ask the registry, or tell it, once. Raises RdzvError."""
    match asked:
        case do.Connect():
            return inputs.Connected(asked.number, await client.connect())
        case do.Join():
            reply = await client.join(join.run, asked.offer)
            return inputs.Joined(asked.number, reply, client.base)
        case do.Refuse():
            await refuse(client, join, asked.error)
        case do.Watch():
            brings = asked.brings and _with_age(asked.brings, asked.since)
            knows = asked.question, asked.views or 0, asked.importing
            view = await client.watch(join.run, join.slot, asked.after, asked.poll, brings, *knows)
            return inputs.Viewed(asked.number, view)
        case do.Tell():
            since = asked.began_at if asked.since is None else asked.since
            await client.report(join.run, join.slot, _with_age(asked.report, since))
        case do.CloseClient():
            await client.close()
    return inputs.Done(asked.number)


def _with_age(report: R, since: float | None) -> R:
    """The report as it is told now: the registry judges by age who failed first."""
    now = asyncio.get_running_loop().time()
    return report if since is None else aged(report, max(0.0, now - since))
