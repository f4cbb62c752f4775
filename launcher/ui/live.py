"""Reads one run at its registry while it lives: one reader, however many look at the page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from launcher.ui.told import Told
from rendezvous.compat import TaskGroup
from rendezvous.talk.client import RegistryClient
from rendezvous.tasks import wait_for
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.run import Phase, RunStatus

FORMING_WAIT_SECONDS = 2.0
"""A status poll lasts so long while the run forms, as the sentence has times in it."""
RUNNING_WAIT_SECONDS = 10.0
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 0.5
_LAZIER = 1.25
"""The pause grows so with each poll that was answered at once: while all the time something
happens, the events show it, and a poll each half a second is enough. A quiet poll ends that."""
_PAUSE_A_SLOT = 0.0005
"""Seconds between two polls for each slot: what happens is shown by its event meanwhile."""
_PROGRESS_SECONDS = 2.0
"""How the programs get on is shown whole by its event: while nothing else happens, a poll in so
many seconds is enough."""
_AGAIN_SECONDS = 0.5
_SILENT_SECONDS = 3.0


class LiveReader:
    """Keeps what is told of a run up to date.

    Args:
        client: The registry, with the read credential.
        told: What is told of the run.
        changed: Called when that has changed.
        lives: Whether the launch goes on; asked while the registry does not answer.
    """

    def __init__(
        self,
        client: RegistryClient,
        told: Told,
        changed: Callable[[], None],
        lives: Callable[[], bool],
    ) -> None:
        self._client = client
        self._told = told
        self._changed = changed
        self._lives = lives
        self._over = asyncio.Event()
        self._news = asyncio.Event()

    async def read(self) -> None:
        """Until the launch has ended, or another one has taken its place."""
        async with TaskGroup() as group:
            events = group.create_task(self._events())
            await self._status()
            self._over.set()
            await asyncio.wait([events], timeout=_AGAIN_SECONDS)
            events.cancel()

    async def _status(self) -> None:
        run, version, silent_since, pause = self._told.facts.run, -1, None, _LEAST_PAUSE
        clock = asyncio.get_running_loop().time
        while True:
            wait = RUNNING_WAIT_SECONDS if version >= 0 and self._is_running() else _wait(version)
            asked = clock()
            self._news.clear()
            try:
                status = await self._client.status(run, after=version, wait=wait)
            except RdzvError as exc:
                if not self._lives():
                    return
                silent_since = silent_since or clock()
                passed = clock() - silent_since
                if passed >= _SILENT_SECONDS:
                    self._told.silent(passed, f"its registry does not answer: {exc.message}")
                    self._changed()
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if silent_since is not None:
                silent_since = None
                self._told.silent(None, "")
            if not self._is_ours(status):
                return
            version = status.version
            self._told.status(status)
            self._changed()
            if status.phase is Phase.FINISHED and not self._lives():
                return
            quiet = clock() - asked >= _MOST_PAUSE
            pause = _LEAST_PAUSE if quiet else min(_MOST_PAUSE, pause * _LAZIER)
            await asyncio.sleep(pause + _PAUSE_A_SLOT * len(status.slots))
            if self._is_running() and not quiet:
                # For more than how the programs get on.
                await wait_for(self._news, _PROGRESS_SECONDS)

    def _is_running(self) -> bool:
        return self._told.head["state"] == "running"

    def _is_ours(self, status: RunStatus) -> bool:
        return self._told.facts.launch_id in ("", status.launch_id)

    async def _events(self) -> None:
        told = self._told
        while not self._over.is_set():
            with contextlib.suppress(RdzvError):
                async for line in self._client.events(told.facts.run, told.newest_event):
                    told.event(line)
                    if not line.progress:
                        self._news.set()
                    self._changed()
            self._news.set()
            await asyncio.sleep(_AGAIN_SECONDS)


def _wait(version: int) -> float:
    """The first answer is not waited for."""
    return FORMING_WAIT_SECONDS if version >= 0 else 0.0
