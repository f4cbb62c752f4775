"""`rdzv status` without a run: a line for each launch on this machine, the newest first."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.state.find_run import registry_of
from launcher.state.former_launches import FormerLaunch, former_launches
from launcher.state.launch_record import KeptResult, LaunchRecord
from launcher.state.state_dir import StateDir, recorded_runs
from launcher.terminal import width_of
from rendezvous.frozen import frozen
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.words import printable

if TYPE_CHECKING:
    from rendezvous.talk.client import RegistryClient

KILLED = "its launcher was killed"
NEWEST = 20
FACTS_AT = 9
"""Where the values of `facts` begin."""
_ASK_SECONDS = 1.0
_ASKED_AT_ONCE = 32
_COMMAND_CELLS = 40
_LEAST_REASON = 30
_INDENT = 4
_OF_RANK = re.compile(
    r"node (?P<node>\d+) \([^)]*\) failed: rank (?P<rank>\d+) ended with exit code \d+"
    r"(?: \((?P<signal>signal [^)]*)\))?[:;] (?P<why>.+)"
)
_BETWEEN = "  "
_MOST_CHARACTERS = 4_000
_HEAD = ("RUN", "STATE", "NODES", "STARTED", "TOOK", "COMMAND", "REASON")


@frozen
class Row:
    """Row of the list: a launch of a run.

    Attributes:
        state: `ok`, `failed` or `cancelled`; killed: its launcher was; while it lives its phase, or
            silent: its registry does not answer.
        exit_code: Where it has ended.
        exit_code_of: Whose that is.
        nodes: As --nnodes has it.
        took_seconds: Until its end, or until now; None where nobody knows.
        reason: Why it stands as it does.
        former: Whether the run was launched again since.
    """

    run: str
    state: str
    exit_code: int | None
    exit_code_of: str
    nodes: str
    started_at: float
    took_seconds: float | None
    command: Sequence[str]
    reason: str
    former: bool = False


async def show_runs(root: Path, *, everything: bool, as_json: bool) -> int:
    """Print the newest launches, or everything; JSON has all of them."""
    known = _launches(root)
    shown = known if everything or as_json else known[:NEWEST]
    gate = asyncio.Semaphore(_ASKED_AT_ONCE)
    rows = await asyncio.gather(*(_row_of_launch(*one, gate) for one in shown))
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    if not known:
        click.echo(f"no runs in {root}")
        return 0
    width = width_of(sys.stdout)
    for line in table_lines(rows, width):
        click.echo(line)
    if width is not None:
        click.echo("'rdzv status RUN' shows one run, and all of its reason.", err=True)
    if more := len(known) - len(shown):
        click.echo(f"and {more} more: rdzv status --all", err=True)
    return 0


_Launch = tuple[StateDir, LaunchRecord | None, FormerLaunch | None]


def _launches(root: Path) -> list[_Launch]:
    """All launches here, each run's former ones among them, the newest first."""
    found: list[_Launch] = []
    for state, record in recorded_runs(root):
        found.append((state, record, None))
        found += [(state, one.record, one) for one in former_launches(state.path)]
    return sorted(found, key=lambda one: one[1].started_at if one[1] else 0.0, reverse=True)


async def _row_of_launch(
    state: StateDir,
    record: LaunchRecord | None,
    former: FormerLaunch | None,
    gate: asyncio.Semaphore,
) -> Row:
    return former_row(state, former) if former else await row_of(state, record, gate)


Connect = Callable[[StateDir, float], "AbstractAsyncContextManager[RegistryClient]"]
"""The registry of a run that lives, for somebody who may read; a request takes so many seconds."""


async def row_of(
    state: StateDir,
    record: LaunchRecord | None,
    gate: asyncio.Semaphore | None = None,
    connect: Connect = registry_of,
) -> Row:
    """How a run stands; the registry of one that lives is asked."""
    held, result = state.is_held(), state.result()
    if not held:
        return _row(state, record, result, "killed", KILLED)
    try:
        if record is None or not state.has_secret():
            return _row(state, record, None, "starting", "its launcher has just begun")
        async with gate or asyncio.Semaphore(), connect(state, _ASK_SECONDS) as client:
            status = await client.status(state.run)
    except RdzvError as exc:  # a launch that is just ending has its result, and no registry
        return _row(state, record, result, "silent", exc.message)
    return _row(state, record, None, str(status.phase), status.reason)


