"""What an agent sees and does of a program is as in `program_courses.txt`.

Its keeper's words, its children as /proc shows them and its signals, on a clock of the test's own
and by a kernel that is played: no process is started. See `make reference`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.courses import lines_in, text_of
from tests.support.virtual_time import VirtualLoop
from tests.worker.told import Instead, Told
from worker.program import failure, keeper, process, process_table
from worker.program.ending import (
    Ending,
    LeftBehind,
    code_words,
    signal_name,
    with_told_end,
    with_told_rank,
)
from worker.program.failure import ChildWatch
from worker.program.family import Child, Failure, Family, Ranks, ToldEnd
from worker.program.kept import Kept, keepers
from worker.program.process import Program
from worker.program.process_table import Process

KNOWN = Path(__file__).with_name("program_courses.txt")
MAIN, KEEPER, TICKS = 70_100, 70_001, os.sysconf("SC_CLK_TCK")
FULL = 11
"""An error of the kernel's."""


class Loop(VirtualLoop):
    """With the readers of open files, which are called by hand."""

    def __init__(self, unexpected: Callable[[str], None]) -> None:
        super().__init__(unexpected)
        self.readers: dict[Any, Callable[[], None]] = {}

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """See the base class."""
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd: Any) -> bool:
        """See the base class."""
        return self.readers.pop(fd, None) is not None


class Kernel:
    """Processes as they are made up, and all that is asked of them and told to them."""

    def __init__(self, patch: pytest.MonkeyPatch, loop: Loop, *, pidfds: bool = True) -> None:
        self.told, self.loop = Told().of("begins"), loop
        self.processes: dict[int, Process] = {}
        self.environments: dict[int, list[bytes]] = {}
        self.stubborn: set[int] = set()
        self.has_lists = True
        self.cost = 0.0
        self._worked = 0.0
        clock = SimpleNamespace(monotonic=loop.time, thread_time=self._work)
        files = {"close": lambda fd: None} | ({"pidfd_open": self._pidfd} if pidfds else {})
        plain = SimpleNamespace(waitstatus_to_exitcode=os.waitstatus_to_exitcode)
        for name, stand_in in {
            "read_process": self.processes.get,
            "processes": lambda: [*self.processes.values()],
            "environment_of": lambda pid: self.environments.get(pid, []),
            "time": clock,
            "os": Instead(self.told, plain, **files),
            "Path": lambda text: SimpleNamespace(iterdir=lambda: self._tasks(text)),
        }.items():
            patch.setattr(failure, name, stand_in)
        table = {
            "send": self._send,
            "terminate": lambda them: self._send_all(them, 15),
            "kill": lambda them: self._send_all(them, 9),
        }
        quiet = {
            "read_process": self.processes.get,
            "processes": lambda: [*self.processes.values()],
            "descendants": self._descendants,
            "still_there": process_table.still_there,
            "KILL_SECONDS": 1.5,
        }
        patch.setattr(process, "process_table", SimpleNamespace(**quiet | table))
        patch.setattr(process, "time", clock)
        patch.setattr(process, "os", SimpleNamespace(**vars(os) | self._own()))

        async def to_thread(work: Callable[[], Any]) -> Any:
            await asyncio.sleep(0.25)
            return work()

        patch.setattr(
            process, "asyncio", SimpleNamespace(**vars(asyncio) | {"to_thread": to_thread})
        )
        said = SimpleNamespace(
            warning=lambda *words: self.told.lines.append(f"warns: {words[0]}"),
            error=lambda form, *words: self.told.lines.append(f"error: {form % words}"),
        )
        patch.setattr(process, "logger", said)

    def _own(self) -> dict[str, Any]:
        """What its own children are asked for."""

        def waitid(*asked: Any) -> Any:
            mine = [one for one in self.processes.values() if one.parent == os.getpid()]
            if not mine:
                raise ChildProcessError
            return "one" if any(one.state == "Z" for one in mine) else None

        def waitpid(pid: int, how: int) -> tuple[int, int]:
            self.told.lines.append(f"@ {self.loop.time():.2f} waitpid({pid}, {how})")
            found = self.processes.get(pid)
            if found is None:
                raise ChildProcessError
            if pid in self.stubborn:
                return 0, 0
            self.processes.pop(pid)
            return pid, found.status

        return {"waitid": waitid, "waitpid": waitpid}

    def _work(self) -> float:
        self._worked += self.cost
        return self._worked

    def _pidfd(self, pid: int) -> int:
        if pid % 10 == 9:
            raise OSError(FULL, "no")
        return pid + 100_000

    def _tasks(self, text: str) -> list[Any]:
        if not self.has_lists:
            raise OSError(FULL, "no")
        parent = int(text.split("/")[2])
        pids = [one.pid for one in self.processes.values() if one.parent == parent]
        halves = (pids[::2], pids[1::2])
        read = [SimpleNamespace(read_text=lambda h=half: " ".join(map(str, h))) for half in halves]
        return [*map(_Task, read)]

    def _descendants(self, root: int, spare: frozenset[int]) -> list[Process]:
        if "below me" not in self.told.lines[-1]:
            self.told.lines.append(f"@ {self.loop.time():.2f} below me without {sorted(spare)}")
        assert root == os.getpid()
        return [one for one in self.processes.values() if one.pid not in spare]

    def _send_all(self, them: list[Process], number: int) -> None:
        for one in them:
            self._send(one.pid, number)

    def _send(self, pid: int, number: int) -> None:
        self.told.lines.append(f"@ {self.loop.time():.2f} {pid} receives {int(number)}")
        if number in (9, 15) and pid not in self.stubborn and pid in self.processes:
            self.ends(pid, number)

    def runs(self, pid: int, ranks: tuple[int, int, int] | None = None, **news: Any) -> None:
        """A process is there from now on, or is another one."""
        started = int(self.loop.time() * TICKS)
        made = Process(pid, MAIN, pid, "S", started, 0)
        self.processes[pid] = made._replace(**news)
        self.environments[pid] = [b"HOME=/", b"x"]
        if ranks is not None:
            self.executes(pid, ranks)

    def executes(self, pid: int, ranks: tuple[int, int, int]) -> None:
        """It has these in its environment now."""
        names = (b"RANK", b"LOCAL_RANK", b"LOCAL_WORLD_SIZE")
        words = [b"%s=%d" % each for each in zip(names, ranks, strict=True)]
        self.environments[pid] = [b"HOME=/", *words, b"RANKS=7"]

    def turns(self, pid: int, state: str) -> None:
        """It is in this state now."""
        self.processes[pid] = self.processes[pid]._replace(state=state)

    def ends(self, pid: int, status: int, *, heard: bool = True) -> None:
        """It is a zombie now."""
        self.processes[pid] = self.processes[pid]._replace(state="Z", status=status)
        if heard and (reader := self.loop.readers.get(pid + 100_000)):
            reader()

    def reaps(self, *pids: int) -> None:
        """Its parent has read how it ended."""
        for pid in pids:
            self.processes.pop(pid, None)
            if reader := self.loop.readers.get(pid + 100_000):
                reader()


