"""`rdzv logs`: what a run's programs print, from this machine's files and from its scheduler.

A node that was started here writes into the run's folder, and into another file when its program
starts again. What a node elsewhere prints is what its scheduler keeps of it; where that cannot be
had, the last words are shown that it sent before it left. What rdzv's own processes log is shown
where it is asked for, and where a run failed before any program printed a line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.show.last_words import kept_words
from launcher.show.log_lines import file_lines
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import RdzvError, SchedulerError, UsageError
from rendezvous.wire.run import Result, RunStatus, SlotStatus
from rendezvous.wire.words import printable
from worker.program.log_file import read_log_name

_LOOK_AGAIN_SECONDS = 1.0
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Source:
    """One log.

    Attributes:
        name: Which one it is, also where its title has changed.
        title: What stands above it, with the host's name once that is known.
        epoch: Of a program that has started again, whose file it is; 0: it is another log.
    """

    name: str
    title: str
    read: Callable[..., AsyncIterator[str]]
    """Takes how many `lines`, and whether to `follow`."""
    epoch: int = 0


async def show_logs(
    state: StateDir,
    environ: Mapping[str, str],
    *,
    node: int | None,
    rank: int | None,
    lines: int,
    follow: bool,
    registry: bool = False,
    epoch: int | None = None,
) -> int:
    """Print the newest lines of each log of a run, or of one node; returns the exit code.

    Of a run that failed, the error that ended it comes last.

    Args:
        state: Of the run.
        environ: For the scheduler's commands.
        node: Only this node rank.
        rank: Only the node that runs this global rank.
        lines: How many of each.
        follow: Go on with what comes, until the run is over.
        registry: Also what the registry and the agents have logged.
        epoch: What the programs of this epoch have printed; None: those that started last.
    """
    which = _Which(state, environ, node, rank, registry, epoch)
    if follow:
        await _follow(which, lines)
        return 0
    result = None if state.is_held() else state.result()
    all_newest = node is None and rank is None and epoch is None
    if result is not None and result.status == "failed" and all_newest:
        return await _print_failed(which, result, lines)
    printed = await _print(which.sources(), lines)
    if printed.exit_code and not printed.lines:
        await _print(which.last_words(), lines)
    return printed.exit_code


# --- which ------------------------------------------------------------------------------------


class _Which:
    """The logs that are asked for; there are more of them as the run goes on."""

    def __init__(
        self,
        state: StateDir,
        environ: Mapping[str, str],
        node: int | None,
        rank: int | None,
        registry: bool,
        epoch: int | None,
    ) -> None:
        self.state = state
        self._context = SchedulerContext(state.path / "submissions", environ)
        self._node = node
        self._rank = rank
        self._registry = registry
        self._epoch = epoch
        self._made: dict[str, Scheduler] = {}

    def sources(self) -> list[Source]:
        """Those that there are. Raises UsageError when there is none, and says why."""
        slots = _slots(self.state)
        node = self._node
        if self._rank is not None:
            node = _node_of(self._rank, slots, self.state.run)
        sources = _files(self.state, node, self._epoch)
        own = self.own(_slot_of(node, slots)) if self._registry else []
        missing: list[str] = []
        if self._epoch is None and (node is None or not sources):
            elsewhere, missing = self._elsewhere(_slot_of(node, slots), slots)
            sources += elsewhere
        if sources or own:
            return own + sources
        if words := self.last_words():
            return words
        logs = self.state.logs
        name = "node-*.log" if node is None else f"node-{node}.log"
        here = ", ".join(sorted(path.name for path in logs.glob("*.log"))) or "none"
        if self._epoch is not None:
            raise UsageError(
                f"there is no {name} of epoch {self._epoch} in {logs}",
                hint=f"there are: {here}; what a scheduler keeps of a node has all its epochs",
            )
        raise UsageError(
            f"there is no {name} in {logs}" + "".join(f", and {words}" for words in missing[:1]),
            hint=f"there are: {here}; a node on another machine keeps its log there",
        )

    def last_words(self) -> list[Source]:
        """What is kept here of the end of what is asked for, where its nodes have sent it."""
        slots = _slots(self.state)
        node, rank = self._node, self._rank
        if rank is not None:
            node = _node_of(rank, slots, self.state.run)
        paths = kept_words(self.state, slots, node=node, rank=rank, epoch=self._epoch)
        return [_of_file(path) for path in paths]

    def own(self, slot: int | None = None) -> list[Source]:
        """What rdzv's own processes have logged here; of the agents only this slot's."""
        agent = f"agent-{'*' if slot is None else slot}.log"
        paths = [self.state.logs / "registry.log", *_numbered(self.state.logs, agent)]
        return [_of_file(path) for path in paths if path.exists()]

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
                missing.append(f"rdzv does not know the id of {entry.name} at '{scheduler.name}'")
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
            f"the node with rank {rank} of run '{run}' is known once all nodes have joined",
            hint="name the node with --node",
        )
    raise UsageError(f"run '{run}' has the ranks 0 to {first - 1}, but not rank {rank}")


def _slot_of(node: int | None, slots: list[SlotStatus]) -> int | None:
    """The slot of a node rank; before the ranks are given, the slot of that number."""
    return next((slot.slot for slot in slots if slot.rank == node and node is not None), node)


def _files(state: StateDir, node: int | None, epoch: int | None) -> list[Source]:
    """A file of each node: that of this epoch, or the one that was written last."""
    status = state.read("status.json", RunStatus)
    hosts = {slot.rank: slot.hostname for slot in status.slots} if status else {}
    found: dict[int, dict[int, Path]] = {}
    for path in state.logs.glob("node-*.log"):
        if (known := read_log_name(path.name)) and node in (None, known[0]):
            found.setdefault(known[0], {})[known[1]] = path
    sources = []
    for rank, paths in sorted(found.items()):
        its = _chosen(paths, epoch, status.epoch if status else 1)
        if its in paths:
            sources.append(_of_file(paths[its], hosts.get(rank, ""), its))
    return sources


def _chosen(paths: Mapping[int, Path], epoch: int | None, newest: int) -> int:
    """Which of a node's files is meant, by its epoch; perhaps one that is not there.

    A folder of the user's may have those of a former launch, with higher epochs.

    Args:
        paths: By epoch; 0: of the first start, of whichever epoch that was.
        epoch: The one that is asked for; None: the newest.
        newest: Of the run.
    """
    if epoch is None:
        return max(paths, key=lambda one: (_written_at(paths[one]), one))
    again = min((one for one in paths if one), default=newest + 1)
    return epoch if epoch >= again else 0


def _written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # it has just become its older part
        return sys.maxsize


def _numbered(folder: Path, pattern: str) -> list[Path]:
    """The files `NAME-N.log`, by their numbers."""
    numbers = {path: path.stem.rpartition("-")[2] for path in folder.glob(pattern)}
    return sorted(
        (path for path in numbers if numbers[path].isdigit()), key=lambda p: int(numbers[p])
    )


def _of_file(path: Path, hostname: str = "", epoch: int = 0) -> Source:
    host = printable(hostname, 253)
    title = f"{path} ({host})" if host else str(path)
    return Source(str(path), title, partial(file_lines, path), epoch)


def _of_scheduler(entry: LedgerEntry, scheduler: Scheduler, host: str) -> Source:
    about = (f"slot {entry.run.slot}", printable(host, 253), f"{scheduler.name} {entry.handle}")
    title = f"{entry.name} ({', '.join(filter(None, about))})"
    return Source(entry.name, title, partial(scheduler.logs, entry.run, entry.handle))


# --- showing ----------------------------------------------------------------------------------


@dataclass
class _Printed:
    """What was printed: all lines, and whether something could not be had."""

    lines: list[str] = field(default_factory=list)
    exit_code: int = 0


async def _print_failed(which: _Which, result: Result, lines: int) -> int:
    """The log of the node that failed first comes last, and if that does not show it, the error."""
    try:
        sources = which.sources()
    except UsageError:
        sources = []
    if not (which.state.path / "status.json").exists():  # without ranks no program was started:
        sources = [one for one in sources if not Path(one.name).exists()]  # a former launch's
    sources.sort(key=lambda source: source.name == result.log)
    printed = await _print(sources, lines)
    if lines and not printed.lines:
        click.echo(f"rdzv: no program has printed a line here: {result.message}", err=True)
        own = which.own(result.slot) or which.own()
        return max(printed.exit_code, (await _print(own, lines)).exit_code)
    if {line.strip() for line in result.tail} <= {line.strip() for line in printed.lines}:
        return printed.exit_code
    shown = {source.name for source in sources}
    words = which.last_words()
    if words:
        await _print([one for one in words if one.name not in shown], lines)
    else:
        rank = "" if result.worker_rank is None else f", rank {result.worker_rank}"
        click.echo(f"==> last output of node {result.rank} ({result.hostname}){rank}")
        for line in result.tail:
            click.echo(line)
    return printed.exit_code


async def _print(sources: list[Source], lines: int) -> _Printed:
    """Print one after another; what cannot be had is said, and makes the exit code."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(source: Source) -> list[str] | RdzvError:
        async with gate:
            try:
                return [line async for line in source.read(lines=lines, follow=False)]
            except RdzvError as exc:
                return exc

    printed = _Printed()
    reads = [asyncio.create_task(read(source)) for source in sources]
    for source, task in zip(sources, reads, strict=True):
        found = await task
        click.echo(f"==> {source.title}")
        if isinstance(found, RdzvError):
            printed.exit_code = 1
            click.echo(f"rdzv: {found.message}", err=True)
            continue
        printed.lines += found
        for line in found:
            click.echo(line)
    return printed


async def _follow(which: _Which, lines: int) -> None:
    """Print what comes, under its source's title whenever that changes, until the run is over."""
    last = ""
    titles: dict[str, str] = {}

    async def show(source: Source, lines: int) -> None:
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
        is_first = not shown
        try:
            for source in which.sources():
                titles[source.name] = source.title
                if source.name not in shown:
                    # What has started again meanwhile is shown from its first line.
                    most = sys.maxsize if source.epoch and not is_first else lines
                    shown[source.name] = asyncio.create_task(show(source, most))
        except UsageError:
            if not lives and not shown:
                raise
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    for task in shown.values():
        task.cancel()
    await asyncio.gather(*shown.values(), return_exceptions=True)
