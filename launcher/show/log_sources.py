"""The logs of a run: which there are, for what is asked for, and how each is read.

A node that was started here writes into the run's folder, and into another file when its program
starts again; so does each of its ranks. What a node elsewhere prints is what its scheduler keeps of
it, or what it sends by way of the registry while the run lives.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.show.last_words import kept_words
from launcher.show.log_lines import LogLine, file_lines, timed_lines
from launcher.show.log_views import Connect, log_reader, view_lines
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import Phase, RunStatus, SlotStatus
from rendezvous.wire.words import listed, no_node_words, printable
from worker.program.log_file import Whose, epoch_of_log, read_log_name
from worker.program.log_index import has_times, offset_at
from worker.program.wanted import Wanted

_MOST_VIEWS = 4
"""Of single nodes; --all needs one alone."""
_MOST_SEARCHED = 100_000


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
    timeless: bool = False
    """Whether it has lines of which nothing shows when they were printed."""
    timed: Callable[..., AsyncIterator[LogLine]] | None = None
    """As `read`, with the times of the lines, where they can be known."""
    prefixed: bool = False
    """Whether each line is behind the name of its rank or node, as of several of them."""


@frozen
class Chosen:
    """What of a run's output is shown.

    Attributes:
        node: Only this node.
        rank: Only this global rank; where it has no log of its own, the node that runs it.
        epoch: What the programs of this epoch have printed; None: those that started last.
        everyone: Every rank, each line behind its name.
        separate: Of every rank: each log is a source of its own, with those of the launchers that
            start the ranks; lines have a name in front only where one source has several ranks.
        wanted: Only these lines.
        since: Nothing that is known to have been printed before, as `time.time`.
        registry: Also what the registry and the agents have logged.
    """

    node: int | None = None
    rank: int | None = None
    epoch: int | None = None
    everyone: bool = False
    separate: bool = False
    wanted: Wanted = Wanted()
    since: float | None = None
    registry: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is all that the programs have printed last."""
        picked = {self.node, self.rank, self.epoch, self.since}
        return picked == {None} and self.wanted.all and not self.everyone


