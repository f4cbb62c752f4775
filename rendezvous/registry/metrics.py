"""What the processes of one run say of their progress: kept in memory alone, and bounded.

Neither the journal nor the run's state machine knows of it: losing it costs a piece of a curve.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections import deque

from rendezvous.wire.metrics import MetricBatch, MetricLine

_SERIES_BYTES = 4 << 20
_NEWEST_BYTES = 16 << 20
_MOST_ROWS = 1_000


class Metrics:
    """The newest row of each process, and the rows of the last while.

    Rows are kept as the JSON of their MetricLine, in which they are told to everybody.
    """

    def __init__(self) -> None:
        self._session = secrets.token_hex(4)
        self._number = 0
        self._dropped = 0
        self._expected: dict[int, tuple[int, int]] = {}
        self._series: deque[tuple[int, bytes]] = deque()
        self._series_bytes = 0
        self._newest: dict[int, bytes] = {}
        self._newest_bytes = 0
        self._epoch = 0

    def take(
        self, slot: int, incarnation: int, batch: MetricBatch, *, epoch: int, at_seconds: float
    ) -> int:
        """Keep the rows of a node that are new; returns the number of the one expected next.

        Of an incarnation that is not known yet (the registry may have been started again), the
        first batch is taken as it comes.
        """
        if epoch != self._epoch:  # with another table the ranks may be other ones
            self._epoch = epoch
            self._newest.clear()
            self._newest_bytes = 0
        known, expected = self._expected.get(slot, (0, 0))
        expected = expected if known == incarnation else batch.first
        self._dropped += max(0, batch.first - expected)
        for row in batch.rows[max(0, expected - batch.first) :]:
            self._number += 1
            line = MetricLine.model_construct(  # all of it has been checked
                rank=row.rank,
                step=row.step,
                values=row.values,
                number=self._number,
                slot=slot,
                at_seconds=round(at_seconds, 3),
            )
            self._keep(row.rank, line.model_dump_json().encode())
        expected = max(expected, batch.first + len(batch.rows))
        self._expected[slot] = (incarnation, expected)
        return expected

    def _keep(self, rank: int, line: bytes) -> None:
        self._series.append((self._number, line))
        self._series_bytes += len(line)
        while self._series_bytes > _SERIES_BYTES:
            _, oldest = self._series.popleft()
            self._series_bytes -= len(oldest)
        grown = self._newest_bytes + len(line) - len(self._newest.get(rank, b""))
        if grown <= _NEWEST_BYTES:
            self._newest[rank] = line
            self._newest_bytes = grown

    def newest(self, elapsed_seconds: float) -> bytes:
        """The newest row of each process, by rank, as JSON of a RunMetrics."""
        rows = [line for _, line in sorted(self._newest.items())]
        return self._told(elapsed_seconds, rows)

    def after(self, number: int, elapsed_seconds: float) -> bytes:
        """The oldest kept rows numbered above `number`, so many as fit into one answer."""
        newer = (line for count, line in self._series if count > number)
        return self._told(elapsed_seconds, list(itertools.islice(newer, _MOST_ROWS)))

    def _told(self, elapsed_seconds: float, rows: list[bytes]) -> bytes:
        head = {
            "session": self._session,
            "newest": self._number,
            "dropped": self._dropped,
            "elapsed_seconds": round(elapsed_seconds, 3),
        }
        return json.dumps(head).encode()[:-1] + b', "rows": [' + b",".join(rows) + b"]}"
