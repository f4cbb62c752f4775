"""A scheduler that is a file: the command lines of somebody's tool, and how its answers are read.

What is believed is what was observed. An id on standard output means submitted, whatever the exit
code; no id means that `find` is asked for the unique name before anything else is done, since a
command that failed, or was ended at its time limit, may have done its work all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import re
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launcher.options import outside_environment
from launcher.plan.plan import HIDDEN, Submission, WorkerRun
from launcher.plan.template import Value
from launcher.schedulers.command import CommandRunner, Said
from launcher.schedulers.contract import (
    SERVICE_FAILS,
    Entry,
    NothingSubmitted,
    Scheduler,
    SchedulerContext,
    Trouble,
    unheard,
)
from launcher.schedulers.description import OVER, Description
from launcher.schedulers.files import write_private
from launcher.schedulers.gate import TRIES, Gate, pause_seconds
from launcher.schedulers.outer_job import without_outer_job
from launcher.schedulers.profile_commands import (
    ProfileCommands,
    accounts,
    ids_in,
    regex_of,
    says,
)
from launcher.schedulers.profile_file import Profile, read_profile
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState

_TRIES = 3
_MAY_BE_PREEMPTED = (SlotState.RUNNING, *OVER)
_SOON_SECONDS = 1.0
"""How long a list is good for while something that was cancelled may take its time to end."""
_ENDS_SECONDS = 30.0
_ABSENT_MEANS_GONE = 3
"""Times that a run which was never seen is not listed, until it counts as gone."""
_TRAVELS = {
    "spec": "in the rendered spec",
    "stdin": "on the command's standard input",
    "file": "in a file readable by you alone",
}


def profile_entry(path: Path, folder: Path | None = None) -> Entry:
    """The row of the table for a profile; its spec lies in the folder, or with the shipped ones."""
    profile = read_profile(path)

    def make(context: SchedulerContext) -> Scheduler:
        return ProfileScheduler(path.stem, profile, context)

    travels = _TRAVELS[profile.channel]
    spec = profile.spec if folder is None else str(folder / profile.spec)
    return Entry(
        profile.summary,
        spec,
        make,
        travels,
        profile.commands(),
        profile.name_length,
        profile.reads(),
        tuple(profile.needs),
        tells_host="(?P<host>" in profile.describe.state,
    )


class ProfileScheduler(ProfileCommands, Scheduler):
    """Runs the commands of a profile.

    Args:
        name: The profile's file name, without `.toml`.
        profile: The profile.
        context: What it may use of the launch.
    """

    try_again_seconds = 1.0
    """Before the second try of a submit; twice as long before the third."""
    looks: tuple[float, ...] = (0.0, 0.5, 1.5)
    """Seconds before each look for a worker run that may have been made: lists lag behind."""

    def __init__(self, name: str, profile: Profile, context: SchedulerContext) -> None:
        super().__init__(name, profile, context.folder)
        self.finds = profile.find is not None
        self.keeps_logs = profile.logs is not None
        self.poll_seconds = profile.poll_seconds
        self._runner = CommandRunner(
            without_outer_job(outside_environment(context.environ)) | profile.environ,
            cwd=profile.cwd,
        )
        self._gate = Gate(profile.at_once)
        self._was_busy = False
        self._answers: dict[tuple[str, ...], tuple[float, asyncio.Task[Said]]] = {}
        self._cancelled_at = -math.inf
        self._doubtful: set[str] = set()
        """Names of worker runs of which there may be a second one."""
        self._absences: dict[str, int] = {}
        """How often a worker run was not there in answers that should have known it."""
        self._known: set[str] = set()
        self._cleared: set[str] = set()
        """Names of worker runs that were seen, or cancelled: absent, they are gone."""

    def prepare(self, run: Submission, join: str) -> str:
        """See the contract: the command in a comment, and the rendered spec."""
        text = self.render(run, join)
        self._check_commands(run)
        return f"# {self.submit_words(run)}\n{text}"

    def submit_words(self, run: Submission) -> str:
        """See the contract: the line of a shell that submits it."""
        words = shlex.join(self._argv("submit", self.profile.submit.argv, run))
        spec, join = f" < {self._path(run, 'SPEC')}", ", with the join string on standard input"
        return words + {"spec": spec, "join": join, None: ""}[self._stdin_source]

    # --- submitting ---------------------------------------------------------------------------

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        """See the contract; success is an id that was read."""
        self.prepare(run, HIDDEN)
        text = self.render(run, join)
        for path, content in self._files(run, text, join).items():
            write_private(path, content)
        argv = self._argv("submit", self.profile.submit.argv, run)
        stdin = {"spec": text, "join": join, None: None}[self._stdin_source]
        said, handle = await self._try_to_submit(argv, stdin, run, trouble)
        self._answers.clear()  # they are older than this run
        if handle is not None:
            return handle
        await self._clear(run)
        raise self._not_submitted(run, said, argv)

    async def _try_to_submit(
        self, argv: Sequence[str], stdin: str | None, run: WorkerRun, trouble: Trouble
    ) -> tuple[Said, str | None]:
        """What the command said, and the id; None when there is no worker run for certain."""
        table = self.profile.submit
        tries = _TRIES if self.profile.retry_submit else 1

        async def busy(said: Said) -> None:
            await trouble(self._words_when_busy(argv, said, run))

        for number in itertools.count(1):
            said = await self._run(argv, run, stdin=stdin, busy=busy)
            handle = _last(ids_in(table.id, said.out, run))
            if handle is not None or accounts(table.refused, said, run):
                break
            if accounts(self.profile.busy, said, run):  # it was tried often enough
                break
            self._doubtful.add(run.name)
            await trouble(_what_came(argv, said))
            handle = await self._look(run, said, argv)
            final = table.retry and said.code is not None and not says(table.retry, said, run)
            if handle is not None or final or number == tries:
                break
            await asyncio.sleep(self.try_again_seconds * 2 ** (number - 1))
        return said, handle

    async def _look(self, run: WorkerRun, said: Said, argv: Sequence[str]) -> str | None:
        """Whether the worker run was made all the same; raises SchedulerError if nobody knows."""
        unknown: SchedulerError | None = None
        for seconds in self.looks if self.profile.find is not None else ():
            await asyncio.sleep(seconds)
            try:
                handle = await self.find(run)
            except SchedulerError as exc:
                unknown = exc
                continue
            unknown = None
            if handle is not None:
                return handle
        if unknown is not None:
            raise SchedulerError(
                f"{_what_came(argv, said)}; rdzv does not know whether "
                f"worker run {run.name} was made: {unknown.message}",
                hint="look for a run with that name, and end it",
            )
        return None

    def _words_when_busy(self, argv: Sequence[str], said: Said, run: WorkerRun) -> str:
        """Of all worker runs of a launch the first one alone says so; empty for the others."""
        if self._was_busy:
            return ""
        self._was_busy = True
        hint = self._hint(said, run)
        how = "from now on fewer connections are opened at a time, with growing pauses"
        return "; ".join(filter(None, (_what_came(argv, said), how, hint)))

    def _not_submitted(self, run: Submission, said: Said, argv: Sequence[str]) -> SchedulerError:
        table, words = self.profile.submit, _what_came(argv, said)
        more = f"try it by hand: {self.submit_words(run)}"
        hint = self._hint(said, run) or (SERVICE_FAILS if says(table.retry, said, run) else more)
        if accounts(table.refused, said, run):
            final, no_host = (accounts(one, said, run) for one in (table.final, table.no_host))
            return NothingSubmitted(words, hint=hint, final=final, no_host=no_host)
        return SchedulerError(words, hint=hint)

    def _failed(self, argv: Sequence[str], said: Said, run: WorkerRun) -> SchedulerError:
        """An error with the command's last words."""
        words = f"'{argv[0]}' {said.ending()}"
        return SchedulerError(words, hint=self._hint(said, run))

    async def _run(
        self,
        argv: Sequence[str],
        run: WorkerRun,
        *,
        stdin: str | None = None,
        more_seconds: float = 0.0,
        busy: Callable[[Said], Awaitable[None]] | None = None,
    ) -> Said:
        """Run a command; one whose connection is dropped again, ever more rarely."""
        seconds = self.profile.timeout_seconds + more_seconds
        for number in itertools.count(1):
            async with self._gate.place():
                said = await self._run_once(argv, run, stdin, seconds)
            if not accounts(self.profile.busy, said, run):
                self._gate.passed()
                return said
            self._gate.dropped()
            if number == TRIES:
                return said
            if busy is not None:
                await busy(said)
            pause = pause_seconds(number, random.random())  # noqa: S311 (jitter)
            await asyncio.sleep(pause * self.try_again_seconds)
        raise AssertionError

    async def _run_once(
        self, argv: Sequence[str], run: WorkerRun, stdin: str | None, seconds: float
    ) -> Said:
        try:
            said = await self._runner.run(argv, timeout_seconds=seconds, stdin=stdin)
        except SchedulerError as exc:
            hint = "; ".join(filter(None, (exc.hint, self._filled_in(self.profile.hint, run))))
            raise type(exc)(exc.message, hint=hint) from exc
        begins = self.profile.begins
        if begins is None or regex_of(begins, run).search(said.out):
            return said
        return replace(said, begun=False)

    # --- afterwards ---------------------------------------------------------------------------

    async def find(self, run: WorkerRun) -> str | None:
        """See the contract."""
        return _last(await self._find_all(run))

    async def _find_all(self, run: WorkerRun) -> list[str]:
        """All of this name: more than one after lost answers of a scheduler whose list lags."""
        table = self.profile.find
        if table is None:
            return []
        argv = self._argv("find", table.argv, run)
        said = await self._run(argv, run)
        handles = ids_in(table.id, said.out, run)
        there_is_none = said.begun and (said.code == 0 or says(table.gone, said, run))
        if not handles and not there_is_none:
            raise self._failed(argv, said, run)
        return handles

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """See the contract; what a run that is over has beside it is taken away."""
        found = await self._described(run, handle)
        if found.state in OVER:
            await self._clear(run)
        return found

    async def _clear(self, run: WorkerRun) -> None:
        """Once; that it fails is no reason to say anything else of the run."""
        table = self.profile.clear
        if table is None or run.name in self._cleared:
            return
        with contextlib.suppress(SchedulerError):
            said = await self._run(self._argv("clear", table.argv, run), run)
            if said.code == 0:
                self._cleared.add(run.name)

    async def _described(self, run: WorkerRun, handle: str) -> Description:
        table, more = self.profile.describe, {"ID": handle}
        argv = self._argv("describe", table.argv, run, more)
        said = await (self._shared(argv, run) if table.list else self._run(argv, run))
        matches = list(regex_of(table.state, run, more).finditer(said.out))
        if matches:
            self._known.add(run.name)
            return self._description(matches[-1].groupdict())
        if not said.begun:
            raise self._failed(argv, said, run)
        if says(table.gone, said, run, more) or (table.list and said.code == 0):
            return self._absent(run)
        if said.code != 0:
            raise self._failed(argv, said, run)
        return Description(SlotState.UNKNOWN, said.words() or f"'{argv[0]}' printed nothing")

    async def _shared(self, argv: Sequence[str], run: WorkerRun) -> Said:
        """The answer of one command for all worker runs: asked again when it is old."""
        now = asyncio.get_running_loop().time()
        asked, answer = self._answers.get(tuple(argv), (-math.inf, None))
        # What is cancelled takes a moment to end, and others may wait for that.
        is_ending = now - self._cancelled_at < _ENDS_SECONDS
        lasts = min(_SOON_SECONDS, self.poll_seconds) if is_ending else self.poll_seconds
        if answer is None or now - asked >= lasts:
            answer = asyncio.create_task(self._run(argv, run))
            self._answers[tuple(argv)] = (now, answer)
        return await asyncio.shield(answer)

    def _absent(self, run: WorkerRun) -> Description:
        """It is gone, or not listed yet."""
        self._absences[run.name] = count = self._absences.get(run.name, 0) + 1
        if run.name in self._known or count >= _ABSENT_MEANS_GONE:
            return Description(SlotState.ENDED, "the scheduler no longer knows it")
        return Description(SlotState.UNKNOWN, "the scheduler does not know it yet")

    def _description(self, groups: Mapping[str, str | None]) -> Description:
        """Our state, and what it does not say: the reason of a wait, the kind of an end."""
        word, state = groups["state"] or "", self.profile.states.of(groups["state"] or "")
        reason = " ".join((groups.get("detail") or "").split())
        preempted = state in _MAY_BE_PREEMPTED and self.profile.states.says_preempted(word, reason)
        host = groups.get("host") or ""
        if state in (SlotState.SUBMITTED, SlotState.QUEUED, SlotState.RUNNING):
            return Description(state, reason, preempted, host)
        code = (groups.get("code") or "").lstrip("0")
        if code and state in OVER:
            state, word = SlotState.FAILED, f"{word}, exit code {code}"
        return Description(state, f"{word}: {reason}" if reason else word, preempted, host)

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        """See the contract; what was made twice by a lost answer is ended twice."""
        await self._cancel(run, handle, grace_seconds)
        if run.name in self._doubtful:
            for other in set(await self._find_all(run)) - {handle}:
                await self._cancel(run, other, grace_seconds)
        self._known.add(run.name)
        self._answers.clear()
        self._cancelled_at = asyncio.get_running_loop().time()
        for kind in ("SPEC", "JOIN_FILE"):
            if f"<<{kind}>>" not in str(self.profile.cancel.argv):  # it may be told again
                self._path(run, kind).unlink(missing_ok=True)

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        """See the contract."""
        if handle is None and not any("<<NAME>>" in word for word in self.profile.cancel.argv):
            return ""
        values: dict[str, Value] = {"ID": handle or "", "GRACE": 0}
        return shlex.join(self._argv("cancel", self.profile.cancel.argv, run, values))

    async def _cancel(self, run: WorkerRun, handle: str, grace_seconds: float) -> None:
        table = self.profile.cancel
        values: dict[str, Value] = {"ID": handle, "GRACE": math.ceil(grace_seconds)}
        argv = self._argv("cancel", table.argv, run, values)
        said = await self._run(argv, run, more_seconds=grace_seconds)
        if said.begun and (said.code == 0 or says(table.gone, said, run, values)):
            return
        self._answers.clear()  # they are older than this
        with contextlib.suppress(SchedulerError):
            found = await self.describe(run, handle)
            if found.state in OVER:
                return
        raise self._failed(argv, said, run)

    def logs(self, run: WorkerRun, handle: str, *, lines: int, follow: bool) -> AsyncIterator[str]:
        """See the contract."""
        table = self.profile.logs
        if table is None:
            return super().logs(run, handle, lines=lines, follow=follow)
        words = table.follow if follow and table.follow is not None else table.argv
        said = self._runner.lines(self._argv("logs", words, run, {"ID": handle, "LINES": lines}))
        begins = self.profile.begins
        return said if begins is None else _behind(said, regex_of(begins, run))


async def _behind(lines: AsyncGenerator[str, None], begins: re.Pattern[str]) -> AsyncIterator[str]:
    """The lines behind the one with which a command begins."""
    async with contextlib.aclosing(lines):
        async for line in lines:
            if begins.search(line):
                break
        async for line in lines:
            yield line


def _what_came(argv: Sequence[str], said: Said) -> str:
    """What came of a submit command that has given no id: the same words while it is tried again
    and at the end."""
    if said.code != 0:
        return f"'{argv[0]}' {said.ending()}"
    return f"'{argv[0]}' ended with 0, but gave no id of a worker run; {said.last_lines()}"


def _last(handles: Sequence[str]) -> str | None:
    return handles[-1] if handles else None
