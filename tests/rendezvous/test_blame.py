"""Who is to blame for a round in which nodes do not reach each other, and the round as text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.proof.blame import blame, to_release, why_released
from rendezvous.proof.networks import Unreachable
from rendezvous.proof.origins import OUT_OF_NAT
from rendezvous.proof.pairs import ProbedRound, failures
from rendezvous.proof.text_matrix import text_matrix
from rendezvous.run.rounds import without_good
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from tests.support.driver import FEW, make_join
from tests.support.mesh import ETH, RAIL, Pair, between, both, classes, into, nodes, out_of, tried
from tests.support.tables import rows

CUT = "most likely a firewall drops the packets, or the link or the route between them is cut"
ALL = [(a, b) for a in range(16) for b in range(16) if a != b]
ALL_OVER = [(a, (a + way) % 16) for a in range(16) for way in (1, 2, 3)]


def verdict(round_: Round, *more: Round) -> Unreachable:
    joins = nodes(len(round_.slots), h0=1400)
    return blame([round_, *more], joins, classes(joins))


def span(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def pairs(size: int, text: str) -> list[Pair]:
    """`3>9`, `4=5` both ways, `>9` all others to it, `9>` it to all others, `0-1/2-3` between."""
    found: list[Pair] = []
    for word in text.split():
        if word in ("all", "scattered"):
            found += ALL if word == "all" else ALL_OVER
        elif "/" in word:
            found += between(*map(span, word.split("/")))
        elif "=" in word:
            found += both((int(word.split("=")[0]), int(word.split("=")[1])))
        else:
            a, _, b = word.partition(">")
            found += into(int(b), size) if not a else out_of(int(a), size) if not b else []
            found += [(int(a), int(b))] if a and b else []
    return [(a, b) for a, b in found if max(a, b) < size]


# --- blame ----------------------------------------------------------------------------------------


@rows(
    "size bad slots reason",
    """
cut off | 16 | >9 9> | 9 | slot 9 and the 15 others do not reach each other
lets nothing in | 4 | >2 | 2 | slot 2 cannot be reached by the 3 others
gets nothing out | 4 | 2> | 2 | slot 2 cannot reach the 3 others
some | 16 | 1>9 2>9 5>9 | 9 | slot 9 cannot be reached by 3 of the 15 others (slots 1-2, 5)
a node and a pair beside it | 16 | >9 3>4 | 9 | slot 9 cannot be reached by the 15 others
a pair | 16 | 3>9 | | slot 3 does not reach slot 9, which reaches it
a pair the other way | 3 | 2>1 | | slot 2 does not reach slot 1, which reaches it
the only pair | 2 | 0=1 | | slot 0 and slot 1 do not reach each other
three pairs | 16 | 0>1 4=5 8>7 |
    | slot 0 does not reach slot 1, which reaches it, slot 4 and slot 5 do not reach each other,
    slot 8 does not reach slot 7, which reaches it over
halves of the largest mesh | 128 | 0-63/64-127 |
    | the nodes are split 64/64: slots 0-63 and slots 64-127 do not reach each other
islands | 5 | 0-1/2-4 2-3/4 |
    | the nodes are split 2/2/1: slots 0-1 and slots 2-3 and slot 4 do not reach each other
four islands | 8 | 0-1/2-7 2-3/4-7 4-5/6-7 |
    | the nodes are split 2/2/2/2: slots 0-1 and slots 2-3 and slots 4-5 and slots 6-7 do not reach
a minority | 16 | 0-9/10-15 | 10 11 12 13 14 15 | slots 10-15 and the 10 others
nobody reaches anybody | 16 | all | | no node reaches any other
none of three reaches any | 3 | all | | no node reaches any other
failures all over | 16 | scattered | | 48 of 240 directed pairs fail, spread across the nodes,
""",
)
def test_the_fewest_nodes_are_named_or_nobody(size: str, bad: str, slots: str, reason: str) -> None:
    found = verdict(tried(int(size), pairs(int(size), bad)))
    assert " ".join(map(str, found.slots)) == slots
    told = re.sub(r" \(h\d+\)", "", found.reason)
    assert told.startswith(reason)
    assert f" over {ETH}: no answer" in told


@rows(
    "size bad end hint",
    f"""
cut off | 4 | >2 2>
    | no answer at 10.0.0.3:7002, 10.0.0.1:7000, 10.0.0.2:7001 and 1 more; {CUT} | 2
lets nothing in | 4 | >2
    | the other direction works, so most likely a firewall there drops incoming packets | 2
gets nothing out | 4 | 2>
    | the other direction works, so most likely a firewall there drops outgoing packets | 2
