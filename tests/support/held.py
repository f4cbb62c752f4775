"""Nodes of runs that stand in a phase until they may go on, in a process of their own.

`python -m tests.support.held` reads lines of JSON: its `Orders`, then names of runs, its own and
others, that may go on. It writes a line once all stand, and its `Findings` when every node has come
to its end. It ends with its input; its standard error says what failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass, field

from pydantic import BaseModel, TypeAdapter

from rendezvous.talk.client import REQUEST_SECONDS, RegistryClient
from rendezvous.talk.join_string import RegistryPlace, RegistryString
from rendezvous.talk.retry import retry_pause, until_answered
from rendezvous.wire.errors import RegistryError
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport
from rendezvous.wire.run import Phase, Result
from rendezvous.wire.watch import NodeView
from tests.support.registry import Launch, Node, all_reached

NODES = 2
STANDS = b"all stand\n"
NAMES = TypeAdapter(list[str])
AFTER_SECONDS = 30.0
"""When a node has failed, the others may end for so long."""

Life = asyncio.Task[Result]


class Orders(BaseModel):
    """What a process has to do.

    Attributes:
        registry: As in RDZV_REGISTRY.
        runs: By name, the phase in which each is to stand.
    """

    registry: str
    runs: dict[str, str]


class Findings(BaseModel):
    """What its nodes have seen.

    Attributes:
        acked: What the registry has acknowledged to a node: the run, the slot, the kind of event.
        bad: The nodes that did not hear of a good end: the run, and what they heard.
        longest: Seconds of the longest time between two answers to a node.
    """

    acked: list[tuple[str, int, str]]
    bad: list[tuple[str, str]]
    longest: float


@dataclass
class Held:
    """A run that stands in a phase until it may go on.

    Attributes:
        acked: Of each slot, the kinds of events that the registry has acknowledged to its node.
        stands: Set by each node that waits.
        longest: Seconds of the longest time between two answers to a node.
    """

    launch: Launch
    phase: str
    may_go: asyncio.Event = field(default_factory=asyncio.Event)
    acked: list[list[str]] = field(default_factory=lambda: [[] for _ in range(NODES)])
    stands: list[asyncio.Event] = field(
        default_factory=lambda: [asyncio.Event() for _ in range(NODES)]
    )
    longest: float = 0.0


class HeldNode(Node):
    """An agent without a program, which keeps asking whatever happens; the last one of a run waits
    where that is to stand, or all of them before their programs end."""

    request_seconds = REQUEST_SECONDS  # as a real one's: it asks again

    def __init__(self, place: RegistryPlace, held: Held, slot: int) -> None:
        super().__init__(place, held.launch, slot)
        self._held = held
        self._told: set[str] = set()
        self._answered_at = 0.0
        self._planned: NodeView | None = None

    async def live(self) -> Result:
        """To the result; raises where the registry refuses something."""
        last = self.slot == NODES - 1
        if last and self._held.phase == "gathering":
            await self._wait_to_go()
        await until_answered(self.join)
        self._acked("joined")
        self._answered_at = asyncio.get_running_loop().time()
        while True:
            try:
                view = await self.watch()
            except RegistryError:
                await asyncio.sleep(retry_pause())
                continue
            self._note_answer()
            if view.plan is not None:
                self._planned = view  # it is told once
            if view.result is not None:
                await self._once("left", LeaveReport())
                return view.result
            await self._do(view, last)

    async def _do(self, view: NodeView, last: bool) -> None:
        if self.slot == 0:
            self._held.stands[0].set()  # it watches
        holds = not self._held.may_go.is_set()
        before_go = view.phase in (Phase.VERIFYING, Phase.ARMING)
        if before_go and last and holds and self._held.phase == str(view.phase):
            self._held.stands[self.slot].set()
            return
        if view.phase is Phase.VERIFYING:
            await self._once("probed", all_reached(self._planned or view, self.slot))
        elif view.phase is Phase.ARMING:
            await self._once("acked", AckReport(epoch=view.epoch, digest=view.digest))
        elif view.phase is Phase.RUNNING:
            if holds and self._held.phase == "running":
                self._held.stands[self.slot].set()
            else:
                await self._once("exited", ExitReport(epoch=view.epoch, exit_code=0))

    async def _wait_to_go(self) -> None:
        self._held.stands[self.slot].set()
        await self._held.may_go.wait()

    async def _once(self, kind: str, report: object) -> None:
        if kind not in self._told:
            await self.tell(report)
            self._told.add(kind)
            self._acked(kind)
            self._note_answer()

    def _acked(self, kind: str) -> None:
        self._held.acked[self.slot].append(kind)

    def _note_answer(self) -> None:
        now = asyncio.get_running_loop().time()
        self._held.longest = max(self._held.longest, now - self._answered_at)
        self._answered_at = now


async def start(
    registry: RegistryString, held: Held, undo: contextlib.AsyncExitStack
) -> list[Life]:
    """Make a run and its nodes."""
    run = held.launch.run
    place = registry.place.ordered_for(run)
    async with RegistryClient(place, registry.credential) as client:
        spec = held.launch.spec(NODES, join_timeout_seconds=600.0)
        await until_answered(lambda: client.create(run, spec))
    nodes = [HeldNode(place, held, slot) for slot in range(NODES)]
    for node in nodes:
        undo.push_async_callback(node.client.close)
    return [asyncio.create_task(node.live()) for node in nodes]


async def work(orders: Orders, lines: asyncio.StreamReader) -> Findings:
    """See the module."""
    registry = RegistryString.parse(orders.registry)
    runs = {name: Held(Launch(name), phase) for name, phase in orders.runs.items()}
    lives: dict[Life, str] = {}
    listening = asyncio.create_task(_let_go(runs, lines))
    async with contextlib.AsyncExitStack() as undo:
        for name, held in runs.items():
            lives |= dict.fromkeys(await start(registry, held, undo), name)
        while not all(event.is_set() for held in runs.values() for event in held.stands):
            assert not any(life.done() for life in lives), lives
            await asyncio.sleep(0.05)
        _write(STANDS)
        await asyncio.wait(lives, return_when="FIRST_EXCEPTION")
        await asyncio.wait(lives, timeout=AFTER_SECONDS)
        bad = [(name, how) for life, name in lives.items() if (how := _failure(life))]
        for life in lives:
            life.cancel()
    listening.cancel()
    return Findings(
        acked=[
            (name, slot, kind)
            for name, held in runs.items()
            for slot, kinds in enumerate(held.acked)
            for kind in kinds
        ],
        bad=bad,
        longest=max(held.longest for held in runs.values()),
    )


def _failure(life: Life) -> str:
    if not life.done():
        return "nothing"
    if (error := life.exception()) is not None:
        return repr(error)
    return "" if life.result().status == "ok" else repr(life.result())


async def _let_go(runs: dict[str, Held], lines: asyncio.StreamReader) -> None:
    while line := await lines.readline():
        for name in runs.keys() & NAMES.validate_json(line):
            runs[name].may_go.set()
    os._exit(1)  # the test has ended


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


async def main() -> None:
    lines = asyncio.StreamReader()
    made = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: made, sys.stdin)
    orders = Orders.model_validate_json(await lines.readline())
    found = await work(orders, lines)
    _write(found.model_dump_json().encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(main())
