"""The worker runs of one launch: submitted or taken up again, described until they are over, ended.

For each slot that wants a newer generation than was submitted, whatever the reason:

    intent told to the registry -> line in the ledger -> submit -> id in the ledger and told
        -> its state told whenever that changes, until it is over

The registry decides what follows from it. A worker run that a newer generation replaces is ended
at once; its node would be refused in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from launcher.ending import Ending, Submission
from launcher.ledger import LOCAL, Ledger, LedgerEntry
from launcher.plan import Plan
from launcher.schedulers import OVER, Description, NothingSubmitted, Scheduler, Trouble
from rendezvous.client import retry_pause
from rendezvous.compat import timeout
from rendezvous.errors import Fenced, RunOver, SchedulerError
from rendezvous.schema import Phase, RunStatus, SlotNews, SlotState, SlotStatus, printable
from rendezvous.security import JoinString
from rendezvous.state import slots_text

_SUBMITS_AT_ONCE = 16
_DESCRIBED_A_SECOND = 10.0
"""How many worker runs a scheduler's commands are asked about."""
_SLOW_DETAIL_SECONDS = 1.0
_SAY_AGAIN_SECONDS = 30.0
_LATE_SECONDS = 20.0
_SETTLE_SECONDS = 10.0
_END_SECONDS = 3.0
_SAY_SECONDS = 10.0
_LAST_LINE_SECONDS = 10.0
_MOST_DETAIL = 600
_MOST_LAST_LINE = 300

Tell = Callable[[int, SlotNews], Awaitable[None]]


