"""One node's part of a run, whatever comes of it: its signals, its parent, and its connections."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import worker.agent
from tests.worker.test_table import join
from worker.agent import take_part
from worker.agent.inputs import SignalCame
from worker.settings import WorkerSettings


class Bench:
    """What a node's part is made of, and what was done with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ends: Callable[[], int]) -> None:
        self.done: list[Any] = []
        self.handlers: dict[int, Callable[[], None]] = {}
        self.asked: list[int] = []
        self.lives = True
        monkeypatch.setattr(worker.agent, "NodeShell", self._shell)
        self._ends = ends

    def _shell(self, spec: Any, environment: Any, client: Any) -> Any:
        self.spec, self.client = spec, client

        async def run() -> int:
            for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1):
                self.handlers[number]()
            return self._ends()

        return SimpleNamespace(run=run, feed=self.done.append)

    async def part(self, parent: int | None = None) -> int:
        def parent_lives(number: int) -> bool:
            self.asked.append(number)
            return self.lives

        async def close() -> None:
            self.done.append("closed")
            raise OSError("it is gone")

        def dial(place: Any, token: str) -> Any:
            self.done.append((place, token))
            return SimpleNamespace(close=close)

        loop: Any = asyncio.get_running_loop()
        loop.add_signal_handler = lambda number, call, *args: self.handlers.setdefault(
            number, lambda: call(*args)
        )
        environment: Any = SimpleNamespace(dial=dial, parent_lives=parent_lives)
        settings = WorkerSettings(framework="command", log_dir=Path("/logs"))
        settings = settings.model_copy(update={"parent": parent})
        return await take_part(settings, join(), ["train"], environment, any_slot=True)


SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1)


@pytest.mark.parametrize(
    ("parent", "lives", "told"), [(None, False, True), (77, True, True), (77, False, False)]
)
async def test_a_signal_is_told_with_whether_the_parent_lives(
    monkeypatch: pytest.MonkeyPatch, parent: int | None, lives: bool, told: bool
) -> None:
    bench = Bench(monkeypatch, lambda: 3)
    bench.lives = lives
    assert await bench.part(parent) == 3
    place = (join().place, join().token)
    assert bench.done == [place, *(SignalCame(number, told) for number in SIGNALS), "closed"]
    assert bench.asked == ([] if parent is None else [parent] * 3)
    assert (bench.spec.command, bench.spec.any_slot) == (["train"], True)
    assert {signal.SIGINT, *SIGNALS} <= bench.handlers.keys()


async def test_the_connections_are_closed_whatever_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise ValueError("not this way")

    bench = Bench(monkeypatch, fails)
    with pytest.raises(ValueError, match="not this way"):
        await bench.part()
    assert bench.done[-1] == "closed"
