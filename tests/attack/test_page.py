"""Strangers at the page: their web pages, their floods, and what they have left in a run."""

from __future__ import annotations

import itertools
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from launcher.state.state_dir import StateDir
from launcher.ui.page import saved_page
from launcher.ui.save import saved_of
from rendezvous.wire.node import Finding
from rendezvous.wire.run import NodeState, Phase, RunReport, SlotState
from tests.launcher.drive import slot, status
from tests.support.guarded import read_to_end
from tests.support.page_process import Page, page_of
from tests.support.pages import RUN, PageDoor, kept_run, page_door
from tests.support.waiting import until
from tests.ui import runs

ROUTES = [
    ("GET", "/"),
    ("GET", "/app.js"),
    ("GET", "/app.css"),
    ("POST", "/ui-api/session"),
    ("GET", "/ui-api/runs"),
    *(
        ("GET", f"/ui-api/runs/{RUN}/{view}")
        for view in (
            *("state", "stream", "changes", "checks", "matrix", "events", "environment", "logs"),
            *runs.of_features(4),
        )
    ),
    ("POST", f"/ui-api/runs/{RUN}/acts"),
]
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\x1b]0;x\x07\u202e\u2028\0'\"&"


# ---- pages of strangers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        {"host": "evil.example"},
        {"host": "evil.example", "origin": "http://evil.example"},
        {"host": "127.0.0.1.evil.example:29610"},
        {"host": "localhost.:29610"},
        {"host": "192.0.2.7:29610"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "cors"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "websocket", "upgrade": "websocket"},
    ],
)
async def test_no_other_page_reaches_a_route_whatever_it_has(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    kept_run(tmp_path)
    async with page_door(tmp_path) as door:
        for (method, path), session in itertools.product(ROUTES, (None, door.session())):
            answer = await door.ask(method, path, session, **shape)
            assert answer.problem in ((403, "forbidden"), (400, "bad_request")), (method, path)
            assert "access-control-allow-origin" not in answer.headers
        assert door.runs._viewed == {}


async def test_a_link_on_another_page_opens_the_page_and_shows_nothing_of_a_run(
    tmp_path: Path,
) -> None:
    kept_run(tmp_path)
    link: dict[str, Any] = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    async with page_door(tmp_path) as door:
        assert (await door.ask("GET", "/", **link)).status == 200
        answers = [await door.ask(method, path, **link) for method, path in ROUTES[3:]]
        assert {answer.status for answer in answers} == {401, 403}
        form = {"content_type": "text/plain"} | link
        answer = await door.ask("POST", "/ui-api/session", None, b'{"ticket": "x"}', **form)
        assert answer.status == 403


# ---- what strangers have left in a run -----------------------------------------------------------


def hostile_run(root: Path) -> StateDir:
    """A run whose nodes say what they should not."""
    state = kept_run(root, **{"node-0": f"{HOSTILE}\n" * 3})
    said: dict[str, Any] = dict.fromkeys(
        ("hostname", "address", "detail", "problem", "progress"), HOSTILE
    )
    row = slot(0, its=NodeState.RUNNING, state=SlotState.RUNNING, node=0, **said)
    said = dict.fromkeys(("reason", "trouble", "stall"), HOSTILE)
    stands = status(row, phase=Phase.RUNNING, epoch=1, min_nodes=1, max_nodes=1, **said)
    state.write("status.json", stands.model_dump_json().encode())
    markup = HOSTILE.partition("\x1b")[0]
    finding = Finding("L19", "warn", 0, subject=markup, value=markup, cause=markup, fix=markup)
    report = RunReport(run=RUN, hostnames={0: HOSTILE}, findings=[finding])
    state.write("report.json", report.model_dump_json().encode())
    return state


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


async def test_what_they_left_comes_out_as_text_that_moves_nothing(tmp_path: Path) -> None:
    hostile_run(tmp_path)
    async with page_door(tmp_path) as door:
        found = await everything(door)
        assert sum("onerror" in text for text in found) >= 6
        assert [text for text in found if not text.isprintable()] == []
        html = saved_page(await saved_of(door.runs.viewed(RUN))).decode()
    assert "onerror" in html
    assert not re.search(r"<img|</script><", html.partition("<script")[2])


async def everything(door: PageDoor) -> list[str]:
    """Each text in each view; each is JSON, and says so."""
    found = []
    session = door.session()
    for view in ("state", "checks", "matrix", "curves", "events", "logs"):
        answer = await door.ask("GET", f"/ui-api/runs/{RUN}/{view}", session)
        assert answer.status == 200
        assert answer.headers["content-type"] in ("application/json", "application/x-ndjson")
        for line in answer.body.splitlines():
            found += list(texts(json.loads(line)))
    return found


# ---- floods of a real process --------------------------------------------------------------------

SLOW = 40
LOG_MIB = 64
GROWTH_MIB = 64


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of a run whose output is long, and whose launcher was killed."""
    root = tmp_path_factory.mktemp("page")
    state = kept_run(root)
    line = b"x" * 1_023 + b"\n"
    (state.logs / "node-0.log").write_bytes(line * (LOG_MIB << 10))
    with page_of(root, run=RUN) as made:
        made.looker().wait("killed")
        yield made


def connected(page: Page) -> socket.socket:
    url = httpx.URL(page.base)
    made = socket.create_connection((url.host, url.port or 80), timeout=30)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    return made


def asked(page: Page, path: str, *headers: str, method: str = "GET") -> bytes:
    named = f"x-rdzv-session: {page.lookers[0].opened['session']}"
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", named, *headers, "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_whoever_never_reads_costs_nothing_and_holds_up_nobody(page: Page) -> None:
    process = psutil.Process(page.process.pid)
    looker = page.lookers[0]
    before = process.memory_info().rss
    slow = [connected(page) for _ in range(SLOW)]
    try:
        for client in slow[:20]:
            client.sendall(asked(page, f"/ui-api/runs/{RUN}/logs?lines=2000"))
        n = looker.state()["n"]
        for client in slow[20:]:
            client.sendall(asked(page, f"/ui-api/runs/{RUN}/stream?after={n}"))
        for _ in range(20):
            assert looker.state()["head"]["state"] == "killed"
            assert process.memory_info().rss - before < GROWTH_MIB << 20
    finally:
        for client in slow:
            client.close()
    until(lambda: len(process.net_connections()) < 10)


@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_a_web_socket_is_not_opened(page: Page) -> None:
    upgrade = ("Upgrade: websocket", "Sec-WebSocket-Key: eA==", "Sec-WebSocket-Version: 13")
    more = ("Connection: Upgrade", "Origin: http://localhost")
    with connected(page) as client:
        client.sendall(asked(page, f"/ui-api/runs/{RUN}/stream?after=1", *upgrade, *more))
        client.shutdown(socket.SHUT_WR)
        answer = read_to_end(client)
    assert not answer.startswith(b"HTTP/1.1 101")
    assert b"websocket" not in answer.lower().partition(b"\r\n\r\n")[0]
