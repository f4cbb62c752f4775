"""Ending worker runs: each is told, told again, and believed gone when its scheduler says so.

One whose submission got no answer has no id: it is looked for by its unique name, twice, as lists
lag behind. What is not gone in the end is told to the person, with the command that ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.ledger import Ledger, LedgerEntry
from launcher.plan import WorkerRun
from launcher.schedulers import OVER, Description, Scheduler, SchedulerContext, scheduler_entry
from rendezvous.compat import timeout
from rendezvous.errors import SchedulerError, UsageError
from rendezvous.schema import SlotState

_LOOKS = 2
_LOOK_AGAIN_SECONDS = 1.0
_LIMIT_SECONDS = 60.0
_HURRY_SECONDS = 8.0
_TELL_AGAIN_SECONDS = 20.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
_GRACE_MORE_SECONDS = 2.0
_COMMANDS_AT_ONCE = 16


@dataclass(slots=True, eq=False)
class Submission:
    """A worker run that its scheduler has, or may have.

    Attributes:
        entry: What the ledger says of it.
        scheduler: What it was given to.
        submitting: The call that has not been answered yet.
        ending: Somebody sees to its end.
        over: How it ended by itself, or by somebody else, in its scheduler's words.
    """

    entry: LedgerEntry
    scheduler: Scheduler
    submitting: asyncio.Task[str] | None = None
    ending: bool = False
    over: Description | None = None

    @property
    def run(self) -> WorkerRun:
        """The worker run, for calls that come after the submission."""
        return self.entry.run()

    @property
    def handle(self) -> str:
        """The scheduler's id; empty when it is not known."""
        return self.entry.handle

    @property
    def gone(self) -> bool:
        """Whether it is over."""
        return self.entry.gone

    def learn(self, *, handle: str = "", gone: bool = False) -> None:
        """Something became known of it."""
        known = {"handle": handle or self.handle, "gone": gone or self.gone}
        self.entry = self.entry.model_copy(update=known)

    async def describe(self) -> Description:
        """What its scheduler says of it."""
        return await self.scheduler.describe(self.run, self.handle)

    async def find(self) -> bool:
        """Look for it by its name; whether its id is known now. Raises SchedulerError."""
        handle = await self.scheduler.find(self.run)
        self.learn(handle=handle or "")
        return handle is not None

    def words(self) -> str:
        """How it is named in sentences."""
        known = f", id {self.handle}" if self.handle else ""
        return f"worker run {self.entry.name} (slot {self.entry.slot}{known})"


