"""What each node of a planned run would start, and with which variables: for the dry run. Pure.

What only the sealed table or the node itself can tell stands there as a word in <brackets>.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from launcher.plan.plan import Plan, loopback_address
from rendezvous.talk.secret_words import HIDDEN
from rendezvous.wire.run import NO_RESTARTS, RestartFacts
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.words import printable
from worker.contracts import FRAMEWORKS, Contract, make_contract
from worker.contracts.files import file_variables
from worker.contracts.framework import Paths
from worker.contracts.looking import look_variables
from worker.contracts.restarts import restart_variables
from worker.contracts.variables import (
    UNKNOWN,
    ProgramOptions,
    TableFacts,
    Variable,
    for_transports,
    from_table,
)
from worker.nccl.env import given_by

KEPT = (
    (
        "# NCCL, Gloo, TensorPipe, UCX and MPI variables that are set on the node itself, or in "
        "its nccl.conf,"
    ),
    "# override these; the node's log names them.",
)
_NAMES = "address epoch family interface logs look network node nodes number own port rdzv socket"
_WORDS = tuple(f"<{name}>" for name in _NAMES.split())
_MOST_SHOWN = 8
"""Up to so many nodes, the dry run shows each one's command."""
_SERVES = "nothing: it runs commands for node 0 ('rdzv rsh')"
_MOST_WIDTH = 44


class _Row(TableRow):
    """A node whose address is not known, taken for one of an IPv4 network."""

    @property
    def is_loopback(self) -> bool:
        return False

    @property
    def family(self) -> Literal["IPv4", "IPv6"]:
        return "IPv4"

    @property
    def subnet(self) -> str:
        return "<network>"


class _Port(int):
    """A port that is chosen later: how far it is behind the first one."""

    def __add__(self, other: int) -> _Port:
        return _Port(int(self) + other)

    def __str__(self) -> str:
        return f"<port+{int(self)}>" if self else "<port>"


def check_start(plan: Plan) -> None:
    """Refuse what no node could start, before anything is submitted.

    Raises:
        UsageError: COMMAND cannot be started like this, or not on these nodes, or a variable that
            is passed on forbids what is required.
    """
    planned(plan)
    _planned_contract(plan, _table(plan), 0)


def command_lines(plan: Plan) -> Iterator[str]:
    """What each node starts, as lines of the dry run. Raises UsageError."""
    table, last = _table(plan), plan.max_nodes - 1
    nodes = range(plan.max_nodes) if last < _MOST_SHOWN else (0, 1, last)
    contracts = {node: _planned_contract(plan, table, node) for node in nodes}
    yield "# each node then starts:"
    before = -1
    for node, contract in contracts.items():
        if node > before + 1:
            yield f"#   nodes {before + 1} to {node - 1}: the same"
        addresses = (table.master_address, table.rows[node].address)
        line = " ".join(quoted(word, *addresses) for word in contract.argv)
        yield f"#   node {node}: {line or _SERVES}"
        before = node
    for one in contracts[0].explained:
        if one.by_framework and one.kept is None:
            value = printable(quoted(one.value, table.master_address), 400)
            yield f"#     {one.name}={value}  # {one.reason}"
    if not all(isinstance(count, int) for count in plan.processes.counts):
        yield "# (shown with 1 process per node; each node counts its own)"


def short_command_lines(plan: Plan) -> Iterator[str]:
    """Tell the command of each node; nodes that differ only in their number are told once.

    Raises:
        UsageError: COMMAND cannot be started like this.
    """
    table, last = _table(plan), plan.max_nodes - 1
    nodes = range(plan.max_nodes) if last < _MOST_SHOWN else (0, 1, last)
    groups: list[tuple[int, list[str], list[str]]] = []
    for node in nodes:
        argv = list(_planned_contract(plan, table, node).argv)
        own = _own_flags(*groups[-1][:2], node, argv) if groups else None
        if own is None:
            groups.append((node, argv, []))
        else:
            groups[-1][2].extend(flag for flag in own if flag not in groups[-1][2])
    ends = [*(first - 1 for first, *_ in groups[1:]), last]
    for (first, argv, flags), end in zip(groups, ends, strict=True):
        addresses = (table.master_address, table.rows[first].address)
        line = " ".join(quoted(word, *addresses) for word in argv) or _SERVES
        yield f"  {_nodes_text(first, first if flags else end)}: {line}"
        if flags:
            each = "with its own" if end == first + 1 else "each with its own"
            yield f"  {_nodes_text(first + 1, end)}: the same, {each} {' and '.join(flags)}"


def _nodes_text(first: int, last: int) -> str:
    if last - first < 2:
        return f"node {first}" if first == last else f"nodes {first} and {last}"
    return f"nodes {first} to {last}"


def _own_flags(
    other: int, first: Sequence[str], node: int, argv: Sequence[str]
) -> list[str] | None:
    """The options in which a node's command differs from another node's, where they hold what is
    each node's own; None where the commands differ in more."""
    if len(first) != len(argv):
        return None
    found = []
    for position, (old, new) in enumerate(zip(first, argv, strict=True)):
        if old == new:
            continue
        flag = first[position - 1] if position else ""
        is_own = old.replace(f"node-{other}", f"node-{node}") == new
        is_own |= old.replace(f"node {other}", f"node {node}") == new
        if flag not in _OWN_FLAGS and not is_own:
            return None
        found.append(flag)
    return found


_OWN_FLAGS = ("--node-rank", "--node_rank", "--machine_rank", "--node", "--rank")


