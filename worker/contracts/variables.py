"""Which variables a node's program is given, from the table, each with its reason. Pure.

- MASTER_ADDR, MASTER_PORT, ranks and sizes come from the table, whatever was there before.
- Those of NCCL, Gloo, TensorPipe, UCX and MPI are set only where the user has set none, in the
  environment or in NCCL's configuration files. One of the user's that goes against what the nodes
  have found out is kept, and said; one that breaks `--require-rdma` is refused.

All are of the node: never LOCAL_RANK, and RANK only where rdzv starts the processes itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable, TableRow
from worker.nccl.env import Given, is_true, network_kind, selects

_FILES_OF_A_NODE = ("RDZV_HOSTFILE", "RDZV_HOSTFILE_MPICH", "RDZV_NOTICE_FILE", "RDZV_TABLE")
_TELLING_LEVELS = ("INFO", "TRACE")
_FAMILIES = {"IPv4": "AF_INET", "IPv6": "AF_INET6"}
_TRANSPORTS = {"IB": "usable InfiniBand or RoCE", "Libfabric": "EFA", "Socket": "sockets"}


@frozen
class ProgramOptions:
    """What decides, beside the table, how a node's program is started: settings, by their names.

    Attributes:
        framework: A name of `worker.contracts.FRAMEWORKS`.
        rdzv_backend: torchrun's rendezvous backend.
        require_rdma: A run whose NCCL would use sockets is to fail.
        env_for: `ucx`, `mpi`: variables that are written only on request.
        nccl_log: Whether NCCL's log is kept in files: auto, on or off.
        look: Whether the hook is brought into each Python rank: auto or off.
        warm: Whether processes are forked from one that has imported torch: on or off.
        tf_chief: TensorFlow's cluster has a chief, on node 0.
        tf_ps: So many of the last nodes are TensorFlow's parameter servers.
        grace: Seconds between TERM and KILL, for processes that rdzv starts itself.
        nccl_file: Where NCCL's log goes, in its own form: /logs/node-0.%p.log; empty: nowhere.
    """

    framework: str = "torchrun"
    rdzv_backend: Literal["static", "c10d"] = "static"
    require_rdma: bool = False
    env_for: Sequence[str] = ()
    nccl_log: Literal["auto", "on", "off"] = "auto"
    look: Literal["auto", "off"] = "auto"
    warm: Literal["on", "off"] = "off"
    tf_chief: bool = False
    tf_ps: int = 0
    grace: float = 10.0
    nccl_file: str = ""

    @classmethod
    def of(
        cls, settings: Iterable[tuple[str, Any]] | Mapping[str, Any], nccl_file: str = ""
    ) -> ProgramOptions:
        """Of settings, or of what a record has of them; the defaults where it says nothing."""
        given = dict(settings)
        names = [one.name for one in fields(cls) if one.name in given]
        return cls(**{name: given[name] for name in names} | {"nccl_file": nccl_file})


@frozen
class NodeDevices:
    """The names of a node's network interfaces and of its RDMA devices.

    NCCL takes the beginnings of names, and whole names behind '='. Not every NCCL finds those: the
    sign is used only where a beginning would say too much.
    """

    interfaces: Collection[str] = ()
    rdma: Collection[str] = ()


UNKNOWN = NodeDevices()
"""Those of a node that is seen from elsewhere."""


def _as_list(wanted: Sequence[str], names: Collection[str]) -> str:
    """Interfaces, or RDMA ports as DEVICE:PORT, in NCCL's form."""
    whole = tuple(one.partition(":")[0] for one in wanted)
    more = any(name.startswith(whole) and name not in whole for name in names)
    return "=" * more + ",".join(wanted)


@frozen
class TableFacts:
    """One node's part of a table, as far as variables tell it.

    Before there is a table (not `sealed`), what it will say is a word in <brackets>. `devices` is
    None where the variables go to every node: then nobody's names may say too much.
    """

    master_address: str
    master_port: str
    node: str
    address: str
    nnodes: str
    nproc_per_node: str
    run: str
    interface: str
    family: str
    network: str = ""
    subnet: str = ""
    transport: str = ""
    hcas: tuple[str, ...] = ()
    sealed: bool = True
    devices: NodeDevices | None = None


@frozen
class Variable:
    """One variable of the program.

    Attributes:
        name: The name.
        value: What the table makes of it.
        reason: Why it is set, in one clause.
        kept: The user's own, which stands in its place; None where `value` is set.
        conflict: What the user's own goes against; empty when it does not.
        by_framework: It belongs to the framework that was asked for.
    """

    name: str
    value: str
    reason: str
    kept: Given | None = None
    conflict: str = ""
    by_framework: bool = False


