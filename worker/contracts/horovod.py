"""Horovod, with `horovodrun` on node 0, or without any SSH or MPI. Pure.

`horovodrun ...` as COMMAND is led: it calls `ssh` for every rank, which is `rdzv rsh` on its PATH.
Any other COMMAND is started by rdzv once for each rank, and node 0's starter serves the store at
which Horovod's processes meet.
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.contracts.files import HOSTFILE
from worker.contracts.flags import read_flags
from worker.contracts.framework import (
    Framework,
    Need,
    Start,
    StartRequest,
    basename,
    needs_module,
    refuse_owned,
)
from worker.contracts.processes import OWN_RANKS, master, start_processes
from worker.contracts.target import check_target
from worker.contracts.torchrun import master_port
from worker.contracts.variables import Variable

_HOSTS = {
    **dict.fromkeys(("H", "hosts", "host-discovery-script"), ""),
    "hostfile": "--hostfile",
}
_BARE_FLAGS = (
    "autotune",
    "cb",
    "check-build",
    "disable-cache",
    "gloo",
    "h",
    "help",
    "mpi",
    "use-gloo",
    "use-mpi",
    "v",
    "verbose",
    "version",
)
_PATIENCE_SECONDS = "120"

HOROVOD_VARIABLES = {
    "HOROVOD_RANK": "$RANK",
    "HOROVOD_SIZE": "$WORLD_SIZE",
    "HOROVOD_LOCAL_RANK": "$LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE": "$LOCAL_WORLD_SIZE",
    "HOROVOD_CROSS_RANK": "$NODE_RANK",
}
"""What Horovod reads for each process."""


def _horovodrun(command: Sequence[str]) -> list[str] | None:
    """What follows `horovodrun`; None when COMMAND is the program itself. Raises UsageError."""
    if basename(command[0]) != "horovodrun":
        return None
    words = list(command[1:])
    flags, position = read_flags(words, _BARE_FLAGS, one_dash=("np", "hostfile"))
    refuse_owned(command[:1], flags, words[position:], _HOSTS)
    check_target(words, position, "horovodrun")
    return words


def _start_horovod(ask: StartRequest) -> Start:
    words = _horovodrun(ask.command)
    if words is None:
        return _start_horovod_processes(ask)
    own = ["--hostfile", ask.file(HOSTFILE)]
    if not {"-np", "--num-proc"} & {*words}:
        own += ["-np", str(ask.table.world_size)]
    return Start(
        [ask.command[0], *own, *words] if ask.row.node == 0 else [],
        offered=_gloo(ask) if len({row.interface for row in ask.table.rows}) == 1 else [],
        port=master_port(ask),
        path_first=ask.paths.bin,
    )


def _start_horovod_processes(ask: StartRequest) -> Start:
    """Without horovodrun: node 0's starter serves the store at which the processes meet."""
    own = {**HOROVOD_VARIABLES, "HOROVOD_CROSS_SIZE": str(len(ask.table.rows))}
    own["HOROVOD_HOSTNAME"] = ask.row.address
    where = "where node 0 serves Horovod's store"
    return start_processes(
        ask,
        own=own,
        options=["--store", master(ask), *(["--serve"] if ask.row.node == 0 else [])],
        variables=[
            Variable("HOROVOD_GLOO_RENDEZVOUS_ADDR", ask.table.master_address, where),
            Variable("HOROVOD_GLOO_RENDEZVOUS_PORT", str(ask.table.master_port), where),
            Variable("HOROVOD_CONTROLLER", "gloo", "the processes are started without MPI"),
            Variable("HOROVOD_CPU_OPERATIONS", "gloo", "the same"),
        ],
        offered=[
            *_gloo(ask),
            Variable(
                "HOROVOD_GLOO_TIMEOUT_SECONDS", _PATIENCE_SECONDS, "nodes start at different speeds"
            ),
        ],
    )


def _gloo(ask: StartRequest) -> list[Variable]:
    why = "this node's interface in the table"
    return [Variable("HOROVOD_GLOO_IFACE", ask.row.interface, why)]


def _is_led(command: Sequence[str]) -> bool:
    return _horovodrun(command) is not None


def _needs_horovod(command: Sequence[str]) -> tuple[Need, ...]:
    if _is_led(command):
        return (Need("horovod", "pip install horovod", program=command[0]),)
    return needs_module("horovod")(command)


HOROVOD = Framework(
    "horovod",
    _start_horovod,
    check=_horovodrun,
    needs=_needs_horovod,
    is_led=_is_led,
    removes={**OWN_RANKS, "HOROVOD_RENDEZVOUS_*": "the store's address comes from the table"},
    jobwide=_is_led,
)
