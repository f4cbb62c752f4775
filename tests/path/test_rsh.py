"""`rdzv rsh` between real agents on emulated hosts: what it does, and how it ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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

    def end_well(self) -> None:
        """Let the program end."""
        (self.folder / "gate").touch()
        outcome = self.finish()
        assert outcome.code == 0, outcome.err


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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One run for all tests that leave it as it is."""
    with running(tmp_path_factory.mktemp("rsh"), 3) as made:
        yield made
        made.end_well()


def pid_in(path: Path) -> int:
    """The process id that a command has written there."""
    return int(until(lambda: path.read_text().strip() if path.exists() else None))


def test_commands_reach_every_host_from_every_host(run: Running) -> None:
    tell = "hostname; echo $NODE_RANK; pwd; echo oh >&2; exit 7"
    here = os.fsencode(Path.cwd())
    for host in (1, 2):
        said = b"h%d\n%d\n%b\n" % (host, host, here)
        assert run.run(0, f"h{host}", tell) == (7, said, b"oh\n")
    assert run.run(2, "10.77.0.10", tell) == (7, b"h0\n0\n" + here + b"\n", b"oh\n")
    assert run.run(1, "node-1", "hostname") == (0, b"h1\n", b"")
    assert run.run(1, "root@h2.cluster.local", "kill -9 $$") == (137, b"", b"")


def test_many_commands_at_once_are_each_answered(run: Running) -> None:
    with ThreadPoolExecutor(64) as pool:
        told = pool.map(lambda n: run.run(n % 3, f"h{(n + 1) % 3}", f"echo {n}"), range(64))
        assert list(told) == [(0, b"%d\n" % n, b"") for n in range(64)]


def test_a_host_outside_of_the_run_is_refused_by_name(run: Running) -> None:
    words = (
        b"rdzv rsh: '10.77.0.99' is no node of run 'r', which has 10.77.0.10 (h0, node-0), "
        b"10.77.0.11 (h1, node-1), 10.77.0.12 (h2, node-2)\n"
    )
    assert run.run(0, "10.77.0.99", "true") == (255, b"", words)


def test_a_caller_that_is_killed_ends_its_command_on_the_other_host(
    run: Running, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    caller = run.ask(0, "h1", f"setsid sh -c 'echo $$ > {pid}; exec sleep 300' & wait")
    remote = pid_in(pid)
    caller.kill()
    until(lambda: not psutil.pid_exists(remote))
    caller.communicate()


def test_commands_go_on_while_the_registry_is_killed_and_started_again(
    run: Running, tmp_path: Path
) -> None:
    count, pid, gate = tmp_path / "count", tmp_path / "pid", tmp_path / "inner"
    first = f"echo x >> {count}; seq 100000; echo $$ > {pid}"
    caller = run.ask(0, "h1", f"{first}; until [ -e {gate} ]; do sleep 0.1; done; seq 100000")
    before = run.registry()
    before.kill()
    assert run.run(0, "h1", "echo late") == (0, b"late\n", b"")
    assert run.registry().pid != before.pid
    gate.touch()
    out, err = caller.communicate(timeout=_LIMIT_SECONDS)
    assert (caller.returncode, err) == (0, b"")
    assert out == b"".join(b"%d\n" % n for n in range(1, 100_001)) * 2
    assert count.read_text() == "x\n"


def test_what_a_command_prints_fills_no_memory_on_its_way(run: Running) -> None:
    processes = [run.registry(), psutil.Process(run.workers[1].pid)]
    before = [process.memory_info().rss for process in processes]
    caller = run.ask(0, "h1", "head -c 10000000 /dev/zero")
    assert caller.stdout is not None
    size, most = 0, before
    while piece := caller.stdout.read(100_000):
        size += len(piece)
        most = [max(m, p.memory_info().rss) for m, p in zip(most, processes, strict=True)]
    caller.communicate()
    assert (size, caller.returncode) == (10_000_000, 0)
    assert max(after - old for old, after in zip(before, most, strict=True)) < 7 << 20


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
            "rdzv rsh: the run is ending: node 1 (h1, slot 1) was lost: its agent is gone: the "
            "connection was closed and no new one came; the others are being stopped\n"
        )
        assert (caller.returncode, err.decode()) == (255, words)
        until(lambda: not psutil.pid_exists(remote))
        assert run.finish().code == 86
        late = subprocess.run([rsh, "h1", "true"], capture_output=True, text=True, check=False)
    assert late.returncode == 255
    assert late.stderr.startswith("rdzv rsh: no agent of a node at /")
