"""Bugs of a run: who may join, which reports and words count, and how long who is awaited."""
# fmt: off

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from rendezvous.run import events, gathering
from rendezvous.run.gathering import Recovery
from rendezvous.run.replacing import outlives
from rendezvous.run.state import DEAD_SUBMISSIONS
from rendezvous.wire.errors import Cause, ExitCode, Mismatch, RunOver, SlotTaken
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, RefuseReport
from rendezvous.wire.run import NodeState, Phase, SlotState
from rendezvous.wire.verify import ProbeReport
from tests.simulation.planted.where import run_of, slot_of, starts_of
from tests.simulation.planting import (
    Bug,
    Function,
    Part,
    always,
    but,
    first,
    given,
    nothing,
    put,
    replace,
    while_set,
    wrap,
)

_REPORT, _SLOT = "rendezvous.run.admission:decide_report", "rendezvous.run.admission:decide_slot"
_CANCEL, _JOIN = "rendezvous.run.admission:decide_cancel", "rendezvous.run.joins:decide_join"
_CLASH = "rendezvous.run.joins:_refuse_number_clash"
_REFUSAL = "rendezvous.run.joins:decide_refusal"
_CHECK = "rendezvous.run.gathering:check_gathered"

_ANY_JOIN = TypeAdapter(JoinRequest)


def _named_slot(run: Any, index: int, *_: Any) -> Any:
    return run.slots[index]


def _asking_slot(run: Any, request: Any, *_: Any) -> Any:
    return run.slots[request.slot]


# --- functions that take more than an expression --------------------------------------------------


def _from_node(whose: Function, **known: Any) -> Part:
    """Decide on such reports as if this was known of their node."""
    return wrap(_REPORT, while_set(
        lambda run, slot, _number, report, *_: (node := run.slots[slot].node)
        and whose(node, report) and node, **known))


def _waits_for(*kinds: type) -> Part:
    """Have such a report awaited from everybody."""
    return wrap(_REPORT, while_set(
        lambda run, slot, _number, report, *_: run if isinstance(report, kinds) else None,
        waiting_for=lambda run, *_: {slot.index for slot in run.slots}))


def _of_today(kind: type) -> Part:
    """Take such a report for one of the present epoch."""
    return wrap(_REPORT, while_set(
        lambda run, slot, number, report, *_: run if isinstance(report, kind) else None,
        epoch=lambda run, slot, number, report, *_: report.epoch))


_OF_THE_TABLE = wrap(_REPORT, while_set(
    lambda run, slot, number, report, *_: run.attempt if isinstance(report, AckReport) else None,
    digest=lambda run, slot, number, report, *_: report.digest))


def _of_job(**told: Any) -> Part:
    """Have every node tell this of its job."""
    return wrap("rendezvous.run.joins:_refuse_other_job", lambda real, run, request: real(
        run, but(request, job=but(request.job, **{
            name: value(run) if callable(value) else value for name, value in told.items()}))))


def _even_if_over(real: Function, run: Any, slot: int, news: Any) -> Any:
    try:
        return real(run, slot, news)
    except RunOver:
        return events.SlotChanged(slot=slot, news=news)


def _lets_in(real: Function, run: Any, slot: Any) -> None:
    try:
        real(run, slot)
    except SlotTaken:
        if outlives(run):
            raise


def _names_one(real: Function, run: Any, request: Any) -> None:
    try:
        real(run, request)
    except Mismatch as exc:
        if "both ask" not in exc.message:
            raise
        words = f"slot {request.slot} asks to be node {request.requested_node}, which is taken"
        raise Mismatch(words) from exc


def _keeps_enough_since(real: Function, run: Any, now: float) -> Any:
    attempt, since = run.attempt, run.attempt.enough_since
    said = real(run, now)
    if run.attempt is attempt and attempt.enough_since is None:
        attempt.enough_since = since
    return said


def _never_enough_since(real: Function, run: Any, now: float) -> Any:
    attempt, since = run.attempt, run.attempt.enough_since
    said = real(run, now)
    if run.attempt is attempt and since is None:
        attempt.enough_since = None
    return said


def _no_standby(real: Function, run: Any, event: Any, now: float) -> Any:
    outcome = real(run, event, now)
    slot = run.slots[event.request.slot]
    if slot.its_node.state is NodeState.STANDBY:
        slot.its_node.state = NodeState.JOINED
        left_out = run.attempt.left_out
        run.attempt.left_out = {key: why for key, why in left_out.items() if key != slot.index}
    return outcome


def _death_is_all(real: Function, run: Any, slot: Any, news: Any, now: float) -> Any:
    there = slot.node is not None and slot.node.state is not NodeState.RELEASED
    if run.rules.is_forming or not there or not gathering.worker_run_is_over(slot):
        return real(run, slot, news, now)
    why, code = gathering.words_of_end(news.detail), gathering.cause_of(slot, Cause.NODE_LOST)
    return gathering.before_go_failed(run, slot, why, code, now)


