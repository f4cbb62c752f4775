"""One node of a torchrun's run: which place it takes, what it offers there, and how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.symmetric.claim import Claim, Value
from launcher.torchrun import host_process, node_process, standing
from launcher.torchrun.asked import Asked
from launcher.torchrun.group import Group
from launcher.torchrun.link import Torchrun
from launcher.torchrun.node_process import _Member
from launcher.torchrun.words import Next
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import JoinString, RegistryPlace, RegistryString
from rendezvous.wire.errors import (
    AddressError,
    NotFound,
    RunError,
    RunExists,
    RunOver,
    SlotTaken,
    TooLate,
    Unavailable,
    UsageError,
)
from rendezvous.wire.node import Candidate, Facts, Job, JoinRequest, LinkKind
from rendezvous.wire.run import NodeState, Phase, RunStatus
from tests.launcher.drive import slot, status
from tests.support.registry import Launch
from tests.support.virtual_time import run_virtually
from tests.support.written import Registry
from tests.torchrun.test_asked import TOKEN, begin
from worker.settings import WorkerSettings

KEYS = RunKeys(bytes(range(32)), "job", "k7f2a9c1xy")
PLACE = RegistryPlace(("10.0.0.4",), 29_700)
RUN = "/v1/runs/job"
HERE, GONE = NodeState.RUNNING, NodeState.LOST


def stands(
    *nodes: NodeState | None, phase: Phase = Phase.GATHERING, epoch: int = 1, left: bool = False
) -> RunStatus:
    """A run whose slots have these nodes."""
    rows = [slot(number, its=node) for number, node in enumerate(nodes)]
    return status(*rows, phase=phase, epoch=epoch, everyone_left=left)


class World:
    """What a member meets: a registry as it is written, and places that are taken.

    Attributes:
        codes: How its part in each slot ends, by slot.
        tried: The slots that it tried, and when.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> None:
        self.registry = Registry({})
        self.registry.put_in(
            monkeypatch,
            *(f"launcher.torchrun.{name}" for name in ("node_process", "host_process", "standing")),
        )
        self.codes: dict[int, int | Exception] = {}
        self.tried: list[tuple[int, float]] = []
        self.settings: list[WorkerSettings] = []
        self.torchrun = Torchrun(cast(socket.socket, None))
        self.torchrun.begin = cast(Any, SimpleNamespace(python="/usr/bin/python9"))
        known: dict[str, Any] = {"host": "10.0.0.4", "port": 29_700, "run": "job", "size": (2, 4)}
        self.asked = Asked(**(known | asked))
        monkeypatch.setattr(node_process, "take_part", self.take_part)
        monkeypatch.setattr(node_process, "with_log_folder", self.with_log_folder)
        monkeypatch.setattr(node_process.random, "random", lambda: 0.5)  # type: ignore[attr-defined]
        monkeypatch.setattr(node_process.random, "choice", lambda free: free[-1])  # type: ignore[attr-defined]
        self.member = self.made()

    def made(self, group: Group | None = None, role: str = "default") -> _Member:
        node = Next(kind="next", processes=3, role=role)
        group = group or Group(KEYS, PLACE)
        settings = WorkerSettings(join_timeout=70.0)
        return _Member(self.asked, group, self.torchrun, node, settings, lambda: None)

    async def with_log_folder(self, settings: Any, join: Any, environment: Any) -> Any:
        return settings

    async def take_part(
        self, settings: Any, join: JoinString, command: Any, environment: Any, *, any_slot: bool
    ) -> int:
        assert any_slot
        assert command == ["/usr/bin/python9", "-m", "torch.distributed.run"]
        self.tried.append((join.slot, asyncio.get_running_loop().time()))
        self.settings.append(settings)
        await asyncio.sleep(1.0)
        found = self.codes.get(join.slot, 0)
        if isinstance(found, Exception):
            raise found
        return found

    def says(self, *found: RunStatus | Exception) -> None:
        """The run stands so when it is asked for, one after the other, and then as at the last."""
        left = list(found)

        def next_one() -> RunStatus:
            one = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(one, Exception):
                raise one
            return one

        self.registry.answers[f"GET {RUN}"] = next_one
        self.registry.answers[f"DELETE {RUN}"] = (
            found[-1] if isinstance(found[-1], RunStatus) else stands()
        )

    def take(self) -> dict[str, Any]:
        over: list[dict[str, Any]] = []

        async def work() -> None:
            over.append(await self.member.take_part())
            assert len(asyncio.all_tasks()) == 1 or await _settled()

        run_virtually(work())
        return over[0]


