"""The page's application: who is let in to what, and what it says to everybody else."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from launcher.ui import app as app_module
from launcher.ui.app import MOST_STREAMS
from launcher.ui.clerk import Keys
from launcher.ui.sessions import IDLE_SECONDS
from rendezvous.talk.credentials import RunKeys
from rendezvous.version import rdzv_version
from rendezvous.wire.protocol import PROTOCOL
from tests.support.pages import RUN, PageDoor, kept_run, page_door
from tests.support.served import Answer
from tests.support.waiting import soon
from tests.ui import runs

RUN_PATH = f"/ui-api/runs/{RUN}"
VIEWS = ("state", "changes", "checks", "matrix", "events", "stream", "logs", *runs.of_features(4))
ROUTES = {
    "/ui-api/session": "POST",
    "/ui-api/runs": "GET",
    **{f"{RUN_PATH}/{view}": "GET" for view in (*VIEWS, "environment")},
    f"{RUN_PATH}/acts": "POST",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
KEY = "correct horse battery"


@pytest_asyncio.fixture
async def door(tmp_path: Path) -> AsyncIterator[PageDoor]:
    """A page that shows and does not act, of one run whose launcher was killed."""
    kept_run(tmp_path)
    async with page_door(tmp_path) as made:
        yield made


def first_line(body: bytes) -> bool:
    return b"\n" in body


# ---- the page and its sessions -------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "/any/prefix", "/ui-apiary", "/%2e%2e", "/a%2Fb"])
async def test_the_page_itself_is_there_for_everybody_under_any_prefix(
    door: PageDoor, prefix: str
) -> None:
    for name, media in (("", "html"), ("app.css", "css"), ("app.js", "javascript")):
        answer = await door.ask("GET", f"{prefix}/{name}")
        assert (answer.status, answer.headers["content-type"]) == (
            200,
            f"text/{media}; charset=utf-8",
        )
        assert RUN.encode() not in answer.body


@pytest.mark.parametrize("name", ["favicon.ico", "app.py", "..", "app.js/x", "%00", "index.html"])
async def test_there_is_no_other_file(door: PageDoor, name: str) -> None:
    assert (await door.ask("GET", f"/{name}")).problem == (404, "not_found")


async def test_pages_of_the_documentation_are_there_as_text(door: PageDoor) -> None:
    answer = await door.ask("GET", "/a/prefix/docs/checks.md")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert "- `L04` all rails" in answer.body.decode()
    for path in ("/docs/nosuch.md", "/docs/../pyproject.md", "/docs/%2e%2e/README.md", "/docs/"):
        found = await door.ask("GET", path)
        assert b"# " not in found.body[:2], path
    assert (await door.ask("GET", "/docs/nosuch.md")).problem == (404, "not_found")
    assert (await door.ask("POST", "/docs/checks.md")).status == 405


async def test_the_page_is_compressed_where_the_browser_takes_that(door: PageDoor) -> None:
    plain = await door.ask("GET", "/app.js")
    small = await door.ask("GET", "/app.js", accept_encoding="br, gzip")
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert small.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert gzip.decompress(small.body) == plain.body
    few = await door.ask("GET", "/ui-api/runs", door.session(), accept_encoding="gzip")
    assert "content-encoding" not in few.headers


async def test_a_page_of_another_protocol_is_refused_by_name(door: PageDoor) -> None:
    """A tab that a former server has filled asks the next one at the same address."""
    index = (await door.ask("GET", "/")).body.decode()
    found = re.search(r'<meta name="x-rdzv-protocol" content="([^"]+)">', index)
    assert found is not None
    own = f"protocol {PROTOCOL} (rdzv {rdzv_version()})"
    assert found[1] == f"{PROTOCOL} {rdzv_version()} this page"
    session, other = door.session(), f"{PROTOCOL + 1} 0.9 this page"
    assert (await door.ask("GET", "/ui-api/runs", session, x_rdzv_protocol=found[1])).status == 200
    for method, path in (("GET", "/ui-api/runs"), ("POST", "/ui-api/session")):
        answer = await door.ask(method, path, session, x_rdzv_protocol=other)
        assert answer.json == {
            "code": "other_protocol",
            "message": f"this page speaks protocol {PROTOCOL + 1} (rdzv 0.9), but the 'rdzv ui' "
            f"that serves it speaks {own}",
            "hint": "load this page again",
            "retryable": False,
        }
    assert (await door.ask("GET", "/", x_rdzv_protocol=other)).status == 200


async def test_a_ticket_opens_a_session_once(door: PageDoor) -> None:
    ticket = door.sessions.ticket(asyncio.get_running_loop().time())
    opened = await door.ask("POST", "/ui-api/session", body={"ticket": ticket})
    assert (opened.json["run"], opened.json["actions"]) == (RUN, False)
    assert (await door.ask("GET", "/ui-api/runs", opened.json["session"])).status == 200
    again = await door.ask("POST", "/x/ui-api/session", body={"ticket": ticket})
    assert again.problem == (401, "unauthorized")


async def test_the_key_of_a_person_opens_a_session(tmp_path: Path) -> None:
    kept_run(tmp_path)
    async with page_door(tmp_path, key=KEY) as door:
        assert (await door.ask("POST", "/ui-api/session", body={"key": KEY})).status == 200
        for body in ({"key": KEY + "x"}, {"key": ""}, {}, {"ticket": KEY}, {"key": None}):
            answer = await door.ask("POST", "/ui-api/session", body=body)
            assert answer.problem == (401, "unauthorized")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b'{"ticket": 7}',
        b'{"ticket": NaN}',
        b'{"ticket": ["x"]}',
        b'{"ticket": "x", "more": 1}',
        b'{"ticket": "\\ud800"}',
        b'{"key": {"$ne": ""}}',
        b"[" * 60_000,
    ],
    ids=range(13),
)
async def test_what_is_no_login_is_refused_and_not_repeated(door: PageDoor, body: bytes) -> None:
    answer = await door.ask("POST", "/ui-api/session", body=body)
    assert answer.problem == (400, "bad_request")
    assert answer.json["message"] == "a session is opened with a ticket or a key"


async def test_a_body_that_is_too_long_is_not_read(door: PageDoor) -> None:
    for path in ("/ui-api/session", f"{RUN_PATH}/acts"):
        answer = await door.ask("POST", path, door.session(), content_length=str(1 << 17))
        assert answer.problem == (413, "too_large")
        assert answer.headers["connection"] == "close"


async def test_who_guesses_is_told_to_wait_and_nobody_else_is(
    door: PageDoor, caplog: pytest.LogCaptureFixture
) -> None:
    guesses = [{"ticket": f"guess-{number}"} for number in range(30)]
    answers = [await door.ask("POST", "/ui-api/session", body=guess) for guess in guesses]
    assert [answer.problem for answer in answers[:20]] == [(401, "unauthorized")] * 20
    assert answers[-1].problem == (429, "too_many_requests")
    assert answers[-1].json["retryable"]
    assert answers[-1].headers["retry-after"] == "1"
    other = await door.ask("POST", "/ui-api/session", body=guesses[0], source="10.0.0.9")
    assert other.status == 401
    ticket = door.sessions.ticket(asyncio.get_running_loop().time())
    assert (await door.ask("POST", "/ui-api/session", body={"ticket": ticket})).status == 200
    everything = caplog.text.encode() + b"".join(answer.body for answer in answers)
    assert b"guess-" not in everything


# ---- every route, for everybody ------------------------------------------------------------------


async def outcomes(door: PageDoor, session: str | None, method: str, path: str) -> Answer:
    body = {"act": "cancel"} if path.endswith("/acts") else b""
    ends = path.endswith(("stream", "logs"))
    enough = first_line if ends else (lambda body: False)
    return await door.ask(method, path, session, body, enough=enough)


async def test_without_an_open_session_nothing_is_told(door: PageDoor) -> None:
    old = door.session()
    await door.ask("GET", "/ui-api/runs", old)
    now = asyncio.get_running_loop().time()
    assert not door.sessions.is_good(old, now + IDLE_SECONDS + 1)
    shown: list[str | None] = [None, "", "x", old, "\xff", "a" * 8_000]
    others = ["/ui-api/", "/ui-api/runs/nosuch/state", "/ui-api/what", "/x/ui-api/runs/a/b/c"]
    for path, session in itertools.product([*ROUTES, *others], shown):
        if path == "/ui-api/session":
            continue
        for method in METHODS:
            answer = await outcomes(door, session, method, path)
            assert answer.problem == (401, "unauthorized"), (method, path)
            assert "rdzv ui" in answer.json["hint"]
    assert door.runs._viewed == {}, "and nothing is begun"


async def test_each_route_takes_its_method_alone(door: PageDoor) -> None:
    session = door.session()
    for path, method in itertools.product(ROUTES, METHODS):
        answer = await outcomes(door, session, method, path)
        expected = 200
        if method != ROUTES[path]:
            expected = 405
        elif path.endswith("/session"):
            expected = 400
        elif path.endswith("/acts"):
            expected = 403
        elif path.endswith("/environment"):
            expected = 404
        assert answer.status == expected, (method, path)
        if expected != 200:
            assert answer.problem[0] == expected
    for name, method in itertools.product(("/", "/app.js", "/app.css"), METHODS):
        answer = await door.ask(method, name)
        assert answer.status == (200 if method == "GET" else 405)


@pytest.mark.parametrize(
    "path",
    [
        "/ui-api/",
        "/ui-api/run",
        "/ui-api/runs/",
        "/ui-api/runs/llama",
        "/ui-api/runs/llama/",
        "/ui-api/runs/llama/what",
        "/ui-api/runs/llama/state/",
        "/ui-api/runs/llama/state/x",
        "/ui-api/runs//state",
        "/ui-api/runs/nosuch/state",
        "/ui-api/runs/../state",
        "/ui-api/runs/%2e%2e/state",
        "/ui-api/runs/..%2fllama/state",
        "/ui-api/runs/%252e%252e/state",
        "/ui-api/runs/%6clama%00/state",
        "/ui-api/runs/llama%20/state",
        "/ui-api/runs/%25%36%63lama/state",
        "/ui-api/runs/%3Cscript%3E/state",
        "/ui-api/runs/%1b%5b2J/state",
        f"/ui-api/runs/{'a' * 64}/state",
        f"/ui-api/runs/{'a' * 3_000}/state",
        "/ui-api/ui-api/runs",
        "/UI-API/runs",
    ],
    ids=range(23),
)
async def test_a_path_that_leads_nowhere_is_said_to(door: PageDoor, path: str) -> None:
    answer = await door.ask("GET", path, door.session())
    assert answer.problem == (404, "not_found")
    assert answer.json["message"].isprintable()
    assert len(answer.json["message"]) < 200


@pytest.mark.parametrize("prefix", ["/any/prefix", "/proxy/8080", "/a%20b", "/%75i-api-not"])
async def test_the_routes_are_there_under_any_prefix(door: PageDoor, prefix: str) -> None:
    answer = await door.ask("GET", f"{prefix}{RUN_PATH}/state", door.session())
    assert (answer.status, answer.json["head"]["run"]) == (200, RUN)


# ---- what is asked -------------------------------------------------------------------------------

BAD_NUMBERS = ("-1", "1.5", "x", "0x10", "1e3", "NaN", "٣", "9" * 30, "%00", "+1")


@pytest.mark.parametrize("number", BAD_NUMBERS)
async def test_what_is_no_number_is_refused(door: PageDoor, number: str) -> None:
    session = door.session()
    for query in (
        f"stream?after={number}",
        f"changes?after={number}",
        f"events?before={number}",
        f"environment?node={number}",
        f"logs?node={number}",
        f"logs?rank={number}",
        f"logs?epoch={number}",
        f"logs?lines={number}",
    ):
        path = f"{RUN_PATH}/{query}"
        answer = await door.ask("GET", path.encode().decode("latin-1"), session)
        assert answer.problem == (400, "bad_request"), query


@pytest.mark.parametrize(
    "query",
    [
        "state?" + "&".join(f"a{number}=1" for number in range(100)),
        "logs?level=fatal",
        "logs?node=1&rank=2",
        "logs?lines=99999999999",
        "logs?" + "&".join(["grep=x"] * 20),
        "logs?grep=" + "x" * 101,
    ],
    ids=range(6),
)
async def test_a_query_that_asks_for_too_much_is_refused(door: PageDoor, query: str) -> None:
    answer = await door.ask("GET", f"{RUN_PATH}/{query}", door.session())
    assert answer.problem == (400, "bad_request")


async def test_what_a_query_has_beside_is_left_alone(door: PageDoor) -> None:
    answer = await door.ask("GET", f"{RUN_PATH}/events?before=&x=%ff&before", door.session())
    assert (answer.status, answer.json) == (200, [])
    for query, status in (("before=x&before=1", 200), ("before=1&before=x", 400)):  # the last one
        answer = await door.ask("GET", f"{RUN_PATH}/events?{query}", door.session())
        assert answer.status == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"act": "format"}',
        b'{"act": "drain", "node": -1}',
        b'{"act": "drain", "node": 1e9}',
        b'{"act": "drain", "node": 1.5}',
        b'{"act": "drain", "seconds": NaN}',
        b'{"act": "drain", "seconds": Infinity}',
        b'{"act": "drain", "seconds": -1}',
        b'{"act": "cancel", "run": "other"}',
        b'{"act": "cancel", "reason": 7}',
    ],
)
async def test_what_is_no_act_is_refused(door: PageDoor, body: bytes) -> None:
    answer = await door.ask("POST", f"{RUN_PATH}/acts", door.session(), body)
    assert answer.problem == (400, "bad_request")


@pytest.mark.parametrize("act", ["cancel", "restart", "drain"])
async def test_a_page_without_acts_refuses_each_and_says_what_to_do(
    door: PageDoor, act: str
) -> None:
    answer = await door.ask("POST", f"{RUN_PATH}/acts", door.session(), {"act": act, "node": 0})
    assert answer.problem == (403, "forbidden")
    assert answer.json["hint"] == f"start it with: rdzv ui {RUN} --ui-actions"


async def test_with_acts_the_session_says_so_and_a_run_that_is_over_takes_none(
    tmp_path: Path,
) -> None:
    kept_run(tmp_path)
    made = RunKeys(bytes(32), RUN, "k7f2a9c1xy")
    keys = Keys(made.read, made.logs, made.look, made.admin)
    async with page_door(tmp_path, keys=keys) as door:
        ticket = door.sessions.ticket(asyncio.get_running_loop().time())
        opened = (await door.ask("POST", "/ui-api/session", body={"ticket": ticket})).json
        assert opened["actions"] is True
        answer = await door.ask("POST", f"{RUN_PATH}/acts", opened["session"], {"act": "cancel"})
        assert answer.problem == (503, "unavailable")
        texts = [made.admin.text(), made.read.text(), made.secret.hex()]
        assert not [text for text in texts if text in answer.body.decode()]


async def test_a_run_whose_launcher_was_killed_is_told_of(door: PageDoor) -> None:
    session = door.session()
    state = (await door.ask("GET", f"{RUN_PATH}/state", session)).json
    assert (state["head"]["state"], state["head"]["over"]) == ("killed", True)
    changes = await door.ask("GET", f"{RUN_PATH}/changes?after={state['n']}", session)
    assert changes.json == []
    assert (await door.ask("GET", f"{RUN_PATH}/changes?after=7", session)).json == [
        {"n": state["n"], "reset": True}
    ]
    [listed] = (await door.ask("GET", "/ui-api/runs", session)).json
    assert (listed["run"], listed["state"]) == (RUN, "killed")


# ---- streams -------------------------------------------------------------------------------------


async def test_a_stream_begins_at_once_and_a_number_of_before_starts_anew(door: PageDoor) -> None:
    session = door.session()
    state = (await door.ask("GET", f"{RUN_PATH}/state", session)).json
    answer = await door.ask("GET", f"{RUN_PATH}/stream?after=5", session)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["x-accel-buffering"] == "no"
    first, last = map(json.loads, answer.body.splitlines())
    assert first == {"n": 5, "beat": True}
    assert last == {"n": state["n"], "reset": True}


async def test_streams_are_counted_also_of_those_who_come_at_once(
    door: PageDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "MOST_STREAMS", 8)
    assert MOST_STREAMS == 64
    session = door.session()
    n = (await door.ask("GET", f"{RUN_PATH}/state", session)).json["n"]
    leave, path = asyncio.Event(), f"{RUN_PATH}/stream?after={n}"

    async def stay() -> Answer:
        return await door.ask("GET", path, session, enough=lambda body: leave.is_set())

    viewed = door.runs.viewed(RUN)
    coming = [asyncio.create_task(stay()) for _ in range(20)]
    await soon(lambda: viewed._viewers == 8)
    await soon(lambda: sum(task.done() for task in coming) == 12)
    refused = [task.result() for task in coming if task.done()]
    assert [answer.problem for answer in refused] == [(503, "unavailable")] * 12
    leave.set()
    viewed.told.say("something new")
    viewed._publish()
    answers = await asyncio.gather(*coming)
    assert sum(answer.status == 200 for answer in answers) == 8
    await soon(lambda: viewed._viewers == 0)
    assert (await door.ask("GET", path, session, enough=first_line)).status == 200


async def test_logs_are_pieces_of_text_whatever_is_in_them(tmp_path: Path) -> None:
    bad = "</script><img onerror=x>\x1b[2J\u202e\0"
    kept_run(tmp_path, **{"node-0": f"step 1\n{bad}\n{'x' * 70_000}\n"})
    async with page_door(tmp_path) as door:
        answer = await door.ask("GET", f"{RUN_PATH}/logs", door.session())
        pieces: list[dict[str, Any]] = list(map(json.loads, answer.body.splitlines()))
        assert pieces[-1] == {"over": True}
        lines = [line for piece in pieces for line in piece.get("lines", [])]
        assert lines[0] == "step 1"
        assert all(line.isprintable() for line in lines)
        assert max(map(len, lines)) < 20_000
        assert "</script>" in lines[1]
        some = await door.ask("GET", f"{RUN_PATH}/logs?grep=step", door.session())
        found = [json.loads(piece) for piece in some.body.splitlines()]
        assert [one for piece in found for one in piece.get("lines", [])] == ["step 1"]


async def test_at_the_end_of_the_process_streams_end_and_are_not_waited_for(
    door: PageDoor,
) -> None:
    session, told = door.session(), asyncio.Event()
    n = (await door.ask("GET", f"{RUN_PATH}/state", session)).json["n"]
    said: list[str] = []

    async def receive() -> dict[str, Any]:
        if said:
            await told.wait()
            return {"type": "lifespan.shutdown"}
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        said.append(message["type"])

    life = asyncio.ensure_future(door.app({"type": "lifespan"}, receive, send))
    await soon(lambda: said)
    stream = asyncio.create_task(door.ask("GET", f"{RUN_PATH}/stream?after={n}", session))
    viewed = door.runs.viewed(RUN)
    await soon(lambda: viewed._viewers)
    door.served.closing.set()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert viewed._viewers == 0
    told.set()
    await life
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
