"""The checks of a node on itself: a machine on which one thing is wrong, and what is said of it."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.node import Finding
from tests.support.machines import GIB, HEALTHY, VIRTUAL, candidate, complaint, complaints, machine
from tests.worker.test_rdma_checks import NO_FAULT as RDMA_NO_FAULT
from tests.worker.test_rdma_checks import WRONG as RDMA_WRONG
from worker.machine.cpus import Cpus
from worker.machine.gpus import Gpu, Gpus
from worker.machine.kernel import Arp, Clock
from worker.machine.shortage import Kind as LimitKind
from worker.machine.shortage import Limit
from worker.machine.surroundings import NO_ANSWER, Disk, Surroundings
from worker.preflight.checks import NODE_CHECKS, check_node, worth_telling

GONE = "No such file or directory"
MIB = 1 << 20
UNREMAPPED = Gpu(0, "NVIDIA H100", "GPU-0", remap_failed=True)
FLIPPED = Gpu(0, "NVIDIA H100", "GPU-0", ecc_errors=2)


def gpus(*changes: Gpu) -> Gpus:
    """Eight GPUs, these in place of the first ones."""
    assert HEALTHY.gpus is not None
    return replace(HEALTHY.gpus, gpus=(*changes, *HEALTHY.gpus.gpus[len(changes) :]))


def limits(**changes: Any) -> Any:
    assert HEALTHY.limits is not None
    return replace(HEALTHY.limits, **changes)


# ---- all is well --------------------------------------------------------------------------------


def test_of_a_healthy_machine_every_check_says_what_is_good() -> None:
    found = {finding.check: finding for finding in check_node(HEALTHY)}
    assert [*found] == [check.id for check in NODE_CHECKS]
    assert {f.level for f in found.values()} == {"ok", "skipped"}
    assert all(finding.value for finding in found.values())
    assert found["L06"].value == "8 x 400 Gb/sec (4X NDR)"
    assert found["L16"].value == "8 x NVIDIA H100, no problems"
    assert found["L18"].value == "/work 500 GiB free, /tmp 500 GiB free"


@pytest.mark.parametrize(("files", "words"), [(70_000, "70000"), (None, "any number of")])
def test_how_many_files_may_be_open_is_said(files: int | None, words: str) -> None:
    [found] = [f for f in check_node(machine(limits=limits(files=files))) if f.check == "L15"]
    assert (found.level, found.value) == ("ok", f"{words} open files")


def test_what_could_not_be_found_out_is_not_held_against_the_machine() -> None:
    bare = Surroundings(candidates=HEALTHY.candidates)
    assert complaints(bare) == []
    levels = {finding.check: finding.level for finding in check_node(bare)}
    assert levels["L02"] == levels["L15"] == levels["L16"] == levels["L19"] == "skipped"


@pytest.mark.parametrize("check", ["L01", "L18"])
def test_a_check_that_is_skipped_says_so_and_nothing_else(check: str) -> None:
    broken = Surroundings(address_problem=("no address", "bring one up"))
    [found] = [f for f in check_node(broken, skip=[check]) if f.check == check]
    assert (found.level, found.value) == ("skipped", "not asked for (--skip)")


# ---- one thing is wrong -------------------------------------------------------------------------

UNSET = Clock(is_synchronised=False, error_seconds=16.0)


def on(*disks: Disk, **how: Any) -> dict[str, Any]:
    return {"disks": disks, **how}


def lacks(path: str, number: int) -> Disk:
    return Disk(path, 0, 0, os.strerror(number), number)


def shm(free: int, total: int) -> Disk:
    return Disk("/dev/shm", free, total)


def name_is(*addresses: str, **how: Any) -> dict[str, Any]:
    return {"hostname_addresses": addresses, **how}


def lacks_of(*others: Limit, **how: Any) -> dict[str, Any]:
    """A machine with these limits."""
    return {"limits": limits(others=others), **how}


SCRATCH = "/scratch/slurm.7"
NO_WRITE = {"is_hosts_writable": False}
SILENT = {"hostname_addresses": None, "is_name_server_silent": True}
NOBODY = {"candidates": (), "address_problem": ("this node has no address", "bring one up")}
TWO = {
    "candidates": (candidate(), candidate("eth1", "10.0.0.5")),
    "arp": {"eth0": Arp(), "eth1": Arp(1, 2)},
}
TWO_WITH_ONE_ADDRESS = (candidate(), candidate("eth1"))
LATE = Gpus(problem="NVML: no answer within 1 s", is_late=True)
OTHER_LIBRARY = Gpus(problem="NVML: Driver/library version mismatch")
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("L01 fail | | this node has no address", NOBODY),
    ("L01 warn | docker0 | 172.17.0.1 (docker0)", {"candidates": (VIRTUAL,)}),
    ("L02 warn | gpu-17 | 127.0.1.1", name_is("127.0.1.1", hosts="off")),
    ("L02 warn | gpu-17 | 127.0.1.1, 10.0.0.4", name_is("127.0.1.1", "10.0.0.4", **NO_WRITE)),
    ("L02 warn | gpu-17 | ::1", name_is("::1", hosts="require", **NO_WRITE)),
    ("L02 warn | gpu-17 | resolves to nothing", name_is(hosts="off")),
    (f"L02 warn | gpu-17 | {NO_ANSWER}", SILENT),
    ("L02 warn | a.b | 127.0.1.1", {"hostname": "a.b", **name_is("127.0.1.1")}),
    ("L02 warn | localhost | every machine's own name", {"hostname": "localhost"}),
    ("L02 warn | a..b | label empty", {"hostname": "a..b", "hostname_error": "label empty"}),
    (
        "L02 fail | a..b | label empty",
        {"hostname": "a..b", "hostname_error": "label empty", "looks_up_name": True},
    ),
    (
        "L02 fail | a..b | label empty",
        {"hostname": "a..b", "hostname_error": "label empty", "looks_up_name": True, "loopback": 1},
    ),
    ("L03 warn | port 29500 | taken by another program", {"is_master_port_free": False}),
    ("L03 warn | port 40000 | inside 32768 to 60999", {"master_port": 40_000}),
    ("L14 fail | /dev/shm | 64 MiB free of 64 MiB", {"shm": shm(64 * MIB, 64 * MIB)}),
    ("L14 fail | /dev/shm | 100 MiB free of 8 GiB", {"shm": shm(100 * MIB, 8 * GIB)}),
    ("L14 warn | /dev/shm | 512 MiB free of 512 MiB", {"shm": shm(512 * MIB, 512 * MIB)}),
    ("L15 warn | ulimit -n | 1024", {"limits": limits(files=1024)}),
    ("L15 warn | ulimit -s | unlimited", {"limits": limits(stack_bytes=None)}),
    ("L15 warn | ulimit -t | 60 s", {"limits": limits(cpu_seconds=60)}),
    (
        (
            "L15 warn | ulimit -u | user 'ada' may have 70 processes and threads (ulimit -u), and "
            "has 7"
        ),
        {"limits": limits(others=(Limit(LimitKind.USER_TASKS, 70, 7, "user 'ada'"),)), "nproc": 8},
    ),
    (
        (
            "L15 warn | pids.max | the control group /cg may have 9 processes and threads "
            "(pids.max), and has 2"
        ),
        {"limits": limits(others=(Limit(LimitKind.GROUP_TASKS, 9, 2, "/cg"),)), "nproc": 1},
    ),
    (
        (
            "L15 warn | ulimit -v | this process may use 8 GiB of address space (ulimit -v), and "
            "uses 1 GiB"
        ),
        {"limits": limits(others=(Limit(LimitKind.ADDRESS_SPACE, 8 * GIB, GIB),))},
    ),
    (
        "L15 warn | ulimit -f | this process may write files of at most 4096 bytes (ulimit -f)",
        {"limits": limits(others=(Limit(LimitKind.FILE_SIZE, 4096),))},
    ),
    ("L16 warn | GPUs | 7 of 8", {"gpus": Gpus("570", gpus().gpus[1:])}),
    ("L16 fail | GPU 0 | GPU is lost", {"gpus": gpus(Gpu(0, problem="GPU is lost"))}),
    (f"L16 fail | GPU 0 | {UNREMAPPED.problems[0][0]}", {"gpus": gpus(UNREMAPPED)}),
    (f"L16 warn | GPU 0 | {FLIPPED.problems[0][0]}", {"gpus": gpus(FLIPPED)}),
    (f"L16 fail | GPU driver | {OTHER_LIBRARY.problem}", {"gpus": OTHER_LIBRARY}),
    (f"L16 warn | GPU driver | {LATE.problem}", {"gpus": LATE}),
    ("L16 warn | --nproc-per-node | 16 processes and 8 GPUs", {"nproc": 16}),
    ("L18 warn | /work | 10 MiB free of 900 GiB", on(Disk("/work", 10 * MIB, 900 * GIB))),
    ("L18 fail | /tmp | 10 MiB free of 900 GiB", on(Disk("/tmp", 10 * MIB, 900 * GIB))),
    ("L18 fail | /tmp7 | 0 MiB free of 1 GiB", on(Disk("/tmp7", 0, GIB), temporary="/tmp7")),
    ("L18 warn | /work | 40 GiB free of 900 GiB", on(Disk("/work", 40 * GIB, 900 * GIB))),
    ("L18 warn | /work | Read-only file system", on(lacks("/work", errno.EROFS))),
    ("L18 fail | /tmp | Read-only file system", on(lacks("/tmp", errno.EROFS))),
    (f"L18 warn | {SCRATCH} | {GONE}", on(lacks(SCRATCH, errno.ENOENT), temporary=SCRATCH)),
    (f"L18 warn | /tmp | {NO_ANSWER}", on(Disk("/tmp", problem=NO_ANSWER))),
    ("L19 warn | clock | not synchronised", {"clock": UNSET}),
    ("L21 warn | eth0, eth1 | all in 10.0.0.0/24", TWO),
]


@pytest.mark.parametrize(("words", "changes"), [*WRONG, *RDMA_WRONG])
def test_what_is_wrong_is_named_with_what_is_right_and_how_to_get_there(
    words: str, changes: dict[str, Any]
) -> None:
    here, said = machine(**changes), complaint(words)
    assert complaints(here) == [said]
    [found] = [f for f in check_node(here) if f.level == said[1]]
    assert found.expected
    assert found.fix
    assert found.cause or found.check == "L01"


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"shm": shm(128 * MIB - 1, GIB)}, "fail"),
        ({"shm": shm(128 * MIB, GIB - 1)}, "warn"),
        ({"limits": limits(files=65_535)}, "warn"),
        (lacks_of(Limit(LimitKind.USER_TASKS, 71, 8, "user 'ada'"), nproc=8), "warn"),
        *(
            (lacks_of(Limit(kind, value - 1)), "warn")
            for kind, value in (
                *((LimitKind.ADDRESS_SPACE, 16 * GIB), (LimitKind.DATA, 4 * GIB)),
                (LimitKind.FILE_SIZE, GIB),
            )
        ),
        ({"limits": limits(cpus=Cpus(2, 48, "its CPU set")), "nproc": 3}, "warn"),
        (on(Disk("/work", GIB - 1, 5 * GIB)), "warn"),
        (on(Disk("/work", 50 * GIB - 1, 9_000 * GIB)), "warn"),
        (on(Disk("/tmp", 64 * MIB, GIB)), "warn"),
        (on(Disk("/tmp", 64 * MIB - 1, GIB)), "fail"),
        (TWO | {"arp": {"eth0": Arp(1, 1), "eth1": Arp(1, 2)}}, "warn"),
        (TWO | {"arp": {"eth0": Arp(0, 2), "eth1": Arp(1, 2)}}, "warn"),
        # Of GPUs that are gone while others are sick, the sick ones say enough.
        ({"gpus": replace(gpus(), gpus=gpus(FLIPPED).gpus[:5])}, "warn"),
    ],
)
def test_just_too_little_is_complained_of_once(changes: dict[str, Any], level: str) -> None:
    assert [found for _, found, _, _ in complaints(machine(**changes))] == [level]


def test_every_check_is_seen_to_complain() -> None:
    complained = {words[:3] for words, _ in (*WRONG, *RDMA_WRONG)}
    assert complained == {check.id for check in NODE_CHECKS} - {"L17"}  # see test_variables


@pytest.mark.parametrize(
    ("low", "high", "advice"),
    [
        (1_025, 65_535, "use --master-port 1024, or a smaller one"),
        (1_024, 60_999, "use --master-port 61000, or a larger one"),
        (1_024, 65_535, "leave ports out of the range"),
    ],
)
def test_a_port_beside_those_of_outgoing_connections_is_advised(
    low: int, high: int, advice: str
) -> None:
    [found] = worth_telling(check_node(machine(master_port=29_500, ephemeral=(low, high))))
    assert found.fix.startswith(advice)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (name_is("10.0.0.4", "10.0.0.5"), "10.0.0.4"),
        (name_is("127.0.1.1"), "127.0.1.1; rdzv corrects it for the run"),
    ],
)
def test_where_the_own_name_leads_is_said(changes: dict[str, Any], words: str) -> None:
    [found] = [f for f in check_node(machine(**changes)) if f.check == "L02"]
    assert (found.level, found.subject, found.value) == ("ok", "gpu-17", words)


# ---- what is no fault ---------------------------------------------------------------------------

NO_FAULT: dict[str, dict[str, Any]] = {
    "a name that rdzv corrects": name_is("127.0.1.1"),
    "all nodes on this machine": name_is("127.0.1.1", clock=UNSET, loopback=True),
    "half a terabyte left": on(Disk("/work", 500 * GIB, 9_000 * GIB)),
    "a file system without storage": on(Disk("/sys", 0, 0)),
    "not rank 0": {"master_port": None, "is_master_port_free": None},
    "no nvidia-ml-py": {"gpus": Gpus(problem="nvidia-ml-py is not installed", is_absent=True)},
    "interfaces that answer for themselves": TWO | {"arp": {"eth0": Arp(1, 2), "eth1": Arp(1, 2)}},
    "two addresses of one interface": {
        "candidates": (candidate(), candidate("eth0", "10.0.0.5")),
        "arp": {"eth0": Arp()},
    },
    "just enough shared memory": {"shm": shm(128 * MIB, GIB)},
    "just enough files": {"limits": limits(files=65_536)},
    "just enough processes": lacks_of(Limit(LimitKind.USER_TASKS, 72, 8, "user 'ada'"), nproc=8),
    "just enough memory": lacks_of(
        Limit(LimitKind.ADDRESS_SPACE, 16 * GIB),
        Limit(LimitKind.DATA, 4 * GIB),
        Limit(LimitKind.FILE_SIZE, GIB),
    ),
    "just enough CPUs": {"limits": limits(cpus=Cpus(2, 48, "its CPU set")), "nproc": 2},
    "just enough room": on(Disk("/work", GIB, 5 * GIB), Disk("/b", 50 * GIB, 9_000 * GIB)),
    "a driver and no GPU": {"gpus": OTHER_LIBRARY, "gpus_seen": 0, "gpu_nodes": 0},
    "addresses of a host each": {
        "candidates": tuple(replace(one, prefix_length=32) for one in TWO_WITH_ONE_ADDRESS),
        "arp": {"eth0": Arp(), "eth1": Arp()},
    },
    "few files and no GPUs": {"limits": limits(files=20_000), "gpus_seen": 0, "gpu_nodes": 0},
}


@pytest.mark.parametrize(
    "changes",
    [*NO_FAULT.values(), *RDMA_NO_FAULT.values()],
    ids=[*NO_FAULT, *RDMA_NO_FAULT],
)
def test_what_is_no_fault_is_not_complained_of(changes: dict[str, Any]) -> None:
    assert complaints(machine(**changes)) == []


@pytest.mark.parametrize(("number", "level"), [(1, "warn"), (2, "fail")])
def test_a_small_shm_is_no_failure_where_no_gpus_talk_through_it(number: int, level: str) -> None:
    small = machine(shm=shm(64 * MIB, 64 * MIB))
    found = complaints(replace(small, facts=replace(small.facts, gpus=number)))
    assert [level for check, level, _, _ in found if check == "L14"] == [level]


def test_where_there_is_no_folder_to_check_this_is_said() -> None:
    values = {found.check: found.value for found in check_node(machine(disks=()))}
    assert values["L18"] == "no folder to check"


# ---- what is told -------------------------------------------------------------------------------


def test_a_join_tells_failures_first_and_never_more_than_it_may_carry() -> None:
    many = [Finding(check="L04", level="warn", value=str(i)) for i in range(70)]
    grave = Finding(check="L01", level="fail", value="no address")
    fine = Finding(check="L02", level="ok", value="good")
    told = worth_telling([fine, *many, grave])
    assert told == [grave, *many[:63]]


def test_odd_words_of_the_machine_are_made_fit_to_be_told() -> None:
    odd = "a\nb\x1b[2J" + "c" * 5_000
    here = machine(disks=(Disk(odd, problem=odd),), hostname=odd, **name_is(hosts="off"))
    told = worth_telling(check_node(here))
    assert {finding.check for finding in told} == {"L02", "L18"}
    assert all("\n" not in f.subject and "\x1b" not in f.value for f in told)


def test_a_sick_gpu_that_the_program_will_not_see_is_told_and_fails_nobody() -> None:
    sick = gpus(UNREMAPPED, Gpu(1, problem="GPU is lost"))
    here = machine(gpus=sick, hidden_gpus=frozenset({0, 1}))
    [found] = [finding for finding in check_node(here) if finding.check == "L16"]
    words = "6 x NVIDIA H100, no problems; GPU 0, 1, which this job does not use, has some"
    assert (found.level, found.value) == ("ok", words)
    seen = replace(here, hidden_gpus=frozenset({1}))
    assert complaints(seen) == [("L16", "fail", "GPU 0", UNREMAPPED.problems[0][0])]


def test_gpus_outside_the_jobs_device_cgroup_are_not_judged() -> None:
    others = Gpu(0, problem="Insufficient Permissions", is_foreign=True)
    assert complaints(machine(gpus=gpus(others))) == []
