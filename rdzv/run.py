"""Launch runs from Python, and follow them: `rdzv.launch` and `rdzv.attach`; see docs/python.md."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rdzv.arguments import joined, more_words, named_arguments, option_words, split_command
from rdzv.command import RdzvError, lines_of
from rdzv.launching import Launcher, OnEvent, OnOutput

_LOOK_SECONDS = 0.2
_USAGE = 64


@dataclass(frozen=True)
class Result:
    """How a run ended, with its first cause.

    Attributes:
        status: `ok`, `failed` or `cancelled`.
        exit_code: What `rdzv launch` exits with, see 'rdzv docs exit-codes'.
        exit_code_of: Whose code it is: `program` or `rdzv`.
        message: What happened, in one sentence.
        hint: What to try; may be empty.
        code: Why the run ended, such as `program_failed`; empty when ok.
        cause: The first cause of a failure, see 'rdzv docs causes'.
        rank: The process that failed, among all of the run.
        node: The number of its node.
        hostname: That node's.
        log: The log of that node, on that machine.
        tail: What it printed last.
        details: All of `result.json`, see 'rdzv docs state'.
    """

    status: str
    exit_code: int
    exit_code_of: str
    message: str
    hint: str = ""
    code: str = ""
    cause: str = ""
    rank: int | None = None
    node: int | None = None
    hostname: str = ""
    log: str = ""
    tail: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Whether every node's program ended with exit code 0."""
        return self.status == "ok"


class RunFailed(RdzvError):
    """A run did not end well, and `wait(check=True)` was asked to say so.

    Attributes:
        result: How it ended.
    """

    def __init__(self, result: Result) -> None:
        super().__init__(result.message, result.hint, result.exit_code)
        self.args = (result,)
        self.result = result


@dataclass(frozen=True)
class Status:
    """How a run stands.

    Attributes:
        phase: `gathering`, `verifying`, `arming`, `running`, `restarting` or `finished`.
        reason: What it waits for, or what happened last, in one sentence.
        epoch: The number of the programs' newest start; 0 before the first one.
        result: How it ended; None before.
        details: All that `rdzv status RUN --json` shows: every slot, the newest metrics.
    """

    phase: str
    reason: str
    epoch: int
    result: Result | None = None
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Node:
    """A row of the endpoint table: a node, where the others reach it, and its processes."""

    node: int
    slot: int
    hostname: str
    address: str
    interface: str
    nproc_per_node: int


