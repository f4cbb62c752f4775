"""Which addresses belong together, who probes whom, and the table that is made of it."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.networks import Unreachable, classes_of, given_up
from rendezvous.proof.rdma import RdmaExpectation
from rendezvous.run.arming import make_table, number_nodes
from rendezvous.wire.node import Candidate, Facts, JoinRequest, LinkKind
from rendezvous.wire.peers import FULL_MESH, PEERS_EACH, peers_of
from tests.support.driver import FEW, make_candidate, make_join, sha
from tests.support.tables import rows

ETH = "eth0 (10.0.0.0/24, Ethernet)"
IB = "ib0 (172.16.0.0/16, IP over InfiniBand)"


def candidate(text: str, number: int) -> Candidate:
    """`10.0.0.1`, on ethN; `ens3!10.0.0.1/32`; what begins with ib is IP over InfiniBand."""
    name, _, address = text.rpartition("!")
    address, _, length = address.partition("/")
    kind = LinkKind.IPOIB if name.startswith("ib") else LinkKind.ETHERNET
    kind = LinkKind.LOOPBACK if name == "lo" else kind
    prefix_length = 16 if kind is LinkKind.IPOIB else int(length or 24)
    found = make_candidate(address, name or f"eth{number}", prefix_length)
    return replace(found, kind=kind)


def offering(*offers: str) -> list[JoinRequest]:
    """Nodes that offer these addresses, slot by slot."""
    return [
        make_join(slot, addresses=[candidate(text, n) for n, text in enumerate(offer.split())])
        for slot, offer in enumerate(offers)
    ]


def shown(joins: list[JoinRequest]) -> list[str]:
    """The classes: in words, and each node's address."""
    found = classes_of(joins)
    assert not isinstance(found, Unreachable), found
    assert [each.number for each in found] == list(range(len(found)))
    return [
        f"{each.words}: {' '.join(each.members[join.slot].address for join in joins)}"
        for each in found
    ]


# --- classes --------------------------------------------------------------------------------------


@rows(
    "offers expected",
    f"""
a subnet | 10.0.0.1, 10.0.0.2, 10.0.0.3 | {ETH}: 10.0.0.1 10.0.0.2 10.0.0.3
slot 0 decides the order
    | 10.0.0.1 ib0!172.16.0.1, ens3!10.0.0.2 ib0!172.16.0.2, ibs1!172.16.0.3 10.0.0.3
    | eth0 or ens3 or eth1 (10.0.0.0/24, Ethernet): 10.0.0.1 10.0.0.2 10.0.0.3;
    ib0 or ibs1 (172.16.0.0/16, IP over InfiniBand): 172.16.0.1 172.16.0.2 172.16.0.3
one node lacks it
    | 10.0.0.1 ib0!172.16.0.1, 10.0.0.2 ib0!172.16.0.2, 10.0.0.3 | {ETH}: 10.0.0.1 10.0.0.2 10.0.0.3
a subnet for each rack
    | 10.0.1.1 10.9.0.1, 10.0.1.2 10.9.0.2, 10.9.0.3 10.0.2.1
    | eth0 or eth1 (2 subnets, Ethernet, IPv4): 10.0.1.1 10.0.1.2 10.0.2.1;
    eth1 or eth0 (10.9.0.0/24, Ethernet): 10.9.0.1 10.9.0.2 10.9.0.3
host routes
    | 10.128.0.0/32, 10.128.0.1/32 | eth0 (2 subnets, Ethernet, IPv4): 10.128.0.0 10.128.0.1
each interface has its turn
    | 10.0.0.1 10.0.0.11, 10.0.0.2 10.0.0.12, 10.0.0.3 | {ETH}: 10.0.0.1 10.0.0.2 10.0.0.3;
    eth1 or eth0 (10.0.0.0/24, Ethernet): 10.0.0.11 10.0.0.12 10.0.0.3
two that look alike
    | eth0!10.0.0.1 eth0!10.0.0.11, eth0!10.0.0.2 eth0!10.0.0.12
    | {ETH}: 10.0.0.1 10.0.0.2; {ETH} (2): 10.0.0.11 10.0.0.12
families
    | fd00::1 10.0.0.1, 10.0.0.2 fd00::2
    | eth0 or eth1 (fd00::/24, Ethernet): fd00::1 fd00::2;
    eth1 or eth0 (10.0.0.0/24, Ethernet): 10.0.0.1 10.0.0.2
whatever is first, in the end
    | 10.0.0.1, ib0!172.16.0.2
    | eth0 or ib0 (2 subnets, Ethernet and IP over InfiniBand, IPv4): 10.0.0.1 172.16.0.2
many names
    | en1!10.0.0.1, en2!10.0.0.2, en3!10.0.0.3, en4!10.0.0.4
    | 4 interface names (10.0.0.0/24, Ethernet): 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4
of loopback only where all are on it, behind what else they have
    | 10.0.0.1 lo!127.0.0.1/8, 10.0.0.2 lo!127.0.0.2/8
    | {ETH}: 10.0.0.1 10.0.0.2; lo (127.0.0.0/8): 127.0.0.1 127.0.0.2
one machine, which has one address
    | 10.0.0.1 lo!127.0.0.1/8, 10.0.0.1 lo!127.0.0.2/8
    | lo (127.0.0.0/8): 127.0.0.1 127.0.0.2
the head is told localhost
    | 10.0.0.1 lo!127.0.0.1/8, 10.0.0.2 | {ETH}: 10.0.0.1 10.0.0.2
its family is another than that of its loopback
    | fd00::1 lo!127.0.0.1/8, 10.0.0.2 fd00::2
    | eth0 or eth1 (fd00::/24, Ethernet): fd00::1 fd00::2
an address of two nodes
    | 172.17.0.1 eth0!10.0.0.1, eth0!10.0.0.2 172.17.0.1, 172.17.0.1 eth0!10.0.0.3
    | {ETH}: 10.0.0.1 10.0.0.2 10.0.0.3
one address twice
    | eth0!10.0.0.1 bond0!10.0.0.1, eth0!10.0.0.2
    | {ETH}: 10.0.0.1 10.0.0.2; bond0 or eth0 (10.0.0.0/24, Ethernet): 10.0.0.1 10.0.0.2
one address twice in the same words
    | eth0!10.0.0.1 eth0!10.0.0.1, 10.0.0.2 | {ETH}: 10.0.0.1 10.0.0.2
""",
)
def test_addresses_that_belong_together(offers: str, expected: str) -> None:
    assert "; ".join(shown(offering(*offers.split(", ")))) == expected


