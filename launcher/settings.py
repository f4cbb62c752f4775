"""What the launcher and the standing registry can be told; see `worker.settings` for the manner."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field

from rendezvous.wire.checks import CHECK_IDS
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import DEFAULT_MAX_RUNS, DEFAULT_PORT
from rendezvous.wire.types import Port, Seconds
from worker.contracts import Name
from worker.settings import NodeSettings, Rank, Settings, WorkerSettings, option, read_bytes

LEAST_VERIFY_SECONDS = 30.0
"""A round of probes takes up to 20 s where peers are silent; who has not reported is blamed."""


def _outlast_a_round(seconds: float) -> float:
    if seconds < LEAST_VERIFY_SECONDS:
        raise ValueError(
            f"below {LEAST_VERIFY_SECONDS:g} s good nodes would be blamed, which take up to 20 s "
            "to report that their peers are silent"
        )
    return seconds


def known_check(word: str) -> str:
    """A check that can be skipped; raises ValueError with the one that is nearest."""
    if word not in CHECK_IDS:
        [nearest] = get_close_matches(word.upper(), CHECK_IDS, n=1, cutoff=0.0)
        raise ValueError(f"there is no such check; the nearest is {nearest}, see docs/checks.md")
    return word


class LaunchSettings(NodeSettings):
    """Options of `rdzv launch`."""

    rdzv_id: str | None = option(None, "The run's id; one is made up when not given.", metavar="ID")
    scheduler: str = option("local", "What starts the worker runs; see 'rdzv schedulers'.")
    scheduler_profile: Path | None = option(
        None,
        "A scheduler of your own: a profile file, see docs/schedulers.md.",
        metavar="FILE",
    )
    hostlist: list[str] = option(
        [],
        "The run's machines, slot by slot, for a scheduler that starts nodes on named hosts; "
        "--scheduler ssh when none is given. n1,n2 or, with processes, n1:8,n2:8; repeatable.",
        metavar="HOST,...",
    )
    hostfile: Path | None = option(
        None,
        "The same in a file, one host a line, as Open MPI, MPICH and DeepSpeed write it.",
        metavar="FILE",
    )
    worker_spec: Path | None = option(
        None, "Template of a worker run's spec; the scheduler's own when not given."
    )
    set: list[str] = option(
        [], "A further variable for the worker spec; repeatable.", metavar="NAME=VALUE"
    )
    pass_env: list[str] = option(
        [],
        "Pass this variable of the launcher on to the workers; NCCL_* and UCX_* always are; "
        "repeatable.",
        metavar="NAME",
    )
    port: Port = option(
        DEFAULT_PORT,
        "The registry's port; when it is busy the next free one is taken, but not in a symmetric "
        "start.",
    )
    registry_address: list[str] = option(
        [],
        "Address under which the workers reach this node's registry; all of this node's when "
        "not given; repeatable.",
        metavar="IP|NAME",
    )
    state_dir: Path | None = option(
        None, "Where runs keep their state; ~/.local/state/rdzv when not given."
    )
    local_node: bool = option(
        True, "Run slot 0 here; without it, only the registry (on a login node or laptop)."
    )
    any_command: bool = option(False, "Let nodes join that would run another COMMAND.")
    last_call: Seconds = option(
        30.0,
        "With MIN:MAX or spares, seconds to wait for more nodes once enough are in.",
        metavar="SECONDS",
    )
    spares: Annotated[int, Field(ge=0, le=1000)] = option(
        0,
        "Start this many nodes more: those that fail a check, or their peers, are left out, and "
        "the rest is released at the go.",
    )
    strict: bool = option(False, "A warning of a check before the go ends the run, too.")
    skip: list[Annotated[str, AfterValidator(known_check)]] = option(
        [], "A check before the go not to look at; see docs/checks.md; repeatable.", metavar="ID"
    )
    verify: Literal["on", "off"] = option(
        "on", "Whether the nodes prove that they reach each other before the table is sealed."
    )
    verify_timeout: Annotated[Seconds, AfterValidator(_outlast_a_round)] = option(
        60.0, "Seconds for the nodes to report on their peers; 30 at least.", metavar="SECONDS"
    )
    arm_timeout: Seconds = option(
        60.0, "Seconds for the nodes to acknowledge the table.", metavar="SECONDS"
    )
    lease: Annotated[float, Field(ge=2, le=3600)] = option(
        15.0, "Seconds that a silent node is kept.", metavar="SECONDS"
    )
    submit_retries: Annotated[int, Field(ge=0, le=100)] = option(
        1, "How often a worker run that fails before the go is submitted again."
    )
    dry_run: bool = option(False, "Show what would be submitted, secrets hidden, and end.")
    json_events: bool = option(
        False,
        "Print events as JSON lines on standard output, programs' output on standard error.",
        flag="--json",
    )
    role: str | None = option(
        None,
        "What this container is: 'worker' joins instead of launching, anything else launches.",
        env=["ROLE"],
        hidden=True,
    )
    node_rank: Rank | None = option(
        None,
        "Symmetric start: this node's rank; 0 launches, the others join it.",
        env=["NODE_RANK"],
        metavar="RANK",
    )
    master_addr: str | None = option(
        None,
        "Symmetric start: where rank 0 is.",
        env=["MASTER_ADDR"],
        metavar="ADDRESS",
    )

    @property
    def starter(self) -> str:
        """What starts the worker runs: a scheduler's name, or the path of a profile."""
        if self.scheduler_profile is None:
            return self.scheduler
        if self.scheduler != LaunchSettings.model_fields["scheduler"].default:
            raise UsageError(
                f"--scheduler {self.scheduler} and --scheduler-profile {self.scheduler_profile} "
                "name two schedulers",
                hint="give one of them",
            )
        return str(self.scheduler_profile.resolve())

    def for_worker(self) -> WorkerSettings:
        """What a node's worker is told, where this container turns out to be a worker."""
        shared = set(WorkerSettings.model_fields) & self.model_fields_set
        return WorkerSettings(**{name: getattr(self, name) for name in shared})


