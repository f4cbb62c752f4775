"""One run in a registry: its state and leases, what is told of it, and those who wait for news.

What is told changes with `publish` alone, which the service calls once the events are durable.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rendezvous.run import events
from rendezvous.run.events import Event, dump_event
from rendezvous.run.leases import Key, Leases, poll_seconds
from rendezvous.run.protocol import apply
from rendezvous.run.state import Run, create
from rendezvous.run.views import node_view, reason_and_topic, run_status
from rendezvous.schema import EventLine, NodeState, NodeView, Phase, RunSpec, RunStatus
from rendezvous.server.guard import whole_answer
from rendezvous.server.journal import Record
from rendezvous.server.metrics import Metrics
from rendezvous.server.trouble import Trouble

if TYPE_CHECKING:
    from rendezvous.server.relay import Relay

_WAKE_FIRST, _WAKE = 64, 1_000
_EVENT_LINES = 20_000
_GZIP_FROM = 16_384
_IDLE_SECONDS = 0.5
_MOST_FORMER = 8


@dataclass(frozen=True)
class Body:
    """An answer that many get: its bytes, and the same compressed when that is worth it."""

    plain: bytes
    zipped: bytes | None = None

    def answer(self, *, zipped: bool) -> bytes:
        """The whole answer, head included, made once for everyone."""
        return self._zipped_answer if zipped else self._plain_answer

    @functools.cached_property
    def _plain_answer(self) -> bytes:
        return whole_answer(self.plain)

    @functools.cached_property
    def _zipped_answer(self) -> bytes:
        assert self.zipped is not None
        return whole_answer(self.zipped, (b"content-encoding", b"gzip"))

    @staticmethod
    def of(data: bytes) -> Body:
        """Compress once, for everyone."""
        return Body(data, gzip.compress(data, 1, mtime=0) if len(data) >= _GZIP_FROM else None)


class Waiters:
    """Requests that wait for the same thing."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self, seconds: float) -> None:
        """Until woken, or the time is over."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.add(waiter)
        timer = loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.discard(waiter)

    def wake_all(self) -> None:
        """Wake everyone, many in one turn of the loop: requests are served in between.

        The caller's answer goes first, and few are woken with it: the node whose join made the
        news has yet to ask for it, and would else stand behind what all the others say next.
        """
        pending = list(self._waiting)
        self._waiting.clear()
        if pending:
            asyncio.get_running_loop().call_soon(_wake_some, pending, _WAKE_FIRST)


def _wake_some(pending: list[asyncio.Future[None]], count: int) -> None:
    for waiter in pending[:count]:
        _wake(waiter)
    if len(pending) > count:
        asyncio.get_running_loop().call_soon(_wake_some, pending[count:], _WAKE)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Host:
    """A run, with all that is not journalled.

    Args:
        name: The run id.
        spec: What its maker said.
        now: The registry's clock.
        number: Of the newest event of this name, from an earlier launch.
        trust_close: See `Leases`.
        crowded: Says why further nodes cannot call; empty when they can.
    """

    def __init__(
        self,
        name: str,
        spec: RunSpec,
        now: float,
        *,
        number: int,
        trust_close: bool,
        crowded: Callable[[], str],
    ) -> None:
        lease = spec.limits.lease_seconds
        self.run: Run = create(name, spec, now)
        self.leases = Leases(lease, poll_seconds(spec.slots, lease), trust_close=trust_close)
        self._gone: list[Key] = []
        self.launcher_at = now
        self.unwritten = Trouble()
        self._crowded = crowded
        self.number = number
        self.former: dict[str, str] = {}
        self.secrets: dict[Key, bytes] = {}
        """Of its nodes' credentials, which are derived when a node first calls."""
        self.told = 0
        self.lines: deque[EventLine] = deque(maxlen=_EVENT_LINES)
        self.nodes = Waiters()
        self.people = Waiters()
        self.metrics = Metrics()
        self._end_told: set[int] = set()
        self.relay: Relay | None = None
        self.news = Body(b"")
        self.news_seq = 0
        self.version = 0
        self._view: NodeView | None = None
        self._idle = Body(b"")
        self._idle_at = float("-inf")

    def replaces(self, old: Host) -> None:
        """Remember how launches of this name ended, for nodes that have not heard it."""
        result = old.run.result
        ended = {old.run.spec.launch_id: result.message if result else "it was replaced"}
        self.former = dict([*old.former.items(), *ended.items()][-_MOST_FORMER:])

    def apply(self, event: Event, now: float) -> Record:
        """Change the run; returns the record to journal."""
        outcome = apply(self.run, event, now)
        self.number += 1
        self._lease(event, now)
        self.lines.append(
            EventLine(
                number=self.number,
                at_seconds=round(now - self.run.created_at, 3),
                kind=event.kind,
                reason=outcome.reason,
                phase=self.run.phase,
                epoch=self.run.epoch,
                slot=outcome.slot,
                usual=outcome.usual,
            )
        )
        return Record(self.run.id, self.number, now, dump_event(event))

    def _lease(self, event: Event, now: float) -> None:
        """Leases follow the state: a joined node gets one at once, a lost or departed one loses it
        once that is durable."""
        if isinstance(event, events.Joined):
            slot = self.run.slots[event.request.slot]
            self._gone.append((slot.index, slot.incarnations - 1))
            self.leases.heard((slot.index, slot.incarnations), now)
        elif isinstance(event, events.Lost | events.Left):
            self._gone.append((event.slot, event.incarnation))
        elif isinstance(event, events.Exited) and self.run.slots[event.slot].node is None:
            self._gone.append((event.slot, event.incarnation))

    def _nodes(self) -> list[Key]:
        """The nodes that are here."""
        return [
            (slot.index, slot.node.incarnation)
            for slot in self.run.slots
            if slot.node is not None
            and (slot.live_node() or slot.node.exit or slot.node.state is NodeState.RELEASED)
        ]

    def grant_leases(self, now: float) -> None:
        """Give every node that is here a full lease: the registry has come back."""
        self.leases.grant_all(self._nodes(), now)
        self.launcher_at = now

    def publish(self, now: float) -> None:
        """Make the durable state visible, and wake whom it concerns."""
        self.version, self.told = self.run.version, self.number
        for key in self._gone:
            self.leases.forget(key)
            if self.relay is not None:
                self.relay.forget(key[0])
        self._gone.clear()
        if self.relay is not None and self.run.phase is Phase.FINISHED:
            self.relay.close()
            self.relay = None
        if self.run.seq != self.news_seq:
            self._view = node_view(self.run, now, self.leases.poll)
            self.news = Body.of(self._view.model_dump_json(exclude_none=True).encode())
            self.news_seq = self.run.seq
            self._idle_at = float("-inf")
            self.idle(now)
            self.nodes.wake_all()
        self.people.wake_all()

    @property
    def is_durable(self) -> bool:
        """Whether all that has happened to the run is in the journal."""
        return self.told == self.number

    def idle(self, now: float) -> Body:
        """What a poll without news answers: the reason of the moment, made twice a second."""
        fresh = now - self._idle_at < _IDLE_SECONDS
        if self._view is not None and self.is_durable and not fresh:
            words, topic = reason_and_topic(self.run, now, self.trouble(now))
            changed: dict[str, Any] = {
                "plan": None,
                "table": None,
                "why_released": {},
                "reason": words,
                "topic": topic,
            }
            view = self._view.model_copy(update=changed)
            self._idle = Body(view.model_dump_json(exclude_none=True).encode())
            self._idle_at = now
        return self._idle

    def trouble(self, now: float) -> str:
        """What keeps the registry from its work for this run just now."""
        return self.unwritten.words(now) or self._crowded()

    def status(self, now: float, *, slots: bool = True) -> RunStatus:
        """Everything that a person wants to see."""
        return run_status(
            self.run,
            now,
            self.leases,
            slots=slots,
            trouble=self.trouble(now),
            unwritten_seconds=self.unwritten.seconds(now),
            untold=self._untold(),
        )

    def tell_end(self, slot: int) -> None:
        """A node that is not in the run leaves, and knows why: nobody waits for it any more."""
        self._end_told.add(slot)
        self.people.wake_all()

    def _untold(self) -> list[int]:
        """Of a run that is over: the slots without a node that nobody has asked for."""
        if self.run.phase is not Phase.FINISHED:
            return []
        slots = (slot.index for slot in self.run.slots if slot.node is None)
        return [index for index in slots if index not in self._end_told]

    def lines_after(self, number: int) -> list[EventLine]:
        """The told events numbered above `number`, oldest first; older ones are not walked over."""
        newer = itertools.takewhile(lambda line: line.number > number, reversed(self.lines))
        return [line for line in newer if line.number <= self.told][::-1]

    def take_over(self, fresh: Host, now: float) -> None:
        """Become what the journal says; those who wait stay, and so does who was heard of when."""
        self.run, self.number, self.lines = fresh.run, fresh.number, fresh.lines
        self.secrets.clear()
        self._gone.clear()
        self.leases.keep(self._nodes(), now)
