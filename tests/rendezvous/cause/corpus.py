"""The recorded failures of `tests/causes/outputs`, as the nodes of a run would have seen them.

A rank that ended long after the first failure would have been stopped by then: it lives.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from rendezvous.cause.clues import Line, find_clues
from rendezvous.cause.facts import FactKind
from rendezvous.cause.seen import NodeSeen
from rendezvous.compat import tomllib
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Clue, Evidence, Fact, RankEnd
from rendezvous.wire.reports import ExitReport

OUTPUTS = Path(__file__).parents[2] / "causes" / "outputs"
BEGAN = 1000.0
_LATE_SECONDS = 10.0
_TOLD = -15
_PREFIX = re.compile(r"\[rank\d+\]: ?")
_OF_TORCHRUN = re.compile(r"[WE]\d{4} \S+ \d+ torch/")

USUAL = (
    Fact(kind=FactKind.SHARED_MEMORY, path="/dev/shm", value=1 << 30, limit=1 << 31),
    Fact(kind=FactKind.RLIMIT, path="nofile", limit=1024),
    Fact(kind=FactKind.RLIMIT, path="memlock", limit=1 << 16),
)
"""What a node tells of any failure."""
_OOM = Fact(kind=FactKind.OOM_KILL, path="/job", value=1, limit=700 << 20)
_FULL = Fact(kind=FactKind.SPACE, path="/data", value=0, limit=1 << 30)
FACTS = {
    "memory-limit": _OOM,
    "memory-limit-slurm": _OOM,
    "loader-memory": _OOM,
    "machine-memory": Fact(kind=FactKind.OOM_MACHINE, value=1, limit=16 << 30),
    "disk-full": _FULL,
    "disk-full-save": _FULL,
    "file-limit": Fact(kind=FactKind.RLIMIT, path="fsize", limit=1 << 20),
    "file-limit-save": Fact(kind=FactKind.RLIMIT, path="fsize", limit=1 << 20),
    "inodes": Fact(kind=FactKind.INODES, path="/data", limit=1000),
    "gpu-xid": Fact(kind=FactKind.KERNEL, words="NVRM: Xid (PCI:0000:4b:00): 79, pid=9004"),
}
NOT_IN_THE_INDEX = {"nccl-closed": {2: -9, 3: _TOLD}, "nccl-peer-gone": {2: -9, 3: _TOLD}}
"""How the ranks of the other node ended, of which a public log tells only in words."""
SCHEDULERS = {"evicted": "Evicted: The node was low on resource: memory."}


@frozen
class Entry:
    """One run of the index; `ends` are exit codes and seconds, of those that have ended."""

    name: str
    layout: str
    recorded: bool
    cause: str
    guilty: int
    others: str
    texts: tuple[str, ...]
    ends: dict[int, tuple[int, float]]

    @property
    def id(self) -> str:
        return f"{self.name}.{self.layout}"

    @property
    def nodes(self) -> list[range]:
        """The ranks of each node."""
        nodes, each = map(int, self.layout.split("x"))
        return [range(node * each, (node + 1) * each) for node in range(nodes)]

    @property
    def guilty_slot(self) -> int:
        return next((slot for slot, ranks in enumerate(self.nodes) if self.guilty in ranks), 0)


def _entry(run: dict[str, Any]) -> Entry:
    ends = {one["rank"]: (one["exit"], float(one["after"])) for one in run["ranks"]}
    ends |= {rank: (code, 0.0) for rank, code in NOT_IN_THE_INDEX.get(run["name"], {}).items()}
    texts = tuple((OUTPUTS / name).read_text() for name in run["files"])
    keys = ("name", "layout", "recorded", "cause", "guilty", "others")
    return Entry(texts=texts, ends=ends, **{key: run[key] for key in keys})


ENTRIES = [_entry(run) for run in tomllib.loads((OUTPUTS / "index.toml").read_text())["run"]]


@frozen
class Seeing:
    """How much a node sees.

    Attributes:
        words: `printed`: one stream, as it is; `bare`: without `[rankN]:`, as an older torch
            prints; `own`: a stream for each rank.
        told: What its launcher has ended is known with its exit code, else as living.
        early: By how much the nodes of the innocent were heard of earlier.
    """

    words: str = "printed"
    told: bool = False
    early: float = 0.0


def seen(entry: Entry, how: Seeing) -> list[NodeSeen]:
    """The nodes of the entry."""
    return [_node(entry, slot, ranks, how) for slot, ranks in enumerate(entry.nodes)]


def _node(entry: Entry, slot: int, ranks: range, how: Seeing) -> NodeSeen:
    ends = {rank: entry.ends[rank] for rank in ranks if rank in entry.ends}
    first = min((after for _, after in entry.ends.values()), default=0.0)
    known = {r: (code, at) for r, (code, at) in ends.items() if at - first < _LATE_SECONDS}
    failed = [at for code, at in known.values() if code]
    began = min(failed, default=min((at for _, at in known.values()), default=0.0))
    found = [_end(entry, rank, known, began, how) for rank in ranks]
    whole = entry.name == "torchrun-killed"
    # One that has failed late would be stopped before: it has said nothing yet.
    silent = not known and not whole
    evidence = Evidence(
        ranks=[] if whole else found,
        clues=[] if silent else clues_of(entry.id, slot, how.words),
        facts=[*USUAL, *([FACTS[entry.name]] if entry.name in FACTS else [])],
    )
    code = 137 if whole else (143 if silent else max(end.exit_code or 0 for end in found))
    report = ExitReport(epoch=1, exit_code=code, stopped=silent, evidence=evidence)
    if entry.guilty >= 0 and slot != entry.guilty_slot:
        began -= how.early
    fails = bool(failed) or whole
    words = SCHEDULERS.get(entry.name, "")
    return NodeSeen(slot, BEGAN + began, report, fails, ranks, None, words)


def _end(
    entry: Entry, rank: int, known: dict[int, tuple[int, float]], began: float, how: Seeing
) -> RankEnd:
    stopped = entry.cause == "stopped_process" and rank == entry.guilty
    state = "T" if stopped else ""
    code, at = known.get(rank, (None, 0.0))
    if stopped and how.told:
        code, at = entry.ends.get(rank, (None, 0.0))
    firsts = [end for end in known.values() if end[0] and (end[0] != _TOLD or end[1] == began)]
    was_told = code == _TOLD and bool(firsts) and at > began
    if code is None or (was_told and not how.told):
        return RankEnd(rank=rank, state=state or "S")
    return RankEnd(
        rank=rank, exit_code=128 - code if code < 0 else code, ended=at - began, state=state
    )


@cache
def clues_of(entry_id: str, slot: int, words: str) -> list[Clue]:
    """What the node finds in its program's output."""
    entry = next(entry for entry in ENTRIES if entry.id == entry_id)
    if slot >= len(entry.texts):
        return []
    lines = entry.texts[slot].split("\n")
    if words == "bare":
        return find_clues(Line(_PREFIX.sub("", line, count=1)) for line in lines)
    codes = {rank: entry.ends[rank][0] for rank in entry.nodes[slot] if rank in entry.ends}
    failed = [rank for rank, code in codes.items() if code not in (0, _TOLD)]
    if words == "printed" or len(failed) != 1:
        return find_clues(map(Line, lines))
    until = next((n for n, line in enumerate(lines) if _OF_TORCHRUN.match(line)), len(lines))
    own = [Line(line, failed[0]) for line in lines[:until]]
    return find_clues([*own, *map(Line, lines[until:])])