def planned(plan: Plan) -> list[Variable]:
    """What the programs of any node will be given.

    Raises:
        UsageError: `--require-rdma`, and a variable that is passed on forbids it.
    """
    port, counts = plan.settings.master_port, set(plan.processes.counts)
    count = counts.pop() if len(counts) == 1 else None
    place = TableFacts(
        master_address="<address>",
        master_port=str(port) if port else "<port>",
        node="<node>",
        address="<own>",
        nnodes=plan.nnodes if plan.min_nodes == plan.max_nodes else "<nodes>",
        nproc_per_node=str(count) if isinstance(count, int) else "<number>",
        run=plan.run,
        interface="<interface>",
        family="<family>",
        subnet="<network>",
        sealed=False,
        devices=UNKNOWN,
    )
    options = ProgramOptions.of(plan.settings, _nccl_file("<node>", "<epoch>"))
    others = for_transports(place, options, given_by(plan.passed))
    told = restart_variables("<epoch>", _facts(plan))
    paths = _paths("<node>")
    led = FRAMEWORKS[options.framework].is_led(plan.command)
    looking = [] if led else look_variables(paths, plan.passed, options)
    return from_table(place) + told + file_variables(paths) + others + looking


def given_lines(plan: Plan) -> Iterator[str]:
    """The variables that a person gives to each program, as lines of the dry run."""
    if found := plan.given.explained():
        yield "Each program also gets:"
        yield from (f"  {line}" for line in variable_lines(found))


def planned_lines(variables: Sequence[Variable]) -> Iterator[str]:
    """The variables, as lines of the dry run."""
    yield "# each node's program gets these variables, in addition to its environment:"
    yield from (f"#   {line}" for line in variable_lines(variables))
    yield "# NCCL_IB_HCA as well, where the active RDMA ports of a node differ in kind or rate."
    yield from KEPT


def contract_of(
    command: Sequence[str],
    table: EndpointTable,
    row: TableRow,
    settings: Mapping[str, object],
    environ: Mapping[str, str],
    restarts: RestartFacts = NO_RESTARTS,
    config: str = "",
) -> Contract:
    """What a node would start, seen from elsewhere: its own places are words. Raises UsageError.

    Args:
        settings: Those of `ProgramOptions`; the defaults where one is not there.
        environ: What is known of the node's environment.
        restarts: What is known of the programs before this one.
        config: The text of the framework's `config_file`; empty where that is not known.
    """
    node = str(row.node)
    options = ProgramOptions.of(settings, _nccl_file(node, str(table.epoch)))
    paths = _paths(node)
    return make_contract(
        command,
        table,
        row.slot,
        environ,
        options,
        paths=paths,
        restarts=restarts,
        config=config,
    )


def variable_lines(variables: Sequence[Variable]) -> Iterator[str]:
    """`NAME=VALUE  # reason`, the reasons below each other; what is kept of the user's is said."""
    pairs = [(_assignment(one), _reason(one)) for one in variables]
    width = min(_MOST_WIDTH, max((len(left) for left, _ in pairs), default=0))
    for left, reason in pairs:
        yield f"{left:{width}}  # {reason}"


def quoted(text: str, *words: str) -> str:
    """As a shell takes it, except for the words in <brackets>; `words` are further ones."""
    rest = text
    for word in (*_WORDS, *words):
        rest = rest.replace(word, "_")
    return text if shlex.quote(rest) == rest else shlex.quote(text)


def _assignment(one: Variable) -> str:
    value = one.value if one.kept is None else one.kept.value
    return f"{one.name}={printable(quoted(value, HIDDEN), 400)}"


def _reason(one: Variable) -> str:
    if one.kept is None:
        return one.reason
    return f"kept as you set it: {one.conflict}" if one.conflict else "kept as you set it"


def _planned_contract(plan: Plan, table: EndpointTable, node: int) -> Contract:
    row, settings = table.rows[node], dict(plan.settings)
    return contract_of(plan.command, table, row, settings, plan.passed, _facts(plan), plan.config)


def _facts(plan: Plan) -> RestartFacts:
    most, outlives = plan.limits().max_restarts, plan.settings.outlives_nodes
    return RestartFacts(max_restarts=most, outlives_nodes=outlives)


def _table(plan: Plan) -> EndpointTable:
    """The table as it may come to be."""
    rows = [_row(plan, node) for node in range(plan.max_nodes)]
    return EndpointTable.model_construct(  # validated, the port would be a number
        run=plan.run,
        launch_id=plan.launch_id,
        epoch=1,
        master_address=rows[0].address,
        master_port=plan.settings.master_port or _Port(0),
        rows=rows,
    )


def _row(plan: Plan, node: int) -> TableRow:
    count = plan.processes.of(node)
    kind = TableRow if plan.site.loopback else _Row
    return kind(
        node=node,
        slot=node,
        hostname=f"slot {node}",
        address=loopback_address(node) if plan.site.loopback else f"<address of node {node}>",
        interface="<interface>",
        prefix_length=8,
        nproc_per_node=count if isinstance(count, int) else 1,
        mac="",
    )


def _paths(node: str) -> Paths:
    folder = f"<logs>/node-{node}"
    return Paths(
        folder,
        bin=f"{folder}/bin",
        socket="<socket>",
        programs="<rdzv>/worker/programs",
        hook="<rdzv>/worker/look/site",
        look="<look>",
    )


def _nccl_file(node: str, epoch: str) -> str:
    return f"<logs>/node-{node}.e{epoch}.%p.log"
