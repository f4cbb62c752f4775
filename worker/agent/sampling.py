"""Follows how far a program's ranks have come at their start, and in which worlds they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rendezvous.compat import timeout
from rendezvous.wire.world import RankWorld
from worker.agent import inputs
from worker.agent.actions import Start
from worker.agent.arming import NodeSpec
from worker.agent.environment import AgentEnvironment
from worker.contracts.looking import LOOK_VARIABLE

FIRST_SECONDS = 1.0
_SHARE = 0.1
_LAST_SECONDS = 10.0


async def _pause(began: float) -> None:
    """Wait until the next look at what ranks do once, mostly at their beginning: they get rarer."""
    passed = asyncio.get_running_loop().time() - began
    await asyncio.sleep(min(_LAST_SECONDS, max(FIRST_SECONDS, _SHARE * passed)))


async def follow_import(
    asked: Start,
    spec: NodeSpec,
    environment: AgentEnvironment,
    feed: Callable[[inputs.Input], None],
) -> None:
    """Feed that a program's ranks import torch, and that they have; until cancelled."""
    folder = asked.contract.variables.get(LOOK_VARIABLE, "")
    count, fed = spec.row(asked.table).nproc_per_node, False
    began = asyncio.get_running_loop().time()
    while folder:
        await _pause(began)
        try:
            found = await environment.in_thread(environment.importing, folder, count)
        except OSError:  # it is shown to a person, and needed by nobody
            found = False
        if bool(found) is not fed:
            fed = bool(found)
            feed(inputs.Importing(asked.number, fed))
        if found is False:
            return


_READ_SECONDS = 2.0


async def worlds_noted(
    asked: Start, spec: NodeSpec, environment: AgentEnvironment
) -> tuple[RankWorld, ...]:
    """In which worlds the ranks have been until now; none where that cannot be seen in time."""
    folder = asked.contract.variables.get(LOOK_VARIABLE, "")
    if not folder:
        return ()
    ranks = spec.first_rank(asked.table), spec.row(asked.table).nproc_per_node
    try:
        async with timeout(_READ_SECONDS):
            found: tuple[RankWorld, ...]
            found = await environment.in_thread(environment.worlds, folder, *ranks)
    except OSError:  # the time-out is one
        return ()
    return found


async def follow_worlds(
    number: int,
    read: Callable[[], Awaitable[tuple[RankWorld, ...]]],
    feed: Callable[[inputs.Input], None],
) -> None:
    """Feed in which worlds a program's ranks are, whenever that has changed, until cancelled.

    Only what stands for two looks: ranks form a world in the same moment, and note it one by one.
    They do so at the beginning, so that the looks become rarer.

    Args:
        number: Of the program's start.
        read: What is noted now.
        feed: Tells the machine.
    """
    began, before = asyncio.get_running_loop().time(), tuple[RankWorld, ...]()
    fed = before
    while True:
        await _pause(began)
        now = await read()
        if now == before != fed:
            fed = now
            feed(inputs.WorldsSeen(number, now))
        before = now


def follow_ranks(
    asked: Start,
    spec: NodeSpec,
    environment: AgentEnvironment,
    worlds: Callable[[], Awaitable[tuple[RankWorld, ...]]],
    feed: Callable[[inputs.Input], None],
) -> tuple[Coroutine[Any, Any, None], ...]:
    """Return the works that show how the ranks of a program get on, each until cancelled."""
    return (
        follow_worlds(asked.number, worlds, feed),
        follow_import(asked, spec, environment, feed),
    )
