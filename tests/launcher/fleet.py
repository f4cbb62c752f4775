"""A scheduler in memory that behaves: what was submitted is listed, runs, and can be ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from launcher.plan.plan import Submission, WorkerRun
from launcher.schedulers.contract import Trouble, unheard
from launcher.schedulers.description import Description
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState


@dataclass
class Made:
    """A run that the fleet has."""

    key: str
    state: SlotState = SlotState.RUNNING
    detail: str = ""


@dataclass
class Fleet:
    """The scheduler, with its troubles.

    Attributes:
        made: Its runs by name.
        told: What it was told to end: id and grace.
        asked: How often it was asked or told anything.
        stays: It does not end anything, and says so.
        trouble: What its first try to submit comes to.
    """

    name: str = "fleet"
    loopback: bool = False
    poll_seconds: float = 0.01
    finds: bool = True
    keeps_logs: bool = True
    made: dict[str, Made] = field(default_factory=dict)
    told: list[tuple[str, float]] = field(default_factory=list)
    asked: int = 0
    stays: bool = False
    trouble: str = ""
    lines: list[str] = field(default_factory=list)

    def prepare(self, run: Submission, join: str) -> str:
        return f"{run.name} {join}"

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        if self.trouble:
            await trouble(self.trouble)
        made = self.made[run.name] = Made(str(100 + len(self.made)))
        return made.key

    async def find(self, run: WorkerRun) -> str | None:
        self.asked += 1
        found = self.made.get(run.name)
        return found.key if found and found.state is SlotState.RUNNING else None

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        self.asked += 1
        found = self.made.get(run.name, Made("", SlotState.UNKNOWN, "no such run"))
        return Description(found.state, found.detail)

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        self.asked += 1
        self.told.append((handle, grace_seconds))
        if self.stays:
            raise SchedulerError("you may not end this run")
        self.made[run.name].state = SlotState.ENDED

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        return f"fleet end {handle}" if handle else ""

    async def logs(
        self, run: WorkerRun, handle: str, *, lines: int, follow: bool
    ) -> AsyncIterator[str]:
        for line in self.lines[-lines:]:
            yield line
