"""What a round of probes shows: whose fault it is, what else is odd, and how it looks as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.classes import NetworkClass, Unreachable, classes_of
from rendezvous.matrix import (
    blame,
    failures,
    findings_of,
    members_of,
    seconds_text,
    text_matrix,
    to_release,
)
from rendezvous.schema import Finding, JoinRequest, PairProbe, Round
from tests.rendezvous.driver import FEW, make_join
from tests.rendezvous.mesh import ETH, RAIL, Pair, between, both, into, nodes, out_of, tried

OPEN = (
    "let all TCP ports through between the nodes (security group; iptables -L on h{}), or choose "
    "another network with --network CIDR"
)
CUT = "most likely a firewall drops the packets, or the link or the route between them is cut"


def verdict(round_: Round, *more: Round) -> Unreachable:
    joins = nodes(len(round_.slots))
    return blame([round_, *more], joins, classes(joins))


def classes(joins: Sequence[JoinRequest]) -> list[NetworkClass]:
    found = classes_of(joins)
    assert not isinstance(found, Unreachable)
    return found


def found_in(round_: Round, joins: Sequence[JoinRequest]) -> list[Finding]:
    return findings_of(round_, joins, classes(joins))


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
    assert members_of(round_, classes(nodes(4))) == {}
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


# --- what else a round shows ----------------------------------------------------------------------


def shown(
    size: int, probe: Callable[[int, int], dict[str, Any]] = lambda one, other: {}, **mtus: int
) -> list[tuple[str, str, int | None, str]]:
    """What is not ok in a round in which every pair is good."""
    found = found_in(tried(size, probe=probe), nodes(size, **mtus))
    return [(f.check, f.level, f.slot, f.cause) for f in found if f.level != "ok"]


def test_of_a_good_round_there_is_one_line_for_each_check() -> None:
    assert [(f.check, f.level, f.slot, f.cause) for f in found_in(tried(16), nodes(16))] == [
        ("M01", "ok", None, f"all 240 directed pairs proved themselves over {ETH}"),
        ("M02", "ok", None, "all nodes have MTU 1500"),
        ("M03", "ok", None, "the clocks of the nodes agree within 0.0 ms"),
        ("M04", "ok", None, "the median round-trip time is 0.2 ms"),
    ]


def test_of_a_failed_round_reachability_is_not_praised() -> None:
    found = found_in(tried(3, [(0, 1)]), nodes(3))
    assert [f.check for f in found] == ["M02", "M03", "M04"]


def test_of_a_round_without_any_good_pair_only_the_interfaces_are_known() -> None:
    assert [f.check for f in found_in(tried(2, both((0, 1))), nodes(2))] == ["M02"]


def test_probes_may_leave_everything_open() -> None:
    nothing = {"rtt_ms": None, "skew_seconds": None, "path_mtu": None}
    found = found_in(tried(3, probe=lambda a, b: nothing), nodes(3))
    assert [(f.check, f.level) for f in found] == [("M01", "ok"), ("M02", "ok"), ("M02", "warn")]


def test_a_node_with_another_mtu_is_named() -> None:
    assert shown(128, h9=9000) == [
        ("M02", "warn", 9, "slot 9 (h9) is alone with MTU 9000; the 127 others have 1500")
    ]


def narrow(*slots: int, mtu: int = 1400) -> Callable[[int, int], dict[str, Any]]:
    return lambda a, b: {"path_mtu": mtu if {a, b} & set(slots) else 1500}


def test_a_node_behind_a_narrow_path_is_named() -> None:
    assert shown(128, narrow(77)) == [
        (
            "M02",
            "warn",
            77,
            (
                "only packets of up to 1400 bytes pass between slot 77 (h77) and other "
                "nodes, though "
                "the interfaces take 1500"
            ),
        )
    ]


def test_a_narrow_path_between_two_nodes_blames_neither() -> None:
    assert shown(16, lambda a, b: {"path_mtu": 1400 if {a, b} == {3, 9} else 1500}) == [
        (
            "M02",
            "warn",
            None,
            (
                "only packets of up to 1400 bytes pass between slot 3 (h3) and slot 9 (h9), though "
                "the interfaces take 1500"
            ),
        )
    ]


def test_a_path_that_is_narrow_for_all_blames_nobody() -> None:
    assert shown(4, narrow(0, 1, 2, 3)) == [
        (
            "M02",
            "warn",
            None,
            (
                "only packets of up to 1400 bytes pass in 12 directed pairs of nodes, though the "
                "interfaces take 1500"
            ),
        )
    ]


def mute(*pairs: Pair) -> Callable[[int, int], dict[str, Any]]:
    """Probes whose datagrams nobody answers in these pairs."""
    return lambda a, b: {"path_mtu": None} if (a, b) in pairs else {}


UNMEASURED = ": the path MTU could not be measured"


@pytest.mark.parametrize(
    ("size", "pairs", "said"),
    [
        (
            *(4, both(*[(a, b) for a in range(4) for b in range(a)])),
            [
                (
                    None,
                    f"UDP ports 7000, 7001, 7002 and 1 more of all nodes get no answer{UNMEASURED}",
                )
            ],
        ),
        (
            *(4, into(2, 4)),
            [(2, f"UDP port 7002 of slot 2 (h2) gets no answer{UNMEASURED}")],
        ),
        (
            *(4, out_of(2, 4)),
            [(2, f"slot 2 (h2) gets no answer from the UDP ports of the others{UNMEASURED}")],
        ),
        (
            *(2, [(0, 1)]),
            [
                (
                    None,
                    f"UDP port 7001 of slot 1 (h1) gets no answer{UNMEASURED}",
                )
            ],
        ),
        (
            *(4, into(2, 4) + into(3, 4)),
            [(None, f"UDP ports 7002, 7003 of slot 2 (h2), slot 3 (h3) get no answer{UNMEASURED}")],
        ),
        (4, [(0, 1), (2, 3)], []),  # a busy node may answer too late for once
    ],
)
def test_where_datagrams_are_not_answered_the_port_is_named(
    size: int, pairs: list[Pair], said: list[tuple[int | None, str]]
) -> None:
    assert shown(size, mute(*pairs)) == [("M02", "warn", slot, text) for slot, text in said]


def test_a_node_that_met_mute_peers_first_and_asked_no_other_is_not_named() -> None:
    rack = range(4, 8)
    pairs = [pair for slot in rack for pair in into(slot, 16)] + out_of(3, 16)
    assert [slot for _, _, slot, _ in shown(16, mute(*pairs))] == list(rack)


def test_what_opens_the_way_for_datagrams_is_told() -> None:
    joins = nodes(4)
    (finding,) = [
        f for f in found_in(tried(4, probe=mute(*into(2, 4))), joins) if f.value == "unknown"
    ]
    assert finding.fix == (
        "let UDP through between the nodes as well as TCP (security group; iptables -L), or "
        "--skip M02"
    )


def test_where_no_packet_is_as_large_as_the_interface_takes_nothing_is_missed() -> None:
    for mtu in (0, 65_536):  # not known; loopback
        every = mute(*both((0, 1)))
        assert shown(2, every, h0=mtu, h1=mtu) == []


@pytest.mark.parametrize(
    ("ahead", "words"),
    [(42.0, "42.0 s ahead of"), (-2.5, "2.5 s behind"), (86_400.0, "1440 min ahead of")],
)
def test_a_clock_that_is_off_is_named(ahead: float, words: str) -> None:
    skews = {77: ahead}
    assert shown(128, lambda a, b: {"skew_seconds": skews.get(b, 0.0) - skews.get(a, 0.0)}) == [
        ("M03", "warn", 77, f"the clock of slot 77 (h77) is {words} the others'")
    ]


def test_of_two_clocks_neither_is_right() -> None:
    assert shown(2, lambda a, b: {"skew_seconds": float(b - a)}) == [
        ("M03", "warn", None, "the clock of slot 1 (h1) is 1.0 s ahead of that of slot 0 (h0)")
    ]


def test_clocks_in_two_halves_blame_nobody() -> None:
    assert shown(4, lambda a, b: {"skew_seconds": 60.0 * (b // 2 - a // 2)}) == [
        ("M03", "warn", None, "the clock of slot 2 (h2) is 60.0 s ahead of that of slot 0 (h0)")
    ]


def test_clocks_are_compared_along_the_pairs_that_were_probed() -> None:
    """A chain: nobody has probed everybody."""
    skews = {a: 5.0 if a == 3 else 0.0 for a in range(6)}
    reports = {
        a: [PairProbe(slot=a + 1, outcome="ok", skew_seconds=skews[a + 1] - skews[a])]
        for a in range(5)
    }
    round_ = Round(network=ETH, number=0, verdict="", slots=list(range(6)), reports=reports)
    assert [f.cause for f in found_in(round_, nodes(6)) if f.check == "M03"] == [
        "the clock of slot 3 (h3) is 5.0 s ahead of the others'"
    ]


def test_a_node_that_answers_late_is_named() -> None:
    assert shown(128, lambda a, b: {"rtt_ms": 12.0 if 77 in (a, b) else 0.2}) == [
        ("M04", "warn", 77, "slot 77 (h77) answers in 12 ms, the other nodes in 0.2 ms")
    ]


@pytest.mark.parametrize(
    "probe",
    [
        lambda a, b: {"rtt_ms": 0.9 if 7 in (a, b) else 0.01},
        lambda a, b: {"rtt_ms": 12.0 if {a, b} == {7, 8} else 0.2},
        lambda a, b: {"rtt_ms": 12.0 if a // 8 != b // 8 else 0.2},
    ],
    ids=["less than a millisecond", "a single pair", "two halves"],
)
def test_what_is_not_far_off_or_not_one_nodes_is_left_alone(
    probe: Callable[[int, int], dict[str, Any]],
) -> None:
    assert shown(16, probe) == []


def test_a_node_behind_nat_is_named_with_the_address_that_others_see() -> None:
    assert shown(4, lambda a, b: {"source": "192.0.2.7" if a == 2 else f"10.0.0.{a + 1}"}) == [
        (
            "X07",
            "warn",
            2,
            (
                "slot 2 (h2) is seen by the others as 192.0.2.7, which is none of the "
                "addresses that "
                "it offers"
            ),
        )
    ]


def test_on_loopback_everyone_is_seen_as_127_0_0_1() -> None:
    joins = [make_join(s, addresses=[f"127.0.0.{s + 1}"]) for s in range(3)]
    found = found_in(tried(3, probe=lambda a, b: {"source": "127.0.0.1"}), joins)
    assert [f.check for f in found if f.level != "ok"] == []


def test_a_finding_says_what_mends_it() -> None:
    [_, finding, *_] = found_in(tried(3), nodes(3, h1=9000))
    assert finding == Finding(
        check="M02",
        level="warn",
        slot=1,
        subject="MTU",
        value="9000",
        expected="1500",
        cause="slot 1 (h1) is alone with MTU 9000; the 2 others have 1500",
        fix="ip link set dev eth0 mtu 1500 on h1, if the network takes no more",
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12.3 ms"), (1.0, "1.0 s"), (599.0, "599.0 s"), (600, "10 min")]
)
def test_seconds_as_text(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


# --- as text --------------------------------------------------------------------------------------


def hostnames(size: int) -> dict[int, str]:
    return {slot: f"h{slot}" for slot in range(size)}


def test_a_small_round_is_shown_whole() -> None:
    mixed = tried(4, into(2, 4))
    reports = mixed.reports | {0: [PairProbe(slot=2, outcome="black_hole"), *mixed.reports[0][:1]]}
    assert text_matrix(mixed.model_copy(update={"reports": reports}), hostnames(4)) == [
        f"{ETH}: 3 of 12 directed pairs fail",
        "  from \\ to  0 1 2 3",
        "  0 h0       - . M .",
        "  1 h1       . - T .",
        "  2 h2       . . - .",
        "  3 h3       . . T -",
        "  . good, T no answer, M small messages pass and large ones vanish",
    ]


def test_a_good_round_is_one_line() -> None:
    assert text_matrix(tried(4), hostnames(4)) == [f"{ETH}: 0 of 12 directed pairs fail"]


def test_slots_of_two_digits_stand_on_two_lines() -> None:
    lines = text_matrix(tried(12, both((3, 11))), hostnames(12))
    assert lines[1:4] == [
        "                                 1 1",
        "  from \\ to  0 1 2 3 4 5 6 7 8 9 0 1",
        "  0 h0       - . . . . . . . . . . .",
    ]
    assert lines[6] == "  3 h3       . . . - . . . . . . . T"


def test_of_a_large_round_only_what_fails_is_shown() -> None:
    cut = tried(100, [(3, 70), (5, 70), (5, 71)])
    assert text_matrix(cut, hostnames(100)) == [
        f"{ETH}: 3 of 9900 directed pairs fail",
        "             7 7",
        "  from \\ to  0 1",
        "  3 h3       T .",
        "  5 h5       T T",
        "  . good, T no answer",
    ]


def test_no_more_rows_and_columns_than_32_are_shown() -> None:
    lines = text_matrix(tried(100, into(9, 100)), hostnames(100))
    assert len(lines) == 1 + 1 + 32 + 1 + 1
    assert lines[-2] == "  and 67 more rows"
    everything = [(a, b) for a in range(100) for b in range(100) if a != b]
    assert text_matrix(tried(100, everything), {})[-2] == "  and 68 more rows and 68 more columns"


def test_pairs_that_nobody_was_to_probe_are_blank() -> None:
    slots = list(range(200))
    reports = {a: [PairProbe(slot=(a + 1) % 200, outcome="ok")] for a in slots}
    reports |= {
        a: [PairProbe(slot=b, outcome="refused" if b == 7 else "ok") for b in (7, 8)]
        for a in (3, 5)
    }
    reports[8] = [PairProbe(slot=9, outcome="refused")]
    round_ = Round(network=ETH, number=0, verdict="", slots=slots, reports=reports)
    assert text_matrix(round_, hostnames(200)) == [
        f"{ETH}: 3 of 12800 directed pairs fail",
        "  from \\ to  7 9",
        "  3 h3       R",
        "  5 h5       R",
        "  8 h8         R",
        "  . good, R connection refused",
    ]


def test_a_hostname_cannot_spoil_the_text() -> None:
    lines = text_matrix(tried(2, [(0, 1)]), {0: "a\x1b[2J" + "b" * 90})
    assert lines[2] == f"  0 a?[2J{'b' * 18}…  - T"
