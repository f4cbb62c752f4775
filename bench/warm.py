"""What `--warm on` saves, beside `--warm off`, bare torchruns and c10d: `python -m bench.warm`.

Four nodes of one process on this machine, each pair of ways one after the other and again. A worker
is killed once in each launch: its first epoch has zygotes that begin to import when their node
joins, just before the go, its second has zygotes that are ready.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import psutil

from bench import killed
from bench.killed import UNSHARED, Program
from bench.machine import describe, watching
from bench.rows import HEADER, Figure, Report
from worker.offer.ports import find_free

_BIN = Path(sys.executable).parent
_PROGRAM = Path(__file__).parent / "restarted.py"
_NODES = 4
_SECONDS = 120.0
_PAUSE_SECONDS = (10.5, 11.5)
"""A first warm start that fails earlier is repeated cold."""
_FIRST_PORT = 23_500
_GO = "; starting "
_USERS = "import time\ntime.sleep(2)\n"
_USERS_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch, in seconds.

    Attributes:
        joined: From the first go until the last process has met all others.
        ready: The same of the second.
        killed: From the SIGKILL of a worker until all have met again.
        forked: From the second go until the last process's first statement.
        private: MB that a process of the second epoch shares with nobody.
        zygote: MB of a zygote, each page that others have as well counted in part; 0: none.
    """

    joined: float
    ready: float
    killed: float
    forked: float
    private: float
    zygote: float


