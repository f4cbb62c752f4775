"""Processes that stand still for longer than leases last, and come back."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.launching import (
    RDZV,
    Launched,
    Outcome,
    environment,
    launching,
    processes_with,
    shell,
)
from tests.support.record import ROUNDS, record
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

COMMAND = ("--nnodes", "3", "--framework", "command", "--grace", "2")
# The short lease makes a short pause long; a long run uses what users have.
LEASE = ("--lease", "4") if ROUNDS == 1 else ()
PAUSE = 12.0 if ROUNDS == 1 else 60.0
DOWN = 10.0 if ROUNDS == 1 else 20.0
LEASE_WORDS = f"at lease {LEASE[1] if LEASE else 15}"
OK = "rdzv: run 'r' ok: all 3 nodes ended with exit code 0"


def until_end(folder: Path) -> list[str]:
    return shell(f"while [ ! -e {folder}/end ]; do sleep 0.05; done; echo done")


def finish_well(launched: Launched, folder: Path) -> Outcome:
    """The programs are told to end; nobody had died before."""
    (folder / "end").touch()
    outcome = launched.finish()
    assert (outcome.code, outcome.last_line.startswith(OK)) == (0, True), outcome.err
    assert "was lost" not in outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] done", "[1] done", "[2] done"]
    until(lambda: not processes_with(f"{folder}/end"))
    return outcome


@pytest.mark.nightly
def test_a_registry_that_stood_still_for_leases_has_lost_nobody(tmp_path: Path) -> None:
    with launching(tmp_path / "s", *COMMAND, *LEASE, command=until_end(tmp_path)) as launched:
        launched.wait_for_phase("running")
        registry = launched.child("rendezvous.server")
        registry.suspend()
        time.sleep(PAUSE)
        registry.resume()
        time.sleep(5)  # sweeps and beats come after it
        outcome = finish_well(launched, tmp_path)
    assert float(outcome.last_line.removesuffix(" s").rpartition(" ")[2]) > PAUSE
    record(f"registry stopped for {PAUSE:.0f} s (SIGSTOP) {LEASE_WORDS}", outcome)


def agent_lines(launched: Launched) -> list[str]:
    """What the agents have said, without the time."""
    logs = sorted((launched.folder / "logs").glob("agent-*.log"))
    return [line.partition("INFO ")[2] for log in logs for line in log.read_text().splitlines()]


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    """But for those that have ended: the programs start one short process after another."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def test_a_launch_that_stood_still_as_a_whole_goes_on(tmp_path: Path) -> None:
    """As after `docker pause`, or on a laptop that was asleep."""
    options = (*COMMAND, "--lease", "3", "--orphan-timeout", "4")
    with launching(tmp_path / "s", *options, command=until_end(tmp_path)) as launched:
        launched.wait_for_phase("running")
        until(lambda: len(processes_with(f"{tmp_path}/end")) >= 10, 60)
        everyone = [psutil.Process(launched.process.pid), *launched.children()]
        try:
            signal_all(everyone, signal.SIGSTOP)
            time.sleep(9)
        finally:
            signal_all(everyone, signal.SIGCONT)
        time.sleep(6)
        finish_well(launched, tmp_path)


@pytest.mark.nightly
def test_a_launcher_stopped_from_the_keyboard_for_long_goes_on(tmp_path: Path) -> None:
    options = (*COMMAND, "--orphan-timeout", "3")
    with launching(tmp_path / "s", *options, command=until_end(tmp_path)) as launched:
        launched.wait_for_phase("running")
        launched.signal(signal.SIGSTOP)
        time.sleep(8)
        launched.signal(signal.SIGCONT)
        time.sleep(3)
        finish_well(launched, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [3, 9])
