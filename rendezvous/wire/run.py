"""A run as its maker asks for it, and as the registry shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rendezvous.enums import StrEnum
from rendezvous.wire.features import Features, Notes
from rendezvous.wire.node import CheckId, Finding, Job
from rendezvous.wire.refused import RefusedAsk
from rendezvous.wire.sealed import MOST_SECRETS
from rendezvous.wire.types import (
    MAX_NODES,
    STRICT,
    CommandWord,
    Digest,
    Generation,
    Port,
    Seconds,
    ShortWords,
    Wire,
    Words,
)
from rendezvous.wire.verify import PairProbe

DEFAULT_PORT = 29_600
DEFAULT_MAX_RUNS = 1_000
REGISTRY_FILES = 64
"""Open files of a registry beside one for each node: its own, and some in reserve."""

DEFAULT_MASTER_PORT = 29_500


class Phase(StrEnum):
    """Where a run stands; see `rendezvous.run.protocol` for the moves."""

    GATHERING = "gathering"
    VERIFYING = "verifying"
    ARMING = "arming"
    RUNNING = "running"
    RESTARTING = "restarting"
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
    STANDBY = "standby"


class EpochEnd(Wire):
    """How the programs of one epoch ended before the run did, and what followed."""

    epoch: int
    ran_seconds: float = Field(
        0.0, description="From the start of the programs to the first failure."
    )
    message: str = Field(description="Which node failed, and how.")
    code: str = Field("", description="As in a result; empty where a person asked for the restart.")
    exit_code: int = 0
    slot: int | None = None
    node: int | None = None
    hostname: str = ""
    rank: int | None = None
    cause: str = Field("", description="As in a result.")
    certain: bool = True
    evidence: list[str] = []
    log: str = ""
    progress: int | None = Field(None, description="The highest step that its nodes had reported.")
    then: str = Field("", description="What was decided: restart 1 of 3, after 4 s.")
    replaced: list[int] = Field(
        [], description="Slots whose nodes were lost, or given up: the run continues without them."
    )


class RestartFacts(Wire):
    """What a program may know of those before it: for its environment."""

    restarts: int = 0
    max_restarts: int = 0
    replacements: int = 0
    last_failure: Words = ""
    outlives_nodes: bool = Field(False, description="The programs also start again for a loss.")
    cold: bool = Field(
        False,
        description="A warm start has failed within 10 s: from now on no node forks its ranks.",
    )
    mixed: bool = Field(
        False,
        description="Some nodes of the table can start their ranks by torchrun alone, others need "
        "not: all start torchrun.",
    )

    @property
    def by_torchrun(self) -> bool:
        """Return whether torchrun starts every node's ranks, also where one could do without."""
        return self.cold or self.mixed


NO_RESTARTS = RestartFacts()


class Standing(Wire):
    """Finding about programs that did not get on, which was not over when they ended."""

    words: Annotated[str, Field(max_length=1_400)]
    next_step: Annotated[str, Field(max_length=600)] = ""
    stacks: Annotated[list[Annotated[str, Field(max_length=800)]], Field(max_length=4)] = Field(
        [], description="Where ranks were, those that others wait for first; the newest call first."
    )


class Result(Wire):
    """How a run ended, with its first cause."""

    status: Literal["ok", "failed", "cancelled"]
    exit_code: int
    exit_code_of: Literal["program", "rdzv"] = Field(
        "rdzv", description="Whether the exit code is the program's own or one of rdzv's."
    )
    message: str
    hint: str = ""
    warning: str = Field(
        "",
        description="Of a run that is ok, but not as promised: a code, like that of a failure; "
        "`message` says what it is.",
    )
    code: str = Field(
        "", description="The error's code, see `rendezvous.wire.errors`; empty when ok."
    )
    slot: int | None = None
    node: int | None = None
    hostname: str = ""
    rank: int | None = Field(None, description="Global rank of the process that failed.")
    cause: str = Field(
        "", description="Of a failure: see 'rdzv docs causes'; before the start, the code."
    )
    certain: bool = Field(
        True,
        description="False: where it was seen first; the cause itself is not known.",
    )
    evidence: list[str] = Field([], description="What shows the cause.")
    finding: Standing | None = Field(
        None,
        description="What had been found, such as a hang: of a run that was cancelled, or whose "
        "cause is not certain.",
    )
    tail: list[str] = []
    log: str = ""
    command_word: CommandWord | None = Field(
        None, description="The first word of COMMAND, from 1, in which nodes differ."
    )
    epochs: list[EpochEnd] = Field([], description="The epochs before the last one; the newest 32.")
    restarts: int | None = Field(
        None, description="How many restarts were used up; not set where there was none."
    )
    replacements: int | None = Field(
        None, description="How many nodes were lost and replaced; not set where none was."
    )

    def mark_of(self, slot: int) -> str:
        """Return what sets this slot apart where the run failed; empty: nothing does."""
        if self.status != "failed" or slot != self.slot:
            return ""
        return "first cause" if self.certain else "failed first"


