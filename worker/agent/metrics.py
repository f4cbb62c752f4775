"""How the program's processes get on: taken from the agent's socket, sent on in batches.

What cannot be sent waits, a bounded number of rows of it; then the oldest are dropped, and that is
said. Nothing here may hold up the program or the node: progress is worth less than the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from pydantic import ValidationError

from rendezvous.compat import timeout
from rendezvous.wire.errors import RdzvError, RegistryError, TooManyRequests
from rendezvous.wire.metrics import MOST_METRIC_ROWS, MetricBatch, MetricReply, MetricRow, encoded
from rendezvous.wire.words import printable

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
"""At least so long from one batch to the next."""
_FLUSH_SECONDS = 1.0
_MOST_WAITING = 2_048
_BATCH_BYTES = 48 << 10
"""Below what the registry takes as a body."""
_BATCHES_A_SECOND = 500
"""Of all nodes together: the registry has other things to do."""
_SAY_SECONDS = 60.0


class Registry(Protocol):
    """What is needed of `rendezvous.talk.client.RegistryClient`."""

    async def send_metrics(self, run: str, slot: int, batch: MetricBatch) -> MetricReply:
        """Tell how this node's processes get on."""


class Metrics:
    """The rows of one node on their way to the registry.

    Args:
        registry: Where they go.
        run: The run id.
        slot: Of this node.
    """

    def __init__(self, registry: Registry, run: str, slot: int) -> None:
        self._registry = registry
        self._run = run
        self._slot = slot
        self._waiting: deque[tuple[MetricRow, int]] = deque()
        self._first = 1
        self._dropped = 0
        self._said_at = float("-inf")
        self._arrived = asyncio.Event()
        self._one_sends = asyncio.Lock()
        self._refused = False
        self._step: int | None = None

    @property
    def step(self) -> int | None:
        """The highest step that a process has told since the program's start; None: none has."""
        return self._step

    def begin(self) -> None:
        """A program starts: the steps of the one before it are not its own."""
        self._step = None

    def take(self, request: Mapping[str, object]) -> str:
        """Take in what a process says: `rank`, `step` and `values`; other keys are ignored.

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
        self._step = row.step if self._step is None else max(self._step, row.step)
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
        now = time.monotonic()
        if now - self._said_at > _SAY_SECONDS:
            self._said_at = now
            logger.warning(
                "%d rows of metrics were dropped, the oldest first: the program sends them "
                "faster than the node can report them",
                self._dropped,
            )

    async def send(self, nodes: int = 1) -> None:
        """Send on what comes, for ever; the more nodes there are, the less often each does."""
        pause = max(INTERVAL_SECONDS, nodes / _BATCHES_A_SECOND)
        while not self._refused:
            await self._arrived.wait()
            self._arrived.clear()
            await self._send_batch()
            await asyncio.sleep(pause)
            if self._waiting:  # more than one batch, or of a registry that did not answer
                self._arrived.set()

    async def flush(self) -> None:
        """Send what still waits, for a moment: the program has ended."""
        with contextlib.suppress(TimeoutError):
            async with timeout(_FLUSH_SECONDS):
                while await self._send_batch():
                    pass

    async def _send_batch(self) -> bool:
        """Send the oldest rows; whether the registry has taken some."""
        async with self._one_sends:
            if not self._waiting or self._refused:
                return False
            batch = self._batch()
            try:
                await self._registry.send_metrics(self._run, self._slot, batch)
            except (RegistryError, TooManyRequests):
                return False  # the watch says that it is gone
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
