"""Keeps the metrics of a run in its folder while it is in progress, and shows how far it is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from features.metrics import FILE, TOPIC
from features.metrics.wire import MetricLine
from launcher.port import LauncherPort
from rendezvous.wire.errors import RdzvError

_SECONDS = 1.0
_MOST_BYTES = 256 << 20
_PROGRESS_SECONDS = 60.0


async def run(port: LauncherPort) -> None:
    """Keep what is new at the registry, each second and at the end; what fails ends nothing."""
    file = MetricsFile(port)
    async for _ in port.ticks(_SECONDS):
        with contextlib.suppress(RdzvError):
            await file.fetch()


class MetricsFile:
    """The file of one run's metrics, which grows as they come."""

    def __init__(self, port: LauncherPort) -> None:
        self._port = port
        self._path = port.state.path / FILE
        self._shown_at = float("-inf")
        self._session = ""
        self._after = 0
        self._dropped = 0
        self._full = False
        self._newest: dict[int, MetricLine] = {}

    async def fetch(self) -> None:
        """Keep what is new at the registry. Raises RdzvError."""
        while not self._full:
            found = await self._port.client.topic(TOPIC, self._port.run, after=self._after)
            if found.session != self._session and self._session:  # the registry began anew
                self._session, self._after = found.session, 0
                continue
            self._session = found.session
            self._show_dropped(found.dropped)
            if not found.rows:
                return
            self._keep(found.rows)

    def _keep(self, rows: Sequence[MetricLine]) -> None:
        self._after = rows[-1].number
        self._newest |= {row.rank: row for row in rows}
        data = b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "ab") as file:
                file.write(data)
                size = file.tell()
        except OSError as exc:
            self._give_up(f"cannot be written: {exc.strerror}")
            return
        if size > _MOST_BYTES:
            self._give_up(f"has {_MOST_BYTES >> 20} MB")
        self._show_progress()

    def _give_up(self, why: str) -> None:
        self._full = True
        self._port.say(f"{self._path} {why}: rdzv keeps no more metrics")

    def _show_dropped(self, dropped: int) -> None:
        if dropped and not self._dropped:
            self._port.say(
                "metrics arrive faster than they can be sent, so some rows were dropped; send "
                "fewer (every tenth step, or only from rank 0)"
            )
        self._dropped = dropped

    def _show_progress(self) -> None:
        now = self._port.now()
        if now - self._shown_at >= _PROGRESS_SECONDS and not self._port.parted:
            from features.metrics.view import in_one_line  # not needed before the first row

            self._shown_at = now
            self._port.say(in_one_line(self._newest.values()))
