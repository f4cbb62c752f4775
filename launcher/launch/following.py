"""The run as its launch follows it: status, events and findings, until its nodes have left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from launcher.launch.background import Background
from launcher.launch.registry import TRANSIENT, Registry
from launcher.launch.run_files import RunFiles
from launcher.launch.run_view import GONE, STARTED
from launcher.launch.worker_runs import WorkerRuns
from launcher.port import LauncherPort, run_features
from launcher.prepare.environment import LaunchEnvironment
from launcher.show.board import Board
from launcher.show.epochs import epoch_words
from launcher.state.state_dir import StateDir
from rendezvous.talk.sealed import send_secrets
from rendezvous.tasks import cancel_all, now, wait_for
from rendezvous.wire.errors import (
    NOT_NOW_SECONDS,
    JoinTimeout,
    RegistryError,
    RegistryLost,
    StorageFull,
)
from rendezvous.wire.run import Phase, Result, RunStatus
from rendezvous.wire.words import slots_text

STATUS_WAIT_SECONDS: Final = 2.0
LEAVE_SECONDS: Final = 8.0
LATE_NODES_SECONDS: Final = 30.0
"""How long the registry of a symmetric start stays for nodes that come after the end."""
LAST_EVENTS_SECONDS: Final = 3.0
LAST_OF_FEATURES_SECONDS: Final = 5.0
"""As long as one request may take."""
_OWN_END: Final = ("cancelled", "departs", "exited", "restarted", "verdict")
"""Kinds of events that are no news once a signal ends the launch: its parts may get it as well."""


@dataclass(eq=False, repr=False)
class Following:
    """Follows one run.

    Attributes:
        registry: Where the run is.
        runs: Its worker runs.
        background: Runs what follows it.
        state: The run's folder.
        board: Where the person sees it.
        environment: The outer world.
        status: The newest one.
    """

    registry: Registry
    runs: WorkerRuns
    background: Background
    state: StateDir
    board: Board
    environment: LaunchEnvironment

    def __post_init__(self) -> None:
        self.status: RunStatus | None = None
        self._signalled = False
        self._prepared = self.registry.context.prepared
        self._port = LauncherPort(self.registry.viewer, self.state, self.board.say)
        self._tasks: list[asyncio.Task[Any]] = []
        self._news = asyncio.Event()
        self._files = RunFiles(
            self.registry, self.state, self.board, self.environment, self._start, self._news.set
        )
        self._parting = asyncio.Event()
        self._answered_at = self._asked_since = 0.0
        self._sending: asyncio.Task[None] | None = None
        self._seen = 0
        self._reading: asyncio.Task[bool] | None = None
        self._events: asyncio.Task[None] | None = None
        self._features: asyncio.Task[None] | None = None

    @property
    def result(self) -> Result | None:
        """The run's result; None while it is not known."""
        return None if self.status is None else self.status.result

    async def until_result(self, seen: int) -> Result:
        """Follow the run until its result is known, and further in the background.

        Args:
            seen: Number of the last event that was shown.
        """
        self._seen = seen
        self._answered_at = self._asked_since = now()
        self._start(self._poll())
        self._events = self._start(self._show_events())
        self._features = self._start(run_features(self._port))
        while (result := self.result) is None:
            await self._next_news()
        return result

    def signal_received(self) -> None:
        """Wait for nobody who is not here: a signal ends the run, as the person knows."""
        self._signalled = True
        self._news.set()

    def stop(self) -> None:
        """Follow it no longer."""
        for task in self._tasks:
            task.cancel()
        self._files.stop()

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.background.start(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)
        return task

    async def _next_news(self, until: float | None = None) -> None:
        self._news.clear()
        await wait_for(self._news, None if until is None else max(0.0, until - now()))

    # --- status -------------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Take in each status.

        Raises:
            RegistryLost: The registry does not answer for too long.
            StorageFull: Its journal could not be written for too long.
            RdzvError: It refuses.
        """
        while True:
            after = -1 if self.status is None else self.status.version
            status = await self._ask(after)
            before, self.status = self.status, status
            self._answered_at = self._asked_since = now()
            self.board.status(status)
            self._say_ended(before, status)
            if status.trouble:
                self.registry.say_once(status.trouble)
            self._send_secrets(status)
            self.runs.update(status)
            self._files.update(status)
            if status.result is None:
                self._check_storage(status)
            else:
                self.runs.stop()
            self._news.set()
            await asyncio.sleep(0)  # who waits for it may want no further one

    async def _ask(self, after: int) -> RunStatus:
        """Ask for the next status. The registry may be being started again; or it says that it
        cannot serve just now: then it is there, though it may not be so for ever."""
        client, viewer = self.registry.admin, self.registry.viewer
        while True:
            is_last = self._is_last_try()  # before the try: this process may have been stopped
            try:
                found = await client.status(self._port.run, after=after, wait=STATUS_WAIT_SECONDS)
            except TRANSIENT as exc:
                told = isinstance(exc, RegistryError) and exc.told
                if isinstance(exc, StorageFull):  # met by who asked beside this
                    self.registry.say_once(exc.one_line)
                elif told and now() - self._answered_at <= NOT_NOW_SECONDS:
                    self._asked_since, is_last = now(), False
                    if not self._signalled:  # a signal may have come to the registry as well
                        self.registry.say_once(
                            f"the registry answers, but cannot serve run '{self._port.run}' "
                            f"just now: {exc.message}"
                        )
                if is_last:
                    words = f"the registry of run '{self._port.run}' does not answer: {exc.message}"
                    raise RegistryLost(words, hint=exc.hint) from exc
                await asyncio.sleep(self.registry.retry_pause())
            else:
                if viewer.lines.is_elsewhere(client.base) and self._reading:
                    self._reading.cancel()  # the former owner of the run may be cut off
                return found

    def _is_last_try(self) -> bool:
        return now() - self._asked_since > self._prepared.settings.orphan_timeout

    def _check_storage(self, status: RunStatus) -> None:
        """Give up when the disk stays full: without a journal nothing can go on or end.

        From the go on the programs run without it, until one of them has ended.
        """
        patience, unwritten = self._prepared.settings.orphan_timeout, self.registry.unwritten
        if status.phase not in STARTED and status.unwritten_seconds > patience:
            raise StorageFull(f"for {status.unwritten_seconds:.0f} s, {status.trouble}")
        if unwritten is not None and (seconds := now() - unwritten[0]) > patience:
            raise StorageFull(
                f"for {seconds:.0f} s, {unwritten[1].message}", hint=unwritten[1].hint
            )

    def _say_ended(self, before: RunStatus | None, status: RunStatus) -> None:
        """Say a line for each epoch that has ended since; those a former launch saw are known."""
        known = status.ended if before is None else before.ended
        last = known[-1].epoch if known else 0
        for end in status.ended:
            if end.epoch > last:
                # A restart that was requested has been announced already.
                self.board.say(f"{epoch_words(end)}; {end.then}" if end.code else epoch_words(end))
                self._files.epoch_ended()

    def _send_secrets(self, status: RunStatus) -> None:
        """Send the sealed variables once, as those of a former launcher may be others; and again to
        a registry that lost them, as one does that was restarted. A try that fails is made again
        with a later status; one that is under way is not broken off, however fast they come."""
        missing = status.wants_secrets or self._sending is None
        may_send = status.result is None and (self._sending is None or self._sending.done())
        if self._prepared.plan.given.secrets and missing and may_send:
            self._sending = self._start(self._send())

    async def _send(self) -> None:
        with contextlib.suppress(*TRANSIENT):
            sealed = self.registry.context.sealed()
            await send_secrets(self.registry.admin, self._port.run, sealed)

    # --- events -------------------------------------------------------------------------------

    async def _show_events(self) -> None:
        """Show the events to their end. They end with the run, and as well where the registry is
        told to end and comes back."""
        while True:
            self._reading = asyncio.create_task(self._read_events())
            try:
                await asyncio.wait({self._reading})
            finally:
                await cancel_all([self._reading])
            whole = not self._reading.cancelled() and self._reading.result()
            status = self.status
            if whole and status is not None and status.everyone_left and status.result:
                return
            pause = self.registry.retry_pause()
            if self._parting.is_set():
                await asyncio.sleep(pause)
            else:  # everyone may leave meanwhile: a pause would wait for nothing then
                await wait_for(self._parting, pause)

    async def _read_events(self) -> bool:
        """Show them; False where they broke off. What is shown must not end what is done."""
        try:
            async for line in self.registry.viewer.events(self._port.run, self._seen):
                self._seen = line.number
                said = line.phase is Phase.FINISHED and line.kind == "timed_out"  # the last line
                said |= self._signalled and line.kind in _OWN_END
                self.board.event(line, said=said)
        except Exception:  # noqa: BLE001 (they are asked for again)
            return False
        return True

    # --- the end ------------------------------------------------------------------------------

    async def until_left(self, result: Result) -> None:
        """Wait until every node knows the result, or has had the time to learn it."""
        since, limit = now(), self._prepared.settings.grace + LEAVE_SECONDS
        while self._awaits_others(result, since):
            await self._next_news(since + LATE_NODES_SECONDS)
        while self._awaits_nodes() and now() < since + limit:
            await self._next_news(since + limit)
        assert self.status is not None
        if not self.status.everyone_left:
            slots = [one.slot for one in self.status.slots if one.node_state not in GONE]
            self.board.say(f"{slots_text(sorted(slots))} did not end within {limit:.0f} s")

    def _awaits_nodes(self) -> bool:
        """Whether nodes are there, or something is still to be kept before the registry goes."""
        status = self.status
        assert status is not None
        return not status.everyone_left or self._files.is_awaited()

    def _awaits_others(self, result: Result, since: float) -> bool:
        """Whether nodes may still come that nobody can cancel: without a registry each would wait
        for it until its join time-out, and not know why."""
        ended_early = result.status != "ok" and result.code != JoinTimeout.code
        is_symmetric = self._prepared.symmetric and self._prepared.standing is None
        if not is_symmetric or not ended_early or self._signalled:
            return False
        assert self.status is not None
        here = self._prepared.settings.local_node
        others = [slot for slot in self.status.untold if slot or not here]
        if not others or now() - since >= LATE_NODES_SECONDS:
            return False
        have = "have" if len(others) > 1 else "has"
        self.registry.say_once(
            f"waiting for at most {LATE_NODES_SECONDS:.0f} s to send the result to "
            f"{slots_text(others)}, which {have} not joined yet"
        )
        return True

    async def part(self, result: Result) -> None:
        """Fetch what is left to fetch, once the nodes may be left alone; where everyone left the
        events are shown to the last."""
        last = [one for one in (self._features, self._events) if one is not None]
        for task in [one for one in self._tasks if one not in last]:
            task.cancel()
        self._files.stop()
        self._port.part()
        status = self.status
        assert status is not None
        if result.status == "failed" and status.digest:  # programs were started, and have failed
            await asyncio.gather(
                self._finish(self._features, LAST_OF_FEATURES_SECONDS), self._files.fetch_words()
            )
        else:
            await self._finish(self._features, LAST_OF_FEATURES_SECONDS)
        if status.everyone_left:
            self._parting.set()
            await self._finish(self._events, LAST_EVENTS_SECONDS)

    async def _finish(self, task: asyncio.Task[None] | None, seconds: float) -> None:
        if task is not None and not task.done():
            await asyncio.wait({task}, timeout=seconds)
            task.cancel()
