"""What a launch costs beside its program, and what a program waits for that prints."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.rows import Row, row
from tests.support.launching import BIN, RDZV, environment
from tests.support.waiting import until
from worker.offer.ports import find_free

_RANKS = 2
_LIMIT_SECONDS = 300.0
_FIRST_PORT = 23_000
_STARTED = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], "started-" + os.environ["NODE_RANK"]).write_text(str(time.monotonic()))
"""
_PRINTS = """
import os, pathlib, sys, time
rank, words = os.environ["RANK"], "the quick brown fox jumps over the lazy dog"
began = time.monotonic()
for number in range(int(sys.argv[2])):
    print(f"rank {rank} step {number} loss 0.123456 {words}", flush=True)
pathlib.Path(sys.argv[1], "printed-" + rank).write_text(str(time.monotonic() - began))
"""


def to_the_go(rounds: int) -> Iterator[Row]:
    """How soon a person sees the first line of a launch, and how soon its programs run."""
    lines, goes = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            options = ["--framework", "command", "--nnodes", "2"]
            program = [sys.executable, "-I", "-S", "-c", _STARTED, folder]
            began = time.monotonic()
            with subprocess.Popen(
                [RDZV, "launch", *options, "--", *program],
                stderr=subprocess.PIPE,
                env=environment(Path(folder, "state")),
            ) as launcher:
                assert launcher.stderr is not None
                launcher.stderr.readline()
                lines.append(time.monotonic() - began)
                launcher.communicate(timeout=_LIMIT_SECONDS)
            goes.append(min(_written(folder, "started-*", 2)) - began)
    yield row("launch, first line", 2, lines, "s")
    yield row("launch, first program", 2, goes, "s", "2 nodes on this machine, without torch")


def _written(folder: str, pattern: str, count: int) -> list[float]:
    found = [float(path.read_text()) for path in Path(folder).glob(pattern)]
    assert len(found) == count, f"{len(found)} of {count} programs have written {pattern}"
    return found


def beside_torchrun(nodes: int, rounds: int) -> Iterator[Row]:
    """`rdzv launch` and bare static torchruns, one after the other and again."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.touch()
        launch = [RDZV, "launch", "--nnodes", str(nodes), "--", str(script)]
        bare, ours = [], []
        for _ in range(rounds):
            bare.append(_seconds(_static(nodes, script), folder))
            ours.append(_seconds([launch], folder))
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    yield row("torchrun, an empty script", nodes, bare, "s")
    yield row("launch, an empty script", nodes, ours, "s")
    yield row("launch by torchrun", nodes, ratios, "times", "median of the pairs")


def _static(nodes: int, script: Path) -> list[list[str]]:
    port = find_free(_FIRST_PORT)
    where = ["--master-addr", "127.0.0.1", "--master-port", str(port), "--nnodes", str(nodes)]
    ranks = [["--node-rank", str(rank)] for rank in range(nodes)]
    return [[str(BIN / "torchrun"), *where, *rank, str(script)] for rank in ranks]


def _seconds(commands: Sequence[Sequence[str]], folder: str) -> float:
    """Until all of these have ended well."""
    began, env = time.monotonic(), environment(Path(folder, "state"))
    with open(os.devnull, "wb") as out:
        started = [subprocess.Popen(one, env=env, stdout=out, stderr=out) for one in commands]
        codes = [process.wait(_LIMIT_SECONDS) for process in started]
    assert not any(codes), f"{commands[0][0]} ended with {codes}"
    return time.monotonic() - began


def output(rounds: int, lines: int) -> Iterator[Row]:
    """One node with two ranks, each of which prints every line at once, in each way in turn."""
    ways = "torchrun", "torchrun --tee 3", "rdzv launch", "rdzv launch, followed"
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            found[way].append(printed(way, lines))
    for way, seen in found.items():
        cpu, disk = (statistics.median(one[at] for one in seen) for at in (1, 2))
        note = f"{cpu:.1f} s of CPU in all, {disk:.0f} MB left on disk"
        yield row(f"print, {way}", 1, [one[0] for one in seen], "s", note)


def printed(way: str, lines: int) -> tuple[float, float, float]:
    """Seconds until the slower rank has printed all, CPU seconds of all processes, MB on disk."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/out", "wb") as out:
        program = Path(folder, "prints.py")
        program.write_text(_PRINTS)
        script = [str(program), folder, str(lines)]
        size = ["--nnodes", "1", "--nproc-per-node", str(_RANKS)]
        bare = [str(BIN / "torchrun"), *size, "--master-port", str(find_free(_FIRST_PORT))]
        rdzv = [RDZV, "launch", "--rdzv-id", "b", *size]
        elsewhere = ["--log-dir", f"{folder}/logs"]
        command = {
            "torchrun": [*bare, *script],
            "torchrun --tee 3": [*bare, "--tee", "3", "--log-dir", f"{folder}/tee", *script],
            "rdzv launch": [*rdzv, "--", "torchrun", *script],
            "rdzv launch, followed": [*rdzv, *elsewhere, "--", "torchrun", *script],
        }[way]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environ, nowhere = environment(Path(folder, "s")), subprocess.DEVNULL
        reader = _followed(folder) if way.endswith("followed") else contextlib.nullcontext()
        with (
            subprocess.Popen(command, stdout=out, stderr=nowhere, env=environ) as process,
            reader,
        ):
            process.wait(_LIMIT_SECONDS)
        assert process.returncode == 0, f"{way} ended with {process.returncode}"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds = max(_written(folder, "printed-*", _RANKS))
        assert Path(folder, "out").read_bytes().count(b"\n") >= _RANKS * lines
        files = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != "out")
        return seconds, cpu, sum(path.stat().st_size for path in files) / 1e6


@contextlib.contextmanager
def _followed(folder: str) -> Iterator[None]:
    """Read all of it by way of the registry, as the files are not where a reader looks."""
    until(Path(folder, "s", "b", "status.json").exists)
    nowhere, environ = subprocess.DEVNULL, environment(Path(folder, "s"))
    words = [RDZV, "logs", "b", "--all", "--follow"]
    with subprocess.Popen(words, stdout=nowhere, stderr=nowhere, env=environ) as reader:
        yield
        reader.terminate()
