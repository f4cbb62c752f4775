"""Worker runs as processes on this machine; node 0 is started this way everywhere."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from launcher.options import outside_environment
from launcher.plan.plan import HIDDEN, Submission, WorkerRun
from launcher.plan.template import Form, render
from launcher.processes import OWN_COMMAND, OwnProcess
from launcher.schedulers.contract import Scheduler, SchedulerContext, Trouble, unheard
from launcher.schedulers.description import Description
from launcher.schedulers.wrong_key import wrong_key
from rendezvous.compat import timeout
from rendezvous.secret_variables import anonymous_file, path_of
from rendezvous.wire.errors import SchedulerError, TemplateError
from rendezvous.wire.run import SlotState

_KILL_SECONDS = 3.0


class _TextLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Leaves every value as it is written: 0755 is no 493, yes is no True."""

    yaml_implicit_resolvers = {"<": yaml.SafeLoader.yaml_implicit_resolvers["<"]}  # noqa: RUF012


class ProcessSpec(BaseModel):
    """A rendered spec: what is executed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    argv: Annotated[list[str], Field(min_length=1)]
    env: dict[str, str] = {}


@dataclass
class _Ready:
    """An agent's process that has all but its join string.

    Attributes:
        begun_as: What it was started with.
        join: Where the join string is written; the process reads it to its end.
    """

    child: OwnProcess
    begun_as: tuple[list[str], dict[str, str]]
    join: int

    def take(self, secret: str) -> bool:
        """Let it join; whether it could be told."""
        try:
            told = self.child.returncode is None
            return told and os.write(self.join, secret.encode()) > 0
        except OSError:  # it has ended meanwhile
            return False
        finally:
            os.close(self.join)


class LocalScheduler(Scheduler):
    """Starts each worker run as a child of this process; they end when it ends.

    An interpreter takes as long to import an agent as the registry takes to start: so processes are
    made ready side by side with it, and wait for their join strings. One that never gets one has
    joined nothing, and ends with the launch.

    It keeps no logs of its own: the nodes' log files lie in the run's folder on this machine.
    """

    name = "local"
    loopback = True
    poll_seconds = 0.1

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._children: dict[str, OwnProcess] = {}
        self._logs: dict[str, tuple[Path | None, int]] = {}
        self._names: dict[str, str] = {}
        self._ready: dict[str, _Ready] = {}

    def prepare(self, run: Submission, join: str) -> str:
        """See the contract."""
        variables = run.variables | {"RDZV_JOIN": join}
        text = render(run.template, variables, source=run.source, form=Form.YAML)
        _parse(text, run.source, join)
        return text

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        """See the contract."""
        argv, environ, secret = self._start_of(run, join)
        said = self._log_of(run.slot)
        child = self._begun(run.name, (argv, environ), secret)
        if child is None:
            child = await self._start(run, argv, environ, secret)
        self._logs[str(child.pid)] = said
        self._children[str(child.pid)] = child
        self._names[run.name] = str(child.pid)
        return str(child.pid)

    def _start_of(self, run: Submission, join: str) -> tuple[list[str], dict[str, str], str]:
        """What is executed: argv, environment, and the secret beside it."""
        spec = _parse(self.prepare(run, join), run.source, join)
        environ = outside_environment(self._context.environ) | _passed(run) | spec.env
        secret = environ.pop("RDZV_JOIN", join)
        return _with_parent(spec.argv), environ, secret

    def _begun(
        self, name: str, begun_as: tuple[list[str], dict[str, str]], secret: str
    ) -> OwnProcess | None:
        """The process that was made ready for this, once it has been told its join string."""
        ready = self._ready.get(name)
        if ready is None or ready.begun_as != begun_as:
            return None
        del self._ready[name]
        return ready.child if ready.take(secret) else None

    async def _start(
        self, run: Submission, argv: list[str], environ: dict[str, str], secret: str
    ) -> OwnProcess:
        with anonymous_file("rdzv_join", secret.encode()) as file:
            try:
                return await self._execute(run, argv, environ, file.fileno())
            except (OSError, ValueError) as exc:  # ValueError: a NUL in a word or a variable
                why = exc.strerror if isinstance(exc, OSError) else exc
                raise SchedulerError(
                    f"'{argv[0]}' cannot be started: {why}",
                    hint=f"it is the first word of argv in {run.source}",
                ) from exc

    async def _execute(
        self, run: Submission, argv: list[str], environ: dict[str, str], join: int
    ) -> OwnProcess:
        return await self._context.processes.start(
            argv,
            environ | {"RDZV_JOIN_FILE": path_of(join)},
            stdout=2 if self._context.quiet_stdout else None,
            pass_fds=(join,),
            for_programs=_passed(run),
        )

    async def make_ready(self, run: Submission) -> None:
        """See the contract; a command that is not ours may do anything before it joins."""
        argv, environ, _ = self._start_of(run, HIDDEN)
        if argv[: len(OWN_COMMAND)] != [*OWN_COMMAND]:
            return
        with contextlib.suppress(OSError, ValueError):  # `submit` says why
            read, write = os.pipe()
            try:
                child = await self._execute(run, argv, environ, read)
                self._ready[run.name] = _Ready(child, (argv, environ), write)
            except BaseException:
                os.close(write)
                raise
            finally:
                os.close(read)

    async def close(self) -> None:
        """See the contract."""
        for ready in self._ready.values():
            _signal_group(ready.child, signal.SIGKILL)
            os.close(ready.join)
            await ready.child.wait()
        self._ready.clear()

    async def find(self, run: WorkerRun) -> str | None:
        """A child that lives; those of a former launcher have ended with it."""
        handle = self._names.get(run.name)
        if handle is None or self._children[handle].returncode is not None:
            return None
        return handle

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """See the contract."""
        child = self._children.get(handle)
        if child is None:
            return Description(SlotState.ENDED, "it ended with its launcher")
        if child.returncode is None:
            return Description(SlotState.RUNNING, f"pid {handle}")
        code = child.returncode
        words = f"signal {-code}" if code < 0 else f"exit code {code}"
        state = SlotState.ENDED if code == 0 else SlotState.FAILED
        return Description(state, f"pid {handle} ended with {words}{self._error_of(handle)}")

    def _error_of(self, handle: str) -> str:
        """What the agent said last, when that was an error: its own reason, not only its code."""
        path, before = self._logs[handle]
        if path is None:
            return ""
        try:
            lines = path.read_bytes()[before:].decode(errors="replace").splitlines()
        except OSError:
            return ""
        _, found, words = (lines[-1] if lines else "").partition(" ERROR ")
        return f": {words}" if found else ""

    def _log_of(self, slot: int) -> tuple[Path | None, int]:
        """The log of a slot's agent, and what earlier agents have left in it, in bytes."""
        if self._context.logs is None:
            return None, 0
        path = self._context.logs / f"agent-{slot}.log"
        with contextlib.suppress(OSError):
            return path, path.stat().st_size
        return path, 0

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        """TERM, which the agent passes on (QUIT without a grace), and KILL when it is over."""
        child = self._children.get(handle)
        if child is None or child.returncode is not None:
            return
        _signal_group(child, signal.SIGTERM if grace_seconds > 0 else signal.SIGQUIT)
        try:
            async with timeout(grace_seconds + _KILL_SECONDS):
                await child.wait()
        except TimeoutError:
            _signal_group(child, signal.SIGKILL)
            await child.wait()

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        """See the contract."""
        return f"kill {handle}" if handle else ""


