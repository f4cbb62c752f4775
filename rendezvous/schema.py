"""The wire models: what nodes, launcher and registry say to each other.

Models of messages that a peer sends ignore unknown keys, so that an older worker survives a newer
registry. Types are strict: "1", 1.0 and true are not the integer 1.

Durations are seconds (float), never dates. Digests are lower-case hex SHA-256.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from rendezvous.checks import Level
from rendezvous.enums import StrEnum
from rendezvous.words import PRINTABLE, printable

MAX_NODES = 20_000
MAX_COMMAND_BYTES = 128 * 1024 - 1
"""Of a remote command; the kernel takes no longer one."""
COMMAND_PIECE_BYTES = 32 * 1024
COMMAND_WINDOW_BYTES = 128 * 1024
"""So much of a remote command's output may be on its way; then it waits for its reader."""
RELAY_POLL_SECONDS = 10.0
DEFAULT_PORT = 29_600
DEFAULT_MAX_RUNS = 1_000
REGISTRY_FILES = 64
"""Open files of a registry beside one for each node: its own, and some in reserve."""

DEFAULT_MASTER_PORT = 29_500
MOST_METRICS = 32
"""Values in one row of metrics."""
MOST_METRIC_ROWS = 256
"""Rows in one batch of metrics; its bytes are bounded as well."""

_RUN_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62})\Z")
_RESERVED_NAMES = ("localhost", "localhost4", "localhost6", "loopback", "broadcasthost")
"""What systems' own hosts files hold; Debian's ip6-localhost, ip6-allnodes, ... beside them."""
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)\Z")

_parse_address = functools.lru_cache(maxsize=4_096)(ipaddress.ip_address)
"""The same few addresses come again and again: in candidates, rows and tables."""
_BROADCAST = ipaddress.IPv4Address("255.255.255.255")


def _base64_length(count: int) -> int:
    return (count + 2) // 3 * 4


def _check_run_id(value: str) -> str:
    if not _RUN_ID.match(value):
        raise ValueError(
            "a run id has 1 to 63 letters, digits, '.', '_' or '-', "
            "and begins with a letter or digit"
        )
    return value


def _check_printable(value: str) -> str:
    if not PRINTABLE.match(value):
        raise ValueError("control characters are not allowed")
    return value


def _check_address(value: str) -> str:
    """An IP literal in its canonical form; no zone, no mapped form, nothing that means 'any'."""
    if "%" in value:
        raise ValueError("an address with a zone is not reachable from other nodes")
    try:
        address = _parse_address(value)
    except ValueError:
        raise ValueError("not an IPv4 or IPv6 address") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError("write an IPv4 address as IPv4, not as ::ffff:")
    if address.is_multicast or address.is_unspecified or address.is_link_local:
        raise ValueError("multicast, unspecified and link-local addresses are not reachable")
    if address == _BROADCAST:
        raise ValueError("the broadcast address is not a node's")
    return str(address)


def is_valid_label(name: str) -> bool:
    """Whether `name` may stand in /etc/hosts: one ASCII label, no number, not a reserved name."""
    is_reserved = name.lower() in _RESERVED_NAMES or name.lower().startswith("ip6-")
    return bool(_LABEL.match(name)) and not name.isdigit() and not is_reserved


RunId = Annotated[str, AfterValidator(_check_run_id)]
Address = Annotated[str, Field(max_length=45), AfterValidator(_check_address)]
Words = Annotated[str, Field(max_length=600), AfterValidator(_check_printable)]
ShortWords = Annotated[str, Field(max_length=253), AfterValidator(_check_printable)]
OutputLine = Annotated[str, Field(max_length=400), AfterValidator(lambda t: printable(t, 400))]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Base64 = Annotated[str, Field(pattern=_BASE64)]
SlotIndex = Annotated[int, Field(ge=0, lt=MAX_NODES)]
Generation = Annotated[int, Field(ge=1, le=1_000_000)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Seconds = Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False)]


# What a registry holds very many of is a dataclass, of a sixth of a model's memory.
_STRICT = ConfigDict(strict=True, extra="ignore")