a pair | 16 | 3>9 | every other pair works, so neither node itself is the cause; {CUT} | 9
the only pair | 2 | 0=1 | no answer at 10.0.0.2:7001, 10.0.0.1:7000; {CUT} | 1
halves | 4 | 0-1/2-3
    | over {ETH}: no answer at 10.0.0.3:7002, 10.0.0.4:7003, 10.0.0.1:7000 and 1 more; {CUT} |
nobody reaches anybody | 16 | all | though all reach the registry's port; {CUT} | 1
a pair beside a node | 16 | >9 3>4
    | ; also, slot 3 (h3) does not reach slot 4 (h4), which reaches it | 9
""",
)
def test_the_likeliest_cause_follows_from_the_directions(
    size: str, bad: str, end: str, hint: str
) -> None:
    found = verdict(tried(int(size), pairs(int(size), bad)))
    assert found.reason.endswith(end)
    assert not hint or found.hint == (
        "let all TCP ports through between the nodes (security group; iptables -L on "
        f"h{hint}), or choose another network with --network CIDR"
    )


def test_where_all_refuse_the_registrys_port_is_no_sign() -> None:
    assert "registry" not in verdict(tried(16, ALL, outcome="refused")).reason


def test_above_a_full_mesh_a_guilty_node_is_found_all_the_same() -> None:
    slots = list(range(300))
    reports = {
        a: [PairProbe(slot=b, outcome="timeout" if 7 in (a, b) else "ok") for b in peers]
        for a in slots
        for peers in [[(a + way) % 300 for way in range(1, 33)]]
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


@pytest.mark.parametrize("bad", [into(2, 4), both((1, 2)), between([0, 1], [2, 3]), ALL_OVER])
def test_the_failed_pairs_are_all_that_blame_needs(bad: list[Pair]) -> None:
    size = 16 if bad is ALL_OVER else 4
    whole, kept = verdict(tried(size, bad)), verdict(without_good(tried(size, bad)))
    assert kept.reason == whole.reason.replace("48 of 240 directed", "48 directed")
    assert (kept.slots, kept.hint) == (whole.slots, whole.hint)


# --- what happened, and what to try ---------------------------------------------------------------

NARROW = (
    "most likely the path carries smaller packets than the interfaces send (up to 1500 "
    "bytes), and does not report it"
)


@rows(
    "outcome detail words hint",
    f"""
refused | refused | nothing listens there
    | connection refused at 10.0.0.3:7002; most likely the address belongs to a machine on which
    rdzv does not listen, or a firewall rejects the connection
    | check on h2 that 10.0.0.3 is its own (ip -br addr) and what iptables -L shows, or choose
no route | no_route | No route to host
    | No route to host; most likely an interface is down or gone, or a host has no route into that
    network
    | check eth0 on h2 (ip -br addr), compare `ip route get 10.0.0.3` on the nodes, or choose
wrong node | wrong_node | slot 3 answers
    | slot 3 answers; most likely two machines have the same address, or there is NAT between them
    | give every machine its own address (`arping -D -I eth0 10.0.0.3` shows which one has it), or
stranger | stranger |
    | the answer does not come from a node of this run; most likely a machine outside the run has
    that address, or a proxy answers for it
    | find the machine that has it (`arping -D -I eth0 10.0.0.3`), or choose another network with
    --network CIDR
black hole of known size | black_hole | 1400
    | small messages pass and large ones vanish (packets of up to 1400 bytes pass); {NARROW}
    | set the MTU of eth0 to the size that the path carries, on all nodes (ip link set dev eth0
    mtu 1400), or let ICMP 'fragmentation needed' through
black hole | black_hole |
    | small messages pass and large ones vanish; {NARROW}
    | set the MTU of eth0 to the size that the path carries, on all nodes (ip link set dev eth0
    mtu 1500), or
error | error | 16 KiB came back changed | 16 KiB came back changed
    | see `rdzv doctor` on h2, or choose another network with --network CIDR
error without words | error | | error | see `rdzv doctor` on h2, or choose
""",
)
def test_what_happened_is_told_with_its_likeliest_cause_and_what_to_try(
    outcome: str, detail: str, words: str, hint: str
) -> None:
    told: dict[str, Any] = {"detail": detail}
    if detail.isdigit():
        told = {"path_mtu": int(detail)}
    found = verdict(tried(4, into(2, 4), outcome=outcome, **told))
    assert found.reason == f"slot 2 (h2) cannot be reached by the 3 others over {ETH}: {words}"
    assert found.hint.startswith(hint)


def test_a_node_that_reaches_itself_is_named_with_the_address() -> None:
    assert verdict(tried(4, [(1, 2)], outcome="self")).reason.endswith(
        f"over {ETH}: 10.0.0.3 is an address of slot 1 (h1) itself; every other pair works, "
        "so neither node itself is the cause; most likely every host has that address (as "
        "with docker0)"
    )


@rows(
    "outcome words",
    """
