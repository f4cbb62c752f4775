"""What forks a node's processes: what it asks for when, and what is ended, table after table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.secret_variables import SECRET_VARIABLES
from tests.support.virtual_time import forever
from tests.worker.agent.drive import PROGRAM, at_once, virtually
from worker.agent import warm
from worker.agent.notices import Note
from worker.agent.warm import WarmStart, WarmWish
from worker.contracts.framework import Forks
from worker.program.process import Program
from worker.program.zygote import Unfit
from worker.program.zygote import Zygote as RealZygote
from worker.programs.warm.rank import ROOM, ROOM_VARIABLE

WISH = WarmWish("torchrun", ["-m", "train"], "numpy,scipy", 3, 7.0)
GIVEN = {"PATH": "/bin", **dict.fromkeys(SECRET_VARIABLES, "secret")}
FORKS = Forks(["train.py", "--fast"], {"OMP_NUM_THREADS": "1"}, [{"RANK": "4"}, {"RANK": "5"}])
CONTRACT = replace(PROGRAM, forks=FORKS, port=29_500)
SPAWNS = ("start_keeper", ["/usr/bin/python", "-u", warm._SPAWNER, "train.py", "--fast"], 7.0)


class Zygote:
    """A process that imports for some seconds."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.lives, self.is_ready = True, False

    async def ready(self) -> float:
        await asyncio.sleep(self.world.imports)
        if self.world.unfit:
            raise Unfit(self.world.unfit)
        self.is_ready = True
        return self.world.imports

    async def fork(self, grace: float, port: int | None) -> Any:
        if not self.is_ready:
            await self.ready()
        self.world.did("fork", self.number, grace, port)
        await asyncio.sleep(self.world.forking)
        return Forked(self.world)

    async def end(self) -> None:
        self.lives = False
        self.world.did("zygote ended", self.number)


class Forked:
    """What was forked, and the socket on which it says that it is there."""

    def __init__(self, world: World) -> None:
        world.forked += 1
        self.world, self.number = world, world.forked
        self.kept = SimpleNamespace(has_ended=False, number=self.number)
        self.orders = SimpleNamespace(close=lambda: self.world.did("orders closed", self.number))
        self.orders.forked = self

    async def end(self) -> None:
        self.world.did("forked ended", self.number)


class World:
    """What a warm start does outside, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.said: list[Any] = []
        self.imports, self.unfit, self.forked, self.zygotes = 5.0, "", 0, 0
        self.forking = 0.0
        self.orders: list[dict[str, Any]] = []
        self.answer: bytes | Exception | None = b"{}"
        self.script: tuple[str, list[str]] | Exception = ("/bin/torchrun", ["/usr/bin/python"])
        self.looked: list[tuple[str, dict[str, str]]] = []
        self.cannot: Exception | None = None
        put = monkeypatch.setattr
        put(warm, "look_script", self._look_script)
        put(warm, "has_ended", lambda kept: kept.has_ended)
        self.starts: Callable[..., Any] = self._zygote
        put(RealZygote, "start", lambda *how: self.starts(*how))
        put(warm, "start_keeper", self._start_keeper)
        put(Program, "of", lambda kept, env, **more: self._program("of", kept, more))
        put(Program, "of_begun", lambda kept, env, **more: self._program("begun", kept, more))

    def did(self, *what: Any) -> None:
        self.done.append(what)

    def _look_script(self, launcher: str, given: dict[str, str]) -> tuple[str, list[str]]:
        self.looked.append((launcher, given))
        if isinstance(self.script, Exception):
            raise self.script
        return self.script

    async def _zygote(self, words: list[str], environ: dict[str, str]) -> Any:
        self.zygotes += 1
        self.started = words, environ
        self.did("zygote", self.zygotes)
        if self.cannot is not None:
            raise self.cannot
        return Zygote(self, self.zygotes)

    async def _start_keeper(self, argv: Any, env: Any, grace: float, **more: Any) -> Any:
        self.did("start_keeper", argv, grace)
        self.spawner_env, self.until = env, more["until"]
        stdin = SimpleNamespace(
            write=lambda data: self.orders.append(json.loads(data)),
            close=lambda: self.did("order told"),
        )
        return SimpleNamespace(process=SimpleNamespace(stdin=stdin), number=0)

    def _program(self, how: str, kept: Any, more: dict[str, Any]) -> Any:
        self.did(how, kept.number, more["grace_seconds"])
        return SimpleNamespace(how=how, until=more.get("until"))

    def one(self, given: dict[str, str] | None = None) -> WarmStart:
        loop: Any = asyncio.get_running_loop()

        async def hear(sock: Any, _: int) -> bytes:
            if self.answer is None:
                await forever()
            if isinstance(self.answer, Exception):
                raise self.answer
            assert self.answer is not None
            return self.answer

        async def tell(sock: Any, data: bytes) -> None:
            self.orders.append(json.loads(data))

        loop.sock_recv, loop.sock_sendall = hear, tell
        return WarmStart(WISH, GIVEN if given is None else given, at_once, self.said.append)

    @property
    def reasons(self) -> list[str]:
        return [dict(one.values)["why"] for one in self.said if one.note is Note.COLD]


def warms(work: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test on a virtual clock, in a world of its own."""

    def test(monkeypatch: pytest.MonkeyPatch) -> None:
        virtually(work(World(monkeypatch)))

    test.__name__, test.__doc__ = work.__name__, work.__doc__
    return test


