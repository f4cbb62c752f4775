"""What the launcher and the standing registry can be told; see `worker.settings` for the manner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field

from launcher.option_values import check_bytes, known_check, outlast_a_round
from launcher.variable_settings import VariableSettings
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import DEFAULT_MAX_RUNS, DEFAULT_PORT
from rendezvous.wire.types import Port, Seconds
from rendezvous.wire.words import read_bytes
from worker.contracts import Name
from worker.options import LIMITS, MEASUREMENT, NETWORK, OUTPUT, RUN, START, Settings, option
from worker.settings import NodeNumber, WorkerSettings


class LaunchSettings(VariableSettings):
    """Options of `rdzv launch`."""

    rdzv_id: str | None = option(
        None,
        "ID of the run. When not set, rdzv generates one.",
        group=RUN,
        basic=True,
        metavar="ID",
    )
    scheduler: str = option(
        "local",
        "What starts the nodes; 'rdzv schedulers' lists what there is.",
        group=START,
        basic=True,
        metavar="NAME",
    )
    scheduler_profile: Path | None = option(
        None,
        "Profile file of a custom scheduler. See 'rdzv docs schedulers'.",
        group=START,
        metavar="FILE",
    )
    hostlist: list[str] = option(
        [],
        "Machines of the run, in order: n1,n2 or, with the number of processes, n1:8,n2:8. "
        "Uses --scheduler ssh unless you name another. Repeatable.",
        group=START,
        basic=True,
        metavar="HOST,...",
    )
    hostfile: Path | None = option(
        None,
        "Read the machines from this file, one per line, in the format of Open MPI, MPICH or "
        "DeepSpeed.",
        group=START,
        metavar="FILE",
    )
    avoid: list[str] = option(
        [],
        "Start no node on these hosts, named as the scheduler names them. Repeatable.",
        group=START,
        metavar="HOST,...",
    )
    worker_spec: Path | None = option(
        None,
        "Template of what the scheduler receives for one node. When not set, the scheduler's own.",
        group=START,
        metavar="FILE",
    )
    set: list[str] = option(
        [],
        "Set a variable of the worker spec. Repeatable.",
        group=START,
        basic=True,
        metavar="NAME=VALUE",
    )
    pass_env: list[str] = option(
        [],
        "Pass this environment variable on to all nodes. NCCL_* and UCX_* always are. Repeatable.",
        group=RUN,
        basic=True,
        metavar="NAME",
    )
    port: Port = option(
        DEFAULT_PORT,
        "Port of the registry. If it is busy, the next free port is used, except in a symmetric "
        "start.",
        group=NETWORK,
    )
    registry_address: list[str] = option(
        [],
        "Address where nodes reach the registry on this machine. When not set, all of its "
        "addresses. Repeatable.",
        group=NETWORK,
        metavar="IP|NAME",
    )
    state_dir: Path | None = option(
        None,
        "Folder for the state of all runs. When not set, ~/.local/state/rdzv.",
        group=OUTPUT,
        metavar="FOLDER",
    )
    local_node: bool = option(
        True,
        "Start no node on this machine, only the registry (for a login node or laptop).",
        group=START,
        basic=True,
    )
    any_command: bool = option(False, "Allow nodes to run different COMMANDs.", group=RUN)
    last_call: Seconds = option(
        30.0,
        "With MIN:MAX, spares or standbys, how long to wait for more nodes once there are enough.",
        group=LIMITS,
        metavar="SECONDS",
    )
    spares: Annotated[int, Field(ge=0, le=1000)] = option(
        0,
        "Start N extra nodes. Nodes that fail a check are dropped; unused spares are released when "
        "the run starts.",
        group=RUN,
        metavar="N",
    )
    strict: bool = option(
        False,
        "Fail the run where rdzv would only warn: of a check before the start, or of ranks that "
        "did not all join one job.",
        group=LIMITS,
    )
    skip: list[Annotated[str, AfterValidator(known_check)]] = option(
        [],
        "Skip this check before the start. See 'rdzv docs checks'. Repeatable.",
        group=LIMITS,
        metavar="ID",
    )
    verify: Literal["on", "off"] = option(
        "on",
        "Whether the nodes check that they reach each other before the programs start.",
        group=LIMITS,
    )
    verify_timeout: Annotated[Seconds, AfterValidator(outlast_a_round)] = option(
        60.0,
        "How long the nodes may take for that check; at least 30.",
        group=LIMITS,
        metavar="SECONDS",
    )
    arm_timeout: Seconds = option(
        60.0,
        "How long the nodes may take, once all are checked, to get ready to start.",
        group=LIMITS,
        metavar="SECONDS",
    )
    lease: Annotated[float, Field(ge=2, le=3600)] = option(
        15.0,
        "How long a node may be silent before it counts as lost.",
        group=LIMITS,
        metavar="SECONDS",
    )
    submit_retries: Annotated[int, Field(ge=0, le=100)] = option(
        1,
        "How often to submit a node again that fails before the start.",
        group=LIMITS,
        metavar="N",
    )
    max_restarts: Annotated[int, Field(ge=0, le=10_000)] = option(
        0,
        "How often to start all programs again when one fails; not after two failures alike within "
        "30 s of the start. See 'rdzv docs elastic'.",
        group=RUN,
        basic=True,
        metavar="N",
    )
    ends_with: Literal["all", "node0"] = option(
        "all",
        "Which programs the run waits for: all, or node 0's alone (--framework command and env). "
        "When that has ended well, the others are stopped. See 'rdzv docs head-and-workers'.",
        group=RUN,
    )
    on_node_loss: Literal["fail", "replace", "shrink"] = option(
        "fail",
        "What follows a node's loss after the start: the run fails, continues with another node in "
        "its place, or with those that are left. See 'rdzv docs elastic'.",
        group=RUN,
    )
    max_replacements: Annotated[int, Field(ge=0, le=10_000)] = option(
        3,
        "With --on-node-loss replace, how often to submit another node for one that was lost. A "
        "standby that steps in is not counted.",
        group=RUN,
        metavar="N",
    )
    standby: Annotated[int, Field(ge=0, le=1000)] = option(
        0,
        "Start N extra nodes that wait to take the place of a lost one. Each is a whole machine "
        "that does nothing until then.",
        group=RUN,
        metavar="N",
    )
    fence_timeout: Seconds | None = option(
        None,
        "How long a silent node may still run its program: only then another one takes its place. "
        "When not set, as --orphan-timeout.",
        group=LIMITS,
        metavar="SECONDS",
    )
    dry_run: Literal["short", "full", "file"] | None = option(
        None,
        "Print what would be submitted; full: all of it; file: the launch as a run file.",
        group=OUTPUT,
        basic=True,
        metavar="[full|file]",
        bare="short",
    )
    verbose: bool = option(
        False,
        "Show every step of every node until the programs start.",
        group=OUTPUT,
        flag="--verbose",
        short="-v",
    )
    json_events: bool = option(
        False,
        "Print events as JSON lines on standard output, and the program's output on standard "
        "error.",
        group=OUTPUT,
        flag="--json",
    )
    ui: bool = option(
        False,
        "Print a link to the run's page. See 'rdzv docs ui'.",
        group=OUTPUT,
        basic=True,
    )
    ui_actions: bool = option(False, "Let the page look, cancel, restart and drain.", group=OUTPUT)
    ui_listen: str = option(
        "127.0.0.1",
        "Address to serve the page on. Beyond this machine it needs --ui-behind-ingress.",
        group=OUTPUT,
        metavar="ADDRESS",
    )
    ui_port: Port | None = option(
        None,
        "Port to serve the page on. When not set, the first free one from 29610.",
        group=OUTPUT,
        metavar="PORT",
    )
    ui_host: list[str] = option(
        [],
        "Host name under which a proxy serves the page. Repeatable.",
        group=OUTPUT,
        metavar="NAME",
    )
    ui_behind_ingress: bool = option(
        False, "A proxy in front of the page speaks TLS.", group=OUTPUT
    )
    parent: int | None = option(
        None,
        "Process ID: end the run when this process, its parent, exits.",
        group=RUN,
        hidden=True,
    )
    role: str | None = option(
        None,
        "Role of this container. 'worker': join a run; anything else: launch one.",
        group=START,
        env=["ROLE"],
        hidden=True,
    )
    node_rank: NodeNumber | None = option(
        None,
        "Symmetric start: number of this node. Node 0 launches the run, the others join it.",
        group=START,
        env=["NODE_RANK"],
        metavar="NODE",
    )
    master_addr: str | None = option(
        None,
        "Symmetric start: address of node 0.",
        group=START,
        env=["MASTER_ADDR"],
        metavar="ADDRESS",
    )

    @property
    def outlives_nodes(self) -> bool:
        """Whether the run may go on after the loss of a node."""
        return self.on_node_loss != "fail"

    @property
    def fence_seconds(self) -> float:
        """After how long the program of a silent node is over."""
        return self.orphan_timeout if self.fence_timeout is None else self.fence_timeout

    @property
    def extra_nodes(self) -> int:
        """How many nodes are started beyond those of the job."""
        return self.spares + self.standby

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
        found = WorkerSettings(**{name: getattr(self, name) for name in shared})
        own = {"nproc_per_node": self.source("nproc_per_node")}
        found._sources = type(self._sources)(own | self._sources)  # of another class of settings
        return found


Launching = TypeVar("Launching", bound=LaunchSettings)
_OF_COMMAND = (
    *("ends_with", "warm", "warm_import", "tf_ps", "tf_chief", "early_start", "max_restarts"),
    "rdzv_backend",
)
"""Options of a run file that its COMMAND is for, or against."""


class BenchSettings(LaunchSettings):
    """Options of `rdzv bench`: those of `rdzv launch`, and what is measured."""

    framework: Name = option("bench", "Always bench.", group=RUN, hidden=True)
    ui: bool = option(False, "Show it in a browser.", group=OUTPUT, hidden=True)
    sizes: Annotated[str, AfterValidator(check_bytes)] | None = option(
        None,
        "Sizes to all-reduce, in bytes. When not set, 4K,64K,1M,16M on CPUs and 1M,16M,128M,1G on "
        "GPUs.",
        group=MEASUREMENT,
        basic=True,
        metavar="SIZE,...",
    )
    slow_below: Annotated[float, Field(gt=0, lt=1)] = option(
        0.5,
        "A pair of nodes is slow below this fraction of a good pair's bandwidth.",
        group=MEASUREMENT,
        basic=True,
        metavar="FRACTION",
    )
    save: Path | None = option(
        None, "Save the result as JSON.", group=MEASUREMENT, basic=True, metavar="FILE"
    )
    plot: Path | None = option(
        None,
        "Draw the result: .svg, .png or .pdf.",
        group=MEASUREMENT,
        basic=True,
        metavar="FILE",
    )

    def measuring(self) -> BenchSettings:
        """The same of a measurement, without what a run file says of its own COMMAND."""
        of_file = {name for name in _OF_COMMAND if " (in " in self.source(name)}
        fields = type(self).model_fields
        dropped = {n: fields[n].get_default(call_default_factory=True) for n in of_file}
        return self.model_copy(update=dropped | {"framework": "bench"})

    def command(self) -> list[str]:
        """What the measurement is told on each node."""
        sizes = self.sizes.split(",") if self.sizes else []
        words = [word for size in sizes for word in ("--size", str(read_bytes(size)))]
        return [*words, "--slow-below", str(self.slow_below)]


class ServeSettings(Settings):
    """Options of `rdzv serve`."""

    port: Port = option(DEFAULT_PORT, "TCP port to listen on.", group=NETWORK, basic=True)
    listen: str = option(
        "",
        "Address to listen on. When not set, all addresses of this machine.",
        group=NETWORK,
        basic=True,
        metavar="IP",
    )
    registry_address: list[str] = option(
        [],
        "Address where clients reach the registry; with --journal, those of all replicas. "
        "Repeatable.",
        group=NETWORK,
        basic=True,
        metavar="HOST[:PORT]",
    )
    journal: str | None = option(
        None,
        "PostgreSQL database that this and other replicas of the registry share. RDZV_TOKEN must "
        "be the same for all of them. When not set, a file in --state-dir.",
        group=OUTPUT,
        basic=True,
        metavar="URL",
    )
    advertise: str | None = option(
        None,
        "Address of this replica, to which others send its clients. When not set, this machine's "
        "first one. Needs --journal.",
        group=NETWORK,
        basic=True,
        metavar="HOST[:PORT]",
    )
    state_dir: Path | None = option(
        None,
        "Folder for the registry's state. When not set, ~/.local/state/rdzv.",
        group=OUTPUT,
        basic=True,
        metavar="FOLDER",
    )
    allow_host: list[str] = option(
        [],
        "Another host name that clients may use for the registry. Repeatable.",
        group=NETWORK,
        basic=True,
        metavar="NAME",
    )
    behind_ingress: bool = option(
        False,
        "The registry is behind an ingress that terminates TLS and keeps connections open: use "
        "plain HTTP, and do not treat a closed connection as a lost node.",
        group=NETWORK,
        basic=True,
    )
    max_runs: Annotated[int, Field(ge=1, le=100_000)] = option(
        DEFAULT_MAX_RUNS,
        "Maximum number of runs in progress. Finished runs do not count.",
        group=LIMITS,
        basic=True,
        metavar="N",
    )
