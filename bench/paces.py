"""What it costs a registry to look for stragglers: reading what all nodes tell, and judging it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator

from bench.rows import Figure
from rendezvous.pace import Timeline, judge
from rendezvous.wire.pace import PaceAnswer
from worker.agent.answering import bytes_told
from worker.look.parsing.arrivals import BYTES_OF_SEVERAL, Called, Clock, RankCalls, pace_of

RANKS = 8
"""Of each node."""
SLOW = 5
"""The rank that all others wait for, 20 ms in each step of 100 ms."""


def answers(nodes: int, steps: int = 2_000, seed: int = 7) -> list[bytes]:
    """What each node tells of a training that waits for one rank at the end of each step."""
    chance = random.Random(seed)
    ranks = nodes * RANKS
    calls: list[list[Called]] = [[] for _ in range(ranks)]
    most = bytes_told(nodes)
    began = 0.0
    for number in range(max(1, steps - most // BYTES_OF_SEVERAL), steps):
        times = [began + 0.08 + 0.002 * chance.random() for _ in range(ranks)]
        times[SLOW] += 0.015 + 0.01 * chance.random()
        began = max(times)
        for own, at in zip(calls, times, strict=True):
            own.append(Called(number, "a", round(at * 1e9)))
    key = ("0", f"0-{ranks - 1}")
    found = []
    for slot in range(nodes):
        own_ranks = range(slot * RANKS, (slot + 1) * RANKS)
        told = {rank: RankCalls({key: calls[rank]}, set()) for rank in own_ranks}
        pace = pace_of(told, Clock(0.0, 0.0005), began + 1, most)
        report = PaceAnswer(number=1, epoch=1, pace=pace)
        found.append(report.model_dump_json(exclude_defaults=True).encode())
    return found


def of_judge(nodes: int, rounds: int) -> Iterator[Figure]:
    """Seconds in which a registry does nothing else: for one answer, and to judge at last. The
    straggler has to be found."""
    said = answers(nodes)
    merged, judging = list[float](), list[float]()
    for _ in range(rounds):
        timeline = Timeline()
        for slot, data in enumerate(said):
            began = time.perf_counter()
            pace = PaceAnswer.model_validate_json(data).pace
            assert pace is not None
            timeline.add(slot, pace)
            merged.append(time.perf_counter() - began)
        began = time.perf_counter()
        found = judge(timeline.groups())
        judging.append(time.perf_counter() - began)
        assert found is not None
        assert found.who == (SLOW // RANKS, SLOW)
    note = f"all {nodes} answers: {sum(merged) / rounds:.2f} s, {sum(map(len, said)) / 1e6:.1f} MB"
    median_ms = round(1000 * statistics.median(merged), 2)
    yield Figure("pace_answer", nodes, median_ms, "ms", 2.0, rounds, note=note)
    yield Figure("pace_judge", nodes, round(1000 * max(judging), 1), "ms", 100.0, rounds)
