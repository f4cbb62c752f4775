"""The output of a run for the page: the same logs as `rdzv logs` shows, piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from operator import itemgetter
from pathlib import Path

from launcher.show.log_lines import LogLine
from launcher.show.log_sources import Chosen, Source, Which
from launcher.ui.log_kinds import KindLine, LauncherKinds, Together, kind_of
from launcher.ui.shapes import LogPiece
from launcher.ui.viewed import Viewed
from rendezvous.compat import timeout
from rendezvous.tasks import cancel_all, now
from rendezvous.wire.errors import BadRequest, RdzvError
from rendezvous.wire.log_view import LINE_LETTERS, MAX_GREPS, MAX_LINES, Level
from rendezvous.wire.words import printable
from worker.program.log_file import read_log_name
from worker.program.rank_logs import rank_log_name
from worker.program.wanted import Wanted

USUAL_LINES = 200
_MOST_QUEUED = 64
_MOST_LINES = 500
"""Of one piece."""
_GATHER_SECONDS = 0.05
_BEAT_SECONDS = 10.0
_AGAIN_SECONDS = 0.5
"""How often it is looked for logs that have begun."""
_HELD_SECONDS = 2.0
"""A launcher's lines wait so long for those that show what they are."""
_LOOKED_AT = 64 << 10
_PREFIX = re.compile(r"\[((?:rank|node) \d+)\] ")
_OF_NODE = re.compile(r"(?:node|launcher)[- ](\d+)(?:\.e\d+)?")
_LAST_SECONDS = 0.25
"""A file is read again within this time: once its run is over, nothing has come since."""
_LEVELS: Mapping[str, Level] = {"warning": "warning", "error": "error"}
_Put = Callable[[LogPiece], Awaitable[None]]


def chosen_of(query: Mapping[str, list[str]]) -> tuple[Chosen, int, bool]:
    """What is asked for: which lines, how many of each log at first, and whether those that come.

    Raises BadRequest.
    """

    def number(name: str, most: int) -> int | None:
        text = query.get(name, [""])[-1]
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or int(text[:12]) > most:
            raise BadRequest(f"{name} must be a whole number of at most {most}")
        return int(text)

    texts = tuple(text for text in query.get("grep", []) if text)
    if len(texts) > MAX_GREPS or any(len(text) > 100 for text in texts):
        raise BadRequest(f"grep can be given {MAX_GREPS} times, and each has 100 characters")
    level = query.get("level", [""])[-1]
    if level and level not in _LEVELS:
        raise BadRequest("level is warning or error, or not given")
    everyone = query.get("all", [""])[-1] == "1"
    wanted = Wanted(texts, _LEVELS.get(level))
    chosen = Chosen(
        node=number("node", 1 << 20),
        rank=number("rank", 1 << 30),
        epoch=number("epoch", (1 << 31) - 1),
        everyone=everyone,
        separate=everyone,
        wanted=wanted,
    )
    if chosen.node is not None and chosen.rank is not None:
        raise BadRequest("a node and a rank exclude each other")
    lines = number("lines", MAX_LINES)
    return chosen, USUAL_LINES if lines is None else lines, query.get("follow", [""])[-1] == "1"


async def log_pieces(
    viewed: Viewed, chosen: Chosen, lines: int, *, follow: bool
) -> AsyncIterator[LogPiece]:
    """The lines, then those that come where that is asked for, and a last piece."""
    connect = partial(viewed.registry, viewed.keys.logs)
    which = Which(viewed.state_dir, os.environ, chosen, connect)
    queue: asyncio.Queue[LogPiece | None] = asyncio.Queue(_MOST_QUEUED)
    follow = follow and viewed.state_dir.is_held()
    reading = asyncio.create_task(_read_all(viewed, which, lines, queue, follow=follow))
    try:
        if follow:
            viewed.followers.add(reading)
        while True:
            piece: LogPiece | None = {"beat": True}
            with contextlib.suppress(TimeoutError):
                async with timeout(_BEAT_SECONDS):
                    piece = await queue.get()
                    queue.task_done()
            if piece is None:
                break
            yield piece
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        viewed.followers.discard(reading)
    yield {"over": True}


