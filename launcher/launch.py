"""One launch, from the state directory to the exit code.

    registry up -> run created -> slot 0 started here, the others submitted -> watch until the end
    -> every node knows the result -> what is left of the worker runs is cancelled -> registry down

The registry decides; the launcher acts on what it reads there: a slot that wants a newer generation
than was submitted is submitted, whatever the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from launcher.board import Board
from launcher.checks import lines_of, warning_lines
from launcher.metrics import Keeper
from launcher.plan import Plan
from launcher.registry import RegistryProcess
from launcher.schedulers import Scheduler
from launcher.state_dir import StateDir, outlives_launch
from launcher.worker_runs import WorkerRuns
from rendezvous.client import RegistryClient, retry_pause
from rendezvous.compat import ExceptionGroup, TaskGroup
from rendezvous.errors import (
    JoinTimeout,
    PreflightFailed,
    RdzvError,
    RegistryError,
    RegistryLost,
    RunCancelled,
    StorageFull,
    TooManyRequests,
    VerificationFailed,
)
from rendezvous.schema import (
    Phase,
    Result,
    RunReport,
    RunSpec,
    RunStatus,
    SlotNews,
    printable,
)
from rendezvous.security import Credential, JoinString, RegistryPlace, RunKeys, word_macs
from rendezvous.state import slots_text
from worker.contracts import is_led
from worker.process import ending_signals

logger = logging.getLogger(__name__)

_REGISTRY_UP_SECONDS = 20.0
_LEAVE_SECONDS = 8.0
_END_SECONDS = 3.0
_CANCEL_SECONDS = 10.0
_STATUS_WAIT_SECONDS = 2.0
_LAST_EVENTS_SECONDS = 3.0
_SIGNALS = 128
_TELL_SECONDS = 30.0
"""How long the registry of a symmetric start stays for nodes that come after the end."""
_BY_CHECKS = (VerificationFailed.code, PreflightFailed.code)


class Launch:
    """One launch of one run.

    Args:
        plan: What is submitted for each slot.
        keys: Of this launch.
        place: Where the workers find the registry.
        creator: The credential that may create the run.
        scheduler: Starts the worker runs; None in a symmetric start, where nothing is submitted.
        local: Starts slot 0's node here; None where this machine is no node of the run.
        state: The state directory, its lock held.
        board: Where the person sees it.
        registry: The registry of this launch; None when it is a standing one.
    """

    def __init__(
        self,
        plan: Plan,
        keys: RunKeys,
        place: RegistryPlace,
        creator: Credential,
        *,
        scheduler: Scheduler | None,
        local: Scheduler | None,
        state: StateDir,
        board: Board,
        registry: RegistryProcess | None,
        near: RegistryPlace,
    ) -> None:
        self._plan = plan
        self._spec = run_spec(plan, keys, place, managed=scheduler is not None)
        self._keys = keys
        self._place = place
        self._local = local
        self._state = state
        self._board = board
        self._registry = registry
        self._creator = RegistryClient(near, creator, request_seconds=10.0)
        self._client = RegistryClient(near, keys.admin, request_seconds=5.0)
        self._viewer = RegistryClient(near, keys.read, request_seconds=5.0)
        self._signal: int | None = None
        self._is_over = False
        self._hurry = asyncio.Event()
        self._said: set[str] = set()
        self._kept_epoch = 0
        self._checks_shown = False
        self._metrics = Keeper(self._viewer, state, board.say)
        self._storage_full: tuple[float, StorageFull] | None = None
        self._worker_runs = WorkerRuns(
            plan,
            join=self._join_string,
            tell=self._tell,
            say=board.say,
            scheduler=scheduler,
            local=local,
            ledger=state.ledger,
            hurry=self._hurry,
        )

    @property
    def run(self) -> str:
        """The run id."""
        return self._plan.run

    async def go(self) -> Result:
        """Run it to the end; returns the result. Raises RdzvError when there is none."""
        self._listen_to_signals()
        try:
            async with self._registry_running():
                result = await self._unless_hurried(self._form_and_follow())
        finally:
            await self._end_everything()
        return self._with_schedulers_words(result)

    def _with_schedulers_words(self, result: Result) -> Result:
        """What a signal or a silence leaves open, its scheduler may know: cancelled, preempted."""
        by_signal = result.code == "program_failed" and result.exit_code > _SIGNALS
        if result.slot is None or not (by_signal or result.code == "node_lost"):
            return result
        words = printable(self._worker_runs.words_of_end(result.slot), 300)
        if not words or words in result.message:
            return result
        message = f"{result.message}; its scheduler says: {words}"
        return result.model_copy(update={"message": message})

    async def _form_and_follow(self) -> Result:
        try:
            await self._create()
            async with self._metrics.following():
                return await self._follow()
        except Exception as exc:
            # Nobody else would tell the nodes that their launcher gives up.
            await self._tell_failure(exc)
            raise

    async def _tell_failure(self, exc: Exception) -> None:
        why = exc.message if isinstance(exc, RdzvError) else repr(exc)
        deadline = time.monotonic() + _END_SECONDS
        with contextlib.suppress(RdzvError):
            status = await self._client.cancel(self.run, f"its launcher failed: {why}"[:300])
            while not status.everyone_left and time.monotonic() < deadline:
                status = await self._client.status(self.run, after=status.version, wait=0.5)

    async def _unless_hurried(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work, but drop it when everything is to end at once."""
        task = asyncio.create_task(work)
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait({task, hurry}, return_when="FIRST_COMPLETED")
            if task.done():
                return task.result()
        finally:
            for each in (task, hurry):
                each.cancel()
            await asyncio.gather(task, hurry, return_exceptions=True)
        raise RunCancelled(f"run '{self.run}' was ended at once by a second signal")

    async def _end_everything(self) -> None:
        """Nothing that this launch started is left, whatever fails on the way."""
        self._is_over = True
        try:
            await self._worker_runs.end_all()
            for client in (self._creator, self._client, self._viewer):
                await client.close()
        finally:
            if self._registry is not None:
                await self._registry.close()
            self._board.close()

    # --- signals ------------------------------------------------------------------------------

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self._told_to_end, number)

    def _told_to_end(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._signal is not None or self._is_over:
            self._hurry.set()
            again = " again" if self._signal is not None else ""
            self._board.say(f"{name}{again}: ending everything at once")
            return
        self._signal = number
        self._ending = asyncio.create_task(self._cancel_run(f"{name} at the launcher"))
        self._board.say(f"{name}: ending the run (once more: at once)")

    @property
    def interrupted(self) -> int | None:
        """The signal that ended the launch, if one did."""
        return self._signal

    async def _cancel_run(self, why: str) -> None:
        """Cancel at the registry, which tells every node; without one, end what is here at once."""
        deadline = time.monotonic() + _CANCEL_SECONDS
        while time.monotonic() < deadline:
            try:
                await self._client.cancel(self.run, why)
            except RdzvError:
                await asyncio.sleep(0.1)
            else:
                return
        self._hurry.set()

    # --- registry -----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _registry_running(self) -> AsyncIterator[None]:
        """Keep the registry alive; the body is cancelled when that cannot be done."""
        if self._registry is None:
            yield
            return
        try:
            async with TaskGroup() as group:
                keeper = group.create_task(self._registry.run())
                yield
                keeper.cancel()
        except ExceptionGroup as group_error:  # Python 3.11.2 wraps what `except*` raises
            known, other = group_error.split(RdzvError)
            if known is None or other is not None:
                raise
            raise known.exceptions[0] from None

    async def _create(self) -> None:
        """Create the run, once the registry is up."""
        deadline = time.monotonic() + _REGISTRY_UP_SECONDS
        while True:
            try:
                await self._creator.create(self.run, self._spec)
            except (RegistryError, TooManyRequests) as exc:
                if self._signal is not None:
                    raise RunCancelled(f"run '{self.run}' was ended before it began") from exc
                if time.monotonic() > deadline:
                    raise self._no_registry(exc) from exc
                if self._registry is None:
                    self._say_once(
                        f"the standing registry has not created the run yet: {exc.message}"
                    )
                self._say_storage(exc)
                await asyncio.sleep(0.05)
            else:
                return

    def _no_registry(self, exc: RdzvError) -> RegistryLost:
        if self._registry is None:
            return RegistryLost(
                f"the standing registry did not create the run within "
                f"{_REGISTRY_UP_SECONDS:.0f} s: {exc.message}",
                hint=exc.hint,
            )
        return RegistryLost(
            f"the registry did not come up within {_REGISTRY_UP_SECONDS:.0f} s: {exc.message}",
            hint=f"see {self._state.logs / 'registry.log'}",
        )

    def _say_storage(self, exc: RdzvError) -> None:
        """A disk that is full is the person's to mend; until then everything waits."""
        if isinstance(exc, StorageFull):
            self._storage_full = self._storage_full or (time.monotonic(), exc)
            self._say_trouble(exc)

    def _check_storage(self, status: RunStatus) -> None:
        """Without a journal nothing can go on or end: give up when the disk stays full.

        From the go on the programs run without it, until one of them has ended.
        """
        limit = self._plan.settings.orphan_timeout
        if status.phase not in (Phase.RUNNING, Phase.FINISHED) and status.unwritten_seconds > limit:
            raise StorageFull(f"for {status.unwritten_seconds:.0f} s, {status.trouble}")
        if self._storage_full is None:
            return
        since, exc = self._storage_full
        seconds = time.monotonic() - since
        if seconds > limit:
            raise StorageFull(f"for {seconds:.0f} s, {exc.message}", hint=exc.hint) from exc

    def _say_trouble(self, exc: StorageFull) -> None:
        self._say_once(f"{exc.message}; {exc.hint}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._board.say(text)

    # --- following ----------------------------------------------------------------------------

    async def _follow(self) -> Result:
        events = asyncio.create_task(self._show_events())
        version = -1
        finished_at: float | None = None
        try:
            while True:
                status = await self._status(version)
                version = status.version
                self._board.status(status)
                if status.trouble:
                    self._say_once(status.trouble)
                self._worker_runs.see(status, submit=self._signal is None)
                await self._keep(status)
                self._check_storage(status)
                if status.result is not None:
                    finished_at = finished_at or time.monotonic()
                    await self._show_checks(status.result)
                    if self._may_go(status, finished_at):
                        await self._metrics.fetch()
                        if status.everyone_left:  # then the events end, and are shown to the last
                            await asyncio.wait({events}, timeout=_LAST_EVENTS_SECONDS)
                        return status.result
        finally:
            events.cancel()
            await asyncio.gather(events, return_exceptions=True)

    async def _keep(self, status: RunStatus) -> None:
        """Once the nodes have their ranks, `rdzv logs` and `rdzv status --env` are to know them."""
        started = status.phase in (Phase.RUNNING, Phase.FINISHED) and status.digest
        if started and status.epoch != self._kept_epoch:
            self._kept_epoch = status.epoch
            with contextlib.suppress(RdzvError):
                self._state.write("status.json", status.model_dump_json().encode())
                table = await self._viewer.table(self.run, status.digest)
                self._state.write("table.json", table.canonical())
                for line in warning_lines(await self._keep_report(), lasts=outlives_launch()):
                    self._board.say(line)

    async def _keep_report(self) -> RunReport:
        """What was checked is to be known when the registry is gone."""
        report = await self._viewer.checks(self.run)
        self._state.write("report.json", report.model_dump_json().encode())
        return report

    async def _show_checks(self, result: Result) -> None:
        """Say, once, what one sentence leaves out of how the nodes were found."""
        if self._checks_shown or result.code not in _BY_CHECKS:
            return
        self._checks_shown = True
        with contextlib.suppress(RdzvError):
            for line in lines_of(await self._keep_report(), lasts=outlives_launch()):
                self._board.say(line)

    def _may_go(self, status: RunStatus, finished_at: float) -> bool:
        """Whether every node knows the result, or has had the time to learn it."""
        if self._awaits_others(status, finished_at):
            return False
        limit = self._plan.settings.grace + _LEAVE_SECONDS
        late = time.monotonic() - finished_at > limit
        if late:
            names = [
                str(s.slot) for s in status.slots if s.node_state not in (None, "left", "lost")
            ]
            self._board.say(f"slots {', '.join(names)} did not leave within {limit:.0f} s")
        return status.everyone_left or late

    def _awaits_others(self, status: RunStatus, finished_at: float) -> bool:
        """Whether nodes may still come that nobody can cancel: without a registry each would wait
        for it until its join time-out, and not know why."""
        assert status.result is not None
        ended_early = status.result.status != "ok" and status.result.code != JoinTimeout.code
        if self._spec.managed or self._registry is None or not ended_early or self._signal:
            return False
        others = [slot for slot in status.untold if slot or self._local is None]
        awaits = bool(others) and time.monotonic() - finished_at < _TELL_SECONDS
        if awaits:
            self._say_once(
                f"waiting for at most {_TELL_SECONDS:.0f} s to tell {slots_text(others)}, not here "
                "yet, how the run ended"
            )
        return awaits

    async def _status(self, after: int) -> RunStatus:
        """The next state of the run; waits for a registry that is being started again."""
        deadline = time.monotonic() + self._plan.settings.orphan_timeout
        while True:
            # Judged before a try: it may have been this process that was stopped (Ctrl-Z).
            is_last = time.monotonic() > deadline
            try:
                return await self._client.status(self.run, after=after, wait=_STATUS_WAIT_SECONDS)
            except (RegistryError, TooManyRequests) as exc:
                if isinstance(exc, StorageFull):  # of who asked beside this; it may be over soon
                    self._say_trouble(exc)
                if is_last:
                    raise RegistryLost(
                        f"the registry of run '{self.run}' does not answer: {exc.message}",
                        hint=exc.hint,
                    ) from exc
                await asyncio.sleep(retry_pause())

    async def _show_events(self) -> None:
        after = 0
        while True:
            try:
                async for line in self._viewer.events(self.run, after):
                    after = line.number
                    self._board.event(line)
                # They end as well where the registry is told to end, and comes back.
                status = await self._viewer.status(self.run)
                if status.result is not None and status.everyone_left:
                    return
            except RdzvError:
                pass  # what is shown must not end what is done
            await asyncio.sleep(retry_pause())

    # --- worker runs --------------------------------------------------------------------------

    def _join_string(self, slot: int, generation: int) -> JoinString:
        keys = self._keys
        return JoinString(
            self._place_for(slot),
            self.run,
            self._plan.launch_id,
            slot,
            generation,
            keys.join_token(slot, generation),
            keys.row_key,
            keys.probe_key,
        )

    def _place_for(self, slot: int) -> RegistryPlace:
        """Slot 0 runs beside the registry, where loopback never fails."""
        here = slot == 0 and self._local is not None and self._registry is not None
        return self._creator.place if here else self._place

    async def _tell(self, slot: int, news: SlotNews) -> None:
        while True:
            try:
                await self._client.slot_news(self.run, slot, news)
                self._storage_full = None
            except (RegistryError, TooManyRequests) as exc:
                self._say_storage(exc)
                await asyncio.sleep(retry_pause())
            else:
                return


def run_spec(plan: Plan, keys: RunKeys, place: RegistryPlace, *, managed: bool) -> RunSpec:
    """What the registry is told of the run; `managed` when a launcher submits its worker runs."""
    unmanaged = range(0 if managed else plan.slots)
    led = is_led(plan.settings.framework, plan.command)
    return RunSpec(
        launch_id=keys.launch_id,
        min_nodes=plan.min_nodes,
        max_nodes=plan.max_nodes,
        limits=plan.limits(),
        master_port=plan.settings.master_port,
        loopback=plan.loopback,
        managed=managed,
        same_command=not plan.settings.any_command,
        verify=plan.settings.verify == "on",
        spares=plan.settings.spares,
        strict=plan.settings.strict,
        skip=plan.settings.skip,
        require_rdma=plan.settings.require_rdma,
        allow_exec=plan.settings.allow_exec or led,
        led=led or plan.settings.tf_ps > 0,  # parameter servers never end by themselves
        job=plan.job().model_copy(update={"command_words": _words(plan, keys)}),
        registry=_where(place),
        token_sha256=[keys.join_token(slot, 1).sha256() for slot in unmanaged],
        read_sha256=keys.read.sha256(),
        admin_sha256=keys.admin.sha256(),
    )


def _words(plan: Plan, keys: RunKeys) -> list[str]:
    """COMMAND, for the registry to tell whether a launch that is resumed is the same."""
    return word_macs(keys.row_key, plan.command, run=plan.run, launch_id=keys.launch_id)


def _where(place: RegistryPlace) -> str:
    """Where workers open the registry, as a person types it."""
    first = next(iter(place.addresses), "")
    more = len(place.addresses) - 1
    host = f"[{first}]" if ":" in first else first
    also = f" or one of {more} other addresses" if more > 0 else ""
    return printable(f"{host}:{place.port}{also}", 253)
