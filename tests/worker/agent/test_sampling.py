"""How far a program's ranks have come at their start, for whoever waits for them."""

from __future__ import annotations

import asyncio

from tests.support.virtual_time import run_virtually
from tests.worker.agent.drive import at_once
from tests.worker.agent.test_running import LOOK
from tests.worker.test_table import join, table
from worker.agent import AgentEnvironment, inputs
from worker.agent.actions import Start
from worker.agent.arming import NodeSpec
from worker.agent.sampling import FIRST_SECONDS, follow_import
from worker.settings import WorkerSettings

SPEC = NodeSpec(WorkerSettings(), join(), ["train"], remote=False)


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
