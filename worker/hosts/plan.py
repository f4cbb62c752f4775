"""Which names of a table are written into this node's hosts file, and why the others are not. Pure.

A name that leads elsewhere already is left as it is: nothing that a program reaches by a name may
move because a run begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from rendezvous.frozen import frozen
from rendezvous.wire.hostnames import is_valid_label
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.words import few, listed, printable
from worker.hosts.text import (
    HostsEntry,
    canonical,
    checked_address,
    is_loopback,
    names_in,
    names_of,
)

UNKNOWN: Mapping[str, AbstractSet[str]] = {}
_MOST_WORDS = 600
_MOST_TOLD = 3


@frozen
class HostsPlan:
    """What to write for a table.

    Attributes:
        entries: Only nodes that keep at least one name.
        own_names: The names that this node's loopback lines must give up.
        warning: Which names are left out, and why; empty when none is.
    """

    entries: list[HostsEntry]
    own_names: frozenset[str]
    warning: str


def plan_hosts(
    current: str,
    table: EndpointTable,
    own_slot: int,
    *,
    run: str,
    resolved: Mapping[str, AbstractSet[str]] = UNKNOWN,
) -> HostsPlan:
    """Choose the names to write: each node's hostname, and `node-N`.

    Left out are a hostname that is no single label or a reserved one (silently), one that two nodes
    have or that leads elsewhere already, an alias that is another node's hostname, and a name that
    `current` maps to another address.

    Args:
        current: The hosts file's text.
        table: The endpoint table.
        own_slot: This node's.
        run: The run id.
        resolved: Where hostnames lead here without the table, by name in lower case, as far as that
            is known. Where the node's own address is among them, the name is its own.

    Raises:
        ArmingFailed: The table holds something that is no node's address.
    """
    elsewhere, leads = names_in(current, besides=run), _leads(resolved, current, run)
    hostnames = Counter(row.hostname.lower() for row in table.rows)
    entries, problems = [], []
    own_names: frozenset[str] = frozenset()
    for row in table.rows:
        address, own = checked_address(row.address), row.slot == own_slot
        names = []
        for name in _wanted_names(row):
            taken, led = (
                {a for a in found.get(name.lower(), ()) if not (own and is_loopback(a))}
                for found in (elsewhere, leads)
            )
            problem = _problem(name, row, hostnames, taken - {address}, led)
            if problem:
                problems.append(problem)
            else:
                names.append(name)
        if own:
            own_names = frozenset(names)
        if names:
            entries.append(HostsEntry(address, names))
    return HostsPlan(entries, own_names, _warning(problems))


def _leads(
    resolved: Mapping[str, AbstractSet[str]], text: str, run: str
) -> dict[str, AbstractSet[str]]:
    """Where names lead, without what this run's own block says, which may be of an older table."""
    ours = names_of(run, text)
    return {
        name: frozenset(map(canonical, addresses)) - ours.get(name, set())
        for name, addresses in resolved.items()
    }


def _wanted_names(row: TableRow) -> list[str]:
    hostname = [row.hostname] if is_valid_label(row.hostname) else []
    alias = f"node-{row.node}"
    return hostname if row.hostname.lower() == alias else [*hostname, alias]


def _problem(
    name: str,
    row: TableRow,
    hostnames: Counter[str],
    taken: AbstractSet[str],
    led: AbstractSet[str],
) -> str:
    """Why a name cannot be written for a row; empty when it can."""
    is_hostname = name == row.hostname
    if hostnames[name.lower()] > is_hostname:
        return f"{name} is also another node's hostname"
    if taken:
        return f"{name} is {few(sorted(taken))} there and {row.address} in the table"
    if is_hostname and led and row.address not in led:
        return f"{name} already resolves to {listed(sorted(led), 4)}, not to {row.address}"
    return ""


def _warning(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    told = list(dict.fromkeys(problems))
    more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    text = f"names left out of the hosts file: {'; '.join(told[:_MOST_TOLD])}{more}"
    return printable(text, _MOST_WORDS)
