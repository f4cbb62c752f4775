"""Sessions of a run are killed on hosts with a real sshd: others take their place."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.ssh.test_real_sshd import SSHD, Machines, served_machines
from tests.support.launching import Launched
from tests.support.losses import REPLACE, NodeLoss, Nodes, wait_for_first, waiting

pytestmark = [
    pytest.mark.netns,
    pytest.mark.schedulers("ssh", "ssh-keygen", SSHD),
    pytest.mark.timeout(300),
]


class Sessions(Nodes):
    """Nodes are sessions on the first three of four hosts; slot 1 starts again on the last."""

    def __init__(self, made: Machines) -> None:
        self.made = made

    @contextmanager
    def running(self, folder: Path, *options: str) -> Iterator[Launched]:
        run = self.made.launch("--nnodes", "3", *REPLACE, *options, command=waiting(folder))
        wait_for_first(folder)
        yield run
        self.made.wait_until_idle()

    def kill(self, slot: int) -> None:
        """SIGKILL of the session of a host's worker run: its shell and its agent."""
        host = self.made.hosts[slot]
        [begin] = re.findall(r"^rdzv: worker run (\d+)-\d+$", self.made.worker_log(host), re.M)
        victims = []
        for pid in host.pids():
            with suppress(ProcessLookupError):
                victims += [pid] if os.getsid(pid) == int(begin) else []
        assert len(victims) >= 2
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    def silence(self, slot: int) -> None:
        self.made.lab.lose(self.made.hosts[slot], 100)

    def check(self, slot: int, said: str) -> None:
        assert f"slot {slot} starts on h3, not on h{slot}" in said
        files = [name for name in self.made.files(self.made.hosts[3]) if "/ssh/" in name]
        assert [name[-8:] for name in files] == [f"-{slot}-2.log"]


class TestSessions(NodeLoss):
    @pytest.fixture
    def nodes(self, tmp_path: Path) -> Iterator[Nodes]:
        with served_machines(4, tmp_path) as made:
            yield Sessions(made)
