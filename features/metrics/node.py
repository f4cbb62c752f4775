"""Takes the metrics of this node's processes from its socket, and publishes them in batches.

Rows that cannot be sent wait, a bounded number of them; then the oldest are dropped, and that is
logged. Nothing here may hold up the program or the node: progress is worth less than the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

from pydantic import ValidationError

from features.metrics import TOPIC
from features.metrics.wire import MOST_METRIC_ROWS, MetricBatch, MetricRow, encoded
from rendezvous.wire.errors import RdzvError, RegistryError, TooManyRequests
from rendezvous.wire.words import printable
from worker.agent import NodePort

logger = logging.getLogger(__name__)

_MOST_WAITING = 2_048
_BATCH_BYTES = 48 << 10
"""Below what the registry takes as a body."""
_WARN_SECONDS = 60.0


async def run(port: NodePort) -> None:
    """Publish the rows of this node's processes."""
    port.activity = "sending metrics"
    rows = Rows(port)
    port.serve("metrics", rows.take)
    port.flush = rows.flush
    await rows.send()


class Rows:
    """The rows of one node on their way to the registry."""

    def __init__(self, port: NodePort) -> None:
        self._port = port
        self._waiting: deque[tuple[MetricRow, int]] = deque()
        self._first = 1
        self._dropped = 0
        self._warned_at = float("-inf")
        self._arrived = asyncio.Event()
        self._one_sends = asyncio.Lock()
        self._refused = False

    def take(self, request: Mapping[str, object]) -> str:
        """Take in a row of a process: `rank`, `step` and `values`; other keys are ignored.

        A NaN, which Python's JSON knows, is as good as `NAME/not_finite`.

        Returns:
            Why it was refused; empty when it was not.
        """
        try:
            values = request.get("values")
            known = {"values": encoded(values)} if isinstance(values, dict) else {}
            row = MetricRow.model_validate({**request, **known})
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            return printable(f"metrics: {place}: {first['msg']}", 300)
        self._port.progressed(row.step)
        self._waiting.append((row, len(row.model_dump_json())))
        if len(self._waiting) > _MOST_WAITING:
            self._drop_oldest()
        self._arrived.set()
        return ""

    def _drop_oldest(self) -> None:
        """Drop a row; the registry sees it from the numbers of the others."""
        self._waiting.popleft()
        self._first += 1
        self._dropped += 1
        now = asyncio.get_running_loop().time()
        if now - self._warned_at > _WARN_SECONDS:
            self._warned_at = now
            logger.warning(
                "%d rows of metrics were dropped, the oldest first: the program sends them "
                "faster than the node can report them",
                self._dropped,
            )

    async def send(self) -> None:
        """Publish rows as they come, for ever; the more nodes there are, the less often."""
        while not self._refused:
            await self._arrived.wait()
            self._arrived.clear()
            await self._send_batch()
            await asyncio.sleep(TOPIC.pause(self._port.nodes))
            if self._waiting:  # more than one batch, or of a registry that did not answer
                self._arrived.set()

    async def flush(self) -> None:
        """Publish what still waits: the program has ended."""
        while await self._send_batch():
            pass

    async def _send_batch(self) -> bool:
        """Publish the oldest rows; returns whether the registry has taken some."""
        async with self._one_sends:
            if not self._waiting or self._refused:
                return False
            batch = self._batch()
            try:
                await self._port.publish(TOPIC, batch)
            except (RegistryError, TooManyRequests):
                return False  # the watch finds out that it is gone
            except RdzvError as exc:  # this node is fenced off
                self._refused = True
                logger.info("the registry does not accept metrics: %s", exc.message)
                return False
            self._taken(batch.first + len(batch.rows))
            return True

    def _batch(self) -> MetricBatch:
        """The oldest rows, so many as fit into one body."""
        rows: list[MetricRow] = []
        room = _BATCH_BYTES
        for row, size in self._waiting:
            room -= size + 1
            if len(rows) == MOST_METRIC_ROWS or room < 0:
                break
            rows.append(row)
        return MetricBatch(first=self._first, rows=rows)

    def _taken(self, following: int) -> None:
        """Forget the rows numbered below; some of them may have been dropped meanwhile."""
        while self._first < following:
            self._waiting.popleft()
            self._first += 1