class Run:
    """A run that was launched on this machine; made by `launch` and `attach`.

    As a context manager it waits for the end, and cancels the run first if there is an exception.

    Attributes:
        name: Its ID, as `rdzv status` lists it.
        folder: Its state folder, see 'rdzv docs state'.
    """

    def __init__(self, name: str, folder: str, launcher: Launcher | None = None) -> None:
        self.name = name
        self.folder = folder
        self._launcher = launcher

    def __repr__(self) -> str:
        return f"<rdzv.Run {self.name!r}>"

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None:
            self.cancel(f"{type(exc).__name__} in the program that launched it")
        self.wait()

    @property
    def done(self) -> bool:
        """Whether it has ended. Costs nothing."""
        if self._launcher is not None:
            return self._launcher.ended.is_set()
        return not _is_held(self.folder)

    @named_arguments()
    def wait(self, timeout: float | None = None, *, check: bool = False) -> Result:
        """Wait for the end, and say how it ended.

        Args:
            timeout: Seconds to wait at most; the run continues after that.
            check: Raise an exception unless the run ended ok.

        Raises:
            TimeoutError: It has not ended yet.
            RunFailed: With `check`: it failed or was cancelled.
        """
        if not self._has_ended_after(timeout):
            raise TimeoutError(f"run '{self.name}' has not ended after {timeout:g} s; it continues")
        result = self._result()
        if check and not result.ok:
            raise RunFailed(result)
        return result

    def status(self) -> Status:
        """How it stands now; asks the run's registry, which takes some tenths of a second.

        Raises:
            RdzvError: The registry of a run that another process launched does not answer.
        """
        if self.done:
            return self._finished()
        try:
            told = json.loads("\n".join(self._ask("status", "--json")))
        except RdzvError:
            if self.done:
                return self._finished()
            if self._launcher is None:
                raise
            told = self._launcher.event  # it has just begun, or is about to end
        if "phase" not in told:
            return self._finished() if self.done else Status("gathering", "the launch begins", 0)
        return Status(told["phase"], told["reason"], told["epoch"], details=told)

    @named_arguments()
    def cancel(self, reason: str = "from Python") -> None:
        """End the run everywhere; `wait` says when it has ended. From any thread, at any time.

        Raises:
            RdzvError: A run that another process launched could not be cancelled.
        """
        if self._launcher is None:
            self._ask("cancel", "--reason", reason)
        elif not self.done:
            try:
                self._ask("cancel", "--reason", reason)
            except RdzvError:  # its registry is not there yet, or no longer
                self._launcher.stop()

    @named_arguments()
    def logs(
        self,
        rank: int | None = None,
        node: int | None = None,
        *,
        lines: int = 20,
        follow: bool = False,
    ) -> Iterator[str]:
        """The newest lines that the programs printed; of all ranks, each behind `[rank N]`.

        Args:
            rank: Only this process.
            node: Only this node.
            lines: How many of each log.
            follow: Continue with new lines until the run ends.

        Raises:
            RdzvError: While iterating: a log could not be read.
        """
        if rank is not None and node is not None:
            raise ValueError("logs() takes a rank or a node, and not both")
        which = [f"--rank={rank}"] if rank is not None else [f"--node={node}"]
        chosen = ["--all"] if rank is None and node is None else which
        words = [*self._words("logs"), *chosen, f"--lines={lines}", *["--follow"] * follow]
        return _without_title(lines_of(words))

    def table(self) -> tuple[Node, ...]:
        """The nodes in the order of their ranks, as the programs' newest start has them.

        Empty before the nodes have found each other.
        """
        rows = _read(os.path.join(self.folder, "table.json")).get("rows", ())
        return tuple(Node(**{name: row[name] for name in Node.__annotations__}) for row in rows)

    def _words(self, command: str) -> list[str]:
        return [command, "--state-dir", os.path.dirname(self.folder), self.name]

    def _ask(self, command: str, *options: str) -> list[str]:
        return list(lines_of([*self._words(command), *options]))

    def _has_ended_after(self, timeout: float | None) -> bool:
        if self._launcher is not None:
            return self._launcher.ended.wait(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done:
            left = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _LOOK_SECONDS))
        return True

    def _finished(self) -> Status:
        result = self._result()
        epoch = _read(os.path.join(self.folder, "table.json")).get("epoch", 0)
        return Status("finished", result.message, epoch, result, result.details)

    def _result(self) -> Result:
        kept = _read(os.path.join(self.folder, "result.json"))
        if self._launcher is None:
            return _result_of(kept) if kept else self._killed("its launcher was killed")
        if told := self._launcher.result:
            return _result_of({**told, **kept})
        why = self._launcher.refusal()
        if not isinstance(why, RdzvError):
            return self._killed(f"its launch cannot be followed: {why!r}")
        if self._launcher.was_stopped:  # before it heeded signals, and so before it began anything
            words = f"run '{self.name}' was cancelled before it began"
            return Result("cancelled", why.exit_code, "rdzv", words, code="cancelled")
        if self._launcher.exit_code < 0:
            return self._killed("its launcher was killed", why.exit_code)
        return Result("failed", why.exit_code, "rdzv", why.message, why.hint)

    def _killed(self, why: str, exit_code: int = 1) -> Result:
        words = f"run '{self.name}' has ended without a result: {why}"
        return Result("failed", exit_code, "rdzv", words, f"clean up with: rdzv cancel {self.name}")