self | self | : the node reaches itself;
black hole | black_hole | smaller packets than the interfaces send, and does not report it
no route | no_route | the address
""",
)
def test_of_a_network_that_no_node_offers_any_more_the_addresses_are_not_known(
    outcome: str, words: str
) -> None:
    round_ = tried(4, into(2, 4), network="gone", outcome=outcome)
    assert ProbedRound.of(round_, nodes(4), classes(nodes(4))).members == {}
    found = verdict(round_)
    assert words in found.reason + found.hint


def test_a_node_that_nat_hides_is_named_with_the_address_that_others_see() -> None:
    round_ = tried(
        4, into(2, 4), probe=lambda a, b: {"source": "192.0.2.7" if a == 2 else f"10.0.0.{a + 1}"}
    )
    assert verdict(round_) == Unreachable(
        (2,),
        f"slot 2 (h2) cannot be reached by the 3 others over {ETH}: no answer at "
        "10.0.0.3:7002; the others see slot 2 (h2) as 192.0.2.7, which is not one of its "
        "addresses: it is behind NAT, which lets no connection in",
        OUT_OF_NAT,
    )


def seen_as(size: int, **sources: str) -> dict[int, str]:
    """Where nodes joined from, if not from their first address: `h1="192.0.2.9"`."""
    return {slot: sources.get(f"h{slot}", f"10.0.0.{slot + 1}") for slot in range(size)}


def blamed(round_: Round, sources: dict[int, str], joins: Any = None) -> Unreachable:
    joins = joins or nodes(len(round_.slots))
    return blame([round_], joins, classes(joins), sources)


HIDDEN = "most likely NAT (masquerading, ports that are mapped), which lets no other connection in"


@rows(
    "size bad sources words",
    """
nobody reaches anybody | 3 | all | h1=192.0.2.1 h2=192.0.2.2
    | ; the registry sees slot 1 (h1) as 192.0.2.1, slot 2 (h2) as 192.0.2.2, which they
one of three | 3 | 0=2 1=2 | h2=192.0.2.2 | ; the registry sees slot 2 (h2) as 192.0.2.2,
one of two | 2 | 0=1 | h1=192.0.2.1 | ; the registry sees slot 1 (h1) as 192.0.2.1, which
two behind one NAT | 4 | 0-1/2-3 | h2=192.0.2.2 h3=192.0.2.2
    | ; the registry sees slot 2 (h2) as 192.0.2.2, slot 3 (h3) as 192.0.2.2, which they
""",
)
def test_nat_that_the_registry_sees_is_named_and_no_firewall(
    size: str, bad: str, sources: str, words: str
) -> None:
    seen = seen_as(int(size), **dict(word.split("=") for word in sources.split()))
    found = blamed(tried(int(size), pairs(int(size), bad)), seen)
    assert words in found.reason
    assert found.reason.endswith(HIDDEN)
    assert found.hint == OUT_OF_NAT


@rows(
    "bad sources",
    """
all share it, so that it is not between them | 0=1 0=2 1=2 | h0=192.0.2.1 h1=192.0.2.1 h2=192.0.2.1
peers see its own address | >2 | h2=192.0.2.2
others behind the same are seen | 0=2 1=2 | h1=192.0.2.2 h2=192.0.2.2
an ssh tunnel | 0=1 0=2 1=2 | h1=127.0.0.1 h2=127.0.0.1
""",
)
def test_nat_or_a_proxy_in_front_of_the_registry_alone_is_no_cause(bad: str, sources: str) -> None:
    seen = seen_as(3, **dict(word.split("=") for word in sources.split()))
    round_ = tried(3, pairs(3, bad), probe=lambda a, b: {"source": f"10.0.0.{a + 1}"})
    found = blamed(round_, seen)
    assert "NAT" not in found.reason + found.hint


@rows(
    "size bad outcome sources end",
    f"""
beside the registry | 2 | 0=1 | timeout | h0=
    | connections to the registry get through on the same path, so most likely a firewall drops
    these packets
one of three with it | 3 | 0=2 | timeout | h0=
    | so most likely a firewall drops these packets
