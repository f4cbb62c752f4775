"""Worker runs as processes on this machine; rank 0's own node is started this way everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

import yaml

from launcher.plan import WorkerRun
from launcher.schedulers import Description, SchedulerContext
from launcher.template import Form, render
from rendezvous.errors import SchedulerError, TemplateError
from rendezvous.schema import SlotState
from worker.contracts import SECRET_VARIABLES

_KILL_SECONDS = 3.0
OWN_COMMAND = (sys.executable, "-E", "-P", "-m", "rdzv_command")
"""`rdzv` itself, in the interpreter that runs now."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A rendered spec: what is executed."""

    argv: list[str]
    env: dict[str, str]


class LocalScheduler:
    """Starts each worker run as a child of this process; they end when it ends."""

    name = "local"
    loopback = True
    poll_seconds = 0.1

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._children: dict[str, asyncio.subprocess.Process] = {}

    def prepare(self, run: WorkerRun, join: str) -> str:
        """See the contract."""
        variables = run.variables | {"RDZV_JOIN": join}
        text = render(run.template, variables, source=run.source, form=Form.YAML)
        _parse(text, run.source)
        return text

    async def submit(self, run: WorkerRun, join: str) -> str:
        """See the contract."""
        spec = _parse(self.prepare(run, join), run.source)
        environ = {k: v for k, v in self._context.environ.items() if k not in SECRET_VARIABLES}
        environ |= spec.env
        secret = environ.pop("RDZV_JOIN", join)
        with _anonymous_file(secret) as fd:
            environ["RDZV_JOIN_FILE"] = f"/proc/self/fd/{fd}"
            try:
                child = await asyncio.create_subprocess_exec(
                    *_with_parent(spec.argv),
                    env=environ,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=2 if self._context.quiet_stdout else None,
                    pass_fds=(fd,),
                    start_new_session=True,  # a terminal's Ctrl-C is the launcher's to pass on
                )
            except OSError as exc:
                raise SchedulerError(
                    f"slot {run.slot}: '{spec.argv[0]}' cannot be started: {exc.strerror}",
                    hint=f"argv of {run.source} begins with it",
                ) from exc
        self._children[str(child.pid)] = child
        return str(child.pid)

    async def find(self, name: str) -> str | None:
        """None: the children of a former launcher have ended with it."""
        return None

    async def describe(self, handle: str) -> Description:
        """See the contract."""
        child = self._children.get(handle)
        if child is None:
            return Description(SlotState.ENDED, "it ended with its launcher")
        if child.returncode is None:
            return Description(SlotState.RUNNING, f"pid {handle}")
        code = child.returncode
        words = f"signal {-code}" if code < 0 else f"exit code {code}"
        state = SlotState.ENDED if code == 0 else SlotState.FAILED
        return Description(state, f"pid {handle} ended with {words}")

    async def cancel(self, handle: str, *, grace_seconds: float) -> None:
        """TERM, which the agent passes on (QUIT without a grace), and KILL when it is over."""
        child = self._children.get(handle)
        if child is None or child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM if grace_seconds > 0 else signal.SIGQUIT)
        try:
            await asyncio.wait_for(child.wait(), grace_seconds + _KILL_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _parse(text: str, source: str) -> ProcessSpec:
    """The rendered spec; raises TemplateError when it is not what this scheduler starts."""
    value: Any = yaml.safe_load(text)
    argv = value.get("argv") if isinstance(value, dict) else None
    env = value.get("env", {}) if isinstance(value, dict) else None
    if not isinstance(argv, list) or not argv or not isinstance(env, dict):
        raise TemplateError(
            f"{source}: a spec of the local scheduler has a list 'argv' and a mapping 'env'",
            hint="argv: [rdzv, worker, <<WORKER_OPTIONS>>, --, <<COMMAND>>]",
        )
    unknown = set(value) - {"argv", "env"}
    if unknown:
        raise TemplateError(f"{source}: the local scheduler does not know {sorted(unknown)}")
    return ProcessSpec([str(word) for word in argv], {str(k): str(v) for k, v in env.items()})


def _with_parent(argv: list[str]) -> list[str]:
    """Our own command, told whose child it is: it ends when the launcher does."""
    if argv[:2] != ["rdzv", "worker"]:
        return argv
    return [*OWN_COMMAND, "worker", "--parent", str(os.getpid()), *argv[2:]]


@contextlib.contextmanager
def _anonymous_file(text: str) -> Any:
    """A file without a name, which a child inherits: in no environment and on no disk."""
    fd = os.memfd_create("rdzv_join", 0)
    try:
        os.write(fd, text.encode())
        yield fd
    finally:
        os.close(fd)
