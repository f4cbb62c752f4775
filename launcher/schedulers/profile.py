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
import os
import re
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from launcher.plan import HIDDEN, WorkerRun
from launcher.schedulers import (
    OVER,
    SERVICE_FAILS,
    Description,
    Entry,
    NothingSubmitted,
    Scheduler,
    SchedulerContext,
    Trouble,
    no_logs,
    unheard,
)
from launcher.schedulers.command import CommandRunner, Said, outside_environment
from launcher.schedulers.files import write_private
from launcher.schedulers.insertion import insert_value
from launcher.schedulers.profile_file import Profile, read_profile
from launcher.template import (
    PLACEHOLDER,
    Value,
    Variables,
    form_of,
    one_line,
    placeholders,
    render,
)
from rendezvous.errors import SchedulerError, UsageError
from rendezvous.schema import SlotState

_TRIES = 3
_WAYS = {"HOST": "--hostlist, --hostfile or --set HOST=..."}
_ABSENT_MEANS_GONE = 3
"""Times that a run which was never seen is not listed, until it counts as gone."""
_MOST_ID = 253
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
    return Entry(profile.summary, spec, make, travels, profile.commands(), profile.name_length)


class ProfileScheduler:
    """Runs the commands of a profile.

    Args:
        name: The profile's file name, without `.toml`.
        profile: The profile.
        context: What it may use of the launch.
    """

    loopback = False
    try_again_seconds = 1.0
    """Before the second try of a submit; twice as long before the third."""
    looks: tuple[float, ...] = (0.0, 0.5, 1.5)
    """Seconds before each look for a worker run that may have been made: lists lag behind."""

    def __init__(self, name: str, profile: Profile, context: SchedulerContext) -> None:
        self.name = name
        self.finds = profile.find is not None
        self.keeps_logs = profile.logs is not None
        self.poll_seconds = profile.poll_seconds
        self.profile = profile
        self._folder = context.folder.absolute()  # the commands may run elsewhere (cwd)
        self._runner = CommandRunner(
            outside_environment(context.environ) | profile.environ, cwd=profile.cwd
        )
        self._answers: dict[tuple[str, ...], tuple[float, asyncio.Task[Said]]] = {}
        self._doubtful: set[str] = set()
        """Names of worker runs of which there may be a second one."""
        self._absences: dict[str, int] = {}
        """How often a worker run was not there in answers that should have known it."""
        self._known: set[str] = set()
        self._cleared: set[str] = set()
        """Names of worker runs that were seen, or cancelled: absent, they are gone."""

    # --- preparing ----------------------------------------------------------------------------

    def render(self, run: WorkerRun, join: str) -> str:
        """The rendered spec alone. Raises TemplateError or UsageError."""
        variables = self._variables(run)
        if self.profile.channel == "spec":
            variables["RDZV_JOIN"] = join
        else:
            del variables["RDZV_JOIN"]
        form = form_of(run.source)
        text = render(run.template, variables, source=run.source, form=form)
        mentioned = dict(placeholders(run.template, source=run.source, form=form))
        paths = {"RDZV_JOIN": self.profile.secret_path, "NAME": self.profile.name_path}
        for name, path in paths.items():
            if path is not None and name not in mentioned:
                text = insert_value(text, form, path.split("."), str(variables[name]), run.source)
        return text

    def prepare(self, run: WorkerRun, join: str) -> str:
        """See the contract: the command in a comment, and the rendered spec."""
        text = self.render(run, join)
        argv = self._argv("submit", self.profile.submit.argv, run)
        self._check_commands(run)
        stdin = self._stdin_source
        given = f" < {self._path(run, 'SPEC') if stdin == 'spec' else stdin}" if stdin else ""
        return f"# {shlex.join(argv)}{given}\n{text}"

    def _check_commands(self, run: WorkerRun) -> None:
        """A variable that is missing in a later command is better known before the first one."""
        profile = self.profile
        more: dict[str, Value] = {"ID": "id", "GRACE": 0, "LINES": 0}
        for where in ("find", "describe", "cancel", "clear", "logs"):
            if (table := getattr(profile, where)) is not None:
                self._argv(where, table.argv, run, more)
        if profile.logs is not None and profile.logs.follow is not None:
            self._argv("logs.follow", profile.logs.follow, run, more)
        self._argv("hints", [profile.hint, *profile.hints.values()], run)

    @property
    def _stdin_source(self) -> str | None:
        return "join" if self.profile.channel == "stdin" else self.profile.submit.stdin

    def _needed(self, run: WorkerRun) -> list[str]:
        """The variables that the profile needs, but for those that a user's own spec does not."""
        text = run.template + self.profile.model_dump_json(exclude={"needs"})
        return [name for name in self.profile.needs if f"<<{name}>>" in text]

    def _variables(self, run: WorkerRun) -> dict[str, Value]:
        """Those of the worker run over the profile's own, which `--set` writes as shell words."""
        missing = [name for name in self._needed(run) if name not in run.variables]
        if missing:
            ways = [_WAYS.get(name, f"--set {name}=...") for name in missing]
            raise UsageError(
                f"the scheduler '{self.name}' needs the variable {' and '.join(missing)}",
                hint=f"give it with {' and '.join(ways)}",
            )
        values: dict[str, Value] = self.profile.variables | run.variables
        for name, default in self.profile.variables.items():
            given = values[name]
            if isinstance(default, list) and isinstance(given, str):
                values[name] = _words(name, given)
        for name in self.profile.paths:
            if isinstance(path := values.get(name), str):
                values[name] = _from_here(path, run)
        if self.profile.channel == "file":
            values["JOIN_FILE"] = str(self._path(run, "JOIN_FILE"))
        return values

    def _argv(
        self,
        where: str,
        words: Sequence[str],
        run: WorkerRun,
        more: Mapping[str, Value] | None = None,
    ) -> list[str]:
        """A command line; a word that is one list variable alone gives all its items."""
        values = self._variables(run) | {"SPEC": str(self._path(run, "SPEC"))} | dict(more or {})
        del values["RDZV_JOIN"]
        known = Variables(values, f"profile '{self.name}', {where}, word")
        filled = [_filled(known, word, number) for number, word in enumerate(words, 1)]
        return [word for part in filled for word in part]

    def _path(self, run: WorkerRun, kind: Literal["SPEC", "JOIN_FILE"]) -> Path:
        """Where the rendered spec, or the join string, is written: named after the run alone."""
        spec = Path(self.profile.spec.removesuffix(".tpl"))
        suffix = ".join" if kind == "JOIN_FILE" else spec.suffix
        return self._folder / f"{run.name}{suffix}"

    def _files(self, run: WorkerRun, text: str, join: str) -> dict[Path, str]:
        """The files that a submission needs."""
        files = {}
        if any("<<SPEC>>" in word for word in self.profile.submit.argv):
            files[self._path(run, "SPEC")] = text
        if self.profile.channel == "file":
            files[self._path(run, "JOIN_FILE")] = join
        return files

    # --- submitting ---------------------------------------------------------------------------

    async def submit(self, run: WorkerRun, join: str, *, trouble: Trouble = unheard) -> str:
        """See the contract; success is an id that was read."""
        self.prepare(run, HIDDEN)
        text = self.render(run, join)
        for path, content in self._files(run, text, join).items():
            write_private(path, content, run.slot)
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
        for number in itertools.count(1):
            said = await self._run(argv, run, stdin=stdin)
            handle = _last(self._ids(table.id, said.out, run))
            if handle is not None or _says(table.refused, said, run):
                break
            self._doubtful.add(run.name)
            await trouble(f"'{argv[0]}' {said.ending()}")
            handle = await self._look(run, said, argv)
            final = table.retry and said.code is not None and not _says(table.retry, said, run)
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
                f"slot {run.slot}: '{argv[0]}' {said.ending()}; "
                f"whether worker run {run.name} was made is not known, since {unknown.message}",
                hint="look for a run of that name, and end it",
            )
        return None

    def _not_submitted(self, run: WorkerRun, said: Said, argv: Sequence[str]) -> SchedulerError:
        if said.code == 0:
            how = f"ended with 0, and there is no worker run {run.name}"
            words = said.words()
            how += f"; it said: {words}" if words else "; it said nothing"
        else:
            how = said.ending()
        refused = _says(self.profile.submit.refused, said, run)
        passing = _says(self.profile.submit.retry, said, run)
        advice = SERVICE_FAILS if passing else f"try it by hand: {shlex.join(argv)}"
        return (NothingSubmitted if refused else SchedulerError)(
            f"slot {run.slot}: '{argv[0]}' {how}", hint=self._hint(said, run) or advice
        )

    def _failed(self, argv: Sequence[str], said: Said, run: WorkerRun) -> SchedulerError:
        """An error with the command's last words."""
        words = f"slot {run.slot}: '{argv[0]}' {said.ending()}"
        return SchedulerError(words, hint=self._hint(said, run))

    def _hint(self, said: Said, run: WorkerRun) -> str:
        """What the profile says to such words; empty where it says nothing."""
        for words, hint in self.profile.hints.items():
            if _says(words, said, run):
                return self._filled_in(hint, run)
        return ""

    def _filled_in(self, hint: str, run: WorkerRun) -> str:
        known = Variables(self._variables(run), f"profile '{self.name}', hint")
        return known.fill(hint, lambda _: 1)

    def _ids(self, pattern: str, out: str, run: WorkerRun) -> list[str]:
        """The ids in an output; what could pass for an option, or is no word, is none."""
        found = [match.group(1) or "" for match in _regex(pattern, run).finditer(out)]
        return [
            word
            for word in found
            if word and word.isprintable() and not word.startswith("-") and len(word) <= _MOST_ID
        ]

    async def _run(
        self,
        argv: Sequence[str],
        run: WorkerRun,
        *,
        stdin: str | None = None,
        more_seconds: float = 0.0,
    ) -> Said:
        seconds = self.profile.timeout_seconds + more_seconds
        try:
            return await self._runner.run(argv, timeout_seconds=seconds, stdin=stdin)
        except SchedulerError as exc:
            hint = "; ".join(filter(None, (exc.hint, self._filled_in(self.profile.hint, run))))
            raise type(exc)(f"slot {run.slot}: {exc.message}", hint=hint) from exc

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
        handles = self._ids(table.id, said.out, run)
        if not handles and said.code != 0 and not _says(table.gone, said, run):
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
        matches = list(_regex(table.state, run, more).finditer(said.out))
        if matches:
            self._known.add(run.name)
            return self._description(matches[-1].groupdict())
        if _says(table.gone, said, run, more) or (table.list and said.code == 0):
            return self._absent(run)
        if said.code != 0:
            raise self._failed(argv, said, run)
        return Description(SlotState.UNKNOWN, said.words() or f"'{argv[0]}' said nothing")

    async def _shared(self, argv: Sequence[str], run: WorkerRun) -> Said:
        """The answer of one command for all worker runs: asked again when it is old."""
        now = asyncio.get_running_loop().time()
        asked, answer = self._answers.get(tuple(argv), (-math.inf, None))
        if answer is None or now - asked >= self.poll_seconds:
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
        if state in (SlotState.SUBMITTED, SlotState.QUEUED, SlotState.RUNNING):
            return Description(state, reason)
        code = (groups.get("code") or "").lstrip("0")
        if code and state in OVER:
            state, word = SlotState.FAILED, f"{word}, exit code {code}"
        return Description(state, f"{word}: {reason}" if reason else word)

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        """See the contract; what was made twice by a lost answer is ended twice."""
        await self._cancel(run, handle, grace_seconds)
        if run.name in self._doubtful:
            for other in set(await self._find_all(run)) - {handle}:
                await self._cancel(run, other, grace_seconds)
        self._known.add(run.name)
        self._answers.clear()
        for kind in ("SPEC", "JOIN_FILE"):
            if f"<<{kind}>>" not in str(self.profile.cancel.argv):  # it may be told again
                self._path(run, kind).unlink(missing_ok=True)

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        """See the contract."""
        if handle is None:
            return ""
        values: dict[str, Value] = {"ID": handle, "GRACE": 0}
        return shlex.join(self._argv("cancel", self.profile.cancel.argv, run, values))

    async def _cancel(self, run: WorkerRun, handle: str, grace_seconds: float) -> None:
        table = self.profile.cancel
        values: dict[str, Value] = {"ID": handle, "GRACE": math.ceil(grace_seconds)}
        argv = self._argv("cancel", table.argv, run, values)
        said = await self._run(argv, run, more_seconds=grace_seconds)
        if said.code == 0 or _says(table.gone, said, run, values):
            return
        with contextlib.suppress(SchedulerError):
            found = await self.describe(run, handle)
            if found.state in OVER:
                return
        raise self._failed(argv, said, run)

    def logs(self, run: WorkerRun, handle: str, *, lines: int, follow: bool) -> AsyncIterator[str]:
        """See the contract."""
        table = self.profile.logs
        if table is None:
            return no_logs()
        words = table.follow if follow and table.follow is not None else table.argv
        return self._runner.lines(self._argv("logs", words, run, {"ID": handle, "LINES": lines}))


