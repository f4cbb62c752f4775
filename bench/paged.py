"""A run as a launch leaves it, and the `rdzv ui` that shows it, started as a user does."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.registry import Registry
from launcher.state.launch_record import LaunchRecord
from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import RunKeys

BIN = Path(sys.executable).parent
_LIMIT_SECONDS = 60.0
_LINK = re.compile(rb"http://\S+/#t=\S+(?=\s)")


@dataclass(frozen=True)
class Memory:
    """Bytes.

    Attributes:
        pss: Of all its processes; what they share counts once.
        rss: Of the one that serves.
    """

    pss: int
    rss: int


class Ui:
    """A `rdzv ui` at the end of a terminal, where Enter gives another link."""

    def __init__(self, process: psutil.Popen, terminal: int) -> None:
        self._process = process
        self._terminal = terminal
        self._said = b""
        self._links = 0

    def link(self) -> str:
        """A link that was not used yet."""
        if self._links:
            os.write(self._terminal, b"\n")
        self._links += 1
        deadline = time.monotonic() + _LIMIT_SECONDS
        while len(found := _LINK.findall(self._said)) < self._links:
            assert time.monotonic() < deadline, self._said.decode()
            with contextlib.suppress(OSError):  # nobody has the other end any more
                self._said += os.read(self._terminal, 65_536)
        return str(found[self._links - 1].decode())

    def processes(self) -> list[psutil.Process]:
        """The one that serves, and its clerk."""
        return [self._process, *self._process.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """CPU time that they have used, by the clock of each, see `clock_getcpuclockid(3)`: /proc
        has it in steps of 10 ms, which are a tenth of what they use in 10 s."""
        clocks = [~one.pid << 3 | 2 for one in self.processes()]
        return sum(map(time.clock_gettime, clocks))  # noqa: TID251 (no wall clock)

    def memory(self) -> Memory:
        """What they hold now."""
        pss = sum(one.memory_full_info().pss for one in self.processes())
        return Memory(int(pss), int(self._process.memory_info().rss))


@contextlib.contextmanager
def ui_of(root: Path, run: str, *, module: tuple[str, ...] = ()) -> Iterator[Ui]:
    """The page of a run; ended afterwards.

    Args:
        root: The folder of all runs.
        run: The run.
        module: Runs in place of the command: a profiler around it.
    """
    command = [sys.executable, "-m", *module] if module else [str(BIN / "rdzv")]
    ours, its = os.openpty()
    process = psutil.Popen(
        [*command, "ui", run, "--state-dir", str(root)],
        stdin=its,
        stdout=its,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Ui(process, ours)
    finally:
        process.terminate()
        process.wait(_LIMIT_SECONDS)
        os.close(ours)


@contextlib.contextmanager
def folder_of(registry: Registry, keys: RunKeys, nodes: int) -> Iterator[Path]:
    """The folder of all runs, in which this one has a launcher that lives: this process."""
    with tempfile.TemporaryDirectory(prefix="rdzv-bench-") as folder:
        state = StateDir(Path(folder), keys.run)
        state.acquire()
        state.secret(lambda: keys.secret)
        record = LaunchRecord(
            run=keys.run,
            launch_id=keys.launch_id,
            scheduler="local",
            place=registry.place.to_json(),
            host="localhost",
            nodes=str(nodes),
            options={"command": ["python", "train.py"]},
            pid=os.getpid(),
        )
        state.write_record(record)
        yield Path(folder)
        state.release()
