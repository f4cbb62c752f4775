"""No innocent rank is named, whatever answers are lost and however the nodes answer."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.hang.rules import look_at
from tests.features.hang.runs import LINE, RECV, Frames, One, group, late, run, waits, without
from tests.features.hang.simulated import Collective, Program, Step, Stuck, grid, pipeline
from tests.support.nightly import examples

Planted = tuple[list[One], int]


@st.composite
def planted(draw: st.DrawFn, *, hidden: bool = False, others: bool = False) -> Planted:
    """Ranks of which one is stuck in its own code, and which. `hidden`: who waits for a message may
    show a line of its own; `others`: it may take other steps instead."""
    steps, members = draw(
        st.one_of(
            st.builds(grid, st.integers(1, 3), st.integers(2, 4), st.integers(1, 3)),
            st.builds(pipeline, st.integers(2, 4), st.integers(1, 3), st.integers(1, 3)),
        )
    )
    odd = draw(st.integers(0, len(steps) - 1))
    at = draw(st.integers(0, len(steps[odd]) - 1))
    own = steps[odd]
    kinds = st.sampled_from(["stuck", "skips", "more", "other", "size"])
    kind = draw(kinds) if others else "stuck"
    change: dict[str, list[Step]] = {
        "stuck": [Stuck(), *own[at:]],
        "skips": own[at + 1 :],
        "more": [own[at], *own[at:]],
        "other": [_changed(own[at], operation="reduce"), *own[at + 1 :]],
        "size": [_changed(own[at], what="float32[9]"), *own[at + 1 :]],
    }
    one = [*own[:at], *change[kind]]
    program = Program([*steps[:odd], one, *steps[odd + 1 :]], members)
    program.run()
    receive = draw(st.sampled_from([RECV, LINE])) if hidden else RECV
    return program.seen(with_members=draw(st.booleans()), receive=receive), odd


def _changed(step: Step, **values: str) -> Step:
    return replace(step, **values) if isinstance(step, Collective) else Stuck()


def lose(ranks: list[One], seed: int, share: float) -> list[One]:
    """The same, with some stacks and some recorders unread."""
    chance = random.Random(seed)
    found = []
    for one in ranks:
        if chance.random() < share:
            one = one.but(groups=(), recorder=chance.choice(["silent", "none", "absent"]))
        if chance.random() < share:
            one = one.but(stack=None)
        found.append(one)
    return found


@given(planted(hidden=True), st.integers(1, 3))
@settings(max_examples=examples(100), deadline=None)
def test_the_rank_that_is_stuck_is_named_or_none(plan: Planted, per_node: int) -> None:
    ranks, odd = plan
    found = look_at(run(*ranks, per_node=per_node))
    assert found.odd in ((), (odd,)), found
    assert not found.certain or found.odd == (odd,), found


@given(planted(), st.integers(1, 3), st.integers(), st.sampled_from([0.1, 0.3, 0.7]), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_lost_answers_name_no_innocent_rank(
    plan: Planted, per_node: int, seed: int, share: float, data: st.DataObject
) -> None:
    ranks, odd = plan
    look = run(*lose(ranks, seed, share), per_node=per_node)
    slots = [node.slot for node in look.nodes]
    lost = without(look, data.draw(st.sets(st.sampled_from(slots))))
    assert not (look_at(lost).certain and look_at(lost).silent_nodes)
    for each in (look, lost):
        assert set(look_at(each).odd) <= {odd}, look_at(each)


@given(planted(others=True), st.integers(1, 3))
@settings(max_examples=examples(200), deadline=None)
def test_a_rank_that_takes_other_steps_is_named_or_none(plan: Planted, per_node: int) -> None:
    ranks, odd = plan
    found = look_at(run(*ranks, per_node=per_node))
    assert set(found.odd) <= {odd}, found


@given(planted(), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=examples(50), deadline=None)
def test_the_order_of_the_nodes_changes_nothing(
    plan: Planted, per_node: int, chance: random.Random
) -> None:
    look = run(*plan[0], per_node=per_node)
    nodes = list(look.nodes)
    chance.shuffle(nodes)
    assert look_at(look.model_copy(update={"nodes": nodes})) == look_at(look)


@given(
    st.one_of(
        st.builds(grid, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)),
        st.builds(pipeline, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
    ),
    st.integers(1, 400),
    st.sampled_from([RECV, LINE]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(150), deadline=None)
def test_a_run_that_is_well_is_never_called_stuck(
    plan: tuple[list[list[Step]], dict[str, list[int]]],
    moves: int,
    receive: Frames,
    with_members: bool,
    chance: random.Random,
) -> None:
    program = Program(*plan)
    program.run_for(moves, chance)
    ranks = program.seen(with_members=with_members, age=0.2, receive=receive)
    found = look_at(run(*ranks))
    assert found.odd == ()
    assert not found.certain
    if any(one.groups for one in ranks):
        assert found.rule == "moving", found


@pytest.mark.nightly
def test_the_largest_run_is_judged_soon() -> None:
    """1,024 nodes of 8 ranks; 0.2 s of CPU on the machine where it was written."""
    odd = late(880)
    ranks = [
        (waits(881) if rank != 4711 else odd).but(
            groups=(
                (waits(881) if rank != 4711 else odd).groups[0],
                group(500, 500, name=f"tp{rank // 8}", words="tp"),
                group(50, 50, name=f"dp{rank % 8}", words="dp"),
            )
        )
        for rank in range(8192)
    ]
    look = run(*ranks, per_node=8)
    began = time.process_time()
    found = look_at(look)
    assert time.process_time() - began < 2
    assert (found.rule, found.odd, found.certain) == ("behind", (4711,), True)