class _Task:
    """A thread in /proc, with the children that it has started."""

    def __init__(self, children: Any) -> None:
        self._children = children

    def __truediv__(self, name: str) -> Any:
        assert name == "children"
        return self._children


def on_a_clock(work: Callable[[Kernel], Coroutine[Any, Any, None]], *, pidfds: bool = True) -> Told:
    """What comes of it, until nothing is left to do."""
    wrong: list[str] = []
    loop = Loop(wrong.append)
    with pytest.MonkeyPatch.context() as patch:
        kernel = Kernel(patch, loop, pidfds=pidfds)
        task = loop.create_task(work(kernel))
        loop.drive(10_000.0)
        try:
            assert (wrong, task.done()) == ([], True)
            task.result()
            kernel.told.of("left", [*map(str, loop.readers)])
        finally:
            loop.dispose()
    return kernel.told


def _shown(family: Family) -> str:
    """Whom it is of, and each child."""

    def ranks(of: Ranks | None) -> str:
        return "-" if of is None else f"{of.rank}/{of.local_rank}/{of.siblings}"

    shown = []
    for one in family.children:
        ended = "" if one.ended_at is None else f" ended {one.ended_at:.2f} with {one.exit_code}"
        shown.append(f"{one.pid} {ranks(one.ranks)} {one.seen_at:.2f} {one.state}{ended}")
    return f"{ranks(family.own)}: {', '.join(shown)}"


