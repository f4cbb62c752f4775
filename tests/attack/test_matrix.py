"""Every route and method with every kind of credential: the whole table is compared."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import AsyncIterator, Collection

import pytest

from rendezvous.registry.app import ROUTES as TABLE
from tests.attack.stage import DEMO, Stage
from tests.support.served import Answer
from tests.support.topics import ASKED, PUBLISHED

CODES = {
    200: "",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "fenced",
    410: "run_over",
}
"""What each number in the tables means: the answer's status, and the code of its refusal."""


ROUTES = {
    "ping": ("GET", "/healthz"),
    "ready": ("GET", "/readyz"),
    "text": ("GET", "/metrics"),
    "runs": ("GET", "/v1/runs"),
    "make": ("PUT", "/v1/runs/{run}"),
    "status": ("GET", "/v1/runs/{run}"),
    "events": ("GET", "/v1/runs/{run}/events"),
    "table": ("GET", "/v1/runs/{run}/tables/{digest}"),
    "checks": ("GET", "/v1/runs/{run}/report"),
    "words": ("GET", "/v1/runs/{run}/words"),
    "cancel": ("DELETE", "/v1/runs/{run}"),
    "restart": ("POST", "/v1/runs/{run}/restart"),
    "slot": ("POST", "/v1/runs/{run}/slots/{slot}"),
    "drain": ("POST", "/v1/runs/{run}/slots/{slot}/drain"),
    "seal": ("PUT", "/v1/runs/{run}/secrets"),
    "refuse": ("POST", "/v1/runs/{run}/slots/{slot}/refusal"),
    "join": ("POST", "/v1/runs/{run}/nodes"),
    "watch": ("GET", "/v1/runs/{run}/nodes/{node}/watch"),
    "ended": ("POST", "/v1/runs/{run}/nodes/{node}/watch"),
    "report": ("POST", "/v1/runs/{run}/nodes/{node}/reports"),
    "last": ("POST", "/v1/runs/{run}/nodes/{node}/words"),
    "give": ("POST", "/v1/runs/{run}/nodes/{node}/relay"),
    "take": ("GET", "/v1/runs/{run}/nodes/{node}/relay"),
    "sealed": ("GET", "/v1/runs/{run}/nodes/{node}/secrets"),
    "show": ("POST", "/v1/runs/{run}/views"),
    "shown": ("GET", "/v1/runs/{run}/views"),
    "lines": ("POST", "/v1/runs/{run}/nodes/{node}/views"),
    "teams": ("GET", "/v1/tenants"),
    "add": ("PUT", "/v1/tenants/{tenant}"),
    "revoke": ("DELETE", "/v1/tenants/{tenant}"),
    "wire": ("GET", "/v1/openapi.json"),
}
"""The columns of the tables that are a route of the core."""

OF_NODE = "/v1/runs/{run}/nodes/{node}/"
TOPICS = {
    **{
        f"kept {one.name}": ("GET", f"/v1/runs/{{run}}/{one.name}")
        for one in PUBLISHED
        if one.response
    },
    **{f"sent {one.name}": ("POST", f"{OF_NODE}{one.path}") for one in PUBLISHED},
    **{f"ask {one.name}": ("POST", f"/v1/runs/{{run}}/{one.name}") for one in ASKED},
    **{f"asked {one.name}": ("GET", f"/v1/runs/{{run}}/{one.name}") for one in ASKED},
    **{f"said {one.name}": ("POST", f"{OF_NODE}{one.name}") for one in ASKED},
}
"""Routes of what features publish and ask, each after the column that it is like."""

ALL = ROUTES | TOPICS

