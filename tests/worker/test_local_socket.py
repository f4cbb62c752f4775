"""The agent's socket: who may speak to it, and what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rendezvous.compat import timeout
from worker.program import local_socket
from worker.program.local_socket import Caller, LocalSocket, Request

NO_JSON = "this line is not valid JSON"
NO_WISH = 'a line must be a JSON object that names the request in "do"'
COUNTS = {"count": lambda request: "three is too much" if request.get("n", 0) > 2 else ""}


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    """Where a socket has room, whatever TMPDIR is."""
    return short_path


@contextlib.asynccontextmanager
async def opened(folder: Path, **values: Any) -> AsyncIterator[LocalSocket]:
    """A socket that answers; without values it counts, up to two."""
    made = LocalSocket(**(values or {"take": COUNTS}))
    await made.open({"XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder.parent / "own")})
    yield made
    await made.close()


async def ask(path: str, *lines: bytes) -> list[Any]:
    """Say these lines, and nothing more; what is answered until the connection is closed."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(b"".join(lines))
        writer.write_eof()
        return [json.loads(line) for line in (await reader.read()).splitlines()]
    finally:
        writer.close()


def line(**request: Any) -> bytes:
    return json.dumps(request).encode() + b"\n"


async def test_the_socket_is_for_its_owner_alone_and_is_removed(tmp_path: Path) -> None:
    async with opened(tmp_path) as made:
        path = Path(made.path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.parent.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


async def test_requests_are_taken_one_after_the_other_and_answered_by_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as made:
        told = await ask(made.path, *(line(do="count", n=n) for n in (1, 2, 3, 4)))
        assert told == [{"error": "three is too much"}] * 2
        assert await ask(made.path, b'{"do": "count", "n": 3}') == []  # it is not finished


async def test_a_request_may_take_the_connection_over_and_notices_that_its_caller_goes(
    tmp_path: Path,
) -> None:
    gone = asyncio.Event()

    async def greet(request: Request, caller: Caller) -> None:
        await caller.tell({"hello": request["name"]})

    async def wait(_: Request, caller: Caller) -> None:
        await caller.gone()
        gone.set()

    async with opened(tmp_path, serve={"greet": greet, "wait": wait}) as made:
        told = await ask(made.path, line(do="greet", name="you"), line(do="greet"))
        assert told == [{"hello": "you"}]
        _, writer = await asyncio.open_unix_connection(made.path)
        writer.write(line(do="wait") + b"more that nobody reads\n")
        await writer.drain()
        assert not gone.is_set()
        writer.close()
        await asyncio.wait_for(gone.wait(), 30)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"hello\n", NO_JSON),
        (b"[" * 100_000 + b"\n", NO_JSON),
        (b"\xff\xfe\n", NO_JSON),
        (b"[]\n", NO_WISH),
        (b'{"do": 1}\n', NO_WISH),
        (b'{"do": "dance"}\n', "this agent cannot do 'dance'; it can: count"),
        (b'{"do": "a\\u001b[31m"}\n', "this agent cannot do 'a\\x1b[31m'; it can: count"),
        (b"x" * (local_socket.MAX_LINE_BYTES + 2), "a line has at most 1048576 bytes"),
    ],
    ids=range(8),
)
async def test_what_is_no_request_is_told_so(tmp_path: Path, said: bytes, error: str) -> None:
    async with opened(tmp_path) as made:
        assert await ask(made.path, said) == [{"error": error}]


async def test_a_sender_that_never_reads_is_heard_all_the_same(tmp_path: Path) -> None:
    """As a training process that tells of its progress: an answer must never hold it up."""
    took, many = asyncio.Event(), 2_500

    def take(request: Request) -> str:
        if request["n"] == many:
            took.set()
        return "no " * 100

    async with opened(tmp_path, take={"count": take}) as made:
        _, writer = await asyncio.open_unix_connection(made.path, limit=1)
        for n in range(1, many + 1):
            writer.write(line(do="count", n=n))
            await writer.drain()
        await asyncio.wait_for(took.wait(), 30)
        writer.close()


