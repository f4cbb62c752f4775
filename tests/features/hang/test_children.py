"""Ranks that wait for processes of their own, and ranks that have none: what is said of them."""

from __future__ import annotations

import pytest

from features.hang.beside_ranks import beside_ranks
from features.hang.rules import look_at
from features.hang.rules.verdict import Verdict
from features.hang.wire import LookReport, NodeLook, ProcessLook, RankLook, RunLook
from tests.features.hang.runs import (
    FORWARD,
    INIT,
    JOIN,
    LOAD,
    REDUCE,
    SAVE,
    Frames,
    One,
    later,
    run,
    waits,
)


def starts(*children: Frames | None, stack: Frames | None = JOIN) -> One:
    """A rank that has started these, and waits for them."""
    return One((), stack, "none", stage="imported", children=children)


def says(*ranks: One) -> Verdict:
    return look_at(run(*ranks, per_node=1))


def test_the_one_child_that_the_others_wait_for_is_named() -> None:
    verdict = says(starts(REDUCE, REDUCE), starts(REDUCE, LOAD))
    assert (verdict.rule, verdict.odd, verdict.certain) == ("children", (1,), False)
    assert verdict.sentence == (
        "both ranks wait for processes that they started, in select (selectors.py:415), called by "
        "main (spawn.py:14): 3 of these 4 are in all_reduce; process 10011 of rank 1 (node 1, "
        "gpu-16) is not: it is in load_batch (hang.py:3) (from stacks and /proc; both ranks "
        "answered)"
    )
    assert "--rank 1" in verdict.next_step
    assert "files" not in verdict.next_step


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        # Of two, each may be the odd one.
        ([starts(REDUCE, LOAD)], "the only rank waits for processes that it started"),
        # One that was not seen may be.
        ([starts(REDUCE, None), starts(REDUCE, REDUCE)], "waiting in futex_do_wait"),
        ([starts(REDUCE, SAVE), starts(REDUCE, LOAD)], "is in save (ckpt.py:8)"),
        ([starts(FORWARD, FORWARD), starts(FORWARD, FORWARD)], "4 are in forward"),
    ],
)
def test_where_another_may_be_the_odd_one_all_are_shown_and_none_is_named(
    ranks: list[One], words: str
) -> None:
    verdict = says(*ranks)
    assert (verdict.rule, verdict.odd) == ("children", ())
    assert words in verdict.sentence


def test_a_child_that_moves_is_not_stuck() -> None:
    before = run(starts(REDUCE, REDUCE), starts(REDUCE, LOAD), per_node=1)
    after = later(10.0, starts(REDUCE, REDUCE), starts(REDUCE, SAVE), per_node=1)
    assert look_at(after, before).rule == "moving"


def test_a_shell_that_waits_in_the_kernel_shows_what_it_waits_for() -> None:
    shell = One((), None, "absent", stage="unknown", children=(None,))
    shell = shell.but(more={"waits_in": "do_wait"})
    verdict = says(shell, shell)
    assert verdict.rule == "children"
    assert "wait for processes that they started" in verdict.sentence


def test_a_rank_without_children_waits_for_none_of_its_own() -> None:
    """The same place, as of a thread's queue."""
    assert says(starts(), starts()).rule != "children"


def test_the_rank_that_others_wait_for_is_where_its_loader_is() -> None:
    loads = starts(LOAD, LOAD).but(groups=waits(20).groups, recorder="read", stage="groups")
    [group] = loads.groups
    late = loads.but(groups=(group.model_copy(update={"ended": 20}),))
    verdict = says(waits(), waits(), waits(), late)
    assert (verdict.rule, verdict.odd) == ("behind", (3,))
    assert "waits for 2 processes that it started: 2 are in load_batch" in verdict.sentence


# --- no process -----------------------------------------------------------------------------------

GET: Frames = (("get", "torch/distributed/elastic/utils/store.py", 9), ("run", "/x/t.py", 1))


