"""What web pages can make a browser send, to every route of a real registry.

A page cannot send our credential: it has none. Here each request carries the right one all the
same, so that what is tested is the door before it, and carries none, so that nothing depends on
the door alone.

Replayed are the two published attacks on Ray's job server, CVE-2025-62593 (DNS rebinding, with a
User-Agent that the page chose) and CVE-2026-27482 (the guard knew POST and PUT, and not DELETE).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rendezvous.server.journal import Record, read_journal
from rendezvous.talk.credentials import SERVER_NAME, Credential, parse_credential
from tests.attack.test_matrix import ROUTES
from tests.support.registry import Launch, Node, Registry, running

EVIL = "evil.example"
RIGHT = f"Host: {SERVER_NAME}"
CHROME = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/141.0 Safari/537.36"
FORGED = "User-Agent: curl/8.5.0"
"""Firefox and Safari let a page choose its User-Agent, so a guard that looks at it is none."""


@dataclass(frozen=True)
class Shape:
    """How a browser would send a request."""

    headers: tuple[str, ...]
    target: str = "{path}"
    version: str = "HTTP/1.1"
    method: str = ""
    refusals: tuple[int, ...] = (400, 403)


def _rebound(*headers: str) -> Shape:
    """The page's own name leads to the registry now: to the browser it is the same origin."""
    return Shape((f"Host: {EVIL}:29600", *headers))


def _cross(*headers: str, method: str = "") -> Shape:
    """A page of another origin."""
    return Shape((RIGHT, f"Origin: https://{EVIL}", *headers), method=method)


