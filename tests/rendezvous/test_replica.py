"""Several replicas on one engine: takeovers, moves, fences, and an engine that is away."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from rendezvous.registry import acknowledging
from rendezvous.registry.doors import Doors
from rendezvous.registry.journal import JOURNAL, Record
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.replica import Replica
from rendezvous.registry.service import Service
from rendezvous.registry.shared_journal import Overtaken
from rendezvous.run.decision import load_entry
from rendezvous.talk.credentials import Credential, hkdf
from rendezvous.wire.errors import (
    InternalError,
    Moved,
    NotFound,
    RegistryError,
    StorageFull,
    Unavailable,
    UsageError,
)
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.support.driver import make_probe
from tests.support.registry import Launch
from tests.support.served import OPERATOR, SECRET
from tests.support.shared_engine import Engine, EngineJournal
from tests.support.virtual_time import run_virtually

DEMO = Launch("demo")
KEY = hkdf(SECRET, "nodes")


class One:
    """One process of a replica."""

    def __init__(self, engine: Engine, name: str, at: str = "", version: int = JOURNAL) -> None:
        clock = asyncio.get_running_loop().time
        self.name = name
        self.journal = EngineJournal(engine, name, version)
        self.service = Service(self.journal, KEY, OPERATOR.sha256(), clock=clock)
        doors = Doors(KEY, OPERATOR.sha256(), self.journal.read, clock, asyncio.sleep)
        self.replica = self.service.place = Replica(
            self.journal, self.service.sequencer, doors, f"{at or name}:29600"
        )
        self.task = asyncio.create_task(self.service.serve())

    async def kill(self, *, machine: bool = False) -> None:
        """The process ends at once; the engine hears of it, unless the machine has died as well."""
        if (row := self.journal.engine.replicas.get(self.name)) is not None:
            row.has_session = machine
        self.journal.is_cut = True
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    @property
    def runs(self) -> dict[str, LiveRun]:
        return self.service.sequencer.runs


class Cluster:
    """Some replicas, and a client that goes where it is sent."""

    def __init__(self, names: str = "abc") -> None:
        self.engine = Engine()
        self.all = {name: One(self.engine, name) for name in names}

    def start(self, name: str) -> One:
        self.all[name] = One(self.engine, name)
        return self.all[name]

    async def ask(self, work: Callable[[One], Awaitable[Any]], at: str = "a") -> Any:
        """As a node asks: follow, and try again elsewhere what is not answered."""
        tries, names = 0, "abc"
        while True:
            try:
                if at not in self.all:
                    raise Unavailable("nobody listens there")
                return await work(self.all[at])
            except Moved as exc:
                at = exc.address.partition(":")[0]
            except RegistryError:
                at = names[(names.index(at) + 1) % len(names)]
                await asyncio.sleep(0.3)
            tries += 1
            assert tries < 200

    async def create(self, launch: Launch = DEMO, nodes: int = 2, at: str = "a", **how: Any) -> Any:
        spec = launch.spec(nodes, **how)
        return await self.ask(lambda one: one.service.create(launch.run, spec), at)

    async def join(self, launch: Launch, slot: int, at: str = "a") -> Any:
        request, token = launch.join(slot), launch.token(slot)

        async def join(one: One) -> Any:
            return (await one.service.join(launch.run, token, request))[1]

        return await self.ask(join, at)

    async def report(self, launch: Launch, slot: int, report: Any, at: str = "a") -> Any:
        async def tell(one: One) -> Any:
            live = await self.found(one, launch)
            one.service.heard(live, slot, 1, None)
            return await one.service.report(live, slot, 1, report)

        return await self.ask(tell, at)

    async def watch(self, launch: Launch, slot: int, after: int = 0, at: str = "a") -> NodeView:
        async def poll(one: One) -> NodeView:
            live = await self.found(one, launch)
            one.service.heard(live, slot, 1, None)
            body = await one.service.watch(live, after)
            return NodeView.model_validate_json(body.plain)

        view: NodeView = await self.ask(poll, at)
        return view

    async def found(
        self, one: One, launch: Launch, shown: Credential = OPERATOR, unreached: str = ""
    ) -> LiveRun:
        await one.service.place.find(launch.run, shown, unreached)
        return one.service.access.run(launch.run, shown, "write")

    async def bring_to_running(self, launch: Launch = DEMO, nodes: int = 2, at: str = "a") -> None:
        await self.create(launch, nodes, at)
        for slot in range(nodes):
            await self.join(launch, slot, at)
        for slot in range(nodes):
            await self.report(launch, slot, make_probe(1, slot, range(nodes)), at)
        digest = (await self.watch(launch, 0, at=at)).digest
        for slot in range(nodes):
            await self.report(launch, slot, AckReport(epoch=1, digest=digest), at)

    async def settle(self, seconds: float = 5.0) -> None:
        """Let all of them know each other, for long enough to judge."""
        await asyncio.sleep(seconds)

    def owner(self, launch: Launch = DEMO) -> str:
        """Who has the run; nobody else may."""
        (name,) = [name for name, one in self.all.items() if launch.run in one.runs]
        return name

    def kinds(self, launch: Launch = DEMO) -> list[str]:
        live = self.all[self.owner(launch)].runs[launch.run]
        return [line.kind for line in live.lines_after(0)]

    async def end(self) -> None:
        for one in self.all.values():
            await one.kill()


def virtually(test: Callable[[Cluster], Awaitable[None]]) -> Callable[[], None]:
    """A test on a virtual clock, with three replicas."""

    async def work() -> None:
        cluster = Cluster()
        await cluster.settle()
        await test(cluster)
        await cluster.end()

    def run() -> None:
        run_virtually(work())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtually
async def test_a_run_is_made_where_it_is_asked_for_and_others_say_where_that_is(
    cluster: Cluster,
) -> None:
    await cluster.create(at="b")
    assert cluster.owner() == "b"
    with pytest.raises(Moved) as caught:
        await cluster.all["c"].service.place.find("demo", OPERATOR)
    assert caught.value.address == "b:29600"
    with pytest.raises(Moved):
        await cluster.all["a"].service.create("demo", DEMO.spec(2))
    await cluster.join(DEMO, 0, at="a")
    assert cluster.kinds() == ["created", "joined"]


@virtually
async def test_to_a_stranger_another_replicas_run_is_one_that_does_not_exist(
    cluster: Cluster,
) -> None:
    await cluster.create(at="b")
    keys, other = DEMO.keys, Launch("other").keys
    for good in (keys.read, keys.admin, keys.look, keys.logs, keys.join_token(1, 1), OPERATOR):
        with pytest.raises(Moved):
            await cluster.all["a"].service.place.find("demo", good)
    for wrong in (None, other.read, other.admin, other.join_token(1, 1), keys.join_token(1, 2)):
        for name in "ab":
            await cluster.all[name].service.place.find("demo", wrong)
            await cluster.all[name].service.place.find("nosuch", wrong)
    with pytest.raises(NotFound):
        cluster.all["a"].service.access.run("demo", other.read, "read")


@virtually
async def test_a_killed_owners_runs_are_answered_by_another_one_soon(cluster: Cluster) -> None:
    await cluster.bring_to_running(at="b")
    loop = asyncio.get_running_loop()
    watching = asyncio.create_task(cluster.watch(DEMO, 0, 99, at="b"))
    await asyncio.sleep(0.1)
    killed = loop.time()
    await cluster.all.pop("b").kill()
    watching.cancel()
    view = await cluster.watch(DEMO, 0, at="a")
    assert view.phase is Phase.RUNNING
    assert loop.time() - killed < 1.5
    assert cluster.owner() in "ac"
    assert cluster.kinds()[-1] == "restarted"


@virtually
async def test_a_dead_machines_runs_are_taken_after_the_lease_and_no_node_is_given_up(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    loop, killed = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    await cluster.all.pop("b").kill(machine=True)
    assert (await cluster.watch(DEMO, 0, at="a")).phase is Phase.RUNNING
    assert 2.0 < loop.time() - killed < 5.0
    for _ in range(20):
        for slot in (0, 1):
            await cluster.watch(DEMO, slot, 99)
    assert "lost" not in cluster.kinds()


@virtually
async def test_a_replica_that_was_started_again_does_not_send_nodes_to_its_former_self(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    for name in "abc":
        await cluster.all.pop(name).kill(machine=True)
    again = cluster.all["b2"] = One(cluster.engine, "b2", at="b")
    await asyncio.sleep(0.6)
    with pytest.raises(Unavailable):
        await again.service.place.find("demo", OPERATOR)
    await cluster.settle()
    await again.service.place.find("demo", OPERATOR)
    assert cluster.owner() == "b2"


@virtually
async def test_an_owner_that_was_cut_off_writes_nothing_more_and_sends_nodes_away(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    old = cluster.all["b"]
    old.journal.is_cut = True
    await cluster.settle()
    with pytest.raises(Unavailable):
        await cluster.found(old, DEMO)
    await cluster.report(DEMO, 0, ExitReport(epoch=1, exit_code=0), at="a")
    old.journal.is_cut = False
    await asyncio.sleep(1.0)
    with pytest.raises(Moved):
        await cluster.found(old, DEMO)
    assert cluster.owner() != "b"
    epochs = [epoch for epoch, _ in cluster.engine.written["demo"].values()]
    assert epochs == sorted(epochs)
    assert old.replica.counters["fenced"] == 1


@virtually
async def test_what_was_written_though_the_answer_was_lost_counts_once(cluster: Cluster) -> None:
    await cluster.create(at="b")
    cluster.all["b"].journal.loses_answers = 1
    await cluster.join(DEMO, 0, at="b")
    await cluster.join(DEMO, 1, at="b")
    assert cluster.kinds() == ["created", "joined", "restarted", "joined"]
    assert cluster.owner() == "b"


@virtually
async def test_while_the_engine_is_away_watches_go_on_changes_wait_and_nobody_is_given_up(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    before = cluster.kinds()
    loop = asyncio.get_running_loop()
    cluster.engine.is_away = True
    change = asyncio.create_task(cluster.report(DEMO, 0, ExitReport(epoch=1, exit_code=0), at="b"))
    refused = 0
    until = loop.time() + 60
    while loop.time() < until:
        try:
            live = await cluster.found(cluster.all["b"], DEMO)
            cluster.all["b"].service.heard(live, 1, 1, None)
            await cluster.all["b"].service.watch(live, 99)
        except Unavailable:
            refused += 1
    assert refused > 10
    assert not change.done()
    cluster.engine.restart()
    cluster.engine.is_away = False
    await change
    for _ in range(10):
        for slot in (0, 1):
            await cluster.watch(DEMO, slot, 99, at="b")
    assert (cluster.owner(), cluster.kinds()) == ("b", [*before, "restarted", "exited"])


@virtually
async def test_a_replica_that_ends_gives_its_runs_away_without_an_error(cluster: Cluster) -> None:
    launches = [Launch(f"run{number}") for number in range(6)]
    for launch in launches:
        await cluster.create(launch, at="b")
    errors: list[RegistryError] = []

    async def watch(launch: Launch) -> None:
        at = "b"
        for _ in range(5):
            try:
                live = await cluster.found(cluster.all[at], launch)
                await cluster.all[at].service.watch(live, 99)
            except Moved as exc:
                at = exc.address[0]
            except RegistryError as exc:
                errors.append(exc)

    watching = [asyncio.create_task(watch(launch)) for launch in launches]
    await asyncio.sleep(1.0)
    began = asyncio.get_running_loop().time()
    draining = asyncio.create_task(cluster.all["b"].replica.drain())
    await asyncio.sleep(0.4)
    with pytest.raises(Moved):  # one that did not watch just then
        await cluster.found(cluster.all["b"], launches[0])
    assert not draining.done()
    await draining
    assert asyncio.get_running_loop().time() - began < 1.0
    with pytest.raises(Moved):
        await cluster.all["b"].service.create("late", Launch("late").spec(2))
    await asyncio.gather(*watching)
    assert errors == []
    assert {cluster.owner(launch) for launch in launches} == {"a", "c"}


@virtually
async def test_one_runs_failure_is_its_own(cluster: Cluster) -> None:
    other = Launch("other")
    await cluster.create(at="b")
    await cluster.create(other, at="b")
    owners = cluster.engine.owners
    owners["demo"] = type(owners["demo"])("demo", "a", 7)
    b = cluster.all["b"].service
    joins = [b.join(one.run, one.token(0), one.join(0)) for one in (DEMO, other)]
    lost, kept = await asyncio.gather(*joins, return_exceptions=True)
    assert isinstance(lost, Unavailable)
    assert not isinstance(kept, BaseException)
    await cluster.join(DEMO, 0)
    assert cluster.owner() == "a"


@virtually
async def test_while_the_journal_is_away_nothing_is_told_that_is_not_written(
    cluster: Cluster,
) -> None:
    await cluster.create(at="b")
    b = cluster.all["b"]
    cluster.engine.slow_seconds = 3.0
    joining = asyncio.create_task(b.service.join(DEMO.run, DEMO.token(0), DEMO.join(0)))
    await asyncio.sleep(0.1)
    b.journal.is_cut = True
    with patch.object(acknowledging.logger, "warning") as warned:
        await asyncio.sleep(1.0)
    warned.assert_called_once()  # by the first of the beats that were not answered
    assert "cannot reach its journal" in str(warned.call_args)
    assert b.service.counters["journal_errors"] > 1
    assert b.service.sequencer.standstill
    with pytest.raises(Unavailable):
        await b.service.status(b.runs["demo"])
    with pytest.raises(Unavailable):
        await joining


@virtually
async def test_while_no_commit_is_acknowledged_nothing_is_decided_and_it_is_said(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    b, loop = cluster.all["b"], asyncio.get_running_loop()
    before = len(cluster.engine.records("demo"))
    errors = b.service.counters["journal_errors"]
    cluster.engine.slow_seconds = 1e6
    await asyncio.sleep(3.0)  # beats go on, and nobody writes
    b.replica.check_ready()
    began = loop.time()
    while True:
        try:
            b.replica.check_ready()
        except Unavailable as exc:
            message = exc.message
            break
        await asyncio.sleep(0.1)
    assert loop.time() - began < 5.1  # of a probe, which is not answered within 3 s
    assert message.startswith("the registry's database has acknowledged no commit for ")
    assert b.replica.commits.seconds() > 3.0
    with pytest.raises(Unavailable, match="acknowledges no commit"):
        await b.service.report(b.runs["demo"], 0, 1, ExitReport(epoch=1, exit_code=0))
    with pytest.raises(Unavailable, match="acknowledges no commit"):
        await cluster.all["c"].service.create("late", Launch("late").spec(2))
    assert (await b.service.status(b.runs["demo"])).phase is Phase.RUNNING
    await asyncio.sleep(0.6)
    at = b.runs["demo"].now()
    await asyncio.sleep(100.0)
    assert b.runs["demo"].now() == at  # nobody's time runs out
    assert len(cluster.engine.records("demo")) == before
    cluster.engine.slow_seconds = 0.0005
    await asyncio.sleep(0.7)
    b.replica.check_ready()
    assert b.replica.commits.seconds() == 0
    assert b.service.counters["journal_errors"] == errors  # it was late, and has not failed
    for slot in range(2):
        await cluster.report(DEMO, slot, ExitReport(epoch=1, exit_code=0))
    assert cluster.kinds().count("exited") == 2
    assert "lost" not in cluster.kinds()
    cluster.engine.slow_seconds = 1e6
    while (probe := b.replica._acknowledging._probe) is None or probe.done():
        await asyncio.sleep(0.1)
    await b.kill()
    await asyncio.sleep(0)
    assert probe.cancelled()


@virtually
async def test_the_time_of_a_run_goes_on_at_whoever_has_it_next(cluster: Cluster) -> None:
    await cluster.bring_to_running(at="b")
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    zero = cluster.all["b"].runs["demo"].now()

    async def passed() -> float:
        """Seconds of the run less those of the clock on the wall."""
        await cluster.watch(DEMO, 0)
        return cluster.all[cluster.owner()].runs["demo"].now() - zero - (loop.time() - began)

    await asyncio.sleep(10)  # nothing is written meanwhile
    await cluster.all.pop("b").replica.drain()
    assert -0.1 < await passed() <= 0
    await asyncio.sleep(10)
    await cluster.all.pop(cluster.owner()).kill(machine=True)
    assert -5.0 < await passed() < -3.0  # as long as nobody had it
    assert cluster.kinds().count("restarted") == 2


@virtually
async def test_the_clock_of_a_run_that_replaced_one_outlives_a_takeover_on_a_full_disk(
    cluster: Cluster,
) -> None:
    again = Launch("demo", "launch02")
    await cluster.bring_to_running(at="b")
    b = cluster.all["b"]
    await b.service.cancel(b.runs["demo"], "enough")
    await cluster.create(again, at="b")
    latest = cluster.engine.records("demo")[-1].at
    cluster.engine.is_full = True
    await cluster.all.pop("b").kill(machine=True)
    while not any("demo" in one.runs for one in cluster.all.values()):
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)
    assert latest < cluster.all[cluster.owner()].runs["demo"].now() < latest + 1.0


@virtually
async def test_what_is_asked_of_a_run_while_it_is_given_away_is_asked_again(
    cluster: Cluster,
) -> None:
    await cluster.create(at="b")
    b = cluster.all["b"]
    create = b.service.create(DEMO.run, DEMO.spec(2))
    join = b.service.join(DEMO.run, DEMO.token(0), DEMO.join(0))
    made, _, joined = await asyncio.gather(
        create, b.replica._move("demo"), join, return_exceptions=True
    )
    assert [type(made), type(joined)] == [Unavailable, Unavailable]
    await cluster.join(DEMO, 0, at="b")
    assert cluster.owner() in "ac"


@virtually
async def test_a_replica_that_ends_gives_a_run_away_that_it_is_still_reading(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    b = cluster.all["b"]
    b.journal.loses_answers = 1
    with pytest.raises(Unavailable):
        await b.service.report(b.runs["demo"], 0, 1, ExitReport(epoch=1, exit_code=0))
    assert "demo" in b.service.sequencer.kept.doubtful
    await b.replica.drain()
    assert cluster.engine.owners["demo"].owner in ("a", "c")
    await cluster.report(DEMO, 1, ExitReport(epoch=1, exit_code=0), at="c")
    assert cluster.kinds()[-3:] == ["exited", "restarted", "exited"]


@virtually
async def test_a_run_that_has_ended_is_served_once_a_beat_shows_whose_it_is(
    cluster: Cluster,
) -> None:
    """Nothing of it is written that could be refused where its claim was heard too late."""
    await cluster.create(at="b")
    b = cluster.all["b"]
    await b.service.cancel(b.runs["demo"], "enough")
    await cluster.all.pop("b").kill()
    owners = cluster.engine.owners
    while (owner := owners["demo"].owner) not in cluster.all:
        await asyncio.sleep(0.001)
    late, next_one = cluster.all[owner], "c" if owner == "a" else "a"
    while "demo" not in late.journal.epochs:
        await asyncio.sleep(0.001)
    owners["demo"] = replace(owners["demo"], owner=next_one, epoch=9)
    while "demo" not in cluster.all[next_one].runs:
        await asyncio.sleep(0.001)
        assert "demo" not in late.runs


@virtually
async def test_a_run_that_comes_to_a_replica_that_ends_is_given_on(cluster: Cluster) -> None:
    """Who gave it away did not know that yet; nor does a replica whose claim's answer was lost."""
    other = Launch("other")
    await cluster.create(at="a")
    await cluster.create(other, at="b")
    a, b = cluster.all["a"].replica, cluster.all["b"].replica
    draining = asyncio.create_task(b.drain())
    await asyncio.sleep(0.02)
    known = [one for one in a.members.members if one.id == "b"]
    a.members.members = tuple(replace(one, drains=False) for one in known)
    await a._move("demo")
    assert cluster.engine.owners["demo"].owner == "b"
    await draining
    assert cluster.engine.owners["demo"].owner in ("a", "c")
    assert b.counters["moves"] == 2


