"""Whom a signal may ask for its stack: nobody who runs Python code."""

from __future__ import annotations

import signal
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from features.hang.ranks import signalling
from features.hang.ranks.proc import Thread, read_process
from features.hang.ranks.signalling import Threads, Watched, may_signal
from tests.support.waiting import until

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


def test_to_one_that_is_gone_nothing_is_sent_and_another_writes_until_calm_stopped_or_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signalling, "_is_prepared", lambda *_: True)
    proc, path = Path("/proc"), tmp_path / "0.stack"
    path.write_text("older")
    gone: Any = SimpleNamespace(pid=4_000_000, signal=signal.SIGUSR1, path=path)
    assert signalling._send(gone, proc) is None
    with subprocess.Popen(["sleep", "60"]) as one:
        try:
            sent = partial(signalling._Writing, proc, one.pid, signal.SIGUSR1, path)
            until(sent().is_over)  # late
            monkeypatch.setattr(signalling, "_GRACE_SECONDS", 1_000.0)
            writing = sent()
            assert not any(writing.is_over() for _ in range(3))
            path.write_text("stack")
            assert [each.is_over() for each in (writing, sent())] == [True, False]
            path.write_text("")
            one.send_signal(signal.SIGSTOP)
            until(lambda: read_process(proc, one.pid).state == "T")
            assert writing.is_over()  # and is not waited for
        finally:
            one.kill()
