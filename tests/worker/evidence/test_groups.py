"""Where a process's control groups are, and which has counted: both versions, all containers."""

from __future__ import annotations

import pytest

from worker.machine.groups import (
    Chain,
    Mount,
    Rise,
    Watched,
    chains_of,
    counter_in,
    limit_in,
    mounts_in,
    rises,
)

V2_LINE = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_LINES = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
32 31 0:29 /docker/ab /sys/fs/cgroup/memory ro,nosuid master:5 - cgroup cgroup rw,memory
33 31 0:33 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct
40 31 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw
nothing
"""
V2 = Mount(None, "/", "/sys/fs/cgroup")
V1 = Mount(frozenset({"rw", "memory"}), "/docker/ab", "/sys/fs/cgroup/memory")
CPU = Mount(frozenset({"rw", "cpu", "cpuacct"}), "/docker/ab", "/sys/fs/cgroup/cpu,cpuacct")
HYBRID = Mount(None, "/", "/sys/fs/cgroup/uni fied")
TOP = "/sys/fs/cgroup"


def test_the_hierarchies_are_read_of_mountinfo_version_1_first() -> None:
    assert mounts_in(V2_LINE) == [V2]
    assert mounts_in(V1_LINES) == [V1, CPU, HYBRID]
    assert mounts_in("") == []


@pytest.mark.parametrize(
    ("groups", "mounts", "chain"),
    [
        ("0::/a/b\n", [V2], (f"{TOP}/a/b", f"{TOP}/a", TOP)),
        ("0::/\n", [V2], (TOP,)),
        ("0::/a/b (deleted)\n", [V2], (f"{TOP}/a/b", f"{TOP}/a", TOP)),
        ("0::/../other\n", [V2], None),  # of another container
        ("0::/a/b\n", [Mount(None, "/a", "/cg")], ("/cg/b", "/cg")),
        ("0::/ab\n", [Mount(None, "/a", "/cg")], ("/cg",)),
        ("4:memory:/docker/ab/job\n0::/x\n", [V1, HYBRID], (f"{V1.point}/job", V1.point)),
        ("4:cpu,memory:/docker/ab\n", [V1, HYBRID], (V1.point,)),
        ("4:memory:/elsewhere\n", [V1], (V1.point,)),
        ("3:cpu:/docker/ab\n0::/x\n", [CPU, HYBRID], (f"{HYBRID.point}/x", HYBRID.point)),
        ("3:cpu:/docker/ab\n", [V1, CPU, HYBRID], None),
        ("1:name=systemd:/\nrubbish\n", [V2], None),
        ("", [V2], None),
    ],
)
def test_a_process_is_in_a_chain_of_groups(
    groups: str, mounts: list[Mount], chain: Chain | None
) -> None:
    assert chains_of(groups, mounts, "memory") == ([chain] if chain else [])


def test_counters_and_limits_are_read_whatever_a_file_says() -> None:
    events = "low 0\nhigh 0\nmax 71\noom 3\noom_kill 2\noom_group_kill 1\n"
    assert (counter_in(events, "oom_kill"), counter_in(events, "max")) == (2, 71)
    assert counter_in("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", "oom_kill") == 4
    assert counter_in("", "oom_kill") is None
    assert [limit_in(text) for text in ("52428800\n", "max\n", "9223372036854771712\n", "")] == [
        52428800,
        None,
        None,
        None,
    ]


OWN = ("/cg/pod/job", "/cg/pod", "/cg")
RANK = ("/cg/pod/job/rank", *OWN)
BEFORE = Watched((OWN,), {"/cg/pod/job": 1, "/cg/pod": 5, "/cg": 9})


@pytest.mark.parametrize(
    ("chains", "counts", "found"),
    [
        ([OWN], {"/cg/pod/job": 1, "/cg/pod": 5, "/cg": 9}, []),
        ([OWN], {"/cg/pod/job": 3, "/cg/pod": 7, "/cg": 9}, [Rise("/cg/pod/job", 2, 40, 39)]),
        ([OWN], {"/cg/pod/job": 1, "/cg/pod": 8, "/cg": 99}, []),  # somebody else's
        ([OWN], {"/cg/pod": 8, "/cg": 9}, [Rise("/cg/pod", 3, 40)]),  # ours is gone
        ([OWN], {}, []),
        ([OWN, RANK], {"/cg/pod/job": 2, RANK[0]: 1}, [Rise(RANK[0], 1, 20)]),  # told once
        ([("/cg/new", "/cg")], {"/cg/new": 2, "/cg": 9}, [Rise("/cg/new", 2)]),  # made since
        ([("/other",)], {"/other": 7}, []),  # the top, of an ended process in version 1
        ([OWN], {"/cg/pod/job": 0}, []),
    ],
)
def test_a_group_of_the_program_that_counted_is_told_with_its_narrowest_limit(
    chains: list[Chain], counts: dict[str, int], found: list[Rise]
) -> None:
    limits = {"/cg/pod/job": 60, "/cg/pod": 40, RANK[0]: 20}
    after = Watched(tuple(chains), counts, limits, {"/cg/pod/job": 39})
    assert rises(BEFORE, after) == found


def test_a_group_that_was_made_anew_counts_from_its_beginning() -> None:
    before = Watched((OWN,), {OWN[0]: 5})
    assert rises(before, Watched((OWN,), {OWN[0]: 2})) == [Rise(OWN[0], 2)]
