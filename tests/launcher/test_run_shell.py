"""What a launch prepares, and what its shell does for each action: in a world in memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.launch.context_maker import ContextMaker
from launcher.launch.following import Following
from launcher.launch.launch import Outcome
from launcher.launch.recovery import Recovery
from launcher.launch.worker_runs import WorkerRuns
from launcher.options import with_sources
from launcher.plan.plan import HIDDEN
from launcher.prepare.context import LaunchContext
from launcher.prepare.preparation import Preparation, prepare
from launcher.run.command import launch
from launcher.schedulers.contract import NothingSubmitted, SchedulerContext
from launcher.settings import LaunchSettings
from launcher.state.state_dir import StateDir
from launcher.symmetric.start import group_launch_id
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    RegistryString,
    group_token_text,
)
from rendezvous.wire.errors import RdzvError, SchedulerError, Unavailable, UsageError
from rendezvous.wire.run import Phase, Result, SlotState
from tests.launcher.world import OK, Fleet, Registry, World, virtual
from worker.machine.shortage import cpu_time_met

STARTING = Unavailable("it is being started")
TOKEN = group_token_text(bytes(32))
CANCELLED = OK.model_copy(update={"status": "cancelled", "exit_code": 84})
FAILED = OK.model_copy(update={"status": "failed", "exit_code": 3})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")


def left(world: World) -> list[tuple[int, int, str]]:
    return [(e.run.slot, e.run.generation, e.handle) for e in world.state().ledger.left()]


def prepared(
    scheduler: str, token: str | None = None, *, local_node: bool = True, **more: Any
) -> Preparation:
    known: dict[str, Any] = {"nnodes": "2", "rdzv_id": "r", "framework": "command"}
    settings = LaunchSettings(scheduler=scheduler, local_node=local_node, **(known | more))
    return from_settings(settings, token)


def from_settings(settings: LaunchSettings, token: str | None = None) -> Preparation:
    def make(name: str, context: SchedulerContext) -> Fleet:
        return Fleet(name, loopback=name == "local")

    return prepare(settings, ["true"], {}, group_token=token, make=make)


def new(world: World, preparation: Preparation) -> LaunchContext:
    """A new launch."""
    state = world.state()
    state.acquire()
    try:
        return ContextMaker(preparation, state, world).new([])
    finally:
        state.release()


# --- prepared


def test_the_registry_knows_with_whose_program_the_run_ends(world: World) -> None:
    for given in ("all", "node0"):
        made = prepared("manual", framework="env", ends_with=given)
        assert new(world, made).spec().ends_with == given


@pytest.mark.parametrize(
    ("framework", "why", "hint"),
    [
        ("torchrun", "its programs are one job, which ends when all have ended", "add --framework"),
        ("jax", "its programs are one job, which ends when all have ended", "add --framework"),
        ("openmpi", "a run of it ends with node 0's program anyway", "remove the option"),
    ],
)
def test_a_framework_whose_programs_end_together_is_refused(
    framework: str, why: str, hint: str
) -> None:
    with pytest.raises(UsageError) as said:
        prepared("manual", framework=framework, ends_with="node0")
    words = f"--ends-with node0 has no use with --framework {framework}: {why}"
    assert said.value.message == words
    assert said.value.hint.startswith(hint)
    given = LaunchSettings(nnodes="2", framework=framework, ends_with="node0", scheduler="manual")
    with pytest.raises(UsageError) as said:
        from_settings(with_sources(given, {"ends_with": "--ends-with (in run.toml)"}))
    assert said.value.message == words.replace("node0", "node0 (in run.toml)", 1)
    made = from_settings(with_sources(given, {"ends_with": "RDZV_ENDS_WITH"}))
    note = f"RDZV_ENDS_WITH has no effect with --framework {framework}: {why}"
    assert note in made.notes
    assert (made.settings.ends_with, made.given.ends_with) == ("all", "all")


@pytest.mark.parametrize(
    ("token", "local_node", "on_node_loss", "starter", "is_child"),
    [
        (None, True, "fail", "local", False),
        (None, True, "replace", "local", True),
        (None, False, "replace", "manual", False),
        (TOKEN, True, "replace", "local", True),
        (TOKEN, False, "replace", None, False),
    ],
)
def test_the_registry_knows_whether_slot_0_can_have_another_node(
    world: World,
    token: str | None,
    on_node_loss: str,
    starter: str | None,
    *,
    local_node: bool,
    is_child: bool,
) -> None:
    """A worker run of the scheduler can be submitted again, slot 0's as any other."""
    more = {"on_node_loss": on_node_loss, "standby": 0 if on_node_loss == "fail" else 1}
    made = prepared("manual", token, local_node=local_node, **more)
    found, spec = made.scheduler_of(0), new(world, made).spec()
    assert (found.name if found else None, spec.local_node) == (starter, is_child)
    told = spec.on_node_loss, spec.standby, spec.slots, spec.limits.fence_timeout_seconds
    outlives = on_node_loss == "replace"
    assert told == (on_node_loss, int(outlives), 2 + outlives, 120.0 if outlives else None)
    if starter == "manual":
        assert made.plan.submission(0, 2).name.endswith("-0-2")
        assert made.plan.submission(0, 2).source == made.plan.submission(1, 2).source


