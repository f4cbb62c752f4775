"""A rank that makes the others wait, in runs of the simulated world."""

from __future__ import annotations

from dataclasses import replace as changed

import pytest

from rendezvous.run.decision import load_entry
from rendezvous.run.events import Noted
from rendezvous.run.stragglers import Slow
from tests.simulation.generate import generate
from tests.simulation.world import Late, World
from tests.support.nightly import at_night


def found(late: Late | None) -> list[Noted]:
    """What is found in a run of three ranks, in which nothing else goes wrong."""
    calm = generate(3).without(())
    launch = calm.launches[0]
    program = tuple((200.0, code) for _, code in launch.program)
    launches = (changed(launch, program=program, ranks_each=1),)
    world = World(changed(calm, launches=launches, keep_finished=1_000.0))
    world.late = late
    report = world.run()
    assert report.violation is None, report.violation
    happened = [load_entry(record.body)[0] for record in report.records]
    return [
        event for event in happened if isinstance(event, Noted) and event.feature == "stragglers"
    ]


def test_it_is_named_once_with_its_cost() -> None:
    (event,) = found(Late(1, 0.2, "0-2"))
    slow = Slow.model_validate(event.data)
    assert (slow.slot, slow.rank) == (1, 1)
    assert slow.cost_seconds == pytest.approx(0.1, rel=0.1)
    assert slow.step_seconds == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    "late",
    [
        at_night(Late(1, 0.04, "0-2")),
        *(pytest.param(less, marks=pytest.mark.planted) for less in (None, Late(1, 0.0, "0-2"))),
    ],
)
def test_where_nobody_waits_for_long_nobody_is_named(late: Late | None) -> None:
    assert found(late) == []
