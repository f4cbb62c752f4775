"""What launches do to their outer world, call by call, is as in `shell_courses.txt`.

No two numbers of these launches are the same one, and what happens happens twice. A line that
begins with a number is a call at that second, one with a star what the launch's machine hears, one
with a dash a file of the run's folder that has changed. Who changes one writes the file anew
(`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launcher.cleanup.orphans import end_left
from launcher.schedulers.contract import NothingSubmitted, SchedulerContext
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import RegistryPlace, RegistryString, group_token_text
from rendezvous.wire.errors import SchedulerError, StorageFull, Unavailable
from rendezvous.wire.node import Job
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import SlotState
from tests.launcher.world import World, virtual
from tests.support.courses import lines_in, text_of

KNOWN = Path(__file__).with_name("shell_courses.txt")
RANKS = {0: 0, 1: 2, 2: 1}
SKEWED: dict[str, Any] = {"nnodes": "3", "nproc_per_node": "4,1,2", "local_node": True}
SKEWED |= {"port": 29_711, "master_port": 29_533, "grace": 7.0}
SKEWED |= {"submit_retries": 3, "max_restarts": 2}


def joins(world: World, *slots: int) -> None:
    """The newest worker run of each slot has a node that joins, and wants another rank."""
    for slot in slots:
        drive, job = world.drive, Job(framework="command")
        own = {"nproc_per_node": (4, 1, 2)[slot], "hostname": f"gpu-{7 - 2 * slot}"}
        generation = max(1, drive.slot(slot).generation)
        drive.join(slot, generation, requested_node=RANKS[slot], job=job, **own)


def leaves(world: World, *slots: int) -> None:
    """They have learnt how the run ended, and their worker runs end by themselves."""
    for slot in slots:
        if world.drive.slot(slot).node is not None:
            world.drive.report(slot, LeaveReport())
        for fleet in world.fleets.values():
            fleet.end(slot)


def runs(world: World, *slots: int) -> bool:
    """Whether the registry has heard that they run."""
    return all(world.drive.slot(slot).state is SlotState.RUNNING for slot in slots)


async def it_starts_twice_and_fails(world: World) -> None:
    """Slot 0 is here, and slot 2 is submitted three times; the registry ends once, and so does the
    first epoch."""
    slurm = world.fleets["manual"]
    slurm.fails["submit 1.1"] = ["the API answered 503", "", "the API answered 502"]
    slurm.fails["submit 2.1"] = [NothingSubmitted("no such partition", hint="see sinfo")]
    slurm.fails["submit 2.2"] = [SchedulerError("it timed out")]
    slurm.fails["describe 1.1"] = [SchedulerError("slurmctld is down")]
    world.fleets["local"].fails["make ready 0.1"] = [SchedulerError("not now")]  # and nobody minds
    world.refuses["tell"] = [Unavailable("busy"), Unavailable("busy again")]
    world.refuses["create"] = [Unavailable("it is being started")]
    async with world.launched(scheduler="manual", **SKEWED):
        await world.until(lambda: world.run_of)
        world.look()
        await world.until(lambda: runs(world, 0, 1, 2))
        world.look()
        joins(world, 2, 0, 1)
        world.drive.verify().arm()
        await world.until(lambda: world.has("feature of r ticks"))
        world.processes[0].over.set_result(-9)
        world.refuses["events"] = [Unavailable("cut")]
        await asyncio.sleep(3)
        world.look()
        world.drive.exit(1, 3, message="ECC error", rank=6)
        world.drive.stop(2, 0)
        await asyncio.sleep(8)
        world.drive.verify().arm()
        await asyncio.sleep(3)
        world.look()
        world.drive.exit(0, 5, message="another ECC error", rank=3)
        world.drive.stop(2, 1)
        await asyncio.sleep(8)
        world.drive.verify().arm()
        world.drive.exit(2, 9, message="a third one", rank=1)
        world.drive.stop(0, 1)
        await asyncio.sleep(2)
        leaves(world, 1, 2, 0)


async def a_killed_launcher_is_followed_by_two(world: World) -> None:
    """The second takes its launch up; the third has other options, and makes another one."""
    world.fleets["manual"].fails["submit 2.1"] = [NothingSubmitted("no room")]
    async with world.launched(scheduler="manual", **SKEWED) as task:
        await world.until(lambda: world.has("tell r 2 generation=2 state=submitted"))
        world.look()
        task.cancel()
    world.fleets["local"].made.clear()  # it has ended with its launcher
    world.fleets["manual"].fails["find 1.1"] = [SchedulerError("slurmctld is down")]
    async with world.launched(scheduler="manual", **SKEWED) as task:
        await world.until(lambda: runs(world, 0, 1, 2))
        task.cancel()
    world.fleets["local"].made.clear()
    world.refuses["status"] = [Unavailable("it is being started")]
    world.fleets["manual"].stays = {"1.1"}
    async with world.launched(scheduler="manual", **(SKEWED | {"grace": 5.0})):
        await world.until(lambda: len(world.keys_of) == 2 and runs(world, 0, 1, 2))
        world.look()
        assert world.signal is not None
        world.signal(signal.SIGTERM)
        await asyncio.sleep(1.5)
        world.signal(signal.SIGINT)


async def what_a_killed_launcher_has_left_is_ended_by_a_person(world: World) -> None:
    """Twice: at first one stays, one is not listed yet, and of one nobody knows the scheduler."""
    slurm, ledger = world.fleets["slurm"], world.state().ledger
    slurm.fails["submit 2.1"] = [SchedulerError("it timed out")]
    more = SKEWED | {"local_node": False, "nproc_per_node": "2", "submit_retries": 0}
    async with world.launched(scheduler="slurm", **more) as task:
        await world.until(lambda: world.has("state=failed detail=it timed out"))
        task.cancel()
    entry = next(one for one in ledger.entries() if one.run.slot == 1)
    other = replace(entry.run, slot=0, generation=7, name="rdzv-older-0-7")
    ledger.begin(replace(entry, run=other, starter="/etc/cloud.gone", former=True))
    slurm.stays = {"1.1"}
    slurm.fails["cancel 0.1"] = [ValueError("not this way")]
    for grace in (3.0, 4.0):
        context = SchedulerContext(world.root, {})
        done = await end_left(ledger, context, world.say, grace=grace, world=world)
        world.tell(f"all of it is gone: {done}")
        world.look()
        slurm.stays = set()


async def a_standing_registry_has_both_launches(world: World) -> None:
    """All nodes are the scheduler's; the second launch finds the first one, and ends it."""
    place = RegistryPlace(
        ("10.0.7.1", "10.0.7.2:29812"), 29_811, "certificate", b"p", replicas=True
    )
    standing = RegistryString(place, registry_credential(bytes(range(32, 64)))).text()
    more: dict[str, Any] = SKEWED | {"local_node": False, "nproc_per_node": "3", "port": 29_600}
    world.refuses["create"] = [Unavailable("no leader"), StorageFull("its disk is full")]
    async with world.launched(scheduler="slurm", registry=standing, **more) as task:
        await world.until(lambda: world.run_of and runs(world, 0, 1, 2))
        task.cancel()
    world.fleets["slurm"].fails["cancel 1.1"] = [SchedulerError("you may not")]
    async with world.launched(scheduler="slurm", registry=standing, **more):
        await world.until(lambda: len(world.keys_of) == 2 and runs(world, 0, 1, 2))
        joins(world, 1, 2, 0)
        world.drive.verify().arm()
        world.refuses["table"] = [Unavailable("busy"), Unavailable("busy again")]
        await asyncio.sleep(4)
        for slot in (2, 0, 1):
            world.drive.exit(slot, 0)
        await asyncio.sleep(1)
        leaves(world, 0, 2, 1)


