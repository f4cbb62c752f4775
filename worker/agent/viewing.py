"""A view: somebody looks at the output of a run, and the nodes that have it send lines. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from pydantic_core import to_json

from rendezvous.wire.log_view import MAX_PARTS, MAX_POST_LINES, POST_BYTES, ViewOrder, ViewPart
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.watch import NodeView
from worker.agent.actions import ServeView
from worker.agent.questions import ANSWERS_A_SECOND
from worker.agent.state import Place, Turn

LAG_LETTERS = 256 << 10
"""What a view that follows holds of lines that cannot be sent yet: the newest."""
LAST_LETTERS = 32 << 10
"""The same once its node is about to leave: what one post takes."""
MOST_VIEWS = 8
"""A node serves no more at a time, whatever a registry asks for."""
MOST_PLACES = 32
"""The newest: they change only where a node that takes another's place has more or fewer ranks."""


def asked(turn: Turn, view: NodeView) -> None:
    """Serve the views that this node has not heard of before, where it has what they show; the
    others wait until it has."""
    member = turn.node.member
    if member is None or not view.views:
        return
    known = {order.view for order in member.waiting}
    fresh = [o for o in view.views if o.view in known or o.view not in member.views]
    numbers = tuple(order.view for order in view.views)
    turn.set_member(views=numbers, waiting=tuple(fresh[-MOST_VIEWS:]))
    _serve(turn)


def placed(turn: Turn, table: EndpointTable) -> None:
    """The programs go on this table: know what this node runs of it, and serve who waits for that.

    A node that has taken another's place has heard of views before it had any rank.
    """
    row = table.row_of_slot(turn.node.rules.slot)
    assert row is not None
    first = table.first_process(row.node)
    place = Place(table.epoch, row.node, range(first, first + row.nproc_per_node))
    places = turn.node.places
    if not places or replace(places[-1], epoch=place.epoch) != place:
        turn.set(places=(*places, place)[-MOST_PLACES:])
    _serve(turn)


def _serve(turn: Turn) -> None:
    member, places, agreed = turn.node.member, turn.node.places, turn.node.agreed
    if member is None or agreed is None or not places:
        return
    waiting: list[ViewOrder] = []
    for order in member.waiting:
        place = place_in(places, order.epoch)
        ranks = ranks_shown(order, place.node, place.ranks)
        if ranks is None:
            waiting.append(order)
            continue
        turn.do(
            ServeView(
                order=order,
                node=place.node,
                ranks=ranks,
                siblings=tuple(place.ranks),
                epoch=agreed.table.epoch,
                delay=place.node / ANSWERS_A_SECOND,
            )
        )
    turn.set_member(waiting=tuple(waiting))


def place_in(places: Sequence[Place], epoch: int | None) -> Place:
    """What a node ran in an epoch, None: in the newest; what it ran first, if that was later."""
    known = [place for place in places if epoch is None or place.epoch <= epoch]
    return known[-1] if known else places[0]


def ranks_shown(order: ViewOrder, node: int, ranks: range) -> tuple[int, ...] | None:
    """The ranks whose logs a view shows of a node that has these; none of them: the node's own log;
    None: nothing of this node."""
    if order.node is not None:
        return () if order.node == node else None
    if order.rank is not None:
        return (order.rank,) if order.rank in ranks else None
    return tuple(ranks)


class Backlog:
    """Lines that were read and not sent yet, in the order in which they were read."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int | None, str]] = deque()
        self._skipped: dict[int | None, int] = {}
        self.letters = 0

    def __bool__(self) -> bool:
        return bool(self._lines or self._skipped)

    def add(self, rank: int | None, lines: Sequence[str], *, most: int | None = None) -> None:
        """Put them behind the others; of more than `most` letters the oldest are skipped."""
        for line in lines:
            self._lines.append((rank, line))
            self.letters += len(line)
        while most is not None and self.letters > most and len(self._lines) > 1:
            whose, line = self._lines.popleft()
            self.letters -= len(line)
            self.skip(whose, 1)

    def skip(self, rank: int | None, count: int) -> None:
        """Say of so many lines that they are skipped."""
        if count:
            self._skipped[rank] = self._skipped.get(rank, 0) + count

    def take(self) -> list[ViewPart]:
        """As many as one post takes; empty: there are none."""
        parts: list[tuple[int | None, int, list[str]]] = []
        size = count = 0
        for rank, skipped in [*self._skipped.items()][: MAX_PARTS // 2]:
            parts.append((rank, skipped, []))
            del self._skipped[rank]
        while self._lines and count < MAX_POST_LINES:
            rank, line = self._lines[0]
            size += len(to_json(line)) + 1
            if count and size > POST_BYTES:
                break
            if not parts or parts[-1][0] != rank:
                if len(parts) == MAX_PARTS:
                    break
                parts.append((rank, 0, []))
            self._lines.popleft()
            self.letters -= len(line)
            parts[-1][2].append(line)
            count += 1
        return [ViewPart(rank=rank, lines=lines, skipped=n) for rank, n, lines in parts]