def test_in_which_order_the_nodes_are_told_of_is_no_matter() -> None:
    """Slot 0 leads, and where it is not among them the lowest one."""
    joins = offering(
        "10.0.0.1 ib0!172.16.0.1", "ib0!172.16.0.2 10.0.0.2", "ib0!172.16.0.3 10.0.0.3"
    )
    for some in (joins, joins[1:]):
        expected = classes_of(some)
        assert not isinstance(expected, Unreachable)
        for others in ([*reversed(some)], [*some[1:], some[0]]):
            found = classes_of(others)
            assert not isinstance(found, Unreachable)
            assert [each.members for each in found] == [each.members for each in expected]


def test_names_of_any_length_fit_the_wire() -> None:
    joins = offering(*(f"{str(s) * 253}!10.0.0.{s}" for s in range(1, 4)))
    assert len(shown(joins)[0].partition(": ")[0]) == 500


@rows(
    "offers guilty reason hint",
    """
no own address | 10.0.0.1, 172.17.0.2, 172.17.0.2 10.0.0.3 | 1
    | slot 1 (host1) does not have its own address: 172.17.0.2 is also the address of slot 2 (host2)
    | name the interface or network in which they differ, with --interface or --network
no network | 10.0.0.1, lo!127.0.0.2/8, 10.0.0.3 lo!127.0.0.3/8 | 1
    | slot 1 (host1) can offer loopback addresses only (127.0.0.2), which no other machine can reach
    | bring up an interface with an address that the other nodes reach
two families | 10.0.0.1, 10.0.0.2, fd00::3 | 2
    | slots 0-1 can offer IPv4 addresses only and slot 2 IPv6 addresses only
    | give every node an address of one family, or choose it with --network
""",
)
def test_nodes_that_nothing_joins_are_named(
    offers: str, guilty: str, reason: str, hint: str
) -> None:
    expected = Unreachable((int(guilty),), reason, hint)
    assert classes_of(offering(*offers.split(", "))) == expected


@pytest.mark.parametrize(
    ("boots", "same"), [("aa", True), ("ab", False), (["a", ""], False), (["", ""], False)]
)
def test_two_nodes_on_one_machine_are_recognised_by_its_boot(boots: Any, same: bool) -> None:
    of = [make_join(0, addresses=["10.0.0.1"], facts=Facts(boot_id=boot)) for boot in boots]
    found = classes_of([replace(join, slot=slot) for slot, join in enumerate(of)])
    assert isinstance(found, Unreachable)
    assert ("sbatch --exclusive" in found.hint) is same


