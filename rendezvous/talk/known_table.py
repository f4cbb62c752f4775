"""The table that a node has, from which the next one of its run may be made."""

from __future__ import annotations

from rendezvous.wire.table import EndpointTable
from rendezvous.wire.watch import NodeView, read_view


class KnownTable:
    """The newest table of a run whose programs may start again; of others none is kept."""

    def __init__(self) -> None:
        self._digest = ""
        self._table: EndpointTable | None = None

    @property
    def query(self) -> str:
        """What a watch says of it; empty where there is none."""
        return f"&has={self._digest}" if self._table is not None else ""

    def read(self, data: bytes) -> NodeView:
        """What a watch has brought. Raises ValidationError; OtherDigest.

        After one that cannot be read, no table is known: the next one is asked for as a whole.
        """
        former, self._table = self._table, None
        view = read_view(data, former)
        self._table = former
        if view.table is not None and view.restarts is not None:
            self._digest, self._table = view.digest, view.table
        return view
