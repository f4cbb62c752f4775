"""The checks that a node makes on itself before the start: surroundings in, findings out.

Nothing is looked at here; `worker.machine` has done that. A level is `fail` only for what
would end or stall the training, so that a failure may end a run before it has begun.
docs/checks.md lists every check.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Collection, Iterator, Sequence

from rendezvous.wire.checks import Check, Kind
from rendezvous.wire.hostnames import is_everyones, is_valid_label
from rendezvous.wire.node import Finding, LinkKind
from rendezvous.wire.words import few
from worker.machine.gpus import Gpus
from worker.machine.shortage import TASK_KINDS, Limit
from worker.machine.shortage import Kind as LimitKind
from worker.machine.surroundings import NO_ANSWER, Disk, Surroundings
from worker.preflight.cpus import too_few_cpus
from worker.preflight.rdma import RDMA_JUDGES
from worker.preflight.variables import variables
from worker.preflight.verdict import GIB, MIB, Judge, Verdict, complaint, ok, room, skipped

_LEAST_SHM, _GOOD_SHM = 128 * MIB, GIB
_GOOD_FILES, _GOOD_FILES_WITHOUT_GPUS = 65_536, 4_096
_LEAST_DISK, _GOOD_DISK, _AMPLE_DISK = 64 * MIB, GIB, 50 * GIB
_FULL = 0.9
_TASKS_EACH = 8
_FIRST_PORT, _LAST_PORT = 1_024, 65_535
_LEAST_LIMIT = {
    LimitKind.ADDRESS_SPACE: 16 * GIB,
    LimitKind.DATA: 4 * GIB,
    LimitKind.FILE_SIZE: GIB,
}
_LIMIT_OPTION = {
    LimitKind.ADDRESS_SPACE: "-v",
    LimitKind.DATA: "-d",
    LimitKind.FILE_SIZE: "-f",
}
_LIMIT_CAUSE = {
    LimitKind.ADDRESS_SPACE: "torch and CUDA map far more address space than they use",
    LimitKind.DATA: "the program's memory counts as data",
    LimitKind.FILE_SIZE: "a checkpoint or a log that grows beyond it is cut off",
}
_ONE_MACHINE = "all nodes are on this machine"
_RENAME = (
    "give the node another hostname: hostnamectl set-hostname NAME, or --hostname of its container"
)
_MOST_TOLD = 64  # what a join may carry


def check_node(here: Surroundings, skip: Collection[str] = ()) -> list[Finding]:
    """Make all checks; those to be skipped say so."""
    findings = []
    for check in NODE_CHECKS:
        if check.id in skip:
            findings.append(Verdict("skipped", "not asked for (--skip)").finding(check))
        else:
            findings += [verdict.finding(check) for verdict in _JUDGES[check](here)]
    return findings


def worth_telling(findings: Sequence[Finding]) -> list[Finding]:
    """What a join tells the registry: failures first, then warnings, and no more than it takes."""
    bad = [finding for finding in findings if finding.level in ("fail", "warn")]
    return sorted(bad, key=lambda finding: finding.level)[:_MOST_TOLD]


def addresses(here: Surroundings) -> list[Verdict]:
    """L01: there is an address to offer."""
    message, hint = here.address_problem
    if not here.candidates:
        return [Verdict("fail", message, "", "an address that other nodes can reach", fix=hint)]
    first = here.candidates[0]
    words = f"{first.address} ({first.interface})"
    if all(one.kind is LinkKind.VIRTUAL for one in here.candidates):
        return complaint(
            "warn",
            words,
            first.interface,
            "an interface that leaves this machine",
            "this node has only bridges and tunnels, which other nodes might not reach",
            "give the container the host's network, or name the right interface: --interface NAME",
        )
    more = len(here.candidates) - 1
    return ok(f"{words} and {more} more" if more else words)


def own_name(here: Surroundings) -> list[Verdict]:
    """L02: the node's own hostname can be looked up, and does not lead to loopback where nobody
    corrects that."""
    found = here.hostname_addresses
    if here.hostname_error:
        return _impossible_name(here)
    if here.requested.loopback:
        return skipped(_ONE_MACHINE)
    if is_everyones(here.hostname):
        return complaint(
            "warn",
            "every machine's own name",
            here.hostname,
            "a hostname of this node's own",
            "a program that announces its own name sends the others to themselves",
            _RENAME,
        )
    if found is None and not here.is_name_server_silent:
        return skipped("not in /etc/hosts, and a run does not ask a name server")
    if found is None:
        return complaint(
            "warn",
            NO_ANSWER,
            here.hostname,
            "an address",
            "programs that look up their own name wait for a name server at every start",
            f"add a line to /etc/hosts: {_own_address(here)} {here.hostname}",
        )
    if found and not any(ipaddress.ip_address(address).is_loopback for address in found):
        return ok(found[0], here.hostname)
    value = few(found) or "resolves to nothing"
    is_corrected = here.requested.hosts != "off" and is_valid_label(here.hostname)
    if is_corrected and here.is_hosts_writable:
        return ok(f"{value}; rdzv corrects it for the run", here.hostname)
    return complaint(
        "warn",  # with --hosts require, arming tells why the file cannot be written
        value,
        here.hostname,
        "the node's own address",
        "a program that announces its own name announces a loopback address"
        if found
        else "a program that announces its own name cannot be found",
        f"add a line to /etc/hosts: {_own_address(here)} {here.hostname}",
    )


def _impossible_name(here: Surroundings) -> list[Verdict]:
    ends = here.requested.looks_up_name
    return complaint(
        "fail" if ends else "warn",
        here.hostname_error,
        here.hostname,
        "1 to 63 characters between its dots",
        "torchrun looks up its own hostname, and would end with a UnicodeError"
        if ends
        else "a Python program that looks up its own hostname ends with a UnicodeError",
        _RENAME,
    )


def _own_address(here: Surroundings) -> str:
    return here.candidates[0].address if here.candidates else "ADDRESS"


def master_port(here: Surroundings) -> list[Verdict]:
    """L03: the port of node 0 is free, and no outgoing connection will take it."""
    port, (low, high) = here.requested.master_port, here.ephemeral
    if port is None:
        return skipped("only node 0 listens")
    if here.is_master_port_free is False:
        return complaint(
            "warn",
            "taken by another program",
            f"port {port}",
            "a free port",
            "another run may still be running here; rdzv will use the next free port",
            f"find the program with ss -ltnp 'sport = :{port}', or choose another port with "
            "--master-port",
        )
    if low <= port <= high:
        return complaint(
            "warn",
            f"inside {low} to {high}",
            f"port {port}",
            "a port outside the ephemeral range",
            "any outgoing connection may take the port before torch listens on it",
            _port_outside(low, high),
        )
    return ok("free", f"port {port}")


def _port_outside(low: int, high: int) -> str:
    """Advise a port below those of outgoing connections, if one there needs no privilege."""
    if low > _FIRST_PORT:
        return f"use --master-port {low - 1}, or a smaller one"
    if high < _LAST_PORT:
        return f"use --master-port {high + 1}, or a larger one"
    return "leave ports out of the range: sysctl -w net.ipv4.ip_local_port_range='32768 60999'"


def shared_memory(here: Surroundings) -> list[Verdict]:
    """L14: NCCL and data loaders find room in /dev/shm."""
    shm = here.shm
    if shm is None or not shm.total_bytes:
        return skipped("no /dev/shm here")
    words = f"{room(shm.free_bytes)} free of {room(shm.total_bytes)}"
    if shm.free_bytes >= _LEAST_SHM and shm.total_bytes >= _GOOD_SHM:
        return ok(words)
    return complaint(
        "fail" if shm.free_bytes < _LEAST_SHM and here.facts.gpus > 1 else "warn",
        words,
        shm.path,
        "1 GiB or more",
        "NCCL between the GPUs of a node, and data loaders, keep their buffers there",
        "docker run --shm-size=16g (or --ipc=host); on Kubernetes, an emptyDir with "
        "medium: Memory at /dev/shm",
    )


def open_files(here: Surroundings) -> list[Verdict]:
    """L15: the limits of this process leave room for the program's."""
    limits, found = here.limits, []
    if limits is None:
        return skipped("the limits cannot be read here")
    enough = _GOOD_FILES if here.facts.gpus else _GOOD_FILES_WITHOUT_GPUS
    if limits.files is not None and limits.files < enough:
        found += complaint(
            "warn",
            str(limits.files),
            "ulimit -n",
            f"{enough} or more",
            "sockets and data loaders' files count as open files; large jobs run out of them",
            f"ulimit -n {enough}, or docker run --ulimit nofile={enough}",
        )
    if limits.stack_bytes is None:
        found += complaint(
            "warn",
            "unlimited",
            "ulimit -s",
            "8 MiB (8192)",
            "threads then get stacks of 2 MiB, too small for some of NCCL's",
            "ulimit -s 8192",
        )
    found += [verdict for limit in limits.others for verdict in _limit(limit, here)]
    if limits.cpu_seconds is not None:
        found += complaint(
            "warn",
            f"{limits.cpu_seconds} s",
            "ulimit -t",
            "unlimited",
            "the kernel ends each process that has used so much CPU time",
            "raise it where it is set: ulimit -t, cpu in /etc/security/limits.conf",
        )
    found += too_few_cpus(limits.cpus, here.requested.nproc or 1)
    return found or ok(f"{limits.files or 'any number of'} open files")


