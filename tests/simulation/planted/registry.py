"""Bugs of the registry beside its runs' state: leases, access, its journal's queue, its answers."""
# fmt: off

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from math import inf
from typing import Any

from rendezvous.cause.telling import suspects_of
from rendezvous.registry import sequencer as queue
from rendezvous.registry.waiters import Waiters
from rendezvous.wire.errors import TooManyRequests
from rendezvous.wire.reports import AckReport
from tests.simulation.planting import (
    Bug,
    Function,
    always,
    but,
    constant,
    first,
    given,
    last,
    nothing,
    put,
    replace,
    wrap,
)

# --- functions that take more than an expression --------------------------------------------------


def _whatever_is_open(
    real: Function, leases: Any, key: Any, now: float, connection: int, **more: Any
) -> None:
    lease, others = leases._leases.get(key), set[int]()
    if lease is not None and connection in lease.connections:
        others, lease.connections = lease.connections - {connection}, {connection}
    real(leases, key, now, connection, **more)
    if lease is not None:
        lease.connections |= others


def _still_closed(real: Function, leases: Any, key: Any, *rest: Any) -> bool:
    lease = leases._leases.get(key)
    closed_at = lease and lease.closed_at
    is_new: bool = real(leases, key, *rest)
    leases._leases[key].closed_at = closed_at
    return is_new


async def _no_lease_of_a_join(real: Function, caller: Any, body: Any) -> Any:
    reply = await real(caller, body)
    caller.service._runs[caller.run].leases.forget((body.slot, reply.incarnation))
    return reply


def _acks_with_watches(instead: Function) -> Function:
    """Do this with an acknowledgement that a watch has brought."""

    async def report(real: Function, service: Any, live: Any, slot: int, number: int,
                     said: Any, *, watches: bool = False) -> Any:
        if watches and isinstance(said, AckReport):
            said = instead(live, slot, said)
        return said and await real(service, live, slot, number, said, watches=watches)

    return report


def _wakes_nobody(real: Function, live: Any, now: float) -> None:
    nodes, live.nodes = live.nodes, Waiters()
    real(live, now)
    live.nodes = nodes


_WRITING = set[asyncio.Future[Any]]()


async def _not_awaited(real: Function, *args: Any) -> Mapping[str, Any]:
    _WRITING.add(writing := asyncio.ensure_future(real(*args)))
    writing.add_done_callback(_WRITING.discard)
    await asyncio.sleep(0)
    return {}


async def _rebuilds_nothing(_sequencer: Any, _name: str) -> bool:
    return True


async def _answers_without_room(real: Function, sequencer: Any, *args: Any, **more: Any) -> None:
    if len(sequencer._queue) < queue._MOST_QUEUED:
        await real(sequencer, *args, **more)


async def _not_heard_of(real: Function, service: Any, live: Any, *rest: Any) -> Any:
    before = live.launcher_at
    status = await real(service, live, *rest)
    live.launcher_at = before
    return status


def _lost_without_room(real: Function, relay: Any, sender: int, parcels: Any) -> None:
    with contextlib.suppress(TooManyRequests):
        real(relay, sender, parcels)


def _counted_without_room(real: Function, views: Any, key: Any, post: Any, now: float) -> Any:
    reply = real(views, key, post, now)
    if not reply.taken:
        views._open[post.view].numbers[key] = post.number
    return reply


def _shown_again(real: Function, views: Any, key: Any, post: Any, now: float) -> Any:
    if (view := views._open.get(post.view)) is not None and view.numbers.get(key) == post.number:
        view.numbers[key] -= 1
    return real(views, key, post, now)