class Which:
    """The logs that are asked for; there are more of them as the run goes on.

    Args:
        state: Of the run.
        environ: For its scheduler.
        chosen: What is asked for.
        connect: Its registry, where no file is here; with the run's own secret if not given.
    """

    def __init__(
        self,
        state: StateDir,
        environ: Mapping[str, str],
        chosen: Chosen,
        connect: Connect | None = None,
    ) -> None:
        self.state = state
        self._connect = connect or partial(log_reader, state)
        self._context = SchedulerContext(state.path / "submissions", environ)
        self._chosen = chosen
        self._made: dict[str, Scheduler] = {}
        self.unshown = 0
        """How many nodes have no log here, and are not asked for it."""
        self._by_view: bool | None = None
        self._has_ranks: dict[int, bool] = {}
        """By node. What was chosen first stays: more files may be there later."""
        self._waits = False
        """Whether a node has a log here of which it is not known yet whether it is the only one."""

    def sources(self) -> list[Source]:
        """Those that there are. Raises UsageError when there is none, and says why."""
        slots, chosen = _slots(self.state), self._chosen
        node = self._node(slots)
        if chosen.rank is not None and node is None:
            return [self._view(rank=chosen.rank)]
        sources = self._of_ranks(slots, node)
        if not sources and not self._waits:
            sources = self._of_nodes(slots, node)
        own = self.own(_slot_of(node, slots)) if chosen.registry else []
        if sources or own or self._waits:
            return own + sources
        if words := self.last_words():
            return words
        logs, numbers = self.state.logs, [one.node for one in _with_number(slots)]
        _look_into(logs)
        asked = chosen.node if chosen.epoch is None else None  # an older one may have had others
        if asked is not None and numbers and asked not in numbers:
            raise UsageError(no_node_words(self.state.run, asked, len(numbers)))
        name = "node-*.log" if node is None else f"node-{node}.log"
        here = listed(sorted(path.name for path in logs.glob("*.log"))) or "none"
        if chosen.epoch is not None:
            raise UsageError(
                f"there is no {name} of epoch {chosen.epoch} in {logs}",
                hint=f"there are: {here}; what a scheduler keeps of a node has all its epochs",
            )
        _, missing = self._elsewhere(_slot_of(node, slots), slots)
        raise UsageError(
            f"there is no {name} in {logs}" + "".join(f", and {words}" for words in missing[:1]),
            hint=f"there are: {here}; a node on another machine keeps its log there",
        )

    def _node(self, slots: list[SlotStatus]) -> int | None:
        """The node that has what is asked for; None: all have, or of a rank of an older epoch
        the registry alone knows it."""
        chosen = self._chosen
        if chosen.rank is None:
            return chosen.node
        if chosen.epoch is not None and self.state.is_held() and not _has(chosen.rank, slots):
            return None
        return _node_of(chosen.rank, slots, self.state.run)

    def _of_nodes(self, slots: list[SlotStatus], node: int | None) -> list[Source]:
        """The logs of nodes: files here, what schedulers keep, and what the others send."""
        chosen = self._chosen
        files = _files(self.state, node, chosen.epoch)
        sources = [_only(_of_file(*file), chosen) for file in files.values()]
        elsewhere: dict[int, Source] = {}
        if chosen.epoch is None and (node is None or not sources):
            elsewhere, _ = self._elsewhere(_slot_of(node, slots), slots)
            sources += [_only(source, chosen) for source in elsewhere.values()]
        if self.state.is_held():
            away = [one for one in _with_number(slots) if node in (None, one.node)]
            away = [one for one in away if one.node not in files and one.slot not in elsewhere]
            sources += [self._view(node=one.node) for one in away[:_MOST_VIEWS]]
            self.unshown = len(away[_MOST_VIEWS:])
        return sources

    def _of_ranks(self, slots: list[SlotStatus], node: int | None) -> list[Source]:
        """The logs of ranks, where they have some: files here, or what the others send."""
        chosen = self._chosen
        self._waits = False
        if chosen.rank is None and not chosen.everyone:
            return []
        paths, logs = _rank_files(self.state, chosen), _files(self.state, None, chosen.epoch)
        launchers = _newest(self.state, "launcher", chosen.epoch)
        here: dict[int, list[int]] = {}
        first = 0
        for number, processes in sorted(
            (one.node, one.nproc_per_node) for one in _with_number(slots)
        ):
            if node in (None, number):
                here[number] = [n for n in range(first, first + processes) if n in paths]
            first += processes
        begun = any(here.values()) or any(number in logs for number in here)
        if chosen.separate and not begun and self._may_begin():
            self._waits = True
            return []
        if self._by_view is None:
            away = [number for number, ranks in here.items() if not ranks and number not in logs]
            self._by_view = bool(away) and self.state.is_held()
        if self._by_view:
            return [self._view(rank=chosen.rank, node=chosen.node if chosen.separate else None)]
        sources = []
        for number, ranks in here.items():
            has_own = bool(ranks or (chosen.separate and number in launchers))
            is_new = chosen.separate and number not in self._has_ranks
            if is_new and not has_own and self._is_silent(number, logs):
                self._waits = True  # what it writes first shows which logs it has
                continue
            if self._has_ranks.setdefault(number, has_own):
                files = {f"[rank {rank}] ": _of_file(paths[rank]) for rank in ranks}
                if chosen.separate and number in launchers:
                    files[f"[node {number}] "] = _of_file(launchers[number][0])
            elif number in logs:
                files = {f"[node {number}] ": _of_file(*logs[number])}
            else:
                kept = self._elsewhere(_slot_of(number, slots), slots)[0].values()
                named = ((f"[node {number}] ", source) for source in kept)
                files = dict(named) if chosen.epoch is None else {}
            its = ((name, _only(source, chosen)) for name, source in files.items())
            behind = chosen.everyone and not chosen.separate
            sources += [_named(one, name) if behind else one for name, one in its]
        return sources

    def _may_begin(self) -> bool:
        """Whether no node has started its program yet, as far as is known."""
        if not self.state.is_held():
            return False
        status = self.state.read("status.json", RunStatus)
        return status is None or status.phase is not Phase.RUNNING

    def _is_silent(self, node: int, logs: Mapping[int, tuple[Path, str, int]]) -> bool:
        """Whether the program of a node that runs has a log here with nothing in it yet."""
        if node not in logs or not self.state.is_held():
            return False
        try:
            return logs[node][0].stat().st_size == 0
        except OSError:
            return False

    def _view(self, *, node: int | None = None, rank: int | None = None) -> Source:
        """What nodes send while they live."""
        chosen = self._chosen
        about = f"rank {rank}" if rank is not None else f"node {node}"
        asked: dict[str, Any] = {"node": node, "rank": rank, "epoch": chosen.epoch}
        asked |= {"grep": list(chosen.wanted.grep), "level": chosen.wanted.level}
        if chosen.since is not None:
            asked["since"] = max(0.0, time.time() - chosen.since)  # noqa: TID251 (as a log's index)
        read = partial(view_lines, self._connect, self.state.run, asked, prefix=chosen.everyone)
        title = "" if chosen.everyone else f"{about}, by way of the registry"
        return Source(f"view of {about}", title, read, prefixed=chosen.everyone)

    def last_words(self) -> list[Source]:
        """What is kept here of the end of what is asked for, where its nodes have sent it."""
        slots, chosen = _slots(self.state), self._chosen
        node = self._node(slots)
        paths = kept_words(self.state, slots, node=node, rank=chosen.rank, epoch=chosen.epoch)
        return [_only(_of_file(path), chosen) for path in paths]

    def own(self, slot: int | None = None) -> list[Source]:
        """What rdzv's own processes have logged here; of the agents only this slot's."""
        agent = f"agent-{'*' if slot is None else slot}.log"
        paths = [self.state.logs / "registry.log", *_numbered(self.state.logs, agent)]
        since = replace(self._chosen, wanted=Wanted())
        return [_only(_of_file(path), since) for path in paths if os.path.exists(path)]

    def _elsewhere(
        self, slot: int | None, slots: list[SlotStatus]
    ) -> tuple[dict[int, Source], list[str]]:
        """What schedulers keep of each slot's newest worker run; and why there is no more."""
        hosts = {slot.slot: slot.hostname for slot in slots}
        newest = {one.run.slot: one for one in self.state.ledger.entries() if not one.former}
        sources, missing = dict[int, Source](), []
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
                sources[entry.run.slot] = _of_scheduler(entry, scheduler, host)
        return sources, missing

    def _scheduler(self, starter: str) -> Scheduler:
        if starter not in self._made:
            self._made[starter] = scheduler_entry(starter).make(self._context)
        return self._made[starter]


