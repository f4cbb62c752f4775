"""Remote commands between the agents of a run: by a relay that loses, doubles and forgets."""

from __future__ import annotations

import asyncio
import base64
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rendezvous.server.relay import Relay
from rendezvous.talk import retry
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.talk.macs import command_mac
from rendezvous.wire.errors import Forbidden, TooManyRequests, Unavailable
from rendezvous.wire.relay import (
    COMMAND_WINDOW_BYTES,
    CommandEnd,
    CommandExit,
    CommandOutput,
    CommandStart,
    Parcel,
    RelayMail,
    RelayReply,
)
from tests.support.waiting import soon
from tests.worker.test_hosts_plan import row, table
from worker.program.local_socket import Caller, Request
from worker.rsh import exchange, remote
from worker.rsh.remote import RemoteCommands
from worker.rsh.served import ServedShell

KEY = b"k" * 32
NODES = 3


@pytest.fixture(autouse=True)
def quickly_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon; and leave no process behind in the end, however busy the machine is."""
    monkeypatch.setattr(retry, "retry_pause", lambda: 0.01)
    monkeypatch.setattr(remote, "_TELL_SECONDS", 30.0)


class Wire:
    """The registry as a node's client sees it, in front of a real relay; it keeps what it saw.

    With `doubled`, each frame arrives, and its answer is lost, so that it is given again. While
    `answers` is not set, what it was given is on its way.
    """

    def __init__(self) -> None:
        self.relay = Relay()
        self.seen: list[Parcel] = []
        self.doubled = False
        self.down = False
        self.refused: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self._odd = False

    def restart(self) -> None:
        """Forget all."""
        self.relay.close()
        self.relay = Relay()

    def _answer(self) -> None:
        if self.refused is not None:
            raise self.refused
        if self.down:
            raise Unavailable("it is down")

    async def relay_give(self, run: str, slot: int, parcels: list[Parcel]) -> RelayReply:
        self._answer()
        self.seen += parcels
        self.relay.give(slot, parcels)
        if slot == 0:
            await self.answers.wait()
        self._odd = not self._odd
        if self.doubled and self._odd:
            raise Unavailable("its answer was lost")
        return RelayReply(session=self.relay.session)

    async def relay_take(self, run: str, slot: int, after: int, session: str) -> RelayMail:
        self._answer()
        relay = self.relay
        mail = await relay.take(slot, after, session)
        if relay is not self.relay:
            raise Unavailable("it was started again meanwhile")
        self._answer()
        return mail


class Process(Caller):
    """A process that has asked its agent, as the socket shows it."""

    def __init__(self) -> None:
        self.told: list[Request] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.killed = asyncio.Event()

    async def tell(self, answer: Request) -> None:
        if self.killed.is_set():
            raise BrokenPipeError
        await self.reads.wait()
        self.told.append(answer)

    async def gone(self) -> None:
        await self.killed.wait()

    def said(self, stream: str = "stdout") -> bytes:
        """What the command has printed."""
        return b"".join(base64.b64decode(t[stream]) for t in self.told if stream in t)


TABLE = table(*(row(slot, f"h{slot}", f"10.0.0.{10 + slot}") for slot in range(NODES)), run="r")
DIGEST = TABLE.digest()


class Cluster:
    """Agents of some nodes, as far as remote commands go."""

    def __init__(self, allowed: bool = True) -> None:
        self.wire = Wire()
        self.nodes = [
            RemoteCommands(self.wire, join_of(slot), allowed=allowed) for slot in range(NODES)
        ]
        self.asked: set[asyncio.Task[None]] = set()

    def ask(
        self, command: str | bytes, own: int = 0, host: str = "h1"
    ) -> tuple[Process, asyncio.Task[None]]:
        """A process of a node asks for a command."""
        data = command if isinstance(command, bytes) else command.encode()
        request = {"do": "exec", "host": host, "command": base64.b64encode(data).decode()}
        process = Process()
        task = asyncio.create_task(self.nodes[own].serve(request, process))
        self.asked.add(task)
        return process, task

    async def run(self, command: str | bytes, own: int = 0, host: str = "h1") -> Process:
        """The same, to its end."""
        process, task = self.ask(command, own, host)
        await asyncio.wait_for(task, 30)
        return process


def join_of(slot: int) -> JoinString:
    place = RegistryPlace(("127.0.0.1",), 1)
    return JoinString(place, "r", "l", slot, 1, Credential("join", bytes(32)), KEY, KEY)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """One whose run is running."""
    made = Cluster()
    work = []
    for slot, node in enumerate(made.nodes):
        environ = {"PATH": os.environ["PATH"], "NODE_RANK": str(slot)}
        node.begin(TABLE, DIGEST, ServedShell(f"node {slot}", environ, grace_seconds=5.0))
        work.append(asyncio.create_task(node.work()))
    yield made
    await asyncio.gather(*(node.close("the test is over") for node in made.nodes))
    for task in (*work, *made.asked):
        task.cancel()
    await asyncio.gather(*work, *made.asked, return_exceptions=True)


# --- what a command does --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "said", "code"),
    [
        ("env | grep -c RDZV_TEST; echo $NODE_RANK; exit 7", "0\n1\n", 7),  # its node's own alone
        ("cat; echo end", "end\n", 0),  # no input
        ("exit 255", "", 255),
        ("kill -9 $$", "", 137),
        ("kill $$", "", 143),
    ],
)
async def test_a_command_runs_on_its_host_and_ends_as_a_shell_does(
    cluster: Cluster, command: str, said: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDZV_TEST_OF_CALLER", "seen")
    told = await cluster.run(command)
    assert told.said() == said.encode()
    assert told.told[-1] == {"exit": code}


@pytest.mark.parametrize(
    "text",
    ["'quoted' \"words\" ; [x] $5 `", "two\nlines\n", "\udcff\udc80 no UTF-8", "x" * 60_000],
    ids=lambda text: ascii(text[:12]),
)
async def test_words_arrive_and_are_printed_as_they_were_said(cluster: Cluster, text: str) -> None:
    data = os.fsencode(text)
    command = b"printf %s '" + data.replace(b"'", b"'\\''") + b"'"
    told = await cluster.run(command)
    assert told.said() == data


async def test_a_node_runs_its_own_commands_without_the_registry(cluster: Cluster) -> None:
    cluster.wire.down = True
    assert (await cluster.run("echo $NODE_RANK", 2, "10.0.0.12")).said() == b"2\n"
    assert cluster.wire.seen == []


async def test_any_node_may_ask_any_other_and_many_do_so_at_once(cluster: Cluster) -> None:
    asked = [cluster.run("echo $NODE_RANK", n % NODES, f"h{(n + 1) % NODES}") for n in range(9)]
    told = await asyncio.gather(*asked)
    assert [t.said() for t in told] == [b"%d\n" % ((n + 1) % NODES) for n in range(9)]


# --- a slow reader --------------------------------------------------------------------------------


async def test_a_reader_that_does_not_read_holds_up_the_command_and_fills_nothing(
    cluster: Cluster,
) -> None:
    told, task = cluster.ask("head -c 3000000 /dev/zero; echo done >&2")
    told.reads.clear()
    sent = 0

    def settled() -> bool:
        nonlocal sent
        before, sent = sent, bytes_in(cluster.wire.seen)
        return sent >= COMMAND_WINDOW_BYTES and sent == before

    await soon(settled)
    assert sent <= COMMAND_WINDOW_BYTES + 32 * 1024
    assert cluster.wire.relay.held_bytes < 2 * COMMAND_WINDOW_BYTES
    told.reads.set()
    await asyncio.wait_for(task, 30)
    assert (len(told.said()), told.said("stderr")) == (3_000_000, b"done\n")


def bytes_in(parcels: list[Parcel]) -> int:
    frames = [p.frame for p in parcels if isinstance(p.frame, CommandOutput)]
    return sum(len(base64.b64decode(frame.data)) for frame in frames)


async def test_a_target_that_sends_more_than_it_may_fills_nothing(cluster: Cluster) -> None:
    told, task = cluster.ask("sleep 60")
    await soon(lambda: bool(cluster.wire.seen))
    told.reads.clear()
    data = base64.b64encode(bytes(32_768)).decode()
    for number in range(100):
        frame = CommandOutput(number=1, offset=number * 32_768, stream="stdout", data=data)
        cluster.wire.relay.give(1, [Parcel(peer=0, frame=frame)])
    call = cluster.nodes[0]._calls[1, 1]
    await soon(lambda: cluster.wire.relay.held_bytes == 0)
    assert call._came.qsize() <= 2 * COMMAND_WINDOW_BYTES // 32_768 + 2
    told.killed.set()
    await asyncio.wait_for(task, 30)


# --- what gets lost -------------------------------------------------------------------------------


async def test_nothing_is_doubled_when_answers_are_lost(cluster: Cluster, tmp_path: Path) -> None:
    count = tmp_path / "count"
    cluster.wire.doubled = True
    for number in range(4):
        told = await cluster.run(f"echo x >> {count}; seq 2000; exit {number}")
        assert told.said() == b"".join(b"%d\n" % n for n in range(1, 2001))
        assert told.told[-1] == {"exit": number}
    assert count.read_text() == "x\n" * 4


async def test_commands_go_on_over_a_restart_of_the_registry(
    cluster: Cluster, tmp_path: Path
) -> None:
    """What it held is lost: both ends tell again what the other has not acknowledged."""
    count, gate = tmp_path / "count", tmp_path / "gate"
    script = f"echo x >> {count}; seq 50000; until [ -e {gate} ]; do sleep 0.02; done; seq 50000"
    told, task = cluster.ask(script)
    await soon(lambda: bytes_in(cluster.wire.seen) > 0)
    for _ in range(5):
        cluster.wire.restart()
        await asyncio.sleep(0.02)
    gate.touch()
    for _ in range(20):
        cluster.wire.restart()
        await asyncio.sleep(0.01)
    await asyncio.wait_for(task, 30)
    assert told.said() == b"".join(b"%d\n" % n for n in range(1, 50_001)) * 2
    assert told.told[-1] == {"exit": 0}
    assert count.read_text() == "x\n"


async def test_a_start_and_an_end_that_were_lost_are_told_again(cluster: Cluster) -> None:
    await cluster.run("true")  # both know the session
    cluster.wire.down = True
    told, task = cluster.ask("echo here")
    await asyncio.sleep(0.05)
    cluster.wire.restart()
    cluster.wire.down = False
    await asyncio.wait_for(task, 30)
    assert told.said() == b"here\n"


# --- the end --------------------------------------------------------------------------------------


async def pid_in(path: Path) -> int:
    await soon(lambda: path.exists() and path.read_text().strip() != "")
    return int(path.read_text())


async def sleeping(cluster: Cluster, folder: Path) -> tuple[Process, asyncio.Task[None], int]:
    """A command that goes on; who asked for it, and the pid of its shell."""
    told, task = cluster.ask(f"echo $$ > {folder}/pid; exec sleep 300")
    return told, task, await pid_in(folder / "pid")


async def test_a_caller_that_is_gone_ends_the_command_and_all_that_it_started(
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    pids = [tmp_path / "shell", tmp_path / "child"]
    command = f"echo $$ > {pids[0]}; setsid sh -c 'echo $$ > {pids[1]}; exec sleep 300' & wait"
    told, task = cluster.ask(command)
    running_pids = [await pid_in(path) for path in pids]
    assert all(map(psutil.pid_exists, running_pids))
    told.killed.set()
    await asyncio.wait_for(task, 30)
    await soon(lambda: not any(map(psutil.pid_exists, running_pids)))
    await soon(lambda: not cluster.nodes[1]._served)


async def test_of_callers_that_have_gone_before_a_registry_came_back_nothing_is_run_or_kept(
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    ran = tmp_path / "ran"
    cluster.wire.down = True
    for name in "abcdef":
        told, task = cluster.ask(f"echo {name} >> {ran}; {' ' * 100_000}")
        if name == "a":  # it is tried, and the registry might have taken it
            await soon(lambda: bool(cluster.nodes[0]._exchange._begun))
        told.killed.set()
        await asyncio.wait_for(task, 30)
    waiting = [parcel.frame for parcel in cluster.nodes[0]._exchange._waiting.values()]
    assert CommandEnd(number=1) in waiting
    assert {type(frame) for frame in waiting} == {CommandEnd}
    cluster.wire.down = False
    await cluster.run(f"echo last >> {ran}")
    starts = [p.frame.number for p in cluster.wire.seen if isinstance(p.frame, CommandStart)]
    assert starts == [7]
    assert ran.read_text() == "last\n"


async def test_a_caller_that_goes_while_its_start_is_on_its_way_ends_the_command(
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    cluster.wire.answers.clear()
    told, task, shell = await sleeping(cluster, tmp_path)
    told.killed.set()
    await asyncio.wait_for(task, 30)
    cluster.wire.answers.set()
    await soon(lambda: not psutil.pid_exists(shell))
    kinds = [type(p.frame) for p in cluster.wire.seen if p.peer == 1]
    assert kinds[:2] == [CommandStart, CommandEnd]


@pytest.mark.real_time
async def test_what_ignores_term_is_killed_after_the_grace(
    cluster: Cluster, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    cluster.nodes[1].begin(TABLE, DIGEST, ServedShell("node 1", {"PATH": os.environ["PATH"]}, 0.1))
    told, _ = cluster.ask(f"trap '' TERM; echo $$ > {pid}; while :; do sleep 1; done")
    shell = await pid_in(pid)
    told.killed.set()
    await soon(lambda: not psutil.pid_exists(shell))


async def test_a_command_that_ends_takes_along_what_it_left_in_the_background(
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    told = await cluster.run(f"sleep 300 & echo $! > {pid}")
    assert told.told == [{"exit": 0}]
    assert not psutil.pid_exists(int(pid.read_text()))


async def test_the_end_of_the_run_ends_commands_and_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    told, task, shell = await sleeping(cluster, tmp_path)
    words = "the run is ending: node 2 was lost"
    await asyncio.gather(*(node.close(words) for node in cluster.nodes[:2]))
    await asyncio.wait_for(task, 30)
    assert not psutil.pid_exists(shell)
    late = await cluster.run("true")
    assert told.told == late.told == [{"error": words}]


async def test_a_registry_that_refuses_for_good_ends_the_waiting(cluster: Cluster) -> None:
    told, task = cluster.ask("sleep 300")
    await soon(lambda: bool(cluster.wire.seen))
    cluster.wire.refused = Forbidden("run 'r' allows no remote commands")
    cluster.wire.relay.close()
    await asyncio.wait_for(task, 30)
    assert told.told == [{"error": "run 'r' allows no remote commands"}]


# --- what is refused ------------------------------------------------------------------------------


async def test_before_the_go_and_where_it_is_not_allowed_nothing_is_asked() -> None:
    early = Cluster()
    assert (await early.run("true")).told == [{"error": "run 'r' is not running yet"}]
    words = "run 'r' allows no remote commands: launch it with --allow-exec"
    assert (await Cluster(allowed=False).run("true")).told == [{"error": words}]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({}, '"exec" needs "host" and "command", which is base64'),
        ({"host": "h1", "command": 5}, '"exec" needs "host" and "command", which is base64'),
        ({"host": "h1", "command": "ä"}, '"command" is not base64'),
        ({"host": "h1", "command": "a"}, '"command" is not base64'),
        ({"host": "h1", "command": ""}, "a command has 1 to 131071 bytes, and no zero among them"),
        ({"host": "h7", "command": "dHJ1ZQ=="}, "'h7' is no node of run 'r', which has 10.0.0.10"),
        ({"host": "h1", "command": "AAAA"}, "a command has 1 to 131071 bytes, and no zero"),
    ],
)
async def test_a_request_that_is_none_is_told_so(
    cluster: Cluster, request_: dict[str, Any], error: str
) -> None:
    process = Process()
    await cluster.nodes[0].serve(request_, process)
    assert process.told[0]["error"].startswith(error)


def start_of(changes: dict[str, Any]) -> CommandStart:
    """A start for slot 1 from slot 0, but for what the changes say of its MAC."""
    true: dict[str, Any] = {
        "digest": DIGEST, "sender": 0, "target": 1, "number": 1, "command": b"touch $MARK"
    }  # fmt: skip
    key = changes.pop("key", KEY)
    mac = command_mac(key, **(true | changes))
    return CommandStart(number=1, command=base64.b64encode(b"touch $MARK").decode(), mac=mac)


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
    cluster.wire.relay.give(0, [Parcel(peer=1, frame=start_of(dict(changes)))])
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
    for frame in (CommandEnd(number=1), start_of({})):
        cluster.wire.relay.give(0, [Parcel(peer=1, frame=frame)])
    assert (await cluster.run("true", own=2)).told == [{"exit": 0}]
    assert not any(parcel.peer == 0 for parcel in cluster.wire.seen)


async def test_a_command_that_was_refused_is_not_run_when_it_is_shown_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its caller was told that it did not run."""
    monkeypatch.setattr(remote, "MOST_SERVED", 0)
    refused = await cluster.run(f"touch {tmp_path}/ran")
    assert refused.told == [{"error": "node 1 runs 0 remote commands already"}]
    [first] = [p for p in cluster.wire.seen if isinstance(p.frame, CommandStart)]
    monkeypatch.setattr(remote, "MOST_SERVED", 2)
    cluster.wire.relay.give(0, [first])
    await soon(lambda: cluster.wire.relay.held_bytes == 0)
    await cluster.run("true")
    assert not (tmp_path / "ran").exists()


