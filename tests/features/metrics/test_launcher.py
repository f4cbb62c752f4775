"""The metrics that a launcher keeps in the run's folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from features.metrics import FILE, TOPIC, launcher
from features.metrics.view import read_metrics
from features.metrics.wire import MetricLine, RunMetrics
from launcher.port import LauncherPort
from rendezvous.channel import Published
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import Unavailable
from tests.launcher.command import launched
from tests.support.virtual_time import run_virtually

DROPPED = "metrics arrive faster than they can be sent, so some rows were dropped"


def line(step: int) -> MetricLine:
    """A row as the registry keeps it."""
    return MetricLine(rank=0, step=step, number=step, slot=0, at_seconds=1.0)


class Registry:
    """Publishes these rows; `away`: nobody listens there."""

    def __init__(self) -> None:
        self.rows = [line(1), line(2)]
        self.session, self.dropped, self.away = "a", 0, False

    async def topic(self, topic: Published, run: str, *, after: int) -> RunMetrics:
        assert (topic, run) == (TOPIC, "llama")
        if self.away:
            raise Unavailable("nobody listens")
        rows = [row for row in self.rows if row.number > after]
        values: dict[str, Any] = {"session": self.session, "dropped": self.dropped, "rows": rows}
        return RunMetrics(newest=9, elapsed_seconds=1.0, **values)


class Kept:
    """The launcher's part at work, and what it has shown."""

    def __init__(self, root: Path) -> None:
        self.registry, self.shown, self.state = Registry(), list[str](), launched(root)
        self.port = LauncherPort(cast(RegistryClient, self.registry), self.state, self.shown.append)

    def run(self, course: Callable[[], Awaitable[None]]) -> list[int]:
        """Run it beside the course, and part; returns the steps that are kept."""

        async def both() -> None:
            task = asyncio.create_task(launcher.run(self.port))
            await asyncio.sleep(0.1)
            await course()
            self.port.part()
            await task

        run_virtually(both())
        return [row.step for row in read_metrics(self.state)]


def test_metrics_are_kept_once_whatever_becomes_of_the_registry(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    registry = kept.registry

    async def course() -> None:
        await asyncio.sleep(1)
        registry.rows.append(line(3))
        registry.dropped = 2
        await asyncio.sleep(1)
        registry.away, registry.session = True, "b"
        await asyncio.sleep(1)
        registry.away, registry.rows = False, [line(4).model_copy(update={"number": 1})]
        await asyncio.sleep(1)
        assert len(list(read_metrics(kept.state))) == 4
        registry.rows.append(line(5))

    assert kept.run(course) == [1, 2, 3, 4, 5]
    assert (kept.state.path / FILE).stat().st_mode & 0o777 == 0o600
    assert kept.shown == [
        "progress: step 2, sent by 1 rank",  # and the next progress in a minute
        f"{DROPPED}; send fewer (every tenth step, or only from rank 0)",
    ]


def test_progress_is_shown_once_a_minute(tmp_path: Path) -> None:
    kept = Kept(tmp_path)

    async def course() -> None:
        for step in range(3, 130):
            await asyncio.sleep(1)
            kept.registry.rows.append(line(step))

    kept.run(course)
    assert [words.split(",")[0] for words in kept.shown] == [
        *("progress: step 2", "progress: step 61", "progress: step 121"),
    ]


def test_progress_that_comes_with_the_end_is_kept_and_not_shown(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.registry.rows.clear()

    async def course() -> None:
        kept.registry.rows.append(line(1))

    assert kept.run(course) == [1]
    assert kept.shown == []


@pytest.mark.parametrize(
    ("size", "is_full"), [((256 << 20) - 1_000, False), ((256 << 20) - 10, True)]
)
def test_52_metrics_are_kept_up_to_256_mib(size: int, tmp_path: Path, *, is_full: bool) -> None:
    kept = Kept(tmp_path)
    file = kept.state.path / FILE
    with file.open("wb") as made:
        made.truncate(size)
    run_virtually(launcher.MetricsFile(kept.port).fetch())
    assert size < file.stat().st_size < size + 1_000
    assert (f"{file} has 256 MB: rdzv keeps no more metrics" in kept.shown) is is_full


@pytest.mark.parametrize("how", ["full", "unwritable"])
def test_a_file_that_cannot_take_more_ends_the_keeping_and_that_is_said(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)
    file = kept.state.path / FILE
    if how == "full":
        monkeypatch.setattr(launcher, "_MOST_BYTES", 10)
    else:
        file.mkdir()

    async def course() -> None:
        kept.registry.rows.append(line(3))

    words = {"full": "has 0 MB", "unwritable": "cannot be written: Is a directory"}[how]
    assert kept.run(course) == [1, 2] * (how == "full")
    assert f"{file} {words}: rdzv keeps no more metrics" in kept.shown
