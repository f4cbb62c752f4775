"""A process that imports, from the agent's side: what it is asked, what it answers, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from worker.program import process_table
from worker.program import zygote as module
from worker.program.kept import Kept, keepers
from worker.program.zygote import Adopted, Forked, Unfit, Zygote, _is_ours

PID = 1 << 30
"""Of no process."""


class Process:
    """One that ends when it is told, or by itself."""

    pid = PID

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.told: list[str] = []
        self.waits = 0
        self._over = asyncio.Event()

    def ends(self, code: int) -> None:
        self.returncode = code
        self._over.set()

    async def wait(self) -> int:
        self.waits += 1
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        self.told.append("kill")
        self.ends(-9)


class Bench:
    """A zygote, its process, and the other end of its link."""

    def __init__(self) -> None:
        ours, self.link = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.link.setblocking(False)
        self.process = Process()
        process: Any = self.process
        self.zygote = Zygote(process, ours)

    def says(self, **values: Any) -> None:
        self.link.send(json.dumps(values).encode())

    async def asked(self) -> tuple[dict[str, Any], list[int]]:
        """The next request, and the files that came with it."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.link, 4_096, 8)
                return json.loads(data), list(fds)
            except BlockingIOError:
                await asyncio.sleep(0)


def open_files() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Bench]]:
    made: list[Bench] = []
    monkeypatch.setattr(module, "_is_ours", lambda pid: True)

    def make() -> Bench:
        made.append(Bench())
        return made[-1]

    yield make
    for one in made:
        one.link.close()
    keepers.discard(PID)


async def test_it_is_ready_once_it_has_imported_all(bench: Callable[[], Bench]) -> None:
    one = bench()
    zygote = one.zygote
    assert (zygote.pid, zygote.lives, zygote.is_ready, PID in keepers) == (PID, True, False, True)
    waiting = asyncio.create_task(zygote.ready())
    await asyncio.sleep(0)
    assert not zygote.is_ready
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    one.says(ready=12.5)
    assert [await zygote.ready(), await zygote.ready()] == [12.5, 12.5]
    assert zygote.is_ready
    one.process.ends(0)
    assert not zygote.lives
    await zygote.end()
    assert PID not in keepers
    assert one.link.recv(10) == b""


@pytest.mark.parametrize("works", [True, False])
async def test_it_is_started_with_the_other_end_of_its_link(
    monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """What cannot be started leaves no file."""
    before = open_files()
    process = Process()

    async def start(*command: str, **how: Any) -> Any:
        assert (command, how["env"]) == (("python", "-u"), {"A": "1"})
        assert (how["start_new_session"], how["stdout"]) == (True, asyncio.subprocess.DEVNULL)
        if not works:
            raise OSError(12, "Cannot allocate memory")
        os.write(how["stdin"], json.dumps({"ready": 2.5}).encode())
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    if works:
        zygote = await Zygote.start(["python", "-u"], {"A": "1"})
        assert await zygote.ready() == 2.5
        process.ends(0)
        await zygote.end()
    else:
        with pytest.raises(OSError, match="memory"):
            await Zygote.start(["python", "-u"], {"A": "1"})
    assert open_files() == before


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (3, "the process that imports ended with exit code 3"),
        (-9, "the process that imports ended by SIGKILL"),
        (-63, "the process that imports ended by signal 63"),
    ],
)
async def test_one_that_ends_while_it_imports_is_unfit(
    bench: Callable[[], Bench], code: int, why: str
) -> None:
    one = bench()
    one.link.close()
    one.process.ends(code)
    for _ in range(2):
        with pytest.raises(Unfit, match=f"^{why}$"):
            await one.zygote.ready()
    assert not one.zygote.is_ready
    await one.zygote.end()


async def test_what_it_says_of_itself_is_why_it_is_unfit(bench: Callable[[], Bench]) -> None:
    one = bench()
    one.says(unfit="numpy has threads")
    with pytest.raises(Unfit, match=r"^numpy has threads$"):
        await one.zygote.fork(5.0, 29_500)
    one.process.ends(0)
    await one.zygote.end()


@pytest.mark.parametrize("port", [None, 29_500])
async def test_what_is_forked_has_the_other_ends(
    bench: Callable[[], Bench], port: int | None
) -> None:
    one = bench()
    before = open_files()
    one.says(ready=1.0)
    forking = asyncio.create_task(one.zygote.fork(7.0, port))
    asked, (lifeline, orders, out, err) = await one.asked()
    assert asked == {"grace": 7.0, "port": port or 0}
    one.says(keeper=PID + 1)
    forked = await forking
    assert isinstance(forked, Forked)
    kept = forked.kept
    assert (kept.process.pid, PID + 1 in keepers) == (PID + 1, True)
    assert [*kept.streams.values()] == ["stdout", "stderr"]
    for file, text in ((out, b"out"), (err, b"err")):
        os.write(file, text)
    assert [os.read(reader, 10) for reader in kept.streams] == [b"out", b"err"]
    os.write(lifeline, b"started")
    assert kept.lifeline.recv(10) == b"started"
    os.write(orders, b"{}")
    assert forked.orders.recv(10) == b"{}"
    assert not forked.orders.getblocking()
    for file in (lifeline, orders, out, err):
        os.close(file)
    assert [os.read(reader, 10) for reader in kept.streams] == [b"", b""]
    await forked.end()
    assert open_files() == before
    assert PID + 1 not in keepers
    one.process.ends(0)
    await one.zygote.end()


