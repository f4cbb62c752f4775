"""Starts real torchruns whose rendezvous is rdzv, and reads what they and their workers say."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import group_token_text
from tests.support.launching import BIN, environment
from tests.support.waiting import until

WORKER = Path(__file__).parent / "worker.py"
LIMIT_SECONDS = 60.0


@dataclass
class Torchrun:
    """One torchrun."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        """All that it, its helper and its workers have printed."""
        return self.log.read_text(errors="replace")

    def workers(self) -> list[dict[str, Any]]:
        """What its workers have said at their start, in order."""
        lines = self.text.splitlines()
        return [json.loads(line[7:]) for line in lines if line.startswith("WORKER ")]

    def started(self, count: int = 1) -> dict[str, Any]:
        """What the last of so many workers said, once they have started."""

        def last() -> dict[str, Any] | None:
            found = self.workers()
            assert self.process.poll() is None or len(found) >= count, self.text
            return found[count - 1] if len(found) >= count else None

        return until(last, seconds=LIMIT_SECONDS)

    def says(self, words: str) -> None:
        """Wait until it, or its helper, has said this."""
        until(lambda: words in self.text, seconds=LIMIT_SECONDS)

    def end(self) -> int:
        """Wait for its end; its exit code."""
        try:
            return self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.text) from None

    def helper(self) -> psutil.Process:
        """Its helper process."""
        return _child(self.process.pid, "_torchrun")


def _child(pid: int, word: str) -> psutil.Process:
    [found] = [one for one in psutil.Process(pid).children() if word in one.cmdline()]
    return found


@dataclass
class Job:
    """The torchruns of one run, on this machine."""

    folder: Path
    port: int
    nodes: str
    flags: tuple[str, ...]
    script: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    runs: list[Torchrun] = field(default_factory=list)

    @property
    def go(self) -> Path:
        """The file for which workers wait that are told to."""
        return self.folder / "go"

    def start(
        self, *flags: str, program: str = str(BIN / "torchrun"), **variables: str
    ) -> Torchrun:
        """Start one more."""
        log = self.folder / f"torchrun-{len(self.runs)}.log"
        words = [program, "--rdzv-backend=rdzv", f"--nnodes={self.nodes}"]
        words += [f"--rdzv-endpoint=localhost:{self.port}", "--rdzv-id=job", *self.flags, *flags]
        environ = environment(self.folder / "state", RDZV_TOKEN_FILE=str(self.folder / "token"))
        environ |= {"OMP_NUM_THREADS": "1"} | self.variables | variables
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*words, *self.script],
                env={name: value for name, value in environ.items() if value},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.runs.append(Torchrun(process, log))
        return self.runs[-1]

    def host(self) -> psutil.Process | None:
        """The process of the registry that a torchrun of this job has started."""
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                listens = [c.laddr.port for c in one.net_connections("tcp") if c.status == "LISTEN"]
                if self.port in listens and "_torchrun_host" in one.cmdline():
                    return one
        return None


@contextlib.contextmanager
def job(
    folder: Path, *script: str, nodes: str = "2", flags: tuple[str, ...] = (), **variables: str
) -> Iterator[Job]:
    """A run of this machine, of which nothing is left behind."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    new_token(folder / "token")
    made = Job(folder, port, nodes, flags, (str(WORKER), *script), variables)
    try:
        yield made
    finally:
        for one in made.runs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
        _end_what_is_left(folder)


def new_token(file: Path) -> None:
    """Write a group token."""
    file.write_text(group_token_text(new_secret()))
    file.chmod(0o600)


def _end_what_is_left(folder: Path) -> None:
    """What has this job's state folder in its environment: helpers, hosts, registries, workers."""
    state = str(folder / "state")
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get("RDZV_STATE_DIR") == state:
                one.kill()
                one.wait(10)


def nothing_is_left(made: Job) -> None:
    """Wait until no process of the job lives."""
    state = str(made.folder / "state")

    def is_left(one: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            lives = one.status() != psutil.STATUS_ZOMBIE
            return lives and one.environ().get("RDZV_STATE_DIR") == state
        return False

    until(lambda: not any(map(is_left, psutil.process_iter())), seconds=LIMIT_SECONDS)
