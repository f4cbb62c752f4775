"""What a launch costs beside its program: until the go, and from the end to the exit."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.rows import Figure, Row, row
from worker.offer.ports import find_free

_BIN = Path(sys.executable).parent
_LIMIT_SECONDS = 120.0
_FIRST_PORT = 23_000
_PROGRAM = Path(__file__).parent / "started.py"
_NOTE = "2 nodes on this machine, a program that ends at once, without torch"


@dataclass(frozen=True, slots=True)
class Start:
    """One launch, in seconds: moments since it was begun, and CPU time until the go."""

    first_line: float
    go: float
    exit: float
    launcher: float
    registry: float
    node: float


def _start(nodes: int) -> Start:
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "--state-dir",
            f"{folder}/state",
            "--framework",
            "command",
            "--nnodes",
            f"{nodes}",
        ]
        program = [sys.executable, "-I", "-S", str(_PROGRAM), folder, str(os.getpid())]
        began = time.monotonic()
        with subprocess.Popen(
            [_BIN / "rdzv", "launch", *options, "--", *program], stderr=subprocess.PIPE
        ) as launcher:
            assert launcher.stderr is not None
            launcher.stderr.readline()
            first_line = time.monotonic() - began
            launcher.communicate(timeout=_LIMIT_SECONDS)
        over = time.monotonic()
        seen = [json.loads(path.read_text()) for path in Path(folder).glob("started-*.json")]
    assert len(seen) == nodes, f"{len(seen)} of {nodes} programs were started"
    last = max(seen, key=lambda one: float(one["at"]))
    agents = {str(one["agent"]) for one in seen}
    cpu: dict[str, float] = last["cpu"]
    return Start(
        first_line,
        min(one["at"] for one in seen) - began,
        over - max(one["ended"] for one in seen),
        cpu[str(launcher.pid)],
        sum(cpu[pid] for pid in cpu if pid not in agents | {str(launcher.pid)}),
        statistics.mean(cpu[pid] for pid in agents),
    )


def figures(rounds: int) -> Iterator[Figure]:
    """How soon a person sees something, how soon the programs run, and what that costs."""
    starts = [_start(2) for _ in range(rounds)]

    def figure(what: str, of: Callable[[Start], float], target: float, note: str) -> Figure:
        value = round(statistics.median(map(of, starts)), 3)
        return Figure(what, 2, value, "s", target, rounds, note=f"{note}; {_NOTE}")

    yield figure("first_line", lambda one: one.first_line, 0.3, "from rdzv launch")
    yield figure("launch_to_go", lambda one: one.go, 1.3, "from rdzv launch to the first program")
    yield figure("end_to_exit", lambda one: one.exit, 0.2, "from the last program's end")
    yield figure("launcher_cpu", lambda one: one.launcher, 0.5, "until the go")
    yield figure("registry_cpu", lambda one: one.registry, 0.5, "until the go")
    yield figure("node_cpu", lambda one: one.node, 0.35, "until the go")


def beside_torchrun(nodes: int, rounds: int) -> Iterator[Row | Figure]:
    """`rdzv launch` and bare static torchrun, one after the other and again."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text("")
        launch = [
            str(_BIN / "rdzv"),
            "launch",
            "--state-dir",
            f"{folder}/state",
            "--nnodes",
            f"{nodes}",
        ]
        measured: dict[str, list[tuple[float, float]]] = {"torchrun": [], "rdzv-launch": []}
        for _ in range(rounds):
            measured["torchrun"].append(_cost(_bare(nodes, script)))
            measured["rdzv-launch"].append(_cost([[*launch, "--", str(script)]]))
    for system, costs in measured.items():
        wall, cpu = [1000 * seconds for seconds, _ in costs], [seconds for _, seconds in costs]
        yield row(system, nodes, "whole_run", wall, cpu_seconds=cpu, note="an empty script")
    pairs = zip(measured["rdzv-launch"], measured["torchrun"], strict=True)
    ratio = statistics.median(ours[0] / bare[0] for ours, bare in pairs)
    note = "wall time of rdzv launch by bare static torchrun's, median of the pairs"
    yield Figure("launch_ratio", nodes, round(ratio, 2), "times", 1.2, rounds, note=note)


def _bare(nodes: int, script: Path) -> list[list[str]]:
    port = find_free(_FIRST_PORT)
    where = ["--master-addr", "127.0.0.1", "--master-port", str(port), "--nnodes", str(nodes)]
    ranks = [["--node-rank", str(rank)] for rank in range(nodes)]
    return [[str(_BIN / "torchrun"), *where, *rank, str(script)] for rank in ranks]


def _cost(commands: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Wall and CPU seconds until all of these have ended well."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environ = {**os.environ, "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}"}
    processes = [
        subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    codes = [process.wait(_LIMIT_SECONDS) for process in processes]
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert not any(codes), f"{commands[0][0]} ended with {codes}"
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
