"""What else a round of probes shows: packet sizes, clocks, distances, NAT, wrong hostnames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.proof.path_findings import findings_of
from rendezvous.wire.node import Finding, JoinRequest
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from tests.support.driver import make_join
from tests.support.mesh import ETH, Pair, both, classes, into, nodes, out_of, tried
from tests.support.tables import rows

SMALL = "only packets of up to 1400 bytes pass"
TAKEN = "though the interfaces take 1500"
Probe = Callable[[int, int], dict[str, Any]]


def found_in(round_: Round, joins: Sequence[JoinRequest]) -> list[Finding]:
    return findings_of(round_, joins, classes(joins))


def shown(size: int, probe: Probe = lambda one, other: {}, **mtus: int) -> list[str]:
    """What is not ok in a round in which every pair is good: check, slot and cause."""
    found = [f for f in found_in(tried(size, probe=probe), nodes(size, **mtus)) if f.level != "ok"]
    assert {f.level for f in found} <= {"warn"}
    return [f"{f.check} {f.slot}: {f.cause}" for f in found]


def test_of_a_good_round_there_is_one_line_for_each_check() -> None:
    assert [(f.check, f.level, f.slot, f.cause) for f in found_in(tried(16), nodes(16))] == [
        ("M01", "ok", None, f"all 240 directed pairs passed over {ETH}"),
        ("M02", "ok", None, "all nodes have MTU 1500"),
        ("M03", "ok", None, "the clocks of the nodes agree within 0.0 ms"),
        ("M04", "ok", None, "the median round-trip time is 0.2 ms"),
    ]


@pytest.mark.parametrize(
    ("round_", "checks"),
    [
        (tried(3, [(0, 1)]), ["M02", "M03", "M04"]),
        (tried(2, both((0, 1))), ["M02"]),
        (
            tried(
                3, probe=lambda a, b: dict.fromkeys(("rtt_ms", "skew_seconds", "path_mtu"), None)
            ),
            ["M01", "M02", "M02"],
        ),
    ],
    ids=["a pair failed", "no pair is good", "probes leave everything open"],
)
def test_only_what_was_seen_is_praised(round_: Round, checks: list[str]) -> None:
    assert [f.check for f in found_in(round_, nodes(len(round_.slots)))] == checks


def probe_of(text: str) -> Probe:
    """`7 rtt_ms=12` of all pairs with slot 7, `3=9` of that pair, `*`, `halves`; `ahead 7=42`."""
    who, *words = text.split()
    if who == "ahead":
        skews = {int(slot): float(by) for slot, by in (word.split("=") for word in words)}
        return lambda a, b: {"skew_seconds": skews.get(b, 0.0) - skews.get(a, 0.0)}
    (field, value), *other = [(name, float(v)) for name, v in (w.split("=") for w in words)]
    chosen = {int(slot) for slot in who.split("=")} if who[0].isdigit() else set()

    def probe(a: int, b: int) -> dict[str, Any]:
        halves = who == "halves" and a // 8 != b // 8
        if who == "*" or halves or (chosen and chosen <= {a, b}):
            return {field: int(value) if field == "path_mtu" else value}
        return dict(other)

    return probe


@rows(
    "size probe said",
    f"""
narrow | 16 | 7 path_mtu=1400 | M02 7: {SMALL} between slot 7 (h7) and other nodes, {TAKEN}
narrow for all | 4 | * path_mtu=1400 | M02 None: {SMALL} in 12 directed pairs of nodes, {TAKEN}
a clock | 16 | ahead 7=42.0 | M03 7: the clock of slot 7 (h7) is 42.0 s ahead of the others'
a clock a little fast | 16 | ahead 7=0.9
    | M03 7: the clock of slot 7 (h7) is 900.0 ms ahead of the others'
a slow clock | 16 | ahead 7=-2.5 | M03 7: the clock of slot 7 (h7) is 2.5 s behind the others'
two clocks | 2 | ahead 1=1.0
    | M03 None: the clock of slot 1 (h1) is 1.0 s ahead of the clock of slot 0 (h0)
