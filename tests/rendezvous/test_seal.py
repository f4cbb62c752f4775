"""One rank for each node, and the table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rendezvous.proof.networks import NetworkClass
from rendezvous.proof.rdma import RdmaExpectation
from rendezvous.run.seal import assign_ranks, make_table
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.table import EndpointTable, TableRow
from tests.support.driver import FEW, make_candidate, make_join, sha


def network_of(joins: list[JoinRequest]) -> NetworkClass:
    """Every node's first address, as one network."""
    return NetworkClass(0, "eth0", {join.slot: join.candidates[0] for join in joins})


def ranks(*joins: JoinRequest) -> list[int]:
    """The slots in order of their ranks."""
    given_ranks = assign_ranks(list(joins), network_of(list(joins)).members)
    assert sorted(given_ranks.values()) == list(range(len(joins)))
    return sorted(given_ranks, key=lambda slot: given_ranks[slot])


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
    rdma = RdmaExpectation("IB", {1: ["mlx5_0:1"]})
    table = make_table("r", "launch", 3, joins[::-1], network_of(joins), rdma, 29_501)
    assert table == EndpointTable(
        run="r",
        launch_id="launch",
        epoch=3,
        master_address="10.0.0.1",
        master_port=29_501,
        network="eth0",
        transport="IB",
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
                hcas=["mlx5_0:1"],
            ),
        ],
    )
    assert table.world_size == 9
