"""When a node tells how its machine is: from the go on, at its turn, and where it is wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rendezvous.wire.errors import RdzvError, TooLarge
from rendezvous.wire.machine import MachineSample
from rendezvous.wire.run import Phase
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.watch import NodeView
from tests.worker.agent.drive import (
    AWAY,
    GONE,
    POLL,
    SERVING,
    SLOT,
    TERM,
    Drive,
    in_words,
    table,
    to,
)
from tests.worker.agent.drive import (
    LED as UNSAMPLED_LED,
)
from tests.worker.agent.drive import (
    RULES as UNSAMPLED,
)
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.machine_samples import SAMPLE_SECONDS, SAMPLES_A_SECOND
from worker.agent.state import Rules
from worker.agent.watching import HOLD_SECONDS
from worker.contracts import Contract

RULES, LED = (replace(rules, samples=True) for rules in (UNSAMPLED, UNSAMPLED_LED))
SAMPLE = MachineSample(load=1.5)
TURN = 1 / SAMPLES_A_SECOND
"""After the go: the node has rank 1."""


def running(
    rules: Rules = RULES,
    contract: Contract | None = None,
    *,
    given: EndpointTable | None = None,
) -> Drive:
    """A node whose program runs since 0."""
    drive = to("running", rules, contract) if contract is not None else to("running", rules)
    assert drive.node.agreed is not None
    agreed = replace(drive.node.agreed, table=given or drive.node.agreed.table)
    drive.node = replace(drive.node, agreed=agreed)
    return drive


def read_at(drive: Drive, until: float) -> list[float]:
    """When it looks at its machine, if each look comes back at once."""
    found = []
    while (due := drive.due) is not None and due <= until:
        drive.at(due)
        actions = drive.feed(inputs.Tick())
        if any(isinstance(action, do.ReadMachine) for action in actions):
            found.append(round(drive.now, 3))
            drive.answer(do.ReadMachine, inputs.MachineRead, SAMPLE)
        elif drive.due == due:
            break  # what else it waits for is not of this test
    return found


def has_read(drive: Drive, sample: MachineSample = SAMPLE) -> Drive:
    """It has looked at its machine."""
    drive.after(TURN)
    drive.answer(do.ReadMachine, inputs.MachineRead, sample)
    return drive


# --- when it is read ------------------------------------------------------------------------------


def test_a_machine_is_read_at_the_nodes_turn_after_the_go_and_then_now_and_then() -> None:
    turn = round(TURN, 3)
    assert read_at(running(), 100.0) == [turn, turn + 30, turn + 60, turn + 90]


def test_the_more_nodes_there_are_the_less_often_each_tells() -> None:
    rows = table().rows[:1] + [
        replace(row, node=rank, slot=SLOT if rank == 1 else rank + 1, hostname=f"n{rank}")
        for row in table().rows[1:]
        for rank in [*range(2, 1_800), 1]
    ]
    given = table().model_copy(update={"rows": rows})
    assert len(given.rows) / SAMPLES_A_SECOND == 2 * SAMPLE_SECONDS
    assert read_at(running(given=given), 100.0) == [0.033, 60.033]


def test_a_machine_whose_driver_hangs_is_asked_once() -> None:
    drive = running()
    assert in_words(drive.after(TURN)) == "ReadMachine"
    assert drive.after(500.0) == ()
    said = drive.answer(do.ReadMachine, inputs.MachineRead, SAMPLE)
    assert in_words(said) == "ReadMachine"


def test_a_machine_that_cannot_be_read_is_said_once_and_left_alone() -> None:
    drive = running()
    drive.after(TURN)
    assert in_words(drive.breaks(do.ReadMachine)) == "PART_BROKEN"
    assert read_at(drive, 900.0) == []


@pytest.mark.parametrize(
    "drive",
    [
        running(replace(RULES, samples=False)),
        to("starting"),
    ],
    ids=["unwanted", "not started"],
)
def test_no_machine_is_read_that_nobody_asks_for_or_before_its_program_runs(drive: Drive) -> None:
    assert read_at(drive, 900.0) == []


def test_a_node_that_serves_has_a_machine_as_well() -> None:
    assert read_at(running(LED, SERVING), 20.0) == [round(TURN, 3)]


@pytest.mark.parametrize("ends", [GONE, TERM], ids=["program", "node"])
def test_with_the_program_or_the_node_its_samples_end(ends: Callable[[Drive], object]) -> None:
    drive = running()
    drive.after(TURN)
    number = drive.the(do.ReadMachine).number
    actions = ends(drive)
    assert isinstance(actions, tuple)
    assert do.Drop(number) in actions
    assert read_at(drive, 900.0) == []


def test_the_machine_is_read_at_the_go_of_the_next_program_too() -> None:
    drive = has_read(running())
    assert drive.node.program is not None
    again = replace(drive.node.program, number=99, started_at=5.0, sampled_at=None)
    drive.node = replace(drive.node, program=again)
    assert read_at(drive, 20.0) == [round(5.0 + TURN, 3)]


# --- when it is told ------------------------------------------------------------------------------


def idle(drive: Drive) -> tuple[do.Action, ...]:
    """What it does at a watch that brings no news."""
    assert drive.node.member is not None
    view = NodeView(
        phase=Phase.RUNNING, seq=drive.node.member.after, epoch=1, reason="", poll_seconds=POLL
    )
    return drive.answer(do.Watch, inputs.Viewed, view)


def test_it_is_told_in_front_of_the_next_watch() -> None:
    drive = has_read(running())
    assert idle(drive) == (do.TellMachine(drive.the(do.TellMachine).number, SAMPLE),)
    assert in_words(drive.answer(do.TellMachine)) == "Watch"
    assert in_words(idle(drive)) == "Watch"  # it is told once


def test_the_newest_is_told_where_the_registry_was_away() -> None:
    drive = has_read(running())
    drive.after(SAMPLE_SECONDS)
    drive.answer(do.ReadMachine, inputs.MachineRead, MachineSample(load=2.0))
    idle(drive)
    assert drive.the(do.TellMachine).sample.load == 2.0


@pytest.mark.parametrize("error", [AWAY, TooLarge("too much")])
def test_what_the_registry_does_not_take_is_left(error: RdzvError) -> None:
    drive = has_read(running())
    idle(drive)
    assert in_words(drive.fails(do.TellMachine, error)) == "Watch"


def test_a_watch_does_not_wait_for_long() -> None:
    drive = has_read(running())
    idle(drive)
    assert drive.due == drive.now + HOLD_SECONDS
    assert in_words(drive.after(HOLD_SECONDS)) == "Watch"
    assert drive.answer(do.TellMachine) == ()


def test_news_come_first() -> None:
    drive = has_read(running())
    assert "TellMachine" not in in_words(drive.go(reason="another one"))


def test_the_end_of_the_program_does_not_wait_for_it() -> None:
    drive = has_read(running())
    idle(drive)
    number = drive.the(do.TellMachine).number
    assert in_words(GONE(drive), {number: do.TellMachine(number, SAMPLE)}) == (
        "Flush Drop:TellMachine Watch"
    )
    drive = has_read(running())
    GONE(drive)
    assert in_words(idle(drive)) == "Watch"
