"""A run that somebody looks at: what is told of it, and who reads it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

from pydantic_core import to_json

from launcher.state.state_dir import StateDir
from launcher.ui.clerk import HandsOut
from launcher.ui.kept import end_of, facts_of, read_journal
from launcher.ui.live import LiveReader
from launcher.ui.parts import Answer, Parts
from launcher.ui.samples import follow, read_kept
from launcher.ui.shapes import Change, Head, State
from launcher.ui.told import Told
from rendezvous.compat import timeout
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.tasks import wait_for
from rendezvous.wire.errors import RdzvError, Unavailable
from worker.program.state_home import home_with

logger = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
"""A run at which nobody looks any more is read so much longer."""
BEAT_SECONDS = 10.0
"""So often those are woken who wait for a change, whatever happens."""
_LOOK_SECONDS = 1.0
_REQUEST_SECONDS = 5.0
_FIRST_SECONDS = 5.0
_SETTLE_SECONDS = 0.3
_FLUSH_SECONDS = 0.2
_LOG_SECONDS = 1.5
_MOST_LOOKS = 100


class Line(NamedTuple):
    """A change as a viewer is sent it.

    Attributes:
        n: Its number.
        is_last: The viewer has to ask for the state again.
    """

    n: int
    data: bytes
    is_last: bool


class Viewed:
    """One run of a state folder.

    Args:
        state: Its folder.
        clerk: Who has its credentials.
    """

    def __init__(self, state: StateDir, clerk: HandsOut) -> None:
        self.state_dir = state
        self._clerk = clerk
        self._turn = asyncio.Event()
        self._beats = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)
        self._lines: dict[tuple[int, int], Line] = {}
        self._ready = asyncio.Event()
        self._begin()
        self._task = asyncio.create_task(self._read())
        self._task.add_done_callback(self._reading_ended)
        self.followers = set[asyncio.Task[None]]()
        """Readers of its log, for those who follow it."""
        self._viewers = 0
        self._seen_at = time.monotonic()

    def _begin(self) -> None:
        """Another launch: all that is known is of a former one. Whoever has been told that starts
        anew, as the numbers do."""
        self.keys = self._clerk.keys(self.state_dir.run)
        first = time.monotonic_ns() // 1_000
        self.told = Told(facts_of(self.state_dir), first, "reading what is known of this run")
        self.parts = Parts(self)
        self.told.parts = self.parts.since

    # --- reading ------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Whatever becomes of the run, until nobody looks at it any more."""
        while True:
            tail = asyncio.create_task(self._read_parts())
            try:
                if self.state_dir.is_held() and self.keys.read is not None:
                    await self._read_live()
                await self._read_kept()
            finally:
                tail.cancel()
            await self.parts.read()
            self._publish()
            launch = self.told.facts.launch_id
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                now = facts_of(self.state_dir).launch_id
                if now not in ("", launch) or self._begins_again():
                    break
            self._begin()

    def _reading_ended(self, task: asyncio.Task[None]) -> None:
        """It only ends when it is told to, or by a fault of ours: whoever looks is to know."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.error("reading run '%s' failed", self.state_dir.run, exc_info=fault)
            self.told.silent(0.0, "the page cannot read this run any more; see what it has printed")
            self._publish()

    def _begins_again(self) -> bool:
        """Whether the same launch has been taken up again, after its launcher was killed."""
        return self.told.head["state"] == "killed" and self.state_dir.is_held()

    async def _read_live(self) -> None:
        beside = asyncio.create_task(self._read_beside())
        try:
            async with self.registry(self.keys.read) as client:
                reader = LiveReader(client, self.told, self._publish, self.state_dir.is_held)
                await reader.read()
        finally:
            beside.cancel()
            await asyncio.wait([beside])

    async def _read_beside(self) -> None:
        """What is read now and then."""
        async with self.registry(self.keys.read) as client:
            checks = follow(self.told, client, self._publish)
            await asyncio.gather(checks, *self.parts.follow(client))

    async def _read_kept(self) -> None:
        while self.state_dir.is_held():  # its result is being written
            if not self._is_same():
                return
            await asyncio.sleep(_LOOK_SECONDS / 10)
        await self._read_end()

    async def _read_end(self) -> None:
        """Its registry tells the end for a moment only; the journal has all of it."""
        end = end_of(self.state_dir)
        await read_journal(self.state_dir, self.told)
        await asyncio.to_thread(read_kept, self.told, self.state_dir)
        self.told.ended(end)

    def _is_same(self) -> bool:
        return facts_of(self.state_dir).launch_id == self.told.facts.launch_id

    async def _read_parts(self) -> None:
        while True:
            await self.parts.read()
            await asyncio.sleep(_LOOK_SECONDS)

    def _publish(self) -> None:
        self._lines.clear()
        if self.told.head["state"] != "starting":  # events and metrics alone say little
            self._ready.set()
        self._wake()

    def _wake(self) -> None:
        """All who wait: one timer for all of them, as each of their own would cost more than what
        they are sent."""
        self._turn.set()
        self._turn = asyncio.Event()

    def _beat(self) -> None:
        self._beats = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)
        self._wake()

    def registry(
        self, credential: Credential | None
    ) -> AbstractAsyncContextManager[RegistryClient]:
        """See `registry_at`."""
        return registry_at(self.state_dir, credential, _REQUEST_SECONDS)

    # --- its parts: see PageRun ---------------------------------------------------------------

    @property
    def head(self) -> Head:
        """Its state."""
        return self.told.head

    def change(self) -> int:
        """Number a change."""
        n = self.told.next()
        self._publish()
        return n

    async def ask(self, ask: Callable[[RegistryClient], Awaitable[Answer]]) -> Answer | None:
        """Answer of its registry while its launch lives; None: what is kept here has to do."""
        if self.state_dir.is_held():
            with contextlib.suppress(RdzvError):
                async with self.registry(self.keys.read) as client:
                    return await ask(client)
        return None

    # --- looking ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Somebody looks at it."""
        self._viewers += 1
        try:
            yield
        finally:
            self._viewers -= 1
            self._seen_at = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether nobody has looked at it for a while."""
        return self._viewers == 0 and time.monotonic() - self._seen_at > IDLE_SECONDS

    async def state(self) -> State:
        """Everything; the first answers of its registry or files are waited for."""
        await wait_for(self._ready, _FIRST_SECONDS)
        return self.told.state()

    async def settled(self) -> None:
        """Once everything is known of a run that has ended; of one that goes on, after a moment."""
        await self.state()
        for _ in range(_MOST_LOOKS):
            if self.told.head["over"] and not self.state_dir.is_held():
                break
            before = self.told.n
            await asyncio.sleep(_SETTLE_SECONDS)
            if self.told.n == before and self.state_dir.is_held():
                break
        await self.parts.read()

    async def say_farewell(self) -> None:
        """The launch ends, and the page with it: show who looks how it ended, and what opens it."""
        if not self._viewers:
            return
        if self.state_dir.result() is None:
            await self.settled()
        self.told.say(f"{_opens(self.state_dir)}, to see this again")
        if self.state_dir.result() is not None:
            self.told.ended(end_of(self.state_dir))
            self._publish()
            await self._read_end()  # the last events, if there is time for them
            await self.parts.read()
        self._publish()
        if self.told.head["over"] and self.followers:  # they read to the end of the log, and say so
            await asyncio.wait(self.followers, timeout=_LOG_SECONDS)
        await asyncio.sleep(_FLUSH_SECONDS)

    async def turn(self, after: int) -> None:
        """Wait until something has changed since that number, or for a beat."""
        if self.told.n == after:
            await self._turn.wait()

    async def changes(self, after: int, seconds: float) -> Change | None:
        """What has changed since that number; waits so long for something. None: nothing has."""
        with contextlib.suppress(TimeoutError):
            async with timeout(seconds):
                await self.turn(after)
        return self.told.changes(after)

    def line(self, after: int) -> Line | None:
        """What has changed since that number, as a line of JSON; None: nothing has.

        Viewers who know the same are given the same bytes.
        """
        key = (after, self.told.n)
        if key not in self._lines:
            if (change := self.told.changes(after)) is None:
                return None
            self._lines[key] = Line(change["n"], to_json(change) + b"\n", "reset" in change)
        return self._lines[key]

    async def close(self) -> None:
        """Read it no longer."""
        self._beats.cancel()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, RdzvError):
            await self._task


@asynccontextmanager
async def registry_at(
    state: StateDir, credential: Credential | None, seconds: float
) -> AsyncIterator[RegistryClient]:
    """A run's registry, as long as its launch lives; a request takes so many seconds.

    Raises Unavailable.
    """
    record = state.record()
    if record is None or credential is None:
        raise Unavailable(f"the registry of run '{state.run}' is not known here")
    place = record.registry_place()
    async with RegistryClient(place, credential, request_seconds=seconds) as client:
        yield client


def _opens(state: StateDir) -> str:
    """The command that shows a run, as it has to be typed with the same environment."""
    usual = os.environ.get("RDZV_STATE_DIR") or str(home_with(os.environ, state.run))
    root = str(state.path.parent)
    elsewhere = "" if root == usual else f" --state-dir {shlex.quote(root)}"
    return f"rdzv ui {state.run}{elsewhere}"
