"""What control groups hold processes back with during a look."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.hang.ranks.held_back import Group, held_back
from features.hang.ranks.held_back_reader import read_groups

G = "/sys/fs/cgroup/pod"


def cpu(periods: int, throttled: int) -> str:
    return f"usage_usec 9\nnr_periods {periods}\nnr_throttled {throttled}\n"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            Group(cpu=cpu(10, 4), quota="50000 100000"),
            Group(cpu=cpu(13, 6), quota="50000 100000"),
            "was held back by its CPU quota of 0.5 CPUs in 2 of 3 periods during the look",
        ),
        (
            Group(cpu=cpu(10, 4)),
            Group(cpu=cpu(12, 6)),
            "was held back by its CPU quota in 2 of 2 periods during the look",
        ),
        (
            Group(cpu=cpu(10, 4)),
            Group(cpu=cpu(12, 5)),
            "was held back by its CPU quota in 1 of 2 periods during the look",
        ),
        (Group(cpu=cpu(10, 4)), Group(cpu=cpu(13, 5)), ""),
        (Group(cpu=cpu(10, 4)), Group(cpu=cpu(13, 4)), ""),
        (
            Group(memory="high 5\nmax 0\n", high="1073741824\n"),
            Group(memory="high 12\nmax 0\n", high="1073741824\n"),
            (
                "is above its memory.high of 1 GiB, and the kernel slowed it down 7 times during "
                "the look"
            ),
        ),
        (Group(memory="high 5\n", high="max\n"), Group(memory="high 6\n", high="max\n"), ""),
        (
            Group(),
            Group(frozen="populated 1\nfrozen 1\n"),
            "is frozen, as by 'docker pause': no process in it runs",
        ),
        (
            Group(),
            Group(frozen="FROZEN\n"),
            "is frozen, as by 'docker pause': no process in it runs",
        ),
        (Group(frozen="FROZEN\n"), Group(frozen="THAWED\n"), ""),
        (
            Group(),
            Group(oom="oom_kill_disable 1\nunder_oom 1\n"),
            (
                "is out of memory, and its processes wait for some (memory.oom_control does not "
                "let the kernel kill)"
            ),
        ),
        (Group(), Group(oom="oom_kill_disable 0\nunder_oom 0\n"), ""),
    ],
)
def test_what_holds_a_group_back_is_said(before: Group, after: Group, words: str) -> None:
    expected = [f"its control group {G} {words}"] if words else []
    assert held_back({G: before, "/other": before}, {G: after}) == expected


def test_a_group_that_is_new_has_counted_nothing_yet() -> None:
    assert held_back({}, {G: Group(cpu=cpu(9, 9), memory="high 3\n", high="9")}) == []


def test_groups_of_both_versions_are_read(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write(
        "proc/self/mountinfo",
        "30 25 0:27 / /cg rw - cgroup2 cgroup2 rw\n"
        "31 25 0:28 / /v1/cpu rw - cgroup cgroup rw,cpu\n",
    )
    write("proc/7/cgroup", "3:cpu:/job\n0::/pod/rank\n")
    write("v1/cpu/job/cpu.stat", cpu(1, 1))
    write("v1/cpu/job/cpu.cfs_quota_us", "50000\n")
    write("v1/cpu/job/cpu.cfs_period_us", "100000\n")
    write("cg/pod/memory.high", "4096\n")
    write("cg/pod/rank/cgroup.events", "frozen 1\n")
    found = read_groups([7, 8], tmp_path)
    assert found["/v1/cpu/job"] == Group(cpu=cpu(1, 1), quota="50000 100000")
    assert found["/cg/pod"] == Group(high="4096\n")
    assert found["/cg/pod/rank"].frozen == "frozen 1\n"
    assert read_groups([8], tmp_path) == {}