class Wire(BaseModel):
    """A message from a peer: strict types, unknown keys ignored, never changed."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Phase(StrEnum):
    """Where a run stands; see `rendezvous.run.protocol` for the moves."""

    GATHERING = "gathering"
    VERIFYING = "verifying"
    ARMING = "arming"
    RUNNING = "running"
    FINISHED = "finished"


class SlotState(StrEnum):
    """What the scheduler says of a slot's worker run."""

    NONE = "none"
    SUBMITTING = "submitting"
    SUBMITTED = "submitted"
    QUEUED = "queued"
    RUNNING = "running"
    FAILED = "failed"
    ENDED = "ended"
    UNKNOWN = "unknown"


class NodeState(StrEnum):
    """How far a node has come."""

    JOINED = "joined"
    VERIFIED = "verified"
    ARMED = "armed"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"
    LEFT = "left"
    RELEASED = "released"


class LinkKind(StrEnum):
    """What a candidate's interface is made of."""

    ETHERNET = "ethernet"
    IPOIB = "ipoib"
    LOOPBACK = "loopback"
    VIRTUAL = "virtual"


class Candidate(Wire):
    """One address that a node offers.

    `mac` is HMAC-SHA-256 with the run's row key over the row that it would become: made by the
    node, checked by every reader, so that the registry cannot invent a node.
    """

    interface: ShortWords = Field(description="The node's own name of the interface.")
    address: Address
    prefix_length: Annotated[int, Field(ge=0, le=128)]
    kind: LinkKind = LinkKind.ETHERNET
    mtu: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    speed_mbps: Annotated[int, Field(ge=0)] = Field(0, description="0 when unknown.")
    reason: Words = Field("", description="Why it stands at this place of the list.")
    left_out_by: Annotated[dict[ShortWords, Words], Field(max_length=8)] = Field(
        {},
        description="Variables that the user has set and that make programs use another interface, "
        "such as GLOO_SOCKET_IFNAME; and their values.",
    )
    mac: Digest | Literal[""] = ""

    @model_validator(mode="after")
    def _prefix_fits(self) -> Candidate:
        if self.prefix_length > _parse_address(self.address).max_prefixlen:
            raise ValueError("the prefix is longer than the address")
        return self

    @property
    def family(self) -> int:
        """4 or 6."""
        return 6 if ":" in self.address else 4

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine itself can reach it."""
        return _parse_address(self.address).is_loopback


MOST_COMMAND_WORDS = 128
"""So many words of a COMMAND are compared each for itself, and those behind them as one."""
WordMac = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
CommandWord = Annotated[int, Field(ge=1)]


class Job(Wire):
    """What a node believes the job to be; compared between the nodes before anything starts."""

    nnodes: Annotated[str, Field(pattern=r"^[0-9]{1,6}(:[0-9]{1,6})?$")] | None = None
    command_digest: Digest | None = Field(None, description="Of older nodes: SHA-256 of COMMAND.")
    command_words: Annotated[list[WordMac], Field(max_length=MOST_COMMAND_WORDS + 1)] = Field(
        [], description="COMMAND word by word, under the row key, which the registry has not."
    )
    framework: ShortWords = "torchrun"


class RdmaPort(Wire):
    """One port of an RDMA device, as sysfs describes it; see `worker.machine.rdma`.

    What the kernel does not say is empty or 0.
    """

    device: ShortWords
    port: Annotated[int, Field(ge=1, le=255)] = 1
    link_layer: ShortWords = Field("", description="InfiniBand, Ethernet (RoCE) or Unknown (EFA).")
    hca_type: ShortWords = ""
    state: ShortWords = Field("", description="ACTIVE, INIT, DOWN ...")
    phys_state: ShortWords = Field("", description="LinkUp, Polling ...")
    rate_gbps: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    rate: ShortWords = Field("", description="The kernel's words: 400 Gb/sec (4X NDR).")
    lid: Annotated[int, Field(ge=0)] = 0
    sm_lid: Annotated[int, Field(ge=0)] = 0
    pkeys: Annotated[list[int], Field(max_length=256)] = Field([], description="Those not 0.")
    subnet_prefix: ShortWords = Field("", description="First 64 bits of GID 0, hex.")
    gid_index: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Of the RoCE port's GID that NCCL takes, where there is one."
    )
    gid_type: ShortWords = ""
    mtu: Annotated[int, Field(ge=0)] = Field(0, description="Of its network interface, if any.")
    firmware: ShortWords = ""
    node_guid: ShortWords = ""
    interface: ShortWords = Field("", description="Its network interface, as far as seen here.")
    openable: bool = Field(True, description="Its uverbs node is there and may be opened.")
    problem: Words = Field("", description="Why NCCL cannot use it; empty when it can.")
    chosen: bool = Field(True, description="NCCL_IB_HCA, if the user has set it, takes it in.")


class Facts(Wire):
    """What is worth knowing of a node's machine; shown, and compared between the nodes.

    What could not be found out is empty or 0.
    """

    rdzv_version: ShortWords = ""
    python_version: ShortWords = ""
    torch_version: ShortWords = ""
    cuda_version: ShortWords = Field("", description="That torch was built for.")
    nccl_version: ShortWords = ""
    driver_version: ShortWords = ""
    gpus: Annotated[int, Field(ge=0)] = 0
    gpu_models: Annotated[list[ShortWords], Field(max_length=64)] = []
    gpu_uuids: Annotated[list[ShortWords], Field(max_length=64)] = []
    cpus: Annotated[int, Field(ge=0)] = 0
    boot_id: ShortWords = ""
    machine_id: ShortWords = ""
    script_digest: Digest | Literal[""] = Field("", description="Of the entry script, if a file.")
    rdma: Annotated[list[RdmaPort], Field(max_length=128)] = []
    wants_rdma: bool = Field(True, description="NCCL may use it: no variable switches it off.")


CheckId = Annotated[str, Field(pattern=r"^[LXMPD][0-9]{2}$")]


class Finding(Wire):
    """What one check found, good or bad; `rendezvous.checks` lists the checks."""

    check: CheckId
    level: Level
    slot: SlotIndex | None = Field(None, description="The node; None for the run as a whole.")
    subject: ShortWords = Field("", description="Device, interface, variable or pair concerned.")
    value: Words = ""
    expected: Words = ""
    cause: Words = Field(
        "", description="What it means: a clause, or a sentence where the check names the nodes."
    )
    fix: Words = Field("", description="The command or step that mends it.")


class JoinRequest(Wire):
    """`POST /v1/runs/{run}/nodes`. The same `join_id` again gets the same answer."""

    slot: SlotIndex
    generation: Generation
    join_id: Annotated[str, Field(min_length=16, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
    hostname: ShortWords
    nproc_per_node: Annotated[int, Field(ge=1, le=4096)]
    candidates: Annotated[list[Candidate], Field(min_length=1, max_length=64)]
    requested_rank: Annotated[int, Field(ge=0, lt=MAX_NODES)] | None = None
    master_port: Port | None = Field(None, description="A port that this node found free.")
    job: Job = Job()
    facts: Facts = Facts()
    findings: Annotated[list[Finding], Field(max_length=64)] = Field(
        [], description="Of the checks that the node made on itself: warnings and failures."
    )
    probe_port: Port | None = Field(None, description="Where it answers its peers' probes.")

    def row(self, candidate: Candidate, rank: int = 0, hcas: Sequence[str] = ()) -> TableRow:
        """This node's row of the table, at one of its addresses."""
        return TableRow(
            rank=rank,
            slot=self.slot,
            hostname=self.hostname,
            address=candidate.address,
            interface=candidate.interface,
            prefix_length=candidate.prefix_length,
            nproc_per_node=self.nproc_per_node,
            mac=candidate.mac,
            hcas=list(hcas),
        )