@named_arguments("other options of 'rdzv launch' go into options={'join_timeout': 60}")
def launch(
    command: str | Sequence[object],
    *,
    nnodes: int | str | None = None,
    nproc_per_node: int | str | Sequence[int] | None = None,
    framework: str | None = None,
    scheduler: str | None = None,
    hostlist: str | Sequence[str] | None = None,
    rdzv_id: str | None = None,
    max_restarts: int | None = None,
    env: Mapping[str, object] | None = None,
    options: Mapping[str, object] | Sequence[str] = (),
    cwd: str | os.PathLike[str] | None = None,
    on_event: OnEvent | None = None,
    on_output: OnOutput | None = None,
) -> Run:
    """Launch a run, as `rdzv launch` does; returns when it has its name, in less than a second.

    The run ends with this process, however that ends. What is None is as for the command.

    Args:
        command: A script or `-m MODULE` with its arguments; a string is split like a shell's.
        nnodes: The number of nodes, or `MIN:MAX`.
        nproc_per_node: Processes on each node; a list has one number for each slot.
        framework: What starts the command: torchrun, accelerate, deepspeed, command ...
        scheduler: What starts the nodes: local, slurm, ssh, kubernetes ...
        hostlist: Machines of the run.
        rdzv_id: The run's name.
        max_restarts: How often to start the programs again when one fails.
        env: Variables for the program of every node; no command line has their values.
        options: Every other option: `{"join_timeout": 60, "set": {"QUEUE": "a"}, "strict": True}`,
            or words as on the command line.
        cwd: The working directory of the launch, and of the programs on this machine.
        on_event: Called with each event, in a thread of rdzv's.
        on_output: Called with each line of output, likewise; when not set, `sys.stderr` gets them.

    Raises:
        RdzvError: It was refused: a wrong option, a name that another run has, a missing package.
    """
    _refuse_symmetric(os.environ)
    given = {
        "nnodes": nnodes,
        "nproc_per_node": joined(nproc_per_node),
        "framework": framework,
        "scheduler": scheduler,
        "hostlist": joined(hostlist),
        "rdzv_id": rdzv_id,
        "max_restarts": max_restarts,
    }
    program = split_command(command) if isinstance(command, str) else map(str, command)
    words = ["launch", *option_words(given), *_names_of(env), *more_words(options), "--", *program]
    launcher = Launcher(words, cwd=cwd, env=env, on_event=on_event, on_output=on_output)
    try:
        launcher.begun.wait()
    except BaseException:  # a Ctrl-C: nobody would know of this run
        launcher.stop()
        raise
    if not launcher.launched:
        raise launcher.refusal()
    return Run(launcher.launched["run"], launcher.launched["folder"], launcher)


def _names_of(env: Mapping[str, object] | None) -> list[str]:
    """Words that give these variables: the launcher's environment has their values."""
    return [f"--env={name}" for name in env or ()]


@named_arguments()
def attach(rdzv_id: str, *, state_dir: str | os.PathLike[str] | None = None) -> Run:
    """A run that another process has launched on this machine, in progress or ended.

    Raises:
        RdzvError: There is no such run.
    """
    root = os.path.abspath(state_dir or state_home(os.environ, rdzv_id))
    folder = os.path.join(root, rdzv_id)
    if "/" in rdzv_id or not os.path.isfile(os.path.join(folder, "launch.json")):
        raise RdzvError(
            f"no run '{rdzv_id}' was launched here (looked in {root})",
            "'rdzv status' lists the runs; state_dir= names another folder",
            _USAGE,
        )
    return Run(rdzv_id, folder)


def _refuse_symmetric(environ: Mapping[str, str]) -> None:
    if environ.get("RDZV_TOKEN") or environ.get("RDZV_TOKEN_FILE"):
        raise RdzvError(
            "RDZV_TOKEN is set: in a symmetric start this process would become a node of the run",
            "run the command 'rdzv launch' on every node, or unset the variable",
            _USAGE,
        )


def state_home(environ: Mapping[str, str], run: str = "") -> str:
    """The folder that has this run, as the command finds it; see `worker.program.state_home`."""
    if given := environ.get("RDZV_STATE_DIR"):
        return given
    home = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    usual = os.path.join(home, "rdzv")
    homes = (usual, *_spare_homes(environ)) if run else ()
    return next((one for one in homes if os.path.isdir(os.path.join(one, run))), usual)


def _spare_homes(environ: Mapping[str, str]) -> Iterator[str]:
    """Those among temporary files that are this user's, and were made for nobody else."""
    for place in (environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108
        folder = os.path.join(place, f"rdzv-state-{os.geteuid()}")
        with contextlib.suppress(OSError):
            about = os.lstat(folder)
            if about.st_uid == os.geteuid() and stat.S_IMODE(about.st_mode) == 0o700:
                yield folder


def _result_of(told: Mapping[str, Any]) -> Result:
    return Result(
        status=told["status"],
        exit_code=told["exit_code"],
        exit_code_of=told["exit_code_of"],
        message=told["message"],
        hint=told["hint"],
        code=told["code"],
        cause=told["cause"],
        rank=told["rank"],
        node=told["node"],
        hostname=told["hostname"],
        log=told["log"],
        tail=tuple(told["tail"]),
        details=told,
    )


def _without_title(lines: Iterator[str]) -> Iterator[str]:
    """Without the line that names the log, which is the one that was asked for."""
    first = next(lines, None)
    if first is not None and not first.startswith("==> "):
        yield first
    yield from lines


def _is_held(folder: str) -> bool:
    """Whether a launcher lives that holds the run's folder."""
    try:
        with open(os.path.join(folder, "lock"), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return {}
    return found