@virtually
async def test_a_run_that_is_made_while_its_replica_ends_is_given_on(cluster: Cluster) -> None:
    b = cluster.all["b"]
    cluster.engine.slow_seconds = 0.3
    making = asyncio.create_task(b.service.create("demo", DEMO.spec(2)))
    await asyncio.sleep(0.01)
    await b.replica.drain()
    await making
    assert (b.replica.counters["moves"], cluster.owner() in "ac") == (1, True)


@virtually
async def test_a_run_is_not_made_again_while_its_records_may_be_on_their_way_out(
    cluster: Cluster,
) -> None:
    """If they could not be removed, it is here again; if only the answer was lost, it is gone."""
    await cluster.create(at="b")
    b = cluster.all["b"]
    await b.service.cancel(live := b.runs["demo"], "enough")
    drop = b.journal.drop

    async def drop_unheard(runs: Sequence[str]) -> None:
        await drop(runs)
        await asyncio.sleep(1.0)
        raise Unavailable("the answer was lost")

    b.journal.drop = drop_unheard  # type: ignore[method-assign]
    removing = asyncio.create_task(b.service.sequencer.retention._drop([live]))
    await asyncio.sleep(0.1)
    assert cluster.engine.written == {}
    await cluster.create(Launch("demo", "launch02"), at="b")
    await removing
    assert list(cluster.engine.written["demo"]) == [1]
    assert cluster.kinds() == ["created"]


