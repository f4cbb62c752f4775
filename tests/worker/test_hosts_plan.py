"""Which names of a table are written, and what is said of those that are not."""

from __future__ import annotations

import pytest

from rendezvous.wire.errors import ArmingFailed
from rendezvous.wire.table import EndpointTable, TableRow
from tests.worker.test_hosts_text import PLAIN, render
from worker.hosts.plan import HostsPlan, plan_hosts
from worker.hosts.text import HostsEntry, render_hosts

LEFT_OUT = "names left out of the hosts file: "


def row(rank: int, hostname: str, address: str, *, slot: int | None = None) -> TableRow:
    return TableRow(
        node=rank,
        slot=rank if slot is None else slot,
        hostname=hostname,
        address=address,
        interface="eth0",
        prefix_length=24,
        nproc_per_node=1,
        mac="",
    )


def table(*rows: TableRow, run: str = "r1") -> EndpointTable:
    return EndpointTable(
        run=run,
        launch_id="abcdefgh",
        epoch=1,
        master_address=rows[0].address,
        master_port=29500,
        rows=list(rows),
    )


def nodes(*hostnames: str) -> EndpointTable:
    """Nodes of these names, from 10.0.0.4 on."""
    return table(*(row(rank, name, f"10.0.0.{4 + rank}") for rank, name in enumerate(hostnames)))


TWO = nodes("n0", "n1")
TWO_BODY = (
    "10.0.0.4 n0 node-0\n::ffff:10.0.0.4 n0 node-0\n10.0.0.5 n1 node-1\n::ffff:10.0.0.5 n1 node-1\n"
)


def plan(current: str, hostnames: str = "n0 n1", own_slot: int = 0, **resolved: str) -> HostsPlan:
    """The plan of nodes of these hostnames, where the resolver says so of some."""
    found = {name: frozenset(addresses.split()) for name, addresses in resolved.items()}
    return plan_hosts(current, nodes(*hostnames.split()), own_slot, run="r1", resolved=found)


def written(made: HostsPlan) -> str:
    """The names of the nodes by rank."""
    return ", ".join(" ".join(entry.names) for entry in made.entries)


def test_a_table_with_what_is_no_nodes_address_has_no_plan() -> None:
    with pytest.raises(ArmingFailed, match="not a node's address"):
        plan_hosts("", table(row(0, "n0", "10.0.0.4\n127.0.0.1 bank")), 0, run="r1")


@pytest.mark.parametrize("hostname", ["a.b", "localhost", "ip6-localhost", "broadcasthost"])
def test_a_hostname_that_is_no_label_leaves_the_alias_alone(hostname: str) -> None:
    assert plan_hosts(PLAIN, nodes(hostname), 0, run="r1") == HostsPlan(
        [HostsEntry("10.0.0.4", ["node-0"])], frozenset({"node-0"}), ""
    )


def test_each_node_gets_its_hostname_and_its_alias() -> None:
    assert plan(PLAIN) == HostsPlan(
        [HostsEntry("10.0.0.4", ["n0", "node-0"]), HostsEntry("10.0.0.5", ["n1", "node-1"])],
        frozenset({"n0", "node-0"}),
        "",
    )


def test_the_own_names_are_those_of_the_own_slot_whatever_its_rank() -> None:
    rows = table(row(0, "n0", "10.0.0.4", slot=3), row(1, "n1", "10.0.0.5", slot=0))
    assert plan_hosts(PLAIN, rows, 0, run="r1").own_names == {"n1", "node-1"}
    assert plan_hosts(PLAIN, rows, 7, run="r1").own_names == frozenset()


OTHERS, N1 = "is also another node's hostname", "10.0.0.5 n1\n"


