"""Bugs to be planted: guards taken out of the real code, each of which the simulator must catch.

Each is a small patch that lasts as long as its context; `test_planted` keeps for each the seed of a
schedule that shows it, and the invariant that names it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from rendezvous import admission, events, leases, protocol, rounds
from rendezvous.errors import Fenced, RdzvError
from rendezvous.leases import Leases
from rendezvous.schema import NodeState, Phase, ProbeReport, SlotState
from rendezvous.server import access, service
from rendezvous.server.host import Host
from rendezvous.server.service import Service
from rendezvous.state import Run, Slot

Patch = AbstractContextManager[Any]


@dataclass(frozen=True)
class Bug:
    """One planted bug: what is wrong in a sentence, and the patches that make it so."""

    words: str
    patches: Callable[[], list[Patch]]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code has the bug within."""
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


def _replace(owner: Any, name: str, new: Any) -> Patch:
    return mock.patch.object(owner, name, new)


def _move(kind: str, new: Callable[..., Any]) -> Patch:
    return mock.patch.dict(protocol._MOVES, {kind: new})


# --- who may speak --------------------------------------------------------------------------------


def _no_fencing() -> list[Patch]:
    real_node = access.Access.node

    def node(self: access.Access, name: str, slot: int, credential: Any) -> Host:
        try:
            return real_node(self, name, slot, credential)
        except Fenced:
            return self._hosts[name]

    real = admission.decide_report

    def decide(run: Run, slot: int, incarnation: int, report: Any) -> Any:
        node = run.slots[slot].node
        return real(run, slot, node.incarnation if node else incarnation, report)

    def decide_as_said(run: Run, slot: int, incarnation: int, report: Any) -> Any:
        event = decide(run, slot, incarnation, report)
        return event and event.model_copy(update={"incarnation": incarnation})

    return [
        _replace(access.Access, "node", node),
        _replace(service, "decide_report", decide_as_said),
    ]


def _old_generations_join() -> list[Patch]:
    real = admission.decide_join

    def decide(run: Run, request: Any, now: float, held: Leases) -> Any:
        slot = run.slots[request.slot]
        wanted, slot.wanted = slot.wanted, min(slot.wanted, request.generation)
        try:
            return real(run, request, now, held)
        finally:
            slot.wanted = wanted

    return [_replace(service, "decide_join", decide)]


def _joins_are_not_remembered() -> list[Patch]:
    real = admission.decide_join

    def decide(run: Run, request: Any, now: float, held: Leases) -> Any:
        slot = run.slots[request.slot]
        joins, slot.joins = slot.joins, {}
        try:
            return real(run, request, now, held)
        finally:
            slot.joins = joins

    return [_replace(service, "decide_join", decide)]


def _live_holders_are_displaced() -> list[Patch]:
    return [_replace(admission, "_refuse_when_held", lambda *_: None)]


def _rank_clashes_are_allowed() -> list[Patch]:
    return [_replace(admission, "_refuse_rank_clash", lambda *_: None)]


def _refusals_displace() -> list[Patch]:
    def decide(run: Run, slot: int, generation: int, refusal: Any) -> Any:
        told = refusal.model_dump()
        over = run.phase in (Phase.RUNNING, Phase.FINISHED)
        return None if over else events.Refused(slot=slot, generation=generation, **told)

    return [_replace(service, "decide_refusal", decide)]


def _refusals_are_not_kept() -> list[Patch]:
    real = protocol._refused

    def refused(run: Run, event: Any, now: float) -> Any:
        event = event.model_copy(update={"retryable": True})
        run.slots[event.slot].retries = 0
        return real(run, event, now)

    return [_move("refused", refused)]


def _a_running_run_takes_joins() -> list[Patch]:
    return [_replace(admission, "_refuse_when_closed", lambda *_: None)]


def _live_runs_are_replaced() -> list[Patch]:
    return [_replace(Service, "_refuse_creation", lambda *_: None)]


# --- the barrier ----------------------------------------------------------------------------------


def _go_at_the_first_acknowledgement() -> list[Patch]:
    real = protocol._acked

    def acked(run: Run, event: Any, now: float) -> Any:
        run.waiting_for = {event.slot}
        return real(run, event, now)

    return [_move("acked", acked)]


def _old_acknowledgements_count() -> list[Patch]:
    real = admission.decide_report

    def decide(run: Run, slot: int, incarnation: int, report: Any) -> Any:
        if getattr(report, "kind", "") == "ack" and run.phase is Phase.ARMING:
            report = report.model_copy(update={"epoch": run.epoch, "digest": run.digest})
        return real(run, slot, incarnation, report)

    return [_replace(service, "decide_report", decide)]


