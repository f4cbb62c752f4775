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

WRONG: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "NCCL is to use an absent interface": (
        {"given": {"NCCL_SOCKET_IFNAME": "=ens5"}},
        ("fail", "NCCL_SOCKET_IFNAME", "=ens5"),
    ),
    "NCCL is to use none of them": (
        {"given": {"NCCL_SOCKET_IFNAME": "^lo,eth"}},
        ("fail", "NCCL_SOCKET_IFNAME", "^lo,eth"),
    ),
    "no NCCL without GPUs": (
        {"given": {"NCCL_SOCKET_IFNAME": "ib"}, "gpus_seen": 0, "gpu_nodes": 0},
        ("warn", "NCCL_SOCKET_IFNAME", "ib"),
    ),
    "Gloo takes whole names": (
        {"given": {"GLOO_SOCKET_IFNAME": "eth"}},
        ("fail", "GLOO_SOCKET_IFNAME", "eth"),
    ),
    "one of two is absent": (
        {"given": {"GLOO_SOCKET_IFNAME": "eth0,ib0"}},
        ("fail", "GLOO_SOCKET_IFNAME", "eth0,ib0"),
    ),
    "the interface is down": (
        {
            "given": {"TP_SOCKET_IFNAME": "ib0"},
            "network": Network((Interface("eth0"), Interface("ib0", is_running=False))),
        },
        ("fail", "TP_SOCKET_IFNAME", "ib0"),
    ),
    "verbs are switched off": (
        {"given": {"NCCL_IB_DISABLE": "1"}},
        ("warn", "NCCL_IB_DISABLE", "1"),
    ),
    "verbs are switched off and required": (
        {"given": {"NCCL_IB_DISABLE": "1"}, "require_rdma": True},
        ("fail", "NCCL_IB_DISABLE", "1"),
    ),
    "sockets are asked for": (
        {"given": {"NCCL_NET": "Socket"}},
        ("warn", "NCCL_NET", "Socket"),
    ),
    "verbs are asked for and not there": (
        {"given": {"NCCL_NET": "IB"}, "rdma": []},
        ("fail", "NCCL_NET", "IB"),
    ),
    "an absent device": (
        {"given": {"NCCL_IB_HCA": "=mlx5_bond_0"}},
        ("fail", "NCCL_IB_HCA", "=mlx5_bond_0"),
    ),
    "a GID index on InfiniBand": (
        {"given": {"NCCL_IB_GID_INDEX": "3"}},
        ("warn", "NCCL_IB_GID_INDEX", "3"),
    ),
    "a GID index for a new NCCL": (
        {"given": {"NCCL_IB_GID_INDEX": "3"}, "rdma": [roce(0), roce(1)], "nccl": "2.21.5"},
        ("warn", "NCCL_IB_GID_INDEX", "3"),
    ),
    "a topology file that is not there": (
        {"given": {"NCCL_TOPO_FILE": "/x.xml"}, "missing_files": frozenset({"NCCL_TOPO_FILE"})},
        ("warn", "NCCL_TOPO_FILE", "/x.xml"),
    ),
    "Azure without a topology file": (
        {"vendor": AZURE},
        ("warn", "NCCL_TOPO_FILE", "not set"),
    ),
}

NO_FAULT: dict[str, dict[str, Any]] = {
    "a prefix": {"given": {"NCCL_SOCKET_IFNAME": "eth"}},
    "an exclusion": {"given": {"NCCL_SOCKET_IFNAME": "^docker,lo"}},
    "set to nothing": {"given": {"NCCL_SOCKET_IFNAME": "", "GLOO_SOCKET_IFNAME": ""}},
    "two interfaces": {"given": {"GLOO_SOCKET_IFNAME": "eth0,eth1"}},
    "not switched off": {"given": {"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB"}},
    "switched off where there is none": {"given": {"NCCL_IB_DISABLE": "1"}, "rdma": []},
    "devices by prefix": {"given": {"NCCL_IB_HCA": "mlx5"}},
    "no fixed index": {"given": {"NCCL_IB_GID_INDEX": "-1"}},
    "an old NCCL's index": {
        "given": {"NCCL_IB_GID_INDEX": "3"},
        "rdma": [roce(0), roce(1)],
        "nccl": "2.19.3",
    },
    "an unknown NCCL's index": {
        "given": {"NCCL_IB_GID_INDEX": "3"},
        "rdma": [roce(0), roce(1)],
        "nccl": "",
    },
    "Azure with its file": {"given": {"NCCL_TOPO_FILE": "/t.xml"}, "vendor": AZURE},
    "Azure without InfiniBand": {"vendor": AZURE, "rdma": [roce(0), roce(1)]},
    "one GPU on Azure": {"vendor": AZURE, "gpus_seen": 1, "nproc": 1, "rdma": [port(0)]},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_variable_that_does_not_fit_is_named(name: str) -> None:
    changes, complaint = WRONG[name]
    assert complaints(machine(**changes)) == [("L17", *complaint)]


@pytest.mark.parametrize("name", NO_FAULT)
def test_a_variable_that_fits_is_left_alone(name: str) -> None:
    assert complaints(machine(**NO_FAULT[name])) == []


def test_what_is_set_and_fits_is_listed() -> None:
    here = machine(given={"NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "eth0"})
    [found] = [finding for finding in check_node(here) if finding.check == "L17"]
    assert (found.level, found.value) == ("ok", "GLOO_SOCKET_IFNAME, NCCL_DEBUG")


def test_several_that_do_not_fit_are_all_named() -> None:
    here = machine(given={"GLOO_SOCKET_IFNAME": "a", "NCCL_SOCKET_IFNAME": "b", "NCCL_NET": "tcp"})
    assert [subject for _, _, subject, _ in complaints(here)] == [
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
    ]


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
