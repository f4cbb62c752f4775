"""What being looked at costs a program, in CPU: `python -m bench.look_cost`.

Two gloo ranks compute and reduce, below one agent. Their CPU time for a step is compared in pairs:
with the hook, streams of their own and a sample each second (ten times as often as usual), and
with none of it (`--look off --stall off`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.machine import describe, watching
from bench.rows import HEADER, Figure, Report

RANKS = 2
_LIMIT_PERCENT = 1.0
_ON = ("--look", "auto", "--stall", "end", "--stall-timeout", "5")
_OFF = ("--look", "off", "--stall", "off")
_STUDENT_95 = 2.05
"""Of 29 degrees of freedom; of more it is less."""


def steps(folder: Path, warm: int, count: int) -> None:
    """What each rank does: write its CPU seconds for a step."""
    import time

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    weights, values = torch.rand(192, 192), torch.rand(4_096)
    for step in range(warm + count):
        if step == warm:
            began = time.process_time()
        weights = torch.tanh(weights @ weights)
        dist.all_reduce(values)
        values /= RANKS
    used = (time.process_time() - began) / count
    (folder / f"cpu-{dist.get_rank()}").write_text(json.dumps(used))
    dist.barrier()
    os._exit(0)


def cpu_of_a_step(options: tuple[str, ...], count: int) -> float:
    """CPU seconds of a step, of all ranks together."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        argv = ["rdzv", "launch", "--state-dir", name, "--nnodes", "1"]
        argv += ["--nproc-per-node", str(RANKS), *options, "--", "-m", "bench.look_cost"]
        argv += ["--steps", name, str(count)]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
        environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
        subprocess.run(argv, check=True, env=environ, stdout=-3, stderr=-3)
        files = [folder / f"cpu-{rank}" for rank in range(RANKS)]
        return sum(float(json.loads(file.read_text())) for file in files)


def cost(pairs: int, count: int) -> Iterator[Figure]:
    """How much more CPU a step takes, and the upper bound of that with 95 % certainty."""
    more = []
    for number in range(pairs):
        ways = (_ON, _OFF) if number % 2 else (_OFF, _ON)
        used = {way: cpu_of_a_step(way, count) for way in ways}
        more.append(100 * (used[_ON] / used[_OFF] - 1))
    mean = statistics.mean(more)
    error = _STUDENT_95 * statistics.stdev(more) / math.sqrt(pairs)
    note = f"mean {mean:.2f} %, of {pairs} pairs; {1e6 * used[_OFF]:.0f} us a step"
    yield Figure("look_cost", 1, round(mean + error, 2), "% CPU", _LIMIT_PERCENT, pairs, note=note)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.look_cost", description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--count", type=int, default=6_000, help="steps of each run")
    parser.add_argument("--steps", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps:
        steps(Path(arguments.steps[0]), 500, int(arguments.steps[1]))
    report = Report(describe())
    print(f"{describe()}\n{HEADER}")
    with watching() as load:
        done = list(cost(arguments.pairs, arguments.count))
    for one in done:
        report.add(one, load.others_percent)


if __name__ == "__main__":
    main()
