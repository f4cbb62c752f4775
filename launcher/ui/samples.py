"""Reads what the checks of a run have found."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from launcher.state.state_dir import StateDir
from launcher.ui.told import Told
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.node import Finding
from rendezvous.wire.run import RunReport

MOST_NODES = 256
"""Of more nodes, a report is too long to be read for a number of its findings."""
_MOST_BYTES = 8 << 20
_LOOK_SECONDS = 1.0


async def follow(told: Told, client: RegistryClient, changed: Callable[[], None]) -> None:
    """Read it in each phase; asked again where the registry does not answer.

    Args:
        told: State of the run.
        client: Of its registry.
        changed: Called when the state has changed.
    """
    phase = "starting"
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        state = str(told.head["state"])
        with contextlib.suppress(RdzvError):
            if state != phase:
                if told.slots <= MOST_NODES:
                    told.checks(tally((await client.checks(told.facts.run)).findings))
                    changed()
                phase = state


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
