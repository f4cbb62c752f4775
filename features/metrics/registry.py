"""What the registry keeps of a run's metrics: the newest row of each process, and a bounded series.

Rows are kept as the JSON of their MetricLine, as every reader gets them.
"""

from __future__ import annotations

import contextlib
import json
import secrets

from pydantic import BaseModel

from features.metrics.wire import MetricBatch, MetricLine, MetricReply
from rendezvous.registry.topics import Newest, Received, Ring, Run
from rendezvous.wire.errors import TooLarge

_SERIES_BYTES = 4 << 20
_NEWEST_BYTES = 16 << 20
_MOST_ROWS = 1_000


class MetricQuery(BaseModel):
    """The row that is known."""

    after: int | None = None


class Store:
    """The metrics of one run."""

    def __init__(self) -> None:
        self._session = secrets.token_hex(4)
        self._dropped = 0
        self._expected: dict[int, tuple[int, int]] = {}
        self._series = Ring(_SERIES_BYTES)
        self._newest = Newest[int](_NEWEST_BYTES)
        self._epoch = 0

    def receive(self, received: Received) -> tuple[MetricReply, int]:
        """Keep the rows of a node that are new; the reply has the number of the next one.

        Of an incarnation that is not known yet (the registry may have been started again), the
        first batch is taken as it comes.
        """
        batch: MetricBatch = received.message
        if received.run.epoch != self._epoch:  # with another table the ranks may be other ones
            self._epoch = received.run.epoch
            self._newest.clear()
        known, expected = self._expected.get(received.slot, (0, 0))
        expected = expected if known == received.incarnation else batch.first
        self._dropped += max(0, batch.first - expected)
        at_seconds = round(received.now - received.run.created_at, 3)
        for row in batch.rows[max(0, expected - batch.first) :]:
            line = MetricLine.model_construct(  # all of it has been checked
                rank=row.rank,
                step=row.step,
                values=row.values,
                number=self._series.newest + 1,
                slot=received.slot,
                at_seconds=at_seconds,
            )
            self._keep(row.rank, line.model_dump_json().encode())
        expected = max(expected, batch.first + len(batch.rows))
        self._expected[received.slot] = (received.incarnation, expected)
        return MetricReply(expected=expected), len(batch.rows)

    def _keep(self, rank: int, line: bytes) -> None:
        self._series.put(line)
        with contextlib.suppress(TooLarge):  # of so many ranks, some stay with an older row
            self._newest.put(rank, line)

    def to_json(self, run: Run, query: MetricQuery, now: float) -> bytes:
        """The newest row of each process, by rank; with `after`, the oldest rows above it."""
        if query.after is None:
            rows = [line for _, line in sorted(self._newest.items())]
        else:
            rows = self._series.after(query.after, _MOST_ROWS)
        head = {
            "session": self._session,
            "newest": self._series.newest,
            "dropped": self._dropped,
            "elapsed_seconds": round(now - run.created_at, 3),
        }
        return json.dumps(head).encode()[:-1] + b', "rows": [' + b",".join(rows) + b"]}"