class WorkerRuns:
    """Those of one launch.

    Args:
        plan: What is submitted for each slot.
        join: Makes the join string of a slot's generation.
        tell: Tells the registry; returns once it has heard it.
        say: Tells the person.
        scheduler: Starts the worker runs; None where nothing is submitted.
        local: Starts slot 0's node here; None where this machine is no node of the run.
        ledger: What is known of them on disk; a former launcher of this launch may have written it.
        hurry: Set when everything is to end at once.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        join: Callable[[int, int], JoinString],
        tell: Tell,
        say: Callable[[str], None],
        scheduler: Scheduler | None,
        local: Scheduler | None,
        ledger: Ledger,
        hurry: asyncio.Event,
    ) -> None:
        self._plan = plan
        self._join = join
        self._tell = tell
        self._say = say
        self._scheduler = scheduler
        self._local = local
        self._ledger = ledger
        self._hurry = hurry
        self._ending = Ending(plan.settings.grace, hurry)
        self._gate = asyncio.Semaphore(_SUBMITS_AT_ONCE)
        self._asked: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._status: RunStatus | None = None
        # Of a launch that is taken up again, with the scheduler that it had.
        self._submissions = {
            entry.name: Submission(entry, scheduler)
            for entry in ledger.left()
            if scheduler is not None
        }

    def _scheduler_of(self, slot: int) -> Scheduler | None:
        return self._local if slot == 0 and self._local is not None else self._scheduler

    # --- following ----------------------------------------------------------------------------

    def see(self, status: RunStatus, *, submit: bool) -> None:
        """Take in how the run stands, and submit every slot that wants a newer generation.

        A part of this that has failed fails here.
        """
        self._status = status
        if status.phase is Phase.RUNNING:
            self._end_unneeded(status)
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()
        if not submit or status.phase is Phase.FINISHED:
            return
        for slot in status.slots:
            self._submit_wanted(slot)

    def _submit_wanted(self, slot: SlotStatus) -> None:
        scheduler, wanted = self._scheduler_of(slot.slot), slot.wanted_generation
        asked = self._asked.get(slot.slot, 0)
        if scheduler is None or asked >= wanted:
            return
        self._asked[slot.slot] = wanted
        if slot.generation >= wanted and not asked:
            self._start(self._take_up(scheduler, slot))
        else:
            self._start(self._submit(scheduler, slot.slot, wanted))

    def _end_unneeded(self, status: RunStatus) -> None:
        """From the go on, the table's nodes are the run's: nobody else can join any more.

        One that was released ends by itself, if its agent still can.
        """
        unneeded = {slot.slot for slot in status.slots if slot.rank is None}
        for submission in self._submissions.values():
            entry = submission.entry
            if entry.slot in unneeded and not entry.gone and not submission.ending:
                submission.ending = True
                self._start(self._end_one(submission, by_itself_seconds=_END_SECONDS))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.create_task(work))

    # --- submitting ---------------------------------------------------------------------------

    async def _take_up(self, scheduler: Scheduler, slot: SlotStatus) -> None:
        """A former launcher had meant to submit it: find it again, or replace it."""
        run = self._plan.worker_run(slot.slot, slot.generation)
        submission = self._submissions.get(run.name) or Submission(
            LedgerEntry.of(run, self._starter(scheduler)), scheduler
        )
        self._submissions[run.name] = submission
        found = await self._find(submission)
        if self._asked[slot.slot] > slot.generation:
            return
        self._replace_older(slot.slot, slot.generation)
        if found:
            with contextlib.suppress(OSError):
                self._ledger.begin(submission.entry)
            await self._describe_until_over(submission)
        else:
            self._asked[slot.slot] = slot.generation + 1
            await self._submit(scheduler, slot.slot, slot.generation + 1)

    async def _find(self, submission: Submission) -> bool:
        """Whether it lives; asked until its scheduler answers."""
        while True:
            try:
                if await submission.find():
                    return True
                return bool(submission.handle) and await self._lives(submission)
            except SchedulerError as exc:
                await self._tell_state(submission, Description(SlotState.UNKNOWN, exc.message))
                await asyncio.sleep(submission.scheduler.poll_seconds)

    @staticmethod
    async def _lives(submission: Submission) -> bool:
        found = await submission.describe()
        return found.state not in (*OVER, SlotState.UNKNOWN)

    async def _submit(self, scheduler: Scheduler, slot: int, generation: int) -> None:
        """Journal the intent, start the worker run, and tell what becomes of it."""
        run = self._plan.worker_run(slot, generation)
        join = self._join(slot, generation)
        intent = SlotNews(
            generation=generation,
            state=SlotState.SUBMITTING,
            name=run.name,
            token_sha256=join.token.sha256(),
        )
        try:
            await self._tell(slot, intent)
        except (RunOver, Fenced):
            return
        self._replace_older(slot, generation)
        submission = Submission(LedgerEntry.of(run, self._starter(scheduler)), scheduler)
        async with self._gate:
            await self._write_intent(submission)
            submission.submitting = asyncio.create_task(
                scheduler.submit(run, join.text(), trouble=self._trouble_of(submission))
            )
            try:
                # It is not broken off where this is: an answer that is under way has the id.
                submission.learn(handle=await asyncio.shield(submission.submitting))
            except SchedulerError as exc:
                submission.learn(gone=isinstance(exc, NothingSubmitted))
                words = f"{exc.message}; {exc.hint}" if exc.hint else exc.message
                await self._tell_state(submission, Description(SlotState.FAILED, words))
                return
            except (RunOver, Fenced):
                return
        await self._made(submission)

    def _trouble_of(self, submission: Submission) -> Trouble:
        """Nobody waits for a submission that fails without knowing how it fails."""

        async def tell(words: str) -> None:
            await self._tell_state(submission, Description(SlotState.SUBMITTING, words))

        return tell

    def _starter(self, scheduler: Scheduler) -> str:
        return LOCAL if scheduler is self._local else self._plan.settings.starter

    async def _write_intent(self, submission: Submission) -> None:
        """Nothing is submitted that a later launcher would not know of."""
        while True:
            try:
                self._ledger.begin(submission.entry)
            except OSError as exc:
                self._say(f"{self._ledger.path} cannot be written, so nothing is submitted: {exc}")
                await asyncio.sleep(retry_pause())
            else:
                self._submissions[submission.entry.name] = submission
                return

    def _note(self, submission: Submission) -> None:
        """Write down what became known; without it, its name still finds it."""
        with contextlib.suppress(OSError):
            self._ledger.note(submission.entry)

    async def _made(self, submission: Submission) -> None:
        self._note(submission)
        await self._tell_state(submission, Description(SlotState.SUBMITTED))
        await self._describe_until_over(submission)

    def _replace_older(self, slot: int, generation: int) -> None:
        for submission in self._submissions.values():
            entry = submission.entry
            older = entry.slot == slot and entry.generation < generation
            if older and not entry.gone and not submission.ending:
                submission.ending = True
                self._start(self._end_one(submission))

    async def _end_one(self, submission: Submission, *, by_itself_seconds: float = 0.0) -> None:
        """What is left of it then is told when the launch ends."""
        await self._ending.end(submission, by_itself_seconds=by_itself_seconds)
        submission.ending = False
        self._note(submission)

    # --- describing ---------------------------------------------------------------------------

    async def _describe_until_over(self, submission: Submission) -> None:
        said: Description | None = None
        said_at = 0.0
        entry = submission.entry
        while (said is None or said.state not in OVER) and not self._is_replaced(entry):
            found = await self._described(submission)
            changed = said is None or found.state is not said.state
            reworded = found != said and time.monotonic() - said_at > _SLOW_DETAIL_SECONDS
            # The registry believes in a queue only as long as it hears of it.
            again = found.state is SlotState.QUEUED or self._is_late(entry, found)
            if changed or reworded or (again and time.monotonic() - said_at > _SAY_AGAIN_SECONDS):
                said, said_at = found, time.monotonic()
                await self._tell_state(submission, await self._with_last_line(submission, found))
            await asyncio.sleep(self._pause(submission.scheduler))

    def _is_replaced(self, entry: LedgerEntry) -> bool:
        return self._asked.get(entry.slot, 0) > entry.generation

    def _pause(self, scheduler: Scheduler) -> float:
        """Until it is asked again: a scheduler that serves others too is not asked too often."""
        if scheduler.loopback:
            return scheduler.poll_seconds
        return max(scheduler.poll_seconds, len(self._asked) / _DESCRIBED_A_SECOND)

    @staticmethod
    async def _described(submission: Submission) -> Description:
        """What the scheduler says; that it cannot say anything is no reason to end the run."""
        try:
            found = await submission.describe()
        except SchedulerError as exc:
            return Description(SlotState.UNKNOWN, exc.message)
        submission.learn(gone=found.state in OVER)
        if found.state in OVER and not submission.ending:
            submission.over = found
        return found

    async def _tell_state(self, submission: Submission, found: Description) -> None:
        entry = submission.entry
        if entry.gone:
            self._note(submission)
        news = SlotNews(
            generation=entry.generation,
            state=found.state,
            handle=printable(entry.handle, 253),
            detail=printable(found.detail, _MOST_DETAIL),
        )
        await self._tell(entry.slot, news)

    async def _with_last_line(self, submission: Submission, found: Description) -> Description:
        """Of one that ends before the go, or runs and does not call: what it said last is why, more
        often than not."""
        forming = self._status is None or self._status.phase not in (Phase.RUNNING, Phase.FINISHED)
        ended = found.state in OVER and forming
        if not submission.scheduler.keeps_logs:
            return found
        if not ended and not self._is_late(submission.entry, found):
            return found
        last = await _last_line(submission)
        if not last:
            return found
        before = f"{found.detail}; " if found.detail else ""
        return Description(found.state, f"{before}its last line: {last!r}")

    def _is_late(self, entry: LedgerEntry, found: Description) -> bool:
        """Whether it runs for a while already, and its node has not come."""
        slots = self._status.slots if self._status is not None else []
        slot = next((slot for slot in slots if slot.slot == entry.slot), None)
        if slot is None or slot.node_state is not None or found.state is not SlotState.RUNNING:
            return False
        return slot.state is SlotState.RUNNING and slot.state_seconds >= _LATE_SECONDS

    # --- ending -------------------------------------------------------------------------------

    async def end_all(self) -> None:
        """Nothing of them is left, or the person is told what is."""
        await self._settle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        left = [each for each in self._submissions.values() if not each.gone]
        slowest = max((each.scheduler.poll_seconds for each in left), default=0.0)
        timer = asyncio.get_running_loop().call_later(_SAY_SECONDS, self._say_what_is_left, left)
        try:
            by_itself = max(_END_SECONDS, 2 * slowest)
            words = await self._ending.end_all(left, by_itself_seconds=by_itself)
        finally:
            timer.cancel()
        for submission in left:
            if submission.gone:
                self._note(submission)
        for sentence in words:
            self._say(sentence)

    def words_of_end(self, slot: int) -> str:
        """What the scheduler said when the slot's newest worker run failed; empty when it said
        nothing, or it was this launch that had told it to end."""
        runs = [each for each in self._submissions.values() if each.entry.slot == slot]
        newest = max(runs, key=lambda each: each.entry.generation, default=None)
        if newest is None or newest.scheduler.loopback or newest.over is None:
            return ""
        return newest.over.detail if newest.over.state is SlotState.FAILED else ""

    def _say_what_is_left(self, submissions: list[Submission]) -> None:
        slots = sorted({each.entry.slot for each in submissions if not each.gone})
        self._say(
            f"waiting for the worker runs of {slots_text(slots)} to end, as their scheduler tells "
            "it; Ctrl-C: no longer"
        )

    async def _settle(self) -> None:
        """Let submissions that are under way come to their end: their answers hold the ids."""
        calls = [each.submitting for each in self._submissions.values()]
        pending = [call for call in calls if call is not None and not call.done()]
        hurry = asyncio.create_task(self._hurry.wait())
        deadline = time.monotonic() + _SETTLE_SECONDS
        for call in pending:
            left = max(0.0, deadline - time.monotonic())
            await asyncio.wait({call, hurry}, timeout=left, return_when="FIRST_COMPLETED")
        for task in (*pending, hurry):
            task.cancel()
        await asyncio.gather(*pending, hurry, return_exceptions=True)
        for submission in self._submissions.values():
            _take_answer(submission)


def _take_answer(submission: Submission) -> None:
    task = submission.submitting
    if task is not None and not task.cancelled() and task.exception() is None:
        submission.learn(handle=task.result())


async def _last_line(submission: Submission) -> str:
    """What the scheduler keeps as the run's last line; empty when it cannot say in time."""
    last = ""
    lines = submission.scheduler.logs(submission.run, submission.handle, lines=5, follow=False)
    with contextlib.suppress(SchedulerError, TimeoutError):
        async with timeout(_LAST_LINE_SECONDS):
            async for line in lines:
                last = line.strip() or last
    return printable(last, _MOST_LAST_LINE)
