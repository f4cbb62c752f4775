"""How long a framework's job takes to form its world under rdzv, and by its bare launcher.

    python -m tests.frameworks.start_times [NAME...]

Both run the same program on the same two hosts, in turns; a time ends when the last rank has
checked its first result. The bare launcher is given every address, port and rank by hand, at once
on all hosts, and reaches a host by entering it: it has nothing to find out. Needs what
`make test-frameworks` has installed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from subprocess import Popen

from tests.frameworks.bare import BARE, Start
from tests.frameworks.cases import CASES
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.lab import LIMIT_SECONDS, Case, environment_of, logs_of, results_in
from tests.support.cluster import cluster
from tests.support.launching import environment
from tests.support.netlab import Lab

_LOOK_SECONDS = 0.01


def _seconds_until_all(
    read: Callable[[], str], world: int, started: float, processes: Sequence[Popen[str]]
) -> float:
    is_over = False
    while not is_over:
        is_over = all(process.poll() is not None for process in processes)
        if len(results_in(read())) >= world:
            return time.monotonic() - started
        if time.monotonic() - started > LIMIT_SECONDS:
            break
        time.sleep(_LOOK_SECONDS)
    raise SystemExit(f"{world} results were expected; these came:\n{read()}")


def _read(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in folder.glob("*.out"))


def under_rdzv(case: Case, lab: Lab, folder: Path) -> float:
    """Seconds from `rdzv launch` to the last rank's result."""
    env = environment_of(ENVIRONMENTS[case.environment], folder)
    started = time.monotonic()
    with cluster(lab, folder, *case.argv(), command=case.command, env=env) as run:
        run.start_workers()
        world = sum(case.processes)
        seconds = _seconds_until_all(lambda: logs_of(run), world, started, [run.launcher])
        outcome = run.finish(LIMIT_SECONDS)
    if outcome.code != 0:
        raise SystemExit(f"{case.name} failed under rdzv:\n{outcome.err}")
    return seconds


def bare(case: Case, starts: Sequence[Start], lab: Lab, folder: Path) -> float:
    """Seconds from the launchers' start to the last rank's result."""
    env = environment_of(ENVIRONMENTS[case.environment], folder)
    started = time.monotonic()
    with ExitStack() as stack:
        processes = []
        for number, start in enumerate(starts):
            output = stack.enter_context((folder / f"{number}.out").open("w"))
            variables = environment(folder, **env, **start.variables)
            variables["PATH"] = f"{folder}:{env['PATH']}"
            process = lab.hosts[start.host].start(start.argv, env=variables, stdout=output)
            processes.append(stack.enter_context(process))
        world = sum(case.processes)
        seconds = _seconds_until_all(lambda: _read(folder), world, started, processes)
        codes = [process.wait(LIMIT_SECONDS) for process in processes]
    if any(codes):
        raise SystemExit(f"{case.name} failed by itself:\n{_read(folder)}")
    return seconds


def measure(case: Case, rounds: int) -> tuple[float, float]:
    """The medians: by the bare launcher, and under rdzv."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder, Lab(2, hosts_mode="good") as lab:
            built = replace(case, command=tuple(case.built(Path(folder))), source="")
            alone, ours = Path(folder, "bare"), Path(folder, "rdzv")
            alone.mkdir()
            ours.mkdir()
            times[0].append(bare(built, BARE[case.name](built, lab, alone), lab, alone))
            times[1].append(under_rdzv(built, lab, ours))
    # The first of each fills caches of the disk.
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


def main() -> None:
    """Print a row for each framework."""
    measured = [case for case in CASES if case.name in BARE]
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(case.name for case in measured)
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| framework | bare launcher, s | under rdzv, s | rdzv adds, s |")
    print("| --- | --- | --- | --- |")
    for case in measured:
        if options.names and case.name not in options.names:
            continue
        alone, ours = measure(case, options.rounds)
        print(f"| {case.name} | {alone:.2f} | {ours:.2f} | {ours - alone:.2f} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
