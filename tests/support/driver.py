"""Runs for tests: specs and joins, and a run that is driven along on a clock that is moved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import settings

from rendezvous.registry.live_run import RefusedJoins
from rendezvous.run import events
from rendezvous.run.admission import (
    decide_cancel,
    decide_drain,
    decide_report,
    decide_restart,
    decide_slot,
)
from rendezvous.run.decision import Decision, Outcome, dump_entry, load_entry
from rendezvous.run.events import Event
from rendezvous.run.fold import apply
from rendezvous.run.joins import decide_join, decide_mismatch, decide_refusal
from rendezvous.run.leases import SWEEP_SECONDS, Leases
from rendezvous.run.protocol import decide, due
from rendezvous.run.state import Node, Run, Slot, create
from rendezvous.run.views import node_view, reason, run_status
from rendezvous.wire.errors import Mismatch, RequestError
from rendezvous.wire.node import Candidate, Facts, Finding, Job, JoinRequest, Refusal
from rendezvous.wire.peers import peers_of
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.reports import (
    AckReport,
    DepartReport,
    ExitReport,
    LeaveReport,
    ProgressReport,
    RefuseReport,
    Report,
)
from rendezvous.wire.run import (
    Limits,
    NodeState,
    Phase,
    Result,
    RunSpec,
    RunStatus,
    SlotNews,
    SlotState,
)
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import Outcome as Outcomes
from rendezvous.wire.verify import PairProbe, ProbeReport
from rendezvous.wire.watch import poll_seconds
from tests.support.differences import differences
from tests.support.nightly import examples

FEW = settings(max_examples=examples(100), derandomize=True, deadline=None)
"""Short and the same in every run of the suite."""

LAUNCH = "abcdefgh12345678"

MEMLOCK = Finding(
    check="L12",
    level="fail",
    slot=0,  # whatever it says, it is about the node that says it
    subject="memlock",
    value="64 KiB",
    expected="unlimited",
    cause="RDMA cannot register memory",
    fix="ulimit -l unlimited",
)


def sha(text: str) -> str:
    """A digest for tests."""
    return hashlib.sha256(text.encode()).hexdigest()


def make_spec(nodes: int = 2, *, least: int | None = None, **changes: Any) -> RunSpec:
    """A run of `nodes` nodes (at least `least`); limits are given by their own names."""
    limits = {name: changes.pop(name) for name in list(changes) if name in Limits.model_fields}
    values: dict[str, Any] = {
        "launch_id": LAUNCH,
        "min_nodes": nodes if least is None else least,
        "max_nodes": nodes,
        "limits": Limits(**limits),
        "read_sha256": sha("read"),
        "admin_sha256": sha("admin"),
    }
    return RunSpec(**(values | changes))


def make_join(
    slot: int, generation: int = 1, *, attempt: int = 1, addresses: Any = None, **changes: Any
) -> JoinRequest:
    """The join of a slot's node; another `attempt` is another process with the same token."""
    offered = [f"10.0.0.{slot + 1}"] if addresses is None else addresses
    values: dict[str, Any] = {
        "protocol": PROTOCOL,
        "job": Job(),
        "facts": Facts(),
        "join_id": f"join-{slot}-{generation}-{attempt:08d}",
        "hostname": f"host{slot}",
        "nproc_per_node": 1,
        "probe_port": 7_000 + slot,
        "candidates": [
            c if isinstance(c, Candidate) else make_candidate(c, f"eth{i}")
            for i, c in enumerate(offered)
        ],
    }
    return JoinRequest(slot=slot, generation=generation, **(values | changes))


def make_refusal(slot: int, **changes: Any) -> Refusal:
    """Why the slot's node does not join."""
    values: dict[str, Any] = {
        "hostname": f"host{slot}",
        "code": "usage",
        "reason": "there is no GPU",
        "hint": "ask for one",
        "exit_code": 2,
    }
    return Refusal(**(values | changes))