def former_row(state: StateDir, launch: FormerLaunch) -> Row:
    """How a former launch of a run ended."""
    row = _row(state, launch.record, launch.result, "killed", KILLED)
    return replace(row, former=True)


def _row(
    state: StateDir,
    record: LaunchRecord | None,
    result: KeptResult | None,
    otherwise: str,
    reason: str,
) -> Row:
    """As the result has it, or as it stands otherwise."""
    started = record.started_at if record else 0.0
    over = result is not None or otherwise == "killed"
    took = result.took_seconds(record) if result else None
    if not over and started:
        # By the clock that tells when a launch started.
        took = max(0.0, time.time() - started)  # noqa: TID251
    return Row(
        state.run,
        result.status if result else otherwise,
        result.exit_code if result else None,
        result.exit_code_of if result else "",
        record.nodes if record else "",
        started,
        took,
        record.command if record else [],
        result.message if result else reason,
    )


# --- words --------------------------------------------------------------------------------------


def table_lines(rows: Sequence[Row], width: int | None) -> list[str]:
    """The table. A terminal's lines are cut at its width; where there is none, nothing is.

    Where a reason has no room beside its run, it is below it.
    """
    table = [_HEAD, *map(_cells, rows)]
    # Of a longer command the rest of its own line moves, and no other line.
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    widths[5] = min(_COMMAND_CELLS, widths[5])
    if width is None:
        return [_BETWEEN.join(map(_padded, cells, widths)).rstrip() for cells in table]
    beside = width - sum(widths[:6]) - 6 * len(_BETWEEN) >= _LEAST_REASON
    lines = []
    for cells in table:
        shown = [*cells[:5], cut(cells[5], widths[5]), *([cells[6]] if beside else [])]
        lines.append(_BETWEEN.join(map(_padded, shown, widths)).rstrip())
        if not beside and cells[6] and cells is not _HEAD:
            lines.append(" " * _INDENT + cells[6])
    return [cut(line, width) for line in lines]


def in_short(row: Row) -> str:
    """How a launch ended, in a line: `failed (1), 2026-11-28 14:02, took 7 s: no torchrun`."""
    state, _, started, took, _, reason = _cells(row)[1:]
    times = [words for words in (started, took and f"took {took}") if words]
    return ", ".join([state, *times]) + (reason and f": {reason}")


def facts(row: Row) -> list[str]:
    """The same of one run, a line for each."""
    state, *rest = _cells(row)[1:6]
    if row.exit_code_of == "program":
        state = f"{row.state}, exit code {row.exit_code} (the program's)"
    elif row.exit_code_of:
        state = f"{row.state}, exit code {row.exit_code} (rdzv's)"
    names = ("run", "state", "nodes", "started", "took", "command")
    values = (row.run, state, *rest)
    return [f"{name:8} {value}" for name, value in zip(names, values, strict=True) if value]


def _cells(row: Row) -> tuple[str, ...]:
    code = f" ({row.exit_code})" if row.state == "failed" else ""
    began = time.localtime(row.started_at)  # noqa: TID251 (in the time zone of who reads it)
    started = time.strftime("%Y-%m-%d %H:%M", began) if row.started_at else ""
    took = "" if row.took_seconds is None else duration(row.took_seconds)
    command = in_one_line(shlex.join(row.command))
    reason = "" if row.state == "ok" else _short(row, in_one_line(row.reason))
    return row.run, f"{row.state}{code}", row.nodes, started, took, command, reason


def _short(row: Row, reason: str) -> str:
    """The reason without what its row says already: the run, and the exit code."""
    if (found := _OF_RANK.match(reason)) is not None:
        why = "; ".join(filter(None, (found["signal"], found["why"])))
        return f"rank {found['rank']} (node {found['node']}): {why}"
    return reason.removeprefix(f"run '{row.run}' was ")


def duration(seconds: float) -> str:
    """`7 s`, `1 min 51 s`, `5 h 12 min`, `3 d 4 h`."""
    minutes, hours, days = (int(seconds // unit) for unit in (60, 3_600, 86_400))
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {int(seconds % 60)} s" if minutes else f"{seconds:.0f} s"


def cut(text: str, width: int) -> str:
    """The text in at most so many cells of a terminal."""
    if _width(text) <= width:
        return text
    kept = text[: width - 1]
    while _width(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    """Cells of a terminal: the letters of East Asia take two."""
    return len(text) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)


def in_one_line(text: str) -> str:
    """The text without control characters; its lines behind each other."""
    return printable(text.replace("\n", "; "), _MOST_CHARACTERS)