async def _children(kernel: Kernel) -> None:
    """Ranks that execute late, are stopped, end together and unread, and helpers."""
    told, loop = kernel.told, kernel.loop
    calls: list[float] = []

    def changed() -> None:
        calls.append(round(loop.time(), 2))
        told.of(f"{loop.time():.2f} changed", _shown(watch.family))

    watch = ChildWatch(Ranks(4, 0, 3), changed)

    async def at(seconds: float, what: str = "") -> None:
        await asyncio.sleep(max(0.0, seconds - loop.time()))
        if what:
            told.of(f"{loop.time():.2f} {what}", _shown(watch.family), len(loop.readers))

    kernel.runs(201)
    watch.open(MAIN)
    kernel.executes(201, (14, 0, 3))
    await at(0.5, "the first")
    kernel.runs(202)
    kernel.runs(203, (16, 2, 3), state="D")
    kernel.runs(299)
    kernel.runs(300, (17, 0, 3), parent=5)
    await at(1.0, "others")
    kernel.executes(202, (15, 1, 3))
    kernel.turns(203, "S")
    kernel.turns(201, "T")
    await at(4.5, "they are known")
    kernel.turns(201, "R")
    kernel.ends(299, 0)
    await at(6.0, "one without ranks has ended well")
    kernel.runs(208)
    await at(7.2)
    kernel.ends(208, 18 << 8)
    await at(8.0, "a helper has failed")
    kernel.ends(203, 3 << 8, heard=False)
    kernel.ends(202, 9)
    await at(9.0, "two ranks at one time")
    kernel.reaps(203, 299)
    kernel.runs(203, (99, 9, 9))
    await at(11.0, "a number is used again")
    kernel.ends(203, 0)
    kernel.reaps(203)
    await at(11.5, "it has ended well")
    kernel.runs(204, (18, 1, 3))
    await at(13.0)
    kernel.reaps(204)
    await at(14.0, "one was reaped unread")
    kernel.has_lists, kernel.cost = False, 0.5
    kernel.runs(205, (19, 2, 3))
    await at(40.0, "it costs much")
    kernel.cost = 0.0
    for pid in (207, 210):  # these still live when the watch is closed
        kernel.runs(pid)
    await at(67.5, "the helper was long ago")
    kernel.runs(206, (20, 0, 3))
    kernel.ends(205, 7 << 8, heard=False)
    await at(67.51)
    kernel.ends(201, 15, heard=False)
    watch.close()
    told.of(f"{loop.time():.2f} closed", _shown(watch.family), len(loop.readers), *calls)
    kernel.ends(206, 1 << 8)
    watch.close()
    await at(200.0, "long after")


def which_children_end() -> Told:
    """With files that tell of an end, and without."""
    told = on_a_clock(_children)
    told.lines += ["* without pidfds", *on_a_clock(_children, pidfds=False).lines]
    return told


class Line:
    """The lifeline to a keeper that the course speaks for."""

    def __str__(self) -> str:
        return "lifeline"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._said: list[bytes] = []
        self.is_closed = False

    def setblocking(self, flag: bool) -> None:
        """It does not block."""
        self._kernel.told.lines.append(f"@ setblocking({flag})")

    def send(self, data: bytes) -> None:
        """The keeper hears it."""
        self._kernel.told.lines.append(f"@ {self._kernel.loop.time():.2f} told {data!r}")
        if self.is_closed:
            raise BrokenPipeError

    def recv(self, most: int) -> bytes:
        """What it has said."""
        if not self._said:
            raise BlockingIOError
        found = self._said.pop(0)
        if found == b"!":
            raise ConnectionResetError
        return found

    def close(self) -> None:
        """Nothing more is said."""
        self._kernel.told.lines.append(f"@ {self._kernel.loop.time():.2f} the lifeline is closed")
        self.is_closed = True

    def says(self, *words: str, heard: bool = True) -> None:
        """The keeper does."""
        self._said.append("".join(f"{word}\n" for word in words).encode())
        if heard and self in self._kernel.loop.readers:
            self._kernel.loop.readers[self]()

    def breaks(self, *, by: bytes = b"") -> None:
        """The keeper's end is closed."""
        self._said.append(by)
        self._kernel.loop.readers[self]()


