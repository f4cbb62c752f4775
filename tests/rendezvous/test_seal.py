"""One rank for each node, and the table."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rendezvous.proof.networks import NetworkClass
from rendezvous.proof.rdma import RdmaExpectation
from rendezvous.run.seal import assign_ranks, make_table
from rendezvous.wire.node import JoinRequest
from tests.support.driver import FEW, make_candidate, make_join, sha
from tests.support.tables import rows


def network_of(joins: list[JoinRequest]) -> NetworkClass:
    """Every node's first address, as one network."""
    return NetworkClass(0, "eth0", {join.slot: join.candidates[0] for join in joins})


def ranks(*joins: JoinRequest) -> list[int]:
    """The slots in order of their ranks."""
    given_ranks = assign_ranks(list(joins), network_of(list(joins)).members)
    assert sorted(given_ranks.values()) == list(range(len(joins)))
    return sorted(given_ranks, key=lambda slot: given_ranks[slot])


# --- ranks ----------------------------------------------------------------------------------------


def read(field: str, text: str) -> Any:
    if field == "requested_rank":
        return None if text == "None" else int(text)
    return [text] if field == "addresses" else text


@rows(
    "field values expected",
    """
natural order of names | hostname | node9 node10 node2 a-node node2b 7up | 0 5 3 2 4 1
equal names | hostname | same same same | 0 1 2
subnets stand together | addresses | 10.0.9.1 10.0.5.2 10.0.9.3 10.0.7.4 10.0.5.5 10.0.9.6
    | 0 2 5 1 4 3
requested | requested_rank | None 3 None 1 | 0 3 2 1
requested, and closed up | requested_rank | None 7 5 | 0 2 1
closed up around the others | requested_rank | None 7 5 None | 0 3 2 1
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
        joins.append(make_join(slot, hostname=name, addresses=[address], requested_rank=rank))
    first = ranks(*joins)
    assert first[0] == 0
    assert ranks(*joins[::-1]) == ranks(*joins[3:], *joins[:3]) == first
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
    assert (table.run, table.launch_id, table.epoch) == ("r", "launch", 3)
    assert (table.master_address, table.master_port) == ("10.0.0.1", 29_501)
    assert (table.network, table.transport) == ("eth0", "IB")
    assert [tuple(dict(row).values()) for row in table.rows] == [
        (0, 0, "b", "10.0.0.1", "eth0", 24, 1, "", []),
        (1, 1, "a", "10.0.0.9", "ib0", 16, 8, sha("row"), ["mlx5_0:1"]),
    ]
    assert table.world_size == 9
