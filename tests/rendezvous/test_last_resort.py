"""Networks that nodes leave out as virtual: when they are tried, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.proof.last_resort import last_networks, used, with_untried
from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.networks import Unreachable, classes_of
from rendezvous.run.rounds import plan_of
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.node import Candidate, JoinRequest, LinkKind
from rendezvous.wire.run import Phase
from tests.support.driver import Drive, make_candidate, make_join, make_spec
from tests.support.tables import rows


def vpn(text: str) -> Candidate:
    """`tailscale0!100.64.0.1`, `wg0!10.6.0.1/24`; the higher its last number, the less its MTU."""
    name, _, place = text.partition("!")
    address, _, length = place.partition("/")
    whole = 128 if ":" in address else 32
    found = make_candidate(address, name, int(length or whole))
    return replace(found, kind=LinkKind.VIRTUAL, mtu=1283 - int(address[-1]))


def node(slot: int, lan: str, *left_out: str) -> JoinRequest:
    join = make_join(slot, hostname=f"h{slot}", addresses=lan.split())
    return replace(join, left_out=[*map(vpn, left_out)])


def nodes(text: str) -> tuple[list[JoinRequest], dict[int, str]]:
    """Of each slot LAN, what it left out, and after `<` where it joined from."""
    joins, sources = [], {}
    for slot, words in enumerate(text.split(", ")):
        offer, _, source = words.partition("<")
        lan, *left_out = offer.split()
        joins.append(node(slot, lan, *left_out))
        sources[slot] = source.strip()
    return joins, sources


def shown(classes: list[NetworkClass]) -> str:
    return "; ".join(
        " ".join(one.members[slot].address for slot in sorted(one.members)) for one in classes
    )


TWO_LANS = (
    "10.1.0.1 ts0!100.64.0.1, 10.1.0.2 ts0!100.64.0.2 < 10.1.0.2, "
    "10.2.0.3 ts0!100.64.0.3 < 100.64.0.3"
)


@rows(
    "offers tried",
    f"""
two LANs and a VPN | {TWO_LANS} | 100.64.0.1 100.64.0.2 100.64.0.3
nobody came over it | 10.0.0.1 wg0!10.6.0.1, 10.0.0.2 wg0!10.6.0.2 < 10.0.0.2 |
nothing was left out | 10.0.0.1, 10.0.0.2 < 192.0.2.9 |
one node has no VPN, and came otherwise
    | 10.1.0.1 ts0!100.64.0.1 < 100.64.0.1, 10.1.0.2 < 10.1.0.2, 10.2.0.3 ts0!100.64.0.3
    < 100.64.0.3 | 100.64.0.1 10.1.0.2 100.64.0.3
one node has no VPN, and where it came from is not known
    | 10.1.0.1 ts0!100.64.0.1 < 100.64.0.1, 10.1.0.2, 10.2.0.3 ts0!100.64.0.3 < 100.64.0.3 |
interfaces have other names | 10.1.0.1 wg1!10.6.0.1/24, 10.2.0.2 wg0!10.6.0.2/24 < 10.6.0.2
    | 10.6.0.1 10.6.0.2
of two VPNs the one that leads to the registry
    | 10.1.0.1 wg0!10.6.0.1 ts0!100.64.0.1, 10.2.0.2 wg0!10.6.0.2 ts0!100.64.0.2 < 100.64.0.2
    | 100.64.0.1 100.64.0.2
the family that leads to the registry
    | 10.1.0.1 ts0!100.64.0.1 ts0!fd7a::1, 10.2.0.2 ts0!100.64.0.2 ts0!fd7a::2 < fd7a::2
    | fd7a::1 fd7a::2
each has the same bridge | 10.1.0.1 docker0!172.17.0.1, 10.2.0.2 docker0!172.17.0.1 < 172.17.0.1 |
one that another offers | 10.1.0.1 ts0!100.64.0.1, 100.64.0.1 ts0!100.64.0.2 < 100.64.0.2 |
two ways lead there, the more frequent first
    | 10.1.0.1 wg0!10.6.0.1 ts0!100.64.0.1 < 100.64.0.1, 10.2.0.2 wg0!10.6.0.2 ts0!100.64.0.2
    < 100.64.0.2, 10.3.0.3 wg0!10.6.0.3 ts0!100.64.0.3 < 10.6.0.3
    | 100.64.0.1 100.64.0.2 100.64.0.3; 10.6.0.1 10.6.0.2 10.6.0.3
