"""Bugs of a run on its way to the go: probes, numbers, tables, acknowledgements, and their end."""
# fmt: off

from __future__ import annotations

from typing import Any

from rendezvous.run.state import NOT_NEEDED
from rendezvous.wire.run import NodeState, Phase
from tests.simulation.planted.where import attempt_of, limits, report, run_of, spec, starts_of
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
    while_set,
    wrap,
)

_GO, _ENTER = "rendezvous.run.arming:go_if_ready", "rendezvous.run.moves:enter"
_GATHER_AGAIN = "rendezvous.run.moves:gather_again"
_NUMBERS, _PLAN = "rendezvous.run.arming:number_nodes", "rendezvous.run.arming:plan_without"
_SEAL, _RENEW = "rendezvous.run.arming:seal_table", "rendezvous.run.arming:renew_table"
_SURPLUS, _REFUSED = "rendezvous.run.arming:with_surplus", "rendezvous.run.arming:arm_refused"
_FAILED_PAIRS = "rendezvous.run.verifying:plan_after_round"
_OTHERS_COME = "rendezvous.run.verifying:_others_may_come"
_TIME = "rendezvous.run.state:Run.phase_timeout"
_GOES_ON = "rendezvous.run.state:Run.can_go_without"
_SETTLE = "rendezvous.run.places:settle"


_OF_ADDRESS = ("address", "interface", "mtu")


def _requested(joins: Any, former: Any) -> dict[int, int]:
    if former:
        return {join.slot: former[join.slot] for join in joins if join.slot in former}
    return {join.slot: join.requested_node for join in joins
            if join.slot and join.requested_node is not None}


def _newcomers_last(real: Function, joins: Any, chosen: Any, former: Any) -> Any:
    numbers = real(joins, chosen, former)
    order = sorted(numbers, key=lambda slot: (slot not in former, numbers[slot]))
    return {slot: number for number, slot in enumerate(order)} if former else numbers


def _counts_the_released(real: Function, run: Any, now: float) -> Any:
    said = real(run, now)
    for slot in run.slots if said else ():
        if slot.node is not None and slot.node.state is NodeState.RELEASED:
            slot.node.state = NodeState.RUNNING
    return said


def _first_addresses(real: Function, run: Any) -> Any:
    plan = real(run)
    peers = [(peer, run.slots[peer.slot].its_node.join.candidates[0]) for peer in plan.peers]
    return but(plan, peers=[
        but(peer, **{name: getattr(own, name) for name in _OF_ADDRESS}) for peer, own in peers])


def _with_the_given_up(real: Function, run: Any, *rest: Any) -> Any:
    given_up = [slot for slot in run.slots if slot.given_up]
    for slot in given_up:
        slot.given_up = False
    said = real(run, *rest)
    for slot in given_up:
        slot.given_up = True
    return said


def _keeps_the_table(real: Function, run: Any, now: float, since: Any = None) -> None:
    attempt = run.attempt
    real(run, now, since)
    run.attempt = put(attempt, enough_since=since, left_out={})


def _leaves_out_again(real: Function, run: Any, *rest: Any) -> None:
    left_out = run.attempt.left_out
    real(run, *rest)
    run.attempt.left_out = left_out
    run.waiting_for = run.waiting_for - left_out.keys()


def _proven_for_ever(real: Function, run: Any, network: Any) -> Any:
    proven = run.starts.proven
    fresh = [slot.index for slot in run.taking_part()
             if proven.get(slot.index, (0, ""))[0] != slot.its_node.incarnation]
    return tuple(fresh) if proven and len(fresh) < len(run.taking_part()) else None


def _places_stay_open(real: Function, run: Any, former: int) -> None:
    awaited = [run.slots[index] for index in run.missing if not run.slots[index].given_up]
    real(run, former)
    for slot in awaited:
        slot.given_up = False


