"""Every route with every kind of credential: each cell of the matrix is asserted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from rendezvous.schema import ProbeReport
from rendezvous.security import SERVER_NAME, Credential, node_credential, parse_credential
from rendezvous.server.app import make_api, make_app
from rendezvous.server.guard import Guard
from rendezvous.server.journal import MemoryJournal
from rendezvous.server.service import Service
from tests.rendezvous.registry import Launch
from tests.rendezvous.served import OPERATOR, SECRET, Answer, FakeClock, Served, ask

GENERATION_2: dict[str, Any] = {"generation": 2, "join_id": "join-0-of-generation-2"}

OPEN, MINE, ANYBODYS, NOT_MINE, FOREIGN, FENCED = 200, 200, 401, 403, 404, 409
"""What a cell of the matrix may be."""

STRANGERS = {"none": 401, "garbage": 401}
WRONG = ("wrong join", "wrong node", "wrong read", "wrong admin")
OTHERS = ("other run's join", "other run's node", "other run's read", "other run's admin")
JOINS = ("join", "old join", "other slot's join")
NODES = ("node", "old node", "future node", "other slot's node")

EVERYONE = (
    *STRANGERS,
    *WRONG,
    *OTHERS,
    *JOINS,
    *NODES,
    "wrong registry",
    "read",
    "admin",
    "registry",
)

OPERATORS = (
    dict.fromkeys(EVERYONE, NOT_MINE) | STRANGERS | {"wrong registry": 401, "registry": MINE}
)
READERS = (
    dict.fromkeys(EVERYONE, FOREIGN)
    | STRANGERS
    | {"wrong registry": 401, "registry": MINE, "read": MINE, "admin": MINE}
    # A node that was replaced may still look at its run; "future node" is nobody's yet.
    | {"node": MINE, "old node": MINE, "other slot's node": MINE}
)
MAKERS = READERS | {"read": NOT_MINE} | dict.fromkeys(NODES, NOT_MINE) | {"future node": FOREIGN}
NODES_OWN = dict.fromkeys(EVERYONE, ANYBODYS) | {
    "node": MINE,
    "old node": FENCED,
    "other slot's node": NOT_MINE,
}
JOINERS = dict.fromkeys(EVERYONE, ANYBODYS) | {"join": MINE}

MATRIX: dict[tuple[str, str], dict[str, int]] = {
    ("GET", "/healthz"): dict.fromkeys(EVERYONE, OPEN),
    ("GET", "/metrics"): OPERATORS,
    ("GET", "/v1/runs"): OPERATORS,
    ("PUT", "/v1/runs/{run}"): OPERATORS,
    ("DELETE", "/v1/runs/{run}"): MAKERS,
    ("GET", "/v1/runs/{run}"): READERS,
    ("GET", "/v1/runs/{run}/events"): READERS,
    ("GET", "/v1/runs/{run}/tables/{digest}"): READERS,
    ("POST", "/v1/runs/{run}/slots/{slot}"): MAKERS,
    ("POST", "/v1/runs/{run}/nodes"): JOINERS,
    ("GET", "/v1/runs/{run}/nodes/{node}/watch"): NODES_OWN,
    ("POST", "/v1/runs/{run}/nodes/{node}/reports"): NODES_OWN,
}


class Stage:
    """Two runs in one registry; slot 0 of the first one is filled for the second time."""

    def __init__(self) -> None:
        self.served = Served(MemoryJournal(), FakeClock())
        self.mine = Launch("demo")
        self.other = Launch("other")
        self.shown: dict[str, Credential | str | None] = {}

    async def prepare(self) -> None:
        """Bring both runs to their tables."""
        self.served.start()
        for launch in (self.mine, self.other):
            await self.served.create(launch, 2)
            for slot in (0, 1):
                await self._join(launch, slot, "old node" if slot == 0 else "other slot's node")
        await self._replace_slot_0()
        for slot, incarnation in ((0, 2), (1, 1)):
            await self.served.report(self.mine, slot, ProbeReport(epoch=2), incarnation)
        self._collect()

    async def _join(self, launch: Launch, slot: int, name: str, **changes: Any) -> None:
        reply = await self.served.join(launch, slot, **changes)
        key = name if launch is self.mine else "other run's node"
        self.shown[key] = parse_credential(reply.credential)

    async def _replace_slot_0(self) -> None:
        slots = "/v1/runs/demo/slots/0"
        news = {
            "generation": 2,
            "state": "submitting",
            "token_sha256": self.mine.token(0, 2).sha256(),
        }
        app = make_app(self.served.service, allowed_hosts=[SERVER_NAME])
        assert (await ask(app, "POST", slots, self.mine.keys.admin, news)).status == 200
        await self._join(self.mine, 0, "node", **GENERATION_2)

    def _collect(self) -> None:
        mine, other, stranger = self.mine.keys, self.other.keys, Launch("demo").keys
        self.shown |= {
            "none": None,
            "garbage": "\x7f{}' OR 1=1 --",
            "join": mine.join_token(0, 2),
            "old join": mine.join_token(0, 1),
            "other slot's join": mine.join_token(1, 1),
            "future node": node_credential(
                self.served.service.access._key, "demo", "launch01", 0, 3
            ),
            "read": mine.read,
            "admin": mine.admin,
            "registry": OPERATOR,
            "wrong join": stranger.join_token(0, 2),
            "wrong node": node_credential(SECRET, "demo", "launch01", 0, 2),
            "wrong read": stranger.read,
            "wrong admin": stranger.admin,
            "wrong registry": Credential("registry", bytes(32)),
            "other run's join": other.join_token(0, 1),
            "other run's read": other.read,
            "other run's admin": other.admin,
        }

    def request(self, method: str, path: str, run: str = "demo") -> tuple[str, Any]:
        """A request of this route that is right in all but the credential."""
        table = self.served.host(self.mine).run
        bodies: dict[tuple[str, str], Any] = {
            ("PUT", "/v1/runs/{run}"): self.mine.spec(2).model_dump(mode="json"),
            ("POST", "/v1/runs/{run}/slots/{slot}"): {"generation": 2, "state": "running"},
            ("POST", "/v1/runs/{run}/nodes"): self.mine.join(0, **GENERATION_2).model_dump(
                mode="json"
            ),
            ("POST", "/v1/runs/{run}/nodes/{node}/reports"): {
                "kind": "progress",
                "epoch": 2,
                "words": "step 7",
            },
        }
        filled = path.format(run=run, slot=0, node=0, digest=table.digest)
        return filled, bodies.get((method, path), b"")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """The two runs."""
    made = Stage()
    await made.prepare()
    yield made
    await made.served.end()


@pytest.fixture(params=["hot", "cold"])
def app(request: pytest.FixtureRequest, stage: Stage) -> ASGIApp:
    """The application with its hot path, and the routes of FastAPI alone."""
    service = stage.served.service
    if request.param == "hot":
        return make_app(service, allowed_hosts=[SERVER_NAME])
    return Guard(make_api(service), allowed_hosts=[SERVER_NAME])


def test_every_route_has_its_row_and_every_row_its_route() -> None:
    api = make_api(Service(MemoryJournal(), b"", ""))
    routes = {
        (method, route.path)
        for route in api.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert routes == set(MATRIX)
    assert len(api.routes) == len(MATRIX)


@pytest.mark.parametrize(("method", "path"), MATRIX)
async def test_a_route_admits_those_it_is_for_and_nobody_else(
    stage: Stage, app: ASGIApp, method: str, path: str
) -> None:
    assert sorted(stage.shown) == sorted(EVERYONE)
    url, body = stage.request(method, path)
    found: dict[str, int] = {}
    for number, kind in enumerate(EVERYONE):
        source = f"10.0.0.{number}"  # or the wrong credentials of one would slow down the others
        answer = await ask(app, method, url, stage.shown[kind], body, source=source)
        found[kind] = answer.status
        if answer.status >= 400:
            answer.problem  # noqa: B018
    assert found == MATRIX[method, path]


@pytest.mark.parametrize(("method", "path"), [key for key in MATRIX if "{run}" in key[1]])
async def test_the_run_of_somebody_else_looks_like_one_that_is_not_there(
    stage: Stage, app: ASGIApp, method: str, path: str
) -> None:
    for kind in (*OTHERS, *WRONG, *STRANGERS):
        answers: list[Answer] = []
        for run in ("demo", "nosuch"):
            url, body = stage.request(method, path, run)
            answer = await ask(app, method, url, stage.shown[kind], body, source=f"{kind} {run}")
            answer.body = answer.body.replace(run.encode(), b"RUN")
            answer.headers.pop("content-length")
            answers.append(answer)
        assert answers[0] == answers[1]


async def test_a_join_with_the_token_of_an_old_generation_is_fenced(
    stage: Stage, app: ASGIApp
) -> None:
    body = stage.mine.join(0, attempt=9).model_dump(mode="json")
    answer = await ask(app, "POST", "/v1/runs/demo/nodes", stage.shown["old join"], body)
    assert answer.problem == (409, "fenced")
    assert "slot 0 belongs to generation 2" in answer.json["message"]


async def test_a_token_fits_its_own_slot_and_generation_alone(stage: Stage, app: ASGIApp) -> None:
    for slot, generation in ((1, 1), (0, 3), (1, 2), (2, 1), (19_999, 1)):
        request = stage.mine.join(0, **GENERATION_2)
        body = request.model_dump(mode="json") | {"slot": slot, "generation": generation}
        answer = await ask(app, "POST", "/v1/runs/demo/nodes", stage.shown["join"], body)
        assert answer.problem == (401, "unauthorized")


async def test_a_credential_counts_in_the_authorization_header_alone(
    stage: Stage, app: ASGIApp
) -> None:
    text = stage.mine.keys.read.text()
    url = f"/v1/runs/demo?authorization={text}&access_token={text}"
    for headers in (
        [(b"cookie", f"authorization={text}".encode())],
        [(b"x-authorization", f"Bearer {text}".encode())],
        [(b"authorization", f"Basic {text}".encode())],
        [(b"authorization", text.encode())],
        [(b"authorization", f"Bearer {text}x".encode())],
        [(b"authorization", f"Bearer {text[:-1]}".encode())],
        [(b"authorization", b"Bearer \xff\xfe")],
    ):
        assert (await ask(app, "GET", url, headers=headers)).problem == (401, "unauthorized")
    answer = await ask(app, "GET", url, headers=[(b"authorization", f"bearer {text}".encode())])
    assert answer.status == 200


async def test_nothing_of_a_body_is_read_before_the_credential_is_right(stage: Stage) -> None:
    """Somebody without a credential learns nothing of what the registry would say to a body."""
    app = make_app(stage.served.service, allowed_hosts=[SERVER_NAME])
    for method, path in MATRIX:
        if method in ("PUT", "POST"):
            url, _ = stage.request(method, path)
            answer = await ask(app, method, url, None, b"{")
            assert answer.problem == (401, "unauthorized")


async def test_the_answers_to_the_unwelcome_name_no_secret_of_the_run(
    stage: Stage, app: ASGIApp
) -> None:
    url, body = stage.request("POST", "/v1/runs/{run}/nodes")
    answer = await ask(app, "POST", url, stage.shown["wrong join"], body)
    assert answer.json == {
        "code": "unauthorized",
        "message": "this join token is not one of run 'demo', slot 0, generation 2",
        "hint": "this node was started with the RDZV_JOIN of another launch or slot; in a "
        "symmetric start, with another RDZV_ID than rank 0",
        "retryable": False,
    }
