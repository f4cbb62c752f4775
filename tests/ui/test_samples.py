"""What the checks of a run have found: of one that goes on, and of one that has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from launcher.state.state_dir import StateDir
from launcher.ui.samples import MOST_NODES, follow, read_kept, tally
from launcher.ui.told import LaunchFacts, Told
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.node import Finding
from rendezvous.wire.run import Phase, RunReport, RunStatus
from tests.launcher.drive import slot, status
from tests.support.virtual_time import run_virtually

REPORT = RunReport(run="llama", findings=[Finding(check="L01", level="ok")])


class Registry:
    """What it answers; each call is noted with its time."""

    def __init__(self, *answers: RunReport | Unavailable) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    async def checks(self, run: str) -> RunReport:
        self.asked.append(round(asyncio.get_running_loop().time()))
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Unavailable):
            raise found
        return found


def stands(phase: Phase, slots: int) -> RunStatus:
    """A run of so many nodes."""
    return status(*map(slot, range(slots)), phase=phase)


def followed(registry: Any, slots: int = 1, seconds: float = 70.5) -> tuple[Told, list[int]]:
    """A run that gathers for ten seconds, and then runs; and at which numbers viewers are woken."""
    told = Told(LaunchFacts("llama"), 0, "")
    changed: list[int] = []

    async def course() -> None:
        told.status(stands(Phase.GATHERING, slots))
        task = asyncio.create_task(follow(told, registry, lambda: changed.append(told.n)))
        await asyncio.sleep(10.5)
        told.status(stands(Phase.RUNNING, slots))
        await asyncio.sleep(seconds - 10.5)
        assert not task.done()
        task.cancel()

    run_virtually(course())
    return told, changed


def test_checks_are_asked_in_each_phase_and_until_they_answer() -> None:
    registry = Registry(REPORT, Unavailable("busy"), REPORT)
    told, changed = followed(registry)
    assert registry.asked == [1, 11, 12]
    assert told.head["checks"] == "1 ok"
    assert changed[-1] == told.n


def test_the_report_of_very_many_nodes_is_not_read_for_a_number() -> None:
    registry = Registry(REPORT)
    told, _ = followed(registry, MOST_NODES + 1)
    assert registry.asked == []
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


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ([], ""),
        (["skipped"], ""),
        (["ok", "ok", "skipped"], "2 ok"),
        (["ok", "warn"], "1 warning"),
        (["warn", "warn"], "2 warnings"),
        (["ok", "warn", "fail"], "1 failed"),
        (["fail", "fail"], "2 failed"),
    ],
)
def test_only_the_worst_findings_are_counted(levels: list[Any], words: str) -> None:
    assert tally([Finding(check="L01", level=level) for level in levels]) == words