_PROBES = (
    Bug("silence is good",
        wrap("rendezvous.run.rounds:planned_pairs", lambda real, *args: [
            but(pair, outcome="ok") if pair.detail == "it was not probed"
            else pair for pair in real(*args)])),
    Bug("failed checks forgiven", replace("rendezvous.run.rounds:failing", lambda *_: [])),
    Bug("the first network again", wrap("rendezvous.run.rounds:plan_of", _first_addresses)),
    Bug("losses: proven on other addresses",
        wrap("rendezvous.run.rounds:fresh_on", _proven_for_ever)),
    Bug("losses: newcomers are not proven",
        wrap("rendezvous.run.rounds:fresh_on", lambda real, run, network:
             () if run.starts.proven else real(run, network))),
    Bug("epoch stays",
        wrap("rendezvous.run.verifying:_begin_round", lambda real, run, now, number: real(
            put(run, epoch=run.epoch - (number == 0 and run.epoch > 0)), now, number))),
    Bug("epoch of the last round",
        wrap("rendezvous.run.verifying:_begin_round", lambda real, run, now, number: real(
            put(run, epoch=run.epoch - (number > 0)), now, number))),
    Bug("failed pairs forgiven",
        replace("rendezvous.run.rounds:count_pairs", always((0, 0)), within=_FAILED_PAIRS)),
    Bug("nobody else may come", replace(_OTHERS_COME, always(False))),
    Bug("the given up may come", wrap(_OTHERS_COME, _with_the_given_up)),
    Bug("the most are left out",
        replace("rendezvous.run.verifying:_fewest",
                lambda guilty: max(range(len(guilty)), key=lambda number: len(guilty[number])))),
    Bug("verifying has no end",
        wrap(_TIME, lambda real, run: None if run.phase is Phase.VERIFYING else real(run))),
    Bug("who is late to verify ends all",
        wrap(_GOES_ON, lambda real, run, guilty:
             run.phase is not Phase.VERIFYING and real(run, guilty),
             within="rendezvous.run.protocol:_timed_out")),
    Bug("too few is enough", wrap(_GOES_ON, while_set(run_of, spec=spec(min_nodes=1)))),
    Bug("without slot 0",
        replace("rendezvous.run.state:Run.needs", always(False), within=_GOES_ON)),
    Bug("restarts: a node is left out",
        wrap(_GOES_ON, while_set(starts_of, ended=lambda *_: []))),
)

_TABLES = (
    Bug("requested numbers ignored",
        wrap(_NUMBERS, lambda real, joins, *rest: real(
            [but(join, requested_node=None) for join in joins], *rest))),
    Bug("restarts: the numbers are forgotten", given(_NUMBERS, former={})),
    Bug("losses: a newcomer has the last number", wrap(_NUMBERS, _newcomers_last)),
    Bug("numbers with gaps",
        wrap(_NUMBERS, lambda real, joins, chosen, former:
             real(joins, chosen, former) | _requested(joins, former))),
    Bug("numbers by slot",
        replace("rendezvous.wire.types:subnet_of", always(0), within=_NUMBERS),
        replace("rendezvous.wire.types:subnet_text", always(""), within=_NUMBERS),
        replace("rendezvous.wire.words:natural_key", always(""), within=_NUMBERS)),
    Bug("subnets are mixed",
        replace("rendezvous.wire.types:subnet_of", always(0), within=_NUMBERS),
        replace("rendezvous.wire.types:subnet_text", always(""), within=_NUMBERS)),
    Bug("host10 before host9",
        replace("rendezvous.wire.words:natural_key", lambda text: text, within=_NUMBERS)),
    Bug("the last is the master",
        wrap("rendezvous.run.arming:make_table", lambda real, *args, **more: but(
            table := real(*args, **more), master_address=table.rows[-1].address))),
    Bug("spares in the table", replace(_SURPLUS, lambda run: run.attempt.left_out)),
    Bug("losses: a standby overtakes",
        wrap(_SURPLUS, while_set(starts_of, numbers=lambda run: {
            slot.index: 0 for slot in run.slots if slot.index not in run.starts.numbers}))),
    Bug("spares stay out",
        wrap(_PLAN, lambda real, run, guilty: (left_out := real(run, guilty))
             and run.attempt.left_out | left_out)),
    Bug("all spares step in",
        replace(_SURPLUS, lambda run: run.attempt.left_out, within=_PLAN)),
    Bug("losses: who has come since has gathered",
        wrap(_PLAN, while_set(attempt_of, left_out=lambda run, _guilty: {
            slot: why if why.cause else NOT_NEEDED
            for slot, why in run.attempt.left_out.items()}))),
    Bug("table changes",
        wrap(_SEAL, lambda real, run, now, port: real(
            put(run, epoch=run.epoch - (port is not None)), now, port))),
    Bug("a new table, an old epoch",
        wrap(_SEAL, lambda real, run, *rest: real(put(run, epoch=run.epoch - 1), *rest),
             within="rendezvous.run.arming:seal_without")),
    Bug("the right port is lost", wrap(_SEAL, while_set(run_of, spec=spec(master_port=None)))),
    Bug("restarts: after gathering, the port stays",
        replace("rendezvous.run.arming:next_port", lambda port: port, within=_SEAL)),
    Bug("restarts: the port stays",
        replace("rendezvous.run.arming:next_port", lambda port: port, within=_RENEW)),
    Bug("restarts: the epoch is used again",
        wrap(_RENEW, lambda real, run, now: real(put(run, epoch=run.epoch - 1), now))),
    Bug("a chosen port moves", wrap(_REFUSED, while_set(run_of, spec=spec(master_port=None)))),
    Bug("one port is tried", constant("rendezvous.run.arming:_MAX_PORT_TRIES", 1)),
    Bug("the free port is ignored", wrap(_REFUSED, report(free_port=None))),
    Bug("mixed: the first node decides",
        wrap("rendezvous.run.arming:_ask_to_arm", lambda real, run, *rest, **more: first(
            real(run, *rest, **more), put(run.attempt, mixed=False)))),
)

