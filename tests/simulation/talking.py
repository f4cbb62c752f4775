"""What is said beside the course of a run: somebody follows the output of its programs, and these
have commands run on each other's nodes. Both go through queues that may be full.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from launcher.state.state_dir import StateDir
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.log_views import open_view, read_view
from rendezvous.wire.errors import NotFound, RdzvError, RunOver
from rendezvous.wire.log_view import RunView, ViewRequest
from rendezvous.wire.relay import COMMAND_PIECE_BYTES
from rendezvous.wire.watch import NodeView
from tests.support.virtual_time import forever
from worker.agent import views
from worker.agent.reading import Reading
from worker.rsh import remote
from worker.rsh.served import Served, ServedShell

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.world import World

LINE_SECONDS = 0.5
PERSON = -2
"""Whose way to the registry is a person's: see `Network.path`."""
EXIT_CODE = 3
_MOST_COMMANDS = 4
_READ_SECONDS = 5.0
_AGAIN_SECONDS = 1.0
_BEGIN_SECONDS = 1.0
_PIECE_SECONDS = 0.2

Serve = Callable[[Mapping[str, Any], Any], Awaitable[None]]


@dataclass
class Printing:
    """One program that prints lines: each has the program's number, and its own, from 1."""

    process: Process
    number: int
    printed_at: list[float] = field(default_factory=list)
    """When, by line."""

    def line(self) -> str:
        return f"{self.number} {len(self.printed_at)}"

    def is_going(self) -> bool:
        process = self.process
        return process.started_at is not None and process.program_code is None


class Talk:
    """Of one world: who prints, who reads, and which commands were run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.programs: list[Printing] = []
        self.runs: Counter[bytes] = Counter()
        """How often each command was run."""

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Nodes read their logs by this world's clock, and run no real commands."""
        clock = self._world.loop.time
        read = functools.partial(Reading, clock=clock, wall=clock)
        served = functools.partial(_Served, self.runs)
        with mock.patch.object(views, "Reading", read), mock.patch.object(remote, "Served", served):
            for index, launch in enumerate(self._world.schedule.launches):
                if launch.talks:
                    Reader(self._world, index).begin()
            yield

    async def print_lines(self, process: Process, file: Path) -> None:
        """What a program's output has, as long as it runs."""
        printing = Printing(process, len(self.programs))
        self.programs.append(printing)
        file.parent.mkdir(parents=True, exist_ok=True)
        while True:
            await asyncio.sleep(LINE_SECONDS)
            if printing.is_going():
                printing.printed_at.append(self._world.loop.time())
                with file.open("a") as log:
                    log.write(f"{printing.line()}\n")


# --- somebody reads -------------------------------------------------------------------------------


class Reader:
    """Somebody who follows the output of all ranks, in one view as long as it is one."""

    def __init__(self, world: World, index: int = 0) -> None:
        self.world, self.index = world, index
        self.refused: set[str] = set()
        self.opened_at = 0.0
        self.seen: dict[int, int] = {}
        """In this view, by program: the number of its newest line."""

    def begin(self) -> None:
        self.world.loop.call_later(_BEGIN_SECONDS, self._begin, context=self.world.loop.nobody)

    def _begin(self) -> None:
        self.world.spawn(self._follow())

    async def _follow(self) -> None:
        while not await self._read_all():
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _read_all(self) -> bool:
        """Read until the view ends; whether the run is over."""
        run = self.world.schedule.launches[self.index].run
        state = StateDir(self.world.folder / str(self.index), run)
        record, keys = state.record(), state.keys()
        if record is None or keys is None:
            return False
        path = self.world.network.path(self.index, PERSON)
        door, place = self.world.network.door(path), record.registry_place()
        try:
            async with self.world.client(place, path, door, keys.logs) as client:
                await self._read(client, run)
        except RunOver:
            return True
        except RdzvError as exc:
            self.refused.add(exc.code)
        return False

    async def _read(self, client: RegistryClient, run: str) -> None:
        view = (await open_view(client, run, ViewRequest(follow=True))).view
        self.opened_at, self.seen, after = self.world.loop.time(), {}, 0
        while True:
            try:
                found = await read_view(client, run, view, after, _READ_SECONDS)
            except NotFound:
                return
            except RdzvError as exc:
                if not exc.retryable:
                    raise
                self.refused.add(exc.code)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            self.world.history.judge(reader=self, shown=found)
            after = max([after, *(piece.seq for piece in found.pieces)])
            for number, line in lines_of(found):
                self.seen[number] = line
            if found.over:
                return


