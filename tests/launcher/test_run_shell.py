"""What a launch prepares, and what `rdzv launch` does around it: in a world in memory."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.launch.context_maker import ContextMaker
from launcher.launch.launch import Outcome
from launcher.options import with_sources
from launcher.prepare.context import LaunchContext
from launcher.prepare.preparation import Preparation, prepare
from launcher.symmetric.start import group_launch_id
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    RegistryString,
    group_token_text,
)
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import Result
from tests.launcher.drive import result
from tests.launcher.outer import settings_of
from tests.launcher.world import World, virtual

TOKEN = group_token_text(bytes(32))
OK, FAILED = result("ok", 0, status="ok"), result()
CANCELLED = result("cancelled", 84, status="cancelled")
V4, BOTH, FAR = ("127.0.0.1",), ("127.0.0.1", "::1"), ("10.0.0.1",)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")


def standing(*addresses: str, replicas: bool = False) -> RegistryString:
    place = RegistryPlace(addresses, 29_600, "certificate", b"proof", replicas=replicas)
    return RegistryString(place, registry_credential(bytes(32)))


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
        made = world.prepared(framework="env", ends_with=given)
        assert new(world, made).spec().ends_with == given


ONE_JOB = "its programs are one job, which ends when all have ended"
BY_NODE_0 = "a run of it ends with node 0's program anyway"


@pytest.mark.parametrize(
    ("framework", "why", "hint"),
    [
        ("torchrun", ONE_JOB, "add --framework"),
        ("jax", ONE_JOB, "add --framework"),
        ("openmpi", BY_NODE_0, "remove the option"),
    ],
)
def test_a_framework_whose_programs_end_together_is_refused(
    world: World, framework: str, why: str, hint: str
) -> None:
    given = settings_of(world.root, framework=framework, ends_with="node0")
    for source, words in ((None, "node0"), ("--ends-with (in run.toml)", "node0 (in run.toml)")):
        one = given if source is None else with_sources(given, {"ends_with": source})
        with pytest.raises(UsageError) as said:
            prepare(one, ["true"], {})
        begins = f"--ends-with {words} has no use with --framework"
        assert said.value.message == f"{begins} {framework}: {why}"
        assert said.value.hint.startswith(hint)
    made = prepare(with_sources(given, {"ends_with": "RDZV_ENDS_WITH"}), ["true"], {})
    assert f"RDZV_ENDS_WITH has no effect with --framework {framework}: {why}" in made.notes
    assert (made.settings.ends_with, made.given.ends_with) == ("all", "all")


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
    assert world.lines == []


def test_23_the_fingerprint_is_of_all_that_the_registry_does_not_compare(
    world: World, tmp_path: Path
) -> None:
    """The same command has the same one, whatever port it names now: its workers know theirs."""
    path = tmp_path / "worker.sh"
    specs = [f"rdzv worker <<RDZV_JOIN>> <<AVOID>> {words}" for words in ("one", "two")]

    def of(*command: str, token: str | None = None, text: str = specs[0], **more: Any) -> str:
        path.write_text(text)
        given = settings_of(world.root, worker_spec=path, **more)
        made = prepare(given, command or ["true"], {"A": "1", "B": "1"}, group_token=token)
        return made.fingerprint()

    assert of() == of(port=30_000)
    found = [
        of(),
        of("false"),
        of(text=specs[1]),
        *(of(set=[f"X={value}"], text=f"{specs[0]} <<X>>") for value in "12"),
        *(of(pass_env=[name]) for name in "AB"),
        *(of(nnodes="3", nproc_per_node=counts) for counts in ("4", "4,4,4", "4,2,4")),
        *(of(token=one) for one in (TOKEN, group_token_text(bytes(31) + b"1"))),
        of(avoid=["n7"]),
        of(nccl_log="on"),
    ]
    assert len(set(found)) == len(found)


LOCAL, HERE = {"scheduler": "local", "local_node": True}, {"local_node": True}
REPLACES = {"on_node_loss": "replace", "standby": 1}


@pytest.mark.parametrize(
    ("given", "token", "there", "starters", "near", "is_child"),
    [
        (LOCAL, None, None, ("local", "local"), V4, False),
        (LOCAL, TOKEN, None, ("local", None), BOTH, False),
        (HERE, None, None, ("local", "manual"), BOTH, False),
        ({}, None, None, ("manual", "manual"), FAR, False),
        (HERE, TOKEN, None, ("local", None), BOTH, False),  # 100: nobody else is submitted
        ({}, TOKEN, None, (None, None), FAR, False),
        # slot 0 can have another node, unless its node and its registry are both this launcher's
        (HERE | REPLACES, None, None, ("local", "manual"), BOTH, True),
        (HERE | REPLACES, None, standing("10.0.0.1"), ("local", "manual"), FAR, False),
        (REPLACES, None, None, ("manual", "manual"), FAR, False),
        (HERE | REPLACES, TOKEN, None, ("local", None), BOTH, True),
        (REPLACES, TOKEN, None, (None, None), FAR, False),
    ],
)
def test_03_04_69_100_where_slot_0_starts_and_who_meets_at_a_loopback_address(
    world: World,
    given: dict[str, Any],
    token: str | None,
    there: RegistryString | None,
    starters: tuple[str | None, ...],
    near: tuple[str, ...],
    *,
    is_child: bool,
) -> None:
    """Only what is on one machine, and alone there without TLS; a worker run of the scheduler can
    be submitted again, slot 0's as any other."""
    made = replace(world.prepared(token, **given), standing=there)
    local, alone = "local_node" in given, near == V4
    assert made.here.name == ("local" if local else "manual")
    assert (made.here is made.others) is (given is LOCAL or not local)
    assert tuple(one and one.name for one in map(made.scheduler_of, (0, 1))) == starters
    context = new(world, made)
    spec, outlives = context.spec(), "on_node_loss" in given
    assert made.plan.site.loopback is alone
    listens = f"listen 29600 of {'127.0.0.1' if alone else ''!r}, exactly: {token is not None}"
    assert (world.has(listens), context.owns_registry) == (there is None, there is None)
    assert context.place.trust == ("plain" if alone else "certificate")
    joins = [JoinString.parse(context.join(slot, 1)) for slot in (0, 1)]
    assert [join.place.addresses for join in joins] == [near, V4 if alone else FAR]
    assert [join.slot for join in joins] == [0, 1]
    told = spec.on_node_loss, spec.standby, spec.slots, spec.limits.fence_timeout_seconds
    assert told == (("replace", 1, 3, 120.0) if outlives else ("fail", 0, 2, None))
    assert spec.local_node is is_child
    if starters[0] == "manual":
        assert made.plan.submission(0, 2).name.endswith("-0-2")
        assert made.plan.submission(0, 2).source == made.plan.submission(1, 2).source


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
    world.own = [*own]
    asked: dict[str, Any] = {"master_addr": "127.0.0.1", "node_rank": 0, "nnodes": nodes}
    preparation = world.prepared(TOKEN, scheduler="local", **asked)
    context = new(world, preparation)
    assert preparation.plan.site.loopback
    assert world.has(f"listen 29600 of {listens!r}, exactly: True")
    assert (context.place.addresses, context.place.trust) == (registry, "certificate")


