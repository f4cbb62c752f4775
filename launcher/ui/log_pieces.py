"""The output of a run for the page: the same logs as `rdzv logs` shows, piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from launcher.show.log_sources import Chosen, Source, Which
from launcher.ui.shapes import LogPiece
from launcher.ui.viewed import Viewed
from rendezvous.compat import timeout
from rendezvous.wire.errors import BadRequest, RdzvError
from rendezvous.wire.log_view import LINE_LETTERS, MAX_GREPS, MAX_LINES, Level
from rendezvous.wire.words import printable
from worker.program.wanted import Wanted

USUAL_LINES = 200
_MOST_QUEUED = 64
_MOST_LINES = 500
"""Of one piece."""
_GATHER_SECONDS = 0.05
_BEAT_SECONDS = 10.0
_AGAIN_SECONDS = 0.5
"""How often it is looked for logs that have begun."""
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
    wanted = Wanted(texts, _LEVELS.get(level))
    chosen = Chosen(
        node=number("node", 1 << 20),
        rank=number("rank", 1 << 30),
        epoch=number("epoch", (1 << 31) - 1),
        everyone=query.get("all", [""])[-1] == "1",
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
    reading = asyncio.create_task(_read_all(which, lines, queue, follow=follow))
    try:
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
    yield {"over": True}


async def _read_all(
    which: Which, lines: int, queue: asyncio.Queue[LogPiece | None], *, follow: bool
) -> None:
    """All logs side by side; whoever reads slowly holds them up, and nothing else. Until the run
    is over also those that begin meanwhile: of a program that starts again, from its first line."""
    readers: dict[str, asyncio.Task[None]] = {}
    count = 0

    async def put(piece: LogPiece) -> None:
        nonlocal count
        await queue.put(piece)
        count += 1

    try:
        for note in _begin(which, lines, put, readers, follow=follow):
            await put({"note": note})
        while follow and which.state.is_held():
            await asyncio.sleep(_AGAIN_SECONDS)
            _begin(which, MAX_LINES, put, readers, follow=follow)
        if follow:  # they would wait for more: nothing has come for a moment, and all is taken
            before = -1
            while before != count:
                before = count
                await asyncio.sleep(_AGAIN_SECONDS)
                await queue.join()
        else:
            await asyncio.gather(*readers.values())
        await queue.put(None)
    finally:
        for reader in readers.values():
            reader.cancel()
        await asyncio.gather(*readers.values(), return_exceptions=True)


def _begin(
    which: Which,
    lines: int,
    put: _Put,
    readers: dict[str, asyncio.Task[None]],
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
            reading = _read(source, lines, put, follow=follow)
            readers[source.name] = asyncio.create_task(reading)
    if which.unshown:
        return [f"{which.unshown} more nodes are not shown: choose one of them"]
    return [] if sources else ["no program has printed a line yet"]


async def _read(source: Source, lines: int, put: _Put, *, follow: bool) -> None:
    name = _name(source)
    held: list[str] = []
    one_gives = asyncio.Lock()

    async def give() -> None:
        async with one_gives:
            if held:
                lines = held[:]
                held.clear()
                await put({"source": name, "lines": lines})

    async def flush() -> None:
        """What has come is not kept for longer than a moment."""
        while True:
            await asyncio.sleep(_GATHER_SECONDS)
            await give()

    flusher = asyncio.create_task(flush()) if follow else None
    try:
        async for line in source.read(lines=lines, follow=follow):
            held.append(printable(line, LINE_LETTERS))
            if len(held) >= _MOST_LINES:
                await give()
        await give()
    except RdzvError as exc:
        await put({"source": name, "note": _in_full(exc)})
    except OSError as exc:
        await put({"source": name, "note": f"it cannot be read: {exc.strerror}"})
    finally:
        if flusher is not None:
            flusher.cancel()


def _name(source: Source) -> str:
    """`rank-3`, for a file of that name; else as `rdzv logs` calls it."""
    return Path(source.name).stem if source.name.endswith(".log") else source.title or source.name


def _in_full(error: RdzvError) -> str:
    return printable(error.message + (f"; {error.hint}" if error.hint else ""), 1_000)