def table_facts(
    table: EndpointTable, row: TableRow, devices: NodeDevices | None = None
) -> TableFacts:
    """What a sealed table says of one of its nodes, whose devices have these names."""
    networks = {each.subnet for each in table.rows}
    return TableFacts(
        master_address=table.master_address,
        master_port=str(table.master_port),
        node=str(row.node),
        address=row.address,
        nnodes=str(len(table.rows)),
        nproc_per_node=str(row.nproc_per_node),
        run=table.run,
        interface=row.interface,
        family=row.family,
        network=table.network,
        subnet=networks.pop() if len(networks) == 1 else "",
        transport=table.transport,
        hcas=tuple(row.hcas),
        devices=devices,
    )


def mpi_network(table: EndpointTable) -> str:
    """What Open MPI is told of the network that all nodes share; empty where it can be told none.

    It reads no subnet of IPv6, but an interface's name, and fails where a node has none of it.
    """
    place = table_facts(table, table.rows[0])
    if place.family == "IPv4":
        return place.subnet
    names = {row.interface for row in table.rows}
    return names.pop() if place.subnet and len(names) == 1 else ""


def from_table(place: TableFacts) -> list[Variable]:
    """The variables that the table decides, whatever was there before."""
    return [
        Variable("MASTER_ADDR", place.master_address, "node 0's address in the table"),
        Variable("MASTER_PORT", place.master_port, "a port that is free on node 0"),
        Variable("NODE_RANK", place.node, "this node's number in the table"),
        Variable("RDZV_NODE_ADDRESS", place.address, "this node's own address in the table"),
        Variable("NNODES", place.nnodes, "the nodes of the table"),
        Variable("NPROC_PER_NODE", place.nproc_per_node, "the processes of this node"),
        Variable("RDZV_ID", place.run, "the run"),
    ]


def for_transports(
    place: TableFacts, options: ProgramOptions, given: Mapping[str, Given]
) -> list[Variable]:
    """The variables of NCCL, Gloo, TensorPipe and, on request, UCX and MPI.

    Args:
        place: The node's part of the table.
        options: What was asked for.
        given: What the user has set; see `worker.nccl.env.given_by`.

    Raises:
        UsageError: `--require-rdma`, and a variable of the user's forbids RDMA.
    """
    _refuse_without_rdma(place, options, given)
    wanted = [
        *_interfaces(place),
        *_rdma(place, options),
        *_on_request(place, options),
        *_log(options, given),
    ]
    found = []
    for one in wanted:
        kept = given.get(one.name)
        conflict = _conflict(one, kept, place) if kept else ""
        found.append(Variable(one.name, one.value, one.reason, kept, conflict))
    named = {one.name for one in found}
    return found + [one for one in _unasked(place, given) if one.name not in named]


def of_one_node(table: EndpointTable, names: Iterable[str]) -> list[str]:
    """Which of these variables another node of the table may have with another value."""
    if len(table.rows) == 1:
        return []
    differing = {"NODE_RANK", "RDZV_NODE_ADDRESS", "NCCL_DEBUG_FILE"}
    if len({row.nproc_per_node for row in table.rows}) > 1:
        differing.add("NPROC_PER_NODE")
    if len({row.interface for row in table.rows}) > 1:
        differing |= {f"{name}_SOCKET_IFNAME" for name in ("NCCL", "GLOO", "TP")}
        differing.add("UCX_NET_DEVICES")
    if len({tuple(row.hcas) for row in table.rows}) > 1:
        differing |= {"NCCL_IB_HCA", "UCX_NET_DEVICES"}
    return [name for name in names if name in differing or name in _FILES_OF_A_NODE]


def log_file(variables: list[Variable]) -> str:
    """Where NCCL's log is kept, in NCCL's form; empty when it says nothing, or not into files."""
    used = {one.name: one.kept.value if one.kept else one.value for one in variables}
    level = used.get("NCCL_DEBUG", "").upper()
    return used.get("NCCL_DEBUG_FILE", "") if level in _TELLING_LEVELS else ""


def _interfaces(place: TableFacts) -> Iterator[Variable]:
    where = f"the network of all nodes, {place.network}" if place.network else "the table"
    value = f"={place.interface}"
    if place.devices is not None:
        value = _as_list([place.interface], place.devices.interfaces)
    sign = "; '=': this name alone" if value.startswith("=") else ""
    if place.devices == UNKNOWN:
        sign = f"; '={place.interface}' if another interface's name begins with it"
    yield Variable("NCCL_SOCKET_IFNAME", value, f"this node's interface in {where}{sign}")
    yield Variable(
        "GLOO_SOCKET_IFNAME",
        place.interface,
        "the same for Gloo, which otherwise resolves the hostname",
    )
    yield Variable("TP_SOCKET_IFNAME", place.interface, "the same for TensorPipe (torch's RPC)")
    yield Variable(
        "NCCL_SOCKET_FAMILY",
        _FAMILIES.get(place.family, place.family),
        "the table's addresses are of this family",
    )