def launch(*options: str, nodes: int = _NODES, processes: int = 1, imports: str = "") -> Launch:
    """Launch, kill a worker once all have met, and see them meet again."""
    count = nodes * processes
    words = [str(_BIN / "rdzv"), "launch", "--nnodes", f"{nodes}", "--max-restarts", "1"]
    words += ["--nproc-per-node", f"{processes}", *options]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "users.py").write_text(_USERS)
        words += ["--state-dir", f"{folder}/state", "--", str(_PROGRAM), str(folder)]
        with _running(words, folder, imports) as (process, gone):
            first = _programs(folder, 0.0, count)
            time.sleep(random.uniform(*_PAUSE_SECONDS))
            at = time.monotonic()
            os.kill(next(one.pid for one in first if one.rank == count // 2), signal.SIGKILL)
            second = _programs(folder, at, count)
            private = statistics.median(_private(one.pid) for one in second)
            zygote = max((_shared(one) for one in _zygotes(process)), default=0.0)
            (folder / "over").touch()
            if (code := process.wait(_SECONDS)) != 0:
                raise RuntimeError(f"{' '.join(words)} ended with {code}")
        ready = max(one.ready for one in second)
        return Launch(
            max(one.ready for one in first) - gone[0],
            ready - gone[1],
            ready - at,
            max(one.first for one in second) - gone[1],
            private,
            zygote,
        )


@contextmanager
def _running(
    words: Sequence[str], folder: Path, imports: str
) -> Iterator[tuple[subprocess.Popen[str], list[float]]]:
    """A launch, and when each of its goes came."""
    gone: list[float] = []
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RDZV_")},
        "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(folder),
        "BENCH_IMPORTS": imports,
    }
    process = subprocess.Popen(
        words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    lines = process.stderr
    assert lines is not None

    def read() -> None:
        for line in lines:
            if _GO in line:
                gone.append(time.monotonic())

    reading = Thread(target=read, daemon=True)
    reading.start()
    try:
        yield process, gone
    finally:
        process.terminate()
        process.wait(_SECONDS)
        reading.join(_SECONDS)
        lines.close()


def _programs(folder: Path, after: float, count: int) -> list[Program]:
    """All processes that have begun after a moment."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        found = killed.programs(folder, after)
        if len(found) >= count:
            return found
        time.sleep(0.02)
    raise RuntimeError(f"{len(found)} of {count} processes came within {_SECONDS:g} s")


def _zygotes(launcher: subprocess.Popen[str]) -> list[psutil.Process]:
    below = psutil.Process(launcher.pid).children(recursive=True)
    return [one for one in below if any("zygote.py" in word for word in one.cmdline())]


def _private(pid: int) -> float:
    return float(psutil.Process(pid).memory_full_info().uss) / 1e6


def _shared(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / 1e6


def by_hand() -> float:
    """Static torchruns, begun at once: seconds until all have met."""
    port = find_free(_FIRST_PORT)
    where = ["--master-addr", "127.0.0.1", "--master-port", f"{port}", "--nnodes", f"{_NODES}"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name), time.monotonic()
        words = [str(_BIN / "torchrun"), *where]
        started = [
            subprocess.Popen(
                [*words, "--node-rank", f"{rank}", str(_PROGRAM), name],
                env=environ,
                stderr=subprocess.DEVNULL,
            )
            for rank in range(_NODES)
        ]
        found = _programs(folder, began, _NODES)
        (folder / "over").touch()
        for process in started:
            process.wait(_SECONDS)
    return max(one.ready for one in found) - began


def figures(rounds: int) -> Iterator[Figure]:
    """All of it, way beside way in each round."""
    warm, cold, bare, c10d = [], [], [], []
    for _ in range(rounds):
        warm.append(launch("--warm", "on"))
        cold.append(launch("--warm", "off"))
        bare.append(by_hand())
        peer = killed.restarted(UNSHARED)
        c10d.append(peer.ready if peer is not None else float("inf"))
        print(f"  {warm[-1]}\n  {cold[-1]}\n  bare {bare[-1]:.2f}, c10d {c10d[-1]:.2f}", flush=True)

    def ratio(what: str, ours: Sequence[float], theirs: Sequence[float], most: float) -> Figure:
        pairs = list(zip(ours, theirs, strict=True))
        found = statistics.median(a / b for a, b in pairs)
        medians = f"{statistics.median(ours):.2f} by {statistics.median(theirs):.2f} s"
        return Figure(what, _NODES, round(found, 2), "times", most, rounds, note=medians)

    joined, again = [one.joined for one in warm], [one.killed for one in warm]
    yield ratio("warm_ready", [one.ready for one in warm], [one.ready for one in cold], 0.35)
    yield ratio("warm_joined", joined, [one.joined for one in cold], 0.65)
    yield ratio("warm_by_hand", joined, bare, 1.0)
    yield ratio("warm_by_c10d", again, c10d, 1 / 15)
    met = round(statistics.median(again), 2)
    yield Figure("warm_killed", _NODES, met, "s", 0.3, rounds, note="until all have met again")
    private, zygote = warm[-1].private, warm[-1].zygote
    note = f"of a process, beside {cold[-1].private:.0f} with --warm off"
    yield Figure("warm_private", _NODES, round(private), "MB", None, note=note)
    yield Figure(
        "warm_zygote", _NODES, round(zygote), "MB", None, note="its part of what is shared"
    )


def forks(rounds: int) -> Iterator[Figure]:
    """From the go until the first statement of the last process, zygotes being ready."""
    for nodes, processes, most in ((1, 8, 0.15), (_NODES, 8, 0.3)):
        found = [launch("--warm", "on", nodes=nodes, processes=processes) for _ in range(rounds)]
        seconds = round(statistics.median(one.forked for one in found), 2)
        note = f"{nodes} x {processes} processes, from the go to the last one's first statement"
        yield Figure("warm_forks", nodes, seconds, "s", most, rounds, note=note)


def imports(rounds: int) -> Iterator[Figure]:
    """What an import of two seconds costs at the second start, zygotes being ready."""
    left = []
    for _ in range(rounds):
        named = launch("--warm", "on", "--warm-import", "users", nodes=2, imports="users")
        none = launch("--warm", "on", nodes=2)
        left.append((named.ready - none.ready) / _USERS_SECONDS)
    part = round(max(0.0, statistics.median(left)), 2)
    note = f"of an import of {_USERS_SECONDS:g} s, where --warm-import names it"
    yield Figure("warm_import", 2, part, "left", 0.05, rounds, note=note)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.warm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    report = Report(describe())
    print(f"{describe()}\n{HEADER}")
    for work in (figures, forks, imports):
        with watching() as load:
            done = list(work(arguments.rounds))
        for one in done:
            report.add(one, load.others_percent)


if __name__ == "__main__":
    main()