def _look_into(logs: Path) -> None:
    """Refuse a folder that nobody may read: it is not known which logs it has."""
    try:
        os.listdir(logs)
    except FileNotFoundError:
        pass
    except OSError as exc:
        raise UsageError(f"the logs in {logs} cannot be read: {exc.strerror}") from exc


def _slots(state: StateDir) -> list[SlotStatus]:
    """The slots with the numbers of their nodes, as far as they are known."""
    status = state.read("status.json", RunStatus)
    return status.slots if status else []


def _node_of(rank: int, slots: list[SlotStatus], run: str) -> int:
    """The node that runs a global rank."""
    nodes = sorted((slot.node, slot.nproc_per_node) for slot in slots if slot.node is not None)
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


def _has(rank: int, slots: list[SlotStatus]) -> bool:
    """Whether the numbered nodes have this global one."""
    count: int = sum(slot.nproc_per_node for slot in _with_number(slots))
    return rank < count


def _with_number(slots: list[SlotStatus]) -> list[Any]:
    """Those whose nodes have a number."""
    return [slot for slot in slots if slot.node is not None]


def _slot_of(node: int | None, slots: list[SlotStatus]) -> int | None:
    """The slot of a node; before the nodes have numbers, the slot of that number."""
    return next((slot.slot for slot in slots if slot.node == node and node is not None), node)