class Refusal(Wire):
    """`POST /v1/runs/{run}/slots/{slot}/refusal`: why a node does not join; it ends then."""

    hostname: ShortWords
    code: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")] = Field(
        description="The error's code, see `rendezvous.errors`."
    )
    reason: Words
    hint: Words = ""
    exit_code: Annotated[int, Field(ge=1, le=255)] = Field(description="The node's own.")
    retryable: bool = Field(False, description="Another worker run in its place may do better.")


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


class TableRow(Wire):
    """One node of the endpoint table."""

    rank: int
    slot: int
    hostname: str
    address: str
    interface: str
    prefix_length: int
    nproc_per_node: int
    mac: str
    hcas: list[str] = Field([], description="For NCCL_IB_HCA, as DEVICE:PORT, where it is needed.")

    def signed_text(self, run: str, launch_id: str) -> bytes:
        """What its node signs: what it says itself, and not what the seal gives. Never changes."""
        own = self.slot, self.hostname, self.interface, self.address, self.prefix_length
        return canonical_json(["row", run, launch_id, *own, self.nproc_per_node])

    @property
    def is_loopback(self) -> bool:
        """Whether the node is reached on one machine alone."""
        return _parse_address(self.address).is_loopback

    @property
    def family(self) -> Literal["IPv4", "IPv6"]:
        """Of the address."""
        return "IPv6" if _parse_address(self.address).version == 6 else "IPv4"

    @property
    def subnet(self) -> str:
        """The network that the address is in."""
        return str(ipaddress.ip_network((self.address, self.prefix_length), strict=False))


