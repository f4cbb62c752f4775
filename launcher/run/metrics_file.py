"""How the program's processes get on, kept in the run's folder while it is running."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence

from launcher.show.progress import in_one_line
from launcher.state.state_dir import StateDir
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.metrics import MetricLine

_MOST_BYTES = 256 << 20
_SAY_SECONDS = 60.0


class MetricsFile:
    """Writes what the registry is told into the run's folder, as it comes.

    Args:
        viewer: The registry, with the read credential.
        state: The run's folder.
        say: What the person is to see: now and then how far the program has come.
    """

    def __init__(self, viewer: RegistryClient, state: StateDir, say: Callable[[str], None]) -> None:
        self._viewer = viewer
        self._run = state.run
        self._path = state.metrics
        self._say = say
        self._said_at = float("-inf")
        self._session = ""
        self._after = 0
        self._dropped = 0
        self._full = False
        self._one_fetches = asyncio.Lock()
        self._newest: dict[int, MetricLine] = {}

    async def fetch(self) -> None:
        """Keep what is new at the registry; what fails here must end nothing."""
        with contextlib.suppress(RdzvError):
            async with self._one_fetches:
                await self._fetch()

    async def _fetch(self) -> None:
        while not self._full:
            told = await self._viewer.metrics(self._run, self._after)
            if told.session != self._session and self._session:  # the registry began anew
                self._session, self._after = told.session, 0
                continue
            self._session = told.session
            self._tell_dropped(told.dropped)
            if not told.rows:
                return
            self._keep(told.rows)

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
        self._tell_progress()

    def _give_up(self, why: str) -> None:
        self._full = True
        self._say(f"{self._path} {why}: rdzv keeps no more metrics")

    def _tell_dropped(self, dropped: int) -> None:
        if dropped and not self._dropped:
            self._say(
                "metrics arrive faster than they can be sent, so some rows were dropped; send "
                "fewer (every tenth step, or only from rank 0)"
            )
        self._dropped = dropped

    def _tell_progress(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= _SAY_SECONDS:
            self._said_at = now
            self._say(in_one_line(self._newest.values()))