@virtually
async def test_a_run_that_could_not_be_removed_is_served_only_by_whose_it_is_then(
    cluster: Cluster,
) -> None:
    await cluster.create(at="b")
    b = cluster.all["b"]
    await b.service.cancel(live := b.runs["demo"], "enough")
    b.journal.is_cut = True
    await b.service.sequencer.retention._drop([live])
    await cluster.settle(1.0)  # it finds out
    await cluster.create(again := Launch("demo", "launch02"), at="a")
    assert cluster.owner() in "ac"
    b.journal.is_cut = False
    await cluster.settle(1.0)
    with pytest.raises(Moved):
        await cluster.found(b, again)
    assert b.replica.counters["fenced"] == 1


@virtually
async def test_a_run_whose_owner_a_node_cannot_reach_is_taken_by_whom_it_reaches(
    cluster: Cluster,
) -> None:
    """The owner lives, and says `Moved` to nobody: its node would be lost though it asks."""
    await cluster.bring_to_running(at="b")
    loop, b = asyncio.get_running_loop(), cluster.all["b"]
    node = b.service.access.node_credential(b.runs["demo"], 1, 1)
    until = loop.time() + 60
    while loop.time() < until:
        await cluster.watch(DEMO, 0, 99)
        name = cluster.owner()
        if name == "b":  # this node does not get there
            with contextlib.suppress(Unavailable):
                await cluster.all["a"].service.place.find("demo", node, "b:29600")
        else:
            await cluster.watch(DEMO, 1, 99, at=name)
    assert cluster.owner() == "a"
    assert "lost" not in cluster.kinds()
    epochs = [epoch for epoch, _ in cluster.engine.written["demo"].values()]
    assert epochs == sorted(epochs)
    assert b.replica.counters["fenced"] == 1
    assert cluster.all["a"].replica.counters["takeovers"] == 1
    with pytest.raises(Moved):
        await cluster.found(b, DEMO)