late | 16 | 7 rtt_ms=12.0 | M04 7: slot 7 (h7) answers in 12 ms, the other nodes in 0.2 ms
late by less than a millisecond | 16 | 7 rtt_ms=0.9 rtt_ms=0.01 |
a late pair | 16 | 7=8 rtt_ms=12.0 |
a late pair that is reported last | 16 | 14=15 rtt_ms=12.0 |
late halves | 16 | halves rtt_ms=12.0 |
""",
)
def test_a_node_that_stands_out_is_named(size: str, probe: str, said: str) -> None:
    assert shown(int(size), probe_of(probe)) == [said][: bool(said)]


@rows(
    "size probe value",
    """
one | 16 | ahead 7=42.0 | warn +42.000 s
behind | 16 | ahead 7=-2.5 | warn -2.500 s
two | 2 | ahead 1=1.0 | warn 1.0 s
within bounds | 16 | ahead 3=-0.02 7=0.03 | ok 50.0 ms
""",
)
def test_how_far_a_clock_is_off_is_a_value(size: str, probe: str, value: str) -> None:
    found = found_in(tried(int(size), probe=probe_of(probe)), nodes(int(size)))
    assert [f"{f.level} {f.value}" for f in found if f.check == "M03"] == [value]


def test_a_node_behind_nat_is_named_with_the_address_that_others_see() -> None:
    seen = {2: "192.0.2.7"}
    [said] = shown(4, lambda a, b: {"source": seen.get(a, f"10.0.0.{a + 1}")})
    assert said == (
        "X07 2: slot 2 (h2) is seen by the others as 192.0.2.7, which is not one of its addresses"
    )


def test_a_node_that_most_see_under_its_own_address_is_behind_no_nat() -> None:
    seen = {(2, 0): "192.0.2.7", (2, 1): "192.0.2.8"}
    assert shown(6, lambda a, b: {"source": seen.get((a, b), f"10.0.0.{a + 1}")}) == []


def test_a_node_with_another_mtu_is_named_with_what_mends_it() -> None:
    good, finding, *others = found_in(tried(3), nodes(3, h1=9000))
    assert [(one.check, one.level) for one in (good, *others)] == [
        ("M01", "ok"),
        ("M03", "ok"),
        ("M04", "ok"),
    ]  # a path carries no more than the smaller one of its interfaces
    assert finding == Finding(
        check="M02",
        level="warn",
        slot=1,
        subject="MTU",
        value="9000",
        expected="1500",
        cause="slot 1 (h1) is the only node with MTU 9000; the 2 others have 1500",
        fix="ip link set dev eth0 mtu 1500 on h1, if the network carries no more",
    )


ALL = [(a, b) for a in range(4) for b in range(4) if a != b]
TWO = into(2, 4) + into(3, 4)


def mute(*pairs: Pair) -> Probe:
    """Probes whose datagrams nobody answers in these pairs."""
    return lambda a, b: {"path_mtu": None} if (a, b) in pairs else {}


@pytest.mark.parametrize(
    ("size", "pairs", "said"),
    [
        (4, ALL, "None: UDP ports 7000, 7001, 7002 and 1 more of all nodes get no answer"),
        (4, into(2, 4), "2: UDP port 7002 of slot 2 (h2) gets no answer"),
        (4, out_of(2, 4), "2: slot 2 (h2) gets no answer from the UDP ports of the others"),
        (2, [(0, 1)], "None: UDP port 7001 of slot 1 (h1) gets no answer"),
        (4, TWO, "None: UDP ports 7002, 7003 of slot 2 (h2), slot 3 (h3) get no answer"),
        (4, [(0, 1), (2, 3)], ""),  # a busy node may answer too late for once
    ],
)
def test_where_datagrams_are_not_answered_the_port_is_named(
    size: int, pairs: list[Pair], said: str
) -> None:
    assert shown(size, mute(*pairs)) == [
        f"M02 {text}: the path MTU could not be measured" for text in [said] if text
    ]


def test_a_node_that_met_mute_peers_first_and_asked_no_other_is_not_named() -> None:
    rack = range(4, 8)
    pairs = [pair for slot in rack for pair in into(slot, 16)] + out_of(3, 16)
    assert [line.split()[1] for line in shown(16, mute(*pairs))] == [f"{slot}:" for slot in rack]


def test_what_opens_the_way_for_datagrams_is_told() -> None:
    found = found_in(tried(4, probe=mute(*into(2, 4))), nodes(4))
    assert [f.fix for f in found if f.value == "unknown"] == [
        (
            "let UDP as well as TCP through between the nodes (security group; iptables -L), "
            "or --skip M02"
        )
    ]


def test_where_no_packet_is_as_large_as_the_interface_takes_nothing_is_missed() -> None:
    for mtu in (0, 65_536):  # not known; loopback
        every = mute(*both((0, 1)))
        assert shown(2, every, h0=mtu, h1=mtu) == []


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


def test_on_loopback_everyone_is_seen_as_127_0_0_1() -> None:
    joins = [make_join(s, addresses=[f"127.0.0.{s + 1}"]) for s in range(3)]
    found = found_in(tried(3, probe=lambda a, b: {"source": "127.0.0.1"}), joins)
    assert [f.check for f in found if f.level != "ok"] == []


# --- hostnames ------------------------------------------------------------------------------------

OF_3 = "; the address of slot 3 (h3) is 10.0.0.4"


@rows(
    "size reporters address said",
    f"""
