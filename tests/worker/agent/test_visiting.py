"""A node's share of the visits, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.verify import PairProbe, ProbePlan
from tests.worker.agent.drive import at_once, plan, virtually
from worker.agent import AgentEnvironment
from worker.agent.actions import Visit
from worker.agent.inputs import Visited
from worker.agent.visiting import visit
from worker.probe.packets import Identity

OWN = Identity(bytes(32), "llama", "launch0001", 1)


class Peers:
    """An outer world in which every visit takes 2 s and is answered."""

    def __init__(self, **changes: Any) -> None:
        self.visited: list[int] = []
        values: dict[str, Any] = {
            "hosts_file": Path("/etc/hosts"),
            "in_thread": at_once,
            "probe": self._probe,
            "why_unusable": lambda address, interface: "",
            "known_names": lambda file, run: {"n0": {"10.9.9.9"}},
        }
        self.environment = AgentEnvironment(**(values | changes))

    async def _probe(
        self, identity: Identity, given: ProbePlan, slots: Iterable[int]
    ) -> list[PairProbe]:
        self.visited = list(slots)
        await asyncio.sleep(2.0)
        return [PairProbe(slot=slot, outcome="ok") for slot in self.visited]

    def visit(self, given: ProbePlan) -> Visited:
        """What comes of a plan."""
        return virtually(visit(Visit(7, 1, given), OWN, self.environment, loopback=False))


def test_the_others_are_visited_and_what_the_hosts_file_says_of_them_is_added() -> None:
    peers = Peers()
    said = peers.visit(plan(0, 1, 2))
    assert peers.visited == [0, 2]
    assert said == Visited(
        7,
        (PairProbe(slot=0, outcome="ok", resolved="10.9.9.9"), PairProbe(slot=2, outcome="ok")),
        2.0,
    )


def outcomes(said: Visited) -> list[tuple[int, str]]:
    return [(pair.slot, pair.outcome) for pair in said.pairs]


def test_from_an_address_that_is_lost_nobody_is_visited() -> None:
    peers = Peers(why_unusable=lambda address, interface: f"{address} is gone from {interface}")
    said = peers.visit(plan(0, 1, 2))
    assert (peers.visited, outcomes(said)) == ([], [(0, "no_route"), (2, "no_route")])
    assert {pair.detail for pair in said.pairs} == {"10.0.0.5 is gone from eth0"}


def test_unfit_peers_are_reported_and_not_visited() -> None:
    peers, given = Peers(), plan(0, 1, 2)
    unfit = given.peers[0].model_copy(update={"probe_port": 22})
    said = peers.visit(given.model_copy(update={"peers": [unfit, *given.peers[1:]]}))
    assert (peers.visited, outcomes(said)) == ([2], [(0, "error"), (2, "ok")])


@pytest.mark.parametrize("slots", [(0, 2), (1,)], ids=["in no plan", "alone in it"])
def test_a_node_without_peers_visits_nobody_and_reports_that(slots: tuple[int, ...]) -> None:
    peers = Peers()
    assert (peers.visit(plan(*slots)).pairs, peers.visited) == ((), [])


def test_names_are_left_out_where_the_hosts_file_hangs() -> None:
    async def hangs(work: Any, *args: Any) -> Any:
        await asyncio.sleep(1_000.0)

    said = Peers(in_thread=hangs).visit(plan(0, 1))
    assert said.pairs == (PairProbe(slot=0, outcome="ok"),)
    assert said.seconds == 2.0