class SlotNews(Wire):
    """`POST /v1/runs/{run}/slots/{slot}`: what the launcher knows of a slot's worker run."""

    generation: Generation
    state: Annotated[SlotState, Field(strict=False)]
    name: ShortWords = Field("", description="The unique name of the worker run.")
    handle: ShortWords = Field("", description="The scheduler's id of the worker run.")
    detail: Words = Field("", description="The scheduler's own text.")
    token_sha256: Digest | None = Field(None, description="With `submitting`: its join token.")
    cause: ShortWords = Field(
        "", description="`preempted`: the scheduler takes its machine back, or has done so."
    )
    hint: Words = Field("", description="What to try, where its submission failed.")
    explains: bool = Field(
        False, description="The run has ended: `detail` is the scheduler's last word on why."
    )


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
    max_restarts: Annotated[int, Field(ge=0, le=10_000)] = 0
    max_replacements: Annotated[int, Field(ge=0, le=10_000)] = 0
    fence_timeout_seconds: Seconds | None = None


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
    same_command: bool = Field(True, description="Refuse nodes that would run a different COMMAND.")
    verify: bool = Field(True, description="Verify that the nodes reach each other.")
    spares: Annotated[int, Field(ge=0, lt=MAX_NODES)] = Field(
        0, description="Extra nodes that are started beyond max_nodes; the best are kept."
    )
    on_node_loss: Literal["fail", "replace", "shrink"] = Field(
        "fail", description="What follows a node's loss after the start."
    )
    standby: Annotated[int, Field(ge=0, lt=MAX_NODES)] = Field(
        0, description="Extra nodes that stay after the start, to take the place of a lost one."
    )
    local_node: bool = Field(
        False, description="Slot 0 runs with the run's own registry: its loss ends the run."
    )
    strict: bool = Field(False, description="A warning of a check also fails the run.")
    skip: Annotated[list[CheckId], Field(max_length=64)] = Field(
        [], description="Checks that are skipped."
    )
    require_rdma: bool = Field(False, description="The run fails if a node has no RDMA.")
    allow_exec: bool = Field(
        False, description="Nodes may run commands on each other while the run is running."
    )
    led: bool = Field(
        False, description="Only node 0 has a program, and its end is the run's; the others serve."
    )
    ends_with: Literal["all", "node0"] = Field("all", description="Whose good end is the run's.")
    job: Job = Job()
    features: Features = Field({}, description="Options of features, by their names.")
    secrets: Annotated[list[ShortWords], Field(max_length=MOST_SECRETS)] = Field(
        [], description="Names of variables that the launcher sends sealed to all nodes."
    )
    registry: ShortWords = Field("", description="Where nodes reach the registry, for messages.")
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
        if self.outlives_nodes and self.limits.fence_timeout_seconds is None:
            raise ValueError("on_node_loss needs fence_timeout_seconds")
        return self

    @property
    def slots(self) -> int:
        """How many places there are: the nodes of the table, the spares, and the standbys."""
        return self.max_nodes + self.spares + self.standby

    @property
    def outlives_nodes(self) -> bool:
        """Whether the run may go on after the loss of a node."""
        return self.on_node_loss != "fail"

    @property
    def fence_seconds(self) -> float | None:
        """By when a node that hears nothing has ended its program; None: that has no limit."""
        return self.limits.fence_timeout_seconds if self.outlives_nodes else None