its own and another of it | 4 | 0 | 10.0.0.4, 192.168.7.2 |
all agree on another | 4 | 0 1 2 | 192.168.7.3 |
another node's | 16 | 7 | 10.0.0.6
    | X08 7: on slot 7 (h7), /etc/hosts maps h3 to 10.0.0.6, which is slot 5 (h5){OF_3}
nobody's, and some do not have it | 5 | 0 1 2 | 10.7.0.1
    | X08 None: on slots 0-2, /etc/hosts maps h3 to 10.7.0.1{OF_3}
loopback | 4 | 0 1 2 | 127.0.1.1
    | X08 None: on slots 0-2, /etc/hosts maps h3 to 127.0.1.1{OF_3}
loopback of IPv6 | 4 | 0 1 2 | ::1 | X08 None: on slots 0-2, /etc/hosts maps h3 to ::1{OF_3}
all agree on another node's | 4 | 0 1 2 | 10.0.0.1
    | X08 None: on slots 0-2, /etc/hosts maps h3 to 10.0.0.1, which is slot 0 (h0){OF_3}
""",
)
def test_hosts_files_that_lead_elsewhere_are_told(
    size: str, reporters: str, address: str, said: str
) -> None:
    told = {(int(slot), 3): address for slot in reporters.split()}
    found = shown(int(size), lambda a, b: {"resolved": told.get((a, b), "")})
    assert found == [said][: bool(said)]


@pytest.mark.parametrize("name", ["localhost", "Localhost.localdomain"])
def test_a_hostname_that_every_machine_has_is_at_fault_and_not_the_hosts_files(name: str) -> None:
    joins = nodes(4)
    joins[2] = replace(joins[2], hostname=name)
    round_ = tried(4, probe=lambda a, b: {"resolved": "127.0.0.1" if b == 2 else ""})
    [found] = [f for f in found_in(round_, joins) if f.check == "X08"]
    assert (found.slot, found.value, found.level) == (2, name, "warn")
    assert found.cause.startswith(f"the hostname of slot 2 is {name}, which every machine has for ")
    assert found.fix.startswith("give that node another hostname (hostnamectl set-hostname NAME")


def test_a_wrong_address_of_a_name_is_told_beside_the_right_one() -> None:
    round_ = tried(4, probe=lambda a, b: {"resolved": "10.0.0.1" if b == 3 else ""})
    assert [(f.value, f.expected) for f in found_in(round_, nodes(4)) if f.check == "X08"] == [
        ("10.0.0.1", "10.0.0.4")
    ]


def test_of_very_many_wrong_names_the_first_are_told() -> None:
    assert len(shown(64, lambda a, b: {"resolved": "" if a else f"10.9.0.{b}"})) == 16
