"""Launches one run over the hosts of a lab, as a person would with the manual scheduler."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.launching import RDZV, Launched, Outcome, environment
from tests.support.netlab import Lab
from tests.support.waiting import until
from worker.offer.refusal import TELL_SECONDS

# Programs of an emulated cluster share two cores with each other.
LIMIT_SECONDS = 100.0
_MANUAL = ("--rdzv-id", "r", "--scheduler", "manual")


class Cluster:
    """A launcher on host 0, and the means to start the other nodes' worker runs.

    `verb` is what rdzv is to do; `env`, variables on every host.
    """

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        *options: str,
        command: Sequence[str] = (),
        verb: str = "launch",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.told: dict[int, str] = {}
        self._env = env or {}
        self.lab = lab
        self.folder = folder
        self._argv = [RDZV, verb, "--nnodes", str(len(lab.hosts)), *_MANUAL, *options]
        self._argv += ["--", *command] if command else []
        self.launcher = self.launch()
        self.workers: dict[int, subprocess.Popen[str]] = {}

    def launch(self) -> subprocess.Popen[str]:
        """Start the launcher; again, after it was killed."""
        self.launcher = self.start(0, self._argv)
        return self.launcher

    def start(self, host: int, argv: list[str], **env: str) -> subprocess.Popen[str]:
        """Start a command on a host; its runs' state lives in a folder of the host's own."""
        return self.lab.hosts[host].start(
            argv, env=environment(self.state(host), **{**self._env, **env}), stdout=subprocess.PIPE
        )

    def state(self, host: int) -> Path:
        """The state folder of a host: the emulated hosts share this machine's files."""
        return self.folder / f"h{host}"

    def script(self, slot: int, generation: int = 1) -> Path:
        """What the manual scheduler has written for a slot; waits for it."""
        path = self._script(slot)
        until(lambda: path.exists() and f"-{slot}-{generation} " in path.read_text())
        return path

    def _script(self, slot: int) -> Path:
        return self.state(0) / "r" / "submissions" / f"slot-{slot}.sh"

    def has_submitted(self) -> bool:
        """Whether the launcher came to its first worker run; waits for it, or for its end."""
        until(lambda: self._script(1).exists() or self.launcher.poll() is not None)
        return self._script(1).exists()

    def start_workers(self, *slots: int) -> None:
        """Start the worker runs of these slots, each on the host of its number."""
        for slot in slots or range(1, len(self.lab.hosts)):
            self.workers[slot] = self.start(slot, ["sh", str(self.script(slot))])

    @property
    def launched(self) -> Launched:
        """The launch, to look into its journal."""
        return Launched(self.launcher, self.state(0), "r")

    def finish(
        self, seconds: float = LIMIT_SECONDS, workers: float = TELL_SECONDS + 30.0
    ) -> Outcome:
        """Wait for the launcher, and then so many seconds for each worker.

        A worker that comes when the registry is gone tries for some time to tell why it refuses.
        """
        told, _ = self.launcher.communicate(timeout=seconds)
        self.told = {
            slot: worker.communicate(timeout=workers)[0] for slot, worker in self.workers.items()
        }
        return Outcome(self.launcher.returncode, "", told)

    def registry(self) -> psutil.Process:
        """The registry's process."""
        return self.launched.child("_registry")

    def printed(self, first: str) -> list[str]:
        """The lines of all programs that begin so, by host."""
        logs = sorted(self.folder.glob("h*/r/logs/node-*.log"))
        lines = [line for log in logs for line in log.read_text().splitlines()]
        return [line for line in lines if line.startswith(first)]


@contextmanager
def cluster(lab: Lab, folder: Path, *options: str, **more: Any) -> Iterator[Cluster]:
    """A cluster whose processes are ended with the lab."""
    yield Cluster(lab, folder, *options, **more)
