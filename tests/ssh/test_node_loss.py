"""Sessions of a run are killed on hosts with a real sshd: others take their place."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.ssh.test_real_sshd import LIMIT_SECONDS, SSHD, Machines, served_machines
from tests.support.launching import Launched
from tests.support.losses import (
    REPLACE,
    SOON,
    check_end,
    end,
    wait_for_first,
    wait_for_second,
    waiting,
)
from tests.support.netlab import Host
from tests.support.waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.schedulers("ssh", "ssh-keygen", SSHD),
    pytest.mark.timeout(180),
]


@contextmanager
def running(made: Machines, folder: Path, *options: str) -> Iterator[Launched]:
    """Three nodes whose programs have started."""
    launched = made.launch(*REPLACE, *options, command=waiting(folder))
    wait_for_first(folder)
    yield launched
    made.wait_until_idle()


def kill(made: Machines, host: Host) -> float:
    """SIGKILL of the session of a host's worker run: its shell and its agent; returns when."""
    [begin] = re.findall(r"^rdzv: worker run (\d+)-\d+$", made.worker_log(host), re.M)
    victims = []
    for pid in host.pids():
        with suppress(ProcessLookupError):
            victims += [pid] if os.getsid(pid) == int(begin) else []
    assert len(victims) >= 2
    at = time.monotonic()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    return at


@pytest.mark.nightly
def test_a_killed_session_is_submitted_again(tmp_path: Path) -> None:
    with served_machines(3, tmp_path) as made:
        with running(made, tmp_path) as launched:
            lost = kill(made, made.hosts[1])
            wait_for_second(tmp_path, lost, "its session killed, submitted again")
            end(tmp_path)
            outcome = launched.finish(LIMIT_SECONDS)
        files = [name for name in made.files(made.hosts[1]) if "/ssh/" in name]
    check_end(tmp_path, outcome.code, outcome.out)
    assert "slot 1 is submitted again (replacement 1 of 3)" in outcome.out
    assert [name[-8:] for name in files] == ["-1-1.log", "-1-2.log"]


def test_a_killed_session_is_submitted_again_on_the_next_host_of_the_list(tmp_path: Path) -> None:
    with served_machines(4, tmp_path) as made:
        with running(made, tmp_path, "--nnodes", "3") as launched:
            lost = kill(made, made.hosts[1])
            wait_for_second(tmp_path, lost, "its session killed, on the next host")
            end(tmp_path)
            outcome = launched.finish(LIMIT_SECONDS)
        files = [name for name in made.files(made.hosts[3]) if "/ssh/" in name]
    check_end(tmp_path, outcome.code, outcome.out)
    assert "slot 1 starts on h3, not on h1" in outcome.out
    assert [name[-8:] for name in files] == ["-1-2.log"]


@pytest.mark.nightly
def test_a_standby_steps_in_for_a_killed_session(tmp_path: Path) -> None:
    with served_machines(4, tmp_path) as made, running(made, tmp_path, "--standby", "1") as run:
        wait_for_second(tmp_path, kill(made, made.hosts[1]), "its session killed, a standby there")
        end(tmp_path)
        outcome = run.finish(LIMIT_SECONDS)
    check_end(tmp_path, outcome.code, outcome.out)
    assert "takes the place of node 1 (h1)" in outcome.out


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_standby_steps_in_for_a_host_that_nobody_reaches_any_more(tmp_path: Path) -> None:
    """No next standby can be started there, though it is tried: the run goes on without."""
    options = ("--standby", "1", *SOON)
    with served_machines(4, tmp_path) as made, running(made, tmp_path, *options) as run:
        lost = time.monotonic()
        made.lab.lose(made.hosts[1], 100)
        wait_for_second(tmp_path, lost, "its host silent, a standby there")
        until(lambda: str(run.events()).count("its submission failed") == 3, LIMIT_SECONDS)
        end(tmp_path)
        outcome = run.finish(LIMIT_SECONDS)
    check_end(tmp_path, outcome.code, outcome.out)
    assert "ssh: connect to host h1 port 22" in outcome.out
    assert re.search(r"worker run rdzv-\w+-1-1 .* may still exist", outcome.out)
