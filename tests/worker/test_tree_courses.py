"""What is read from a machine's trees of /proc and /sys is as in `tree_courses.txt`.

Control groups of both versions at two moments, limits, the kernel's log, ports, RDMA devices; and
how a node asks side by side what may hang. No number is another one. See `make reference`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pwd
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.cause.facts import FactKind
from rendezvous.talk.failures import OtherKey
from rendezvous.wire.errors import RdzvError, RegistryError, Unavailable, UsageError
from rendezvous.wire.node import RdmaPort
from tests.support.courses import lines_in, text_of
from tests.support.fake_sysfs import (
    DOWN,
    SLOW,
    UNMANAGED,
    links_of,
    nd_h100_v5,
    roce_8x400,
    tcp_only,
)
from tests.support.virtual_time import run_virtually
from tests.worker.test_table import join
from tests.worker.told import Instead, Told
from worker.evidence import devices, places, processes
from worker.evidence.control_groups import MEMORY, PIDS, limited_memory, memory_chain, watched
from worker.evidence.kernel import kills_of_machine
from worker.evidence.look import Asked, Counters, chosen, look_kernel, look_pids
from worker.evidence.parsing.places import place_facts
from worker.evidence.parsing.telling import fact
from worker.machine import (
    aside,
    cpus,
    interfaces,
    kernel,
    limits,
    netlink,
    rdma,
    surroundings,
)
from worker.machine.aside import Answer
from worker.machine.gpus import Gpu, Gpus
from worker.machine.groups import chains_of, cpus_in, mounts_in, rises
from worker.machine.interfaces import look
from worker.machine.kernel import read_arp, reserved_ports
from worker.machine.rdma import error_counters, look_rdma, open_devices
from worker.machine.shortage import Kind, Limit
from worker.machine.user_python import UserPython
from worker.nccl.env import GidWish, Given
from worker.nccl.log import NcclLog
from worker.offer import refusal
from worker.offer.refusal import refuse, refuse_alone

KNOWN = Path(__file__).with_name("tree_courses.txt")


class Tree:
    """Files below a root, of which the path is told as `ROOT`."""

    def __init__(self, root: str, patch: pytest.MonkeyPatch) -> None:
        self.root, self.patch, self.told = Path(root), patch, Told()

    def put(self, files: Mapping[str, object], under: str = "") -> None:
        """Files of these texts."""
        for name, text in files.items():
            path = self.root / under / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")


@contextmanager
def tree() -> Iterator[Tree]:
    """One of which nothing is left."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(dir=memory) as root, pytest.MonkeyPatch.context() as patch:
        yield Tree(root, patch)


# --- control groups -------------------------------------------------------------------------------

V2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1 = """\
33 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 24 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 24 0:32 /docker/ab /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
36 24 0:33 / /sys/fs/cgroup/free\\040zer rw - cgroup cgroup rw,freezer
31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"""


OF_V1 = "7:memory:/a/b\n6:cpu,cpuacct:/a\n5:pids:/docker/ab/c\n4:freezer:/a (deleted)\n0::/u"


def of_version_2(at: Tree) -> None:
    """An agent, a program and a rank in groups of their own, below a pod's."""
    at.put(
        {
            "mountinfo": V2,
            "cgroup": "0::/pod/agent",
            "status": STATUS,
            "uid_map": "0 0 4294967295",
            **{f"fd/{n}": "" for n in range(5)},
        },
        "proc/self",
    )
    at.put(
        {"70/cgroup": "0::/pod/job/rank", "71/cgroup": "0::/pod/job", "72/cgroup": "0::/other"},
        "proc",
    )
    for name, number in (("pod", 1), ("pod/agent", 2), ("pod/job", 3), ("pod/job/rank", 4)):
        at.put(
            {
                "memory.events": f"high {number}\nmax 9\noom_kill {10 + number}",
                "memory.max": 9_000 - 1_000 * number if number != 2 else "max",
                "memory.peak": 900 + number,
                "memory.high": 8_500 if number == 1 else "max",
                "memory.current": 4_000 + number,
                "memory.stat": f"anon 5\ninactive_file {100 * number}",
                "pids.events": f"max {20 + number}",
                "pids.max": 300 + number if number != 3 else "max",
                "pids.peak": 30 + number,
                "pids.current": 40 + number,
                "cpu.max": {1: "3300000 100000", 3: "250000 100000"}.get(number, "max 100000"),
                "cpu.stat": f"nr_periods {50 * number}\nnr_throttled {10 * number}",
                "cgroup.events": "populated 1\nfrozen 0",
            },
            f"sys/fs/cgroup/{name}",
        )


STATUS = (
    "Name:\tpy\nUid:\t1007\t1\t2\t3\nThreads:\t6\nVmSize:\t 700 kB\nVmData:\t 300 kB\n"
    "CapEff:\t0000000000004000"
)


def go_on_in_version_2(at: Tree) -> None:
    """All of its groups have counted something since."""
    at.put(
        {"job/rank/memory.events": "high 9\noom_kill 17", "job/memory.events": "oom_kill 19"},
        "sys/fs/cgroup/pod",
    )
    at.put(
        {
            "memory.events": "high 8\noom_kill 14",
            "pids.events": "max 29",
            "cpu.max": "50000 100000",
        },
        "sys/fs/cgroup/pod",
    )
    at.put(
        {"job/cpu.stat": "nr_periods 170\nnr_throttled 50", "job/cgroup.events": "frozen 1"},
        "sys/fs/cgroup/pod",
    )
    at.put({"job/rank/cpu.stat": "nr_periods 260\nnr_throttled 60"}, "sys/fs/cgroup/pod")


