"""Lines of a run's output by way of its registry, where no file is here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import click

from launcher.state.find_run import registry_of
from launcher.state.state_dir import StateDir
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.log_views import open_view, read_view
from rendezvous.wire.errors import NotFound, RdzvError, RunOver, Unavailable
from rendezvous.wire.log_view import MAX_LINES, RunView, ViewPart, ViewRequest
from rendezvous.wire.words import node_name, printable

_WAIT_SECONDS = 20.0


def skipped_text(count: int) -> str:
    """What is shown in place of lines that came too fast."""
    return f"... {count:,} line{'s' * (count != 1)} skipped ..."


Connect = Callable[[], AbstractAsyncContextManager[RegistryClient]]
"""The registry, for somebody who may read what programs print."""


@asynccontextmanager
async def log_reader(state: StateDir) -> AsyncIterator[RegistryClient]:
    """The registry of a run that was launched here, for reading output and nothing else."""
    async with registry_of(state) as client:
        keys = state.keys()
        assert keys is not None
        client.credential = keys.logs.text()
        yield client


async def view_lines(
    connect: Connect,
    run: str,
    asked: Mapping[str, Any],
    *,
    lines: int,
    follow: bool,
    prefix: bool,
) -> AsyncIterator[str]:
    """The lines that nodes send, until there are no more of them.

    Those of a view that does not follow come rank by rank.

    Args:
        connect: The registry.
        run: The run id.
        asked: Which lines, as `ViewRequest` has it.
        lines: How many of each log.
        follow: Also those that come, until the run is over.
        prefix: Whether each is behind its rank.

    Raises:
        RdzvError: The registry does not answer, or refuses, or no node has such a log.
    """
    request = ViewRequest(**asked, lines=min(lines, MAX_LINES), follow=follow)
    async with connect() as client:
        held: dict[int, list[str]] = {}
        async with aclosing(_parts(client, run, request)) as parts:
            async for node, part in parts:
                shown = _lines(node, part, prefix=prefix)
                if request.follow:
                    for line in shown:
                        yield line
                else:
                    held.setdefault(-1 if part.rank is None else part.rank, []).extend(shown)
    for _, shown in sorted(held.items()):
        for line in shown:
            yield line


async def _parts(
    client: RegistryClient, run: str, request: ViewRequest
) -> AsyncGenerator[tuple[int, ViewPart], None]:
    view = (await open_view(client, run, request)).view
    after, over, shown = 0, False, False
    while not over:
        try:
            found = await read_view(client, run, view, after, _WAIT_SECONDS)
        except (Unavailable, RunOver, NotFound):
            if not request.follow:
                raise
            return  # the run has ended, and its registry with it
        for piece in found.pieces:
            after = piece.seq
            for part in piece.parts:
                shown = True
                yield piece.node, part
        over = found.over
    missing = _missing(found)
    for words in missing if shown else missing[:-1]:
        click.echo(f"rdzv: {words}", err=True)
    if missing and not shown:
        raise RdzvError(missing[-1])


def _missing(found: RunView) -> list[str]:
    """The nodes that have shown nothing, and why."""
    return [f"{node_name(n.node, printable(n.hostname, 253))}: {n.words}" for n in found.nodes]


def _lines(node: int, part: ViewPart, *, prefix: bool) -> list[str]:
    name = f"node {node}" if part.rank is None else f"rank {part.rank}"
    start = f"[{name}] " if prefix else ""
    skipped = [skipped_text(part.skipped)] if part.skipped else []
    return [f"{start}{line}" for line in (*skipped, *part.lines)]