_THE_GO = (
    Bug("go at first ack",
        wrap("rendezvous.run.arming:acked", lambda real, run, event, now: real(
            put(run, waiting_for={event.slot}), event, now))),
    Bug("node 0 need not arm",
        wrap(_ENTER, lambda real, run, *rest: last(
            real(run, *rest), run.present > 1 and put(
                run, waiting_for=run.waiting_for - {0})))),
    Bug("losses: the fence is ignored",
        replace("rendezvous.run.fences:holding", lambda _run: [], within=_GO)),
    Bug("released nodes count", wrap(_GO, _counts_the_released)),
    Bug("losses: standbys are released at the go", replace(_SETTLE, nothing)),
    Bug("losses: released and standby are mixed up",
        wrap(_SETTLE, while_set(attempt_of, left_out=lambda run, _former: dict.fromkeys(
            run.attempt.left_out, NOT_NEEDED)))),
    Bug("losses: no standby stays",
        wrap(_SETTLE, while_set(attempt_of, left_out=lambda *_: {}))),
    Bug("losses: every place is awaited",
        wrap(_SETTLE, _places_stay_open)),
    Bug("arming has no end",
        wrap(_TIME, lambda real, run: None if run.phase is Phase.ARMING else real(run))),
    Bug("who is late to arm ends all",
        replace(_PLAN, nothing, within="rendezvous.run.protocol:_timed_out")),
    Bug("restarts: no time to stop in", wrap(_TIME, while_set(starts_of, ended=lambda *_: []))),
    Bug("the dropped table is told", wrap(_GATHER_AGAIN, _keeps_the_table)),
    Bug("left out for ever",
        wrap(_GATHER_AGAIN, _leaves_out_again)),
    Bug("deadlines of the first phase",
        wrap(_ENTER, lambda real, run, *rest: put(
            run, phase_since=first(run.phase_since, real(run, *rest))))),
    Bug("no last call",
        wrap("rendezvous.run.protocol:_phase_due", while_set(run_of, spec=limits(
            last_call_seconds=0.0)))),
    Bug("stop is not told",
        wrap("rendezvous.run.views:node_view", lambda real, *args: but(real(*args), stop=False))),
    Bug("released are not told", replace("rendezvous.run.views:_released", lambda _run: [])),
    Bug("losses: who is released hears nothing",
        replace("rendezvous.run.views:_retired", lambda _run: [])),
    Bug("ended have left",
        replace("rendezvous.run.views:everyone_left",
                lambda run: all(slot.live_node() is None for slot in run.slots))),
)

BUGS = (*_PROBES, *_TABLES, *_THE_GO)