class Ending:
    """Ends worker runs.

    Args:
        grace: Seconds that a program has between being told and being killed.
        hurry: Set when everything is to end at once.
        limit_seconds: How long each may take beyond that.
    """

    def __init__(
        self, grace: float, hurry: asyncio.Event, *, limit_seconds: float = _LIMIT_SECONDS
    ) -> None:
        self._grace = grace + _GRACE_MORE_SECONDS
        self._hurry = hurry
        self._limit = limit_seconds
        self._commands = asyncio.Semaphore(_COMMANDS_AT_ONCE)

    async def end_all(
        self, submissions: Sequence[Submission], *, by_itself_seconds: float = 0.0
    ) -> list[str]:
        """End them side by side; returns a sentence for each that may still be there."""
        work = [self.end(each, by_itself_seconds=by_itself_seconds) for each in submissions]
        found = await asyncio.gather(*work, return_exceptions=True)
        return [
            _left(submission, why if isinstance(why, str) else repr(why))
            for submission, why in zip(submissions, found, strict=True)
            if why
        ]

    async def end(self, submission: Submission, *, by_itself_seconds: float = 0.0) -> str:
        """End it; returns why it may still be there, empty once it is gone.

        Args:
            submission: The worker run.
            by_itself_seconds: How long one that runs may take to end by itself.
        """
        one = _One(submission, time.monotonic() + by_itself_seconds)
        pause = min(_FIRST_PAUSE_SECONDS, submission.scheduler.poll_seconds)
        while True:
            try:
                why = await self._try(one)
            except SchedulerError as exc:
                why = exc.message
            if submission.gone or one.hopeless or self._is_late(one):
                return "" if submission.gone else why
            await self._wait(max(pause, _LOOK_AGAIN_SECONDS) if one.looks else pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS, submission.scheduler.poll_seconds)

    def _is_late(self, one: _One) -> bool:
        now = time.monotonic()
        if self._hurry.is_set():
            one.hurried_at = one.hurried_at or now
            return now - one.hurried_at > _HURRY_SECONDS
        return now > one.wait_until + self._grace + self._limit

    async def _wait(self, seconds: float) -> None:
        if self._hurry.is_set():
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with timeout(seconds):
                await self._hurry.wait()

    async def _try(self, one: _One) -> str:
        """Look, and tell it to end; returns how it stands."""
        submission = one.submission
        async with self._gate(submission):
            if not submission.handle and not await submission.find():
                return one.missed()
            found = await submission.describe()
            if found.state is SlotState.UNKNOWN and await self._is_unheard_of(submission):
                found = Description(SlotState.ENDED, found.detail)
        if found.state in OVER:
            submission.learn(gone=True)
            submission.over = submission.over or (found if one.told_at is None else None)
        elif self._is_to_be_told(one, found):
            await self._tell(one)
        return f"it is {found.state}" + (f": {found.detail}" if found.detail else "")

    def _gate(self, submission: Submission) -> contextlib.AbstractAsyncContextManager[object]:
        """Commands side by side have a limit; what is done in this process has none."""
        return contextlib.nullcontext() if submission.scheduler.loopback else self._commands

    @staticmethod
    async def _is_unheard_of(submission: Submission) -> bool:
        return (
            submission.scheduler.finds and await submission.scheduler.find(submission.run) is None
        )

    def _is_to_be_told(self, one: _One, found: Description) -> bool:
        now, hurry = time.monotonic(), self._hurry.is_set()
        if found.state is SlotState.RUNNING and now < one.wait_until and not hurry:
            return False
        if one.told_at is None or (hurry and one.told_gently):
            return True
        return now - one.told_at > _TELL_AGAIN_SECONDS

    async def _tell(self, one: _One) -> None:
        """With the grace, unless there is a hurry, or there comes one."""
        gently = not self._hurry.is_set()
        if gently:
            gently = await self._unless_hurried(self._cancel(one.submission, self._grace))
        if not gently:
            await self._cancel(one.submission, 0.0)
        one.told_at, one.told_gently = time.monotonic(), gently

    async def _cancel(self, submission: Submission, grace: float) -> None:
        async with self._gate(submission):
            await submission.scheduler.cancel(
                submission.run, submission.handle, grace_seconds=grace
            )

    async def _unless_hurried(self, work: Coroutine[Any, Any, None]) -> bool:
        task = asyncio.create_task(work)
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait({task, hurry}, return_when="FIRST_COMPLETED")
            if task.done():
                task.result()
            return task.done()
        finally:
            for each in (task, hurry):
                each.cancel()
            await asyncio.gather(task, hurry, return_exceptions=True)


@dataclass(slots=True)
class _One:
    """How far the end of one worker run has come."""

    submission: Submission
    wait_until: float
    told_at: float | None = None
    told_gently: bool = False
    hurried_at: float | None = None
    looks: int = 0
    hopeless: bool = False

    def missed(self) -> str:
        """It is not listed: perhaps not yet, or it never was."""
        self.looks += 1
        if not self.submission.scheduler.finds:
            self.hopeless = True
            return "its submission was not answered, and this scheduler cannot look for it"
        if self.looks >= _LOOKS:
            self.submission.learn(gone=True)
        return "it is not listed"


def _left(submission: Submission, why: str) -> str:
    command = submission.scheduler.cancel_words(submission.run, submission.handle or None)
    how = f"; end it with: {command}" if command else ""
    if not submission.handle:
        how = "; look for a run of that name"
    return f"{submission.words()} may still be there: {why}{how}"


async def end_left(
    ledger: Ledger, context: SchedulerContext, say: Callable[[str], None], *, grace: float
) -> bool:
    """End what a former launch has left at its schedulers; returns whether all of it is gone.

    Args:
        ledger: Of the former launch, whose launcher lives no longer.
        context: For the schedulers.
        say: Told what is done, and what could not be ended.
        grace: Seconds for the programs to end.
    """
    found, unknown = _submissions(ledger.left(), context)
    for words in unknown:
        say(words)
    if found:
        runs = "worker run" if len(found) == 1 else "worker runs"
        say(f"{len(found)} {runs} of the former launch may be left: ending what is there")
    left = await Ending(grace, asyncio.Event()).end_all(found)
    for submission in found:
        if submission.gone:
            with contextlib.suppress(OSError):
                ledger.note(submission.entry)
    for words in left:
        say(words)
    return not left and not unknown


def _submissions(
    entries: Iterable[LedgerEntry], context: SchedulerContext
) -> tuple[list[Submission], list[str]]:
    """With their schedulers, and in words those whose scheduler is not there any more."""
    made: dict[str, Scheduler] = {}
    found, unknown = [], []
    for entry in entries:
        try:
            if entry.starter not in made:
                made[entry.starter] = scheduler_entry(entry.starter).make(context)
        except UsageError as exc:
            unknown.append(f"worker run {entry.name} may still be there: {exc.message}")
            continue
        found.append(Submission(entry, made[entry.starter]))
    return found, unknown
