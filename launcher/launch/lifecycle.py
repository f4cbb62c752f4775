"""The life of one worker run: announced, submitted or adopted, described until it is over.

intent reported to the registry -> line in the ledger -> submit -> id in the ledger and reported
    -> its state reported whenever that changes, until it is over
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from launcher.launch.hosts import Hosts
from launcher.launch.registry import Registry, Unwanted
from launcher.launch.slot_run import SlotRun, SlotRuns, Step
from launcher.plan.plan import LOCAL
from launcher.schedulers.contract import NothingSubmitted
from launcher.schedulers.description import OVER, Description
from launcher.state.ledger import Ledger
from rendezvous.compat import timeout
from rendezvous.tasks import now
from rendezvous.wire.errors import Cause, SchedulerError
from rendezvous.wire.run import NodeState, SlotState, SlotStatus
from rendezvous.wire.words import printable

SUBMITS_AT_ONCE: Final = 16
SLOW_DETAIL_SECONDS: Final = 1.0
REPORT_AGAIN_SECONDS: Final = 30.0
LATE_SECONDS: Final = 20.0
CANNOT_START: Final = "rdzv: cannot start: "
"""With this a shipped spec begins its last line, where no other worker run of it would start."""
DESCRIBED_A_SECOND: Final = 10.0
"""How many worker runs a scheduler's commands are asked about."""
_LAST_LINE_SECONDS = 10.0
_LAST_LINES = 5
_MOST_LAST_LINE = 300
_PRESENT: Final = (
    *(NodeState.JOINED, NodeState.VERIFIED, NodeState.ARMED, NodeState.RUNNING),
    *(NodeState.EXITED, NodeState.STANDBY),
)
"""A node whose program has ended waits for the end of the run, or for the next start."""


class Owner(Protocol):
    """Decisions that concern several worker runs."""

    def is_blocked(self, run: SlotRun) -> bool:
        """Whether an older worker run is in its way."""

    def end_older(self, run: SlotRun) -> None:
        """End what it replaces."""

    def ends_now(self, run: SlotRun) -> bool:
        """Whether a submission that was answered ends at once."""

    def submit_again(self, slot: int, generation: int) -> None:
        """Have a slot filled again; nothing continues with older worker runs of it."""

    def drop(self, run: SlotRun) -> None:
        """Forget one that is not wanted any more, and was not submitted."""


