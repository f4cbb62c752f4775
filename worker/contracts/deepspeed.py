"""DeepSpeed's own launcher. Pure.

Without a word of its own it runs on every node (`--no_ssh`), no remote shell is called and no name
is resolved. With `--launcher pdsh|openmpi|mpich|impi` in COMMAND it runs on node 0 alone and
reaches the others through the agents: `ssh` on its PATH is `rdzv rsh`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rendezvous.wire.errors import UsageError
from worker.contracts import mpi
from worker.contracts.files import HOSTFILE
from worker.contracts.flags import Flag, read_flags
from worker.contracts.framework import (
    Framework,
    Need,
    Start,
    StartRequest,
    basename,
    refuse_owned,
    refuse_uneven,
)
from worker.contracts.target import check_target, refuse_python
from worker.contracts.torchrun import master_port
from worker.contracts.variables import Variable, mpi_network

_OWNED_FLAGS = {
    **dict.fromkeys(("hostfile", "H"), "--hostfile"),
    **dict.fromkeys(("include", "i", "exclude", "e"), ""),
    "num-nodes": "--nnodes",
    **dict.fromkeys(("num-gpus", "num-accelerators"), "--nproc-per-node"),
    "master-port": "--master-port",
    **dict.fromkeys(("master-addr", "node-rank", "no-ssh"), ""),
}
_BARE_FLAGS = (
    "bind-cores-to-rank",
    "force-multi",
    "h",
    "help",
    "module",
    "no-local-rank",
    "no-python",
    "no-ssh",
    "no-ssh-check",
    "q",
    "quiet",
    "save-pid",
)
# Each MPI as rdzv starts it, what tells it of the table, and what it is offered.
_MPI = {
    "openmpi": (mpi.OPEN_MPI, mpi.open_mpi, mpi.open_mpi_offers),
    "mpich": (mpi.MPICH, mpi.mpich, mpi.mpich_offers),
    "impi": (mpi.INTEL_MPI, mpi.intel_mpi, mpi.intel_mpi_offers),
}
_LAUNCHERS = ("pdsh", *_MPI)


def _words(command: Sequence[str]) -> tuple[str, list[Flag], list[str]]:
    """deepspeed's name, its flags in COMMAND, and all that follows its name."""
    named = basename(command[0]) in ("deepspeed", "ds")
    launcher = command[0] if named else "deepspeed"
    words = list(command[1:] if named else command)
    flags, position = read_flags(words, _BARE_FLAGS)
    refuse_owned([launcher], flags, words[position:], _OWNED_FLAGS)
    check_target(words, position, "deepspeed")
    if not any(flag.one_of(("no-python",)) for flag in flags):
        refuse_python(command[:named], words, position, "deepspeed", "--module")
    return launcher, flags, words


def _launcher_of(flags: Sequence[Flag]) -> str:
    """What `--launcher` says; empty: nothing. Raises UsageError."""
    found = next((flag.value or "" for flag in flags if flag.name == "launcher"), "").lower()
    if found and found not in _LAUNCHERS:
        raise UsageError(
            f"deepspeed --launcher {found} cannot reach nodes without its own ssh",
            hint=f"use one of {', '.join(_LAUNCHERS)}; without --launcher rdzv starts every node",
        )
    return found


def _start(ask: StartRequest) -> Start:
    program, flags, words = _words(ask.command)
    how = _launcher_of(flags)
    refuse_uneven(
        ask, "DeepSpeed then numbers the local ranks wrongly (LOCAL_RANK = RANK % processes)"
    )
    own = ["--hostfile", ask.file(HOSTFILE)]
    own += ["--master_addr", ask.table.master_address, "--master_port", str(ask.table.master_port)]
    if how:
        return _led(ask, [program, *own, *_nic(ask, how, flags), *words], how)
    own += ["--no_ssh", "--node_rank", str(ask.row.node)]
    return Start([program, *own, *words], port=master_port(ask))


def _led(ask: StartRequest, argv: list[str], how: str) -> Start:
    owned: list[Variable] = []
    offered: list[Variable] = []
    if how in _MPI:
        _, told, offers = _MPI[how]
        owned, offered = told(ask), offers(ask)
    return Start(
        argv if ask.row.node == 0 else [],
        owned=owned,
        offered=offered,
        port=master_port(ask),
        path_first=ask.paths.bin,
        removes=mpi.REMOVES,
        needs=mpi.open_mpi_needs(ask, "mpirun") if how == "openmpi" else (),
    )


def _nic(ask: StartRequest, how: str, flags: Sequence[Flag]) -> list[str]:
    """Its Open MPI runner names eth0, unless it is told another interface."""
    network = mpi_network(ask.table)
    if how != "openmpi" or not network or any(flag.name == "launcher-args" for flag in flags):
        return []
    return ["--launcher_args", f"--mca btl_tcp_if_include {network}"]


def _is_led(command: Sequence[str]) -> bool:
    return bool(_launcher_of(_words(command)[1]))


def _needs(command: Sequence[str]) -> tuple[Need, ...]:
    program, flags, _ = _words(command)
    needs = [Need("deepspeed", "pip install deepspeed", program=program)]
    how = _launcher_of(flags)
    if how in _MPI:  # whose make it is, need not be asked: its flags name the nodes
        needs += [need for need in _MPI[how][0].needs(("x",)) if not need.rivals]
    elif how:
        needs.append(Need("pdsh", "apt install pdsh", program="pdsh", everywhere=False))
    return tuple(needs)


DEEPSPEED = Framework(
    "deepspeed",
    _start,
    check=_is_led,
    needs=_needs,
    is_led=_is_led,
    removes={
        "AZUREML_EXPERIMENT_ID": "DeepSpeed would take the master's address from "
        "AZ_BATCH_MASTER_NODE"
    },
    jobwide=_is_led,
)
