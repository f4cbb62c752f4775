"""Somebody follows the output of runs whose nodes are replaced between two starts: the view goes on
with the node that has taken the place, and changes nothing of how the run ends."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from launcher.state.state_dir import StateDir
from rendezvous.run.leases import Key
from rendezvous.server.log_views import LogViews
from rendezvous.talk.log_views import open_view, read_view
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.log_view import ViewPost, ViewReply, ViewRequest
from tests.simulation.again_situations import newcomers
from tests.simulation.generate import generate
from tests.simulation.schedule import Schedule
from tests.simulation.world import World


@dataclass
class Reader:
    """Somebody who follows all ranks, in one view as long as it is one."""

    world: World
    refused: set[str] = field(default_factory=set)

    def begin(self) -> None:
        self.world.loop.call_later(1.0, self._read, context=self.world.loop.nobody)

    def _read(self) -> None:
        self.world.spawn(self._reading())

    async def _reading(self) -> None:
        run = self.world.schedule.launches[0].run
        state = StateDir(self.world.folder / "0", run)
        record, keys = state.record(), state.keys()
        if record is not None and keys is not None:
            path = self.world.network.path(0, -2)
            door = self.world.network.door(path)
            place = record.registry_place()
            try:
                async with self.world.client(place, path, door, keys.logs) as client:
                    view = (await open_view(client, run, ViewRequest(follow=True))).view
                    after = 0
                    while not (found := await read_view(client, run, view, after, 5.0)).over:
                        after = max([after, *(piece.seq for piece in found.pieces)])
            except RdzvError as exc:
                self.refused.add(exc.code)
        if self.world.loop.time() < 60.0:
            self.world.loop.call_later(1.0, self._read, context=self.world.loop.nobody)


Posts = dict[int, set[Key]]


@pytest.fixture
def posts(monkeypatch: pytest.MonkeyPatch) -> Posts:
    """By view the nodes whose lines were taken."""
    found: Posts = {}
    take = LogViews.take

    def taken(views: LogViews, key: Key, post: ViewPost, now: float) -> ViewReply:
        reply = take(views, key, post, now)
        if reply.goes_on:
            found.setdefault(post.view, set()).add(key)
        return reply

    monkeypatch.setattr(LogViews, "take", taken)
    return found


def replaced(seed: int) -> Schedule:
    """A container is started again between two starts of the programs."""
    return newcomers(random.Random(seed), generate(seed).without(()))


@pytest.mark.planted
def test_a_view_goes_on_with_who_has_taken_a_place(posts: Posts) -> None:
    served: list[set[Key]] = []
    for seed in range(12):
        posts.clear()
        world = World(replaced(seed))
        reader = Reader(world)
        reader.begin()
        report = world.run()
        assert report.violation is None, report.violation
        assert reader.refused <= {"forbidden", "run_over", "not_found", "unavailable"}
        [nodes] = posts.values()  # of one view, that was never opened again
        served.append(nodes)
    second = [nodes for nodes in served if any(incarnation > 1 for _, incarnation in nodes)]
    assert len(second) > 3