def what_groups_count() -> Told:
    """Of version 2, before and after; and which CPUs are left."""
    with tree() as at:
        of_version_2(at)
        told, root = at.told, at.root
        before = watched(MEMORY, ["self", 70, 71, 99], root=root)
        pids = watched(PIDS, ["self", 70], root=root)
        told.of(
            "memory", *before.chains, counts=before.counts, limits=before.limits, peaks=before.peaks
        )
        told.of("pids", *pids.chains, counts=pids.counts, limits=pids.limits, peaks=pids.peaks)
        chain = memory_chain(root)
        told.of("chain", chain, limited_memory(chain, root), limited_memory(chain[:1], root))
        at.patch.setattr(os, "cpu_count", lambda: 48)
        for allowed in (48, 33, 2):
            at.patch.setattr(os, "sched_getaffinity", lambda _, n=allowed: set(range(n)))
            told.of(f"{allowed} CPUs", cpus.read_cpus(root), cpus.read_cpus(root).words)
        at.put({"cgroup": "0::/pod/job/rank"}, "proc/self")
        told.of("CPUs of a rank", cpus.read_cpus(root).words)
        go_on_in_version_2(at)
        after = watched(MEMORY, ["self", 72], known=before.chains, root=root)
        told.of("memory after", *after.chains, counts=after.counts)
        told.of("rises", *rises(before, after), back=[*map(str, rises(after, before))])
        later = watched(PIDS, [71], known=pids.chains, root=root)
        told.of("rises of pids", *rises(pids, later))
        told.of("CPUs", cpus.read_cpus(root).words)
        (root / "sys/fs/cgroup/pod/job/rank/memory.events").unlink()
        gone = watched(MEMORY, [], known=before.chains, root=root)
        told.of("a group is gone", *rises(before, gone))
        return told


def of_version_1(at: Tree) -> None:
    """A process in groups of every controller, one of them frozen."""
    at.put(
        {
            "mountinfo": V1,
            "cgroup": OF_V1,
        },
        "proc/self",
    )
    at.put(
        {
            "a/b/memory.oom_control": "oom_kill_disable 1\nunder_oom 1\noom_kill 5",
            "a/memory.limit_in_bytes": 7_000,
            "a/b/memory.limit_in_bytes": 1 << 62,
            "a/memory.usage_in_bytes": 4_400,
            "a/memory.stat": "inactive_file 3\ntotal_inactive_file 1400",
            "a/memory.max_usage_in_bytes": 5_500,
        },
        "sys/fs/cgroup/memory",
    )
    at.put(
        {
            "a/cpu.cfs_quota_us": 350_000,
            "a/cpu.cfs_period_us": 100_000,
            "cpu.cfs_quota_us": -1,
            "cpu.cfs_period_us": 100_000,
        },
        "sys/fs/cgroup/cpu,cpuacct",
    )
    at.put(
        {"c/pids.max": 77, "c/pids.current": 33, "pids.max": 55, "c/pids.events": "max 3"},
        "sys/fs/cgroup/pids",
    )
    at.put({"a/freezer.state": "FROZEN"}, "sys/fs/cgroup/free zer")


def what_groups_of_version_1_count() -> Told:
    """A freezer, and memory whose out-of-memory killer is off."""
    with tree() as at:
        told, root = at.told, at.root
        of_version_1(at)
        text, mounts = (
            (root / "proc/self/cgroup").read_text(),
            mounts_in((root / "proc/self/mountinfo").read_text()),
        )
        told.of("mounts", *([sorted(one.controllers or ()), one.root, one.point] for one in mounts))
        for name in ("memory", "cpu", "cpuacct", "pids", "freezer", "io"):
            told.of(name, *chains_of(text, mounts, name))
        for controller in (MEMORY, PIDS):
            told.of(controller.name, watched(controller, ["self"], root=root))
        chain = memory_chain(root)
        told.of("limited", limited_memory(chain, root), limited_memory((), root))
        at.put({"70/cgroup": text}, "proc")
        at.patch.setattr(os, "cpu_count", lambda: 8)
        at.patch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
        told.of("CPUs", cpus.read_cpus(root).words)
        return told.of(
            "quotas",
            *(cpus_in(one) for one in ("200000 100000", "max 100000", "-1 5", "0 9", "9", "")),
        )