@dataclass(eq=False, repr=False)
class Lifecycle:
    """Sees one worker run after another through its life, each in a task of its own.

    Attributes:
        owner: What decides beside them.
        runs: All worker runs of the launch.
        registry: Where their states are reported.
        ledger: Where they are written down.
        hosts: Chooses where they start.
        say: Shows a sentence to the person.
        answered: Set whenever a scheduler has answered a submission.
    """

    owner: Owner
    runs: SlotRuns
    registry: Registry
    ledger: Ledger
    hosts: Hosts
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.answered = asyncio.Event()
        self._context = self.registry.context
        self._gate = asyncio.Semaphore(SUBMITS_AT_ONCE)

    async def submit(self, run: SlotRun) -> None:
        """See one worker run from the intent to its end."""
        try:
            await self.registry.report(run, SlotState.SUBMITTING, is_intent=True)
        except Unwanted:
            self.owner.drop(run)
            return
        self.owner.end_older(run)
        await self._until_free(run)
        try:
            async with self._gate:
                submitted = await self._try_to_submit(run)
        finally:
            if run.step is Step.SUBMITTING:
                run.step = Step.INACTIVE
            self.answered.set()
        if self.owner.ends_now(run):
            return
        if isinstance(submitted, SchedulerError):
            final = isinstance(submitted, NothingSubmitted) and submitted.final
            cause = Cause.SCHEDULER_FAILED if final else ""
            words, hint = submitted.message, submitted.hint
            await self.registry.report_anyway(
                run, SlotState.FAILED, detail=words, cause=cause, hint=hint
            )
        elif submitted:
            run.step = Step.DESCRIBED
            self._say_start(run)
            await self.registry.report_anyway(run, SlotState.SUBMITTED)
            await self._describe(run)

    async def _until_free(self, run: SlotRun) -> None:
        """Wait until no older worker run is in its way."""
        while self.runs.view.started and self.owner.is_blocked(run):
            run.recheck = asyncio.Event()
            await run.recheck.wait()
        run.recheck = None

    async def _try_to_submit(self, run: SlotRun) -> bool | SchedulerError:
        """Have its scheduler submit it; False: it is not wanted any more. Sets its handle."""
        self.hosts.choose(run)
        while True:
            run.step = Step.WRITTEN
            await self._write_intent(run)
            run.step = Step.SUBMITTING
            submission = self._context.plan.submission(run.slot, run.generation, run.where)
            join = self._context.join(run.slot, run.generation)
            try:
                trouble = partial(self._retrying, run)
                run.handle = await run.scheduler.submit(submission, join, trouble=trouble)
            except Unwanted:
                return False
            except SchedulerError as exc:
                no_host = isinstance(exc, NothingSubmitted) and exc.no_host
                if no_host and self._is_wanted(run) and self.hosts.refused(run, exc.message):
                    self.hosts.choose(run)
                    continue
                run.gone = isinstance(exc, NothingSubmitted)
                if run.gone:
                    run.note(self.ledger)
                return exc
            run.gone = False
            run.note(self.ledger)
            return True

    async def _write_intent(self, run: SlotRun) -> None:
        """Write it down first: nothing is submitted that a later launcher would not know of."""
        if run.starter == LOCAL:
            return
        run.work = self._context.plan.submission(run.slot, run.generation, run.where)
        while True:
            try:
                self.ledger.begin(run.entry)
            except OSError as exc:
                words = f"{self.ledger.path} cannot be written, so rdzv submits nothing: {exc}"
                self.registry.say_once(words)
                await asyncio.sleep(self.registry.retry_pause())
            else:
                return

    async def _retrying(self, run: SlotRun, words: str) -> None:
        """Tell of a try to submit that has failed; raises Unwanted where there is to be no other.

        Nothing is told where others have said it.
        """
        if words and self._is_wanted(run):
            run.retrying = True
            await self.registry.report(run, SlotState.SUBMITTING, detail=words)
            run.retrying = False
        if not self._is_wanted(run):
            raise Unwanted

    def _is_wanted(self, run: SlotRun) -> bool:
        """Whether one whose first tries have failed is still wanted."""
        return not (self.runs.stopped or run.end_after) and self.runs.is_newest(run)

    async def adopt(self, run: SlotRun) -> None:
        """Take up a worker run that a former launcher had meant to submit, or replace it."""
        found, said = await self._look_up(run)
        run.handle = found or run.handle
        if found is None and (said is None or said.state in (*OVER, SlotState.UNKNOWN)):
            run.step, run.task = Step.INACTIVE, None
            run.lost_track = said is None or run.update(said).state is not SlotState.FAILED
            if not self.runs.stopped:
                self.owner.submit_again(run.slot, run.generation + 1)
            return
        self.owner.end_older(run)
        run.note(self.ledger, whole=True)
        slot = self.runs.view.slots.get(run.slot)
        if slot is None or slot.node_state is None:
            self._say_start(run)
        await self._describe(run)

    async def _look_up(self, run: SlotRun) -> tuple[str | None, Description | None]:
        """Ask its scheduler until it answers: for its id, and for the state of one that is not
        listed though its id is known."""
        while True:
            try:
                found = await run.scheduler.find(run.work)
                if found is not None or not run.handle:
                    return found, None
                return None, await run.scheduler.describe(run.work, run.handle)
            except SchedulerError as exc:
                await self.registry.report_anyway(run, SlotState.UNKNOWN, detail=exc.message)
                await asyncio.sleep(run.scheduler.poll_seconds)

    def _say_start(self, run: SlotRun) -> None:
        """Say whole what a person has to copy: a table has no room for it."""
        if run.scheduler.by_hand:
            command = run.scheduler.start_words(run.handle)
            self.say(f"copy slot {run.slot}'s script to its machine, and start it there: {command}")

    # --- what its scheduler says of it --------------------------------------------------------

    async def _describe(self, run: SlotRun) -> None:
        """Report what its scheduler says, until it is over; that it cannot say anything is no
        reason to end the run."""
        run.step = Step.DESCRIBED
        while True:
            try:
                found = await run.scheduler.describe(run.work, run.handle)
            except SchedulerError as exc:
                found = Description(SlotState.UNKNOWN, exc.message)
            if self.hosts.waits_in_vain(run, found, now()) and not self.runs.stopped:
                self.owner.submit_again(run.slot, run.generation + 1)
                return
            await self._described(run, run.update(found))
            if run.gone:
                run.step, run.task = Step.INACTIVE, None
                return
            pause = run.scheduler.poll_seconds
            if not run.scheduler.loopback:  # it serves others too
                pause = max(pause, len(self.runs.requested) / DESCRIBED_A_SECOND)
            await asyncio.sleep(pause)

    async def _described(self, run: SlotRun, found: Description) -> None:
        slot = self.runs.view.slots.get(run.slot)
        run.over = found if found.state in OVER else None
        run.gone = _is_believed_over(run, found, slot)
        if run.gone:
            run.note(self.ledger)
        late = _is_late(slot, found)
        if not _is_news(run, found, late=late):
            return
        run.reported, run.reported_at = found, now()
        line = ""
        cause = Cause.PREEMPTED if found.preempted else ""
        waits_for = self.hosts.queue_words(run) if found.state is SlotState.QUEUED else ""
        if late or (run.over is not None and not self.runs.view.started):
            line = await _last_line(run)
            if run.over is not None and line.startswith(CANNOT_START):
                cause = cause or Cause.SCHEDULER_FAILED  # no other one of this spec would start
        last = f"its last line: {line!r}" if line else ""
        detail = "; ".join(filter(None, (found.detail, waits_for, last)))
        await self.registry.report_anyway(run, found.state, detail=detail, cause=cause)


