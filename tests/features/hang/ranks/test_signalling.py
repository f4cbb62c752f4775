"""Whom a signal may ask for its stack: nobody who runs Python code."""

from __future__ import annotations

import pytest

from features.hang.ranks.signalling import Threads, Watched, may_signal
from worker.look.proc import Thread

ASLEEP = Thread("S", 7, 1.0)


def threads(*found: Thread) -> Threads:
    return {str(number): thread for number, thread in enumerate(found)}


def watched(*found: Threads, pause: float = 0.06) -> Watched:
    return [(number * pause, each) for number, each in enumerate(found)]


def test_who_sleeps_may_be_asked_when_it_has_slept_for_a_while() -> None:
    asleep = threads(ASLEEP, ASLEEP)
    assert may_signal(watched(asleep, asleep, asleep), silent=False)
    assert not may_signal(watched(asleep, asleep), silent=False)
    assert not may_signal(watched(asleep), silent=False)


@pytest.mark.parametrize(
    "thread", [Thread("R", 7, 1.0), Thread("S", 8, 1.0), Thread("D", 7, 1.0), Thread("T", 7, 1.0)]
)
def test_one_thread_that_does_not_sleep_is_enough(thread: Thread) -> None:
    asleep, other = threads(ASLEEP, ASLEEP), threads(ASLEEP, thread)
    assert not may_signal(watched(asleep, asleep, other), silent=False)


def test_a_thread_of_cpp_that_always_wakes_up_is_no_hindrance() -> None:
    """gloo's loop: a child of a rank that makes process groups itself could never be asked."""

    def with_loop(switches: int, name: str) -> Threads:
        return threads(ASLEEP, Thread("S", switches, 1.0, name))

    for name, may in (("gloo_tcp_loop", True), ("python", False)):
        found = watched(*(with_loop(number, name) for number in range(4)))
        assert may_signal(found, silent=False) is may


def test_who_was_awake_before_may_be_asked_later() -> None:
    awake, asleep = threads(Thread("R", 3, 0.5)), threads(ASLEEP)
    assert not may_signal(watched(awake, asleep, asleep), silent=False)
    assert may_signal(watched(awake, asleep, asleep, asleep), silent=False)


def test_who_works_with_the_gil_while_another_waits_for_it_is_in_c() -> None:
    waits = Thread("S", 7, 1.0)
    before, after = threads(Thread("R", 1, 1.0), waits), threads(Thread("R", 9, 1.05), waits)
    assert may_signal(watched(before, after), silent=True)
    assert not may_signal(watched(before, after), silent=False)
    assert not may_signal(watched(before), silent=True)


def test_who_only_wants_the_cpu_may_run_python_code() -> None:
    wants = threads(Thread("R", 1, 1.0), ASLEEP)
    had_little = threads(Thread("R", 1, 1.01), ASLEEP)
    assert not may_signal(watched(wants, wants), silent=True)
    assert not may_signal(watched(wants, had_little), silent=True)
    slept = threads(Thread("S", 1, 1.0), ASLEEP)
    assert may_signal(watched(wants, slept, wants), silent=True)


def test_a_process_that_is_gone_or_starts_threads_is_not_asked() -> None:
    one, two = threads(ASLEEP), threads(ASLEEP, ASLEEP)
    for silent in (False, True):
        assert not may_signal(watched({}, {}, {}), silent=silent)
        assert not may_signal(watched(one, one, two), silent=silent)