class Held:
    """A program of which all is told."""

    def __init__(self, kernel: Kernel, grace: float = 5.0, *, reads: bool = True) -> None:
        self.kernel, self.line = kernel, Line(kernel)
        self._over: asyncio.Future[int] = kernel.loop.create_future()
        kernel.runs(KEEPER, parent=os.getpid())
        keepers.add(KEEPER)
        self.process = SimpleNamespace(
            pid=KEEPER,
            returncode=None,
            send_signal=lambda number: self._tell(f"signal {number}"),
            kill=self._is_killed,
            wait=self._wait,
        )
        pump: Any = SimpleNamespace(finish=lambda: self._tell("all is read")) if reads else None
        self.program = Program(self.process, self.line, pump, grace, Ranks(4, 0, 2))  # type: ignore[arg-type]
        self.program.changed = lambda: self._tell(f"changed {_shown(self.program.family)}")

    def _tell(self, words: str) -> None:
        self.kernel.told.lines.append(f"@ {self.kernel.loop.time():.2f} {words}")

    def _is_killed(self) -> None:
        self.ends(-9)
        self._tell("killed")

    async def _wait(self) -> int:
        return await asyncio.shield(self._over)

    def ends(self, status: int) -> None:
        """The keeper does."""
        self.process.returncode = status
        self.kernel.processes.pop(KEEPER, None)
        if not self._over.done():
            self._over.set_result(status)

    def is_so(self, what: str) -> None:
        """As others see it."""
        program = self.program
        seen = (program.pid, program.main_pid, program.main_ended)
        self.kernel.told.of(f"{self.kernel.loop.time():.2f} {what}", *seen, _shown(program.family))

    async def is_over(self, what: str, stop: Any = None) -> None:
        """Its end, whole."""
        ending = await (stop or self.program.wait())
        self.is_so(what)
        self.kernel.told.of("ending", ending, ending.reason, KEEPER in keepers)


async def _by_itself(kernel: Kernel) -> None:
    one = Held(kernel)
    one.program.signal(10)
    one.program.signal(12)
    one.program.may_run(700.5)
    one.is_so("begun")
    kernel.runs(201, (14, 0, 2))
    kernel.runs(202, (15, 1, 2))
    one.line.says(f"started {MAIN}")
    await asyncio.sleep(1.0)
    one.is_so("started")
    one.program.signal(10)
    for number in (9, 15, 2):
        try:
            one.program.signal(number)
        except ValueError as exc:
            kernel.told.refused(exc)
    kernel.ends(202, 7 << 8)
    await asyncio.sleep(0.5)
    one.line.says("ended 256", "left 3", "child 301 77 a b", "child 302 5 sh x.sh", "noise 4")
    await asyncio.sleep(0.25)
    kernel.ends(201, 9)
    one.is_so("its main process has ended")
    one.line.breaks()
    one.ends(0)
    await one.is_over("over")
    await one.is_over("again")
    one.program.may_run(900.0)
    one.program.kill_now()


async def _is_stopped(kernel: Kernel) -> None:
    for itself, state in ((False, "S"), (True, "T")):
        one = Held(kernel)
        kernel.runs(201, (14, 0, 2))
        one.line.says(f"started {MAIN}")
        await asyncio.sleep(1.0)
        kernel.ends(201, 5 << 8)
        kernel.turns(KEEPER, state)
        stop = asyncio.ensure_future(one.program.stop(ends_itself=itself))
        await asyncio.sleep(0.5)
        one.program.kill_now()
        one.program.kill_now()
        one.line.says("ended -15", heard=False)
        one.ends(0)
        await one.is_over(f"stopped {itself} {state}", stop)
        kernel.processes.clear()
    early = Held(kernel)
    stop = asyncio.ensure_future(early.program.stop())
    await asyncio.sleep(0)
    early.line.says(f"started {MAIN}")
    early.program.signal(1)
    early.is_so("stopped before it was there")
    early.line.says("ended 0")
    early.ends(0)
    await early.is_over("it was", stop)


async def _its_keeper_fails(kernel: Kernel) -> None:
    one = Held(kernel)
    kernel.runs(201, (14, 0, 2))
    one.line.says(f"started {MAIN}")
    await asyncio.sleep(1.0)
    kernel.runs(401, parent=os.getpid())
    kernel.runs(402)
    kernel.stubborn |= {201, 402}
    one.line.breaks(by=b"!")
    one.ends(-9)
    await asyncio.sleep(2.0)
    kernel.stubborn -= {201}
    await one.is_over("its keeper was killed")
    kernel.processes.clear()
    dumb = Held(kernel, 2.0, reads=False)
    dumb.line.says(f"started {MAIN}", "ended 3")
    await dumb.is_over("it does not answer", dumb.program.stop())
    other = Held(kernel, reads=False)
    other.line.says(f"started {MAIN}")
    other.ends(-11)
    await other.is_over("of an own fault")
    last = Held(kernel)
    last.ends(3)
    await last.is_over("it has said nothing")
    gone = asyncio.ensure_future(Held(kernel).program.wait())
    await asyncio.sleep(0.1)
    gone.cancel()
    await asyncio.sleep(0.1)
    kernel.told.of("nobody waits", gone.cancelled())
    keepers.discard(KEEPER)


