"""Remote commands that are refused, or not run again: what no node made, and what is too much."""

from __future__ import annotations

import asyncio
import base64
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rendezvous.talk.macs import command_mac
from rendezvous.wire.errors import TooManyRequests
from rendezvous.wire.relay import CommandEnd, CommandExit, CommandOutput, CommandStart, Parcel
from tests.support.waiting import soon
from tests.worker.test_rsh_remote import DIGEST, KEY, Cluster, Process, Wire, running, sleeping
from worker.rsh import exchange, remote


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running() as made:
        yield made


async def test_before_the_go_and_where_it_is_not_allowed_nothing_is_asked() -> None:
    early = Cluster()
    assert (await early.run("true")).told == [{"error": "run 'r' is not running yet"}]
    words = "run 'r' does not allow remote commands: launch it with --allow-exec"
    assert (await Cluster(allowed=False).run("true")).told == [{"error": words}]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"host": "h1"}, '"exec" needs "host" and "command", which is base64'),
        ({"host": "h1", "command": 5}, '"exec" needs "host" and "command", which is base64'),
        ({"host": "h1", "command": "ä"}, '"command" is not base64'),
        ({"host": "h1", "command": "a"}, '"command" is not base64'),
        ({"host": "h1", "command": ""}, "a command has 1 to 131071 bytes, none of them zero"),
        (
            {"host": "h7", "command": "dHJ1ZQ=="},
            "'h7' is not a node of run 'r', which has 10.0.0.10",
        ),
        ({"host": "h1", "command": "AAAA"}, "a command has 1 to 131071 bytes, none of them zero"),
    ],
)
async def test_a_request_that_is_none_is_told_so(request_: dict[str, Any], error: str) -> None:
    process = Process()
    async with running() as cluster:
        await cluster.nodes[0].serve(request_, process)
    assert process.told[0]["error"].startswith(error)


def start_of(key: bytes = KEY, **changes: Any) -> CommandStart:
    """A start for slot 1 from slot 0, but for what the changes say of its MAC."""
    mac = command_mac(key, **({**MAC, "command": START} | changes))
    return CommandStart(number=1, command=base64.b64encode(START).decode(), mac=mac)


