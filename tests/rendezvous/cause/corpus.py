"""The recorded failures of `tests/causes`, as the nodes of a run have seen them, or would have.

Of the first corpus (`outputs`) only what was printed is known, and how the ranks ended: one that
ended long after the first failure would have been stopped by then, and lives. Of the later ones
their nodes' reports are kept, too.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from rendezvous.cause.clues import Line, find_clues
from rendezvous.cause.facts import FactKind
from rendezvous.cause.seen import NodeSeen, ended_by_itself
from rendezvous.compat import tomllib
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Clue, Evidence, Fact, RankEnd
from rendezvous.wire.reports import ExitReport
from tests.rendezvous.cause.verdicts import Expected

CAUSES = Path(__file__).parents[2] / "causes"
OUTPUTS = CAUSES / "outputs"
LATER = ("second", "third", "fourth")
BEGAN = 1000.0
_LATE_SECONDS = 10.0
_TOLD = -15
_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
_OF_TORCHRUN = re.compile(r"[WE]\d{4} \S+ \d+ (\S*/)?torch/")

USUAL = (
    Fact(kind=FactKind.SHARED_MEMORY, path="/dev/shm", value=1 << 30, limit=1 << 31),
    Fact(kind=FactKind.RLIMIT, path="nofile", limit=1024),
    Fact(kind=FactKind.RLIMIT, path="memlock", limit=1 << 16),
)
"""What a node tells of any failure."""
BLAMES_NOBODY = frozenset({"watchdog_stuck", "size_mismatch", "desync", "ib_path", "ib_queue_pair"})
"""Between ranks: none of them need be the odd one."""
UNKNOWN = frozenset({"early-end-tidy.1x4"})
"""The guilty rank was still at its end when the others lost it: nothing tells it from them."""


@frozen
class Entry:
    """One run of the first corpus; `ends` are exit codes and seconds, of those that have ended."""

    name: str
    layout: str
    cause: str
    guilty: int
    others: str
    scheduler: str
    facts: tuple[Fact, ...]
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

    @property
    def expected(self) -> Expected:
        """What a right sentence has."""
        nobody = self.id in UNKNOWN or self.cause in BLAMES_NOBODY
        blamed = () if nobody or self.guilty < 0 else (self.guilty,)
        row = "" if self.id in UNKNOWN else self.cause
        known = self.name != "torchrun-killed"
        return Expected(len(self.nodes[0]), blamed, row=row, ranks_known=known)


def _entry(run: dict[str, Any]) -> Entry:
    return Entry(
        texts=tuple((OUTPUTS / name).read_text() for name in run["files"]),
        ends={one["rank"]: (one["exit"], float(one["after"])) for one in run["ranks"]},
        facts=tuple(map(Fact.model_validate, run.get("facts", []))),
        scheduler=run.get("scheduler", ""),
        **{key: run[key] for key in ("name", "layout", "cause", "guilty", "others")},
    )


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
        facts=[*USUAL, *entry.facts],
    )
    code = 137 if whole else (143 if silent else max(end.exit_code or 0 for end in found))
    report = ExitReport(epoch=1, exit_code=code, stopped=silent, evidence=evidence)
    if entry.guilty >= 0 and slot != entry.guilty_slot:
        began -= how.early
    fails = bool(failed) or whole
    return NodeSeen(slot, BEGAN + began, report, fails, ranks, None, entry.scheduler)


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
        return find_clues(Line(_PREFIX.sub("", line)) for line in lines)
    codes = {rank: entry.ends[rank][0] for rank in entry.nodes[slot] if rank in entry.ends}
    failed = [rank for rank, code in codes.items() if code not in (0, _TOLD)]
    if words == "printed" or len(failed) != 1:
        return find_clues(map(Line, lines))
    until = next((n for n, line in enumerate(lines) if _OF_TORCHRUN.match(line)), len(lines))
    own = [Line(line, failed[0]) for line in lines[:until]]
    return find_clues([*own, *map(Line, lines[until:])])


@frozen
class Fault:
    """One fault of the later corpora; `at_first` is how it was told when it was first run."""

    name: str
    folder: Path
    at_first: str
    expected: Expected

    def output_of(self, slot: int) -> Path:
        """Where the output of a node is kept."""
        return self.folder / f"{self.name}.node{slot}.txt"

    @property
    def seen_in(self) -> Path:
        """Where what was seen of its nodes is kept."""
        return self.folder / f"{self.name}.json"

    def nodes(self) -> list[NodeSeen]:
        """How its nodes were seen."""
        return [
            NodeSeen(
                slot=node["slot"],
                began_at=node["began_at"],
                report=ExitReport.model_validate(node["report"]),
                failed=node["failed"],
                ranks=range(*node["ranks"]),
            )
            for node in json.loads(self.seen_in.read_text())
        ]

    def nodes_again(self, *, bare: bool = False) -> list[NodeSeen]:
        """The same, with the clues that their output has today; `bare`: of no rank."""
        return [self._again(node, bare=bare) for node in self.nodes()]

    def _again(self, node: NodeSeen, *, bare: bool) -> NodeSeen:
        """Whose a line without a rank is counts as known where one rank has failed, or where the
        report has it among the last ones of a rank."""
        if not node.failed:
            return node
        assert node.report is not None
        assert node.report.evidence is not None
        text = self.output_of(node.slot).read_text()
        lines = (_PREFIX.sub("", text) if bare else text).split("\n")
        failed = ended_by_itself(node.report.evidence.ranks)
        rank = failed[0].rank if len(failed) == 1 and not bare else None
        own = [*takewhile(lambda line: not _OF_TORCHRUN.match(line), lines)]
        of_tail = set() if bare or rank is not None else last_of_its_rank(own, node.report.tail)
        ranks = [node.report.rank if n in of_tail else rank for n in range(len(own))]
        found = find_clues([*map(Line, own, ranks), *map(Line, lines[len(own) :])])
        evidence = node.report.evidence.model_copy(update={"clues": found})
        return replace(node, report=node.report.model_copy(update={"evidence": evidence}))


def last_of_its_rank(lines: list[str], tail: list[str]) -> set[int]:
    """Where the report's last lines stand, which are those of the rank that failed first."""
    said = [number for number, line in enumerate(lines) if line.strip()]
    for begin in range(len(said) - len(tail) + 1):
        found = said[begin : begin + len(tail)]
        if [lines[number].rstrip() for number in found] == tail:
            return {*found}
    return set()


def _faults(folder: Path) -> list[Fault]:
    index = tomllib.loads((folder / "index.toml").read_text())
    return [Fault(one["name"], folder, one["at_first"], _expected(one)) for one in index["fault"]]


def _expected(one: dict[str, Any]) -> Expected:
    keys = ("between", "certain", "never", "ranks_known")
    more = {key: one[key] for key in keys if key in one}
    return Expected(one["each"], tuple(one["blamed"]), tuple(one["says"]), **more)


FAULTS = [fault for name in LATER for fault in _faults(CAUSES / f"{name}_outputs")]
