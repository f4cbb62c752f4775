"""Runs of a standing registry while it is disturbed: their nodes, and what is found afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import asyncpg

from rendezvous.compat import timeout
from rendezvous.run.state import Run
from rendezvous.server.journal import Record
from rendezvous.server.replay import replay
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.retry import retry_pause, until_answered
from rendezvous.wire.errors import RegistryError
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.support.postgres import Postgres
from tests.support.registry import Launch, Node, all_reached
from tests.support.replicas import Cluster

PHASES = ("gathering", "verifying", "arming", "running")
NODES = 2
LIMIT_SECONDS = 120.0


@dataclass
class Held:
    """A run that stands in a phase until it may go on.

    Attributes:
        acked: By slot, the kinds of events that the registry has acknowledged to its node.
        stands: Set by each node that waits.
        longest: Seconds of the longest time between two answers to a node.
    """

    launch: Launch
    phase: str
    may_go: asyncio.Event = field(default_factory=asyncio.Event)
    acked: dict[int, list[str]] = field(default_factory=dict)
    stands: list[asyncio.Event] = field(default_factory=list)
    longest: float = 0.0

    def __post_init__(self) -> None:
        self.acked = {slot: [] for slot in range(NODES)}
        self.stands = [asyncio.Event() for _ in range(NODES)]


class HeldNode(Node):
    """An agent without a program, which keeps asking whatever happens; the last one of a run waits
    where that is to stand, or all of them before their programs end."""

    def __init__(self, place: RegistryPlace, held: Held, slot: int) -> None:
        super().__init__(place, held.launch, slot)
        self._held = held
        self._told: set[str] = set()
        self._answered_at = 0.0
        self._planned: NodeView | None = None

    async def live(self) -> NodeView:
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
                return view
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


class Runs:
    """So many runs, in every phase, spread over all replicas."""

    def __init__(self, count: int) -> None:
        self.all = [Held(Launch(f"run{n}"), PHASES[n % len(PHASES)]) for n in range(count)]
        self._tasks: list[asyncio.Task[NodeView]] = []
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Runs:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def start(self, cluster: Cluster) -> None:
        """Make all, and wait until each stands in its phase."""
        async with timeout(LIMIT_SECONDS):
            for held in self.all:
                ordered = cluster.place.ordered_for(held.launch.run)
                async with RegistryClient(ordered, cluster.operator) as client:
                    spec = held.launch.spec(NODES, join_timeout_seconds=600.0)
                    await client.create(held.launch.run, spec)
                for slot in range(NODES):
                    node = HeldNode(ordered, held, slot)
                    self._stack.push_async_callback(node.client.close)
                    self._tasks.append(asyncio.create_task(node.live()))
            while not all(event.is_set() for held in self.all for event in held.stands):
                assert not any(task.done() for task in self._tasks), self._tasks
                await asyncio.sleep(0.05)

    def go_on(self, part: slice = slice(None)) -> None:
        """Let these go on to their end."""
        for held in self.all[part]:
            held.may_go.set()

    async def settle(self) -> None:
        """Every node has come to its end, whichever that is."""
        await asyncio.wait(self._tasks, timeout=LIMIT_SECONDS)

    async def end(self) -> None:
        """Every node has heard that its run went well."""
        async with timeout(LIMIT_SECONDS):
            views = await asyncio.gather(*self._tasks)
        results = [view.result for view in views]
        bad = [one for one in results if one is None or one.status != "ok"]
        assert not bad, bad

    @property
    def longest(self) -> float:
        """Seconds between two answers to any node, which it may wait for 2 s in any case."""
        return max(held.longest for held in self.all)

    async def check(self, engine: Postgres, database: str) -> None:
        """What the journal holds: see `check_journal`; and each acknowledged event, once."""
        names = [held.launch.run for held in self.all]
        kinds = await check_journal(engine, database, names)
        assert self.missing(kinds) == []

    def missing(
        self, kinds: Mapping[str, Counter[tuple[str, int | None]]]
    ) -> list[tuple[str, int, str]]:
        """What was acknowledged, and is not there exactly once: the run, the slot and the kind."""
        return [
            (held.launch.run, slot, kind)
            for held in self.all
            for slot, acked in held.acked.items()
            for kind in acked
            if kinds[held.launch.run][kind, slot] != 1
        ]


async def check_journal(
    engine: Postgres, database: str, names: Sequence[str]
) -> dict[str, Counter[tuple[str, int | None]]]:
    """That numbers are dense, epochs never fall, nobody was lost and all replay to a good end.

    Returns, by run, how many events there are of each kind and slot.
    """
    connection = await asyncpg.connect(engine.dsn(database))
    try:
        rows = await connection.fetch(
            "SELECT run, number, epoch, at, body FROM rdzv.events ORDER BY run, number"
        )
        owned = await connection.fetch("SELECT run, epoch FROM rdzv.runs")
    finally:
        await connection.close()
    newest = {row["run"]: row["epoch"] for row in owned}
    by_run: dict[str, list[asyncpg.Record]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    found: dict[str, Counter[tuple[str, int | None]]] = {}
    for name in names:
        some = by_run[name]
        assert [row["number"] for row in some] == list(range(1, len(some) + 1)), name
        epochs = [row["epoch"] for row in some]
        assert epochs == sorted(epochs), (name, epochs)
        assert epochs[-1] <= newest[name]
        records = [Record(name, row["number"], row["at"], row["body"]) for row in some]
        assert [r.at for r in records] == sorted(r.at for r in records), name
        runs: dict[str, Run] = {}
        lines = [line for _, line in replay(records, runs)]
        assert not {"lost", "timed_out", "verdict"} & {line.kind for line in lines}, name
        run = runs[name]
        assert run.phase is Phase.FINISHED, (name, run.phase)
        assert run.result is not None
        assert run.result.status == "ok", (name, run.result)
        found[name] = Counter((line.kind, line.slot) for line in lines)
    return found
