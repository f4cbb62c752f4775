"""When a node tells how its machine is: from the go on, at its turn, and where it is wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rendezvous.wire.errors import TooLarge
from rendezvous.wire.table import EndpointTable
from tests.worker.agent.drive import GONE, LED, RULES, SERVING, TERM, Drive, in_words, table, to
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.machine_samples import SAMPLE_SECONDS, SAMPLES_A_SECOND
from worker.agent.state import Rules
from worker.contracts import Contract

TURN = 1 / SAMPLES_A_SECOND
"""After the go: the node has rank 1."""


def running(
    rules: Rules = RULES,
    contract: Contract | None = None,
    *,
    takes_machine: bool = True,
    given: EndpointTable | None = None,
) -> Drive:
    """A node whose program runs since 0, on a registry that can be told."""
    drive = to("running", rules, contract) if contract is not None else to("running", rules)
    assert drive.node.member is not None
    assert drive.node.agreed is not None
    member = replace(drive.node.member, takes_machine=takes_machine)
    agreed = replace(drive.node.agreed, table=given or drive.node.agreed.table)
    drive.node = replace(drive.node, member=member, agreed=agreed)
    return drive


def sampled_at(drive: Drive, until: float) -> list[float]:
    """When it begins a sample, if each is told at once."""
    found = []
    while (due := drive.due) is not None and due <= until:
        drive.at(due)
        actions = drive.feed(inputs.Tick())
        if any(isinstance(action, do.SampleMachine) for action in actions):
            found.append(round(drive.now, 3))
            drive.answer(do.SampleMachine)
        elif drive.due == due:
            break  # what else it waits for is not of this test
    return found


def test_a_machine_is_told_of_at_the_nodes_turn_after_the_go_and_then_now_and_then() -> None:
    turn = round(TURN, 3)
    assert sampled_at(running(), 100.0) == [turn, turn + 30, turn + 60, turn + 90]


def test_the_more_nodes_there_are_the_less_often_each_tells() -> None:
    rows = table().rows[:1] + [
        replace(row, rank=rank, slot=rank, hostname=f"n{rank}")
        for row in table().rows[1:]
        for rank in [*range(2, 1_800), 1]
    ]
    given = table().model_copy(update={"rows": rows})
    assert len(given.rows) / SAMPLES_A_SECOND == 2 * SAMPLE_SECONDS
    assert sampled_at(running(given=given), 100.0) == [0.033, 60.033]


def test_the_next_one_waits_until_the_last_one_is_told() -> None:
    """A machine whose driver hangs is asked once."""
    drive = running()
    assert in_words(drive.after(TURN)) == "SampleMachine"
    assert drive.after(500.0) == ()
    assert in_words(drive.answer(do.SampleMachine)) == "SampleMachine"


@pytest.mark.parametrize("fails", [lambda drive: drive.fails(do.SampleMachine), None])
def test_what_the_registry_does_not_take_is_left(fails: Callable[[Drive], object] | None) -> None:
    drive = running()
    drive.after(TURN)
    said = fails(drive) if fails else drive.fails(do.SampleMachine, TooLarge("too much"))
    assert said == ()
    assert in_words(drive.after(SAMPLE_SECONDS)) == "SampleMachine"


def test_a_machine_that_cannot_be_read_is_said_once_and_left_alone() -> None:
    drive = running()
    drive.after(TURN)
    assert in_words(drive.breaks(do.SampleMachine)) == "PART_BROKEN"
    assert sampled_at(drive, 900.0) == []


@pytest.mark.parametrize(
    "drive",
    [
        running(takes_machine=False),  # an older registry
        running(replace(RULES, samples=False)),
        to("starting"),
    ],
    ids=["older", "unwanted", "not started"],
)
def test_nobody_is_told_who_does_not_want_it_or_before_the_program_runs(drive: Drive) -> None:
    assert sampled_at(drive, 900.0) == []


def test_a_node_that_serves_has_a_machine_as_well() -> None:
    assert sampled_at(running(LED, SERVING), 20.0) == [round(TURN, 3)]


@pytest.mark.parametrize("ends", [GONE, TERM], ids=["program", "node"])
def test_with_the_program_or_the_node_its_samples_end(ends: Callable[[Drive], object]) -> None:
    drive = running()
    drive.after(TURN)
    number = drive.the(do.SampleMachine).number
    actions = ends(drive)
    assert isinstance(actions, tuple)
    assert do.Drop(number) in actions
    assert sampled_at(drive, 900.0) == []


def test_the_next_program_is_told_of_at_its_own_go() -> None:
    drive = running()
    drive.after(TURN)
    drive.answer(do.SampleMachine)
    assert drive.node.program is not None
    again = replace(drive.node.program, number=99, started_at=5.0, sampled_at=None)
    drive.node = replace(drive.node, program=again)
    assert sampled_at(drive, 20.0) == [round(5.0 + TURN, 3)]
