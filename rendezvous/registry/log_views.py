"""The views of one run: lines of its programs' output, for those who look at it now.

Nodes hear of a view with their watch, and send lines for as long as somebody reads them. All is
kept in memory until it is read, and no more than the limits below: a node that is told to wait
skips what comes too fast. The registry never dials a node, and nothing of it is journalled.

A view that follows outlives an epoch: where another node takes a slot, it is asked as well. A view
of an older epoch asks who is in the slots of those that ran it, as a folder may be shared; where
that is another node which has nothing, it is said who is gone.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic_core import to_json

from rendezvous.registry.last_words import has_failed
from rendezvous.registry.waiters import Waiters
from rendezvous.run.leases import Key
from rendezvous.run.placement import Placed, Placement, in_epoch
from rendezvous.run.state import GONE, Run
from rendezvous.serving.answers import Body
from rendezvous.wire.errors import Forbidden, NotFound, RunOver, TooManyRequests
from rendezvous.wire.log_view import (
    RunView,
    ViewCall,
    ViewNode,
    ViewOrder,
    ViewPiece,
    ViewPost,
    ViewReply,
    ViewRequest,
)
from rendezvous.wire.run import Phase
from rendezvous.wire.words import numbers_text

READER_SECONDS = 30.0
"""A view whose reader has not asked for so long is over."""
SILENT_SECONDS = 15.0
"""A node that has not sent anything for so long is not waited for; one that lives sends every 5."""
RUN_BYTES, RUN_RATE = 8 << 20, 512 << 10
ALL_BYTES, ALL_RATE = 64 << 20, 4 << 20
MOST_VIEWS = 8
_ANSWER_BYTES = 1 << 20
_FULL_SECONDS = 1.0
_MOST_PAUSE = 60.0
_MOST_NODES = 64


class Budget:
    """Bytes a second: who takes them waits for what was taken before. Pure.

    Args:
        rate: Bytes a second; as many may be taken at once after a pause.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left = rate
        self._at = float("-inf")

    def take(self, amount: int, now: float) -> float:
        """Take them; returns the seconds after which there is something to take again."""
        earned = max(0.0, now - self._at) * self._rate
        self._left = min(self._rate, self._left + earned) - amount
        self._at = max(now, self._at)
        return max(0.0, -self._left / self._rate)


class Limits:
    """What views may take: those of one run, or all of a registry."""

    def __init__(self, most: int = ALL_BYTES, rate: float = ALL_RATE) -> None:
        self.most = most
        self.held = 0
        self.budget = Budget(rate)
        self._users: set[LogViews] = set()

    def used_by(self, views: LogViews, now: float) -> None:
        """Count these too, and let go of what nobody reads any more, of whichever run."""
        self._users.add(views)
        for each in [*self._users]:
            each.drop_unread(now)
            if not each.held_bytes and each is not views:
                self._users.discard(each)


@dataclass
class _View:
    order: ViewOrder
    asked: Mapping[int, Placed]
    newest: Placement | None
    began_at: float
    read_at: float
    numbers: dict[Key, int] = field(default_factory=dict)
    heard_at: dict[int, float] = field(default_factory=dict)
    done: dict[int, str] = field(default_factory=dict)
    pieces: deque[tuple[int, bytes]] = field(default_factory=deque)
    seq: int = 0
    size: int = 0
    waiters: Waiters = field(default_factory=Waiters)

    def left(self, run: Run) -> list[int]:
        """The slots that may still send something."""
        return [slot for slot in self.asked if slot not in self.done and _is_here(run, slot)]

    def silent_in(self, run: Run, now: float) -> float:
        """Seconds until nobody is waited for any more, if nothing comes."""
        if self.order.follow and run.rules.is_forming:
            return SILENT_SECONDS  # who has no ranks yet has nothing to send
        began_at = self.began_at
        if run.phase is Phase.RUNNING:
            began_at = max(began_at, run.phase_since)
        heard = [max(self.heard_at.get(slot, began_at), began_at) for slot in self.left(run)]
        return max(heard, default=float("-inf")) + SILENT_SECONDS - now

    def is_over(self, run: Run, now: float) -> bool:
        return self.silent_in(run, now) <= 0

    def go_on(self, run: Run) -> None:
        """Ask also the nodes that have taken the places of others."""
        newest = in_epoch(run.starts.placements, None)
        if self.order.follow and newest is not self.newest:
            self.newest = newest
            with suppress(NotFound, RunOver):
                self.asked = {**self.asked, **_asked(run, self.order)}