def _limit(limit: Limit, here: Surroundings) -> Iterator[Verdict]:
    """One of the limits that a start may meet: how much this program needs is only estimated."""
    processes = here.requested.nproc or 1
    if limit.kind in TASK_KINDS:
        if limit.left < processes * _TASKS_EACH:
            yield Verdict(
                "warn",
                limit.words,
                "pids.max" if limit.kind is LimitKind.GROUP_TASKS else "ulimit -u",
                f"{processes * _TASKS_EACH} left for {processes} rank{'s' * (processes != 1)}",
                "each rank starts its own threads for BLAS, gloo or NCCL and data loading",
                limit.hint,
            )
        return
    least = _LEAST_LIMIT.get(limit.kind)
    if least is not None and limit.value < least:
        yield Verdict(
            "warn",
            limit.words,
            f"ulimit {_LIMIT_OPTION[limit.kind]}",
            f"{room(least)} or more",
            _LIMIT_CAUSE[limit.kind],
            limit.hint,
        )


def gpus(here: Surroundings) -> list[Verdict]:
    """L16: the driver sees every GPU, and none asks for help."""
    driver, found = here.gpus, []
    if not here.gpu_nodes or driver is None:
        return skipped("no GPU")
    if driver.problem:
        return [_silent_driver(here, driver)]
    if driver.count < here.gpu_nodes and not any(gpu.problems for gpu in driver.gpus):
        found += complaint(
            "warn",
            f"{driver.count} of {here.gpu_nodes}",
            "GPUs",
            "every GPU that has a device node here",
            "this job was given only some of them, or the driver has lost one",
            "nvidia-smi; dmesg | grep -i xid; then restart the node",
        )
    found += [
        Verdict(
            level,
            words,
            f"GPU {index}",
            "a healthy GPU",
            "the training would end or go wrong on it",
            f"nvidia-smi -q -i {index}; then reset the GPU or restart the node",
        )
        for index, words, level in driver.problems
        if index not in here.hidden_gpus
    ]
    if here.requested.nproc is not None and here.requested.nproc > here.facts.gpus > 0:
        found += complaint(
            "warn",
            f"{here.requested.nproc} processes and {here.facts.gpus} GPUs",
            "--nproc-per-node",
            "a GPU for each process",
            "a process whose LOCAL_RANK has no GPU fails immediately",
            "use --nproc-per-node gpu, or check CUDA_VISIBLE_DEVICES",
        )
    used = [gpu for gpu in driver.gpus if gpu.index not in here.hidden_gpus and not gpu.problem]
    model = used[0].model if used else "GPU"
    return found or ok(f"{len(used)} x {model or 'GPU'}, no problems{_beside(here, driver)}")