@FEW
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=5))
def test_every_class_has_one_address_of_every_node_and_no_address_twice(
    offered: list[list[int]],
) -> None:
    joins = offering(*(" ".join(f"10.{n % 3}.0.{n + 1}" for n in own) for own in offered))
    found = classes_of(joins)
    if isinstance(found, Unreachable):
        assert found.slots
        return
    assert len({c.words for c in found}) == len(found) > 0
    for one in found:
        assert list(one.members) == [join.slot for join in joins]
        assert all(one.members[join.slot] in join.candidates for join in joins)
        assert len({c.address for c in one.members.values()}) == len(joins)


# --- networks that are given up -------------------------------------------------------------------


def missed(*offers: str) -> list[tuple[int | None, str]]:
    """Whom the findings name, and what they say."""
    joins = offering(*offers)
    taken = classes_of(joins)
    assert not isinstance(taken, Unreachable)
    found = given_up(joins, taken[0])
    assert {(f.check, f.level) for f in found} <= {("X09", "warn")}
    return [(f.slot, f.cause) for f in found]


def with_infiniband(size: int, *without: int) -> list[str]:
    """Nodes with InfiniBand before Ethernet, but for those without."""
    return [
        f"{'' if slot in without else f'ib0!172.16.0.{slot + 1}'} eth0!10.0.0.{slot + 1}"
        for slot in range(size)
    ]


@pytest.mark.parametrize(
    ("size", "without", "slot", "others"),
    [(4, 0, 0, "3 others have"), (4, 3, 3, "3 others have"), (2, 0, None, "other has")],
)
def test_a_node_without_the_network_that_the_others_prefer_is_named(
    size: int, without: int, slot: int | None, others: str
) -> None:
    """Also the first one, whose candidates lead; of two neither is the odd one."""
    cause = (
        f"slot {without} (host{without}) does not have its own address in {IB}, where the "
        f"{others} one: the run does not use that network, but {ETH}"
    )
    assert missed(*with_infiniband(size, without)) == [(slot, cause)]


RACKS = [f"ib0!172.{16 + s // 3 * 2}.0.{s} eth0!10.0.0.{s}" for s in range(5)]


@pytest.mark.parametrize(
    ("offers", "slots"),
    [
        (with_infiniband(8, 0, 1, 5), [0, 1, 5]),
        (with_infiniband(4, 0, 1, 3), []),  # a few have it
        ([*with_infiniband(2), "fd00::3 10.0.0.3", "10.0.0.4", "10.0.0.5"], []),
        (["10.1.0.9 10.0.0.9", "10.0.0.1", "10.0.0.2", "10.0.0.3"], []),
        (with_infiniband(4), []),
        (with_infiniband(4, 0, 1, 2, 3), []),
        (["10.0.0.1 10.1.0.1", "10.0.0.2 10.1.0.2", "10.0.0.3 10.1.0.3", "10.0.0.4"], []),
        ([*RACKS, "10.0.0.9"], [5]),
    ],
)
def test_only_what_most_prefer_is_missed(offers: list[str], slots: list[int]) -> None:
    assert [slot for slot, _ in missed(*offers)] == slots


def test_an_address_that_two_nodes_offer_gives_the_network_up_for_all() -> None:
    [(slot, cause)] = missed(*(f"ib0!172.16.0.{n} 10.0.0.{s}" for s, n in enumerate((1, 2, 2))))
    assert slot is None
    assert cause.startswith(
        f"slot 1 (host1), slot 2 (host2) do not have their own address in {IB}, where the other "
        "has one"
    )


# --- who probes whom ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, FULL_MESH])
def test_up_to_128_nodes_everyone_probes_everyone(size: int) -> None:
    slots = range(100, 100 + size)
    for own in slots:
        assert peers_of(slots, own, 1) == [slot for slot in slots if slot != own]


@pytest.mark.parametrize("size", [FULL_MESH + 1, 300])
def test_above_everyone_probes_64_and_is_probed_by_64(size: int) -> None:
    slots = [3 * n for n in range(size)]
    plans = {own: peers_of(slots, own, 7) for own in slots}
    for own, peers in plans.items():
        assert len(peers) == PEERS_EACH
        assert peers == sorted(set(peers) - {own})
        assert sum(own in others for others in plans.values()) == PEERS_EACH


