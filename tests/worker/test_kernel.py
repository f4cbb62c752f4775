"""What the kernel grants and tells: read on this machine, and in files of others."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from worker.machine.kernel import (
    Arp,
    driver_version,
    memory_bytes,
    reaches_gpu_memory,
    read_arp,
    read_clock,
    read_limits,
    vendor,
)

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def identity(root: Path, effective: str, users: str = "0 0 4294967295") -> None:
    write(root, "proc/self/status", f"Name:\tx\nCapEff:\t{effective}\n")
    write(root, "proc/self/uid_map", f"         {users}\n")


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
    identity(tmp_path, effective, users)
    assert read_limits(tmp_path).may_lock is may_lock


def test_without_files_nothing_is_granted(tmp_path: Path) -> None:
    assert not read_limits(tmp_path).may_lock
    assert not reaches_gpu_memory(tmp_path)
    assert (driver_version(tmp_path), vendor(tmp_path), memory_bytes(tmp_path)) == ("", "", 0)
    assert read_arp(["eth0"], tmp_path) == {}


def test_the_clock_of_this_machine_is_judged_by_its_kernel() -> None:
    clock = read_clock()
    assert clock is None or clock.error_seconds >= 0


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
def test_network_cards_reach_gpu_memory_by_one_of_several_ways(
    tmp_path: Path, name: str, text: str
) -> None:
    write(tmp_path, "proc/driver/nvidia/version", CLOSED)
    assert not reaches_gpu_memory(tmp_path)
    write(tmp_path, name, text)
    assert reaches_gpu_memory(tmp_path)


@pytest.mark.parametrize(("text", "version"), [(CLOSED, "550.54.15"), (OPEN, "570.86.15")])
def test_the_driver_tells_its_version(tmp_path: Path, text: str, version: str) -> None:
    write(tmp_path, "proc/driver/nvidia/version", text)
    assert driver_version(tmp_path) == version


def test_memory_and_maker_are_read(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:       1000 kB\nMemFree:  10 kB\n")
    write(tmp_path, "sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n")
    assert memory_bytes(tmp_path) == 1_024_000
    assert vendor(tmp_path) == "Microsoft Corporation"
