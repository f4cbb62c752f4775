"""Bugs of a run from the go on: ends, losses, departures, fences, verdicts and restarts."""
# fmt: off

from __future__ import annotations

from math import inf
from typing import Any

from rendezvous.run import cold, events, running
from rendezvous.run.restarts import SHORT_SECONDS, Again, Enough
from rendezvous.run.state import GONE
from rendezvous.wire.run import NodeState, Phase
from tests.simulation.planted.where import (
    event,
    limits,
    report,
    run_of,
    spec,
    starts_of,
)
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
    while_set,
    wrap,
)

_EXITED, _LOST = "rendezvous.run.running:exited", "rendezvous.run.running:_node_lost"
_STOP, _FENCE = "rendezvous.run.moves:begin_stop", "rendezvous.run.fences:raise_for"
_DUE, _VERDICT = "rendezvous.run.protocol:_phase_due", "rendezvous.run.protocol:_verdict_due"
_DEPARTS = "rendezvous.run.departures:departs"
_DEPARTED_WELL = "rendezvous.run.departures:ended_well"
_KNOWN, _STOP_AT = "rendezvous.run.departures:is_known", "rendezvous.run.departures:_stop_at"
_STEP, _COUNT = "rendezvous.run.restarts:next_step", "rendezvous.run.restarts:_count"
_GOES = "rendezvous.run.restarts:_goes"
_HOPELESS, _BACKOFF = "rendezvous.run.restarts:_hopeless", "rendezvous.run.restarts:_backoff"
_WHY_NOT, _REFILL = "rendezvous.run.replacing:why_not", "rendezvous.run.replacing:refill"


def _node_of(_run: Any, slot: Any, *_: Any) -> Any:
    return slot.its_node


def _its_node(run: Any, event: Any) -> Any:
    return run.slots[event.slot].its_node


def _taken_for_running(was: NodeState) -> Function:
    """A node that was in this state runs a program from now on."""

    def lost(real: Function, run: Any, slot: Any, *rest: Any, **more: Any) -> Any:
        if slot.its_node.state is was:
            slot.its_node.state = NodeState.RUNNING
        return real(run, slot, *rest, **more)

    return lost


def _of_step(when: Function, **said: Any) -> Part:
    """Say this of a step, where programs start again and it is so of the run and the step."""
    return wrap(_STEP, lambda real, run, *rest: but(step, **said)
                if isinstance(step := real(run, *rest), Again) and when(run, step) else step)


def _codes(run: Any) -> list[int]:
    return [slot.node.exit.exit_code for slot in run.slots if slot.node and slot.node.exit]


def _another_code(real: Function, run: Any, now: float, found: Any, *rest: Any) -> None:
    codes, was_over = _codes(run), run.result is not None
    real(run, now, found, *rest)
    if not was_over and found.report is not None and not found.report.fenced:
        run.result = but(run.result, exit_code=max(codes))


def _leader_decides(real: Function, run: Any, event: Any, now: float) -> Any:
    slot, was_stopped = run.slots[event.slot], run.stop
    leads = run.spec.led and slot.its_node.number == 0 and event.report.exit_code == 0
    outcome = real(run, event, now)
    if leads and was_stopped and run.phase is Phase.RUNNING:
        running._give_verdict(run, now)
    return outcome


def _stopped_is_well(real: Function, run: Any, event: Any, now: float) -> Any:
    before, epoch = run.stop, run.epoch
    run.stop = before or event.report.stopped
    outcome = real(run, event, now)
    if run.phase is Phase.RUNNING and run.epoch == epoch:
        run.stop = before
    return outcome


def _departure(counts: Function) -> Part:
    """Of the departure that counted and that of a node that tells of its own, this one counts."""

    def departs(real: Function, run: Any, event: Any, now: float) -> Any:
        before = run.departure
        outcome = real(run, event, now)
        own = run.slots[event.slot].node and run.slots[event.slot].its_node.departure
        if before is not None and own is not None:
            run.departure = counts(before, own)
        return outcome

    return wrap(_DEPARTS, departs)


def _forgets_later(real: Function, run: Any, slot: Any) -> None:
    before = run.departure
    real(run, slot)
    if run.departure is not before:
        run.departure = None


def _stops_nobody(real: Function, run: Any, *rest: Any) -> None:
    had_stopped = run.stop
    real(run, *rest)
    run.seq -= not had_stopped