def test_01_a_run_without_a_name_gets_one_that_nobody_else_has(world: World) -> None:
    names = [world.prepared(rdzv_id=name).plan.run for name in (None, None, "llama")]
    assert re.fullmatch("run-[0-9a-f]{8}", names[0])
    assert len(set(names)) == 3
    assert names[2] == "llama"


@pytest.mark.parametrize(
    "wrong",
    [
        {"nnodes": None},
        {"rdzv_id": "../other"},
        {"hostlist": ["h[1-"]},
        {"pass_env": ["NOT_SET_ANYWHERE"]},
        {"set": ["small=1"]},
        {"framework": "accelerate", "nproc_per_node": "2,1"},
    ],
    ids=str,
)
@virtual
async def test_02_06_what_is_wrong_is_refused_before_anything_exists(
    world: World, wrong: dict[str, object]
) -> None:
    with pytest.raises(UsageError):
        await world.run(**wrong)
    assert not world.root.exists()
    assert (world.signal, world.log) == (None, [])


def test_23_the_fingerprint_is_of_all_that_the_registry_does_not_compare(tmp_path: Path) -> None:
    """The same command has the same one, whatever port it names now: its workers know theirs."""
    spec = tmp_path / "worker.sh"
    specs = [f"rdzv worker <<RDZV_JOIN>> <<AVOID>> {words}" for words in ("one", "two")]

    def of(*command: str, token: str | None = None, text: str = specs[0], **more: Any) -> str:
        spec.write_text(text)
        known: dict[str, Any] = {"nnodes": "2", "rdzv_id": "r", "framework": "command"}
        settings = LaunchSettings(scheduler="manual", worker_spec=spec, **(known | more))
        made = prepare(settings, command or ["true"], {"A": "1", "B": "1"}, group_token=token)
        return made.fingerprint()

    assert of() == of(port=30_000)
    other = group_token_text(bytes(31) + b"1")
    found = [
        of(),
        of("false"),
        of(text=specs[1]),
        of(set=["X=1"], text=f"{specs[0]} <<X>>"),
        of(set=["X=2"], text=f"{specs[0]} <<X>>"),
        of(pass_env=["A"]),
        of(pass_env=["B"]),
        *(of(nnodes="3", nproc_per_node=counts) for counts in ("4", "4,4,4", "4,2,4")),
        of(token=TOKEN),
        of(token=other),
        of(avoid=["n7"]),
        of(nccl_log="on"),
    ]
    assert len(set(found)) == len(found)


V4, BOTH, FAR = ("127.0.0.1",), ("127.0.0.1", "::1"), ("10.0.0.1",)


@pytest.mark.parametrize(
    ("scheduler", "token", "local_node", "alone", "near"),
    [
        ("local", None, True, True, V4),
        ("local", TOKEN, True, False, BOTH),
        ("manual", None, True, False, BOTH),
        ("manual", None, False, False, FAR),
    ],
)
def test_03_69_only_what_is_on_one_machine_meets_at_a_loopback_address_and_alone_without_tls(
    world: World, scheduler: str, token: str | None, local_node: bool, alone: bool, near: object
) -> None:
    preparation = prepared(scheduler, token, local_node=local_node)
    context = new(world, preparation)
    assert preparation.plan.site.loopback is alone
    assert world.listened == [(29_600, "127.0.0.1" if alone else "", token is not None)]
    assert context.place.trust == ("plain" if alone else "certificate")
    joins = [JoinString.parse(context.join(slot, 1)) for slot in (0, 1)]
    assert [join.place.addresses for join in joins] == [near, V4 if alone else FAR]
    assert [join.slot for join in joins] == [0, 1]


