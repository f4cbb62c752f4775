"""Which variables the programs are given, and why: in the dry run, and of a run's sealed table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from launcher.inspect import find_run, registry_of
from launcher.plan import Plan
from launcher.settings import LaunchSettings
from launcher.state_dir import StateDir
from rendezvous.errors import RdzvError, UsageError
from rendezvous.schema import EndpointTable, printable
from worker.contracts import Paths, file_variables, make_contract
from worker.nccl.env import given_by
from worker.settings import NodeSettings
from worker.variables import Place, Variable, Wishes, for_transports, from_table

_WISHES = (
    "framework",
    "rdzv_backend",
    "tf_chief",
    "tf_ps",
    "require_rdma",
    "env_for",
    "nccl_log",
)
_NCCL_FILE = "<logs>/node-{rank}.%p.log"
_MOST_WIDTH = 44
_KEPT = (
    "# What is set on the node itself of NCCL, Gloo, TensorPipe, UCX and MPI, or in its nccl.conf,",
    "# is kept in place of these, and the node's log says so.",
)


def wishes_of(settings: NodeSettings, command: Sequence[str]) -> dict[str, Any]:
    """What decides, beside the table, the programs' environment, as a launch's record keeps it."""
    return {name: getattr(settings, name) for name in _WISHES} | {"command": [*command]}


def planned(plan: Plan) -> list[Variable]:
    """What the programs of a run will be given; what comes with the table stands in <brackets>.

    Raises:
        UsageError: `--require-rdma`, and a variable that is passed on forbids it.
    """
    settings = plan.settings
    port = settings.master_port
    place = Place(
        master_address="<address>",
        master_port=str(port) if port else "<port>",
        rank="<rank>",
        nnodes=plan.nnodes if plan.min_nodes == plan.max_nodes else "<nodes>",
        nproc_per_node=plan.nproc_per_node(0) if plan.nproc_per_node(0).isdigit() else "<number>",
        run=plan.run,
        interface="<interface>",
        family="<family>",
        subnet="<network>",
        sealed=False,
    )
    wishes = _wishes(wishes_of(settings, plan.command), "<rank>")
    files = file_variables(Paths("<logs>/node-<rank>", socket="<socket>"))
    return from_table(place) + files + for_transports(place, wishes, given_by(plan.passed))


def planned_lines(variables: Sequence[Variable]) -> Iterator[str]:
    """The lines of the dry run."""
    yield "# each node's program is given, beside what its environment has:"
    yield from (f"#   {line}" for line in _lines(variables))
    yield "# NCCL_IB_HCA as well, where the active RDMA ports of a node differ in kind or rate."
    yield from _KEPT


def table_lines(
    table: EndpointTable, digest: str, rank: int, kept: Mapping[str, Any]
) -> Iterator[str]:
    """What the program of a node is given, from the sealed table.

    Args:
        table: The table.
        digest: Its SHA-256.
        rank: The node's.
        kept: The launch's `wishes_of`, as its record has them; the defaults where it says nothing.

    Raises:
        UsageError: There is no such node, or nothing can be started like this.
    """
    row = _row(table, rank)
    name = printable(row.hostname, 253)
    yield f"# node {rank} ({name}, slot {row.slot}) of run '{table.run}', table {digest[:12]}"
    if table.transport:
        yield f"# NCCL should say: Using network {table.transport}"
    yield from _lines(_of_row(table, rank, kept))
    yield from _KEPT


async def show_environment(root: Path, run: str, rank: int, *, as_json: bool) -> int:
    """Print what the program of a node is given. Raises RdzvError."""
    state = find_run(root, run)
    record = state.record()
    kept = record.wishes if record else {}
    table, digest = await _table(state)
    if as_json:
        row = _row(table, rank)
        found = [_as_json(one) for one in _of_row(table, rank, kept)]
        known = {"run": run, "table": digest, "transport": table.transport}
        node = {"node_rank": rank, "hostname": row.hostname, "variables": found}
        click.echo(json.dumps(known | node, indent=1))
    else:
        for line in table_lines(table, digest, rank, kept):
            click.echo(line)
    return 0


async def _table(state: StateDir) -> tuple[EndpointTable, str]:
    """The newest table, and its digest: of the registry, or what the launcher has kept of it."""
    try:
        async with registry_of(state) as client:
            status = await client.status(state.run)
            if status.digest:
                return await client.table(state.run, status.digest), status.digest
            why = f"it is {status.phase}: {status.reason}"
    except RdzvError as exc:
        kept = _kept(state)
        if kept is not None:
            return kept, kept.digest()
        why = exc.message
    raise UsageError(
        f"run '{state.run}' has no endpoint table: {why}",
        hint="it is sealed when all nodes have joined; 'rdzv launch --dry-run' shows what is known "
        "before",
    )


def _kept(state: StateDir) -> EndpointTable | None:
    try:
        return EndpointTable.model_validate_json((state.path / "table.json").read_bytes())
    except (OSError, ValidationError):
        return None


def _of_row(table: EndpointTable, rank: int, kept: Mapping[str, Any]) -> list[Variable]:
    folder = f"<logs>/node-{rank}"
    kept = wishes_of(LaunchSettings(), ["COMMAND"]) | dict(kept)
    contract = make_contract(
        kept["command"],
        table,
        _row(table, rank).slot,
        {},
        framework=kept["framework"],
        backend=kept["rdzv_backend"],
        wishes=_wishes(kept, str(rank)),
        paths=Paths(folder, bin=f"{folder}/bin", socket="<socket>"),
    )
    return contract.explained


def _row(table: EndpointTable, rank: int) -> Any:
    for row in table.rows:
        if row.rank == rank:
            return row
    raise UsageError(
        f"run '{table.run}' has no node of rank {rank}",
        hint=f"its node ranks are 0 to {len(table.rows) - 1}",
    )


def _wishes(kept: Mapping[str, Any], rank: str) -> Wishes:
    """In the form of the worker."""
    return Wishes(
        require_rdma=kept["require_rdma"],
        env_for=tuple(kept["env_for"]),
        nccl_log=kept["nccl_log"],
        nccl_file=_NCCL_FILE.format(rank=rank),
        tf_chief=kept["tf_chief"],
        tf_ps=kept["tf_ps"],
    )


def _lines(variables: Sequence[Variable]) -> Iterator[str]:
    """`NAME=VALUE  # reason`, the reasons below each other; what is kept of the user's is said."""
    pairs = [(_assignment(one), _reason(one)) for one in variables]
    width = min(_MOST_WIDTH, max((len(left) for left, _ in pairs), default=0))
    for left, reason in pairs:
        yield f"{left:{width}}  # {reason}"


def _assignment(one: Variable) -> str:
    value = one.value if one.kept is None else one.kept.value
    quoted = value if value.startswith("<") or "=<" in value else shlex.quote(value)
    return f"{one.name}={printable(quoted, 400)}"


def _reason(one: Variable) -> str:
    if one.kept is None:
        return one.reason
    return f"kept as you set it: {one.conflict}" if one.conflict else "kept as you set it"


def _as_json(one: Variable) -> dict[str, str]:
    return {"name": one.name, "value": one.value, "reason": one.reason}
