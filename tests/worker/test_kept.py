"""A keeper as the agent holds it: how it is started, and how what nobody wants is ended."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.wire.errors import RunError, UsageError
from tests.support.virtual_time import forever, run_virtually
from worker.program import keeper, kept
from worker.program.hidden import hide_memory
from worker.program.kept import Kept, end_kept, has_ended, keepers, start_keeper

PID = (1 << 30) + 9
"""Of no process."""


def open_files() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, ""),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "Resource temporarily"),
        (OSError(errno.E2BIG, "Argument list too long"), "Argument list too long"),
        (ValueError("embedded null byte"), "embedded null byte"),
    ],
)
def test_a_keeper_is_started_with_our_other_ends_or_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, words: str
) -> None:
    before, asked, announced = open_files(), list[Any](), list[Any]()

    async def start(*argv: Any, **how: Any) -> Any:
        asked.append((argv, how))
        if error is not None:
            raise error
        [lifeline] = how["pass_fds"]
        os.write(how["stdout"], b"out")
        os.write(how["stderr"], b"err")
        os.write(lifeline, os.read(lifeline, 100) + b" heard")
        return SimpleNamespace(pid=PID)

    async def go() -> None:
        ranks: Any = SimpleNamespace(announce=lambda *given: announced.append(given))
        found = await start_keeper(
            ["train", "x"], {"A": "1"}, 2.5, stdin=7, ranks=ranks, until=31.25
        )
        with found.lifeline:
            said = {stream: os.read(fd, 100) for fd, stream in found.streams.items()}
            assert said == {"stdout": b"out", "stderr": b"err"}
            assert found.lifeline.recv(100) == b"F31250; heard"
            assert announced == [(found.streams, {"A": "1"})]
        for fd in found.streams:
            assert os.read(fd, 1) == b""  # nobody here holds the other end
            os.close(fd)
        assert PID in keepers

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    try:
        if error is None:
            asyncio.run(go())
        else:
            kind = UsageError if isinstance(error, ValueError) else RunError
            with pytest.raises(kind, match=f"'train' cannot be started: {words}") as found:
                asyncio.run(go())
            assert ("too long for this machine" in found.value.hint) is ("list" in words)
            assert PID not in keepers
    finally:
        keepers.discard(PID)
    (argv, how), *_ = asked
    assert [*map(str, argv[:5])] == [sys.executable, "-I", "-S", "-X", "utf8"]
    assert (argv[5].name, argv[7:]) == ("keeper.py", ("2.5", "--", "train", "x"))
    assert (how["env"], how["stdin"], how["start_new_session"]) == ({"A": "1"}, 7, True)
    assert int(argv[6]) == how["pass_fds"][0]
    assert open_files() == before
    assert keeper.fence(31.25) == b"F31250;"


@pytest.mark.parametrize("ends", [True, False])
def test_what_nobody_wants_is_killed_and_waited_for_a_moment(ends: bool) -> None:
    before = open_files()
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    os.close(writer)

    async def wait() -> int:
        if not ends:
            await forever()
        return 0

    async def go() -> float:
        process: Any = SimpleNamespace(pid=PID, wait=wait)
        await end_kept(Kept(process, ours, {reader: "stdout"}))
        return asyncio.get_running_loop().time()

    keepers.add(PID)
    with theirs:
        assert run_virtually(go()) == (0.0 if ends else kept._UNUSED_SECONDS)
        assert theirs.recv(10) == b"K"
    assert PID not in keepers
    assert open_files() == before


def test_it_has_ended_when_its_keeper_says_so_or_is_gone() -> None:
    found = []
    for said, code in ((b"", None), (b"started 5\n", None), (b"started 5\nended 0\n", None)):
        ours, theirs = socket.socketpair()
        process: Any = SimpleNamespace(returncode=code)
        with ours, theirs:
            theirs.send(said)
            one = Kept(process, ours, {})
            found += [has_ended(one), has_ended(one)]  # what was said is still to be read
            process.returncode = 0
            found.append(has_ended(one))
            process.returncode = None
            theirs.shutdown(socket.SHUT_WR)
            if said:
                assert ours.recv(100) == said
            found.append(has_ended(one))
    assert found == [*[False, False, True, True] * 2, *[True] * 4]


def test_a_process_that_holds_keys_is_hidden_where_that_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []

    def prctl(option: int, value: int) -> None:
        asked.append((option, value))
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(keeper, "prctl", prctl)
    hide_memory()
    assert asked == [(4, 0)]
