"""How NCCL reads lists of interfaces and its configuration files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from worker.nccl.conf import read_conf
from worker.nccl.env import Given, conf_values, network_kind, selects

EXACT = {"exact": True}
PORT_2 = {"port": 2}


@pytest.mark.parametrize(
    ("name", "how", "takes", "leaves"),
    [
        ("eth10", {}, "eth eth1", "=eth1 ib,,"),
        ("eth1", {}, "=eth1 =ib0,eth1:4000 ^docker,lo", ""),
        ("docker0", {}, "^=docker", "^docker,lo ^=docker0"),
        (
            "mlx5_10",
            PORT_2,
            "mlx5 mlx5_1 =mlx5_10:2 mlx5_1:2 =mlx5_9:1,mlx5_10:2:0:1 ^=mlx5_1 ^=mlx5_10:1",
            "=mlx5_1 =mlx5_10:1 mlx5_1:1 ^mlx5_1 ^=mlx5_10:2",
        ),
        ("eth1", EXACT, "eth1 ib0,eth1", "eth"),  # Gloo takes whole names
    ],
)
def test_a_list_takes_beginnings_unless_a_sign_says_otherwise(
    name: str, how: dict[str, Any], takes: str, leaves: str
) -> None:
    assert [words for words in takes.split() if not selects(words, name, **how)] == []
    assert [words for words in ["", *leaves.split()] if selects(words, name, **how)] == []


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("IB", ["IB", "IBext", "IBext_v8", "gIB", "UCX"]),
        ("Socket", ["Socket", "FastSocket"]),
        ("Libfabric", ["Libfabric", "AWS Libfabric"]),
        ("", ["GPUDirectTCPX_v7", ""]),
    ],
)
def test_a_networks_name_tells_its_kind(kind: str, names: list[str]) -> None:
    assert {network_kind(name) for name in names} == {kind}


def test_a_file_is_read_line_by_line_as_nccl_does() -> None:
    text = "# NCCL_NET=Socket\nNCCL_NET=IB\nNCCL_NET=Socket\n NCCL_ALGO=Ring\nNCCL_DEBUG = INFO\n"
    text += "NCCL_IB_HCA==mlx5_0,mlx5_1\r\nNCCL_EMPTY=\nno sign\nPATH=/evil\n"
    assert conf_values(text) == {
        "NCCL_NET": "IB",
        "NCCL_DEBUG ": " INFO",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1\r",
        "NCCL_EMPTY": "",
    }


def test_the_users_file_or_the_one_that_the_environment_names_comes_before_the_systems(
    tmp_path: Path,
) -> None:
    system, users, named = (tmp_path / name for name in ("nccl.conf", ".nccl.conf", "cluster.conf"))
    system.write_text("NCCL_NET=Socket\nNCCL_DEBUG=WARN\n")
    users.write_text("NCCL_NET=IB\n")
    named.write_text("NCCL_NET=gIB\n")
    debug = {"NCCL_DEBUG": Given("WARN", str(system))}
    found = read_conf({}, home=tmp_path, system=system)
    assert found == debug | {"NCCL_NET": Given("IB", str(users))}
    found = read_conf({"NCCL_CONF_FILE": str(named)}, home=tmp_path, system=system)
    assert found == debug | {"NCCL_NET": Given("gIB", str(named))}


def test_files_that_are_none_say_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".nccl.conf").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\x00NCCL_NET=IB\nNCCL_ALGO=\xff\n")
    assert read_conf({}, home=tmp_path, system=tmp_path / "pipe") == {}
    found = read_conf({}, home=tmp_path, system=tmp_path / "binary")
    assert set(found) == {"NCCL_ALGO"}
    assert read_conf({"NCCL_CONF_FILE": "x" * 5_000}, system=tmp_path / "none") == {}


def test_an_account_that_the_image_does_not_know_has_no_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "nccl.conf"
    system.write_text("NCCL_NET=IB\n")
    monkeypatch.setattr(os, "getuid", lambda: 2_147_483_646)
    assert read_conf({}, system=system) == {"NCCL_NET": Given("IB", str(system))}
