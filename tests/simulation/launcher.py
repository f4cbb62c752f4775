"""A launcher and its scheduler, as they behave on the wire: see `launcher.run`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rendezvous.errors import (
    Fenced,
    RdzvError,
    RegistryError,
    RegistryLost,
    RunExists,
    RunOver,
    SchedulerError,
    TooManyRequests,
)
from rendezvous.retry import until_answered
from rendezvous.schema import Limits, Phase, Result, RunSpec, RunStatus, SlotNews, SlotState
from rendezvous.security import RunKeys
from tests.simulation import invariants
from tests.simulation.agents import Process
from tests.simulation.history import Facts
from tests.simulation.loop import Machine

if TYPE_CHECKING:
    from tests.simulation.world import World

_REGISTRY_UP_SECONDS = 20.0
_ORPHAN_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_LEAVE_SECONDS = 8.0
_DESCRIBE_SECONDS = 1.0
_SAY_AGAIN_SECONDS = 30.0
_OVER = (SlotState.FAILED, SlotState.ENDED)


@dataclass
class WorkerRun:
    """One worker run, as its scheduler knows it."""

    name: str
    slot: int
    generation: int
    state: SlotState = SlotState.QUEUED
    detail: str = "waiting for a free node"
    process: Process | None = None

    def described(self) -> tuple[SlotState, str]:
        """What the scheduler says of it."""
        if self.state is SlotState.RUNNING and self.process and self.process.ended is not None:
            self.state, self.detail = SlotState.ENDED, f"exit code {self.process.ended}"
        return self.state, self.detail


class Scheduler:
    """Starts worker runs; has its own troubles."""

    def __init__(self, world: World, facts: Facts) -> None:
        self._world = world
        self._facts = facts
        self.runs: list[WorkerRun] = []
        self.fail_next = 0
        self.lose_answer = 0
        self.lie_until = 0.0
        self.lie = SlotState.UNKNOWN
        self.lie_slot = -1

    async def submit(self, slot: int, generation: int, name: str) -> WorkerRun:
        """Start a worker run; raises SchedulerError, also for one that was started all the same."""
        await asyncio.sleep(0.05)
        self._facts.submissions[slot] += 1
        if self.fail_next:
            self.fail_next -= 1
            self._world.counts["submission failed"] += 1
            raise SchedulerError("the scheduler does not take it")
        run = WorkerRun(name, slot, generation)
        self.runs.append(run)
        self._world.spawn(self._live(run))
        if self.lose_answer:
            self.lose_answer -= 1
            self._world.counts["submission's answer lost"] += 1
            raise SchedulerError("no answer from the scheduler")
        return run

    async def _live(self, run: WorkerRun) -> None:
        launch = self._facts.launch
        queue = launch.queue[run.slot]
        await asyncio.sleep(queue)
        if run.state in _OVER:
            return
        run.state, run.detail = SlotState.RUNNING, ""
        await asyncio.sleep(launch.boot[run.slot])
        if run.state is SlotState.RUNNING:
            run.process = self._world.start_process(self._facts, run.slot, run.generation)

    def describe(self, run: WorkerRun) -> tuple[SlotState, str]:
        """The state of a worker run, in the scheduler's words."""
        if self._world.loop.time() < self.lie_until and run.slot == self.lie_slot:
            return self.lie, "so the scheduler says"
        return run.described()

    def find(self, name: str) -> WorkerRun | None:
        """A worker run by its name."""
        return next((run for run in self.runs if run.name == name), None)

    async def cancel(self, run: WorkerRun) -> None:
        """TERM, grace, KILL."""
        if run.described()[0] in _OVER:
            return
        if run.process is not None:
            run.process.tell_to_end()
            await asyncio.sleep(_GRACE_SECONDS)
            run.process.die(silent=False)
        run.state, run.detail = SlotState.ENDED, "cancelled"


