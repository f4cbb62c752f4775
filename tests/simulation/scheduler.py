"""What starts worker runs, with its own troubles: see `launcher.schedulers.contract`.

It is nobody's process; its answers may be late, lost, wrong, or not come at all.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.plan.plan import Submission, WorkerRun
from launcher.schedulers.contract import NothingSubmitted, Trouble, unheard
from launcher.schedulers.description import OVER, Description
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState
from tests.simulation.agents import Process
from tests.support.virtual_time import forever

if TYPE_CHECKING:
    from tests.simulation.world import World

_CALL_SECONDS = 0.05
_ANSWER_SECONDS = 0.02
_BUSY_SECONDS = 0.5
_KILL_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_DIES_SECONDS = 0.2


@dataclass
class Submitted:
    """One worker run, as its scheduler knows it; from `listed_at` on, its list has it."""

    handle: str
    name: str
    slot: int
    generation: int
    join: JoinString
    state: SlotState = SlotState.QUEUED
    detail: str = "waiting for a free node"
    process: Process | None = None
    listed_at: float = 0.0

    def described(self) -> Description:
        if self.state is SlotState.RUNNING and self.process and self.process.ended is not None:
            code = self.process.ended
            self.state = SlotState.FAILED if code else SlotState.ENDED
            self.detail = f"exit code {code}"
        return Description(self.state, self.detail)

    @property
    def is_over(self) -> bool:
        return self.described().state in OVER


class SimulatedScheduler:
    """A service that queues worker runs and starts them."""

    name = "simulated"
    loopback = False
    poll_seconds = 1.0
    keeps_logs = True
    by_hand = False

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.launch = world.schedule.launches[index]
        self.finds = self.launch.finds
        self.runs: list[Submitted] = []
        self.fail_next = self.unsure_next = self.lose_answer = self.busy = self.slow_next = 0
        self.silent_until = self.list_lag = self.lie_until = self.slow_seconds = 0.0
        self.hangs_until = 0.0
        self.dying = 0
        """So many of those that are submitted again die as soon as they have begun."""
        self.queued_again: dict[int, float] = {}
        self.was_silent = self.lost = self.preempted = self.log_hangs = False
        self.keeps_all = self.says_nothing = False
        self.lie = SlotState.UNKNOWN
        self.lie_slot = -1
        self.called_over: set[str] = set()

    def prepare(self, run: Submission, join: str) -> str:
        return f"start {run.name}"

    async def make_ready(self, run: Submission) -> None:
        """See the contract."""

    async def close(self) -> None:
        """See the contract."""

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        self._may_break("submit")
        await asyncio.sleep(_CALL_SECONDS)
        while self.busy:
            self.busy -= 1
            await trouble("the scheduler is busy")
            await asyncio.sleep(_BUSY_SECONDS)
        where = JoinString.parse(join)
        facts = self.world.history.facts[where.launch_id]
        facts.submissions[run.slot] += 1
        if self.fail_next:
            self.fail_next -= 1
            self.world.counts["submission failed"] += 1
            raise NothingSubmitted("the scheduler does not take it")
        if self.unsure_next:
            self.unsure_next -= 1
            raise SchedulerError("error 500")
        made = Submitted(f"{100 + len(self.runs)}", run.name, run.slot, run.generation, where)
        is_child = self not in self.world.schedulers
        self.world.judge_of_launcher(self, run=made, is_child=is_child)
        made.listed_at = self.world.loop.time() + self.list_lag
        self.runs.append(made)
        self.world.spawn(self._live(made))
        await asyncio.sleep(_ANSWER_SECONDS)
        if self.slow_next:
            self.slow_next -= 1
            await asyncio.sleep(self.slow_seconds)
        if self.lose_answer:
            self.lose_answer -= 1
            self.lost = True
            self.world.counts["submission's answer lost"] += 1
            raise SchedulerError("no answer from the scheduler")
        return made.handle

    async def _live(self, run: Submitted) -> None:
        is_again = run.generation > 1
        queued = self.queued_again.get(run.slot) if is_again else None
        await asyncio.sleep(self.launch.queue[run.slot] if queued is None else queued)
        if run.state in OVER:
            return
        run.state, run.detail = SlotState.RUNNING, ""
        await asyncio.sleep(self.launch.boot[run.slot])
        if run.state is not SlotState.RUNNING:
            return
        run.process = self.world.start_process(run.join)
        if is_again and self.dying:
            self.dying -= 1
            await asyncio.sleep(_DIES_SECONDS)
            run.process.die(silent=False)

    async def find(self, run: WorkerRun) -> str | None:
        if not self.finds:
            return None
        await self._answer()
        now = self.world.loop.time()
        names = (x for x in self.runs if x.name == run.name and x.listed_at <= now)
        return next((x.handle for x in names if not x.is_over), None)

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        self._may_break("describe")
        await self._answer()
        found = self._of(handle)
        if self.world.loop.time() < self.lie_until and run.slot == self.lie_slot:
            self._note_lie(run)
            return Description(self.lie, "so the scheduler says")
        return Description(SlotState.UNKNOWN, "no such run") if found is None else found.described()

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        self._may_break("cancel")
        if (run_to_end := self._of(handle)) is not None:
            self.world.judge_of_launcher(self, run=run_to_end, grace=grace_seconds)
        await self._answer()
        if self.says_nothing:
            return
        if self.keeps_all:
            raise SchedulerError("you may not end this run")
        found = self._of(handle)
        if found is not None and not found.is_over:
            self.world.spawn(_end(found, grace_seconds))

    def submit_words(self, run: Submission) -> str:
        return ""

    def start_words(self, handle: str) -> str:
        return ""

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        return f"end {handle}" if handle else ""

    async def logs(
        self, run: WorkerRun, handle: str, *, lines: int, follow: bool
    ) -> AsyncIterator[str]:
        await self._answer()
        if self.log_hangs:
            await forever()
        yield f"the last line of {run.name}"

    def silence(self, seconds: float) -> None:
        self.silent_until = self.world.loop.time() + seconds
        self.was_silent = True

    def hang(self, seconds: float) -> None:
        self.hangs_until = self.world.loop.time() + seconds
        self.was_silent = True

    def preempt(self, slot: int) -> None:
        self.preempted = True
        for run in self.runs:
            if run.slot == slot and run.state in (SlotState.QUEUED, SlotState.RUNNING):
                run.state, run.detail = SlotState.ENDED, "preempted"
                if run.process is not None:
                    run.process.die(silent=False)

    def _note_lie(self, run: WorkerRun) -> None:
        """Who does not see its node has no reason to doubt that it is over."""
        doubts = any(x.sees_node_of(run) for x in self.world.live_launchers(self.index))
        if self.lie in OVER and not doubts:
            self.called_over.add(run.name)

    def _may_break(self, part: str) -> None:
        self.world.may_break(self.index, part)

    async def _answer(self) -> None:
        await asyncio.sleep(_ANSWER_SECONDS)
        await asyncio.sleep(max(0.0, self.hangs_until - self.world.loop.time()))
        if self.world.loop.time() < self.silent_until:
            raise SchedulerError("the scheduler does not answer")

    def _of(self, handle: str) -> Submitted | None:
        return next((run for run in self.runs if run.handle == handle), None)


async def _end(run: Submitted, grace: float) -> None:
    if run.process is None:
        run.state, run.detail = SlotState.ENDED, "cancelled"
        return
    if grace:
        run.process.tell_to_end()
        await asyncio.sleep(grace)
    run.process.die(silent=False)


class SimulatedChildren(SimulatedScheduler):
    """Worker runs as children of a launcher: they are told to end when it has died."""

    name = "local"
    loopback = True
    poll_seconds = 0.5
    keeps_logs = False

    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, index)
        self.finds = True

    async def _live(self, run: Submitted) -> None:
        run.state, run.detail = SlotState.RUNNING, f"pid {run.handle}"
        await asyncio.sleep(min(0.3, self.launch.boot[run.slot]))
        run.process = self.world.start_process(run.join)

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        found = self._of(handle)
        if found is None:
            return Description(SlotState.ENDED, "it ended with its launcher")
        return found.described()

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        found = self._of(handle)
        if found is None or found.process is None or found.is_over:
            return
        found.process.tell_to_end(signal.SIGTERM if grace_seconds else signal.SIGQUIT)
        until = self.world.loop.time() + grace_seconds + _KILL_SECONDS
        while not found.is_over and self.world.loop.time() < until:
            await asyncio.sleep(_LOOK_SECONDS)
        found.process.die(silent=False)

    async def _answer(self) -> None:
        """A process table is always at hand."""

    def parent_died(self) -> None:
        for run in self.runs:
            if run.process is not None:
                run.process.tell_to_end()
