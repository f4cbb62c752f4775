"""The CPUs that can be used: of the machine, a CPU set, and quotas of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.machine.cpus import Cpus, read_cpus
from worker.machine.groups import cpus_in
from worker.preflight.cpus import too_few_cpus

V1 = "30 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "30 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
POD = Path("sys/fs/cgroup/pod")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 128 CPUs, on which this process may use 96."""
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(96)))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,cpuacct:/pod/job\n0::/pod/job\n")
    (tmp_path / "proc/self/mountinfo").write_text(V2)
    (tmp_path / POD / "job").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("200000 100000", 2.0),
        ("50000 100000\n", 0.5),
        ("max 100000", None),
        ("-1 100000", None),
        ("0 0", None),
        ("", None),
    ],
)
def test_a_quota_is_a_number_of_cpus(quota: str, cpus: float | None) -> None:
    assert cpus_in(quota) == cpus


def test_a_cpu_set_holds_back(root: Path) -> None:
    assert read_cpus(root) == Cpus(96, 128, "its CPU set: cpuset or taskset")


def test_the_narrowest_quota_of_all_groups_above_counts(root: Path) -> None:
    (root / POD / "cpu.max").write_text("250000 100000\n")
    (root / POD / "job/cpu.max").write_text("max 100000\n")
    found = read_cpus(root)
    assert found.count == 3
    words = "cpu.max of the control group /sys/fs/cgroup/pod allows 2.5"
    assert found.words == f"3 of 128 CPUs ({words})"


def test_a_quota_of_version_1_counts(root: Path) -> None:
    (root / "proc/self/mountinfo").write_text(V1)
    folder = root / "sys/fs/cgroup/cpu,cpuacct/pod/job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("50000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    why = "cpu.cfs_quota_us of the control group /sys/fs/cgroup/cpu,cpuacct/pod/job allows 0.5"
    assert read_cpus(root) == Cpus(1, 128, why)


def test_a_quota_wider_than_the_machine_holds_nothing_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(128)))
    (root / POD / "cpu.max").write_text("99900000 100000\n")
    assert read_cpus(root).words == "128 CPUs"


def test_more_ranks_than_the_cpus_that_are_left_are_a_warning() -> None:
    held = Cpus(2, 128, "cpu.max of the control group /g allows 2")
    (found,) = too_few_cpus(held, 3)
    assert (found.level, found.value) == ("warn", held.words)
    assert too_few_cpus(held, 2) == too_few_cpus(None, 8) == too_few_cpus(Cpus(2, 2), 8) == []