def which_limits_hold() -> Told:
    """Of this process, its user, its groups and the machine; and what the kernel grants."""
    with tree() as at:
        of_version_2(at)
        told, root = at.told, at.root
        at.put(
            {
                "70/status": "Uid:\t1007\nThreads:\t13",
                "71/status": "Uid:\t1008\nThreads:\t50",
                "x/status": "Uid:\t1007\nThreads:\t90",
                "72/status": "Threads:\t70",
                "loadavg": "1.5 2.5 3.5 4/777 9",
            },
            "proc",
        )
        at.put({"threads-max": 9_001, "pid_max": 8_002}, "proc/sys/kernel")
        soft = {
            resource.RLIMIT_NPROC: 101,
            resource.RLIMIT_AS: 102,
            resource.RLIMIT_DATA: 103,
            resource.RLIMIT_FSIZE: 104,
            resource.RLIMIT_NOFILE: 105,
            resource.RLIMIT_MEMLOCK: 106,
            resource.RLIMIT_STACK: 107,
            resource.RLIMIT_CPU: 108,
        }
        at.patch.setattr(
            resource, "getrlimit", lambda which: (soft.get(which, resource.RLIM_INFINITY), 9_999)
        )
        at.patch.setattr(os, "getuid", lambda: 1_007)
        at.patch.setattr(pwd, "getpwuid", lambda user: SimpleNamespace(pw_name=f"ada{user}"))
        at.patch.setattr(os, "cpu_count", lambda: 48)
        told.of("all", *limits.read_limits(root))
        told.of(
            "of bytes", *limits.byte_limits(), *limits.byte_limits("VmSize:\t 5 kB\nVmData:\t 6 kB")
        )
        found = kernel.read_limits(root)
        told.of(
            "granted",
            found.memlock_bytes,
            found.may_lock,
            found.files,
            found.stack_bytes,
            found.cpu_seconds,
            len(found.others),
        )
        for uid_map, caps, user in (
            ("0 0 4294967295", "0", 0),
            ("0 0 9", "4000", 0),
            ("0 0 4294967295", "1000000", 5),
            ("0 0 4294967295", "200000", 5),
            ("0 0 4294967295", "4000", 5),
        ):
            at.put({"uid_map": uid_map, "status": f"CapEff:\t{caps}"}, "proc/self")
            told.of(
                f"{uid_map} {caps} {user}",
                limits.is_exempt(user, root),
                kernel.read_limits(root).may_lock,
            )
        (root / "proc/sys/kernel/pid_max").unlink()
        (root / "proc/loadavg").unlink()
        soft.clear()
        told.of("none", *limits.read_limits(root), *limits.byte_limits())

        def unknown(user: int) -> Any:
            raise KeyError(user)

        at.patch.setattr(pwd, "getpwuid", unknown)
        told.of("nobody", limits._user_name(1_007))
        at.patch.setattr(
            limits,
            "task_limits",
            lambda: [Limit(Kind.USER_TASKS, 40, 37, "u")],
        )
        told.of(
            "too few",
            limits.why_too_few(4),
            limits.why_too_few(3),
            limits.too_few(5),
            limits.too_few(1),
        )
        for name, own, common in (("eth0", 1, 0), ("eth1", 0, 2), ("eth2", 0, 0)):
            at.put({"arp_ignore": own, "arp_announce": own * 2}, f"proc/sys/net/ipv4/conf/{name}")
            at.put({"arp_ignore": common, "arp_announce": common}, "proc/sys/net/ipv4/conf/all")
            told.of(f"{name} beside {common}", read_arp([name, "eth9"], root))
        for text in ("", "7", "7-9,11", "a,3", "3,4-"):
            at.put({"ip_local_reserved_ports": text}, "proc/sys/net/ipv4")
            told.of(f"reserved {text}", reserved_ports(root))
        return told


# --- evidence -------------------------------------------------------------------------------------

LOG = """\
<6>[   10.000001] begin
<3>[   20.500000] Out of memory: Killed process 6999 (other) total-vm:1kB
<3>[   21.000000] Memory cgroup out of memory: Killed process 70 (python3) total-vm:5kB
<3>[   21.500000] Memory cgroup out of memory: Killed process 71 (python3) total-vm:6kB
<4>[   22.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid='71', name=py, GPU has fallen off the bus.
<4>[   22.500000] NVRM: Xid (PCI:0000:5e:00): 31, pid=4444, name=x
<4>[   22.500000] NVRM: Xid (PCI:0000:5e:00): 31, pid=4444, name=x"""
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:733D 00000000:0000 01 0:0 00:0 0 1007 0 501 1
   1: 00000000:733D 00000000:0000 0A 0:0 00:0 0 1008 0 502 1
   2: 0100007F:733E 0100007F:9999 06 0:0 00:0 0 0 0 0 1
   3: 0100007F:733F 0100007F:9999 01 0:0 00:0 0 1009 0 503 1
   4: 0100007F:7340 0100007F:9999 0A 0:0 00:0 0 1010 0 599 1"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            {files}              1048576              files
