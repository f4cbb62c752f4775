"""When a silent run is looked at, and whether the rank for which the others wait is at work."""

from __future__ import annotations

import pytest

from rendezvous.hang import (
    AGAIN_SECONDS,
    Ask,
    Judge,
    StallWatch,
    asked,
    at_work,
    forgotten,
    is_stuck,
    look_at,
    step,
)
from rendezvous.hang.stall import MOVED_BYTES, REPEAT_SECONDS
from rendezvous.wire.look import RunLook
from tests.rendezvous.hang.runs import LOAD, SAVE, One, late, run, waits

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
    assert is_stuck(verdict)
    return at_work(verdict, former, newest, seconds)


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
    assert not at_work(look_at(newest), RunLook(look=1), newest, 10.0)


@pytest.mark.parametrize("ranks", [[waits(age=0.1)] * 4, [late().but(recorder="absent")] * 2])
def test_what_moves_or_is_not_known_is_no_stall(ranks: list[One]) -> None:
    assert not is_stuck(look_at(run(*ranks)))
