"""From settings to worker runs: what would be submitted for each slot. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from launcher.plan.given_variables import SHELL_NAME, GivenVariables, given_variables
from launcher.plan.hostlist import extra_words
from launcher.plan.template import Value
from launcher.settings import LaunchSettings
from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import Limits
from rendezvous.wire.types import MAX_NODES, RunId, adapter_of
from rendezvous.wire.words import printable, size_text
from worker.contracts.advice import WrongCommand, use
from worker.counts import Processes, read_size
from worker.settings import NodeSettings

LOCAL = "local"
"""The starter whose worker runs are children of the launcher, and end with it."""

HIDDEN = "RDZV_JOIN-hidden"
"""Stands for the join string wherever a person or a log could see it."""

_NO_RUN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_SETTING = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)\Z", re.DOTALL)
_BY_SLOT = ("nnodes", "nproc_per_node", "address", "log_dir", "log_level")
# What every worker has to know of the settings; the defaults are its own.
_FOR_WORKERS = tuple(name for name in NodeSettings.model_fields if name not in _BY_SLOT)
_EXPORTS = re.compile(r"^[ \t]*export\b.*<<PASS_ENV>>", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WorkerRun:
    """What a slot was filled with, once: as its scheduler finds, describes and ends it.

    Attributes:
        slot: The slot that it fills.
        generation: Counts the submissions of that slot, from 1.
        name: Unique: prefix, launch id, slot and generation.
        variables: What its spec template is rendered with; RDZV_JOIN is hidden.
        source: Name of the template, for errors.
    """

    slot: int
    generation: int
    name: str
    variables: dict[str, Value]
    source: str


@dataclass(frozen=True, slots=True)
class Submission(WorkerRun):
    """A worker run that can be submitted.

    Attributes:
        template: The template's text.
    """

    template: str


OWN_VARIABLES = frozenset(
    [
        *("NAME", "SLOT", "GENERATION", "LAUNCH_ID", "RDZV_ID", "RDZV_JOIN", "NUM_NODES", "HOST"),
        *("GPUS_PER_NODE", "NODE_RANK", "MASTER_ADDR", "WORKER_OPTIONS", "PASS_ENV", "CWD"),
        *("COMMAND", "AVOID"),
    ]
)
"""The variables of a spec that no `--set` has to give; see `Plan.own_variables`."""
LONGEST_NAME = 63
"""Of a worker run, in characters, where its scheduler takes no fewer."""
SHORTEST_NAME = 15
"""With which four digits of slot and two of generation leave 30 bits for the launch."""


@frozen
class Spec:
    """A template of worker runs: its name, for errors, and its text."""

    source: str
    template: str


@frozen
class Here:
    """How slot 0's node is started on this machine, when the scheduler starts the others."""

    spec: Spec
    log_dir: str


@frozen
class Where:
    """Where a worker run is to start.

    Attributes:
        host: The named machine; empty: that of its slot, or wherever its scheduler has room.
        avoid: Hosts that its scheduler is not to give it.
    """

    host: str = ""
    avoid: tuple[str, ...] = ()


ANYWHERE = Where()


@frozen
class Site:
    """Where the worker runs of a launch start, and from which specs.

    Attributes:
        loopback: All of them are on this machine.
        hosts: The machine of each slot, where machines were named.
        more_hosts: Further ones, for nodes that take the place of lost ones.
        avoids: The scheduler, or the spec, has a place for the hosts to avoid.
        takes_host: Either has one for a slot's machine.
        tells_host: The scheduler may say where a worker run is.
        cwd: The launcher's working folder.
        name_length: The most characters that the scheduler takes as a worker run's name.
    """

    spec: Spec
    here: Here | None = None
    loopback: bool = False
    hosts: tuple[str, ...] = ()
    more_hosts: tuple[str, ...] = ()
    avoids: bool = False
    takes_host: bool = False
    tells_host: bool = True
    cwd: str = ""
    name_length: int = LONGEST_NAME


