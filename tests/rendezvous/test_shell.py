"""The shell of a machine: what it feeds, starts and drops; and work that nobody waits for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from rendezvous.background import in_background
from rendezvous.shell import Shell
from tests.support.virtual_time import run_virtually

Said = tuple[str, object]


class Recorder:
    """A machine that answers from a table, and remembers what it was fed and when."""

    def __init__(self, answers: dict[str, list[str]], due: dict[str, float] | None = None) -> None:
        self.fed: list[tuple[float, str, object]] = []
        self.done: list[str] = []
        self._answers = answers
        self._dues = due or {}
        self._due: float | None = None
        self.shell: Shell[Said, str] = Shell(
            self._step,
            lambda: self._due,
            tick=("tick", None),
            act=self.act,
            broken=lambda number, error: ("broken", (number, str(error))),
        )

    def _step(self, said: Said, now: float) -> list[str]:
        self.fed.append((now, *said))
        self._due = self._dues.get(said[0])
        return self._answers.get(said[0], [])

    def act(self, action: str) -> None:
        self.done.append(action)


async def answer(seconds: float, said: Said | None) -> Said | None:
    await asyncio.sleep(seconds)
    return said


async def fail() -> Said | None:
    raise ValueError("not this way")


async def test_inputs_are_taken_in_one_at_a_time_and_in_order() -> None:
    machine = Recorder({"a": ["1", "2"], "b": ["3"]})
    machine.shell.feed(("a", None))
    machine.shell.feed(("b", None))
    assert machine.done == []  # never within the call that feeds it
    await asyncio.sleep(0)
    assert machine.done == ["1", "2", "3"]


def test_what_comes_of_an_effect_is_fed_unless_it_was_dropped_or_has_nothing_to_say() -> None:
    async def work() -> None:
        machine = Recorder({})
        machine.shell.start(1, answer(2.0, ("answered", 1)))
        machine.shell.start(2, answer(1.0, None))
        machine.shell.start(3, fail())
        machine.shell.start(4, answer(3.0, ("answered", 4)))
        await asyncio.sleep(1)
        machine.shell.drop(4)
        machine.shell.drop(7)  # nobody knows it
        await asyncio.sleep(5)
        assert machine.fed == [(0.0, "broken", (3, "not this way")), (2.0, "answered", 1)]

    run_virtually(work())


def test_the_machine_is_fed_a_tick_when_it_is_due_and_only_the_newest_wish_counts() -> None:
    async def work() -> None:
        machine = Recorder({}, due={"a": 9.0, "b": 4.0})
        machine.shell.feed(("a", None))
        machine.shell.feed(("b", None))
        await asyncio.sleep(20)
        assert machine.fed == [(0.0, "a", None), (0.0, "b", None), (4.0, "tick", None)]

    run_virtually(work())


def test_a_wish_that_is_taken_back_brings_no_tick() -> None:
    async def work() -> None:
        machine = Recorder({}, due={"a": 4.0, "c": 6.0})
        for said in ("a", "b", "c"):
            machine.shell.feed((said, None))
            await asyncio.sleep(1)
        await asyncio.sleep(20)
        fed = [(0.0, "a", None), (1.0, "b", None), (2.0, "c", None), (6.0, "tick", None)]
        assert machine.fed == fed

    run_virtually(work())


def test_what_is_dropped_is_broken_off_and_what_is_closed_has_been() -> None:
    ended: list[tuple[str, float]] = []

    async def lasts(name: str) -> Said | None:
        try:
            await asyncio.sleep(50)
        finally:
            await asyncio.sleep(0.5)
            ended.append((name, asyncio.get_running_loop().time()))
        return name, None

    async def work() -> None:
        machine = Recorder({})
        for number, name in enumerate(("dropped", "closed", "closed too")):
            machine.shell.start(number, lasts(name))
        await asyncio.sleep(1)
        machine.shell.drop(0)
        await asyncio.sleep(1)
        assert ended == [("dropped", 1.5)]
        await machine.shell.close()
        assert ended[1:] == [("closed", 2.5), ("closed too", 2.5)]
        assert machine.fed == []

    run_virtually(work())


def test_a_closed_shell_has_ended_its_effects_and_takes_nothing_in() -> None:
    async def work() -> None:
        machine = Recorder({}, due={"a": 9.0})
        machine.shell.feed(("a", None))
        machine.shell.start(1, answer(2.0, ("answered", 1)))
        await asyncio.sleep(1)
        await machine.shell.close()
        machine.shell.feed(("b", None))
        await asyncio.sleep(20)
        assert machine.fed == [(0.0, "a", None)]

    run_virtually(work())


# --- work in threads that nobody has to wait for --------------------------------------------------

_HANGS = """
import asyncio, threading
from rendezvous.background import in_background

async def main():
    hangs = asyncio.create_task(in_background(threading.Event().wait))
    await asyncio.sleep(0)
    hangs.cancel()
    print("the end")

asyncio.run(main())
"""


async def test_what_the_work_answers_or_raises_comes_back() -> None:
    assert await in_background(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_background(divmod, 7, 0)


async def test_the_work_of_somebody_who_is_cancelled_goes_on() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        done.set()

    task = asyncio.create_task(in_background(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert await asyncio.to_thread(done.wait, 30)


@pytest.mark.real_time
def test_a_process_ends_though_its_work_hangs() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=50
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")
