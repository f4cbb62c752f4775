"""The worker runs of one launch: which are wanted, which make room for newer ones, and their end.

The registry decides how many worker runs a slot needs: it is submitted again whenever it wants a
newer generation than was submitted, whatever the reason. A worker run that a newer generation
replaces is ended: before the go beside the newer one, as the registry refuses its node in any case,
and from the go on before the newer one is submitted. What the run goes without is ended at the go
of each epoch; between two epochs nothing is ended but what was lost for good, and nothing submitted
for it. Standbys, and the places of lost nodes that are replaced, are awaited: the run does not go
without them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from launcher.cleanup.endings import Endings, Tracked, by_slot
from launcher.launch.background import Background
from launcher.launch.hosts import Hosts
from launcher.launch.lifecycle import Lifecycle
from launcher.launch.registry import Registry
from launcher.launch.run_view import RunView
from launcher.launch.slot_run import SlotRun, SlotRuns, Step
from launcher.plan.avoiding import Places
from launcher.state.ledger import Ledger
from rendezvous.compat import timeout
from rendezvous.tasks import now
from rendezvous.wire.run import Phase, RunStatus, SlotState, SlotStatus
from rendezvous.wire.words import slots_text

SETTLE_SECONDS: Final = 10.0
BY_ITSELF_SECONDS: Final = 3.0
SAY_SECONDS: Final = 10.0
END_AGAIN_SECONDS: Final = 60.0
_MOST_DOUBLINGS: Final = 5


@dataclass(eq=False, repr=False)
class WorkerRuns:
    """Decides on all worker runs of a launch.

    Attributes:
        registry: Where their states are told.
        ledger: Where they are written down.
        endings: Ends them.
        background: Runs their tasks.
        say: Shows a sentence to the person.
        runs: Those that are known.
    """

    registry: Registry
    ledger: Ledger
    endings: Endings
    background: Background
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.runs = runs = SlotRuns()
        self._context = self.registry.context
        self._places = Places.of(self._context.prepared.plan)
        self._hosts = Hosts(runs, self._places, self.registry.say_once)
        self._lifecycle = Lifecycle(self, runs, self.registry, self.ledger, self._hosts, self.say)
        self._ends: set[asyncio.Task[None]] = set()
        self._ending = False

    # --- what the registry wants --------------------------------------------------------------

    def take_over(self, left: Iterable[Tracked]) -> None:
        """Take over what a former launcher of this launch has submitted. A host that no spec has
        read is none."""
        for one in left:
            host = str(one.work.variables.get("HOST", "")) if self._places.hosts else ""
            # That of its slot knows all worker runs.
            scheduler = self._context.prepared.scheduler_of(one.slot) or one.scheduler
            run = SlotRun(one.work, scheduler, one.starter, one.handle, host=host)
            run.step, run.named = Step.INACTIVE, bool(host)
            self.runs.add(run)

    def update(self, status: RunStatus) -> None:
        """Take in a status of the run, and submit every slot that wants a newer generation."""
        self.runs.view = RunView.of(status)
        if status.phase is Phase.FINISHED:
            self.stop()
        else:
            self._release()
        if self.runs.stopped:
            return
        for run in list(self.runs.all):
            if run.recheck is not None:
                run.recheck.set()  # a fence may have passed
            elif self._is_unended(run) and now() >= run.end_again_at:
                self._end(run)
        for slot in status.slots:
            self._want(slot)

    def stop(self) -> None:
        """Submit nothing more; what is being submitted comes to its end: its answer has an id."""
        if self.runs.stopped:
            return
        self.runs.stopped = True
        for run in list(self.runs.all):
            if run.before_submission:
                self.drop(run)
            elif run.step is Step.SUBMITTING and run.retrying:
                self._deactivate(run)

    def _want(self, slot: SlotStatus) -> None:
        number, wanted = slot.slot, slot.wanted_generation
        requested = self.runs.requested.get(number, 0)
        if (
            requested >= wanted
            or self.runs.view.goes_without(slot)
            or self._context.prepared.scheduler_of(number) is None
        ):
            return
        if slot.generation < wanted or requested:
            self.submit_again(number, wanted)
            return
        self.runs.requested[number] = wanted
        known = self.runs.of_slot.get(number, ())
        run = next((one for one in known if one.generation == slot.generation), None)
        run = run or self._new(number, slot.generation)
        run.step = Step.LOOKING
        run.task = self.background.start(self._lifecycle.adopt(run))

    def submit_again(self, slot: int, generation: int) -> None:
        """Have a slot filled again; nothing goes on with older worker runs of it."""
        self.runs.requested[slot] = generation
        for older in list(self.runs.of_slot.get(slot, ())):
            if older.before_submission:
                self.drop(older)
            elif older.step in (Step.LOOKING, Step.DESCRIBED):
                self._deactivate(older)
                if older.gone:  # that was not heard yet
                    self._report_over(older)
        run = self._new(slot, generation)
        run.task = self.background.start(self._lifecycle.submit(run))

    def _release(self) -> None:
        """End what the run goes without.

        One that was released ends by itself, if its agent still can. What could not be ended is
        tried again ever more rarely.
        """
        for slot in filter(self.runs.view.is_to_end, self.runs.view.slots.values()):
            for run in list(self.runs.of_slot.get(slot.slot, ())):
                if run.before_submission:
                    self._withdraw(run)
                    self._report_over(run)
                elif now() >= run.end_again_at:
                    self._end(run, by_itself=BY_ITSELF_SECONDS)

    # --- bookkeeping --------------------------------------------------------------------------

    def _new(self, slot: int, generation: int) -> SlotRun:
        context, scheduler = self._context, self._context.prepared.scheduler_of(slot)
        assert scheduler is not None
        work = context.plan.submission(slot, generation)
        run = SlotRun(work, scheduler, context.starter(slot))
        self.runs.add(run)
        return run

    def _deactivate(self, run: SlotRun) -> None:
        """Ask and tell nothing of it any more; what is being submitted may exist all the same."""
        for task in (run.task, run.reporting):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        run.step, run.task, run.reporting, run.recheck = Step.INACTIVE, None, None, None
        run.retrying = False

    def drop(self, run: SlotRun) -> None:
        """Forget one that is not wanted any more, and was not submitted."""
        self._withdraw(run)
        self.runs.remove(run)

    def _withdraw(self, run: SlotRun) -> None:
        """Submit it no more: it is gone, as it never was submitted."""
        was_written = run.step is Step.WRITTEN
        self._deactivate(run)
        run.gone = True
        if was_written:
            run.note(self.ledger)

    # --- replacing and ending -----------------------------------------------------------------

    def _report_over(self, run: SlotRun) -> None:
        """Tell that one is over that is replaced, or was lost for good: the registry need not wait
        for its fence. That a script was taken away says nothing of what a person has started with
        it."""
        seen = self.runs.view.slots.get(run.slot)
        is_older = (
            self.runs.view.outlives and self.runs.view.started and not self.runs.is_newest(run)
        )
        is_news = is_older or (seen is not None and self.runs.view.is_given_up(seen))
        if is_news and not (run.scheduler.by_hand or self.runs.stopped):
            run.reporting = self.background.start(self.registry.report_anyway(run, SlotState.ENDED))

    def ends_now(self, run: SlotRun) -> bool:
        """Whether a submission that was answered ends at once, as others were waiting for that."""
        if self._ending or run in self.endings.under_way:
            return True
        if not (run.end_after or (run.handle and not self.runs.is_newest(run))):
            return False
        run.end_after = False
        if run.gone:
            self._report_over(run)
        self._end(run)
        self._free(run.slot)
        return True

    def end_older(self, run: SlotRun) -> None:
        """End what it replaces."""
        for older in self.runs.older(run):
            self._end(older)

    def _end(self, run: SlotRun, *, by_itself: float = 0.0) -> None:
        """End it, unless that is under way; one that is being submitted once that is answered."""
        if run.gone or run in self.endings.under_way:
            return
        if run.step is Step.SUBMITTING:
            run.end_after = True
            return
        self._deactivate(run)
        self.endings.begin(run, by_itself=by_itself)
        task = self.background.start(self._until_ended(run))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _until_ended(self, run: SlotRun) -> None:
        """See its end; it is tried again ever more rarely, unless somebody waits for it."""
        await self.endings.until_ended(run)
        waiting = [one for one in self.runs.of_slot[run.slot] if one.recheck is not None]
        if run.gone:
            run.note(self.ledger)
            self._report_over(run)
        else:
            doublings = 0 if self.runs.view.outlives and waiting else run.failed_ends
            run.end_again_at = now() + END_AGAIN_SECONDS * 2**doublings
            run.failed_ends = min(run.failed_ends + 1, _MOST_DOUBLINGS)
            if waiting and not self.runs.view.outlives:
                self.say(run.orphan_words)
        self._free(run.slot)
        if self.runs.view.outlives and self._may_run(run) and any(map(self.is_blocked, waiting)):
            waits = f"the next worker run of slot {run.slot} waits until its program is surely over"
            self.say(f"{_older_words(run)}; {waits}")

    def _free(self, slot: int) -> None:
        """Have those look again who wait for an older worker run of this slot."""
        for run in self.runs.of_slot.get(slot, ()):
            if run.recheck is not None:
                run.recheck.set()

    def is_blocked(self, run: SlotRun) -> bool:
        """Whether an older worker run is in its way.

        In a run that goes on after a node's loss the newer one is submitted only once no older one
        can run its program any more: its scheduler says that it is over, or the registry that its
        node has been silent for longer than any program outlives that.
        """
        seen, older = self.runs.view.slots.get(run.slot), self.runs.older(run)
        if not self.runs.view.outlives:
            return any(one in self.endings.under_way or one.end_after for one in older)
        is_fenced = seen is not None and seen.fenced
        return any(map(self._is_unplaced if is_fenced else self._may_run, older))

    def _is_unplaced(self, run: SlotRun) -> bool:
        """Whether it is being ended, and its scheduler has yet to say where it was: the newer one
        is not to start there."""
        end = self.endings.under_way.get(run)
        if end is None or end.unanswered or self._hosts.host(run):
            return False
        return self._places.avoids and self._places.tells

    def _is_unended(self, run: SlotRun) -> bool:
        """Whether it is an older one that could not be ended."""
        return self.runs.view.outlives and run.failed_ends > 0 and not self.runs.is_newest(run)

    def _may_run(self, run: SlotRun) -> bool:
        return not run.gone or run.scheduler.by_hand

    # --- the end of all -----------------------------------------------------------------------

    async def end_all(self) -> None:
        """End everything, once submissions under way are answered, as their answers hold the ids;
        says what could not be ended."""
        self.stop()
        self._ending = True
        for run in self.runs.all:
            if run.step is not Step.SUBMITTING:
                self._deactivate(run)
        with contextlib.suppress(TimeoutError):
            async with timeout(SETTLE_SECONDS):
                while self._submitting() and not self.endings.hurried.is_set():
                    self._lifecycle.answered.clear()
                    await self._lifecycle.answered.wait()
        for run in self._submitting():
            self._deactivate(run)
        left = [run for run in self.runs.all if not run.gone]
        slowest = max((run.scheduler.poll_seconds for run in left), default=0.0)
        for run in left:
            if (end := self.endings.under_way.get(run)) is not None:
                end.extend()
            else:
                self._end(run, by_itself=max(BY_ITSELF_SECONDS, 2 * slowest))
        await self._all_ended()
        for one in by_slot(run for run in left if not run.gone):
            self.say(one.orphan_words)

    async def _all_ended(self) -> None:
        """Wait for the ends of all; says what is waited for where it takes its time."""
        if not self._ends:
            return
        _, waiting = await asyncio.wait(self._ends, timeout=SAY_SECONDS)
        if waiting:
            slots = sorted({run.slot for run in self.endings.under_way})
            self.say(
                f"waiting for the worker runs of {slots_text(slots)} to end, as their scheduler "
                "reports; press Ctrl-C to stop waiting"
            )
            await asyncio.wait(waiting)

    def hurry(self) -> None:
        """End everything at once, now or once its end begins."""
        self.endings.hurry()
        self._lifecycle.answered.set()

    def _submitting(self) -> list[SlotRun]:
        return [run for run in self.runs.all if run.step is Step.SUBMITTING]


def _older_words(run: SlotRun) -> str:
    """Describe an older worker run that a newer one waits for."""
    if run.gone:
        return f"what was started by hand as {run.words} may still run"
    return run.orphan_words