Launching = TypeVar("Launching", bound=LaunchSettings)


def _check_bytes(text: str) -> str:
    if not all(map(read_bytes, text.split(","))):
        raise ValueError("a size of 0 bytes measures nothing")
    return text


class BenchSettings(LaunchSettings):
    """Options of `rdzv bench`: those of `rdzv launch`, and what is measured."""

    framework: Name = option("bench", "Always bench.", hidden=True)
    sizes: Annotated[str, AfterValidator(_check_bytes)] | None = option(
        None,
        "What is all-reduced, in bytes; 4K,64K,1M,16M on CPUs and 1M,16M,128M,1G on GPUs when not "
        "given.",
        metavar="SIZE,...",
    )
    slow_below: Annotated[float, Field(gt=0, lt=1)] = option(
        0.5, "A pair of nodes is slow below this part of what good nodes reach.", metavar="PART"
    )
    save: Path | None = option(None, "Write the result as JSON into this file.", metavar="FILE")
    plot: Path | None = option(
        None, "Draw the result into this file, .svg, .png or .pdf.", metavar="FILE"
    )

    def command(self) -> list[str]:
        """What the measurement is told on each node."""
        sizes = self.sizes.split(",") if self.sizes else []
        words = [word for size in sizes for word in ("--size", str(read_bytes(size)))]
        return [*words, "--slow-below", str(self.slow_below)]


class ServeSettings(Settings):
    """Options of `rdzv serve`."""

    port: Port = option(DEFAULT_PORT, "TCP port to listen on.")
    listen: str = option("", "Address to listen on; all of this machine's when not given.")
    registry_address: list[str] = option(
        [], "Address under which clients reach the registry; repeatable.", metavar="IP|NAME"
    )
    state_dir: Path | None = option(
        None, "Where the registry keeps its state; ~/.local/state/rdzv when not given."
    )
    allow_host: list[str] = option(
        [], "A further host name that clients may send; repeatable.", metavar="NAME"
    )
    behind_ingress: bool = option(
        False, "An ingress ends TLS and keeps connections: speak plain HTTP, mistrust closes."
    )
    max_runs: Annotated[int, Field(ge=1, le=100_000)] = option(
        DEFAULT_MAX_RUNS,
        "How many runs may be in progress at once; those that have ended do not count.",
    )