async def _settled() -> bool:
    """Whether nothing goes on that was begun for it, once what was cancelled has ended."""
    await asyncio.sleep(0.01)
    return len(asyncio.all_tasks()) == 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_the_first_one_takes_the_first_place_of_a_run_that_nobody_knows_yet(world: World) -> None:
    world.says(NotFound("no such run"))
    words = "run 'job' has ended; rdzv's lines above say more"
    assert world.take() == {"code": 0, "message": words}
    assert world.tried == [(0, 0.0)]
    assert set(world.registry.credentials) == {KEYS.read.text()}


@pytest.mark.parametrize(
    ("rank", "nodes", "tried"),
    [
        (None, (HERE, None, GONE), 2),  # not the first of the free ones for all
        (None, (None, HERE, GONE), 0),
        (1, (None, None, None), 1),
        (1, (None, HERE, None), 2),
        (7, (None, HERE, HERE), 0),  # there is no such place
        (2, (HERE, HERE, HERE), 2),  # none is free: what was asked for is tried all the same
    ],
)
def test_a_free_place_is_tried_that_was_asked_for_if_it_can_be(
    monkeypatch: pytest.MonkeyPatch, rank: int | None, nodes: Any, tried: int
) -> None:
    world = World(monkeypatch, node=rank)
    world.says(stands(*nodes))
    world.codes[tried] = 3
    words = "run 'job' has failed, or this node's part of it; rdzv's lines above say more"
    assert world.take() == {"code": 3, "message": words}
    assert [one for one, _ in world.tried] == [tried]


def test_who_finds_its_place_taken_looks_again_until_another_one_is_free(world: World) -> None:
    full = stands(HERE, HERE, HERE)
    world.says(stands(None, HERE, HERE), Unavailable("busy"), full, full, stands(HERE, HERE, GONE))
    world.codes[0] = SlotTaken("it is taken")
    assert world.take()["code"] == 0
    assert world.tried == [(0, 0.0), (2, pytest.approx(1.0 + 3 * 0.5 + 0.05))]


def test_a_run_that_has_all_its_nodes_does_not_need_this_one(world: World) -> None:
    full = stands(HERE, HERE, phase=Phase.RUNNING)
    world.says(stands(None, HERE), stands(HERE, HERE), full)
    world.codes[0] = SlotTaken("it is taken")
    assert world.take() == {"code": 0, "message": "run 'job' does not need this node"}
    assert len(world.tried) == 1
    world.says(stands(None, HERE))
    world.codes[0] = TooLate("it has begun")
    assert world.take() == {"code": 0, "message": "run 'job' does not need this node"}


def test_of_a_run_that_ends_meanwhile_there_is_no_place(world: World) -> None:
    world.says(stands(None, HERE), stands(HERE, HERE, phase=Phase.FINISHED))
    world.codes[0] = SlotTaken("it is taken")
    with pytest.raises(RunOver, match="run 'job' has ended"):
        world.take()


