"""The end of worker runs: each is told, told again, and gone when its scheduler says so.

One whose submission got no answer has no id: it is looked for by its unique name, twice, as lists
lag behind. The person is told what is not gone in the end, with the command that ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from launcher.plan.plan import LOCAL, WorkerRun
from launcher.schedulers.contract import Scheduler
from launcher.schedulers.description import OVER, Description
from launcher.state.ledger import Ledger, LedgerEntry
from rendezvous.compat import timeout
from rendezvous.tasks import Interrupted, now, unless, wait_for
from rendezvous.wire.errors import message_of
from rendezvous.wire.run import SlotState

MOST_MISSES: Final = 2
RECHECK_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 60.0
HURRY_SECONDS: Final = 8.0
RECANCEL_SECONDS: Final = 20.0
FIRST_PAUSE_SECONDS: Final = 0.2
FIRST_PAUSE_HERE_SECONDS: Final = 0.01
"""A look at a process of this one's own costs next to nothing."""
LONGEST_PAUSE_SECONDS: Final = 5.0
GRACE_MORE_SECONDS: Final = 2.0
COMMANDS_AT_ONCE: Final = 16
_MAY_RUN: Final = (SlotState.RUNNING, SlotState.UNKNOWN)

T = TypeVar("T")


@dataclass(eq=False)
class Tracked:
    """A worker run that may exist.

    Attributes:
        work: What its scheduler finds, describes and ends.
        scheduler: What has it.
        starter: The scheduler's name in the ledger.
        handle: The scheduler's id; empty while none is known.
        gone: It is over, and its scheduler has said so; or it was never submitted.
        former: Another launch had submitted it.
        over: How it ended, where this launch did not tell it to.
        preempted: What its scheduler said when it took the machine back; None while it has not.
        host: Where it is, by its scheduler's name or the person's; empty while unknown.
        last_known: What is known of one that could not be ended, as a clause.
    """

    work: WorkerRun
    scheduler: Scheduler
    starter: str
    handle: str = ""
    gone: bool = False
    former: bool = False
    over: Description | None = None
    preempted: Description | None = None
    host: str = ""
    last_known: str = ""

    @property
    def slot(self) -> int:
        """The slot that it fills."""
        return self.work.slot

    @property
    def generation(self) -> int:
        """The number of its submission, of those of its slot."""
        return self.work.generation

    @property
    def entry(self) -> LedgerEntry:
        """The ledger's entry of it."""
        return LedgerEntry(self.work, self.starter, self.handle, self.gone, self.former)

    @property
    def words(self) -> str:
        """Name for a person, with slot and id."""
        known = f", id {self.handle}" if self.handle else ""
        return f"worker run {self.work.name} (slot {self.slot}{known})"

    @property
    def orphan_words(self) -> str:
        """A sentence on one that may be left, with the command that ends it."""
        command = self.scheduler.cancel_words(self.work, self.handle or None)
        how = "" if self.handle else "; look for a run with that name"
        how = f"; end it with: {command}" if command else how
        return f"{self.words} may still exist: {self.last_known}{how}"

    def note(self, ledger: Ledger, *, whole: bool = False) -> None:
        """Write down what became known; without it, its name still finds it."""
        if self.starter != LOCAL:
            with contextlib.suppress(OSError):
                (ledger.begin if whole else ledger.note)(self.entry)


@dataclass
class End:
    """Progress of one worker run's end.

    Attributes:
        wait_until: The loop's time until which one that runs may end by itself.
        cancelled_at: When it was told to end; None before that.
        graceful: It was told with a grace.
        misses: How often it was looked for in vain.
        last_known: What is known of it, as a clause.
        unanswered: Its scheduler did not answer the last time.
        refused: Why it could not be told, where the last try failed.
        hurried_at: Since when it is to end at once; None: it has its time.
        limit: The time-out of all, which a hurry sets.
    """

    wait_until: float
    cancelled_at: float | None = None
    graceful: bool = False
    misses: int = 0
    last_known: str = f"it is {SlotState.UNKNOWN}"
    unanswered: bool = False
    refused: str = ""
    hurried_at: float | None = None
    limit: Any = None

    def extend(self) -> None:
        """Give it its full time from now on."""
        self.wait_until = max(self.wait_until, now())

    def hurry(self) -> None:
        """Give it some seconds more."""
        self.hurried_at = now()
        if self.limit is not None:
            self.limit.reschedule(self.hurried_at + HURRY_SECONDS)


