"""The page's application: the page itself for everybody, and what it shows for an open session.

Paths are read from their end, so that the page works under any prefix that a proxy leaves in them.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.responses import Response, StreamingResponse
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from launcher.ui import asked
from launcher.ui.acts import Act, carry_out
from launcher.ui.door import LOOPBACK_NAMES, own_pages, session_of
from launcher.ui.log_pieces import chosen_of, log_pieces
from launcher.ui.page import SECURITY_POLICY, SERVER, Page, docs_page
from launcher.ui.runs import Runs
from launcher.ui.scraped import Scraped
from launcher.ui.sessions import Sessions
from launcher.ui.shapes import Opened
from launcher.ui.viewed import Viewed
from rendezvous.serving.answers import SECURITY_HEADERS
from rendezvous.serving.guard import Guard, read_body
from rendezvous.serving.limiter import FailedLogins
from rendezvous.serving.other_protocol import refuse_other_protocol
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import (
    BadRequest,
    MethodNotAllowed,
    NotFound,
    RdzvError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from rendezvous.wire.words import printable

MOST_STREAMS = 64
_CHANGES_SECONDS = 1.0
_PAUSE_SECONDS = 0.02
"""Between two changes that a viewer is sent, at least: what has come meanwhile goes with the
second."""
_ZIPPED_FROM = 1_024
_MOST_FIELDS = 32
_API = "/ui-api/"
_LINES = "application/x-ndjson"
HEADERS = (
    *SECURITY_HEADERS,
    ("content-security-policy", SECURITY_POLICY),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
)
"""Of every answer, also of one that a browser should never see."""


class _Login(BaseModel):
    """What opens a session."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    ticket: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Served:
    """What one process serves.

    Attributes:
        metrics_key: What Prometheus has to show.
        run: The run that is shown first; None: the list.
        actions: Whether the page may act.
        closing: Set when the process ends.
    """

    runs: Runs
    sessions: Sessions
    page: Page
    metrics_key: str
    run: str | None
    actions: bool
    closing: asyncio.Event = field(default_factory=asyncio.Event)


