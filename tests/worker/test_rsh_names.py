"""Which node is meant by HOST."""

from __future__ import annotations

import pytest

from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable
from tests.worker.test_hosts_plan import row
from tests.worker.test_hosts_plan import table as table_of
from worker.rsh.names import row_of_host


def table(*nodes: tuple[str, str]) -> EndpointTable:
    """A table of nodes, by hostname and address."""
    rows = [row(rank, *node, slot=10 + rank) for rank, node in enumerate(nodes)]
    return table_of(*rows, run="r")


THREE = table(("h0", "10.0.0.10"), ("h1.a.local", "10.0.0.11"), ("H2", "fd77::12"))


@pytest.mark.parametrize(
    ("host", "rank"),
    [
        ("10.0.0.10", 0),
        ("h0", 0),
        ("node-0", 0),
        ("h0.b.local", 0),
        ("h1.a.local", 1),
        ("h1", 1),
        ("NODE-1", 1),
        ("h2", 2),
        ("fd77::12", 2),
        ("[fd77::12]", 2),
        ("fd77:0:0::12", 2),
    ],
)
def test_a_node_is_found_by_address_alias_and_hostname(host: str, rank: int) -> None:
    assert row_of_host(THREE, host).rank == rank


@pytest.mark.parametrize(
    "host", ["h3", "10.0.0.1", "localhost", "127.0.0.1", "node-3", "", "h", "-"]
)
def test_a_host_outside_of_the_run_is_refused_with_those_inside(host: str) -> None:
    with pytest.raises(UsageError) as refused:
        row_of_host(THREE, host)
    assert refused.value.message == (
        f"{host!r} is no node of run 'r', which has 10.0.0.10 (h0, node-0), "
        "10.0.0.11 (h1.a.local, node-1), fd77::12 (H2, node-2)"
    )


def test_a_name_that_two_nodes_have_is_refused_and_their_aliases_are_not() -> None:
    twins = table(("vm", "10.0.0.10"), ("vm", "10.0.0.11"))
    with pytest.raises(UsageError, match="'vm' is the name of node-0, node-1: name one of these"):
        row_of_host(twins, "vm")
    assert row_of_host(twins, "node-1").rank == 1


def test_a_whole_hostname_counts_before_one_that_is_cut() -> None:
    both = table(("h1", "10.0.0.10"), ("h1.a", "10.0.0.11"))
    assert [row_of_host(both, name).rank for name in ("h1", "h1.a")] == [0, 1]


def test_of_many_nodes_the_first_are_named() -> None:
    many = table(*((f"h{i}", f"10.0.0.{i + 1}") for i in range(100)))
    with pytest.raises(UsageError, match=r"10.0.0.8 \(h7, node-7\) and 92 more"):
        row_of_host(many, "elsewhere")
