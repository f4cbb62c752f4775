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
_LEVELS: Mapping[str, Level] = {"warning": "warning", "error": "error"}


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
    follow = follow and viewed.state_dir.is_held()
    connect = partial(viewed.registry, viewed.keys.logs)
    which = Which(viewed.state_dir, os.environ, chosen, connect)
    try:
        sources = which.sources()
    except RdzvError as exc:
        yield {"note": _in_full(exc)}
        yield {"over": True}
        return
    if which.unshown:
        yield {"note": f"{which.unshown} more nodes are not shown: choose one of them"}
    if not sources:
        yield {"note": "no program has printed a line yet"}
    async for piece in _read_all(sources, lines, follow=follow):
        yield piece
    yield {"over": True}


async def _read_all(sources: list[Source], lines: int, *, follow: bool) -> AsyncIterator[LogPiece]:
    """All of them side by side; whoever reads slowly holds them up, and nothing else."""
    queue: asyncio.Queue[LogPiece | None] = asyncio.Queue(_MOST_QUEUED)
    tasks = [
        asyncio.create_task(_read(source, lines, queue.put, follow=follow)) for source in sources
    ]
    left = len(tasks)
    try:
        while left:
            piece: LogPiece | None = {"beat": True}
            with contextlib.suppress(TimeoutError):
                async with timeout(_BEAT_SECONDS):
                    piece = await queue.get()
            if piece is None:
                left -= 1
            else:
                yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(
    source: Source, lines: int, put: Callable[[LogPiece | None], Awaitable[None]], *, follow: bool
) -> None:
    name = _name(source)
    held: list[str] = []

    async def give() -> None:
        if held:
            await put({"source": name, "lines": held[:]})
            held.clear()

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
    await put(None)


def _name(source: Source) -> str:
    """`rank-3`, for a file of that name; else as `rdzv logs` calls it."""
    return Path(source.name).stem if source.name.endswith(".log") else source.title or source.name


def _in_full(error: RdzvError) -> str:
    return printable(error.message + (f"; {error.hint}" if error.hint else ""), 1_000)
