"""The registry of a launch: its process, and requests that are repeated until it answers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from launcher.cleanup.endings import Tracked
from launcher.prepare.context import LaunchContext
from launcher.prepare.environment import Child, LaunchEnvironment, Socket, registry_log
from launcher.schedulers.description import Description
from launcher.state.state_dir import StateDir
from rendezvous.talk.client import RegistryClient
from rendezvous.tasks import now, wait_for
from rendezvous.wire.errors import (
    Cause,
    Fenced,
    RdzvError,
    RegistryError,
    RegistryLost,
    RunCancelled,
    RunOver,
    StorageFull,
    TooManyRequests,
)
from rendezvous.wire.run import Result, SlotNews, SlotState
from rendezvous.wire.words import printable
from worker.program.ending import signal_name

MOST_STARTS: Final = 5
STARTS_SECONDS: Final = 30.0
START_PAUSE_SECONDS: Final = 0.2
CREATE_SECONDS: Final = 20.0
"""So long a registry may be away when a launch begins."""
CREATE_PAUSE_SECONDS: Final = 0.05
TRANSIENT: Final = (RegistryError, TooManyRequests)
"""The registry does not answer, or says: later."""
_STEADY_SECONDS, _MORE_SECONDS = 0.2, 0.3
_CREATOR_SECONDS = 10.0
_REQUEST_SECONDS = 5.0
_REPLICA_SECONDS = 2.0
"""As long as a node waits: then another replica may have the run."""
_KILL_SECONDS = 5.0
_MOST_HANDLE = 253
_MOST_DETAIL = 600


class Unwanted(Exception):
    """A worker run is not wanted any more."""


@dataclass(eq=False, repr=False)
class RegistryProcess:
    """The registry as a child of the launcher, on a socket that outlives it.

    Attributes:
        state: The run's folder.
        environment: The outer world.
        socket: Where it listens.
        started: Set once it was started for the first time.
        given_up: Set once it is not started any more, as it ends again and again.
        supervised: Whether it is started again when it ends.
    """

    state: StateDir
    environment: LaunchEnvironment
    socket: Socket

    def __post_init__(self) -> None:
        self.started = asyncio.Event()
        self.given_up = asyncio.Event()
        self._lost: RegistryLost | None = None
        self._child: Child | None = None
        self._starting = asyncio.Lock()
        self.supervised = True

    async def supervise(self) -> None:
        """Start it, and again whenever it ends: on its journal nothing is lost."""
        try:
            await self._supervise()
        finally:
            self.let_go()

    async def _supervise(self) -> None:
        starts, killed = list[float](), 0
        while self.supervised:
            starts.append(now())
            child = await self._start()
            code = await child.wait()
            if not self.supervised:
                return
            words = self.environment.registry_words(self.state)
            starts = [at for at in starts if now() - at < STARTS_SECONDS]
            killed = min(code, killed)
            if len(starts) >= MOST_STARTS:
                self._lost = self._why_lost(len(starts), killed or code, words)
                self.given_up.set()
                return
            await asyncio.sleep(START_PAUSE_SECONDS * max(0, len(starts) - 1))

    async def _start(self) -> Child:
        async with self._starting:
            child = await self.environment.start_registry(self.state, self.socket)
            self._child = child
        self.started.set()
        return child

    async def until_lost(self) -> None:
        """Wait until it is given up; raises RegistryLost."""
        await self.given_up.wait()
        assert self._lost is not None
        raise self._lost

    def _why_lost(self, starts: int, code: int, words: str) -> RegistryLost:
        how = f"the registry ended {starts} times within {STARTS_SECONDS:.0f} s"
        how += f" ({signal_name(-code)})" if code < 0 else ""
        room = "its state folder may have no room: see df and the quota there; "
        hint = (room if code == -signal.SIGBUS else "") + f"see {registry_log(self.state)}"
        return RegistryLost(f"{how}; its last output: {words}", hint=hint)

    def let_go(self) -> None:
        """Start it no more; one that lives stays."""
        self.supervised = False

    async def close(self) -> None:
        """End it, one that is being started as well, and close its socket."""
        self.let_go()
        try:
            async with self._starting:
                if self._child is not None:
                    await self._child.end(_KILL_SECONDS)
                    self._child = None
        finally:
            self.socket.close()


@dataclass(eq=False, repr=False)
class Registry:
    """The run at its registry: each credential has a connection of its own.

    Attributes:
        context: The launch.
        environment: The outer world.
        log: The log of its process.
        say: Shows a sentence to the person.
        creator, admin, viewer: The connections.
        unwritten: Since when the journal cannot be written, as this launch has met it, and how.
    """

    context: LaunchContext
    environment: LaunchEnvironment
    log: Path
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        near, keys = self.context.near, self.context.keys
        seconds = _REPLICA_SECONDS if near.replicas else _REQUEST_SECONDS
        self.creator = self.environment.client(near, self.context.creator, _CREATOR_SECONDS)
        self.admin: RegistryClient = self.environment.client(near, keys.admin, seconds)
        self.viewer: RegistryClient = self.environment.client(near, keys.read, seconds)
        self.unwritten: tuple[float, StorageFull] | None = None
        self.run = self.context.plan.run
        self._said: set[str] = set()

    async def close(self) -> None:
        """Close all connections."""
        for client in (self.creator, self.admin, self.viewer):
            await client.close()

    def say_once(self, words: str, key: str = "") -> None:
        """Say it, unless it was said before, or anything else with this key."""
        if (key or words) not in self._said:
            self._said.add(key or words)
            self.say(words)

    def retry_pause(self) -> float:
        """Draw the seconds before the next try: steady, with jitter."""
        return _STEADY_SECONDS + _MORE_SECONDS * self.environment.jitter()

    async def create(self) -> None:
        """Create the run, or find that it is known; one try."""
        await self.creator.create(self.run, self.context.spec())

    async def create_soon(self, signalled: asyncio.Event) -> None:
        """Create the run, as soon as the registry answers.

        Args:
            signalled: Set where a signal ends the launch.

        Raises:
            RunCancelled: A signal came first.
            RegistryLost: It does not answer in time.
            RdzvError: It refuses.
        """
        until, is_standing = now() + CREATE_SECONDS, not self.context.owns_registry
        while True:
            try:
                await self.create()
            except TRANSIENT as exc:
                if not signalled.is_set() and now() > until:
                    raise self._not_created(exc, is_standing=is_standing) from exc
                if is_standing and not signalled.is_set():
                    self.say_waiting(exc)
                self.note_storage(exc)
            else:
                return
            await wait_for(signalled, CREATE_PAUSE_SECONDS)
            if signalled.is_set():
                raise never_began(self.run)

    def _not_created(self, error: RdzvError, *, is_standing: bool) -> RegistryLost:
        who = "the standing registry did not create the run"
        who = who if is_standing else "the registry did not start"
        hint = error.hint if is_standing else f"see {self.log}"
        words = f"{who} within {CREATE_SECONDS:.0f} s: {error.message}"
        return RegistryLost(words, hint=hint)

    def say_waiting(self, error: RdzvError) -> None:
        """Say once that a standing registry is waited for."""
        self.say_once(f"the standing registry has not created the run yet: {error.message}")

    async def report(
        self,
        run: Tracked,
        state: SlotState,
        *,
        is_intent: bool = False,
        detail: str = "",
        cause: Cause | str = "",
        hint: str = "",
    ) -> None:
        """Report a worker run, until the registry has heard.

        Args:
            run: The worker run.
            state: Its state.
            is_intent: It is about to be submitted.
            detail: The scheduler's words.
            cause: Why it ends or is about to, where that is known; `scheduler_failed` where
                another worker run of its spec would end likewise.
            hint: What to try, where its submission failed.

        Raises:
            Unwanted: The run is over, or has a newer worker run.
            RdzvError: The registry refuses.
        """
        token = self.context.keys.join_token(run.slot, run.generation)
        news = SlotNews(
            generation=run.generation,
            state=state,
            name=run.work.name if is_intent else "",
            handle=printable("" if state is SlotState.SUBMITTING else run.handle, _MOST_HANDLE),
            detail=printable(detail, _MOST_DETAIL),
            token_sha256=token.sha256() if is_intent else None,
            cause=cause,
            hint=printable(hint, _MOST_DETAIL),
        )
        while True:
            try:
                await self.admin.slot_news(self.run, run.slot, news)
            except TRANSIENT as exc:
                self.note_storage(exc)
                await asyncio.sleep(self.retry_pause())
            except (RunOver, Fenced) as exc:
                raise Unwanted from exc
            else:
                self.unwritten = None
                return

    async def report_anyway(self, run: Tracked, state: SlotState, **more: Any) -> None:
        """Report a worker run that may exist, whether the registry wants to hear of it or not."""
        with contextlib.suppress(Unwanted):
            await self.report(run, state, **more)

    async def explain(self, run: Tracked, found: Description) -> Result | None:
        """Report a scheduler's last word on a worker run of a failed run; returns the run's result,
        completed where that explains it. Tries until there is an answer; raises RdzvError."""
        news = SlotNews(
            generation=run.generation,
            state=found.state,
            detail=printable(found.detail, _MOST_DETAIL),
            cause=Cause.PREEMPTED if found.preempted else "",
            explains=True,
        )
        while True:
            with contextlib.suppress(*TRANSIENT):
                return (await self.admin.slot_news(self.run, run.slot, news)).result
            await asyncio.sleep(self.retry_pause())

    def note_storage(self, error: RdzvError) -> None:
        """Take in that the journal cannot be written: everything waits until a person has mended
        the disk."""
        if isinstance(error, StorageFull):
            self.unwritten = self.unwritten or (now(), error)
            self.say_once(error.one_line)
        elif isinstance(error, RegistryError) and error.told:
            # It does not come as far as its journal, which may be there again.
            self.unwritten = None


def never_began(run: str) -> RunCancelled:
    """Return the error of a launch that a signal ended before its run was created."""
    return RunCancelled(f"run '{run}' was stopped before it started")
