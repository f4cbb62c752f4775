"""Which addresses belong together, and who probes whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.proof.networks import NetworkClass, Unreachable, classes_of, given_up
from rendezvous.wire.node import Candidate, Facts, JoinRequest, LinkKind
from rendezvous.wire.peers import FULL_MESH, PEERS_EACH, peers_of
from tests.support.driver import FEW, make_candidate, make_join


def classes(*joins: JoinRequest) -> list[NetworkClass]:
    found = classes_of(joins)
    assert not isinstance(found, Unreachable), found
    return found


def refused(*joins: JoinRequest) -> Unreachable:
    found = classes_of(joins)
    assert isinstance(found, Unreachable)
    return found


def addresses(*joins: JoinRequest) -> list[list[str]]:
    """The addresses of each class, in order of slots."""
    return [
        [found.members[join.slot].address for join in sorted(joins, key=lambda j: j.slot)]
        for found in classes(*joins)
    ]


def ipoib(address: str, interface: str = "ib0") -> Candidate:
    return Candidate(
        interface=interface, address=address, prefix_length=16, kind=LinkKind.IPOIB, mtu=2044
    )


# --- classes --------------------------------------------------------------------------------------


def test_nodes_of_one_subnet_make_a_class() -> None:
    members = {slot: make_candidate(f"10.0.0.{slot + 1}") for slot in range(3)}
    assert classes(*(make_join(slot, addresses=[c]) for slot, c in members.items())) == [
        NetworkClass(0, "eth0, 10.0.0.0/24, Ethernet, IPv4", members)
    ]


def test_slot_0_decides_which_class_comes_first() -> None:
    """Slot 2 has them the other way round, and the interfaces are called differently."""
    found = classes(
        make_join(0, addresses=[make_candidate("10.0.0.1"), ipoib("172.16.0.1")]),
        make_join(1, addresses=[make_candidate("10.0.0.2", "ens3"), ipoib("172.16.0.2")]),
        make_join(2, addresses=[ipoib("172.16.0.3", "ibs1"), make_candidate("10.0.0.3")]),
    )
    assert [c.words for c in found] == [
        "eth0 or ens3, 10.0.0.0/24, Ethernet, IPv4",
        "ib0 or ibs1, 172.16.0.0/16, IP over InfiniBand, IPv4",
    ]
    assert [found[0].members[slot].address for slot in range(3)] == [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
    ]


def test_a_network_that_one_node_lacks_is_no_class() -> None:
    assert addresses(
        make_join(0, addresses=[make_candidate("10.0.0.1"), ipoib("172.16.0.1")]),
        make_join(1, addresses=[make_candidate("10.0.0.2"), ipoib("172.16.0.2")]),
        make_join(2, addresses=[make_candidate("10.0.0.3")]),
    ) == [["10.0.0.1", "10.0.0.2", "10.0.0.3"]]


def test_where_every_rack_is_a_subnet_kind_and_order_bring_addresses_together() -> None:
    found = classes(
        make_join(0, addresses=["10.0.1.1", "10.9.0.1"]),
        make_join(1, addresses=["10.0.1.2", "10.9.0.2"]),
        make_join(2, addresses=["10.9.0.3", "10.0.2.1"]),
    )
    assert [c.words for c in found] == [
        "eth0 or eth1, 2 subnets, Ethernet, IPv4",
        "eth1 or eth0, 10.9.0.0/24, Ethernet, IPv4",
    ]
    assert [found[0].members[slot].address for slot in range(3)] == [
        "10.0.1.1",
        "10.0.1.2",
        "10.0.2.1",
    ]


def test_host_routes_have_no_subnet_to_go_by() -> None:
    assert [
        c.words
        for c in classes(
            *(make_join(s, addresses=[make_candidate(f"10.128.0.{s}", "eth0", 32)]) for s in (0, 1))
        )
    ] == ["eth0, 2 subnets, Ethernet, IPv4"]


def test_several_interfaces_in_one_subnet_have_each_their_turn() -> None:
    assert addresses(
        make_join(0, addresses=["10.0.0.1", "10.0.0.11"]),
        make_join(1, addresses=["10.0.0.2", "10.0.0.12"]),
        make_join(2, addresses=["10.0.0.3"]),
    ) == [["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["10.0.0.11", "10.0.0.12", "10.0.0.3"]]


def test_two_classes_that_look_alike_have_names_of_their_own() -> None:
    both = [
        [make_candidate(f"10.0.0.{slot + 1}"), make_candidate(f"10.0.0.{slot + 11}")]
        for slot in range(2)
    ]
    found = classes(*(make_join(slot, addresses=own) for slot, own in enumerate(both)))
    assert [c.words for c in found] == [
        "eth0, 10.0.0.0/24, Ethernet, IPv4",
        "eth0, 10.0.0.0/24, Ethernet, IPv4 (2)",
    ]
    assert [c.number for c in found] == [0, 1]


def test_another_family_is_another_class() -> None:
    found = classes(
        make_join(0, addresses=["fd00::1", "10.0.0.1"]),
        make_join(1, addresses=["10.0.0.2", "fd00::2"]),
    )
    assert [c.words for c in found] == [
        "eth0 or eth1, fd00::/24, Ethernet, IPv6",
        "eth1 or eth0, 10.0.0.0/24, Ethernet, IPv4",
    ]


def test_in_the_end_the_first_addresses_are_tried_whatever_they_are_made_of() -> None:
    assert [
        c.words
        for c in classes(
            make_join(0, addresses=["10.0.0.1"]), make_join(1, addresses=[ipoib("172.16.0.2")])
        )
    ] == ["eth0 or ib0, 2 subnets, Ethernet and IP over InfiniBand, IPv4"]


def test_many_interface_names_are_only_counted() -> None:
    joins = [make_join(s, addresses=[make_candidate(f"10.0.0.{s}", f"en{s}")]) for s in range(1, 5)]
    assert classes(*joins)[0].words == "4 interface names, 10.0.0.0/24, Ethernet, IPv4"


def test_names_of_any_length_fit_the_wire() -> None:
    longest = [make_candidate(f"10.0.0.{s}", str(s) * 253) for s in range(1, 4)]
    joins = [make_join(slot, addresses=[own]) for slot, own in enumerate(longest)]
    assert len(classes(*joins)[0].words) == 500


def test_an_address_that_two_nodes_offer_is_dropped_for_both() -> None:
    docker0 = "172.17.0.1"
    assert addresses(
        make_join(0, addresses=[docker0, "10.0.0.1"]),
        make_join(1, addresses=["10.0.0.2", docker0]),
        make_join(2, addresses=[docker0, "10.0.0.3"]),
    ) == [["10.0.0.1", "10.0.0.2", "10.0.0.3"]]


def test_a_node_may_offer_one_address_twice() -> None:
    twice = [make_candidate("10.0.0.1", "eth0"), make_candidate("10.0.0.1", "bond0")]
    assert addresses(make_join(0, addresses=twice), make_join(1))[0] == ["10.0.0.1", "10.0.0.2"]


def test_what_is_offered_twice_in_the_same_words_is_one_class() -> None:
    same = [make_candidate("10.0.0.1"), make_candidate("10.0.0.1")]
    assert addresses(make_join(0, addresses=same), make_join(1)) == [["10.0.0.1", "10.0.0.2"]]


def test_a_node_with_no_address_of_its_own_is_named_with_the_others() -> None:
    assert refused(
        make_join(0),
        make_join(1, addresses=["172.17.0.2"]),
        make_join(2, addresses=["172.17.0.2", "10.0.0.3"]),
    ) == Unreachable(
        (1,),
        "slot 1 (host1) has no address of its own: "
        "172.17.0.2 is also the address of slot 2 (host2)",
        "name the interface or network that differs, with --interface or --network",
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("a", "a", True), ("a", "b", False), ("a", "", False), ("", "", False)],
)
def test_two_nodes_on_one_machine_are_recognised_by_its_boot(
    one: str, other: str, same: bool
) -> None:
    joins = [
        make_join(slot, addresses=["10.0.0.1"], facts=Facts(boot_id=boot))
        for slot, boot in enumerate((one, other))
    ]
    assert ("sbatch --exclusive" in refused(*joins).hint) is same


def test_nodes_of_two_families_are_told_apart() -> None:
    assert refused(
        make_join(0, addresses=["10.0.0.1"]),
        make_join(1, addresses=["10.0.0.2"]),
        make_join(2, addresses=["fd00::3"]),
    ) == Unreachable(
        (2,),
        "slots 0-1 can offer IPv4 addresses only and slot 2 IPv6 addresses only",
        "give every node an address of one family, or choose it with --network",
    )


@FEW
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=5))
def test_every_class_has_one_address_of_every_node_and_no_address_twice(
    offered: list[list[int]],
) -> None:
    joins = [
        make_join(slot, addresses=[f"10.{n % 3}.0.{n + 1}" for n in numbers])
        for slot, numbers in enumerate(offered)
    ]
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


ETH = "eth0, 10.0.0.0/24, Ethernet, IPv4"
IB = "ib0, 172.16.0.0/16, IP over InfiniBand, IPv4"


def missed(*joins: JoinRequest) -> list[tuple[int | None, str]]:
    """Whom the findings name, and what they say."""
    found = given_up(joins, classes(*joins)[0])
    assert {(f.check, f.level) for f in found} <= {("X09", "warn")}
    return [(f.slot, f.cause) for f in found]


def with_infiniband(size: int, *without: int) -> list[JoinRequest]:
    """Nodes with InfiniBand before Ethernet, but for those without."""
    return [
        make_join(
            slot,
            addresses=[
                *(ipoib(f"172.16.0.{slot + 1}") for _ in range(slot not in without)),
                make_candidate(f"10.0.0.{slot + 1}"),
            ],
        )
        for slot in range(size)
    ]


@pytest.mark.parametrize("slot", [0, 3])
def test_a_node_without_the_network_that_the_others_prefer_is_named(slot: int) -> None:
    """Also the first one, whose candidates lead."""
    said = (
        f"slot {slot} (host{slot}) has no address of its own in {IB}, where the 3 others have one: "
        f"the run goes without that network and takes {ETH}"
    )
    assert missed(*with_infiniband(4, slot)) == [(slot, said)]


@pytest.mark.parametrize("without", [0, 1])
def test_of_two_nodes_neither_is_the_odd_one(without: int) -> None:
    [(slot, cause)] = missed(*with_infiniband(2, without))
    assert slot is None
    assert cause.startswith(
        f"slot {without} (host{without}) has no address of its own in {IB}, where the 1 other has"
    )


def test_several_nodes_without_it_are_each_named() -> None:
    assert [slot for slot, _ in missed(*with_infiniband(8, 0, 1, 5))] == [0, 1, 5]


def test_what_only_a_few_have_is_not_missed() -> None:
    assert missed(*with_infiniband(4, 0, 1, 3)) == []
    ethernets = [make_join(s, addresses=[f"10.0.0.{s}"]) for s in (1, 2, 3)]
    assert missed(make_join(0, addresses=["10.1.0.9", "10.0.0.9"]), *ethernets) == []


@pytest.mark.parametrize("without", [(), (0, 1, 2, 3)])
def test_nothing_is_given_up_where_all_are_alike(without: tuple[int, ...]) -> None:
    assert missed(*with_infiniband(4, *without)) == []


def test_a_network_behind_the_one_that_is_taken_is_not_missed() -> None:
    joins = [make_join(s, addresses=[f"10.0.0.{s}", f"10.1.0.{s}"]) for s in (1, 2, 3)]
    assert missed(*joins, make_join(4, addresses=["10.0.0.4"])) == []


def test_where_every_rack_is_a_subnet_the_node_without_is_found() -> None:
    joins = [
        make_join(s, addresses=[ipoib(f"172.{16 + s // 3}.0.{s}"), f"10.0.0.{s}"]) for s in range(5)
    ]
    assert [slot for slot, _ in missed(*joins, make_join(5))] == [5]


def test_an_address_that_two_nodes_offer_gives_the_network_up_for_all() -> None:
    twice = [ipoib(f"172.16.0.{n}") for n in (1, 2, 2)]
    joins = [make_join(s, addresses=[ib, f"10.0.0.{s}"]) for s, ib in enumerate(twice)]
    [(slot, cause)] = missed(*joins)
    assert slot is None
    assert cause.startswith(
        f"slot 1 (host1), slot 2 (host2) have no address of their own in {IB}, where the 1 other "
        "has one"
    )


# --- who probes whom ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 16, FULL_MESH])
def test_up_to_128_nodes_everyone_probes_everyone(size: int) -> None:
    slots = range(100, 100 + size)
    for own in slots:
        assert peers_of(slots, own, 1) == [slot for slot in slots if slot != own]


@pytest.mark.parametrize("size", [FULL_MESH + 1, 200, 513])
def test_above_everyone_probes_64_and_is_probed_by_64(size: int) -> None:
    slots = [3 * n for n in range(size)]
    plans = {own: peers_of(slots, own, 7) for own in slots}
    for own, peers in plans.items():
        assert len(peers) == len(set(peers)) == PEERS_EACH
        assert own not in peers
        assert peers == sorted(peers)
        assert sum(own in others for others in plans.values()) == PEERS_EACH


def test_neighbours_probe_each_other_and_other_epochs_draw_other_pairs() -> None:
    slots = list(range(1000))
    peers = peers_of(slots, 500, 1)
    assert {500 + way for n in range(9) for way in (2**n, -(2**n))} <= set(peers)
    assert peers == peers_of(slots, 500, 1) != peers_of(slots, 500, 2)


def test_even_the_largest_run_has_a_plan() -> None:
    assert len(peers_of(range(20_000), 19_999, 3)) == PEERS_EACH
