"""A small server that speaks the page's contract, and misbehaves on request."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from socket import socket
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from launcher.ui.page import SECURITY_POLICY, load
from launcher.ui.shapes import Change, Opened
from tests.ui import runs

FIRST = 10
"""The number of the newest change in a state."""
TICKET, KEY, SESSION = "ticket-1", "key-1", "session-1"
_RUN = re.compile(r"ui-api/runs/[^/]+/(\w+)")


class Stub:
    """What is served; a test changes it while the page looks on.

    Attributes:
        answers: By name: of a run's routes, and `runs`. An int is an error of that status.
        silent: Streams are accepted and nothing is sent, as by a proxy that keeps it.
        broken: The end of a stream is an error of the network.
        asked: Each request: method, path with its query, headers.
    """

    def __init__(self, nodes: int = 4, how: runs.How = "running", prefix: str = "") -> None:
        self.prefix = prefix
        self.opened = Opened(session=SESSION, run="demo", actions=True, version="0.1.0")
        self.answers: dict[str, Any] = {
            "runs": runs.run_rows(),
            "state": runs.state(nodes, how),
            **runs.views(nodes),
            "events": [runs.event(number) for number in range(100, 300)],
            **runs.acts(),
        }
        self.logs: list[Any] = list(runs.logs(how))
        self.changes: list[Change] = []
        self.silent = self.broken = False
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.acts: list[dict[str, Any]] = []
        self.session_ok = True
        self.refusal: dict[str, Any] = {}
        self.news = threading.Condition()
        self._cuts = self._live = 0
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    # ---- what tests do ----------------------------------------------------------------------

    def start(self) -> None:
        """Serve, on the same port as before."""
        stub = self

        class Handler(_Handler):
            of = stub

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be gone, with every connection."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        self.cut()

    def cut(self) -> None:
        """End all streams."""
        with self.news:
            self._cuts += 1
            self.news.notify_all()

    def streams(self, count: int) -> None:
        """Wait until so many streams are read."""
        with self.news:
            assert self.news.wait_for(lambda: self._live == count, 15), f"{self._live} streams"

    def change(self, **what: Any) -> None:
        """Something has changed, by name of a field of Change."""
        with self.news:
            number = FIRST + len(self.changes) + 1
            self.changes.append(cast(Change, {"n": number, **what}))
            self.news.notify_all()

    def log(self, *pieces: Any) -> None:
        """More comes in the log."""
        with self.news:
            self.logs += pieces
            self.news.notify_all()

    def count(self, route: str) -> int:
        """How often a route was asked."""
        return sum(urlsplit(path).path.endswith(route) for _, path, _ in self.asked)

    @property
    def address(self) -> str:
        """Of the page."""
        return f"http://127.0.0.1:{self.port}{self.prefix}/"

    # ---- what the handler needs -------------------------------------------------------------

    def stream(self, items: str, begun: int, connection: socket) -> Iterator[Any]:
        """The items of a list of this stub, as they come, until it is cut or its reader leaves."""
        cuts, at = self._cuts, begun
        self._count(1)
        try:
            while self._cuts == cuts and self._server is not None:
                with self.news:
                    found = [] if self.silent else getattr(self, items)[at:]
                    if not found:
                        self.news.wait(0.2)
                at += len(found)
                yield from found
                if select([connection], [], [], 0)[0]:
                    return
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self.news:
            self._live += more
            self.news.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    of: Stub

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        path = self._path()
        page = load()
        files = {
            "": ("text/html; charset=utf-8", page.index),
            "app.js": ("text/javascript; charset=utf-8", page.app_js),
            "app.css": ("text/css; charset=utf-8", page.app_css),
        }
        if path in files:
            kind, content = files[path]
            return self._send(200, content, kind, {"Content-Security-Policy": SECURITY_POLICY})
        if not self._is_open():
            return None
        if path == "ui-api/runs":
            return self._answer(self.of.answers["runs"])
        if found := _RUN.fullmatch(path or ""):
            return self._of_run(found[1])
        return self._refuse(404, "there is no such route")

    def do_POST(self) -> None:
        path = self._path()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if path == "ui-api/session":
            if body in ({"ticket": TICKET}, {"key": KEY}):
                self.of.session_ok = True
                return self._answer(self.of.opened)
            return self._refuse(401, "the ticket was used, or is too old")
        if not self._is_open():
            return None
        self.of.acts.append(body)
        words = {"words": f"{body['act']}: the registry has accepted it"}
        return self._answer(self.of.answers[body["act"]] if body["act"] in runs.acts() else words)

    def _path(self) -> str | None:
        self.of.asked.append((self.command, self.path, dict(self.headers)))
        path = urlsplit(self.path).path
        start = f"{self.of.prefix}/"
        return path[len(start) :] if path.startswith(start) else None

    def _is_open(self) -> bool:
        if self.of.session_ok and self.headers["x-rdzv-session"] == SESSION:
            return True
        self._refuse(401, "there is no such session")
        return False

    def _of_run(self, what: str) -> None:
        query = parse_qs(urlsplit(self.path).query)
        after = int(query.get("after", ["0"])[0]) - FIRST
        if what == "stream":
            return self._stream("changes", max(0, after))
        if what == "logs":
            return self._logs(query)
        if what == "changes":
            return self._answer(self.of.changes[max(0, after) :])
        if what == "environment":
            return self._answer(
                self.of.answers.get(what) or runs.environment(int(query["node"][0]))
            )
        if what == "events":
            before = int(query["before"][0])
            older = [event for event in self.of.answers[what] if event["number"] < before]
            return self._answer(older[-200:])
        return self._answer(self.of.answers[what])

    def _logs(self, query: dict[str, list[str]]) -> None:
        if "logs" in self.of.answers:
            return self._answer(self.of.answers["logs"])
        if "follow" in query:
            return self._stream("logs", 0)
        lines = "".join(f"{json.dumps(piece)}\n" for piece in [*self.of.logs, {"over": True}])
        return self._send(200, lines.encode(), "application/x-ndjson", {})

    def _stream(self, items: str, begun: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        if self.of.broken:  # the end of the connection is not the end of so much
            self.send_header("Content-Length", "1000000000")
        self.end_headers()
        with suppress(OSError):
            for item in self.of.stream(items, begun, self.connection):
                self.wfile.write(f"{json.dumps(item)}\n".encode())
                self.wfile.flush()

    def _answer(self, found: Any) -> None:
        if isinstance(found, int):
            return self._refuse(found, "the registry does not answer")
        return self._send(200, json.dumps(found).encode(), "application/json", {})

    def _refuse(self, status: int, message: str) -> None:
        body = {"code": "refused", "message": message, "hint": "ask again", "retryable": False}
        body |= self.of.refusal
        self._send(status, json.dumps(body).encode(), "application/json", {})

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)


@contextmanager
def serving(stub: Stub) -> Iterator[Stub]:
    """Serve it for a while."""
    stub.start()
    try:
        yield stub
    finally:
        with suppress(AssertionError):
            stub.stop()
