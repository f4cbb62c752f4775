"""All targets in turn, each in a process of its own: `python -m tests.attack.fuzz --seconds N`.

A contract that breaks, an input that takes longer than 10 s and memory above 512 MB end a target,
and are told with the input, which `--try TARGET FILE` runs again. Memory that grows is told too.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

import psutil

WHY_NOT = "atheris is not installed (it has wheels for some versions of Python only)"
MOST_GROWTH_MB = 20.0
_ENDING_SECONDS = 60
_NOISE = re.compile(r"INFO: |WARNING: |#[0-9]+\t|0x|stat::|Base64: ")


@dataclass(frozen=True)
class Outcome:
    """How a target fared.

    Attributes:
        executions: How many inputs were tried.
        first_mb: Resident memory half way through.
        last_mb: At the end.
        problem: The end of the output when a contract was broken; else empty.
    """

    target: str
    seconds: float
    executions: int
    first_mb: float
    last_mb: float
    problem: str

    def line(self) -> str:
        """For people."""
        rate = self.executions / max(self.seconds, 0.001)
        memory = f"{self.first_mb:.0f} -> {self.last_mb:.0f} MB"
        verdict = "BROKEN" if self.problem else "ok"
        return (
            f"{self.target:16} {self.executions:>10,} executions {rate:>9,.0f}/s  "
            f"{memory:16} {verdict}"
        )


def fuzz(target: str, seconds: int, seed: int = 0, inputs: list[str] | None = None) -> Outcome:
    """Run one target in a child process and watch it."""
    from tests.attack.fuzz import child  # loads what it watches, which takes longer than most runs

    with tempfile.TemporaryDirectory(prefix="rdzv-fuzz-") as name:
        folder = Path(name)
        process = get_context("fork").Process(
            target=child.main, args=(target, folder, seconds, seed, inputs or [])
        )
        process.start()
        try:
            first, last = _watch(process, seconds)
        finally:
            process.kill()
            process.join()
        text = (folder / "log").read_text(errors="replace")
        executions = re.search(r"stat::number_of_executed_units: *(\d+)", text)
        count = int(executions[1]) if executions else 0
        problem = "" if process.exitcode == 0 and count else _problem(text, folder)
        if not problem and not inputs and last - first > MOST_GROWTH_MB:
            problem += f"\nmemory grew from {first:.0f} to {last:.0f} MB"
        return Outcome(target, seconds, count, first, last, problem)


def _watch(child: ForkProcess, seconds: int) -> tuple[float, float]:
    """Resident megabytes early and late; the child is ended when it outlives its time by far."""
    process = psutil.Process(child.pid)
    sizes: list[float] = []
    deadline = time.monotonic() + seconds + _ENDING_SECONDS
    while child.is_alive() and time.monotonic() < deadline:
        try:
            sizes.append(process.memory_info().rss / 2**20)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.1)
    sizes = [size for size in sizes if size > 1] or [0.0]
    return sizes[-max(1, 5 * seconds) :][0], sizes[-1]


def _problem(text: str, folder: Path) -> str:
    """What was said at the end, with the input."""
    broken = [path.read_bytes() for path in sorted(folder.glob("broken-*"))]
    lines = [line for line in text.splitlines() if not _NOISE.match(line)]
    return "\n".join([*lines[-40:], *(f"input: {data!r}" for data in broken)])


def main() -> None:
    """Fuzz; the exit code says whether every contract held."""
    parser = argparse.ArgumentParser(prog="tests.attack.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="0 for another one each time")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--only", action="append", help="this target; repeatable")
    parser.add_argument("--try", nargs=2, dest="again", metavar=("TARGET", "FILE"))
    arguments = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print(f"nothing was fuzzed: {WHY_NOT}")
        raise SystemExit(os.environ.get("RDZV_CI") == "1")  # there, nothing may be left out
    from tests.attack.fuzz import child

    named = arguments.again[:1] if arguments.again else arguments.only
    if unknown := set(named or ()) - set(child.TARGETS):
        parser.error(f"no target {', '.join(unknown)}; there are: {', '.join(child.TARGETS)}")
    if arguments.again:
        outcomes = [fuzz(arguments.again[0], 60, inputs=[arguments.again[1]])]
    else:
        outcomes = []
        one = partial(fuzz, seconds=arguments.seconds, seed=arguments.seed)
        with ProcessPoolExecutor(arguments.jobs, get_context("fork")) as pool:
            for outcome in pool.map(one, arguments.only or child.TARGETS):
                outcomes.append(outcome)
                print(outcome.line(), flush=True)
    for outcome in outcomes:
        if outcome.problem:
            print(f"\n{outcome.target}:\n{outcome.problem}")
    print(f"{sum(outcome.executions for outcome in outcomes):,} executions")
    raise SystemExit(any(outcome.problem for outcome in outcomes))


if __name__ == "__main__":
    main()