Max processes             {tasks}              96365                processes
Max address space         unlimited            unlimited            bytes"""


def what_is_told_of_a_failure() -> Told:
    """By the kernel's log, groups, states, ports, limits, file systems and devices."""
    with tree() as at:
        of_version_2(at)
        told, root = at.told, at.root
        ranks = {9: 70, 11: 71, 12: 73}
        at.put(
            {"meminfo": "MemTotal:  64 kB\nMemAvailable: 21 kB", "vmstat": "a 1\noom_kill 4"},
            "proc",
        )
        before = Counters(
            watched(MEMORY, ["self", 70], root=root),
            watched(PIDS, ["self"], root=root),
            4,
            LOG.splitlines()[0],
        )
        asked: list[int] = []

        def read(most: int, text: str = LOG) -> str:
            asked.append(most)
            return text

        told.of("log alone", *look_kernel(before, ranks, root, read), asked=asked)
        later = Counters(before.memory, before.pids, 4, LOG.splitlines()[2])
        told.of("log from later on", *look_kernel(later, ranks, root, read))
        told.of("of others", *look_kernel(before, {3: 5}, root, read))
        told.of("no log", *look_kernel(Counters(before.memory), ranks, root, read))
        at.put({"vmstat": "oom_kill 9"}, "proc")
        told.of(
            "the machine",
            *look_kernel(before, {3: 5}, root, lambda _: ""),
            kills=kills_of_machine(root),
        )
        at.put({"memory.events": "oom_kill 16"}, "sys/fs/cgroup/pod/job/rank")
        told.of("a group", *look_kernel(before, ranks, root, read))
        told.of("a group, and no log", *look_kernel(Counters(before.memory), ranks, root, read))
        at.put({"pids.events": "max 24"}, "sys/fs/cgroup/pod/agent")
        told.of("tasks", *look_pids(before, ranks, root))
        for pid, letter in ((70, "D"), (71, "t"), (73, "S"), (74, "D")):
            at.put({"stat": f"{pid} (a) b) {letter} 1 2", "wchan": f"wait_{pid}"}, f"proc/{pid}")

        def slept(seconds: float) -> None:
            told.lines.append(f"@ sleeps {seconds}")
            at.put({"stat": "74 (a) R 1 2"}, "proc/74")
            at.put({"wchan": "later"}, "proc/70")

        told.of(
            "states", *processes.look_states({9: 70, 11: 71, 12: 73, 13: 74, 14: 99}, root, slept)
        )
        told.of("states again", *processes.look_states({11: 71, 12: 73}, root, slept))
        at.put({"tcp": TCP, "tcp6": ""}, "proc/net")
        at.put({"cmdline": "/usr/bin/python3\0serve.py\0", "comm": "python3"}, "proc/71")
        for pid, links in (
            (71, {"4": "socket:[502]", "5": "socket:[501]"}),
            (74, {"3": "socket:[503]", "9": "/x"}),
        ):
            for fd, target in links.items():
                link = root / f"proc/{pid}/fd/{fd}"
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(target)
        ports = (29_502, 29_501, 29_503, 29_504, 29_505, 0, 70_000)
        told.of("ports", *processes.look_ports(ports, ranks, root))
        moments = iter(range(9))
        told.of(
            "ports, in no time",
            *processes.look_ports(ports, ranks, root, lambda: float(next(moments))),
        )
        told.of("no port", processes.look_ports((0,), ranks, root))
        at.patch.setattr(os, "getuid", lambda: 1_007)
        at.put(
            {
                "70/limits": LIMITS.format(files=1_024, tasks=55),
                "71/limits": LIMITS.format(files=1_024, tasks=56),
                "self/limits": LIMITS.format(files=7, tasks="unlimited"),
            },
            "proc",
        )
        at.put({"status": "Uid:\t1007\nThreads:\t3"}, "proc/70")
        told.of("limits", *processes.look_limits(ranks, root))
        told.of("limits of none", *processes.look_limits({5: 98}, root))
        at.patch.setattr(processes, "is_exempt", lambda user, root: True)
        told.of("limits of root", *processes.look_limits(ranks, root))
        many = [fact(FactKind.PORT, value=n) for n in range(10)] + [
            fact(FactKind.GPU, words=str(n)) for n in range(9)
        ]
        told.of("chosen", [f"{one.kind} {one.value:g} {one.words}" for one in chosen(many)])
        sick = (
            Gpu(0, "a", "GPU-a", ecc_errors=3, throttled=0x49),
            Gpu(1, problem="lost"),
            Gpu(2, "c", "", recovery="to restart"),
            Gpu(3, "d", "GPU-d", is_foreign=True, ecc_errors=9),
        )
        told.of("GPUs", *devices.gpu_facts(sick))
        printed = "\n".join(
            [
                json.dumps([0, 4, "/dev/shm", 300, 9_000, 5, 6]),
                json.dumps([1, 2, "/data", 1 << 19, 1 << 30, 0, 60]),
                json.dumps([2, 2, "/data/x", 1 << 18, 1 << 30, 7, 60]),
                json.dumps([3, errno.ESTALE, "Stale file handle"]),
                json.dumps([4, errno.EACCES, "Permission denied"]),
                json.dumps([6, 8, "/big", 3 << 30, 4_000 << 30, 1, 1])[:-3],
                json.dumps([7, 9, "/big", 3 << 30, 4_000 << 30, 0, 0]),
            ]
        )
        paths = [f"/p{n}" for n in range(9)]
        told.of("places", *place_facts(paths, printed))
        told.of("places to the end", *place_facts(paths, f"{printed}\nend"))
        at.patch.setattr(aside, "ask", _asked(told, Answer("", "")))
        told.of(
            "asked",
            places.look_places(
                ("/work", "relative", "/tmp"),
                ("out.pt", "/data/x", "/work", "", "a\0b", "x" * 5_000),
                1.5,
                "/shm",
            ),
        )
        told.of("asked of nothing", places.look_places(("relative",), ("out.pt",), 1.5))
        return told.of("nothing", Asked(), chosen([]))


# --- RDMA and interfaces --------------------------------------------------------------------------


def which_ports_there_are() -> Told:
    """Machines with ports that are down, slow, without a manager, or not given to them."""
    with tree() as at:
        told = at.told
        for name, build, how in (
            (
                "nd",
                nd_h100_v5,
                {
                    "bad": {
                        2: DOWN,
                        3: UNMANAGED,
                        5: SLOW,
                        6: {"state": "3: ARMED", "phys_state": "2: Polling"},
                    },
                    "without_uverbs": [7],
                },
            ),
            ("roce", roce_8x400, {"bad": {1: DOWN}}),
        ):
            root = at.root / name
            addresses = build(root, node=7, **how)
            told.of(name, *look_rdma(root))
            told.of(f"{name}: interfaces", *look(root, links=links_of(root, addresses)).interfaces)
            told.of(f"{name}: counters", error_counters(root))
        for wish in (GidWish("IPv6"), GidWish(index=2), GidWish(index=9)):
            told.of(
                f"{wish}",
                *(
                    f"{p.device} {p.gid_index} {p.gid_type} {p.problem}"
                    for p in look_rdma(at.root / "roce", wish)[:3]
                ),
            )
        root = at.root / "tcp"
        told.of("tcp", *look(root, links=links_of(root, tcp_only(root))).interfaces)
        printed = "mlx5_1\tlibrary\tno driver\nmlx5_0\t\t\nmlx5_2\t\tfails\n"
        at.patch.setattr(aside, "ask", _asked(told, Answer(printed, "late")))
        told.of(
            "opened",
            open_devices(["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"], 1.5),
            open_devices([], 1.5),
        )
        for visible in (
            "0,1",
            "1, 0",
            "0,0",
            "0,9,1",
            "",
            "GPU-a,MIG-b",
            "MIG-a,MIG-b",
            "-1,0",
            "x",
        ):
            told.of(
                f"visible {visible}",
                *(interfaces._count_visible(visible, present) for present in (2, 1)),
            )
        return told