async def a_group_has_its_registry_at_rank_0(world: World) -> None:
    """The other nodes come by themselves, one of them never."""
    token = group_token_text(bytes(range(64, 96)))
    more = SKEWED | {"node_rank": 0, "master_addr": "10.0.0.1", "join_timeout": 40.0}
    async with world.launched(scheduler="manual", group_token=token, **more):
        await world.until(lambda: world.run_of and runs(world, 0))
        joins(world, 2, 0)
        await asyncio.sleep(41)
        (world.root / "r" / "result.json").mkdir()
        world.drive.report(2, LeaveReport())
        leaves(world, 0)


async def it_is_started_by_a_person_with_every_option(world: World) -> None:
    """A person starts its worker runs, one of which prints why it ends; a node is refused before
    the go, and what the checks have found is kept and said."""
    more: dict[str, Any] = {"nnodes": "2:3", "nproc_per_node": "3", "local_node": False}
    more |= {"port": 29_711, "master_port": 29_533, "log_dir": world.root / "logs"}
    more |= {"registry_address": ["reg.example.org", "10.0.7.9:29812"], "grace": 6.0}
    more |= {"any_command": True, "allow_exec": True, "require_rdma": True}
    more |= {"strict": True, "skip": ["L07", "X03"], "on_node_loss": "replace"}
    more |= {"last_call": 4.0, "verify_timeout": 95.0, "arm_timeout": 35.0, "lease": 17.0}
    more |= {"join_timeout": 85.0, "fence_timeout": 23.0, "orphan_timeout": 125.0}
    more |= {"max_replacements": 5, "max_restarts": 6, "submit_retries": 2}
    more |= {"standby": 1, "spares": 2}
    by_hand = world.fleets["manual"]
    by_hand.by_hand, by_hand.finds = True, False
    by_hand.fails["submit 4.1"] = [SchedulerError("the share is gone")]
    by_hand.fails["logs 3.1"] = [["pulling", "no such \x1b[31mimage", "  "]]
    async with world.launched(scheduler="manual", **more):
        await world.until(lambda: world.run_of and runs(world, 0, 1, 2, 3, 5))
        by_hand.end(3, SlotState.FAILED, "exit code 125")
        await world.until(lambda: world.has("its last line"))
        world.look()
        world.drive.refuse_to_join(1, 1, hostname="gpu-5", retryable=False)
        await asyncio.sleep(1)
        leaves(world, 0, 2, 4)


