"""Workers that come by themselves, on emulated hosts that share nothing but a folder."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import LIMIT_SECONDS
from tests.support.launching import RDZV, environment, shell
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]

COMMAND = ["--framework", "command", "--", *shell('echo "node $NODE_RANK of $(hostname)"')]


class Site:
    """Hosts, and a folder that all of them share."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir(mode=0o700)

    def start(self, host: Host, *argv: str, **env: str) -> subprocess.Popen[str]:
        """Start `rdzv` on a host; it is ended with the lab."""
        own = environment(self.folder / host.name, **env)
        return host.start([RDZV, *argv], env=own, stdout=subprocess.PIPE)

    def launch(self, host: Host, nodes: int, *options: str, **env: str) -> tuple[int, str]:
        """A launcher, seen to its end."""
        words = ["launch", "--rdzv-id", "r", "--nnodes", str(nodes), *options]
        words += ["--scheduler", "external", "--set", f"JOIN_FOLDER={self.shared}"]
        return finish(self.start(host, *words, *COMMAND, **env))

    def worker(self, host: Host) -> subprocess.Popen[str]:
        """Start a worker that knows nothing of its slot; all of them are told the same."""
        return self.start(host, "worker", *COMMAND, RDZV_JOIN_FILE=str(self.shared))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Site]:
    """Four hosts."""
    with Lab(4) as lab:
        yield Site(lab, tmp_path)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and all that it has said."""
    out, _ = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, out


def ranks_in(ends: list[tuple[int, str]]) -> list[str]:
    """The ranks of the nodes whose programs have printed."""
    return sorted(rank for _, said in ends for rank in re.findall(r"node (\d+) of ", said))


def test_equal_workers_come_to_rank_0_and_one_too_many_waits_as_a_spare(place: Site) -> None:
    first, *others = place.lab.hosts
    workers = [place.worker(host) for host in others]
    code, said = place.launch(first, 3)
    assert code == 0, said
    until(lambda: [worker.poll() for worker in workers].count(None) == 1)
    (spare,) = [worker for worker in workers if worker.poll() is None]
    assert spare.stdout is not None
    spare.stdout.readline()  # it looks for a join string: TERM finds it ready
    spare.terminate()
    ends = [finish(worker) for worker in workers]
    assert sorted(code for code, _ in ends) == [0, 0, 128 + signal.SIGTERM], ends
    assert ranks_in(ends) == ["1", "2"], ends
    assert list(place.shared.iterdir()) == []


def test_workers_come_to_a_standing_registry_that_a_launcher_without_a_node_has_told(
    place: Site,
) -> None:
    keeper, laptop, *others = place.lab.hosts
    place.start(keeper, "serve", "--registry-address", keeper.address)
    credential = place.folder / keeper.name / "registry" / "credential"
    until(credential.exists)
    workers = [place.worker(host) for host in others]
    code, said = place.launch(laptop, 2, "--no-local-node", RDZV_REGISTRY_FILE=str(credential))
    assert code == 0, said
    ends = [finish(worker) for worker in workers]
    assert [code for code, _ in ends] == [0, 0], ends
    assert ranks_in(ends) == ["0", "1"], ends
    assert list(place.shared.iterdir()) == []
