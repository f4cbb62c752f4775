"""What starts worker runs: one contract.

A scheduler says what it would submit (`prepare`: pure, that is the dry run), submits, and tells
what became of it. Success is what was observed, an id read back, never an exit code alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Protocol

from launcher.plan.plan import LONGEST_NAME, Submission, WorkerRun
from launcher.processes import OwnProcesses
from launcher.schedulers.description import Description
from rendezvous.frozen import frozen
from rendezvous.wire.errors import SchedulerError


class NothingSubmitted(SchedulerError):
    """The scheduler was not reached, or it refused: for certain there is no worker run.

    Attributes:
        final: Another submission of the same slot would be refused likewise.
        no_host: It has no such host, with all those left out that this one is to avoid.
    """

    def __init__(
        self, message: str, *, hint: str = "", final: bool = False, no_host: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.final = final
        self.no_host = no_host


SERVICE_FAILS = "the scheduler's service is failing: launch again when it answers"

Trouble = Callable[[str], Awaitable[None]]
"""Told what a try to submit has come to, in the scheduler's words, while it is tried again; nothing
where others have said it."""


async def unheard(words: str) -> None:
    """The trouble that nobody asked to hear of."""


@frozen
class SchedulerContext:
    """What a scheduler may use of the launch.

    Attributes:
        folder: A folder of the launch's own, for files that must outlive a call.
        environ: The user's environment.
        logs: Folder of the log files of the nodes on this machine.
        quiet_stdout: Standard output carries something else: programs write to standard error.
        processes: Starts the nodes of this machine.
    """

    folder: Path
    environ: Mapping[str, str] = field(repr=False)
    logs: Path | None = None
    quiet_stdout: bool = False
    processes: OwnProcesses = field(default_factory=OwnProcesses)


class Scheduler(Protocol):
    """The contract of everything that starts worker runs, with what is so for most of it."""

    name: str
    loopback: bool = False
    """All its nodes live on this machine."""
    poll_seconds: float
    """How often `describe` may be asked."""
    finds: bool = True
    """Whether `find` can tell: where it cannot, its None means that nothing is known."""
    keeps_logs: bool = False
    """Whether `logs` gives any."""
    by_hand: bool = False
    """Whether a person starts what it has submitted, with `start_words`."""

    def prepare(self, run: Submission, join: str) -> str:
        """What would be submitted, spec and command. Pure; with a hidden join string, the dry run.

        Raises TemplateError or UsageError.
        """

    def submit_words(self, run: Submission) -> str:
        """The command or request that submits it; empty where rdzv itself starts the node, or a
        person does. Pure."""
        return ""

    async def make_ready(self, run: Submission) -> None:
        """Do what needs no join string, so that `submit` is quick; nothing is submitted by it."""
        return

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        """Start the worker run; returns the scheduler's id of it.

        What goes wrong and may still come right is told to `trouble` at once.

        Raises SchedulerError with the scheduler's own last words. Even then the run may come to
        exist later, where the scheduler's answers lag: `find` tells. With NothingSubmitted it
        cannot.
        """

    async def find(self, run: WorkerRun) -> str | None:
        """The id of the run with this unique name: after a lost answer or a restart.

        Raises SchedulerError when the scheduler does not answer: whether there is one is not known.
        """

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """What became of it; UNKNOWN when the scheduler cannot say.

        Raises SchedulerError when it does not answer.
        """

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        """Tell it to end; no error when it has ended already. `describe` tells when it is over.

        Raises SchedulerError when it could not be told.
        """

    async def close(self) -> None:
        """End what was made ready and not submitted; the launch is over."""
        return

    def start_words(self, handle: str) -> str:
        """The command with which a person starts it; empty where it starts by itself."""
        return ""

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        """The command with which a person ends it; empty where there is none."""
        return ""

    def logs(self, run: WorkerRun, handle: str, *, lines: int, follow: bool) -> AsyncIterator[str]:
        """The newest lines that the scheduler keeps of its output; nothing where it keeps none."""
        return _no_logs()


@frozen
class Entry:
    """One row of the table of schedulers.

    Attributes:
        summary: One line, for a person.
        spec: Template of a worker run, under the shipped specs or a path of its own.
        secret: How the join string travels to the worker.
        commands: The programs that it calls.
        make: Makes the scheduler.
        name_length: The most characters that it takes as a worker run's name.
        variables: Those of `--set` that it reads itself, beside those of the spec.
        needs: Those of them that have no default.
        tells_host: It may say where a worker run is.
    """

    summary: str
    spec: str
    make: Callable[[SchedulerContext], Scheduler]
    secret: str
    commands: tuple[str, ...] = ()
    name_length: int = LONGEST_NAME
    variables: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    tells_host: bool = True


async def _no_logs() -> AsyncIterator[str]:
    return
    yield ""
