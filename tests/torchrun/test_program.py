"""The workers of a torchrun as an agent's program: what it is told, and how that ends."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from launcher.torchrun import link
from launcher.torchrun import program as program_of_torchrun
from launcher.torchrun.link import Torchrun
from launcher.torchrun.program import TorchrunProgram
from rendezvous.compat import timeout
from rendezvous.wire.errors import Mismatch, RunError
from rendezvous.wire.protocol import PROTOCOL
from worker.contracts.plugin import NODES_VARIABLE
from worker.program.ending import Ending

FORMER = {"HOME": "/root", "SECRET": "x", "MASTER_ADDR": "old"}
ENV = {
    "HOME": "/root",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "NODE_RANK": "1",
    NODES_VARIABLE: '[[2, 4, "default"], [1, 1, "reader"]]',
}
FAILURE = {"rank": 3, "local_rank": 1, "pid": 77, "code": 137}


class Peer:
    """What torchrun's end of the socket says and hears; it is this process that is watched."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self.link)

    def say(self, kind: str, **words: Any) -> None:
        self._writer.write(json.dumps({"kind": kind, **words}).encode() + b"\n")

    def next(self, **words: Any) -> None:
        """Ask for a table."""
        self.say("next", processes=4, role="default", **words)

    async def hear(self) -> dict[str, Any]:
        async with timeout(5):
            return dict(json.loads(await self._reader.readline()))

    def end(self) -> None:
        self._writer.close()


@asynccontextmanager
async def met(pid: int | None = None) -> AsyncIterator[tuple[Torchrun, Peer]]:
    """A torchrun that waits for its first table; this process, or another one."""
    ours, theirs = socket.socketpair()
    torchrun, peer = Torchrun(ours), Peer(theirs)
    await peer.open()
    peer.say(
        "begin",
        protocol=PROTOCOL,
        version="0.1",
        endpoint="",
        run="r",
        nodes=[1, 1],
        conf={},
        pid=pid or os.getpid(),
        python="python3",
    )
    assert await torchrun.open()
    peer.next()
    await torchrun.asks()
    try:
        yield torchrun, peer
    finally:
        await torchrun.close()
        peer.end()


async def never() -> None:
    raise AssertionError("no node asks for a restart here")


def begun(
    torchrun: Torchrun,
    restart: Callable[[], Awaitable[None]] = never,
    grace: float = 5.0,
    until: float | None = None,
) -> TorchrunProgram:
    return TorchrunProgram.begin(
        torchrun, ENV, FORMER, grace_seconds=grace, restart=restart, until=until
    )


async def ended(program: TorchrunProgram) -> Ending:
    async with timeout(5):
        return await program.wait()


async def test_torchrun_is_told_its_place_and_what_changes_in_its_environment() -> None:
    async with met() as (torchrun, peer):
        begun(torchrun)
        assert await peer.hear() == {
            "kind": "go",
            "node": 1,
            "address": "10.0.0.1",
            "port": 29500,
            "nodes": [[4, "default"], [4, "default"], [1, "reader"]],
            "variables": {
                "MASTER_ADDR": "10.0.0.1",
                "MASTER_PORT": "29500",
                "NODE_RANK": "1",
            },
            "removed": ["SECRET"],
        }
        assert torchrun.waits is None


async def test_a_stop_is_over_once_torchrun_asks_for_the_next_table() -> None:
    async with met() as (torchrun, peer):
        program = begun(torchrun)
        await peer.hear()
        stopping = asyncio.create_task(program.stop())
        assert (await peer.hear())["kind"] == "stop"
        assert not stopping.done()
        peer.next()
        ending = await stopping
        assert (ending.exit_code, ending.was_told, ending.first_failure) == (143, True, None)


async def test_torchrun_that_starts_again_by_itself_has_all_start_again() -> None:
    """The registry's stop comes back to this node as to all."""
    asked = asyncio.Event()

    async def restart() -> None:
        asked.set()

    async with met() as (torchrun, peer):
        program = begun(torchrun, restart)
        await peer.hear()
        peer.next(failure=FAILURE)
        async with timeout(5):
            await asked.wait()
        assert not program._over.done()
        async with timeout(5):  # nothing is waited for: its workers have ended
            ending = await program.stop()
        assert (ending.exit_code, ending.was_told) == (137, True)
        assert ending.failed_rank is not None
        assert ending.failed_rank.rank == 3


