"""Somebody follows the output of runs whose nodes are replaced between two starts: the view goes on
with the node that has taken the place, and changes nothing of how the run ends."""

from __future__ import annotations

import random

import pytest

from rendezvous.registry.log_views import LogViews
from rendezvous.run.leases import Key
from rendezvous.wire.log_view import ViewPost, ViewReply
from tests.simulation.again_situations import newcomers
from tests.simulation.generate import generate
from tests.simulation.schedule import Schedule
from tests.simulation.talking import Reader
from tests.simulation.world import World

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
        assert len(posts) <= 1  # it was never opened again, and some runs end before it was
        served += posts.values()
    second = [nodes for nodes in served if any(incarnation > 1 for _, incarnation in nodes)]
    assert len(second) > 3
