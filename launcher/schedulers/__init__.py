"""What starts worker runs: one contract, found by name.

A scheduler says what it would submit (`prepare`: pure, that is the dry run), submits, and tells
what became of it. Success is what was observed, an id read back, never an exit code alone.

Most schedulers are *profiles*: a TOML file with the command lines of somebody's tool, beside this
module in `profiles/` or the user's own; see `launcher.schedulers.profile`.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import click

from launcher.plan.plan import LONGEST_NAME, Submission, WorkerRun
from launcher.schedulers.description import OVER as OVER
from launcher.schedulers.description import Description as Description
from rendezvous.frozen import frozen
from rendezvous.wire.errors import SchedulerError, UsageError


class NothingSubmitted(SchedulerError):
    """The scheduler was not reached, or it refused: for certain there is no worker run."""


SERVICE_FAILS = "it is the scheduler's service that fails: launch again when it answers"

Trouble = Callable[[str], Awaitable[None]]
"""Told what a try to submit has come to, in the scheduler's words, while it is tried again."""


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
    finds: bool
    """Whether `find` can tell: where it cannot, its None means that nothing is known."""
    keeps_logs: bool
    """Whether `logs` gives any."""

    def prepare(self, run: Submission, join: str) -> str:
        """What would be submitted, spec and command. Pure; with a hidden join string, the dry run.

        Raises TemplateError or UsageError.
        """

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

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        """The command with which a person ends it; empty where there is none."""

    def logs(self, run: WorkerRun, handle: str, *, lines: int, follow: bool) -> AsyncIterator[str]:
        """The newest lines that the scheduler keeps of its output; nothing where it keeps none."""


def _local(context: SchedulerContext) -> Scheduler:
    from launcher.schedulers.local import LocalScheduler

    return LocalScheduler(context)


def _manual(context: SchedulerContext) -> Scheduler:
    from launcher.schedulers.manual import ManualScheduler

    return ManualScheduler(context)


def _external(context: SchedulerContext) -> Scheduler:
    from launcher.schedulers.external import ExternalScheduler

    return ExternalScheduler(context)


def _vessl_http(context: SchedulerContext) -> Scheduler:
    from launcher.schedulers.vessl_http import VesslHttpScheduler

    return VesslHttpScheduler(context)


def _vessl(context: SchedulerContext) -> Scheduler:
    from launcher.schedulers.profile_file import read_profile
    from launcher.schedulers.vessl import VesslScheduler

    return VesslScheduler("vessl", read_profile(PROFILES / "vessl.toml"), context)


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
    """

    summary: str
    spec: str
    make: Callable[[SchedulerContext], Scheduler]
    secret: str
    commands: tuple[str, ...] = ()
    name_length: int = LONGEST_NAME


SCHEDULERS: dict[str, Entry] = {
    "local": Entry(
        "processes on this machine, each with a loopback address",
        "local/worker.yaml",
        _local,
        "an inherited anonymous file",
    ),
    "manual": Entry(
        "writes a script for each worker run, which you start",
        "manual/worker.sh",
        _manual,
        "in the script, readable by you alone",
    ),
    "external": Entry(
        "nothing: workers come by themselves, and take a join string out of a folder",
        "external/worker.sh",
        _external,
        "in a file of a folder that the workers share",
    ),
    "vessl-http": Entry(
        "one VESSL run for each worker, by VESSL's HTTP API: needs no command",
        "worker.yaml.tpl",
        _vessl_http,
        "in the rendered spec",
    ),
}
"""Those that are code; `known_schedulers` adds the shipped profiles."""

CLASSES: dict[str, Callable[[SchedulerContext], Scheduler]] = {"vessl": _vessl}
"""Profiles with a class of their own."""

PROFILES = Path(__file__).parent / "profiles"
"""The shipped profiles, one file for each scheduler."""


@functools.cache
def known_schedulers() -> Mapping[str, Entry]:
    """All that `--scheduler` takes, by name."""
    from launcher.schedulers.profile import profile_entry

    entries = {path.stem: profile_entry(path) for path in sorted(PROFILES.glob("*.toml"))}
    for name, make in CLASSES.items():
        entries[name] = replace(entries[name], make=make)
    return SCHEDULERS | entries


def scheduler_entry(name: str) -> Entry:
    """The scheduler of that name, or of the profile whose path is given (there is a `/` in it).

    Raises:
        UsageError: There is none; it lists what is known. Or the profile cannot be read.
    """
    if "/" in name:
        from launcher.schedulers.profile import profile_entry

        path = Path(name)
        return profile_entry(path, path.parent)
    entry = known_schedulers().get(name)
    if entry is None:
        raise UsageError(
            f"there is no scheduler '{name}'",
            hint=f"known are: {', '.join(known_schedulers())}; "
            "another one is a file: --scheduler-profile FILE",
        )
    return entry


def make_scheduler(starter: str, context: SchedulerContext) -> Scheduler:
    """The scheduler of that name, for one launch. Raises UsageError."""
    return scheduler_entry(starter).make(context)


def show_schedulers(environ: Mapping[str, str]) -> None:
    """Print all schedulers, with how the join string travels and which commands are missing."""
    path = environ.get("PATH", os.defpath)
    for name, entry in known_schedulers().items():
        click.echo(f"{name:12} {entry.summary}")
        words = f"join string: {entry.secret}"
        if entry.commands:
            missing = [
                command for command in entry.commands if not shutil.which(command, path=path)
            ]
            gone = f" (not here: {', '.join(missing)})" if missing else ""
            words = f"{words}; commands: {', '.join(entry.commands)}{gone}"
        click.echo(f"{'':12} {words}")


def specs_folder() -> Path:
    """The shipped specs: inside the package in a wheel, beside it in a checkout."""
    inside = Path(__file__).parent.parent / "specs"
    return inside if inside.is_dir() else Path(__file__).parent.parent.parent / "specs"


async def no_logs() -> AsyncIterator[str]:
    """The logs of a scheduler that keeps none."""
    return
    yield ""