def test_a_torchrun_that_has_ended_joins_nothing(world: World) -> None:
    world.says(stands(None, HERE))
    world.torchrun.has_ended = True
    with pytest.raises(RunError, match="torchrun has ended on this node"):
        world.take()
    assert world.tried == []


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        ([stands(HERE, phase=Phase.ARMING)], 0.0),
        ([stands(HERE, phase=Phase.RUNNING)] * 3 + [stands(HERE, phase=Phase.FINISHED)], 1.5),
        (
            [stands(HERE, phase=Phase.RUNNING)] * 2 + [stands(HERE, phase=Phase.RUNNING, epoch=2)],
            1.0,
        ),
        ([stands(HERE, phase=Phase.RUNNING)], 60.0),
    ],
)
def test_a_torchrun_that_gives_up_ends_the_run_once_its_failure_has_been_told(
    world: World, looks: list[RunStatus], seconds: float
) -> None:
    world.says(*looks)
    ended: list[float] = []

    async def work() -> None:
        seeing = asyncio.create_task(world.member._see_to_the_end())
        await asyncio.sleep(5.0)
        assert world.registry.asked == []
        world.torchrun.given_up.set()
        await seeing
        ended.append(asyncio.get_running_loop().time() - 5.0)

    run_virtually(work())
    call, sent = world.registry.asked[-1]
    assert call == f"DELETE {RUN}"
    assert ended == pytest.approx([seconds])
    assert sent == {"reason": f"torchrun of {socket.gethostname()} has no restart left"}
    assert [one for one, _ in world.registry.asked].count(f"DELETE {RUN}") == 1
    assert set(world.registry.credentials) == {KEYS.admin.text()}


def test_a_run_that_is_over_cannot_be_ended_and_that_is_no_fault(world: World) -> None:
    world.says(RunOver("it is over"))
    world.torchrun.given_up.set()
    run_virtually(world.member._see_to_the_end())


def test_a_restart_is_asked_for_by_the_name_of_this_machine(world: World) -> None:
    world.registry.answers[f"POST {RUN}/restart"] = stands(HERE)
    run_virtually(world.member._restart())
    ((call, sent),) = world.registry.asked
    why = f"torchrun of {socket.gethostname()} starts its workers again"
    assert (call, sent.reason) == (f"POST {RUN}/restart", why)


@pytest.mark.parametrize("left", [True, False])
def test_whether_all_have_left_is_asked_and_else_taken_for_so(world: World, *, left: bool) -> None:
    found: list[bool] = []

    async def work() -> None:
        found.append(await world.member.everyone_left())

    world.says(stands(HERE, left=left))
    run_virtually(work())
    world.says(Unavailable("nobody answers"))
    run_virtually(work())
    assert found == [left, True]


def test_alone_on_loopback_a_node_has_the_address_of_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, host="localhost", size=(1, 1))
    world.says(stands(None))
    world.take()
    assert [one.address for one in world.settings] == [["127.0.0.1"]]
    world = World(monkeypatch, host="localhost", size=(1, 2))
    world.says(stands(None))
    world.take()
    assert [one.address for one in world.settings] == [WorkerSettings().address]


OFFER = [Candidate(f"eth{n}", f"10.0.0.{n + 1}", 24, LinkKind.ETHERNET) for n in range(64)]


def offered(monkeypatch: pytest.MonkeyPatch, member: _Member, count: int) -> JoinRequest:
    """What a machine with so many addresses offers in slot 3."""

    def make_offer(settings: WorkerSettings, join: JoinString) -> JoinRequest:
        found = OFFER[:count]
        if settings.loopback:
            found = [Candidate("lo", settings.address[0], 8, LinkKind.LOOPBACK)]
        if not found:
            raise AddressError("there is no address")
        return JoinRequest(**REQUEST, slot=join.slot, candidates=found)

    monkeypatch.setattr(node_process, "make_offer", make_offer)
    monkeypatch.setattr(node_process, "sign_join", lambda offer, key, **of: offer)
    join = JoinString.of(KEYS, PLACE, 3)
    return member._make_offer(member.settings, join)


REQUEST: dict[str, Any] = {
    "generation": 1,
    "join_id": "j" * 22,
    "protocol": 1,
    "job": Job(),
    "facts": Facts(),
    "hostname": "gpu-9",
    "nproc_per_node": 3,
}