@pytest.mark.parametrize(
    ("nodes", "own", "listens", "registry"),
    [
        ("1", FAR, "127.0.0.1", V4),
        ("2", FAR, "", FAR),  # others may come from elsewhere
        ("1:2", FAR, "", FAR),
        ("2", (), "", V4),  # this machine has no network
    ],
)
def test_the_host_of_a_torchrun_on_loopback_listens_for_all_nodes(
    world: World, nodes: str, own: tuple[str, ...], listens: str, registry: tuple[str, ...]
) -> None:
    asked: dict[str, Any] = {"master_addr": "127.0.0.1", "node_rank": 0, "nnodes": nodes}
    preparation = prepared("local", TOKEN, local_node=False, **asked)
    world.addresses = lambda: list(own)  # type: ignore[method-assign]
    context = new(world, preparation)
    assert preparation.plan.site.loopback
    assert world.listened == [(29_600, listens, True)]
    assert (context.place.addresses, context.place.trust) == (registry, "certificate")


def test_a_launch_and_its_nodes_dial_the_replicas_of_a_standing_registry_in_one_order(
    world: World,
) -> None:
    there = ("10.0.0.1", "[fd00::2]:8", "c:9")
    place = RegistryPlace(there, 29_600, "certificate", b"proof", replicas=True)
    standing = RegistryString(place, registry_credential(bytes(32)))
    context = new(world, replace(prepared("manual"), standing=standing))
    ordered = place.ordered_for("r")
    assert ordered.addresses == ("[fd00::2]:8", "10.0.0.1", "c:9")
    joins = [JoinString.parse(context.join(slot, 1)).place for slot in (0, 1)]
    record = world.state().record()
    assert record is not None
    assert [context.near, *joins, record.registry_place()] == [ordered] * 4
    assert context.plan.master_addr == "fd00::2"
    assert context.spec().registry == "[fd00::2]:8 or one of 2 other addresses"


@pytest.mark.parametrize(
    ("own", "local_node", "loss", "is_child"),
    [
        (True, True, "replace", True),
        (False, True, "replace", False),  # it outlives this launcher
        (True, False, "replace", False),
        (True, True, "fail", False),
    ],
)
def test_slot_0_ends_with_its_registry_where_both_are_this_launchers(
    world: World, loss: str, *, own: bool, local_node: bool, is_child: bool
) -> None:
    place = RegistryPlace(("10.0.7.1",), 29_811, "certificate", b"proof")
    standing = None if own else RegistryString(place, registry_credential(bytes(32)))
    made = replace(prepared("manual", local_node=local_node, on_node_loss=loss), standing=standing)
    context = new(world, made)
    assert context.spec().local_node is is_child
    assert context.owns_registry is own
    join = JoinString.parse(context.join(0, 1))
    assert (join.place.addresses == BOTH) is (own and local_node)


@pytest.mark.parametrize(
    ("scheduler", "token", "local_node", "here", "others"),
    [
        ("local", None, True, "local", "local"),
        ("manual", None, True, "local", "manual"),
        ("manual", None, False, "manual", "manual"),
        ("manual", TOKEN, True, "local", None),  # 100: nobody else is submitted
        ("manual", TOKEN, False, None, None),
    ],
)
def test_04_100_slot_0_is_started_here_unless_there_is_to_be_no_node_here(
    scheduler: str, token: str | None, local_node: bool, here: str | None, others: str | None
) -> None:
    preparation = prepared(scheduler, token, local_node=local_node)
    assert preparation.here.name == ("local" if local_node else scheduler)
    assert (preparation.here is preparation.others) is (preparation.here.name == scheduler)
    found = [one and one.name for one in map(preparation.scheduler_of, (0, 1))]
    assert found == [here, others]