class EndpointTable(Wire):
    """The sealed list. Immutable within its epoch, named by the SHA-256 of `canonical`."""

    run: str
    launch_id: str
    epoch: int
    master_address: str
    master_port: int
    network: str = Field("", description="The network class of all addresses, in words.")
    transport: Literal["", "IB", "Socket", "Libfabric"] = Field(
        "", description="What NCCL should say it uses; empty when nothing is expected."
    )
    rows: list[TableRow]

    @property
    def world_size(self) -> int:
        """Processes over all nodes."""
        return sum(row.nproc_per_node for row in self.rows)

    def canonical(self) -> bytes:
        """The one byte form of this table: sorted keys, no spaces, ASCII."""
        return canonical_json(self.model_dump())

    def digest(self) -> str:
        """SHA-256 of the canonical form, lower-case hex."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def row_of_slot(self, slot: int) -> TableRow | None:
        """The row of a slot, or None when it is not in the table."""
        return next((row for row in self.rows if row.slot == slot), None)


class Result(Wire):
    """How a run ended, with its first cause."""

    status: Literal["ok", "failed", "cancelled"]
    exit_code: int
    message: str
    hint: str = ""
    code: str = Field("", description="The error's code, see `rendezvous.errors`; empty when ok.")
    slot: int | None = None
    rank: int | None = None
    hostname: str = ""
    worker_rank: int | None = Field(None, description="Global rank of the process that failed.")
    tail: list[str] = []
    log: str = ""
    command_word: CommandWord | None = Field(
        None, description="The first word of COMMAND, from 1, in which nodes differ."
    )


class NodeView(Wire):
    """What every node is told: the same bytes for all. A watch answers with the newest one."""

    seq: int
    phase: Phase
    epoch: int
    reason: str
    topic: int | None = Field(None, description="Changes with `reason`, but for the times in it.")
    digest: str = ""
    plan: ProbePlan | None = Field(None, description="While verifying: what is to be probed.")
    table: EndpointTable | None = None
    released: list[int] = Field(
        [], description="Slots whose nodes the table goes without: at the go they end with 0."
    )
    why_released: dict[int, Words] = Field(
        {}, description="Of those that are left out for a cause (the first 256): what it is."
    )
    stop: bool = Field(False, description="End the program: the run has a first failure.")
    result: Result | None = None
    poll_seconds: float = 2.0


Outcome = Literal[
    "ok",
    "refused",  # the address answers, and nothing listens there
    "timeout",  # no answer at all
    "no_route",  # this host has no way there
    "self",  # it is an address of this node itself
    "wrong_node",  # another node of the run answered
    "stranger",  # something answered that is no node of this run
    "black_hole",  # small messages pass, and large ones vanish
    "error",  # anything else; `detail` says what
]


@dataclass(frozen=True, slots=True, config=_STRICT)
class PairProbe:
    """What a node found out about one peer, over the addresses of one network class."""

    slot: Annotated[SlotIndex, Field(description="The peer.")]
    outcome: Outcome
    rtt_ms: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] | None = None
    skew_seconds: Annotated[float, Field(ge=-1e10, le=1e10, allow_inf_nan=False)] | None = Field(
        default=None, description="The peer's clock less this node's, at the sample of least rtt."
    )
    path_mtu: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Bytes of the largest unfragmented IP packet that was answered."
    )
    source: ShortWords = Field(default="", description="This node's address, as the peer saw it.")
    resolved: ShortWords = Field(
        default="",
        description="Where this node's hosts file leads to for the peer's hostname, if elsewhere.",
    )
    detail: Words = ""


class ProbePeer(Wire):
    """One node of a probe plan: where the others are to reach it in this round."""

    slot: SlotIndex
    hostname: ShortWords
    address: Address
    interface: ShortWords
    mtu: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    probe_port: Port


class ProbePlan(Wire):
    """Verifying: the addresses of one network class, which are to be proven in this epoch."""

    network: Words = Field(description="The class, in words: eth0, 10.0.0.0/24, Ethernet, IPv4.")
    peers: list[ProbePeer]


class ProbeReport(Wire):
    """Verifying: what this node found out about its peers in this epoch's plan."""

    kind: Literal["probe"] = "probe"
    epoch: int
    pairs: Annotated[list[PairProbe], Field(max_length=MAX_NODES)] = []