async def _read_all(
    viewed: Viewed,
    which: Which,
    lines: int,
    queue: asyncio.Queue[LogPiece | None],
    *,
    follow: bool,
) -> None:
    """All logs side by side; whoever reads slowly holds them up, and nothing else. Until the run
    is over also those that begin meanwhile: of a program that starts again, from its first line."""
    readers: dict[str, tuple[_Reader, asyncio.Task[None]]] = {}
    count = 0

    async def put(piece: LogPiece) -> None:
        nonlocal count
        await queue.put(piece)
        count += 1

    try:
        for note in _begin(viewed, which, lines, put, readers, follow=follow):
            await put({"note": note})
        while follow and which.state.is_held() and not viewed.told.head["over"]:
            await asyncio.sleep(_AGAIN_SECONDS)
            _begin(viewed, which, MAX_LINES, put, readers, follow=follow)
        if follow:  # they would wait for more: nothing has come for a moment, and all is taken
            pause = _LAST_SECONDS if viewed.told.head["over"] else _AGAIN_SECONDS
            before = -1
            while before != count:
                before = count
                await asyncio.sleep(pause)
                await queue.join()
            for reader, _ in readers.values():
                await reader.finish()
        else:
            await asyncio.gather(*(task for _, task in readers.values()))
        await queue.put(None)
    finally:
        await cancel_all(task for _, task in readers.values())


def _begin(
    viewed: Viewed,
    which: Which,
    lines: int,
    put: _Put,
    readers: dict[str, tuple[_Reader, asyncio.Task[None]]],
    *,
    follow: bool,
) -> list[str]:
    """Begin to read what is not read yet; what a reader has to know of what there is."""
    try:
        sources = which.sources()
    except RdzvError as exc:
        return [_in_full(exc)]
    for source in sources:
        if source.name not in readers:
            reader = _Reader(viewed, source, put)
            reading = asyncio.create_task(reader.read(lines, follow=follow))
            readers[source.name] = reader, reading
    if which.unshown:
        return [f"{which.unshown} more nodes are not shown: choose one of them"]
    return [] if sources else ["no program has printed a line yet"]


class _Reader:
    """Reads one source into pieces.

    Args:
        viewed: Whose log it is.
        source: The log.
        put: Takes the pieces.
    """

    def __init__(self, viewed: Viewed, source: Source, put: _Put) -> None:
        self._source = source
        self._put = put
        self._name = _name(source)
        self._sorter = _Sorter(viewed, source, self._name)
        self._one_gives = asyncio.Lock()

    async def read(self, lines: int, *, follow: bool) -> None:
        """Read it to its end, or until this is cancelled."""
        flusher = asyncio.create_task(self._flush()) if follow else None
        try:
            async with aclosing(_timed(self._source, lines, follow=follow)) as found:
                async for line in found:
                    self._sorter.take(line)
                    if self._sorter.count >= _MOST_LINES:
                        await self._give()
            await self.finish()
        except RdzvError as exc:
            await self._fail(_in_full(exc))
        except OSError as exc:
            await self._fail(f"it cannot be read: {exc.strerror}")
        finally:
            if flusher is not None:
                flusher.cancel()

    async def _fail(self, note: str) -> None:
        """Give out what was read, and why nothing more comes."""
        await self.finish()
        await self._put({"source": self._name, "note": note})

    async def finish(self) -> None:
        """Nothing more comes: give out also what waits for more."""
        self._sorter.end()
        await self._give()

    async def _flush(self) -> None:
        """What has come is not kept for longer than a moment."""
        while True:
            await asyncio.sleep(_GATHER_SECONDS)
            self._sorter.idle()
            await self._give()

    async def _give(self) -> None:
        async with self._one_gives:
            for piece in self._sorter.pieces():
                await self._put(piece)


