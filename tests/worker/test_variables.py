"""The program's variables: what the table makes of them, and what is said of the user's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable
from tests.support.machines import complaints, machine, port, roce
from tests.worker.test_contracts import table as of_contracts
from worker.contracts.variables import (
    UNKNOWN,
    NodeDevices,
    ProgramOptions,
    Variable,
    for_transports,
    log_file,
    of_one_node,
    table_facts,
)
from worker.machine.network import Interface, Network
from worker.nccl.env import Given, given_by
from worker.preflight.checks import check_node
from worker.preflight.variables import left_out_by

CLASS = "eth1 (10.0.0.0/24, Ethernet)"
HAS_IB = "every node has usable InfiniBand or RoCE, but NCCL will not use it"
PORTS = ["mlx5_0:1", "mlx5_1:1"]
WITH_PORTS: dict[str, Any] = {"transport": "IB", "row": {"hcas": PORTS}}
FILE = "/logs/node-1.%p.log"
UCX, MPI = "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include"
ALL = "the interface of the table"
RDMA = ProgramOptions(require_rdma=True)


def table(**changes: Any) -> EndpointTable:
    """Two nodes; `row` changes what is said of rank 1, the rest what is said of both."""
    of_row = changes.pop("row", {})
    sealed = of_contracts()
    rows = [replace(one, **(of_row if one.node else {})) for one in sealed.rows]
    return sealed.model_copy(update={"network": CLASS, "rows": rows, **changes})


def written(
    environ: dict[str, str] | None = None,
    options: ProgramOptions = ProgramOptions(),  # noqa: B008 (it cannot be changed)
    configured: dict[str, Given] | None = None,
    **changes: Any,
) -> list[Variable]:
    sealed = table(**changes)
    place = table_facts(sealed, sealed.rows[1])
    return for_transports(place, options, given_by(environ or {}, configured))


def as_set(variables: list[Variable]) -> dict[str, str]:
    return {one.name: one.value for one in variables if one.kept is None}


def conflicts(variables: list[Variable]) -> dict[str, str]:
    return {one.name: one.conflict for one in variables if one.conflict}


# ---- with nothing set ---------------------------------------------------------------------------


# ---- RDMA ---------------------------------------------------------------------------------------


def test_without_a_wish_nccl_is_told_neither_its_network_nor_its_ports() -> None:
    found = as_set(written(transport="IB"))
    assert not {"NCCL_NET", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_DEBUG"} & set(found)


def test_the_ports_are_named_exactly_where_the_facts_ask_for_it() -> None:
    found = written(**WITH_PORTS)
    reason = "this node's ports of the kind and rate that all have; NCCL would also use others"
    ports = Variable("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1", reason)
    assert [one for one in found if one.name == "NCCL_IB_HCA"] == [ports]


@pytest.mark.parametrize(
    ("environ", "transport", "net"),
    [
        ({}, "IB", "IB"),
        ({}, "", "IB"),
        ({}, "Libfabric", "AWS Libfabric"),
        ({"NCCL_IB_DISABLE": "1"}, "Libfabric", "AWS Libfabric"),  # EFA goes without verbs
        ({"NCCL_NET": "gIB", "NCCL_IB_DISABLE": "0"}, "", None),  # a plugin of the user's
    ],
)
def test_required_rdma_makes_a_fall_back_fail_inside_of_nccl(
    environ: dict[str, str], transport: str, net: str | None
) -> None:
    found = written(environ, RDMA, transport=transport)
    assert as_set(found).get("NCCL_NET") == net
    assert conflicts(found) == {}


@pytest.mark.parametrize(
    ("name", "value", "file"),
    [
        ("NCCL_NET", "socket", ""),
        ("NCCL_NET", "Socket", "/etc/nccl.conf"),
        ("NCCL_IB_DISABLE", "1", ""),
        ("NCCL_IB_DISABLE", "0x1", ""),
        ("NCCL_IB_DISABLE", "01", ""),
        ("NCCL_IB_DISABLE", "1 # no InfiniBand", "/etc/nccl.conf"),
    ],
)
def test_required_rdma_and_a_variable_that_forbids_it_cannot_both_hold(
    name: str, value: str, file: str
) -> None:
    with pytest.raises(UsageError) as caught:
        written(options=RDMA, configured={name: Given(value, file)})
    shown = f"{name}={value}" + f" ({file})" * bool(file)
    assert caught.value.message == (
        f"--require-rdma was given, but {shown} forbids NCCL to use RDMA"
    )
    assert caught.value.hint == f"unset {name}, or remove --require-rdma"


# ---- what the user has set ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "conflict"),
    [
        ("NCCL_SOCKET_IFNAME", "eth", ""),
        ("NCCL_SOCKET_IFNAME", "=eth1,ib0", ""),
        ("NCCL_SOCKET_IFNAME", "^docker0,lo", ""),
        ("NCCL_SOCKET_IFNAME", "=eth", f"it excludes eth1, {ALL}"),
        ("NCCL_SOCKET_IFNAME", "ib0", f"it excludes eth1, {ALL}"),
        ("NCCL_SOCKET_IFNAME", "^eth", f"it excludes eth1, {ALL}"),
        ("GLOO_SOCKET_IFNAME", "eth0,eth1", ""),
        ("GLOO_SOCKET_IFNAME", "=eth1", f"it excludes eth1, {ALL}"),
        ("TP_SOCKET_IFNAME", "eth", f"it excludes eth1, {ALL}"),
        ("TP_SOCKET_IFNAME", "", ""),
        ("NCCL_SOCKET_FAMILY", "AF_INET6", "the addresses of the table are IPv4"),
        ("NCCL_SOCKET_FAMILY", "AF_INET", ""),
    ],
)
def test_a_variable_of_the_users_is_kept_and_what_it_goes_against_is_said(
    name: str, value: str, conflict: str
) -> None:
    found = written({name: value})
    assert name not in as_set(found)
    [kept] = [one for one in found if one.name == name]
    assert (kept.kept, kept.conflict) == (Given(value), conflict)


def test_a_variable_of_nccls_files_counts_as_the_users_unless_the_environment_has_it() -> None:
    configured = {
        "NCCL_SOCKET_IFNAME": Given("ib0", "/root/.nccl.conf"),
        "NCCL_SOCKET_FAMILY": Given("AF_INET6", "/etc/nccl.conf"),
    }
    found = written({"NCCL_SOCKET_FAMILY": "AF_INET"}, configured=configured)
    kept = {one.name: str(one.kept) for one in found if one.kept}
    ib0 = "ib0 (/root/.nccl.conf)"
    assert kept == {"NCCL_SOCKET_IFNAME": ib0, "NCCL_SOCKET_FAMILY": "AF_INET"}
    assert conflicts(found) == {"NCCL_SOCKET_IFNAME": f"it excludes eth1, {ALL}"}


def test_other_ports_than_those_that_all_nodes_have_are_a_conflict() -> None:
    found = written({"NCCL_IB_HCA": "mlx5"}, **WITH_PORTS)
    assert conflicts(found)["NCCL_IB_HCA"].endswith(": =mlx5_0:1,mlx5_1:1")
    assert written({"NCCL_IB_HCA": "mlx5"}, transport="IB") == written(transport="IB")


@pytest.mark.parametrize(
    ("environ", "transport", "conflict"),
    [
        ("NCCL_NET=Socket", "IB", HAS_IB),
        ("NCCL_IB_DISABLE=1", "IB", HAS_IB),
        ("NCCL_IB_DISABLE=0", "IB", None),
        ("NCCL_IB_DISABLE=yes", "IB", None),
        ("NCCL_IB_DISABLE=1", "Socket", None),
        ("NCCL_NET=IBext_v8", "IB", None),
        ("NCCL_NET=my_plugin", "IB", None),
        ("NCCL_NET=IB", "Socket", "no node has usable RDMA"),
        ("NCCL_NET=Socket", "", None),
    ],
)
def test_what_keeps_nccl_from_what_the_nodes_have_is_said(
    environ: str, transport: str, conflict: str | None
) -> None:
    name, _, value = environ.partition("=")
    found = conflicts(written({name: value}, transport=transport))
    assert found == ({name: conflict} if conflict else {})


# ---- on request ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_for", "environ", "changes", "more"),
    [
        (("ucx", "mpi"), {}, {"transport": "Socket"}, {UCX: "eth1", MPI: "10.0.0.0/24"}),
        (("ucx",), {}, WITH_PORTS, {UCX: f"{','.join(PORTS)},eth1"}),
        (("ucx",), {}, {"transport": "IB"}, {}),  # not kept from ports that nobody has named
        (("ucx",), {UCX: "mlx5_7:1"}, {}, {}),
        (("mpi",), {}, {"row": {"address": "10.0.9.2"}}, {MPI: "eth1"}),  # no network in common
    ],
)
def test_ucx_and_mpi_are_told_only_on_request(
    env_for: Any, environ: dict[str, str], changes: dict[str, Any], more: dict[str, str]
) -> None:
    plain = as_set(written(environ, **changes))
    assert not {UCX, MPI} & set(plain)
    asked = ProgramOptions(env_for=env_for)
    assert as_set(written(environ, asked, **changes)) == plain | more


def test_mpi_is_told_the_interface_of_an_ipv6_network_whose_subnet_open_mpi_cannot_read() -> None:
    sealed = table()
    rows = [replace(one, address=f"fd00::{one.node + 1}", prefix_length=64) for one in sealed.rows]
    place = table_facts(sealed.model_copy(update={"rows": rows}), rows[1])
    found = as_set(for_transports(place, ProgramOptions(env_for=("mpi",)), {}))
    assert (place.subnet, found[MPI]) == ("fd00::/64", "eth1")


# ---- NCCL's log ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "wish", "more", "file"),
    [
        ({}, {}, {}, ""),
        ({}, {"nccl_log": "on"}, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": FILE}, FILE),
        ({}, {"require_rdma": True}, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": FILE}, FILE),
        ({}, {"require_rdma": True, "nccl_log": "off"}, {}, ""),
        ({"NCCL_DEBUG": "info"}, {}, {"NCCL_DEBUG_FILE": FILE}, FILE),
        ({"NCCL_DEBUG": "INFO"}, {"nccl_log": "off"}, {}, ""),
        ({"NCCL_DEBUG": "WARN"}, {}, {}, ""),
        ({"NCCL_DEBUG": "WARN"}, {"nccl_log": "on"}, {}, ""),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/mine.%h"}, {}, {}, "/mine.%h"),
        ({"NCCL_DEBUG_FILE": "/mine.%p"}, {"nccl_log": "on"}, {"NCCL_DEBUG": "INFO"}, "/mine.%p"),
    ],
)
def test_nccls_log_is_kept_in_files_where_it_is_asked_for(
    environ: dict[str, str], wish: dict[str, Any], more: dict[str, str], file: str
) -> None:
    found = written(environ, ProgramOptions(nccl_file=FILE, **wish))
    of_log = {name: value for name, value in as_set(found).items() if name.startswith("NCCL_DEBUG")}
    assert (of_log, log_file(found)) == (more, file)


def test_a_level_that_tells_nothing_is_kept_and_said_where_the_log_is_wanted() -> None:
    found = written({"NCCL_DEBUG": "WARN"}, ProgramOptions(require_rdma=True, nccl_file=FILE))
    words = "at this level NCCL does not report which network it uses"
    assert conflicts(found) == {"NCCL_DEBUG": words}


# --- the check of what the user has set for NCCL and Gloo -----------------------------------------


AZURE = "Microsoft Corporation"

ROCE = {"rdma": [roce(0), roce(1)]}
IB0_DOWN = Network((Interface("eth0"), Interface("ib0", is_running=False)))


@pytest.mark.parametrize(
    ("level", "name", "value", "changes"),
    [
        ("fail", "NCCL_SOCKET_IFNAME", "=ens5", {}),  # an absent interface
        ("fail", "NCCL_SOCKET_IFNAME", "^lo,eth", {}),  # none of them
        ("warn", "NCCL_SOCKET_IFNAME", "ib", {"gpus_seen": 0, "gpu_nodes": 0}),
        ("fail", "GLOO_SOCKET_IFNAME", "eth", {}),  # Gloo takes whole names
        ("fail", "GLOO_SOCKET_IFNAME", "eth0,ib0", {}),
        ("fail", "TP_SOCKET_IFNAME", "ib0", {"network": IB0_DOWN}),
        ("warn", "NCCL_IB_DISABLE", "1", {}),
        ("fail", "NCCL_IB_DISABLE", "1", {"require_rdma": True}),
        ("warn", "NCCL_NET", "Socket", {}),
        ("fail", "NCCL_NET", "IB", {"rdma": []}),
        ("fail", "NCCL_IB_HCA", "=mlx5_bond_0", {}),  # an absent device
        ("warn", "NCCL_IB_GID_INDEX", "3", {}),  # on InfiniBand
        ("warn", "NCCL_IB_GID_INDEX", "3", ROCE | {"nccl": "2.21.5"}),
        ("warn", "NCCL_TOPO_FILE", "/x.xml", {"missing_files": frozenset({"NCCL_TOPO_FILE"})}),
        ("warn", "NCCL_TOPO_FILE", "not set", {"vendor": AZURE, "given": {}}),
    ],
)
def test_a_variable_that_does_not_fit_is_named(
    level: str, name: str, value: str, changes: dict[str, Any]
) -> None:
    here = machine(**({"given": {name: value}} | changes))
    assert complaints(here) == [("L17", level, name, value)]


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ("NCCL_SOCKET_IFNAME=eth", {}),
        ("NCCL_SOCKET_IFNAME=^docker,lo", {}),
        ("NCCL_SOCKET_IFNAME= GLOO_SOCKET_IFNAME=", {}),
        ("GLOO_SOCKET_IFNAME=eth0,eth1", {}),
        ("NCCL_IB_DISABLE=0 NCCL_NET=IB", {}),
        ("NCCL_IB_DISABLE=1", {"rdma": []}),
        ("NCCL_IB_HCA=mlx5", {}),
        ("NCCL_IB_GID_INDEX=-1", {}),
        ("NCCL_IB_GID_INDEX=3", ROCE | {"nccl": "2.19.3"}),
        ("NCCL_IB_GID_INDEX=3", ROCE | {"nccl": ""}),
        ("NCCL_TOPO_FILE=/t.xml", {"vendor": AZURE}),
        ("", ROCE | {"vendor": AZURE}),
        ("", {"vendor": AZURE, "gpus_seen": 1, "nproc": 1, "rdma": [port(0)]}),
    ],
)
def test_a_variable_that_fits_is_left_alone(given: str, changes: dict[str, Any]) -> None:
    values = dict(word.split("=", 1) for word in given.split())
    assert complaints(machine(given=values, **changes)) == []


def test_what_is_set_and_fits_is_listed() -> None:
    here = machine(given={"NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "eth0"})
    [found] = [finding for finding in check_node(here) if finding.check == "L17"]
    assert (found.level, found.value) == ("ok", "GLOO_SOCKET_IFNAME, NCCL_DEBUG")


def test_several_that_do_not_fit_are_all_named() -> None:
    here = machine(given={"GLOO_SOCKET_IFNAME": "a", "NCCL_SOCKET_IFNAME": "b", "NCCL_NET": "tcp"})
    subjects = [subject for _, _, subject, _ in complaints(here)]
    assert subjects == ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"]


def test_of_an_interface_it_is_known_which_variables_leave_it_out() -> None:
    given = {
        "NCCL_SOCKET_IFNAME": Given("^docker,eth"),
        "GLOO_SOCKET_IFNAME": Given("eth"),
        "TP_SOCKET_IFNAME": Given("lo,eth0"),
        "NCCL_NET": Given("Socket"),
    }
    assert left_out_by("eth0", given) == {
        "NCCL_SOCKET_IFNAME": "^docker,eth",
        "GLOO_SOCKET_IFNAME": "eth",
    }
    nothing = {"NCCL_SOCKET_IFNAME": Given("x"), "GLOO_SOCKET_IFNAME": Given("")}
    assert left_out_by("eth0", nothing) == {}


# ---- whole names, and beginnings of names --------------------------------------------------------


@pytest.mark.parametrize(
    ("interfaces", "value"),
    [
        (["lo", "eth0", "eth1"], "eth1"),
        (["lo", "eth1", "eth10"], "=eth1"),
        (["eth1", "eth1.100"], "=eth1"),
        (["eth", "eth1"], "eth1"),  # it begins with ours nowhere
        (["aeth1", "eth1"], "eth1"),
    ],
)
def test_nccl_is_given_the_whole_name_only_where_its_beginning_says_too_much(
    interfaces: list[str], value: str
) -> None:
    """An image's NCCL found no interface of the name '=eth0'."""
    sealed = table(**WITH_PORTS)
    place = table_facts(sealed, sealed.rows[1], NodeDevices(interfaces))
    found = {one.name: one for one in for_transports(place, ProgramOptions(), {})}
    assert found["NCCL_SOCKET_IFNAME"].value == value
    assert ("this name alone" in found["NCCL_SOCKET_IFNAME"].reason) == value.startswith("=")
    assert found["GLOO_SOCKET_IFNAME"].value == found["TP_SOCKET_IFNAME"].value == "eth1"
    assert not found["NCCL_SOCKET_IFNAME"].kept