class App:
    """ASGI application; may raise any RdzvError."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._failed = FailedLogins()
        self._scraped = Scraped(served.runs, served.metrics_key)
        self._streams = set[asyncio.Task[Any]]()
        self._lifespan = Router(lifespan=self._live)

    @asynccontextmanager
    async def _live(self, _: object) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._served.runs.close_idle())]
        tasks += [asyncio.create_task(self._end_streams())]
        yield
        for task in tasks:
            task.cancel()
        await self._served.runs.close()

    async def _end_streams(self) -> None:
        """At the end of the process: they last, and it does not wait for them."""
        await self._served.closing.wait()
        for task in self._streams:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        response = await self._answer(scope, receive)
        if not isinstance(response, StreamingResponse):
            await response(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            await response(scope, receive, send)
        finally:
            self._streams.discard(task)
            await response.body_iterator.aclose()  # type: ignore[attr-defined]

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        path: str = scope["path"]
        _, api, rest = path.partition(_API)
        if not api and path.endswith("/metrics"):
            _need(scope, "GET")
            return await self._scraped.answer(scope)
        if not api:
            return self._static(scope)
        refuse_other_protocol(scope, SERVER, hint="load this page again")
        if rest == "session":
            _need(scope, "POST")
            return await self._open(scope, receive)
        now = asyncio.get_running_loop().time()
        if not self._served.sessions.is_good(session_of(scope), now):
            raise Unauthorized(
                "this request needs an open session",
                hint="open the link that 'rdzv ui' has printed, or its newest one",
            )
        if rest == "runs":
            _need(scope, "GET")
            return _json(scope, await self._served.runs.rows())
        runs, run, what = (*rest.split("/"), "", "")[:3]
        if runs != "runs" or rest.count("/") != 2:
            raise NotFound(f"there is no {printable(path, 100)} here")
        viewed = self._served.runs.viewed(run)
        return await self._of_run(viewed, what, scope, receive)

    # --- the page and its sessions ------------------------------------------------------------

    def _static(self, scope: Scope) -> Response:
        """Nothing of a run is in it."""
        name = scope["path"].rpartition("/")[2]
        found = _files(self._served.page).get(name)
        if (text := docs_page(scope["path"])) is not None:
            found = text, "text/plain"
        if found is None:
            raise NotFound(f"there is no {printable(scope['path'], 100)} here")
        _need(scope, "GET")
        body, media = found
        return _sent(scope, body, media)

    async def _open(self, scope: Scope, receive: Receive) -> Response:
        body = await read_body(scope, receive)
        try:
            login = _Login.model_validate_json(body)
        except ValidationError:
            raise BadRequest("a session is opened with a ticket or a key") from None
        now = asyncio.get_running_loop().time()
        sessions = self._served.sessions
        if login.ticket is not None:
            session, what = sessions.open_by_ticket(login.ticket, now), "link was used, or is old"
        else:
            session, what = sessions.open_by_key(login.key or "", now), "key is not the one"
        if session is None:
            self._refuse(scope, what, now)
        opened: Opened = {
            "session": session or "",
            "run": self._served.run,
            "actions": self._served.actions,
            "version": rdzv_version(),
        }
        return _json(scope, opened)

    def _refuse(self, scope: Scope, what: str, now: float) -> None:
        source = scope["client"][0] if scope.get("client") else ""
        wait = self._failed.failed(source, now)
        if wait > 0:
            raise TooManyRequests(
                f"too many wrong keys from {source}", hint=f"wait {max(1.0, wait):.0f} s"
            )
        raise Unauthorized(
            f"this {what}",
            hint="press Enter where 'rdzv ui' runs for a new link; with RDZV_UI_KEY set, give "
            "that key",
        )

    # --- one run ------------------------------------------------------------------------------

    async def _of_run(self, viewed: Viewed, what: str, scope: Scope, receive: Receive) -> Response:
        query = _query(scope)
        if what == "acts":
            _need(scope, "POST")
            try:
                act = Act.model_validate_json(await read_body(scope, receive))
            except ValidationError as exc:
                raise BadRequest(f"this is not an act: {exc.errors()[0]['msg']}") from None
            with viewed.looking():
                return _json(scope, await carry_out(viewed, act))
        _need(scope, "GET")
        if what == "stream":
            return self._stream(_changes(viewed, _number(query, "after")))
        if what == "logs":
            chosen, lines, follow = chosen_of(query)
            return self._stream(_logs(viewed, log_pieces(viewed, chosen, lines, follow=follow)))
        with viewed.looking():
            if what == "state":
                return _json(scope, await viewed.state())
            if (view := asked.views_of(viewed).get(what)) is not None:
                return _json(scope, await view())
            if what == "changes":
                change = await viewed.changes(_number(query, "after"), _CHANGES_SECONDS)
                return _json(scope, [] if change is None else [change])
            if what == "events":
                return _json(scope, viewed.told.events_before(_number(query, "before")))
            if what == "environment":
                return _json(scope, await asked.environment_of(viewed, _number(query, "node")))
        raise NotFound(f"there is no {printable(scope['path'], 100)} here")

    def _stream(self, pieces: AsyncIterator[bytes]) -> Response:
        """It lasts; a proxy is asked not to hold it back."""
        if len(self._streams) >= MOST_STREAMS:
            raise Unavailable(
                f"{len(self._streams)} streams are open, which is the limit of this page",
                hint="close other windows of it",
            )
        return StreamingResponse(pieces, media_type=_LINES, headers={"x-accel-buffering": "no"})


def _files(page: Page) -> dict[str, tuple[bytes, str]]:
    """By the last part of a path."""
    return {
        "": (page.index, "text/html"),
        "app.css": (page.app_css, "text/css"),
        "app.js": (page.app_js, "text/javascript"),
    }


async def _changes(viewed: Viewed, after: int) -> AsyncIterator[bytes]:
    clock, next_at = asyncio.get_running_loop().time, 0.0
    with viewed.looking():
        yield _beat(after)  # at once: whoever gets none is behind a proxy
        while True:
            await viewed.turn(after)
            if (early := next_at - clock()) > 0:
                await asyncio.sleep(early)
            line = viewed.line(after)
            if line is None:
                yield _beat(after)
                continue
            after, next_at = line.n, clock() + _PAUSE_SECONDS
            yield line.data
            if line.is_last:
                return


def _beat(after: int) -> bytes:
    return _line({"n": after, "beat": True})


async def _logs(viewed: Viewed, pieces: AsyncIterator[object]) -> AsyncIterator[bytes]:
    with viewed.looking():
        try:
            async for piece in pieces:
                yield _line(piece)
        except RdzvError as exc:
            yield _line({"note": exc.message})
            yield _line({"over": True})


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _json(scope: Scope, value: object) -> Response:
    return _sent(scope, _line(value), "application/json")


def _sent(scope: Scope, body: bytes, media: str) -> Response:
    zips = any(k == b"accept-encoding" and b"gzip" in v for k, v in scope["headers"])
    headers = {"vary": "accept-encoding"}
    if zips and len(body) >= _ZIPPED_FROM:
        body, headers["content-encoding"] = gzip.compress(body, 1, mtime=0), "gzip"
    return Response(body, media_type=media, headers=headers)


def _need(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise MethodNotAllowed(f"{printable(scope['path'], 100)} takes {method}")


def _query(scope: Scope) -> dict[str, list[str]]:
    try:
        return parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadRequest(f"a query has at most {_MOST_FIELDS} fields") from None


def _number(query: dict[str, list[str]], name: str) -> int:
    text = query.get(name, ["0"])[-1]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f"{name} must be a whole number")
    return int(text)


def make_app(served: Served, hosts: Collection[str] = ()) -> ASGIApp:
    """The application behind its guard; `hosts` are names beside those of the loopback."""
    return Guard(
        App(served),
        allowed_hosts=[*LOOPBACK_NAMES, *hosts],
        of_web_page=own_pages(hosts),
        name="page",
    )
