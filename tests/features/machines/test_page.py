"""How a page asks for the machines of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from features.machines import FILE
from features.machines.page import Part
from features.machines.page_usage import Usage
from features.machines.wire import MachineSample, NodeMachine, RunMachines
from rendezvous.wire.errors import Unavailable
from tests.support import written
from tests.support.pages import RUN, kept_run, page_door
from tests.support.virtual_time import run_virtually
from tests.ui.test_asked import asked, keys_of

SILENT = RunMachines(machines=[NodeMachine(slot=0)])
SAMPLE = MachineSample(memory_used=1, memory_total=2)
KNOWN = RunMachines(machines=[NodeMachine(slot=0, sample=SAMPLE)])


class Registry:
    """What it answers; the time of each call is noted."""

    def __init__(self, *machines: RunMachines | Unavailable) -> None:
        self.machines = list(machines)
        self.asked: list[int] = []

    async def topic(self, topic: Any, run: str) -> RunMachines:
        assert (topic.name, run) == ("machines", "llama")
        self.asked.append(round(asyncio.get_running_loop().time()))
        found = self.machines.pop(0) if len(self.machines) > 1 else self.machines[0]
        if isinstance(found, Unavailable):
            raise found
        return found


class Run:
    """One that gathers for ten seconds, and then runs."""

    state_dir = SimpleNamespace(run="llama")

    def __init__(self) -> None:
        self.changes = 0

    @property
    def head(self) -> dict[str, Any]:
        now = asyncio.get_running_loop().time()
        return {"state": "running" if now > 10.5 else "gathering", "elapsed": now}

    def change(self) -> int:
        self.changes += 1
        return self.changes


def followed(registry: Registry, seconds: float = 70.5) -> tuple[Run, Usage | None]:
    run = Run()
    part = Part(cast(Any, run))

    async def course() -> None:
        task = asyncio.create_task(part.follow(cast(Any, registry)))
        await asyncio.sleep(seconds)
        assert not task.done()
        task.cancel()

    run_virtually(course())
    return run, part.since(0)


def test_machines_are_asked_each_half_a_minute_and_soon_until_they_answer() -> None:
    registry = Registry(SILENT, Unavailable("busy"), KNOWN)
    run, usage = followed(registry)
    assert registry.asked == [11, 16, 26, 56]
    assert usage is not None
    assert [point[0] for point in usage["points"]] == [26.0, 56.0]
    assert usage["slots"] == {"0": [None, 50, None, None]}
    assert run.changes == 2


def test_machines_that_tell_nothing_are_asked_ever_more_seldom() -> None:
    registry = Registry(SILENT)
    run, usage = followed(registry, seconds=110.5)
    assert registry.asked == [11, 16, 26, 46, 76, 106]
    assert (usage, run.changes) == (None, 0)


def machines(memory: int) -> RunMachines:
    return RunMachines(
        machines=[
            NodeMachine(slot=4, node=1, hostname="gpu-7", sample=MachineSample(load=memory)),
            NodeMachine(slot=1, node=0, hostname="gpu-4"),
        ]
    )


async def test_each_machine_is_told_of_live_or_as_it_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = written.Registry({f"GET /v1/runs/{RUN}/machines": machines(5)})
    registry.put_in(monkeypatch, "launcher.ui.viewed")
    state = kept_run(tmp_path)
    state.acquire()
    async with page_door(tmp_path, keys=keys_of(state)) as door:
        live = await asked(door, "machines")
        state.write(FILE, machines(7).model_dump_json().encode())
        assert await asked(door, "machines") == live
        registry.answers[f"GET /v1/runs/{RUN}/machines"] = Unavailable("nobody answers")
        kept = await asked(door, "machines")
    assert (live[0]["slot"], live[0]["node"], live[0]["host"]) == (4, 1, "gpu-7")
    assert kept != live
    state.release()
