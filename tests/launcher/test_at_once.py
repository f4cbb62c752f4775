"""Two who come at the same time, and one that is ended while it begins."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.launch.launch import Launch
from launcher.launch.registry import RegistryProcess
from launcher.ui import runs as ui_runs
from launcher.ui.runs import Runs
from tests.launcher.world import World
from tests.support.virtual_time import run_virtually


class Child:
    """A registry's process."""

    def __init__(self) -> None:
        self.ended: list[float] = []
        self._over = asyncio.Event()

    async def wait(self) -> int:
        await self._over.wait()
        return 0

    async def end(self, seconds: float) -> None:
        self.ended.append(seconds)
        self._over.set()


@pytest.mark.parametrize("after", [0.5, 1.5])
def test_a_registry_that_is_being_started_is_ended_with_its_launch(
    tmp_path: Path, after: float
) -> None:
    """Else it would outlive the launcher that has begun it, and hold its port."""
    world, child = World(tmp_path / "state"), Child()
    closed: list[bool] = []

    class Socket:
        def close(self) -> None:
            closed.append(bool(child.ended))

    async def start(*_: Any) -> Child:
        await asyncio.sleep(1.0)
        assert closed == []
        return child

    async def work() -> None:
        state = world.state()
        state.acquire()
        try:
            world.start_registry = start  # type: ignore[method-assign,assignment]
            process = RegistryProcess(state, world, cast(Any, Socket()))
            running = asyncio.create_task(process.supervise())
            await asyncio.sleep(after)
            running.cancel() if after > 1 else None
            await process.close()
            assert len(child.ended) == 1
            await asyncio.gather(running, return_exceptions=True)
        finally:
            state.release()

    run_virtually(work())
    assert closed == [True]


async def test_whatever_became_of_a_launch_its_connections_are_closed(tmp_path: Path) -> None:
    world = World(tmp_path / "state")
    state = world.state()
    state.acquire()
    closed: list[str] = []

    class Clients:
        async def close(self) -> None:
            closed.append("clients")

    try:
        board = world.board(2, state.logs, json_events=False, verbose=False)
        launch = Launch(world.prepared(rdzv_id="r"), state, board, world)
        process = RegistryProcess(state, world, cast(Any, SimpleNamespace(close=lambda: None)))
        process._child = child = Child()
        recovery = launch._recovery
        recovery.registry, recovery.process = cast(Any, Clients()), process
        await launch._close()
        assert (closed, len(child.ended)) == (["clients"], 1)
    finally:
        state.release()


async def test_the_runs_are_listed_once_for_all_who_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []

    def recorded(root: Path) -> list[Any]:
        time.sleep(0.05)
        listed.append(root)
        return []

    monkeypatch.setattr(ui_runs, "recorded_runs", recorded)
    runs = Runs(tmp_path, cast(Any, None))
    await asyncio.gather(*(runs.rows() for _ in range(3)))
    assert listed == [tmp_path]
