"""How the program's processes get on: kept in the run's folder, shown by `status` and `metrics`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click
from pydantic import ValidationError

from launcher.curves import draw_curves
from launcher.inspect import find_run
from launcher.progress import draw_metrics, in_one_line, show
from launcher.state_dir import StateDir
from rendezvous.client import RegistryClient
from rendezvous.errors import RdzvError, UsageError
from rendezvous.not_finite import decoded
from rendezvous.schema import MetricLine

_FILE = "metrics.jsonl"
_MOST_BYTES = 256 << 20
_SAY_SECONDS = 60.0


class Keeper:
    """Writes what the registry is told into the run's folder, as it comes.

    Args:
        viewer: The registry, with the read credential.
        state: The run's folder.
        say: What the person is to see: now and then how far the program has come.
    """

    def __init__(self, viewer: RegistryClient, state: StateDir, say: Callable[[str], None]) -> None:
        self._viewer = viewer
        self._run = state.run
        self._path = state.path / _FILE
        self._say = say
        self._said_at = float("-inf")
        self._session = ""
        self._after = 0
        self._dropped = 0
        self._full = False
        self._one_fetches = asyncio.Lock()
        self._newest: dict[int, MetricLine] = {}

    async def fetch(self) -> None:
        """Keep what is new at the registry; what fails here must end nothing."""
        with contextlib.suppress(RdzvError):
            async with self._one_fetches:
                await self._fetch()

    async def _fetch(self) -> None:
        while not self._full:
            told = await self._viewer.metrics(self._run, self._after)
            if told.session != self._session and self._session:  # the registry began anew
                self._session, self._after = told.session, 0
                continue
            self._session = told.session
            self._tell_dropped(told.dropped)
            if not told.rows:
                return
            self._keep(told.rows)

    def _keep(self, rows: Sequence[MetricLine]) -> None:
        self._after = rows[-1].number
        self._newest |= {row.rank: row for row in rows}
        data = b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "ab") as file:
                file.write(data)
                size = file.tell()
        except OSError as exc:
            self._give_up(f"cannot be written: {exc.strerror}")
            return
        if size > _MOST_BYTES:
            self._give_up(f"has {_MOST_BYTES >> 20} MB")
        self._tell_progress()

    def _give_up(self, why: str) -> None:
        self._full = True
        self._say(f"{self._path} {why}: no more metrics are kept")

    def _tell_dropped(self, dropped: int) -> None:
        if dropped and not self._dropped:
            self._say(
                "metrics come faster than they can be sent, and some rows were dropped; send "
                "fewer of them (every tenth step, or from rank 0 alone)"
            )
        self._dropped = dropped

    def _tell_progress(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= _SAY_SECONDS:
            self._said_at = now
            self._say(in_one_line(self._newest.values()))


def read_metrics(state: StateDir) -> Iterator[MetricLine]:
    """The kept rows of the newest launch, oldest first; none when there are none."""
    try:
        with (state.path / _FILE).open("rb") as file:
            for line in file:
                with contextlib.suppress(ValidationError):  # cut off by a kill or a full disk
                    yield MetricLine.model_validate_json(line)
    except OSError:
        return


async def show_metrics(root: Path, run: str, *, as_json: bool, plot: Path | None) -> int:
    """Print, or draw, how the processes of a run have got on. Raises UsageError."""
    state = find_run(root, run)
    if as_json:
        for row in read_metrics(state):
            click.echo(row.model_dump_json())
        return 0
    rows = list(read_metrics(state))
    if not rows:
        raise UsageError(
            f"run '{run}' has told of no metrics yet",
            hint="the program sends them: see rdzv_metrics.send in examples/rdzv_metrics.py",
        )
    if plot is not None:
        draw_curves(rows, f"run {run}", plot)
        click.echo(f"drawn: {plot}")
        return 0
    newest = _newest(rows)
    steps = [row.step for row in rows]
    seen = f"{len(rows)} rows of {len(newest)} ranks, steps {min(steps)} to {max(steps)}"
    head = f"run {run}   {seen}"
    from rich.console import Group
    from rich.text import Text

    show(Group(Text(head, style="bold"), draw_metrics(list(newest.values()))))
    return 0


def _newest(rows: Iterable[MetricLine]) -> dict[int, MetricLine]:
    """The newest row of each rank, with the newest of each value: not every row has all."""
    newest: dict[int, MetricLine] = {}
    for row in rows:
        before = newest[row.rank].values if row.rank in newest else {}
        newest[row.rank] = row.model_copy(update={"values": before | decoded(row.values)})
    return newest