def _failures_stay(real: Function, run: Any) -> None:
    nodes = [slot.its_node for slot in run.of_table()]
    failed_at = [node.failed_at for node in nodes]
    real(run)
    for node, at in zip(nodes, failed_at, strict=True):
        node.failed_at = at


def _short_for_ever(real: Function, run: Any, step: Any, found: Any, seconds: float) -> None:
    short = run.starts.short + (seconds < SHORT_SECONDS and step.counted)
    real(run, step, found, seconds)
    if not step.cold:
        run.starts.short = short


def _as_if_numbered(real: Function, run: Any, now: float) -> Any:
    for slot in run.taking_part():
        if slot.its_node.number is None:
            slot.its_node.number = run.starts.numbers.get(slot.index, 0)
    return real(run, now)


def _counts_late(real: Function, run: Any, *rest: Any) -> Any:
    before = run.starts.failed_at
    outcome = real(run, *rest)
    run.starts.used += run.starts.failed_at != before
    return outcome


def _bound_of_each(real: Function, run: Any, slot: Any, now: float) -> Any:
    before, of_slot = run.starts.resubmitted, slot.wanted - 1
    run.starts.resubmitted = of_slot
    said = real(run, slot, now)
    run.starts.resubmitted = before + (run.starts.resubmitted > of_slot)
    return said


def _once_stopped(run: Any) -> bool:
    nodes = [slot.its_node for slot in run.of_table()]
    return any(node.exit is not None and node.exit.stopped for node in nodes
               if not run.spec.led or node.number == 0)


_ENDS = (
    Bug("early exit is an end",
        wrap("rendezvous.run.state:Run.rules",
             lambda real, run: but(real(run), is_forming=False), within=_EXITED)),
    Bug("verdict by arrival", wrap(_EXITED, report(age_seconds=0.0))),
    Bug("lost when noticed", given(_LOST, silent=0.0)),
    Bug("another's exit code", wrap("rendezvous.run.running:_end", _another_code)),
    Bug("stopped is no failure",
        wrap(_EXITED, _stopped_is_well)),
    Bug("no failure after the stop",
        wrap(_EXITED, lambda real, run, *rest: report(**{"stopped": True} if run.stop else {})(
            real, run, *rest))),
    Bug("leader cuts the verdict", wrap(_EXITED, _leader_decides)),
    Bug("led runs wait for all",
        wrap("rendezvous.run.running:_give_verdict", lambda real, run, *rest:
             real(run, *rest) if not run.waiting_for else "", within=_EXITED)),
    Bug("heads: the others are waited for",
        replace("rendezvous.run.head:has_ended", always(False), within=_EXITED)),
    Bug("ended and lost",
        wrap(_LOST, _taken_for_running(NodeState.EXITED))),
    Bug("leaving is no loss",
        wrap("rendezvous.run.running:left", lambda real, run, event, now: last(
            put(_its_node(run, event), state=NodeState.EXITED), real(run, event, now)))),
    Bug("nobody ends the run",
        replace("rendezvous.run.running:_check_all_over", always(""), within=_EXITED)),
    Bug("losses: a standby's end stops the programs",
        wrap(_EXITED, lambda real, run, event, now: last(
            _its_node(run, event).state is NodeState.STANDBY
            and put(_its_node(run, event), state=NodeState.RUNNING), real(run, event, now)))),
    Bug("losses: a lost standby stops the programs",
        wrap(_LOST, _taken_for_running(NodeState.STANDBY))),
    Bug("losses: a close is a silence",
        wrap("rendezvous.run.running:lost", lambda real, run, event, now: last(
            put(_its_node(run, event), silent_since=now - event.silent_seconds),
            real(run, event, now)))),
    Bug("losses: numbers are edited in place",
        wrap("rendezvous.run.running:lost", lambda real, run, event, now: last(
            run.starts.numbers.pop(event.slot, None), real(run, event, now)))),
    Bug("losses: a silence is a close", wrap("rendezvous.run.running:lost", event(closed=True))),
    Bug("verdict at once",
        wrap(_STOP, lambda real, run, now, *rest: put(run, verdict_at=first(
            now if run.verdict_at is None else min(now, run.verdict_at), real(run, now, *rest))))),
    Bug("verdict put off",
        wrap(_STOP, lambda real, run, *rest: real(put(run, verdict_at=None), *rest))),
    Bug("nobody told to stop", wrap(_STOP, _stops_nobody)),
    Bug("verdict does not wait",
        replace("rendezvous.run.running:unheard", lambda *_: [], within=_VERDICT)),
    Bug("verdict never falls",
        replace("rendezvous.run.leases:Leases.granted_seconds", always(-inf), within=_VERDICT)),
    Bug("finished at 0",
        wrap("rendezvous.run.moves:finish", lambda real, run, *rest: first(
            real(run, *rest), put(run, finished_at=0.0)))),
    Bug("the scheduler's word is nothing",
        replace("rendezvous.run.protocol:_ended_and_suspect", lambda *_: [])),
    Bug("numbers begin anew",
        wrap("rendezvous.run.protocol:_restarted", lambda real, run, *rest: real(
            put(run, seq=1), *rest))),
)

