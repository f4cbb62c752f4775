"""How a node sends metrics, row by row, is as in `node_courses.txt`: on a virtual clock.

See `make reference`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from features.metrics import node
from features.metrics.node import Rows
from features.metrics.wire import MetricBatch, MetricReply
from rendezvous.channel import Published
from rendezvous.wire.errors import NotFound, TooManyRequests, Unavailable
from tests.support.courses import lines_in, text_of
from tests.worker.agent.drive import virtually
from tests.worker.told import Told

KNOWN = Path(__file__).with_name("node_courses.txt")


def _now() -> str:
    return f"{asyncio.get_running_loop().time():.3f}"


class Port:
    """A node's port whose registry answers as it is made up."""

    def __init__(self, told: Told, nodes: int, *answers: Any) -> None:
        self.told, self.nodes, self.answers = told, nodes, [*answers]
        self.step = -1

    def progressed(self, step: int) -> None:
        """Note the highest."""
        self.step = max(step, self.step)

    async def publish(self, topic: Published, batch: MetricBatch) -> MetricReply:
        """Take rows in."""
        steps = [row.step for row in batch.rows]
        self.told.lines.append(f"@ {_now()} {topic.name}: {batch.first} {steps}")
        await asyncio.sleep(0.0625)
        found = self.answers.pop(0) if self.answers else None
        if isinstance(found, Exception):
            raise found
        return MetricReply(expected=batch.first + len(steps))


def how_metrics_are_sent() -> Told:
    """Batches and their pauses; registries that are away, refuse and come back; too many rows."""
    told = Told()

    async def work() -> None:
        away = [Unavailable("away"), TooManyRequests("too many")]
        for what, answers, nodes in (
            ("well", [], 1),
            ("away twice", away, 3_000),
            ("refused", [None, NotFound("no such path")], 1),
        ):
            port: Any = Port(told, nodes, *answers)
            rows = Rows(port)
            task = asyncio.create_task(rows.send())
            told.of(f"{what} {_now()}")
            for step in (3, 9, 4, 7, 8, 11):
                told.of("takes", rows.take({"rank": 11, "step": step, "values": {"loss": 0.5}}))
                await asyncio.sleep(0.75)
                told.of(f"step {port.step}", len(rows._waiting))
            await asyncio.sleep(20.0)
            told.of("refuses", rows.take({"rank": "x", "step": 1}), port.step)
            task.cancel()
        flushed: Any = Port(told, 1, Unavailable("away"), None, None)
        rows = Rows(flushed)
        for step in range(9):
            rows.take({"rank": 11, "step": step, "values": {"loss": float(step)}})
        for _ in range(3):
            await rows.flush()
            told.of(f"flushed {_now()}", len(rows._waiting), rows._first)
        for step in range(9):
            rows.take({"rank": 11, "step": step, "values": {"loss": float(step)}})
        await rows.flush()
        told.of(f"flushed {_now()}", len(rows._waiting), rows._first, rows._dropped)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "_MOST_WAITING", 5)
        patch.setattr(node, "MOST_METRIC_ROWS", 3)
        said = SimpleNamespace(
            warning=lambda form, *words: told.lines.append(f"warns: {form % words}"),
            info=lambda form, *words: told.lines.append(f"says: {form % words}"),
        )
        patch.setattr(node, "logger", said)
        virtually(work())
    return told


COURSES: dict[str, Callable[[], Told]] = {"how_metrics_are_sent": how_metrics_are_sent}


@pytest.mark.parametrize("name", COURSES)
def test_how_a_node_sends_metrics(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
