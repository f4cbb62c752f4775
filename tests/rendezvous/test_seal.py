"""One address and one rank for each node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.schema import EndpointTable, Facts, JoinRequest, TableRow
from rendezvous.seal import Unreachable, assign_ranks, blame, choose_addresses, make_table
from tests.rendezvous.driver import FEW, make_candidate, make_join, sha


def chosen(*joins: JoinRequest) -> list[str]:
    """The address of each node, in order of slots; there must be a choice."""
    choice = choose_addresses(list(joins))
    assert not isinstance(choice, Unreachable), choice
    return [choice[slot].address for slot in sorted(choice)]


def refused(*joins: JoinRequest) -> Unreachable:
    choice = choose_addresses(list(joins))
    assert isinstance(choice, Unreachable)
    return choice


def ranks(*joins: JoinRequest) -> list[int]:
    """The slots in order of their ranks."""
    choice = choose_addresses(list(joins))
    assert not isinstance(choice, Unreachable)
    given_ranks = assign_ranks(list(joins), choice)
    assert sorted(given_ranks.values()) == list(range(len(joins)))
    return sorted(given_ranks, key=lambda slot: given_ranks[slot])


# --- addresses ------------------------------------------------------------------------------------


def test_each_nodes_first_address_is_taken() -> None:
    assert chosen(
        make_join(0, addresses=["10.0.0.1", "10.9.0.1"]),
        make_join(1, addresses=["10.0.0.2", "10.9.0.2"]),
    ) == ["10.0.0.1", "10.0.0.2"]


def test_an_address_that_two_nodes_offer_is_dropped_for_both() -> None:
    docker0 = "172.17.0.1"
    assert chosen(
        make_join(0, addresses=[docker0, "10.0.0.1"]),
        make_join(1, addresses=["10.0.0.2", docker0]),
        make_join(2, addresses=[docker0, "10.0.0.3"]),
    ) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_a_node_may_offer_one_address_twice() -> None:
    twice = [make_candidate("10.0.0.1", "eth0"), make_candidate("10.0.0.1", "bond0")]
    assert chosen(make_join(0, addresses=twice), make_join(1)) == ["10.0.0.1", "10.0.0.2"]


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
    found = refused(*joins)
    assert found.slots == (0, 1)
    assert ("are on one machine" in found.hint) is same


def test_a_thousand_nodes_with_one_address_are_told_in_a_sentence() -> None:
    found = refused(*(make_join(slot, addresses=["172.17.0.2"]) for slot in range(1_000)))
    assert len(found.slots) == 1_000
    assert found.reason.endswith("slot 5 (host5) and 994 more")


def test_the_family_that_slot_0_prefers_is_taken_when_all_have_it() -> None:
    both = ["fd00::1", "10.0.0.1"]
    assert chosen(
        make_join(0, addresses=both), make_join(1, addresses=["10.0.0.2", "fd00::2"])
    ) == [
        "fd00::1",
        "fd00::2",
    ]


def test_the_family_that_all_have_is_taken() -> None:
    both = ["fd00::1", "10.0.0.1"]
    assert chosen(make_join(0, addresses=both), make_join(1)) == ["10.0.0.1", "10.0.0.2"]


def test_a_shared_address_does_not_count_for_the_family() -> None:
    assert chosen(
        make_join(0, addresses=["172.17.0.1", "fd00::1"]),
        make_join(1, addresses=["172.17.0.1", "fd00::2"]),
    ) == ["fd00::1", "fd00::2"]


def test_without_a_common_family_the_fewer_are_named() -> None:
    four = [make_join(slot) for slot in range(3)]
    six = [make_join(3, addresses=["fd00::3"]), make_join(4, addresses=["fd00::4", "10.0.0.4"])]
    assert refused(*four, *six) == Unreachable(
        (3,),
        "slots 0, 1, 2 offer IPv4 addresses only and slots 3 IPv6 addresses only",
        "give every node an address of one family, or choose it with --network",
    )


def test_the_slot_in_most_failed_pairs_is_to_blame() -> None:
    assert blame({2: [1], 0: [1], 1: [0, 3]}) == Unreachable(
        (1,),
        "slots cannot reach each other: 0 -> 1, 1 -> 0, 1 -> 3, 2 -> 1",
        "slot 1 stands in 4 of 4 failed pairs: "
        "look at its network, or choose another with --network",
    )


def test_many_failed_pairs_are_told_in_a_sentence() -> None:
    everybody = {slot: [other for other in range(300) if other != slot] for slot in range(300)}
    assert len(blame(everybody).reason) < 120


# --- ranks ----------------------------------------------------------------------------------------


def test_slot_0_is_rank_0_and_the_others_follow_in_natural_order_of_their_names() -> None:
    names = {0: "node9", 1: "node10", 2: "node2", 3: "a-node", 4: "node2b", 5: "7up"}
    joins = [make_join(slot, hostname=name) for slot, name in names.items()]
    assert ranks(*joins) == [0, 5, 3, 2, 4, 1]


def test_equal_names_follow_in_order_of_slots() -> None:
    assert ranks(*(make_join(slot, hostname="same") for slot in (2, 0, 1))) == [0, 1, 2]


def test_nodes_of_one_subnet_stand_together_and_those_of_slot_0_first() -> None:
    subnets = {0: 9, 1: 5, 2: 9, 3: 7, 4: 5, 5: 9}
    joins = [make_join(slot, addresses=[f"10.0.{net}.{slot + 1}"]) for slot, net in subnets.items()]
    assert ranks(*joins) == [0, 2, 5, 1, 4, 3]


def test_a_requested_rank_is_honoured() -> None:
    wish = {1: 3, 2: None, 3: 1}
    joins = [make_join(0), *(make_join(s, requested_rank=r) for s, r in wish.items())]
    assert ranks(*joins) == [0, 3, 2, 1]


def test_with_min_max_requested_ranks_are_closed_up_in_order() -> None:
    joins = [make_join(0), make_join(1, requested_rank=7), make_join(2, requested_rank=5)]
    assert ranks(*joins) == [0, 2, 1]
    assert ranks(*joins, make_join(3)) == [0, 3, 2, 1]


@FEW
@given(
    st.lists(
        st.tuples(
            st.text(max_size=8),
            st.integers(0, 3),
            st.none() | st.integers(1, 30),
        ),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_every_rank_is_given_once_whatever_the_nodes_are(
    nodes: list[tuple[str, int, int | None]], order: object
) -> None:
    taken: set[int] = set()
    joins = []
    for slot, (name, net, wish) in enumerate(nodes):
        rank = None if slot == 0 or wish in taken else wish
        taken |= {rank} if rank is not None else set()
        hostname = "".join(c for c in name if c.isprintable())
        address = f"10.0.{net}.{slot + 1}"
        joins.append(make_join(slot, hostname=hostname, addresses=[address], requested_rank=rank))
    first = ranks(*joins)
    assert first[0] == 0
    order.shuffle(joins)  # type: ignore[attr-defined]
    assert ranks(*joins) == first
    wishes = {j.slot: j.requested_rank for j in joins if j.requested_rank is not None}
    in_order = [slot for slot in first if slot in wishes]
    assert in_order == sorted(wishes, key=lambda slot: wishes[slot])


# --- the table ------------------------------------------------------------------------------------


def test_the_table_has_its_rows_in_order_of_rank_and_rank_0_as_master() -> None:
    candidate = make_candidate("10.0.0.9", "ib0", 16).model_copy(update={"mac": sha("row")})
    joins = [
        make_join(0, hostname="b"),
        make_join(1, hostname="a", addresses=[candidate], nproc_per_node=8),
    ]
    choice = choose_addresses(joins)
    assert not isinstance(choice, Unreachable)
    table = make_table("r", "launch", 3, joins[::-1], choice, 29_501)
    assert table == EndpointTable(
        run="r",
        launch_id="launch",
        epoch=3,
        master_address="10.0.0.1",
        master_port=29_501,
        rows=[
            TableRow(
                rank=0,
                slot=0,
                hostname="b",
                address="10.0.0.1",
                interface="eth0",
                prefix_length=24,
                nproc_per_node=1,
                mac="",
            ),
            TableRow(
                rank=1,
                slot=1,
                hostname="a",
                address="10.0.0.9",
                interface="ib0",
                prefix_length=16,
                nproc_per_node=8,
                mac=sha("row"),
            ),
        ],
    )
    assert table.world_size == 9
