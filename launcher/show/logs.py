"""`rdzv logs`: what a run's nodes print, from this machine's files and from its scheduler.

A node that was started here writes into the run's folder. What a node elsewhere prints is what its
scheduler keeps of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import click

from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.show.log_lines import file_lines
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import RdzvError, SchedulerError, UsageError
from rendezvous.wire.run import RunStatus, SlotStatus
from rendezvous.wire.words import printable

_LOOK_AGAIN_SECONDS = 1.0
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Source:
    """One log.

    Attributes:
        name: Which one it is, also where its title has changed.
        title: What stands above it, with the host's name once that is known.
    """

    name: str
    title: str
    read: Callable[..., AsyncIterator[str]]
    """Takes how many `lines`, and whether to `follow`."""


async def show_logs(
    state: StateDir,
    environ: Mapping[str, str],
    *,
    node: int | None,
    rank: int | None,
    lines: int,
    follow: bool,
) -> int:
    """Print the newest lines of each log of a run, or of one node; returns the exit code.

    Args:
        state: Of the run.
        environ: For the scheduler's commands.
        node: Only this node rank.
        rank: Only the node that runs this global rank.
        lines: How many of each.
        follow: Go on with what comes, until the run is over.
    """
    which = _Which(state, environ, node, rank)
    if not follow:
        return await _print(which.sources(), lines)
    await _follow(which, lines)
    return 0


# --- which ------------------------------------------------------------------------------------


class _Which:
    """The logs that are asked for; there are more of them as the run goes on."""

    def __init__(
        self, state: StateDir, environ: Mapping[str, str], node: int | None, rank: int | None
    ) -> None:
        self.state = state
        self._context = SchedulerContext(state.path / "submissions", environ)
        self._node = node
        self._rank = rank
        self._made: dict[str, Scheduler] = {}

    def sources(self) -> list[Source]:
        """Those that there are. Raises UsageError when there is none, and says why."""
        slots = _slots(self.state)
        node = self._node
        if self._rank is not None:
            node = _node_of(self._rank, slots, self.state.run)
        sources = _files(self.state, node, slots)
        missing: list[str] = []
        if node is None or not sources:
            elsewhere, missing = self._elsewhere(_slot_of(node, slots), slots)
            sources += elsewhere
        if sources:
            return sources
        logs = self.state.logs
        name = "*.log" if node is None else f"node-{node}.log"
        here = ", ".join(sorted(path.name for path in logs.glob("*.log"))) or "none"
        raise UsageError(
            f"there is no {name} in {logs}" + "".join(f", and {words}" for words in missing[:1]),
            hint=f"there are: {here}; a node on another machine keeps its log there",
        )

    def _elsewhere(
        self, slot: int | None, slots: list[SlotStatus]
    ) -> tuple[list[Source], list[str]]:
        """What schedulers keep of each slot's newest worker run; and why there is no more."""
        hosts = {slot.slot: slot.hostname for slot in slots}
        newest = {one.run.slot: one for one in self.state.ledger.entries() if not one.former}
        sources, missing = [], []
        for entry in newest.values():
            if slot not in (None, entry.run.slot):
                continue
            scheduler = self._scheduler(entry.starter)
            if not scheduler.keeps_logs:
                missing.append(f"the scheduler '{scheduler.name}' keeps no logs of {entry.name}")
            elif not entry.handle:
                missing.append(f"the id of {entry.name} at '{scheduler.name}' is not known")
            else:
                host = hosts.get(entry.run.slot, "")
                sources.append(_of_scheduler(entry, scheduler, host))
        return sources, missing

    def _scheduler(self, starter: str) -> Scheduler:
        if starter not in self._made:
            self._made[starter] = scheduler_entry(starter).make(self._context)
        return self._made[starter]


def _slots(state: StateDir) -> list[SlotStatus]:
    """The slots with their ranks, as far as they are known."""
    status = state.read("status.json", RunStatus)
    return status.slots if status else []


def _node_of(rank: int, slots: list[SlotStatus], run: str) -> int:
    """The node rank that runs a global rank."""
    nodes = sorted((slot.rank, slot.nproc_per_node) for slot in slots if slot.rank is not None)
    first = 0
    for node, processes in nodes:
        if first <= rank < first + processes:
            return node
        first += processes
    if not nodes:
        raise UsageError(
            f"which node of run '{run}' has rank {rank} is known once all nodes are in",
            hint="name the node with --node",
        )
    raise UsageError(f"run '{run}' has the ranks 0 to {first - 1}, and no rank {rank}")


def _slot_of(node: int | None, slots: list[SlotStatus]) -> int | None:
    """The slot of a node rank; before the ranks are given, the slot of that number."""
    return next((slot.slot for slot in slots if slot.rank == node and node is not None), node)


def _files(state: StateDir, node: int | None, slots: list[SlotStatus]) -> list[Source]:
    pattern = "*.log" if node is None else f"node-{node}.log"
    hosts = {f"node-{slot.rank}.log": slot.hostname for slot in slots}
    sources = []
    for path in sorted(state.logs.glob(pattern)):
        host = printable(hosts.get(path.name, ""), 253)
        title = f"{path} ({host})" if host else str(path)
        sources.append(Source(str(path), title, partial(file_lines, path)))
    return sources


def _of_scheduler(entry: LedgerEntry, scheduler: Scheduler, host: str) -> Source:
    about = (f"slot {entry.run.slot}", printable(host, 253), f"{scheduler.name} {entry.handle}")
    title = f"{entry.name} ({', '.join(filter(None, about))})"
    return Source(entry.name, title, partial(scheduler.logs, entry.run, entry.handle))


# --- showing ----------------------------------------------------------------------------------


async def _print(sources: list[Source], lines: int) -> int:
    """Print one after another; what cannot be had is said, and makes the exit code."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(source: Source) -> list[str] | RdzvError:
        async with gate:
            try:
                return [line async for line in source.read(lines=lines, follow=False)]
            except RdzvError as exc:
                return exc

    failed = False
    reads = [asyncio.create_task(read(source)) for source in sources]
    for source, task in zip(sources, reads, strict=True):
        found = await task
        click.echo(f"==> {source.title}")
        if isinstance(found, RdzvError):
            failed = True
            click.echo(f"rdzv: {found.message}", err=True)
            continue
        for line in found:
            click.echo(line)
    return int(failed)


async def _follow(which: _Which, lines: int) -> None:
    """Print what comes, under its source's title whenever that changes, until the run is over."""
    last = ""
    titles: dict[str, str] = {}

    async def show(source: Source) -> None:
        nonlocal last
        try:
            async for line in source.read(lines=lines, follow=True):
                if last != titles[source.name]:
                    last = titles[source.name]
                    click.echo(f"==> {last}")
                click.echo(line)
        except SchedulerError as exc:
            click.echo(f"rdzv: {titles[source.name]}: {exc.message}", err=True)

    shown: dict[str, asyncio.Task[None]] = {}
    lives = True
    while lives:
        lives = which.state.is_held()
        try:
            for source in which.sources():
                titles[source.name] = source.title
                if source.name not in shown:
                    shown[source.name] = asyncio.create_task(show(source))
        except UsageError:
            if not lives and not shown:
                raise
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    for task in shown.values():
        task.cancel()
    await asyncio.gather(*shown.values(), return_exceptions=True)