class LogViews:
    """Those of one run."""

    def __init__(self) -> None:
        self._open: dict[int, _View] = {}
        self._number = secrets.randbits(48)
        """Not from 1: a node that knows a view of a registry before this one is to see another."""
        self._limits = Limits(RUN_BYTES, RUN_RATE)
        self._shared = Limits()

    def open(self, run: Run, request: ViewRequest, now: float, shared: Limits) -> ViewCall:
        """Ask the nodes for these lines.

        Raises RunOver, Forbidden where no program was started, NotFound for a rank that the run
        does not have, TooManyRequests.
        """
        self._shared = shared
        shared.used_by(self, now)
        asked = _asked(run, request)
        if len(self._open) >= MOST_VIEWS:
            raise TooManyRequests(
                f"run '{run.id}' has {MOST_VIEWS} views of its output, and that is the most",
                hint=f"a view ends {READER_SECONDS:.0f} s after its reader",
            )
        self._number += 1
        order = ViewOrder(view=self._number, **dict(request))
        newest = in_epoch(run.starts.placements, None)
        self._open[self._number] = _View(order, asked, newest, now, now)
        return ViewCall(view=self._number)

    def newest(self, now: float) -> int:
        """The number of the newest view that somebody reads; 0: nobody does."""
        if self._open:
            self.drop_unread(now)
        return max(self._open, default=0)

    def orders(self, now: float) -> list[ViewOrder]:
        """What nodes are to serve, the newest last."""
        return [view.order for view in self._open.values() if _is_read(view, now)]

    def take(self, key: Key, post: ViewPost, now: float) -> ViewReply:
        """Keep what the node with this slot and incarnation sends, if there is room."""
        view, slot = self._open.get(post.view), key[0]
        if view is None or not _is_read(view, now) or slot not in view.asked:
            return ViewReply(goes_on=False)
        view.heard_at[slot] = now
        if post.number <= view.numbers.get(key, 0):  # sent again, as its answer was lost
            return ViewReply(goes_on=not post.done)
        wait = 0.0
        if post.parts:
            node = view.asked[slot]
            piece = ViewPiece(
                seq=view.seq + 1, node=node.node, hostname=node.hostname, parts=post.parts
            )
            written = to_json(piece)
            wait = self._room(len(written), now)
            if wait < 0:
                return ViewReply(goes_on=True, taken=False, wait=_FULL_SECONDS)
            view.seq += 1
            view.pieces.append((view.seq, written))
            view.size += len(written)
        view.numbers[key] = post.number
        if post.done:
            view.done[slot] = post.words
        view.waiters.wake_all()
        return ViewReply(goes_on=not post.done, wait=min(wait, _MOST_PAUSE))

    def _room(self, size: int, now: float) -> float:
        """Take it from all limits; returns for how long nothing more is to come, -1: no room."""
        limits = (self._limits, self._shared)
        if any(one.held + size > one.most for one in limits):
            return -1.0
        for one in limits:
            one.held += size
        return max(one.budget.take(size, now) for one in limits)

    async def wait(self, run: Run, number: int, after: int, seconds: float, now: float) -> None:
        """Until there is something after that piece, or nothing will come, or the time is over."""
        view = self._open.get(number)
        if view is None:
            return
        view.read_at = now
        if view.seq <= after and not view.is_over(run, now):
            await view.waiters.wait(min(seconds, view.silent_in(run, now)))

    def written(self, run: Run, number: int, after: int, now: float) -> Body:
        """What there is after that piece; what is before is not kept. Raises NotFound."""
        self.drop_unread(now)
        view = self._open.get(number)
        if view is None:
            raise NotFound(f"there is no view {number} any more", hint="open another one")
        view.read_at = now
        while view.pieces and view.pieces[0][0] <= after:
            self._let_go(view, len(view.pieces.popleft()[1]))
        sent: list[bytes] = []
        size = 0
        for _, piece in view.pieces:
            if sent and size + len(piece) > _ANSWER_BYTES:
                break
            sent.append(piece)
            size += len(piece)
        over = view.is_over(run, now) and len(sent) == len(view.pieces)
        head = RunView(view=number, over=over, nodes=_without(view, run) if over else [])
        written = head.model_dump_json(exclude={"pieces"}).encode()
        return Body(written[:-1] + b',"pieces":[' + b",".join(sent) + b"]}")

    def drop_unread(self, now: float) -> None:
        """End the views that nobody reads any more."""
        for number, view in [*self._open.items()]:
            if not _is_read(view, now):
                del self._open[number]
                self._let_go(view, view.size)
                view.waiters.wake_all()

    def _let_go(self, view: _View, size: int) -> None:
        view.size -= size
        self._limits.held -= size
        self._shared.held -= size

    def run_changed(self, run: Run) -> None:
        """Answer everyone who waits: there may be other nodes, or nothing will come."""
        for view in self._open.values():
            view.go_on(run)
            view.waiters.wake_all()

    def close(self) -> None:
        """Another run has this name: nobody reads them any more."""
        self.drop_unread(float("inf"))

    @property
    def held_bytes(self) -> int:
        """What is kept for readers."""
        return self._limits.held


