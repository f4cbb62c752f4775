"""When a silent run is looked at, and whether the rank for which the others wait is at work."""

from __future__ import annotations

import pytest

from features.hang.rules import look_at
from features.hang.watch import (
    AGAIN_SECONDS,
    MOVED_BYTES,
    REPEAT_SECONDS,
    Ask,
    Judge,
    StallWatch,
    asked,
    at_work,
    forgotten,
    is_stuck,
    step,
)
from features.hang.wire import LookReport, NodeLook, ProcessLook, RankLook, RunLook
from tests.features.hang.runs import INIT, LOAD, SAVE, One, late, run, waits

# --- when it is looked at -------------------------------------------------------------------------


def test_a_run_in_which_something_moves_is_not_looked_at() -> None:
    assert step(StallWatch(), None, 5.0, is_over=True) == (StallWatch(), None)


def test_two_looks_are_judged_and_then_one_follows_each_minute() -> None:
    watch, wanted = step(StallWatch(), 100.0, 220.0, is_over=True)
    assert wanted == Ask()
    watch = asked(watch, 1, 220.0)
    assert step(watch, 100.0, 220.25, is_over=False) == (watch, None)
    assert step(watch, 100.0, 220.0 + AGAIN_SECONDS - 0.1, is_over=True) == (watch, None)
    watch, wanted = step(watch, 100.0, 220.0 + AGAIN_SECONDS, is_over=True)
    assert wanted == Ask()
    watch = asked(watch, 2, 230.0)
    assert step(watch, 100.0, 230.25, is_over=False) == (watch, None)
    watch, wanted = step(watch, 100.0, 230.5, is_over=True)
    assert wanted == Judge(1, 2)
    assert step(watch, 100.0, 231.0, is_over=True) == (watch, None)
    watch, wanted = step(watch, 100.0, 230.0 + REPEAT_SECONDS, is_over=True)
    assert wanted == Ask()
    watch = asked(watch, 3, 290.0)
    assert watch.asked_at - watch.former_at == REPEAT_SECONDS
    assert step(watch, 100.0, 291.0, is_over=True)[1] == Judge(2, 3)


def test_a_look_that_is_refused_is_asked_for_again() -> None:
    watch, _ = step(StallWatch(), 100.0, 220.0, is_over=True)
    assert step(watch, 100.0, 220.25, is_over=True) == (watch, Ask())


def test_who_is_to_end_programs_does_not_wait_for_a_minute() -> None:
    watch = asked(asked(StallWatch(100.0), 1, 220.0), 2, 230.0)
    watch, _ = step(watch, 100.0, 230.5, is_over=True)
    assert step(watch, 100.0, 239.0, is_over=True, hurry=True)[1] is None
    assert step(watch, 100.0, 240.0, is_over=True, hurry=True)[1] == Ask()
    assert step(watch, 100.0, 236.0, is_over=True, again=5.0, hurry=True)[1] == Ask()


@pytest.mark.parametrize("since", [None, 240.0])
def test_a_movement_begins_it_anew(since: float | None) -> None:
    watch = asked(asked(StallWatch(100.0, told=("behind",)), 1, 220.0), 2, 230.0)
    anew, wanted = step(watch, since, 250.0, is_over=True)
    assert anew == StallWatch(since)
    assert (wanted == Ask()) == (since is not None)


def test_looks_that_are_no_longer_kept_are_made_again() -> None:
    watch = forgotten(asked(asked(StallWatch(100.0), 1, 220.0), 2, 230.0))
    assert step(watch, 100.0, 231.0, is_over=True)[1] == Ask()


# --- what two looks show --------------------------------------------------------------------------


def looks(before: One, after: One) -> tuple[RunLook, RunLook]:
    """Three ranks wait for rank 3, which is so, and then so."""
    others = [waits(), waits(), waits()]
    return run(*others, before), run(*others, after)


def works(before: One, after: One, seconds: float = 10.0) -> bool:
    """Whether it is at work."""
    former, newest = looks(before, after)
    verdict = look_at(newest, former)
    assert verdict.odd == (3,)
    works = at_work(verdict, former, newest, seconds)
    assert is_stuck(verdict, works)
    return works


def spent(cpu: float = 0.0, count: int = 0, **more: object) -> One:
    """A rank that has not called what the others wait in, and has used so much in all."""
    values = {"cpu_total": 100.0 + cpu, "bytes_total": 1_000 + count}
    return late().but(more={**values, **more})


def test_a_rank_that_sleeps_is_not_at_work() -> None:
    assert not works(spent(), spent())


@pytest.mark.parametrize(
    ("after", "seconds", "works_then"),
    [
        (spent(cpu=0.09), 10.0, False),  # threads that only watch
        (spent(cpu=0.11), 10.0, True),
        (spent(cpu=0.5), 60.0, False),
        (spent(cpu=0.7), 60.0, True),
        (spent(count=MOVED_BYTES), 10.0, False),
        (spent(count=MOVED_BYTES + 1), 10.0, True),
        (spent(pid=77), 10.0, True),  # another process has taken its place
        (spent().but(stack=SAVE), 10.0, True),
        (spent().but(stack=None), 10.0, False),
    ],
)
def test_cpu_bytes_and_another_place_are_work(after: One, seconds: float, works_then: bool) -> None:
    assert works(spent(), after, seconds) is works_then
    assert spent().stack == LOAD