@pytest.mark.parametrize(("nnodes", "slots"), [("1", [0]), ("2", [0, 1]), ("6", [0, 1, 5])])
@virtual
async def test_06_what_could_not_be_submitted_is_found_before_the_lock(
    world: World, nnodes: str, slots: list[int]
) -> None:
    tried = []

    def refuse_last(run: object, join: str) -> str:
        tried.append((run.slot, join))  # type: ignore[attr-defined]
        if len(tried) == len(slots):
            raise UsageError("the template has no <<RDZV_JOIN>>")
        return ""

    world.fleet.prepare = refuse_last  # type: ignore[method-assign]
    with pytest.raises(UsageError):
        await world.run(nnodes=nnodes)
    assert tried == [(slot, HIDDEN) for slot in slots]
    assert not world.root.exists()


@pytest.mark.parametrize(
    ("settings", "token", "loopback", "said"),
    [
        ({"node_rank": 0}, None, True, ["RDZV_TOKEN is not set: both nodes run on this machine"]),
        ({"node_rank": 0, "nnodes": "1"}, None, True, []),
        ({"node_rank": 0}, None, False, []),
        ({"node_rank": 0, "master_addr": "127.0.0.1"}, TOKEN, True, []),
        ({}, None, True, []),
    ],
)
@virtual
async def test_07_who_has_a_rank_and_no_token_hears_that_all_nodes_run_here(
    world: World,
    settings: dict[str, Any],
    token: str | None,
    loopback: bool,
    said: list[str],
) -> None:
    world.fleet = replace(world.fleet, loopback=loopback)
    world.state().path.mkdir(parents=True)
    (world.state().path / "lock").mkdir()
    with pytest.raises(UsageError):
        await launch(world._settings(settings), ["true"], {}, group_token=token, world=world)
    assert world.said == said


def test_28_a_new_launch_takes_the_next_port_and_a_symmetric_one_its_own_alone(
    world: World,
) -> None:
    secret = b"s" * 32
    own = new(world, world.prepared())
    symmetric = new(world, replace(world.prepared(), group_secret=secret))
    assert world.listened == [(29_600, "", False), (29_600, "", True)]
    assert own.keys.launch_id != symmetric.keys.launch_id == group_launch_id(secret, "r")
    assert symmetric.keys.secret == secret
    assert (own.spec().managed, symmetric.spec().managed) == (True, False)
    assert (len(own.spec().token_sha256), len(symmetric.spec().token_sha256)) == (0, 2)  # rule 100


@virtual
async def test_29_without_an_address_of_its_own_a_launch_is_refused(world: World) -> None:
    world.addresses = list  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="has no address") as caught:
        await world.run()
    assert caught.value.hint == "name one with --registry-address"
    assert world.log == ["port 29600 opened", "port 29600 closed", "board closed"]
    assert world.echoed == []  # a refusal is its error, and no other line


# --- the shell


def test_a_dry_run_shows_what_is_submitted_before_what_becomes_of_it(world: World) -> None:
    lines = [*world.prepared(on_node_loss="replace", dry_run="full").preview()]
    first, losses = lines[0], next(n for n, line in enumerate(lines) if "replace" in line)
    assert first.startswith("# slot 0")
    slots = [n for n, line in enumerate(lines) if line.startswith("# slot ")]
    assert max(slots) < losses


