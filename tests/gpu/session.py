"""rdzv's commands and runs as the parts use them: real ones, each of which ends by a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

PROGRAMS = Path(__file__).parent / "programs"
_LEAVE_SECONDS = 20.0
"""How long a run may take to end once it is cancelled; then its launch is killed."""


class Failed(Exception):
    """A part cannot be carried out, for this reason."""


@dataclass(frozen=True)
class Called:
    """How a command ended. Its `code` is None where it took too long."""

    code: int | None
    text: str
    error: str
    seconds: float

    def json(self) -> Any:
        """Return what it printed. Raises Failed where that is no JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            said = (self.error or self.text)[-500:]
            raise Failed(f"no JSON was printed (exit code {self.code}): {said}") from None


@dataclass(frozen=True)
class Session:
    """The rdzv under test, and the time that is left.

    Attributes:
        rdzv: The command.
        python: The user's interpreter, which has torch; its folder comes first on PATH.
        device: `cuda`, or `cpu` for a rehearsal.
        folder: For runs and reports.
        deadline: By time.monotonic().
        output: What each launch has printed, by the name of its run.
    """

    rdzv: Path
    python: Path
    device: str
    folder: Path
    deadline: float
    output: dict[str, list[str]] = field(default_factory=dict)

    def within(self, seconds: float) -> Session:
        """Return the same session with no more than so many seconds left."""
        return replace(self, deadline=min(self.deadline, time.monotonic() + seconds))

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a user who has activated the environment of `python`."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("RDZV_")}
        path = f"{self.python.parent}{os.pathsep}{own.get('PATH', os.defpath)}"
        return own | {"PATH": path}

    def call(self, *words: str, seconds: float = 30.0) -> Called:
        """Run an rdzv command to its end."""
        return call([str(self.rdzv), *words], self.environ, min(seconds, self.left))

    @contextlib.contextmanager
    def launch(
        self,
        run: str,
        *options: str,
        command: Sequence[str],
        variables: dict[str, str] | None = None,
    ) -> Iterator[Run]:
        """Launch a run on this machine, and end it."""
        folder = self.folder / run
        folder.mkdir(parents=True)
        words = [str(self.rdzv), "launch", "--state-dir", f"{self.folder}/state", "--rdzv-id", run]
        words += ["--nnodes", "1", *options, "--", *command]
        process = subprocess.Popen(
            [word.replace("FOLDER", str(folder)) for word in words],
            env=self.environ | (variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        started = Run(self, run, folder, process)
        reading = Thread(target=started.read, daemon=True)
        reading.start()
        try:
            yield started
        finally:
            started.end()
            reading.join(1.0)
            self.output[run] = [line for _, line in started.lines]


@dataclass
class Run:
    """A launch, and what it has printed so far: each line with when it came."""

    session: Session
    name: str
    folder: Path
    process: subprocess.Popen[str]
    lines: list[tuple[float, str]] = field(default_factory=list)
    ended_in: float | None = None

    def read(self) -> None:
        """Read what the launch prints until its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    @property
    def tail(self) -> list[str]:
        """The newest lines."""
        return [line for _, line in self.lines[-15:]]

    def wait_for(self, what: str, found: Callable[[], T | None]) -> T:
        """Return what is found. Raises Failed at the deadline, and where the run ends before."""
        while True:
            ended = self.process.poll()
            if (result := found()) is not None:
                return result
            if ended is not None:
                raise Failed(f"the run ended with {ended} before {what}: {self.tail}")
            if not self.session.left:
                raise Failed(f"the time was over before {what}: {self.tail}")
            time.sleep(0.02)

    def reports(self, pattern: str, count: int) -> list[Path]:
        """Wait for so many files of the program."""

        def found() -> list[Path] | None:
            files = sorted(self.folder.glob(pattern))
            return files if len(files) >= count else None

        return self.wait_for(f"{count} of {pattern} were there", found)

    def command(self, *words: str) -> Called:
        """Run a command of rdzv for this run."""
        name, *options = words
        return self.session.call(
            name, self.name, "--state-dir", f"{self.session.folder}/state", *options
        )

    def end(self) -> None:
        """Cancel the run, and see its launch end; what does not is killed."""
        begun = time.monotonic()
        if self.process.poll() is None:
            words = ["cancel", self.name, "--state-dir", f"{self.session.folder}/state"]
            call([str(self.session.rdzv), *words], self.session.environ, _LEAVE_SECONDS)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_LEAVE_SECONDS)
                self.ended_in = round(time.monotonic() - begun, 2)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def call(words: Sequence[str], environ: dict[str, str], seconds: float) -> Called:
    """Run a program for at most so many seconds."""
    begun = time.monotonic()
    try:
        ended = subprocess.run(
            words,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
        code, text, error = ended.returncode, ended.stdout, ended.stderr
    except subprocess.TimeoutExpired:
        code, text, error = None, "", f"no end within {seconds:.0f} s"
    except OSError as problem:
        code, text, error = None, "", f"{words[0]} cannot be started: {problem.strerror}"
    return Called(code, text, error, round(time.monotonic() - begun, 3))