@pytest.mark.parametrize(("role", "told"), [("default", None), ("reader", "reader")])
def test_on_loopback_the_own_address_comes_behind_those_that_others_reach(
    monkeypatch: pytest.MonkeyPatch, role: str, told: str | None
) -> None:
    world = World(monkeypatch, host="127.0.0.1")
    member = world.made(role=role)
    for count, kept in ((2, 2), (64, 63)):
        offer = offered(monkeypatch, member, count)
        assert offer.candidates[:-1] == OFFER[:kept]
        assert (offer.candidates[-1].address, offer.candidates[-1].kind) == (
            "127.0.0.4",
            LinkKind.LOOPBACK,
        )
        assert offer.role == told
    alone = offered(monkeypatch, member, 0)
    assert [one.address for one in alone.candidates] == ["127.0.0.4"]
    member.settings = member.settings.model_copy(update={"interface": ["eth7"]})
    with pytest.raises(AddressError):
        offered(monkeypatch, member, 0)
    far = World(monkeypatch).made(role=role)
    found = offered(monkeypatch, far, 2)
    assert (found.candidates, found.role) == (OFFER[:2], told)


# --- the registry's host, and a standing registry -----------------------------------------------


@pytest.mark.parametrize(
    ("orphaned", "looks", "ends"),
    [
        (False, [stands(None)], 70.0),  # nobody has come
        (True, [stands(None)], 30.0),  # and nobody will
        (False, [stands(HERE), stands(HERE), stands(GONE, NodeState.LEFT)], 34.0),
        (False, [stands(GONE, HERE), Unavailable("busy"), stands(GONE)], 32.0),
    ],
)
def test_a_registry_is_ended_that_every_node_has_left(
    world: World, monkeypatch: pytest.MonkeyPatch, looks: Any, ends: float, *, orphaned: bool
) -> None:
    world.says(*looks)
    killed: list[float] = []
    parents = iter([7, *([1] * 1_000 if orphaned else [7] * 1_000)])

    def kill(pid: int, number: int) -> None:
        killed.append(asyncio.get_running_loop().time())

    monkeypatch.setattr("launcher.torchrun.host_process.os.kill", kill)
    monkeypatch.setattr("launcher.torchrun.host_process.os.getppid", lambda: next(parents))
    run_virtually(host_process._end_when_left(Group(KEYS, PLACE), 70.0))
    assert killed == [pytest.approx(ends, abs=0.01)]


def test_a_run_that_is_over_ends_its_registry_by_itself() -> None:
    assert host_process._somebody_is_there(stands(GONE, phase=Phase.FINISHED))
    assert host_process._somebody_is_there(stands(GONE, HERE))
    assert not host_process._somebody_is_there(stands(GONE, None, NodeState.RELEASED))


def test_nobody_watches_a_launch_that_has_ended(world: World) -> None:
    world.says(stands(HERE))

    async def launch() -> int:
        await asyncio.sleep(5.0)
        return 82

    async def work() -> None:
        assert await host_process._host(launch(), Group(KEYS, PLACE), 70.0) == 82
        assert await _settled()

    run_virtually(work())


@pytest.mark.parametrize("known", [True, False])
def test_at_a_standing_registry_the_first_one_makes_the_run(world: World, *, known: bool) -> None:
    of = RegistryString(PLACE, KEYS.admin)
    group = Group(KEYS, PLACE, of)
    made = iter([Unavailable("not yet"), RunExists("it is there") if known else stands(None)])

    def answer() -> RunStatus:
        found = next(made)
        if isinstance(found, Exception):
            raise found
        return found

    world.registry.answers[f"PUT {RUN}"] = answer
    spec = Launch("job").spec(2)
    run_virtually(standing.make_run(group, spec, 30.0))
    assert [call for call, _ in world.registry.asked] == [f"PUT {RUN}"] * 2
    assert set(world.registry.credentials) == {of.credential.text()}


# --- all of it, from the first line of a torchrun to the last one for it --------------------------