def _is_late(slot: SlotStatus | None, found: Description) -> bool:
    """Whether it has been running for a while, and its node has not come."""
    if slot is None or slot.node_state is not None or found.state is not SlotState.RUNNING:
        return False
    return slot.state is SlotState.RUNNING and slot.state_seconds >= LATE_SECONDS


def _is_news(run: SlotRun, found: Description, *, late: bool) -> bool:
    """Whether the registry is to hear of it: it believes in a queue only as long as it does."""
    said, ago = run.reported, now() - run.reported_at
    if said is None or (found.state, found.preempted) != (said.state, said.preempted):
        return True
    if found != said and ago > SLOW_DETAIL_SECONDS:
        return True
    return (found.state is SlotState.QUEUED or late) and ago > REPORT_AGAIN_SECONDS


def _is_believed_over(run: SlotRun, found: Description, slot: SlotStatus | None) -> bool:
    """Whether it is over: not while its own node is there, whatever its scheduler says.

    A child of this process is certain; a command's one answer may be wrong, and what is believed
    gone is never ended any more.
    """
    if found.state not in OVER:
        return False
    if slot is None or run.scheduler.loopback or slot.generation != run.generation:
        return True
    return slot.node_state not in _PRESENT


async def _last_line(run: SlotRun) -> str:
    """Return the last line that its scheduler keeps; empty where it keeps none, or is slow."""
    last = ""
    if not run.scheduler.keeps_logs:
        return last
    lines = run.scheduler.logs(run.work, run.handle, lines=_LAST_LINES, follow=False)
    with contextlib.suppress(SchedulerError, TimeoutError):
        async with timeout(_LAST_LINE_SECONDS):
            async for line in lines:
                last = line.strip() or last
    return printable(last, _MOST_LAST_LINE)
