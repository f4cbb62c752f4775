"""Runs a job of a framework over emulated hosts, and reads what its ranks have said."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.frameworks.environments import ENVIRONMENTS, Environment
from tests.support.cluster import Cluster, cluster
from tests.support.launching import BIN, RDZV
from tests.support.netlab import Lab

ROOT = Path(__file__).parent.parent.parent
JOBS = Path(__file__).parent / "jobs"
EXAMPLES = ROOT / "examples"
LIMIT_SECONDS = 170.0

# Some launchers put the host's name in front of a line.
_RESULT = re.compile(
    r"RESULT framework=(\S+) rank=(\d+) world=(\d+) host=(\S+) value=(\S+) ok$", re.MULTILINE
)


@dataclass(frozen=True, order=True)
class Result:
    """What one rank printed after its check."""

    rank: int
    world: int
    host: str
    framework: str
    value: str


def results_in(text: str) -> list[Result]:
    """The results among a program's lines, in the order of ranks."""
    return sorted(
        Result(int(rank), int(world), host, framework, value)
        for framework, rank, world, host, value in _RESULT.findall(text)
    )


def environment_of(framework: Environment, folder: Path) -> dict[str, str]:
    """What a person's shell holds who has activated the framework's environment.

    `rdzv` is on the PATH, and nothing else of the environment that it lives in.
    """
    only = folder / "bin"
    only.mkdir(parents=True, exist_ok=True)
    if not (only / "rdzv").is_symlink():
        (only / "rdzv").symlink_to(RDZV)
    usual = [part for part in os.environ["PATH"].split(":") if part != str(BIN)]
    return {
        "PATH": ":".join([str(framework.bin), str(only), *usual]),
        "OMP_NUM_THREADS": "1",
        "TORCH_EXTENSIONS_DIR": str(framework.extensions),
        "HF_HUB_OFFLINE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # The hosts share few processors: a rank that waits leaves its own to those it waits for.
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "I_MPI_THREAD_YIELD": "3",
        "I_MPI_THREAD_SLEEP": "100",
    }


@dataclass(frozen=True)
class Ended:
    """A run that is over: the launcher's exit code and lines, and what the programs printed."""

    code: int
    told: str
    logs: str
    results: list[Result]

    @property
    def places(self) -> list[tuple[int, int, str]]:
        """Rank, world and host of each result."""
        return [(result.rank, result.world, result.host) for result in self.results]

    @property
    def last_line(self) -> str:
        """The launcher's last line."""
        return self.told.strip().splitlines()[-1]


def launch(
    lab: Lab,
    folder: Path,
    environment: str,
    options: Iterable[str],
    command: Sequence[str],
    **more: str,
) -> Ended:
    """Launch COMMAND on the lab's hosts with an environment's programs, and see it to its end.

    `more` are variables of the person who launches, on every host.
    """
    variables = environment_of(ENVIRONMENTS[environment], folder) | more
    with cluster(lab, folder, *options, command=command, env=variables) as run:
        if run.has_submitted():
            run.start_workers()
        outcome = run.finish(LIMIT_SECONDS)
    logs = logs_of(run)
    return Ended(outcome.code, outcome.err, logs, results_in(logs))


def logs_of(run: Cluster) -> str:
    """What the programs of all nodes printed."""
    return "\n".join(log.read_text() for log in sorted(run.folder.glob("h*/r/logs/node-*.log")))


def left_on(lab: Lab) -> list[str]:
    """Command lines of what still runs on the lab's hosts."""
    return [line for host in lab.hosts for pid in host.pids() if (line := line_of(pid))]


def line_of(pid: int) -> str:
    """A process's command line; empty when it has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