class Link:
    """A torchrun at the other end: what it is told, in order."""

    def __init__(self, *, opens: bool | Exception = True) -> None:
        self.opens = opens
        self.told: list[Any] = []
        self.begin = begin("127.0.0.1:29700")
        self.at_end: Any = None

    async def open(self) -> bool:
        if isinstance(self.opens, Exception):
            raise self.opens
        return self.opens

    async def asks(self) -> Next:
        await asyncio.sleep(2.0)
        return Next(kind="next", processes=3, role="default")

    def tell(self, kind: str, **words: Any) -> None:
        self.told.append((kind, words))

    async def close(self) -> None:
        self.told.append("closed")


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    one = Link()
    monkeypatch.setattr(node_process, "Torchrun", lambda _: one)
    monkeypatch.setattr(node_process, "log_to_stderr", lambda *_: None)
    monkeypatch.setattr(node_process, "need_launcher_packages", lambda: None)
    monkeypatch.setattr(node_process, "given", lambda model: model())
    monkeypatch.setattr(node_process, "claims", lambda *_: [])
    monkeypatch.setattr(node_process, "secret_text", {"RDZV_TOKEN": TOKEN}.get)
    return one


def hosted(
    monkeypatch: pytest.MonkeyPatch, part: Any, *, fails_at: float | None = None
) -> tuple[list[Any], list[_Member]]:
    """What is done for the registry beside a node whose part this is."""
    done: list[Any] = []
    members: list[_Member] = []

    class Hosting:
        def __init__(self, asked: Asked, first: Any, token: str) -> None:
            done.append((asked.port, first.endpoint, token == TOKEN))

        async def go(self) -> None:
            try:
                await asyncio.sleep(1_000 if fails_at is None else fails_at)
                raise UsageError("no room for a registry", hint="make some")
            except asyncio.CancelledError:
                done.append("let go")
                raise

        async def close(self, everyone_left: Any) -> None:
            done.append(("closed", everyone_left.__name__))

    async def take_part(self: _Member) -> dict[str, Any]:
        members.append(self)
        found: dict[str, Any] = await part(self)
        return found

    monkeypatch.setattr(node_process, "Hosting", Hosting)
    monkeypatch.setattr(_Member, "take_part", take_part)
    return done, members


def serve(link: Link, done: list[Any]) -> float:
    """Until the helper ends; after how long."""
    at: list[float] = []

    async def work() -> None:
        await node_process._serve(cast(socket.socket, None))
        at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)
        done.append("ended")

    run_virtually(work())
    return at[0]


def test_a_torchrun_is_told_of_the_end_once_its_node_has_taken_part(
    monkeypatch: pytest.MonkeyPatch, link: Link
) -> None:
    async def part(member: _Member) -> dict[str, Any]:
        await asyncio.sleep(5.0)
        return {"code": 3, "message": "it failed"}

    done, _ = hosted(monkeypatch, part)
    assert serve(link, done) == pytest.approx(7.0)
    assert link.told == [("over", {"code": 3, "message": "it failed"}), "closed"]
    assert done == [
        (29_700, "127.0.0.1:29700", True),
        ("closed", "everyone_left"),
        "let go",
        "ended",
    ]