def _beside(here: Surroundings, driver: Gpus) -> str:
    """What is said of sick GPUs that this job does not use."""
    told = dict.fromkeys(index for index, _, _ in driver.problems)
    sick = [str(index) for index in told if index in here.hidden_gpus]
    return f"; GPU {few(sick)}, which this job does not use, has some" if sick else ""


def _silent_driver(here: Surroundings, driver: Gpus) -> Verdict:
    # A container may have been given the GPUs without NVML (NVIDIA_DRIVER_CAPABILITIES=compute).
    if driver.is_absent:
        return Verdict("skipped", f"{here.gpu_nodes} GPUs, not asked: {driver.problem}")
    late = driver.is_late
    return Verdict(
        "warn" if late else "fail",
        driver.problem,
        "GPU driver",
        "an answer",
        "without persistence mode the driver starts again for every program"
        if late
        else "the driver will refuse the training as well",
        "nvidia-smi -pm 1" if late else "nvidia-smi; restart the container or the node",
    )


def disks(here: Surroundings) -> list[Verdict]:
    """L18: the program can write where it is likely to."""
    found = [verdict for disk in here.disks for verdict in _disk(disk, here)]
    return found or ok(
        ", ".join(f"{disk.path} {room(disk.free_bytes)} free" for disk in here.disks)
        or "no folder to check"
    )


