"""`rdzv logs`: what a run's programs print, from this machine's files and from its scheduler.

A node that was started here writes into the run's folder, and into another file when its program
starts again; so does each of its ranks. What a node elsewhere prints is what its scheduler keeps of
it, or what it sends by way of the registry while the run lives; where neither can be had, the last
words are shown that it sent before it left. What rdzv's own processes log is shown where it is
asked for, and where a run failed before any program printed a line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from launcher.show.log_sources import Chosen, Source, Which
from launcher.show.log_views import Connect
from launcher.state.state_dir import StateDir
from rendezvous.tasks import cancel_all
from rendezvous.wire.errors import RdzvError, UsageError
from rendezvous.wire.log_view import MAX_LINES
from rendezvous.wire.run import Result
from rendezvous.wire.words import listed, node_name
from worker.program.launcher_lines import LauncherLines, Why
from worker.program.log_file import read_log_name

LINES = 20
"""Of each log, where nothing else is asked for."""
_LOOK_AGAIN_SECONDS = 1.0
_AT_ONCE = 8
_MOST_LEFT_OUT = 200
"""Lines of reports; more of them are no report of a launcher that is known."""


async def show_logs(
    state: StateDir,
    environ: Mapping[str, str],
    *,
    lines: int | None,
    follow: bool,
    connect: Connect | None = None,
    **chosen: Any,
) -> int:
    """Print the newest lines of each log of a run, or of one node; returns the exit code.

    Of a run that failed, the error that ended it comes last.

    Args:
        state: Of the run.
        environ: For the scheduler's commands.
        lines: How many of each; None: 20 without what launchers print at their end, or where
            `since` is given all that it leaves.
        follow: Go on with what comes, until the run is over.
        connect: See `Which`.
        chosen: As `Chosen` has it.
    """
    asked = Chosen(**chosen)
    which = Which(state, environ, asked, connect)
    result = None if state.is_held() else state.result()
    most = _Most(lines, asked.since, result)
    if follow:
        await _follow(which, most)
        return 0
    if result is not None and result.status == "failed" and asked.is_whole:
        return await _print_failed(which, result, most)
    sources = which.sources()
    printed = await _print(sources, most)
    if asked.rank is not None and any(may_have_reports(one.name) for one in sources):
        click.echo(f"rdzv: rank {asked.rank} has no log of its own: its node's is shown", err=True)
    if which.unshown:
        nodes = f"{which.unshown} more nodes have no log here"
        click.echo(f"rdzv: {nodes}; --node or --all shows them", err=True)
    if printed.exit_code and not printed.lines:
        await _print(which.last_words(), most)
    return printed.exit_code


# --- showing ----------------------------------------------------------------------------------


@dataclass
class _Most:
    """Number of lines that are shown of a log; where nobody gave it, what a launcher printed at its
    end is left out. It knows, too, what was said of that."""

    lines: int | None
    since: float | None
    result: Result | None = None
    said: set[str] = field(default_factory=set)
    left_out: int = 0

    async def read(self, source: Source) -> list[str]:
        """The newest lines of a log. Raises RdzvError."""
        is_plain = (
            self.lines is not None or self.since is not None or not may_have_reports(source.name)
        )
        count = self.of(source)
        most = count if is_plain else count + _MOST_LEFT_OUT
        found = [line async for line in source.read(lines=most, follow=False)]
        if is_plain:
            return found
        stopped = was_stopped(source.name, self.result)
        shown, left_out = without_reports(found, is_stopped=stopped)
        self.left_out = max(self.left_out, left_out)
        return shown[-count:]

    def say_left_out(self) -> None:
        """Say how what was left out is shown."""
        if self.left_out:
            more = f"--lines {LINES + self.left_out} shows it"
            click.echo(
                f"rdzv: what the launchers printed at their end is left out; {more}", err=True
            )

    def of(self, source: Source) -> int:
        """Of this log, unless more were asked for."""
        if self.lines is not None:
            return self.lines
        return LINES if self.since is None or source.timeless else MAX_LINES

    def say_timeless(self, sources: Sequence[Source]) -> None:
        """Say once of which logs lines are shown whenever they were printed."""
        names = [one.name for one in sources if one.timeless and one.name not in self.said]
        self.said.update(names)
        if names:
            click.echo(
                f"rdzv: --since does not apply to {listed(names)}: without the times of the lines "
                "there, the newest ones are shown",
                err=True,
            )


@dataclass
class _Printed:
    """What was printed: all lines, and whether something could not be had."""

    lines: list[str] = field(default_factory=list)
    exit_code: int = 0


async def _print_failed(which: Which, result: Result, most: _Most) -> int:
    """The log of the node that failed first comes last, and if that does not show it, the error."""
    try:
        sources = which.sources()
    except UsageError:
        sources = []
    # Without ranks no program was started.
    if not os.path.exists(which.state.path / "status.json"):
        sources = [one for one in sources if not os.path.exists(one.name)]  # a former launch's
    sources.sort(key=lambda source: source.name == result.log)
    printed = await _print(sources, most)
    if most.lines != 0 and not printed.lines:
        click.echo(f"rdzv: no program has printed a line here: {result.message}", err=True)
        own = which.own(result.slot) or which.own()
        return max(printed.exit_code, (await _print(own, most)).exit_code)
    if {line.strip() for line in result.tail} <= {line.strip() for line in printed.lines}:
        return printed.exit_code
    shown = {source.name for source in sources}
    words = which.last_words()
    if words:
        await _print([one for one in words if one.name not in shown], most)
    else:
        rank = "" if result.rank is None else f", rank {result.rank}"
        click.echo(
            f"==> last output of {node_name(result.node, result.hostname, result.slot)}{rank}"
        )
        for line in result.tail:
            click.echo(line)
    return printed.exit_code


async def _print(sources: list[Source], most: _Most) -> _Printed:
    """Print one after another; what cannot be had is said, and makes the exit code."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(source: Source) -> list[str] | RdzvError:
        async with gate:
            try:
                return await most.read(source)
            except RdzvError as exc:
                return exc

    printed = _Printed()
    reads = [asyncio.create_task(read(source)) for source in sources]
    for source, task in zip(sources, reads, strict=True):
        found = await task
        if source.title:
            click.echo(f"==> {source.title}")
        if isinstance(found, RdzvError):
            printed.exit_code = 1
            click.echo(f"rdzv: {found.message}", err=True)
            continue
        printed.lines += found
        for line in found:
            click.echo(line)
    most.say_timeless(sources)
    most.say_left_out()
    return printed