not beside it | 3 | 1=2 | timeout | h0= | {CUT}
the registry elsewhere | 2 | 0=1 | timeout | | {CUT}
came in another way | 2 | 0=1 | timeout | h0= h1=10.9.0.2 | which lets no other connection in
nothing known | 2 | 0=1 | timeout | h0= h1= | {CUT}
its own address rejects | 3 | 0>2 1>2 | refused | h0=
    | most likely a firewall rejects the connection
not known to be its own | 2 | 1>0 | refused | h0=
    | does not listen, or a firewall rejects the connection
""",
)
def test_what_a_join_has_shown_of_the_way_is_no_cause(
    size: str, bad: str, outcome: Any, sources: str, end: str
) -> None:
    seen = seen_as(int(size), **dict(word.split("=") for word in sources.split()))
    found = blamed(tried(int(size), pairs(int(size), bad), outcome=outcome), seen)
    assert found.reason.endswith(end)


def test_that_nobody_reaches_anybody_is_not_said_where_one_direction_works() -> None:
    one_way = tried(3, pairs(3, "0>1 0>2 1>2 2>1"))
    found = verdict(one_way)
    assert found.reason.startswith("no two nodes reach each other in both directions over")


def test_nat_is_no_cause_of_packets_that_vanish() -> None:
    found = blamed(tried(3, pairs(3, "all"), outcome="black_hole"), seen_as(3, h1="192.0.2.1"))
    assert "NAT" not in found.reason


def lans(*places: str) -> list[Any]:
    """Nodes whose only address is this one."""
    return [
        make_join(slot, hostname=f"h{slot}", addresses=[place]) for slot, place in enumerate(places)
    ]


@rows(
    "places sources bad end",
    """
two LANs | 10.1.0.1 10.1.0.2 10.2.0.3 10.2.0.4 | - - - - | 0-1/2-3
    | ; nothing shows a way between 10.1.0.0/24, 10.2.0.0/24
two LANs that a VPN joins | 10.1.0.1 10.1.0.2 10.2.0.3 | - 10.1.0.2 100.64.0.3 | 0-1/2
    | ; the registry was reached over another network (slot 2 (h2) from 100.64.0.3);
    nothing shows a way between 10.1.0.0/24, 10.2.0.0/24
two LANs with one range | 10.0.0.1 10.0.0.2 | - 100.64.0.2 | 0=1
    | ; the registry was reached over another network (slot 1 (h1) from 100.64.0.2);
    nothing shows a way there
no node reaches any other | 10.1.0.1 10.2.0.2 10.3.0.3 | - - - | all
    | ; nothing shows a way between 10.1.0.0/24, 10.2.0.0/24, 10.3.0.0/24
""",
)
def test_a_firewall_is_not_named_where_nothing_shows_a_way(
    places: str, sources: str, bad: str, end: str
) -> None:
    joins = [
        replace(join, registry_source="" if source == "-" else source)
        for join, source in zip(lans(*places.split()), sources.split(), strict=True)
    ]
    seen = {join.slot: join.registry_source for join in joins}
    found = blamed(tried(len(joins), pairs(len(joins), bad)), seen, joins)
    assert found.reason.endswith(end)
    assert "firewall" not in found.reason + found.hint
    assert "choose a network that joins all nodes" in found.hint


def test_of_networks_that_fail_alike_that_is_told_of_which_led_to_the_registry() -> None:
    joins = nodes(2)
    bad = both((0, 1))
    rounds = [tried(2, bad), tried(2, bad, network=RAIL)]
    over_rail = {0: "", 1: "10.1.0.2"}
    assert f"over {RAIL}: no answer" in blame(rounds, joins, classes(joins), over_rail).reason
    assert f"over {ETH}: no answer" in blame(rounds, joins, classes(joins), {}).reason


def test_a_router_that_does_not_answer_shows_no_way() -> None:
    joins = lans("10.1.0.1", "10.2.0.2")
    round_ = tried(2, both((0, 1)), icmp="neighbour", detail="no neighbour answers")
    end = "no neighbour answers; nothing shows a way between 10.1.0.0/24, 10.2.0.0/24"
    assert blamed(round_, {}, joins).reason.endswith(end)


@rows(
    "places sources bad",
    """