def _a_table_changes_within_its_epoch() -> list[Patch]:
    real = protocol._arm_refused

    def refused(run: Run, event: Any, now: float) -> Any:
        run.epoch -= 1
        try:
            return real(run, event, now)
        finally:
            run.epoch += run.phase is Phase.FINISHED

    return [_move("arm_refused", refused)]


def _the_epoch_stays_when_gathering_again() -> list[Patch]:
    real = protocol._end_gathering

    def end(run: Run, now: float) -> str:
        run.epoch -= run.epoch > 0
        return real(run, now)

    return [_replace(protocol, "_end_gathering", end)]


def _a_lost_node_stays_in_the_table() -> list[Patch]:
    def again(run: Run, now: float) -> None:
        run.waiting_for -= run.missing
        if not run.waiting_for:
            run.waiting_for = {slot.index for slot in run.members()}

    return [_replace(protocol, "_gather_again", again)]


def _the_last_call_needs_no_slot_0() -> list[Patch]:
    def check(run: Run, now: float) -> str:
        if run.phase is not Phase.GATHERING:
            return ""
        if not run.missing:
            return protocol._end_gathering(run, now)
        if run.present >= run.spec.min_nodes:
            run.enough_since = run.enough_since or now
        return ""

    return [_replace(protocol, "_check_gathered", check)]


def _an_exit_before_the_go_is_an_end() -> list[Patch]:
    real = protocol._exited

    def exited(run: Run, event: Any, now: float) -> Any:
        phase = run.phase
        if phase is Phase.FINISHED:
            return real(run, event, now)
        run.phase = Phase.RUNNING
        try:
            return real(run, event, now)
        finally:
            run.phase = phase if run.phase is Phase.RUNNING else run.phase

    return [_move("exited", exited)]


# --- what is proven before the go -----------------------------------------------------------------


def _failed_pairs_are_forgiven() -> list[Patch]:
    return [_replace(protocol, "count_pairs", lambda _: (0, 1))]


def _what_is_not_said_counts_as_good() -> list[Patch]:
    real = rounds.planned_pairs

    def planned(run: Run, slot: int, said: Any) -> Any:
        told = {pair.slot for pair in said}
        return [pair for pair in real(run, slot, said) if pair.slot in told]

    return [_replace(protocol, "planned_pairs", planned)]


def _an_old_rounds_report_counts() -> list[Patch]:
    real = admission.decide_report

    def decide(run: Run, slot: int, incarnation: int, report: Any) -> Any:
        awaited = run.phase is Phase.VERIFYING and slot in run.waiting_for
        if isinstance(report, ProbeReport) and awaited:
            return events.Probed(slot=slot, incarnation=incarnation, report=report)
        return real(run, slot, incarnation, report)

    return [_replace(service, "decide_report", decide)]


def _failed_checks_are_forgiven() -> list[Patch]:
    return [_replace(protocol, "failing", lambda *_: [])]


def _every_spare_is_in_the_table() -> list[Patch]:
    real = protocol._take

    def take(run: Run, now: float, number: int, found: Any) -> str:
        spec = run.spec
        run.spec = spec.model_copy(update={"max_nodes": spec.slots, "spares": 0})
        try:
            return real(run, now, number, found)
        finally:
            run.spec = spec

    return [_replace(protocol, "_take", take)]


def _released_nodes_are_the_runs() -> list[Patch]:
    real = protocol._acked

    def acked(run: Run, event: Any, now: float) -> Any:
        outcome = real(run, event, now)
        for slot in run.slots:
            if slot.node is not None and slot.node.state is NodeState.RELEASED:
                slot.node.state = NodeState.RUNNING
        return outcome

    return [_move("acked", acked)]


# --- leases ---------------------------------------------------------------------------------------


def _no_leases_after_a_restart() -> list[Patch]:
    return [_replace(Host, "grant_leases", lambda *_: None)]


def _no_brake() -> list[Patch]:
    return [_replace(Leases, "_mass_silence", lambda *_: False)]


def _the_brake_ends_with_the_first_who_comes_back() -> list[Patch]:
    def doubt(self: Leases, now: float, *, sudden: bool) -> None:
        if not self._mass_silence(now):
            self.holding_until = None
        elif self.holding_until is None and sudden:
            self.holding_until = now + self.dead_after

    return [_replace(Leases, "_doubt", doubt)]


def _own_stall_is_not_forgiven() -> list[Patch]:
    return [_replace(service, "_STALL_SECONDS", 1e9)]


def _a_fin_kills_at_once() -> list[Patch]:
    return [_replace(leases, "_CLOSED_SECONDS", 0.0)]