def _files(
    state: StateDir, node: int | None, epoch: int | None
) -> dict[int, tuple[Path, str, int]]:
    """By node its file, host and epoch: that of this epoch, or the one that was written last."""
    status = state.read("status.json", RunStatus)
    hosts = {slot.node: slot.hostname for slot in status.slots} if status else {}
    chosen = _newest(state, "node", epoch)
    return {
        number: (path, hosts.get(number, ""), its)
        for number, (path, its) in chosen.items()
        if node in (None, number)
    }


def _rank_files(state: StateDir, chosen: Chosen) -> dict[int, Path]:
    """By global rank its file, of those that are asked for."""
    found = _newest(state, "rank", chosen.epoch)
    return {rank: path for rank, (path, _) in found.items() if chosen.rank in (None, rank)}


def _newest(state: StateDir, of: Whose, epoch: int | None) -> dict[int, tuple[Path, int]]:
    """By number the file that is meant, and its epoch."""
    status = state.read("status.json", RunStatus)
    found: dict[int, dict[int, Path]] = {}
    for path in state.logs.glob("*-*.log"):
        if known := read_log_name(path.name, of):
            found.setdefault(known[0], {})[known[1]] = path
    chosen = {}
    for number, paths in sorted(found.items()):
        its = epoch_of_log(paths, epoch, status.epoch if status else 1)
        if its in paths:
            chosen[number] = (paths[its], its)
    return chosen


def _numbered(folder: Path, pattern: str) -> list[Path]:
    """The files `NAME-N.log`, by their numbers."""
    numbers = {path: path.stem.rpartition("-")[2] for path in folder.glob(pattern)}
    return sorted(
        (path for path in numbers if numbers[path].isdigit()), key=lambda p: int(numbers[p])
    )


def _of_file(path: Path, hostname: str = "", epoch: int = 0) -> Source:
    host = printable(hostname, 253)
    title = f"{path} ({host})" if host else str(path)
    timed = partial(timed_lines, path)
    return Source(str(path), title, partial(file_lines, path), epoch, timed=timed)


def _only(source: Source, chosen: Chosen) -> Source:
    """The lines that are wanted; of a scheduler's log, among the newest where it has very many."""
    wanted, since = chosen.wanted, chosen.since
    if isinstance(source.read, partial) and source.read.func is file_lines:
        kept: dict[str, Any] = {} if wanted.all else {"keep": wanted.has}
        read = partial(source.read, since=since, **kept)
        timed = source.timed and partial(source.timed, since=since, **kept)
        timeless = _is_timeless(Path(source.name), since)
        return replace(source, read=read, timed=timed, timeless=timeless)
    if wanted.all:
        return replace(source, timeless=since is not None)

    async def search(lines: int, *, follow: bool) -> AsyncIterator[str]:
        newest: deque[str] = deque(maxlen=lines)
        async for line in source.read(lines=_MOST_SEARCHED, follow=follow):
            if wanted.has(line):
                if follow:
                    yield line
                newest.append(line)
        for line in () if follow else newest:
            yield line

    return replace(source, read=search, timeless=since is not None)


def _is_timeless(path: Path, since: float | None) -> bool:
    """Whether a file has no index, and may have been written into since."""
    return since is not None and not has_times(path) and offset_at(path, since) is None


def _named(source: Source, name: str) -> Source:
    """Its lines, each behind its name in place of a title above them."""

    async def read(lines: int, *, follow: bool) -> AsyncIterator[str]:
        async for line in source.read(lines=lines, follow=follow):
            yield f"{name}{line}"

    return replace(source, read=read, timed=None, title="")


def _of_scheduler(entry: LedgerEntry, scheduler: Scheduler, host: str) -> Source:
    about = (f"slot {entry.run.slot}", printable(host, 253), f"{scheduler.name} {entry.handle}")
    title = f"{entry.name} ({', '.join(filter(None, about))})"
    return Source(entry.name, title, partial(scheduler.logs, entry.run, entry.handle))
