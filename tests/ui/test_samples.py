"""What a page reads now and then of a run that goes on, and of one that has ended."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from launcher.state.state_dir import StateDir
from launcher.ui.samples import MOST_NODES, follow, read_kept
from launcher.ui.told import LaunchFacts, Told
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.machine import MachineSample, NodeMachine, RunMachines
from rendezvous.wire.node import Finding
from rendezvous.wire.run import Phase, RunReport, RunStatus, SlotState, SlotStatus
from tests.support.virtual_time import run_virtually

REPORT = RunReport(run="llama", findings=[Finding(check="L01", level="ok")])
SILENT = RunMachines(machines=[NodeMachine(slot=0)])
SAMPLE = MachineSample(memory_used=1, memory_total=2)
KNOWN = RunMachines(machines=[NodeMachine(slot=0, sample=SAMPLE)])


class Registry:
    """What it answers; each call is noted with its time."""

    def __init__(self, *machines: Any) -> None:
        self.machines = list(machines)
        self.asked: list[tuple[float, str]] = []

    async def checks(self, run: str) -> RunReport:
        self._note("checks")
        return REPORT

    async def ask(self, answer: Any, method: str, path: str) -> RunMachines:
        self._note("machines")
        found = self.machines.pop(0) if len(self.machines) > 1 else self.machines[0]
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, RunMachines)
        return found

    def _note(self, what: str) -> None:
        self.asked.append((round(asyncio.get_running_loop().time()), what))


def status(phase: Phase, slots: int) -> RunStatus:
    rows = [
        SlotStatus(slot=number, generation=1, wanted_generation=1, state=SlotState.NONE)
        for number in range(slots)
    ]
    return RunStatus(
        run="llama",
        launch_id="k7f2a9c1xy",
        version=1,
        phase=phase,
        epoch=1,
        reason="",
        min_nodes=slots,
        max_nodes=slots,
        elapsed_seconds=1.0,
        slots=rows,
    )


def followed(registry: Any, slots: int = 1, seconds: float = 70.5) -> tuple[Told, list[int]]:
    """A run that gathers for ten seconds, and then runs; and at which numbers viewers are woken."""
    told = Told(LaunchFacts("llama"), 0, "")
    changed: list[int] = []

    async def course() -> None:
        told.status(status(Phase.GATHERING, slots))
        task = asyncio.create_task(
            follow(told, nullcontext(registry), lambda: changed.append(told.n))
        )
        await asyncio.sleep(10.5)
        told.status(status(Phase.RUNNING, slots))
        await asyncio.sleep(seconds - 10.5)
        assert not task.done()
        task.cancel()

    run_virtually(course())
    return told, changed


def test_machines_are_asked_each_half_a_minute_and_soon_until_they_answer() -> None:
    registry = Registry(SILENT, Unavailable("busy"), KNOWN)
    told, changed = followed(registry)
    assert registry.asked == [
        *((1, "checks"), (11, "checks")),
        *((11, "machines"), (16, "machines"), (26, "machines"), (56, "machines")),
    ]
    usage = told.state()["usage"]
    assert usage is not None
    assert len(usage["points"]) == 2
    assert told.head["checks"] == "1 ok"
    assert changed[-1] == told.n


def test_machines_that_tell_nothing_are_asked_ever_more_seldom() -> None:
    registry = Registry(SILENT)
    told, _ = followed(registry, seconds=110.5)
    asked = [at for at, what in registry.asked if what == "machines"]
    assert asked == [11, 16, 26, 46, 76, 106]
    assert told.state()["usage"] is None


def test_the_report_of_very_many_nodes_is_not_read_for_a_number() -> None:
    registry = Registry(KNOWN)
    told, _ = followed(registry, MOST_NODES + 1)
    assert {what for _, what in registry.asked} == {"machines"}
    assert told.head["checks"] == ""


@pytest.mark.parametrize(("bytes_", "words"), [(0, "1 ok"), (9 << 20, "")])
def test_of_an_ended_run_its_kept_report_is_counted(
    tmp_path: Path, bytes_: int, words: str
) -> None:
    state = StateDir(tmp_path, "llama")
    state.acquire()
    told = Told(LaunchFacts("llama"), 0, "")
    read_kept(told, state)
    assert told.head["checks"] == ""
    state.write("report.json", REPORT.model_dump_json().encode() + b" " * bytes_)
    read_kept(told, state)
    assert told.head["checks"] == words
    state.release()