def _fetch(site: str) -> tuple[str, ...]:
    return (f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty")


def _host(value: str) -> Shape:
    return Shape((f"Host: {value}",))


SAME = f"Origin: http://{EVIL}:29600"
JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"

# What the guard makes of a name or a site is in tests/rendezvous/test_guard.py.
SHAPES = {
    # CVE-2025-62593: DNS rebinding, and a User-Agent of the page's choice
    "rebinding, Chrome": _rebound(SAME, CHROME, JSON, *_fetch("same-origin")),
    "rebinding, forged agent": _rebound(SAME, FORGED, JSON),
    # CVE-2026-27482: methods that the guard forgot, here with each route's own
    "cross-site, Chrome": _cross(CHROME, JSON, *_fetch("cross-site")),
    "preflight": _cross("Access-Control-Request-Method: DELETE", method="OPTIONS"),
    # Simple requests, which need no preflight
    "form post, null origin": Shape((RIGHT, "Origin: null", FORM)),
    "two sites": Shape((RIGHT, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: none")),
    "two sites, turned": Shape((RIGHT, "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site")),
    "empty origin": Shape((RIGHT, "Origin:")),
    "web socket": _cross("Upgrade: websocket", "Connection: Upgrade"),
    # Names that look like ours
    "a dot at the end": _host(f"{SERVER_NAME}."),
    "user and host": _host(f"{SERVER_NAME}@{EVIL}"),
    "a list": _host(f"{SERVER_NAME}, {EVIL}"),
    "no host": Shape(()),
    "two hosts": Shape((RIGHT, f"Host: {EVIL}")),
    "two hosts, turned": Shape((f"Host: {EVIL}", RIGHT)),
    "a folded host": Shape((f"Host: {EVIL}\r\n {SERVER_NAME}",)),
    "absolute target, other host": Shape((f"Host: {EVIL}",), f"http://{SERVER_NAME}{{path}}"),
    "absolute target, other name": Shape((RIGHT,), f"http://{EVIL}{{path}}", refusals=(404,)),
    "overridden method": Shape((f"Host: {EVIL}", "X-HTTP-Method-Override: DELETE"), method="GET"),
    "a tunnel": Shape((RIGHT,), f"{EVIL}:443", method="CONNECT", refusals=(404,)),
    "HTTP/2": Shape((RIGHT,), "*", "HTTP/2.0", "PRI", refusals=(404,)),
    "HTTP/0.9": Shape((), version=""),
}


@dataclass
class Scene:
    """A registry with a run whose nodes have joined."""

    registry: Registry
    launch: Launch
    node: Credential | None

    @property
    def records(self) -> list[Record]:
        """All that has ever happened."""
        return read_journal(self.registry.journal)

    def paths(self) -> Iterator[tuple[str, str, bytes, Credential | None]]:
        """Method, path, body and the right credential of each route."""
        keys = self.launch.keys
        bodies: dict[str, object] = {
            "make": Launch("new").spec(2).model_dump(mode="json"),
            "slot": {"generation": 1, "state": "failed"},
            "join": self.launch.join(1).model_dump(mode="json"),
            "refuse": {"hostname": "h", "code": "usage", "reason": "no", "exit_code": 82},
            "report": {"kind": "leave"},
            "steps": {"first": 1, "rows": []},
            "give": {"parcels": [{"peer": 1, "frame": {"kind": "end", "number": 1}}]},
        }
        shown = dict.fromkeys(("watch", "report", "steps", "give", "take"), self.node)
        shown |= {"join": self.launch.token(1), "refuse": self.launch.token(0)}
        for name, (method, route) in ROUTES.items():
            run = "new" if name == "make" else self.launch.run
            body = json.dumps(bodies[name]).encode() if name in bodies else b""
            path = route.format(run=run, slot=0, node=0, digest="0" * 64)
            operators = name in ("text", "runs", "make")
            right = self.registry.operator if operators else shown.get(name, keys.admin)
            yield method, path, body, right

    def send(self, shape: Shape, method: str, path: str, body: bytes, bearer: str) -> bytes:
        """All that the registry answers to a request of this shape."""
        words = (shape.method or method, shape.target.format(path=path), shape.version)
        lines = [" ".join(word for word in words if word), *shape.headers]
        if bearer:
            lines.append(f"Authorization: {bearer}")
        lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
        return exchange(self.registry.port, "\r\n".join(lines).encode() + body)


def exchange(port: int, data: bytes) -> bytes:
    """Send on a connection of its own; what came back until the other side closed."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(65536):
                received += piece
    return received


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A registry that is attacked by all tests of this file, in vain."""
    launch = Launch("demo")
    # Where a closed connection says nothing: the node has none while the attacks go on.
    with running(tmp_path_factory.mktemp("registry"), trust_close=False) as registry:
        credential = asyncio.run(_one_node(registry, launch))
        yield Scene(registry, launch, parse_credential(credential))


async def _one_node(registry: Registry, launch: Launch) -> str:
    await registry.create(launch, 2, lease_seconds=3600)
    async with Node(registry.place, launch, 0) as node:
        return (await node.join()).credential


def check_answer(answer: bytes, shape: Shape, path: str) -> None:
    """It is one of the shape's refusals, and invites no page."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"access-control-" not in head.lower()
    assert b"set-cookie" not in head.lower()
    status = int(head.split(b" ", 2)[1])
    if path == "/healthz" and status == 200:
        assert body == b"ok\n"
        return
    assert status in shape.refusals
    if b"HEAD" not in head:
        assert sorted(json.loads(body)) == ["code", "hint", "message", "retryable"]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_no_page_reaches_a_route_even_with_the_right_credential(scene: Scene, shape: Shape) -> None:
    before = scene.records
    for method, path, body, credential in scene.paths():
        assert credential is not None
        for bearer in (f"Bearer {credential.text()}", ""):
            check_answer(scene.send(shape, method, path, body, bearer), shape, path)
    assert scene.records == before


def test_a_request_that_no_page_made_gets_through_and_no_page_may_read_the_answer(
    scene: Scene,
) -> None:
    """Else the tests above would be refused for something else."""
    shape = Shape((f"Host: {SERVER_NAME.upper()}:{scene.registry.port}",))
    found = {}
    for method, path, body, credential in scene.paths():
        if path.endswith("/events"):  # it never ends
            continue
        assert credential is not None
        answer = scene.send(shape, method, path, body, f"Bearer {credential.text()}")
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert b"access-control-" not in head
        assert b"x-content-type-options: nosniff" in head
        assert b"cache-control: no-store" in head
        found[method, path.removeprefix("/v1/runs/")] = int(head.split(b" ", 2)[1])
    refused = {key: status for key, status in found.items() if status != 200}
    assert refused == {
        ("GET", "demo/tables/" + "0" * 64): 404,
        ("POST", "demo/nodes"): 410,
        ("POST", "demo/nodes/0/relay"): 403,  # this run allows no remote commands
        ("GET", "demo/nodes/0/relay"): 403,
    }
