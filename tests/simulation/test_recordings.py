"""The machines are deterministic: what a simulated launch or node has heard leads where it led."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.generate import generate
from tests.simulation.world import World
from tests.support.nightly import at_night
from tests.support.recordings import replayed


@pytest.mark.parametrize(
    "seed", [1, *map(at_night, range(3, 12, 2)), 221, 4_061, at_night(118_187)]
)
def test_a_replay_finds_what_each_of_a_schedule_did(seed: int, tmp_path: Path) -> None:
    world = World(generate(seed))
    world.recordings = {}
    assert world.run().violation is None
    names = {launcher.machine.name for launcher in world.launchers}
    assert world.recordings.keys() == names | {x.machine.name for x in world.history.processes}
    for kept in world.recordings.values():
        found = replayed(kept.save(tmp_path / "recording.jsonl"))
        assert len(found) == len(kept.lines)
        assert [one for one in found if one.differs] == []
