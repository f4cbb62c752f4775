"""How far a program's ranks have come, asked for now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from worker.agent import inputs
from worker.agent.actions import Start
from worker.agent.environment import AgentEnvironment
from worker.agent.quiet import Sample, sample_seconds
from worker.contracts.looking import LOOK_VARIABLE
from worker.settings import WorkerSettings


class Going(NamedTuple):
    """A program that runs: the processes of its local ranks, its own, the bytes that it has
    printed, and the highest step that it has told."""

    pids: Mapping[int, int | None]
    launcher: int | None
    printed: int
    step: int | None


async def sample_ranks(
    asked: Start,
    settings: WorkerSettings,
    environment: AgentEnvironment,
    feed: Callable[[inputs.Input], None],
    goes_on: Callable[[], Going | None],
) -> None:
    """Feed a sample of a program every few seconds, until cancelled.

    Not where a person does not want it, nor where the ranks cannot be asked.
    """
    folder = asked.contract.variables.get(LOOK_VARIABLE, "")
    while folder and settings.stall != "off":
        await asyncio.sleep(sample_seconds(settings.stall_timeout))
        if (going := goes_on()) is None:
            continue
        try:
            calls, work = await environment.in_thread(
                environment.sample_ranks, folder, going.pids, going.launcher
            )
        except Exception as exc:  # noqa: BLE001 (the run does without)
            feed(inputs.PartBroken("sampling the ranks", exc))
            return
        sample = Sample(tuple(calls), going.printed, going.step, tuple(work))
        feed(inputs.RanksSampled(asked.number, sample))
