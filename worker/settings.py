"""Settings of a worker: one model, from which flags, environment and documentation come.

`worker.options` says how. Options of features are among them.
"""

from __future__ import annotations

import ipaddress
import signal as signals
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo

from rendezvous.feature import declared
from rendezvous.wire.types import MAX_NODES, Port, Seconds, read_ports
from rendezvous.wire.words import read_bytes, size_text
from worker.contracts import FRAMEWORKS, OWN, Name
from worker.contracts.choice import FrameworkChoice, choose_framework
from worker.contracts.warm import module_names
from worker.counts import Processes, read_size
from worker.options import (
    LIMITS,
    NETWORK,
    OUTPUT,
    RUN,
    option,
    options_of,
)

LEAST_LOG_BYTES = 1 << 20

_NOTICE_SIGNALS = (
    signals.SIGUSR1,
    signals.SIGUSR2,
    signals.SIGHUP,
    signals.SIGINT,
    signals.SIGTERM,
)


def _same_size(text: str) -> str:
    return size_text(*read_size(text))


def _same_processes(text: str) -> str:
    return str(Processes.parse(text))


def _check_signal(text: str) -> str:
    if text and signal_number(text) not in _NOTICE_SIGNALS:
        known = ", ".join(signals.Signals(number).name for number in _NOTICE_SIGNALS)
        raise ValueError(f"'{text}' is not a signal for this; choose one of {known}")
    return text


def signal_number(name: str) -> int:
    """`USR1` or `SIGUSR1`; 0: there is no such signal, or none was named."""
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    return int(signals.Signals[full]) if full in signals.Signals.__members__ else 0


def _check_log_limit(text: str) -> str:
    if 0 < read_bytes(text) < LEAST_LOG_BYTES:
        raise ValueError("a log has 1M at least, or 0 for no limit")
    return text


NodeNumber = Annotated[int, Field(ge=0, lt=MAX_NODES)]


def _check_address(text: str) -> str:
    ipaddress.ip_address(text)
    return text


def _check_network(text: str) -> str:
    ipaddress.ip_network(text, strict=False)
    return text


def _check_ports(text: str) -> str:
    read_ports(text)
    return text


def _of_tensorflow(value: int, info: ValidationInfo) -> int:
    framework = info.data.get("framework", "tensorflow")
    if value and framework != "tensorflow":
        raise ValueError(f"it is TensorFlow's, and the framework is {framework}")
    return value


if TYPE_CHECKING:
    from worker.options import Settings as FeatureOptions
else:
    FeatureOptions = options_of(declared())


