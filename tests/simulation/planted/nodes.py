"""Bugs of a node's agent: how it joins, arms, starts, follows, tells and leaves."""
# fmt: off

from __future__ import annotations

import contextlib
from math import inf
from typing import Any

from rendezvous.wire.errors import RdzvError, RegistryError, StorageFull
from rendezvous.wire.reports import AckReport, ExitReport
from tests.simulation.planting import (
    Bug,
    Function,
    Part,
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
from worker.agent import actions as do
from worker.agent import departing, following, inputs, watching
from worker.agent.state import Cause, Step


def _as_if(**known: Any) -> Function:
    """A step of a node of which this is known while it is made."""

    def step(real: Function, turn: Any, *rest: Any) -> Any:
        before = {name: getattr(turn.node, name) for name in known}
        turn.set(**known)
        result = real(turn, *rest)
        turn.set(**before)
        return result

    return step


def _ignores(look: str) -> Function:
    """Look at the machine, and go on whatever is found."""

    def prepare(real: Function, arming: Any) -> Any:
        looks = getattr(arming.environment, look)
        blind = but(arming.environment, **{look: lambda *args: looks(*args) and ""})
        return real(put(arming, environment=blind))

    return prepare


def _is_not_now(said: Any) -> bool:
    error = getattr(said, "error", None)
    return isinstance(error, RegistryError) and error.told and not isinstance(error, StorageFull)


def _taken_for_the_end(said: Any) -> Any:
    error: Any = getattr(said, "error", None)
    return inputs.Exhausted(error) if isinstance(said, inputs.PartBroken) else said


forget: Function = watching._brought
kill_all: Function = following.kill_all


def _without(kind: type, *, within: str) -> Part:
    """Leave an action of this kind out."""
    return wrap("worker.agent.state:Turn.do",
                lambda real, turn, action: isinstance(action, kind) or real(turn, action),
                within=within)


async def _given_once(real: Function, exchange: Any) -> list[int]:
    with contextlib.suppress(RdzvError):
        await real(exchange)
    return [*exchange._waiting]


async def _always_taken(real: Function, *args: Any) -> Any:
    return but(await real(*args), taken=True)


_BEFORE_THE_GO = (
    Bug("node: one join",
        wrap("worker.agent.joining:_not_yet",
             lambda real, turn, *rest: last(
                 turn.set(rules=but(turn.node.rules, join_timeout=-1.0)), real(turn, *rest)))),
    Bug("node: refuses in silence",
        replace("worker.agent.joining:_cannot",
                lambda turn, error: turn.end(Cause.FAULT, error=error))),
    Bug("node: an offer is awaited for ever",
        given("worker.agent.actions:MakeOffer.__init__", limit=None)),
    Bug("node: stale names are awaited for ever",
        given("worker.agent.actions:RestoreHosts.__init__", limit=None)),
    Bug("node: names are awaited for ever", constant("worker.agent.visiting:_NAMES_SECONDS", None)),
    Bug("node: any table is good", replace("worker.agent.arming:_Arming._judge", nothing)),
    Bug("node: addresses stay",
        wrap("worker.agent.arming:_Arming.prepare", _ignores("why_unusable"))),
    Bug("node: programs are always there",
        wrap("worker.agent.arming:_Arming.prepare", _ignores("missing_of"))),
    Bug("node: acknowledged as any",
        wrap("worker.agent.attempt:_acknowledge",
             lambda real, turn, ack: real(turn, but(ack, epoch=turn.node.epoch.number)))),
    Bug("node: acknowledges beside its old program",
        wrap("worker.agent.attempt:_arm_next", _as_if(program=None))),
    Bug("node: any other table is of others",
        wrap("worker.agent.attempt:stands_by", _as_if(agreed=None))),
    Bug("node: starts once",
        wrap("worker.agent.attempt:_go",
             lambda real, turn, view: departing.show(turn, view) if turn.node.starts
             else real(turn, view))),
    Bug("node: starts on any table",
        wrap("worker.agent.attempt:_go",
             lambda real, turn, view: last(
                 turn.set(agreed=turn.node.agreed and but(
                     turn.node.agreed, digest=view.digest)), real(turn, view)))),
    Bug("node: what begins too late begins",
        replace("worker.agent.fencing:allow", nothing, within="worker.agent.attempt:_go")),
)

_NOTICES = (
    Bug("node: a notice before the program is lost",
        replace("worker.agent.departing:tell", nothing, within="worker.agent.attempt:_go")),
    Bug("node: a notice with the go is lost",
        wrap("worker.agent.departing:show",
             lambda real, turn, view: any(isinstance(one, do.Start) for one in turn.actions)
             or real(turn, view), within="worker.agent.attempt:_go")),
    Bug("node: a notice is not told",
        replace("worker.agent.departing:tell", nothing, within="worker.agent.departing:came")),
    Bug("node: a notice is told as a signal",
        wrap("worker.agent.reports:tell",
             lambda real, turn, report, **more: real(turn, but(report, seconds=0.0), **more),
             within="worker.agent.departing:tell")),
    Bug("node: a notice is not shown", replace("worker.agent.departing:show_kept", nothing)),
    Bug("node: a notice is shown each time",
        constant("worker.agent.departing:_SAME_SECONDS", -inf)),
    Bug("node: a signal is told for long",
        given("worker.agent.reports:tell_once", limit=3.0,
              within="worker.agent.departing:tell_signal")),
    Bug("node: a signal is not told",
        replace("worker.agent.reports:tell_once", nothing,
                within="worker.agent.departing:tell_signal")),
    Bug("node: a signal after a notice is not told",
        wrap("worker.agent.departing:tell_signal",
             lambda real, turn, told: (turn.node.program and turn.node.program.departs)
             or real(turn, told))),
)

_WATCHES = (
    Bug("node: acknowledges once",
        wrap("worker.agent.watching:_silent",
             lambda real, turn, *rest, **more: last(
                 turn.set(epoch=turn.node.epoch and but(turn.node.epoch, ack=None)),
                 real(turn, *rest, **more)))),
    Bug("node: the beat waits for the disk",
        wrap("worker.agent.watching:due",
             lambda real, turn: [at if following.is_ending(turn) else
                                 turn.node.member.held_at + 120.0 for at in real(turn)])),
    Bug("node: the ack is not brought",
        wrap("worker.agent.watching:_to_bring",
             lambda real, turn: (None, None) if isinstance(real(turn)[0], AckReport)
             else real(turn), within="worker.agent.watching:watch")),
    Bug("node: the end is not brought",
        wrap("worker.agent.watching:_to_bring",
             lambda real, turn: (None, None) if isinstance(real(turn)[0], ExitReport)
             else real(turn))),
    Bug("node: an end is brought once",
        wrap("worker.agent.watching:_silent",
             lambda real, turn, *rest, **more: last(
                 turn.node.program and turn.set_program(end=None), real(turn, *rest, **more)))),
    Bug("node: an end is not written",
        wrap("worker.agent.reports:tell",
             lambda real, turn, report, **more:
                 isinstance(report, AckReport) and real(turn, report, **more),
             within="worker.agent.watching:_not_written")),
    Bug("node: an end is brought for ever",
        replace("worker.agent.state:Turn.set_program", nothing,
                within="worker.agent.watching:_brought")),
    Bug("node: orphans end early",
        wrap("worker.agent.watching:_silent",
             lambda real, turn, *rest, **more: last(
                 turn.node.ends or turn.set_member(heard_at=-inf, had_last_try=True),
                 real(turn, *rest, **more)))),
    Bug("node: old news for ever",
        wrap("worker.agent.state:Turn.set_member",
             lambda real, turn, after=0, **known: real(turn, **known),
             within="worker.agent.watching:_viewed")),
    Bug("node: a refusal is the end",
        wrap("worker.agent.state:Turn.end",
             lambda real, turn, cause, **more: last(
                 cause is Cause.REFUSED and turn.set(ends=None), real(turn, cause, **more)),
             within="worker.agent.watching:answered")),
    Bug("queues: what a watch brought without room is gone",
        wrap("worker.agent.watching:answered",
             lambda real, turn, asked, said: last(
                 _is_not_now(said) and forget(turn, asked), real(turn, asked, said)))),
)

_PROGRAMS = (
    Bug("node: ignores its fence", replace("worker.agent.fencing:_times", always(None))),
    Bug("node: a fence gives a grace after it",
        wrap("worker.agent.fencing:_times",
             lambda real, turn: (times := real(turn)) and (times[1], times[1] + 10.0))),
    Bug("node: nothing is stopped", _without(do.Stop, within="worker.agent.following:stop_all")),
    Bug("node: a stop is early", _without(do.Stop, within="worker.agent.following:started")),
    Bug("node: a hurry is early", _without(do.Kill, within="worker.agent.following:started")),
    Bug("node: ends are not told",
        replace("worker.agent.reports:tell", nothing, within="worker.agent.following:_tell_end")),
    Bug("node: no start is a good end",
        given("worker.agent.state:Turn.end", error=None, within="worker.agent.following:gone")),
    Bug("node: metrics end the node",
        wrap("worker.agent.node:step",
             lambda real, node, said, now: real(node, _taken_for_the_end(said), now))),
    Bug("node: stops are excused",
        wrap("worker.agent.reports:exit_report",
             lambda real, program, ending, *rest: real(
                 program if program.stop_at is None else but(
                     program, stop_at=min(program.stop_at, ending.ended_at)), ending, *rest))),
    Bug("node: one try for a report",
        wrap("worker.agent.reports:_not_taken",
             lambda real, turn, asked, *rest, **more: real(
                 turn, but(asked, began_at=-inf, is_last_try=True), *rest, **more)),
        replace("worker.agent.reports:_watch_decides", always(False))),
    Bug("node: reports do not age",
        replace("worker.agent.session:_with_age", lambda report, _since: report)),
    Bug("node: signals are kept", replace("worker.agent.running:Running.pass_signal", nothing)),
    Bug("node: a network log is awaited for ever",
        constant("worker.agent.running:_LOG_SECONDS", None)),
    Bug("queues: rows that were dropped have no number",
        wrap("features.metrics.node:Rows._drop_oldest",
             lambda real, metrics: put(metrics, _first=first(metrics._first, real(metrics))))),
    Bug("queues: rows that were taken are sent again",
        replace("features.metrics.node:Rows._taken",
                lambda metrics, number: put(metrics, _first=max(metrics._first, number)))),
    Bug("queues: lines are sent once",
        wrap("rendezvous.talk.log_views:serve_view", _always_taken)),
    Bug("queues: frames are given once",
        wrap("worker.rsh.exchange:Exchange._give_batch", _given_once)),
    Bug("departures: a notice does not age",
        wrap("rendezvous.talk.client:aged",
             lambda real, report, seconds: report if report.kind == "depart"
             else real(report, seconds))),
)

_LEAVING = (
    Bug("node: released and failed",
        replace("worker.agent.attempt:_end_well",
                lambda turn: turn.end(Cause.RELEASED, code=1))),
    Bug("node: the result is not its own",
        given("worker.agent.state:Turn.end", code=0, within="worker.agent.attempt:_result_known")),
    Bug("node: a standby ends as the run",
        replace("worker.agent.attempt:_stood_by", always(False))),
    Bug("node: signals end well",
        given("worker.agent.state:Turn.end", code=0, within="worker.agent.leaving:signal_came")),
    Bug("node: a signal kills",
        wrap("worker.agent.leaving:signal_came",
             lambda real, turn, said: last(
                 real(turn, said), turn.node.ends and kill_all(turn)))),
    Bug("node: a hurry is not heard",
        wrap("worker.agent.following:kill_all", lambda real, turn: turn.node.ends or real(turn),
             within="worker.agent.leaving:signal_came")),
    Bug("node: SIGQUIT waits",
        wrap("worker.agent.following:kill_all", lambda real, turn: turn.node.ends and real(turn),
             within="worker.agent.leaving:signal_came")),
    Bug("node: names stay",
        wrap("worker.agent.leaving:_at",
             lambda real, turn, step: real(turn, Step.OVER if step is Step.HOSTS else step))),
    Bug("node: a fault of its own is not told",
        replace("worker.agent.leaving:_is_own_fault", always(False))),
    Bug("node: gone before its program", constant("worker.agent.leaving:_OF_PROGRAMS", ())),
    Bug("node: stops before it is told",
        wrap("worker.agent.state:Turn.under_way",
             lambda real, turn, *kinds: (one for one in real(turn, *kinds)
                                         if not getattr(one, "is_last_word", False)),
             within="worker.agent.leaving:go_on")),
    Bug("node: orphans speak",
        wrap("worker.agent.leaving:_may_speak", _as_if(parent_lives=True))),
    Bug("node: a hosts file is awaited for ever",
        replace("worker.agent.leaving:_hosts_hang", nothing,
                within="worker.agent.leaving:put_hosts_back")),
)

BUGS = (*_BEFORE_THE_GO, *_NOTICES, *_WATCHES, *_PROGRAMS, *_LEAVING)