def _rdma(place: TableFacts, options: ProgramOptions) -> Iterator[Variable]:
    if place.hcas:
        hcas = "=" + ",".join(place.hcas)
        if place.devices is not None:
            hcas = _as_list(place.hcas, place.devices.rdma)
        yield Variable(
            "NCCL_IB_HCA",
            hcas,
            "this node's ports of the kind and rate that all have; NCCL would also use others",
        )
    if options.require_rdma:
        yield Variable(
            "NCCL_NET",
            # Every version of aws-ofi-nccl takes its full name; up to 1.11 no other.
            "AWS Libfabric" if place.transport == "Libfabric" else "IB",
            "--require-rdma: NCCL then fails instead of falling back to sockets",
        )


def _on_request(place: TableFacts, options: ProgramOptions) -> Iterator[Variable]:
    # Naming the interface alone would forbid UCX the ports over which it is to go.
    if "ucx" in options.env_for and (place.hcas or place.transport == "Socket"):
        yield Variable(
            "UCX_NET_DEVICES",
            ",".join([*place.hcas, place.interface]),
            "--env-for ucx: this node's interface and ports in the table",
        )
    if "mpi" in options.env_for:
        yield Variable(
            "OMPI_MCA_btl_tcp_if_include",
            (place.family != "IPv6" and place.subnet) or place.interface,
            "--env-for mpi: the network of the table; mpirun passes it to every node",
        )


def _log(options: ProgramOptions, given: Mapping[str, Given]) -> Iterator[Variable]:
    """NCCL_DEBUG, where nobody has set it and it is wanted; and where its log goes."""
    asked = options.nccl_log == "on" or (options.nccl_log == "auto" and options.require_rdma)
    level = given.get("NCCL_DEBUG")
    tells = level is not None and level.value.upper() in _TELLING_LEVELS
    if options.nccl_log == "off" or not options.nccl_file or not (asked or tells):
        return
    why = "--nccl-log on" if options.nccl_log == "on" else "--require-rdma"
    yield Variable("NCCL_DEBUG", "INFO", f"{why}: NCCL then reports which network it uses")
    if level is None or tells:
        yield Variable(
            "NCCL_DEBUG_FILE",
            options.nccl_file,
            "keeps NCCL's log out of the program's output, in one file for each process",
        )


def _refuse_without_rdma(
    place: TableFacts, options: ProgramOptions, given: Mapping[str, Given]
) -> None:
    forbids = {"NCCL_NET": _is_socket}
    if place.sealed and place.transport != "Libfabric":  # EFA goes without verbs
        forbids["NCCL_IB_DISABLE"] = is_true
    for name, forbidden in forbids.items():
        if options.require_rdma and name in given and forbidden(given[name].value):
            raise UsageError(
                f"--require-rdma was given, but {name}={given[name]} forbids NCCL to use RDMA",
                hint=f"unset {name}, or remove --require-rdma",
            )


def _unasked(place: TableFacts, given: Mapping[str, Given]) -> Iterator[Variable]:
    """What rdzv does not write, and the user has set against what the nodes have."""
    expected = _TRANSPORTS.get(place.transport)
    net, disabled = given.get("NCCL_NET"), given.get("NCCL_IB_DISABLE")
    if expected is None:
        return
    unused = f"every node has {expected}, but NCCL will not use it"
    words = "no node has usable RDMA" if place.transport == "Socket" else unused
    if net is not None and network_kind(net.value) not in ("", place.transport):
        yield Variable("NCCL_NET", "", "", net, words)
    if disabled is not None and place.transport == "IB" and is_true(disabled.value):
        yield Variable("NCCL_IB_DISABLE", "", "", disabled, words)


def _conflict(ours: Variable, kept: Given, place: TableFacts) -> str:
    """What a variable of the user's goes against; empty when both say the same."""
    theirs = kept.value
    if ours.name == "NCCL_DEBUG":
        quiet = theirs.upper() not in _TELLING_LEVELS
        return "at this level NCCL does not report which network it uses" if quiet else ""
    whole = f"={ours.value}" if ours.name.startswith("NCCL_") else ours.value
    if theirs in (ours.value, whole) or not place.sealed:
        return ""
    if ours.name.endswith("_SOCKET_IFNAME"):
        exact = not ours.name.startswith("NCCL_")
        if len(theirs) < 2 or selects(theirs, place.interface, exact=exact):
            return ""
        return f"it excludes {place.interface}, the interface of the table"
    if ours.name == "NCCL_SOCKET_FAMILY":
        return f"the addresses of the table are {place.family}"
    if ours.name == "NCCL_IB_HCA":
        return f"{ours.reason}: {ours.value}"
    return ""


def _is_socket(value: str) -> bool:
    return network_kind(value) == "Socket"