_LEASES = (
    Bug("no brake", replace("rendezvous.run.leases:Leases._mass_silence", always(False))),
    Bug("short brake",
        wrap("rendezvous.run.leases:Leases._doubt",
             lambda real, leases, now, **more: last(
                 real(leases, now, **more),
                 leases.holding_until == now + leases.suspect_after
                 and put(leases, holding_until=None)))),
    Bug("brake for all but none", constant("rendezvous.run.leases:_MASS_PERCENT", 95)),
    Bug("brake for six", constant("rendezvous.run.leases:_MASS_COUNT", 6)),
    Bug("the brake stays",
        replace("rendezvous.run.leases:Leases.is_holding",
                lambda leases, _now: leases.holding_until is not None)),
    Bug("the brake is short",
        wrap("rendezvous.run.leases:Leases._doubt",
             lambda real, leases, now, **more: last(
                 real(leases, now, **more),
                 leases.holding_until == now + leases.dead_after
                 and put(leases, holding_until=now + leases.dead_after / 2)))),
    Bug("FIN kills at once",
        constant("rendezvous.run.leases:_CLOSED_SECONDS", 0.0),
        constant("rendezvous.run.leases:DOUBT_SWEEPS", 2)),
    Bug("FIN is nothing", given("rendezvous.run.leases:Leases.closed", by_peer=False)),
    Bug("old FIN kills", wrap("rendezvous.run.leases:Leases.closed", _whatever_is_open)),
    Bug("a FIN is not forgiven", wrap("rendezvous.run.leases:Leases.heard", _still_closed)),
    Bug("a late FIN kills",
        wrap("rendezvous.run.leases:Leases.closed",
             lambda real, leases, *rest, **more: put(
                 leases, suspect_after=first(
                     leases.suspect_after, real(put(leases, suspect_after=inf), *rest, **more))))),
    Bug("a FIN makes suspect", constant("rendezvous.run.leases:_BACK_SECONDS", 0.0)),
    Bug("the smaller limit",
        wrap("rendezvous.run.leases:Leases._begin",
             lambda real, leases, poll: put(
                 last(real(leases, poll), leases),
                 dead_after=min(leases._lease_seconds, 7 * poll)))),
    Bug("suspect after one poll",
        wrap("rendezvous.run.leases:Leases._begin",
             lambda real, leases, poll: put(last(real(leases, poll), leases), suspect_after=poll))),
    Bug("unheard is heard", replace("rendezvous.run.leases:Leases.is_unheard", always(False))),
    Bug("the ended have no lease",
        replace("rendezvous.registry.live_run:_nodes_of",
                lambda run: [(slot.index, slot.node.incarnation) for slot in run.slots
                             if slot.live_node()])),
    Bug("full leases on a full disk",
        replace("rendezvous.run.leases:Leases.keep",
                lambda leases, keys, now: leases.grant_all(keys, now))),
    Bug("no leases after restart",
        replace("rendezvous.registry.live_run:LiveRun.grant_leases", nothing)),
    Bug("a join is no beat", wrap("rendezvous.registry.routes.nodes:join", _no_lease_of_a_join)),
    Bug("a FIN after a stall kills",
        replace("rendezvous.registry.clock:RegistryClock.awake_seconds", always(inf),
                within="rendezvous.registry.service:Service._connection_closed")),
    Bug("cancel does not look",
        replace("rendezvous.run.leases:Leases.is_in_doubt", always(False))),
    Bug("long polls",
        replace("rendezvous.wire.watch:poll_seconds",
                lambda nodes, _lease: max(2.0, nodes * 0.002))),
)

_ACCESS_AND_TIME = (
    Bug("wrong access fence",
        wrap("rendezvous.registry.access:_refuse_fenced",
             lambda real, run, shown: run.slots[shown.slot].node or real(run, shown))),
    Bug("former launches unknown",
        replace("rendezvous.registry.access:Access._refuse_former", nothing)),
    Bug("live runs replaced", replace("rendezvous.registry.service:_refuse_name", nothing)),
    Bug("a resumed launch is refused",
        replace("rendezvous.registry.service:_is_same", always(False))),
    Bug("its launcher is silent",
        wrap("rendezvous.registry.service:Service.slot_news", _not_heard_of)),
    Bug("queued for ever", constant("rendezvous.registry.sweep:_LAUNCHER_SECONDS", inf)),
    Bug("own stall counts", constant("rendezvous.registry.clock:_STALL_SECONDS", 1e9)),
    Bug("ages as told",
        replace("rendezvous.registry.clock:RegistryClock.own_age", lambda _clock, age: age)),
    Bug("clock begins anew", given("rendezvous.registry.clock:RegistryClock.restart", latest=0.0)),
    Bug("the lowest slot",
        wrap("rendezvous.cause.judge:_judge",
             lambda real, nodes: real(sorted(filter(
                 lambda one: suspects_of(one.read()), nodes), key=lambda one: one.slot)[:1]))),
    Bug("the last cause",
        wrap("rendezvous.cause.judge:_stuck_elsewhere", lambda real, own: real(own)[::-1])),
)