def newest_question(view: NodeView) -> int:
    """The number of the question that a node is asked; 0: none."""
    return view.question.number if view.question is not None else 0


def newest_view(view: NodeView) -> int:
    """The number of the view that was opened last of those that a node is told of; 0: of none."""
    return view.views[-1].view if view.views else 0


def lines_of(shown: RunView) -> list[tuple[int, int]]:
    """The program and the number of each line."""
    lines = [line for piece in shown.pieces for part in piece.parts for line in part.lines]
    return [(int(number), int(count)) for number, count in map(str.split, lines)]


# --- commands on other nodes ----------------------------------------------------------------------


@dataclass
class Command:
    """A command that a program has run on a node, and what it was told of that."""

    words: bytes
    asked_at: float
    told: list[Mapping[str, Any]] = field(default_factory=list)

    async def tell(self, answer: Mapping[str, Any]) -> None:
        """As `worker.program.local_socket.Caller`."""
        self.told.append(answer)

    async def gone(self) -> None:
        """As above: who has asked stays."""
        await forever()


def output_of(words: bytes) -> list[bytes]:
    """What a command prints: some more than may be on its way."""
    size = COMMAND_PIECE_BYTES if words.endswith(b"7") else 100
    return [bytes([65 + place]) * size for place in range(5)]


class _Served(Served):
    """A command on its node: all but the process that it is."""

    def __init__(self, runs: Counter[bytes], *how: Any) -> None:
        super().__init__(*how)
        self._runs = runs

    async def _run(self, argv: list[str], shell: ServedShell) -> int:
        words, output = argv[-1].encode(), asyncio.StreamReader()
        self._runs[words] += 1
        printing = asyncio.ensure_future(_print(words, output))
        try:
            await self._pass_on("stdout", output)
        finally:
            printing.cancel()
        return EXIT_CODE


async def _print(words: bytes, output: asyncio.StreamReader) -> None:
    for piece in output_of(words):
        await asyncio.sleep(_PIECE_SECONDS)
        output.feed_data(piece)
    output.feed_eof()


async def ask_nodes(process: Process, serve: Serve) -> None:
    """What a program asks of the nodes of its table, a few commands at a time."""
    world, under_way = process.world, set[asyncio.Future[None]]()
    draw = random.Random(f"{world.schedule.seed} commands {process.number}")
    for number in range(1_000):
        await asyncio.sleep(draw.uniform(0.5, 2.0))
        table = process.facts.sealed.get(process.acked)
        goes = process.started_at is not None and process.program_code is None
        under_way = {one for one in under_way if not one.done()}
        if table is None or not goes or len(under_way) >= _MOST_COMMANDS:
            continue
        row, words = draw.choice(table.rows), b"%d %d" % (process.number, number)
        under_way.add(asyncio.ensure_future(_ask(process, serve, row.node, words)))


async def _ask(process: Process, serve: Serve, rank: int, words: bytes) -> None:
    command = Command(words, process.world.loop.time())
    process.commands.append(command)
    text = base64.b64encode(words).decode()
    await serve({"do": "exec", "host": f"node-{rank}", "command": text}, command)
    process.commands.remove(command)
    process.world.history.judge(process=process, command=command)
