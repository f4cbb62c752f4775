"""Looks at runs in the midst of all that goes wrong: they change nothing of how these end."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed

import pytest

from features.hang import LOOKS
from features.hang.wire import RunLook
from launcher.state.state_dir import StateDir
from rendezvous.talk.questions import answers, ask_nodes
from rendezvous.wire.errors import RdzvError
from tests.simulation.generate import generate
from tests.simulation.schedule import Schedule
from tests.simulation.world import World
from tests.support.nightly import at_night

_EVERY_SECONDS = 1.3
_MOST = 200
_SLACK_SECONDS = 0.5
"""For the network, and for what a node has to do before it looks."""


@dataclass
class Person:
    """Somebody who looks at a run every few seconds."""

    world: World
    seen: list[RunLook] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def begin(self) -> None:
        for number in range(1, _MOST):
            self.world.loop.call_later(
                number * _EVERY_SECONDS, self._look, context=self.world.loop.nobody
            )

    def _look(self) -> None:
        self.world.spawn(self._looking())

    async def _looking(self) -> None:
        run = self.world.schedule.launches[0].run
        state = StateDir(self.world.folder / "0", run)
        record, keys = state.record(), state.keys()
        if record is None or keys is None:
            return
        path = self.world.network.path(0, -2)
        door = self.world.network.door(path)
        try:
            async with self.world.client(record.registry_place(), path, door, keys.look) as client:
                number = (await ask_nodes(client, LOOKS, run)).number
                self.seen.append(await answers(client, LOOKS, run, number, 20.0))
        except RdzvError as exc:
            self.refused.append(exc.code)


def looked_at(schedule: Schedule) -> Person:
    """Simulate the schedule, and somebody who looks."""
    person = Person(World(schedule))
    person.begin()
    report = person.world.run()
    assert report.violation is None, report.violation
    return person


@pytest.mark.parametrize(
    "seed",
    [
        *(3, 133_662),
        *map(at_night, (7, 21, 601_801)),
        pytest.param(52, marks=pytest.mark.planted),
    ],
)
def test_a_look_changes_nothing_whatever_goes_wrong(seed: int) -> None:
    person = looked_at(generate(seed))
    assert person.seen or person.refused
    assert set(person.refused) <= {
        *("forbidden", "run_over", "not_found", "unauthorized"),
        *("unavailable", "too_many_requests", "internal"),
    }


@pytest.mark.planted
def test_where_nothing_goes_wrong_all_nodes_answer_in_time() -> None:
    calm = generate(3).without(())
    launch = calm.launches[0]
    longer = tuple((200.0, code) for _, code in launch.program)
    person = looked_at(changed(calm, launches=(changed(launch, program=longer),)))
    running = [one for one in person.seen if one.nodes]
    assert len(running) >= 10
    for one in running:
        assert one.over
        assert one.age < LOOKS.seconds + len(one.nodes) * LOOKS.each + _SLACK_SECONDS
        assert all(node.report is not None for node in one.nodes)
