"""Starts the real `rdzv` as a person would, and looks at what it says and leaves."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from click.testing import CliRunner

from launcher.cli import main
from rendezvous.registry.replay import replay
from rendezvous.registry.sqlite_journal import read_journal
from rendezvous.wire.errors import UsageError
from tests.support.waiting import until

BIN = Path(sys.executable).parent
RDZV = str(BIN / "rdzv")
LIMIT_SECONDS = 50.0


def environment(state: Path, **more: str) -> dict[str, str]:
    """The environment of a person whose PATH holds rdzv, and whose runs live in `state`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RDZV_", "PET_", "COV_"))}
    return {**kept, "PATH": f"{BIN}:{kept['PATH']}", "RDZV_STATE_DIR": str(state), **more}


@dataclass
class Outcome:
    """What a finished launch said."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The launcher's last line."""
        return self.err.strip().splitlines()[-1]


@dataclass
class Launched:
    """A launch that runs.

    Attributes:
        read: What was read so far of what it says.
    """

    process: subprocess.Popen[str]
    state: Path
    run: str
    read: bytes = b""

    @property
    def folder(self) -> Path:
        """The run's state folder."""
        return self.state / self.run

    def finish(self, seconds: float = LIMIT_SECONDS) -> Outcome:
        """Wait for the end."""
        out, err = self.process.communicate(timeout=seconds)
        return Outcome(self.process.returncode, out, self.read.decode() + (err or ""))

    def wait_to_say(self, words: str) -> None:
        """Until it has said these words."""
        pipe = self.process.stderr
        assert pipe is not None

        def look() -> bool:
            if select.select([pipe], [], [], 0.1)[0]:
                self.read += os.read(pipe.fileno(), 1 << 16)  # below the buffer: `finish` reads on
            return words.encode() in self.read

        until(look)

    def children(self) -> list[psutil.Process]:
        """Everything below the launcher."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, *words: str) -> psutil.Process:
        """The direct child whose command line has all the words as arguments; waits for it.

        Not anywhere in it: a test's folder has the test's own name, `…_killed_registry_…`.
        """

        def find() -> psutil.Process | None:
            for child in psutil.Process(self.process.pid).children():
                with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                    given = {part for word in child.cmdline() for part in (word, *word.split("="))}
                    if {word.strip() for word in words} <= given:
                        return child
            return None

        return until(find)

    def events(self) -> list[dict[str, object]]:
        """The events of the run's journal so far, as `rdzv replay` tells them."""
        try:
            records = read_journal(self.folder / "journal.sqlite")
        except UsageError:  # it is not there yet
            return []
        return [{"run": run, **asdict(line)} for run, line in replay(records)]

    def wait_for(self, kind: str, count: int = 1) -> None:
        """Until the journal holds so many events of a kind."""
        self._until(lambda seen: sum(event["kind"] == kind for event in seen) >= count)

    def wait_for_phase(self, phase: str) -> None:
        """Until the run is in this phase."""
        self._until(lambda seen: bool(seen) and seen[-1]["phase"] == phase)

    def _until(self, reached: Callable[[list[dict[str, object]]], bool]) -> None:
        """Until the events are so; a launch that ended before fails the test with what it said."""

        def look() -> bool:
            ended = self.process.poll() is not None  # looked at first: then nothing can be missed
            found = reached(self.events())
            if ended and not found:
                outcome = self.finish()
                raise AssertionError(f"the launch ended before, with {outcome.code}: {outcome.err}")
            return found

        until(look)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the launcher."""
        self.process.send_signal(number)


@contextmanager
def launching(
    state: Path,
    *options: str,
    command: list[str],
    run: str = "r",
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    by: tuple[str, ...] = (),
) -> Iterator[Launched]:
    """A launch, started `by` another program; whatever is left of it at the end is ended, and was a
    fault of the test."""
    process = subprocess.Popen(
        [*by, RDZV, "launch", "--rdzv-id", run, *options, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(state, **(env or {})),
        cwd=cwd,
        start_new_session=True,
    )
    launched = Launched(process, state, run)
    try:
        yield launched
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def launch(
    state: Path, *options: str, command: list[str], run: str = "r", **more: object
) -> Outcome:
    """A launch, seen to its end."""
    with launching(state, *options, command=command, run=run, **more) as launched:  # type: ignore[arg-type]
        return launched.finish()


def rdzv(state: Path, *words: str) -> str:
    """What another `rdzv` command prints, which has to end well."""
    argv, env, pipe = [RDZV, *words], environment(state), subprocess.PIPE
    return subprocess.run(argv, stdout=pipe, text=True, timeout=30, env=env, check=True).stdout


def rdzv_here(state: Path, *words: str) -> str:
    """The same of a command that this process is, which has imported all of it."""
    done = CliRunner().invoke(main, words, prog_name="rdzv", env=environment(state))
    assert done.exit_code == 0, done.output
    return done.stdout


def shell(script: str) -> list[str]:
    """COMMAND that runs a shell script on each node."""
    return ["sh", "-c", script]


def lives(pid: int) -> bool:
    """Whether the process has not ended, reaped or not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes_with(text: str) -> list[str]:
    """Command lines of living processes that hold the text: what a run must not leave."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if text in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found
