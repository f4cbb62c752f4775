"""The ranks of a run: which of them the others missed, and which failed without ending. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rendezvous.cause.clues import LOGGED, row_of
from rendezvous.cause.collectives import odd_one
from rendezvous.cause.lines import Tells, is_warning, tells, without_numbers
from rendezvous.cause.others import COMMUNICATION, has_waited, is_together, ranks_in
from rendezvous.cause.seen import Judged, NodeSeen, Proof, Suspect, ended_by_itself
from rendezvous.cause.table import BY_CODE, BY_ID, OF_DEVICES, Kind
from rendezvous.cause.telling import WAITED, WAITING, by_facts
from rendezvous.cause.tracebacks import CONSEQUENCES, TOLD_OF_RANK
from rendezvous.wire.evidence import Clue, RankEnd

_NAMED = re.compile(
    r"Ranks? ([\d, ]+) failed to pass monitoredBarrier|keys: /default_pg/\d+//cpu//\d+/(\d+)\b"
)
"""The ranks that torch's monitored barrier has missed, and the one whose address Gloo waits for."""
_RANK = re.compile(r"\b(?:[Rr]anks?|in process)[ :=]{0,2}(\d{1,9})\b")
_TOLD_OF = re.compile(
    r"\(RANK (?P<rank>\d{1,9})\) (?P<words>.*)|ranks:dict_keys\(\[(?P<key>\d{1,9})[\d, ]*\]\)$"
)
"""What another rank has raised, in the words of all."""
_TIDY_SECONDS = 2.0
"""A rank that ends tidily has closed its connections before: so much later it may be gone."""
_LATELY_SECONDS = 5.0
_REACTION_SECONDS = 0.1
"""How often torchrun looks whether a rank has failed, to end the others."""
_UNREACHED = re.compile(
    r"client socket has (timed out|failed)|TCP client failed to connect|trying to connect to \("
)
"""What torch says of a store that it cannot reach; a warning of it may be got over."""
_UNREACHED_AT_LAST = re.compile(
    r"client socket has (timed out|failed to connect to any)|trying to connect to \("
)
_AT_START = re.compile(r"DistStoreError|/default_pg/0|waiting for clients|client socket has|c10d")