class Endings:
    """Ends worker runs side by side, with a limit to the commands at once.

    Attributes:
        under_way: The ends that have begun, by worker run.
        hurried: Set once everything is to end without waiting, and without a grace.

    Args:
        grace: Seconds that a program has between TERM and KILL.
    """

    def __init__(self, grace: float) -> None:
        self.under_way: dict[Tracked, End] = {}
        self.hurried = asyncio.Event()
        self._grace = grace
        self._commands = asyncio.Semaphore(COMMANDS_AT_ONCE)

    def hurry(self) -> None:
        """End everything at once; what does not answer for some seconds is given up."""
        if not self.hurried.is_set():
            self.hurried.set()
            for end in self.under_way.values():
                end.hurry()

    def begin(self, run: Tracked, *, by_itself: float = 0.0) -> None:
        """Begin the end of a worker run, and have `until_ended` awaited then.

        Args:
            run: The worker run.
            by_itself: Seconds in which one that may run may end without being told.
        """
        self.under_way[run] = End(now() + by_itself)

    async def until_ended(self, run: Tracked) -> None:
        """See its end to an end: sets `gone`, or `last_known` where it could not be ended."""
        end, gone = self.under_way[run], False
        with contextlib.suppress(TimeoutError):
            async with timeout(None) as end.limit:
                if self.hurried.is_set():
                    end.hurry()
                try:
                    gone = await self._until_gone(run, end)
                finally:
                    end.limit = None
        del self.under_way[run]
        run.gone = gone
        # That it runs is known; why it still does is not.
        run.last_known = end.refused or end.last_known

    async def _until_gone(self, run: Tracked, end: End) -> bool:
        """Look again and again; False where it is given up."""
        scheduler = run.scheduler
        first = FIRST_PAUSE_HERE_SECONDS if scheduler.loopback else FIRST_PAUSE_SECONDS
        pause = min(first, scheduler.poll_seconds)
        while True:
            try:
                if (gone := await self._poll(run, end)) is not None:
                    return gone
            except Exception as exc:  # noqa: BLE001 (one that fails is asked again like a silent one)
                end.last_known = message_of(exc)
                end.unanswered = True
            if self._is_late(end):
                return False
            await self._rest(end, max(pause, RECHECK_SECONDS) if end.misses else pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS, scheduler.poll_seconds)

    async def _poll(self, run: Tracked, end: End) -> bool | None:
        """Whether it is gone; None: look again. Tells it to end where its time has come."""
        scheduler, finds = run.scheduler, run.scheduler.finds
        if not run.handle:
            found = await self._command(scheduler, partial(scheduler.find, run.work))
            if found is None and not run.handle:
                return self._missed(end, finds=finds)
            run.handle = run.handle or found or ""
        said = await self._command(scheduler, partial(scheduler.describe, run.work, run.handle))
        end.unanswered = False
        run.host = run.host or said.host
        run.preempted = run.preempted or (said if said.preempted else None)
        end.last_known = f"it is {said.state}" + (f": {said.detail}" if said.detail else "")
        if said.state is SlotState.UNKNOWN and finds:
            found = await self._command(scheduler, partial(scheduler.find, run.work))
            if found is None:
                said = Description(SlotState.ENDED, said.detail)
            run.handle = found or run.handle
        if said.state in OVER:
            run.over = run.over or (said if end.cancelled_at is None else None)
            return True
        if self._must_be_cancelled(end, said.state):
            await self._tell(run, end)
        return None

    def _missed(self, end: End, *, finds: bool) -> bool | None:
        """Judge one that is not listed: perhaps not yet, or it never was."""
        end.misses += 1
        end.unanswered = False
        if not finds:
            end.last_known = "the scheduler did not answer its submission and cannot look it up"
            return False
        end.last_known = "it is not listed"
        return True if end.misses >= MOST_MISSES else None

    def _must_be_cancelled(self, end: End, state: SlotState) -> bool:
        hurry = self.hurried.is_set()
        if state in _MAY_RUN and now() < end.wait_until and not hurry:
            return False
        if end.cancelled_at is None or (hurry and end.graceful):
            return True
        more = self._grace if end.graceful else 0.0  # a node takes a second TERM for a hurry
        return now() - end.cancelled_at > RECANCEL_SECONDS + more

    async def _tell(self, run: Tracked, end: End) -> None:
        """Tell it to end; a hurry breaks a gentle command off."""
        cancel = partial(run.scheduler.cancel, run.work, run.handle)
        grace = self._grace + GRACE_MORE_SECONDS
        try:
            end.graceful = not self.hurried.is_set()
            if end.graceful:
                tell = self._command(run.scheduler, partial(cancel, grace_seconds=grace))
                try:
                    await unless(self.hurried, tell)
                except Interrupted:
                    end.graceful = False
            if not end.graceful:
                await self._command(run.scheduler, partial(cancel, grace_seconds=0.0))
        except Exception as exc:
            end.refused = message_of(exc)
            raise
        end.cancelled_at, end.refused = now(), ""

    async def _command(self, scheduler: Scheduler, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask or tell a scheduler; what is done in this process needs no turn."""
        if scheduler.loopback:
            return await ask()
        async with self._commands:
            return await ask()

    async def _rest(self, end: End, seconds: float) -> None:
        """Wait; a hurry ends it, but two looks within a moment are one."""
        was_hurried = self.hurried.is_set()
        await (asyncio.sleep(seconds) if was_hurried else wait_for(self.hurried, seconds))
        if end.misses and not was_hurried and self.hurried.is_set():
            await asyncio.sleep(RECHECK_SECONDS)

    def _is_late(self, end: End) -> bool:
        if end.hurried_at is not None:
            return now() - end.hurried_at >= HURRY_SECONDS
        return now() > end.wait_until + self._grace + GRACE_MORE_SECONDS + LIMIT_SECONDS


def by_slot(runs: Iterable[Tracked]) -> list[Tracked]:
    """Worker runs in the order of slot, generation and launch."""
    return sorted(runs, key=lambda run: (run.slot, run.generation, run.former, run.work.name))
