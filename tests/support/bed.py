"""A place to try a scheduler in: its commands are played here, and the runs they made are kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.plan import Here, Site, Spec, Submission, make_plan
from launcher.schedulers import command, vessl_api
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.command import CommandRunner, Said, clean
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.shipped import PROFILES, specs_folder
from launcher.settings import LaunchSettings
from rendezvous import compat
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.wire.errors import SchedulerError
from tests.schedulers.behaving import FAULTS, FOLDER, load, note_call, play

FAKES = Path(__file__).parents[1] / "schedulers" / "fakes"
SHIPPED = [path.stem for path in sorted(PROFILES.glob("*.toml"))]
OWN = {"batch": FAKES.parent / "data" / "batch.toml"}
"""Profiles that only the tests have."""

KEYS = RunKeys(b"s" * 32, "llama", "k7f2a9c1xy")
NOWHERE = RegistryPlace(("127.0.0.1",), 9)
COMMAND = ["train.py", "--name", 'it\'s a "test"', "$HOME", "", "--", "two\nlines"]


def join_text(slot: int = 1, generation: int = 1) -> str:
    """What a worker run gets: a registry at a port where nobody listens."""
    keys = (KEYS.join_token(slot, generation), KEYS.row_key, KEYS.probe_key)
    return JoinString(NOWHERE, KEYS.run, KEYS.launch_id, slot, generation, *keys).text()


def time_out_once(patch: pytest.MonkeyPatch, look: Callable[[], object]) -> None:
    """Let the first wait with a time limit be over once there is something to see, and not before.

    How long a program takes to come to that place is up to the machine.
    """
    real, first = compat.timeout, [look]

    async def watch(limit: Any, look: Callable[[], object]) -> None:
        while not look():
            await asyncio.sleep(0.02)
        limit.reschedule(asyncio.get_running_loop().time())

    @contextlib.asynccontextmanager
    async def timeout(seconds: float | None) -> AsyncIterator[Any]:
        async with real(None if first else seconds) as limit:
            watching = asyncio.create_task(watch(limit, first.pop())) if first else None
            try:
                yield limit
            finally:
                if watching is not None:
                    watching.cancel()

    for module in (command, vessl_api):
        patch.setattr(module, "timeout", timeout)


def settings_of(fake: str) -> dict[str, str]:
    """The variables that a profile needs, as its fake says."""
    path = FAKES / f"{fake}.py"
    return getattr(load(str(path)), "SET", {}) if path.exists() else {}


def worker_run(
    name: str,
    slot: int = 1,
    generation: int = 1,
    *,
    template: str | None = None,
    logs: str = "/dev/null/logs",
) -> Submission:
    """A worker run of a scheduler, from its shipped spec when no template is given."""
    path = specs_folder() / scheduler_entry(str(OWN.get(name, name))).spec
    variables = {"IMAGE": "registry/image:tag", **settings_of(name)}
    text = path.read_text(encoding="utf-8") if template is None else template
    plan = make_plan(
        LaunchSettings(nnodes="4", hosts="off", set=[f"{k}={v}" for k, v in variables.items()]),
        COMMAND,
        {},
        Site(Spec(str(path), text), here=Here(Spec("", ""), logs), loopback=name == "local"),
        run=KEYS.run,
        launch_id=KEYS.launch_id,
    )
    return plan.submission(slot, generation)


@dataclass
class Bed:
    """One scheduler, with what its fake commands keep.

    Attributes:
        name: The scheduler's, or that of a profile of the tests.
        folder: A folder of the test's own.
        faults: What goes wrong; see `tests.schedulers.behaving`.
        says: Exit code and output of a command, or of what its first word asks for, whatever the
            fake would say.
    """

    name: str
    folder: Path
    faults: set[str] = field(default_factory=set)
    says: dict[str, tuple[int, str]] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept = self.folder / "kept"
        self.bin = self.folder / "bin"
        self.submissions = self.folder / "state" / "submissions"
        for made in (self.kept, self.bin):
            made.mkdir(exist_ok=True)
        self.fake = FAKES / f"{self.name}.py"
        module = load(str(self.fake)) if self.fake.exists() else None
        self.commands: list[str] = module.COMMANDS if module else []
        if module is not None and hasattr(module, "serving"):
            self._more = self._stack.enter_context(module.serving(self.kept))

    def close(self) -> None:
        """End what a fake serves."""
        self._stack.close()

    def environ(self) -> dict[str, str]:
        """The user's environment, with secrets that no command may see."""
        return {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            FOLDER: str(self.kept),
            FAULTS: ",".join(sorted(self.faults)),
            "RDZV_TOKEN": "a-secret-of-the-launcher",
            "RDZV_NNODES": "9",
            **self._more,
        }

    def scheduler(self) -> Scheduler:
        """A scheduler as a launcher makes it; each call is another launcher's."""
        entry = scheduler_entry(str(OWN.get(self.name, self.name)))
        return self.played(entry.make(SchedulerContext(self.submissions, self.environ())))

    def played(self, made: Scheduler) -> Scheduler:
        """The scheduler, whose commands are played, and which waits for nothing."""
        if isinstance(made, ProfileScheduler):
            made.looks, made.try_again_seconds = (0.0, 0.0, 0.0), 0.0
            made._runner = self.runner(made._runner._environ, cwd=made._runner._cwd)
        return made

    def runner(self, environ: Mapping[str, str], *, cwd: Path | None = None) -> CommandRunner:
        """What plays the commands."""
        made = _Played(environ, cwd=cwd)
        made.bed = self
        return made

    def run(self, slot: int = 1, generation: int = 1, *, template: str | None = None) -> Submission:
        """A worker run, from the shipped spec when no template is given."""
        logs = str(self.folder / "logs")
        return worker_run(self.name, slot, generation, template=template, logs=logs)

    def calls(self) -> list[dict[str, Any]]:
        """Each call of a fake command: `command`, `argv`, `stdin`, `environ`."""
        path = self.kept / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def files(self) -> list[Path]:
        """What the scheduler has written into the launch's folder."""
        return list(self.submissions.glob("*"))

    def made(self) -> list[dict[str, Any]]:
        """The runs that the fake has made."""
        return [json.loads(path.read_text()) for path in sorted(self.kept.glob("run-*.json"))]

    def turn(self, state: str, **more: Any) -> None:
        """Let all runs of the fake be in this state: queued, running, ended or failed."""
        for run in self.made():
            path = self.kept / f"run-{run['id']}.json"
            path.write_text(json.dumps(run | {"state": state} | more))


