"""Replicas of two journal versions at one journal: upgraded one at a time, and taken back.

Each run stays with, or goes only to, a replica that reads its records, whichever way the others
end; once one is there again, it goes on. Nobody else serves it, and none is lost.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from rendezvous.registry.journal import JOURNAL
from rendezvous.wire.errors import Moved, Unavailable
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import Phase
from tests.rendezvous.test_replica import DEMO, Cluster, One, virtually
from tests.support.nightly import at_night
from tests.support.registry import Launch
from tests.support.served import OPERATOR
from tests.support.virtual_time import run_virtually

NEXT = JOURNAL + 1
LONG = {"lease_seconds": 3_600.0, "arm_timeout_seconds": 3_600.0}
"""No node says anything meanwhile."""


@dataclass
class Fleet(Cluster):
    """Replicas of which each has a version, and the version with which each run was made."""

    draw: random.Random
    made: dict[str, int] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)

    def __post_init__(self) -> None:
        Cluster.__init__(self)

    async def restart(self, host: str, version: int) -> None:
        """Another process on this host, of a version; the former is told to end, or dies."""
        former = next(name for name in self.all if name[0] == host)
        one = self.all.pop(former)
        how = self.draw.choice(["drain", "drain", "die", "machine dies"])
        if how == "drain":
            await one.replica.drain()
        await one.kill(machine=how == "machine dies")
        await asyncio.sleep(self.draw.choice([0.0, 1.0, 6.0]))
        name = f"{host}{len(self.launches)}{self.draw.randrange(10**6)}"
        self.all[name] = One(self.engine, name, at=host, version=version)
        await self.settle(self.draw.choice([1.0, 5.0]))
        self.judge()

    async def launch(self) -> None:
        """A run that is made at any replica that is there."""
        launch = Launch(f"run-{len(self.launches)}")
        self.launches.append(launch)
        name = self.draw.choice(sorted(self.all))
        one = self.all[name]
        await one.service.create(launch.run, launch.spec(1, verify=False, **LONG))
        self.made[launch.run] = one.journal.version
        await one.service.join(launch.run, launch.token(0), launch.join(0))

    def judge(self) -> None:
        for one in self.all.values():
            for run in one.runs:
                assert one.journal.version == self.made[run], f"{run} is at {one.name}"

    def serving(self, run: str) -> One | None:
        found = [one for one in self.all.values() if run in one.runs]
        assert len(found) <= 1
        return found[0] if found else None


async def upgrade_and_roll_back(seed: int) -> None:
    fleet = Fleet(random.Random(seed))
    await fleet.settle()
    for _ in range(3):
        await fleet.launch()
    for version in (NEXT, JOURNAL):
        for host in fleet.draw.sample("abc", 3):
            await fleet.restart(host, version)
            await fleet.launch()
        await fleet.settle(10.0)
        for launch in fleet.launches:  # those of the other version wait, and are not lost
            reads = fleet.made[launch.run] == version
            assert (fleet.serving(launch.run) is not None) == reads
    await fleet.restart("b", NEXT)
    await fleet.settle(10.0)
    for launch in fleet.launches:
        one = fleet.serving(launch.run)
        assert one is not None, f"{launch.run} is lost"
        assert one.runs[launch.run].run.phase is Phase.ARMING
        assert [one.version for one in fleet.engine.owners.values() if one.run == launch.run] == [
            fleet.made[launch.run]
        ]
    await fleet.end()


EACH = 10


@pytest.mark.parametrize("first", [0, *(at_night(first) for first in range(EACH, 300, EACH))])
def test_no_run_is_lost_in_a_rolling_upgrade_and_its_roll_back(first: int) -> None:
    for seed in range(first, first + EACH):
        run_virtually(upgrade_and_roll_back(seed))


@virtually
async def test_who_cannot_read_a_run_says_where_it_is_or_what_is_missing(cluster: Cluster) -> None:
    cluster.all["d"] = One(cluster.engine, "d", version=NEXT)
    await cluster.settle()
    await cluster.bring_to_running(at="b")
    newer, keys = cluster.all["d"].service.place, DEMO.keys
    with pytest.raises(Moved) as moved:
        await newer.find("demo", keys.read)
    assert moved.value.address == "b:29600"
    for name in "abc":
        await cluster.all.pop(name).kill()
    await cluster.settle()
    with pytest.raises(Unavailable) as away:
        await newer.find("demo", keys.read)
    assert f"journal version {JOURNAL}, which no replica that is there reads" in away.value.message
    assert f"this one reads version {NEXT}" in away.value.message
    assert away.value.hint.startswith("start a replica of the rdzv that made this run")
    await newer.find("demo", None)  # to a stranger it does not exist, here as there
    await cluster.create(Launch("other"), at="d")
    again = cluster.start("b")
    await cluster.settle()
    assert (await cluster.watch(DEMO, 0, at="b")).phase is Phase.RUNNING
    for slot in (0, 1):
        await cluster.report(DEMO, slot, ExitReport(epoch=1, exit_code=0), at="b")
    assert again.runs["demo"].run.phase is Phase.FINISHED
    await cluster.all["d"].service.place.find("other", OPERATOR)
