"""`rdzv bench`: which pairs are measured, who is named, and the page that is printed."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

import worker.programs.bandwidth
from worker.programs.bandwidth import (
    Pair,
    Suspicion,
    Verdict,
    deliver,
    judge,
    report,
    rounds_of,
    second_pass,
    suspect,
)

Speed = Callable[[int, int], float]
"""GB/s that a pair of nodes reaches."""


def examine(count: int, first: Speed, alone: Speed | None = None) -> Verdict:
    """Measure so many nodes (h0, h1, ...) as the program does: all pairs, then suspects alone."""
    pairs = {pair: first(*pair) for some in rounds_of(range(count)) for pair in some}
    suspects = second_pass(suspect(pairs, 0.5), pairs)
    again = {pair: (alone or first)(*pair) for pair in suspects}
    return judge([f"h{node}" for node in range(count)], pairs, again, 0.5)


def even(one: int, other: int) -> float:
    """All pairs are about as fast."""
    return 10.0 - (one + other) % 3


def slow(*nodes: int, speed: float = 1.0) -> Speed:
    """Some nodes are slow with everybody."""
    return lambda one, other: speed if {one, other} & {*nodes} else even(one, other)


def slow_between(*pairs: Pair) -> Speed:
    """Some pairs are slow, and nothing else."""
    return lambda one, other: 1.0 if (one, other) in pairs else even(one, other)


# --- rounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 128])
def test_the_rounds_hold_every_pair_once_and_every_node_once_a_round(count: int) -> None:
    rounds = rounds_of(range(count))
    assert sorted(pair for some in rounds for pair in some) == [*combinations(range(count), 2)]
    for some in rounds:
        nodes = [node for pair in some for node in pair]
        assert len(nodes) == len({*nodes}) == count - count % 2
    assert len(rounds) == (count - 1 if count % 2 == 0 else count)


# --- who is named -----------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "node"), [(3, 2), (4, 0), (5, 4), (128, 127)])
def test_the_one_slow_node_is_named(count: int, node: int) -> None:
    verdict = examine(count, slow(node))
    assert (verdict.slow_nodes, verdict.slow_pairs) == ([node], [])
    assert verdict.sentences[0].startswith(f"node {node} (h{node}) is slow: 1 GB/s with node ")


def both(one: Speed, other: Speed) -> Speed:
    return lambda *pair: min(one(*pair), other(*pair))


def twice(*pair: int) -> float:
    return 2 * slow(2, speed=4.0)(*pair)  # 8 GB/s: more than usual in the first pass


PAIR = slow_between((1, 4))
GOOD = "no node is slow: the slowest pair, node 1 (h1) and node 4 (h4), reaches 80% of the usual 10"
APART = (
    "node 1 (h1) and node 4 (h4) are slow with each other: 1 GB/s, measured alone, where "
    "node 1 (h1) and node 2 (h2) reach 10 GB/s; both are fast with all others, so check what "
    "is between these two (switch, route, MTU)"
)
CLEARED = (
    "node 2 (h2) was slow in the first pass and is not when measured alone (8 GB/s with node "
    "0 (h0) and 8 GB/s with node 3 (h3); node 0 (h0) and node 3 (h3) reach 10 GB/s): other "
    "traffic, or a link that all nodes share, slowed it down"
)
WITH_SOME = slow_between((2, 3), (2, 5), (2, 7))
TWO = "1 GB/s with node 3 (h3) and 1 GB/s with node 5 (h5)"
MOMENT = "were slow with each other in the first pass and are not"
SLOW_2 = (
    "1 GB/s with node 0 (h0) and 1 GB/s with node 3 (h3), measured alone, where node 0 (h0) "
    "and node 3 (h3) reach 10 GB/s; check its link (speed, cable, switch port) and what else "
    "uses its processors, and run 'rdzv doctor' there"
)
SPLIT = "the 4 nodes are split: 5 of 6 pairs are slower"


@pytest.mark.parametrize(
    ("count", "first", "alone", "nodes", "pairs", "words"),
    [
        (5, even, None, [], [], GOOD),
        (16, slow(3, 9, 12), None, [3, 9, 12], [], "is slow: 1 GB/s with node"),
        (6, PAIR, None, [], [(1, 4)], APART),
        (8, WITH_SOME, None, [2], [], TWO),
        (8, both(slow(6), PAIR), None, [6], [(1, 4)], ""),
        (4, slow(2), even, [], [], CLEARED),
        (6, PAIR, even, [], [], ""),
        (4, both(slow(2), slow_between((0, 1))), slow(2), [2], [], MOMENT),
        (4, slow(2, speed=4.0), twice, [2], [], ""),  # held against nodes that are alone as well
        (4, slow(2, 3), None, [], [], SPLIT),
        (4, slow(1, 2, 3), None, [], [], ""),
        (4, slow(1, speed=0.0), None, [1], [], ""),
        (3, lambda one, other: 0.0, None, [], [], ""),
    ],
)
def test_who_is_slow_is_named_and_nobody_else(
    count: int, first: Speed, alone: Speed | None, nodes: list[int], pairs: list[Pair], words: str
) -> None:
    verdict = examine(count, first, alone)
    assert (sorted(verdict.slow_nodes), verdict.slow_pairs) == (nodes, pairs)
    assert words in "\n".join(verdict.sentences)


def test_two_nodes_are_measured_and_cannot_be_told_apart() -> None:
    [said] = judge(["a", "b"], {(0, 1): 0.25}, {}, 0.5).sentences
    assert said == (
        "nodes 0 and 1 reach 0.25 GB/s with each other; if that is slow, a third node would "
        "show which of them it is"
    )


# --- the page ---------------------------------------------------------------------------------


def result(count: int, speeds: Speed, **more: object) -> dict[str, object]:
    """A result of so many nodes."""
    verdict = examine(count, speeds)
    two = ((65536, 0.0001, 0.65536, 1.26976), (1 << 30, 0.01, 107.3742, 208.0375))
    names = ("bytes", "seconds", "algorithm_gb", "bus_gb")
    found: dict[str, object] = {
        "backend": "nccl",
        "device": "NVIDIA H100",
        "torch": "2.13.0",
        "too_long": 0,
        "second_pass": [],
        "usual": 10.0,
        "slow_below": 0.5,
        "nodes": [{"hostname": f"h{node}", "processes": 8} for node in range(count)],
        "all_reduce": [dict(zip(names, values, strict=True)) for values in two],
        "pairs": [[*pair, speeds(*pair)] for pair in combinations(range(count), 2)],
        "slow_nodes": verdict.slow_nodes,
        "slow_pairs": verdict.slow_pairs,
        "sentences": verdict.sentences,
    }
    return found | more


@pytest.mark.parametrize(
    ("nodes", "pairs", "again"),
    [([], [], []), ([2], [], [(0, 1), (0, 2), (1, 2)]), ([], [(0, 2)], [(0, 1), (0, 2)])],
)
def test_suspects_of_either_kind_are_measured_again(
    nodes: list[int], pairs: list[tuple[int, int]], again: list[tuple[int, int]]
) -> None:
    speeds = {pair: 9.0 - sum(pair) for pair in combinations(range(3), 2)}
    good = [node for node in range(3) if node not in nodes]
    suspicion = Suspicion(9.0, 4.5, nodes, pairs, good)
    assert sorted(second_pass(suspicion, speeds)) == again


def test_the_report_is_a_page_to_read() -> None:
    assert report(result(4, slow(2))).splitlines() == [
        "4 nodes, 32 processes, nccl on NVIDIA H100, torch 2.13.0",
        "",
        "all-reduce         time      algorithm            bus",
        "    64 KiB       0.1 ms     0.655 GB/s      1.27 GB/s",
        "     1 GiB        10 ms       107 GB/s       208 GB/s",
        "",
        "pairs of nodes, % of the usual 10 GB/s each way",
        "          0    1    2    3",
        "0 (h0)    -   90   10  100",
        "1 (h1)   90    -   10   90",
        "2 (h2)   10   10    -   10  slow",
        "3 (h3)  100   90   10    -",
        "",
        f"node 2 (h2) is slow: {SLOW_2}",
    ]


def test_above_32_nodes_the_report_has_the_rows_of_slow_ones_only() -> None:
    text = report(result(33, slow(17), too_long=1 << 30))
    assert "17 (h17): from 1 to 1, median 1 GB/s\n" in text
    assert "16 (h16): " not in text
    assert "16 (h16)" in report(result(32, slow(17)))
    assert "1 GiB and more were left out: it would take too long" in text


def test_one_process_has_nothing_to_measure() -> None:
    alone = result(1, even, all_reduce=[], sentences=judge(["h0"], {}, {}, 0.5).sentences)
    assert report(alone | {"nodes": [{"hostname": "h0", "processes": 1}]}).splitlines() == [
        "1 node, 1 process, nccl on NVIDIA H100, torch 2.13.0",
        "",
        "one node: there is no pair of nodes to measure",
    ]


def test_the_result_goes_into_the_file_or_else_the_report_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = result(3, even)
    deliver(found, str(tmp_path / "result.json"))
    assert json.loads((tmp_path / "result.json").read_text()) == found
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert capsys.readouterr().out == ""
    deliver(found, None)
    assert capsys.readouterr().out == report(found) + "\n"


def test_the_program_is_one_that_an_older_python_reads() -> None:
    text = Path(worker.programs.bandwidth.__file__).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 9))
