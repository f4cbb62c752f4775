"""What a node tells of the end of its program, beside its exit code. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rendezvous.cause.clues import Line, find_clues, last_lines
from rendezvous.cause.facts import FactKind
from rendezvous.wire.evidence import MAX_CLUES, MAX_FACTS, Clue, Evidence, Fact, RankEnd
from rendezvous.wire.words import printable
from worker.agent.inputs import OwnWords
from worker.agent.state import ProgramState
from worker.contracts.words import last_words
from worker.program.family import Child, Family, ranks_of

_PATH = re.compile(r"""['"](/[^'"]{1,200})['"]""")
_PORT = re.compile(r"(?:port[ =:]+|[\])\w]:|', )(\d{2,5})\b")
_ADDRESS = re.compile(
    r"address already in use|EADDRINUSE|Errno 98|Failed to add port to server", re.IGNORECASE
)
"""Words for an address that cannot be had; the last is gRPC's, whose JAX does not say why."""
_RECORD = re.compile(r"\[?[IWEF]\d{3,4} [\d:.]+ +(?:\d+ +)?\S+\] ")
"""Prefix of torch's and gRPC's lines: a time, and a line of their own sources."""
_LAST_LINES = 60
_MOST_RANKS = 128
_MOST_BYTES = 16 << 10
"""A request has 64 KiB, and half of that may be the last lines."""
_WIDTH, _NAME_WIDTH = 400, 253


def evidence_of(
    program: ProgramState, words: OwnWords, since: float, *, ended_well: bool
) -> Evidence | None:
    """What has been seen of a program's end; None where nothing is worth telling.

    What came after it was told to stop followed from that, and does not count.

    Args:
        program: As it is known.
        words: What it said, and what this machine says.
        since: When what the report tells of began.
        ended_well: By itself, with exit code 0.
    """
    if ended_well:
        return None
    until = program.stop_at
    states = {fact.rank: fact.words[:1] for fact in words.facts if fact.kind == FactKind.STATE}
    ranks = [_end(child, since, states) for child in ranks_of(program.family) if child.ranks]
    lines = [
        replace(line, at=None if line.at is None else line.at - since)
        for line in words.lines
        if until is None or line.at is None or line.at <= until
    ]
    found = find_clues(lines)
    clues, facts = _within([*found, *last_lines(lines, found)][:MAX_CLUES], words.facts[:MAX_FACTS])
    ended = sum(end.ended is not None for end in ranks)
    if not clues and not facts and ended <= 1 and not any(end.state for end in ranks):
        return None
    return Evidence(ranks=ranks[:_MOST_RANKS], clues=clues, facts=facts)


def _within(clues: Sequence[Clue], facts: Sequence[Fact]) -> tuple[list[Clue], list[Fact]]:
    """As many of them as a request has room for, facts first: they say more in less."""
    room = _MOST_BYTES

    def fits(one: Clue | Fact) -> bool:
        nonlocal room
        room -= len(one.model_dump_json().encode())
        return room >= 0

    kept = [fact for fact in facts if fits(fact)]
    return [clue for clue in clues if fits(clue)], kept


def _end(child: Child, since: float, states: dict[int | None, str]) -> RankEnd:
    assert child.ranks is not None
    ended = None if child.ended_at is None else child.ended_at - since
    state = "" if ended is not None else child.state or states.get(child.ranks.rank, "")
    return RankEnd(rank=child.ranks.rank, exit_code=child.exit_code, ended=ended, state=state)


def own_tail(words: OwnWords, rank: int | None) -> list[str]:
    """The last lines of a rank, where ranks have streams of their own; else of the whole program.

    What others say, who failed after it, would be taken for its own.
    """
    if rank is None or all(line.rank is None for line in words.lines):
        return last_words(words.tail)
    own = [line.text for line in words.lines if line.rank == rank]
    return last_words([printable(line.expandtabs(4).rstrip(), _WIDTH) for line in own])


def named_in(lines: Sequence[Line]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The paths and the ports that a program's last lines name, to be looked at."""
    newest = [_RECORD.sub("", line.text) for line in lines[-_LAST_LINES:]]
    paths = dict.fromkeys(path for text in newest for path in _PATH.findall(text))
    ports = dict.fromkeys(
        int(port) for text in newest if _ADDRESS.search(text) for port in _PORT.findall(text)
    )
    return tuple(paths), tuple(port for port in ports if 0 < port < 65_536)


def removed_in(removed: Iterable[str], lines: Sequence[Line]) -> list[Fact]:
    """Which of the variables that rdzv took out the program's last lines name."""
    named = (name for name in sorted(removed) if any(name in line.text for line in lines))
    return [Fact(kind=FactKind.REMOVED, path=printable(name, _NAME_WIDTH)) for name in named]


def pids_of(family: Family) -> dict[int, int]:
    """The processes of the ranks, by global rank."""
    return {child.ranks.rank: child.pid for child in ranks_of(family) if child.ranks}


def has_failed(family: Family) -> bool:
    """Whether a rank, or something else that the program has started, has failed."""
    return any(child.exit_code for child in family.children)
