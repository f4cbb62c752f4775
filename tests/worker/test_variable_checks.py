"""The check of what the user has set for NCCL and Gloo."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machines import complaints, machine, port, roce
from worker.machine.network import Interface, Network
from worker.nccl.env import Given
from worker.preflight.checks import check_node
from worker.preflight.variables import left_out_by

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
