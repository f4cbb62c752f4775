"""Tenants where a registry has replicas: known to all of them, with limits of all together."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from pydantic_core import to_json
from starlette.types import ASGIApp

from rendezvous.registry.app import ROUTES, make_app
from rendezvous.talk.credentials import SERVER_NAME, Credential, new_tenant_credential
from rendezvous.talk.tenants import put_tenant, remove_tenant
from rendezvous.wire.errors import Moved, TenantClash, TooManyRequests, TooManyRuns, Unauthorized
from rendezvous.wire.run import Phase
from rendezvous.wire.tenant import TenantLimits, TenantRequest, Usage
from tests.rendezvous.test_replica import Cluster, One, virtually
from tests.rendezvous.test_tenants import add
from tests.support.driver import make_refusal
from tests.support.registry import Launch
from tests.support.replicas import replicas
from tests.support.served import Answer, ask

MINE = Launch("team-a", secret=bytes(32))
_BEATS_SECONDS = 1.1
"""After which all have told what they have, and then heard what others have."""
_SOURCES = itertools.count()


async def create(one: One, shown: Credential, run: str, nodes: int = 2) -> None:
    launch = Launch(run, secret=bytes(32))
    tenant = one.service.access.creator(run, shown)
    await one.service.create(run, launch.spec(nodes), tenant)


def app_of(one: One) -> ASGIApp:
    return make_app(one.service, allowed_hosts=[SERVER_NAME])


async def asked_of(
    app: ASGIApp, method: str, path: str, shown: Credential, body: bytes = b""
) -> Answer:
    """What it answers, each time to another address."""
    return await ask(app, method, path, shown, body, source=f"source {next(_SOURCES)}")


@virtually
async def test_a_tenant_is_known_everywhere_and_sent_to_where_its_run_is(cluster: Cluster) -> None:
    team = await add(cluster.all["a"].service)
    await asyncio.sleep(_BEATS_SECONDS)
    await create(cluster.all["b"], team, "team-a")
    assert (await cluster.found(cluster.all["b"], MINE, team)).run.id == "team-a"
    for name in "ac":
        with pytest.raises(Moved) as caught:
            await cluster.all[name].service.place.find("team-a", team)
        assert caught.value.address == "b:29600"
    lists = [
        await one.service.statuses(one.service.access.tenant(team)) for one in cluster.all.values()
    ]
    assert [[run.run for run in one.runs] for one in lists] == [[], ["team-a"], []]
    assert sorted(lists[0].others) == ["b:29600", "c:29600"]


@virtually
async def test_another_tenants_run_is_at_no_replica_told_from_one_that_is_not_there(
    cluster: Cluster,
) -> None:
    team = await add(cluster.all["a"].service)
    other, revoked = (
        await add(cluster.all["b"].service, "team2"),
        await add(cluster.all["b"].service, "former"),
    )
    await asyncio.sleep(_BEATS_SECONDS)
    await create(cluster.all["b"], team, "team-a")
    await create(cluster.all["b"], revoked, "former-a")
    await cluster.all["c"].service.tenants.remove("former")
    await asyncio.sleep(_BEATS_SECONDS)
    wrong = Credential("tenant", bytes(32))
    # Of these the body is read first: a join says which token it needs.
    said = {"join": to_json(MINE.join(0)), "refuse": to_json(make_refusal(0))}
    apps = {name: app_of(cluster.all[name]) for name in "ab"}
    for route in ROUTES:
        if "{run}" not in route.path_format or route.name == "create":
            continue
        body = said.get(route.name, b"")
        for shown, run in ((other, "team-a"), (revoked, "former-a"), (wrong, "team-a")):
            answers = []
            for name, asked in itertools.product("ab", (run, "nosuch")):
                path = route.path_format.format(run=asked, slot=0, node=0, digest="0" * 64)
                answer = await asked_of(apps[name], route.method, path, shown, body)
                assert answer.status in (401, 404), (route.name, answer)
                answer.body = answer.body.replace(asked.encode(), b"RUN")
                answer.headers.pop("content-length")
                answers.append(answer)
            assert answers == [answers[0]] * 4, route.name


@virtually
async def test_a_foreign_run_that_is_on_its_way_is_no_more_there_than_another(
    cluster: Cluster,
) -> None:
    team, other = await add(cluster.all["a"].service), await add(cluster.all["a"].service, "other")
    await asyncio.sleep(_BEATS_SECONDS)
    await create(cluster.all["b"], team, "team-a")
    await cluster.all.pop("b").kill()
    began = asyncio.get_running_loop().time()
    for run in ("team-a", "nosuch"):
        await cluster.all["a"].service.place.find(run, other)
    assert asyncio.get_running_loop().time() == began


@virtually
async def test_a_revoked_tenant_is_refused_everywhere_within_5_s(cluster: Cluster) -> None:
    team = await add(cluster.all["a"].service)
    await asyncio.sleep(_BEATS_SECONDS)
    await create(cluster.all["b"], team, "team-a")
    apps = [app_of(one) for one in cluster.all.values()]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await cluster.all["c"].service.tenants.remove("team")
    statuses = [0]
    while statuses != [401] * 3:
        await asyncio.sleep(0.05)
        statuses = [(await asked_of(app, "GET", "/v1/runs", team)).status for app in apps]
        assert loop.time() - began < 5.0
    assert loop.time() - began < 1.0
    await cluster.join(MINE, 0)  # its run goes on
    assert cluster.owner(MINE) == "b"


@virtually
async def test_while_the_engine_is_away_the_last_known_tenants_count(cluster: Cluster) -> None:
    team = await add(cluster.all["a"].service)
    await asyncio.sleep(_BEATS_SECONDS)
    cluster.engine.is_away = True
    await asyncio.sleep(10)
    assert all(one.service.tenants.opens(team, "team-a") for one in cluster.all.values())
    cluster.engine.tenants.clear()
    cluster.engine.tenant_changes += 1
    cluster.engine.is_away = False
    await asyncio.sleep(2.0)
    assert not any(one.service.tenants.opens(team, "team-a") for one in cluster.all.values())


@virtually
async def test_limits_hold_for_all_replicas_together_within_two_beats(cluster: Cluster) -> None:
    a, b, c = cluster.all.values()
    team = await add(a.service, max_runs=3, max_nodes=12, creates_per_minute=4)
    await asyncio.sleep(_BEATS_SECONDS)
    await create(a, team, "team-1", 4)
    await create(b, team, "team-2", 4)
    await asyncio.sleep(_BEATS_SECONDS)
    with pytest.raises(TooManyRuns, match="needs 5 nodes, spares included; tenant 'team' has 8"):
        await create(c, team, "team-3", 5)
    await create(c, team, "team-3", 4)
    await asyncio.sleep(_BEATS_SECONDS)
    for one in (a, b, c):
        with pytest.raises(TooManyRuns, match="has 3 runs in progress"):
            await create(one, team, "team-4", 1)
    await a.service.cancel(a.runs["team-1"], "over")
    await asyncio.sleep(_BEATS_SECONDS)
    await create(b, team, "team-5", 1)
    await b.service.cancel(b.runs["team-5"], "over")
    await asyncio.sleep(_BEATS_SECONDS)
    with pytest.raises(TooManyRequests, match="has made 4 runs in the last minute") as caught:
        await create(c, team, "team-6", 1)
    assert caught.value.hint == "wait 56 s"
    (status,) = c.service.tenants.statuses().tenants
    assert status.usage.model_copy(update={"frees_seconds": 0.0}) == Usage(
        runs=2, nodes=8, creates=4
    )


@virtually
async def test_what_a_dead_replica_had_counts_once_another_one_has_it(cluster: Cluster) -> None:
    team = await add(cluster.all["a"].service, max_runs=1)
    await asyncio.sleep(_BEATS_SECONDS)
    await create(cluster.all["b"], team, "team-1")
    await cluster.all.pop("b").kill()
    await asyncio.sleep(2.0)
    for one in cluster.all.values():
        assert one.service.tenants.statuses().tenants[0].usage.runs == 1
        with pytest.raises(TooManyRuns):
            await create(one, team, "team-2")


@virtually
async def test_of_overlapping_tenants_at_two_replicas_one_is_refused(cluster: Cluster) -> None:
    done = await asyncio.gather(
        add(cluster.all["a"].service, "x", "team-"),
        add(cluster.all["b"].service, "y", "team-a-"),
        return_exceptions=True,
    )
    assert [isinstance(one, TenantClash) for one in done].count(True) == 1


# Processes, on a real PostgreSQL


@pytest.mark.real_time
async def test_a_team_goes_to_any_process_lists_all_its_runs_and_is_revoked_at_each(
    tmp_path: Path, dsn: str
) -> None:
    team = new_tenant_credential()
    asked = TenantRequest(prefix="team-", sha256=team.sha256(), limits=TenantLimits(max_runs=2))
    with replicas(tmp_path, dsn, 2) as cluster:
        for number in range(2):
            await cluster.wait_until_ready(number)
        async with cluster.client_of(0) as operator:
            await put_tenant(operator, "team", asked)
        await asyncio.sleep(_BEATS_SECONDS)
        clients = [one.client(team) for one in cluster.all]
        for number, client in enumerate(clients):
            run = f"team-{number}"
            await client.create(run, Launch(run).spec(2))
        await asyncio.sleep(_BEATS_SECONDS)
        assert [one.run for one in await clients[0].runs()] == ["team-0", "team-1"]
        assert (await clients[0].status("team-1")).run == "team-1"
        for client in clients:
            with pytest.raises(TooManyRuns, match="has 2 runs in progress"):
                await client.create("team-2", Launch("team-2").spec(2))
        async with cluster.client_of(1) as operator:
            assert (await remove_tenant(operator, "team")).usage.runs == 2
            await asyncio.sleep(_BEATS_SECONDS)
            for client in clients:
                with pytest.raises(Unauthorized):
                    await client.runs()
                await client.close()
            assert (await operator.status("team-0")).phase is Phase.GATHERING