def how_a_program_goes_and_ends() -> Told:
    """By itself, stopped, and without a keeper."""
    told = Told()
    for one in (_by_itself, _is_stopped, _its_keeper_fails):
        told.lines += [f"= {one.__name__}", *on_a_clock(one).lines]
    return told


async def _orphans(kernel: Kernel) -> None:
    mine = os.getpid()
    reaping = asyncio.ensure_future(process.reap_orphans(1.0))
    await asyncio.sleep(2.5)
    for pid, parent in ((501, mine), (502, mine), (503, 1), (504, mine)):
        kernel.runs(pid, parent=parent)
    keepers.add(504)
    await asyncio.sleep(1.0)
    for pid in (501, 503, 504):
        kernel.ends(pid, 0)
    await asyncio.sleep(1.0)
    kernel.told.of(f"{kernel.loop.time():.2f} seen", sorted(kernel.processes))
    kernel.stubborn.add(501)
    await asyncio.sleep(1.0)
    kernel.ends(502, 0)
    kernel.stubborn.clear()
    await asyncio.sleep(1.0)
    kernel.told.of(f"{kernel.loop.time():.2f} later", sorted(kernel.processes))
    await asyncio.sleep(3.0)
    kernel.told.of(f"{kernel.loop.time():.2f} at the end", sorted(kernel.processes))
    keepers.discard(504)
    reaping.cancel()


async def _descendants(kernel: Kernel) -> None:
    mine = os.getpid()
    await process.end_descendants(5.0)
    for pid, parent in ((601, mine), (602, 601), (603, mine), (604, mine)):
        kernel.runs(pid, parent=parent)
    kernel.ends(603, 0)
    kernel.stubborn.add(602)
    ending = asyncio.ensure_future(process.end_descendants(0.07, spare=[604]))
    await asyncio.sleep(0.3)
    kernel.stubborn.clear()
    kernel.told.of(f"{kernel.loop.time():.2f} stubborn", sorted(kernel.processes))
    await asyncio.sleep(0.1)
    kernel.reaps(602)
    await ending
    kernel.told.of(f"{kernel.loop.time():.2f} ended", sorted(kernel.processes))
    kernel.runs(605, parent=mine, state="D")
    kernel.stubborn.add(605)
    kernel.reaps(604)
    length = len(kernel.told.lines)
    await process.end_descendants(0.01)
    kernel.told.lines = kernel.told.lines[: length + 9] + kernel.told.lines[-3:]
    kernel.told.of(f"{kernel.loop.time():.2f} it stays")


def what_is_reaped_and_ended() -> Told:
    """Zombies that nobody else waits for, and what a keeper has left."""
    told = on_a_clock(_orphans)
    told.lines += on_a_clock(_descendants).lines
    return told


def how_programs_are_begun() -> Told:
    """By a keeper that is started, or was begun before; with streams for ranks, and without."""
    told = Told()

    async def work(kernel: Kernel) -> None:
        streams: Any = {31: "stdout", 32: "stderr"}
        line = Line(kernel)
        held = SimpleNamespace(pid=KEEPER, returncode=None, wait=asyncio.Event().wait)

        async def start(*given: Any, **named: Any) -> Kept:
            return Kept(held, line, streams)  # type: ignore[arg-type]

        ranks: Any = SimpleNamespace(announce=lambda *given: told.of("announced", given))
        calls = {"start_keeper": start, "begin_reading": lambda *given: SimpleNamespace()}
        outer = Instead(told, SimpleNamespace(), **calls)
        env = {"RANK": "7", "LOCAL_RANK": "1", "PATH": "/bin"}
        with pytest.MonkeyPatch.context() as patch:
            for name in calls:
                patch.setattr(process, name, getattr(outer, name))
            patch.setattr(process, "ChildWatch", _Watch(told))
            more: dict[str, Any] = {"grace_seconds": 3.5, "output": "an output"}
            kept = await start()
            for of in (None, ranks):
                patch.setattr(_Shown, "of", of)
                options = more | {"ranks": of and _Shown(), "until": of and 77.5}
                await Program.start(["a", "b"], env, **options)
                Program.of_begun(kept, {"RANK": "x"}, **options)
                _, found = await Program.start_unread(
                    ["c"], env, grace_seconds=4.5, until=options["until"]
                )
                told.of("unread", found)
        told.lines += kernel.told.lines
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    on_a_clock(work)
    return told


