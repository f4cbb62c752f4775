"""Workers that come by themselves, to a launcher that submits nothing."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.launching import RDZV, environment, shell
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

NODE = ["--framework", "command", "--", *shell("echo rank $NODE_RANK of $NNODES")]
LIMIT_SECONDS = 100.0

pytestmark = [pytest.mark.netns, pytest.mark.timeout(200)]


@dataclass
class Hosts:
    """Emulated hosts that share a folder of join strings."""

    lab: Lab
    folder: Path

    @property
    def join(self) -> Path:
        """Where the launcher puts join strings."""
        return self.folder / "join"

    def start(self, host: Host, *words: str, **env: str) -> subprocess.Popen[str]:
        """Start an `rdzv` command on a host, with a state folder of its own."""
        own = environment(self.folder / host.name, **env)
        return host.start([RDZV, *words], env=own, stdout=subprocess.PIPE)

    def launch(self, nodes: int, **env: str) -> subprocess.Popen[str]:
        """Start the launcher on the first host; it is a node too."""
        words = ["--scheduler", "external", "--set", f"JOIN_FOLDER={self.join}"]
        return self.start(
            self.lab.hosts[0],
            "launch",
            "--rdzv-id",
            "r",
            "--nnodes",
            str(nodes),
            *words,
            *NODE,
            **env,
        )

    def work(self, number: int) -> subprocess.Popen[str]:
        """Start a worker, which has nothing but the folder: the same words on each host."""
        return self.start(self.lab.hosts[number], "worker", *NODE, RDZV_JOIN_FILE=str(self.join))

    def wait_until_taken(self, count: int) -> None:
        """Until so many join strings were taken."""
        until(lambda: len(list(self.join.glob("*.taken"))) == count, LIMIT_SECONDS)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Four hosts."""
    with Lab(4) as lab:
        (tmp_path / "join").mkdir()
        yield Hosts(lab, tmp_path)


def finish(process: subprocess.Popen[str]) -> list[str]:
    """The lines that it has printed; it has to end well."""
    said = process.communicate(timeout=LIMIT_SECONDS)[0]
    assert process.returncode == 0, said
    return said.splitlines()


def ranks_of(*processes: subprocess.Popen[str]) -> list[str]:
    said = [line for process in processes for line in finish(process)]
    return sorted(line for line in said if line.startswith("rank"))


def test_workers_without_a_rank_come_before_and_after_their_launcher(hosts: Hosts) -> None:
    workers = [hosts.work(1), hosts.work(2)]
    launcher = hosts.launch(4)
    hosts.wait_until_taken(2)
    workers.append(hosts.work(3))
    ranks = ranks_of(launcher, *workers)
    assert ranks == ["rank 0 of 4", "rank 1 of 4", "rank 2 of 4", "rank 3 of 4"]
    assert list(hosts.join.iterdir()) == []


@pytest.mark.nightly
def test_a_spare_takes_the_place_of_a_worker_that_is_lost_before_the_start(hosts: Hosts) -> None:
    launcher = hosts.launch(3)
    lost = hosts.work(1)
    assert launcher.stdout is not None
    while "(h1) joined" not in launcher.stdout.readline():
        assert launcher.poll() is None
    lost.send_signal(signal.SIGKILL)
    ranks = ranks_of(launcher, hosts.work(2), hosts.work(3))
    assert ranks == ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]


@contextmanager
def registry(hosts: Hosts) -> Iterator[str]:
    """A standing registry on the last host; gives the file that a launcher needs."""
    host = hosts.lab.hosts[-1]
    process = hosts.start(host, "serve", "--registry-address", host.address)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().rsplit("RDZV_REGISTRY_FILE=", 1)[1].strip()
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_SECONDS)


@pytest.mark.nightly
def test_workers_come_to_a_standing_registry(hosts: Hosts) -> None:
    with registry(hosts) as file:
        launcher = hosts.launch(3, RDZV_REGISTRY_FILE=file)
        ranks = ranks_of(launcher, hosts.work(1), hosts.work(2))
    assert ranks == ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]