""",
)
def test_what_led_to_the_registry_is_tried_last(offers: str, tried: str) -> None:
    joins, sources = nodes(offers)
    found = last_networks(joins, sources)
    assert shown(found) == tried
    assert all(one.is_last for one in found)


def test_the_last_networks_are_numbered_on_and_none_is_tried_twice() -> None:
    joins, sources = nodes(TWO_LANS)
    others = classes_of(joins, sources)
    assert not isinstance(others, Unreachable)
    (last,) = last_networks(joins, sources, others)
    assert (last.number, last.words) == (1, "ts0 (3 subnets, virtual, IPv4)")
    assert last_networks(joins, sources, [last]) == []


def test_a_node_that_offers_its_vpn_takes_part_in_it() -> None:
    alone = replace(node(0, "10.1.0.9"), candidates=[vpn("ts0!100.64.0.1")])
    joins = [alone, node(1, "10.2.0.2", "ts0!100.64.0.2")]
    assert shown(last_networks(joins, {1: "100.64.0.2"})) == "100.64.0.1 100.64.0.2"


# --- what is named --------------------------------------------------------------------------------


WHY = Unreachable((1,), "slot 1 cannot be reached", "connect them")


@rows(
    "offers reason hint",
    """
all have it | 10.1.0.1 wg0!10.6.0.1, 10.1.0.2 wg0!10.6.0.2, 10.1.0.3 wg0!10.6.0.3
    | wg0 (10.6.0.1, 10.6.0.2 and 1 more) was left out as virtual | --interface wg0 uses it
under two names | 10.1.0.1 wg0!10.6.0.1, 10.1.0.2 wg1!10.6.0.2
    | wg0 (10.6.0.1), wg1 (10.6.0.2) were left out as virtual
    | --interface wg0 uses it, --interface wg1 uses it on the nodes that have it
