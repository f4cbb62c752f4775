"""Which variables a node's program is given, and why, of a run's sealed table."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from launcher.plan.dry_run import KEPT, contract_of, variable_lines
from launcher.state.find_run import find_run, registry_of
from launcher.state.state_dir import StateDir
from rendezvous.talk.sealed_variables import SLOT
from rendezvous.wire.errors import NotFound, RdzvError, UsageError
from rendezvous.wire.run import NO_RESTARTS, RestartFacts, RunStatus
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.words import no_node_words, node_name, printable
from worker.contracts.variables import Variable


def table_lines(
    table: EndpointTable,
    digest: str,
    node: int,
    kept: Mapping[str, Any],
    restarts: RestartFacts = NO_RESTARTS,
) -> Iterator[str]:
    """What the program of a node is given, from the sealed table.

    Args:
        table: The table.
        digest: Its SHA-256.
        node: Its number.
        kept: What the launch's record has of its options; the defaults where it says nothing.
        restarts: What is known of the programs before its own.

    Raises:
        UsageError: There is no such node, or nothing can be started like this.
    """
    row = row_of_node(table, node)
    name = node_name(node, printable(row.hostname, 253), row.slot)
    yield f"# {name} of run '{table.run}', table {digest[:12]}"
    if table.transport:
        yield f"# NCCL should say: Using network {table.transport}"
    yield from variable_lines(variables_of(table, node, kept, restarts))
    yield from KEPT


async def show_environment(root: Path, run: str, node: int, *, as_json: bool) -> int:
    """Print what the program of a node is given. Raises RdzvError."""
    state = find_run(root, run)
    record = state.record()
    kept = record.options if record else {}
    table, digest, restarts = await _table(state)
    if as_json:
        row = row_of_node(table, node)
        found = [
            {"name": one.name, "value": one.value, "reason": one.reason}
            for one in variables_of(table, node, kept, restarts)
        ]
        known = {"run": run, "table": digest, "transport": table.transport}
        about = {"node": node, "hostname": row.hostname, "variables": found}
        click.echo(json.dumps(known | about, indent=1))
    else:
        for line in table_lines(table, digest, node, kept, restarts):
            click.echo(line)
    return 0


async def _table(state: StateDir) -> tuple[EndpointTable, str, RestartFacts]:
    """The newest table, its digest and the restarts: of the registry, or what is kept of it."""
    try:
        async with registry_of(state) as client:
            status = await client.status(state.run)
            if status.ended and not status.digest:  # the last table is kept
                raise NotFound(f"its nodes gather again: {status.reason}")
            if status.digest:
                table = await client.table(state.run, status.digest)
                return table, status.digest, restart_facts(status)
            why = f"it is {status.phase}: {status.reason}"
    except RdzvError as exc:
        if (kept := state.read("table.json", EndpointTable)) is not None:
            return kept, kept.digest(), restart_facts(state.read("status.json", RunStatus))
        why = exc.message
    raise UsageError(
        f"run '{state.run}' has no endpoint table: {why}",
        hint="there is one once all nodes reach each other; until then, "
        "'rdzv launch --dry-run full' shows what is known",
    )


def restart_facts(status: RunStatus | None) -> RestartFacts:
    """What the newest programs were told of those before them."""
    if status is None:
        return NO_RESTARTS
    last = printable(status.ended[-1].message, 600) if status.ended else ""
    return RestartFacts(
        restarts=status.restarts,
        max_restarts=status.max_restarts,
        replacements=status.replacements,
        last_failure=last,
        outlives_nodes=status.on_node_loss != "fail",
    )


def variables_of(
    table: EndpointTable, node: int, kept: Mapping[str, Any], restarts: RestartFacts
) -> list[Variable]:
    """What the program of a node is given, each with its reason; as `table_lines`."""
    command, row = kept.get("command", ["COMMAND"]), row_of_node(table, node)
    found = contract_of(command, table, row, kept, {}, restarts).explained
    return [*found, *_given(kept, row.slot, {one.name for one in found})]


def _given(kept: Mapping[str, Any], slot: int, others: Collection[str]) -> Iterator[Variable]:
    """What a person gave to each program, as the launch's record has it; of a secret no value."""
    for name, value, reason, by_slot in kept.get("given", ()):
        if name not in others:
            yield Variable(name, value.replace(SLOT, str(slot)) if by_slot else value, reason)


def row_of_node(table: EndpointTable, node: int) -> TableRow:
    """The row of this node; raises UsageError."""
    for row in table.rows:
        if row.node == node:
            return row
    raise UsageError(no_node_words(table.run, node, len(table.rows)))