def _an_old_connection_kills() -> list[Patch]:
    def closed(
        self: Leases, key: Any, now: float, connection: int, *, by_peer: bool = True
    ) -> None:
        lease = self._leases.get(key)
        if lease is not None and by_peer:
            lease.closed_at = now

    def heard(self: Leases, key: Any, now: float, connection: int | None = None) -> None:
        lease = self._leases.setdefault(key, leases._Lease(now))
        lease.heard = now

    return [_replace(Leases, "closed", closed), _replace(Leases, "heard", heard)]


def _a_failed_commit_gives_full_leases() -> list[Patch]:
    real = Host.take_over

    def take_over(self: Host, fresh: Host, now: float) -> None:
        real(self, fresh, now)
        self.grant_leases(now)

    return [_replace(Host, "take_over", take_over)]


# --- the end of a run -----------------------------------------------------------------------------


def _the_verdict_goes_by_arrival() -> list[Patch]:
    real = protocol._exited

    def exited(run: Run, event: Any, now: float) -> Any:
        report = event.report.model_copy(update={"age_seconds": 0.0})
        return real(run, event.model_copy(update={"report": report}), now)

    return [_move("exited", exited)]


def _ages_are_taken_as_told() -> list[Patch]:
    return [_replace(Service, "_on_own_clock", lambda self, age: age)]


def _retries_are_unbounded() -> list[Patch]:
    real = protocol._go_on_after

    def go_on(run: Run, slot: Slot, *, again: bool) -> str:
        slot.retries = 0
        return real(run, slot, again=again)

    return [_replace(protocol, "_go_on_after", go_on)]


def _time_in_the_queue_counts() -> list[Patch]:
    real = protocol._count_waiting

    def count(slot: Slot, now: float) -> None:
        state = slot.state
        slot.state = SlotState.NONE if state is SlotState.QUEUED else state
        real(slot, now)
        slot.state = state

    return [_replace(protocol, "_count_waiting", count)]


def _the_result_is_written_over() -> list[Patch]:
    real = protocol._finish

    def finish(run: Run, now: float, result: Any) -> None:
        if run.phase is Phase.FINISHED:
            run.phase = Phase.RUNNING
        real(run, now, result)

    def cancel_anyway(self: Service, of: Host, why: str) -> Any:
        return self._change_run(of, lambda _: events.Cancelled(reason=why))

    return [
        _replace(protocol, "_finish", finish),
        _replace(Service, "cancel", cancel_anyway),
    ]


def _a_led_run_waits_for_everybody() -> list[Patch]:
    real = protocol._exited

    def exited(run: Run, event: Any, now: float) -> Any:
        spec, run.spec = run.spec, run.spec.model_copy(update={"led": False})
        try:
            return real(run, event, now)
        finally:
            run.spec = spec

    return [_move("exited", exited)]


def _nobody_is_told_to_stop() -> list[Patch]:
    real = protocol._begin_stop

    def begin(run: Run, now: float) -> None:
        before = run.seq
        real(run, now)
        run.seq = before

    return [_replace(protocol, "_begin_stop", begin)]


def _verifying_has_no_end() -> list[Patch]:
    def timeout(self: Run) -> float | None:
        limit = self.spec.limits.arm_timeout_seconds
        return limit if self.phase is Phase.ARMING else None

    return [_replace(Run, "phase_timeout", timeout)]


# --- durability -----------------------------------------------------------------------------------


def _answers_before_the_commit() -> list[Patch]:
    async def commit(self: Service, batch: list[Any]) -> None:
        touched: dict[str, int] = {}
        records = self._decide_all(batch, touched)
        self._tell(touched)
        for command in batch:
            service._answer(command)
        if records:
            with contextlib.suppress(RdzvError):
                await self._journal.append(records)

    return [_replace(Service, "_commit", commit)]


def _a_failed_commit_is_kept_in_memory() -> list[Patch]:
    return [_replace(Service, "_rebuild", lambda *_: None)]


def _a_failed_commit_is_answered_as_kept() -> list[Patch]:
    def answer(command: Any) -> None:
        if not command.done.cancelled():
            command.done.set_result(None)

    return [_replace(service, "_answer", answer)]


def _the_clock_begins_anew() -> list[Patch]:
    real = Service.recover

    def recover(self: Service) -> int:
        count = real(self)
        self._before = 0.0
        return count

    return [_replace(Service, "recover", recover)]


def _numbers_begin_anew() -> list[Patch]:
    real = protocol._restarted

    def restarted(run: Run, event: Any, now: float) -> Any:
        run.seq = 1
        return real(run, event, now)

    return [_move("restarted", restarted)]


