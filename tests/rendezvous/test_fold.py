"""What a decision leaves in the journal, and what comes out of it again.

Each event of each test that uses `Drive` is read back as well: see `tests.support.driver`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from rendezvous.proof.network_class import NetworkClass
from rendezvous.registry.journal import Record, applying
from rendezvous.run import events
from rendezvous.run.changes import Writer, parts_of
from rendezvous.run.decision import Decision, Outcome, dump_entry, load_entry
from rendezvous.run.fold import apply, part_at
from rendezvous.run.moves import gather_again
from rendezvous.run.protocol import decide
from rendezvous.run.records import Fence
from rendezvous.run.state import LeftOut, Run, create
from rendezvous.run.tracked import Assigned, TrackedDict, TrackedSet, track
from rendezvous.wire.errors import Cause, UsageError
from rendezvous.wire.node import Finding
from rendezvous.wire.run import NodeState, Phase, Round
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.world import RankWorld
from tests.support.differences import differences
from tests.support.driver import Drive, in_phase, make_candidate, make_join, make_spec


def written(run: Run, change: Any, event: events.Event | None = None) -> dict[str, Any]:
    """What the journal has of a change, as JSON."""
    assigned: Assigned = {}
    track(assigned)
    try:
        change(run)
    finally:
        track(None)
    happened = event or events.Restarted()
    writer = Writer(run, happened, assigned)
    decision = Decision(Outcome("it happened"), writer.write(), writer.table)
    found: dict[str, Any] = json.loads(dump_entry(happened, decision).partition(b"\n")[0])
    return dict(found["changed"])


def running() -> Run:
    """Three nodes whose programs run."""
    return in_phase(Phase.RUNNING, 3).run


def test_the_record_of_a_join_names_the_join_and_does_not_repeat_it() -> None:
    run, join = create("r", make_spec(2), 0.0), make_join(1)
    event = events.Joined(request=join, source="10.0.0.2")
    body = dump_entry(event, decide(run, event, 5.0))
    assert body.count(join.hostname.encode()) == 2  # in the join, and in the words
    (_, (node,)) = json.loads(body)["changed"]["slots"]["node"]
    assert node == {"incarnation": 1, "join=": "request", "source": "10.0.0.2"}
    assert json.loads(body)["changed"]["run"] == {"missing~": {"-": [1]}}


def test_a_table_is_kept_as_the_bytes_that_nodes_get() -> None:
    drive = Drive(make_spec(2, verify=False))
    drive.join(0)
    event = events.Joined(request=make_join(1))
    decision = decide(drive.run, event, drive.now)
    assert decision.table == drive.run.attempt.written != b""
    body = dump_entry(event, decision)
    assert body.endswith(b"\n" + decision.table)
    assert load_entry(body) == (event, Decision(decision.outcome, *_read(body)))


def _read(body: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, table = body.partition(b"\n")
    return json.loads(head)["changed"], table


def test_what_is_assigned_and_is_as_before_is_not_written() -> None:
    def change(run: Run) -> None:
        run.stop, run.phase, run.stop = True, Phase.RUNNING, False
        run.slots[1].its_node.state = NodeState.RUNNING
        run.slots[1].problem = str(b"", "ascii")

    assert written(running(), change) == {}


def test_a_field_of_many_nodes_is_one_column() -> None:
    def change(run: Run) -> None:
        for slot in run.slots:
            slot.its_node.state = NodeState.STANDBY

    columns = {"state": [[0, 1, 2], ["standby"] * 3]}
    assert written(running(), change) == {"nodes": columns}


def test_a_new_node_is_written_whole_and_the_one_before_it_not_at_all() -> None:
    drive = Drive(make_spec(2))
    drive.join(0)
    before = drive.node(0)

    def change(run: Run) -> None:
        before.state = NodeState.LOST
        run.slots[0].node = None

    assert written(drive.run, change) == {"slots": {"node": [[0], [None]]}}


def test_a_new_attempt_says_what_it_has_from_the_former() -> None:
    drive = in_phase(Phase.VERIFYING, 2)
    drive.probe(0)
    drive.probe(1)
    changed = written(drive.run, lambda run: gather_again(run, 200.0, enough_since=200.0))
    assert changed["run"]["attempt"] == {"enough_since": 200.0, "^": ["findings", "rounds"]}


def test_what_the_former_attempt_was_given_just_before_is_written_as_well() -> None:
    drive = in_phase(Phase.VERIFYING, 2)
    finding = Finding("X09", "warn", subject="eth1")

    def change(run: Run) -> None:
        run.attempt.findings = (finding,)
        gather_again(run, 200.0)

    attempt = written(drive.run, change)["run"]["attempt"]
    assert "findings" not in attempt.get("^", [])
    assert [one["subject"] for one in attempt["findings"]] == ["eth1"]


def test_of_a_list_only_what_is_new_is_written() -> None:
    drive = in_phase(Phase.VERIFYING, 2)
    kept = drive.run.attempt.classes
    changed = written(
        drive.run, lambda run: setattr(run.attempt, "classes", [kept[0], *kept, kept[0]])
    )
    assert changed == {"attempt": {"classes~": [0, 0, 0]}}


def test_of_a_dict_what_is_new_or_gone_is_written_unless_the_order_is_another() -> None:
    why = {slot: LeftOut(Cause.NODE_LOST, f"why {slot}") for slot in range(3)}
    run = running()
    run.attempt.left_out = {0: why[0], 1: why[1]}
    changed = written(run, lambda run: setattr(run.attempt, "left_out", {1: why[1], 2: why[2]}))
    new = {"cause": "node_lost", "words": "why 2"}
    assert changed == {"attempt": {"left_out~": {"-": [0], "+": {"2": new}}}}
    run.attempt.left_out = {0: why[0], 1: why[1]}
    changed = written(run, lambda run: setattr(run.attempt, "left_out", {1: why[1], 0: why[0]}))
    assert [*changed["attempt"]["left_out"]] == ["1", "0"]


def test_a_container_that_is_replaced_is_written_whole() -> None:
    def change(run: Run) -> None:
        run.waiting_for.discard(1)
        run.waiting_for = TrackedSet([2])
        run.waiting_for.add(0)
        run.worlds[1] = ()
        run.worlds = TrackedDict()

    assert written(running(), change) == {"run": {"waiting_for": [0, 2], "worlds": {}}}


def test_what_is_put_in_and_taken_out_again_is_no_change() -> None:
    def change(run: Run) -> None:
        run.missing.add(1)
        run.missing.discard(1)
        run.waiting_for.discard(2)

    assert written(running(), change) == {"run": {"waiting_for~": {"-": [2]}}}


def test_a_part_of_an_event_is_found_by_its_path() -> None:
    event = events.Joined(request=make_join(1))
    paths = parts_of(event)
    assert part_at(event, paths[id(event)]) is event
    assert part_at(event, paths[id(event.request)]) is event.request


@pytest.mark.parametrize(
    "changed",
    [
        {"slots": {"problem": [[7], ["?"]]}},
        {"slots": {"problem": [[0, 1], ["?"]]}},
        {"slots": {"colour": [[0], ["red"]]}},
        {"nodes": {"state": [[0], ["asleep"]]}},
        {"nodes": {"exit=": [[0], ["report"]]}},
        {"run": {"result": {"status": "ok"}}},
        {"run": {"phase": "dancing"}},
        {"attempt": {"network": 9}},
        {"attempt": {"table": True}},
        {"probing": {"reports~": {"+": {"0": []}}}},
    ],
    ids=lambda changed: json.dumps(changed)[:40],
)
def test_a_change_that_does_not_fit_is_refused_by_name(changed: Any) -> None:
    run = running()
    record = Record("r", 41, 0.0, b"")
    decision = Decision(Outcome("it happened"), changed)
    with pytest.raises(UsageError, match="event 41 of run 'r'"), applying(record):
        apply(run, events.Restarted(), decision)


# --- there and back -------------------------------------------------------------------------------


def comes_back(run: Run, change: Callable[[Run], object]) -> bool:
    """Whether a run that is read back is the one that was changed."""
    twin = deepcopy(run)
    assigned: Assigned = {}
    track(assigned)
    try:
        change(run)
    finally:
        track(None)
    event = events.Restarted()
    writer = Writer(run, event, assigned)
    body = dump_entry(event, Decision(Outcome("it happened"), writer.write(), writer.table))
    apply(twin, *load_entry(body))
    twin.version -= 1
    assert run == twin, differences(run, twin)
    return b'"changed":{}' not in body


def test_values_come_back_that_no_event_holds() -> None:
    verifying, going = in_phase(Phase.VERIFYING, 3), in_phase(Phase.RUNNING, 3)
    world = RankWorld(rank=1, library="torch", size=2, places=[1, 2])
    foreign = make_candidate("10.9.9.9")

    def other_class(run: Run) -> None:
        old = run.attempt.classes[0]
        members = {**old.members, 1: foreign}
        run.attempt.classes = (NetworkClass(0, "eth9", members, is_last=True),)
        run.attempt.network = run.attempt.classes[0]

    assert comes_back(verifying.run, other_class)
    assert comes_back(verifying.run, lambda run: setattr(run.attempt, "network", None))
    reports = {0: [PairProbe(slot=1, outcome="ok")]}

    def report(run: Run) -> None:
        assert run.attempt.probing is not None
        run.attempt.probing.reports[0] = reports[0]

    assert comes_back(verifying.run, report)
    one = Round(network="eth1", number=1, verdict="no pair works", slots=[0], reports=reports)
    assert comes_back(verifying.run, lambda run: setattr(run.attempt, "rounds", (one,)))
    assert comes_back(going.run, lambda run: run.worlds.__setitem__(1, (world,)))
    worlds = TrackedDict({2: (world, world)})
    assert comes_back(going.run, lambda run: setattr(run, "worlds", worlds))
    fence = Fence(1, 1, 1, 20.0, True)
    assert comes_back(going.run, lambda run: setattr(run.starts, "fences", (fence,)))
    assert comes_back(going.run, lambda run: setattr(run.starts, "proven", {1: (1, "10.0.0.2")}))


def test_a_table_that_is_given_up_comes_back_as_none() -> None:
    def dropped(run: Run) -> None:
        attempt = run.attempt
        attempt.table, attempt.written, attempt.digest = None, b"", ""

    assert comes_back(in_phase(Phase.ARMING, 2).run, dropped)


def test_what_another_run_is_given_meanwhile_is_not_written() -> None:
    other = running()

    def change(run: Run) -> None:
        other.slots[1].problem, other.attempt.warm, other.worlds[1] = "lost", True, ()
        other.slots[1].its_node.state = NodeState.LOST
        other.missing.add(1)

    assert written(running(), change) == {}


def test_a_spec_of_another_version_is_read_without_what_is_not_known() -> None:
    drive = in_phase(Phase.GATHERING)
    event, decision = load_entry(drive.bodies[0])
    for more in ({"invented": 1}, {"limits": {"lease_seconds": 15.0, "invented": 1}}):
        stored = json.loads(dump_entry(event, decision))
        stored["event"]["spec"] |= more
        read, _ = load_entry(json.dumps(stored).encode())
        assert isinstance(read, events.Created)
        assert read == event
    del stored["event"]["spec"]["limits"]
    assert load_entry(json.dumps(stored).encode())[0] == event


def test_containers_are_plain_ones_while_nothing_is_decided() -> None:
    numbers, words = TrackedSet({1}), TrackedDict({1: "one"})
    numbers.add(2)
    numbers.discard(1)
    words[2] = "two"
    assert (numbers, words) == ({2}, {1: "one", 2: "two"})
