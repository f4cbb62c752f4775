"""Workers that come by themselves, on emulated hosts that share nothing but a folder."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import LIMIT_SECONDS
from tests.support.launching import RDZV, environment, shell
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]

COMMAND = ["--framework", "command", "--", *shell('echo "node $NODE_RANK of $(hostname)"')]


def test_equal_workers_come_to_rank_0_and_one_too_many_waits_as_a_spare(tmp_path: Path) -> None:
    """They know nothing of their slots: all of them are told the same."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)

    def start(host: Host, *argv: str, **env: str) -> subprocess.Popen[str]:
        own = environment(tmp_path / host.name, **env)
        return host.start([RDZV, *argv, *COMMAND], env=own, stdout=subprocess.PIPE)

    with Lab(4) as lab:
        first, *others = lab.hosts
        workers = [start(host, "worker", RDZV_JOIN_FILE=str(shared)) for host in others]
        external = ("--scheduler", "external", "--set", f"JOIN_FOLDER={shared}")
        launcher = start(first, "launch", "--rdzv-id", "r", "--nnodes", "3", *external)
        said, _ = launcher.communicate(timeout=LIMIT_SECONDS)
        assert launcher.returncode == 0, said
        until(lambda: [worker.poll() for worker in workers].count(None) == 1)
        (spare,) = [worker for worker in workers if worker.poll() is None]
        assert spare.stdout is not None
        spare.stdout.readline()  # it looks for a join string: TERM finds it ready
        spare.terminate()
        told = [worker.communicate(timeout=LIMIT_SECONDS)[0] for worker in workers]
    codes = sorted(worker.returncode for worker in workers)
    assert codes == [0, 0, 128 + signal.SIGTERM], told
    assert sorted(re.findall(r"node (\d+) of ", "".join(told))) == ["1", "2"], told
    assert list(shared.iterdir()) == []