def _clock_goes_on(real: Function, run: Any, slot: Any, now: float) -> None:
    waited, since = slot.waited, slot.waiting_since
    real(run, slot, now)
    put(slot, waited=waited, waiting_since=slot.waiting_since if since is None else since)


def _others(run: Any, slot: Any) -> int:
    return sum(one is not slot and not one.given_up for one in run.slots)


_REPORTS = (
    Bug("no fencing",
        wrap(_REPORT, while_set(lambda run, slot, *_: run.slots[slot].node,
                                incarnation=lambda run, slot, number, *_: number)),
        wrap("rendezvous.registry.access:_refuse_fenced",
             lambda real, run, shown: run.slots[shown.slot].node or real(run, shown))),
    Bug("lost nodes speak",
        _from_node(lambda node, report: node.state is NodeState.LOST
                   and not isinstance(report, LeaveReport), state=NodeState.RUNNING)),
    Bug("exits count twice",
        _from_node(lambda node, report: node.state is NodeState.EXITED
                   and isinstance(report, ExitReport), state=NodeState.RUNNING, reported=-1)),
    Bug("restarts: a doubled end counts twice", _from_node(always(True), reported=-1)),
    Bug("acks count twice", _waits_for(AckReport, RefuseReport)),
    Bug("probes count twice", _waits_for(ProbeReport)),
    Bug("old acks count", _of_today(AckReport), _OF_THE_TABLE),
    Bug("ack of any digest", _OF_THE_TABLE),
    Bug("old rounds count", _of_today(ProbeReport)),
    Bug("old news count",
        wrap(_SLOT, lambda real, run, slot, news: real(run, slot, news)
             if news.generation >= run.slots[slot].generation
             else events.SlotChanged(slot=slot, news=news))),
    Bug("the dead rise",
        wrap(_SLOT, lambda real, run, slot, news: real(run, slot, news) or (
            events.SlotChanged(slot=slot, news=news)
            if news.generation == run.slots[slot].generation
            and run.slots[slot].state in DEAD_SUBMISSIONS
            and news.state is not run.slots[slot].state else None))),
    Bug("submitted after the end", wrap(_SLOT, _even_if_over)),
    Bug("cancel hides the cause",
        replace(_CANCEL, lambda run, why, *_: None if run.phase is Phase.FINISHED
                else events.Cancelled(reason=why))),
    Bug("no cancel while running",
        wrap(_CANCEL, lambda real, run, *rest: (run.phase is not Phase.RUNNING and real(run, *rest))
             or None)),
    Bug("restarts: a cancel is not heard",
        wrap(_CANCEL, lambda real, run, *rest: (run.phase is not Phase.RESTARTING
             and real(run, *rest)) or None)),
    Bug("result written over",
        wrap(_CANCEL, lambda real, run, why, *rest: events.Cancelled(reason=why)
             if run.phase is Phase.FINISHED else real(run, why, *rest)),
        wrap("rendezvous.run.moves:finish", lambda real, run, *rest: real(
            put(run, phase=Phase.RUNNING) if run.phase is Phase.FINISHED else run, *rest))),
    Bug("departures: drained now", given("rendezvous.run.admission:decide_drain", seconds=0.0)),
)

_JOINS = (
    Bug("old generations join", wrap(_JOIN, while_set(_asking_slot, wanted=0))),
    Bug("losses: an older worker run joins",
        wrap(_JOIN, while_set(lambda run, request, *_: run.slots[request.slot]
                              if outlives(run) else None, wanted=0))),
    Bug("joins not remembered", wrap(_JOIN, while_set(_asking_slot, joins=lambda *_: {}))),
    Bug("joins while running", replace("rendezvous.run.joins:_refuse_when_closed", nothing)),
    Bug("live holders displaced", replace("rendezvous.run.joins:_refuse_when_held", nothing)),
    Bug("nobody displaces",
        wrap("rendezvous.run.joins:_refuse_when_held", while_set(
            lambda run, slot, *_: slot.node,
            join=lambda run, slot, request, *_: but(
                slot.node.join, generation=request.generation)))),
    Bug("late joins refused", replace("rendezvous.run.joins:_does_without", always(False))),
    Bug("join after gathering", wrap("rendezvous.run.joins:_refuse_when_closed", _lets_in)),
    Bug("losses: no room is room",
        replace("rendezvous.run.places:is_empty", always(False),
                within="rendezvous.run.joins:_refuse_when_full")),
    Bug("losses: who is released joins",
        wrap("rendezvous.run.joins:_refuse_when_full", while_set(slot_of, given_up=False))),
    Bug("other size joins", _of_job(nnodes=None)),
    Bug("other command joins", replace("rendezvous.run.joins:_refuse_other_command", nothing)),
    Bug("other framework joins", _of_job(framework=lambda run: run.spec.job.framework)),
    Bug("other protocol joins",
        replace("rendezvous.registry.routes.nodes:read_join", _ANY_JOIN.validate_json)),
    Bug("number clashes", replace("rendezvous.run.state:Run.members", always([]), within=_CLASH)),
    Bug("any number goes",
        wrap(_CLASH, lambda real, run, request:
             (request.requested_node or 0) >= run.spec.slots or real(run, request))),
    Bug("node 0 for anybody",
        wrap(_CLASH, lambda real, run, request:
             (request.requested_node == 0) != (request.slot == 0) or real(run, request))),
    Bug("a clash names one", wrap(_CLASH, _names_one)),
    Bug("refusals displace",
        wrap(_REFUSAL, lambda real, run, slot, number, refusal, *rest: real(
            run, slot, number, but(refusal, of_slot=True), *rest)),
        replace("rendezvous.run.state:Slot.live_node", always(None), within=_REFUSAL)),
    Bug("stale refusals count", wrap(_REFUSAL, while_set(_named_slot, wanted=0))),
)