def test_each_run_has_its_own_folder_for_what_is_submitted_and_said(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "state" / "r"
    context = world.prepared().context
    assert (context.folder, context.logs) == (folder / "submissions", folder / "logs")
    elsewhere = world.prepared(log_dir=tmp_path / "logs").context
    assert (elsewhere.folder, elsewhere.logs) == (folder / "submissions", tmp_path / "logs")


@virtual
async def test_14_a_launch_from_its_port_to_its_result_and_its_last_line(world: World) -> None:
    async with world.going() as task:
        assert (world.state().path / "lock").read_text().startswith(f"pid {os.getpid()} on ")
        assert left(world) == [(0, 1, "100"), (1, 1, "101")]
        for number in (1, 2):  # each event is shown once
            world.event_happens(number)
            await asyncio.sleep(1)
        world.registry.change(phase=Phase.RUNNING, digest="d1")
        await world.until(lambda: (world.state().path / "report.json").exists())
        assert len(world.echoed) == 1
    opened = ["port 29600 opened", "registry started"]
    assert world.log == [*opened, "registry ended", "port 29600 closed", "board closed"]
    assert (left(world), world.state().read("result.json", Result), world.said) == ([], OK, [])
    assert (task.result(), world.events) == (0, [1, 2])
    assert world.dialled == {("127.0.0.1", "::1")}  # its own registry is near
    (first, held), last = world.echoed
    assert first.startswith("rdzv: launching run 'r' on 2 nodes with --scheduler ")
    assert held
    others = "rdzv: the output of the other nodes: rdzv logs r\n"
    end = f"{others}rdzv: run 'r' ok: {OK.message} after 0 s"
    assert last == (end, False)  # the folder is free
    names = ("status", "table", "report")
    kept = [world.state().path / f"{name}.json" for name in names]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


@virtual
async def test_14_the_folder_is_held_until_the_result_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, write = list[bool](), StateDir.write_result

    def write_result(state: StateDir, result: Result) -> None:
        write(state, result)
        held.append(world.state().is_held())

    monkeypatch.setattr(StateDir, "write_result", write_result)
    async with world.going():
        pass
    assert held == [True]


@virtual
async def test_the_registry_hears_of_a_worker_run_from_its_name_and_token_to_its_last_line(
    world: World,
) -> None:
    world.fleet.trouble = "the fleet answered 500"
    world.fleet.lines = ["pulling", "no such \x1b[31mimage", "  "]
    async with world.going(told=8):
        for made in world.fleet.made.values():
            made.state, made.detail = SlotState.FAILED, "ImagePullBackOff"
        await world.until(lambda: len(world.registry.told) == 10)
    (intent, troubled, submitted, running, failed) = (n for s, n in world.registry.told if s == 1)
    record, keys = world.state().record(), world.state().keys()
    assert record is not None
    assert (record.host, record.pid) == ("h1", os.getpid())
    assert time.time() - 60.0 < record.started_at <= time.time()
    assert keys is not None
    assert intent.name == f"rdzv-{record.launch_id}-1-1" == list(world.fleet.made)[1]
    assert intent.token_sha256 == keys.join_token(1, 1).sha256()
    assert troubled.detail == "the fleet answered 500"
    assert (submitted.token_sha256, submitted.name, submitted.handle) == (None, "", "101")
    assert running.state is SlotState.RUNNING
    assert failed.detail == "ImagePullBackOff; its last line: 'no such ?[31mimage'"
    assert failed.cause == ""


@pytest.mark.parametrize(
    "error", [NothingSubmitted("no such queue", hint="name one"), SchedulerError("error 500")]
)
@virtual
async def test_a_worker_run_that_cannot_be_submitted_is_told_with_what_was_said(
    world: World, monkeypatch: pytest.MonkeyPatch, error: SchedulerError
) -> None:
    async def refuse(*_: Any, **__: Any) -> str:
        raise error

    async def broken(*_: Any) -> None:
        raise SchedulerError("it cannot be made ready")

    monkeypatch.setattr(world.fleet, "submit", refuse)
    monkeypatch.setattr(world.fleet, "make_ready", broken)
    world.fleet.loopback = True
    async with world.going(told=4):
        await asyncio.sleep(5)
    told = [news for _, news in world.registry.told if news.state is SlotState.FAILED]
    assert {news.detail.partition(";")[0] for news in told} == {error.message}


@virtual
async def test_a_ledger_that_cannot_be_written_is_named(world: World) -> None:
    world.registry.down = STARTING
    async with world.going(told=0):
        await world.until(lambda: "create" in world.registry.asked)
        path = world.state().ledger.path
        path.mkdir()
        world.registry.down = None
        await world.until(lambda: world.said)
        await asyncio.sleep(5)
        assert list(world.fleet.made) == []
        path.rmdir()
        await world.until(lambda: len(world.fleet.made) == 2)
    (words,) = world.said
    assert words.startswith(f"{path} cannot be written, so rdzv submits nothing: ")


@virtual
async def test_a_signal_cancels_the_run_and_a_second_one_ends_everything(world: World) -> None:
    async with world.going() as task:
        world.registry.down = Unavailable("nobody answers")
        assert world.signal is not None
        world.signal(signal.SIGTERM)
        await asyncio.sleep(1)
        world.signal(signal.SIGINT)
        assert await task == 128 + signal.SIGTERM
    assert "cancel: SIGTERM at the launcher" in world.registry.asked
    assert [words.partition(":")[0] for words in world.said] == ["SIGTERM", "Ctrl-C again"]
    assert set(world.fleet.told) == {0.0}
    result = world.state().result()
    assert result is not None
    assert (result.status, result.code, result.exit_code) == ("cancelled", "cancelled", 143)
    assert result.message == "run 'r' was ended immediately by a second signal"


@virtual
async def test_a_registry_that_ends_again_and_again_is_named_with_its_last_words(
    world: World,
) -> None:
    world.registry.down = STARTING
    world.dies = world.fleet.loopback = True
    await world.run()
    assert world.log.count("registry started") == 5
    assert world.fleet.ready == [0, 1]  # beside the first one alone
    result = world.state().result()
    assert result is not None
    message = "the registry ended 5 times within 30 s; its last output: no room"
    assert (result.code, result.message) == ("registry_lost", message)
    assert result.hint == f"see {world.state().logs / 'registry.log'}"


@pytest.mark.parametrize(
    ("number", "result", "code"),
    [
        (None, OK, 0),
        (None, FAILED, 3),
        (None, CANCELLED, 84),  # by `rdzv cancel`
        (15, FAILED, 3),
        (15, OK, 0),
        (2, None, 130),  # it had not begun
    ],
)
@virtual
async def test_93_the_exit_code_is_the_results_or_that_of_the_signal_which_cancelled_the_run(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
    result: Result | None,
    code: int,
) -> None:
    async def go() -> Outcome:
        return Outcome(result, number)

    ended = SimpleNamespace(result=result, go=go)
    monkeypatch.setattr("launcher.launch.launch.Launch", lambda *_: ended)
    assert await world.run() == code
    assert len(world.echoed) == 1 + (result is not None)


@pytest.mark.parametrize(
    ("result", "done"), [(OK, [(True, True)]), (FAILED, [(True, True)]), (None, [])]
)
@virtual
async def test_after_the_last_line_of_a_launch_old_runs_may_go(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    result: Result | None,
    done: list[tuple[bool, bool]],
) -> None:
    calls: list[tuple[bool, bool]] = []

    async def go() -> Outcome:
        return Outcome(result, 15)

    def prune(root: Path) -> None:
        calls.append((root == world.root, len(world.echoed) == 2))

    ended = SimpleNamespace(result=result, go=go)
    monkeypatch.setattr("launcher.launch.launch.Launch", lambda *_: ended)
    monkeypatch.setattr("launcher.run.command.prune_after_launch", prune)
    assert await world.run() == (143 if result is None else result.exit_code)
    assert calls == done
    assert not world.state().is_held()


@virtual
async def test_what_fails_before_a_launch_has_begun_leaves_its_folder_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked: list[tuple[str, int]] = []

    def fork(word: str, count: int) -> None:
        forked.append((word, count))
        raise UsageError("no more processes")

    monkeypatch.setattr(world, "fork", fork)
    for _ in range(2):
        with pytest.raises(UsageError, match="no more processes"):
            await world.run()
        assert not world.state().is_held()
    assert forked == [("_registry", 1)] * 2


@virtual
async def test_a_launch_ends_in_order_once_who_started_it_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = asyncio.get_running_loop().time
    parents, told = [7, 7, 7, 1], list[Any]()
    monkeypatch.setattr("os.getppid", lambda: parents.pop(0) if len(parents) > 1 else parents[0])
    monkeypatch.setattr("os.kill", lambda pid, number: told.append((pid, number, clock())))
    async with world.going(parent=7):
        await asyncio.sleep(5)
    assert told == [(os.getpid(), signal.SIGTERM, pytest.approx(1.5))]
    parents[:], world.registry = [7], Registry()
    async with world.going(parent=7):
        pass
    assert [one for one in asyncio.all_tasks() if one is not asyncio.current_task()] == []


@pytest.mark.parametrize(
    ("part", "does"), [(Recovery, "find"), (Following, "until_result"), (WorkerRuns, "update")]
)
@virtual
async def test_95_a_part_that_fails_ends_the_launch_and_its_error_is_raised(
    world: World, monkeypatch: pytest.MonkeyPatch, part: type[Any], does: str
) -> None:
    """What was begun is ended all the same."""

    def fails(*_: object) -> Any:
        raise ValueError(f"{does} fails")

    monkeypatch.setattr(part, does, fails)
    with pytest.raises(ValueError, match=f"{does} fails"):
        async with world.going(told=0):
            await asyncio.sleep(5)
    whole = ["port 29600 opened", "registry started", "registry ended", "port 29600 closed"]
    assert world.log == [*(whole if does != "find" else []), "board closed"]
    assert not world.state().is_held()
    assert world.state().result() is None
    assert {made.state for made in world.fleet.made.values()} <= {SlotState.ENDED}
    assert [one for one in asyncio.all_tasks() if one is not asyncio.current_task()] == []


@virtual
async def test_what_its_processor_time_comes_to_is_said_and_ends_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    @contextlib.contextmanager
    def watched(met: Any, used_up: Any) -> Iterator[None]:
        told.extend((met, used_up))
        yield
        told.append("watched no more")

    monkeypatch.setattr("launcher.launch.launch.cpu_time_watched", watched)
    task = asyncio.create_task(world.run())
    await world.until(lambda: len(world.registry.told) == 6)
    told[0](7, 9)
    told[1](9)
    told[1](11)  # the first one is raised
    with pytest.raises(RdzvError, match="9 s"):
        await task
    assert told[2:] == ["watched no more"]
    assert world.said[0] == cpu_time_met(7, 9)
    (asked,) = [words for words in world.registry.asked if words.startswith("cancel: ")]
    assert asked.startswith("cancel: its launcher failed: ")


# --- the launcher after a killed one


async def killed(world: World) -> None:
    """A launcher that was killed when it had submitted both slots."""
    task = asyncio.create_task(world.run())
    await world.until(lambda: len(world.registry.told) == 6)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    world.log.clear()
    world.registry.asked.clear()


@virtual
async def test_d2_the_next_launcher_takes_up_the_launch_with_the_registry_it_has_asked(
    world: World,
) -> None:
    world.event_happens(1)
    world.fleet.loopback = True
    await killed(world)
    world.fleet.ready.clear()
    log = world.state().logs / "agent-1.log"
    log.write_text("of the killed launcher")
    world.events.clear()
    async with world.going():
        await world.until(lambda: world.said)
        await asyncio.sleep(5)
    (words,) = world.said
    assert words.startswith("resuming launch ")
    assert world.log.count("registry started") == 1
    assert world.log.count("port 29600 opened") == 1
    assert world.fleet.ready == []  # they run
    assert world.registry.asked.count("create") == 1
    assert len(world.fleet.made) == 2
    assert world.events == []  # D9: they were shown before
    assert log.read_text() == "of the killed launcher"
    assert left(world) == []


@virtual
async def test_a_resumed_launch_asks_one_scheduler_about_all_its_worker_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It remembers what it has submitted and seen: another one would work against it."""
    await killed(world)
    world.fleet.made[max(world.fleet.made)].state = SlotState.ENDED
    asked, fleets = set[int](), list[Fleet]()

    def counted(call: Any) -> Any:
        def count(self: Fleet, *args: Any, **more: Any) -> Any:
            asked.add(id(self))
            return call(self, *args, **more)

        return count

    def scheduler(starter: str, context: SchedulerContext) -> Fleet:
        fleets.append(replace(world.fleet))
        return fleets[-1]

    for name in ("submit", "find", "describe", "cancel"):
        monkeypatch.setattr(Fleet, name, counted(getattr(Fleet, name)))
    monkeypatch.setattr(world, "scheduler", scheduler)
    async with world.going(told=8):
        await asyncio.sleep(5)
    assert len(world.fleet.made) == 3
    assert len(fleets) > 1
    assert len(asked) == 1


@virtual
async def test_d3_d4_d5_with_other_options_a_new_launch_begins_when_the_ground_is_decided(
    world: World,
) -> None:
    world.fleet.stays = True
    await killed(world)
    world.fleet.poll_seconds = 1.0
    before, former = (world.state().record(), left(world)), sorted(world.fleet.made)
    world.registry.down = STARTING
    async with world.going(told=0, nccl_log="on"):
        await world.until(lambda: "status" in world.registry.asked)
        assert (world.state().record(), left(world)) == before
        world.registry.down = None
        await world.until(lambda: len(world.registry.told) == 6 and len(world.fleet.made) == 4)
        assert sorted(e.name for e in world.state().ledger.left() if e.former) == former
        world.fleet.stays = False
    assert sorted(e.name for e in world.state().ledger.left()) == former
    assert "cancel: its COMMAND or options were different" in world.registry.asked
    why, ends, *stay = world.said
    assert "its COMMAND or options were different" in why
    assert ends == "2 worker runs of the previous launch may still exist: ending them"
    assert ["may still exist" in words for words in stay] == [True, True]