@virtually
async def test_a_run_is_taken_from_a_living_owner_for_its_nodes_alone(cluster: Cluster) -> None:
    await cluster.bring_to_running(at="b")
    a, keys = cluster.all["a"].service.place, DEMO.keys
    node = Credential("node", b"n" * 32, 0, 1)
    for shown in (OPERATOR, keys.read, keys.look, keys.logs):
        with pytest.raises(Moved):
            await a.find("demo", shown, "b:29600")
    await a.find("demo", node, "b:29600")  # a stranger learns nothing
    for other in ("", "c:29600", "b:29601", "\x00"):
        with pytest.raises(Moved):
            await a.find("demo", keys.admin, other)
    assert cluster.owner() == "b"


@virtually
async def test_a_run_does_not_go_to_and_fro_between_nodes_that_are_cut_off(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    loop, admin, changes = asyncio.get_running_loop(), DEMO.keys.admin, list[float]()
    owner = "b"
    until = loop.time() + 65
    while loop.time() < until:
        other = "a" if owner == "b" else "b"
        with contextlib.suppress(RegistryError):
            await cluster.found(cluster.all[other], DEMO, admin, f"{owner}:29600")
            owner = other
            changes.append(loop.time())
        await asyncio.sleep(0.3)
    assert len(changes) == 3
    assert all(later - earlier >= 29 for earlier, later in itertools.pairwise(changes))


@virtually
async def test_a_slow_claim_costs_a_replica_none_of_its_runs(cluster: Cluster) -> None:
    other = Launch("other")
    await cluster.create(at="b")
    await cluster.create(other, at="b")
    b = cluster.all["b"]
    claim = b.journal.claim

    async def slowly(wanted: Any) -> Any:
        await asyncio.sleep(6.0)
        return await claim(wanted)

    b.journal.claim = slowly  # type: ignore[method-assign]
    b.journal.loses_answers = 1
    with pytest.raises(Unavailable):
        await b.service.join("demo", DEMO.token(0), DEMO.join(0))
    await asyncio.sleep(5.0)
    await cluster.found(b, other)
    await asyncio.sleep(3.0)
    assert {cluster.owner(launch) for launch in (DEMO, other)} == {"b"}


@virtually
async def test_a_claim_that_has_failed_is_made_again_and_none_beside_another(
    cluster: Cluster,
) -> None:
    other = Launch("other")
    for launch in (DEMO, other):
        await cluster.create(launch, at="b")
    a, claims = cluster.all["a"], list[list[str]]()
    claim = a.journal.claim

    async def slowly(wanted: Any) -> Any:
        claims.append(sorted(one.run for one in wanted))
        await asyncio.sleep(3.0)  # beats go on, and show the runs to be nobody's
        if len(claims) == 1:
            raise Unavailable("the engine is away")
        return await claim(wanted)

    a.journal.claim = slowly  # type: ignore[method-assign]
    for name in "cb":
        await cluster.all.pop(name).kill()
    await asyncio.sleep(15.0)
    assert claims == [["demo", "other"]] * 2
    assert (set(a.runs), a.service.counters["takeovers"]) == ({"demo", "other"}, 2)


@virtually
async def test_who_asks_to_make_a_run_that_is_being_read_does_not_let_go_of_it(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    others = {name: Launch(f"other-{name}") for name in "ac"}
    for name, other in others.items():
        await cluster.create(other, at=name)
    cluster.engine.slow_seconds = 4.0
    joins = [asyncio.create_task(cluster.join(other, 0, name)) for name, other in others.items()]
    await asyncio.sleep(0.1)
    await cluster.all["b"].replica._move("demo")
    heir = cluster.engine.owners["demo"].owner
    assert heir is not None
    await asyncio.sleep(0.6)
    assert cluster.engine.owners["demo"].epoch == 3
    with pytest.raises(Unavailable):
        await cluster.all[heir].service.create("demo", DEMO.spec(2))
    await asyncio.gather(*joins)
    await asyncio.sleep(10.0)
    assert cluster.engine.owners["demo"].owner == cluster.owner() == heir


@virtually
async def test_a_run_is_given_away_though_another_ones_commit_fails_meanwhile(
    cluster: Cluster,
) -> None:
    other = Launch("other")
    await cluster.create(at="b")
    await cluster.create(other, at="b")
    owners = cluster.engine.owners
    owners["demo"] = type(owners["demo"])("demo", "a", 7)
    b = cluster.all["b"]
    join = b.service.join("demo", DEMO.token(0), DEMO.join(0))
    lost, moved = await asyncio.gather(join, b.replica._move("other"), return_exceptions=True)
    assert (type(lost), moved) == (Overtaken, None)
    assert owners["other"].owner in ("a", "c")


@virtually
async def test_a_run_that_cannot_be_read_is_read_once_and_says_why(cluster: Cluster) -> None:
    await cluster.create(at="b")
    reads: list[str] = []

    async def damaged(run: str) -> Any:
        reads.append(run)
        raise UsageError("event 1 of run 'demo' is damaged", hint="restore a backup")

    for name in "ac":
        cluster.all[name].journal.read = damaged  # type: ignore[method-assign]
    await cluster.all.pop("b").kill()
    await asyncio.sleep(30.0)
    assert reads == ["demo"]
    heir = cluster.engine.owners["demo"].owner
    assert heir in cluster.all
    with pytest.raises(InternalError, match="event 1 of run 'demo' is damaged") as raised:
        await cluster.all[heir].replica.find("demo", OPERATOR)
    assert raised.value.hint == "restore a backup"


@virtually
async def test_a_run_whose_commit_failed_is_read_once_the_journal_is_there_again(
    cluster: Cluster,
) -> None:
    await cluster.create(at="b")
    b = cluster.all["b"]
    read = b.journal.read

    async def away(run: str) -> Any:
        b.journal.read = read  # type: ignore[method-assign]
        raise Unavailable("it is away")

    b.journal.read = away  # type: ignore[method-assign]
    cluster.engine.is_full = True
    with pytest.raises(StorageFull):
        await b.service.join("demo", DEMO.token(0), DEMO.join(0))
    assert "demo" in b.service.sequencer.kept.doubtful
    cluster.engine.is_full = False
    await cluster.join(DEMO, 0, at="b")
    assert (cluster.owner(), cluster.kinds()) == ("b", ["created", "restarted", "joined"])


@virtually
async def test_nothing_is_told_of_a_run_before_it_is_written_that_it_came_back(
    cluster: Cluster,
) -> None:
    await cluster.bring_to_running(at="b")
    cluster.engine.slow_seconds = 2.5
    await cluster.all.pop("b").kill()
    while not any("demo" in one.runs for one in cluster.all.values()):
        await asyncio.sleep(0.01)
    taker = cluster.all[cluster.owner()]
    live = taker.runs["demo"]
    assert (live.news, live.told) == (None, 0)
    asked = asyncio.create_task(taker.service.watch(live, 0))
    looked = asyncio.create_task(taker.service.status(live))
    await asyncio.sleep(2.0)
    assert "restarted" not in [kind(one) for one in cluster.engine.records("demo")]
    assert not looked.done()
    assert not asked.done() or isinstance(asked.exception(), Unavailable)
    assert (await looked).phase is Phase.RUNNING
    assert cluster.kinds()[-1] == "restarted"
    await asyncio.gather(asked, return_exceptions=True)


def kind(record: Record) -> str:
    return load_entry(record.body)[0].kind


@virtually
async def test_a_creation_in_vain_gives_no_run_to_nobody(cluster: Cluster) -> None:
    await cluster.create(at="b")
    b = cluster.all["b"]
    b.service.sequencer.kept.let_go("demo", Unavailable("it could not be read"))
    making = b.replica.making("demo")
    step = asyncio.create_task(making.__aenter__())
    await asyncio.sleep(0.01)
    step.cancel()  # whoever asked for it has gone
    with contextlib.suppress(asyncio.CancelledError):
        await step
    assert cluster.engine.owners["demo"].owner == "b"
    await cluster.join(DEMO, 0, at="b")
    assert cluster.kinds()[-1] == "joined"
