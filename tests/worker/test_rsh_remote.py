"""Remote commands between the agents of a run: by a relay that loses, doubles and forgets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from rendezvous.registry.relay import Relay
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.wire.errors import Forbidden, Unavailable
from rendezvous.wire.relay import (
    COMMAND_WINDOW_BYTES,
    CommandEnd,
    CommandExit,
    CommandFrame,
    CommandOutput,
    CommandStart,
    Parcel,
    RelayMail,
    RelayReply,
)
from tests.support.waiting import soon
from tests.worker.test_hosts_plan import row, table
from worker.program.local_socket import Caller, Request
from worker.rsh import remote
from worker.rsh.remote import RemoteCommands
from worker.rsh.served import NOT_RUN, Served, ServedShell

KEY = b"k" * 32
NODES = 3


class Wire:
    """The registry as a node's client sees it, in front of a real relay; it keeps what it saw.

    With `doubled`, each frame arrives, and its answer is lost, so that it is given again.
    """

    def __init__(self) -> None:
        self.relay = Relay()
        self.seen: list[Parcel] = []
        self.doubled = self.down = self._odd = False
        self.refused: Exception | None = None

    def pause(self) -> float:
        return 0.01

    def restart(self) -> None:
        """Forget all."""
        self.relay.close()
        self.relay = Relay()

    def _answer(self) -> None:
        if self.refused is not None or self.down:
            raise self.refused or Unavailable("it is down")

    async def relay_give(self, run: str, slot: int, parcels: list[Parcel]) -> RelayReply:
        self._answer()
        self.seen += parcels
        self.relay.give(slot, parcels)
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
        self.reads, self.killed = asyncio.Event(), asyncio.Event()
        self.reads.set()

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


SLOTS = (0, *range(2, NODES), 1)
"""In order of their ranks."""
TABLE = table(
    *(row(rank, f"h{n}", f"10.0.0.{10 + n}", slot=n) for rank, n in enumerate(SLOTS)), run="r"
)
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


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    """A cluster whose run is running; it leaves no process behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "_TELL_SECONDS", 30.0)
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


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running() as made:
        yield made


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


@pytest.mark.parametrize(("left", "code"), [(None, 3), (60.0, 3), (-0.01, 137)])
async def test_a_command_of_a_node_that_may_be_replaced_has_as_long_as_its_node(
    left: float | None, code: int
) -> None:
    frames: list[CommandFrame] = []
    until = None if left is None else time.monotonic() + left
    shell = ServedShell("node 0", {"PATH": os.environ["PATH"]}, 5.0, until=lambda: until)
    await Served(1, frames.append).run(b"exit 3", shell)
    assert isinstance(frames[-1], CommandExit)
    assert frames[-1].code == code


@pytest.mark.parametrize("text", ["two\n'lines' \udcff\udc80 [x] $5 `", "x" * 60_000], ids=[0, 1])
async def test_words_arrive_and_are_printed_as_they_were_said(cluster: Cluster, text: str) -> None:
    data = os.fsencode(text)
    told = await cluster.run(b"printf %s '" + data.replace(b"'", b"'\\''") + b"'")
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
    for number in range(2):
        told = await cluster.run(f"echo x >> {count}; seq 2000; exit {number}")
        assert told.said() == b"".join(b"%d\n" % n for n in range(1, 2001))
        assert told.told[-1] == {"exit": number}
    assert count.read_text() == "x\n" * 2


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


# --- the end --------------------------------------------------------------------------------------


async def pid_in(path: Path) -> int:
    await soon(lambda: path.exists() and path.read_text().strip() != "")
    return int(path.read_text())


async def sleeping(cluster: Cluster, folder: Path) -> tuple[Process, asyncio.Task[None], int]:
    """A command that goes on; who asked for it, and the pid of its shell."""
    told, task = cluster.ask(f"echo $$ > {folder}/pid; exec sleep 300")
    return told, task, await pid_in(folder / "pid")


async def test_a_caller_that_is_gone_ends_the_command_and_all_that_it_started(
    cluster: Cluster, tmp_path: Path
) -> None:
    pids = [tmp_path / "shell", tmp_path / "child"]
    command = f"echo $$ > {pids[0]}; setsid sh -c 'echo $$ > {pids[1]}; exec sleep 300' & wait"
    told, task = cluster.ask(command)
    running_pids = [await pid_in(path) for path in pids]
    told.killed.set()
    await asyncio.wait_for(task, 30)
    await soon(lambda: not any(map(psutil.pid_exists, running_pids)))
    await soon(lambda: not cluster.nodes[1]._served)


async def test_of_callers_that_have_gone_before_a_registry_came_back_nothing_is_run_or_kept(
    cluster: Cluster, tmp_path: Path
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


async def test_a_command_that_ends_well_as_its_node_ends_it_has_not_ended_well(
    cluster: Cluster, tmp_path: Path
) -> None:
    """What it printed meanwhile is not told: who asked would take a part of it for the whole."""
    own = f"trap 'echo the rest; exit 0' TERM; echo a part; echo $$ > {tmp_path}/pid"
    told, task = cluster.ask(f"{own}; while :; do sleep 0.02; done")
    await pid_in(tmp_path / "pid")
    await soon(lambda: told.said() == b"a part\n")
    await cluster.nodes[1].close("the run is ending: node 2 was lost")
    await asyncio.wait_for(task, 30)
    assert told.said() == b"a part\n"
    assert told.told[-1] == {"error": "node 1: the run is ending: node 2 was lost"}


async def test_a_registry_that_refuses_for_good_ends_the_waiting(cluster: Cluster) -> None:
    told, task = cluster.ask("sleep 300")
    await soon(lambda: bool(cluster.wire.seen))
    cluster.wire.refused = Forbidden("run 'r' does not allow remote commands")
    cluster.wire.relay.close()
    await asyncio.wait_for(task, 30)
    assert told.told == [{"error": "run 'r' does not allow remote commands"}]


def test_numbers_that_come_in_another_order_are_each_seen_once() -> None:
    for order in ((1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 2, 1), (2, 6, 1, 5, 3, 4), (4, 1, 2, 6, 5, 3)):
        seen, added = remote._Numbers(), set[int]()
        for number in order:
            seen.add(number)
            added.add(number)
            assert {n for n in range(1, 9) if n in seen} == added


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unavailable("nobody listens", hint="start it"), "node 2 (n2): nobody listens start it"),
        (
            OSError(11, "Resource temporarily unavailable"),
            "node 2 (n2) cannot run another command: Resource temporarily unavailable",
        ),
    ],
)
async def test_a_command_that_cannot_be_started_is_answered_with_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    sent: list[object] = []
    ended: list[bool] = []
    one = Served(5, sent.append)

    async def fails(*_: object) -> int:
        raise error

    async def end() -> None:
        ended.append(True)

    monkeypatch.setattr(one, "_run", fails)
    monkeypatch.setattr(one, "end", end)
    await one.run(b"true", ServedShell("node 2 (n2)", {}, 1.0, lambda: None))
    assert sent == [CommandExit(number=5, offset=0, code=NOT_RUN, message=message)]
    assert ended == [True] * isinstance(error, OSError)
