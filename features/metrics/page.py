"""Metrics on the page of a run: the newest row of each rank, the curves, and their series."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping

from features.metrics import FILE
from features.metrics.page_curves import Curves, CurveStore
from features.metrics.page_ranks import Rank, RankStore
from features.metrics.page_series import OF_RANK, OF_RUN
from features.metrics.wire import MetricLine, rows_in
from launcher.ui import parts

_CHUNK_BYTES = 1 << 20


class Part(parts.Part):
    """Reads `metrics.jsonl` as it grows; the file may come later.

    State has list[Rank], Change those that have changed; the view `curves` is Curves.
    """

    series = OF_RUN
    series_by_rank = OF_RANK

    def __init__(self, run: parts.PageRun) -> None:
        super().__init__(run)
        self._ranks = RankStore()
        self._curves = CurveStore()
        self._one_reads = asyncio.Lock()
        self._one_thread = threading.Lock()
        """Held by the thread of a read that was cancelled as well."""
        self._new: list[MetricLine] = []
        self._offset = 0
        self._rest = b""

    async def read(self) -> None:
        """Read new rows."""
        async with self._one_reads:
            while await asyncio.to_thread(self._next):
                rows, self._new = self._new, []
                self._ranks.take(self.change(), rows)

    def since(self, after: int) -> list[Rank] | None:
        """Ranks that have changed."""
        return self._ranks.since(after)

    def views(self) -> Mapping[str, parts.View]:
        """Curves."""
        return {"curves": self._drawn}

    async def _drawn(self) -> Curves:
        async with self._one_reads:
            return await asyncio.to_thread(self._curves.curves)

    def _next(self) -> bool:
        """In a thread: the file may be long, and the page is served meanwhile."""
        with self._one_thread, contextlib.suppress(OSError):
            with (self.run.state_dir.path / FILE).open("rb") as file:
                file.seek(self._offset)
                data = file.read(_CHUNK_BYTES)
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for row in rows_in(lines):
                self._curves.take(row)
                self._new.append(row)
        return bool(self._new)