def test_what_the_waiting_ranks_use_does_not_count() -> None:
    """NCCL's waits take a whole core."""
    spins = waits().but(more={"cpu_total": 500.0})
    former = run(waits(), waits(), spent())
    newest = run(spins, spins, spent())
    verdict = look_at(newest, former)
    assert verdict.odd == (2,)
    assert not at_work(verdict, former, newest, 10.0)


def test_a_rank_that_was_not_seen_before_says_nothing() -> None:
    _, newest = looks(spent(), spent(cpu=50.0))
    assert not at_work(look_at(newest), RunLook(number=1), newest, 10.0)


def test_what_moves_is_no_stall() -> None:
    assert not is_stuck(look_at(run(*[waits(age=0.1)] * 4)), works=False)


UNCLEAR = late().but(recorder="absent")


@pytest.mark.parametrize(
    ("works", "silent", "stuck"),
    [
        (False, False, True),  # all sleep, and nothing says for what: nothing moves all the same
        (True, False, False),
        (False, True, False),  # a rank that was not seen may be at work
    ],
)
def test_where_nobody_knows_who_waits_all_have_to_do_nothing(
    works: bool, silent: bool, stuck: bool
) -> None:
    other = UNCLEAR.but(stack=None) if silent else UNCLEAR
    verdict = look_at(run(UNCLEAR, UNCLEAR, UNCLEAR, other))
    assert verdict.rule == "unclear"
    assert is_stuck(verdict, works) is stuck


# --- children, and ranks without a process --------------------------------------------------------


def test_what_the_children_of_a_rank_do_is_its_work() -> None:
    """A loader whose workers read, or a download by another program."""
    assert not works(spent(children_cpu_total=9.0), spent(children_cpu_total=9.05))
    assert works(spent(children_cpu_total=9.0), spent(children_cpu_total=9.2))
    more = {"children_bytes_total": 5 << 20}
    assert works(spent(), spent(**more))
    assert works(spent(**more), spent()), "a child has ended"


def node_without_ranks(index: int, cpu: float, lives: float = 120.0) -> NodeLook:
    """One whose launcher has started none of its two ranks."""
    look = ProcessLook(pid=70, name="torchrun", state="S", lives=lives, cpu_total=cpu)
    first = 2 * index
    found = LookReport(
        number=1,
        epoch=0,
        ranks=[RankLook(rank=first), RankLook(rank=first + 1)],
        launcher=look,
        unstarted=[first, first + 1],
    )
    return NodeLook(slot=index, node=index, hostname="gpu-9", report=found)


def with_node(run_look: RunLook, node: NodeLook) -> RunLook:
    return run_look.model_copy(update={"nodes": [*run_look.nodes, node]})


INSIDE = One(stack=INIT, stage="imported", recorder="none")


@pytest.mark.parametrize(("cpu", "works_then"), [(3.0, False), (3.2, True)])
def test_the_launcher_of_ranks_that_have_not_been_started_is_their_work(
    cpu: float, works_then: bool
) -> None:
    begun = run(INSIDE, INSIDE)
    former = with_node(begun, node_without_ranks(1, 3.0))
    newest = with_node(begun, node_without_ranks(1, cpu))
    verdict = look_at(newest, former)
    assert (verdict.rule, verdict.odd) == ("starting", (2, 3))
    assert is_stuck(verdict, works_then)
    assert at_work(verdict, former, newest, 10.0) is works_then


@pytest.mark.parametrize(("cpu", "works_then"), [(100.0, False), (100.2, True)])
def test_of_two_ranks_the_one_that_has_not_begun_is_the_one_that_may_work(
    cpu: float, works_then: bool
) -> None:
    """Neither is blamed; but who asks the store for the other uses 2 % of a core for that."""
    sleeps = One((), LOAD, "none", stage="imported")
    former = run(INSIDE.but(more={"cpu_total": 5.0}), sleeps.but(more={"cpu_total": 100.0}))
    newest = run(INSIDE.but(more={"cpu_total": 5.2}), sleeps.but(more={"cpu_total": cpu}))
    verdict = look_at(newest, former)
    assert (verdict.rule, verdict.odd, verdict.awaited) == ("starting", (), (1,))
    assert at_work(verdict, former, newest, 10.0) is works_then


def test_ranks_of_which_nothing_is_known_may_be_at_work() -> None:
    """An older node does not say what its launcher does."""
    silent = node_without_ranks(1, 3.0)
    assert silent.report is not None
    bare = silent.report.model_copy(update={"launcher": None, "unstarted": []})
    old = silent.model_copy(update={"report": bare})
    look = with_node(run(INSIDE, INSIDE), old)
    assert at_work(look_at(look, look), look, look, 10.0)