async def test_two_forks_are_asked_for_one_after_the_other(bench: Callable[[], Bench]) -> None:
    """Each has its own answer."""
    one = bench()
    one.says(ready=1.0)
    tasks = [asyncio.create_task(one.zygote.fork(7.0, port)) for port in (1, 2)]
    for number in (1, 2):
        asked, files = await one.asked()
        assert asked["port"] == number
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            one.link.recv(10)
        one.says(keeper=PID + number)
        for file in files:
            os.close(file)
    found = await asyncio.gather(*tasks)
    assert [forked.kept.process.pid for forked in found] == [PID + 1, PID + 2]
    for forked in found:
        await forked.end()
    one.process.ends(0)
    await one.zygote.end()


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ("nothing", "the process that imports does not answer"),
        ("another", "the system does not give this node's agent what was forked from it"),
        ("ends", "the process that imports ended by SIGSEGV"),
    ],
)
async def test_a_fork_that_fails_leaves_no_file(
    bench: Callable[[], Bench], monkeypatch: pytest.MonkeyPatch, answers: str, why: str
) -> None:
    one = bench()
    one.says(ready=1.0)
    await one.zygote.ready()
    before = open_files()
    if answers == "nothing":
        monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.0)
    elif answers == "another":
        monkeypatch.setattr(module, "_is_ours", lambda pid: False)
        one.says(keeper=PID + 1)
    else:
        one.link.close()
        before -= {str(one.link.fileno())}
        one.process.ends(-signal.SIGSEGV)
    count = len(open_files())
    with pytest.raises(Unfit, match=f"^{why}$"):
        await one.zygote.fork(7.0, None)
    if answers != "ends":
        # What was sent lies in the link until it is read; nothing else is left.
        _, files = await one.asked()
        for file in files:
            os.close(file)
    assert len(open_files()) == count
    assert PID + 1 not in keepers
    one.process.ends(0)
    await one.zygote.end()


async def test_one_that_imports_is_killed_where_it_does_not_end_by_itself(
    bench: Callable[[], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_SECONDS", 0.0)
    one = bench()
    waiting = asyncio.create_task(one.zygote.ready())
    await asyncio.sleep(0)
    await one.zygote.end()
    assert (one.process.told, PID in keepers) == (["kill"], False)
    assert one.process.waits == 2
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()


async def test_one_that_ends_just_before_it_is_killed_has_ended(
    bench: Callable[[], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_SECONDS", 0.0)
    one = bench()

    def gone() -> None:
        one.process.ends(0)
        raise ProcessLookupError

    monkeypatch.setattr(one.process, "kill", gone)
    await one.zygote.end()
    assert (one.zygote.lives, PID in keepers) == (False, False)


# --- what another process has started -------------------------------------------------------------


def adopted(monkeypatch: pytest.MonkeyPatch, *ends: Any) -> tuple[Adopted, list[tuple[int, int]]]:
    """Its `waitpid` has these results; and what signals are sent."""
    sent: list[tuple[int, int]] = []
    results = iter(ends)

    async def in_background(work: Any, *args: int) -> Any:
        assert (work, args) == (os.waitpid, (PID, 0))
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return PID, result

    monkeypatch.setattr(module, "in_background", in_background)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    return Adopted(PID), sent


@pytest.mark.parametrize(
    ("end", "code"), [(3 << 8, 3), (signal.SIGTERM, -15), (ChildProcessError(), 255)]
)
async def test_the_end_of_what_was_adopted_is_known_and_nothing_is_sent_to_it_then(
    monkeypatch: pytest.MonkeyPatch, end: Any, code: int
) -> None:
    one, sent = adopted(monkeypatch, end)
    assert (one.stdin, one.returncode) == (None, None)
    one.kill()
    one.send_signal(signal.SIGUSR1)
    assert sent == [(PID, signal.SIGKILL), (PID, signal.SIGUSR1)]
    assert [await one.wait(), await one.wait(), one.returncode] == [code] * 3
    one.kill()
    assert len(sent) == 2


async def test_who_waits_for_it_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = adopted(monkeypatch, 0)
    waiting = asyncio.create_task(one.wait())
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await one.wait() == 0


async def test_what_is_forked_and_not_wanted_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    orders, its_orders = socket.socketpair()
    process: Any = Process()
    process.ends(-9)
    with theirs, its_orders:
        await Forked(Kept(process, ours, {}), orders).end()
        assert (theirs.recv(10), its_orders.recv(10)) == (b"K", b"")


def test_what_was_forked_is_ours_as_long_as_it_is_this_process_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one between has ended by then; where this process adopts nobody, init has it."""
    found = {
        pid: process_table.Process(pid, parent, pid, "S", 1, 0)
        for pid, parent in ((70, os.getpid()), (71, 1))
    }
    monkeypatch.setattr(process_table, "read_process", found.get)
    assert [_is_ours(pid) for pid in (70, 71, 72)] == [True, False, False]