def _is_read(view: _View, now: float) -> bool:
    return now - view.read_at <= READER_SECONDS


def _is_here(run: Run, slot: int) -> bool:
    node = run.slots[slot].node
    return node is not None and node.state not in GONE


def _without(view: _View, run: Run) -> list[ViewNode]:
    """The nodes that have shown nothing, and why."""
    found = []
    over = run.phase is Phase.FINISHED
    sent = {slot for slot, _ in view.numbers}
    for slot, node in view.asked.items():
        if _is_here(run, slot):
            words = view.done.get(slot, "it did not answer")
        else:  # that it leaves a run that has ended is no news
            words = view.done.get(slot, "" if over and slot in sent else "it has left")
        if words and view.order.epoch is not None and not _is_same(run, node):
            words = _words_of_gone(run, view.order, node)
        if words:
            found.append(ViewNode(node=node.node, hostname=node.hostname, words=words))
    return found[:_MOST_NODES]


def _is_same(run: Run, placed: Placed) -> bool:
    """Whether the node that ran these ranks is still in its slot."""
    node = run.slots[placed.slot].node
    return (
        _is_here(run, placed.slot) and node is not None and node.incarnation == placed.incarnation
    )


def _words_of_gone(run: Run, order: ViewOrder, placed: Placed) -> str:
    """Who ran it, and what there is in place of its log."""
    ranks = [order.rank] if order.rank is not None else placed.ranks
    words = f"it ran {numbers_text(ranks)} in epoch {order.epoch}"
    if placed.slot != placed.node:
        words += f" (slot {placed.slot})"
    words += ", and has left with its log; "
    if order.epoch is not None and has_failed(run, order.epoch):
        folder = f"last-words/epoch-{order.epoch}"
        return f"{words}if it sent its last lines, they are in {folder} of the run's state folder"
    return f"{words}nodes send their last lines only in an epoch that fails"


def _asked(run: Run, request: ViewRequest) -> dict[int, Placed]:
    """The nodes that ran what is wanted, by slot."""
    if run.phase is Phase.FINISHED:
        raise RunOver(f"run '{run.id}' has ended: {run.result.message if run.result else ''}")
    placement = in_epoch(run.starts.placements, request.epoch)
    if placement is None:
        raise Forbidden(
            f"run '{run.id}' is {run.phase}: no program runs whose output could be read",
            hint=f"'rdzv status {run.id}' shows what it waits for",
        )
    nodes = placement.nodes
    chosen = [
        node
        for node in nodes
        if (request.rank is None or request.rank in node.ranks)
        and request.node in (None, node.node)
    ]
    then = "" if request.epoch is None else f" in epoch {request.epoch}"
    if not chosen and request.rank is not None:
        last = nodes[-1].ranks[-1]
        raise NotFound(f"run '{run.id}' has the ranks 0 to {last}{then}, but not {request.rank}")
    if not chosen:
        last = nodes[-1].node
        raise NotFound(f"run '{run.id}' has the nodes 0 to {last}{then}, but not {request.node}")
    return {node.slot: node for node in chosen}