# A refusal to join is heard and changes nothing, where the slot has a live node or a newer one.
# A node that was replaced may still look at its run. A credential of the wrong kind is told so by
# the operator's routes, whoever's it is; the routes of a run tell nothing to those it is not for.
MATRIX = """\
                        ping ready text runs make status events table checks words cancel restart slot drain seal refuse join watch ended report last give take sealed show shown lines teams add revoke wire kept sent ask asked said
none                    200  200   401  401  401  401    401    401   401    401   401    401     401  401   401  401    401  401   401   401    401  401  401  401    401  401   401   401   401 401    401  401  401  401 401   401
garbage                 200  200   401  401  401  401    401    401   401    401   401    401     401  401   401  401    401  401   401   401    401  401  401  401    401  401   401   401   401 401    401  401  401  401 401   401
wrong join              200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
wrong node              200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
wrong read              200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
wrong look              200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
wrong logs              200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
wrong admin             200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
wrong metrics           200  200   401  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
wrong operator          200  200   401  401  401  401    401    401   401    401   401    401     401  401   401  401    401  401   401   401    401  401  401  401    401  401   401   401   401 401    401  401  401  401 401   401
wrong tenant            200  200   403  401  401  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
revoked tenant          200  200   403  401  401  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other tenant            200  200   403  200  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
replaced launch's join  200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
replaced launch's node  200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  410   410   410    410  410  410  410    404  404   410   403   403 403    403  404  410  404 404   410
replaced launch's read  200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
replaced launch's look  200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
replaced launch's logs  200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
replaced launch's admin 200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
old generation's join   200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  200    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other run's join        200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other run's node        200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other run's read        200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other run's look        200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other run's logs        200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other run's admin       200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other slot's join       200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
other slot's node       200  200   403  403  403  200    200    200   200    403   403    403     403  403   403  401    401  403   403   403    403  403  403  403    403  403   403   403   403 403    403  200  403  403 403   403
old incarnation's node  200  200   403  403  403  409    409    409   409    403   403    403     403  403   403  401    401  409   409   409    409  409  409  409    403  403   409   403   403 403    403  409  409  403 403   409
future node             200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
join                    200  200   403  403  403  404    404    404   404    404   404    404     404  404   404  200    200  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
node                    200  200   403  403  403  200    200    200   200    403   403    403     403  403   403  401    401  200   200   200    200  403  403  200    403  403   200   403   403 403    403  200  200  403 403   200
read                    200  200   403  403  403  200    200    200   200    403   403    403     403  403   403  401    401  401   401   401    401  401  401  401    403  403   401   403   403 403    403  200  401  403 403   401
look                    200  200   403  403  403  403    403    403   403    403   403    403     403  403   403  401    401  401   401   401    401  401  401  401    403  403   401   403   403 403    403  403  401  403 200   401
logs                    200  200   403  403  403  403    403    403   403    200   403    403     403  403   403  401    401  401   401   401    401  401  401  401    403  404   401   403   403 403    403  403  401  403 403   401
admin                   200  200   403  403  403  200    200    200   200    200   200    200     200  200   200  401    401  401   401   401    401  401  401  401    403  404   401   403   403 403    403  200  401  403 200   401
metrics                 200  200   200  403  403  404    404    404   404    404   404    404     404  404   404  401    401  401   401   401    401  401  401  401    404  404   401   403   403 403    403  404  401  404 404   401
tenant                  200  200   403  200  200  200    200    200   200    200   200    200     200  200   200  401    401  401   401   401    401  401  401  401    403  404   401   403   403 403    403  200  401  403 200   401
operator                200  200   200  200  200  200    200    200   200    200   200    200     200  200   200  401    401  401   401   401    401  401  401  401    403  404   401   200   200 200    200  200  401  403 200   401
"""  # noqa: E501 (a line is a credential)

CHANGES = (
    "make",
    "cancel",
    "slot",
    "seal",
    "join",
    "watch",
    "ended",
    "report",
    "sent",
    "last",
    "said",
    "lines",
    "add",
    "revoke",
)
"""The columns whose requests have an effect where they are allowed; a poll renews the lease."""
RENEWS = ("sealed", "give", "take")
"""Those that a live node's lease is renewed by, also where they are refused: it lives."""

METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "POST", "PATCH", "DELETE", "CONNECT", "BREW")


@contextlib.asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """Runs and credentials of this test's own."""
    stage = Stage()
    await stage.prepare()
    yield stage
    await stage.served.end()


def drawn(cells: dict[tuple[str, str], int]) -> str:
    """The table as it stands in this file."""
    kinds = list(dict.fromkeys(kind for kind, _ in cells))
    width = max(map(len, kinds))
    routes = list(dict.fromkeys(route for _, route in cells))
    lines = [" " * width + "".join(f" {route}" for route in routes)]
    for kind in kinds:
        row = "".join(f" {cells[kind, route]:<{len(route)}}" for route in routes)
        lines.append(f"{kind:<{width}}{row}".rstrip())
    return "\n".join(lines) + "\n"


def without(table: str, names: Collection[str]) -> str:
    """The table without these columns."""
    head, *rows = table.splitlines()
    columns = [(one.start(), one.group()) for one in re.finditer(r"\S+", head)]
    ends = [*(start for start, _ in columns[1:]), max(map(len, table.splitlines()))]
    width = columns[0][0]
    kept = [(s, e) for (s, name), e in zip(columns, ends, strict=True) if name not in names]
    lines = (line[:width] + "".join(line[s:e] for s, e in kept) for line in (head, *rows))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def statuses(kinds: list[str], route: str, answers: list[Answer]) -> dict[tuple[str, str], int]:
    """The cells of one column; every refusal has the code that its status means."""
    for answer in answers:
        if answer.status != 200:
            assert answer.problem == (answer.status, CODES[answer.status])
    return {(kind, route): answer.status for kind, answer in zip(kinds, answers, strict=True)}


def test_every_route_of_the_application_is_a_column() -> None:
    routes = sorted((route.method, route.path_format) for route in TABLE)
    assert routes == sorted(ALL.values())


NOTED = ("join", "refuse")
"""Whoever asks one of these with a token of another launch is kept as a stranger."""