@pytest.mark.parametrize(
    ("devices", "value"),
    [
        (["mlx5_0", "mlx5_1", "mlx5_bond_0"], "mlx5_0:1,mlx5_1:1"),
        (["mlx5_0", "mlx5_1", "mlx5_10"], "=mlx5_0:1,mlx5_1:1"),
    ],
)
def test_so_is_it_of_rdma_ports(devices: list[str], value: str) -> None:
    sealed = table(**WITH_PORTS)
    place = table_facts(sealed, sealed.rows[1], NodeDevices(["eth1"], devices))
    assert as_set(for_transports(place, ProgramOptions(), {}))["NCCL_IB_HCA"] == value


def test_a_node_that_is_seen_from_elsewhere_may_have_either_form() -> None:
    sealed = table()
    place = table_facts(sealed, sealed.rows[1], UNKNOWN)
    (one,) = [v for v in for_transports(place, ProgramOptions(), {}) if "NCCL_SOCKET_I" in v.name]
    assert one.value == "eth1"
    assert one.reason.endswith("; '=eth1' if another interface's name begins with it")


def test_the_whole_name_of_the_users_goes_against_nothing() -> None:
    sealed = table()
    place = table_facts(sealed, sealed.rows[1], NodeDevices(["eth1"]))
    given = given_by({"NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "=eth1"}, None)
    found = conflicts(for_transports(place, ProgramOptions(), given))
    assert [*found] == ["GLOO_SOCKET_IFNAME"]


NPROC, SOCKETS = {"nproc_per_node": 3}, {"interface": "ib7"}
OF_SOCKETS = ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", UCX]
OF_HCAS = ["NCCL_IB_HCA", UCX]


@pytest.mark.parametrize(
    ("row", "differ"),
    [
        ({}, []),
        (NPROC, ["NPROC_PER_NODE"]),
        (SOCKETS, OF_SOCKETS),
        ({"hcas": PORTS}, OF_HCAS),
        (NPROC | SOCKETS, ["NPROC_PER_NODE", *OF_SOCKETS]),
        (NPROC | SOCKETS | {"hcas": PORTS}, ["NPROC_PER_NODE", *OF_SOCKETS, *OF_HCAS]),
    ],
)
def test_what_is_of_one_node_alone_is_what_differs_between_them(
    row: dict[str, Any], differ: list[str]
) -> None:
    names = ["NODE_RANK", "MASTER_ADDR", "NPROC_PER_NODE", *OF_SOCKETS, *OF_HCAS, "RDZV_TABLE"]
    of_node = {"NODE_RANK", "RDZV_TABLE", *differ}
    first, second = table().rows
    other = replace(first, node=1, slot=second.slot, hostname=second.hostname, **row)
    both = table(rows=[first, other])
    assert of_one_node(both, names) == [name for name in names if name in of_node]
    assert of_one_node(table(rows=[other]), names) == []
