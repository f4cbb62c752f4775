"""What a program waits for when it prints, by way of printing: `python -m bench.output`.

One node with two ranks, each of which prints every line at once: below a bare torchrun, below one
with `--tee 3`, below `rdzv launch`, and below it while somebody follows all of its output.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.machine import describe
from bench.rows import Figure
from worker.offer.ports import find_free

RANKS = 2
LINES = 50_000
_BIN = Path(sys.executable).parent
_PROGRAM = Path(__file__).parent / "printed.py"
_LIMIT_SECONDS = 300.0
_FIRST_PORT = 23_500


@dataclass(frozen=True, slots=True)
class Printed:
    """One run, in seconds: until the slower rank had printed all, and CPU time of all processes.

    Attributes:
        megabytes: What it left on disk.
    """

    seconds: float
    cpu: float
    megabytes: float


def _commands(folder: str, lines: int) -> dict[str, list[str]]:
    script = [str(_PROGRAM), folder, str(lines)]
    port = find_free(_FIRST_PORT)
    size = ["--nnodes", "1", "--nproc-per-node", str(RANKS)]
    bare = [str(_BIN / "torchrun"), *size, "--master-port", str(port)]
    rdzv = [str(_BIN / "rdzv"), "launch", "--rdzv-id", "b", "--state-dir", f"{folder}/s", *size]
    return {
        "torchrun": [*bare, *script],
        "torchrun --tee 3": [*bare, "--tee", "3", "--log-dir", f"{folder}/tee", *script],
        "rdzv": [*rdzv, "--", "torchrun", *script],
        "rdzv, followed": [*rdzv, "--log-dir", f"{folder}/logs", "--", "torchrun", *script],
    }


def printed(way: str, lines: int) -> Printed:
    """Run it this way once."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/out", "wb") as out:
        command = _commands(folder, lines)[way]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        reader = _followed(folder) if way.endswith("followed") else contextlib.nullcontext()
        env = {**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}"}
        with (
            subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=env) as process,
            reader,
        ):
            process.wait(_LIMIT_SECONDS)
        assert process.returncode == 0, f"{way} ended with {process.returncode}"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seen = [json.loads(path.read_text()) for path in Path(folder).glob("printed-*.json")]
        assert len(seen) == RANKS
        assert Path(folder, "out").read_bytes().count(b"\n") >= RANKS * lines
        files = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != "out")
        size = sum(path.stat().st_size for path in files) / 1e6
    return Printed(max(one["seconds"] for one in seen), cpu, size)


@contextlib.contextmanager
def _followed(folder: str) -> Iterator[None]:
    """Somebody reads all of it by way of the registry, as the files are not where they look."""
    words = ["logs", "b", "--state-dir", f"{folder}/s", "--all", "--follow"]
    end = time.monotonic() + 20
    while not Path(folder, "s", "b", "status.json").exists() and time.monotonic() < end:
        time.sleep(0.05)
    with subprocess.Popen(
        [str(_BIN / "rdzv"), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as reader:
        yield
        reader.terminate()


def beside_torchrun(rounds: int, lines: int = LINES) -> Iterator[Figure]:
    """Each way in turn, so that whatever else the machine does concerns all of them."""
    ways = list(_commands(os.devnull, lines))
    found: dict[str, list[Printed]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            found[way].append(printed(way, lines))
    bare = _median([one.seconds for one in found["torchrun"]])
    for way, seen in found.items():
        seconds = _median([one.seconds for one in seen])
        cpu = _median([one.cpu for one in seen])
        note = f"{way}: {seconds:.2f} s, {seconds / bare:.2f} times torchrun; "
        note += f"{cpu:.1f} s of CPU in all, {seen[0].megabytes:.1f} MB left on disk"
        rate = round(RANKS * lines / seconds)
        yield Figure("lines_printed", 1, rate, "lines/s", None, rounds, note=note)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def main() -> None:
    """Measure it, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=LINES)
    asked = parser.parse_args()
    print(describe())
    for figure in beside_torchrun(asked.rounds, asked.lines):
        print(f"{figure.value:>10,} {figure.unit}  {figure.note}")


if __name__ == "__main__":
    main()
