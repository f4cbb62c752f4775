"""The real agents: `rdzv worker` and `rdzv launch` processes, as schedulers start them."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from bench.registry import Registry, serving
from bench.rows import Figure, Row, row
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.node import Job
from rendezvous.wire.run import Limits, Phase, RunStatus

_RDZV = str(Path(sys.executable).parent / "rdzv")
_LIMIT_SECONDS = 120.0
TOLD = """
import os, pathlib, signal, sys, time
folder, rank = pathlib.Path(sys.argv[1]), os.environ["NODE_RANK"]
def told(*_):
    (folder / f".{rank}").write_text(str(time.monotonic()))
    (folder / f".{rank}").rename(folder / f"told-{rank}")
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
(folder / f"up-{rank}").touch()
signal.pause()
"""
"""A program that writes into a folder when it is told to stop; all processes of a machine have one
monotonic clock."""
_NOTE = "registry's clock: last join taken in, until all have acknowledged; rows checked, armed"


class Agents:
    """Agents of one run on this machine, each with a loopback address of its own."""

    def __init__(self, registry: Registry, keys: RunKeys, folder: str) -> None:
        self._registry = registry
        self._keys = keys
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, slot: int, *command: str) -> None:
        """Start the agent of a slot."""
        keys = self._keys
        token = keys.join_token(slot, 1)
        join = JoinString(
            self._registry.place,
            *(keys.run, keys.launch_id, slot, 1),
            token,
            keys.row_key,
            keys.probe_key,
        )
        options = ["--loopback", "--address", f"127.0.0.{slot + 1}", "--hosts", "off"]
        options += ["--framework", "command"]
        self.processes.append(
            subprocess.Popen(
                [_RDZV, "worker", *options, "--", *command],
                env={**os.environ, "RDZV_JOIN": join.text(), "RDZV_STATE_DIR": self._folder},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def wait_joined(self, count: int) -> float:
        """Until so many nodes are in; the moment, on the monotonic clock."""

        def joined(status: RunStatus) -> bool:
            return sum(slot.incarnation > 0 for slot in status.slots) >= count

        self._registry.wait_for(self._keys, joined)
        return time.monotonic()

    def wait_running(self) -> None:
        """Until all have acknowledged."""
        self._registry.wait_for(
            self._keys, lambda status: status.phase in (Phase.RUNNING, Phase.FINISHED)
        )

    def end(self) -> None:
        """Wait for the agents, whose programs have ended."""
        for process in self.processes:
            process.wait(_LIMIT_SECONDS)


@contextlib.contextmanager
def _agents(
    registry: Registry, number: int, nodes: int, **more: Any
) -> Iterator[tuple[Agents, RunKeys]]:
    keys = registry.keys(f"agents-{number}", f"agents{number:06d}")
    registry.create(keys, nodes, loopback=True, job=Job(framework="command"), **more)
    with tempfile.TemporaryDirectory() as folder:
        agents = Agents(registry, keys, folder)
        try:
            yield agents, keys
        finally:
            for process in agents.processes:
                process.kill()
                process.wait()


def last_to_all(nodes: int, rounds: int) -> Iterator[Row]:
    """Real agents: all but one are in, the last one comes."""
    times = []
    with serving(tls=False, journal="sqlite") as registry:
        for number in range(rounds):
            with _agents(registry, number, nodes) as (agents, keys):
                for slot in range(nodes - 1):
                    agents.start(slot, "true")
                agents.wait_joined(nodes - 1)
                agents.start(nodes - 1, "true")
                agents.end()
                lines = registry.events(keys)
            joined = max(line.at_seconds for line in lines if line.kind == "joined")
            acked = max(line.at_seconds for line in lines if line.kind == "acked")
            times.append(1000 * (acked - joined))
    yield row("rdzv-agents", nodes, "last_to_all", times, journal="sqlite", note=_NOTE)


def figures(rounds: int) -> Iterator[Figure]:
    """What one agent costs, and how soon it is in."""
    seconds, waiting, running = [], [], []
    with serving(tls=True, journal="sqlite") as registry:
        for number in range(rounds):
            with _agents(registry, number, 2) as (agents, _):
                began = time.monotonic()
                agents.start(0, "sleep", "2")
                seconds.append(agents.wait_joined(1) - began)
                agent = psutil.Process(agents.processes[0].pid)
                waiting.append(agent.memory_info().rss)
                agents.start(1, "sleep", "2")
                agents.wait_running()
                running.append(_rss_with_keeper(agent))
                agents.end()
    yield Figure("agent_joined", 1, _median(seconds), "s", 0.7, rounds, note="exec to joined, TLS")
    yield Figure("agent_rss", 1, _median(waiting) / 1e6, "MB", 60, rounds, note="joined, waiting")
    note = "with the keeper of its program"
    yield Figure("agent_rss_running", 1, _median(running) / 1e6, "MB", 60, rounds, note=note)


def standby_rss(rounds: int) -> Iterator[Figure]:
    """What the agent of a standby costs while the programs of the others run."""
    found, limits = [], Limits(fence_timeout_seconds=30)
    outlives = {"standby": 1, "on_node_loss": "replace", "limits": limits}
    with serving(tls=True, journal="sqlite") as registry:
        for number in range(rounds):
            with _agents(registry, number, 2, **outlives) as (agents, _):
                for slot in range(3):
                    agents.start(slot, "sleep", "2")
                agents.wait_running()
                time.sleep(0.5)
                own = [psutil.Process(one.pid) for one in agents.processes]
                [standby] = [agent for agent in own if not agent.children()]
                found.append(standby.memory_info().rss)
                agents.end()
    note = "the agent of a standby, TLS"
    yield Figure("standby_rss", 2, _median(found) / 1e6, "MB", 60, rounds, note=note)


def killed(rounds: int, nodes: int = 4) -> Iterator[Figure]:
    """SIGKILL of an agent, until the last other node's program is told to stop."""
    seconds = []
    with serving(tls=True, journal="sqlite") as registry:
        for number in range(rounds):
            with (
                _agents(registry, number, nodes) as (agents, _),
                tempfile.TemporaryDirectory() as folder,
            ):
                for slot in range(nodes):
                    agents.start(slot, sys.executable, "-c", TOLD, folder)
                _seen(Path(folder), "up-*", nodes)
                time.sleep(random.uniform(0.2, 2.2))  # at any moment of a poll
                began = time.monotonic()
                agents.processes[-1].kill()
                told = _seen(Path(folder), f"told-[0-{nodes - 2}]", nodes - 1)
                seconds.append(max(float(file.read_text()) for file in told) - began)
                agents.end()
    note = "SIGKILL of an agent until the last other node's program is told to stop"
    yield Figure("killed_known", nodes, _median(seconds), "s", 1.0, rounds, note=note)


