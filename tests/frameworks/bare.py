"""How a person would start the same jobs without rdzv, with every address and rank by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeAlias

from tests.frameworks.lab import Case
from tests.support.netlab import INTERFACE, Lab

_PORT = "29500"
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass(frozen=True)
class Start:
    """One command of a person's: where, what, and with which variables."""

    host: int
    argv: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


Bare: TypeAlias = Callable[[Case, Lab, Path], list[Start]]


def _torchrun(*program: str) -> Bare:
    def starts(case: Case, lab: Lab, folder: Path) -> list[Start]:
        size = ["--nnodes", str(len(lab.hosts)), "--nproc-per-node"]
        place = ["--master-addr", lab.hosts[0].address, "--master-port", _PORT]
        return [
            Start(n, [*program, *size, str(each), "--node-rank", str(n), *place, *case.command])
            for n, each in enumerate(case.processes)
        ]

    return starts


def _c10d(case: Case, lab: Lab, folder: Path) -> list[Start]:
    size = ["--nnodes", str(len(lab.hosts)), "--nproc-per-node"]
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{lab.hosts[0].address}:{_PORT}"]
    return [
        Start(n, ["torchrun", *size, str(each), *meet, "--rdzv-id", "r", *case.command])
        for n, each in enumerate(case.processes)
    ]


def _master(lab: Lab) -> dict[str, str]:
    return {"MASTER_ADDR": lab.hosts[0].address, "MASTER_PORT": _PORT}


def _env(case: Case, lab: Lab, folder: Path) -> list[Start]:
    starts, ranks = [], count()
    for node, each in enumerate(case.processes):
        for local in range(each):
            own = {
                "RANK": str(next(ranks)),
                "WORLD_SIZE": str(sum(case.processes)),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(each),
            }
            starts.append(Start(node, ["python3", *case.command], _master(lab) | own))
    return starts


def _lightning(case: Case, lab: Lab, folder: Path) -> list[Start]:
    size = {"NNODES": str(len(lab.hosts)), "NPROC_PER_NODE": str(case.processes[0])}
    return [
        Start(n, ["python3", *case.command], _master(lab) | size | {"NODE_RANK": str(n)})
        for n in range(len(lab.hosts))
    ]


def _accelerate(case: Case, lab: Lab, folder: Path) -> list[Start]:
    size = ["--multi_gpu", "--num_machines", "2", "--num_processes", str(sum(case.processes))]
    meet = ["--main_process_ip", lab.hosts[0].address, "--main_process_port", _PORT]
    return [
        Start(n, ["accelerate", "launch", *size, "--machine_rank", str(n), *meet, *case.command])
        for n in range(len(lab.hosts))
    ]


def _deepspeed(case: Case, lab: Lab, folder: Path) -> list[Start]:
    meet = ["--master_addr", lab.hosts[0].address, "--master_port", _PORT]
    own = ["deepspeed", "--no_ssh", "--hostfile", _hostfile(case, lab, folder)]
    return [
        Start(n, [*own, "--node_rank", str(n), *meet, *case.command]) for n in range(len(lab.hosts))
    ]


def _deepspeed_led(case: Case, lab: Lab, folder: Path) -> list[Start]:
    """DeepSpeed looks for `ssh` on the PATH, and the folder is its first."""
    _ssh(lab, folder)
    own = ["deepspeed", "--hostfile", _hostfile(case, lab, folder)]
    meet = ["--master_addr", lab.hosts[0].address]
    return [Start(0, [*own, *meet, *case.command], _ROOT)]


def _openmpi(*options: str) -> Bare:
    def starts(case: Case, lab: Lab, folder: Path) -> list[Start]:
        words = [*options, _ssh(lab, folder), "--hostfile", _hostfile(case, lab, folder)]
        size = ["-np", str(sum(case.processes))]
        return [Start(0, ["mpirun", *size, *words, *case.command], _ROOT | _master(lab))]

    return starts


def _hydra(*options: str) -> Bare:
    def starts(case: Case, lab: Lab, folder: Path) -> list[Start]:
        file = ["-f", _hostfile(case, lab, folder, "{}:{}\n"), *options, _ssh(lab, folder)]
        size = ["-n", str(sum(case.processes)), "-ppn", str(case.processes[0])]
        return [Start(0, ["mpiexec", *size, *file, "-iface", INTERFACE, *case.command])]

    return starts


def _tensorflow(case: Case, lab: Lab, folder: Path) -> list[Start]:
    workers = [f"{host.address}:{_PORT}" for host in lab.hosts]
    tasks = [{"type": "worker", "index": n} for n in range(len(workers))]
    configs = (json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks)
    return [
        Start(n, ["python3", *case.command], {"TF_CONFIG": config})
        for n, config in enumerate(configs)
    ]


def _jax(case: Case, lab: Lab, folder: Path) -> list[Start]:
    meet = {"JAX_COORDINATOR_ADDRESS": f"{lab.hosts[0].address}:{_PORT}"}
    size = {"WORLD_SIZE": str(len(lab.hosts))}
    return [
        Start(n, ["python3", *case.command], meet | size | {"RANK": str(n)})
        for n in range(len(lab.hosts))
    ]


def _hostfile(case: Case, lab: Lab, folder: Path, form: str = "{} slots={}\n") -> str:
    file = folder / "hostfile"
    rows = zip(lab.hosts, case.processes, strict=True)
    file.write_text("".join(form.format(host.address, n) for host, n in rows))
    return str(file)


def _ssh(lab: Lab, folder: Path) -> str:
    """What ssh would be, were it infinitely fast: a program that enters the host."""
    entries = [
        f'{host.address}|{host.name}) exec {shlex.join(host.command([]))} sh -c "$*";;'
        for host in lab.hosts
    ]
    agent = folder / "ssh"
    agent.write_text(_SSH.format(entries="\n".join(entries)))
    agent.chmod(0o755)
    return str(agent)


_SSH = """#!/bin/sh
while :; do
  case "$1" in
    -l|-p|-o) shift 2;;
    -*) shift;;
    *) break;;
  esac
done
host=$1
shift
while :; do
  case "$1" in
    -o) shift 2;;
    -*) shift;;
    *) break;;
  esac
done
case "$host" in
{entries}
esac
echo "no such host: $host" >&2
exit 255
"""

BARE: dict[str, Bare] = {
    "torchrun": _torchrun("torchrun"),
    "torchrun-c10d": _c10d,
    "torch.distributed.launch": _torchrun("python3", "-m", "torch.distributed.launch"),
    "env": _env,
    "accelerate": _accelerate,
    "lightning": _lightning,
    "trainer": _torchrun("torchrun"),
    "deepspeed": _deepspeed,
    "deepspeed-pdsh": _deepspeed_led,
    "deepspeed-openmpi": _deepspeed_led,
    "openmpi-c": _openmpi("--mca", "plm_rsh_agent"),
    "openmpi-mpi4py": _openmpi("--mca", "plm_rsh_agent"),
    "openmpi-torch": _openmpi("--mca", "plm_rsh_agent"),
    "openmpi-5": _openmpi("--prtemca", "plm_ssh_agent"),
    "mpich": _hydra("-launcher", "ssh", "-launcher-exec"),
    "intelmpi": _hydra("-bootstrap", "ssh", "-bootstrap-exec"),
    "tensorflow": _tensorflow,
    "jax": _jax,
}
"""By the names of cases."""
