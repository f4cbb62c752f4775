"""The rows of the page: made anew only where a slot has changed, and with what an event says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.ui import told as module
from launcher.ui.slots import is_same
from launcher.ui.told import LaunchFacts, Told
from rendezvous.wire.run import EventLine, NodeState, Phase, RunStatus, SlotState, SlotStatus


def slot(number: int = 0, **changes: Any) -> SlotStatus:
    usual: dict[str, Any] = {"generation": 1, "wanted_generation": 1, "state": SlotState.NONE}
    usual |= {"node_state": NodeState.RUNNING, "node": number, "hostname": f"h{number}"}
    return SlotStatus(slot=number, **usual | changes)


def status(*slots: SlotStatus) -> RunStatus:
    return RunStatus(
        run="run",
        launch_id="launch01",
        version=1,
        phase=Phase.RUNNING,
        epoch=1,
        reason="all nodes run",
        min_nodes=len(slots),
        max_nodes=len(slots),
        elapsed_seconds=1.0,
        slots=[*slots],
    )


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({"state_seconds": 1.0}, {"state_seconds": 7.0}, True),
        ({"silent_seconds": 0.1}, {"silent_seconds": 5.9}, True),
        ({"silent_seconds": 5.9}, {"silent_seconds": 6.0}, False),
        ({"silent_seconds": 8.1}, {"silent_seconds": 8.2}, True),
        ({"silent_seconds": 8.1}, {"silent_seconds": 9.2}, False),
        ({}, {"progress": "step 1"}, False),
        ({}, {"node_state": NodeState.LOST}, False),
        ({}, {"exit_code": 0}, False),
    ],
)
def test_time_alone_makes_no_other_row(
    before: dict[str, Any], after: dict[str, Any], same: bool
) -> None:
    assert is_same(slot(**after), slot(**before)) is same
    assert not is_same(slot(**after), None)


def test_rows_of_slots_that_have_not_changed_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def slot_row(slot: SlotStatus, spans: Any) -> Any:
        made.append(slot.slot)
        return {"slot": slot.slot, "host": slot.hostname, "progress": slot.progress}

    monkeypatch.setattr(module, "slot_row", slot_row)
    told = Told(LaunchFacts("run"), 1, "")
    told.status(status(slot(0), slot(1), slot(2)))
    n = told.n
    told.status(status(slot(0), slot(1, progress="step 9"), slot(2, silent_seconds=1.0)))
    assert made == [0, 1, 2, 1]
    change = told.changes(n)
    assert change is not None
    assert [one["slot"] for one in change["slots"]] == [1]


def test_what_a_program_tells_is_in_its_row_with_the_event() -> None:
    told = Told(LaunchFacts("run"), 1, "")
    line = EventLine(
        number=5,
        at_seconds=3.0,
        kind="progressed",
        reason="node 1 (h1): step 7: loss 0.5",
        progress="step 7: loss 0.5",
        phase=Phase.RUNNING,
        epoch=1,
        slot=1,
    )
    told.event(line)  # before the first status: it has no row yet
    told.status(status(slot(0), slot(1)))
    n = told.n
    told.event(replace(line, number=6))
    change = told.changes(n)
    assert change is not None
    assert [(one["slot"], one["progress"]) for one in change["slots"]] == [(1, "step 7: loss 0.5")]
    n = told.n
    told.status(status(slot(0), slot(1, progress="step 8")))
    change = told.changes(n)
    assert change is not None
    assert [one["progress"] for one in change["slots"]] == ["step 8"]