_JOURNAL = (
    Bug("acks with watches are lost",
        wrap("rendezvous.registry.service:Service.report", _acks_with_watches(nothing))),
    Bug("any ack with a watch counts",
        wrap("rendezvous.registry.service:Service.report", _acks_with_watches(
            lambda live, _slot, ack: but(
                ack, epoch=live.run.epoch, digest=live.run.digest or ack.digest)))),
    Bug("acks with watches are not written",
        wrap("rendezvous.registry.service:Service.report", _acks_with_watches(
            lambda live, slot, _ack: live.run.waiting_for.discard(slot)))),
    Bug("what waits is not written",
        wrap("rendezvous.registry.sequencer:Sequencer._take_more",
             lambda real, sequencer, batch, touched, _records:
                 real(sequencer, batch, touched, []))),
    Bug("answers before the commit",
        wrap("rendezvous.registry.sequencer:Sequencer._write", _not_awaited)),
    Bug("no rebuild",
        replace("rendezvous.registry.sequencer:Sequencer._rebuilt", _rebuilds_nothing)),
    Bug("failed commits answered",
        replace("rendezvous.registry.sequencer:_Command.failed", nothing)),
    Bug("queues: what finds no room is answered",
        wrap("rendezvous.registry.sequencer:Sequencer.change", _answers_without_room)),
    Bug("the gone are forgotten",
        wrap("rendezvous.registry.live_run:LiveRun.take_over",
             lambda real, live, *rest: put(
                 live, _gone=first([*live._gone], real(live, *rest))))),
    Bug("news of a lost commit are told",
        wrap("rendezvous.registry.live_run:LiveRun.take_over",
             lambda real, live, *rest: put(live, _next=first(live._next, real(live, *rest))))),
    Bug("forgotten at once",
        replace("rendezvous.registry.retention:retired_of",
                lambda lives: [live for live in lives if live.has_ended and live.is_durable])),
    Bug("never forgotten",
        replace("rendezvous.registry.retention:retired_of", lambda _lives: [])),
    Bug("forgotten before it is told",
        replace("rendezvous.run.views:everyone_left", always(True),
                within="rendezvous.registry.live_run:LiveRun.has_ended")),
)

_NEWS = (
    Bug("busy polls",
        wrap("rendezvous.registry.live_run:LiveRun.knows",
             lambda real, live, after, *rest: real(live, after - 1, *rest))),
    Bug("polls without end", replace("rendezvous.registry.waiters:Waiters._time_over", nothing)),
    Bug("nobody is woken", wrap("rendezvous.registry.live_run:LiveRun.publish", _wakes_nobody)),
    Bug("former news are told again",
        wrap("rendezvous.registry.live_run:LiveRun.prepare",
             lambda real, live, now: live._next or real(live, now))),
    Bug("restarts: tables are renewed for everybody",
        wrap("rendezvous.registry.live_run:News.to",
             lambda real, news, _has: real(news, news.former))),
    Bug("queues: lines without room count as known",
        wrap("rendezvous.registry.log_views:LogViews.take", _counted_without_room)),
    Bug("queues: lines without room are taken",
        wrap("rendezvous.registry.log_views:LogViews.take",
             lambda real, *args: but(real(*args), taken=True))),
    Bug("queues: lines that are sent again are shown again",
        wrap("rendezvous.registry.log_views:LogViews.take", _shown_again)),
    Bug("queues: lines are shown until others come",
        wrap("rendezvous.registry.log_views:LogViews.written",
             lambda real, views, run, number, after, now: real(
                 views, run, number, after - 1, now))),
    Bug("queues: frames without room are lost",
        wrap("rendezvous.registry.relay:Relay.give", _lost_without_room)),
)

BUGS = (*_LEASES, *_ACCESS_AND_TIME, *_JOURNAL, *_NEWS)