async def test_a_restart_that_is_refused_is_a_failure() -> None:
    async def restart() -> None:
        raise Mismatch("a node has left")

    async with met() as (torchrun, peer):
        program = begun(torchrun, restart)
        await peer.hear()
        peer.next(failure=FAILURE)
        ending = await ended(program)
        assert (ending.exit_code, ending.was_told) == (137, False)


@pytest.mark.parametrize(
    ("kind", "failure", "code"), [("ended", None, 0), ("failed", FAILURE, 137), ("failed", None, 1)]
)
async def test_an_end_of_torchruns_own(
    kind: str, failure: dict[str, int] | None, code: int
) -> None:
    async with met() as (torchrun, peer):
        program = begun(torchrun)
        await peer.hear()
        peer.say(kind, **({"failure": failure} if kind == "failed" else {}))
        ending = await ended(program)
        assert (ending.exit_code, ending.was_told) == (code, False)
        assert torchrun.has_done == (kind == "ended")
        assert torchrun.given_up.is_set() == (kind == "failed")


async def test_a_torchrun_that_is_gone_leaves_no_worker_and_is_told_of() -> None:
    left = asyncio.Event()
    async with met() as (torchrun, peer):
        torchrun.at_end = left.set
        program = begun(torchrun)
        worker = await asyncio.create_subprocess_exec("sleep", "60")
        await peer.hear()
        # The tests that ran in this process before may have left children as well.
        while worker.pid not in {child.pid for child in program.family.children}:
            await asyncio.sleep(0.01)
        peer.end()
        await ended(program)
        async with timeout(5):
            assert await worker.wait() == -9
        assert left.is_set()
        with pytest.raises(RunError, match="torchrun has ended"):
            begun(torchrun)


async def test_workers_that_torchrun_does_not_end_are_killed_and_no_other_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program_of_torchrun, "_STUCK_SECONDS", 0.1)
    async with met() as (torchrun, peer):
        before = await asyncio.create_subprocess_exec("sleep", "60")
        program = begun(torchrun, grace=0.2)
        worker = await asyncio.create_subprocess_exec("sh", "-c", "sleep 60 & wait")
        while worker.pid not in {child.pid for child in program.family.children}:
            await asyncio.sleep(0.01)
        ending = await program.stop()
        assert (ending.exit_code, ending.was_told) == (143, True)
        assert await worker.wait() == -9
        assert before.returncode is None
        before.kill()
        await before.wait()
        assert [(await peer.hear())["kind"] for _ in range(2)] == ["go", "stop"]


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_torchrun_is_gone_whose_socket_a_worker_keeps_open(
    monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    monkeypatch.setattr(link, "_LOOK_SECONDS", 0.02)
    torchruns = await asyncio.create_subprocess_exec("sleep", "60")
    async with met(torchruns.pid) as (torchrun, peer):
        heard: list[object] = []
        torchrun.heard = heard.append
        torchrun.at_end = lambda: heard.append("its end")
        if leaves:
            peer.say("leaves")
        await asyncio.sleep(0.1)
        assert (torchrun.has_ended, len(heard)) == (leaves, 2 * leaves)
        torchruns.kill()
        async with timeout(5):
            while None not in heard:
                await asyncio.sleep(0.01)
        assert torchrun.has_ended
        assert heard.count("its end") == 1  # told once, whether it said so or not
    await torchruns.wait()


async def test_a_torchrun_whose_work_is_done_may_go() -> None:
    left = asyncio.Event()
    async with met() as (torchrun, peer):
        torchrun.at_end = left.set
        program = begun(torchrun)
        await peer.hear()
        peer.say("ended")
        await ended(program)
        peer.end()
        while not torchrun.has_ended:
            await asyncio.sleep(0.01)
        assert not left.is_set()


async def test_the_fence_is_passed_on() -> None:
    async with met() as (torchrun, peer):
        program = begun(torchrun, until=99.5)
        assert await peer.hear() == {"kind": "may_run", "until": 99.5}  # before they start
        assert (await peer.hear())["kind"] == "go"
        program.may_run(123.5)
        assert await peer.hear() == {"kind": "may_run", "until": 123.5}
