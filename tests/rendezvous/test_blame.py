"""Who is to blame for a round in which nodes do not reach each other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.proof.blame import blame, to_release
from rendezvous.proof.networks import Unreachable
from rendezvous.proof.pairs import ProbedRound, failures
from rendezvous.proof.text_matrix import text_matrix
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from tests.support.driver import FEW, make_join
from tests.support.mesh import (
    ETH,
    RAIL,
    Pair,
    between,
    both,
    classes,
    into,
    nodes,
    out_of,
    tried,
)

OPEN = (
    "let all TCP ports through between the nodes (security group; iptables -L on h{}), or choose "
    "another network with --network CIDR"
)
CUT = "most likely a firewall drops the packets, or the link or the route between them is cut"


def verdict(round_: Round, *more: Round) -> Unreachable:
    joins = nodes(len(round_.slots))
    return blame([round_, *more], joins, classes(joins))


# --- blame ----------------------------------------------------------------------------------------


def test_a_node_that_is_cut_off_is_named() -> None:
    cut = tried(16, into(9, 16) + out_of(9, 16))
    assert verdict(cut) == Unreachable(
        (9,),
        f"slot 9 (h9) and the 15 others do not reach each other over {ETH}: no answer; {CUT}",
        OPEN.format(9),
    )


def test_a_node_whose_firewall_lets_nothing_in_is_named() -> None:
    assert verdict(tried(4, into(2, 4))) == Unreachable(
        (2,),
        f"slot 2 (h2) cannot be reached by the 3 others over {ETH}: no answer; the other "
        "direction works, so most likely a firewall there drops what comes in",
        OPEN.format(2),
    )


def test_a_node_that_gets_nothing_out_is_named() -> None:
    assert verdict(tried(4, out_of(2, 4))) == Unreachable(
        (2,),
        f"slot 2 (h2) cannot reach the 3 others over {ETH}: no answer; the other direction works, "
        "so most likely a firewall there drops what goes out",
        OPEN.format(2),
    )


def test_a_node_that_some_do_not_reach_is_named_with_them() -> None:
    assert verdict(tried(16, [(1, 9), (2, 9), (5, 9)])).reason.startswith(
        f"slot 9 (h9) cannot be reached by 3 of the 15 others (slots 1-2, 5) over {ETH}: no answer"
    )


def test_the_smallest_set_of_nodes_is_blamed() -> None:
    cut = tried(16, into(3, 16) + out_of(3, 16) + into(7, 16) + into(12, 16))
    found = verdict(cut)
    assert found.slots == (3, 7, 12)
    assert found.reason.startswith("slots 3, 7, 12 and the 13 others do not reach each other")


def test_a_single_pair_that_fails_blames_neither_end_and_names_the_direction() -> None:
    assert verdict(tried(16, [(3, 9)])) == Unreachable(
        (),
        f"slot 3 (h3) does not reach slot 9 (h9), which reaches it over {ETH}: no answer; every "
        f"other pair works, so neither end is to blame; {CUT}",
        OPEN.format(9),
    )


def test_a_pair_may_fail_the_other_way_or_both_ways() -> None:
    assert verdict(tried(3, [(2, 1)])).reason.startswith(
        "slot 2 (h2) does not reach slot 1 (h1), which reaches it over"
    )
    assert verdict(tried(3, both((1, 2)))).reason.startswith(
        "slot 1 (h1) and slot 2 (h2) do not reach each other over"
    )


def test_of_two_nodes_neither_is_blamed() -> None:
    assert verdict(tried(2, both((0, 1)))) == Unreachable(
        (),
        f"slot 0 (h0) and slot 1 (h1) do not reach each other over {ETH}: no answer; {CUT}",
        OPEN.format(1),
    )


def test_several_single_pairs_are_all_told() -> None:
    assert verdict(tried(16, [(0, 1), *both((4, 5)), (8, 7)])).reason == (
        "slot 0 (h0) does not reach slot 1 (h1), which reaches it, slot 4 (h4) and slot 5 (h5) do "
        "not reach each other, slot 8 (h8) does not reach slot 7 (h7), which reaches it over "
        f"{ETH}: no answer; {CUT}"
    )


def test_a_single_pair_beside_a_guilty_node_is_told() -> None:
    found = verdict(tried(16, [*into(9, 16), (3, 4)]))
    assert found.slots == (9,)
    assert found.reason.endswith(
        "; besides, slot 3 (h3) does not reach slot 4 (h4), which reaches it"
    )


@pytest.mark.parametrize(
    ("size", "first", "text"),
    [
        (4, 2, "2/2: slots 0-1 and slots 2-3"),
        (128, 64, "64/64: slots 0-63 and slots 64-127"),
    ],
)
def test_of_a_cluster_in_two_halves_nobody_is_blamed(size: int, first: int, text: str) -> None:
    found = verdict(tried(size, between(range(first), range(first, size))))
    assert found.slots == ()
    assert found.reason == (
        f"the nodes are split {text} do not reach each other over {ETH}: no answer; {CUT}"
    )


def test_three_islands_are_told_apart() -> None:
    islands = between([0, 1], [2, 3, 4]) + between([0, 1, 2, 3], [4])
    assert verdict(tried(5, islands)).reason.startswith(
        "the nodes are split 2/2/1: slots 0-1 and slots 2-3 and slot 4 (h4) do not reach each other"
    )


def test_a_minority_on_its_own_is_blamed() -> None:
    assert verdict(tried(16, between(range(10), range(10, 16)))).slots == (10, 11, 12, 13, 14, 15)


@pytest.mark.parametrize("size", [3, 4, 16])
def test_where_nobody_reaches_anybody_nobody_is_blamed(size: int) -> None:
    everything = [(a, b) for a in range(size) for b in range(size) if a != b]
    assert verdict(tried(size, everything)) == Unreachable(
        (),
        f"no node reaches any other over {ETH}: no answer, though all reach the registry's port; "
        f"{CUT}",
        OPEN.format(1),
    )
    assert "registry" not in verdict(tried(size, everything, outcome="refused")).reason


def test_failures_all_over_the_nodes_blame_nobody() -> None:
    scattered = [(a, (a + way) % 16) for a in range(16) for way in (1, 2, 3)]
    found = verdict(tried(16, scattered))
    assert found.slots == ()
    assert found.reason.startswith(
        f"48 of 240 directed pairs fail, all over the nodes, over {ETH}: no answer; most likely"
    )


def test_of_a_round_whose_good_pairs_are_left_away_only_the_failed_ones_are_counted() -> None:
    scattered = [(a, (a + way) % 16) for a in range(16) for way in (1, 2, 3)]
    assert verdict(older(tried(16, scattered))).reason.startswith("48 directed pairs fail, all")


def test_above_a_full_mesh_a_guilty_node_is_found_all_the_same() -> None:
    slots = list(range(300))
    reports = {
        a: [
            PairProbe(slot=b, outcome="timeout" if 7 in (a, b) else "ok")
            for b in ((a + way) % 300 for way in range(1, 33))
        ]
        for a in slots
    }
    round_ = Round(network=ETH, number=0, verdict="", slots=slots, reports=reports)
    joins = [make_join(s, addresses=[f"10.0.{s // 200}.{s % 200}"]) for s in slots]
    found = blame([round_], joins, classes(joins))
    assert found.slots == (7,)
    assert "slot 7 (host7) and 64 of the 299 others (slots 0-6, 8-39, 275-299)" in found.reason


def test_the_network_that_came_nearest_is_told_of() -> None:
    found = verdict(
        tried(4, between([0, 1], [2, 3])), tried(4, into(2, 4), network=RAIL), tried(4, into(1, 4))
    )
    assert found.slots == (2,)
    assert found.reason.startswith(f"slot 2 (h2) cannot be reached by the 3 others over {RAIL}")
    assert found.reason.endswith(" (the nearest of 3 networks tried)")


def older(round_: Round) -> Round:
    """As the registry keeps a round that is not the newest."""
    bad = {
        slot: failed
        for slot, pairs in round_.reports.items()
        if (failed := [pair for pair in pairs if pair.outcome != "ok"])
    }
    return round_.model_copy(update={"reports": bad})


@pytest.mark.parametrize(
    "bad",
    [into(2, 4), both((1, 2)), between([0, 1], [2, 3]), into(2, 4) + out_of(2, 4)],
)
def test_the_failed_pairs_are_all_that_blame_needs(bad: list[Pair]) -> None:
    assert verdict(older(tried(4, bad))) == verdict(tried(4, bad))


# --- what happened, and what to try ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("failed", "words", "hint"),
    [
        (
            {"outcome": "refused", "detail": "nothing listens there"},
            (
                "connection refused; most likely the address leads to a machine on which no rdzv "
                "listens, or a firewall rejects"
            ),
            (
                "see on h2 whether 10.0.0.3 is its own (ip -br addr), and iptables -L; or choose "
                "another network with --network CIDR"
            ),
        ),
        (
            {"outcome": "no_route", "detail": "No route to host"},
            (
                "No route to host; most likely an interface is down or gone, or a host has no way "
                "into that network"
            ),
            (
                "look at eth0 on h2 (ip -br addr), compare `ip route get 10.0.0.3` on the nodes, "
                "or choose another network with --network CIDR"
            ),
        ),
        (
            {"outcome": "wrong_node", "detail": "slot 3 answers at 10.0.0.3"},
            (
                "slot 3 answers at 10.0.0.3; most likely two machines have one address, or "
                "NAT stands "
                "between them"
            ),
            (
                "give every machine an address of its own (`arping -D -I eth0 10.0.0.3` "
                "shows who has "
                "it), or choose another network with --network CIDR"
            ),
        ),
        (
            {"outcome": "stranger"},
            (
                "something answers that is no node of this run; most likely a machine "
                "outside the run "
                "has that address, or a proxy answers for it"
            ),
            (
                "see who has it (`arping -D -I eth0 10.0.0.3`), or choose another network with "
                "--network CIDR"
            ),
        ),
        (
            {"outcome": "black_hole", "path_mtu": 1400},
            (
                "small messages pass and large ones vanish (packets of up to 1400 bytes pass); "
                "most likely the path carries smaller packets than the interfaces send (up to "
                "1500 bytes), and does not say so"
            ),
            (
                "set the MTU of eth0 to what the path carries, on all nodes (ip link set dev eth0 "
                "mtu 1400), or let ICMP 'fragmentation needed' through"
            ),
        ),
        (
            {"outcome": "black_hole"},
            (
                "small messages pass and large ones vanish; most likely the path carries smaller "
                "packets than the interfaces send (up to 1500 bytes), and does not say so"
            ),
            (
                "set the MTU of eth0 to what the path carries, on all nodes (ip link set dev eth0 "
                "mtu 1500), or let ICMP 'fragmentation needed' through"
            ),
        ),
        (
            {"outcome": "error", "detail": "16 KiB came back changed"},
            "16 KiB came back changed",
            "see `rdzv doctor` on h2, or choose another network with --network CIDR",
        ),
        (
            {"outcome": "error"},
            "error",
            "see `rdzv doctor` on h2, or choose another network with --network CIDR",
        ),
    ],
)
def test_what_happened_is_told_with_its_likeliest_cause_and_what_to_try(
    failed: dict[str, Any], words: str, hint: str
) -> None:
    assert verdict(tried(4, into(2, 4), **failed)) == Unreachable(
        (2,), f"slot 2 (h2) cannot be reached by the 3 others over {ETH}: {words}", hint
    )


def test_a_node_that_reaches_itself_is_named_with_the_address() -> None:
    assert verdict(tried(4, [(1, 2)], outcome="self")).reason == (
        f"slot 1 (h1) does not reach slot 2 (h2), which reaches it over {ETH}: 10.0.0.3 is an "
        "address of slot 1 (h1) itself; every other pair works, so neither end is to blame; most "
        "likely every host has that address (as with docker0)"
    )


def test_of_a_network_that_no_node_offers_any_more_the_addresses_are_not_known() -> None:
    round_ = tried(4, into(2, 4), network="gone", outcome="self")
    assert ProbedRound.of(round_, nodes(4), classes(nodes(4))).members == {}
    found = verdict(round_)
    assert ": the dialler reaches itself;" in found.reason
    vanished = verdict(tried(4, into(2, 4), network="gone", outcome="black_hole"))
    assert "smaller packets than the interfaces send, and does not say so" in vanished.reason
    assert "the address" in verdict(tried(4, into(2, 4), network="gone", outcome="no_route")).hint


def test_a_node_that_nat_hides_is_named_with_the_address_that_others_see() -> None:
    round_ = tried(
        4, into(2, 4), probe=lambda a, b: {"source": "192.0.2.7" if a == 2 else f"10.0.0.{a + 1}"}
    )
    assert verdict(round_) == Unreachable(
        (2,),
        f"slot 2 (h2) cannot be reached by the 3 others over {ETH}: no answer; the others see "
        "slot 2 (h2) as 192.0.2.7, which is none of its addresses: it stands behind NAT, which "
        "lets nothing in",
        "give it an address that the others reach: the host's own network (docker run --network "
        "host, hostNetwork: true), or a network that is routed between the nodes",
    )


def test_several_things_that_happened_are_told_the_most_frequent_first() -> None:
    round_ = tried(4, into(2, 4))
    mixed = round_.reports | {0: [PairProbe(slot=2, outcome="refused")]}
    found = verdict(round_.model_copy(update={"reports": mixed}))
    assert ": no answer, connection refused; " in found.reason


# --- whom to do without ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "slots"),
    [
        ([], []),
        (into(9, 16), [9]),
        ([(3, 9)], [9]),
        (both((0, 1)), [1]),
        (both((3, 9)) + into(4, 16), [4, 9]),
        (between([0, 1], [2, 3]), [2, 3]),
        (into(0, 4), [1, 2, 3]),
    ],
)
def test_the_fewest_nodes_are_in_the_way_and_slot_0_never_is(
    bad: list[Pair], slots: list[int]
) -> None:
    assert to_release(tried(16, bad)) == slots


@FEW
@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda p: p[0] != p[1])))
def test_without_those_that_are_in_the_way_every_pair_is_good(bad: set[Pair]) -> None:
    round_ = tried(7, bad)
    assert set(failures(round_)) == bad
    released = to_release(round_)
    assert 0 not in released
    assert all(a in released or b in released for a, b in bad)
    if bad:
        found = verdict(round_)
        assert len(found.reason) <= 1000
        assert 2 * len(found.slots) < 7
        assert {slot for pair in bad for slot in pair} >= set(found.slots)


def test_reports_about_strangers_and_oneself_count_for_nothing() -> None:
    round_ = Round(
        network=ETH,
        verdict="",
        slots=[0, 1],
        reports={
            0: [PairProbe(slot=0, outcome="self"), PairProbe(slot=7, outcome="timeout")],
            7: [PairProbe(slot=0, outcome="timeout")],
        },
    )
    assert failures(round_) == {}
    assert text_matrix(round_, {}) == [f"{ETH}: 0 of 2 directed pairs fail"]
