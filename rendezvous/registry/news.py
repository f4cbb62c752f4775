"""The news of a run: what all its nodes are told, written once for everyone."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from rendezvous.serving.answers import Body
from rendezvous.wire.watch import NodeView, write_view


@dataclass(frozen=True)
class News:
    """One view, as it is told.

    Attributes:
        view: With its table while that is to be acknowledged.
        written: The table in its canonical form; empty: there is none.
        former: The digest of the table that it renews; empty: none.
    """

    view: NodeView
    written: bytes = b""
    former: str = ""

    def to(self, has: str | None) -> Body:
        """The answer for who has the table with this digest."""
        return self._short if self.former and has == self.former else self._whole

    def write(self) -> None:
        """Write ahead what nearly all nodes will ask for."""
        self.to(self.former)

    @functools.cached_property
    def _whole(self) -> Body:
        return Body.of(write_view(self.view, self.written))

    @functools.cached_property
    def _short(self) -> Body:
        assert self.view.table is not None
        port = {"renewed_port": self.view.table.master_port, "table": None}
        return Body.of(write_view(self.view.model_copy(update=port), b""))
