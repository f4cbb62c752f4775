"""The agent's socket: who may speak to it, and what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from worker.program import local_socket
from worker.program.local_socket import Caller, LocalSocket, Request

pytestmark = pytest.mark.real_time


@contextlib.asynccontextmanager
async def opened(folder: Path, **values: Any) -> AsyncIterator[LocalSocket]:
    """A socket that answers."""
    made = LocalSocket(**values)
    await made.open({"XDG_RUNTIME_DIR": str(folder)})
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
    took: list[Any] = []

    def take(request: Request) -> str:
        took.append(request["n"])
        return "" if request["n"] < 3 else "three is too much"

    async with opened(tmp_path, take={"count": take}) as made:
        lines = [line(do="count", n=n) for n in (1, 2, 3, 4)]
        told = await ask(made.path, *lines)
    assert took == [1, 2, 3, 4]
    assert told == [{"error": "three is too much"}] * 2


async def test_a_request_may_take_the_connection_over(tmp_path: Path) -> None:
    async def serve(request: Request, caller: Caller) -> None:
        await caller.tell({"hello": request["name"]})

    async with opened(tmp_path, serve={"greet": serve}) as made:
        assert await ask(made.path, line(do="greet", name="you"), line(do="greet")) == [
            {"hello": "you"}
        ]


async def test_a_caller_that_goes_is_noticed(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def serve(_: Request, caller: Caller) -> None:
        await caller.gone()
        gone.set()

    async with opened(tmp_path, serve={"wait": serve}) as made:
        _, writer = await asyncio.open_unix_connection(made.path)
        writer.write(line(do="wait") + b"more that nobody reads\n")
        await writer.drain()
        assert not gone.is_set()
        writer.close()
        await asyncio.wait_for(gone.wait(), 10)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"hello\n", "this line is no JSON"),
        (b"[" * 100_000 + b"\n", "this line is no JSON"),
        (b"\xff\xfe\n", "this line is no JSON"),
        (b"[]\n", 'a line is a JSON object that says in "do" what is wanted'),
        (b'{"do": 1}\n', 'a line is a JSON object that says in "do" what is wanted'),
        (b'{"do": "dance"}\n', "this agent cannot do 'dance'; it can: count"),
        (b'{"do": "a\\u001b[31m"}\n', "this agent cannot do 'a\\x1b[31m'; it can: count"),
        (b"x" * (local_socket.MAX_LINE_BYTES + 2), "a line has at most 1048576 bytes"),
    ],
)
async def test_what_is_no_request_is_told_so(tmp_path: Path, said: bytes, error: str) -> None:
    async with opened(tmp_path, take={"count": lambda _: ""}) as made:
        assert await ask(made.path, said) == [{"error": error}]


async def test_a_sender_that_never_reads_is_heard_all_the_same(tmp_path: Path) -> None:
    """As a training process that tells of its progress: an answer must never hold it up."""
    took = asyncio.Event()
    many = 20_000

    def take(request: Request) -> str:
        if request["n"] == many:
            took.set()
        return "no " * 30

    async with opened(tmp_path, take={"count": take}) as made:
        _, writer = await asyncio.open_unix_connection(made.path, limit=1)
        for n in range(1, many + 1):
            writer.write(line(do="count", n=n))
            await writer.drain()
        await asyncio.wait_for(took.wait(), 20)
        writer.close()


async def test_a_line_that_is_not_finished_is_no_request(tmp_path: Path) -> None:
    async with opened(tmp_path, take={"count": lambda _: "taken"}) as made:
        assert await ask(made.path, b'{"do": "count"}') == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_another_user_is_refused_though_the_socket_can_be_opened() -> None:
    script = (
        "import os, socket, sys; os.setuid(12345); s = socket.socket(socket.AF_UNIX); "
        "s.connect(sys.argv[1]); s.sendall(b'{}\\n'); print(s.makefile().read())"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        async with opened(Path(folder), take={"count": lambda _: ""}) as made:
            Path(made.path).parent.chmod(0o755)
            Path(made.path).chmod(0o666)
            told = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", script, made.path],
                capture_output=True,
                text=True,
                timeout=20,
            )
    assert (told.stderr, json.loads(told.stdout)) == (
        "",
        {"error": "this agent belongs to user 0, and you are user 12345"},
    )


async def test_more_callers_than_it_takes_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_socket, "MOST_CONNECTIONS", 2)
    async with opened(tmp_path, take={"count": lambda _: ""}) as made:
        kept = [await asyncio.open_unix_connection(made.path) for _ in range(2)]
        assert await ask(made.path) == [{"error": "this agent has 2 connections and takes no more"}]
        kept.pop()[1].close()
        while await ask(made.path, line(do="count")):
            await asyncio.sleep(0.01)
        kept.pop()[1].close()


async def test_a_folder_whose_path_is_too_long_for_a_socket_is_not_taken(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    made = LocalSocket()
    path = await made.open({"XDG_RUNTIME_DIR": str(long), "TMPDIR": str(tmp_path / "nowhere")})
    assert Path(path).parent.parent == Path("/tmp")
    await made.close()
    assert not Path(path).parent.exists()


async def test_a_folder_in_which_no_socket_can_be_made_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = asyncio.start_unix_server

    async def fails_below(answer: Any, path: str, **more: Any) -> asyncio.Server:
        if path.startswith(f"{tmp_path}/mounted/"):  # as on some file systems of a network
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return await start(answer, path, **more)

    monkeypatch.setattr(asyncio, "start_unix_server", fails_below)
    for name in ("mounted", "own"):
        (tmp_path / name).mkdir()
    made = LocalSocket()
    mounted, own = str(tmp_path / "mounted"), str(tmp_path / "own")
    path = await made.open({"XDG_RUNTIME_DIR": mounted, "TMPDIR": own})
    assert (made.path, Path(path).parent.parent) == (path, tmp_path / "own")
    assert list((tmp_path / "mounted").iterdir()) == []
    await made.close()


async def test_one_who_says_very_much_does_not_keep_the_agent_from_the_others(
    tmp_path: Path,
) -> None:
    """Lines that are all there already are taken in a few at a time."""
    turns: list[int] = []
    took = 0

    def take(_: Request) -> str:
        nonlocal took
        took += 1
        return ""

    async with opened(tmp_path, take={"note": take}) as made:
        asking = asyncio.create_task(ask(made.path, line(do="note") * 5_000))
        while not asking.done():
            turns.append(took)
            await asyncio.sleep(0)
        await made.hear_out(5.0)
    assert took == 5_000
    assert max(b - a for a, b in itertools.pairwise([*turns, took])) <= 128
