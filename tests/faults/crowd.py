"""Runs of lean members over the hosts of a lab, with a standing registry on host 0."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.launching import RDZV, environment
from tests.support.netlab import Host, Lab
from tests.support.waiting import until


@dataclass
class Crowd:
    """A standing registry in a lab, and the processes that members live in."""

    lab: Lab
    credential: Path

    def start(
        self, host: Host, run: str, *what: object, nodes: int, lease: float, seconds: float
    ) -> subprocess.Popen[str]:
        """Start members of these slots on a host, or `watch`."""
        numbers = (str(nodes), str(lease), str(seconds))
        words = [str(self.credential), run, *numbers, *(str(word) for word in what)]
        return host.start(
            [sys.executable, "-m", "tests.faults.members", *words], stdout=subprocess.PIPE
        )


@contextmanager
def crowd(lab: Lab, folder: Path) -> Iterator[Crowd]:
    """A registry of `rdzv serve` on the lab's first host, over TLS."""
    credential = folder / "serve" / "registry" / "credential"
    with (folder / "serve.log").open("w") as log:
        lab.hosts[0].start(
            [RDZV, "serve", "--state-dir", str(folder / "serve")],
            env=environment(folder),
            stdout=log,
        )
    until(credential.exists)
    yield Crowd(lab, credential)


def read_lines(processes: Sequence[subprocess.Popen[str]], seconds: float) -> list[dict[str, Any]]:
    """What members have said until all have ended."""
    told = [process.communicate(timeout=seconds)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), told
    return [json.loads(line) for text in told for line in text.splitlines()]


def wait_for_go(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Until the first member of each process runs: the go is one moment for all."""
    for process in processes:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert json.loads(line)["what"] == "go", line