def test_a_launch_and_its_nodes_dial_the_replicas_of_a_standing_registry_in_one_order(
    world: World,
) -> None:
    there = standing("10.0.0.1", "[fd00::2]:8", "c:9", replicas=True)
    context = new(world, replace(world.prepared(local_node=True), standing=there))
    ordered = there.place.ordered_for("r")
    assert ordered.addresses == ("[fd00::2]:8", "10.0.0.1", "c:9")
    joins = [JoinString.parse(context.join(slot, 1)).place for slot in (0, 1)]
    record = world.state().record()
    assert record is not None
    assert [context.near, *joins, record.registry_place()] == [ordered] * 4
    assert context.plan.master_addr == "fd00::2"
    assert context.spec().registry == "[fd00::2]:8 or one of 2 other addresses"


@pytest.mark.parametrize(("nnodes", "slots"), [("1", [0]), ("2", [0, 1]), ("6", [0, 1, 5])])
@virtual
async def test_06_what_could_not_be_submitted_is_found_before_the_lock(
    world: World, nnodes: str, slots: list[int]
) -> None:
    world.unprepared[slots[-1]] = UsageError("the template has no <<RDZV_JOIN>>")
    with pytest.raises(UsageError, match="template"):
        await world.run(nnodes=nnodes)
    told = [f"0.00 manual: prepare rdzv-to-be-made-{slot}-1 True" for slot in slots]
    assert world.lines == told  # and the join string is hidden
    assert not world.root.exists()


@pytest.mark.parametrize(
    ("settings", "token", "scheduler", "is_said"),
    [
        ({"node_rank": 0}, None, "local", True),
        ({"node_rank": 0, "nnodes": "1"}, None, "local", False),
        ({"node_rank": 0}, None, "manual", False),
        ({"node_rank": 0, "master_addr": "127.0.0.1"}, TOKEN, "local", False),
        ({}, None, "local", False),
    ],
)
@virtual
async def test_07_who_has_a_rank_and_no_token_hears_that_all_nodes_run_here(
    world: World, settings: dict[str, Any], token: str | None, scheduler: str, *, is_said: bool
) -> None:
    (world.state().path / "lock").mkdir(parents=True)
    with pytest.raises(UsageError):
        await world.run(scheduler=scheduler, group_token=token, **settings)
    assert world.has("says RDZV_TOKEN is not set: both nodes run on this machine") is is_said
    assert world.has("says") is is_said