class Launcher:
    """One launcher of one launch; another one may come after it with the same keys."""

    def __init__(self, world: World, facts: Facts, keys: RunKeys, scheduler: Scheduler) -> None:
        self._world, self._facts, self._keys, self._scheduler = world, facts, keys, scheduler
        self.machine = Machine(world.loop, f"launcher of {facts.launch.run}")
        path = world.network.path(facts.index, -1)
        self._door = world.network.door(path)
        self._creator = world.client(facts.launch, path, self._door, world.operator, 10.0)
        self._client = world.client(facts.launch, path, self._door, keys.admin, 5.0)
        self._run = facts.launch.run
        self._submitted: dict[int, WorkerRun] = {}
        self._asked: dict[int, int] = {}
        self.ended = False
        self.outcome: Result | str = ""

    def begin(self, *, resumes: bool = False) -> None:
        """Let it live."""
        self.machine.run(self._go(resumes=resumes))

    def belongs_to(self, index: int) -> bool:
        """Whether it is one of this launch."""
        return self._facts.index == index

    def die(self) -> None:
        """SIGKILL."""
        self.ended = True
        self.machine.kill()
        self._door.process_ended()

    async def _go(self, *, resumes: bool) -> None:
        try:
            if resumes and (await self._status(-1)).phase is Phase.RUNNING:
                await self._cancel_run("its launcher had ended")
            await self._create()
            self.outcome = await self._follow()
            self._facts.told.append(self.outcome)
        except RunExists as exc:
            self.outcome = exc.code
        except RdzvError as exc:
            self.outcome = exc.code
            with contextlib.suppress(RdzvError):
                await self._cancel_run(f"its launcher failed: {exc.message}"[:300])
        for run in list(self._submitted.values()):
            await self._scheduler.cancel(run)
        await self._creator.close()
        await self._client.close()
        self.ended = True
        self.machine.kill()

    # --- what it asks -------------------------------------------------------------------------

    async def _create(self) -> None:
        spec = self._spec()
        try:
            await until_answered(
                lambda: self._creator.create(self._run, spec),
                seconds=_REGISTRY_UP_SECONDS,
                pause=lambda: 0.05,
            )
        except (RegistryError, TooManyRequests) as exc:
            raise RegistryLost(f"no registry: {exc.message}") from exc

    def _spec(self) -> RunSpec:
        launch = self._facts.launch
        return RunSpec(
            launch_id=self._keys.launch_id,
            min_nodes=launch.least,
            max_nodes=launch.nodes,
            spares=launch.spares,
            limits=Limits(
                join_timeout_seconds=launch.join_timeout,
                last_call_seconds=3.0,
                verify_timeout_seconds=12.0,
                arm_timeout_seconds=12.0,
                lease_seconds=launch.lease,
                submit_retries=launch.retries,
            ),
            master_port=launch.port,
            verify=launch.verify,
            led=launch.led,
            read_sha256=self._keys.read.sha256(),
            admin_sha256=self._keys.admin.sha256(),
        )

    async def _cancel_run(self, why: str) -> None:
        await self._client.cancel(self._run, why)

    async def _status(self, after: int) -> RunStatus:
        try:
            status = await until_answered(
                lambda: self._client.status(self._run, after=after, wait=2.0),
                seconds=_ORPHAN_SECONDS,
                pause=self._client.pause,
            )
        except (RegistryError, TooManyRequests) as exc:
            raise RegistryLost(f"the registry does not answer: {exc.message}") from exc
        self._world.history.judge(invariants.OF_STATUSES, status)
        return status

    # --- following ----------------------------------------------------------------------------

    async def _follow(self) -> Result:
        version, finished_at = -1, None
        while True:
            status = await self._status(version)
            version = status.version
            self._submit_wanted(status)
            if status.result is not None:
                now = self._world.loop.time()
                finished_at = finished_at or now
                if status.everyone_left or now - finished_at > _GRACE_SECONDS + _LEAVE_SECONDS:
                    return status.result

    def _submit_wanted(self, status: RunStatus) -> None:
        if status.phase is Phase.FINISHED:
            return
        for slot in status.slots:
            wanted = slot.wanted_generation
            if self._asked.get(slot.slot, 0) >= wanted:
                continue
            work: Coroutine[Any, Any, None]
            if slot.generation >= wanted and slot.slot not in self._asked:
                work = self._adopt(slot.slot, slot.generation, slot.name)
            else:
                work = self._submit(slot.slot, wanted)
            self._asked[slot.slot] = wanted
            self.machine.run(self._quietly(work))

    @staticmethod
    async def _quietly(work: Coroutine[Any, Any, None]) -> None:
        """What the registry refuses ends this part of the launch."""
        with contextlib.suppress(RdzvError):
            await work

    async def _adopt(self, slot: int, generation: int, name: str) -> None:
        run = self._scheduler.find(name) if name else None
        if run is None:
            self._asked[slot] = generation
            self.submit_anew(slot)
            return
        self._submitted[slot] = run
        await self._describe_until_over(slot, run)

    def submit_anew(self, slot: int) -> None:
        """Submit another worker run of a slot, whatever became of the former one."""
        if slot in self._asked:
            self._facts.adopted.add(slot)
            self._asked[slot] += 1
            self.machine.run(self._quietly(self._submit(slot, self._asked[slot])))

    async def _submit(self, slot: int, generation: int) -> None:
        token = self._keys.join_token(slot, generation)
        name = f"{self._run}-{self._keys.launch_id}-{slot}-{generation}"
        intent = SlotNews(
            generation=generation,
            state=SlotState.SUBMITTING,
            name=name,
            token_sha256=token.sha256(),
        )
        try:
            await self._tell(slot, intent)
            run = await self._scheduler.submit(slot, generation, name)
        except SchedulerError as exc:
            failed = SlotNews(generation=generation, state=SlotState.FAILED, detail=exc.message)
            await self._tell(slot, failed)
            return
        except (RunOver, Fenced):
            return
        self._submitted[slot] = run
        await self._describe_until_over(slot, run)

    async def _describe_until_over(self, slot: int, run: WorkerRun) -> None:
        said: tuple[SlotState, str] | None = None
        said_at = 0.0
        while said is None or said[0] not in _OVER:
            found = self._scheduler.describe(run)
            now = self._world.loop.time()
            again = found[0] is SlotState.QUEUED and now - said_at > _SAY_AGAIN_SECONDS
            if found != said or again:
                said, said_at = found, now
                news = SlotNews(
                    generation=run.generation, state=found[0], handle=run.name, detail=found[1]
                )
                await self._tell(slot, news)
            await asyncio.sleep(_DESCRIBE_SECONDS)

    async def _tell(self, slot: int, news: SlotNews) -> None:
        await until_answered(
            lambda: self._client.slot_news(self._run, slot, news), pause=self._client.pause
        )
