"""Who is named, over programs and seeds: never who is innocent, and who makes the others wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rendezvous.pace import PaceWatch, Straggler, Who, judged
from rendezvous.wire.pace import Arrivals, Pace, PaceAnswer, Receives
from rendezvous.wire.question import Answers, NodeAnswer
from tests.rendezvous.pace import programs
from tests.rendezvous.pace.programs import (
    ALL,
    Job,
    Slow,
    buckets,
    copies,
    evaluates,
    extra,
    gathered,
    grid,
    local,
    logs,
    plain,
    sharded,
    single_extra,
)
from tests.rendezvous.pace.world import World, arrivals, judge, looks, true_cost
from tests.support.nightly import examples

PROGRAMS = (
    *(plain, buckets, sharded, gathered, grid, programs.pipeline, programs.never_waits),
    *(programs.waits_later, local, logs, extra, single_extra, copies, evaluates),
    programs.other_order,
)
TROUBLES: dict[str, dict[str, Any]] = {
    "calm": {},
    "very calm": {"noise": 0.002, "release": 0.0005},
    "heavy tails": {"noise": 0.4, "network": 0.3},
    "two ranks": {"ranks": 2, "per_node": 1, "noise": 0.1},
    "two ranks, heavy tails": {"ranks": 2, "per_node": 1, "noise": 0.4},
    "two nodes of four": {"ranks": 8, "per_node": 4, "tensor": 4, "noise": 0.1},
    "pauses": {"ordinary": "pauses"},
    "drift": {"ordinary": "drift"},
    "warm-up": {"ordinary": "warm"},
    "batches": {"ordinary": "batches"},
    "steps of 1 ms": {"step": 0.001, "release": 0.1, "clocks": 0.0003},
    "steps of 30 s": {"step": 30.0, "steps": 44},
    "network": {"network": 2.0, "release": 0.2, "noise": 0.05},
    "bad clocks": {"clocks": 0.05},
}

MOST = {programs.other_order: 0.05}
"""Which part of looks may be wrong; where a rank makes up for its lateness, chance shows it."""


def told(found: list[Straggler | None]) -> Straggler | None:
    """Whom the registry tells of after these looks."""
    watch, who, last = PaceWatch(epoch=0), "nobody", None
    for one in found:
        watch, news = judged(watch, one, _who(who, last), 0.0)
        if news is not None:
            last = news.straggler
    return last


def _who(nobody: Any, last: Straggler | None) -> Who:
    return last.who if last is not None else nobody


def long(job: Job) -> Job:
    """With enough calls: where parameters are averaged, eight steps are one."""
    return replace(job, steps=8 * job.steps) if job.program is local else job


def innocents(program: Callable[..., Any], seeds: range, steps: int) -> tuple[int, int]:
    """How many looks name somebody though nobody is slow, and how often two do, and agree."""
    single, double = 0, 0
    for trouble in TROUBLES.values():
        for seed in seeds:
            job = long(Job(program, **{"steps": steps, **trouble}))
            found = [judge(look) for look in looks(job, seed)]
            single += sum(one is not None for one in found)
            double += told(found) is not None
    return single, double


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_nobody_is_named_where_nobody_is_slow(program: Callable[..., Any]) -> None:
    """420 looks in all; a single one may be wrong now and then."""
    single, double = innocents(program, range(1), 60)
    assert single <= max(1, MOST.get(program, 0.015) * 28)
    assert double == 0


@pytest.mark.nightly
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_nobody_is_named_in_many_more(program: Callable[..., Any]) -> None:
    """25,200 looks in all."""
    single, double = innocents(program, range(1000, 1060), 100)
    assert single <= MOST.get(program, 0.015) * 1680
    assert double == 0


# ---- who is slow --------------------------------------------------------------------------------

Case = tuple[Job, tuple[int, int | None]]
EIGHT: dict[str, Any] = {"ranks": 8, "per_node": 4, "tensor": 4}
TWELVE: dict[str, Any] = {"ranks": 12, "per_node": 4, "tensor": 4}
FINE: dict[str, Any] = {"clocks": 0.0001}


def slow(program: Callable[..., Any], *ranks: int, share: float = 0.2, **more: Any) -> Job:
    where, part = more.pop("where", "work"), more.pop("part", (0.0, 1.0))
    return long(Job(program, slow=(Slow(ranks, share, where, part),), **more))


CASES: dict[str, Case] = {
    "plain, the first": (slow(plain, 0, share=0.15), (0, 0)),
    "plain, another": (slow(plain, 3, share=0.15), (1, 3)),
    "plain, while loading": (slow(plain, 1, where="load"), (0, 1)),
    "plain, two ranks": (slow(plain, 1, ranks=2, per_node=1, share=0.3), (1, 1)),
    "plain, one of eight": (slow(plain, 5, **EIGHT), (1, 5)),
    "plain, much": (slow(plain, 2, share=2.0), (1, 2)),
    "plain, a node": (slow(plain, 4, 5, 6, 7, share=0.25, **TWELVE), (1, None)),
    "plain, one rank on each node": (slow(plain, 2, ranks=6, per_node=1), (2, 2)),
    "plain, 1 ms": (slow(plain, 2, share=1.0, step=0.001, clocks=0.00005), (1, 2)),
    "plain, 30 s": (slow(plain, 2, step=30.0, steps=44), (1, 2)),
    "plain, all batches alike": (slow(plain, 2, share=0.3, ordinary="batches"), (1, 2)),
    "plain, drift": (slow(plain, 2, share=0.3, ordinary="drift"), (1, 2)),
    "plain, pauses": (slow(plain, 2, ordinary="pauses"), (1, 2)),
    "plain, warm-up": (slow(plain, 2, share=0.3, ordinary="warm"), (1, 2)),
    "buckets": (slow(buckets, 3), (1, 3)),
    "buckets, while loading": (slow(buckets, 1, where="load"), (0, 1)),
    "buckets, a node": (slow(buckets, 4, 5, 6, 7, share=0.25, **TWELVE), (1, None)),
    "gathered": (slow(gathered, 3, share=0.4, **FINE), (1, 3)),
    "gathered, while loading": (slow(gathered, 1, share=0.3, where="load"), (0, 1)),
    "gathered, a node": (slow(gathered, 4, 5, 6, 7, share=0.5, **TWELVE, **FINE), (1, None)),
    "grid": (slow(grid, 3), (1, 3)),
    "grid, while loading": (slow(grid, 5, where="load", **EIGHT), (1, 5)),
    "grid, at the end of a step": (slow(grid, 5, where="end", **EIGHT), (1, 5)),
    "grid, one of twelve": (slow(grid, 5, **TWELVE), (1, 5)),
    "grid, a node": (slow(grid, 4, 5, 6, 7, share=0.3, **TWELVE), (1, None)),
    "grid, groups over two nodes": (slow(grid, 5, ranks=8, per_node=2, tensor=4), (2, 5)),
    "local": (slow(local, 2), (1, 2)),
    "logs": (slow(logs, 2), (1, 2)),
    "extra": (slow(extra, 2, share=0.25), (1, 2)),
    "single extra": (slow(single_extra, 2), (1, 2)),
    "copies": (slow(copies, 2), (1, 2)),
    "evaluates": (slow(evaluates, 2), (1, 2)),
}
"""Each costs about a tenth of the step or more."""
_DEAR = ("buckets, a node", "gathered, a node", "grid, one of twelve", "grid, at the end of a step")
"""Left to the nights, which try them over many seeds, as all others."""


def tried(job: Job, who: tuple[int, int | None], seeds: range) -> tuple[int, list[float]]:
    """How often it is told, and what it is told to cost, by what it does; nobody else is named."""
    found, costs = 0, []
    for seed in seeds:
        one = told([judge(look) for look in looks(job, seed)])
        if one is not None:
            assert one.who == who, seed
            found += 1
            costs.append(one.cost / true_cost(job, seed) / (8 if job.program is local else 1))
    return found, costs


@pytest.mark.parametrize("case", [case for case in CASES if case not in _DEAR])
def test_who_is_slow_is_named_with_the_cost(case: str) -> None:
    found, costs = tried(*CASES[case], range(2))
    assert found >= 1
    assert all(0.65 <= cost <= 1.35 for cost in costs), costs


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_who_is_slow_is_named_over_many_seeds(case: str) -> None:
    found, costs = tried(*CASES[case], range(1000, 1060))
    assert found >= 54
    assert sum(0.65 <= cost <= 1.35 for cost in costs) >= 0.9 * len(costs)


# ---- who is innocent ----------------------------------------------------------------------------

SOMETIMES: dict[str, Case] = {
    "sharded": (slow(sharded, 3), (1, 3)),
    "sharded, while loading": (slow(sharded, 1, where="load"), (0, 1)),
    "pipeline": (slow(programs.pipeline, 3), (1, 3)),
    "never waits": (slow(programs.never_waits, 2), (1, 2)),
    "waits later": (slow(programs.waits_later, 2), (1, 2)),
    "network": (slow(plain, 2, network=2.0, release=0.3), (1, 2)),
    "four fifths of the time": (slow(plain, 2, part=(0.1, 0.9)), (1, 2)),
    "half of the time": (slow(plain, 2, part=(0.3, 0.8)), (1, 2)),
    "other order": (slow(programs.other_order, 1), (0, 1)),
    "bad clocks": (slow(plain, 2, clocks=0.02), (1, 2)),
    "heavy tails": (slow(plain, 2, share=0.3, noise=0.4), (1, 2)),
    "two on two nodes": (Job(plain, slow=(Slow((1,), 0.2), Slow((3,), 0.6))), (1, 3)),
}
"""Nobody has to be named here, but nobody else may be."""


@pytest.mark.parametrize("case", SOMETIMES)
def test_at_most_who_is_slow_is_named(case: str) -> None:
    tried(*SOMETIMES[case], range(2))


def test_the_later_one_of_two_is_named() -> None:
    found, _ = tried(*SOMETIMES["two on two nodes"], range(4))
    assert found == 4


@pytest.mark.parametrize("program", [plain, buckets, grid])
def test_of_two_that_are_alike_none_or_either_is_named(program: Callable[..., Any]) -> None:
    job = Job(program, slow=(Slow((1, 5), 0.3),), ranks=8)
    for seed in range(2):
        for look in looks(job, seed):
            found = judge(look)
            assert found is None or found.who in ((0, 1), (2, 5))


def test_who_shares_work_with_the_slow_one_is_innocent() -> None:
    """Its data parallel groups wait for it, as late as for the slow one itself."""
    job = slow(grid, 5, **EIGHT)
    look = World(job, 1).look()
    [tensor] = [one for one in _arrivals(look) if one.group == "tp1"]
    assert set(tensor.last) == {tensor.ranks.index(5)}
    for mate in (0, 2, 3):
        [data] = [one for one in _arrivals(look) if one.group == f"dp{mate}" and one.ranks[0] > 3]
        assert data.ranks == [4 + mate]
    found = judge(look)
    assert found is not None
    assert found.who == (1, 5)


def _arrivals(look: Answers) -> list[Arrivals]:
    paces = [node.report.pace for node in look.nodes if node.report is not None]
    return [one for pace in paces if pace is not None for one in pace.arrivals]


def changed(look: Answers, slot: int, **changes: Any) -> Answers:
    """The same, where one node tells something else; `report`: of the whole report."""
    nodes = []
    for node in look.nodes:
        if node.slot == slot:
            assert node.report is not None
            assert node.report.pace is not None
            report = changes.get(
                "report",
                node.report.model_copy(
                    update={"pace": node.report.pace.model_copy(update=changes)}
                ),
            )
            node = node.model_copy(update={"report": report})
        nodes.append(node)
    return look.model_copy(update={"nodes": nodes})


LOOK = World(slow(plain, 2), 0).look()
GRID = World(slow(grid, 5, **EIGHT), 0).look()


def test_a_straggler_by_value() -> None:
    found = judge(LOOK)
    assert found is not None
    assert (found.who, found.rank, found.slot) == ((1, 2), 2, 1)
    assert 0.012 < found.cost < 0.022
    assert 0.12 < found.step < 0.14
    assert (found.last, found.of) == (99, 99)


@pytest.mark.parametrize("look", [LOOK, GRID], ids=["plain", "grid"])
@pytest.mark.parametrize("slot", [0, 1])
def test_where_a_node_tells_nothing_nobody_is_named(look: Answers, slot: int) -> None:
    report = look.nodes[slot].report
    assert report is not None
    assert judge(changed(look, slot, report=None)) is None
    assert judge(changed(look, slot, report=report.model_copy(update={"pace": None}))) is None
    assert judge(changed(look, slot, arrivals=[])) is None
    assert judge(look) is not None


def test_a_group_of_unknown_members_may_have_made_it_late() -> None:
    for slot, who in ((0, (1, 2)), (1, None)):
        own = _arrivals(LOOK)[slot]
        unknown = own.model_copy(update={"group": "x", "members": ""})
        found = judge(changed(LOOK, slot, arrivals=[own, unknown]))
        assert (found and found.who) == who


def test_members_are_not_all_where_others_have_told() -> None:
    for text in ("0-4", "0-2", "0-2,4", "x"):
        look = LOOK
        for slot, one in enumerate(_arrivals(LOOK)):
            look = changed(look, slot, arrivals=[one.model_copy(update={"members": text})])
        assert judge(look) is None


def test_a_lateness_is_larger_than_the_clocks_are_wrong() -> None:
    assert judge(changed(LOOK, 0, clock_error=0.001)) is not None
    assert judge(changed(LOOK, 0, clock_error=0.01)) is None
    assert judge(changed(LOOK, 1, clock_error=0.01)) is None


@pytest.mark.parametrize("slot", [0, 1])
def test_who_may_have_waited_for_one_other_is_not_named(slot: int) -> None:
    """By a message, or in another group."""
    own = [0, 1] if slot == 0 else [2, 3]
    for group in ("", "x"):
        told_of = [Receives(rank=rank, group=group) for rank in own]
        found = judge(changed(LOOK, slot, receives=told_of))
        assert (found and found.who) == ((1, 2) if slot == 0 else None)


@pytest.mark.parametrize(
    ("job", "who"),
    [
        (slow(plain, 2), (1, 2)),
        (slow(plain, 0), None),
        (slow(plain, 1, ranks=2, per_node=1), None),
        (slow(plain, 4, 5, 6, 7, **TWELVE), (1, None)),
        (slow(plain, 2, 3), None),
    ],
)
def test_in_its_own_group_all_others_get_values_as_it_does(
    job: Job, who: tuple[int, int | None] | None
) -> None:
    """But for the first one, which gives or collects them, and where there is no third one."""
    before = World(job, 0).look()
    seldom, often = before, before
    for slot, one in enumerate(_arrivals(before)):
        told_of = [Receives(rank=rank, group=ALL) for rank in one.ranks]
        seldom = changed(seldom, slot, receives=told_of)
        between = one.model_copy(update={"steps": [2] * len(one.steps)})
        often = changed(often, slot, receives=told_of, arrivals=[between])
    named = judge(before)
    assert named is not None
    assert judge(seldom) == named  # as at the start, before the first of the calls
    found = judge(often)
    assert (found and found.who) == who


def test_nothing_is_named_of_nothing() -> None:
    assert judge(Answers(number=1)) is None
    assert judge(_of([1000], [2000])) is None  # a single call
    assert judge(_of([0] * 60, [0] * 60)) is None
    assert judge(_of([0] * 60, [1000 * (i % 2) for i in range(60)])) is None
    assert judge(_of(list(range(0, 6_000_000, 100_000)), [], number=100)) is None


def test_calls_that_nobody_else_has_told_of_do_not_count() -> None:
    """The newest ones of a node may not have been told by another one."""
    job = slow(plain, 2)
    world = World(job, 0)
    early, late = world.look((0.0, 0.9)), world.look((0.1, 1.0))
    look = early.model_copy(update={"nodes": [early.nodes[0], late.nodes[1]]})
    found = judge(look)
    assert found is not None
    assert found.who == (1, 2)
    assert found.of in (78, 79, 80)
    early, late = world.look((0.0, 0.4)), world.look((0.5, 1.0))
    assert judge(early.model_copy(update={"nodes": [early.nodes[0], late.nodes[1]]})) is None


def _of(one: list[int], other: list[int], *, number: int = 1) -> Answers:
    """Two nodes with a rank each; with another one where only one has times."""
    nodes = []
    for rank, times in enumerate((one, other or one)):
        first = number if rank == 1 else 1
        told_of = arrivals(ALL, [0, 1], {rank: times}, "a" * len(times), first)
        report = PaceAnswer(number=1, epoch=0, pace=Pace(clock_error=0.0, arrivals=[told_of]))
        nodes.append(NodeAnswer(slot=rank, report=report))
    return Answers(number=1, nodes=nodes)


# ---- the same, by other names -------------------------------------------------------------------


def renamed(look: Answers, chance: Any, origin: int) -> tuple[Answers, dict[int, int]]:
    """The same run with other numbers, names, letters, and another order; and its ranks' names."""
    ranks = sorted({rank for one in _arrivals(look) for rank in one.ranks})
    numbers = dict(zip(ranks, chance.sample(range(100), len(ranks)), strict=True))
    names = dict(zip(sorted({one.group for one in _arrivals(look)}), "zyxwvutsrq", strict=False))
    letters = str.maketrans("abcdeg", "XYZABC")
    nodes = []
    for node in look.nodes:
        assert node.report is not None
        assert node.report.pace is not None
        told_of = []
        for one in node.report.pace.arrivals:
            members = sorted(numbers[int(rank)] for rank in one.members.split(","))
            changes = {
                "group": names[one.group],
                "members": ",".join(map(str, members)),
                "ranks": [numbers[rank] for rank in one.ranks],
                "kinds": one.kinds.translate(letters),
                "began": one.began + origin,
            }
            told_of.append(one.model_copy(update=changes))
        chance.shuffle(told_of)
        pace = node.report.pace.model_copy(update={"arrivals": told_of})
        report = node.report.model_copy(update={"pace": pace})
        nodes.append(node.model_copy(update={"slot": 50 - node.slot, "report": report}))
    chance.shuffle(nodes)
    return look.model_copy(update={"nodes": nodes}), numbers