async def it_is_all_on_one_machine(world: World) -> None:
    """Nobody else reaches its registry, also where the next launcher takes it up; that one's
    registry ends again and again."""
    more = SKEWED | {"nproc_per_node": "1", "orphan_timeout": 20.0}
    async with world.launched(scheduler="local", **more) as task:
        await world.until(lambda: world.run_of and runs(world, 0, 2, 1))
        task.cancel()
    world.fleets["local"].made.clear()
    async with world.launched(scheduler="local", **more):
        await world.until(lambda: runs(world, 0, 2, 1))
        for code in (1, 2, -7, 4, 5):
            await world.until(lambda: not world.processes[-1].over.done())
            await asyncio.sleep(1)
            world.processes[-1].over.set_result(code)


async def two_parts_of_it_fail_as_nobody_expected(world: World) -> None:
    """The first one is raised; whatever else was begun is ended."""
    world.fleets["manual"].fails["submit 1.1"] = [ValueError("not this way")]
    world.fleets["local"].fails["submit 0.1"] = ["it is slow"]
    world.fleets["manual"].fails["submit 2.1"] = [KeyError("nor this one")]
    async with world.launched(scheduler="manual", **SKEWED):
        pass


async def it_is_ended_while_it_submits(world: World) -> None:
    """A signal comes when one try has failed, one waits for its answer, and one is made."""
    world.fleets["manual"].fails["submit 2.1"] = ["the API answered 503", "the API answered 502"]
    world.fleets["manual"].fails["cancel 1.1"] = [SchedulerError("not now")]
    world.refuses["cancel"] = [Unavailable("busy")]
    async with world.launched(scheduler="manual", **SKEWED):
        await world.until(lambda: world.has("submit 2.1") and world.drive.slot(1).state != "none")
        world.refuses["tell"] = [Unavailable("busy")] * 3
        assert world.signal is not None
        world.signal(signal.SIGINT)


Course = Callable[[World], Coroutine[Any, Any, None]]
COURSES: tuple[Course, ...] = (
    it_starts_twice_and_fails,
    a_killed_launcher_is_followed_by_two,
    what_a_killed_launcher_has_left_is_ended_by_a_person,
    a_standing_registry_has_both_launches,
    a_group_has_its_registry_at_rank_0,
    it_is_started_by_a_person_with_every_option,
    it_is_all_on_one_machine,
    two_parts_of_it_fail_as_nobody_expected,
    it_is_ended_while_it_submits,
)


def driven(course: Course, root: Path) -> World:
    """The world, when the course has come to its end there."""
    world = World(root)
    virtual(course)(world)
    return world


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.__name__)
def test_course(course: Course, tmp_path: Path) -> None:
    assert driven(course, tmp_path).lines == lines_in(KNOWN, course.__name__)


def _written() -> str:
    with tempfile.TemporaryDirectory() as folder:
        into = {one.__name__: partial(driven, one, Path(folder, one.__name__)) for one in COURSES}
        return text_of(into)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(_written()) == 0)
