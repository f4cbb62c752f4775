"""When nodes are asked, and when somebody is told of, by value."""

from __future__ import annotations

from dataclasses import replace

from rendezvous.pace import Ask, Found, Judge, PaceWatch, Straggler, asked, judged, step

ONE = Straggler(slot=2, rank=5, cost=0.1, step=1.0, last=90, of=100)
NODE = Straggler(slot=2, rank=None, cost=0.1, step=1.0, last=90, of=100)
WATCH = PaceWatch(epoch=3, ask_at=1000.0, pause=240.0)


def test_nobody_is_asked_where_nothing_runs() -> None:
    assert step(PaceWatch(), -1, 500.0, is_over=True) == (PaceWatch(), None)


def test_programs_are_first_asked_a_minute_after_they_have_started() -> None:
    watch, action = step(PaceWatch(), 0, 100.0, is_over=True)
    assert (watch, action) == (PaceWatch(0, ask_at=160.0), None)
    assert step(watch, 0, 159.9, is_over=True) == (watch, None)
    assert step(watch, 0, 160.0, is_over=True) == (watch, Ask())


def test_other_programs_begin_anew() -> None:
    watch = replace(WATCH, waits=True, suspect=(1, 2))
    assert step(watch, 4, 500.0, is_over=True) == (PaceWatch(4, ask_at=560.0), None)
    assert step(watch, -1, 500.0, is_over=True) == (PaceWatch(-1, ask_at=560.0), None)


def test_pauses_double_up_to_ten_minutes() -> None:
    watch, pauses = PaceWatch(0, ask_at=60.0), []
    for _ in range(6):
        now = watch.ask_at
        watch = replace(asked(watch, now), waits=False)
        pauses.append(watch.ask_at - now)
    assert pauses == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_answers_are_judged_once_when_all_are_there() -> None:
    watch = asked(WATCH, 1000.0)
    assert watch == PaceWatch(3, waits=True, ask_at=1240.0, pause=480.0)
    assert step(watch, 3, 1300.0, is_over=False) == (watch, None)
    assert step(watch, 3, 1001.0, is_over=True) == (replace(watch, waits=False), Judge())


def test_who_is_found_twice_is_told() -> None:
    watch, news = judged(WATCH, ONE, "nobody", 900.0)
    assert (watch, news) == (replace(WATCH, suspect=(2, 5), ask_at=915.0), None)
    watch, news = judged(watch, ONE, "nobody", 920.0)
    assert (watch.suspect, news) == (None, Found(ONE))


def test_the_next_answers_are_not_asked_for_later_than_they_would_be() -> None:
    watch, _ = judged(WATCH, ONE, "nobody", 990.0)
    assert watch.ask_at == 1000.0


def test_who_was_told_is_not_told_again() -> None:
    watch = replace(WATCH, suspect="nobody")
    assert judged(watch, ONE, (2, 5), 900.0) == (WATCH, None)
    assert judged(replace(WATCH, suspect=(1, 1)), None, "nobody", 900.0) == (WATCH, None)


def test_another_one_has_to_be_found_twice() -> None:
    watch, news = judged(replace(WATCH, suspect=(2, 5)), NODE, "nobody", 900.0)
    assert (watch.suspect, watch.ask_at, news) == ((2, None), 1000.0, None)


def test_that_it_is_over_is_told_after_two_as_well() -> None:
    watch, news = judged(WATCH, None, (2, 5), 900.0)
    assert (watch.suspect, watch.ask_at, news) == ("nobody", 915.0, None)
    assert judged(watch, None, (2, 5), 920.0) == (replace(watch, suspect=None), Found(None))