NAMED = {
    "plain": LOOK,
    "grid": GRID,
    "a node": World(CASES["plain, a node"][0], 0).look(),
    "a node of a grid": World(CASES["grid, a node"][0], 0).look(),
    "buckets": World(slow(buckets, 3), 0).look(),
    "nobody": World(Job(grid), 0).look(),
}


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(sorted(NAMED)), st.randoms(), st.integers(-(10**16), 10**16))
def test_names_order_and_origin_do_not_matter(case: str, chance: Any, origin: int) -> None:
    before = judge(NAMED[case])
    look, numbers = renamed(NAMED[case], chance, origin)
    after = judge(look)
    if before is None or after is None:
        assert before is after
        return
    rank = None if before.rank is None else numbers[before.rank]
    assert after.who == (50 - before.slot, rank)
    assert (after.last, after.of) == (before.last, before.of)
    assert after.cost == pytest.approx(before.cost, abs=2e-6)


@settings(max_examples=examples(30), deadline=None)
@given(st.sampled_from(sorted(NAMED)), st.integers(0, 3), st.integers(1, 5))
def test_groups_of_others_do_not_matter(case: str, seed: int, calls: int) -> None:
    """Those of other nodes, and those of the same ranks that wait for nobody."""
    look = NAMED[case]
    job = Job(plain, noise=0.05, steps=60)
    others = []
    for node in World(job, seed).look().nodes:
        assert node.report is not None
        assert node.report.pace is not None
        [one] = node.report.pace.arrivals
        ranks = [100 + rank for rank in one.ranks]
        one = one.model_copy(update={"ranks": ranks, "members": "100-103"})
        pace = node.report.pace.model_copy(update={"arrivals": [one]})
        report = node.report.model_copy(update={"pace": pace})
        others.append(node.model_copy(update={"slot": 100 + node.slot, "report": report}))
    own = []
    every = sorted({rank for one in _arrivals(look) for rank in one.ranks})
    for node in look.nodes:
        assert node.report is not None
        assert node.report.pace is not None
        told_of = node.report.pace.arrivals
        ranks = sorted({rank for one in told_of for rank in one.ranks})
        at = [10**9 + 1000 * i for i in range(calls)]
        more = arrivals("quiet", every, dict.fromkeys(ranks, at), "q" * calls)
        pace = node.report.pace.model_copy(update={"arrivals": [*told_of, more]})
        report = node.report.model_copy(update={"pace": pace})
        own.append(node.model_copy(update={"report": report}))
    assert judge(look.model_copy(update={"nodes": [*others, *own]})) == judge(look)
