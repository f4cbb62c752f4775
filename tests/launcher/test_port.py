"""The parts of features in the launcher: when they begin, tick, end and fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from launcher import port as port_module
from launcher.port import LauncherPort, run_features
from rendezvous.feature import Feature, Lazy
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import Unavailable
from tests.launcher.command import launched
from tests.support.virtual_time import run_virtually

AT: list[tuple[str, float]] = []


async def ticks(port: LauncherPort) -> None:
    """Part of a feature: notes each tick, the third of which takes 2 s."""
    async for _ in port.ticks(1.0):
        AT.append(("tick", port.now()))
        await asyncio.sleep(2.0 * (len(AT) == 3))


async def waits(port: LauncherPort) -> None:
    """Part of a feature: acts at the end alone."""
    await port.parting()
    AT.append((f"parts {port.run} {port.state.run}", port.now()))


async def breaks(port: LauncherPort) -> None:
    """Part of a feature that fails as nobody expected."""
    raise KeyError(port.run)


async def refuses(_: LauncherPort) -> None:
    """Part of a feature that lets an error of rdzv through."""
    raise Unavailable("it is gone")


def parts(root: Path, patch: pytest.MonkeyPatch, *names: str) -> tuple[LauncherPort, list[str]]:
    """Declare features with these parts; returns their port, and what they have shown."""
    made = tuple(Feature(name, launcher=Lazy(f"{__name__}:{name}")) for name in names)
    patch.setattr(port_module, "declared", lambda: (Feature("without a part"), *made))
    AT.clear()
    shown: list[str] = []
    return LauncherPort(cast(RegistryClient, None), launched(root), shown.append), shown


def test_each_part_begins_after_a_while_ticks_and_acts_once_more_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, shown = parts(tmp_path, monkeypatch, "ticks", "waits")

    async def course() -> None:
        task = asyncio.create_task(run_features(port))
        await asyncio.sleep(6.5)
        port.wake()
        await asyncio.sleep(0.25)
        port.part()
        await task

    run_virtually(course())
    ticked = [at for what, at in AT if what == "tick"]
    assert ticked == pytest.approx([1.0, 2.0, 3.0, 6.0, 6.5, 6.75])
    assert [(what, at) for what, at in AT if what != "tick"] == [("parts llama llama", 6.75)]
    assert shown == []


def test_of_a_launch_that_parts_at_once_each_part_acts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, _ = parts(tmp_path, monkeypatch, "ticks", "waits")
    port.part()
    run_virtually(run_features(port))
    assert AT == [("tick", 0.0), ("parts llama llama", 0.0)]


def test_a_part_that_is_busy_as_the_launch_parts_acts_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, _ = parts(tmp_path, monkeypatch, "ticks")

    async def course() -> None:
        task = asyncio.create_task(run_features(port))
        await asyncio.sleep(3.5)
        port.part()
        await task

    run_virtually(course())
    assert [at for _, at in AT] == pytest.approx([1.0, 2.0, 3.0, 5.0])


def test_a_part_that_fails_costs_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, shown = parts(tmp_path, monkeypatch, "breaks", "ticks", "refuses", "missing")
    port.part()
    run_virtually(run_features(port))
    assert [what for what, _ in AT] == ["tick"]
    assert shown[:2] == [
        "breaks failed here, and the run continues without it: KeyError('llama')",
        "refuses failed here, and the run continues without it: it is gone",
    ]
    [missing] = shown[2:]
    assert missing.startswith("missing failed here, and the run continues without it: Attribute")