class NodeSettings(FeatureOptions):
    """What concerns one node, on node 0 as on the others."""

    nnodes: Annotated[str, AfterValidator(_same_size)] | None = option(
        None,
        "Number of nodes: N, or a range MIN:MAX.",
        group=RUN,
        basic=True,
        env=["NUM_NODES"],
        metavar="N|MIN:MAX",
    )
    nproc_per_node: Annotated[str, AfterValidator(_same_processes)] = option(
        "1",
        "Processes per node, as for torchrun: a number, auto, gpu or cpu; or for each node: 2,1,1.",
        group=RUN,
        basic=True,
        env=["GPUS_PER_NODE"],
        metavar="N|auto|gpu|cpu",
    )
    framework: Name = option(
        "torchrun",
        f"What starts COMMAND: {', '.join(one for one in FRAMEWORKS if one not in OWN)}. When not "
        "set, the launcher that COMMAND begins with. See 'rdzv docs frameworks'.",
        group=RUN,
        basic=True,
        metavar="NAME",
        unlisted=OWN,
    )
    tf_chief: Annotated[bool, AfterValidator(_of_tensorflow)] = option(
        False, "TensorFlow: make node 0 the chief instead of a worker.", group=RUN
    )
    tf_ps: Annotated[int, Field(ge=0, lt=MAX_NODES), AfterValidator(_of_tensorflow)] = option(
        0, "TensorFlow: make the last N nodes parameter servers.", group=RUN, metavar="N"
    )
    rdzv_backend: Literal["static", "c10d"] = option(
        "static",
        "torchrun's rendezvous backend. static starts fastest and keeps rdzv's ranks.",
        group=RUN,
    )
    address: list[Annotated[str, AfterValidator(_check_address)]] = option(
        [], "Offer this address to the other nodes. Repeatable.", group=NETWORK, metavar="IP"
    )
    interface: list[str] = option(
        [],
        "Offer the addresses of this network interface to the other nodes. Repeatable.",
        group=NETWORK,
        basic=True,
        metavar="NAME",
    )
    network: list[Annotated[str, AfterValidator(_check_network)]] = option(
        [], "Offer the addresses inside this network. Repeatable.", group=NETWORK, metavar="CIDR"
    )
    prefer: Literal["auto", "ib", "fastest"] = option(
        "auto",
        "Which address to offer first. auto: the front-end network's; ib: IPoIB's; fastest: the "
        "fastest link's.",
        group=NETWORK,
    )
    hosts: Literal["auto", "require", "off"] = option(
        "auto",
        "Whether to add node names to /etc/hosts. auto: if writable; require: fail otherwise; off: "
        "never. A hostname that already resolves to another address is skipped; node-0, node-1 ... "
        "are always added.",
        group=NETWORK,
    )
    require_rdma: bool = option(
        False,
        "Fail the run if a node has no usable InfiniBand, RoCE or EFA, or if NCCL does not use it.",
        group=NETWORK,
    )
    env_for: list[Literal["ucx", "mpi"]] = option(
        [],
        "Set the network variables of this library too: UCX_NET_DEVICES (ucx), "
        "OMPI_MCA_btl_tcp_if_include (mpi). Repeatable.",
        group=NETWORK,
        metavar="ucx|mpi",
    )
    allow_exec: bool = option(
        False,
        "Allow nodes to run commands on each other during the run ('rdzv rsh'). Always allowed for "
        "frameworks that start on node 0 only.",
        group=RUN,
    )
    early_start: Literal["auto", "off"] = option(
        "auto",
        "Whether torchrun imports torch while the nodes find each other. auto: if COMMAND is "
        "started by the torchrun that pip, uv or conda installed; off: never.",
        group=RUN,
    )
    warm: Literal["on", "off"] = option(
        "off",
        "Whether each node imports torch in one process while the nodes find each other, and forks "
        "torchrun's processes from it, also after a restart. on: where it cannot, a node starts "
        "them as with off, and says why. See 'rdzv docs warm'.",
        group=RUN,
    )
    warm_import: Annotated[str, AfterValidator(module_names)] = option(
        "",
        "With --warm on: further modules to import before the fork, with commas between them.",
        group=RUN,
        metavar="MODULES",
    )
    nccl_log: Literal["auto", "on", "off"] = option(
        "auto",
        "Save NCCL logs to files, one per process, and compare the network that NCCL reports with "
        "the expected one. auto: when NCCL_DEBUG=INFO or --require-rdma is set; on: always; off: "
        "never.",
        group=OUTPUT,
    )
    master_port: Port | None = option(
        None, "MASTER_PORT on node 0. When not set, rdzv picks a free port.", group=NETWORK
    )
    probe_ports: Annotated[str, AfterValidator(_check_ports)] | None = option(
        None,
        "Ports at which a node may answer when the others check its addresses. When not set, one "
        "that the kernel gives to programs (net.ipv4.ip_local_port_range), as for Gloo and NCCL.",
        group=NETWORK,
        metavar="LOW-HIGH",
    )
    grace: Seconds = option(
        10.0,
        "Seconds between SIGTERM and SIGKILL when a program is stopped.",
        group=LIMITS,
        metavar="SECONDS",
    )
    orphan_timeout: Seconds = option(
        120.0,
        "How long a node keeps running after losing contact with the registry.",
        group=LIMITS,
        metavar="SECONDS",
    )
    join_timeout: Seconds = option(
        600.0,
        "How long a node may take to join. Time in the scheduler's queue does not count.",
        group=LIMITS,
        basic=True,
        metavar="SECONDS",
    )
    cwd: Path | None = option(
        None,
        "Folder in which COMMAND starts on every node. When not set, the one in which you launch, "
        "or the one in which the scheduler starts a node.",
        group=RUN,
        metavar="FOLDER",
    )
    prefix: bool | None = option(
        None,
        "Begin each line of a program's output with [NODE]. When not set, only if several "
        "nodes share one terminal.",
        group=OUTPUT,
    )
    raw_output: bool = option(False, "Fold nothing of what is printed.", group=OUTPUT)
    log_dir: Path | None = option(
        None,
        "Folder for the log files, one per node. When not set, a folder in the state directory.",
        group=OUTPUT,
        basic=True,
        metavar="FOLDER",
    )
    log_limit: Annotated[str, AfterValidator(_check_log_limit)] = option(
        "1G",
        "Maximum size of a node's log in bytes, also with K, M or G; 0: unlimited. A longer log "
        "keeps its first 16 MiB and its newest lines. What the program prints is never cut.",
        group=OUTPUT,
        metavar="BYTES",
    )
    notice_file: Path | None = option(
        None,
        "File that appears on a node when its machine will be taken away. A number in it says in "
        "how many seconds; else 30. All programs get a notice, and are stopped in time.",
        group=RUN,
        metavar="FILE",
    )
    notice_signal: Annotated[str, AfterValidator(_check_signal)] = option(
        "",
        "Signal to send, when a node of the run will leave, to every rank that handles it, such "
        "as USR1. Without it only RDZV_NOTICE_FILE appears.",
        group=RUN,
        metavar="SIGNAL",
    )
    progress_file: Path | None = option(
        None,
        "File in which the program keeps a whole number: the step of its last checkpoint. rdzv "
        "reads it when the program has ended, to see whether a restart made progress. A relative "
        "path starts at the program's working directory.",
        group=RUN,
        metavar="FILE",
    )
    look: Literal["auto", "off"] = option(
        "auto",
        "Whether rdzv looks into each Python rank: a hook on PYTHONPATH gives every local rank its "
        "own output streams. off: PYTHONPATH is unchanged, and the ranks share the program's "
        "output.",
        group=OUTPUT,
    )
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "info", "Least important messages of rdzv to print on standard error.", group=OUTPUT
    )

    @property
    def processes(self) -> Processes:
        """`--nproc-per-node`, as it was read."""
        return Processes.parse(self.nproc_per_node)

    @property
    def probes_at(self) -> tuple[int, int] | None:
        """`--probe-ports`, as it was read."""
        return read_ports(self.probe_ports) if self.probe_ports else None

    @property
    def framework_words(self) -> str:
        """The framework, with all that its nodes have to agree on."""
        chief = " --tf-chief" if self.tf_chief else ""
        servers = f" --tf-ps {self.tf_ps}" if self.tf_ps else ""
        return f"{self.framework}{chief}{servers}"


Node = TypeVar("Node", bound=NodeSettings)


def settle_framework(settings: Node, command: Sequence[str]) -> tuple[Node, FrameworkChoice | None]:
    """The settings with COMMAND's framework; None beside them where a person has named it.

    Raises:
        UsageError: None was named, and COMMAND can only be started by one that is.
    """
    if "framework" in settings.model_fields_set:
        return settings, None
    choice = choose_framework(command)
    if choice.framework == settings.framework:
        return settings, choice
    return settings.model_copy(update={"framework": choice.framework}), choice


class WorkerSettings(NodeSettings):
    """Options of `rdzv worker`. What it joins comes from RDZV_JOIN or RDZV_JOIN_FILE."""

    node_rank: NodeNumber | None = option(
        None,
        "Number of the node to ask for.",
        group=RUN,
        basic=True,
        env=["NODE_RANK"],
        metavar="NODE",
    )
    loopback: bool = option(
        False, "Offer loopback addresses, when all nodes are on this machine.", group=NETWORK
    )
    parent: int | None = option(
        None, "Process ID: exit when this process exits.", group=RUN, hidden=True
    )