class _Shown:
    """Streams of ranks."""

    of: Any = None

    def announce(self, *given: Any) -> None:
        """Tell them."""
        self.of.announce(*given)

    def __repr__(self) -> str:
        return "ranks"


class _Watch:
    """In place of a `ChildWatch`."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def __call__(self, own: Ranks | None, changed: object) -> Any:
        self._told.of("watches", own)
        return SimpleNamespace(close=lambda: None)


def who_this_process_is() -> Told:
    """A subreaper, a child that dies with its parent, and what ends a run here."""
    told = Told()
    with pytest.MonkeyPatch.context() as patch:
        calls = Instead(told, keeper, prctl=lambda *given: None)
        patch.setattr(process, "keeper", calls)
        for handled in (signal.SIG_IGN, signal.SIG_DFL, print):
            stand_in = Instead(told, signal, getsignal=handled, signal=lambda *given: None)
            stand_in.__dict__["getsignal"] = lambda number, found=handled: found
            patch.setattr(process, "signal", stand_in)
            told.of(f"{handled!r}")
            process.become_subreaper()
            told.of("ends", process.ending_signals())
        for parent in (33, 34):
            stand_in = Instead(told, os, kill=lambda *given: None)
            stand_in.__dict__.update(getppid=lambda: 33, getpid=lambda: 44)
            patch.setattr(process, "os", stand_in)
            told.of(f"of {parent}")
            process.die_with_parent(15, parent)
            for state in ("S", "Z", "X", "T", ""):
                found = Process(parent, 1, 1, state, 5, 0) if state else None
                table = Instead(told, process_table, read_process=lambda pid, found=found: found)
                patch.setattr(process, "process_table", table)
                told.of(f"parent is {state}", process.parent_lives(parent))
    return told


def what_an_ending_says() -> Told:
    """By its code, its first failure, its keeper's end, what it left and who had told it."""
    told = Told()
    rank = Failure(7.5, 301, 137, 15, 1)
    failures = (None, rank, replace(rank, exit_code=3, rank=None), Failure(7, 9, 143, 4, 0))
    left = LeftBehind(5, ((301, 77, "a b"), (302, 5, "sh x.sh")))
    for code in (0, 1, 137, 143, 200):
        for first in failures:
            for number, was_told in ((0, False), (0, True), (9, False), (11, True)):
                one = Ending(code, 9.25, first, left, number, was_told)
                told.of(
                    f"{code} {first} {number} {was_told}",
                    *(one.reason, one.more_than_code, one.failed_rank, one.began_to_fail_at),
                    with_told_rank(one, 15).first_failure == first,
                    with_told_rank(one, 4).first_failure == first,
                    with_told_rank(one, None) is one,
                )
    told.of("left", left.words(), LeftBehind(1, left.named[:1]).words(), LeftBehind(2).words())
    ended = Child(301, 1.0, 2.0, Ranks(15, 1, 2), ended_at=8.0, exit_code=None)
    family = Family(None, (ended, Child(302, 1.0, 2.0, Ranks(14, 0, 2), ended_at=8.5, exit_code=3)))
    for given in (
        Ending(1, 9.0),
        Ending(0, 9.0),
        Ending(1, 9.0, rank),
        Ending(1, 9, was_told=True),
    ):
        for pid in (None, 301, 302, 303):
            end = None if pid is None else ToldEnd(pid, 7)
            told.of(f"{given} {end}", with_told_end(given, family, end).first_failure)
    return told.of(
        "codes", *(f"{code_words(n)} {signal_name(n)}" for n in (0, 2, 129, 137, 199, 255))
    )


COURSES = {
    one.__name__: one
    for one in (
        *(which_children_end, how_a_program_goes_and_ends, what_is_reaped_and_ended),
        *(how_programs_are_begun, who_this_process_is, what_an_ending_says),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_becomes_of_a_program(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
