"""SIGKILL of an agent, the launcher or the registry in each phase of a run, with real processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from rendezvous.wire.errors import ExitCode
from tests.support.cluster import Cluster, cluster
from tests.support.launching import Launched, launch, launching, processes_with, shell
from tests.support.netlab import Lab
from tests.support.nightly import but_at_night
from tests.support.waiting import until

NODES = 3
HELD = 1
"""The slot whose agent is stopped, so that the phase cannot end."""
LATE = 2
"""The slot whose worker run waits for a file, so that the nodes are not complete before."""
PHASES = ("gathering", "verifying", "arming", "running", "finished")
LEASE = 60
"""Seconds: an agent that is stopped is not to be given up meanwhile."""


@dataclass
class Stage:
    """A launch that stands in a phase, and the means to hurt it and to let it go on."""

    launched: Launched
    phase: str
    folder: Path

    @property
    def state(self) -> Path:
        """Where the launch keeps its state."""
        return self.folder / "state"

    def agent(self, slot: int) -> psutil.Process:
        """The agent of a slot."""
        return self.launched.child("worker", f"127.0.0.{slot + 1}")

    def victim(self, who: str) -> psutil.Process:
        """The process that the fault is for; an agent is that of a node that is in."""
        match who:
            case "launcher":
                return psutil.Process(self.launched.process.pid)
            case "registry":
                return self.launched.child("_registry")
            case _:
                return self.agent(0 if self.phase == "gathering" else LATE)

    def let_go(self) -> None:
        """Nothing is held any more, and programs may end."""
        (self.folder / "come").touch()
        for process in psutil.process_iter(["cmdline", "status"]):
            stopped = process.info["status"] == psutil.STATUS_STOPPED
            if stopped and str(self.folder) in " ".join(process.info["cmdline"] or []):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)
        (self.folder / "end").touch()

    def left(self) -> list[str]:
        """What runs of it: launcher, registry, agents, keepers, programs."""
        return processes_with(str(self.folder))


def options_and_command(folder: Path, phase: str) -> tuple[list[str], list[str]]:
    """Options and COMMAND of a launch that can be held in the phase."""
    options = ["--nnodes", str(NODES), "--framework", "command", "--grace", "20"]
    if phase in ("gathering", "verifying", "arming"):
        options += ["--worker-spec", str(_late_spec(folder))]
    if phase in ("verifying", "arming"):
        options += ["--lease", str(LEASE)]
    if phase == "arming":
        options += ["--verify", "off"]
    fails = _fails_when_others_are_deaf(folder) if phase == "finished" else ""
    return options, shell(f"{fails} while [ ! -e {folder}/end ]; do sleep 0.05; done; echo done")


def _fails_when_others_are_deaf(folder: Path) -> str:
    """The program of node 0 fails once the others would outlive TERM."""
    deaf = " && ".join(f"test -e {folder}/deaf-{rank}" for rank in range(1, NODES))
    fails = f"if test $NODE_RANK = 0; then until {deaf}; do sleep 0.05; done; exit 3; fi"
    return f"{fails}; trap '' TERM; touch {folder}/deaf-$NODE_RANK;"


def _late_spec(folder: Path) -> Path:
    """Worker runs of which that of slot LATE waits for the file `come`; they end with us."""
    waits = f"while [ <<SLOT>> = {LATE} ] && [ ! -e {folder}/come ]; do sleep 0.05; done"
    spec = folder / "worker.yaml"
    spec.write_text(
        f"argv: [sh, -c, '{waits}; exec rdzv worker --parent $PPID \"$@\"', sh,"
        " <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    return spec


@contextmanager
def standing_in(phase: str, folder: Path) -> Iterator[Stage]:
    """A launch that has come to the phase and stays there; nothing of it is left behind."""
    options, command = options_and_command(folder, phase)
    with launching(folder / "state", *options, command=command) as launched:
        stage = Stage(launched, phase, folder)
        try:
            if phase in ("gathering", "verifying", "arming"):
                launched.wait_for("joined", NODES - 1)
            if phase in ("verifying", "arming"):
                stage.agent(HELD).suspend()
                (folder / "come").touch()
            launched.wait_for_phase(phase)
            if phase in ("running", "finished"):
                until(lambda: len(processes_with(f"{folder}/end")) > 0)
            yield stage
        finally:
            stage.let_go()


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
    assert "it is submitted again" in outcome.err


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


@contextmanager
def waiting_cluster(folder: Path) -> Iterator[Cluster]:
    """A launch on three hosts whose programs run until they are ended."""
    options = ("--framework", "command", "--orphan-timeout", "6", "--grace", "2")
    command = ["sh", "-c", f": {folder}; while :; do sleep 0.05; done"]
    with Lab(3) as lab, cluster(lab, folder, *options, command=command) as run:
        run.start_workers()
        until(lambda: len(list(folder.glob("h*/r/logs/node-*.log"))) == 3)
        yield run
