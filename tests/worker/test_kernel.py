"""What the kernel grants and tells, read here and in files of others, and which ports are free."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_sysfs import refuse
from worker.machine import sysfs
from worker.machine.kernel import (
    Arp,
    driver_version,
    ephemeral_range,
    memory_bytes,
    reaches_gpu_memory,
    read_arp,
    read_limits,
    reserved_ports,
    vendor,
)
from worker.offer.ports import find_free, is_free

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_limits_are_those_of_this_process(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert read_limits(tmp_path).files == soft - 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("effective", "users", "may_lock"),
    [
        ("000001ffffffffff", "0 0 4294967295", True),
        ("0000000000004000", "0 0 4294967295", True),
        ("000001ffffffbfff", "0 0 4294967295", False),
        # Root of a user namespace has the capability, and the kernel does not count it.
        ("000001ffffffffff", "0 100000 65536", False),
    ],
)
def test_memory_may_be_locked_with_the_capability_of_the_whole_machine(
    tmp_path: Path, effective: str, users: str, may_lock: bool
) -> None:
    write(tmp_path, "proc/self/status", f"Name:\tx\nCapEff:\t{effective}\n")
    write(tmp_path, "proc/self/uid_map", f"         {users}\n")
    assert read_limits(tmp_path).may_lock is may_lock


def test_without_files_nothing_is_granted(tmp_path: Path) -> None:
    assert not read_limits(tmp_path).may_lock
    assert not reaches_gpu_memory(tmp_path)
    assert (driver_version(tmp_path), vendor(tmp_path), memory_bytes(tmp_path)) == ("", "", 0)
    assert read_arp(["eth0"], tmp_path) == {}


def test_for_arp_the_larger_of_common_and_own_value_counts(tmp_path: Path) -> None:
    conf = "proc/sys/net/ipv4/conf"
    for name, ignore, announce in (("all", 0, 2), ("eth0", 1, 0), ("eth1", 0, 0)):
        write(tmp_path, f"{conf}/{name}/arp_ignore", f"{ignore}\n")
        write(tmp_path, f"{conf}/{name}/arp_announce", f"{announce}\n")
    assert read_arp(["eth0", "eth1", "eth2"], tmp_path) == {"eth0": Arp(1, 2), "eth1": Arp(0, 2)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proc/driver/nvidia/version", OPEN),
        ("sys/module/nvidia_peermem/version", "550\n"),
        ("sys/kernel/mm/memory_peers/nv_mem/version", "1.3\n"),
        ("sys/kernel/mm/memory_peers/nv_mem_nc/version", "1.3\n"),
    ],
)
def test_cards_reach_gpu_memory_by_one_of_several_ways(
    tmp_path: Path, name: str, text: str
) -> None:
    write(tmp_path, "proc/driver/nvidia/version", CLOSED)
    assert not reaches_gpu_memory(tmp_path)
    write(tmp_path, name, text)
    assert reaches_gpu_memory(tmp_path)


def test_driver_memory_and_maker_are_read(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:       1000 kB\nMemFree:  10 kB\n")
    write(tmp_path, "sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n")
    assert memory_bytes(tmp_path) == 1_024_000
    assert vendor(tmp_path) == "Microsoft Corporation"
    for text, version in ((CLOSED, "550.54.15"), (OPEN, "570.86.15")):
        write(tmp_path, "proc/driver/nvidia/version", text)
        assert driver_version(tmp_path) == version


# ---- small files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"28.39\x00.1\xff\n", "28.39?.1\ufffd"), (b"x" * 1000, "x" * 252 + "…")],
    ids=["printable", "cut"],
)
def test_a_file_is_one_printable_line(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "fw_ver").write_bytes(content)
    assert sysfs.text(tmp_path / "fw_ver") == text


@pytest.mark.parametrize(
    ("words", "value"),
    [("16\n", 16), ("-1", -1), ("0x1f\n", 31), ("0X1F", 31), ("", 7), ("0x", 7), ("N/A", 7)],
)
def test_a_number_is_decimal_or_hexadecimal(tmp_path: Path, words: str, value: int) -> None:
    (tmp_path / "lid").write_text(words)
    assert sysfs.number(tmp_path / "lid", 7) == value


def test_a_directory_is_read_in_natural_order(tmp_path: Path) -> None:
    for name in ("mlx5_10", "mlx5_9", "mlx5_0"):
        (tmp_path / name).mkdir()
    assert [path.name for path in sysfs.entries(tmp_path)] == ["mlx5_0", "mlx5_9", "mlx5_10"]


def test_what_a_link_leads_to_is_named_although_it_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "master").symlink_to("../../bond0")
    assert sysfs.link_name(tmp_path / "master") == "bond0"
    assert not sysfs.exists(tmp_path / "master")


@pytest.mark.parametrize("make", [refuse, lambda path: None], ids=["refused", "missing"])
def test_what_cannot_be_read_is_as_if_not_there(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "state"
    make(path)
    assert (sysfs.entries(path), sysfs.text(path), sysfs.number(path, 7)) == ([], "", 7)
    assert not sysfs.exists(path)
    assert not sysfs.exists(path / "below")
    assert sysfs.link_name(path / "below") is None


# ---- ports ---------------------------------------------------------------------------------------


@contextmanager
def listening(address: str, port: int = 0) -> Iterator[int]:
    """A listener on exactly this address; gives its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.create_server((address, port), family=family)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_port_with_a_listener_on_any_address_is_taken_until_it_closes(address: str) -> None:
    """Looking at it does not take it."""
    with listening(address) as port:
        assert not is_free(port)
    assert is_free(port)
    with listening(address, port):
        pass


def test_a_port_whose_connections_only_wait_to_be_forgotten_is_free() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.create_connection(server.getsockname())) as client,
    ):
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first is the one that waits
        assert client.recv(1) == b""
        port = server.getsockname()[1]
    with closing(socket.socket()) as plain, pytest.raises(OSError, match="Address already in use"):
        plain.bind(("127.0.0.1", port))
    assert is_free(port)


@pytest.mark.parametrize("ephemeral", [(0, 0), (1024, 65_535)])  # where all are, one is taken
def test_the_first_free_port_is_found_behind_those_taken(ephemeral: tuple[int, int]) -> None:
    with listening("127.0.0.1") as port:
        assert port < (find_free(port, ephemeral) or 0) < port + 100


def test_a_port_of_outgoing_connections_is_avoided_and_above_the_last_there_is_none() -> None:
    assert (find_free(40_000, (39_000, 40_999)) or 0) >= 41_000
    assert find_free(65_536) is None


def test_the_kernel_says_which_ports_are_of_outgoing_connections() -> None:
    low, high = ephemeral_range()
    with listening("127.0.0.1") as port:
        assert low <= port <= high
        with closing(socket.create_connection(("127.0.0.1", port))) as client:
            assert low <= client.getsockname()[1] <= high


@pytest.mark.parametrize(
    ("text", "ports"),
    [("8080,41000-41002\n", [8080, 41_000, 41_001, 41_002]), ("\n", []), ("?", []), (None, [])],
)
def test_the_ports_that_are_kept_for_others_are_read(
    tmp_path: Path, text: str | None, ports: list[int]
) -> None:
    if text is not None:
        write(tmp_path, "proc/sys/net/ipv4/ip_local_reserved_ports", text)
    assert reserved_ports(tmp_path) == ports
