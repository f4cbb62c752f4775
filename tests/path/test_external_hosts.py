"""Workers that come by themselves, on emulated hosts that share nothing but a folder."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.cluster import LIMIT_SECONDS
from tests.support.launching import RDZV, environment
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]

PRINT = ["sh", "-c", 'echo "node $NODE_RANK of $(hostname)"']
COMMAND = ["--framework", "command", "--", *PRINT]


class Site:
    """Hosts, and a folder that all of them share."""

    def __init__(self, lab: Lab, folder: Path, stack: ExitStack) -> None:
        self.lab = lab
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir(mode=0o700)
        self._stack = stack

    def start(self, host: Host, *argv: str, **env: str) -> subprocess.Popen[str]:
        """Start `rdzv` on a host; it is ended with the test."""
        state = self.folder / host.name
        process = host.start([RDZV, *argv], env=environment(state, **env), stdout=subprocess.PIPE)
        self._stack.callback(self._end, process)
        return process

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.kill()
        process.communicate()

    def launch(self, host: Host, nodes: int, *options: str, **env: str) -> subprocess.Popen[str]:
        """Start the launcher."""
        words = ["launch", "--rdzv-id", "r", "--nnodes", str(nodes), *options]
        words += ["--scheduler", "external", "--set", f"JOIN_FOLDER={self.shared}"]
        return self.start(host, *words, *COMMAND, **env)

    def worker(self, host: Host, nodes: int) -> subprocess.Popen[str]:
        """Start a worker that knows nothing of its slot; all of them are told the same."""
        words = ["worker", "--nnodes", str(nodes), *COMMAND]
        return self.start(host, *words, RDZV_JOIN_FILE=str(self.shared))


@contextmanager
def site(folder: Path, hosts: int) -> Iterator[Site]:
    """So many hosts."""
    with Lab(hosts) as lab, ExitStack() as stack:
        yield Site(lab, folder, stack)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and all that it has said."""
    out, _ = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, out


def ranks_in(said: str) -> set[str]:
    """The ranks of the nodes whose programs have printed."""
    return set(re.findall(r"node (\d+) of ", said))


def test_equal_workers_come_to_rank_0_and_one_too_many_waits_as_a_spare(tmp_path: Path) -> None:
    with site(tmp_path, 4) as place:
        first, *others = place.lab.hosts
        workers = [place.worker(host, 3) for host in others]
        code, said = finish(place.launch(first, 3))
        assert code == 0, said
        until(lambda: [worker.poll() for worker in workers].count(None) == 1)
        (spare,) = [worker for worker in workers if worker.poll() is None]
        assert spare.stdout is not None
        spare.stdout.readline()  # it looks for a join string: TERM finds it ready
        spare.terminate()
        ends = [finish(worker) for worker in workers]
        assert sorted(code for code, _ in ends) == [0, 0, 128 + signal.SIGTERM], ends
        assert set().union(*(ranks_in(text) for _, text in ends)) == {"1", "2"}, ends
        assert list(place.shared.iterdir()) == []


def test_workers_come_to_a_standing_registry_that_a_launcher_without_a_node_has_told(
    tmp_path: Path,
) -> None:
    with site(tmp_path, 4) as place:
        keeper, laptop, *others = place.lab.hosts
        place.start(keeper, "serve", "--registry-address", keeper.address)
        credential = tmp_path / keeper.name / "registry" / "credential"
        until(credential.exists)
        launcher = place.launch(laptop, 2, "--no-local-node", RDZV_REGISTRY_FILE=str(credential))
        workers = [place.worker(host, 2) for host in others]
        code, said = finish(launcher)
        assert code == 0, said
        ends = [finish(worker) for worker in workers]
        assert [code for code, _ in ends] == [0, 0], ends
        assert set().union(*(ranks_in(text) for _, text in ends)) == {"0", "1"}, ends
        assert list(place.shared.iterdir()) == []
