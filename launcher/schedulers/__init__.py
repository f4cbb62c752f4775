"""What starts worker runs: one contract, found by name.

A scheduler says what it would submit (`prepare`: pure, that is the dry run), submits, and tells
what became of it. Success is what was observed, an id read back, never an exit code alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from launcher.plan import WorkerRun
from rendezvous.errors import UsageError
from rendezvous.schema import SlotState


@dataclass(frozen=True, slots=True)
class Description:
    """What a scheduler says of a worker run, in its own words."""

    state: SlotState
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """What a scheduler may use of the launch.

    Attributes:
        folder: A folder of the launch's own, for files that must outlive a call.
        environ: The user's environment.
        logs: Folder of the log files of the nodes on this machine.
        quiet_stdout: Standard output carries something else: programs write to standard error.
    """

    folder: Path
    environ: Mapping[str, str]
    logs: Path | None = None
    quiet_stdout: bool = False


class Scheduler(Protocol):
    """The contract of everything that starts worker runs."""

    name: str
    loopback: bool
    """All its nodes live on this machine."""
    poll_seconds: float
    """How often `describe` may be asked."""

    def prepare(self, run: WorkerRun, join: str) -> str:
        """The rendered spec. Pure; with a hidden join string it is the dry run.

        Raises TemplateError or UsageError.
        """

    async def submit(self, run: WorkerRun, join: str) -> str:
        """Start the worker run; returns the scheduler's id of it. Raises SchedulerError."""

    async def find(self, name: str) -> str | None:
        """The id of the run with this unique name: after a lost answer or a restart."""

    async def describe(self, handle: str) -> Description:
        """What became of it; UNKNOWN when the scheduler cannot say."""

    async def cancel(self, handle: str, *, grace_seconds: float) -> None:
        """End it; no error when it has ended already."""


def _local(context: SchedulerContext) -> Scheduler:
    from launcher.schedulers.local import LocalScheduler

    return LocalScheduler(context)


def _manual(context: SchedulerContext) -> Scheduler:
    from launcher.schedulers.manual import ManualScheduler

    return ManualScheduler(context)


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table of schedulers."""

    summary: str
    spec: str
    make: Callable[[SchedulerContext], Scheduler]


SCHEDULERS: dict[str, Entry] = {
    "local": Entry(
        "processes on this machine, each with a loopback address", "local/worker.yaml", _local
    ),
    "manual": Entry(
        "writes a script for each worker run, which you start", "manual/worker.sh", _manual
    ),
}


def scheduler_entry(name: str) -> Entry:
    """The scheduler of that name; raises UsageError listing what is known."""
    entry = SCHEDULERS.get(name)
    if entry is None:
        raise UsageError(
            f"there is no scheduler '{name}'", hint=f"known are: {', '.join(SCHEDULERS)}"
        )
    return entry


def specs_folder() -> Path:
    """The shipped specs: inside the package in a wheel, beside it in a checkout."""
    inside = Path(__file__).parent.parent / "specs"
    return inside if inside.is_dir() else Path(__file__).parent.parent.parent / "specs"