def make_candidate(address: str, interface: str = "eth0", prefix_length: int = 24) -> Candidate:
    """A candidate for tests."""
    return Candidate(interface=interface, address=address, prefix_length=prefix_length)


def make_probe(
    epoch: int, own: int, peers: Iterable[int], bad: Collection[int] = (), how: Outcomes = "timeout"
) -> ProbeReport:
    """The report of a node that has reached all its peers, but for the bad ones."""
    told = dict.fromkeys([*peers, *bad])
    pairs = [PairProbe(slot=p, outcome=how if p in bad else "ok") for p in told if p != own]
    return ProbeReport(epoch=epoch, pairs=pairs)


class Drive:
    """One run, wired as the registry wires it: decisions, leases, and a clock that is moved."""

    def __init__(self, spec: RunSpec, now: float = 100.0) -> None:
        self.now = now
        self.run = create("r", spec, now)
        self.replayed = create("r", spec, now)
        lease = spec.limits.lease_seconds
        self.leases = Leases(lease, poll_seconds(spec.slots, lease))
        self.journal: list[tuple[float, Event]] = []
        self.bodies: list[bytes] = []
        self.outcomes: list[Outcome] = []
        self.refused = RefusedJoins()
        self.apply(events.Created(run="r", spec=spec))

    def apply(self, event: Event) -> Outcome:
        """Keep the event, change the run, let the leases follow."""
        self.journal.append((self.now, event))
        before = self._stage()
        decision = decide(self.run, event, self.now)
        outcome = decision.outcome
        self._replay(event, decision)
        self._check_times(before)
        assert outcome.reason
        assert (about := _slot_of(event)) is None or outcome.slot == about
        self.outcomes.append(outcome)
        if isinstance(event, events.Joined):
            slot = self.run.slots[event.request.slot]
            self.leases.forget((slot.index, slot.incarnations - 1))
            self.leases.heard((slot.index, slot.incarnations), self.now)
        elif isinstance(event, events.Lost | events.Left):
            self.leases.forget((event.slot, event.incarnation))
        self.refused.applied(event)
        return outcome

    def _replay(self, event: Event, decision: Decision) -> None:
        """The journal alone leads to the same state."""
        body = dump_entry(event, decision)
        self.bodies.append(body)
        apply(self.replayed, *load_entry(body))
        assert self.replayed == self.run, (differences(self.replayed, self.run), body)

    def edit(self, change: Callable[[Run], object]) -> None:
        """Have the run be in a state to which no event would bring it."""
        for run in (self.run, self.replayed):
            change(run)

    def _stage(self) -> tuple[Phase, int, float]:
        return self.run.phase, self.run.epoch, self.run.phase_since

    def _check_times(self, before: tuple[Phase, int, float]) -> None:
        """A phase is as old as the event that began it, and the end as the one that ended it."""
        *stage, since = before
        began = [self.run.phase, self.run.epoch] != stage
        assert self.run.phase_since == (self.now if began else since)
        if began and self.run.phase is Phase.FINISHED:
            assert self.run.finished_at == self.now

    def _apply_if(self, event: Event | None) -> Outcome | None:
        return None if event is None else self.apply(event)

    def join(self, slot: int, generation: int = 1, **changes: Any) -> int:
        """A node joins; returns its incarnation. A lasting refusal is kept, as in the registry.

        It joins from a `source`, if not from its first address; `here`, from the registry's own.
        """
        here, source = changes.pop("here", False), changes.pop("source", None)
        request = make_join(slot, generation, **changes)
        source = request.candidates[0].address if source is None else source
        try:
            self._apply_if(decide_join(self.run, request, self.now, self.leases, source, here))
        except Mismatch as exc:
            self._apply_if(decide_mismatch(self.run, request, exc))
            raise
        return self.run.slots[slot].joins[request.join_id]

    def ask(self, slot: int, *, source: str = "", **changes: Any) -> RequestError | None:
        """A node asks, as at the registry; returns why it is refused, if it is."""
        request = make_join(slot, **changes)
        event: Event | None
        refused: RequestError | None = None
        try:
            event = decide_join(self.run, request, self.now, self.leases)
        except RequestError as exc:
            refused = exc
            ends = decide_mismatch(self.run, request, exc) if isinstance(exc, Mismatch) else None
            known = self.run, request, exc, source, self.now, self.leases
            event = ends or self.refused.note(*known)
        self._apply_if(event)
        return refused

    def ask_for(self, seconds: float, *slots: int, **changes: Any) -> None:
        """Nodes ask again and again, twice a second, while the others go on polling."""
        end = self.now + seconds
        while self.now < end and self.run.result is None:
            for slot in slots:
                self.ask(slot, **changes)
            self.wait(0.5)

    def report(self, slot: int, report: Report, incarnation: int | None = None) -> Outcome | None:
        """The slot's node says something; None when it changes nothing."""
        number = self.run.slots[slot].incarnations if incarnation is None else incarnation
        self.leases.heard((slot, number), self.now)
        return self._apply_if(decide_report(self.run, slot, number, report, self.now))

    def probe(self, slot: int, *bad: int, how: Outcomes = "timeout") -> Outcome | None:
        """The node reports on the peers that it was to probe."""
        epoch, listening = self.run.epoch, self.listening()
        peers = peers_of(listening, slot, epoch) if slot in listening else []
        return self.report(slot, make_probe(epoch, slot, peers, bad, how))

    def listening(self) -> list[int]:
        """The slots whose nodes answer probes in the round that is on."""
        probing = self.run.attempt.probing
        return list(probing.listening) if probing is not None else []

    def ack(self, slot: int, *, warm: bool = False) -> Outcome | None:
        """The node acknowledges the present table."""
        ack = AckReport(epoch=self.run.epoch, digest=self.run.digest, warm=warm)
        return self.report(slot, ack)

    def refuse(self, slot: int, code: Any, reason: str, free_port: int | None = None) -> None:
        """The node cannot start on the present table."""
        epoch = self.run.epoch
        self.report(slot, RefuseReport(epoch=epoch, code=code, reason=reason, free_port=free_port))

    def refuse_to_join(self, slot: int, generation: int = 1, **changes: Any) -> Outcome | None:
        """A node that has not joined says that it cannot; None when it changes nothing."""
        refusal = make_refusal(slot, **changes)
        return self._apply_if(decide_refusal(self.run, slot, generation, refusal, self.now))

    def progress(self, slot: int, words: str) -> Outcome | None:
        """The node says how its program is doing."""
        return self.report(slot, ProgressReport(epoch=self.run.epoch, words=words))

    def exit(self, slot: int, code: int, **changes: Any) -> Outcome | None:
        """The node's program has ended; in an earlier `epoch`, if one is named."""
        epoch = changes.pop("epoch", self.run.epoch)
        return self.report(slot, ExitReport(epoch=epoch, exit_code=code, **changes))

    def leave(self, slot: int) -> None:
        """The node's agent goes for good."""
        self.report(slot, LeaveReport())

    def depart(self, slot: int, seconds: float, why: str) -> Outcome | None:
        """The node says that it will go in so many seconds."""
        report = DepartReport(epoch=self.run.epoch, seconds=seconds, words=why)
        return self.report(slot, report)

    def close(self, slot: int) -> None:
        """The last connection of the slot's node is closed."""
        self.leases.heard((slot, 1), self.now, connection=7)
        self.leases.closed((slot, 1), self.now, 7)

    def offer(self, networks: int) -> None:
        """Every node joins with an address in so many networks."""
        for slot in range(len(self.run.slots)):
            self.join(slot, addresses=[f"10.{net}.0.{slot + 1}" for net in range(networks)])

    def registry_restarts(self) -> None:
        """The registry comes back on its journal; every node has a full lease."""
        self.apply(events.Restarted())
        filled = [slot for slot in self.run.slots if slot.node is not None]
        self.leases.grant_all([(slot.index, slot.incarnations) for slot in filled], self.now)

    def time_out(self, **trouble: Any) -> None:
        """The time to join is over, and the registry itself had this trouble meanwhile."""
        self.now += SWEEP_SECONDS
        self.apply(events.TimedOut(phase=Phase.GATHERING, **trouble))

    def end_well(self, *slots: int) -> None:
        """The programs of these nodes end with 0."""
        for slot in slots:
            self.exit(slot, 0)

    def stop(self, *slots: int, code: int = 143) -> None:
        """The programs of these nodes end because they are told to."""
        for slot in slots:
            self.exit(slot, code, stopped=True, age_seconds=0.25 * (slot + 1))

    def fail(self, slot: int, code: int, **changes: Any) -> None:
        """The node's program fails, and those of all others end because they are told to."""
        self.exit(slot, code, **changes)
        others = [one for one in self.run.of_table() if one.index != slot]
        self.stop(*(one.index for one in others if one.its_node.state is NodeState.RUNNING))

    def news(self, slot: int, state: SlotState, generation: int = 1, **changes: Any) -> str | None:
        """The launcher tells of a worker run; returns what it did, in words."""
        news = SlotNews(generation=generation, state=state, **changes)
        outcome = self._apply_if(decide_slot(self.run, slot, news))
        return None if outcome is None else outcome.reason

    def restart(self, why: str) -> Outcome | None:
        """Somebody wants the programs to start again; None when that changes nothing."""
        return self._apply_if(decide_restart(self.run, why))

    def drain(self, slot: int, seconds: float, why: str = "") -> Outcome | None:
        """Somebody wants the slot's node to go; None when that changes nothing."""
        return self._apply_if(decide_drain(self.run, slot, seconds, why, self.now))

    def cancel(self, why: str) -> Event | None:
        """What a cancel would change just now."""
        return decide_cancel(self.run, why, self.now, self.leases)

    def cancelled(self) -> None:
        """A person cancels the run."""
        self._apply_if(self.cancel("SIGTERM at the launcher"))

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What happens within changes nothing."""
        kept = len(self.journal)
        yield
        assert len(self.journal) == kept, self.reasons[kept:]

    def wait(self, seconds: float, *, silent: Collection[int] = ()) -> Drive:
        """Let time pass, sweep by sweep; every node but the silent ones keeps polling."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + SWEEP_SECONDS)
            for slot in self.run.slots:
                if slot.node is not None and slot.index not in silent and not self._gone(slot):
                    self.leases.heard((slot.index, slot.node.incarnation), self.now)
            for event in due(self.run, self.now, self.leases):
                self.apply(event)
        return self

    @staticmethod
    def _gone(slot: Slot) -> bool:
        return slot.node is not None and slot.node.state in (NodeState.LOST, NodeState.LEFT)

    def gather(self, *slots: int) -> Drive:
        """These nodes join, all when none is named."""
        for slot in slots or range(len(self.run.slots)):
            self.join(slot)
        return self

    def verify(self) -> Drive:
        """Every node of the run finds all its peers."""
        for slot in sorted(self.run.waiting_for):
            self.probe(slot)
        return self

    def arm(self) -> Drive:
        """Every node of the table acknowledges it."""
        for slot in sorted(self.run.waiting_for):
            self.ack(slot)
        return self

    @property
    def reasons(self) -> list[str]:
        """What each event did, in words."""
        return [outcome.reason for outcome in self.outcomes]

    def waits(self) -> str:
        """What the run waits for or does, in words."""
        return reason(self.run, self.now)

    def status(self) -> RunStatus:
        """The run's status, as a board shows it."""
        return run_status(self.run, self.now, self.leases)

    @property
    def phase(self) -> Phase:
        """The run's phase."""
        return self.run.phase

    @property
    def result(self) -> Result:
        """The run's result; there must be one."""
        assert self.run.result is not None, self.reasons
        return self.run.result

    @property
    def failure(self) -> tuple[int, str | None, int | None]:
        """The exit code, the error code and the slot of a failed run."""
        assert self.result.status == "failed"
        return self.result.exit_code, self.result.code, self.result.slot

    @property
    def table(self) -> EndpointTable:
        """The run's table; there must be one."""
        assert self.run.table is not None, self.reasons
        return self.run.table

    def table_slots(self) -> list[int] | None:
        """The slots of the table in order of their nodes; None where there is no table."""
        return None if self.run.table is None else [row.slot for row in self.run.table.rows]

    @property
    def network(self) -> str:
        """The network of the table, in words; there must be one."""
        assert self.run.network is not None, self.reasons
        return self.run.network.words

    def plan(self) -> list[int] | None:
        """The slots that nodes are to probe."""
        plan = node_view(self.run, self.now, 2.0).plan
        return None if plan is None else [peer.slot for peer in plan.peers]

    def findings(self, check: str) -> list[tuple[str, int | None]]:
        """The level and the slot of what a check has found."""
        found = self.run.attempt.findings
        return [(one.level, one.slot) for one in found if one.check == check]

    def ended(self) -> list[tuple[int, int]]:
        """The epochs that have ended, with their exit codes."""
        return [(end.epoch, end.exit_code) for end in self.run.starts.ended]

    def stopping_in(self) -> float:
        """In how many seconds the programs are stopped because a node goes."""
        assert self.run.departure is not None, self.reasons
        return self.run.departure.stop_at - self.now

    def slot(self, index: int) -> Slot:
        """A slot of the run."""
        return self.run.slots[index]

    def node(self, index: int) -> Node:
        """The node in a slot; there must be one."""
        node = self.run.slots[index].node
        assert node is not None
        return node

    def states(self) -> list[str]:
        """How far each slot's node is; `-` for an empty slot."""
        return [str(s.node.state) if s.node is not None else "-" for s in self.run.slots]


