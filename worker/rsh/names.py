"""Which node of the table is meant by the HOST of a remote command. Pure."""

from __future__ import annotations

import ipaddress

from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.words import listed, printable


def row_of_host(table: EndpointTable, host: str) -> TableRow:
    """The row of a host: by address, by the alias node-N, or by hostname.

    A hostname also counts without what stands behind its first dot, in the table as in HOST: Open
    MPI cuts it there.

    Raises:
        UsageError: It is no node of this run, or more than one.
    """
    address = _address(host)
    if address:
        found = [row for row in table.rows if row.address == address]
    else:
        name = host.lower()
        found = [row for row in table.rows if name == f"node-{row.node}"]
        found = found or [row for row in table.rows if name == row.hostname.lower()]
        found = found or [row for row in table.rows if _short(name) == _short(row.hostname)]
    if len(found) == 1:
        return found[0]
    shown = printable(repr(host), 300)
    if found:
        aliases = listed(f"node-{row.node}" for row in found)
        raise UsageError(f"{shown} is the name of {aliases}: name one of these")
    nodes = listed((f"{row.address} ({row.hostname}, node-{row.node})" for row in table.rows), 8)
    raise UsageError(f"{shown} is not a node of run '{table.run}', which has {nodes}")


def _address(text: str) -> str:
    """The address as a table writes it; empty for a name."""
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        return ""


def _short(name: str) -> str:
    return name.lower().partition(".")[0]