async def test_one_who_says_very_much_does_not_keep_the_agent_from_the_others(
    tmp_path: Path,
) -> None:
    """Lines that are all there already are taken in a few at a time."""
    took: list[Request] = []

    def take(request: Request) -> str:
        took.append(request)
        return ""

    async with opened(tmp_path, take={"note": take}) as made:
        asking = asyncio.create_task(ask(made.path, line(do="note") * 2_000))
        turns = [0]
        while not asking.done():
            turns.append(len(took))
            await asyncio.sleep(0)
        await made.hear_out(30.0)
    assert len(took) == 2_000
    assert max(b - a for a, b in itertools.pairwise([*turns, len(took)])) <= 128


async def test_what_was_said_is_heard_out_and_who_says_nothing_is_not_waited_for(
    tmp_path: Path,
) -> None:
    heard: list[int] = []
    take = {"count": lambda request: heard.append(request["n"]) or ""}  # type: ignore[func-returns-value]
    async with opened(tmp_path, take=take) as made:
        _, silent = await asyncio.open_unix_connection(made.path)
        _, writer = await asyncio.open_unix_connection(made.path)
        writer.write(b"".join(line(do="count", n=n) for n in range(500)))
        await writer.drain()
        writer.close()
        await made.hear_out(0.0)
        assert len(heard) < 500
        silent.close()
        await made.hear_out(30.0)
        assert heard == [*range(500)]


async def test_who_stays_connected_is_let_go_at_the_end(tmp_path: Path) -> None:
    async def serve(request: Request, caller: Caller) -> None:
        await asyncio.get_running_loop().create_future()

    async with opened(tmp_path, take=COUNTS, serve={"wait": serve}) as made:
        talks = [await asyncio.open_unix_connection(made.path) for _ in range(3)]
        talks[0][1].write(line(do="wait"))
        talks[1][1].write(line(do="count", n=3))
        assert b"three is too much" in await talks[1][0].readline()
        while len(made._connections) < 3:
            await asyncio.sleep(0)
        async with timeout(30):
            await made.close()
            assert [await reader.read() for reader, _ in talks] == [b""] * 3
        assert made._connections == set()
        for _, writer in talks:
            writer.close()


async def test_another_user_is_refused_though_the_socket_can_be_opened(tmp_path: Path) -> None:
    own = os.geteuid()
    async with opened(tmp_path, uid=own + 1) as made:
        told = await ask(made.path, line(do="count"))
    assert told == [{"error": f"this agent belongs to user {own + 1}, and you are user {own}"}]


async def test_more_callers_than_it_takes_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_socket, "MOST_CONNECTIONS", 2)
    async with opened(tmp_path) as made:
        kept = [await asyncio.open_unix_connection(made.path) for _ in range(2)]
        assert await ask(made.path) == [
            {"error": "this agent has 2 connections, which is its limit"}
        ]
        kept.pop()[1].close()
        while await ask(made.path, line(do="count")):
            await asyncio.sleep(0.01)
        kept.pop()[1].close()


def test_a_folder_whose_path_is_too_long_for_a_socket_is_not_taken() -> None:
    found = local_socket.places({"XDG_RUNTIME_DIR": "/run/" + "x" * 100, "TMPDIR": "/own"})
    assert [*found] == ["/own", "/tmp"]


async def test_a_folder_in_which_no_socket_can_be_made_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, own, mounted = asyncio.start_unix_server, tmp_path / "own", tmp_path / "mounted"

    async def fails_below(answer: Any, path: str, **more: Any) -> asyncio.Server:
        if path.startswith(f"{mounted}/"):  # as on some file systems of a network
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return await start(answer, path, **more)

    monkeypatch.setattr(asyncio, "start_unix_server", fails_below)
    own.mkdir()
    mounted.mkdir()
    async with opened(mounted) as made:
        assert Path(made.path).parent.parent == own
        assert list(mounted.iterdir()) == []