def unstarted(
    index: int, *, lives: float = 120.0, stack: bool = True, cpu: float = 0.0
) -> NodeLook:
    """A node whose launcher has not started its two ranks."""
    first, [frames] = 2 * index, run(One(stack=GET)).nodes[0].report.stacks  # type: ignore[union-attr]
    launcher = ProcessLook(
        pid=71,
        name="python torchrun",
        state="S",
        waits_in="futex_do_wait",
        lives=lives,
        cpu=cpu,
        stack=0 if stack else None,
    )
    report = LookReport(
        number=1,
        epoch=0,
        ranks=[RankLook(rank=first), RankLook(rank=first + 1)],
        stacks=[frames],
        launcher=launcher,
        unstarted=[first, first + 1],
    )
    return NodeLook(slot=index, node=index, hostname=f"gpu-{15 + index}", report=report)


INSIDE = One((), INIT, "none", stage="imported")


def mixed(*nodes: NodeLook) -> RunLook:
    """A node whose ranks make their first process group, and these."""
    begun = run(INSIDE, INSIDE)
    return begun.model_copy(update={"nodes": [*begun.nodes, *nodes]})


def test_a_node_whose_launcher_waits_for_another_one_is_named() -> None:
    verdict = look_at(mixed(unstarted(1)))
    assert (verdict.rule, verdict.odd, verdict.certain) == ("starting", (2, 3), True)
    assert verdict.sentence == (
        "ranks 2-3 (node 1, gpu-16) have no process yet: their launcher (python torchrun, "
        "process 71) is in get (store.py:9), called by run (t.py:1); 2 of 4 ranks wait for others "
        "(from stacks and /proc; all 4 ranks answered)"
    )


@pytest.mark.parametrize(
    ("node", "odd", "certain"),
    [
        (unstarted(1, lives=20.0), (), False),  # it begins
        (unstarted(1, cpu=0.2), (2, 3), False),  # it is at work
        (unstarted(1, stack=False), (2, 3), True),
    ],
)
def test_a_launcher_that_begins_or_works_is_not_blamed_for_certain(
    node: NodeLook, odd: tuple[int, ...], certain: bool
) -> None:
    verdict = look_at(mixed(node))
    assert (verdict.rule, verdict.odd, verdict.certain) == ("starting", odd, certain)


def test_where_no_rank_was_started_each_launcher_is_shown() -> None:
    verdict = look_at(RunLook(number=1, over=True, nodes=[unstarted(0), unstarted(1, stack=False)]))
    assert (verdict.rule, verdict.odd) == ("starting", ())
    assert verdict.sentence == (
        "no rank has a process yet: on node 0 its launcher (python torchrun, process 71) is in "
        "get (store.py:9), called by run (t.py:1), on node 1 its launcher (python torchrun, "
        "process 71) is in state S, waiting in futex_do_wait (from stacks and /proc; all 4 ranks "
        "answered)"
    )


def test_ranks_before_their_first_group_are_said_to_be_where_they_are() -> None:
    """The speed of the node's files has nothing to do with a rank that sleeps in its own code."""
    sleeps = One((), LOAD, "none", stage="imported")
    verdict = says(sleeps, sleeps)
    assert (verdict.rule, verdict.odd) == ("starting", ())
    assert verdict.sentence.startswith(
        "no rank has a process group yet: ranks 0-1 are in load_batch (hang.py:3)"
    )
    one = says(INSIDE, sleeps.but(stage="starting"))
    assert "rank 1 (node 1, gpu-16) is before its first process group" in one.sentence
    assert "1 of 2 ranks has begun and waits for others" in one.sentence
    assert "files" not in verdict.next_step + one.next_step


# --- what a person is shown -----------------------------------------------------------------------


def test_children_and_launchers_are_listed_with_their_stacks_the_odd_ones_first() -> None:
    found = run(starts(REDUCE, REDUCE), starts(REDUCE, LOAD), per_node=1)
    places = beside_ranks(found.model_copy(update={"nodes": [*found.nodes, unstarted(2)]}))
    waits = "state S, waits in futex_do_wait"
    child = f"process 10011 (python -c spawn_main), started by rank 1 (node 1, gpu-16), {waits}"
    assert [(one.head, one.ranks) for one in places] == [
        (f"the launcher of node 2, gpu-17: process 71 (python torchrun), {waits}", (4, 5)),
        (child, (1,)),
        ("3 processes, started by ranks 0-1", (0, 1)),
    ]
    assert [one.stack.frames[0].function for one in places if one.stack] == [
        "get",
        "load_batch",
        "all_reduce",
    ]
