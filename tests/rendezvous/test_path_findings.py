"""What else a round of probes shows: packet sizes, clocks, distances, NAT, wrong hostnames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rendezvous.proof.path_findings import findings_of
from rendezvous.wire.node import Finding, JoinRequest
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.words import seconds_text
from tests.support.driver import make_join
from tests.support.mesh import (
    ETH,
    Pair,
    both,
    classes,
    into,
    nodes,
    out_of,
    tried,
)


def found_in(round_: Round, joins: Sequence[JoinRequest]) -> list[Finding]:
    return findings_of(round_, joins, classes(joins))


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


# --- hostnames ------------------------------------------------------------------------------------


def resolved(size: int, told: dict[tuple[int, int], str]) -> list[tuple[str, str, int | None, str]]:
    """What is said when these pairs of reporter and peer have these addresses in a hosts file."""
    joins = nodes(size)
    reports = {
        slot: [
            PairProbe(slot=peer, outcome="ok", resolved=told.get((slot, peer), ""))
            for peer in range(size)
            if peer != slot
        ]
        for slot in range(size)
    }
    round_ = Round(network=ETH, number=0, verdict="", slots=list(range(size)), reports=reports)
    found = found_in(round_, joins)
    return [(f.check, f.level, f.slot, f.cause) for f in found if f.check == "X08"]


def test_hosts_files_that_lead_where_the_nodes_are_say_nothing() -> None:
    assert resolved(3, {}) == []
    assert resolved(3, {(0, 1): "10.0.0.2, 192.168.7.2"}) == []


def test_one_of_128_nodes_whose_hosts_file_leads_to_another_node_is_named() -> None:
    assert resolved(128, {(77, 3): "10.0.0.6"}) == [
        (
            "X08",
            "warn",
            77,
            (
                "on slot 77 (h77), /etc/hosts leads from h3 to 10.0.0.6, which is slot 5 (h5); "
                "slot 3 (h3) is 10.0.0.4"
            ),
        )
    ]


def test_an_address_that_nobody_offers_is_wrong_where_some_nodes_do_not_have_it() -> None:
    assert resolved(5, {(0, 3): "10.7.0.1", (1, 3): "10.7.0.1", (2, 3): "10.7.0.1"}) == [
        (
            "X08",
            "warn",
            None,
            "on slots 0-2, /etc/hosts leads from h3 to 10.7.0.1; slot 3 (h3) is 10.0.0.4",
        )
    ]


def test_an_address_on_which_all_nodes_agree_is_another_one_of_the_node() -> None:
    assert resolved(4, {(slot, 3): "192.168.7.3" for slot in range(3)}) == []


@pytest.mark.parametrize("address", ["127.0.1.1", "::1", "10.0.0.1"])
def test_loopback_and_another_nodes_address_are_wrong_although_all_agree(address: str) -> None:
    [(check, level, slot, _)] = resolved(4, {(slot, 3): address for slot in range(3)})
    assert (check, level, slot) == ("X08", "warn", None)


def test_of_very_many_wrong_names_the_first_are_told() -> None:
    told = {(0, peer): f"10.9.0.{peer}" for peer in range(1, 128)}
    assert len(resolved(128, told)) == 16