def test_nodes_end_when_the_orphan_time_out_is_over_and_not_much_later(
    seconds: int, tmp_path: Path
) -> None:
    options = (*COMMAND, "--orphan-timeout", str(seconds))
    with launching(tmp_path / "s", *options, command=until_end(tmp_path)) as launched:
        launched.wait_for_phase("running")
        until(lambda: len(processes_with(f"{tmp_path}/end")) >= 10, 60)
        registry = launched.child("rendezvous.server")
        # Programs, their keepers and the agents.
        nodes = [p for p in launched.children() if p.pid != registry.pid]
        stopped = time.monotonic()
        registry.suspend()
        _, alive = psutil.wait_procs(nodes, 3 * seconds + 10)
        took = time.monotonic() - stopped
        try:
            outcome = launched.finish()
        finally:
            if registry.is_running():
                registry.kill()
    assert not alive
    assert outcome.code == 85
    assert seconds - 2.5 < took < seconds + 8
    record(f"registry stopped for good, --orphan-timeout {seconds}", outcome, took)


@dataclass
class Standing:
    """A standing registry that can be taken down and started again."""

    folder: Path
    port: int
    process: subprocess.Popen[str]

    @property
    def file(self) -> Path:
        """What launchers are given."""
        return self.folder / "registry" / "credential"

    def start(self) -> None:
        """Start it again, as its supervisor would."""
        self.process = _serve(self.folder, self.port)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


def _serve(folder: Path, port: int, **env: str) -> subprocess.Popen[str]:
    options = ("--state-dir", str(folder), "--registry-address", "127.0.0.1")
    with (folder.parent / "serve.log").open("a") as log:
        process = subprocess.Popen(
            [RDZV, "serve", "--port", str(port), *options],
            stdout=log,
            stderr=log,
            text=True,
            env=environment(folder, **env),
        )
    until(lambda: (folder / "registry" / "credential").exists())
    return process


@contextmanager
def standing_registry(folder: Path, **env: str) -> Iterator[Standing]:
    """A registry of its own, over TLS."""
    with _reserved_port() as port:
        registry = Standing(folder, port, _serve(folder, port, **env))
        try:
            yield registry
        finally:
            registry.kill()


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A port that a server can listen at, and that nobody else is given, also while it is down."""
    with socket.socket() as held:
        # Bound and not listening, it keeps away all but those that ask for just this port.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]


@pytest.mark.nightly
def test_a_registry_that_was_away_for_leases_finds_everyone_again(tmp_path: Path) -> None:
    with standing_registry(tmp_path / "serve") as registry:
        env = {"RDZV_REGISTRY_FILE": str(registry.file)}
        command = until_end(tmp_path)
        with launching(tmp_path / "s", *COMMAND, *LEASE, command=command, env=env) as launched:
            until(lambda: len(processes_with(f"{tmp_path}/end")) >= 10, 60)
            registry.kill()
            time.sleep(DOWN)
            registry.start()
            time.sleep(5)
            finish_well(launched, tmp_path)
    # The last of them may be another: it listens before it answers.
    words = "connection refused (no registry is listening)"
    said = [line for line in agent_lines(launched) if words in line]
    assert "the registry does not answer" in said[-1]
    record(f"registry killed, back after {DOWN:.0f} s, {LEASE_WORDS}", said[-1])


def test_a_node_whose_agent_stands_still_is_lost_and_ends_when_it_goes_on(tmp_path: Path) -> None:
    # The launcher kills an agent that does not end, not long after the grace.
    options = (*COMMAND, "--lease", "3", "--grace", "20")
    with launching(tmp_path / "s", *options, command=until_end(tmp_path)) as launched:
        launched.wait_for_phase("running")
        until(lambda: len(processes_with(f"{tmp_path}/end")) >= 10, 60)
        agent = launched.child("worker", "127.0.0.3")
        stopped = time.monotonic()
        agent.suspend()
        launched.wait_for_phase("finished")
        seconds = time.monotonic() - stopped
        os.kill(agent.pid, signal.SIGCONT)
        outcome = launched.finish()
    assert outcome.code == 86
    assert "slot 2) was lost: it was silent for" in outcome.last_line
    until(lambda: not processes_with(str(tmp_path)))
    record("agent stopped (SIGSTOP), --lease 3", outcome, seconds)
