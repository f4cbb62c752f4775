"""What a framework's launcher is given: argv, environment and files, from the table and one node.

Pure. Each framework is a `Framework`, found by its name in `FRAMEWORKS`. Most have a program on
every node; one that is *led* has it on node 0 alone, and its launcher reaches the others,
which serve it, through `rdzv rsh`.

`variables` says which variables every program is given, and why; docs/frameworks.md lists what is
written for each framework, and which of the user's variables are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

from rendezvous.frozen import frozen
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import NO_RESTARTS, RestartFacts
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.words import printable
from worker.contracts import (
    accelerate,
    deepspeed,
    horovod,
    lightning,
    mpi,
    plain,
    plugin,
    processes,
    tensorflow,
    torchrun,
)
from worker.contracts.advice import WrongCommand, use
from worker.contracts.files import file_variables
from worker.contracts.framework import Forks, Framework, Need, Paths, Start, StartRequest
from worker.contracts.looking import look_variables
from worker.contracts.outer import OUTER, OUTER_REASON, matching
from worker.contracts.restarts import restart_variables
from worker.contracts.target import refuse_standard_input
from worker.contracts.variables import (
    UNKNOWN,
    NodeDevices,
    ProgramOptions,
    TableFacts,
    Variable,
    for_transports,
    from_table,
    log_file,
    of_one_node,
    table_facts,
)
from worker.contracts.warm import forks_of
from worker.nccl.env import Given, given_by

FRAMEWORKS: dict[str, Framework] = {
    one.name: one
    for one in (
        torchrun.TORCHRUN,
        torchrun.LAUNCH,
        processes.ENV,
        accelerate.ACCELERATE,
        lightning.LIGHTNING,
        deepspeed.DEEPSPEED,
        mpi.OPEN_MPI,
        mpi.MPICH,
        mpi.INTEL_MPI,
        horovod.HOROVOD,
        tensorflow.TENSORFLOW,
        processes.JAX,
        plain.COMMAND,
        torchrun.BENCH,
        plugin.PLUGIN,
    )
}
"""Every framework, by its name."""
OWN = (torchrun.BENCH.name, plugin.PLUGIN.name)
"""Those that rdzv alone asks for."""

if TYPE_CHECKING:
    Name = str
else:
    Name = Literal[tuple(FRAMEWORKS)]


@frozen
class Contract:
    """How one node's program is started.

    Attributes:
        argv: The command line; its first word is looked up on the user's PATH. Empty on a node
            that serves the launcher of node 0.
        variables: Set for the program, in place of what was there.
        removed: Variables that the program must not see.
        notes: What was changed in the user's environment and why; for the log.
        fatal_workers: Whether the first worker that fails ends the program, however long it takes.
        explained: Every variable with its reason, those of the user's that were kept among them.
        nccl_log: Where NCCL keeps its log, in its own form (%p, %h); empty when nothing is told.
        needs: What has to be installed on this node.
        port: Where the node's program will listen, so that it must be free; None: nowhere.
        withheld: This node's variables that node 0's launcher must not see, as it would take them
            to every other node; a remote command on this node is given them.
        path_first: A folder in front of the program's PATH; empty: none.
        forks: What is forked in its place, where that was asked for and can be.
        secrets: The run's sealed variables, in place of the user's own.
    """

    argv: list[str]
    variables: dict[str, str]
    removed: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    fatal_workers: bool = False
    explained: list[Variable] = field(default_factory=list)
    nccl_log: str = ""
    needs: tuple[Need, ...] = ()
    port: int | None = None
    withheld: dict[str, str] = field(default_factory=dict)
    path_first: str = ""
    forks: Forks | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The program's environment: the user's own, but for what the contract says."""
        given = {**environ, **self.secrets}
        kept = {name: value for name, value in given.items() if name not in self.removed}
        found = kept | self.variables
        if self.path_first:
            found["PATH"] = f"{self.path_first}:{found.get('PATH', '')}".rstrip(":")
        return found

    def served_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a remote command on this node is given: the node's own variables among it."""
        return self.environment(environ) | self.withheld


def needs_of(framework: str, command: Sequence[str], *, leads: bool) -> tuple[Need, ...]:
    """What has to be installed on a node, before there is a table.

    Args:
        framework: A name of `FRAMEWORKS`.
        command: The COMMAND; it has been checked.
        leads: Whether the node is to be node 0, which alone starts the program of a led run.
    """
    kind = FRAMEWORKS[framework]
    starts = leads or not kind.is_led(command)
    return tuple(need for need in kind.needs(command) if starts or need.everywhere)


def check_command(command: Sequence[str], framework: str) -> None:
    """Refuse a COMMAND that cannot work, before anything is submitted; raises UsageError."""
    if not command and framework != "bench":
        example = use(["train.py", "--epochs", "3"], shown=3)
        raise WrongCommand("no COMMAND was given", example)
    if command and not command[0].strip():
        raise UsageError(
            "the first word of COMMAND is empty, so it does not name a program",
            hint="is a shell variable empty?",
        )
    FRAMEWORKS[framework].check(command)
    if framework != "bench":
        refuse_standard_input(command)