def _last(handles: Sequence[str]) -> str | None:
    return handles[-1] if handles else None


def _filled(known: Variables, word: str, number: int) -> list[str]:
    exact = known.exact(word, number)
    return exact if isinstance(exact, list) else [known.fill(word, lambda _: number)]


def _from_here(path: str, run: WorkerRun) -> str:
    """A path as the launcher's working folder sees it: the scheduler's command goes by another one.

    What begins with a scheme (`azureml:`, `git+ssh:`) is no path of this machine.
    """
    here = str(run.variables.get("CWD", ""))
    return path if re.match(r"[A-Za-z][\w+.-]+:", path) else os.path.normpath(Path(here, path))


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as exc:
        raise UsageError(
            f"--set {name}: {exc}", hint="give words as a shell would read them"
        ) from exc


def _regex(
    pattern: str, run: WorkerRun, more: Mapping[str, Value] | None = None
) -> re.Pattern[str]:
    """A pattern of the profile; variables in it are taken literally."""
    values = run.variables | dict(more or {})

    def literal(spot: re.Match[str]) -> str:
        return re.escape(one_line(values.get(spot["name"], spot[0])))

    return re.compile(PLACEHOLDER.sub(literal, pattern), re.MULTILINE)


def _says(
    pattern: str | None, said: Said, run: WorkerRun, more: Mapping[str, Value] | None = None
) -> bool:
    return pattern is not None and _regex(pattern, run, more).search(said.everything) is not None