class Ranks:
    """All ranks of a run, with what each has said."""

    def __init__(self, nodes: Sequence[NodeSeen], suspects: Sequence[Suspect]) -> None:
        self._failed_at: dict[int, float] = {}
        """When the first process of a node that failed was over."""
        for one in suspects:
            if one.ended_at is not None:
                earlier = self._failed_at.get(one.slot, one.ended_at)
                self._failed_at[one.slot] = min(earlier, one.ended_at)
        self._nodes = nodes
        self.count = sum(len(node.ranks) for node in nodes)
        self._ends: dict[int, RankEnd] = {}
        self._slots: dict[int, NodeSeen] = {}
        self._clues: dict[int, list[Clue]] = {}
        self._said: dict[int | None, list[Clue]] = {}
        self._failed: set[int | None] = set()
        self._told = all(node.report is not None for node in nodes)
        self._lost = any(one.is_consequence for one in suspects)
        for node in nodes:
            evidence = node.evidence()
            self._slots |= dict.fromkeys(node.ranks, node)
            ends = evidence.ranks or _implied(node)
            self._ends |= {end.rank: end for end in ends if end.rank in node.ranks}
            self._failed |= {end.rank for end in ended_by_itself(ends)}
            for clue in evidence.clues:
                self._said.setdefault(clue.rank, []).append(clue)
                rank = node.ranks[0] if len(node.ranks) == 1 else clue.rank
                if rank is not None:
                    self._clues.setdefault(rank, []).append(clue)

    def judge(self, first: Suspect) -> Judged:
        """Look for the rank that the others have missed."""
        waiting = [rank for rank in self._slots if self._suffers(rank)]
        silent = tuple(node.slot for node in self._nodes if node.report is None)
        told = partial(Judged, first=first, waiting=len(waiting), of=self.count, silent=silent)
        for found in self._missed(first):
            cause, *others = found
            together = tuple(one.rank for one in others if one.rank is not None)
            return told(cause, together=together)
        kinds = ((BY_ID[clue.id].kind, clue) for clue in self._all_clues() if clue.id in BY_ID)
        if (clue := next((clue for kind, clue in kinds if kind is Kind.BETWEEN), None)) is not None:
            cause = replace(first, row=clue.id, clue=clue, proof=Proof.LINE)
            return told(cause, blames=False, named=self.of_row(clue.id))
        all_wait = len(waiting) == self.count > 1
        if all_wait and all(self._waits(rank) for rank in waiting):
            words = odd_one(clue.line for clue in self._all_clues()).words
            clue = Clue(id="desync", line=words) if words else first.clue
            cause = Suspect(first.slot, "desync", first.at, Proof.LINE, None, first.code, clue)
            return told(cause, blames=False)
        if first.row == COMMUNICATION and first.clue and self._is_common(first.clue.line):
            by_code = BY_CODE.get(first.code or 0, "exit_code")
            return Judged(replace(first, row="all_alike" if first.clue.raised else by_code), first)
        return told(first, blames=False, named=self._witnessed(), apart=self._apart())

    def saying(self, line: str) -> int:
        """Return how many ranks have said this, whatever its numbers are."""
        words = without_numbers(line)
        each = ({without_numbers(one.line) for one in own} for own in self._clues.values())
        return sum(words in said for said in each)

    def _is_common(self, words: str) -> bool:
        """Return whether a library has told all ranks the same, which is of none of the others."""
        alike = self.saying(words) == self.count > 1
        return alike and is_together(words) and not (has_waited(words) or ranks_in(words))

    def _witnessed(self) -> tuple[int, ...]:
        """The ranks that others speak of, where what they have suffered is told."""
        found = {
            rank
            for clue in self._all_clues()
            if clue.rank is not None and (clue.id in CONSEQUENCES or clue.id == LOGGED)
            for rank in ranks_in(clue.line) - {clue.rank}
        }
        return tuple(sorted(found & {rank for rank in self._slots if not self._suffers(rank)}))

    def _apart(self) -> tuple[tuple[int, str], ...]:
        """The ranks that are not known to have waited, with what they have raised, or else their
        last lines, the latest first."""
        found = []
        for rank, node in self._slots.items():
            failed = rank in self._failed or self._suffers(rank) or self._succeeded(rank)
            if not failed and node.report is not None:
                said = self._said.get(rank, [])
                raised = [one for one in said if one.raised]
                last = next(reversed(raised or said), None)
                at = node.at(last.at) if last is not None else -math.inf
                found.append((bool(raised), at, rank, last.line if last is not None else ""))
        found.sort(reverse=True)
        return tuple((rank, words * (one == found[0][0])) for one, _, rank, words in found)

    def _suffers(self, rank: int, until: float = math.inf) -> bool:
        """Return whether it waited, or lost another one, until then."""
        if self._succeeded(rank):
            return False
        suffered = [clue for clue in self._clues.get(rank, []) if clue.id in CONSEQUENCES]
        at = self._slots[rank].at
        return any(clue.at is None or at(clue.at) <= until for clue in suffered)

    def _waits(self, rank: int) -> bool:
        return any(clue.id in WAITING for clue in self._clues.get(rank, []))

    def _missed(self, first: Suspect) -> Iterator[list[Suspect]]:
        """Candidates for the rank that was missed, the most certain first."""
        others = [rank for rank in self._slots if not self._suffers(rank)]
        alive = [rank for rank in others if self._lives(rank)]
        yield from self._told_of(first)
        yield from self._unreached(first)
        stopped = [rank for rank in alive if self._ends[rank].state in ("T", "t")]
        named = self._named_by_others()
        if stopped:
            yield [self._named(rank, "stopped_process", first.at, Proof.FACT) for rank in stopped]
        if failing := self.failing(math.inf):
            yield failing
        unread = {rank for rank in self._slots if not self._is_read(rank)}
        known = [rank for rank in others if unread.isdisjoint(self._slots[rank].ranks)]
        ended = [rank for rank in known if self._ended_early(rank, first.at)]
        early = [
            self._named(rank, "early_end", self._ended_at(rank), Proof.FACT, self._last_said(rank))
            for rank in sorted(ended, key=self._ended_at)
        ]
        nobody_lost = not self._lost and len(others) == len(self._slots)
        well = sum(map(self._succeeded, self._slots)) + len(unread)  # those may have, too
        if nobody_lost or well * 2 > self.count:
            early = []  # nobody missed them; or who went on is the odd one, or they are as many
        if early and (not alive or set(ended) & set(named)):
            yield early
        row = "late_rank" if self._was_starting() else "absent_rank"
        missed = [named] if named else []
        if self._told and self._are_missed(alive):
            missed.append(alive)
        for ranks in missed:
            yield [self._absent(rank, row, first.at) for rank in ranks]
        if early and not (alive and first.row == COMMUNICATION):
            yield early

    def _told_of(self, first: Suspect) -> Iterator[list[Suspect]]:
        """The rank of which others say what it has raised; its own words tell where.

        One that says something else has not taken part: ranks of another group are meant.
        """
        told = [clue for clue in self._all_clues() if clue.id == TOLD_OF_RANK]
        named = [(clue, match) for clue in told if (match := _TOLD_OF.search(clue.line))]
        for clue, match in sorted(named, key=lambda each: each[0].rank != _rank_in(each[1])):
            rank, words = _rank_in(match), match["words"] or clue.line
            own = self._clues.get(rank, [])
            row = (row_of(match["words"]) if match["words"] else None) or "exception"
            elsewhere = bool(own) and all(one.id != TOLD_OF_RANK for one in own)
            if rank in self._slots and BY_ID[row].kind is Kind.OWN and not elsewhere:
                said = clue.model_copy(update={"id": row, "line": words, "rank": rank})
                yield [self._named(rank, row, first.at, Proof.LINE, said)]

    def _unreached(self, first: Suspect) -> Iterator[list[Suspect]]:
        """Those that could not reach the store, where at least as many others have, or all."""
        named = self._named_by_others()
        found = {}
        for rank, node in self._slots.items():
            own, form = self._clues.get(rank, []), _UNREACHED_AT_LAST
            if rank in named:
                own, form = own or node.evidence().clues, _UNREACHED
            clue = next((one for one in reversed(own) if form.search(one.line)), None)
            has_reached = any(one.raised and not form.search(one.line) for one in own)
            fails = not self._succeeded(rank) and (rank in named or not has_reached)
            if clue is not None and fails:
                found[rank] = self._named(rank, "store_unreachable", first.at, Proof.LINE, clue)
        for node in self._nodes:
            evidence = node.evidence()
            said = [one for one in evidence.clues if _UNREACHED_AT_LAST.search(one.line)]
            if node.failed and said and not evidence.ranks and node.report is not None:
                # A launcher, whose ranks have never been.
                code, row = node.report.exit_code, "store_unreachable"
                one = Suspect(node.slot, row, first.at, Proof.LINE, None, code, said[-1])
                found |= dict.fromkeys(node.ranks, one)
        if len(found) == self.count > 1:
            yield [replace(one, row="no_store") for one in found.values()]
        elif found and len(found) * 2 <= self.count:
            yield [*dict.fromkeys(found.values())]

    def _are_missed(self, alive: Sequence[int]) -> bool:
        """Return whether all others waited for these, or lost who did: one rank, or a whole node.

        Of several among those that waited, some may only have been ended before their time-out.
        """
        missed = set(alive)
        others = [rank for rank in self._slots if rank not in missed and self._suffers(rank)]
        clues = (clue for rank in others for clue in self._clues.get(rank, []))
        waits = len(others) if any(one.id in WAITED for one in clues) else 0
        return len(alive) == 1 <= waits == self.count - 1

    def _lives(self, rank: int) -> bool:
        """Return whether it went on until its launcher, or its agent, ended it."""
        end = self._ends.get(rank)
        if end is None or end.ended is None:
            return end is not None
        if end.exit_code is None:  # nobody has read how: it may have been ended for another one
            any_failed_at = min(self._failed_at.values(), default=math.inf)
            return self._ended_at(rank) > self._failed_at.get(self._slots[rank].slot, any_failed_at)
        return bool(end.exit_code) and rank not in self._failed

    def _is_read(self, rank: int) -> bool:
        """Return whether its node, if it has told, tells its exit code, or that it went on."""
        end = self._ends.get(rank)
        if end is None:
            return self._slots[rank].report is None
        return end.ended is None or end.exit_code is not None

    def _succeeded(self, rank: int) -> bool:
        end = self._ends.get(rank)
        return end is not None and end.exit_code == 0 and end.ended is not None

    def _named(
        self, rank: int, row: str, at: float, proof: Proof, clue: Clue | None = None
    ) -> Suspect:
        return Suspect(self._slots[rank].slot, row, at, proof, rank, clue=clue)

    def _raised(self, rank: int) -> Iterator[Suspect]:
        """The exceptions that a living rank has raised."""
        node = self._slots[rank]
        for clue in self._clues.get(rank, []):
            own = clue.id in BY_ID and BY_ID[clue.id].kind in (Kind.OWN, Kind.OUTSIDE)
            if clue.raised and clue.rank == rank and own:
                row, known = by_facts(clue.id, clue, node.evidence().facts, rank)
                proof = Proof.FACT if known else Proof.LINE
                yield replace(self._named(rank, row, node.at(clue.at), proof, clue), facts=known)

    def failing(self, before: float) -> list[Suspect]:
        """Find the rank that had failed by then without ending: its exception was its last word, or
        others lost it at once, or a device reported an error of it."""
        alive = [rank for rank in self._slots if self._lives(rank)]
        raised = [
            one for rank in alive for one in self._raised(rank) if not self._suffers(rank, one.at)
        ]
        raised = sorted((one for one in raised if one.at <= before), key=lambda one: one.at)
        last = [one for one in raised if one.clue is not None and one.clue.last]
        lost_at = self._lost_at()
        lately = [one for one in raised if 0.0 <= lost_at - one.at <= _LATELY_SECONDS]
        device = [one for rank in alive for one in self._of_device(rank) if one.at <= before]
        if len(lately) != 1:
            lately = device if len({(one.slot, one.row) for one in device}) == 1 else []
        return last[:1] or lately[:1]

    def _lost_at(self) -> float:
        """Time at which a rank first said that it had lost another one."""
        nodes = ((node, one) for node in self._nodes for one in node.evidence().clues)
        gone = (each for each in nodes if each[1].id == "peer_gone")
        lost = (
            node.at(one.at) for node, one in gone if one.raised or tells(one.line) is Tells.ERROR
        )
        return min(lost, default=math.inf)

    def _of_device(self, rank: int) -> Iterator[Suspect]:
        for clue in self._clues.get(rank, [])[-1:]:
            if clue.rank == rank and clue.id in OF_DEVICES and not is_warning(clue.line):
                at = self._slots[rank].at(clue.at)
                yield self._named(rank, clue.id, at, Proof.LINE, clue)

    def of_row(self, row: str) -> tuple[int, ...]:
        """The ranks that say this, or that others name with it."""
        clues = [clue for clue in self._all_clues() if clue.id == row]
        named = {int(number) for clue in clues for number in _RANK.findall(clue.line)}
        named |= {clue.rank for clue in clues if clue.rank is not None}
        if self.count == 2:
            named |= self._slots.keys()
        return tuple(sorted(named & self._slots.keys()))

    def _last_said(self, rank: int) -> Clue | None:
        """Why a rank may have ended, though with exit code 0."""
        own = (one for one in reversed(self._said.get(rank, [])) if one.last or one.id == LOGGED)
        return next(own, None)

    def _absent(self, rank: int, row: str, at: float) -> Suspect:
        """Name a rank that did not come, with why: its device is sick, or what it said last."""
        one = self._named(rank, row, at, Proof.LINE)
        facts = self._slots[rank].evidence().facts
        of_device, sick = by_facts("watchdog_timeout", None, facts, rank)
        if sick:
            return replace(one, row=of_device, facts=sick, proof=Proof.FACT)
        said = self._said.get(rank, [])
        stays = [clue for clue in said if clue.last or clue.id in OF_DEVICES]
        own = [clue for clue in stays if clue.id in BY_ID and BY_ID[clue.id].kind is Kind.OWN]
        if own:
            return replace(one, row=own[-1].id, clue=own[-1])
        return replace(one, clue=next(reversed(said), None))

    def _ended_early(self, rank: int, before: float) -> bool:
        if not self._succeeded(rank):
            return False
        # Who ends well after another one of its node has failed may have been told to.
        failed_at = self._failed_at.get(self._slots[rank].slot)
        latest = before + _TIDY_SECONDS if self._told else before
        if failed_at is not None:
            latest = min(latest, failed_at + _REACTION_SECONDS)
        return self._ended_at(rank) < latest

    def _ended_at(self, rank: int) -> float:
        return self._slots[rank].at(self._ends[rank].ended)

    def _was_starting(self) -> bool:
        return any(_AT_START.search(one.line) for one in self._all_clues() if one.id in WAITING)

    def _all_clues(self) -> Iterator[Clue]:
        """Those too of which nobody knows whose they are."""
        return (clue for said in self._said.values() for clue in said)

    def _named_by_others(self) -> list[int]:
        """The ranks that the words of those that waited name."""
        found = [match for clue in self._all_clues() for match in _NAMED.finditer(clue.line)]
        words = [match[1] or match[2] for match in found]
        ranks = {int(word) for each in words for word in each.replace(",", " ").split()}
        return sorted(ranks & self._slots.keys())


def _rank_in(match: re.Match[str]) -> int:
    return int(match["rank"] or match["key"])


def _implied(node: NodeSeen) -> list[RankEnd]:
    """The ranks of a node that says nothing of them: all ended well, or all were stopped; of one
    that has a single rank, its program's end is the rank's."""
    report = node.report
    if report is None:
        return []
    if report.stopped:
        return [RankEnd(rank=rank) for rank in node.ranks]
    if report.exit_code == 0 or len(node.ranks) == 1:
        return [RankEnd(rank=rank, exit_code=report.exit_code, ended=0.0) for rank in node.ranks]
    return []
