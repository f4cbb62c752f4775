"""Which names of a table are written, and what is said of those that are not."""

from __future__ import annotations

import pytest

from rendezvous.wire.errors import ArmingFailed
from rendezvous.wire.table import EndpointTable, TableRow
from tests.worker.test_hosts_text import BAD_ADDRESSES, BAD_NAMES, PLAIN, render
from worker.hosts.plan import HostsPlan, plan_hosts
from worker.hosts.text import HostsEntry, render_hosts


def row(rank: int, hostname: str, address: str, *, slot: int | None = None) -> TableRow:
    return TableRow(
        rank=rank,
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


TWO = table(row(0, "n0", "10.0.0.4"), row(1, "n1", "10.0.0.5"))
TWO_BODY = (
    "10.0.0.4 n0 node-0\n::ffff:10.0.0.4 n0 node-0\n10.0.0.5 n1 node-1\n::ffff:10.0.0.5 n1 node-1\n"
)


def plan(current: str, *rows: TableRow, own_slot: int = 0) -> HostsPlan:
    return plan_hosts(current, table(*rows), own_slot, run="r1")


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_a_table_with_what_is_no_nodes_address_has_no_plan(address: str) -> None:
    with pytest.raises(ArmingFailed) as caught:
        plan("", row(0, "n0", address))
    assert "no node's address" in caught.value.message
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("hostname", BAD_NAMES)
def test_a_hostname_that_is_no_label_leaves_the_alias_alone(hostname: str) -> None:
    assert plan(PLAIN, row(0, hostname, "10.0.0.4")) == HostsPlan(
        [HostsEntry("10.0.0.4", ["node-0"])], frozenset({"node-0"}), ""
    )


def test_each_node_gets_its_hostname_and_its_alias() -> None:
    assert plan(PLAIN, *TWO.rows) == HostsPlan(
        [HostsEntry("10.0.0.4", ["n0", "node-0"]), HostsEntry("10.0.0.5", ["n1", "node-1"])],
        frozenset({"n0", "node-0"}),
        "",
    )


def test_the_own_names_are_those_of_the_own_slot_whatever_its_rank() -> None:
    rows = [row(0, "n0", "10.0.0.4", slot=3), row(1, "n1", "10.0.0.5", slot=0)]
    assert plan(PLAIN, *rows, own_slot=0).own_names == {"n1", "node-1"}
    assert plan(PLAIN, *rows, own_slot=7).own_names == frozenset()


def test_two_nodes_with_one_hostname_get_their_aliases_only() -> None:
    made = plan("", row(0, "box", "10.0.0.4"), row(1, "BOX", "10.0.0.5"), row(2, "n2", "10.0.0.6"))
    assert made == HostsPlan(
        [
            HostsEntry("10.0.0.4", ["node-0"]),
            HostsEntry("10.0.0.5", ["node-1"]),
            HostsEntry("10.0.0.6", ["n2", "node-2"]),
        ],
        frozenset({"node-0"}),
        "names left out of the hosts file: box is also another node's hostname; "
        "BOX is also another node's hostname",
    )


def test_an_alias_that_is_another_nodes_hostname_gives_way() -> None:
    made = plan("", row(0, "node-1", "10.0.0.4"), row(1, "Node-2", "10.0.0.5"))
    assert made == HostsPlan(
        [HostsEntry("10.0.0.4", ["node-1", "node-0"]), HostsEntry("10.0.0.5", ["Node-2"])],
        frozenset({"node-1", "node-0"}),
        "names left out of the hosts file: node-1 is also another node's hostname",
    )


def test_a_hostname_equal_to_the_own_alias_is_written_once() -> None:
    assert plan("", row(0, "node-0", "10.0.0.4")).entries == [HostsEntry("10.0.0.4", ["node-0"])]


@pytest.mark.parametrize(
    "line", ["10.0.0.5 n1", "10.0.0.5 N1", "::ffff:10.0.0.5 n1", "# 10.9.9.9 n1", "10.9.9.9 n11"]
)
def test_a_name_that_the_file_knows_with_the_same_address_is_written(line: str) -> None:
    assert plan(line, *TWO.rows).warning == ""


@pytest.mark.parametrize(
    ("line", "there"),
    [
        ("10.9.9.9\tx N1", "10.9.9.9"),
        ("10.9.9.9 n1\n10.0.0.5 n1\n10.8.8.8 n1", "10.8.8.8, 10.9.9.9"),
        ("fd00::9 n1", "fd00::9"),
        ("127.0.1.1 n1", "127.0.1.1"),
    ],
)
def test_a_name_that_the_file_knows_with_another_address_is_left_out(line: str, there: str) -> None:
    made = plan(line, *TWO.rows)
    assert made.entries[1] == HostsEntry("10.0.0.5", ["node-1"])
    assert made.warning == (
        f"names left out of the hosts file: n1 is {there} there and 10.0.0.5 in the table"
    )


def test_the_own_name_on_a_loopback_line_is_no_other_address() -> None:
    assert plan("127.0.1.1 n0\n", *TWO.rows) == plan("", *TWO.rows)


def test_the_own_name_with_another_address_is_left_out_too() -> None:
    made = plan("127.0.1.1 n0\n172.17.0.2 n0\n", *TWO.rows)
    assert made.entries[0] == HostsEntry("10.0.0.4", ["node-0"])
    assert made.own_names == {"node-0"}


def test_a_name_with_a_capital_is_still_found_in_the_file() -> None:
    made = plan("10.9.9.9 box\n", row(0, "BOX", "10.0.0.4"))
    assert made.entries == [HostsEntry("10.0.0.4", ["node-0"])]


def test_names_of_another_runs_block_count_and_those_of_the_own_block_do_not() -> None:
    other = [HostsEntry("10.7.0.4", ["node-0"]), HostsEntry("10.0.0.5", ["node-1"])]
    current = render_hosts("", other, run="r2", own_names=set())
    made = plan(render(current, entries=[HostsEntry("10.9.9.9", ["n1"])]), *TWO.rows)
    assert made.entries == [
        HostsEntry("10.0.0.4", ["n0"]),
        HostsEntry("10.0.0.5", ["n1", "node-1"]),
    ]
    assert made.warning == (
        "names left out of the hosts file: node-0 is 10.7.0.4 there and 10.0.0.4 in the table"
    )


@pytest.mark.parametrize("reserved", ["ip6-localhost", "ip6-allrouters", "broadcasthost"])
def test_a_reserved_hostname_is_not_written(reserved: str) -> None:
    made = plan("", row(0, "n0", "10.0.0.4"), row(1, reserved, "10.0.0.5"))
    assert made.entries[1] == HostsEntry("10.0.0.5", ["node-1"])


@pytest.mark.parametrize("hostname", ["vault", "VAULT"])
def test_a_hostname_that_leads_elsewhere_already_is_left_out(hostname: str) -> None:
    rows = table(row(0, "n0", "10.0.0.4"), row(1, hostname, "10.0.0.5"))
    resolved = {"n0": frozenset({"127.0.1.1"}), "vault": frozenset({"10.96.0.1", "fd00::1"})}
    made = plan_hosts("", rows, 0, run="r1", resolved=resolved)
    assert made.entries == [
        HostsEntry("10.0.0.4", ["n0", "node-0"]),
        HostsEntry("10.0.0.5", ["node-1"]),
    ]
    assert made.warning == (
        f"names left out of the hosts file: {hostname} already leads to 10.96.0.1, fd00::1, "
        "and not to 10.0.0.5"
    )


@pytest.mark.parametrize("own_slot", [0, 1])
def test_the_own_hostname_is_left_out_as_a_peers_is(own_slot: int) -> None:
    resolved = {"n1": frozenset({"192.168.0.5"})}
    made = plan_hosts("", TWO, own_slot, run="r1", resolved=resolved)
    assert made.entries[1] == HostsEntry("10.0.0.5", ["node-1"])


@pytest.mark.parametrize(
    "found", [{"10.0.0.5"}, {"::ffff:10.0.0.5"}, {"10.0.0.5", "192.168.0.5"}, set[str]()]
)
def test_a_hostname_that_leads_to_its_node_already_is_written(found: set[str]) -> None:
    made = plan_hosts("", TWO, 0, run="r1", resolved={"n1": frozenset(found)})
    assert made == plan("", *TWO.rows)


def test_an_alias_stays_whatever_the_resolver_says() -> None:
    resolved = {"node-1": frozenset({"10.9.9.9"})}
    assert plan_hosts("", TWO, 0, run="r1", resolved=resolved) == plan("", *TWO.rows)


def test_what_the_runs_own_older_block_says_is_not_elsewhere() -> None:
    current = render(PLAIN, entries=[HostsEntry("10.0.0.9", ["n1"])])
    resolved = {"n1": frozenset({"10.0.0.9", "::ffff:10.0.0.9"})}
    made = plan_hosts(current, TWO, 0, run="r1", resolved=resolved)
    assert made.entries[1] == HostsEntry("10.0.0.5", ["n1", "node-1"])


def test_a_node_without_any_name_left_has_no_line() -> None:
    assert plan("10.9.9.9 n0 node-0", row(0, "n0", "10.0.0.4")).entries == []


def test_a_warning_stays_short() -> None:
    rows = [row(i, f"n{i}", f"10.0.{i // 250}.{i % 250 + 1}") for i in range(1000)]
    current = "".join(f"10.9.9.9 n{i}\n" for i in range(1000))
    warning = plan(current, *rows).warning
    assert warning.endswith("n2 is 10.9.9.9 there and 10.0.0.3 in the table; and 997 more")
