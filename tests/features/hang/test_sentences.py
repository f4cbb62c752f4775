"""The words of a verdict, by value."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from features.hang import FEATURE
from features.hang.rules.seen import see
from features.hang.rules.sentences import (
    NEXT_STEPS,
    of_text,
    operation_of,
    place_text,
    ranks_text,
    tail_text,
)
from features.hang.rules.verdict import Rule
from rendezvous.wire.words import all_of, duration_text, numbers_text
from tests.features.hang.runs import IMPORT, One, late, run


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(0.04, "0.0 s"), (4.21, "4.2 s"), (9.94, "9.9 s"), (9.96, "10 s"), (119.4, "119 s")],
        *[(119.6, "2 min"), (130, "2 min 10 s"), (240, "4 min"), (599, "9 min 59 s")],
        *[(600, "10 min"), (3599, "59 min"), (7199, "119 min"), (7200, "2 h"), (90000, "25 h")],
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_all_of_two_are_both() -> None:
    words = [all_of(count) for count in (1, 2, 3)]
    assert words == ["the node", "both nodes", "all 3 nodes"]
    assert all_of(2, "directed pair") == "both directed pairs"


def test_ranks_are_named_by_their_spans_and_nodes() -> None:
    assert [numbers_text(ranks) for ranks in ([5], [8, 0, 1, 2])] == ["rank 5", "ranks 0-2, 8"]
    assert numbers_text(range(0, 20, 2)) == "ranks 0, 2, 4, 6, 8 and 5 more"
    assert [of_text([1], 8), of_text(range(8), 8), of_text([0, 1], 2), of_text([0], 1)] == [
        "1 of 8 ranks",
        "all 8 ranks",
        "both ranks",
        "the only rank",
    ]
    seen = list(see(run(*[late()] * 8)).by_number.values())
    assert ranks_text(seen[4:5]) == "rank 4 (node 2, gpu-17)"
    assert ranks_text(seen[4:6]) == "ranks 4-5 (node 2, gpu-17)"
    assert ranks_text(seen[5:7]) == "rank 5 (node 2, gpu-17), rank 6 (node 3, gpu-18)"
    assert ranks_text(seen) == "ranks 0-7 (of 4 nodes)"


def test_a_node_may_have_no_name() -> None:
    look = run(late())
    nodes = [node.model_copy(update={"hostname": ""}) for node in look.nodes]
    [seen] = see(look.model_copy(update={"nodes": nodes})).by_number.values()
    assert ranks_text([seen]) == "rank 0 (node 0)"


@pytest.mark.parametrize(
    ("operation", "text"),
    [("nccl:all_reduce", "all_reduce"), ("_allgather_base", "allgather_base"), ("x", "x")],
)
def test_an_operation_is_said_without_its_library(operation: str, text: str) -> None:
    assert operation_of(operation) == text


def test_an_import_is_said_with_its_package() -> None:
    own = (("<module>", "/home/u/big.py", 1), IMPORT[0])
    ranks = [One((), stack) for stack in (IMPORT, own)]
    words = [place_text(seen) for seen in see(run(*ranks)).by_number.values()]
    where = "_find_and_load (<frozen importlib._bootstrap>:1176), called by <module> (hang.py:1)"
    assert words == [
        f"it is importing torch, in {where}",
        "it is importing, in <module> (big.py:1)",
    ]


def test_what_a_verdict_was_made_from() -> None:
    assert tail_text((), 8, (), ()) == ""
    assert tail_text(("/proc",), 1, (), ()) == " (from /proc; the only rank answered)"
    silent = tail_text(("recorder", "stacks", "/proc"), 8, (3, 4), (1,))
    assert silent == " (from flight recorders, stacks and /proc; ranks 3-4 did not answer)"
    assert tail_text(("stacks",), 8, (), (1, 2)) == " (from stacks; no answer from slots 1, 2)"


def test_each_rule_has_a_next_step() -> None:
    assert set(NEXT_STEPS) == set(get_args(Rule))


def test_the_page_on_looks_has_every_rule() -> None:
    text = (Path(__file__).parents[3] / "docs" / FEATURE.doc).read_text(encoding="utf-8")
    rows = text.partition("| rule |")[2].partition("\n\n")[0]
    named = [row.split("`")[1] for row in rows.splitlines()[2:]]
    assert sorted(named) == sorted(get_args(Rule))
    assert NEXT_STEPS.keys() == set(named)
