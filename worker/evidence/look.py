"""Notes a machine's counters when a program starts, and tells the facts when a rank has failed.

Both block for a moment, and are called in a thread; neither raises.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TypeVar

from rendezvous.cause.facts import FactKind
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import MAX_FACTS, Fact
from worker.evidence import kernel
from worker.evidence.control_groups import MEMORY, PIDS, watched
from worker.evidence.devices import look_devices
from worker.evidence.kernel import ReadLog, read_log
from worker.evidence.parsing.kernel_log import killed_in, last_line, lines_since, xids_in
from worker.evidence.parsing.memory import Machine, killed_facts, pids_facts
from worker.evidence.parsing.telling import fact
from worker.evidence.places import look_places
from worker.evidence.processes import look_limits, look_ports, look_states
from worker.machine.groups import Watched, rises
from worker.machine.kernel import memory_bytes

logger = logging.getLogger(__name__)

LIMIT_SECONDS = 2.5
"""For all that is looked at, side by side: a driver takes the longest."""

_ASIDE_SECONDS = 2.0
"""For a process that asks a driver or touches disks; it is long on a busy machine only."""

_MOST_XIDS = 6
_MOST_PER_KIND = 8
"""So that one thing that a whole node has does not hide the others."""

_T = TypeVar("_T")
_HOST = Path("/")


@frozen
class Counters:
    """What had been counted when the program started.

    Attributes:
        memory: The groups' kills for memory, and `pids` the limits of processes that were met.
        kills: The machine's kills for memory; None where it does not count them.
        last_line: The newest line of the kernel's log; None where it may not be read.
    """

    memory: Watched = field(default_factory=Watched)
    pids: Watched = field(default_factory=Watched)
    kills: int | None = None
    last_line: str | None = None


@frozen
class Asked:
    """What a failure makes worth a look.

    Attributes:
        ranks: Their processes, by rank; they may have ended.
        folders: Where the program works: its own folder first, then TMPDIR.
        paths: Those that its output names, and `ports` likewise.
    """

    ranks: Mapping[int, int] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


def folders_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where a program with this environment works: here, and in its folder of temporary files."""
    return os.getcwd(), environ.get("TMPDIR") or tempfile.gettempdir()


def look_before(
    pid: int | None = None, *, root: Path = _HOST, read_log: ReadLog = read_log
) -> Counters:
    """Note the counters, about 1 ms.

    Args:
        pid: The program's, where it has been started already: it may be in a group of its own.
        root: The directory that holds `sys`, `proc` and `dev`.
        read_log: Reads the kernel's log.
    """

    def look() -> Counters:
        own: list[int | str] = ["self"] if pid is None else ["self", pid]
        return Counters(
            memory=watched(MEMORY, own, root=root),
            pids=watched(PIDS, own, root=root),
            kills=kernel.kills_of_machine(root),
            last_line=last_line(text) if (text := read_log(kernel.SHORT_BYTES)) else None,
        )

    return _guarded(look, Counters())


def look_after(
    before: Counters,
    asked: Asked,
    *,
    root: Path = _HOST,
    read_log: ReadLog = read_log,
    limit_seconds: float = LIMIT_SECONDS,
) -> list[Fact]:
    """Tell the facts, those that say most first, at most `MAX_FACTS`.

    It returns by its limit, whatever hangs; what has not answered by then is not told.
    """
    deadline = time.monotonic() + limit_seconds
    aside = min(_ASIDE_SECONDS, limit_seconds)
    looks: list[Callable[[], list[Fact]]] = [
        lambda: look_states(asked.ranks, root),  # before anything changes
        lambda: look_kernel(before, asked.ranks, root, read_log),
        lambda: look_pids(before, asked.ranks, root),
        lambda: look_places(asked.folders, asked.paths, aside),
        lambda: look_ports(asked.ports, asked.ranks, root),
        lambda: look_devices(aside, root),
        lambda: look_limits(asked.ranks, root),
    ]
    answers = [_Aside(look) for look in looks]
    return chosen([fact for answer in answers for fact in answer.facts(deadline)])


def look_kernel(
    before: Counters, ranks: Mapping[int, int], root: Path, read_log: ReadLog
) -> list[Fact]:
    """Who was killed for memory, and what the kernel says of GPUs."""
    after = watched(MEMORY, ["self", *ranks.values()], known=before.memory.chains, root=root)
    now = kernel.kills_of_machine(root)
    kills = 0 if now is None or before.kills is None else max(0, now - before.kills)
    began = before.last_line
    lines = [] if began is None else lines_since(read_log(kernel.LONG_BYTES), began)
    by_pid = {pid: rank for rank, pid in ranks.items()}
    machine = Machine(kills, memory_bytes(root) if kills else 0)
    return [
        *killed_facts(rises(before.memory, after), machine, killed_in(lines), by_pid),
        *(
            fact(FactKind.KERNEL, words=xid.line, rank=by_pid.get(xid.pid))
            for xid in xids_in(lines)[:_MOST_XIDS]
        ),
    ]


def look_pids(before: Counters, ranks: Mapping[int, int], root: Path) -> list[Fact]:
    """Which limit of processes was met."""
    after = watched(PIDS, ["self", *ranks.values()], known=before.pids.chains, root=root)
    return pids_facts(rises(before.pids, after))


def chosen(facts: Iterable[Fact]) -> list[Fact]:
    """What a message takes: in order, and of each kind the first ones."""
    kept: list[Fact] = []
    for one in facts:
        if sum(other.kind == one.kind for other in kept) < _MOST_PER_KIND:
            kept.append(one)
    return kept[:MAX_FACTS]


class _Aside:
    """A look in a thread of its own, which nobody waits for in the end."""

    def __init__(self, look: Callable[[], list[Fact]]) -> None:
        self._facts: list[Fact] = []
        self._is_done = threading.Event()
        thread = threading.Thread(target=self._run, args=(look,), name="evidence", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the limit of threads is met, by the program or by this very failure
            self._run(look)

    def facts(self, deadline: float) -> list[Fact]:
        """Nothing when there is no answer by then."""
        self._is_done.wait(max(0.0, deadline - time.monotonic()))
        return self._facts

    def _run(self, look: Callable[[], list[Fact]]) -> None:
        self._facts = _guarded(look, [])
        self._is_done.set()


def _guarded(look: Callable[[], _T], default: _T) -> _T:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 (evidence is never worth a failure of its own)
        logger.debug("no evidence: %s: %s", type(error).__name__, error)
        return default