async def _timed(source: Source, lines: int, *, follow: bool) -> AsyncGenerator[LogLine, None]:
    """The lines of a source, with their times where those can be known."""
    if source.timed is not None:
        async for line in source.timed(lines=lines, follow=follow):
            yield line
        return
    async for text in source.read(lines=lines, follow=follow):
        yield LogLine(text)


class _Sorter:
    """Makes pieces of the lines of one source, each with its kind.

    Args:
        viewed: Knows which nodes rdzv has stopped.
        source: Whose lines they are.
        name: What a viewer calls it.
    """

    def __init__(self, viewed: Viewed, source: Source, name: str) -> None:
        self._viewed = viewed
        self._name = name
        self._path = Path(source.name)
        self._prefixed = source.prefixed
        self._by_node: dict[int, LauncherKinds] = {}
        self._together = defaultdict[str, Together](Together)
        self._held: list[tuple[str, KindLine]] = []
        self._taken_at = 0.0

    @property
    def count(self) -> int:
        """How many lines wait to be given out."""
        return len(self._held)

    def take(self, line: LogLine) -> None:
        """Read the next line."""
        self._taken_at = now()
        name, text = self._name, printable(line.text, LINE_LETTERS)
        if self._prefixed and (found := _PREFIX.match(text)):
            name, text = found[1], text[found.end() :]
        line = self._together[name].line(LogLine(text, line.at))
        kinds = self._launcher_of(name)
        known = [KindLine(line, kind_of(text))] if kinds is None else kinds.take(line)
        self._held += [(name, one) for one in known]

    def idle(self) -> None:
        """Nothing has come for a moment, which may be long enough."""
        if now() - self._taken_at >= _HELD_SECONDS:
            for node, kinds in self._by_node.items():
                self._held += [(self._node_name(node), one) for one in kinds.idle()]

    def end(self) -> None:
        """Nothing more comes."""
        for node, kinds in self._by_node.items():
            self._held += [(self._node_name(node), one) for one in kinds.end()]

    def pieces(self) -> list[LogPiece]:
        """What has come; it is not given out again."""
        held, self._held = self._held, []
        groups = itertools.groupby(held, key=itemgetter(0))
        return [_piece(name, [line for _, line in lines]) for name, lines in groups]

    def _node_name(self, node: int) -> str:
        return f"node {node}" if self._prefixed else self._name

    def _launcher_of(self, name: str) -> LauncherKinds | None:
        """What tells the lines of a node's launcher from others; None: this log has none."""
        found = _OF_NODE.fullmatch(name)
        if found is None:
            return None
        node = int(found[1])
        if node not in self._by_node:
            told = self._viewed.told
            self._by_node[node] = LauncherKinds(
                partial(told.has_stopped, node), partial(self._has_traceback, node)
            )
        return self._by_node[node]

    def _has_traceback(self, node: int, local_rank: int) -> bool:
        """Whether a rank of this node has a log here with a traceback at its end."""
        its = read_log_name(self._path.name, "launcher") or read_log_name(self._path.name)
        if its is None:
            return False
        rank = self._viewed.told.first_rank(node) + local_rank
        try:
            with self._path.with_name(rank_log_name(rank, its[1])).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOOKED_AT))
                return b"Traceback (most recent call last)" in file.read()
        except OSError:
            return False


def _piece(name: str, lines: list[KindLine]) -> LogPiece:
    piece: LogPiece = {"source": name, "lines": [one.line.text for one in lines]}
    times = [one.line.at for one in lines]
    if any(at is not None for at in times):
        piece["at"] = [None if at is None else round(at, 2) for at in times]
    kinds = "".join(one.kind for one in lines)
    if kinds.strip("-"):
        piece["kinds"] = kinds
    return piece


def _name(source: Source) -> str:
    """`rank-3`, for a file of that name; else as `rdzv logs` calls it."""
    return Path(source.name).stem if source.name.endswith(".log") else source.title or source.name


def _in_full(error: RdzvError) -> str:
    return printable(error.one_line, 1_000)
