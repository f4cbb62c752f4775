"""Which requests come in: by the page that a browser makes them for."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.ui.door import own_pages, session_of
from rendezvous.wire.errors import Forbidden

PROXIED = ["ui.example.org", "Runs.Example.ORG"]


def scope_of(method: str = "GET", **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return {"type": "http", "method": method, "headers": pairs}


def is_let_in(method: str = "GET", *, proxied: bool = True, **headers: str) -> bool:
    refusal = own_pages(PROXIED if proxied else [])(
        scope_of(method, **{"host": "localhost:29610"} | headers)
    )
    assert refusal is None or isinstance(refusal, Forbidden)
    return refusal is None


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:29610",
        "http://LOCALHOST:29610",
        "https://ui.example.org",
        "https://ui.example.org:8443",
        "https://runs.example.org",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_page_itself_may_ask(origin: str, method: str) -> None:
    assert is_let_in(method, origin=origin, sec_fetch_site="same-origin")
    assert is_let_in(method, origin=origin)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost",
        "http://localhost:29611",
        "http://127.0.0.1:29610",
        "http://localhost.evil.example:29610",
        "http://localhost:29610.evil.example",
        "https://ui.example.org.evil.example",
        "https://evil.example/ui.example.org",
        "https://notui.example.org",
        "file://localhost:29610",
        "chrome-extension://localhost:29610",
        "//localhost:29610",
        "localhost:29610",
        "http://[",
        "http://\xff",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_other_page_may_ask(origin: str, method: str) -> None:
    assert not is_let_in(method, origin=origin)
    assert not is_let_in(method, origin=origin, sec_fetch_mode="navigate")
    assert not is_let_in(method, origin=origin, sec_fetch_site="same-origin")


def test_the_name_of_a_proxy_counts_only_where_it_was_given() -> None:
    for proxied in (True, False):
        found = is_let_in(proxied=proxied, origin="https://ui.example.org", host="127.0.0.1:29610")
        assert found == proxied


def test_through_a_tunnel_the_port_is_whatever_the_browser_sees() -> None:
    assert is_let_in(proxied=False, host="localhost:8888", origin="http://localhost:8888")
    assert not is_let_in(proxied=False, host="localhost:8888", origin="http://localhost:9999")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "SAME-ORIGIN", "other"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("mode", ["navigate", "no-cors", "cors", "websocket", ""])
def test_from_elsewhere_a_link_may_lead_here_and_nothing_else(
    site: str, method: str, mode: str
) -> None:
    is_link = method == "GET" and mode == "navigate"
    assert is_let_in(method, sec_fetch_site=site, sec_fetch_mode=mode) == is_link
    assert not is_let_in(method, sec_fetch_site=site)


def test_what_no_browser_sends_is_not_a_pages() -> None:
    assert is_let_in()
    assert is_let_in("POST")
    assert is_let_in(sec_fetch_site="none", sec_fetch_mode="navigate")


def test_the_session_is_a_header_of_the_pages_own() -> None:
    assert session_of(scope_of(host="localhost", x_rdzv_session="abc")) == "abc"
    assert session_of(scope_of(cookie="x-rdzv-session=abc", authorization="Bearer abc")) == ""
    raw = {"type": "http", "method": "GET", "headers": [(b"x-rdzv-session", b"\xff\x00")]}
    assert session_of(raw) == "\xff\x00"