async def test_more_commands_at_once_than_a_node_takes_are_refused(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "MOST_CALLS", 2)
    monkeypatch.setattr(remote, "MOST_SERVED", 2)
    for own in (0, 2):
        cluster.ask("sleep 300", own)
    await soon(lambda: len(cluster.nodes[1]._served) == 2)
    third = await cluster.run("true")
    assert third.told == [{"error": "node 1 runs 2 remote commands already"}]
    cluster.ask("sleep 300", host="h2")
    await asyncio.sleep(0)
    fourth = await cluster.run("true", host="h2")
    assert fourth.told == [{"error": "this node waits for 2 remote commands already"}]


async def test_more_than_may_wait_for_a_registry_that_takes_nothing_is_refused(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
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
    words = "remote commands of 156 KiB wait on slot 0 already, as the registry of run 'r' does not"
    assert [t["error"].partition(" take")[0] for t in refused.told] == [words]
    assert [t.told for t in (*told, again)] == [[{"exit": 0}]] * 3
    assert 2 not in sent  # neither a start nor an end of the one that was refused


async def test_a_node_that_has_no_file_left_says_so_and_goes_on(cluster: Cluster) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        told = await cluster.run("true")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    again = await cluster.run("true")
    words = "node 1 cannot run one more command: Too many open files"
    assert (told.told, again.told) == ([{"error": words}], [{"exit": 0}])


async def test_a_caller_of_whose_end_the_news_was_lost_ends_its_command_all_the_same(
    cluster: Cluster,
    tmp_path: Path,
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


async def test_a_shell_that_cannot_be_started_is_no_end_of_the_agent(cluster: Cluster) -> None:
    cluster.nodes[1].begin(TABLE, DIGEST, ServedShell("node 1", {"PATH": "/nowhere"}, 1.0))
    told = await cluster.run("true")
    assert told.told[-1] == {"exit": 127}
    assert b"cannot start 'sh': not found in any folder of PATH" in told.said("stderr")
