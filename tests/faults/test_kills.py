"""SIGKILL of an agent, the launcher or the registry in each phase of a run, with real processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.faults.stage import NODES, PHASES, options_and_command, standing_in
from tests.support.cluster import Cluster, cluster
from tests.support.launching import launch, processes_with
from tests.support.netlab import Lab
from tests.support.nightly import but_at_night
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

BEFORE_GO = PHASES[:3]


OK = f"rdzv: run 'r' ok: all {NODES} nodes ended with exit code 0"


@pytest.mark.parametrize("phase", but_at_night(BEFORE_GO, "arming"))
def test_a_killed_agent_is_replaced_before_the_go(phase: str, tmp_path: Path) -> None:
    with standing_in(phase, tmp_path) as stage:
        stage.victim("agent").kill()
        stage.launched.wait_for("joined", NODES if phase == "gathering" else NODES + 1)
        stage.let_go()
        outcome = stage.launched.finish()
        until(lambda: not stage.left())
    assert (outcome.code, outcome.last_line.startswith(OK)) == (0, True), outcome.err
    assert "it is submitted again as generation 2" in outcome.err


@pytest.mark.parametrize("phase", but_at_night(PHASES[:4], "running"))
def test_a_killed_registry_disturbs_nobody(phase: str, tmp_path: Path) -> None:
    with standing_in(phase, tmp_path) as stage:
        stage.victim("registry").kill()
        stage.launched.wait_for("restarted")
        stage.let_go()
        outcome = stage.launched.finish()
        until(lambda: not stage.left())
    assert (outcome.code, outcome.last_line.startswith(OK)) == (0, True), outcome.err
    kinds = [event["kind"] for event in stage.launched.events()]
    assert (kinds.count("joined"), kinds.count("lost")) == (NODES, 0)


@pytest.mark.parametrize("phase", but_at_night(BEFORE_GO, "gathering"))
def test_a_killed_launcher_is_resumed_before_the_go_by_the_same_command(
    phase: str, tmp_path: Path
) -> None:
    options, command = options_and_command(tmp_path, phase)
    with standing_in(phase, tmp_path) as stage:
        stage.victim("launcher").kill()
        stage.launched.process.wait()
        stage.let_go()
        until(lambda: not stage.left())
    again = time.monotonic()
    outcome = launch(stage.state, *options, command=command)
    seconds = time.monotonic() - again
    assert (outcome.code, outcome.last_line.startswith(OK)) == (0, True), outcome.err
    assert seconds < 30
    until(lambda: not stage.left())


@pytest.mark.parametrize("phase", but_at_night(["running", "finished"], "running"))
def test_a_killed_launcher_takes_the_run_with_it_after_the_go(phase: str, tmp_path: Path) -> None:
    with standing_in(phase, tmp_path) as stage:
        stage.victim("launcher").kill()
        stage.launched.process.wait()
        if phase == "finished":
            stage.let_go()
        until(lambda: not stage.left(), 30)
    logs = [log.read_text() for log in (stage.launched.folder / "logs").glob("agent-*.log")]
    assert "SIGTERM" in "".join(logs)


@pytest.mark.parametrize("who", but_at_night(["agent", "registry"], "registry"))
def test_what_is_killed_after_the_result_leaves_the_result_as_it_was(
    who: str, tmp_path: Path
) -> None:
    with standing_in("finished", tmp_path) as stage:
        stage.victim(who).kill()
        stage.let_go()
        outcome = stage.launched.finish()
        until(lambda: not stage.left())
    assert outcome.code == 3
    assert "node 0" in outcome.last_line


@pytest.mark.netns
def test_remote_nodes_end_at_once_when_the_launcher_is_killed(tmp_path: Path) -> None:
    with waiting_cluster(tmp_path) as run:
        run.launcher.kill()
        run.finish()
        until(lambda: not processes_with(str(tmp_path)))
    cancelled = int(ExitCode.CANCELLED)
    assert [worker.returncode for worker in run.workers.values()] == [cancelled] * 2, run.told
    words = "run 'r' was cancelled: its launcher was killed"
    assert all(words in told for told in run.told.values()), run.told


@pytest.mark.netns
def test_remote_nodes_end_after_their_orphan_time_out_when_the_launcher_has_no_time_to_tell(
    tmp_path: Path,
) -> None:
    """As when the machine of rank 0 loses its power, but for the kernel's word to the peers."""
    with waiting_cluster(tmp_path) as run:
        killed = time.monotonic()
        registry = run.registry()
        run.launcher.send_signal(signal.SIGSTOP)  # it would start the registry again
        registry.kill()
        run.launcher.kill()
        run.finish()
        until(lambda: not processes_with(str(tmp_path)))
        seconds = time.monotonic() - killed
    assert [worker.returncode for worker in run.workers.values()] == [85, 85], run.told
    said = [line for line in run.told[1].splitlines() if "has not answered for" in line]
    assert said, run.told
    assert 3 < seconds < 20


@contextmanager
def waiting_cluster(folder: Path) -> Iterator[Cluster]:
    """A launch on three hosts whose programs run until they are ended."""
    options = ("--framework", "command", "--orphan-timeout", "6", "--grace", "2")
    command = ["sh", "-c", f": {folder}; while :; do sleep 0.05; done"]
    with Lab(3) as lab, cluster(lab, folder, *options, command=command) as run:
        run.start_workers()
        until(lambda: len(list(folder.glob("h*/r/logs/node-*.log"))) == 3)
        yield run