@frozen
class Plan:
    """One launch: the run's size and limits, and how each slot's worker run is made.

    `config` is the text of the file that COMMAND names to its launcher, as it is on this machine.
    `not_passed` names the variables that should be passed on and cannot be, each with the reason.
    """

    run: str
    launch_id: str
    min_nodes: int
    max_nodes: int
    processes: Processes
    settings: LaunchSettings
    command: tuple[str, ...]
    site: Site
    given: GivenVariables
    extra: dict[str, str]
    master_addr: str = ""
    config: str = ""
    not_passed: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> dict[str, str]:
        """What every node's worker is started with."""
        return self.given.passed

    @property
    def slots(self) -> int:
        """How many worker runs there are: the nodes, the spares, and the standbys."""
        return self.max_nodes + self.settings.extra_nodes

    def limits(self) -> Limits:
        """The run's times and counts."""
        settings = self.settings
        return Limits(
            join_timeout_seconds=settings.join_timeout,
            last_call_seconds=settings.last_call,
            verify_timeout_seconds=settings.verify_timeout,
            arm_timeout_seconds=settings.arm_timeout,
            lease_seconds=settings.lease,
            grace_seconds=settings.grace,
            submit_retries=settings.submit_retries,
            max_restarts=settings.max_restarts,
            max_replacements=settings.max_replacements if settings.outlives_nodes else 0,
            fence_timeout_seconds=settings.fence_seconds if settings.outlives_nodes else None,
        )

    def submission(self, slot: int, generation: int, where: Where = ANYWHERE) -> Submission:
        """What is submitted for a slot."""
        own = self.own_variables(slot, generation, where)
        spec, name = self.site.spec, str(own["NAME"])
        if self.site.here and self._is_here(slot) and not self.site.loopback:
            spec = self.site.here.spec
        return Submission(slot, generation, name, own | self.extra, spec.source, spec.template)

    def own_variables(
        self, slot: int, generation: int, where: Where = ANYWHERE
    ) -> dict[str, Value]:
        """What a spec can be filled with for a slot, without those of `--set`."""
        return {
            "NAME": run_name(self.launch_id, slot, generation, self.site.name_length),
            "SLOT": slot,
            "GENERATION": generation,
            "LAUNCH_ID": self.launch_id,
            "RDZV_ID": self.run,
            "RDZV_JOIN": HIDDEN,
            "NUM_NODES": self.max_nodes,
            "GPUS_PER_NODE": self.processes.of(slot),
            "NODE_RANK": slot,
            "MASTER_ADDR": self.master_addr,
            "WORKER_OPTIONS": self.worker_options(slot),
            "PASS_ENV": [
                f"{key}={value}" for key, value in sorted(self.given.of_slot(slot).items())
            ],
            "CWD": self.site.cwd,
            "COMMAND": list(self.command),
            "AVOID": list(where.avoid or self.settings.avoid),
            **({"HOST": where.host or self.site.hosts[slot]} if self.site.hosts else {}),
        }

    def _is_here(self, slot: int) -> bool:
        """Whether the node of this slot runs on the launcher's own machine."""
        return self.site.loopback or (slot == 0 and self.settings.local_node)

    def worker_options(self, slot: int) -> list[str]:
        """The options of `rdzv worker` for a slot, those that are not the default."""
        site = self.site
        words = ["--nnodes", self.nnodes, "--nproc-per-node", str(self.processes.of(slot))]
        for name in _FOR_WORKERS:
            value = getattr(self.settings, name)
            # A framework that was named is not chosen by COMMAND, be it the default.
            is_named = name == "framework" and name in self.settings.model_fields_set
            default = LaunchSettings.model_fields[name].default
            if (value is False or value == default) and not is_named:
                continue
            if site.loopback and name in ("interface", "network", "hosts", "probe_ports"):
                continue  # every node lives on this machine, at an address of its own
            flag = "--" + name.replace("_", "-")
            values = value if isinstance(value, list) else [value]
            for item in values:
                words += [flag] if item is True else [flag, _text(item)]
        if site.here and self._is_here(slot):
            # Beside the board, these agents say only what the board does not show.
            level = "warning" if self.settings.log_level == "info" else self.settings.log_level
            words += ["--log-dir", site.here.log_dir, "--log-level", level]
        if site.loopback:
            words += ["--loopback", "--address", loopback_address(slot), "--hosts", "off"]
        elif self._is_here(slot):
            words += [word for a in self.settings.address for word in ("--address", a)]
        return words

    @property
    def nnodes(self) -> str:
        """`4`, or `2:4`."""
        return size_text(self.min_nodes, self.max_nodes)


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def loopback_address(slot: int) -> str:
    """The loopback address of a slot of the local scheduler: 127.0.0.1, 127.0.0.2 ..."""
    number = slot + 1
    return f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def run_name(launch_id: str, slot: int, generation: int, length: int = LONGEST_NAME) -> str:
    """A worker run's unique name, in which short ones have a digest in place of the launch id.

    It begins with a letter, and holds letters, digits and dashes alone.
    """
    end = f"-{slot}-{generation}"
    name = f"rdzv-{launch_id}{end}"
    if len(name) <= length:
        return name
    digest = base64.b32encode(hashlib.sha256(launch_id.encode()).digest()).decode().lower()
    return f"r{digest[: length - 1 - len(end)]}{end}"


