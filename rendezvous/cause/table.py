"""The causes that can be told from each other: what shows them, what they mean, what to do. Pure.

`docs/causes.md` is made of this table. A line of output is matched with the patterns in the order
of the rows: what is special stands before what is general.
"""

from __future__ import annotations

from rendezvous.cause.row import Kind, Row, Then
from rendezvous.cause.rows_devices import COLLECTIVES, DEVICES, SICK_XID
from rendezvous.cause.rows_ends import ENDS, JUDGED, NODES, OUTSIDE
from rendezvous.cause.rows_machine import FILES, MEMORY, PROCESSES
from rendezvous.cause.rows_others import OTHERS

__all__ = ["BY_CODE", "BY_ID", "CAUSES", "OF_DEVICES", "SICK_XID", "Kind", "Row", "Then"]

CAUSES: tuple[Row, ...] = (
    *DEVICES, *COLLECTIVES, *OUTSIDE, *MEMORY, *FILES, *PROCESSES, *OTHERS,
    *ENDS, *NODES, *JUDGED,
)  # fmt: skip
OF_DEVICES = frozenset(row.id for row in DEVICES if row.kind is Kind.OWN)
BY_ID = {row.id: row for row in CAUSES}
BY_CODE = {code: row.id for row in CAUSES for code in row.codes}
