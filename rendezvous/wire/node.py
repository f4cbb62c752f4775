"""A node: what it offers and found on itself, how it joins, and why it does not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from rendezvous.enums import StrEnum
from rendezvous.wire.checks import Level
from rendezvous.wire.features import Features
from rendezvous.wire.table import TableRow
from rendezvous.wire.types import (
    MAX_NODES,
    MOST_PROCESSES,
    STRICT,
    Address,
    Digest,
    Generation,
    Port,
    Seconds,
    ShortWords,
    SlotIndex,
    Wire,
    Words,
    is_loopback,
    parse_address,
)


class LinkKind(StrEnum):
    """What a candidate's interface is made of."""

    ETHERNET = "ethernet"
    IPOIB = "ipoib"
    LOOPBACK = "loopback"
    VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True, config=STRICT)
class Candidate:
    """One address that a node offers.

    `mac` is HMAC-SHA-256 with the run's row key over the row that it would become: made by the
    node, checked by every reader, so that the registry cannot invent a node.
    """

    interface: Annotated[ShortWords, Field(description="The node's own name of the interface.")]
    address: Address
    prefix_length: Annotated[int, Field(ge=0, le=128)]
    kind: LinkKind = LinkKind.ETHERNET
    mtu: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    speed_mbps: Annotated[int, Field(ge=0)] = Field(default=0, description="0 when unknown.")
    reason: Words = Field(default="", description="Why it is at this place in the list.")
    left_out_by: Annotated[dict[ShortWords, Words], Field(max_length=8)] = Field(
        default={},
        description="Variables set by the user that make programs use another interface, such as "
        "GLOO_SOCKET_IFNAME, and their values.",
    )
    mac: Digest | Literal[""] = ""
    generation_mac: Digest | Literal[""] = Field(
        default="", description="As `mac`, of the row and the generation of its worker run."
    )

    @model_validator(mode="after")
    def _prefix_fits(self) -> Candidate:
        if self.prefix_length > parse_address(self.address).max_prefixlen:
            raise ValueError("the prefix is longer than the address")
        return self

    @property
    def family(self) -> int:
        """4 or 6."""
        return 6 if ":" in self.address else 4

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine itself can reach it."""
        return is_loopback(self.address)


MOST_COMMAND_WORDS = 128
"""So many words of a COMMAND are compared each for itself, and those behind them as one."""
WordMac = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


@dataclass(frozen=True, slots=True, config=STRICT)
class Job:
    """What a node believes the job to be; compared between the nodes before anything starts."""

    nnodes: Annotated[str, Field(pattern=r"^[0-9]{1,6}(:[0-9]{1,6})?$")] | None = None
    nnodes_source: ShortWords = Field(
        default="", description="The flag, variable or file that says `nnodes`; empty: not known."
    )
    command_words: Annotated[list[WordMac], Field(max_length=MOST_COMMAND_WORDS + 1)] = Field(
        default=[],
        description="COMMAND word by word, under the row key, which the registry does not have.",
    )
    framework: ShortWords = "torchrun"
    rdzv_backend: ShortWords = Field(
        default="", description="By which a node's torchrun meets the others."
    )


@dataclass(frozen=True, slots=True, config=STRICT)
class RdmaPort:
    """One port of an RDMA device, as sysfs describes it; see `worker.machine.rdma`.

    What the kernel does not say is empty or 0.
    """

    device: ShortWords
    port: Annotated[int, Field(ge=1, le=255)] = 1
    link_layer: ShortWords = Field(
        default="", description="InfiniBand, Ethernet (RoCE) or Unknown (EFA)."
    )
    hca_type: ShortWords = ""
    state: ShortWords = Field(default="", description="ACTIVE, INIT, DOWN ...")
    phys_state: ShortWords = Field(default="", description="LinkUp, Polling ...")
    rate_gbps: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    rate: ShortWords = Field(
        default="", description="As the kernel writes it: 400 Gb/sec (4X NDR)."
    )
    lid: Annotated[int, Field(ge=0)] = 0
    sm_lid: Annotated[int, Field(ge=0)] = 0
    pkeys: Annotated[list[int], Field(max_length=256)] = Field(
        default=[], description="Those not 0."
    )
    subnet_prefix: ShortWords = Field(default="", description="First 64 bits of GID 0, hex.")
    gid_index: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Of the RoCE port's GID that NCCL takes, where there is one."
    )
    gid_type: ShortWords = ""
    mtu: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Of its network interface, if any."
    )
    firmware: ShortWords = ""
    node_guid: ShortWords = ""
    interface: ShortWords = Field(
        default="", description="Its network interface, as far as seen here."
    )
    openable: bool = Field(
        default=True, description="Its uverbs device node exists and can be opened."
    )
    problem: Words = Field(default="", description="Why NCCL cannot use it; empty when it can.")
    chosen: bool = Field(
        default=True, description="NCCL_IB_HCA, if the user has set it, includes this port."
    )


@dataclass(frozen=True, slots=True, config=STRICT)
class Facts:
    """What is worth knowing of a node's machine; shown, and compared between the nodes.

    What could not be found out is empty or 0.
    """

    rdzv_version: ShortWords = ""
    python_version: ShortWords = ""
    torch_version: ShortWords = ""
    cuda_version: ShortWords = Field(default="", description="That torch was built for.")
    nccl_version: ShortWords = ""
    driver_version: ShortWords = ""
    gpus: Annotated[int, Field(ge=0)] = 0
    gpu_models: Annotated[list[ShortWords], Field(max_length=64)] = Field(default=[])
    gpu_uuids: Annotated[list[ShortWords], Field(max_length=64)] = Field(default=[])
    cpus: Annotated[int, Field(ge=0)] = 0
    boot_id: ShortWords = ""
    machine_id: ShortWords = ""
    script_digest: Digest | Literal[""] = Field(
        default="", description="Of the entry script, if a file."
    )
    rdma: Annotated[list[RdmaPort], Field(max_length=128)] = Field(default=[])
    wants_rdma: bool = Field(
        default=True, description="NCCL may use RDMA: no variable disables it."
    )


MOST_LEFT_OUT = 8
CheckId = Annotated[str, Field(pattern=r"^[LXMPD][0-9]{2}$")]


@dataclass(frozen=True, slots=True, config=STRICT)
class Finding:
    """What one check found, good or bad; `rendezvous.wire.checks` lists the checks."""

    check: CheckId
    level: Level
    slot: SlotIndex | None = Field(
        default=None, description="The node; None for the run as a whole."
    )
    subject: ShortWords = Field(
        default="", description="Device, interface, variable or pair concerned."
    )
    value: Words = ""
    expected: Words = ""
    cause: Words = Field(
        default="",
        description="What it means: a clause, or a sentence where the check names the nodes.",
    )
    fix: Words = Field(default="", description="The command or step that fixes it.")


@dataclass(frozen=True, slots=True, config=STRICT)
class JoinRequest:
    """`POST /v1/runs/{run}/nodes`. The same `join_id` again gets the same answer."""

    protocol: Annotated[int, Field(ge=0, description="See `rendezvous.wire.protocol`.")]
    slot: SlotIndex
    generation: Generation
    join_id: Annotated[str, Field(min_length=16, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
    hostname: ShortWords
    nproc_per_node: Annotated[int, Field(ge=1, le=MOST_PROCESSES)]
    candidates: Annotated[list[Candidate], Field(min_length=1, max_length=64)]
    job: Job
    facts: Facts
    requested_node: Annotated[int, Field(ge=0, lt=MAX_NODES)] | None = None
    master_port: Port | None = Field(default=None, description="A port that this node found free.")
    findings: Annotated[list[Finding], Field(max_length=64)] = Field(
        default=[], description="Warnings and failures of the checks that the node made on itself."
    )
    probe_port: Port | None = Field(default=None, description="Where it answers its peers' probes.")
    role: Annotated[ShortWords, Field(min_length=1)] | None = Field(
        default=None, description="Of its processes, where a torchrun has given them one: `--role`."
    )
    any_slot: bool = Field(
        default=False, description="Where the slot is held, it will ask for another one."
    )
    needs_torchrun: bool = Field(
        default=False,
        description="It cannot start its ranks without the framework's launcher, as nodes with "
        "--warm on can. A torchrun waits for that of every other node.",
    )
    left_out: Annotated[list[Candidate], Field(max_length=MOST_LEFT_OUT)] = Field(
        default=[],
        description="Addresses of VPNs and other virtual interfaces, which it does not offer: used "
        "where no network of the others works.",
    )
    registry_source: ShortWords = Field(
        default="",
        description="Its own address on its route to the registry; empty when unknown. The "
        "registry sees another one behind NAT, or a proxy.",
    )
    features: Features = Field(
        default_factory=dict, description="What features of the node say, by their names."
    )

    @property
    def own_addresses(self) -> list[str]:
        """The addresses that are known to be the node's, those first that it offers."""
        every = [one.address for one in (*self.candidates, *self.left_out)]
        return [*dict.fromkeys(filter(None, (*every, self.registry_source)))]

    def row(
        self,
        candidate: Candidate,
        node: int = 0,
        hcas: Sequence[str] = (),
        *,
        of_generation: bool = False,
    ) -> TableRow:
        """This node's row of the table, at one of its addresses; its MAC may be that of its
        generation."""
        return TableRow(
            node=node,
            slot=self.slot,
            hostname=self.hostname,
            address=candidate.address,
            interface=candidate.interface,
            prefix_length=candidate.prefix_length,
            nproc_per_node=self.nproc_per_node,
            mac=candidate.generation_mac if of_generation else candidate.mac,
            hcas=list(hcas),
            role=self.role,
        )


class Refusal(Wire):
    """`POST /v1/runs/{run}/slots/{slot}/refusal`: why a node does not join; it ends then."""

    hostname: ShortWords
    code: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")] = Field(
        description="The error's code, see `rendezvous.wire.errors`."
    )
    reason: Words
    hint: Words = ""
    exit_code: Annotated[int, Field(ge=1, le=255)] = Field(description="The node's own.")
    retryable: bool = Field(False, description="Another worker run in its place may succeed.")
    of_slot: bool = Field(
        True,
        description="False: no slot is this node's, and the token that it shows is slot 0's. Of a "
        "symmetric start.",
    )


class JoinReply(Wire):
    """The answer to a join: who this node is, and how to watch."""

    credential: str
    incarnation: int
    epoch: int
    seq: int
    poll_seconds: Seconds
    nnodes: int
    join_timeout_seconds: Seconds
    arm_timeout_seconds: Seconds
    fence_timeout_seconds: Seconds | None = Field(
        None,
        description="Of a run that continues after a node's loss: a node without any answer from "
        "its registry for this time has ended its program by then.",
    )
    secrets: list[ShortWords] = Field(
        [], description="Names of the sealed variables that the node fetches before it starts."
    )