async def start(one: WarmStart, **env: str) -> Any:
    """At a go: the program, and nothing that it does with its output."""
    own: Any = None
    given = {**one._given, **env}
    return await one.start(["torchrun"], given, output=own, until=50.0)


ORDER = {"words": FORKS.words, "ranks": FORKS.ranks, "port": 29_500}


@warms
async def test_it_imports_forks_at_the_table_and_tells_at_the_go(world: World) -> None:
    one = world.one()
    await one.begin()
    words, environ = world.started
    assert words == ["/usr/bin/python", "-u", warm._PROGRAM, "numpy,scipy", "-m", "train"]
    assert environ["PATH"] == "/bin"
    assert environ["OMP_NUM_THREADS"] == "1"
    assert not SECRET_VARIABLES & environ.keys()
    assert environ[ROOM_VARIABLE] == ROOM
    [said] = world.said
    assert (said.note, dict(said.values)) == (Note.WARM, {"seconds": 5.0})
    await one.begin()  # one that lives is enough
    assert await one.arm(CONTRACT)
    program = await start(one, MASTER_PORT="29500")
    assert (program.how, program.until) == ("begun", 50.0)
    assert world.done == [
        ("zygote", 1),
        ("fork", 1, 7.0, 29_500),
        ("begun", 1, 7.0),
        ("orders closed", 1),
    ]
    [order] = world.orders
    assert {name: order[name] for name in ORDER} == ORDER
    await one.end()
    assert world.done[4:] == [("zygote ended", 1)]


@warms
async def test_each_table_has_a_fork_of_its_own_and_each_program_one_zygote(world: World) -> None:
    one = world.one()
    await one.begin()
    for number in (1, 2):
        assert await one.arm(replace(CONTRACT, port=29_500 + number))
        await one.disarm()
        await one.disarm()
    assert world.done[1:] == [
        ("fork", 1, 7.0, 29_501),
        ("forked ended", 1),
        ("fork", 1, 7.0, 29_502),
        ("forked ended", 2),
    ]
    assert await one.arm(CONTRACT)
    assert (await start(one)).how == "begun"
    zygote: Any = one._zygote
    zygote.lives = False
    world.done.clear()
    await one.begin()
    assert await one.arm(CONTRACT)
    assert (await start(one)).how == "begun"
    assert world.done == [
        ("zygote ended", 1),
        ("zygote", 2),
        ("fork", 2, 7.0, 29_500),
        ("begun", 4, 7.0),
        ("orders closed", 4),
    ]
    assert world.reasons == []


@warms
async def test_a_go_before_the_imports_are_done_waits_for_them(world: World) -> None:
    one = world.one()
    begins = asyncio.create_task(one.begin())
    await asyncio.sleep(1.0)
    assert await one.arm(CONTRACT)
    now = asyncio.get_running_loop().time
    began = now()
    assert (await start(one)).how == "begun"
    assert now() - began == pytest.approx(5.0)
    await begins