BUGS: dict[str, Bug] = {
    "no fencing": Bug("what an older incarnation says is taken in", _no_fencing),
    "old generations join": Bug(
        "a worker run that was given up can have its slot", _old_generations_join
    ),
    "joins not remembered": Bug(
        "a join that is asked again is another join", _joins_are_not_remembered
    ),
    "live holders displaced": Bug(
        "a second node with the same token takes the slot", _live_holders_are_displaced
    ),
    "rank clashes": Bug("two nodes may ask for one rank", _rank_clashes_are_allowed),
    "refusals displace": Bug(
        "a node that refuses to join speaks for the live one in its slot", _refusals_displace
    ),
    "refusals do not last": Bug(
        "what refuses for good is submitted again for ever", _refusals_are_not_kept
    ),
    "joins while running": Bug("a sealed run takes nodes in", _a_running_run_takes_joins),
    "live runs replaced": Bug("a second launcher takes a live run id", _live_runs_are_replaced),
    "go at first ack": Bug(
        "one acknowledgement is enough for the go", _go_at_the_first_acknowledgement
    ),
    "old acks count": Bug(
        "an acknowledgement of an older table counts", _old_acknowledgements_count
    ),
    "table changes": Bug(
        "a taken port changes the table, not the epoch", _a_table_changes_within_its_epoch
    ),
    "epoch stays": Bug("gathering again makes no new epoch", _the_epoch_stays_when_gathering_again),
    "lost node stays": Bug(
        "a node lost before the go stays in the table", _a_lost_node_stays_in_the_table
    ),
    "no slot 0": Bug("the last call may end without slot 0", _the_last_call_needs_no_slot_0),
    "early exit is an end": Bug(
        "a node that ends before the go has done its part", _an_exit_before_the_go_is_an_end
    ),
    "failed pairs forgiven": Bug(
        "a network is taken on which a pair has failed", _failed_pairs_are_forgiven
    ),
    "silence is good": Bug(
        "a pair of which nothing was said is good", _what_is_not_said_counts_as_good
    ),
    "old rounds count": Bug(
        "what was said of one network counts for the next", _an_old_rounds_report_counts
    ),
    "failed checks forgiven": Bug(
        "a node that failed a check is taken", _failed_checks_are_forgiven
    ),
    "spares in the table": Bug(
        "the table has more nodes than it may", _every_spare_is_in_the_table
    ),
    "released nodes count": Bug("a released node that goes is lost", _released_nodes_are_the_runs),
    "no leases after restart": Bug(
        "after a restart nobody has a lease", _no_leases_after_a_restart
    ),
    "no brake": Bug("most nodes may die together", _no_brake),
    "short brake": Bug(
        "the brake ends with the first who comes back",
        _the_brake_ends_with_the_first_who_comes_back,
    ),
    "own stall counts": Bug("the registry's own stall runs out leases", _own_stall_is_not_forgiven),
    "FIN kills at once": Bug("a closed connection is death", _a_fin_kills_at_once),
    "old FIN kills": Bug("the close of any former connection is death", _an_old_connection_kills),
    "full leases on a full disk": Bug(
        "a commit that fails makes the silent heard", _a_failed_commit_gives_full_leases
    ),
    "verdict by arrival": Bug(
        "the first report names the cause, not the oldest", _the_verdict_goes_by_arrival
    ),
    "ages as told": Bug(
        "an age counts time in which the clock stood still", _ages_are_taken_as_told
    ),
    "unbounded retries": Bug("a slot is submitted for ever", _retries_are_unbounded),
    "queue counts": Bug(
        "time in the scheduler's queue counts for the join time-out", _time_in_the_queue_counts
    ),
    "result written over": Bug("a later result replaces the first", _the_result_is_written_over),
    "led runs wait for all": Bug(
        "the end of a led run's only program does not end it", _a_led_run_waits_for_everybody
    ),
    "nobody told to stop": Bug("a failure is no news for the other nodes", _nobody_is_told_to_stop),
    "verifying has no end": Bug("a node may verify for ever", _verifying_has_no_end),
    "answers before the commit": Bug(
        "everybody is told before it is durable", _answers_before_the_commit
    ),
    "no rebuild": Bug("what could not be kept stays in memory", _a_failed_commit_is_kept_in_memory),
    "failed commits answered": Bug(
        "what could not be kept is answered as kept", _a_failed_commit_is_answered_as_kept
    ),
    "clock begins anew": Bug("after a restart the clock is at 0", _the_clock_begins_anew),
    "numbers begin anew": Bug("after a restart the news are numbered anew", _numbers_begin_anew),
}