_DEPARTURES = (
    Bug("departures: due at once", replace(_STOP_AT, lambda _run, _report, now: now)),
    Bug("departures: at the deadline",
        replace(_STOP_AT, lambda _run, report, now: now + report.seconds)),
    Bug("departures: no margin", constant("rendezvous.run.departures:MARGIN_SECONDS", 0.0)),
    Bug("departures: the latest counts",
        _departure(lambda before, own: max(before, own, key=lambda one: one.stop_at))),
    Bug("departures: the first counts", _departure(lambda before, _own: before)),
    Bug("departures: at the next sweep",
        replace("rendezvous.run.departures:_stop_all", nothing, within=_DEPARTS)),
    Bug("departures: said again", replace(_KNOWN, always(False))),
    Bug("departures: sooner is known", constant("rendezvous.run.departures:_SAME_SECONDS", inf)),
    Bug("departures: who goes later is forgotten", wrap(_DEPARTED_WELL, _forgets_later)),
    Bug("departures: for who has ended well", replace(_DEPARTED_WELL, nothing)),
    Bug("departures: another one is named",
        wrap("rendezvous.run.departures:result_of", lambda real, run, departure: real(
            run, but(departure, slot=0)))),
    Bug("departures: a notice has no end",
        given("rendezvous.run.departures:notice_of", now=0.0)),
    Bug("departures: a notice is not told",
        replace("rendezvous.run.departures:notice_of", nothing,
                within="rendezvous.run.views:node_view")),
    Bug("departures: never due",
        wrap(_DUE, lambda real, run, now: None
             if isinstance(due := real(run, now), events.DepartureDue) else due)),
    Bug("departures: ok after one",
        replace("rendezvous.run.restarts:was_stopped", always(False),
                within="rendezvous.run.running:_end_unfailed")),
    Bug("departures: a restart answers one",
        wrap(_GOES, while_set(_node_of, departure=None))),
    Bug("restarts: who leaves starts again",
        replace(_GOES, lambda _run, slot: slot.its_node.state in GONE
                or slot.its_node.departure is not None)),
)

_LOSSES = (
    Bug("losses: a fence counts from the loss",
        wrap(_FENCE, while_set(lambda _run, slot, _now: slot.its_node.silent_since is not None
                               and slot.its_node, silent_since=lambda _run, _slot, now: now))),
    Bug("losses: a silent node is taken for dead",
        given("rendezvous.run.records:Fence.__init__", holds=False, within=_FENCE)),
    Bug("losses: a fence is short",
        wrap("rendezvous.run.fences:_seconds", lambda real, run: real(run) / 2, within=_FENCE)),
    Bug("losses: a fence never passes", replace("rendezvous.run.fences:are_over", always(False))),
    Bug("losses: no bound",
        wrap(_REFILL, while_set(run_of, spec=limits(max_replacements=1_000_000)))),
    Bug("losses: counted for each slot", wrap(_REFILL, _bound_of_each)),
    Bug("losses: nobody is replaced",
        wrap(_REFILL, while_set(run_of, spec=limits(max_replacements=0)))),
    Bug("losses: the launcher's own is replaced",
        replace("rendezvous.run.state:Run.needs", always(False), within=_WHY_NOT)),
    Bug("losses: below the least",
        wrap(_WHY_NOT, lambda real, run, lost: real(run, lost)
             if any(map(run.needs, lost)) else "")),
    Bug("losses: one more than the least",
        wrap(_WHY_NOT, while_set(run_of, spec=lambda run, _lost: but(
            run.spec, min_nodes=run.spec.min_nodes + 1)))),
    Bug("losses: a loss uses a restart", _of_step(lambda _run, step: step.gone, counted=True)),
    Bug("losses: the lost are in the next table",
        _of_step(lambda _run, step: step.gone, gone=())),
    Bug("losses: who was cut off uses a restart",
        _of_step(lambda run, step: "can be reached again" in step.then, counted=True)),
    Bug("losses: a program's failure counts as well",
        wrap(_STEP, while_set(lambda run, found, _now: found and run,
                              spec=spec(on_node_loss="fail")))),
)

