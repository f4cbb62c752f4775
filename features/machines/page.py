"""Machines on the page of a run: how busy they are, and each one's facts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TypedDict

from features.machines import FILE, TOPIC
from features.machines.facts import machine_facts
from features.machines.page_usage import EACH_SECONDS, Usage, UsageStore
from features.machines.wire import RunMachines
from launcher.ui import parts
from rendezvous.wire.errors import RdzvError

_LOOK_SECONDS = 1.0
_SOON_SECONDS = 5.0
"""Machines that have reported nothing yet are asked again so soon, as their programs have just
started, and then ever more seldom: one that reports nothing for a while may never do so."""


class Machine(TypedDict):
    """A node's machine, as lines of a name and words.

    Attributes:
        facts: Such as ["GPUs", "8 x H100"].
    """

    slot: int
    node: int | None
    host: str
    facts: list[list[str]]


class Part(parts.Part):
    """Asks the registry while the programs run.

    State has Usage, Change the newer points; the view `machines` is list[Machine].
    """

    def __init__(self, run: parts.PageRun) -> None:
        super().__init__(run)
        self._usage = UsageStore()

    async def follow(self, client: parts.RegistryClient) -> None:
        """Ask each half a minute; where the registry does not answer, again later."""
        clock, due, pause, phase = asyncio.get_running_loop().time, 0.0, _SOON_SECONDS, "starting"
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if (state := self.run.head["state"]) != phase:
                due, pause, phase = 0.0, _SOON_SECONDS, state
            if state != "running" or clock() < due:
                continue
            due, pause = clock() + pause, min(2 * pause, EACH_SECONDS)
            with contextlib.suppress(RdzvError):
                found = await client.topic(TOPIC, self.run.state_dir.run)
                if self._take(found):
                    due, pause = clock() + EACH_SECONDS, EACH_SECONDS

    def _take(self, found: RunMachines) -> bool:
        """Whether anything is known of them."""
        return self._usage.take(self.run.change, self.run.head["elapsed"], found.machines)

    def since(self, after: int) -> Usage | None:
        """Newer points, and each machine now."""
        return self._usage.since(after)

    def views(self) -> Mapping[str, parts.View]:
        """Facts of the machines."""
        return {"machines": self._machines}

    async def _machines(self) -> list[Machine]:
        """Now, or as the launcher has kept them."""
        state = self.run.state_dir
        found = await self.run.ask(lambda client: client.topic(TOPIC, state.run))
        found = found or state.read(FILE, RunMachines) or RunMachines()
        return [
            {"slot": one.slot, "node": one.node, "host": one.hostname, "facts": machine_facts(one)}
            for one in found.machines
        ]
