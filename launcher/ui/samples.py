"""What a run's page reads now and then: how the machines are, and what the checks have found."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from launcher.state.state_dir import StateDir
from launcher.ui.told import Told
from launcher.ui.usage import EACH_SECONDS
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.machines import run_machines
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.node import Finding
from rendezvous.wire.run import RunReport

MOST_NODES = 256
"""Of more nodes, a report is too long to be read for a number of its findings."""
_MOST_BYTES = 8 << 20
_LOOK_SECONDS = 1.0
_SOON_SECONDS = 5.0
"""Machines that have told nothing yet are asked again so soon, as their programs have just started,
and then ever more seldom: whoever has told nothing for a while may never do so."""


async def follow(
    told: Told,
    registry: AbstractAsyncContextManager[RegistryClient],
    changed: Callable[[], None],
) -> None:
    """Tell both while the run goes on; what the registry does not answer is asked again later.

    Args:
        told: What is told of the run.
        registry: Of the run.
        changed: Called when that has changed.
    """
    clock, due, pause, phase = asyncio.get_running_loop().time, 0.0, _SOON_SECONDS, "starting"
    async with registry as client:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            state = str(told.head["state"])
            with contextlib.suppress(RdzvError):
                if state != phase:
                    if told.slots <= MOST_NODES:
                        told.checks(tally((await client.checks(told.facts.run)).findings))
                        changed()
                    due, pause, phase = 0.0, _SOON_SECONDS, state
                if state == "running" and clock() >= due:
                    due, pause = clock() + pause, min(2 * pause, EACH_SECONDS)
                    found = await run_machines(client, told.facts.run)
                    if told.machines(told.head["elapsed"], found.machines):
                        due, pause = clock() + EACH_SECONDS, EACH_SECONDS
                        changed()


def read_kept(told: Told, state: StateDir) -> None:
    """Tell what the checks of an ended run have found, if its launcher has kept that."""
    with contextlib.suppress(OSError):
        if (state.path / "report.json").stat().st_size > _MOST_BYTES:
            return
    if (report := state.read("report.json", RunReport)) is not None:
        told.checks(tally(report.findings))


def tally(findings: Sequence[Finding]) -> str:
    """Only the worst: `1 failed`, `2 warnings`, `8 ok`; empty: nothing was checked."""
    for level, one, many in (("fail", "failed", "failed"), ("warn", "warning", "warnings")):
        if count := sum(finding.level == level for finding in findings):
            return f"{count} {one if count == 1 else many}"
    count = sum(finding.level == "ok" for finding in findings)
    return f"{count} ok" if count else ""