class Door:
    """In place of a socket: which ways there are, and which addresses."""

    def __init__(self, told: Told, *kind: Any) -> None:
        self.told, self.kind, self.peer = told, kind, ""

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        self.told.lines.append("@ closed")

    def connect(self, peer: tuple[str, int]) -> None:
        """No packet is sent."""
        self.told.lines.append(f"@ {[*map(int, self.kind)]} to {peer}")
        if peer[0].startswith("10.1."):
            raise OSError(errno.ENETUNREACH, "no way")
        self.peer = peer[0]

    def bind(self, place: tuple[str, int]) -> None:
        """Whether it is there."""
        self.told.lines.append(f"@ {[*map(int, self.kind)]} at {place}")
        if place[0].endswith("9"):
            raise OSError(errno.EADDRNOTAVAIL, "gone")
        if place[0].endswith("8"):
            raise OSError(errno.EACCES, "refused")

    def getsockname(self) -> tuple[str, int]:
        """The own address on the way."""
        return f"fe80::{len(self.peer)}%eth0", 5


def _dumped(kind: int, form: object) -> Iterator[tuple[tuple[int, ...], dict[int, bytes]]]:
    """What the kernel lists: a way from one address to another has both."""
    if kind == netlink._GET_ADDRESS:
        yield (2, 32, 0, 0, 7), {netlink._LOCAL: b"\12\0\0\5", netlink._PEER: b"\12\0\0\6"}
        yield (10, 64, 0, 0, 3), {netlink._PEER: b"\xfd" + bytes(14) + b"\4"}
        yield (2, 24, 0, 0, 3), {netlink._LOCAL: b"\12\1\0\5"}
        yield (17, 0, 0, 0, 3), {netlink._LOCAL: b"\1\2\3\4"}
        yield (2, 24, 0, 0, 3), {}
    else:
        mtu = (1_400).to_bytes(4, sys.byteorder)
        yield (0, 0, 7, 0x43, 0), {netlink._NAME: b"ppp0\0", netlink._MTU: mtu}
        yield (0, 0, 3, 0x03, 0), {netlink._NAME: b"eth10\0"}


def which_ways_lead_there() -> Told:
    """To a registry of several addresses; and why an address that was offered cannot be used."""
    told = Told()
    places = [(2, 2, 17, "", (f"10.{n}.0.1", 9)) for n in (1, 2, 3)]
    with pytest.MonkeyPatch.context() as patch:
        for answer in (places, places[:1], OSError(5, "no"), UnicodeError("no")):
            stand_in = Instead(told, socket, getaddrinfo=answer)
            stand_in.__dict__["socket"] = lambda *kind: Door(told, *kind)
            patch.setattr(interfaces, "socket", stand_in)
            told.of("source", interfaces.route_source("registry"))
        link = netlink.Link(False, 1_500, 0, ())
        links: Any = {"eth1": link, "eth2": replace(link, is_running=True)}
        for address, name in (
            *(("10.0.0.9", "eth1"), ("10.0.0.8", "eth1"), ("10.0.0.7", "eth1")),
            *(("fd00::7", "eth2"), ("10.0.0.7", "eth9")),
        ):
            patch.setattr(interfaces, "netlink", Instead(told, netlink, links=links))
            told.of(f"{address} {name}", interfaces.why_unusable(address, name))
        patch.setattr(netlink, "_dump", _dumped)
        patch.setattr(netlink, "_speed", lambda name: 1_000 * len(name))
        told.of("links", *(f"{name} {one}" for name, one in netlink.links().items()))
        patch.setattr(interfaces, "netlink", Instead(told, netlink, links=OSError(1, "no")))
        told.of("no links", interfaces.why_unusable("10.0.0.7", "eth1"))
        names = [(1, "lo"), (2, "eth1")]
        patch.setattr(interfaces, "socket", Instead(told, socket, if_nameindex=names))
        patch.setattr(interfaces, "os", Instead(told, os, listdir=["mlx5_1"]))
        told.of("names", interfaces.device_names())
        patch.setattr(interfaces, "socket", Instead(told, socket, if_nameindex=OSError(1, "no")))
        told.of("names without a list", interfaces.device_names())
        patch.setattr(interfaces, "os", Instead(told, os, listdir=OSError(1, "no")))
        return told.of("no names", interfaces.device_names())


