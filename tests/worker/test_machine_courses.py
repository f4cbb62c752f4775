"""What a node makes of its machine, and says of it, is as in `machine_courses.txt`.

Checks, offers, limits, GPUs and NCCL's words: of each situation (*) whole findings and sentences
(-), where they are not those of a healthy machine. Who changes one writes the file anew (`make
reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.errors import AddressError, ArmingFailed, RdzvError, UsageError
from rendezvous.wire.node import LinkKind
from tests.support.courses import lines_in, text_of
from tests.support.fake_sysfs import IPOIB, LOOPBACK, NONE
from tests.support.machines import GIB, HEALTHY, VIRTUAL, candidate, efa, machine, port, roce
from tests.worker.test_nccl import heard
from tests.worker.test_preflight import FLIPPED, UNREMAPPED, gpus, limits, name_is, on, shm
from tests.worker.test_preflight import NO_FAULT as NO_FAULT_HERE
from tests.worker.test_preflight import WRONG as WRONG_HERE
from tests.worker.test_rdma_checks import EIGHT, LOCKED, half_rate
from tests.worker.test_rdma_checks import NO_FAULT as NO_RDMA_FAULT
from tests.worker.test_rdma_checks import WRONG as WRONG_RDMA
from tests.worker.told import Told
from worker.machine import shortage
from worker.machine.cpus import Cpus
from worker.machine.gpus import Gpu, Gpus, hidden_gpus, uuids_of, visible_gpus
from worker.machine.kernel import Arp, Clock
from worker.machine.network import Interface, Network, RdmaKind
from worker.machine.rdma import Unopened, chosen, opened
from worker.machine.shortage import Kind, Limit, Short
from worker.machine.surroundings import EFA_LIBRARIES, Disk, rises
from worker.nccl.verdict import Heard, judge
from worker.offer.address import choose_candidates
from worker.offer.refusal import refusal_of
from worker.preflight.checks import check_node, worth_telling

KNOWN = Path(__file__).with_name("machine_courses.txt")
MIB = 1 << 20
FINDINGS = {one.check: one for one in check_node(HEALTHY)}


def findings(told: Told, what: str, changes: Mapping[str, Any], skip: tuple[str, ...] = ()) -> None:
    """Those that are not as on the healthy machine."""
    found = check_node(machine(**changes), skip)
    told.of(what, *(one for one in found if one != FINDINGS[one.check]))


# --- checks ---------------------------------------------------------------------------------------


def lacks(*limits_of: Limit, **changes: Any) -> dict[str, Any]:
    """A machine with these limits."""
    return {"limits": limits(others=limits_of)} | changes


def subnets(*places: str, arp: Mapping[str, Arp] | None = None) -> dict[str, Any]:
    """Interfaces with these addresses, each written as NAME=ADDRESS/PREFIX."""
    found = []
    for place in places:
        name, _, cidr = place.partition("=")
        address, _, length = cidr.partition("/")
        found.append(replace(candidate(name, address), prefix_length=int(length)))
    return {"candidates": tuple(found), "arp": arp or {}}


LOOP = replace(candidate("lo", "127.0.0.3"), prefix_length=8, kind=LinkKind.LOOPBACK)
TASKS = Limit(Kind.USER_TASKS, 103, 40, "user 'ada'")
CARDS = {"rdma": [roce(2), roce(5)], "network": Network((Interface("eth0"), Interface("ib1")))}
HERE: dict[str, dict[str, Any]] = {
    "three addresses": {"candidates": (candidate(), candidate("eth1", "10.1.0.5"), VIRTUAL)},
    "a bridge first": {"candidates": (VIRTUAL, candidate("eth1", "10.1.0.5"))},
    "two bridges": {"candidates": (VIRTUAL, replace(VIRTUAL, address="172.18.0.1"))},
    "no address and no name": {"candidates": (), **name_is(hosts="off")},
    "a name of two places": name_is("10.0.0.4", "10.0.0.5"),
    "a name of five places": name_is(*(f"127.0.0.{n}" for n in range(1, 6)), hosts="off"),
    "a name that is corrected": name_is("127.0.1.1", "10.0.0.4"),
    "a name that a run does not ask for": {"hostname_addresses": None},
    "a silent name server": {"hostname_addresses": None, "is_name_server_silent": True},
    "a port just outside": {"master_port": 61_000},
    "the last port of them": {"master_port": 60_999},
    "the first port of them": {"master_port": 32_768},
    "a port in a low range": {"master_port": 29_500, "ephemeral": (900, 40_000)},
    "a port in a range from the first on": {"master_port": 29_500, "ephemeral": (1_024, 65_535)},
    "a port above the first range": {"master_port": 29_500, "ephemeral": (1_025, 65_535)},
    "shared memory that just does": {"shm": shm(128 * MIB, GIB)},
    "shared memory that nearly does": {"shm": shm(128 * MIB - 1, GIB)},
    "shared memory of less": {"shm": shm(900 * MIB, GIB - 1)},
    "no shared memory": {"shm": None},
    "nothing known of limits": {"limits": None},
    "files that just do": {"limits": limits(files=65_536)},
    "files that nearly do": {"limits": limits(files=65_535)},
    "files without GPUs": {"limits": limits(files=4_095), "gpus_seen": 0, "gpu_nodes": 0},
    "any number of files": {"limits": limits(files=None)},
    "several limits": {
        "limits": limits(files=1, stack_bytes=None, cpu_seconds=77, others=(TASKS,)),
        "nproc": 8,
    },
    "tasks that just do": lacks(TASKS, nproc=7),
    "tasks for one": lacks(Limit(Kind.MACHINE_TASKS, 47, 40, "kernel.pid_max"), nproc=None),
    "memory that just does": lacks(
        Limit(Kind.ADDRESS_SPACE, 16 * GIB), Limit(Kind.DATA, 4 * GIB), Limit(Kind.FILE_SIZE, GIB)
    ),
    "memory that nearly does": lacks(
        Limit(Kind.ADDRESS_SPACE, 16 * GIB - 1, 5 * GIB),
        Limit(Kind.DATA, 4 * GIB - 1, 3 * MIB),
        Limit(Kind.FILE_SIZE, GIB - 1),
    ),
    "CPUs held back": {"limits": limits(cpus=Cpus(2, 48, "its CPU set")), "nproc": 3},
    "CPUs held back for fewer": {"limits": limits(cpus=Cpus(2, 48, "its CPU set")), "nproc": 2},
    "CPUs for more than there are": {"limits": limits(cpus=Cpus(4, 4)), "nproc": 9},
    "a GPU of another job": {"gpus": gpus(Gpu(0, problem="No", is_foreign=True)), "gpu_nodes": 7},
    "GPUs that are gone": {"gpus": replace(gpus(), gpus=gpus().gpus[3:])},
    "GPUs that are gone or sick": {"gpus": replace(gpus(FLIPPED), gpus=gpus(FLIPPED).gpus[:5])},
    "GPUs of two kinds of sick": {"gpus": gpus(UNREMAPPED, replace(FLIPPED, index=1))},
    "sick GPUs that are hidden": {
        "gpus": gpus(UNREMAPPED, replace(FLIPPED, index=1)),
        "hidden_gpus": frozenset({1, 2}),
    },
    "GPUs without a name": {"gpus": replace(gpus(), gpus=(Gpu(0), Gpu(1))), "gpu_nodes": 2},
    "no GPU at all": {"gpus": None, "gpu_nodes": 0, "gpus_seen": 0},
    "fewer GPUs than processes": {"nproc": 5, "gpus_seen": 4},
    "no NVML": {"gpus": Gpus(problem="not installed", is_absent=True)},
    "no folder": {"disks": ()},
    "room that just does": on(Disk("/work", GIB, 5 * GIB), Disk("/b", 50 * GIB, 9_000 * GIB)),
    "room that nearly does": on(Disk("/work", GIB - 1, 5 * GIB), Disk("/b", 49 * GIB, 600 * GIB)),
    "a temporary folder with little": on(Disk("/tmp", 64 * MIB, GIB), Disk("/t", MIB, GIB)),
    "a temporary folder with less": on(Disk("/tmp", 64 * MIB - 1, GIB), temporary="/tmp"),
    "a silent disk and a refusing one": on(
        Disk("/work", problem="no answer in time"), Disk("/tmp", problem="No", code=errno.EACCES)
    ),
    "a clock nobody knows": {"clock": None},
    "a clock of one machine": {"clock": Clock(False, 3.0), "loopback": True},
    "a clock within less": {"clock": Clock(True, 0.0123456)},
    "subnets that are shared": subnets(
        *("eth0=10.0.0.4/24", "eth1=10.0.0.5/24", "eth2=10.0.0.6/24", "eth3=10.3.0.6/16"),
        *("eth0=10.3.0.7/16", "eth3=10.3.0.8/16", "eth4=10.9.0.8/32", "eth5=10.9.0.8/32"),
        arp={"eth0": Arp(1, 2), "eth1": Arp(1, 1), "eth2": Arp(1, 2), "eth3": Arp(2, 2)},
    ),
    "subnets that are shared well": subnets("eth0=10.0.0.4/24", "eth1=10.0.0.5/24"),
    "subnets of IPv6, and of loopback": {
        "candidates": (
            *subnets("eth0=fd00::4/64", "eth1=fd00::5/64")["candidates"],
            *(LOOP, replace(LOOP, interface="lo1", address="127.0.0.4")),
        ),
        "arp": {},
    },
}
OF_RDMA: dict[str, dict[str, Any]] = {
    "two down, one not linked, one not configured": {
        "rdma": [
            *(port(0, state="DOWN", phys_state="Polling"), port(1, state="DOWN", phys_state="")),
            *(port(2, phys_state="LinkErrorRecovery"), port(3, state="INIT", lid=0), *EIGHT[4:]),
        ]
    },
    "more that are down than are named": {
        "rdma": [*(port(n, state="DOWN", phys_state="Polling") for n in range(6)), *EIGHT[6:]]
    },
    "a port without a state": {"rdma": [port(0, state="", phys_state=""), *EIGHT[1:]]},
    "LIDs that cannot be read": {"rdma": [port(0, lid=0), *EIGHT[1:]]},
    "no LIDs, by two managers": {
        "rdma": [port(0, lid=0, sm_lid=4, problem="no LID"), port(1, state="ARMED"), *EIGHT[2:]]
    },
    "half of them at half the rate": {"rdma": [*EIGHT[:4], *map(half_rate, range(4, 8))]},
    "one lane of all": {
        "rdma": [port(n, rate_gbps=100.0, rate="100 Gb/sec (1X NDR)") for n in (0, 1)]
    },
    "no rate": {"rdma": [port(0, rate_gbps=0.0, rate="")]},
    "a sick one of four": {"rdma": [*EIGHT[:3], half_rate(3)]},
    "partitions": {"rdma": [port(0, pkeys=[0x7FFF, 0x801D]), port(1, pkeys=[0x7FFF] * 6)]},
    "no partition is known": {"rdma": [port(0, pkeys=[])]},
    "RoCE": {"rdma": [roce(0, gid_index=5), roce(1), roce(2, gid_index=3)]},
    "RoCE at an index": {"rdma": [roce(n) for n in range(3)], "given": {"NCCL_IB_GID_INDEX": "3"}},
    "RoCE of which some lack it": {
        "rdma": [roce(0), roce(1, gid_index=None), roce(2, gid_index=None)],
        "given": {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_ADDR_FAMILY": "AF_INET6"},
    },
    "RoCE of IPv6": {
        "rdma": [roce(0), roce(1, gid_index=None), roce(2)],
        "given": {"NCCL_IB_ADDR_FAMILY": "AF_INET6"},
    },
    "two cards of an accelerated kind": {
        "rdma": [roce(0, gid_index=None, interface="eth1"), port(4, device="ib4")],
        "network": Network((Interface("eth0"), Interface("eth1", master="eth0"))),
    },
    "devices that are closed": {
        "rdma": [port(0, openable=False), port(1, openable=False, problem="no"), *EIGHT[2:]],
        "unopened": {"mlx5_1": Unopened("no", lacks_library=True)},
    },
    "a library that lacks one": {
        "rdma": [port(0, openable=False, problem="no driver"), port(1, problem="x"), port(2)],
        "unopened": {
            "mlx5_0": Unopened("no driver", lacks_library=True),
            "mlx5_1": Unopened("x", lacks_library=True),
        },
    },
    "EFA without an answer": {"rdma": [efa(0), efa(1)], "libraries": {}},
    "EFA with a plugin": {
        "rdma": [efa(3)],
        "libraries": {EFA_LIBRARIES[0]: "no", EFA_LIBRARIES[2]: ""},
        "given": {"NCCL_NET_PLUGIN": "ofi"},
    },
    "EFA with a plugin alone": {
        "rdma": [efa(3)],
        "libraries": dict.fromkeys(EFA_LIBRARIES, "no"),
        "given": {"NCCL_NET_PLUGIN": "ofi"},
    },
    "locked memory that may grow": {"limits": replace(LOCKED, may_lock=True)},
    "locked memory that just does": {"limits": replace(LOCKED, memlock_bytes=GIB)},
    "locked memory that nearly does": {"limits": replace(LOCKED, memlock_bytes=GIB - 1)},
    "no direct way, and no port": {"is_direct": False, "rdma": [port(0, problem="no")]},
    "no direct way, and no GPU": {"is_direct": False, "gpu_nodes": 0},
    "errors of two ports": {
        "rdma_errors": {
            "mlx5_3:1": {"link_downed": 3, "symbol_error": 70},
            "mlx5_5:2": {"link_error_recovery": 1},
        }
    },
    "required without GPUs": {
        "rdma": [port(0, state="INIT", lid=0, sm_lid=7)],
        "gpus_seen": 0,
        "gpu_nodes": 0,
        "require_rdma": True,
    },
    "two plain cards": {"rdma": [roce(n, gid_index=None) for n in (0, 1)]},
    "switched off": {"rdma": [port(0, lid=0, problem="no")], "given": {"NCCL_IB_DISABLE": "1"}},
    "enough that are up": {
        "rdma": [*EIGHT[:2], port(2, state="DOWN"), port(3, state="DOWN")],
        "gpu_nodes": 2,
    },
    "a number that is none of a machine": {
        "rdma": [*EIGHT[:3], port(3, state="DOWN")],
        "gpu_nodes": 2,
    },
}
BY_VARIABLES: dict[str, dict[str, Any]] = {
    "lists": {
        "given": {
            "NCCL_SOCKET_IFNAME": "ens,ib",
            "GLOO_SOCKET_IFNAME": "eth0,eth9",
            "TP_SOCKET_IFNAME": "eth1",
        }
    },
    "lists without GPUs": {
        "given": {"NCCL_SOCKET_IFNAME": "ens", "GLOO_SOCKET_IFNAME": "eth9"},
        "gpus_seen": 0,
        "gpu_nodes": 0,
    },
    "of interfaces that are down": {
        "given": {"GLOO_SOCKET_IFNAME": "eth1"},
        "network": Network((Interface("eth0"), Interface("eth1", is_running=False))),
    },
    "both switches": {"given": {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}},
    "both, and RDMA is asked for": {
        "given": {"NCCL_IB_DISABLE": "0", "NCCL_NET": "Socket"},
        "require_rdma": True,
    },
    "IB without a port": {
        "given": {"NCCL_NET": "IBext"},
        "rdma": [port(0, problem="no")],
        "gpus_seen": 0,
    },
    "devices that are not there": {
        "given": {"NCCL_IB_HCA": "=mlx5_8", "NCCL_IB_GID_INDEX": "3"},
        "gpus_seen": 0,
    },
    "an index": CARDS | {"given": {"NCCL_IB_GID_INDEX": "3"}, "nccl": "2.21.0"},
    "an index before": CARDS | {"given": {"NCCL_IB_GID_INDEX": "3"}, "nccl": "2.20.9"},
    "no index": CARDS | {"given": {"NCCL_IB_GID_INDEX": "-1"}},
    "a file": {
        "given": {"NCCL_TOPO_FILE": "/x.xml", "NCCL_DEBUG": "INFO", "TP_SOCKET_IFNAME": "eth1"}
    },
    "a file that is not there": {
        "given": {"NCCL_TOPO_FILE": "/x.xml"},
        "missing_files": frozenset({"NCCL_TOPO_FILE"}),
        "vendor": "Microsoft Corporation",
    },
    "no file": {"vendor": "Microsoft Corporation", "loopback": True},
    "no file where one is needed": {"vendor": "Microsoft Corporation"},
}


def all_is_well() -> Told:
    """Each check of the healthy machine, and of one of which nothing is known."""
    told = Told().of("healthy", *FINDINGS.values())
    findings(told, "two are skipped", {"candidates": ()}, ("L01", "L18"))
    bare: dict[str, Any] = {
        "rdma": [],
        **dict.fromkeys(("gpus", "limits", "shm", "clock", "hostname_addresses"), None),
    }
    findings(told, "unknown", {**bare, "disks": (), "gpu_nodes": 0, "gpus_seen": 0})
    return told


def one_thing_is_wrong() -> Told:
    """The machines of `test_preflight` and `test_rdma_checks`, with a fault each."""
    told = Told()
    for words, changes in (*WRONG_HERE, *WRONG_RDMA):
        findings(told, words, changes)
    return told


def nothing_is_wrong() -> Told:
    """Their machines without one."""
    told = Told()
    for words, changes in (NO_FAULT_HERE | NO_RDMA_FAULT).items():
        findings(told, words, changes)
    return told


def at_the_borders() -> Told:
    """Several things at once, and just so much, of the node itself."""
    told = Told()
    for words, changes in HERE.items():
        findings(told, words, changes)
    many = [one for changes in HERE.values() for one in check_node(machine(**changes))]
    return told.of("worth telling", [f"{one.level} {one.check}" for one in worth_telling(many)])


def at_the_borders_of_rdma() -> Told:
    """Of its ports, and of what NCCL is told."""
    told = Told()
    for words, changes in (OF_RDMA | BY_VARIABLES).items():
        findings(told, words, changes)
    return told


# --- what is offered ------------------------------------------------------------------------------

KIND, OTHER = RdmaKind("InfiniBand", "MT4129"), RdmaKind("Ethernet", "MT4125")
LO = Interface("lo", ("127.0.0.1/8", "::1/128"), link_type=LOOPBACK, mtu=65_536)
BUSY = Network(
    (
        LO,
        Interface(
            "eth1", ("10.1.0.5/24", "fd00:1::5/64", "fe80::5/64"), mtu=1_500, speed_mbps=2_500
        ),
        Interface("eth0", ("10.0.0.4/20",), mtu=9_000, is_physical=True, speed_mbps=100_000),
        Interface(
            "ib0", ("172.16.1.4/16",), link_type=IPOIB, mtu=2_044, rdma=KIND, is_physical=True
        ),
        Interface("ib1", (), link_type=IPOIB, rdma=KIND),
        Interface("rdma0", ("10.7.0.4/24",), rdma=OTHER, speed_mbps=200_000, mtu=4_200),
        Interface("eth2", ("10.2.0.4/24",), carrier=False),
        Interface("eth3", ("10.3.0.4/24",), is_running=False),
        Interface("eth4", ("10.4.0.4/24",), master="bond0"),
        Interface("eth5", (), bridge="br0", master="br0"),
        Interface("br0", ("10.5.0.4/24",), is_bridge=True),
        Interface("wg0", ("10.6.0.4/24",), mtu=1_420),
        Interface("tailscale0", ("100.64.0.4/32", "fd7a::4/128"), link_type=NONE, mtu=1_280),
        Interface("docker0", ("172.17.0.1/16",), is_bridge=True),
        Interface("sit7", ("10.8.0.4/24",), link_type=NONE),
        Interface("ppp7", ("10.9.0.4/24",), link_type=NONE, is_physical=True),
    ),
    (KIND, KIND, OTHER),
)
FEW = Network((LO, Interface("docker0", ("172.17.0.1/16",), is_bridge=True)))
MANY = Network(
    tuple(Interface(f"eth{n}", (f"10.{n}.0.4/24", f"fd00:{n}::4/64")) for n in range(34)),
)


def what_is_offered() -> Told:
    """Of one busy machine and of poor ones, by preference, route and what is asked for."""
    told = Told()
    for what, network, how in _offers():
        given = {"route_source": None} | how
        try:
            choice = choose_candidates(network, **given)
        except AddressError as exc:
            told.of(what).refused(exc)
            continue
        told.of(what, *choice.candidates, skipped=choice.skipped, left_out=choice.left_out)
    return told


def _offers() -> Iterator[tuple[str, Network, dict[str, Any]]]:
    yield "busy", BUSY, {"route_source": "10.1.0.5"}
    yield "busy, ib", BUSY, {"prefer": "ib"}
    yield "busy, fastest", BUSY, {"prefer": "fastest", "route_source": "10.6.0.4"}
    yield "busy, by docker's way", BUSY, {"route_source": "172.17.0.1"}
    yield "busy, two kinds alike", replace(BUSY, rdma=(KIND, OTHER)), {}
    yield "busy, loopback", BUSY, {"loopback": True}
    for asked in (
        *(
            ("wg0",),
            ("eth4", "10.0.0.0/8"),
            ("172.16.1.4", "eth1", "eth1"),
            ("eth2",),
            ("fd00::/8",),
        ),
        *(("10.5.0.0/24",), ("10.99.0.0/16",), ("nonsense",), ("10.0.0.4/20", "10.0.0.4")),
    ):
        yield f"busy, asked for {' '.join(asked)}", BUSY, {"overrides": asked}
    for asked in (("127.0.0.3",), ("lo",), ("eth0",), ("128.0.0.1",)):
        yield f"loopback {asked[0]}", BUSY, {"overrides": asked, "loopback": True}
    yield "few", FEW, {}
    yield "loopback alone", Network((LO,)), {"route_source": "127.0.0.1"}
    yield "nothing", Network(()), {}
    yield "many", MANY, {"route_source": "10.33.0.4"}
    yield "many, none fits", MANY, {"overrides": ("eth99",)}


# --- limits, GPUs, ports, NCCL's words ------------------------------------------------------------


def because(error: Exception, cause: BaseException) -> Exception:
    """An error that came of another one."""
    error.__cause__ = cause
    return error


def which_limit_was_met() -> Told:
    """Limits that are nearly used up, errors that met them, and the words for both."""
    told = Told()
    some = [
        *(
            Limit(kind, 640, used, f"of {kind.value}")
            for kind, used in zip(Kind, _USED, strict=True)
        ),
    ]
    told.of("limits", *(f"{one.kind.value}: {one.words} / {one.hint}" for one in some))
    told.of("left", *(f"{one.kind.value} {one.left}" for one in some))
    edges = [
        *(Limit(Kind.USER_TASKS, 100, 84), Limit(Kind.USER_TASKS, 100, 83)),
        *(Limit(Kind.GROUP_TASKS, 800, 700), Limit(Kind.GROUP_TASKS, 800, 699)),
        *(Limit(Kind.FILES, 50, 42), Limit(Kind.FILES, 50, 41), Limit(Kind.FILES, 800, 700)),
        *(Limit(Kind.DATA, 400 * MIB, 300 * MIB), Limit(Kind.DATA, 400 * MIB, 299 * MIB)),
        *(
            Limit(Kind.ADDRESS_SPACE, 40 * MIB, 8 * MIB),
            Limit(Kind.ADDRESS_SPACE, 40 * MIB, 7 * MIB),
        ),
        *(Limit(Kind.FILE_SIZE, GIB), Limit(Kind.USER_TASKS, 3, 9)),
    ]
    told.of("near", *(f"{one.kind.value} {one.left} {shortage.is_near(one)}" for one in edges))
    for short in Short:
        told.of(short.value, shortage.met(short, edges), shortage.met(short, edges[::-1]))
    for needed in (16, 17, 100, 101):
        told.of(f"{needed} tasks", shortage.too_few_tasks(edges, needed))
    for error in _errors():
        for seen in ([], edges):
            told.of(f"{error!r} of {len(seen)}")
            found = shortage.refusal(error, seen)
            told.of("nothing") if found is None else told.refused(found)
    told.of("CPU time").refused(shortage.cpu_time_used_up(60, 58))
    return told.of("CPU time", shortage.cpu_time_met(60, 90), shortage.cpu_time_met(60, None))


_USED = (630, 640, 500, 633, 7, 8, 9, 10)


def _errors() -> Iterator[Exception]:
    yield RuntimeError("can't start new thread")
    yield BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    yield MemoryError()
    yield KeyError("x")
    for number in (errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.ENOENT):
        yield OSError(number, f"errno {number}")
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO):
        yield OSError(number, f"errno {number}", "/var/x")
    for number in (errno.ESTALE, errno.ENOTCONN, errno.ENOTDIR, errno.EISDIR, errno.ELOOP):
        yield OSError(number, f"errno {number}", "/var/y")
    yield because(RdzvError("rank 3 cannot be started"), MemoryError())
    yield because(RdzvError("it is over"), because(KeyError(4), OSError(errno.EMFILE, "open")))
    yield because(OSError(errno.EROFS, "read-only"), OSError(errno.EROFS, "read-only", "/etc/z"))


def what_is_told_of_an_error() -> Told:
    """A node that cannot take part, by what kept it."""
    told = Told()
    for error in (
        UsageError("no such option", hint="use another"),
        ArmingFailed("torch is missing", hint="install it"),
        AddressError("no address", hint="bring one up"),
        RdzvError("away"),
        KeyError("slot"),
    ):
        told.of(type(error).__name__, refusal_of(error, "gpu-4.example\n"))
    return told


SLICED = Gpu(2, "H100", "GPU-cc", slices=("MIG-c1", "MIG-c2", "MIG-GPU-cc/3/0"))
PRESENT = Gpus(
    "570.1",
    (
        Gpu(0, "H100", "GPU-aa", ecc_errors=3, recovery=2, fabric=1),  # type: ignore[arg-type]
        Gpu(1, problem="GPU is lost"),
        SLICED,
        Gpu(3, "H100", "GPU-dd", remap_pending=True, remap_failed=True),
        Gpu(4, problem="No permission", is_foreign=True),
        Gpu(5, "A100", "GPU-ee", throttled=8),
    ),
)


def which_gpus_are_seen() -> Told:
    """By what CUDA and the container are told; and what is wrong with which."""
    told = Told().of("all", *PRESENT.gpus, count=PRESENT.count, problems=PRESENT.problems)
    for cuda in (None, "", "0,2", "2,0", "GPU-dd", "GPU-d, 5", "GPU-zz,0", "MIG-c2,0", "7", "-1,0"):
        for container in (
            None,
            "all",
            "void",
            "GPU-aa,GPU-ee",
            "MIG-GPU-cc/3/0",
            "3",
            "0,1,2,3,4,5",
        ):
            if cuda is not None and container not in (None, "3"):
                continue
            given = {"CUDA_VISIBLE_DEVICES": cuda, "NVIDIA_VISIBLE_DEVICES": container}
            environ = {name: value for name, value in given.items() if value is not None}
            seen = visible_gpus(PRESENT, environ)
            told.of(
                f"CUDA {cuda}, container {container}",
                [f"{gpu.index} {gpu.slices}" if gpu.slices else f"{gpu.index}" for gpu in seen],
                uuids_of(seen),
                sorted(hidden_gpus(PRESENT, environ)),
            )
    return told.of("none", visible_gpus(None, {}), sorted(hidden_gpus(None, {})))


def what_becomes_of_ports() -> Told:
    """Those that cannot be opened, those that the user chooses, and counters that rise."""
    ports = [port(0), port(1, port=2), roce(2, problem="no GID"), efa(3), port(4, device="mlx5_10")]
    refused = {f"mlx5_{n}": Unopened(f"refused {n}", n == 1) for n in (1, 2, 3)}
    told = Told().of(
        "opened", *(f"{p.device} {p.openable} {p.problem}" for p in opened(ports, refused))
    )
    for words in (
        "",
        "mlx5_1",
        "=mlx5_1",
        "=mlx5_1:2,mlx5_0:2",
        "^mlx5_0",
        "^=mlx5_1:1",
        "mlx5_4,",
    ):
        told.of(
            f"chosen {words}", [f"{p.device}:{p.port} {p.chosen}" for p in chosen(ports, words)]
        )
    then = {"a:1": {"symbol_error": 7, "port_xmit_wait": 1}, "b:1": {"link_downed": 5}}
    now = {
        "a:1": {"symbol_error": 9, "port_xmit_wait": 9, "link_error_recovery": 4},
        "b:1": {"link_downed": 5},
        "c:1": {"link_downed": 3},
    }
    return told.of("rises", rises(then, now), rises(now, then))


def what_nccl_says_of_its_network() -> Told:
    """Real logs, alone and side by side, and what no log has had."""
    told = Told()
    names = [path.stem for path in sorted(KNOWN.with_name("nccl").glob("*.log"))]
    for name in names:
        told.of(name, heard(name))
        for expected, required in (
            ("IB", False),
            ("Socket", True),
            ("Libfabric", True),
            ("", False),
        ):
            words = [
                f"{v.kind} {v.level} {v.words}"
                for v in judge([heard(name)], expected, required=required)
            ]
            told.of(f"{name} for {expected or 'any'}{' required' * required}", *words)
    lost = Heard(asked="IBext", has_none=True, unopened="mlx5_3", direct_off=True)
    for what, some in {
        "one of three": [heard("ib"), heard("sockets"), heard("ib")],
        "all but one": [heard("sockets"), heard("ib"), heard("disabled")],
        "one lost": [lost, heard("ib"), Heard()],
        "one lost without a word": [Heard(has_none=True), heard("efa")],
        "direct and not": [heard("host_memory"), heard("ib"), heard("uneven")],
        "none direct": [heard("host_memory"), Heard(network="IB", direct_off=True)],
        "nothing": [Heard(), Heard(has_none=True, no_device=True)],
    }.items():
        told.of(what, *judge(some, "IB", required=False))
        told.of(f"{what}, required", *judge(some, "", required=True))
    return told


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: one
    for one in (
        *(all_is_well, one_thing_is_wrong, nothing_is_wrong, at_the_borders),
        *(at_the_borders_of_rdma, what_is_offered, which_limit_was_met, what_is_told_of_an_error),
        *(which_gpus_are_seen, what_becomes_of_ports, what_nccl_says_of_its_network),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_made_of_a_machine(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