def make_contract(
    command: Sequence[str],
    table: EndpointTable,
    slot: int,
    environ: Mapping[str, str],
    options: ProgramOptions,
    *,
    paths: Paths,
    configured: Mapping[str, Given] | None = None,
    restarts: RestartFacts = NO_RESTARTS,
    config: str = "",
    devices: NodeDevices = UNKNOWN,
) -> Contract:
    """The contract of the node in `slot`.

    Args:
        command: The COMMAND, in the form that the framework takes.
        table: The sealed table.
        slot: The node's slot; it stands in the table.
        environ: The user's environment; decides which variables are left alone.
        options: What was asked for beside the table.
        paths: Where things lie on this node.
        configured: What NCCL's configuration files set; they are the user's as well.
        restarts: What the registry says of the programs before this one.
        config: The text of the framework's `config_file`; empty where that is not known.
        devices: The names of this node's interfaces and RDMA devices, where they are known.

    Raises:
        UsageError: COMMAND cannot be started this way, or not with these options.
    """
    row = table.row_of_slot(slot)
    if row is None:
        raise UsageError(f"slot {slot} is not in the table of epoch {table.epoch}")
    kind = FRAMEWORKS[options.framework]
    ask = StartRequest(list(command), table, row, environ, options, paths, restarts, config)
    start, jobwide = kind.start(ask), kind.jobwide(command)
    place = table_facts(table, row, None if jobwide else devices)
    ours = [replace(one, by_framework=True) for one in start.owned]
    told, needs = file_variables(paths), (*kind.needs(command), *start.needs)
    owned = [*from_table(place), *restart_variables(str(table.epoch), restarts), *told, *ours]
    others = _giving_way(owned, start.offered, place, options, given_by(environ, configured))
    others += [] if kind.is_led(command) else look_variables(paths, environ, options)
    variables = {one.name: one.value for one in (*owned, *others) if one.kept is None}
    of_node = of_one_node(table, variables) if jobwide else []
    withheld = {name: variables.pop(name) for name in of_node}
    dropped = _dropped(kind, start, environ, {*variables})
    return Contract(
        start.argv,
        variables,
        frozenset(SECRET_VARIABLES) | dropped.keys() | withheld.keys(),
        [*_notes(owned, others, environ), *_removed(dropped), *_kept(kind.keeps, environ)],
        fatal_workers=start.fatal_workers,
        explained=owned + others,
        nccl_log="" if start.argv and "NCCL_DEBUG_FILE" in withheld else log_file(others),
        needs=tuple(need for need in needs if start.argv or need.everywhere),
        port=start.port,
        withheld=withheld,
        path_first=start.path_first,
        forks=forks_of(ask) if options.warm == "on" else None,
    )


def _giving_way(
    owned: Sequence[Variable],
    offered: Sequence[Variable],
    place: TableFacts,
    options: ProgramOptions,
    given: Mapping[str, Given],
) -> list[Variable]:
    """What gives way to the user's own: for the transports, then what the framework offers."""
    others = for_transports(place, options, given)
    named = {one.name for one in (*owned, *others)}
    return others + [_offer(one, given) for one in offered if one.name not in named]


def _offer(one: Variable, given: Mapping[str, Given]) -> Variable:
    """A variable that gives way to the user's own."""
    one = replace(one, by_framework=True)
    kept = given.get(one.name)
    if kept is None:
        return one
    conflict = "" if kept.value == one.value else f"rdzv would set {one.value}, {one.reason}"
    return replace(one, kept=kept, conflict=conflict)


def _dropped(
    kind: Framework, start: Start, environ: Mapping[str, str], set_anyway: set[str]
) -> dict[str, str]:
    """What of the user's the program must not see, with the reason."""
    outer = {name: why for name, why in OUTER.items() if name not in kind.keeps}
    removes = {**outer, **kind.removes, **start.removes}
    found = matching(removes, environ)
    return {name: removes[pattern] for pattern, name in found if name not in set_anyway}


def _removed(dropped: Mapping[str, str]) -> list[str]:
    """Lines on what is removed, each by itself, but an outer launcher's in one: it sets many."""
    outer = [name for name, reason in dropped.items() if reason == OUTER_REASON]
    others = [f"{n} was removed: {why}" for n, why in dropped.items() if why != OUTER_REASON]
    word = "were" if len(outer) > 1 else "was"
    return others + [f"{', '.join(outer)} {word} removed: {OUTER_REASON}"][: len(outer)]


def _kept(keeps: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """What of the user's is left alone, although it may contradict the table."""
    return [
        f"{name}={printable(environ[name], 200)} is kept as you set it: {keeps[pattern]}"
        for pattern, name in matching(keeps, environ)
        if pattern not in OUTER
    ]


def _notes(
    owned: Sequence[Variable], others: Sequence[Variable], environ: Mapping[str, str]
) -> list[str]:
    """What is changed in the user's environment, and what of it goes against the table."""
    changed = [
        f"{one.name} is {printable(one.value, 200)} (from the table), "
        f"not {printable(environ[one.name], 200)}"
        for one in owned
        if environ.get(one.name, one.value) != one.value
    ]
    kept = [one for one in others if one.conflict]
    return changed + [
        f"{one.name}={one.kept} is kept as you set it: {one.conflict}" for one in kept
    ]
