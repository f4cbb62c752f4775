"""The way of a launch, from top to bottom.

    recover -> create the run -> follow it, submitting what it wants -> result -> its nodes leave
        -> what is left of its worker runs is ended -> its registry ends -> the result is written

The registry decides; the launch acts on what it reads there. Whatever goes wrong on the way,
nothing that the launch has started is left at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from launcher.cleanup.endings import Endings
from launcher.launch.background import Background
from launcher.launch.following import Following
from launcher.launch.recovery import Recovery
from launcher.launch.registry import Registry, never_began
from launcher.launch.worker_runs import WorkerRuns
from launcher.prepare.environment import LaunchEnvironment
from launcher.prepare.preparation import Preparation
from launcher.show.board import Board
from launcher.state.state_dir import StateDir
from rendezvous.compat import timeout
from rendezvous.tasks import Interrupted, now, unless, wait_for
from rendezvous.wire.errors import SIGNALS, Cause, RdzvError, RunCancelled, message_of
from rendezvous.wire.run import Phase, Result, RunStatus
from rendezvous.wire.words import reason_clause
from worker.machine.limits import named
from worker.machine.shortage import cpu_time_met, cpu_time_used_up
from worker.program.cpu_time import cpu_time_watched

CANCEL_SECONDS: Final = 10.0
CANCEL_PAUSE_SECONDS: Final = 0.1
CANCEL_AGAIN_SECONDS: Final = 1.0
"""A run that is ending takes a moment for its verdict, and longer unless it is asked again."""
REPORT_FAILURE_SECONDS: Final = 3.0
REPORT_FAILURE_WAIT_SECONDS: Final = 0.5
EXPLAIN_SECONDS: Final = 3.0
_MOST_REASON = 300
_CTRL_C: Final = "Ctrl-C"
_CLOSED: Final = "SIGHUP (a closed terminal)"
_SENT: Final[Mapping[int, str]] = {
    signal.SIGHUP: "a terminal or SSH session that closes sends it: launch in tmux, or by nohup",
    signal.SIGINT: "it did not come from the keyboard: see the script or CI job that started rdzv",
    signal.SIGTERM: "who sent it is not known: ask the scheduler (a time limit, a preemption)",
}
"""Steps after a signal that ends a launch."""
_TOLD_TO_END: Final = {0, SIGNALS + 1, SIGNALS + 2, SIGNALS + 15}
_TOLD_CAUSES: Final = {"", "launcher_ended", "terminated", "interrupted"}
"""Rows of programs that ended as they were told: not of a time limit, which is a reason."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a launch.

    Attributes:
        result: As it was written down; None where it never began.
        signal: The signal that has ended it; None when none did.
    """

    result: Result | None
    signal: int | None


class _Stopped(Exception):
    """A signal came before anything was started."""


class _EndedAtOnce(RunCancelled):
    """The launch ends without waiting."""


@dataclass(eq=False, repr=False)
class Launch:
    """One launch, from the state directory to its end.

    Attributes:
        prepared: What is launched.
        state: The run's folder, its lock held.
        board: Where the person sees it.
        environment: The outer world.
    """

    prepared: Preparation
    state: StateDir
    board: Board
    environment: LaunchEnvironment

    def __post_init__(self) -> None:
        self._background = Background()
        self._endings = Endings(self.prepared.settings.grace)
        self._recovery = Recovery(
            self.prepared,
            self.state,
            self.environment,
            self._background,
            self._endings,
            self.board.say,
        )
        self._signal: int | None = None
        self._who, self._was_known = "", False
        self._signalled = asyncio.Event()
        self._created = asyncio.Event()
        self._runs: WorkerRuns | None = None
        self._cancelling: asyncio.Task[None] | None = None
        self._ending = self._over = False
        self._error: RdzvError | None = None
        self._explained: Result | None = None
        self._fault: Exception | None = None

    async def go(self) -> Outcome:
        """See the launch to its end.

        Raises:
            RdzvError: It cannot begin.
            Exception: What nobody expected.
        """
        self.environment.on_signals(self._on_signal)
        try:
            with cpu_time_watched(self._cpu_time_met, self._cpu_time_used_up):
                result = await self._go()
        finally:
            await self._background.close()
            await self._close()
        if self._fault is not None:
            raise self._fault
        return Outcome(result, self._signal)

    async def _go(self) -> Result | None:
        """The way of a launch."""
        if (registry := await self._recover()) is None:
            return None
        runs = self._runs = WorkerRuns(
            registry, self.state.ledger, self._endings, self._background, self.board.say
        )
        following = Following(
            registry, runs, self._background, self.state, self.board, self.environment
        )
        self._following = following
        try:
            await self._background.attend(self._until_left(registry, runs, following))
        except Exception as exc:  # noqa: BLE001 (raised once nothing is left)
            await self._failed(exc, registry)
        await self._end_everything(registry, runs)
        return self._write_result()

    async def _recover(self) -> Registry | None:
        """Take up or end what a former launch has left; None: this one does not begin."""
        recovery = self._recovery
        try:
            await self._background.attend(recovery.find())
        except _Stopped:
            pass
        except Exception as exc:  # noqa: BLE001 (raised once nothing is left)
            self._note_fault(exc)
        else:
            return recovery.registry
        self._ending = True
        if recovery.orphans.words:
            self.board.say(
                f"{recovery.orphans.words}; end them with 'rdzv cancel {self.state.run}'"
            )
        async with contextlib.AsyncExitStack() as at_end:
            at_end.callback(self._close_board)
            at_end.push_async_callback(recovery.close)
        return None

    async def _until_left(self, registry: Registry, runs: WorkerRuns, following: Following) -> None:
        """See the run from its creation until its nodes have left."""
        recovery = self._recovery
        if recovery.seen is not None:
            runs.take_over(run for run in recovery.orphans.runs if not run.former)
        elif recovery.process is not None:
            self._background.start(recovery.process.supervise())
            self._background.start(self._make_ready(registry))
        if recovery.process is not None:
            self._background.start(recovery.process.until_lost())
        if recovery.seen is None:
            await registry.create_soon(self._signalled)
        self._created.set()
        result = await following.until_result(recovery.seen or 0)
        if self._cancelling is not None:
            self._cancelling.cancel()
        await following.until_left(result)
        await following.part(result)

    async def _make_ready(self, registry: Registry) -> None:
        """Have the nodes of this machine made ready while the registry of a new launch starts."""
        process, context = self._recovery.process, registry.context
        assert process is not None
        await process.started.wait()
        for slot in range(context.plan.slots):
            scheduler = context.prepared.scheduler_of(slot)
            if scheduler is not None and scheduler.loopback:
                with contextlib.suppress(RdzvError):  # `submit` says what is wrong
                    await scheduler.make_ready(context.plan.submission(slot, 1))
        self.environment.dismiss()

    # --- the end ------------------------------------------------------------------------------

    async def _failed(self, error: Exception, registry: Registry) -> None:
        """Take in why the launch cannot continue; a result that is known stays the result."""
        if self._fault is not None or not isinstance(error, RdzvError):
            await self._report_failure(registry, self._note_fault(error))
            return
        is_known, at_once = self._following.result is not None, isinstance(error, _EndedAtOnce)
        if not is_known:
            self._error = error
        if is_known and not at_once:
            self.board.say(f"the registry was lost after the run had ended: {error.message}")
        elif not at_once:
            await self._report_failure(registry, error.message)

    async def _report_failure(self, registry: Registry, words: str) -> None:
        """Tell the nodes that their launcher gives up, as nobody else would: they have a moment to
        hear of it."""
        assert self._runs is not None
        self._following.stop()
        self._runs.stop()
        if self._cancelling is not None:
            self._cancelling.cancel()
        process = self._recovery.process
        if process is not None and not process.supervised:
            return
        until = now() + REPORT_FAILURE_SECONDS

        async def tell() -> None:
            reason = f"its launcher failed: {words}"[:_MOST_REASON]
            status = await registry.admin.cancel(registry.run, reason)
            while not status.everyone_left and now() < until:
                after, wait = status.version, REPORT_FAILURE_WAIT_SECONDS
                status = await registry.admin.status(registry.run, after=after, wait=wait)

        try:
            await unless(self._endings.hurried, tell())  # what else fails now changes nothing
        except (RdzvError, Interrupted):
            pass
        except Exception as exc:  # noqa: BLE001 (the first one is raised)
            self._note_fault(exc)

    async def _explain(self, registry: Registry, runs: WorkerRuns) -> None:
        """Have the registry complete the result of a failed run with what schedulers have said."""
        result = self._following.result
        if self._error is not None or result is None or result.status != "failed":
            return
        with contextlib.suppress(RdzvError, TimeoutError):
            async with timeout(EXPLAIN_SECONDS):
                for run, found in runs.runs.explain(result.slot):
                    self._explained = await registry.explain(run, found)
                    if self._explained != result:
                        return

    async def _end_everything(self, registry: Registry, runs: WorkerRuns) -> None:
        """End all that this launch has started; the nodes have their registry until then."""
        self._ending = True
        self._following.stop()
        if self._cancelling is not None:
            self._cancelling.cancel()
        if self._recovery.process is not None:
            self._recovery.process.let_go()
        try:
            async with contextlib.AsyncExitStack() as at_end:
                at_end.callback(self._close_board)
                at_end.push_async_callback(self._recovery.close)
                await runs.end_all()
                await self._explain(registry, runs)
        except Exception as exc:  # noqa: BLE001 (the first one is raised)
            self._note_fault(exc)

    def _close_board(self) -> None:
        self.board.close()
        self._over = True

    def _write_result(self) -> Result | None:
        """Write down how it ended; not where rdzv itself is at fault."""
        for late in (self._background.fault, self._background.error):
            if isinstance(late, Exception) and not isinstance(late, RdzvError):
                self._note_fault(late)
        if self._fault is not None:
            return None
        status, known = self._following.status, self._following.result
        if self._error is not None:
            result = result_of_error(self._error, status)
        else:
            assert known is not None
            result = self._explained or known
        if self._signal is not None:
            since = None if self._was_known else status
            result = by_signal(result, self.state.run, self._signal, self._who, since)
        try:
            self.state.write_result(result)
        except RdzvError as exc:
            self.board.say(exc.message)
        return result

    async def _close(self) -> None:
        """Leave nothing open, whatever became of the launch."""
        if self._recovery.registry is not None:
            for scheduler in (self.prepared.here, self.prepared.others):
                await scheduler.close()
        self.environment.dismiss()
        await self._recovery.close()

    # --- interruptions ------------------------------------------------------------------------

    def _on_signal(self, number: int, *, pressed: bool = True) -> None:
        """The first one ends the run, another all at once; but of a terminal that closes its kernel
        and its shell send one each, and neither is a person in a hurry."""
        first = self._signal
        if self._over or (number == signal.SIGHUP and (self._ending or first is not None)):
            return
        who = _CLOSED if number == signal.SIGHUP else signal.Signals(number).name
        who = _CTRL_C if number == signal.SIGINT and pressed else who
        if self._ending or first not in (None, signal.SIGHUP):
            again = " again" * (first is not None)
            self.board.say(f"{who}{again}: killing all nodes now")
            self._at_once("by a second signal")
            return
        self._signal, self._who = number, who
        self._signalled.set()
        grace = self.prepared.settings.grace
        if self._runs is None:
            self.board.say(f"{who}: stopping before anything has started")
            self._background.fail(_Stopped())
            return
        self._was_known = self._following.result is not None
        self._following.signal_received()
        self.board.say(_ends_run(number, who, grace))
        if first is None:
            self._runs.stop()
            self._cancelling = self._background.start(self._cancel(number))

    async def _cancel(self, number: int) -> None:
        """Cancel the run at the registry, which tells every node."""
        registry, until = self._recovery.registry, now() + CANCEL_SECONDS
        assert registry is not None
        await wait_for(self._created, CANCEL_PAUSE_SECONDS)
        while True:
            try:
                status = await registry.admin.cancel(registry.run, signal_reason(number))
            except RdzvError:
                if now() >= until:
                    break
                await asyncio.sleep(CANCEL_PAUSE_SECONDS)
            else:
                if status.phase is Phase.FINISHED:
                    return
                until = now() + CANCEL_SECONDS
                await asyncio.sleep(CANCEL_AGAIN_SECONDS)
        self._at_once(f": its registry did not answer within {CANCEL_SECONDS:.0f} s")

    def _at_once(self, how: str) -> None:
        """End everything without waiting; a result that is known stays the result."""
        if self._runs is not None:
            self._runs.hurry()
            how = how if how.startswith(":") else f" {how}"
            words = f"run '{self.state.run}' was ended immediately{how}"
            self._background.fail(_EndedAtOnce(words))

    def _cpu_time_met(self, soft: int, hard: int | None) -> None:
        self.board.say(cpu_time_met(soft, hard))

    def _cpu_time_used_up(self, seconds: int) -> None:
        error = cpu_time_used_up(seconds, int(time.process_time()))
        if self._background.error is None:  # what ends the launch already is not its doing
            self._note_fault(error)
            self._background.fail(error)

    def _note_fault(self, error: Exception) -> str:
        """Keep the first one, to be raised where the launch is awaited; returns it in words."""
        error = named(error)
        self._fault = self._fault or error
        return message_of(error)


def _ends_run(number: int, who: str, grace: float) -> str:
    """Return the message after a first signal; no second hang-up hurries it."""
    if who == _CTRL_C:
        return f"Stopping all nodes (up to {grace:g} s). Press Ctrl-C again to kill them now."
    again = "" if number == signal.SIGHUP else f". A second {who} kills them now."
    return f"{who}: stopping all nodes (up to {grace:g} s){again}"


def result_of_error(error: RdzvError, status: RunStatus | None) -> Result:
    """Return the result of a launch that could not continue.

    Args:
        error: Why.
        status: The newest one of its run.
    """
    return Result(
        status="cancelled" if error.code == RunCancelled.code else "failed",
        exit_code=int(error.exit_code),
        code=error.code,
        message=error.message or repr(error),
        hint=error.hint,
        epochs=list(status.ended) if status is not None else [],
    )


def by_signal(result: Result, run: str, number: int, who: str, status: RunStatus | None) -> Result:
    """Return the result of a launch that got this signal: a cancelled one exits like a shell.

    Args:
        result: As the registry has it.
        run: The run.
        number: The signal.
        who: What sent it: Ctrl-C, or what it is called.
        status: The newest one where the result came later: its programs may have got one as well.
    """
    cancelled = f"run '{run}' was cancelled{reason_clause(signal_reason(number))}"
    if status is not None and was_told_to_end(result, status):
        result = result_of_error(RunCancelled(cancelled), status)
    if result.status != "cancelled":
        return result
    message, hint = result.message, result.hint
    if number == signal.SIGINT and who == _CTRL_C:
        stopped = f"you stopped run '{run}' with Ctrl-C"
        message = {
            cancelled: stopped,
            never_began(run).message: f"{stopped}, before it started",
        }.get(message, message)
    elif message == cancelled:
        hint = hint or _SENT.get(number, "")
    update = {"exit_code": SIGNALS + number, "message": message, "hint": hint}
    return result.model_copy(update=update)


def was_told_to_end(result: Result, status: RunStatus) -> bool:
    """Return whether the programs of a failed run ended only because they were told to."""
    codes = {slot.exit_code for slot in status.slots if slot.node is not None}
    ended = result.code in (Cause.PROGRAM_FAILED, Cause.NODE_LOST) and bool(codes)
    return ended and codes <= _TOLD_TO_END and result.cause in _TOLD_CAUSES


def signal_reason(number: int) -> str:
    """Return why a run is cancelled that a signal ends, for its nodes."""
    return f"{signal.Signals(number).name} at the launcher"