def _disk(disk: Disk, here: Surroundings) -> Iterator[Verdict]:
    free, total = disk.free_bytes, disk.total_bytes
    is_temporary = disk.path == here.temporary
    if disk.problem:
        yield Verdict(
            # Where TMPDIR is missing (another node's, say), Python and the like take /tmp.
            "fail" if is_temporary and disk.code not in (0, errno.ENOENT) else "warn",
            disk.problem,
            disk.path,
            "a writable folder",
            "the disk is slow, or its server does not answer"
            if not disk.code
            else "the program cannot write there",
            "check its file system (df, mount)"
            + (", or set TMPDIR to another folder" if is_temporary else ""),
        )
    elif total and (free < _GOOD_DISK or (free < _AMPLE_DISK and free < total * (1 - _FULL))):
        yield Verdict(
            "fail" if is_temporary and free < _LEAST_DISK else "warn",
            f"{room(free)} free of {room(total)}",
            disk.path,
            "1 GiB free or more" if free < _GOOD_DISK else "less than 90 % used",
            "checkpoints and temporary files might not fit",
            f"make room: du -xh --max-depth=2 {disk.path} | sort -h | tail",
        )


def clock(here: Surroundings) -> list[Verdict]:
    """L19: somebody keeps the clock right."""
    found = here.clock
    if here.requested.loopback:
        return skipped(_ONE_MACHINE)
    if found is None:
        return skipped("the kernel does not report it here")
    if found.is_synchronised:
        return ok(f"synchronised, within {found.error_seconds:.3g} s")
    return complaint(
        "warn",
        "not synchronised",
        "clock",
        "synchronised by NTP or PTP",
        "logs and token expiry of the nodes drift apart",
        "on the host: systemctl enable --now chrony (or systemd-timesyncd)",
    )


def shared_subnets(here: Surroundings) -> list[Verdict]:
    """L21: where several interfaces share a subnet, each answers for itself alone."""
    by_network: dict[str, list[str]] = {}
    for one in here.candidates:
        if one.family == 4 and one.prefix_length < 32 and one.kind is not LinkKind.LOOPBACK:
            network = ipaddress.ip_interface(f"{one.address}/{one.prefix_length}").network
            names = by_network.setdefault(str(network), [])
            names += [one.interface] if one.interface not in names else []
    shared = {network: names for network, names in by_network.items() if len(names) > 1}
    mixed = {n: names for n, names in shared.items() if not _answer_alone(here, names)}
    if not mixed:
        return ok(
            few(f"{len(v)} interfaces in {n}" for n, v in shared.items()) or "no two share one"
        )
    return [
        Verdict(
            "warn",
            f"all in {network}",
            few(names),
            "arp_ignore=1 and arp_announce=2, or a separate route for each",
            "one interface answers for another, so a dead link looks alive",
            "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
        )
        for network, names in mixed.items()
    ]


def _answer_alone(here: Surroundings, names: Sequence[str]) -> bool:
    settings = [here.arp[name] for name in names if name in here.arp]
    return all(arp.ignore >= 1 and arp.announce >= 2 for arp in settings)


_JUDGES: dict[Check, Judge] = {
    **RDMA_JUDGES,
    Check.ADDRESS: addresses,
    Check.OWN_HOSTNAME: own_name,
    Check.MASTER_PORT: master_port,
    Check.SHARED_MEMORY: shared_memory,
    Check.OPEN_FILES: open_files,
    Check.GPUS: gpus,
    Check.VARIABLES: variables,
    Check.DISKS: disks,
    Check.OWN_CLOCK: clock,
    Check.SHARED_SUBNETS: shared_subnets,
}
NODE_CHECKS = tuple(check for check in Check if check.kind is Kind.NODE)