class AckReport(Wire):
    """Arming: ready to start on the table with this digest."""

    kind: Literal["ack"] = "ack"
    epoch: int
    digest: Digest


class RefuseReport(Wire):
    """Arming: this node cannot start on the table."""

    kind: Literal["refuse"] = "refuse"
    epoch: int
    code: Literal["port_taken", "bad_table", "hosts", "contract", "address"]
    reason: Words
    free_port: Port | None = Field(None, description="With `port_taken`: one that is free.")


class ProgressReport(Wire):
    """Running: one line about how the program is doing."""

    kind: Literal["progress"] = "progress"
    epoch: int
    words: Words
    warning: bool = Field(False, description="A person should see it.")


class ExitReport(Wire):
    """The program of this node ended, or could not be started."""

    kind: Literal["exit"] = "exit"
    epoch: int
    exit_code: Annotated[int, Field(ge=0, le=255)]
    age_seconds: Seconds = Field(0.0, description="Since the first local failure.")
    ran_seconds: Seconds | None = Field(
        None, description="How long the program ran, by its own node's clock."
    )
    worker_rank: int | None = None
    stopped: bool = Field(False, description="It ended because it was told to.")
    by_agent: bool = Field(False, description="Its agent ends it; `message` says why.")
    message: Words = ""
    tail: Annotated[list[OutputLine], Field(max_length=40)] = []
    log: Words = ""


class LeaveReport(Wire):
    """This node knows the result and goes away."""

    kind: Literal["leave"] = "leave"


Report = Annotated[
    ProbeReport | AckReport | RefuseReport | ProgressReport | ExitReport | LeaveReport,
    Field(discriminator="kind"),
]


class ReportReply(Wire):
    """The newest sequence number; a node that has seen less should watch."""

    seq: int


MetricName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{1,64}$")]
ProcessRank = Annotated[int, Field(ge=0, lt=MAX_NODES * 4096)]


class MetricRow(Wire):
    """What one process of the program says of its progress."""

    rank: ProcessRank = Field(description="Of the process, as the program counts them.")
    step: Annotated[int, Field(ge=0, lt=2**53)]
    values: Annotated[
        dict[MetricName, Annotated[float, Field(allow_inf_nan=False)]],
        Field(max_length=MOST_METRICS),
    ] = Field({}, description="NAME/not_finite is 1 for a NaN, 2 and -2 for the infinities.")


class MetricBatch(Wire):
    """`POST /v1/runs/{run}/nodes/{node}/metrics`. A node numbers its rows from 1.

    What was taken in before is left out, and where numbers are missing, rows were dropped.
    """

    first: Annotated[int, Field(ge=1, lt=2**53)] = Field(description="Number of the first row.")
    rows: Annotated[list[MetricRow], Field(max_length=MOST_METRIC_ROWS)]


class MetricReply(Wire):
    """The number of the row that is expected next."""

    expected: int


class MetricLine(MetricRow):
    """A row as the registry keeps it."""

    number: int = Field(description="Counts the rows of the run, from 1.")
    slot: int
    at_seconds: float = Field(description="Since the run was made.")


class RunMetrics(Wire):
    """`GET /v1/runs/{run}/metrics`: the newest row of each process, or the rows above `after`."""

    session: str = Field(description="Another one: the numbers have begun anew.")
    newest: int = Field(description="Number of the newest row.")
    dropped: int = Field(0, description="Rows that nodes had to drop before they were sent.")
    elapsed_seconds: float = Field(description="Since the run was made.")
    rows: list[MetricLine] = []


CommandNumber = Annotated[int, Field(ge=1, lt=1 << 53)]
OutputOffset = Annotated[int, Field(ge=0, lt=1 << 60)]


