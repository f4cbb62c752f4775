"""One run in a registry: its state and leases, what is told of it, and those who wait for news.

What is told changes with `publish` alone, which the service calls once the events are durable.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rendezvous.registry.journal import Record
from rendezvous.registry.last_words import KeptWords
from rendezvous.registry.log_views import Limits, LogViews
from rendezvous.registry.options import Options
from rendezvous.registry.relay import Relay
from rendezvous.registry.run_topics import RunTopics
from rendezvous.registry.starts import StartTimes
from rendezvous.registry.waiters import Waiters
from rendezvous.run import events, refusals
from rendezvous.run.decision import Decision, Outcome, dump_entry
from rendezvous.run.departures import notice_of
from rendezvous.run.events import Event
from rendezvous.run.features import Remark
from rendezvous.run.fold import apply
from rendezvous.run.leases import Key, Leases
from rendezvous.run.protocol import decide
from rendezvous.run.state import Run, create
from rendezvous.run.views import (
    event_line,
    everyone_left,
    node_view,
    reason_and_topic,
    run_status,
)
from rendezvous.serving.answers import Body
from rendezvous.serving.trouble import Trouble
from rendezvous.wire.errors import RegistryError, RequestError
from rendezvous.wire.log_view import ViewCall, ViewRequest
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.question import Question
from rendezvous.wire.run import EventLine, NodeState, Phase, RunSpec, RunStatus
from rendezvous.wire.watch import NodeView, poll_seconds, write_view

_EVENT_LINES = 20_000
_IDLE_SECONDS = 0.5
_MOST_FORMER = 8


@dataclass(frozen=True)
class News:
    """One view, as all nodes of a run are told it: written once for everyone.

    Attributes:
        view: With its table while that is to be acknowledged.
        written: The table in its canonical form; empty: there is none.
        former: The digest of the table that it renews; empty: none.
    """

    view: NodeView
    written: bytes = b""
    former: str = ""

    def to(self, has: str | None) -> Body:
        """The answer for who has the table with this digest."""
        return self._short if self.former and has == self.former else self._whole

    def write(self) -> None:
        """Write ahead what nearly all nodes will ask for."""
        self.to(self.former)

    @functools.cached_property
    def _whole(self) -> Body:
        return Body.of(write_view(self.view, self.written))

    @functools.cached_property
    def _short(self) -> Body:
        assert self.view.table is not None
        port = {"renewed_port": self.view.table.master_port, "table": None}
        return Body.of(write_view(self.view.model_copy(update=port), b""))


class RefusedJoins:
    """Who asks to join one run and is refused; how often is not journalled."""

    def __init__(self) -> None:
        self.asks = refusals.Asks()

    def applied(self, event: Event) -> None:
        """An event has changed the run."""
        if isinstance(event, events.Joined):
            self.asks.forget(refusals.who_joins(event.request))
        elif isinstance(event, events.JoinRefused):
            self.asks.written(event.ask.who)

    def note(
        self,
        run: Run,
        request: JoinRequest,
        error: RequestError,
        source: str,
        now: float,
        leases: Leases,
    ) -> Event | None:
        """What is written down of a join that is refused."""
        ask = refusals.ask_of_join(run, request, error, source)
        asked = self.asks.count(ask.who, now)
        return refusals.decide_refused_join(run, request, error, ask, asked, now, leases)


class LiveRun:
    """A run as a registry has it, with all that is not journalled.

    Args:
        now: Seconds, of the time that its records have.
        replaced: The run of an earlier launch, whose place it takes.
        options: What the operator decides.
        clock: The registry's clock, from which the run's own may differ: another replica may have
            had it before.
    """

    def __init__(
        self,
        name: str,
        spec: RunSpec,
        now: float,
        *,
        replaced: LiveRun | None,
        options: Options,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self.offset: float = replaced.offset if replaced is not None else 0.0
        """Seconds by which the run's clock is ahead of the registry's."""
        self.away: RegistryError | None = None  # why nothing of it can be told here any more
        lease = spec.limits.lease_seconds
        poll = poll_seconds(spec.slots, lease)
        self.run: Run = create(name, spec, now)
        self.leases = Leases(lease, poll, trust_close=options.trust_close)
        self._gone: list[Key] = []
        self.launcher_at = now
        self.unwritten = Trouble()
        self._crowded = options.crowded
        self.number: int = replaced.number if replaced is not None else 0
        self.former = replaced.with_former() if replaced is not None else {}
        """How launches of this name ended, for nodes that have not heard it."""
        self._replaced = replaced
        self.secrets: dict[Key, bytes] = {}
        """Of its nodes' credentials, each derived once."""
        self.sealed = ""  # secret variables, as its launcher sealed them
        self.told = 0
        self.lines: deque[EventLine] = deque(maxlen=_EVENT_LINES)
        self.nodes = Waiters()
        self.people = Waiters()
        self.starts, self.last_words = StartTimes(now), KeptWords()
        self._end_told, self._asking, self.importing = set[int](), set[int](), set[int]()
        self.refused_joins = RefusedJoins()
        self.relay: Relay | None = None
        self.news: News | None = None
        self.news_at = 0.0
        """When they became durable, as `Meters` counts."""
        self.version = 0
        self._next: News | None = None
        self._has_ended = False
        self._idle = Body(b"")
        self._idle_at = float("-inf")
        self.topics = RunTopics(self.now, self.nodes.wake_all)
        self.store, self.questions = self.topics.store, self.topics.questions
        self._question: Question | None = None
        """The one in what a poll without news answers."""
        self.views = LogViews()
        self._view_told = 0
        """Of the newest view in that."""

    def now(self) -> float:
        """Seconds, by the run's own clock."""
        return self._clock() + self.offset

    def go_on_from(self, latest: float) -> None:
        """Have it be that time now."""
        self.offset = latest - self._clock()

    def with_former(self) -> dict[str, str]:
        """How the launches of this name ended, this one too; the last of them."""
        result = self.run.result
        ended = {self.run.spec.launch_id: result.message if result else "it was replaced"}
        return dict([*self.former.items(), *ended.items()][-_MOST_FORMER:])

    def durable(self) -> LiveRun:
        """This run; while that it was made is not durable, the one whose place it is to take."""
        return self if self._replaced is None else self._replaced.durable()

    def is_made(self) -> None:
        """That it was made is durable: the one before it will not be back."""
        self._replaced = None

    def decide(self, event: Event, now: float) -> Record:
        """Decide on an event, which changes the run; returns the record to journal."""
        decision = decide(self.run, event, now)
        self._follow(event, decision.outcome, now)
        return Record(self.run.id, self.number, now, dump_entry(event, decision))

    def apply(self, event: Event, decision: Decision, at: float) -> None:
        """Change the run as was decided then; raises as `fold.apply`."""
        apply(self.run, event, decision)
        self._follow(event, decision.outcome, at)

    def _follow(self, event: Event, outcome: Outcome, now: float) -> None:
        """Have what is not journalled follow the state."""
        self.starts.moved(self.run.phase, now)
        self.number += 1
        self.refused_joins.applied(event)
        self._lease(event, now)
        self.lines.append(event_line(self.run, self.number, event, outcome, now))

    def _lease(self, event: Event, now: float) -> None:
        """Leases follow the state: a joined node gets one at once, a lost or departed one loses it
        once that is durable."""
        if isinstance(event, events.Joined):
            slot = self.run.slots[event.request.slot]
            self._gone.append((slot.index, slot.incarnations - 1))
            self.leases.heard((slot.index, slot.incarnations), now)
        elif isinstance(event, events.CannotComplete):  # all were seen: nobody else will ask
            self._end_told |= self.run.missing
        elif isinstance(event, events.Lost | events.Left):
            self._gone.append((event.slot, event.incarnation))
        elif isinstance(event, events.Exited) and self.run.slots[event.slot].node is None:
            self._gone.append((event.slot, event.incarnation))

    def grant_leases(self, now: float) -> None:
        """Give every node that is here a full lease: the registry has come back."""
        self.leases.grant_all(_nodes_of(self.run), now)
        self.launcher_at = now
        self.starts.take()  # the process before this one has counted them

    def prepare(self, now: float) -> None:
        """Write what the nodes are to be told next; while the journal is written, there is time."""
        if not self.has_news or (self._next and self._next.view.seq == self.run.seq):
            return
        view, sealed = node_view(self.run, now, self.leases.poll), self.run.attempt
        has_table = view.table is not None
        self._next = News(view, sealed.written, sealed.former) if has_table else News(view)
        self._next.write()

    def publish(self, now: float) -> None:
        """Make the durable state visible, and wake whom it concerns."""
        self.version, self.told = self.run.version, self.number
        if self._replaced is not None:
            self._replaced.wake_all()
            self._replaced = None
        for key in self._gone:
            self.leases.forget(key)
            if self.relay is not None:
                self.relay.forget(key[0])
        self._gone.clear()
        if self.relay is not None and self.run.phase is not Phase.RUNNING:
            self.relay.close()
            self.relay = None
        if self.has_news:
            self.prepare(now)
            self.news = self._next
            self._idle_at = float("-inf")
            self.idle(now)
            self.nodes.wake_all()
        self.people.wake_all()
        self.views.run_changed(self.run)

    def wake_all(self) -> None:
        """Answer everyone who waits: this run is replaced, or the registry closes."""
        self.nodes.wake_all()
        self.people.wake_all()
        self.topics.close()
        self.views.close()
        if self.relay is not None:
            self.relay.close()

    def leave(self, why: RegistryError) -> None:
        """Nothing more can be told of it here: answer everyone who waits with the reason."""
        self.away = why
        self.wake_all()

    def check_is_here(self) -> None:
        """Raise why nothing of it can be told here, if it is so."""
        if self.away is not None:
            raise copy.copy(self.away)  # many may be told, and each raise adds to its traceback

    def open_view(self, request: ViewRequest, now: float, shared: Limits) -> ViewCall:
        """Ask nodes for their output; see `LogViews.open`."""
        call = self.views.open(self.run, request, now, shared)
        self.nodes.wake_all()
        return call

    def knows(self, after: int, question: int, views: int, now: float) -> bool:
        """Whether who knows these news, this question and this view is told nothing new now."""
        self.idle(now)
        is_known = self._question is None or self._question.number == question
        asked = is_known and self._view_told in (0, views)
        return asked and self.news_seq <= after

    @property
    def has_ended(self) -> bool:
        """Whether it is over and every node knows it, for ever: asked four times a second."""
        if not self._has_ended and self.run.phase is Phase.FINISHED:
            self._has_ended = everyone_left(self.run)
        return self._has_ended

    @property
    def news_seq(self) -> int:
        """The number of what the nodes have been told last."""
        return self.news.view.seq if self.news is not None else 0

    @property
    def has_news(self) -> bool:
        """Whether nodes are to be told something that they have not been told."""
        return self.run.seq != self.news_seq

    @property
    def is_durable(self) -> bool:
        """Whether all that has happened to the run is in the journal."""
        return self.told == self.number

    def news_after(self, seq: int, has: str | None, now: float) -> Body:
        """What a node is told that knows these news, and has the table with this digest."""
        if self.news is None or self.news.view.seq <= seq:
            return self.idle(now)
        return self.news.to(has)

    def idle(self, now: float) -> Body:
        """What a poll without news answers: the reason of the moment, made twice a second."""
        question = self.topics.open(now)
        newest = self.views.newest(now)
        asked = (question, newest) == (self._question, self._view_told)
        fresh = now - self._idle_at < _IDLE_SECONDS and asked
        if self.news is not None and self.is_durable and not fresh:
            words, topic = reason_and_topic(self.run, now, self.trouble(now), self._remark(now))
            self._question, self._view_told = question, newest
            changed: dict[str, Any] = {
                "question": question,
                "views": self.views.orders(now) or None,
                "plan": None,
                "table": None,
                "why_released": {},
                "reason": words,
                "topic": topic,
                "notice": notice_of(self.run, now),
                "poll_seconds": self.leases.poll,
            }
            view = self.news.view.model_copy(update=changed)
            self._idle = Body(view.model_dump_json(exclude_none=True).encode())
            self._idle_at = now
        return self._idle

    def _remark(self, now: float) -> Remark | None:
        return self.topics.remark(self.run, now)

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
            remark=self._remark(now),
            unwritten_seconds=self.unwritten.seconds(now),
            untold=self._untold(),
            importing=self.importing,
            wants_secrets=bool(self.run.spec.secrets) and not self.sealed,
        )

    def tell_end(self, slot: int) -> None:
        """A node that is not in the run leaves, and knows why: nobody waits for it any more."""
        self._end_told.add(slot)
        self.people.wake_all()

    def refused(self, slot: int, *, asks_again: bool) -> None:
        """A node has not joined: the run is over, or it asks again until it may."""
        if not asks_again:
            self.tell_end(slot)
        elif self.run.spec.outlives_nodes:  # it may be there in the place of one that is not missed
            self._asking.add(slot)

    def _untold(self) -> list[int]:
        """Of a run that is over: the slots that nobody has asked for, or that a node asks for."""
        slots = self.run.slots if self.run.phase is Phase.FINISHED else []
        untold = (s.index for s in slots if s.node is None or s.index in self._asking)
        return [index for index in untold if index not in self._end_told]

    def lines_after(self, number: int) -> list[EventLine]:
        """The told events numbered above `number`, oldest first; older ones are not walked over."""
        newer = itertools.takewhile(lambda line: line.number > number, reversed(self.lines))
        return [line for line in newer if line.number <= self.told][::-1]

    def take_over(self, fresh: LiveRun, now: float) -> None:
        """Become what the journal says; those who wait stay, and so does who was heard of when."""
        self.run, self.number, self.lines = fresh.run, fresh.number, fresh.lines
        self.starts = fresh.starts
        self.starts.take()
        self._has_ended, self._next = False, None
        self.secrets.clear()
        self._gone.clear()
        self.leases.keep(_nodes_of(self.run), now)


def _nodes_of(run: Run) -> list[Key]:
    """The nodes that are here."""
    return [
        (slot.index, slot.node.incarnation)
        for slot in run.slots
        if slot.node is not None
        and (slot.live_node() or slot.node.exit or slot.node.state is NodeState.RELEASED)
    ]