async def _follow(which: Which, most: _Most) -> None:
    """Print what comes, under its source's title whenever that changes, until the run is over."""
    last = ""
    titles: dict[str, str] = {}

    async def show(source: Source, lines: int) -> None:
        nonlocal last
        try:
            async for line in source.read(lines=lines, follow=True):
                if titles[source.name] and last != titles[source.name]:
                    last = titles[source.name]
                    click.echo(f"==> {last}")
                click.echo(line)
        except RdzvError as exc:
            click.echo(f"rdzv: {titles[source.name]}: {exc.message}", err=True)

    shown: dict[str, asyncio.Task[None]] = {}
    lives = True
    while lives:
        lives = which.state.is_held()
        is_first = not shown
        try:
            sources = which.sources()
            most.say_timeless(sources)
            for source in sources:
                titles[source.name] = source.title
                if source.name not in shown:
                    # What has started again meanwhile is shown from its first line.
                    count = sys.maxsize if source.epoch and not is_first else most.of(source)
                    shown[source.name] = asyncio.create_task(show(source, count))
        except UsageError:
            if not lives and not shown:
                raise
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    await cancel_all(shown.values())
    click.echo("rdzv: End of the log.", err=True)


def may_have_reports(name: str) -> bool:
    """Return whether such a log holds what a launcher printed among the lines of its ranks."""
    return read_log_name(Path(name).name) is not None


def was_stopped(name: str, result: Result | None) -> bool:
    """Return whether rdzv stopped the launcher with this log: none that may have failed itself."""
    found = read_log_name(Path(name).name)
    if found is None or result is None:
        return False
    node, epoch = found[0], max(1, found[1])  # the first one's log has no number
    ends = {end.epoch: end for end in result.epochs}
    if (end := ends.get(epoch)) is not None:
        return end.node != node if end.node is not None else not end.code  # a person asked for it
    if result.status == "failed":
        return result.node not in (None, node)
    return result.status == "cancelled"


def without_reports(lines: Sequence[str], *, is_stopped: bool) -> tuple[list[str], int]:
    """Return the lines that a terminal shows, see `LauncherLines`, and how many reports had."""
    reader = LauncherLines(lambda local_rank: False)
    reader.is_stopped = is_stopped
    shown = [*(kept for line in lines for kept in reader.take(line)), *reader.end()]
    return shown, reader.folded.total() - reader.folded[Why.AT_START]