def test_a_node_takes_part_as_its_torchrun_asked(
    monkeypatch: pytest.MonkeyPatch, link: Link
) -> None:
    async def part(member: _Member) -> dict[str, Any]:
        member.met()  # from here on it needs no registry of its own to come up
        await asyncio.sleep(0.01)
        return {"code": 0, "message": "fine"}

    done, members = hosted(monkeypatch, part)
    serve(link, done)
    (member,) = members
    assert member.torchrun is cast(Any, link)
    assert (member.asked.run, member.group.keys.run) == ("job", "job")
    assert (member.node.processes, member.settings.nproc_per_node) == (3, "3")
    assert done[1:] == ["let go", ("closed", "everyone_left"), "ended"]
    assert link.at_end.args == (os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("at", [1.0, 4.0])
def test_where_no_registry_can_be_the_node_ends_and_says_why(
    monkeypatch: pytest.MonkeyPatch, link: Link, capsys: pytest.CaptureFixture[str], at: float
) -> None:
    async def part(member: _Member) -> dict[str, Any]:
        await asyncio.sleep(500.0)
        return {}

    done, _ = hosted(monkeypatch, part, fails_at=at)
    assert serve(link, done) == pytest.approx(at)
    words = "no room for a registry (make some)"
    assert link.told == [("over", {"code": 64, "message": words}), "closed"]
    assert capsys.readouterr().err == "rdzv: no room for a registry\n      make some\n"
    assert len(done) == 2


def test_who_is_another_node_than_its_own_endpoint_starts_no_registry(
    monkeypatch: pytest.MonkeyPatch, link: Link
) -> None:
    values = {"node_rank": ("1", "PET_NODE_RANK"), "nnodes": ("4", "PET_NNODES")}
    values |= {"master_addr": ("10.0.7.9", "PET_MASTER_ADDR")}
    claim = Claim("Kubeflow", {name: Value(*value) for name, value in values.items()})
    monkeypatch.setattr(node_process, "claims", lambda environ, host, nodes: [claim] * (nodes == 4))

    async def part(member: _Member) -> dict[str, Any]:
        raise AssertionError

    done, members = hosted(monkeypatch, part)
    serve(link, done)
    assert (done, members) == (["ended"], [])
    ((kind, words), closed) = link.told
    assert (kind, words["code"], closed) == ("over", 64, "closed")
    assert "but this is node 1 of 4 (Kubeflow: PET_NODE_RANK)" in words["message"]
    assert "--rdzv-endpoint=10.0.7.9:29700" in words["message"]


def test_a_fault_of_ours_is_told_and_a_torchrun_that_says_nothing_is_not(
    monkeypatch: pytest.MonkeyPatch, link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    async def part(member: _Member) -> dict[str, Any]:
        raise KeyError("x")

    done, _ = hosted(monkeypatch, part)
    serve(link, done)
    assert link.told == [
        ("over", {"code": 70, "message": "a bug in rdzv: KeyError('x')"}),
        "closed",
    ]
    assert "this is a bug in rdzv; please report it" in caplog.text
    assert done[-2:] == ["let go", "ended"]
    link.told.clear()
    link.opens = False
    serve(link, done)
    assert link.told == ["closed"]


def test_its_process_is_set_up_before_it_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden, deaf to a terminal's interrupt, quiet where nobody reads, and away from its input."""
    done: list[Any] = []

    def say(name: str, found: object = None) -> Any:
        def call(*given: Any) -> Any:
            done.append((name, *given))
            return found

        return call

    async def serve_it(link: object) -> None:
        done.append(("serves", link, logging.raiseExceptions))

    calls: dict[str, Any] = {
        "signal": {"signal": say("handles"), "pthread_sigmask": say("masks")},
        "os": {"dup": say("copies", 17)},
        "socket": {"socket": lambda **given: given},
    }
    for name, stand_ins in calls.items():
        module = getattr(node_process, name)
        monkeypatch.setattr(node_process, name, SimpleNamespace(**vars(module) | stand_ins))
    monkeypatch.setattr(node_process, "hide_memory", say("hides"))
    monkeypatch.setattr(node_process, "_serve", serve_it)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    node_process.main()
    assert done == [
        ("hides",),
        ("handles", signal.SIGINT, signal.SIG_IGN),
        ("masks", signal.SIG_UNBLOCK, [signal.SIGINT]),
        ("copies", 0),
        ("serves", {"fileno": 17}, False),
    ]


async def test_a_torchrun_is_waited_for_each_time_that_it_asks() -> None:
    mine, theirs = socket.socketpair()
    torchrun = Torchrun(mine)
    reader, writer = await asyncio.open_connection(sock=theirs)
    writer.write(begin("127.0.0.1:29700", pid=1).model_dump_json().encode() + b"\n")
    assert await torchrun.open()
    for processes in (3, 5):
        asking = asyncio.create_task(torchrun.asks())
        await asyncio.sleep(0.01)
        assert not asking.done()
        words = {"kind": "next", "processes": processes, "role": "default"}
        writer.write(json.dumps(words).encode() + b"\n")
        assert (await asyncio.wait_for(asking, 5)).processes == processes
        torchrun.tell("go", table=processes)
        assert json.loads(await reader.readline()) == {"kind": "go", "table": processes}
        assert torchrun.waits is None
    await torchrun.close()
    writer.close()
