"""Remote commands, each side alone, on a virtual clock: what is told again, and what is not."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.wire.relay import (
    CommandExit,
    CommandFrame,
    CommandOutput,
    CommandStart,
    CommandTaken,
)
from tests.support.virtual_time import forever, now, run_virtually
from worker.program.local_socket import Caller
from worker.rsh import served
from worker.rsh.calls import Call
from worker.rsh.served import Served, ServedShell

PIECE = 32 << 10
START = CommandStart(number=5, command="QQ==", mac="0" * 64)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def output(offset: int, data: bytes, stream: Any = "stdout", number: int = 5) -> CommandOutput:
    return CommandOutput(number=number, offset=offset, stream=stream, data=encoded(data))


def in_words(frame: Any) -> str:
    """A frame in one word, its data by their length."""
    match frame:
        case CommandStart():
            return f"start {frame.number}"
        case CommandOutput():
            size = len(base64.b64decode(frame.data))
            return f"{frame.stream} {frame.number} {frame.offset}+{size}"
        case CommandTaken():
            return f"taken {frame.number} {frame.offset}"
        case CommandExit():
            return f"exit {frame.number} {frame.offset} {frame.code} {frame.message}".strip()
    return f"end {frame.number}"


# --- who asks -------------------------------------------------------------------------------------


class Asker(Caller):
    """A process that asked, and takes its time to read each answer."""

    def __init__(self, seconds: float) -> None:
        self.told: list[tuple[float, Any]] = []
        self._seconds = seconds

    async def tell(self, answer: Any) -> None:
        await asyncio.sleep(self._seconds)
        (name, value), *_ = answer.items()
        is_data = name in ("stdout", "stderr")
        self.told.append((now(), f"{name} {len(base64.b64decode(value)) if is_data else value}"))

    async def gone(self) -> None:
        await forever()


def called(
    caller: Asker, *steps: tuple[float, Callable[[Call], object]]
) -> list[tuple[float, str]]:
    """What a call sends while this happens to it, until it is over."""
    sent: list[tuple[float, str]] = []

    async def work() -> None:
        def send(frame: CommandFrame) -> None:
            sent.append((now(), in_words(frame)))

        call = Call(START, send, caller)
        running = asyncio.create_task(call.run())
        for at, step in steps:
            await asyncio.sleep(at - now())
            step(call)
        await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(work())
    return sent


def test_a_caller_has_each_byte_once_in_order_and_the_target_hears_what_was_taken() -> None:
    caller = Asker(0.5)
    sent = called(
        caller,
        (1.0, lambda call: call.receive(output(0, b"a" * 10))),
        (1.0, lambda call: call.receive(output(0, b"a" * 10))),  # doubled
        (1.0, lambda call: call.receive(output(40, b"x"))),  # one before it was lost
        (1.0, lambda call: call.receive(output(10, b"b" * 7, "stderr"))),
        (1.0, lambda call: call.receive(output(17, b"c" * PIECE))),
        (1.0, lambda call: call.receive(CommandExit(number=5, offset=9, code=3))),
        (1.75, lambda call: call.tell_again()),
        (4.0, lambda call: call.receive(output(17 + PIECE, b"d" * 2))),
        (5.0, lambda call: call.receive(CommandExit(number=5, offset=19 + PIECE, code=3))),
    )
    told = ["stdout 10", "stderr 7", f"stdout {PIECE}", "stdout 2", "exit 3"]
    assert caller.told == [*zip((1.5, 2.0, 2.5, 4.5, 5.5), told, strict=True)]
    assert sent == [
        (0.0, "start 5"),
        (1.75, "start 5"),
        (1.75, "taken 5 10"),
        (2.5, f"taken 5 {17 + PIECE}"),
        (5.5, "end 5"),
    ]


# --- who runs it ----------------------------------------------------------------------------------


class Program:
    """A command that writes pieces, each at its time, and ends some seconds after it is told to."""

    def __init__(self, done: list[Any], seconds: float) -> None:
        self.done, self.over = done, asyncio.Event()
        self._seconds = seconds

    async def wait(self) -> Any:
        await self.over.wait()
        return SimpleNamespace(exit_code=3)

    async def stop(self) -> Any:
        self.done.append((now(), "stop"))
        await asyncio.sleep(self._seconds)
        self.over.set()
        return SimpleNamespace(exit_code=143)

    def may_run(self, until: float) -> None:
        self.done.append((now(), f"until {until}"))

    def kill_now(self) -> None:
        self.done.append((now(), "kill"))


class Pipe:
    """One of its streams."""

    def __init__(self, pieces: Iterable[tuple[float, bytes]], over: asyncio.Event) -> None:
        self._pieces, self._over = iter(pieces), over

    async def read(self, most: int) -> bytes:
        assert most == PIECE
        if (piece := next(self._pieces, None)) is None:
            await self._over.wait()
            return b""
        at, data = piece
        await asyncio.sleep(max(0.0, at - now()))
        return data


def runs(
    monkeypatch: pytest.MonkeyPatch,
    out: list[tuple[float, bytes]],
    err: list[tuple[float, bytes]],
    *steps: tuple[float, Callable[[Served], Any]],
    until: float | None = None,
) -> list[tuple[float, str]]:
    """What one that runs a command sends, and does, while this happens."""
    done: list[Any] = []

    async def work() -> None:
        program = Program(done, 0.5)
        streams = {71: ("stdout", out), 72: ("stderr", err)}

        async def start(argv: Any, environ: Any, **how: Any) -> Any:
            done.append((now(), f"{argv[:2]} {argv[2]!r} {environ} {how}"))
            await asyncio.sleep(0.5)
            return program, {fd: stream for fd, (stream, _) in streams.items()}

        class Reading:
            def __init__(self, fd: int) -> None:
                self._fd = fd

            async def __aenter__(self) -> Any:
                return Pipe(streams[self._fd][1], program.over)

            async def __aexit__(self, *_: object) -> None:
                done.append((now(), f"closed {self._fd}"))

        monkeypatch.setattr(served, "Program", SimpleNamespace(start_unread=start))
        monkeypatch.setattr(served, "_reading", Reading)
        one = Served(5, lambda frame: done.append((now(), in_words(frame))))
        shell = ServedShell("node 2 (n2)", {"A": "1"}, 9.0, until=lambda: until)
        running = asyncio.create_task(one.run(b"ls \xff", shell))
        ends = []
        for at, step in steps:
            await asyncio.sleep(at - now())
            if asyncio.iscoroutine(step_done := step(one)):
                ends.append(asyncio.create_task(step_done))
        await asyncio.sleep(max(0.0, 20.0 - now()))
        program.over.set()
        await running
        await asyncio.gather(*ends)

    run_virtually(work())
    return done


BEGUN = (0.0, "['sh', '-c'] 'ls \\udcff' {'A': '1'} {'grace_seconds': 9.0, 'until': 30.0}")
CLOSED = ["closed 72", "closed 71"]


def test_output_waits_in_its_pipes_until_there_is_room_and_is_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = [(1.0, b"x" * PIECE)] * 5
    done = runs(
        monkeypatch,
        full,
        [(2.0, b"err")],
        (0.25, lambda one: one.may_run(40.0)),  # it knows from its start
        (3.0, lambda one: one.tell_again()),
        (4.0, lambda one: one.taken(PIECE)),
        (4.5, lambda one: one.taken(7)),  # late
        (4.5, lambda one: one.taken(1 << 40)),  # of another one
        (5.0, lambda one: one.tell_again()),
        (6.0, lambda one: one.taken(5 * PIECE)),
        (7.0, lambda one: one.tell_again()),
        (8.0, lambda one: one.may_run(50.0)),
        (8.0, lambda one: one.kill_now()),
        until=30.0,
    )
    four = [f"stdout 5 {n * PIECE}+{PIECE}" for n in range(4)]
    end = 5 * PIECE + 3
    more = [f"stdout 5 {4 * PIECE}+{PIECE}", f"stderr 5 {5 * PIECE}+3"]
    expected = [
        BEGUN,
        *((1.0, word) for word in four),
        *((3.0, word) for word in [*four, f"stdout 5 {4 * PIECE}+0"]),
        (4.0, more[0]),
        *((5.0, word) for word in [*four[1:], more[0], f"stdout 5 {5 * PIECE}+0"]),
        (6.0, more[1]),
        (7.0, more[1]),
        (7.0, f"stdout 5 {end}+0"),
        (8.0, "until 50.0"),
        (8.0, "kill"),
        *((20.0, word) for word in [*CLOSED, f"exit 5 {end} 3"]),
    ]
    assert done == expected


def test_what_nobody_hears_any_more_is_ended_and_sends_nothing_but_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = [(1.0, b"a"), *[(2.0, b"x" * PIECE)] * 6]
    done = runs(
        monkeypatch, out, [], (1.5, lambda one: one.end()), (1.75, lambda one: one.tell_again())
    )
    assert done[1:] == [
        (1.0, "stdout 5 0+1"),
        (1.5, "stop"),
        (1.75, "stdout 5 1+0"),
        *((2.0, word) for word in [*CLOSED, "exit 5 1 3"]),
    ]