@pytest.mark.parametrize(
    "changes",
    [
        *({"key": b"x" * 32}, {"digest": "0" * 64}, {"command": b"true"}),
        *({"sender": 2}, {"target": 2}, {"number": 2}),
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_command_that_no_node_has_made_for_this_one_is_not_run(
    cluster: Cluster, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As a registry could that lies: it holds credentials, and not the key of the run's nodes."""
    words = "node 1: this command was not made by a node of this run for it"
    cluster.wire.relay.give(0, [Parcel(peer=1, frame=start_of(**changes))])
    await soon(lambda: bool(cluster.wire.seen))
    assert cluster.wire.seen[0].frame == CommandExit(number=1, code=255, message=words)
    assert cluster.nodes[1]._served == {}
    assert f"a remote command of slot 0 was not run: {words}" in caplog.text


async def test_a_command_that_is_shown_again_is_not_run_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Nor later, when its caller has long forgotten it."""
    count = tmp_path / "count"
    await cluster.run(f"echo x >> {count}")
    [first] = [p for p in cluster.wire.seen if isinstance(p.frame, CommandStart)]
    await soon(lambda: not cluster.nodes[1]._served)
    cluster.wire.relay.give(0, [first] * 3)
    await soon(lambda: cluster.wire.relay.held_bytes == 0)
    await cluster.run(f"echo y >> {count}")
    assert count.read_text() == "x\ny\n"


async def test_a_command_whose_end_overtakes_its_start_is_not_run(cluster: Cluster) -> None:
    """The registry may pass on late what its caller has given for a second time, or given up."""
    for frame in (CommandEnd(number=1), start_of()):
        cluster.wire.relay.give(0, [Parcel(peer=1, frame=frame)])
    assert (await cluster.run("true", own=2)).told == [{"exit": 0}]
    assert not any(parcel.peer == 0 for parcel in cluster.wire.seen)


async def test_a_command_that_was_refused_is_not_run_when_it_is_shown_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its caller was told that it did not run."""
    monkeypatch.setattr(remote, "MOST_SERVED", 0)
    refused = await cluster.run(f"touch {tmp_path}/ran")
    assert refused.told == [{"error": "node 1 already runs 0 remote commands"}]
    [first] = [p for p in cluster.wire.seen if isinstance(p.frame, CommandStart)]
    monkeypatch.setattr(remote, "MOST_SERVED", 2)
    cluster.wire.relay.give(0, [first])
    await soon(lambda: cluster.wire.relay.held_bytes == 0)
    await cluster.run("true")
    assert not (tmp_path / "ran").exists()


async def test_more_commands_at_once_than_a_node_takes_are_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MOST_CALLS", 2)
    monkeypatch.setattr(remote, "MOST_SERVED", 2)
    for own in (0, 2):
        cluster.ask("sleep 300", own)
    await soon(lambda: len(cluster.nodes[1]._served) == 2)
    third = await cluster.run("true")
    assert third.told == [{"error": "node 1 already runs 2 remote commands"}]
    cluster.ask("sleep 300", host="h2")
    await asyncio.sleep(0)
    fourth = await cluster.run("true", host="h2")
    assert fourth.told == [{"error": "this node already waits for 2 remote commands"}]


async def test_more_than_may_wait_for_a_registry_that_takes_nothing_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MOST_QUEUED_BYTES", 200_000)
    long = "true " + " " * 60_000
    cluster.wire.refused = TooManyRequests("full")
    told, task = zip(*[cluster.ask(long, host=host) for host in ("h1", "h2")], strict=True)
    await asyncio.sleep(0)
    refused = await cluster.run(long)
    cluster.wire.refused = None
    await asyncio.wait_for(asyncio.gather(*task), 30)
    again = await cluster.run(long)
    sent = [p.frame.number for p in cluster.wire.seen if p.peer == 1]
    words = "slot 0 already has 156 KiB of remote commands waiting, because the registry of run 'r'"
    assert [t["error"].partition(" does not")[0] for t in refused.told] == [words]
    assert [t.told for t in (*told, again)] == [[{"exit": 0}]] * 3
    assert 2 not in sent  # neither a start nor an end of the one that was refused


def test_an_end_takes_its_start_back_and_is_told_where_that_may_have_been_heard() -> None:
    waiting = exchange.Exchange(Wire(), "r", 0, receive=print, lost=print)
    waiting.send(1, start_of())
    waiting.send(1, CommandEnd(number=1))
    assert waiting._batch() == {}
    waiting.send(1, start_of())
    asyncio.run(waiting._give_batch())
    waiting.send(1, CommandEnd(number=1))
    assert [parcel.frame for parcel in waiting._batch().values()] == [CommandEnd(number=1)]


def test_an_exchange_that_is_ended_leaves_nothing_that_goes_on() -> None:
    async def work() -> set[asyncio.Task[Any]]:
        one = exchange.Exchange(Wire(), "r", 0, receive=print, lost=print)
        working = asyncio.create_task(one.work())
        await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(work()) == set()


async def test_a_node_that_has_no_file_left_says_so_and_goes_on(cluster: Cluster) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        told = await cluster.run("true")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    again = await cluster.run("true")
    words = "node 1 cannot run another command: Too many open files"
    assert (told.told, again.told) == ([{"error": words}], [{"exit": 0}])


async def test_a_caller_of_whose_end_the_news_was_lost_ends_its_command_all_the_same(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The registry forgets that it has gone; the target asks after the restart, and is told."""
    told, task, shell = await sleeping(cluster, tmp_path)
    cluster.wire.refused = TooManyRequests("full")
    told.killed.set()
    await asyncio.wait_for(task, 30)
    cluster.nodes[0]._exchange._waiting.clear()
    cluster.wire.restart()
    cluster.wire.refused = None
    await soon(lambda: not psutil.pid_exists(shell))


MAC: dict[str, Any] = {"digest": DIGEST, "sender": 0, "target": 1, "number": 1}


START = b"touch $MARK"


async def test_what_is_given_at_once_fits_into_one_post(cluster: Cluster) -> None:
    waiting = exchange.Exchange(cluster.wire, "r", 0, receive=print, lost=print)
    for size, most in ((4, 256), (40_000, 4)):
        for offset in range(300):
            data = "A" * size
            waiting.send(1, CommandOutput(number=1, offset=offset, stream="stdout", data=data))
        assert len(waiting._batch()) == most
        waiting._waiting.clear()
