"""`rdzv rsh` between real agents on emulated hosts: what it does, and how it ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import Cluster
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]

_LIMIT_SECONDS = 60.0


class Running(Cluster):
    """A cluster whose program waits, and processes that speak to its agents as it could."""

    def rsh(self, host: int) -> str:
        """What mpirun would call on this host."""
        found = until(lambda: list(self.state(host).glob(f"r/logs/node-{host}/bin/rdzv-rsh")))
        return str(found[0])

    def ask(self, host: int, *words: str) -> subprocess.Popen[bytes]:
        """A process of this host's program calls `rdzv rsh` with these words."""
        argv = [self.rsh(host), *words]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, host: int, *words: str) -> tuple[int, bytes, bytes]:
        """The same to its end: exit code, and what it has printed."""
        process = self.ask(host, *words)
        out, err = process.communicate(timeout=_LIMIT_SECONDS)
        return process.returncode, out, err


@contextmanager
def running(folder: Path, hosts: int) -> Iterator[Running]:
    """A run whose programs run: from then on their agents take commands."""
    waits = f": > {folder}/up-$NODE_RANK; until [ -e {folder}/gate ]; do sleep 0.1; done"
    options = ("--framework", "command", "--allow-exec")
    with Lab(hosts) as lab:
        run = Running(lab, folder, *options, command=["sh", "-c", waits])
        run.start_workers()
        until(lambda: len(list(folder.glob("up-*"))) == hosts)
        yield run


def pid_in(path: Path) -> int:
    """The process id that a command has written there."""
    return int(until(lambda: path.read_text().strip() if path.exists() else None))


@pytest.mark.faults
def test_an_agent_that_is_killed_takes_its_commands_along_and_the_caller_is_told(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    with running(tmp_path, 2) as run:
        rsh = run.rsh(0)
        caller = run.ask(0, "h1", f"echo $$ > {pid}; exec sleep 300")
        remote = pid_in(pid)
        psutil.Process(run.workers[1].pid).kill()
        _, err = caller.communicate(timeout=_LIMIT_SECONDS)
        words = (
            "rdzv rsh: the run is ending: node 1 (h1) was lost: its agent is gone: "
            "its connection was closed and it did not reconnect; the others are being "
            "stopped\n"
        )
        assert (caller.returncode, err.decode()) == (255, words)
        until(lambda: not psutil.pid_exists(remote))
        assert run.finish().code == 86
        late = subprocess.run([rsh, "h1", "true"], capture_output=True, text=True, check=False)
    assert late.returncode == 255
    assert late.stderr.startswith("rdzv rsh: no agent of a node at /")
