"""What the samples of its nodes' machines cost a registry: `python -m bench.machines`."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator

from bench.machine import describe, watching
from bench.meeting import meeting
from bench.registry import raise_file_limit
from bench.rows import HEADER, Figure, Report
from features.machines import TOPIC
from features.machines.wire import GpuSample, MachineSample

_TARGET_PERCENT = 0.5
_GIB = 1 << 30


def sample() -> str:
    """What a node of eight GPUs tells."""
    gpus = [
        GpuSample(
            index=n,
            memory_used=71 * _GIB,
            memory_total=80 * _GIB,
            utilisation=97,
            temperature=60 + n,
        )
        for n in range(8)
    ]
    told = MachineSample(
        load=12.5,
        memory_used=12 * _GIB,
        memory_limit=64 * _GIB,
        memory_total=2_015 * _GIB,
        memory_available=1_900 * _GIB,
        disk_free=48 * _GIB,
        disk_total=100 * _GIB,
        gpus=gpus,
    )
    return told.model_dump_json(exclude_defaults=True)


def of_registry(nodes: int, rounds: int) -> Iterator[Figure]:
    """The share of a core, over TLS, at the pace at which so many nodes tell it."""
    with meeting(nodes, tls=True) as met:
        met.open()
        found = met.machines(rounds, sample())
    each = statistics.median(found) / nodes
    share = 100 * nodes * each / TOPIC.pause(nodes)
    note = f"{1e6 * each:.0f} us for each sample of eight GPUs"
    yield Figure("machines", nodes, round(share, 2), "% core", _TARGET_PERCENT, rounds, note=note)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.machines", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[64, 1_024])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    raise_file_limit()
    report = Report(describe())
    print(f"{describe()}\n{HEADER}")
    for nodes in arguments.nodes:
        with watching() as load:
            done = list(of_registry(nodes, arguments.rounds))
        for one in done:
            report.add(one, load.others_percent)


if __name__ == "__main__":
    main()
