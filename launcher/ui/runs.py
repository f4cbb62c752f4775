"""The runs of a state folder: the list of them, and those that somebody looks at."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from launcher.show.run_list import Row, in_one_line, row_of
from launcher.state.state_dir import StateDir, known_runs, recorded_runs
from launcher.ui.clerk import HandsOut
from launcher.ui.shapes import RunRow, Tone
from launcher.ui.viewed import Viewed, registry_at
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import NotFound
from rendezvous.wire.types import RUN_ID
from rendezvous.wire.words import printable

MOST_ROWS = 200
RECENT_SECONDS = 600.0
"""So long Prometheus is told of a run that has ended."""
_ASKED_AT_ONCE = 16
_LIST_SECONDS = 2.0
_CLOSE_SECONDS = 10.0
_TONES: dict[str, Tone] = {"ok": "good", "running": "good", "cancelled": "off"}
_BAD = ("failed", "killed", "silent")


class Runs:
    """Those of one folder.

    Args:
        root: The folder.
        clerk: Who has their credentials.
    """

    def __init__(self, root: Path, clerk: HandsOut) -> None:
        self._root = root
        self._clerk = clerk
        self._viewed: dict[str, Viewed] = {}
        self._rows: list[RunRow] = []
        self._rows_at = float("-inf")
        self._one_lists = asyncio.Lock()

    async def rows(self) -> list[RunRow]:
        """The newest runs; asked anew each two seconds, however many ask."""
        async with self._one_lists:
            now = asyncio.get_running_loop().time()
            if now - self._rows_at >= _LIST_SECONDS:
                known = await asyncio.to_thread(recorded_runs, self._root)
                gate = asyncio.Semaphore(_ASKED_AT_ONCE)
                asked = (row_of(*one, gate, self._connect) for one in known[:MOST_ROWS])
                self._rows = [_shown(row) for row in await asyncio.gather(*asked)]
                self._rows_at = asyncio.get_running_loop().time()
            return self._rows

    def _connect(
        self, state: StateDir, seconds: float
    ) -> AbstractAsyncContextManager[RegistryClient]:
        return registry_at(state, self._clerk.keys(state.run).read, seconds)

    def viewed(self, run: str) -> Viewed:
        """A run that somebody looks at; raises NotFound."""
        if (known := self._viewed.get(run)) is not None:
            return known
        state = StateDir(self._root, run)
        if not re.fullmatch(RUN_ID, run) or state.record() is None:
            raise NotFound(
                f"no run '{printable(run, 63)}' was launched here",
                hint="the list of runs shows those that were",
            )
        self._viewed[run] = Viewed(state, self._clerk)
        return self._viewed[run]

    def recent(self) -> list[str]:
        """Those that go on, and those that have ended a moment ago, the newest launch first."""
        now = time.time()  # noqa: TID251 (a launch's end is told by that clock)
        return [state.run for state in known_runs(self._root) if _is_recent(state, now)]

    async def close_idle(self) -> None:
        """Stop reading runs at which nobody looks any more; never returns."""
        while True:
            await asyncio.sleep(_CLOSE_SECONDS)
            for run, viewed in list(self._viewed.items()):
                if viewed.is_idle:
                    del self._viewed[run]
                    await viewed.close()

    async def say_farewell(self) -> None:
        """Show those who look that this page ends with its launch; returns once they have been."""
        await asyncio.gather(*(one.say_farewell() for one in self._viewed.values()))

    async def close(self) -> None:
        """Stop reading all of them."""
        for viewed in self._viewed.values():
            await viewed.close()


def _is_recent(state: StateDir, now: float) -> bool:
    if state.is_held():
        return True
    result = state.result()
    return result is not None and now - result.ended_at < RECENT_SECONDS


def _shown(row: Row) -> RunRow:
    tone = _TONES.get(row.state, "bad" if row.state in _BAD else "wait")
    return {
        "run": row.run,
        "state": row.state,
        "tone": tone,
        "exit_code": row.exit_code,
        "nodes": row.nodes,
        "started_at": row.started_at,
        "took_seconds": row.took_seconds,
        "command": in_one_line(shlex.join(row.command)),
        "reason": in_one_line(row.reason),
    }
