"""What a node sends of its ranks' last words, and when: they outlive its machine. Pure.

    epoch failed, and its programs are gone -> last lines of each rank -> all of the one asked for

The registry knows the first cause, and asks for all of it. A node that cannot send within a moment
leaves all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic_core import to_json

from rendezvous.frozen import frozen
from rendezvous.wire.last_words import (
    LAST_LINES,
    MOST_PIECES,
    MOST_TEXTS,
    PIECE_BYTES,
    LastWords,
    RankText,
    clean_text,
)
from rendezvous.wire.words import printable
from worker.agent import actions as do
from worker.agent.state import IN_ORDER, ProgramState, Turn

SEND_SECONDS = 2.0
"""For all that a node sends; the end of a run waits no longer."""
_SPREAD = 800
"""So many nodes, one each millisecond: the registry has other things to do. A node that is silent
for a second counts as lost."""
_BETWEEN_SPREAD = 4
"""By how much slower they send between two epochs, when nobody waits for it."""
_WIDTH = 400
_MOST_BATCHES = 4


# --- when -----------------------------------------------------------------------------------------


def begin_at_end(turn: Turn) -> bool:
    """Send them before this node leaves, where its run has failed; whether it does."""
    node, known = turn.node, turn.node.result
    in_order = node.ends is not None and node.ends.cause in IN_ORDER
    if known is None or known.result.status != "failed" or node.program is None or not in_order:
        return False
    if not _has_printed(node.program):
        return False
    is_first = known.result.slot == node.rules.slot
    _begin(turn, node.program, 0.0 if is_first else _turn_of(node.rules.slot))
    return True


def begin_between(turn: Turn, program: ProgramState) -> None:
    """Send them while the next epoch begins, where that of the program has failed."""
    if program.epoch_failed and turn.node.ends is None and _has_printed(program):
        _begin(turn, program, _BETWEEN_SPREAD * _turn_of(turn.node.rules.slot))


def _has_printed(program: ProgramState) -> bool:
    return program.gone and program.ending is not None


def _turn_of(slot: int) -> float:
    """Seconds after which it is this slot's turn."""
    return slot % _SPREAD / 1000


def _begin(turn: Turn, program: ProgramState, wait: float) -> None:
    assert program.ending is not None
    first = program.ending.failed_rank
    rank = first.rank if first is not None else program.words.rank
    turn.begin(
        do.SendWords,
        program=program.number,
        epoch=program.epoch,
        rank=rank,
        wait=wait,
        limit=wait + SEND_SECONDS,
    )


# --- what -----------------------------------------------------------------------------------------


@frozen
class Printed:
    """What the ranks of a program have printed last.

    Attributes:
        node: The number of their node.
        lines: By global rank, the newest last; None: of those that share their output.
    """

    node: int
    lines: Mapping[int | None, Sequence[str]]


def last_lines(epoch: int, printed: Printed) -> Iterator[LastWords]:
    """The last lines of each rank, as many of them in one message as it has room for."""
    texts = [
        RankText(rank=rank, text=text)
        for rank, lines in printed.lines.items()
        if (text := "\n".join(printable(_text(line), _WIDTH) for line in _last(lines)))
    ]
    for _ in range(_MOST_BATCHES):
        batch, room = list[RankText](), PIECE_BYTES
        while texts and len(batch) < MOST_TEXTS:
            room -= _size(texts[0].text)
            if room < 0 and batch:
                break
            batch.append(texts.pop(0))
        if not batch:
            return
        yield LastWords(epoch=epoch, node=printed.node, texts=batch)


def _last(lines: Sequence[str]) -> Sequence[str]:
    return [line for line in lines if line.strip()][-LAST_LINES:]


def whole_text(epoch: int, printed: Printed, rank: int | None) -> Iterator[LastWords]:
    """All that is known of one rank, piece by piece; where it shares its output, all of that."""
    rank = rank if rank in printed.lines else None
    pieces = list(_pieces(printed.lines.get(rank, ())))[-MOST_PIECES:]
    for part, piece in enumerate(pieces):
        text = RankText(rank=rank, text="\n".join(piece), whole=True, part=part)
        yield LastWords(epoch=epoch, node=printed.node, texts=[text])


def _pieces(lines: Sequence[str]) -> Iterator[list[str]]:
    piece, room = list[str](), PIECE_BYTES
    for line in map(_text, lines):
        room -= _size(line)
        if room < 0 and piece:
            yield piece
            piece, room = [], PIECE_BYTES - _size(line)
        piece.append(line)
    if piece:
        yield piece


def _text(line: str) -> str:
    return clean_text(line.rstrip().expandtabs(4))


def _size(text: str) -> int:
    """As JSON, with what separates it from the next one."""
    return len(to_json(text)) + 2