def _passed(run: Submission) -> dict[str, str]:
    """What every node's worker is started with, whether its spec says so or not."""
    words = run.variables.get("PASS_ENV", [])
    pairs = [word.partition("=") for word in words] if isinstance(words, list) else []
    return {name: value for name, _, value in pairs}


def _parse(text: str, source: str, join: str) -> ProcessSpec:
    """The rendered spec; raises TemplateError when it is not what this scheduler starts."""
    try:
        spec = ProcessSpec.model_validate(yaml.load(text, Loader=_TextLoader))  # noqa: S506
    except yaml.YAMLError as exc:
        raise TemplateError(f"{source} is not one YAML document: {exc}") from exc
    except ValidationError as exc:
        why, close = wrong_key(exc, lambda _: ProcessSpec.model_fields)
        usual = "a spec of the local scheduler has a list 'argv' and a mapping 'env'"
        raise TemplateError(f"{source}: {why}", hint=close or usual) from exc
    seen = [*spec.argv, *(value for name, value in spec.env.items() if name != "RDZV_JOIN")]
    if any(join in word for word in seen):
        raise TemplateError(
            f"{source}: <<RDZV_JOIN>> is a secret, but is in a place that others can read",
            hint="use it only in the variable RDZV_JOIN",
        )
    return spec


def _signal_group(child: OwnProcess, number: int) -> None:
    """Signal the child and what it started in its own session: a spec may wrap our command."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _with_parent(argv: list[str]) -> list[str]:
    """Our own command, told whose child it is: it ends when the launcher does."""
    if argv[:2] != ["rdzv", "worker"]:
        return argv
    return [*OWN_COMMAND, "worker", "--parent", str(os.getpid()), *argv[2:]]
