"""Runs of a standing registry while it is disturbed: their nodes, and what is found afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence

import asyncpg

from rendezvous.compat import timeout
from rendezvous.registry.journal import Record
from rendezvous.registry.replay import replay
from rendezvous.run.state import Run
from rendezvous.talk.join_string import RegistryString
from rendezvous.talk.retry import until_answered
from rendezvous.wire.run import Phase
from tests.support.held import STANDS, Findings, Orders
from tests.support.postgres import Postgres
from tests.support.registry import Launch, Node
from tests.support.replicas import Cluster

PHASES = ("gathering", "verifying", "arming", "running")
RUNS_OF_A_PROCESS = 50
LIMIT_SECONDS = 120.0


class Runs:
    """So many runs, in every phase, spread over all replicas. Their nodes are in a few processes of
    their own, of which each has runs of every phase."""

    def __init__(self, count: int) -> None:
        self.names = [f"run{n}" for n in range(count)]
        self._findings: list[Findings] = []
        self._processes: list[Process] = []

    async def __aenter__(self) -> Runs:
        for _ in range(0, len(self.names), RUNS_OF_A_PROCESS):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.held", stdin=PIPE, stdout=PIPE, limit=1 << 20
            )
            self._processes.append(process)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def start(self, cluster: Cluster) -> None:
        """Make all, and wait until each stands in its phase."""
        registry = RegistryString(cluster.place, cluster.operator).text()
        orders = [Orders(registry=registry, runs={}) for _ in self._processes]
        for number, name in enumerate(self.names):
            some, phase = divmod(number, len(PHASES))
            orders[some % len(orders)].runs[name] = PHASES[phase]
        for process, one in zip(self._processes, orders, strict=True):
            _tell(process, one.model_dump_json())
        assert {*await self._lines()} == {STANDS}

    def go_on(self, part: slice = slice(None)) -> None:
        """Let these go on to their end."""
        for process in self._processes:
            _tell(process, json.dumps(self.names[part]))

    async def settle(self) -> None:
        """Every node has come to its end, whichever that is."""
        self._findings = [Findings.model_validate_json(line) for line in await self._lines()]

    async def end(self) -> None:
        """Every node has heard that its run went well."""
        await self.settle()
        bad = [one for found in self._findings for one in found.bad]
        assert not bad, bad

    @property
    def longest(self) -> float:
        """Seconds between two answers to any node, which it may wait for 2 s in any case."""
        return max(found.longest for found in self._findings)

    async def check(self, engine: Postgres, database: str) -> None:
        """What the journal holds: see `check_journal`; and each acknowledged event, once."""
        kinds = await check_journal(engine, database, self.names)
        missing = self.missing(kinds)
        assert not missing, missing

    def missing(
        self, kinds: Mapping[str, Counter[tuple[str, int | None]]]
    ) -> list[tuple[str, int, str]]:
        """What was acknowledged, and is not there exactly once: the run, the slot and the kind."""
        acked = [one for found in self._findings for one in found.acked]
        assert acked
        return [(run, slot, kind) for run, slot, kind in acked if kinds[run][kind, slot] != 1]

    async def _lines(self) -> list[bytes]:
        async with timeout(LIMIT_SECONDS):
            return await asyncio.gather(*map(_line, self._processes))


async def _line(process: Process) -> bytes:
    """The next one."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, "nodes have failed: see the standard error"
    return line


def _tell(process: Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n".encode())


@contextlib.asynccontextmanager
async def started(cluster: Cluster, launch: Launch, nodes: int) -> AsyncIterator[list[Node]]:
    """The nodes of a new run, whose programs run."""
    place = cluster.place.ordered_for(launch.run)
    async with contextlib.AsyncExitStack() as stack:
        async with cluster.client() as client:
            await until_answered(lambda: client.create(launch.run, launch.spec(nodes)))
        made = [await stack.enter_async_context(Node(place, launch, slot)) for slot in range(nodes)]
        await asyncio.gather(*(until_answered(node.join) for node in made))
        await asyncio.gather(*(node.run() for node in made))
        yield made


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