they came by these addresses | 10.1.0.1 10.2.0.2 | - 10.2.0.2 | 0=1
another pair passes between these subnets | 10.1.0.1 10.1.0.2 10.2.0.3 10.2.0.4 | - - - - | 0=2
one link, and nobody came otherwise | 10.0.0.1 10.0.0.2 | - - | 0=1
one link, and a tunnel | 10.0.0.1 10.0.0.2 | - 127.0.0.1 | 0=1
""",
)
def test_a_firewall_is_named_where_something_shows_a_way(
    places: str, sources: str, bad: str
) -> None:
    joins = lans(*places.split())
    seen = {slot: source.strip("-") for slot, source in enumerate(sources.split())}
    found = blamed(tried(len(joins), pairs(len(joins), bad)), seen, joins)
    assert CUT in found.reason


@rows(
    "outcome icmp detail words hint",
    """
prohibited | refused | prohibited | 10.0.0.3 prohibits the connection (ICMP)
    | 10.0.0.3 prohibits the connection (ICMP) at 10.0.0.3:7002; most likely a firewall rejects
    the connection | let all TCP ports through
no neighbour | timeout | neighbour | no neighbour answers on the way there
    | no neighbour answers on the way there; most likely the host or its link is down, or separate
    networks have the same addresses | check eth0 on h2 (ip -br addr), and `ip neigh`
a router | timeout | unreachable | 10.0.0.254 knows no way to it
    | 10.0.0.254 knows no way to it; most likely the routers know no way into that network, or the
    host is down | compare `ip route get 10.0.0.3` and `traceroute 10.0.0.3`
what a newer node may say | timeout | eaten | no answer
    | no answer at 10.0.0.3:7002; the other direction works, so most likely a firewall there
    | let all
""",
)
def test_what_icmp_says_counts(outcome: str, icmp: str, detail: str, words: str, hint: str) -> None:
    found = verdict(tried(4, into(2, 4), outcome=outcome, icmp=icmp, detail=detail))
    assert f"over {ETH}: {words}" in found.reason
    assert found.hint.startswith(hint)
    assert ("firewall" in found.reason) == (icmp in ("prohibited", "eaten"))


def test_several_things_that_happened_are_told_the_most_frequent_first() -> None:
    round_ = tried(4, into(2, 4))
    mixed = round_.reports | {0: [PairProbe(slot=2, outcome="refused")]}
    found = verdict(round_.model_copy(update={"reports": mixed}))
    where = "10.0.0.3:7002"
    assert f": no answer at {where}, connection refused at {where}; " in found.reason


def test_the_port_of_an_ipv6_address_stands_apart_from_it() -> None:
    joins = [make_join(s, addresses=[f"fd00::{s + 1}"]) for s in range(2)]
    (network,) = classes(joins)
    round_ = tried(2, [(0, 1)]).model_copy(update={"number": network.number})
    found = blame([round_], joins, [network])
    assert ": no answer at [fd00::2]:7001; " in found.reason


def test_a_node_whose_port_is_not_known_is_named_without_it() -> None:
    joins = [replace(join, probe_port=None) for join in nodes(2)]
    assert ": no answer; " in blame([tried(2, [(0, 1)])], joins, classes(joins)).reason


# --- whom to do without ---------------------------------------------------------------------------


@rows(
    "bad slots",
    """
a node | >9 | 9
a pair with slot 0 | 0=1 | 1
a pair and a node | 3=9 >4 | 4 9
all to slot 0 | 1-3/0 | 1 2 3
""",
)
def test_the_fewest_nodes_are_in_the_way_and_slot_0_never_is(bad: str, slots: str) -> None:
    assert " ".join(map(str, to_release(tried(16, pairs(16, bad))))) == slots


@rows(
    "known bad slots",
    """
a newcomer that one of them does not reach | 0-8 | 4/9 | 9
one that does not reach one of them, slot 0 | 1-8 | 0/4 | 0
two newcomers | 0-7 | 8=9 | 9
a newcomer and slot 0, another newcomer | 2-9 | 0/1 | 1
two newcomers, of which one reaches nobody | 0-7 | 8=9 4/8 | 8
""",
)
def test_newcomers_are_in_the_way_of_those_that_reach_each_other(
    known: str, bad: str, slots: str
) -> None:
    first, last = map(int, known.split("-"))
    round_ = tried(10, pairs(10, bad))
    assert " ".join(map(str, to_release(round_, range(first, last + 1)))) == slots


def test_of_nodes_that_fail_with_one_node_in_two_directions_each_is_told_by_itself() -> None:
    joins = nodes(4)
    why = why_released(tried(4, [(1, 0), (0, 2)]), joins, classes(joins))
    assert [words.partition(" over ")[0] for words in why.values()] == [
        "slot 1 (h1) cannot reach 1 of the 3 others (slot 0)",
        "slot 2 (h2) cannot be reached by 1 of the 3 others (slot 0)",
    ]


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


# --- a round as text ------------------------------------------------------------------------------


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
