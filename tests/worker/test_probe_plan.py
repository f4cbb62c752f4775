"""Rows of a probe plan that only a lying registry would write."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from worker.probe.plan import unfit_peers


def plan(*places: tuple[str, int]) -> ProbePlan:
    peers = [
        ProbePeer(slot=slot, hostname=f"h{slot}", address=a, interface="eth0", probe_port=port)
        for slot, (a, port) in enumerate(places)
    ]
    return ProbePlan(network="eth0", peers=peers)


OWN = ("10.0.0.1", 20_123)


@pytest.mark.parametrize(
    "place",
    [
        *(("10.0.0.2", 1_024), ("10.0.0.2", 65_535), ("192.0.2.7", 30_000)),
        *(("fd00::2", 30_000), ("2001:db8::2", 30_000)),
    ],
)
def test_what_nodes_offer_is_visited(place: tuple[str, int]) -> None:
    assert unfit_peers(plan(OWN, place), [1], loopback=False) == []


@pytest.mark.parametrize(
    ("address", "port", "words"),
    [
        ("10.0.0.2", 22, "needs privileges, and no node answers there"),
        ("10.0.0.2", 1_023, "needs privileges, and no node answers there"),
        ("127.0.0.1", 30_000, "is loopback"),
        ("::1", 30_000, "is loopback"),
        ("10.0.0.1", 30_000, "is said to be the address of several nodes"),
    ],
)
def test_what_no_node_offers_is_not(address: str, port: int, words: str) -> None:
    where = plan(OWN, (address, port), ("10.0.0.3", 30_000))
    assert unfit_peers(where, [1, 2], loopback=False) == [
        PairProbe(slot=1, outcome="error", detail=f"not visited: {address} port {port} {words}")
    ]


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "::", "224.0.0.1", "ff02::1", "169.254.169.254", "fe80::1"),
        *("255.255.255.255", "::ffff:127.0.0.1"),
    ],
)
def test_of_some_addresses_there_is_no_plan(address: str) -> None:
    with pytest.raises(ValidationError):
        plan(OWN, (address, 30_000))


def test_one_host_at_many_ports_is_not_visited_at_any() -> None:
    where = plan(OWN, *(("10.0.0.2", port) for port in range(2_000, 2_064)))
    found = unfit_peers(where, range(1, 65), loopback=False)
    assert [pair.slot for pair in found] == list(range(1, 65))


def test_a_run_on_one_machine_visits_that_machine_alone() -> None:
    where = plan(("127.0.0.2", 30_000), ("127.0.0.3", 30_000), ("10.0.0.2", 30_000))
    assert [pair.slot for pair in unfit_peers(where, [1, 2], loopback=True)] == [2]


def test_who_is_not_in_the_plan_is_nobody() -> None:
    assert unfit_peers(plan(OWN), [9], loopback=False) == []