class CommandStart(Wire):
    """Caller to target: run this. Told again, it counts once.

    `mac` is the caller's proof that it is a node of the run; see `rendezvous.macs`.
    """

    kind: Literal["start"] = "start"
    number: CommandNumber = Field(description="Counts the caller's commands for this target.")
    command: Annotated[Base64, Field(max_length=_base64_length(MAX_COMMAND_BYTES))] = Field(
        description="For `sh -c`."
    )
    mac: Digest


class CommandOutput(Wire):
    """Target to caller: a piece of what it printed."""

    kind: Literal["output"] = "output"
    number: CommandNumber
    offset: OutputOffset = Field(description="Bytes of both streams before this piece.")
    stream: Literal["stdout", "stderr"]
    data: Annotated[Base64, Field(max_length=_base64_length(COMMAND_PIECE_BYTES))]


class CommandTaken(Wire):
    """Caller to target: so many bytes of output are where they belong; more may come."""

    kind: Literal["taken"] = "taken"
    number: CommandNumber
    offset: OutputOffset


class CommandExit(Wire):
    """Target to caller: it ended, or was not run and `message` says why."""

    kind: Literal["exit"] = "exit"
    number: CommandNumber
    offset: OutputOffset = Field(0, description="Bytes of both streams in all.")
    code: Annotated[int, Field(ge=0, le=255)]
    message: Words = ""


class CommandEnd(Wire):
    """Caller to target: nobody waits for it any more; what is left of it ends."""

    kind: Literal["end"] = "end"
    number: CommandNumber


CommandFrame = Annotated[
    CommandStart | CommandOutput | CommandTaken | CommandExit | CommandEnd,
    Field(discriminator="kind"),
]


class Parcel(Wire):
    """One frame on its way from node to node."""

    peer: SlotIndex = Field(description="To whom when it is given, from whom when it is taken.")
    frame: CommandFrame


class RelayPost(Wire):
    """`POST /v1/runs/{run}/nodes/{node}/relay`: frames for other nodes, in order."""

    parcels: Annotated[list[Parcel], Field(min_length=1, max_length=256)]


class RelayReply(Wire):
    """They are taken in."""

    session: str = Field(description="Changes when the registry was started again.")


class RelayMail(Wire):
    """`GET /v1/runs/{run}/nodes/{node}/relay`: the frames for this node numbered above `after`."""

    session: str = Field(description="What was not taken of an older one is lost.")
    seq: int = Field(description="The number of the last frame.")
    parcels: list[Parcel] = []


class SlotNews(Wire):
    """`POST /v1/runs/{run}/slots/{slot}`: what the launcher knows of a slot's worker run."""

    generation: Generation
    state: Annotated[SlotState, Field(strict=False)]
    name: ShortWords = Field("", description="The unique name of the worker run.")
    handle: ShortWords = Field("", description="The scheduler's id of the worker run.")
    detail: Words = Field("", description="The scheduler's own words.")
    token_sha256: Digest | None = Field(None, description="With `submitting`: its join token.")


class Limits(BaseModel):
    """Times and counts of one run; every one can be set by the person."""

    model_config = ConfigDict(strict=False, extra="forbid", frozen=True)

    join_timeout_seconds: Seconds = 600.0
    last_call_seconds: Seconds = 30.0
    verify_timeout_seconds: Seconds = 60.0
    arm_timeout_seconds: Seconds = 60.0
    lease_seconds: Annotated[float, Field(ge=2, le=3600)] = 15.0
    verdict_seconds: Seconds = 2.0
    grace_seconds: Seconds = 10.0
    submit_retries: Annotated[int, Field(ge=0, le=100)] = 1


