"""Recovery of a former launch of the run: it is resumed, or ended before a new one begins.

The former registry is started on its journal and asked. A launch that cannot be taken up is
cancelled there, so that its nodes hear it, and what its ledger leaves is ended at its schedulers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from launcher.cleanup.endings import Endings
from launcher.cleanup.orphans import Orphans
from launcher.launch.background import Background
from launcher.launch.context_maker import ContextMaker
from launcher.launch.registry import CREATE_SECONDS, TRANSIENT, Registry, RegistryProcess
from launcher.launch.run_view import GONE
from launcher.prepare.context import LaunchContext
from launcher.prepare.environment import LaunchEnvironment, registry_log
from launcher.prepare.preparation import Preparation
from launcher.state.launch_record import LaunchRecord
from launcher.state.state_dir import StateDir
from launcher.symmetric.platforms import restarts_of_job
from rendezvous.tasks import Interrupted, now, unless
from rendezvous.wire.errors import RdzvError, RunExists, UsageError
from rendezvous.wire.run import Phase, RunStatus, SlotStatus

OPEN_SECONDS: Final = 10.0
OPEN_PAUSE_SECONDS: Final = 0.2
ASK_SECONDS: Final = 10.0
ASK_PAUSE_SECONDS: Final = 0.05
HEAR_SECONDS: Final = 15.0
HEAR_WAIT_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 5.0
T = TypeVar("T")
_ENDED: Final = "its launcher had ended"
_CHANGED: Final = "its COMMAND or options were different"


class _NewLaunch(Exception):
    """A new launch begins.

    Attributes:
        words: Why the former one is not taken up; empty where there is nothing to say.
    """

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


@dataclass(eq=False, repr=False)
class Recovery:
    """Finds out what the launch begins on.

    Attributes:
        prepared: What is launched.
        state: The run's folder, its lock held.
        environment: The outer world.
        background: Runs the registry's process.
        endings: Ends what is left.
        say: Shows a sentence to the person.
        orphans: Worker runs that may still exist, whichever launch had submitted them.
        process: The registry's process; None where the launch has none.
        registry: Where the run is, or will be.
        seen: Number of the last event that the former launch has shown; None: it is a new one.
    """

    prepared: Preparation
    state: StateDir
    environment: LaunchEnvironment
    background: Background
    endings: Endings
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.orphans = Orphans.read(
            self.state.ledger, self.prepared.context, self.environment.scheduler
        )
        self.process: RegistryProcess | None = None
        self.registry: Registry | None = None
        self.seen: int | None = None
        self._maker = ContextMaker(self.prepared, self.state, self.environment)
        self._is_standing = self.prepared.standing is not None
        self._restarts = restarts_of_job(self.prepared.context.environ)
        self._requeue_said = False

    async def find(self) -> None:
        """Take the former launch up, or make room for a new one.

        Raises:
            RdzvError: The launch cannot begin; what the former one has left stays on record.
        """
        try:
            await self._resume_former()
        except _NewLaunch as anew:
            if anew.words:
                self._say_of_former(anew.words)
            await self.close()
            kept = await self.orphans.end(self.endings, self.state.ledger, self.say)
            self._begin_on(self._maker.new(kept))

    async def close(self) -> None:
        """End the registry's process; the connections first, as it need not wait for them then."""
        if self.registry is not None:
            await self.registry.close()
        if self.process is not None:
            try:
                await self.process.close()
            except Exception:
                self.process = None  # it cannot be ended; where this is cancelled it can, later
                raise
            self.process = None

    def _begin_on(self, context: LaunchContext) -> None:
        if (sock := self._maker.socket) is not None:
            self.process = RegistryProcess(self.state, self.environment, sock)
        self.registry = Registry(context, self.environment, registry_log(self.state), self.say)

    # --- the former launch --------------------------------------------------------------------

    async def _resume_former(self) -> None:
        """Take the former launch up; raises _NewLaunch where that cannot be."""
        record, standing = self._maker.record, self._is_standing
        if record is None or self.state.result() is not None:
            raise _NewLaunch(self._words_of_nothing(ended=record is not None))
        if record.owns_registry == standing or (standing and not self.state.has_secret()):
            raise _NewLaunch(self._words_of_nothing(ended=False))
        if not standing and record.host != self.environment.hostname():
            raise _NewLaunch(
                f"run '{self.state.run}' was launched on {record.host}; there is nothing to "
                "resume on this host: starting a new launch"
            )
        self._begin_on(await self._open_former())
        if self.process is not None:
            self.background.start(self.process.supervise())
        until = now() + (CREATE_SECONDS if self._is_shared() else ASK_SECONDS)
        status = await self._ask(lambda registry: registry.admin.status(registry.run), until)
        if status.phase is Phase.FINISHED:
            how = f"the previous launch has ended: {status.reason}; starting a new launch"
            raise _NewLaunch("" if standing else how)
        why = self._why_ended(record, status)
        if not why and not await self._is_known(until):
            why = _CHANGED
        if why:
            await self._end_run(status, why)
        self._resume(record, status)

    async def _open_former(self) -> LaunchContext:
        """Reach the former registry; where it is to be started again, on its port, which may still
        be held."""
        until = now() + OPEN_SECONDS
        while True:
            try:
                if self._is_standing:
                    return self._maker.reach_former()
                return self._maker.listen_for_former()
            except UsageError as exc:
                if self._is_standing:
                    raise _NewLaunch("") from exc
                if now() >= until:
                    words = f"the previous launch cannot be resumed: {exc.message}"
                    raise _NewLaunch(words) from exc
            await asyncio.sleep(OPEN_PAUSE_SECONDS)

    async def _ask(self, ask: Callable[[Registry], Coroutine[Any, Any, T]], until: float) -> T:
        """Ask the former registry until it answers; raises _NewLaunch where it does not, or knows
        no such run."""
        registry = self.registry
        assert registry is not None
        while True:
            try:
                if self.process is None:
                    return await ask(registry)
                return await unless(self.process.given_up, ask(registry))
            except RunExists:
                raise
            except TRANSIENT as exc:
                if now() >= until:
                    self._leave_shared(exc)
                    raise self._silent() from exc
                if self._is_shared():
                    registry.say_waiting(exc)
            except (RdzvError, Interrupted) as exc:
                raise self._silent() from exc
            await asyncio.sleep(ASK_PAUSE_SECONDS)

    async def _is_known(self, until: float) -> bool:
        """Whether the registry has this very run: it is asked to create it."""
        try:
            await self._ask(lambda registry: registry.create(), until)
        except RunExists:
            return False
        return True

    def _why_ended(self, record: LaunchRecord, status: RunStatus) -> str:
        """Why the former run cannot be taken up, as its nodes hear it; empty where it may be."""
        settings, fingerprint = self.prepared.settings, self.prepared.fingerprint()
        if self._is_standing or status.phase is Phase.RUNNING:
            return _ENDED
        is_other = record.scheduler != settings.starter
        return _CHANGED if is_other or record.fingerprint not in ("", fingerprint) else ""

    async def _end_run(self, status: RunStatus, why: str) -> NoReturn:
        """Cancel the run, and let its nodes hear of it; raises _NewLaunch."""
        registry, run = self.registry, self.state.run
        assert registry is not None
        self._say_of_former(
            f"the previous launch of run '{run}' was {status.phase}, and {why}: rdzv ends what is "
            "left of it and starts a new launch"
        )
        until = now() + HEAR_SECONDS
        try:
            status = await self._cancel(registry, why, until)
        except TRANSIENT as exc:
            self._leave_shared(exc)
        else:
            with contextlib.suppress(RdzvError):
                while now() < until and any(map(is_there, status.slots)):
                    wait, after = HEAR_WAIT_SECONDS, status.version
                    status = await registry.admin.status(run, after=after, wait=wait)
        raise _NewLaunch("")

    async def _cancel(self, registry: Registry, why: str, until: float) -> RunStatus:
        """Cancel it until it is over: where a program has failed, the registry waits for a silent
        node, but only once. Raises RdzvError."""
        while True:
            try:
                status = await registry.admin.cancel(registry.run, why)
            except TRANSIENT:
                if now() >= until:
                    raise
                await asyncio.sleep(registry.retry_pause())
            except RdzvError as exc:
                raise _NewLaunch("") from exc
            else:
                if status.phase is Phase.FINISHED or now() >= until:
                    return status
                await asyncio.sleep(HEAR_WAIT_SECONDS)

    def _resume(self, record: LaunchRecord, status: RunStatus) -> None:
        settings, port = self.prepared.settings, record.registry_place().port
        if "port" in settings.model_fields_set and settings.port != port:
            self.say(
                f"--port {settings.port} has no effect: the workers of this launch use port {port}"
            )
        self._say_of_former(f"resuming launch {record.launch_id}: {status.reason}")
        assert self.registry is not None
        self._maker.write_record(self.registry.context)
        self.seen = status.version - 1  # it is 1 before the first event

    # --- words --------------------------------------------------------------------------------

    def _is_shared(self) -> bool:
        """Whether the registry that is to hold the new run may still hold the former one."""
        standing, record = self._maker.standing(), self._maker.record
        if standing is None or record is None:
            return False
        return record.registry_place() == standing.place

    def _leave_shared(self, error: RdzvError) -> None:
        """Refuse where the same registry is to have the new run: without it no launch can begin,
        and there is no reason to end one."""
        if self._is_shared():
            assert self._maker.record is not None
            former = self._maker.record.launch_id
            self.say(f"launch {former}, which may still be on the registry, is not changed")
            raise error

    def _silent(self) -> _NewLaunch:
        log = self.state.former_logs / registry_log(self.state).name
        words = (
            "the previous launch cannot be resumed: its registry does not start or does not know "
            f"it (see {log}); starting a new launch"
        )
        return _NewLaunch("" if self._is_standing else words)

    def _words_of_nothing(self, *, ended: bool) -> str:
        """There is nothing to take up; a job that was requeued says why."""
        if not self._restarts:
            return ""
        if ended:
            return "the previous launch has ended; starting a new launch"
        return (
            f"{self.state.ledger.path.parent} holds no previous launch: starting a new launch; "
            "set RDZV_STATE_DIR to a folder that all nodes share"
        )

    def _say_of_former(self, words: str) -> None:
        """Say what becomes of the former launch; in a job that was requeued the first such sentence
        says that too, as it is why there is one."""
        if self._restarts and not self._requeue_said:
            self._requeue_said = True
            words = f"the job was requeued (restart {self._restarts}): {words}"
        self.say(words)


def is_there(slot: SlotStatus) -> bool:
    """Whether its node could still hear how the run ended: some have died with the launcher."""
    return slot.node_state not in GONE and (slot.silent_seconds or 0.0) < SILENT_SECONDS
