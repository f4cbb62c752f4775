"""A program, from what its keeper says of it: in the test's own process, by no keeper."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from worker.program import keeper
from worker.program import process as module
from worker.program.ending import Ending, LeftBehind
from worker.program.family import Child, Failure, Family, Ranks
from worker.program.kept import keepers
from worker.program.process import Program
from worker.program.process_table import Process

PID = (1 << 30) + 7
"""Of no process."""
RANK = Child(101, 1.0, 1.0, Ranks(5, 1, 8), ended_at=2.0, exit_code=3)
HELPER = Child(99, 1.0, 1.0, None, ended_at=1.5, exit_code=9)
LIVES = Child(102, 1.0, 1.0, Ranks(4, 0, 8))


class Bench:
    """A program below a keeper that the test speaks for, and what is done, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, reads: bool = True) -> None:
        self.done: list[Any] = []
        self.family = Family(None, ())
        ours, self.keeper = socket.socketpair()
        self.keeper.setblocking(False)
        self._over = asyncio.Event()
        monkeypatch.setattr(module, "ChildWatch", self._watch)
        monkeypatch.setattr(module, "end_descendants", self._end_descendants)
        self.process = SimpleNamespace(
            pid=PID,
            returncode=None,
            send_signal=lambda number: self.done.append(("signal", number)),
            kill=self._kill,
            wait=self._wait,
        )
        keepers.add(PID)
        process: Any = self.process
        pump: Any = SimpleNamespace(finish=self._finish) if reads else None
        self.program = Program(process, ours, pump, 5.0, None)

    def _watch(self, ranks: Any, changed: Callable[[], None]) -> Any:
        bench = self
        self.child_ended = changed

        class Watch:
            open = staticmethod(lambda pid: bench.done.append(("watched", pid)))
            close = staticmethod(lambda: bench.done.append("unwatched"))
            family = property(lambda _: bench.family)

        return Watch()

    async def _end_descendants(self, grace: float, spare: set[int]) -> None:
        self.done.append(("descendants ended", grace, PID in spare))

    def _finish(self) -> None:
        time.sleep(0)
        self.done.append("read")

    def _kill(self) -> None:
        self.done.append("killed")
        self.ends(-9)

    async def _wait(self) -> int:
        await self._over.wait()
        code: int = self.process.returncode
        return code

    def ends(self, status: int = 0) -> None:
        """The keeper does."""
        self.process.returncode = status
        self._over.set()

    async def says(self, *lines: str) -> None:
        self.keeper.send("".join(f"{line}\n" for line in lines).encode())
        for _ in range(3):
            await asyncio.sleep(0)

    def told(self) -> bytes:
        try:
            return self.keeper.recv(100)
        except BlockingIOError:
            return b"-"


def programs(*, reads: bool = True) -> Callable[[Any], Any]:
    """A test with a bench of its own, whose program is over at its end, and leaves nothing."""

    def decorate(work: Callable[[Bench], Coroutine[Any, Any, None]]) -> Any:
        async def test(monkeypatch: pytest.MonkeyPatch) -> None:
            bench = Bench(monkeypatch, reads=reads)
            await work(bench)
            assert PID not in keepers
            assert bench.program._lifeline.fileno() == -1
            assert bench.told() == b""
            bench.keeper.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        test.__name__, test.__doc__ = work.__name__, work.__doc__
        return test

    return decorate


@programs()
async def test_how_a_program_ended_is_what_its_keeper_says(bench: Bench) -> None:
    program, changed = bench.program, list[str]()
    program.changed = lambda: changed.append("changed")
    assert (program.pid, program.main_pid, program.main_ended) == (PID, None, None)
    await bench.says("started 77")
    assert (program.main_pid, bench.done) == (77, [("watched", 77)])
    bench.child_ended()
    await bench.says("ended 3")
    assert changed == ["changed"] * 2
    assert bench.done[1:] == ["unwatched"]
    code, at = program.main_ended or (0, 0.0)
    assert code == 3
    bench.family = Family(None, (LIVES, RANK, HELPER))
    bench.ends()
    ending = await program.wait()
    assert ending == Ending(3, at, Failure(2.0, 101, 3, rank=5, local_rank=1))
    assert bench.done[2:] == ["unwatched", "read"]
    assert await program.wait() == ending