class SlotStatus(Wire):
    """One row of the board."""

    slot: int
    generation: int
    wanted_generation: int
    state: SlotState
    state_seconds: float = Field(0.0, description="Since the worker run's state changed.")
    detail: str = ""
    cause: str = Field("", description="`preempted`, where its scheduler says so.")
    name: str = ""
    handle: str = ""
    node_state: NodeState | None = None
    incarnation: int = 0
    node: int | None = None
    hostname: str = ""
    address: str = Field("", description="In the table; before there is one, as `source`.")
    source: str = Field(
        "", description="Where its join came from, as the registry saw it; empty when unknown."
    )
    nproc_per_node: int = 0
    exit_code: int | None = None
    stopped: bool = Field(
        False, description="Its program has ended because rdzv stopped it, and has not failed."
    )
    problem: str = ""
    progress: str = ""
    silent_seconds: float | None = None
    awaited: bool = Field(
        False,
        description="It has no number, and its worker run is to stay: a standby, or its place.",
    )
    fenced: bool = Field(
        False,
        description="Enough time has passed that the program of its lost node has ended.",
    )


class Suspect(Wire):
    """Whom the others wait for while nothing moves."""

    slot: int
    rank: int | None = Field(None, description="The process; none: all of the node's.")


class RunStatus(Wire):
    """`GET /v1/runs/{run}`: everything a person wants to see."""

    run: str
    launch_id: str
    version: int
    phase: Phase
    epoch: int
    reason: str
    topic: int | None = Field(None, description="Changes with `reason`, but for the times in it.")
    trouble: str = Field("", description="The registry's own current problem.")
    unwritten_seconds: float = Field(
        0.0, description="For how long nothing of this run could be written into the journal."
    )
    min_nodes: int
    max_nodes: int
    spares: int = 0
    standby: int = 0
    on_node_loss: Literal["fail", "replace", "shrink"] = "fail"
    elapsed_seconds: float
    running_seconds: float = Field(0.0, description="Running: since these programs started.")
    remaining_seconds: float | None = None
    digest: str = ""
    slots: list[SlotStatus] = []
    result: Result | None = None
    everyone_left: bool = False
    ending: bool = Field(
        False,
        description="Running: some programs ended well; `reason` names the nodes that did not.",
    )
    finding: str = Field(
        "", description="Running: what a feature has found, as that nothing moves; and what to do."
    )
    importing: list[int] = Field(
        [], description="Running: the nodes with a rank that is still importing torch."
    )
    suspect: Suspect | None = Field(
        None, description="Whom `finding` names, where it is one rank or one node."
    )
    silence: str = Field(
        "", description="Running: no output and no collective for a while; why is not judged yet."
    )
    restarts: int = Field(0, description="How many of `max_restarts` are used up.")
    max_restarts: int = 0
    replacements: int = Field(0, description="How many nodes were lost and replaced.")
    resubmitted: int = Field(0, description="How many of `max_replacements` are used up.")
    max_replacements: int = 0
    ended: list[EpochEnd] = Field([], description="The epochs that have ended; the newest 32.")
    refused: list[RefusedAsk] = Field(
        [], description="Nodes that asked to join and were refused, while the run continues."
    )
    untold: list[int] = Field(
        [], description="Of a finished run: slots without a node that nothing notified of the end."
    )
    features: Notes = Field({}, description="Newest findings of features, by their names.")
    wants_secrets: bool = Field(
        False,
        description="The registry's process has not the sealed variables of the run: its launcher "
        "sends them, again after a restart of the registry.",
    )


class Round(Wire):
    """One network class that was tried while verifying, and what came of it."""

    network: Words = Field(description="In words, for people.")
    number: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Its position among the run's network classes, from 0."
    )
    verdict: Words = Field(description="Why it was chosen, or not.")
    slots: list[int] = Field(description="The slots that took part: the order of rows and columns.")
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
    others: list[str] = Field([], description="Where other replicas have further runs: HOST:PORT.")


@dataclass(frozen=True, slots=True)  # made for each event: not validated then
class EventLine:
    """One event of a run as `rdzv replay`, `--json` and `/events` show it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    number: int
    at_seconds: float
    kind: str
    reason: str
    phase: Phase
    epoch: int
    slot: int | None = None
    usual: Annotated[bool, Field(description="Every node does the same.")] = False
    state: Annotated[SlotState | None, Field(description="Kind `slot`: of its worker run.")] = None
    progress: Annotated[str, Field(description="Kind `progressed`: the node's report.")] = ""