_GATHERING = (
    Bug("slot 0 is never late",
        replace("rendezvous.run.state:Run.needs", always(False),
                within="rendezvous.run.gathering:overdue_slots")),
    Bug("everybody is needed",
        replace("rendezvous.run.state:Run.needs", always(True),
                within="rendezvous.run.gathering:overdue_slots")),
    Bug("refusals do not last",
        wrap("rendezvous.run.gathering:_refused_itself", lambda real, run, slot, event, *rest: real(
            run, slot, but(event, retryable=True), *rest))),
    Bug("lost node stays",
        wrap("rendezvous.run.gathering:_recover", lambda real, run, slot, *rest: first(
            real(run, slot, *rest), put(run, waiting_for=run.waiting_for - {slot.index}))),
        replace("rendezvous.run.moves:gather_again", nothing,
                within="rendezvous.run.gathering:_recover")),
    Bug("restarts: a lost node is submitted again",
        wrap("rendezvous.run.gathering:recovery_of", while_set(starts_of, ended=lambda *_: []))),
    Bug("displaced node stays",
        replace("rendezvous.run.moves:gather_again", nothing,
                within="rendezvous.run.gathering:joined")),
    Bug("no slot 0", replace("rendezvous.run.state:Run.needs", always(False), within=_CHECK)),
    Bug("last call goes on", wrap(_CHECK, _keeps_enough_since)),
    Bug("endless last call", wrap(_CHECK, _never_enough_since)),
    Bug("spared slots are awaited",
        replace("rendezvous.run.state:Run.may_come", always(True), within=_CHECK)),
    Bug("losses: enough is not enough",
        replace("rendezvous.run.gathering:_is_full_again", always(False))),
    Bug("on its way for ever",
        wrap("rendezvous.run.gathering:recovery_of", lambda real, run, slot, **more:
             Recovery.ON_ITS_WAY if slot.node and slot.node.join.generation == slot.generation
             and slot.state not in DEAD_SUBMISSIONS and slot.index not in run.attempt.left_out
             else real(run, slot, **more))),
    Bug("one retry more",
        wrap("rendezvous.run.gathering:recovery_of",
             while_set(slot_of, retries=lambda _run, slot: slot.retries - 1))),
    Bug("unbounded retries",
        wrap("rendezvous.run.gathering:recovery_of", while_set(slot_of, retries=-1_000))),
    Bug("slot 0 is spared",
        replace("rendezvous.run.gathering:_can_spare",
                lambda run, slot: _others(run, slot) >= run.spec.min_nodes)),
    Bug("nobody is spared",
        replace("rendezvous.run.gathering:_can_spare",
                lambda run, slot: slot.index != 0 and _others(run, slot) > run.spec.min_nodes)),
    Bug("deaths count twice",
        wrap("rendezvous.run.gathering:_submission_died", lambda real, run, slot, news, now: real(
            run, slot, but(news, generation=max(news.generation, slot.wanted)), now))),
    Bug("the scheduler's word is all",
        replace("rendezvous.run.gathering:_is_followed", lambda run: run.result is None),
        wrap("rendezvous.run.gathering:_submission_died", _death_is_all)),
    Bug("another's death",
        replace("rendezvous.run.gathering:worker_run_is_over",
                lambda slot: slot.node is not None and slot.state in DEAD_SUBMISSIONS)),
    Bug("the scheduler is to blame",
        wrap("rendezvous.run.moves:failure",
             lambda real, *args, exit_code=None, report=None: real(
                 *args, exit_code=exit_code if report else ExitCode.SCHEDULER_FAILED,
                 report=report), within="rendezvous.run.gathering:before_go_failed")),
    Bug("losses: a lost one between is not missed",
        replace("rendezvous.run.moves:gather_again", nothing,
                within="rendezvous.run.gathering:_go_on_without")),
    Bug("losses: who comes while programs run is no standby",
        wrap("rendezvous.run.gathering:joined", _no_standby)),
    Bug("the clock goes on", wrap("rendezvous.run.places:vacate", _clock_goes_on)),
    Bug("queue counts",
        wrap("rendezvous.run.places:count_waiting",
             while_set(run_of, state=SlotState.SUBMITTED))),
    Bug("time before the queue is lost",
        wrap("rendezvous.run.state:Slot.wait_seconds", while_set(run_of, waited=0.0))),
)

BUGS = (*_REPORTS, *_JOINS, *_GATHERING)