@programs()
async def test_what_a_program_left_running_is_named(bench: Bench) -> None:
    await bench.says("started 77", "child 1 2 too early", "ended 0", "left 3")
    await bench.says("child 80 12 sleep 100", "child 81 7 tail -f x")
    bench.ends()
    ending = await bench.program.wait()
    named = ((80, 12, "sleep 100"), (81, 7, "tail -f x"))
    assert (ending.exit_code, ending.left) == (0, LeftBehind(3, named))


@programs()
async def test_signals_that_come_before_it_runs_are_passed_on_then(bench: Bench) -> None:
    program = bench.program
    for number in (signal.SIGUSR1, signal.SIGINT):
        program.signal(number)
    with pytest.raises(ValueError, match="signal 9 is not passed on"):
        program.signal(signal.SIGKILL)
    assert bench.done == []
    await bench.says("started 77")
    program.signal(signal.SIGUSR2)
    assert bench.done == [
        ("signal", signal.SIGUSR1),
        ("signal", signal.SIGINT),
        ("watched", 77),
        ("signal", signal.SIGUSR2),
    ]
    bench.ends()
    assert (await program.wait()).exit_code == 0


@pytest.mark.parametrize(("ends_itself", "word"), [(False, b"T"), (True, b"L")])
async def test_a_program_that_is_told_to_end_names_no_guess(
    monkeypatch: pytest.MonkeyPatch, ends_itself: bool, word: bytes
) -> None:
    bench = Bench(monkeypatch)
    await bench.says("started 77")
    stopping = asyncio.create_task(bench.program.stop(ends_itself=ends_itself))
    await asyncio.sleep(0)
    assert bench.told() == word
    bench.program.kill_now()
    assert bench.told() == b"K"
    assert bench.done == [("watched", 77), "unwatched"]
    bench.family = Family(None, (HELPER,))
    await bench.says("ended -15")
    bench.ends()
    ending = await stopping
    assert (ending.exit_code, ending.first_failure, ending.was_told) == (143, None, True)
    bench.keeper.close()


@programs()
async def test_what_is_told_to_end_before_it_runs_is_not_watched(bench: Bench) -> None:
    bench.program.kill_now()
    assert bench.told() == b"K"
    await bench.says("started 77")
    assert bench.done == ["unwatched"]
    bench.ends()
    await bench.program.wait()


@programs()
async def test_until_when_it_may_run_is_said_as_often_as_it_changes(bench: Bench) -> None:
    for until in (50.0, 60.5):
        bench.program.may_run(until)
    assert bench.told() == b"F50000;F60500;"
    bench.ends()
    await bench.program.wait()
    bench.program.may_run(70.0)  # nobody hears it
    bench.program.kill_now()


@programs()
async def test_what_is_left_of_a_program_whose_keeper_was_killed_is_ended(bench: Bench) -> None:
    await bench.says("started 77")
    bench.ends(-9)
    ending = await bench.program.wait()
    assert (ending.exit_code, ending.keeper_signal, ending.was_told) == (137, 9, False)
    assert bench.done == [
        ("watched", 77),
        "unwatched",
        ("descendants ended", 5.0, False),
        "read",
    ]


@programs()
async def test_a_keeper_that_is_killed_after_the_program_ended_kills_nothing(bench: Bench) -> None:
    await bench.says("started 77", "ended 0")
    bench.ends(-9)
    ending = await bench.program.wait()
    assert (ending.exit_code, ending.keeper_signal) == (0, 0)


