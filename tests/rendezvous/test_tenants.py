"""Tenants of one registry: what each may make, see and do, and what becomes of one revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rendezvous.registry.app import make_app
from rendezvous.registry.caller import Caller
from rendezvous.registry.routes.readers import event_lines
from rendezvous.registry.service import Service
from rendezvous.registry.sqlite_journal import SqliteJournal
from rendezvous.talk.credentials import SERVER_NAME, Credential, new_tenant_credential
from rendezvous.wire.errors import (
    BadRequest,
    NotFound,
    TenantClash,
    TooManyRequests,
    TooManyRuns,
    Unauthorized,
)
from rendezvous.wire.tenant import TenantLimits, TenantRequest, TenantStatus, Usage
from tests.support.registry import Launch
from tests.support.served import OPERATOR, Answer, FakeClock, Served, ask, scope_of, serving

served = pytest.fixture(serving)
Asking = Callable[..., Coroutine[Any, Any, Answer]]


@pytest.fixture
def asking(served: Served) -> Asking:
    """Asks the registry as `ask` does, each time from another address."""
    app, number = make_app(served.service, allowed_hosts=[SERVER_NAME]), 0

    async def of_app(method: str, path: str, shown: Any = None, body: Any = b"") -> Answer:
        nonlocal number
        number += 1
        return await ask(app, method, path, shown, body, source=f"10.0.0.{number}")

    return of_app


async def add(service: Service, name: str = "team", prefix: str = "", **limits: int) -> Credential:
    """A new tenant; its credential."""
    made = new_tenant_credential()
    asked = TenantRequest(
        prefix=prefix or f"{name}-", sha256=made.sha256(), limits=TenantLimits(**limits)
    )
    await service.tenants.put(name, asked)
    return made


async def create(service: Service, shown: Credential, launch: Launch, nodes: int = 2) -> None:
    """As the route does."""
    tenant = service.access.creator(launch.run, shown)
    await service.create(launch.run, launch.spec(nodes), tenant)


def spec(launch: Launch, nodes: int = 2) -> Any:
    return launch.spec(nodes).model_dump(mode="json")


async def test_a_tenant_makes_sees_and_ends_its_own_runs_alone(
    served: Served, asking: Asking
) -> None:
    team, other = await add(served.service), await add(served.service, "team2")
    mine, theirs = Launch("team-a"), Launch("team2-a")
    assert (await asking("PUT", "/v1/runs/team-a", team, spec(mine))).status == 200
    assert (await asking("PUT", "/v1/runs/team2-a", other, spec(theirs))).status == 200
    assert (await asking("PUT", "/v1/runs/free", OPERATOR, spec(Launch("free")))).status == 200
    listed = {}
    for shown in (team, other, OPERATOR):
        answer = await asking("GET", "/v1/runs", shown)
        listed[shown] = [one["run"] for one in answer.json["runs"]]
    assert listed == {team: ["team-a"], other: ["team2-a"], OPERATOR: ["team-a", "team2-a", "free"]}
    for path in ("/v1/runs/team-a", "/v1/runs/team-a/report", "/v1/runs/team-a/machines"):
        assert (await asking("GET", path, team)).status == 200
        assert (await asking("GET", path, other)).problem == (404, "not_found")
    assert (await asking("DELETE", "/v1/runs/team-a", other)).problem == (404, "not_found")
    assert (await asking("DELETE", "/v1/runs/team-a", team)).json["phase"] == "finished"
    for path in ("/metrics", "/v1/tenants"):
        assert (await asking("GET", path, team)).problem == (403, "forbidden")


async def test_a_run_outside_of_the_prefix_is_refused_whether_it_is_there_or_not(
    served: Served, asking: Asking
) -> None:
    team = await add(served.service)
    await served.create(Launch("free"))
    answers = []
    for run in ("free", "nosuch", "team", "team2-a"):
        answer = await asking("PUT", f"/v1/runs/{run}", team, spec(Launch(run)))
        assert answer.problem == (403, "forbidden")
        answers.append(answer.json["message"])
    assert answers == ["tenant 'team' can only make runs whose ID begins with 'team-'"] * len(
        answers
    )


async def test_its_own_run_that_is_not_there_reads_like_a_foreign_one_and_is_no_failed_login(
    served: Served,
) -> None:
    team = await add(served.service)
    await served.create(Launch("free"))
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    for _ in range(30):  # a failed login is slowed down after 20
        own = await ask(app, "GET", "/v1/runs/team-1", team)
        assert own.problem == (404, "not_found")
    for run in ("free", "nosuch"):
        foreign = await ask(app, "GET", f"/v1/runs/{run}", team)
        assert foreign.body.replace(run.encode(), b"team-1") == own.body
    wrong = Credential("tenant", bytes(32))
    ends = [(await ask(app, "GET", "/v1/runs", wrong, source="x")).status for _ in range(21)]
    assert ends == [401] * 20 + [429]


async def test_limits_are_those_of_runs_in_progress_and_count_whoever_made_them(
    served: Served,
) -> None:
    team = await add(served.service, max_runs=2, max_nodes=9)
    service, first = served.service, Launch("team-1")
    await create(service, team, first)
    await create(service, team, first)  # the same again is no further one
    await served.create(Launch("team-2"), 4)
    with pytest.raises(TooManyRuns, match="has 2 runs in progress, and its limit is 2"):
        await create(service, team, Launch("team-3"))
    await served.create(Launch("team-3"))  # the operator's own limit is the registry's
    assert service.tenants.usage() == {"team": Usage(runs=3, nodes=8, creates=1, frees_seconds=60)}
    for name in ("team-2", "team-3"):
        await service.cancel(served.host(Launch(name)), "over")
    with pytest.raises(TooManyRuns, match="needs 8 nodes, spares included; tenant 'team' has 2"):
        await create(service, team, Launch("team-4"), 8)
    await create(service, team, Launch("team-4"), 7)


async def test_what_is_refused_is_no_create_and_what_is_made_counts_for_a_minute(
    served: Served,
) -> None:
    team = await add(served.service, creates_per_minute=2, max_nodes=100)
    service = served.service
    await create(service, team, Launch("team-1"))
    with pytest.raises(TooManyRuns):
        await create(service, team, Launch("team-2"), 200)
    served.let_pass(20.0)
    await create(service, team, Launch("team-2"))
    with pytest.raises(TooManyRequests) as caught:
        await create(service, team, Launch("team-3"))
    assert caught.value.hint == "wait 40 s"
    served.let_pass(40.0)
    await create(service, team, Launch("team-3"))


async def test_a_known_tenant_gets_other_limits_and_keeps_its_credential_until_it_gets_another(
    served: Served,
) -> None:
    tenants = served.service.tenants
    with pytest.raises(BadRequest, match="needs the SHA-256"):
        await tenants.put("team", TenantRequest(prefix="team-"))
    old = await add(served.service, max_runs=1)
    status = await tenants.put("team", TenantRequest(prefix="team-"))
    assert status == TenantStatus(name="team", prefix="team-")
    assert tenants.find(old) is not None
    with pytest.raises(TenantClash):
        await tenants.put("team", TenantRequest(prefix="other-"))
    new = await add(served.service)
    assert (tenants.find(old), tenants.find(new) is not None) == (None, True)


async def test_a_revoked_tenant_is_refused_and_its_runs_go_on(
    served: Served, asking: Asking
) -> None:
    team, launch = await add(served.service), Launch("team-a")
    await create(served.service, team, launch)
    bearer = (b"authorization", b"Bearer " + team.text().encode())
    scope = scope_of("GET", "/v1/runs/team-a/events", [bearer], "")
    caller = Caller(served.service, {**scope, "path_params": {"run": "team-a"}})
    caller.live = served.host(launch)
    stream = event_lines(caller, 0)
    assert b"created" in await anext(stream)
    waiting = asyncio.create_task(asking("GET", "/v1/runs/team-a?after=99&wait=20", team))
    await asyncio.sleep(0.05)
    assert (await served.service.tenants.remove("team")).usage.runs == 1
    with pytest.raises(NotFound, match="there is no tenant 'team' here"):
        await served.service.tenants.remove("team")
    for method, path, status in (
        ("GET", "/v1/runs/team-a", 404),
        ("GET", "/v1/runs", 401),
        ("PUT", "/v1/runs/team-b", 401),
    ):
        assert (await asking(method, path, team, spec(launch))).status == status
    await served.join(launch, 0)
    assert (await asking("GET", "/v1/runs/team-a", launch.keys.read)).status == 200
    assert (await asking("DELETE", "/v1/runs/team-a", launch.keys.admin)).status == 200
    # What it was waiting for is not told, and its stream ends before what happened later.
    assert (await waiting).problem == (401, "unauthorized")
    assert [line async for line in stream] == []


async def test_who_is_revoked_while_its_body_is_read_makes_no_run(served: Served) -> None:
    team = await add(served.service)
    tenant = served.service.access.creator("team-a", team)
    await served.service.tenants.remove("team")
    with pytest.raises(Unauthorized):
        await served.service.create("team-a", Launch("team-a").spec(2), tenant)
    assert served.service.sequencer.runs == {}


async def test_a_run_id_is_in_one_name_space_at_most(served: Served) -> None:
    for name in ("a", "a2", "b.c", "b-c", "team", "Z"):
        await add(served.service, name)
    found = {}
    for run in ("a-1", "a2-", "a2-x-y", "a3-1", "b.c-1", "b-c-1", "b-c", "team-", "Z-z", "0", "zz"):
        tenant = served.service.tenants.of(run)
        found[run] = tenant and tenant.name
    assert found == {
        "a-1": "a", "a2-": "a2", "a2-x-y": "a2", "a3-1": None, "b.c-1": "b.c", "b-c-1": "b-c",
        "b-c": None, "team-": "team", "Z-z": "Z", "0": None, "zz": None,
    }  # fmt: skip


async def test_a_registry_that_comes_back_knows_its_tenants(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first = Served(SqliteJournal(path), FakeClock())
    team = await add(first.service, max_runs=3)
    await first.journal.close()
    second = Served(SqliteJournal(path), FakeClock())
    again = await second.recovered()
    assert again.tenants.opens(team, "team-a")
    assert again.tenants.statuses().tenants[0].limits == TenantLimits(max_runs=3)
    await second.journal.close()


async def test_a_tenant_that_this_version_cannot_read_is_refused_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    service = Served(journal, FakeClock()).service
    team = await add(service)
    odd = "INSERT INTO tenants VALUES ('odd', '{\"prefix\": 1}')"
    await journal._run(lambda connection, _: connection.execute(odd), None)
    await service.tenants.read()
    assert service.tenants.opens(team, "team-a")
    await journal.close()