@warms
async def test_what_is_being_forked_for_a_table_that_is_none_any_more_is_waited_for(
    world: World,
) -> None:
    """A zygote that was asked answers; the next one who asks must not hear that."""
    one = world.one()
    await one.begin()
    world.forking = 6.0
    for number in (1, 2):
        assert await one.arm(CONTRACT)
        await one.disarm()
        assert world.done[-2:] == [("fork", 1, 7.0, 29_500), ("forked ended", number)]
    assert asyncio.get_running_loop().time() == pytest.approx(5.0 + 2 * 6.0)
    assert world.reasons == []


@warms
async def test_a_table_that_changes_while_it_imports_has_asked_for_nothing(world: World) -> None:
    one = world.one()
    begins = asyncio.create_task(one.begin())
    await asyncio.sleep(1.0)
    assert await one.arm(CONTRACT)
    await one.disarm()
    await begins
    await asyncio.sleep(60.0)
    assert world.done == [("zygote", 1)]
    assert world.reasons == []


@warms
async def test_imports_that_take_too_long_are_given_up(world: World) -> None:
    one = world.one()
    world.imports = 1_000.0
    begins = asyncio.create_task(one.begin())
    await asyncio.sleep(1.0)
    assert await one.arm(CONTRACT)
    now = asyncio.get_running_loop().time
    began = now()
    assert (await start(one)).how == "of"
    assert now() - began == pytest.approx(warm._IMPORT_SECONDS)
    assert world.reasons == ["the imports take more than 120 s"]
    assert world.done == [("zygote", 1), SPAWNS, ("of", 0, 7.0), ("order told",)]
    assert world.orders == [{**ORDER, "set": {}, "unset": []}]
    assert world.spawner_env["OMP_NUM_THREADS"] == "1"
    assert world.until == 50.0
    await begins
    assert world.done[4:] == [("zygote ended", 1)]
    assert not await one.arm(CONTRACT)
    await one.begin()
    assert (len(world.said), world.zygotes) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "why", "ended"),
    [
        (b'{"cannot": "port 29500 is in use"}', "port 29500 is in use", True),
        (b"", "what was forked has ended", True),
        (OSError(104, "reset"), "what was forked has ended", True),
    ],
)
def test_what_cannot_be_forked_for_a_table_is_ended_and_said(
    monkeypatch: pytest.MonkeyPatch, answer: Any, why: str, ended: bool
) -> None:
    async def work() -> None:
        world = World(monkeypatch)
        one = world.one()
        await one.begin()
        world.answer = answer
        assert not await one.arm(CONTRACT)
        assert (world.reasons, one.gave_up) == ([why], True)
        assert world.done[1:] == [("fork", 1, 7.0, 29_500), ("forked ended", 1)]
        assert (await start(one)).how == "of"

    virtually(work())


@warms
async def test_a_store_that_does_not_listen_holds_no_table_up(world: World) -> None:
    """The node is armed without it; the go waits for what is left of its time."""
    one = world.one()
    await one.begin()
    world.answer = None
    now = asyncio.get_running_loop().time
    began = now()
    assert await one.arm(CONTRACT)
    waited = now() - began
    assert (await start(one)).how == "of"
    assert 2.0 <= waited < warm._STORE_SECONDS
    assert world.reasons == ["MASTER_PORT's store: it does not listen within 20 s"]
    assert ("forked ended", 1) in world.done


@warms
async def test_what_was_forked_and_has_ended_is_told_nothing(world: World) -> None:
    one = world.one()
    await one.begin()
    assert await one.arm(CONTRACT)
    forked: Any = one._arming.result()  # type: ignore[union-attr]
    forked.kept.has_ended = True
    assert (await start(one)).how == "of"
    assert world.reasons == ["what was forked has ended"]
    assert world.done[2:4] == [("forked ended", 1), SPAWNS]


@warms
async def test_a_variable_that_an_import_may_have_read_is_no_other_now(world: World) -> None:
    one = world.one()
    await one.begin()
    assert await one.arm(CONTRACT)
    assert (await start(one, LD_PRELOAD="/x.so", CUDA_HOME="/c")).how == "of"
    assert world.reasons == [
        "CUDA_HOME, LD_PRELOAD changed after the imports, which may have read it"
    ]
    assert world.done[2:4] == [("forked ended", 1), SPAWNS]


