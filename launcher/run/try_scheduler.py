"""`rdzv schedulers check`: one worker run, submitted, seen, cancelled and gone, step by step.

The worker run is a real one that nobody waits for: it is given a registry at a port of its own
machine where none listens, so that it ends by itself within a minute, whatever becomes of the
check. What is proven is the scheduler's commands, the spec, and how the answers are read. That a
worker reaches node 0 is shown by a launch alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

from launcher.plan.plan import HIDDEN, Plan, Site, Submission, make_plan
from launcher.plan.set_variables import check_set
from launcher.prepare.preparation import read_spec
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import Entry, NothingSubmitted, Scheduler, SchedulerContext
from launcher.schedulers.description import OVER, Description
from launcher.schedulers.shipped import specs_folder
from launcher.settings import LaunchSettings
from rendezvous.talk.credentials import RunKeys, new_secret
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.wire.errors import RdzvError, SchedulerError, UsageError
from rendezvous.wire.run import SlotState

_RUN = "check"
_NOWHERE = RegistryPlace(("127.0.0.1",), 9)
_LIVES_SECONDS = 60.0
_SEEN = (SlotState.SUBMITTED, SlotState.QUEUED, SlotState.RUNNING)
_LINES = 20
_GRACE_SECONDS = 5.0

Say = Callable[[str], None]


async def check_scheduler(
    name: str,
    environ: Mapping[str, str],
    *,
    root: Path,
    worker_spec: Path | None,
    variables: Sequence[str],
    seconds: float,
    say: Say,
) -> int:
    """Try a scheduler live; returns 0.

    Args:
        name: A scheduler's name, or the path of a profile.
        environ: The user's environment.
        root: Folder of all runs' state; the check's own folder is made there, and removed.
        worker_spec: Template of the worker run; the scheduler's own when not given.
        variables: NAME=VALUE, as for `--set`.
        seconds: How long to wait for the worker run to be seen, and to be gone.
        say: Tells what was seen, a line for each step.

    Raises:
        UsageError: There is no such scheduler, or its spec and commands cannot be filled.
        SchedulerError: A step failed; it names the step and has the scheduler's words.
    """
    entry = scheduler_entry(name)
    spec = worker_spec or specs_folder() / entry.spec
    with _folder(root) as folder:
        scheduler = entry.make(SchedulerContext(folder, environ, folder))
        keys = RunKeys(new_secret(), _RUN, secrets.token_hex(5))
        plan = _plan(keys.launch_id, spec, variables, entry, loopback=scheduler.loopback)
        check_set(plan, entry.variables, name)
        join = JoinString.of(keys, _NOWHERE, 1).text()
        await _Check(scheduler, plan.submission(1, 1), join, seconds, say).go()
    return 0


@contextlib.contextmanager
def _folder(root: Path) -> Iterator[Path]:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".check-", dir=root))
    except OSError as exc:
        raise UsageError(
            f"the folder {root} cannot be used: {exc.strerror}", hint="give another --state-dir"
        ) from exc
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _plan(
    launch_id: str, spec: Path, variables: Sequence[str], entry: Entry, *, loopback: bool
) -> Plan:
    """A worker run like those of a launch, whose node gives up soon and has nothing to start."""
    settings = LaunchSettings(
        nnodes="2", framework="command", set=list(variables), join_timeout=_LIVES_SECONDS
    )
    length = entry.name_length
    site = Site(read_spec(spec), loopback=loopback, cwd=str(Path.cwd()), name_length=length)
    return make_plan(settings, ["true"], {}, site, run=_RUN, launch_id=launch_id)


class _Check:
    """The steps, in their order."""

    def __init__(
        self, scheduler: Scheduler, run: Submission, join: str, seconds: float, say: Say
    ) -> None:
        self._scheduler = scheduler
        self._run = run
        self._join = join
        self._seconds = seconds
        self._say = say
        self._handle = ""
        self._seen = SlotState.NONE
        self._nothing_made = False

    async def go(self) -> None:
        """All of them; whatever happens, the worker run is told to end."""
        text = self._scheduler.prepare(self._run, HIDDEN)
        self._told("prepare", f"{self._run.name}, {len(text.splitlines())} lines")
        try:
            await self._step("submit", self._submit)
            if self._scheduler.finds:
                await self._step("find", self._find)
            await self._step("see", self._see)
            if self._scheduler.keeps_logs and self._seen is SlotState.RUNNING:
                await self._step("logs", self._logs)
            await self._step("cancel", self._cancel)
            await self._step("gone", self._gone)
        except BaseException:
            await self._clean_up()
            raise
        self._say(f"the scheduler '{self._scheduler.name}' works")

    def _told(self, step: str, words: str) -> None:
        self._say(f"{step:8} {words}")

    async def _step(self, name: str, work: Callable[[], Awaitable[str]]) -> None:
        """Do one step, and tell what it has seen. Raises SchedulerError."""
        started = time.monotonic()
        try:
            words = await work()
        except SchedulerError as exc:
            self._nothing_made = name == "submit" and isinstance(exc, NothingSubmitted)
            raise SchedulerError(
                f"step '{name}' of scheduler '{self._scheduler.name}' failed: {exc.message}",
                hint=exc.hint,
            ) from exc
        self._told(name, f"{words} ({time.monotonic() - started:.1f} s)")

    async def _submit(self) -> str:
        self._handle = await self._scheduler.submit(self._run, self._join)
        return f"its id is {self._handle}"

    async def _find(self) -> str:
        deadline = time.monotonic() + self._seconds
        while (found := await self._scheduler.find(self._run)) is None:
            if time.monotonic() > deadline:
                raise SchedulerError(
                    f"no worker run named {self._run.name} was found",
                    hint="compare the output of the [find] command with its 'id' pattern",
                )
            await asyncio.sleep(self._scheduler.poll_seconds)
        if found != self._handle:
            raise SchedulerError(
                f"its id is {self._handle}, but [find] returned the id {found} for its name",
                hint="make the 'id' patterns of [submit] and [find] match the same id",
            )
        return f"[find] returned the id {found} for its name"

    async def _see(self) -> str:
        found = await self._until(_SEEN + OVER)
        if found.state in OVER:
            raise SchedulerError(
                f"the worker run ended before it was cancelled: {found.detail}",
                hint="a worker without a registry waits for a minute; check the logs of "
                f"{self._run.name} to see why this one did not: is 'rdzv' in the image, and "
                "on PATH?",
            )
        self._seen = found.state
        return _told(found)

    async def _logs(self) -> str:
        lines = self._scheduler.logs(self._run, self._handle, lines=_LINES, follow=False)
        got = [line async for line in lines]
        return f"{len(got)} lines" + (f", the last one: {got[-1]}" if got else "")

    async def _cancel(self) -> str:
        await self._scheduler.cancel(self._run, self._handle, grace_seconds=_GRACE_SECONDS)
        return "its cancellation was accepted"

    async def _gone(self) -> str:
        return _told(await self._until(OVER))

    async def _until(self, states: tuple[SlotState, ...]) -> Description:
        """What the scheduler says, once that is one of these states."""
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                found = await self._scheduler.describe(self._run, self._handle)
            except SchedulerError:
                if time.monotonic() > deadline:
                    raise
            else:
                if found.state in states:
                    return found
                if time.monotonic() > deadline:
                    wanted = " or ".join(states)
                    raise SchedulerError(
                        f"after {self._seconds:.0f} s it is not {wanted} but {found.state}: "
                        f"{found.detail}",
                        hint=(
                            "check 'state' and [states] in the profile, which map the "
                            "scheduler's states"
                        ),
                    )
            await asyncio.sleep(self._scheduler.poll_seconds)

    async def _clean_up(self) -> None:
        """Leave nothing behind, and say what could not be ended."""
        if self._nothing_made:
            return
        run, handle = self._run, self._handle
        try:
            handle = handle or await self._scheduler.find(run) or ""
            if handle:
                await self._scheduler.cancel(run, handle, grace_seconds=0.0)
        except RdzvError as exc:
            by_hand = self._scheduler.cancel_words(run, handle or None)
            self._say(
                f"the worker run {run.name} may still exist; it ends by itself after "
                f"{_LIVES_SECONDS:.0f} s: {exc.message}" + (f"; try: {by_hand}" if by_hand else "")
            )


def _told(found: Description) -> str:
    return f"it is {found.state}" + (f": {found.detail}" if found.detail else "")