""",
)
def test_a_vpn_that_was_not_tried_is_named(offers: str, reason: str, hint: str) -> None:
    joins, _ = nodes(offers)
    assert with_untried(WHY, joins, []) == Unreachable(
        (1,), f"slot 1 cannot be reached; {reason}", f"connect them; {hint}"
    )


@pytest.mark.parametrize(
    "offers",
    [
        "10.1.0.1 wg0!10.6.0.1, 10.1.0.2",
        "10.1.0.1 wg0!10.6.0.1, 10.1.0.2 wg0!10.6.0.1",
        "10.1.0.1, 10.1.0.2",
    ],
)
def test_what_not_every_node_has_for_itself_is_not_named(offers: str) -> None:
    assert with_untried(WHY, nodes(offers)[0], []) == WHY


def test_what_was_tried_is_not_said_to_be_left_out() -> None:
    joins, sources = nodes(TWO_LANS)
    assert with_untried(WHY, joins, last_networks(joins, sources)) == WHY


def test_what_the_last_network_costs_is_told() -> None:
    joins, sources = nodes(TWO_LANS)
    assert used(NetworkClass(0, "eth0", {}), joins, 9.0) == []
    (last,) = last_networks(joins, sources)
    (alone,) = used(last, joins, 0.1)
    assert (alone.check, alone.level, alone.slot) == ("X09", "warn", None)
    assert alone.cause == (
        "the nodes are joined by ts0 (3 subnets, virtual, IPv4), with MTU 1280, which was left out "
        "at first as virtual: they offer no other network in common; a VPN may be slow"
    )
    assert (
        alone.fix
        == "use it from the start with --interface ts0, or connect the nodes by a faster network"
    )
    (after,) = used(replace(last, number=1), joins, 9.0)
    assert "virtual: the other network failed, which took 9.0 s; a VPN" in after.cause
    (later,) = used(replace(last, number=2), joins, 9.0)
    assert "virtual: 2 other networks failed, which took 9.0 s; a VPN" in later.cause


# --- a run ----------------------------------------------------------------------------------------


def two_lans(**changes: Any) -> Drive:
    """Three nodes in two LANs, of which the third came over a VPN."""
    drive = Drive(make_spec(3, **changes))
    joins, sources = nodes(TWO_LANS)
    for join in joins:
        drive.join(
            join.slot,
            source=sources[join.slot] or "127.0.0.1",
            here=join.slot == 0,
            left_out=join.left_out,
            addresses=join.candidates,
        )
    return drive


def addresses(drive: Drive) -> list[str]:
    return [peer.address for peer in plan_of(drive.run).peers]


def test_a_run_tries_its_vpn_once_all_else_has_failed() -> None:
    drive = two_lans()
    assert addresses(drive) == ["10.1.0.1", "10.1.0.2", "10.2.0.3"]
    for slot in range(3):
        drive.probe(slot, *({2} if slot < 2 else {0, 1}))
    assert addresses(drive) == ["100.64.0.1", "100.64.0.2", "100.64.0.3"]
    drive.wait(1).verify()
    assert drive.phase is Phase.ARMING
    assert drive.run.table is not None
    row = drive.run.table.rows[2]
    assert (row.address, row.interface, row.prefix_length) == ("100.64.0.3", "ts0", 32)
    (told,) = [f for f in drive.run.attempt.findings if f.check == "X09"]
    assert "the other network failed" in told.cause


def test_a_network_that_works_spares_the_vpn() -> None:
    drive = two_lans()
    drive.verify()
    assert drive.phase is Phase.ARMING
    assert [f for f in drive.run.attempt.findings if f.check == "X09"] == []


def test_where_the_vpn_fails_too_it_is_told_of_as_it_led_to_the_registry() -> None:
    drive = two_lans()
    for _ in range(2):
        for slot in range(3):
            drive.probe(slot, *({2} if slot < 2 else {0, 1}))
    assert drive.result.exit_code == ExitCode.VERIFICATION_FAILED
    assert "over ts0 (3 subnets, virtual, IPv4): no answer" in drive.result.message
    assert "(the nearest of 2 networks tried)" in drive.result.message
    assert "left out" not in drive.result.message


def test_a_vpn_that_takes_no_connection_is_told_of_rather_than_lans_that_nothing_joins() -> None:
    drive = two_lans()
    for slot in range(3):
        drive.probe(slot, *({2} if slot < 2 else {0, 1}))
    for slot in range(3):
        drive.probe(slot, *({0, 1, 2} - {slot}))
    assert "over ts0 (3 subnets, virtual, IPv4): no answer" in drive.result.message
    assert "most likely a firewall" in drive.result.message
    assert "(2 networks tried; nodes reached the registry over this one)" in drive.result.message
    assert "lan0" not in drive.result.message


def test_no_firewall_is_invented_between_two_lans_that_a_tunnel_joins() -> None:
    drive = Drive(make_spec(3))
    for slot, address in enumerate(("10.1.0.1", "10.1.0.2", "10.2.0.3")):
        drive.join(slot, addresses=[address], source="127.0.0.1" if slot == 2 else address)
    for slot in range(3):
        drive.probe(slot, *({2} if slot < 2 else {0, 1}))
    assert "nothing shows a way between 10.1.0.0/24, 10.2.0.0/24" in drive.result.message
    assert "firewall" not in drive.result.message + drive.result.hint


@pytest.mark.parametrize("verify", [True, False])
def test_nodes_that_share_nothing_else_meet_on_their_vpn_if_it_is_proven(verify: bool) -> None:
    drive = Drive(make_spec(2, verify=verify))
    left_out = [[vpn(f"ts0!100.64.0.{slot + 1}")] for slot in range(2)]
    for slot in range(2):  # each in a container of the same address
        drive.join(
            slot, addresses=["172.17.0.2"], source=f"100.64.0.{slot + 1}", left_out=left_out[slot]
        )
    if verify:
        assert addresses(drive) == ["100.64.0.1", "100.64.0.2"]
        return
    assert "172.17.0.2 is also the address of" in drive.result.message
    assert "ts0 (100.64.0.1, 100.64.0.2) was left out as virtual" in drive.result.message


def test_containers_with_one_address_are_told_to_leave_their_nat() -> None:
    drive = Drive(make_spec(3))
    drive.join(0, addresses=["10.0.0.1"], source="127.0.0.1", here=True)
    for slot in (1, 2):
        drive.join(slot, addresses=["172.17.0.2"], source=f"10.0.0.{slot + 1}")
    assert drive.result.message.endswith(
        "172.17.0.2 is also the address of slot 2 (host2); the registry sees slot 1 (host1) as "
        "10.0.0.2, slot 2 (host2) as 10.0.0.3, which they do not have: most likely NAT "
        "(masquerading, ports that are mapped), which lets no other connection in"
    )
    assert "--network host" in drive.result.hint