class _Played(CommandRunner):
    """Plays the commands of a bed's fake; other programs are started."""

    bed: Bed

    def _said(self, argv: Sequence[str], stdin: str | None) -> Said | None:
        if argv[0] not in self.bed.commands:
            return None
        for word in argv[:2]:
            if word in self.bed.says:
                note_call(list(argv), stdin or "", self._environ)
                code, text = self.bed.says[word]
                return Said(code, "" if code else text, text if code else "")
        environ = self._environ | {FAULTS: ",".join(sorted(self.bed.faults))}
        answer = play(str(self.bed.fake), list(argv), stdin or "", environ)
        out, err = (clean(text.encode()) for text in answer[1:])
        return Said(answer[0], out, err)

    async def run(
        self, argv: Sequence[str], *, timeout_seconds: float, stdin: str | None = None
    ) -> Said:
        """See the base class; a command that hangs is at its time limit at once."""
        said = self._said(argv, stdin)
        return said or await super().run(argv, timeout_seconds=timeout_seconds, stdin=stdin)

    async def lines(self, argv: Sequence[str]) -> AsyncGenerator[str, None]:
        """See the base class."""
        if (said := self._said(argv, None)) is None:
            async for line in super().lines(argv):
                yield line
        elif said.code == 0:
            for line in f"{said.err}{said.out}".splitlines():
                yield line
        else:
            raise SchedulerError(f"'{argv[0]}' {said.ending()}")
