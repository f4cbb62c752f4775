"""Samples of a program's ranks: taken while it runs, whatever it does when they begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.virtual_time import run_virtually
from tests.worker.agent.drive import at_once
from tests.worker.agent.test_running import LOOK, PROGRAM
from tests.worker.test_table import join, table
from worker.agent import AgentEnvironment, inputs
from worker.agent.actions import Start
from worker.agent.arming import NodeSpec
from worker.agent.quiet import SAMPLE_SECONDS, Sample
from worker.agent.sampling import FIRST_SECONDS, Going, follow_import, sample_ranks
from worker.contracts import Contract
from worker.settings import WorkerSettings

GOING = Going({0: 101, 1: 102}, 100, 4_096, 7)
SPEC = NodeSpec(WorkerSettings(), join(), ["train"], remote=False)
SAMPLED = inputs.RanksSampled(9, Sample(((3, 2), (4, 4)), 4_096, 7, ((1.5, 10), (0.5, 20))))


def fed(
    goes_on: Callable[[], Going | None],
    sample: Callable[..., Any],
    contract: Contract = LOOK,
    **settings: Any,
) -> list[tuple[float, inputs.Input]]:
    """What the machine hears of a program in a minute, and when."""
    found: list[tuple[float, inputs.Input]] = []
    environment = AgentEnvironment(in_thread=at_once, sample_ranks=sample)

    async def work() -> None:
        clock = asyncio.get_running_loop().time

        def feed(said: inputs.Input) -> None:
            found.append((clock(), said))

        asked = Start(9, table(), contract)
        sampling = sample_ranks(asked, WorkerSettings(**settings), environment, feed, goes_on)
        task = asyncio.create_task(sampling)
        await asyncio.sleep(60.5)
        task.cancel()

    run_virtually(work())
    return found


def sampled(*asked: Any) -> Any:
    """Calls and work of the two ranks that are asked."""
    assert asked == ("/run/look-1", GOING.pids, GOING.launcher)
    return [(3, 2), (4, 4)], [(1.5, 10), (0.5, 20)]


def test_ranks_are_sampled_also_where_nothing_runs_yet_at_the_first_look() -> None:
    """A torchrun may take its time to start: a hang after that is to be seen as well."""
    seen = iter([None, None, GOING, None])
    found = fed(lambda: next(seen, GOING), sampled)
    assert found == [(at * SAMPLE_SECONDS, SAMPLED) for at in (3, 5, 6)]


def test_a_short_time_for_a_stall_is_kept_by_more_samples() -> None:
    assert [at for at, _ in fed(lambda: GOING, sampled, stall_timeout=40.0)][:2] == [8.0, 16.0]


def test_nobody_is_sampled_where_that_cannot_be_or_nobody_wants_it() -> None:
    assert fed(lambda: GOING, sampled, PROGRAM) == []
    assert fed(lambda: GOING, sampled, stall="off") == []


def test_a_fault_is_told_once_and_the_program_goes_on_without() -> None:
    error = ValueError("not this way")

    def fails(*_: object) -> Any:
        raise error

    assert fed(lambda: GOING, fails) == [
        (SAMPLE_SECONDS, inputs.PartBroken("sampling the ranks", error))
    ]


def followed(*answers: bool | None) -> list[tuple[float, bool]]:
    """When a node hears in a minute that its ranks import torch; the last answer stays."""
    found: list[tuple[float, bool]] = []
    left = list(answers)

    def importing(folder: str, count: int) -> bool | None:
        assert (folder, count) == ("/run/look-1", SPEC.row(table()).nproc_per_node)
        return left.pop(0) if len(left) > 1 else left[0]

    environment = AgentEnvironment(in_thread=at_once, importing=importing)

    async def work() -> None:
        clock = asyncio.get_running_loop().time

        def feed(said: inputs.Input) -> None:
            assert isinstance(said, inputs.Importing)
            found.append((clock(), said.importing))

        following = follow_import(Start(9, table(), LOOK), SPEC, environment, feed)
        task = asyncio.create_task(following)
        await asyncio.sleep(60.5)
        task.cancel()

    run_virtually(work())
    return found


def test_an_import_of_torch_is_told_when_it_begins_and_when_it_is_over() -> None:
    step = FIRST_SECONDS
    assert followed(None, True, True, None, True, False, True) == [
        (2 * step, True),
        (4 * step, False),
        (5 * step, True),
        (6 * step, False),  # and nobody is asked any more
    ]
    assert followed(False) == []
    assert followed(None) == []