@programs()
async def test_the_last_line_of_a_keeper_is_read_after_its_end(bench: Bench) -> None:
    bench.keeper.send(b"started 77\nended 4\n")
    bench.ends()
    assert (await bench.program.wait()).exit_code == 4


@programs(reads=False)
async def test_the_end_of_a_program_that_its_caller_reads_waits_for_no_output(bench: Bench) -> None:
    await bench.says("started 77")
    bench.ends(7)
    assert (await bench.program.wait()).exit_code == 7
    assert bench.done == ["unwatched"]


@programs()
async def test_a_keeper_that_does_not_answer_is_killed(bench: Bench) -> None:
    bench.program._grace_seconds = -module._STUCK_SECONDS
    ending = await bench.program.stop()
    assert (ending.exit_code, ending.keeper_signal, ending.was_told) == (137, 9, True)
    assert bench.done == [
        "unwatched",
        "killed",
        "unwatched",
        ("descendants ended", -module._STUCK_SECONDS, False),
        "read",
    ]
    bench.keeper.recv(10)


@programs()
async def test_who_waits_for_a_program_may_go(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.program.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await bench.says("started 77", "ended 0")
    bench.ends()
    assert (await bench.program.wait()).exit_code == 0


class Below:
    """Processes below this one, on a clock of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stubborn: int) -> None:
        self.now, self.sent, self.said = 100.0, list[Any](), list[str]()
        self.left, self.stubborn = {61, 62, 63}, stubborn
        table = SimpleNamespace(
            descendants=self._descendants,
            terminate=lambda them: self._send(15, them),
            kill=lambda them: self._send(9, them),
            still_there=lambda left: f"still {[each.pid for each in left]}",
            KILL_SECONDS=1.0,
        )
        monkeypatch.setattr(module, "process_table", table)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=self._sleep))
        log = SimpleNamespace(error=lambda form, *words: self.said.append(form % words))
        monkeypatch.setattr(module, "logger", log)

    def _descendants(self, root: int, spare: frozenset[int]) -> list[Process]:
        assert (root, spare) == (os.getpid(), frozenset({70}))
        return [Process(pid, 1, pid, "S", 0, 0) for pid in sorted(self.left)]

    def _send(self, number: int, them: list[Process]) -> None:
        self.sent.append((self.now - 100, number, [each.pid for each in them]))
        if number == 15:
            self.left -= {61}
        elif self.sent[-2][1] == 9:  # a driver has held it up
            self.left &= {self.stubborn}

    async def _sleep(self, seconds: float) -> None:
        assert seconds == 0.03
        self.now += 0.5


@pytest.mark.parametrize("stubborn", [0, 63])
async def test_what_a_killed_keeper_leaves_has_the_grace_and_is_killed_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, stubborn: int
) -> None:
    below = Below(monkeypatch, stubborn)
    await module.end_descendants(1.0, spare=[70])
    assert below.sent == [(0, 15, [61, 62, 63]), (1, 9, [62, 63]), (1.5, 9, [62, 63])]
    assert below.said == ([f"still [{stubborn}]"] if stubborn else [])


@pytest.mark.parametrize(
    ("handler", "ends"),
    [
        (signal.SIG_IGN, [signal.SIGTERM, signal.SIGINT]),  # as nohup has it
        (signal.SIG_DFL, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]),
    ],
)
def test_a_hang_up_ends_a_run_unless_it_was_turned_off(handler: Any, ends: list[int]) -> None:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert module.ending_signals() == ends
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("handler", "after"),
    [(signal.SIG_IGN, signal.SIG_DFL), (signal.default_int_handler, signal.default_int_handler)],
)
def test_who_adopts_processes_can_read_how_they_end(
    monkeypatch: pytest.MonkeyPatch, handler: Any, after: Any
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(keeper, "prctl", lambda *given: asked.append(given))
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        module.become_subreaper()
        assert signal.getsignal(signal.SIGCHLD) == after
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert asked == [(36, 1)]