def make_plan(
    settings: LaunchSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    site: Site,
    *,
    run: str,
    launch_id: str,
    env_files: Sequence[tuple[str, bytes]] = (),
    symmetric: bool = False,
) -> Plan:
    """Check what was asked for and make the plan; `env_files` and `symmetric` are as
    `given_variables` has them.

    Raises:
        UsageError: A size, variable or list of processes that cannot be.
    """
    low, high = parse_nnodes(settings.nnodes)
    _check_slots(settings, high)
    if site.loopback and high > 1 and settings.prefix is None:
        settings = settings.model_copy(update={"prefix": True})
    processes = settings.processes
    _check_processes(processes, high + settings.extra_nodes)
    given = given_variables(settings, environ, env_files, symmetric=symmetric)
    not_passed = {} if site.loopback else _not_carried(given.passed, site.spec)
    plan = Plan(
        run=run,
        launch_id=launch_id,
        min_nodes=low,
        max_nodes=high,
        processes=processes,
        settings=settings,
        command=tuple(command),
        site=site,
        given=given.without(not_passed),
        extra=_extra(settings.set),
        not_passed=not_passed,
    )
    _check_extra(plan)
    return plan


def check_run_id(text: str, given_by: str = "--rdzv-id") -> str:
    """The run id; raises UsageError, which names what it was given with."""
    try:
        return str(adapter_of(RunId).validate_python(text))
    except ValidationError as exc:
        why = exc.errors()[0]["msg"].removeprefix("Value error, ")
        near = _NO_RUN_ID.sub("-", text[:LONGEST_NAME]).strip("-._")
        raise UsageError(
            f"{given_by} {printable(repr(text), LONGEST_NAME)}: {why}",
            hint=f"for example: {near}" if near else "",
        ) from exc


def parse_nnodes(
    text: str | None, command: Sequence[str] = (), given_by: str = "--nnodes"
) -> tuple[int, int]:
    """MIN and MAX of `--nnodes`; raises UsageError, which tells of one that is in COMMAND."""
    hint = "give --nnodes 4, or --nnodes 2:4 for at least 2 and at most 4 (or NUM_NODES)"
    if text is None:
        _refuse_nnodes_in(command)
        raise UsageError("the number of nodes is missing", hint=hint)
    try:
        return read_size(text)
    except ValueError as exc:
        raise UsageError(f"{given_by} {text}: {exc}", hint=hint) from exc


def _refuse_nnodes_in(command: Sequence[str]) -> None:
    """Refuse a `--nnodes` that only COMMAND has; raises WrongCommand."""
    is_flag = [word.partition("=")[0] == "--nnodes" for word in command]
    if True not in is_flag:
        return
    at = is_flag.index(True)
    end = at + 1 if "=" in command[at] else at + 2
    raise WrongCommand(
        f"the number of nodes is missing: --nnodes is after '{printable(command[0], 80)}', so it "
        "belongs to that program",
        use([*command[:at], *command[end:]], *command[at:end]),
    )


def _check_slots(settings: LaunchSettings, nodes: int) -> None:
    """Refuse more nodes, spares and standbys than a run has slots; raises UsageError."""
    if nodes + settings.extra_nodes > MAX_NODES:
        extra = extra_words(settings.spares, settings.standby)
        raise UsageError(
            f"{settings.source('nnodes')} {settings.nnodes} and {extra} are "
            f"{nodes + settings.extra_nodes} nodes, and a run has at most {MAX_NODES}",
            hint=f"give at most {MAX_NODES - settings.extra_nodes} nodes with {extra}",
        )


def _check_processes(processes: Processes, nodes: int) -> None:
    entries = len(processes.counts)
    if entries not in (1, nodes):
        raise UsageError(
            f"--nproc-per-node {processes} has {entries} entries for {nodes} nodes",
            hint="give one number for all nodes, or one per slot",
        )


def _not_carried(passed: Mapping[str, str], spec: Spec) -> dict[str, str]:
    """The variables that cannot be passed on, each with the reason."""
    found = {}
    for name, value in passed.items():
        if not _is_text(name + value):
            found[name] = "its value is not UTF-8, and a spec is"
        elif _EXPORTS.search(spec.template) and not SHELL_NAME.match(name):
            kind = (
                "holds an exported function of bash"
                if name.startswith("BASH_FUNC_")
                else ("has a name that no shell variable can have")
            )
            found[name] = (
                f"it {kind}, which the sh that starts the worker run ({spec.source}) cannot "
                "export; define it in COMMAND or in a start-up file of the nodes"
            )
    return found


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _extra(settings: Sequence[str]) -> dict[str, str]:
    found = {}
    for setting in settings:
        match = _SETTING.match(setting)
        if match is None:
            name = setting.partition("=")[0]  # the value may be a secret
            raise UsageError(
                f"--set {name} is not NAME=VALUE with a NAME in capitals",
                hint="for example --set IMAGE=registry/image:tag for <<IMAGE>> in the spec",
            )
        found[match.group(1)] = match.group(2)
    return found


def _check_extra(plan: Plan) -> None:
    own = plan.own_variables(0, 1)
    for name in plan.extra:
        if name in own:
            raise UsageError(
                f"--set {name}: rdzv sets this variable for each worker run",
                hint=f"choose another name; rdzv uses {', '.join(own)}",
            )