_RESTARTS = (
    Bug("cold: each epoch is repeated",
        wrap("rendezvous.run.cold:is_due", while_set(
            lambda run, _found: run.starts.warm is not None and run.starts,
            warm=lambda run, _found: run.epoch, cold=False))),
    Bug("cold: seconds are too few", constant("rendezvous.run.cold:AT_ONCE_SECONDS", 1.0)),
    Bug("cold: it is counted", _of_step(lambda _run, step: step.cold, counted=True)),
    Bug("cold: a lost node is none",
        wrap(_STEP, lambda real, run, found, now: Again(0.0, False, cold.words_of(found), cold=True)
             if isinstance(step := real(run, found, now), Enough) and found
             and cold.is_due(run, found) else step)),
    Bug("restarts: none is counted",
        wrap(_COUNT, lambda real, run, *rest: put(
            run.starts, used=first(run.starts.used, real(run, *rest))))),
    Bug("restarts: each node counts",
        wrap(_COUNT, lambda real, run, step, *rest: last(
            real(run, step, *rest),
            put(run.starts, used=run.starts.used + step.counted * (len(run.of_table()) - 1))))),
    Bug("restarts: one more",
        wrap(_STEP, while_set(starts_of, used=lambda run, *_: run.starts.used - 1))),
    Bug("restarts: a person's is counted",
        _of_step(lambda _run, step: step.then.startswith("restart requested"), counted=True)),
    Bug("restarts: no back-off", replace(_BACKOFF, always(0.0))),
    Bug("restarts: the back-off stays as it is",
        wrap(_BACKOFF, lambda real, *args: min(real(*args), 1.0))),
    Bug("restarts: the back-off is not begun anew", wrap(_COUNT, _short_for_ever)),
    Bug("restarts: the back-off has no end",
        wrap(_DUE, lambda real, run, now: None
             if isinstance(due := real(run, now), events.BackOffOver) else due)),
    Bug("restarts: hopeless is not seen", wrap(_HOPELESS, while_set(starts_of, alike=""))),
    Bug("restarts: what cannot be started is",
        replace("rendezvous.run.cold:others", always(True), within=_HOPELESS)),
    Bug("restarts: no progress is not seen",
        constant("rendezvous.run.restarts:MOST_STALLED", inf)),
    Bug("restarts: without a lost node",
        replace("rendezvous.run.restarts:_lost", lambda _run: [])),
    Bug("restarts: the stop is kept",
        wrap("rendezvous.run.restarts:begin_again", lambda real, run, *rest: first(
            real(run, *rest), put(run, stop=True)))),
    Bug("restarts: a former end is kept",
        wrap("rendezvous.run.restarts:_begin_anew", _failures_stay)),
    Bug("restarts: a person waits",
        replace("rendezvous.run.restarts:_arm_again", always(""),
                within="rendezvous.run.restarts:restart_asked")),
    Bug("restarts: a person stops nobody",
        replace(_STOP, nothing, within="rendezvous.run.restarts:restart_asked")),
    Bug("restarts: the late are failures",
        wrap("rendezvous.run.restarts:is_history", lambda real, run, report: report.stopped
             and real(run, but(report, leaves=False)))),
    Bug("restarts: a late end is an end",
        replace("rendezvous.run.restarts:is_history", always(False), within=_EXITED)),
    Bug("restarts: a newcomer proves nothing",
        wrap("rendezvous.run.restarts:_arm_again", _as_if_numbered)),
    Bug("restarts: who is slow to stop has ended well",
        replace("rendezvous.run.restarts:was_stopped", _once_stopped)),
    Bug("restarts: a late cause is a restart",
        wrap("rendezvous.run.restarts:told_late", _counts_late)),
)

BUGS = (*_ENDS, *_DEPARTURES, *_LOSSES, *_RESTARTS)