async def test_each_credential_opens_what_it_is_for_and_changes_nothing_elsewhere() -> None:
    cells: dict[tuple[str, str], int] = {}
    for route, (method, path) in ALL.items():
        name = route.partition(" ")[0]
        async with staged() as stage:
            url, body = stage.request(method, path)
            kinds, answers, before = list(stage.shown), [], stage.before
            for kind in kinds:
                strangers = stage.strangers()
                answer = await stage.ask(method, url, stage.shown[kind], body, source=kind)
                after = stage.effects()
                lives = name in RENEWS and kind == "node"
                is_noted = name in NOTED and stage.strangers() == strangers + 1
                if (answer.status != 200 or name not in CHANGES) and not lives and not is_noted:
                    assert after == before, (name, kind)
                assert not is_noted or answer.status == 401, kind
                answers.append(answer)
                before = after
            found = statuses(kinds, name, answers)
            assert cells | found == found | cells, route  # all topics are alike
            cells |= found
            assert (before == stage.before) == (name not in CHANGES + RENEWS + NOTED), name
            # All are at one address, which is kept once.
            assert stage.strangers() == (name in NOTED), name
    there = {name.partition(" ")[0] for name in TOPICS}
    assert drawn(cells) == without(MATRIX, {"kept", "sent", "ask", "asked", "said"} - there)


REFUSED = {
    "replaced launch's node": 410,
    "other slot's node": 403,
    "old incarnation's node": 409,
    "node": 200,
}
"""Remote commands while the run is running: of its node alone, for itself."""


@pytest.mark.parametrize("name", ["give", "take"])
async def test_while_a_run_is_running_its_present_nodes_alone_pass_frames_on(name: str) -> None:
    async with staged() as stage:
        await stage.go()
        url, body = stage.request(*ROUTES[name])
        found = {}
        for kind, shown in stage.shown.items():
            before = stage.effects()
            found[kind] = (await stage.ask(ROUTES[name][0], url, shown, body, source=kind)).status
            changed = stage.effects() != before
            assert changed == (kind == "node"), kind  # its lease, and what it gives
    assert found == dict.fromkeys(stage.shown, 401) | REFUSED


async def test_no_page_reaches_a_route_whatever_it_shows() -> None:
    """Which requests are a page's is in tests/rendezvous/test_guard.py."""
    async with staged() as stage:
        origin = [(b"origin", b"null")]
        for method, path in ALL.values():
            url, body = stage.request(method, path)
            for shown in stage.shown.values():
                answer = await stage.ask(method, url, shown, body, headers=origin)
                assert answer.problem == (403, "forbidden"), (method, path)
        assert stage.effects() == stage.before


async def test_no_route_has_another_method_for_anybody() -> None:
    async with staged() as stage:
        before = stage.effects()
        for path in dict.fromkeys(path for _, path in ALL.values()):
            for method in METHODS:
                if (method, path) in ALL.values():
                    continue
                url, body = stage.request(method, path)
                for kind, shown in stage.shown.items():
                    answer = await stage.ask(method, url, shown, body, source=kind)
                    assert answer.problem == (405, "method_not_allowed"), (method, path, kind)
        assert stage.effects() == before


STRANGERS = (
    "none",
    "garbage",
    "wrong",
    "replaced",
    "other run",
    "future",
    "revoked",
    "other tenant",
)


async def test_the_run_of_somebody_else_looks_like_one_that_is_not_there() -> None:
    async with staged() as stage:
        for name, (method, path) in ALL.items():
            if "{run}" not in path or name == "make":
                continue
            for kind in (kind for kind in stage.shown if kind.startswith(STRANGERS)):
                answers: list[Answer] = []
                for run in (DEMO, "nosuch"):
                    url, body = stage.request(method, path, run)
                    shown = stage.shown[kind]
                    source = f"{name} {kind} {run}"  # one that fails too often is answered 429
                    answer = await stage.ask(method, url, shown, body, source=source)
                    answer.body = answer.body.replace(run.encode(), b"RUN")
                    answer.headers.pop("content-length")
                    answers.append(answer)
                if answers[0].status == 410:  # it was one of this run's, and is told how that ended
                    continue
                assert answers[0] == answers[1], (name, kind)


async def test_a_credential_counts_in_the_authorization_header_alone() -> None:
    async with staged() as stage:
        text = stage.mine.keys.read.text()
        basic = base64.b64encode(f"user:{text}".encode())
        url = f"/v1/runs/{DEMO}?authorization={text}&access_token={text}"
        for headers in (
            [(b"cookie", f"authorization={text}".encode())],
            [(b"x-authorization", f"Bearer {text}".encode())],
            [(b"proxy-authorization", f"Bearer {text}".encode())],
            [(b"authorization", f"Basic {text}".encode())],
            [(b"authorization", b"Basic " + basic)],
            [(b"authorization", text.encode())],
            [(b"authorization", f"Bearer {text}x".encode())],
            [(b"authorization", f"Bearer {text[:-1]}".encode())],
            [(b"authorization", f"Bearer  {text}".encode())],
            [(b"authorization", b"Bearer \xff\xfe")],
        ):
            assert (await stage.ask("GET", url, headers=headers)).problem == (401, "unauthorized")
        right = [(b"authorization", f"bearer {text}".encode())]
        assert (await stage.ask("GET", url, headers=right)).status == 200