@warms
async def test_a_secret_that_comes_late_counts_where_a_persons_own_modules_were_imported(
    world: World,
) -> None:
    for modules, reasons in (
        ("", []),
        ("numpy", ["HF_TOKEN changed after the imports, which may have read it"]),
    ):
        one = world.one()
        one._wish = replace(WISH, modules=modules)
        await one.begin()
        assert await one.arm(CONTRACT)
        await start(one, HF_TOKEN="x")
        assert world.reasons == reasons


@warms
async def test_who_can_start_torchrun_alone_forks_and_spawns_nothing(world: World) -> None:
    world.script = ("/opt/wrapper", [])
    one = world.one()
    why = "/opt/wrapper is not torchrun's own script"
    for _ in range(2):
        assert await one.why_torchrun() == why
    await one.begin()
    assert not await one.arm(CONTRACT)
    assert await start(one) is None
    assert (world.reasons, world.done) == ([why], [])
    world.script = ("", [])  # there is none
    assert await world.one().why_torchrun() == "torchrun is not torchrun's own script"


async def nothing_comes_of(one: WarmStart) -> None:
    """It is asked for twice, and nothing is forked or spawned."""
    for _ in range(2):
        await one.begin()
        assert not await one.arm(CONTRACT)
        assert await start(one) is None


@warms
async def test_a_launcher_that_cannot_be_read_is_the_reason_and_looked_at_once(
    world: World,
) -> None:
    for number, error in enumerate((PermissionError(13, "no right"), ValueError("no text"))):
        world.script = error
        await nothing_comes_of(world.one())
        assert world.reasons[number:] == [f"torchrun cannot be read: {error}"]
        assert world.looked == [("torchrun", {"PATH": "/bin", "OMP_NUM_THREADS": "1"})] * (
            number + 1
        )
    assert world.done == []


@warms
async def test_a_variable_that_torchrun_alone_can_follow_is_the_reason(world: World) -> None:
    await nothing_comes_of(world.one({**GIVEN, "PYTHON_EXEC": "/opt/python"}))
    assert world.reasons == ["PYTHON_EXEC is set, which only torchrun itself can follow"]
    assert (world.looked, world.done) == ([], [])


@warms
async def test_a_process_that_cannot_be_started_is_the_reason_and_tried_once(world: World) -> None:
    for number, error in enumerate((OSError(11, "no more"), ValueError("a zero"))):
        world.cannot = error
        one = world.one()
        await one.begin()
        await one.begin()
        assert world.reasons[number:] == [f"its process cannot be started: {error}"]
        assert world.zygotes == number + 1
        await one.end()
    assert world.done == [("zygote", 1), ("zygote", 2)]


@warms
async def test_a_contract_without_forks_is_torchruns(world: World) -> None:
    one = world.one()
    assert await start(one) is None
    await one.begin()
    assert not await one.arm(PROGRAM)
    assert await start(one) is None
    assert world.done == [("zygote", 1)]


@warms
async def test_a_process_that_cannot_import_is_said_and_started_no_more(world: World) -> None:
    world.unfit = "numpy has threads"
    one = world.one()
    await one.begin()
    await one.begin()
    assert world.reasons == ["numpy has threads"]
    assert world.zygotes == 1
    await one.end()
    assert world.done == [("zygote", 1), ("zygote ended", 1)]


@warms
async def test_what_ends_while_it_imports_leaves_nothing(world: World) -> None:
    one = world.one()
    begins = asyncio.create_task(one.begin())
    await asyncio.sleep(1.0)
    assert await one.arm(CONTRACT)
    await one.end()
    await one.end()
    assert world.done == [("zygote", 1), ("zygote ended", 1)]
    begins.cancel()
    await asyncio.gather(begins, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@warms
async def test_a_disk_on_which_it_is_started_and_that_hangs_is_not_waited_for(world: World) -> None:
    async def hangs(words: list[str], environ: dict[str, str]) -> Any:
        world.did("starts")
        try:
            await forever()
        finally:
            world.did("is let go")

    world.starts = hangs
    one = world.one()
    begins = asyncio.create_task(one.begin())
    await asyncio.sleep(1.0)
    await one.end()
    assert (world.done, world.reasons) == ([("starts",), ("is let go",)], [])
    begins.cancel()
    await asyncio.gather(begins, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
