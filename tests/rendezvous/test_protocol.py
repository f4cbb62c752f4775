"""The run's state machine on its straight way, and as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rendezvous.run import events
from rendezvous.run.views import reason
from rendezvous.wire.errors import Mismatch, RequestError
from rendezvous.wire.node import Finding, Job
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, Report
from rendezvous.wire.run import NodeState, Phase, Result, SlotState
from tests.support.driver import FEW, LAUNCH, Drive, in_phase, make_probe, make_spec, sha
from tests.support.nightly import examples

BEFORE_GO = [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING]


def test_a_run_goes_from_the_first_join_to_a_good_end() -> None:
    drive = Drive(make_spec())
    assert drive.reasons[-1] == "run 'r' was created for 2 nodes"
    drive.join(1)
    assert (drive.phase, drive.run.epoch, drive.states()) == ("gathering", 0, ["-", "joined"])
    assert drive.reasons[-1] == "host1 joined (1 of 2), from 10.0.0.2"
    drive.join(0)
    assert (drive.phase, drive.run.epoch) == ("verifying", 1)
    assert drive.states() == ["joined", "joined"]
    assert drive.reasons[-1] == "host0 joined (2 of 2), from 10.0.0.1"
    drive.probe(0)
    assert (drive.phase, drive.states()) == ("verifying", ["verified", "joined"])
    assert drive.reasons[-1] == "slot 0 (host0) verified its peers"
    drive.probe(1)
    assert (drive.phase, drive.states()) == ("arming", ["verified", "verified"])
    assert [row.address for row in drive.table.rows] == ["10.0.0.1", "10.0.0.2"]
    assert drive.table.master_port == 29500
    assert drive.reasons[-1] == "slot 1 (host1) verified its peers"
    drive.ack(0)
    assert (drive.phase, drive.states()) == ("arming", ["armed", "verified"])
    assert drive.reasons[-1] == "node 0 (host0) is ready"
    drive.ack(1)
    assert (drive.phase, drive.states()) == ("running", ["running", "running"])
    assert drive.reasons[-1] == (
        "both nodes reach each other over eth0 (10.0.0.0/24, Ethernet); starting torchrun"
    )
    drive.wait(60)
    drive.exit(0, 0, ran_seconds=59.6)
    assert drive.phase == "running"
    assert drive.reasons[-1] == "node 0 (host0) ended with exit code 0"
    drive.exit(1, 0, ran_seconds=58.0)
    assert (drive.result.status, drive.result.exit_code, drive.result.code) == ("ok", 0, "")
    assert (drive.result.slot, drive.result.node) == (None, None)
    assert drive.reasons[-1] == "node 1 (host1) ended with exit code 0"
    assert drive.result.message == "both nodes ended with exit code 0"
    assert drive.result.hint == ""


def test_every_event_gives_the_state_a_new_version_and_every_news_for_all_nodes_a_number() -> None:
    drive = Drive(make_spec())
    assert (drive.run.version, drive.run.seq) == (2, 1)
    drive.gather()
    assert (drive.run.version, drive.run.seq) == (4, 2)
    drive.verify()
    assert (drive.run.version, drive.run.seq) == (6, 3)
    drive.arm()
    assert (drive.run.version, drive.run.seq) == (8, 4)
    drive.exit(0, 1)
    assert drive.run.seq == 5
    drive.wait(5)
    assert drive.run.seq == 6


def test_a_run_and_its_slots_wait_since_the_run_was_made() -> None:
    drive = Drive(make_spec(2))
    assert (drive.run.created_at, drive.run.phase_since) == (100.0, 100.0)
    assert (drive.slot(1).since, drive.slot(1).waiting_since) == (100.0, 100.0)
    assert drive.slot(1).waited == 0.0


def test_a_table_is_of_its_run_and_named_by_its_digest() -> None:
    drive = in_phase(Phase.ARMING)
    run, table = drive.run, drive.run.table
    assert table is not None
    assert (table.run, table.launch_id, table.epoch) == ("r", LAUNCH, 1)
    assert (table.master_address, table.transport) == ("10.0.0.1", "Socket")
    assert run.digest == table.digest()
    drive.ack(0)
    assert drive.reasons[-1] == "node 0 (host0) is ready"


def test_join_tokens_come_with_the_run_or_with_the_submission() -> None:
    drive = Drive(make_spec(2, token_sha256=[sha("0"), sha("1")]))
    drive.news(1, SlotState.SUBMITTING, 2, token_sha256=sha("1, again"))
    drive.news(1, SlotState.SUBMITTED, 2)
    assert [slot.tokens for slot in drive.run.slots] == [
        {1: sha("0")},
        {1: sha("1"), 2: sha("1, again")},
    ]


# --- the machine as a whole -----------------------------------------------------------------------

SLOTS = st.integers(0, 3)
GENERATIONS = st.integers(1, 3)
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.9.9.9", "fd00::1"])
MOSTLY_NOW = st.sampled_from([0, 0, 0, 1])
"""How far back the epoch or the incarnation lies that a message is about."""


def seldom(*values: Any, usual: Any = None, often: int = 12) -> st.SearchStrategy[Any]:
    """The usual value, and one of these now and then."""
    return st.sampled_from([*[usual] * often, *values])


class Machine(RuleBasedStateMachine):
    """Everybody says anything at any time; the registry decides; its promises hold."""

    @initialize(
        phase=st.sampled_from([*BEFORE_GO, Phase.RUNNING]),
        least=st.integers(3, 4),
        spares=st.integers(0, 1),
        verify=st.booleans(),
    )
    def start(self, phase: Phase, least: int, spares: int, verify: bool) -> None:
        verify = verify or phase is Phase.VERIFYING
        nodes = 4 - spares
        sizes = {"least": min(least, nodes), "spares": spares}
        limits = {"last_call_seconds": 5, "submit_retries": 3}
        self.drive = in_phase(phase, nodes, verify=verify, **sizes, **limits)
        self.tables: dict[int, str] = {}
        self.proven: set[str] = set()
        self.final: Result | None = None

    def tried(self, call: Any, *arguments: Any, **changes: Any) -> None:
        """The registry may refuse; then nothing has changed, but for the refusal that it keeps."""
        before = self.drive.run.version
        try:
            call(*arguments, **changes)
        except Mismatch:
            assert self.drive.run.version <= before + 1
        except RequestError:
            assert self.drive.run.version == before

    def report(self, slot: int, back: int, report: Report, epochs_ago: int = 0) -> None:
        """A message; of an older incarnation, or on an older epoch, it must change nothing."""
        before = self.drive.run.version
        self.tried(self.drive.report, slot, report, self.drive.slot(slot).incarnations - back)
        assert back == epochs_ago == 0 or self.drive.run.version == before

    def another_joins(self, slot: int, generation: int) -> None:
        """A node that never joined before; when it is taken in, it has a number of its own."""
        place, attempt = self.drive.slot(slot), self.drive.run.version
        before, hostname = place.incarnations, f"host{slot}-{attempt}"
        self.tried(self.drive.join, slot, generation, attempt=attempt, hostname=hostname)
        if place.node is not None and place.node.join.hostname == hostname:
            assert place.node.incarnation == place.incarnations == before + 1
            assert place.joins[place.node.join.join_id] == before + 1

    @rule()
    def the_missing_join(self) -> None:
        for slot in sorted(self.drive.run.missing):
            self.another_joins(slot, self.drive.slot(slot).wanted)

    @rule(slot=SLOTS)
    def a_newer_worker_run_joins(self, slot: int) -> None:
        self.another_joins(slot, self.drive.slot(slot).generation + 1)

    @rule()
    def the_registry_comes_back(self) -> None:
        self.drive.registry_restarts()

    @rule()
    def all_verify_and_arm(self) -> None:
        if self.drive.phase is Phase.VERIFYING:
            self.drive.verify()
        if self.drive.phase is Phase.ARMING:
            self.drive.arm()

    @rule(
        slot=SLOTS,
        generation=GENERATIONS,
        attempt=st.integers(1, 3),
        address=ADDRESSES,
        rank=seldom(1, 2, 4),
        nnodes=seldom("5"),
        sick=seldom(True, usual=False, often=8),
    )
    def a_node_joins(
        self, slot: int, generation: int, attempt: int, address: str, sick: bool, **said: Any
    ) -> None:
        offered = [address, f"10.1.{slot % 2}.{slot + 1}"]
        found = [Finding(check="L12", level="fail", cause="it is sick")] * sick
        changes = {"addresses": offered, "findings": found, "requested_node": said["rank"]}
        changes["job"] = Job(nnodes=said["nnodes"])
        self.tried(self.drive.join, slot, generation, attempt=attempt, **changes)

    @rule(slot=SLOTS, back=MOSTLY_NOW, ago=MOSTLY_NOW, cut_off=seldom([1], [2, 99], usual=[]))
    def a_node_probes(self, slot: int, back: int, ago: int, cut_off: list[int]) -> None:
        report = make_probe(self.drive.run.epoch - ago, slot, self.drive.listening(), cut_off)
        self.report(slot, back, report, ago)

    @rule(slot=SLOTS, back=MOSTLY_NOW, ago=MOSTLY_NOW, right=st.booleans())
    def a_node_acknowledges(self, slot: int, back: int, ago: int, right: bool) -> None:
        run = self.drive.run
        digest = run.digest if right and run.digest else sha("another")
        before = run.version
        self.report(slot, back, AckReport(epoch=run.epoch - ago, digest=digest), ago)
        assert right or run.version == before

    @rule(slot=SLOTS, code=seldom("hosts", usual="port_taken", often=9))
    def a_node_refuses(self, slot: int, code: str) -> None:
        self.tried(self.drive.refuse, slot, code, "it cannot")

    @rule(slot=SLOTS, generation=GENERATIONS, retryable=seldom(False, usual=True, often=3))
    def a_node_refuses_to_join(self, slot: int, generation: int, retryable: bool) -> None:
        before = self.drive.slot(slot).live_node()
        self.drive.refuse_to_join(slot, generation, retryable=retryable)
        assert before is None or self.drive.slot(slot).live_node() is before

    @rule(
        slot=SLOTS,
        back=MOSTLY_NOW,
        code=st.sampled_from([0, 0, 1, 137]),
        age=st.floats(0, 60),
        stopped=st.booleans(),
    )
    def a_program_ends(self, slot: int, back: int, code: int, age: float, stopped: bool) -> None:
        told: dict[str, Any] = {"exit_code": code, "age_seconds": age, "stopped": stopped}
        self.report(slot, back, ExitReport(epoch=self.drive.run.epoch, **told))

    @rule(slot=SLOTS, back=MOSTLY_NOW)
    def a_node_leaves(self, slot: int, back: int) -> None:
        self.report(slot, back, LeaveReport())

    @rule(slot=SLOTS, state=st.sampled_from(list(SlotState)), generation=GENERATIONS)
    def the_launcher_tells(self, slot: int, state: SlotState, generation: int) -> None:
        self.tried(self.drive.news, slot, state, generation)

    @rule(silent=st.sets(SLOTS, max_size=2), seconds=st.sampled_from([0.5, 3, 7, 16]))
    def time_passes(self, silent: set[int], seconds: float) -> None:
        self.drive.wait(seconds, silent=silent)

    @precondition(lambda self: self.drive.run.version > 40)
    @rule()
    def somebody_cancels(self) -> None:
        if self.drive.phase is not Phase.FINISHED:
            self.drive.apply(events.Cancelled(reason="enough"))

    @invariant()
    def a_table_never_changes_within_its_epoch_and_has_every_node_once_and_sound(self) -> None:
        run, table = self.drive.run, self.drive.run.table
        if table is None:
            return
        assert table.epoch == run.epoch
        assert table.digest() == run.digest
        assert self.tables.setdefault(run.epoch, run.digest) == run.digest
        count, slots = len(table.rows), [row.slot for row in table.rows]
        assert [row.node for row in table.rows] == list(range(count))
        assert slots[0] == 0
        assert len(set(slots)) == len({row.address for row in table.rows}) == count
        assert run.spec.min_nodes <= count <= run.spec.max_nodes
        assert not set(slots) & set(run.attempt.left_out)
        nodes = [self.drive.slot(slot).node for slot in slots]
        assert not any(node.join.findings for node in nodes if node is not None)

    @invariant()
    def a_table_stands_on_pairs_that_were_proven(self) -> None:
        run = self.drive.run
        if run.phase is not Phase.ARMING or run.digest in self.proven or not run.spec.verify:
            return
        assert run.table is not None
        self.proven.add(run.digest)
        nodes = {r.slot: self.drive.node(r.slot).incarnation for r in run.table.rows}
        proven = {
            (event.slot, pair.slot)
            for _, event in self.drive.journal
            if isinstance(event, events.Probed) and nodes.get(event.slot) == event.incarnation
            for pair in event.report.pairs
            if pair.outcome == "ok"
        }
        assert {(a, b) for a in nodes for b in nodes if a != b} <= proven

    @invariant()
    def nobody_runs_on_a_table_that_not_all_have_acknowledged(self) -> None:
        run = self.drive.run
        if run.phase is Phase.RUNNING or NodeState.RUNNING in self.drive.states():
            assert run.table is not None
            acknowledged = {
                (event.slot, event.incarnation, event.report.digest)
                for _, event in self.drive.journal
                if isinstance(event, events.Acked)
            }
            for r in run.table.rows:
                assert (r.slot, self.drive.node(r.slot).incarnation, run.digest) in acknowledged

    @invariant()
    def there_is_always_a_reason_and_the_end_is_final(self) -> None:
        run = self.drive.run
        assert reason(run, self.drive.now).strip()
        assert (run.result is None) == (run.phase is not Phase.FINISHED)
        if self.final is not None:
            assert run.result == self.final
        self.final = run.result

    @invariant()
    def whom_the_run_waits_for_is_there(self) -> None:
        run = self.drive.run
        if run.phase is Phase.GATHERING:
            assert set(run.missing) == {s.index for s in run.slots if s.node is None}
        elif run.phase in (Phase.VERIFYING, Phase.ARMING):
            assert run.waiting_for
            assert run.waiting_for <= {s.index for s in run.members()}

    def teardown(self) -> None:
        """Each event has its reason."""
        assert all(self.drive.reasons)


class AtNight(Machine):
    """Many more of the same."""


TestMachine = pytest.mark.timeout(300)(Machine.TestCase)
TestMachine.settings = settings(FEW, max_examples=examples(120), stateful_step_count=40)
TestMachineAtNight = pytest.mark.nightly(pytest.mark.timeout(600)(AtNight.TestCase))
TestMachineAtNight.settings = settings(FEW, max_examples=400, stateful_step_count=40)