class RunSpec(BaseModel):
    """`PUT /v1/runs/{run}`: what the maker of a run says about it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    launch_id: Annotated[str, Field(pattern=r"^[a-z0-9]{8,32}$")]
    min_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)]
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)]
    limits: Limits = Limits()
    master_port: Port | None = Field(None, description="None: a free one is chosen.")
    loopback: bool = Field(False, description="All nodes live on one machine.")
    managed: bool = Field(True, description="A launcher submits the worker runs, and can again.")
    same_command: bool = Field(True, description="Refuse nodes that would run another COMMAND.")
    verify: bool = Field(True, description="Let the nodes prove that they reach each other.")
    spares: Annotated[int, Field(ge=0, lt=MAX_NODES)] = Field(
        0, description="Nodes beyond max_nodes that are started; the best are kept."
    )
    strict: bool = Field(False, description="A warning of a check fails the run, too.")
    skip: Annotated[list[CheckId], Field(max_length=64)] = Field(
        [], description="Checks that are not looked at."
    )
    require_rdma: bool = Field(False, description="Without RDMA on every node the run fails.")
    allow_exec: bool = Field(
        False, description="Nodes may run commands on each other while the run is running."
    )
    led: bool = Field(
        False, description="Only rank 0 has a program, and its end is the run's; the others serve."
    )
    job: Job = Job()
    registry: ShortWords = Field("", description="Where nodes open the registry, for sentences.")
    token_sha256: Annotated[list[Digest], Field(max_length=MAX_NODES)] = Field(
        [], description="Join tokens of generation 1, by slot; may be empty."
    )
    read_sha256: Digest
    admin_sha256: Digest

    @model_validator(mode="after")
    def _sizes_agree(self) -> RunSpec:
        if self.min_nodes > self.max_nodes:
            raise ValueError("min_nodes is larger than max_nodes")
        if self.token_sha256 and len(self.token_sha256) != self.slots:
            raise ValueError("token_sha256 needs one entry for each slot, or none")
        return self

    @property
    def slots(self) -> int:
        """How many places there are: the nodes of the table, and the spares."""
        return self.max_nodes + self.spares


class SlotStatus(Wire):
    """One row of the board."""

    slot: int
    generation: int
    wanted_generation: int
    state: SlotState
    state_seconds: float = Field(0.0, description="Since the worker run's state changed.")
    detail: str = ""
    name: str = ""
    handle: str = ""
    node_state: NodeState | None = None
    incarnation: int = 0
    rank: int | None = None
    hostname: str = ""
    address: str = ""
    nproc_per_node: int = 0
    exit_code: int | None = None
    problem: str = ""
    progress: str = ""
    silent_seconds: float | None = None


class RunStatus(Wire):
    """`GET /v1/runs/{run}`: everything a person wants to see."""

    run: str
    launch_id: str
    version: int
    phase: Phase
    epoch: int
    reason: str
    topic: int | None = Field(None, description="Changes with `reason`, but for the times in it.")
    trouble: str = Field("", description="What keeps the registry itself from its work just now.")
    unwritten_seconds: float = Field(
        0.0, description="For how long nothing of this run could be written into the journal."
    )
    min_nodes: int
    max_nodes: int
    spares: int = 0
    elapsed_seconds: float
    remaining_seconds: float | None = None
    digest: str = ""
    slots: list[SlotStatus] = []
    result: Result | None = None
    everyone_left: bool = False
    ending: bool = Field(
        False,
        description="Running: some programs have ended well, and `reason` says who is waited for.",
    )
    untold: list[int] = Field(
        [], description="Of a run that is over: slots without a node that nobody has asked for."
    )


class Round(Wire):
    """One network class that was tried while verifying, and what came of it."""

    network: Words = Field(description="In words, for people.")
    number: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Its place among the run's network classes, from 0."
    )
    verdict: Words = Field(description="Why it was taken, or not.")
    slots: list[int] = Field(description="Who took part: the order of rows and columns.")
    reports: dict[int, list[PairProbe]] = Field(
        {}, description="By reporting slot; only the newest round keeps the pairs that are ok."
    )


class RunReport(Wire):
    """`GET /v1/runs/{run}/report`: what was checked before the start, and what was found."""

    run: str
    hostnames: dict[int, str] = {}
    rounds: list[Round] = []
    findings: list[Finding] = []


class RunList(Wire):
    """`GET /v1/runs`."""

    runs: list[RunStatus]


@dataclass(frozen=True, slots=True, config=_STRICT)
class EventLine:
    """One event of a run as `rdzv replay`, `--json` and `/events` show it."""

    number: int
    at_seconds: float
    kind: str
    reason: str
    phase: Phase
    epoch: int
    slot: int | None = None
    usual: bool = Field(default=False, description="Every node does the like.")


class Problem(Wire):
    """The one JSON shape of every refusal."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    command_word: CommandWord | None = Field(
        None, description="The first word of COMMAND, from 1, in which this node differs."
    )


def canonical_json(value: Any) -> bytes:
    """JSON in one byte form: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