class Kernel(socket.socket):
    """What answers over rtnetlink: whole pieces, one after another."""

    told: Told
    answers: tuple[list[bytes], ...] = ()

    def send(self, data: bytes, *_: Any) -> int:  # type: ignore[override]
        """What is asked: its fixed part, and how much follows."""
        asked = netlink._HEADER.unpack_from(data)
        self.told.lines.append(f"@ asked {asked} and {data[netlink._HEADER.size :].hex()}")
        kind = asked[1]
        self.left = [
            piece for answer in self.answers for piece in answer[:-1] if answer[-1][0] == kind
        ]
        return len(data)

    def recv(self, most: int, *_: Any) -> bytes:
        """The next piece."""
        return self.left.pop(0)


def _message(kind: int, body: bytes) -> bytes:
    """One part of an answer, which begins at a whole word."""
    length = netlink._HEADER.size + len(body)
    return netlink._HEADER.pack(length, kind, 2, 1, 0) + body + bytes(-length % 4)


def _with(form: Any, fixed: tuple[int, ...], **named: bytes) -> bytes:
    """A fixed part, with attributes."""
    said = form.pack(*fixed)
    for name, value in named.items():
        number, length = getattr(netlink, f"_{name}"), 4 + len(value)
        said += netlink._ATTRIBUTE.pack(length, number) + value + bytes(-length % 4)
    return bytes(said)


def what_the_kernel_lists() -> Told:
    """Over several pieces of several parts each; and where it refuses."""
    told, link, address = Told(), netlink._LINK, netlink._ADDRESS
    over = _message(netlink._DONE, bytes(4))
    mtu, most = ((n).to_bytes(4, sys.byteorder) for n in (9_000, 65_536))
    links = [
        _message(16, _with(link, (0, 772, 1, 0x49, 0), NAME=b"lo\0", MTU=most))
        + _message(16, _with(link, (0, 1, 7, 0x03, 0), NAME=b"eth10\0", MTU=mtu)),
        _message(16, _with(link, (0, 1, 3, 0x43, 0), MTU=mtu, NAME=b"ib0\0")),
        _message(16, _with(link, (0, 1, 9, 0x43, 0), NAME=b"tun\0")) + over,
    ]
    addresses = [
        _message(20, _with(address, (2, 8, 0, 0, 1), PEER=b"\x7f\0\0\1", LOCAL=b"\x7f\0\0\1"))
        + _message(20, _with(address, (2, 24, 0, 0, 3), PEER=b"\12\4\0\6", LOCAL=b"\12\4\0\5")),
        _message(20, _with(address, (10, 64, 0, 0, 3), PEER=b"\xfd" + bytes(14) + b"\4"))
        + _message(20, _with(address, (2, 16, 0, 0, 7), LOCAL=b"\12\5\0\5")),
        over,
    ]
    speeds = {"ib0": (0x86A0, 1), "eth10": (0xFFFF, 0xFFFF), "lo": (10, 0)}

    def ioctl(_: object, number: int, request: bytes) -> int:
        name, place = struct.unpack("16sP", request)
        name = name.rstrip(b"\0").decode()
        told.lines.append(f"@ ioctl {number:#x} {name} {ctypes.string_at(place, 44).hex()}")
        if name not in speeds:
            raise OSError(95, "no")
        low, high = speeds[name]
        ctypes.memmove(place + 12, low.to_bytes(2, sys.byteorder), 2)
        ctypes.memmove(place + 28, high.to_bytes(2, sys.byteorder), 2)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        Kernel.told = told
        stand_in = Instead(told, socket)
        stand_in.__dict__["socket"] = Kernel
        patch.setattr(netlink, "socket", stand_in)
        patch.setattr(netlink, "fcntl", Instead(Told(), netlink.fcntl, ioctl=ioctl))  # type: ignore[attr-defined]
        link_kind, address_kind = bytes([netlink._GET_LINK]), bytes([netlink._GET_ADDRESS])
        Kernel.answers = ([*links, link_kind], [*addresses, address_kind])
        told.of("links", *(f"{name} {one}" for name, one in netlink.links().items()))
        refused = _message(netlink._ERROR, (-13).to_bytes(4, sys.byteorder, signed=True))
        for answers in (
            ([refused, address_kind],),
            ([*addresses, address_kind], [links[0], refused, link_kind]),
        ):
            Kernel.answers = answers
            try:
                told.of("refused", netlink.links())
            except OSError as exc:
                told.of("refused", exc.errno, exc.strerror)
    return told


# --- side by side ---------------------------------------------------------------------------------


class Later:
    """In place of `_Later`: what is asked at once, or never."""

    told: Told
    late: tuple[int, ...] = ()
    count = 0

    def __init__(self, ask: Callable[[], Any], default: Any, deadline: float) -> None:
        Later.count += 1
        number = Later.count
        self.told.lines.append(f"@ question {number} until {deadline:g}, else {default}")
        self.answer = default if number in self.late else ask()

    def get(self) -> Any:
        """The answer."""
        return self.answer