def _slot_of(event: Event) -> int | None:
    """The slot that an event is about, which its line in the log has to name."""
    about = event.request if isinstance(event, events.Joined) else event
    return getattr(about, "slot", None)


def in_phase(phase: Phase, nodes: int = 2, **changes: Any) -> Drive:
    """A run in which all nodes have come to this phase."""
    drive = Drive(make_spec(nodes, **changes))
    if phase is Phase.GATHERING:
        return drive.gather(*range(nodes - 1)) if nodes > 1 else drive
    drive.gather()
    if phase is not Phase.VERIFYING:
        drive.verify()
    if phase is Phase.RUNNING:
        drive.arm()
    assert drive.phase is phase
    return drive


RANKS = {0: 0, 1: 2, 2: 3, 3: 1}
PROCESSES = {0: 2, 1: 1, 2: 3, 3: 1}
OF_RANKS = {0: range(2), 3: range(2, 3), 1: range(3, 4), 2: range(4, 7)}
"""By slot, of `skewed`: its node, processes, and the ranks of these; in order of the nodes."""
GENERATIONS = {0: 1, 1: 2, 2: 5, 3: 3}
HOSTS = {0: "gpu-9", 1: "gpu-4", 2: "gpu-7", 3: "gpu-2"}


def skewed(**changes: Any) -> Drive:
    """A run that goes, in which no number is another one: slots, ranks, generations, incarnations,
    processes and the epoch differ, so that whoever takes the one for the other is found."""
    drive = Drive(make_spec(4, **changes))
    drive.join(2)  # two others had this slot before
    drive.join(2, 2)
    for slot in (2, 0, 3, 1):
        own = {"nproc_per_node": PROCESSES[slot], "requested_node": RANKS[slot]}
        drive.join(slot, GENERATIONS[slot], hostname=HOSTS[slot], **own)
    drive.verify()
    for port in (29_501, 29_502, 29_503):
        drive.refuse(1, "port_taken", "the port is taken", port)
    drive.arm()
    assert (drive.phase, drive.run.epoch) == (Phase.RUNNING, 4)
    return drive