def _seen(folder: Path, pattern: str, count: int) -> list[Path]:
    """So many files; raises TimeoutError when they do not come."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while len(found := [*folder.glob(pattern)]) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} files {pattern} were written")
        time.sleep(0.002)
    return found


def _rss_with_keeper(agent: psutil.Process) -> int:
    """Memory of the agent and of what it keeps beside the program, once that is started."""
    deadline = time.monotonic() + 10.0
    while not (programs := agent.children(recursive=True)[1:]) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert programs, "the program was not started"
    return sum(int(one.memory_info().rss) for one in (agent, *agent.children()))


def launch_to_exec(rounds: int) -> Iterator[Figure]:
    """From `rdzv launch` until the last of 4 nodes on this machine starts its torchrun."""
    times = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            seen = Path(folder) / "seen"
            torchrun = Path(folder) / "torchrun"
            torchrun.write_text(f"#!/bin/sh\ndate +%s%N >> {seen}\n")
            torchrun.chmod(0o755)
            script = Path(folder) / "train.py"
            script.touch()
            path = f"{folder}:{Path(_RDZV).parent}:{os.environ['PATH']}"
            began = time.time_ns()  # noqa: TID251
            subprocess.run(
                [_RDZV, "launch", "--nnodes", "4", "--rdzv-id", f"bench-{number}", "--", script],
                env={**os.environ, "PATH": path, "RDZV_STATE_DIR": folder},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_LIMIT_SECONDS,
                check=True,
            )
            times.append((max(map(int, seen.read_text().split())) - began) / 1e9)
    note = "4 nodes on this machine, the last one's torchrun"
    yield Figure("launch_to_exec", 4, _median(times), "s", 2.5, rounds, note=note)


def _median(values: list[float] | list[int]) -> float:
    return round(statistics.median(values), 3)