def test_28_a_new_launch_takes_the_next_port_and_a_symmetric_one_its_own_alone(
    world: World,
) -> None:
    secret = b"s" * 32
    own = new(world, world.prepared())
    symmetric = new(world, replace(world.prepared(), group_secret=secret))
    listened = [line for line in world.lines if "listen" in line]
    assert listened == [f"0.00 listen 29600 of '', exactly: {exact}" for exact in (False, True)]
    assert own.keys.launch_id != symmetric.keys.launch_id == group_launch_id(secret, "r")
    assert symmetric.keys.secret == secret
    assert (own.spec().managed, symmetric.spec().managed) == (True, False)
    assert (len(own.spec().token_sha256), len(symmetric.spec().token_sha256)) == (0, 2)  # rule 100


@virtual
async def test_29_without_an_address_of_its_own_a_launch_is_refused(world: World) -> None:
    world.own = []
    with pytest.raises(UsageError, match="has no address") as caught:
        await world.run()
    assert caught.value.hint == "name one with --registry-address"
    done = [line for line in world.lines if re.search(r"listen|port|board closed|\|", line)]
    assert [line.split()[1] for line in done] == ["listen", "port", "board"]  # and no other line


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


# --- around it


def test_its_record_names_the_launcher(world: World) -> None:
    new(world, world.prepared())
    record = world.state().record()
    assert record is not None
    assert (record.host, record.pid, record.run) == ("h1", os.getpid(), "r")


def goes(monkeypatch: pytest.MonkeyPatch, go: Callable[[], Coroutine[Any, Any, Outcome]]) -> None:
    """Whatever is launched goes this way."""
    monkeypatch.setattr("launcher.launch.launch.Launch", lambda *_: SimpleNamespace(go=go))


@virtual
async def test_14_its_folder_is_held_until_it_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> Outcome:
        assert (world.state().path / "lock").read_text().startswith(f"pid {os.getpid()} on ")
        assert world.state().is_held()
        return Outcome(OK, None)

    goes(monkeypatch, go)
    assert await world.run() == 0
    first, last = [line for line in world.lines if "| " in line]
    assert ("(held)" in first, "(held)" in last) == (True, False)


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
async def test_93_the_exit_code_is_the_results_or_that_of_a_signal_and_then_old_runs_may_go(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
    result: Result | None,
    code: int,
) -> None:
    async def go() -> Outcome:
        return Outcome(result, number)

    def prune(root: Path) -> None:
        world.tell(f"prune {root}")

    goes(monkeypatch, go)
    monkeypatch.setattr("launcher.run.command.prune_after_launch", prune)
    assert await world.run() == code
    done = [line.split()[1] for line in world.lines if "| " in line or "prune" in line]
    assert done == (["|", "|", "prune"] if result else ["|"])
    assert world.lines[-1].endswith(" prune ROOT") is (result is not None)
    assert not world.state().is_held()


@virtual
async def test_what_fails_before_a_launch_has_begun_leaves_its_folder_free(world: World) -> None:
    world.unforked = [UsageError("no more processes")] * 2
    for _ in range(2):
        with pytest.raises(UsageError, match="no more processes"):
            await world.run()
        assert not world.state().is_held()
    assert [line for line in world.lines if "00 fork" in line] == ["0.00 fork _registry 1"] * 2


@virtual
async def test_a_launch_ends_in_order_once_who_started_it_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = [7, 7, 7, 1, 1]
    monkeypatch.setattr("os.getppid", lambda: parents.pop(0))
    monkeypatch.setattr("os.kill", lambda pid, number: world.tell(f"kill {pid} {number}"))

    async def go() -> Outcome:
        await asyncio.sleep(2.0)
        return Outcome(OK, None)

    goes(monkeypatch, go)
    await world.run(parent=7)
    told = [line for line in world.lines if " kill " in line]
    assert told == [f"1.50 kill {os.getpid()} {signal.SIGTERM:d}"]
    parents[:] = [7] * 99
    await world.run(parent=7)  # which ends first
    await asyncio.sleep(2.0)
    assert len(asyncio.all_tasks()) == 1
    assert [line for line in world.lines if " kill " in line] == told