def test_neighbours_probe_each_other_and_other_epochs_draw_other_pairs() -> None:
    slots = list(range(1000))
    peers = peers_of(slots, 500, 1)
    assert {500 + way for n in range(9) for way in (2**n, -(2**n))} <= set(peers)
    assert peers != peers_of(slots, 500, 2)
    assert peers[:9] == [13, 42, 50, 67, 71, 133, 136, 143, 155]  # as in every version
    assert peers_of(slots[::-1], 500, 1) == peers
    assert len(peers_of(range(20_000), 19_999, 3)) == PEERS_EACH


def test_of_newcomers_each_probes_those_of_its_peers_and_is_probed_as_before() -> None:
    assert peers_of(range(0, 30, 3), 3, 7, fresh=[0, 6]) == [0, 6]
    assert peers_of(range(0, 30, 3), 3, 7, fresh=[3]) == peers_of(range(0, 30, 3), 3, 7)


# --- the table: one rank for each node ------------------------------------------------------------


def network_of(joins: list[JoinRequest]) -> NetworkClass:
    """Every node's first address, as one network."""
    return NetworkClass(0, "eth0", {join.slot: join.candidates[0] for join in joins})


def ranks(*joins: JoinRequest) -> list[int]:
    """The slots in order of their ranks."""
    given_ranks = number_nodes(list(joins), network_of(list(joins)).members, {})
    assert sorted(given_ranks.values()) == list(range(len(joins)))
    return sorted(given_ranks, key=lambda slot: given_ranks[slot])


# --- ranks ----------------------------------------------------------------------------------------


def read(field: str, text: str) -> Any:
    if field == "requested_node":
        return None if text == "None" else int(text)
    return [text] if field == "addresses" else text


@rows(
    "field values expected",
    """
natural order of names | hostname | node9 node10 node2 a-node node2b 7up | 0 5 3 2 4 1
equal names | hostname | same same same | 0 1 2
subnets stand together | addresses | 10.0.9.1 10.0.5.2 10.0.9.3 10.0.7.4 10.0.5.5 10.0.9.6
    | 0 2 5 1 4 3
requested | requested_node | None 3 None 1 | 0 3 2 1
requested, and closed up | requested_node | None 7 5 | 0 2 1
closed up around the others | requested_node | None 7 5 None | 0 3 2 1
""",
)
def test_slot_0_is_rank_0_and_the_others_follow(field: str, values: str, expected: str) -> None:
    own = [{field: read(field, value)} for value in values.split()]
    assert ranks(*(make_join(s, **own[s]) for s in reversed(range(len(own))))) == [
        int(slot) for slot in expected.split()
    ]


NODES = st.tuples(st.text("ab9²٣", max_size=4), st.integers(0, 3), st.none() | st.integers(1, 30))


@FEW
@given(st.lists(NODES, min_size=1, max_size=8))
def test_every_rank_is_given_once_whatever_the_nodes_are(
    nodes: list[tuple[str, int, int | None]],
) -> None:
    taken: set[int] = set()
    joins = []
    for slot, (name, net, wish) in enumerate(nodes):
        rank = None if slot == 0 or wish in taken else wish
        taken |= {rank} if rank is not None else set()
        address = f"10.0.{net}.{slot + 1}"
        joins.append(make_join(slot, hostname=name, addresses=[address], requested_node=rank))
    first = ranks(*joins)
    assert first[0] == 0
    assert ranks(*joins[::-1]) == ranks(*joins[3:], *joins[:3]) == first
    wishes = {j.slot: j.requested_node for j in joins if j.requested_node is not None}
    in_order = [slot for slot in first if slot in wishes]
    assert in_order == sorted(wishes, key=lambda slot: wishes[slot])


# --- the table ------------------------------------------------------------------------------------


def test_the_table_has_its_nodes_in_order_and_node_0_as_master() -> None:
    candidate = replace(make_candidate("10.0.0.9", "ib0", 16), mac=sha("row"))
    joins = [
        make_join(0, hostname="b"),
        make_join(1, hostname="a", addresses=[candidate], nproc_per_node=8),
    ]
    rdma = RdmaExpectation("IB", {1: ["mlx5_0:1"]})
    table = make_table("r", "launch", 3, joins[::-1], network_of(joins), rdma, 29_501, {})
    assert (table.run, table.launch_id, table.epoch) == ("r", "launch", 3)
    assert (table.master_address, table.master_port) == ("10.0.0.1", 29_501)
    assert (table.network, table.transport) == ("eth0", "IB")
    assert [astuple(row) for row in table.rows] == [
        ("10.0.0.1", [], "b", "eth0", "", 0, 1, 24, None, 0),
        ("10.0.0.9", ["mlx5_0:1"], "a", "ib0", sha("row"), 1, 8, 16, None, 1),
    ]
    assert table.world_size == 9