def how_a_machine_is_looked_at() -> Told:
    """Each question with its limit; answers that come, and that do not."""
    told = Told()
    with tree() as at:
        at.patch.setattr(Later, "told", told, raising=False)
        at.patch.setattr(surroundings, "_Later", Later)
        at.patch.setattr(surroundings, "time", SimpleNamespace(monotonic=lambda: 50.0))
        ports = [
            RdmaPort(device="mlx5_0"),
            RdmaPort(device="mlx5_1", problem="down"),
            RdmaPort(device="mlx5_0", port=2),
            RdmaPort(device="rdmap7", link_layer="Unknown"),
        ]
        calls = {
            "count_gpus": lambda root, environ: 5 if not environ else 3,
            "_disks": (surroundings.Disk("/work", 7, 9),),
            "_read_files": lambda *given: surroundings._Files(
                UserPython("/py", "3.12", "2.9", "12.8", "2.27"),
                FILES_GIVEN,
                frozenset({"NCCL_TOPO_FILE"}),
                "7" * 64,
            ),
            "_addresses_of": ("10.0.0.4",),
            "look_rdma": lambda *given: ports if len(given) == 1 else ports[:3],
            "error_counters": lambda root: {"mlx5_0:1": {"link_downed": Later.count}},
            "look_gpus": lambda limit: Gpus(
                "570.9", (Gpu(0, "H100", "GPU-a"), Gpu(1, "H100", "GPU-b"), Gpu(2, problem="lost"))
            ),
            "_load": lambda names, limit: dict.fromkeys(names, ""),
            "_quick": lambda root, nodes: surroundings.Surroundings(
                hostname="gpu-4", gpu_nodes=nodes
            ),
            "count_cpus": 48,
            "rdzv_version": "9.9",
        }
        for name, answer in calls.items():
            stand_in = Instead(told, surroundings, **{name: answer})
            at.patch.setattr(surroundings, name, getattr(stand_in, name))
        opener = Instead(
            told, rdma, open_devices=lambda names, limit: {"mlx5_0": rdma.Unopened("closed")}
        )
        at.patch.setattr(surroundings, "rdma", opener)
        at.patch.setattr(surroundings, "_HOST", at.root)
        at.patch.setattr(socket, "gethostname", lambda: "gpu-4")
        at.put({"boot_id": "boot-7"}, "proc/sys/kernel/random")
        at.put({"machine-id": "m-7"}, "etc")
        for what, late, how in (
            ("all answer", (), {}),
            ("a person waits", (), {"resolve": True, "probe": "sync", "limit_seconds": 10.0}),
            ("nobody answers", tuple(range(1, 12)), {"resolve": True}),
        ):
            at.patch.setattr(Later, "late", late)
            at.patch.setattr(Later, "count", 0)
            told.of(what)
            environ = {"TMPDIR": "/scratch", "CUDA_VISIBLE_DEVICES": "1"}
            found = surroundings.look_around(
                "torchrun", ["a.py"], environ, folders=[Path("/logs")], root=at.root, **how
            )
            told.of("found", *(f"{name}={value}" for name, value in _set(found)))
    told.lines = [
        line.replace(str(at.root), "ROOT").replace(os.getcwd(), "HERE") for line in told.lines
    ]
    return told


FILES_GIVEN = {"NCCL_IB_HCA": Given("^mlx5_1"), "NCCL_IB_GID_INDEX": Given("3")}


def _set(found: Any) -> Iterator[tuple[str, object]]:
    for name in found.__match_args__:
        value = getattr(found, name)
        if value not in (None, (), {}, "", frozenset(), 0) and name not in ("network", "requested"):
            yield name, value


def what_else_is_looked_at() -> Told:
    """Scripts, hosts, disks and libraries, as they are and as their probes say."""
    with tree() as at:
        told, root = at.told, at.root
        at.put({"a.py": "x", "b.sh": "y", "c.txt": "z"})
        (root / "d.py").write_text("")
        for words in (
            ["a.py", "b.sh"],
            ["gone.py", "b.sh"],
            ["c.txt"],
            ["d.py", "a.py"],
            ["x\0.py", "b.sh"],
            [],
        ):
            told.of(
                f"{words}", surroundings._script_digest([str(root / word) for word in words])[:12]
            )
        at.put(
            {
                "hosts": "127.0.0.1 localhost\n10.0.0.4 gpu-4 GPU-4.x # gpu-9\nbad gpu-4\n"
                "::1 gpu-4 gpu-4\n10.0.0.4 gpu-4"
            },
            "etc",
        )
        for name in ("GPU-4", "gpu-9", "localhost", "other"):
            told.of(
                name,
                surroundings._in_hosts_file(name, root),
                surroundings._addresses_of(name, root, False),
            )
        answers: list[Any] = [
            [
                (2, 1, 6, "", ("10.0.0.4", 0)),
                (10, 1, 6, "", ("fe80::1%eth0", 0, 0, 2)),
                (2, 1, 6, "", ("10.0.0.4", 0)),
            ],
            OSError(5, "no"),
            UnicodeError("no"),
        ]
        for answer in answers:
            at.patch.setattr(surroundings, "socket", Instead(told, socket, getaddrinfo=answer))
            told.of("resolved", surroundings._addresses_of("gpu-4", root, True))
        flags = os.ST_RDONLY
        spaces: dict[str, Any] = {
            "/ok": SimpleNamespace(f_bavail=30, f_blocks=70, f_frsize=512, f_flag=0),
            "/ro": SimpleNamespace(f_bavail=31, f_blocks=71, f_frsize=512, f_flag=flags | 8),
            "/no": OSError(errno.EACCES, "Permission denied"),
            "/odd": OSError("odd"),
        }

        def statvfs(path: Path) -> Any:
            found = spaces[str(path)]
            if isinstance(found, OSError):
                raise found
            return found

        at.patch.setattr(surroundings, "os", Instead(Told(), os, statvfs=statvfs))
        paths = [Path(name) for name in ("/ok", "/ro", "/ok", "/no", "/odd")]
        told.of("space", *surroundings._disks(paths, "space", 1.5))
        for text in (
            "",
            "\n",
            '\n[1, 5, 6, 0, ""]\n[0, 7, 8, 13, "Permission denied"]\n[2, 9',
            '\n[2, 0, 0, 5, "I/O error"]\n',
        ):
            at.patch.setattr(aside, "ask", _asked(told, Answer(text, "late")))
            told.of(f"disks {text!r}", *surroundings._disks(paths, "write", 1.5))
        for text, problem in (
            ("a\t\nb\tcannot\n", "late"),
            ("a\t\n", "late"),
            ("", ""),
            ("b\t\n", ""),
        ):
            at.patch.setattr(aside, "ask", _asked(told, Answer(text, problem)))
            told.of(
                f"libraries {text!r}",
                surroundings._load(["a", "b"], 2.5),
                surroundings._load([], 2.5),
            )
        return told


