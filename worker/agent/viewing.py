"""A view: somebody looks at the output of a run, and the nodes that have it send lines. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pydantic_core import to_json

from rendezvous.wire.log_view import MAX_PARTS, MAX_POST_LINES, POST_BYTES, ViewOrder, ViewPart
from rendezvous.wire.watch import NodeView
from worker.agent.actions import ServeView
from worker.agent.looking import ANSWERS_A_SECOND
from worker.agent.state import Turn

LAG_LETTERS = 256 << 10
"""What a view that follows holds of lines that cannot be sent yet: the newest."""
LAST_LETTERS = 32 << 10
"""The same once its node is about to leave: what one post takes."""
MOST_VIEWS = 8
"""A node serves no more at a time, whatever a registry asks for."""


def asked(turn: Turn, view: NodeView) -> None:
    """Serve the views that this node has not heard of before, where it has what they show."""
    member, agreed = turn.node.member, turn.node.agreed
    if member is None or not view.views:
        return
    new = [order for order in view.views if order.view not in member.views]
    turn.set_member(views=tuple(order.view for order in view.views))
    if agreed is None:
        return
    row = next(row for row in agreed.table.rows if row.slot == turn.node.rules.slot)
    first = agreed.table.first_process(row.rank)
    everyone = range(first, first + row.nproc_per_node)
    for order in new[-MOST_VIEWS:]:
        if (ranks := ranks_shown(order, row.rank, everyone)) is not None:
            turn.do(
                ServeView(
                    order=order,
                    node=row.rank,
                    ranks=ranks,
                    siblings=tuple(everyone),
                    epoch=agreed.table.epoch,
                    delay=row.rank / ANSWERS_A_SECOND,
                )
            )


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
