"""Remote commands, each side alone, on a virtual clock: all that is said to whom, and when."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.wire.errors import Unavailable, UsageError
from rendezvous.wire.relay import (
    COMMAND_WINDOW_BYTES,
    CommandEnd,
    CommandExit,
    CommandFrame,
    CommandOutput,
    CommandStart,
    CommandTaken,
    Parcel,
    RelayMail,
    RelayReply,
)
from tests.support.virtual_time import forever, now, run_virtually
from worker.program.local_socket import Caller
from worker.rsh import exchange, served
from worker.rsh.calls import Call
from worker.rsh.exchange import Exchange
from worker.rsh.served import NOT_RUN, Served, ServedShell

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

    def __init__(self, seconds: float = 0.0, goes_at: float | None = None) -> None:
        self.told: list[tuple[float, Any]] = []
        self._seconds, self._goes_at = seconds, goes_at

    async def tell(self, answer: Any) -> None:
        await asyncio.sleep(self._seconds)
        (name, value), *_ = answer.items()
        is_data = name in ("stdout", "stderr")
        self.told.append((now(), f"{name} {len(base64.b64decode(value)) if is_data else value}"))

    async def gone(self) -> None:
        if self._goes_at is None:
            await forever()
        await asyncio.sleep(self._goes_at or 0.0)


def called(
    caller: Asker, *steps: tuple[float, Callable[[Call], object]], refused: str = ""
) -> list[tuple[float, str]]:
    """What a call sends while this happens to it, until it is over."""
    sent: list[tuple[float, str]] = []

    async def work() -> None:
        def send(frame: CommandFrame) -> None:
            if refused:
                raise UsageError(refused)
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


def test_a_caller_that_does_not_read_is_held_so_much_and_no_more() -> None:
    caller = Asker(100.0, goes_at=50.0)
    held: list[int] = []

    def flood(call: Call) -> None:
        for number in range(20):
            call.receive(output(number * PIECE, b"x" * PIECE))
        held.append(call._came.qsize())

    sent = called(caller, (1.0, flood))
    assert held == [2 * COMMAND_WINDOW_BYTES // PIECE + 1]
    assert (caller.told, sent) == ([], [(0.0, "start 5"), (50.0, "end 5")])


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (lambda call: call.fail("the run is ending"), "error the run is ending"),
        (
            lambda call: call.receive(CommandExit(number=5, code=255, message="no shell")),
            "error no shell",
        ),
        (lambda call: call.receive(CommandExit(number=5, code=0)), "exit 0"),
    ],
)
def test_why_a_command_has_ended_is_told_once(came: Callable[[Call], object], told: str) -> None:
    caller = Asker()
    sent = called(caller, (1.0, came), (1.0, lambda call: call.fail("later")))
    assert caller.told == [(1.0, told)]
    assert sent == [(0.0, "start 5"), (1.0, "end 5")]


def test_what_was_never_on_its_way_is_not_told_again_and_has_no_end() -> None:
    caller = Asker(1.0)
    assert called(caller, (0.5, lambda call: call.tell_again()), refused="too much waits") == []
    assert caller.told == [(1.0, "error too much waits")]


# --- between the nodes ----------------------------------------------------------------------------


class Registry:
    """A registry that takes a second for each answer, and does not answer when it is away."""

    def __init__(self, away: tuple[float, float] = (-1.0, -1.0)) -> None:
        self.given: list[tuple[float, list[str]]] = []
        self.asked: list[tuple[float, int, str]] = []
        self.mail: list[RelayMail] = []
        self._away = away

    def pause(self) -> float:
        return 0.25

    async def _answers(self) -> None:
        await asyncio.sleep(1.0)
        if self._away[0] <= now() < self._away[1]:
            raise Unavailable("it is away")

    async def relay_give(self, run: str, slot: int, parcels: list[Parcel]) -> RelayReply:
        assert (run, slot) == ("r", 3)
        self.given.append((now(), [f"{p.peer}: {in_words(p.frame)}" for p in parcels]))
        await self._answers()
        return RelayReply(session="one")

    async def relay_take(self, run: str, slot: int, after: int, session: str) -> RelayMail:
        assert (run, slot) == ("r", 3)
        self.asked.append((now(), after, session))
        await self._answers()
        if not self.mail:
            await forever()
        return self.mail.pop(0)


def exchanged(
    registry: Registry, *steps: tuple[float, Callable[[Exchange], object]]
) -> list[tuple[float, str]]:
    """What an exchange gives to its node while this happens, in ten seconds."""
    found: list[tuple[float, str]] = []

    async def work() -> None:
        def receive(peer: int, frame: CommandFrame) -> None:
            found.append((now(), f"{peer}: {in_words(frame)}"))

        def lost() -> None:
            found.append((now(), "lost"))

        one = Exchange(registry, "r", 3, receive=receive, lost=lost)
        working = asyncio.create_task(one.work())
        for at, step in steps:
            if at > now():
                await asyncio.sleep(at - now())
            step(one)
        await asyncio.sleep(10.0 - now())
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not one._waiting

    run_virtually(work())
    return found


def sends(peer: int, *frames: CommandFrame) -> Callable[[Exchange], object]:
    def send(one: Exchange) -> None:
        for frame in frames:
            one.send(peer, frame)

    return send


def start(number: int) -> CommandStart:
    return START.model_copy(update={"number": number})


def test_frames_are_given_in_order_once_and_again_where_no_answer_came() -> None:
    registry = Registry(away=(1.5, 2.5))
    exchanged(
        registry,
        (0.5, sends(7, start(1), CommandTaken(number=1, offset=4))),
        (0.5, sends(2, start(1))),
        (0.75, sends(7, start(1))),  # told again: it takes the place of what waits of it
        (0.75, sends(9, output(0, b"x", number=4))),
        (5.0, sends(2, CommandEnd(number=1))),
        (5.0, sends(8, start(6), CommandEnd(number=6))),  # nobody has heard of it
        (5.0, sends(8, CommandEnd(number=7))),
    )
    first = ["7: start 1", "7: taken 1 4", "2: start 1"]
    second = ["2: start 1", "7: start 1", "9: stdout 4 0+1"]
    assert registry.given == [
        (0.5, first),
        (1.75, second),
        (5.0, ["2: end 1", "8: end 7"]),
    ]


def test_what_a_full_post_leaves_is_given_next() -> None:
    registry = Registry()
    exchanged(registry, (0.5, sends(7, *(start(number) for number in range(1, 301)))))
    assert [(at, len(frames)) for at, frames in registry.given] == [(0.5, 256), (1.5, 44)]
    assert registry.given[1][1][0] == "7: start 257"


def test_news_is_taken_on_from_where_it_was_and_a_new_session_has_lost_some() -> None:
    registry = Registry(away=(3.0, 4.0))
    frames = [output(n, b"x", number=n) for n in (1, 2, 3)]
    for seq, session, frame in zip((4, 9, 2), ("one", "one", "two"), frames, strict=True):
        parcels = [Parcel(peer=seq, frame=frame), Parcel(peer=0, frame=CommandEnd(number=seq))]
        registry.mail.append(RelayMail(seq=seq, session=session, parcels=parcels))
    found = exchanged(registry)
    assert registry.asked == [
        (0.0, 0, ""),
        (1.0, 4, "one"),
        (2.0, 9, "one"),
        (3.25, 9, "one"),
        (4.25, 2, "two"),
    ]
    assert found == [
        (1.0, "4: stdout 1 1+1"),
        (1.0, "0: end 4"),
        (2.0, "9: stdout 2 2+1"),
        (2.0, "0: end 9"),
        (4.25, "lost"),
        (4.25, "2: stdout 3 3+1"),
        (4.25, "0: end 2"),
    ]


def test_a_node_tells_itself_without_the_registry() -> None:
    registry = Registry()
    assert exchanged(registry, (0.5, sends(3, start(1)))) == [(0.5, "3: start 1")]
    assert registry.given == []


def test_what_a_node_asks_for_has_room_that_answers_do_not_take() -> None:
    one = Exchange(Registry(), "r", 3, receive=print, lost=print)
    for offset in range(400):
        one.send(7, output(offset, b"x" * PIECE))
    whole = start(1).model_copy(update={"command": "A" * (8 << 20)})
    with pytest.raises(UsageError, match="already has 0 KiB"):
        one.send(7, whole)
    fits = whole.model_copy(update={"command": "A" * ((8 << 20) - exchange._FRAME_BYTES)})
    one.send(7, fits)
    with pytest.raises(UsageError, match="already has 8192 KiB"):
        one.send(2, start(1))
    one.send(7, fits)  # told again
    one.send(7, CommandEnd(number=1))
    one.send(2, start(1))


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


def test_one_that_is_ended_while_it_is_started_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    done = runs(monkeypatch, [(1.0, b"a")], [], (0.25, lambda one: one.end()))
    stopped = [(0.5, "stop"), *((1.0, word) for word in [*CLOSED, "exit 5 0 143"])]
    assert done[1:] == stopped
    assert NOT_RUN == 255


def test_what_was_taken_is_not_told_again_however_much_it_was_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = [(1.0, b"x" * 10)] * 4
    done = runs(
        monkeypatch,
        out,
        [],
        (2.0, lambda one: one.taken(35)),
        (2.0, lambda one: one.tell_again()),
        (3.0, lambda one: one.taken(40)),
        (3.0, lambda one: one.tell_again()),
    )
    assert [word for at, word in done if at in (2.0, 3.0)] == [
        "stdout 5 30+10",
        *["stdout 5 40+0"] * 2,
    ]