def _asked(told: Told, answer: Answer) -> Callable[..., Answer]:
    def ask(program: Path, *given: str, limit_seconds: float) -> Answer:
        told.lines.append(f"@ {program.name} {given} {limit_seconds}")
        return answer

    return ask


# --- what is told of it ---------------------------------------------------------------------------


class Client:
    """In place of a registry's client."""

    told: Told
    answers: list[Any]

    def __init__(self, place: Any, token: Any) -> None:
        self.place, self.token = place, token
        self.told.lines.append(f"@ to {place.addresses} {place.proof.hex()[:6]} as {token.slot}")

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.told.lines.append("@ closed")

    @staticmethod
    def pause(*_: object) -> float:
        """Between tries."""
        return 2.0

    async def refuse(self, run: str, slot: int, words: Any) -> None:
        """Heard, or not."""
        self.told.lines.append(
            f"@ {run} {slot} {words.code} {words.reason} {words.of_slot} {words.retryable}"
        )
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


def how_a_node_says_that_it_does_not_join() -> Told:
    """To its registry, until it is heard; and to whoever has another key."""
    told = Told()
    own = join()
    pins = {"10.0.0.1:1": "ab" * 32, "10.0.0.2:2": "cd" * 32}
    cases: dict[str, tuple[Exception, list[Any], dict[str, Any]]] = {
        "heard": (UsageError("no GPU"), [], {}),
        "heard later": (
            RdzvError("away"),
            [Unavailable("not yet"), Unavailable("nor now")],
            {"of_slot": False},
        ),
        "not taken": (UsageError("no GPU"), [RegistryError("unknown call")], {}),
        "never": (UsageError("no GPU"), [Unavailable("away")] * 99, {"seconds": 9.0}),
        "another key": (OtherKey("other", pins=pins), [None, RegistryError("no")], {}),
        "another key, first away": (OtherKey("other", pins=pins), [RegistryError("no")], {}),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "told", told, raising=False)
        patch.setattr(refusal, "RegistryClient", Client)
        patch.setattr(socket, "gethostname", lambda: "gpu-4")
        patch.setattr(refusal, "logger", _Logger(told))
        for what, (error, answers, how) in cases.items():
            told.of(what)
            patch.setattr(Client, "answers", answers, raising=False)
            client: Any = Client(own.place, own.token)
            run_virtually(refuse(client, own, error, **how))
        told.of("alone")
        patch.setattr(Client, "answers", [], raising=False)
        run_virtually(refuse_alone(own, UsageError("no GPU")))
    return told


class _Logger:
    def __init__(self, told: Told) -> None:
        self.told = told

    def warning(self, text: str, *words: object) -> None:
        """Told."""
        self.told.lines.append(f"W {text % words}")

    def debug(self, text: str, *words: object) -> None:
        """Told."""
        self.told.lines.append(f"D {text % words}")


def what_nccls_logs_say_as_they_grow() -> Told:
    """Two processes' logs, one of which is begun anew; and what was there before."""
    info = "n1:1:1 [0] NCCL INFO "
    with tree() as at:
        told, folder = at.told, at.root
        (folder / "n.1.log").write_text(f"{info}Using network Socket\n")
        log = NcclLog(str(folder / "n.%p.log"), "IB")
        steps: list[tuple[str, str, str]] = [
            ("2", "a", f"{info}NET/IB : Using [0]mlx5_0:1/IB [RO]\n{info}Using netw"),
            ("3", "a", f"{info}Using network Socket\n"),
            *[("", "", "")] * 2,
            ("2", "a", f"ork IB\n{info}Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"),
            *[("", "", "")] * 4,
            ("2", "a", f"{info}Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"),
            *[("", "", "")] * 3,
            ("3", "w", f"{info}x\n"),
            *[("", "", "")] * 3,
            (
                "1",
                "w",
                f"{info}NCCL_NET set by environment to IB\n{info}Error: network IB not found.\n",
            ),
            *[("", "", "")] * 3,
        ]
        for number, mode, words in steps:
            if mode:
                with (folder / f"n.{number}.log").open(mode) as file:
                    file.write(words)
            told.of(f"{number} {mode}", *log.look())
        told.of("trouble", log.trouble())
        told.of("heard", *(one.heard for one in log._files.values()))
        required = NcclLog(str(folder / "n.%p.log"), "", required=True)
        (folder / "n.4.log").write_text(
            f"{info}Using network Socket\n{info}Error: network not found\n"
        )
        return told.of("required", *required.look(), trouble=required.trouble())


COURSES = {
    one.__name__: one
    for one in (
        *(what_groups_count, what_groups_of_version_1_count, which_limits_hold),
        *(what_is_told_of_a_failure, which_ports_there_are, how_a_machine_is_looked_at),
        which_ways_lead_there,
        what_the_kernel_lists,
        *(what_else_is_looked_at, how_a_node_says_that_it_does_not_join),
        what_nccls_logs_say_as_they_grow,
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_read(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
