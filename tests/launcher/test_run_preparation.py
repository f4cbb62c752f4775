"""What is prepared of a launch before anything of it exists."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.plan.plan import HIDDEN
from launcher.run.footing import Surveyor
from launcher.run.preparation import Preparation, prepare
from launcher.run.values import Fresh
from launcher.schedulers.contract import SchedulerContext
from launcher.settings import LaunchSettings
from rendezvous.talk.join_string import group_token_text
from rendezvous.wire.errors import UsageError
from tests.launcher.fleet import Fleet
from tests.launcher.world import Port, World, virtual

TOKEN = group_token_text(bytes(32))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")


def make(name: str, context: SchedulerContext) -> Fleet:
    return Fleet(name, loopback=name == "local")


def prepared(scheduler: str, token: str | None = None, *, local_node: bool = True) -> Preparation:
    settings = LaunchSettings(
        nnodes="2", scheduler=scheduler, local_node=local_node, rdzv_id="r", framework="command"
    )
    return prepare(settings, ["true"], {}, group_token=token, make=make)


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
    assert (world.signal, world.log, world.fleet.asked) == (None, [], 0)


@pytest.mark.parametrize(
    ("scheduler", "token", "alone"),
    [("local", None, True), ("local", TOKEN, False), ("manual", None, False)],
)
def test_03_only_the_nodes_of_one_machine_meet_at_a_loopback_address_without_tls(
    world: World, scheduler: str, token: str | None, alone: bool
) -> None:
    asked = []

    def listen(port: int, *, address: str, exact: bool) -> Port:
        asked.append(address)
        return Port(world, port)

    world.listen = listen  # type: ignore[method-assign]
    state = world.state()
    state.acquire()
    preparation = prepared(scheduler, token)
    footing = Surveyor(preparation, state, world).make(Fresh())
    state.release()
    assert preparation.plan.site.loopback is alone
    assert asked == ["127.0.0.1" if alone else ""]
    assert footing.place.trust == ("plain" if alone else "certificate")
    assert footing.place.addresses == (("127.0.0.1",) if alone else ("10.0.0.1",))


@pytest.mark.parametrize(
    ("scheduler", "local_node", "here"),
    [("local", True, "local"), ("manual", True, "local"), ("manual", False, "manual")],
)
def test_04_slot_0_is_started_here_unless_there_is_to_be_no_node_here(
    scheduler: str, local_node: bool, here: str
) -> None:
    preparation = prepared(scheduler, local_node=local_node)
    facts = preparation.facts()
    assert (preparation.here.name, preparation.others.name) == (here, scheduler)
    assert (preparation.here is preparation.others) is (here == scheduler)
    assert facts.here is not None
    assert facts.others is not None
    assert (facts.here.name, facts.others.name) == (here, scheduler)


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
    ("settings", "loopback", "said"),
    [
        ({"node_rank": 0}, True, ["there is no RDZV_TOKEN: all 2 nodes run on this machine"]),
        ({"node_rank": 0, "nnodes": "1"}, True, []),
        ({"node_rank": 0}, False, []),
        ({}, True, []),
    ],
)
@virtual
async def test_07_who_has_a_rank_and_no_token_hears_that_all_nodes_run_here(
    world: World, settings: dict[str, object], loopback: bool, said: list[str]
) -> None:
    world.fleet = replace(world.fleet, loopback=loopback)

    task = asyncio.create_task(world.run(**settings))
    await world.until(lambda: world.registry.spec)
    world.registry.end()
    assert await task == 0
    assert world.said == said


@pytest.mark.parametrize(("local_node", "here"), [(True, "local"), (False, None)])
def test_100_with_a_group_token_nobody_else_is_submitted(
    local_node: bool, here: str | None
) -> None:
    facts = prepared("manual", TOKEN, local_node=local_node).facts()
    assert (facts.here.name if facts.here else None, facts.others) == (here, None)
