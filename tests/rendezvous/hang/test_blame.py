"""No innocent rank is named, whatever answers are lost and however the nodes answer."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rendezvous.hang import look_at
from tests.rendezvous.hang.runs import LINE, RECV, One, run, without
from tests.rendezvous.hang.simulated import Collective, Program, Step, Stuck, grid, pipeline

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
@settings(max_examples=300, deadline=None)
def test_the_rank_that_is_stuck_is_named_or_none(plan: Planted, per_node: int) -> None:
    ranks, odd = plan
    found = look_at(run(*ranks, per_node=per_node))
    assert found.odd in ((), (odd,)), found
    assert not found.certain or found.odd == (odd,), found


@given(planted(), st.integers(1, 3), st.integers(), st.sampled_from([0.1, 0.3, 0.7]), st.data())
@settings(max_examples=600, deadline=None)
def test_lost_answers_name_no_innocent_rank(
    plan: Planted, per_node: int, seed: int, share: float, data: st.DataObject
) -> None:
    ranks, odd = plan
    look = run(*lose(ranks, seed, share), per_node=per_node)
    slots = [node.slot for node in look.nodes]
    lost = without(look, data.draw(st.sets(st.sampled_from(slots))))
    for each in (look, lost):
        assert set(look_at(each).odd) <= {odd}, look_at(each)


@given(planted(others=True), st.integers(1, 3))
@settings(max_examples=600, deadline=None)
def test_a_rank_that_takes_other_steps_is_named_or_none(plan: Planted, per_node: int) -> None:
    ranks, odd = plan
    found = look_at(run(*ranks, per_node=per_node))
    assert set(found.odd) <= {odd}, found


@given(planted(), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_the_nodes_changes_nothing(
    plan: Planted, per_node: int, chance: random.Random
) -> None:
    look = run(*plan[0], per_node=per_node)
    nodes = list(look.nodes)
    chance.shuffle(nodes)
    assert look_at(look.model_copy(update={"nodes": nodes})) == look_at(look)
