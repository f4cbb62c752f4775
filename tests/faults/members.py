"""Lean members of a run: the real client without a program, several in one process.

    python -m tests.faults.members CREDENTIAL_FILE RUN NODES LEASE SECONDS SLOT [SLOT ...]

Takes part in the run for these slots, which is made if it is not there, and says one JSON line for
each thing that happens: `go`, `stop` (the run has a first failure), `result`, `fenced`; `at` is the
machine's monotonic clock. After SECONDS of running a member ends with exit code 0.

    python -m tests.faults.members CREDENTIAL_FILE RUN NODES LEASE SECONDS watch

Looks at the run beside the registry, and says at its end the longest silence that the registry saw.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from rendezvous.compat import TaskGroup
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import RegistryString
from rendezvous.talk.retry import until_answered
from rendezvous.wire.errors import Fenced
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport
from rendezvous.wire.run import Phase, RunSpec
from rendezvous.wire.watch import NodeView
from tests.support.registry import Launch, Node, all_reached

LOOK_SECONDS = 0.5
T = TypeVar("T")


def say(slot: int, what: str, **more: object) -> None:
    """One line, at once."""
    print(json.dumps({"slot": slot, "what": what, "at": time.monotonic(), **more}), flush=True)


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Until the registry has answered; its refusals end the program."""
    return await until_answered(work)


class Member:
    """One node without a program.

    Args:
        node: Its slot, and the client of it.
        seconds: How long its program would run.
    """

    def __init__(self, node: Node, seconds: float) -> None:
        self._node = node
        self._seconds = seconds
        self._end_at: float | None = None
        self._stopped = False
        self._told = False

    async def live(self) -> None:
        """Take part until the result is known, or the member was given up."""
        try:
            await self._live()
        except Fenced as exc:
            say(self._node.slot, "fenced", message=exc.message)

    async def _live(self) -> None:
        await patiently(self._node.join)
        while True:
            view = await patiently(self._node.watch)
            if view.result is not None:
                say(self._node.slot, "result", message=view.result.message)
                await patiently(lambda: self._node.report(LeaveReport()))
                return
            await self._take_in(view)
            self._node.views[:] = [view]

    async def _take_in(self, view: NodeView) -> None:
        report = self._node.report
        if view.phase is Phase.VERIFYING:
            await patiently(lambda: report(all_reached(view, self._node.slot)))
        elif view.phase is Phase.ARMING:
            await patiently(lambda: report(AckReport(epoch=view.epoch, digest=view.digest)))
        elif view.phase is Phase.RUNNING and self._end_at is None:
            self._end_at = time.monotonic() + self._seconds
            say(self._node.slot, "go")
        if view.stop and not self._stopped:
            self._stopped = True
            say(self._node.slot, "stop")
        over = self._end_at is not None and time.monotonic() > self._end_at
        if (over or self._stopped) and not self._told:
            self._told = True
            ended = ExitReport(epoch=view.epoch, exit_code=0, stopped=self._stopped)
            await patiently(lambda: report(ended))


async def watch(client: RegistryClient, run: str) -> None:
    """Follow the silences of a run to its end, as the registry measures them."""
    longest = 0.0
    while True:
        status = await patiently(lambda: client.status(run))
        silences = [slot.silent_seconds or 0.0 for slot in status.slots]
        if status.phase is Phase.RUNNING:
            longest = max(longest, *silences)
        if status.result is not None:
            say(-1, "silence", longest=round(longest, 2), message=status.result.message)
            return
        await asyncio.sleep(LOOK_SECONDS)


async def take_part(registry: RegistryString, run: str, slots: list[str], spec: RunSpec) -> None:
    """All that this process does."""
    launch = _launch(run)
    async with RegistryClient(registry.place, registry.credential) as creator:
        await patiently(lambda: creator.create(run, spec))
    if slots == ["watch"]:
        async with RegistryClient(registry.place, launch.keys.admin) as client:
            await watch(client, run)
        return
    nodes = [Node(registry.place, launch, int(slot)) for slot in slots]
    seconds = float(sys.argv[5])
    try:
        async with TaskGroup() as group:
            for node in nodes:
                group.create_task(Member(node, seconds).live())
    finally:
        for node in nodes:
            await node.client.close()


def _launch(run: str) -> Launch:
    """The same keys in every process that knows the run's name."""
    return Launch(run, secret=hashlib.sha256(run.encode()).digest())


def main(file: str, run: str, nodes: str, lease: str, _: str, *slots: str) -> None:
    """Run as the module's docstring says."""
    registry = RegistryString.parse(Path(file).read_text().strip())
    spec = _launch(run).spec(int(nodes), managed=False, lease_seconds=float(lease))
    asyncio.run(take_part(registry, run, list(slots), spec))


if __name__ == "__main__":
    main(*sys.argv[1:])