@pytest.mark.parametrize(
    ("current", "hostnames", "names", "warning"),
    [
        ("", "box BOX n2", "node-0, node-1, n2 node-2", f"box {OTHERS}; BOX {OTHERS}"),
        ("", "node-1 Node-2", "node-1 node-0, Node-2", f"node-1 {OTHERS}"),
        ("", "node-0", "node-0", ""),
        ("10.9.9.9\tx N1", "n0 n1", "n0 node-0, node-1", "n1 is 10.9.9.9 "),
        (
            f"10.9.9.9 n1\n{N1}10.8.8.8 n1",
            "n0 n1",
            "n0 node-0, node-1",
            "n1 is 10.8.8.8, 10.9.9.9 ",
        ),
        ("fd00::9 n1", "n0 n1", "n0 node-0, node-1", "n1 is fd00::9 "),
        ("127.0.1.1 n1", "n0 n1", "n0 node-0, node-1", "n1 is 127.0.1.1 "),
        ("10.9.9.9 box\n", "BOX", "node-0", "BOX is 10.9.9.9 "),
        ("10.9.9.9 n0 node-0", "n0", "", "n0 is 10.9.9.9 "),
        ("127.0.1.1 n0\n172.17.0.2 n0\n", "n0 n1", "node-0, n1 node-1", "n0 is 172.17.0.2 "),
    ],
)
def test_a_name_that_is_not_the_nodes_alone_is_left_out(
    current: str, hostnames: str, names: str, warning: str
) -> None:
    made = plan(current, hostnames)
    assert written(made) == names
    assert made.warning.startswith(LEFT_OUT + warning if warning else "")
    assert made.own_names == {*names.partition(",")[0].split()}
    assert bool(made.warning) is bool(warning)


@pytest.mark.parametrize(
    ("current", "resolved"),
    [
        *((line, {}) for line in ("10.0.0.5 n1", "10.0.0.5 N1", "::ffff:10.0.0.5 n1")),
        *((line, {}) for line in ("# 10.9.9.9 n1", "10.9.9.9 n11", "127.0.1.1 n0\n")),
        *(("", {"n1": there}) for there in ("10.0.0.5", "::ffff:10.0.0.5", "10.0.0.5 1.2.3.4", "")),
        ("", {"n0": "127.0.1.1"}),
        ("", {"node-1": "10.9.9.9"}),  # an alias stays whatever the resolver says
        (render(PLAIN, entries=[HostsEntry("10.0.0.9", ["n1"])]), {"n1": "10.0.0.9"}),
    ],
)
def test_a_name_that_leads_to_its_node_is_written(current: str, resolved: dict[str, str]) -> None:
    assert plan(current, "n0 n1", 0, **resolved) == plan("")


def test_names_of_another_runs_block_count_and_those_of_the_own_block_do_not() -> None:
    other = [HostsEntry("10.7.0.4", ["node-0"]), HostsEntry("10.0.0.5", ["node-1"])]
    current = render_hosts("", other, run="r2", own_names=set())
    made = plan(render(current, entries=[HostsEntry("10.9.9.9", ["n1"])]))
    assert written(made) == "n0, n1 node-1"
    assert made.warning == f"{LEFT_OUT}node-0 is 10.7.0.4 there and 10.0.0.4 in the table"


@pytest.mark.parametrize("own_slot", [0, 1])
def test_a_hostname_that_leads_elsewhere_already_is_left_out(own_slot: int) -> None:
    made = plan("", "n0 VAULT", own_slot, vault="10.96.0.1 fd00::1")
    assert (written(made), made.entries[1].address) == ("n0 node-0, node-1", "10.0.0.5")
    assert made.warning == (
        f"{LEFT_OUT}VAULT already resolves to 10.96.0.1, fd00::1, not to 10.0.0.5"
    )


def test_a_warning_stays_short() -> None:
    rows = [row(i, f"n{i}", f"10.0.{i // 250}.{i % 250 + 1}") for i in range(1000)]
    current = "".join(f"10.9.9.9 n{i}\n" for i in range(1000))
    warning = plan_hosts(current, table(*rows), 0, run="r1").warning
    assert warning.endswith("n2 is 10.9.9.9 there and 10.0.0.3 in the table; and 997 more")
