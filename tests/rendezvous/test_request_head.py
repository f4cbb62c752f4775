"""The head of a request: by value, and beside h11, which reads by the same rules or laxer ones."""

from __future__ import annotations

import random
from dataclasses import asdict

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.serving.request_head import MAX_HEADERS, NO_FIELDS, BadHead, Head, read_head
from tests.support.driver import FEW
from tests.support.mangle import mangled_text

USUAL = (
    b"GET /v1/runs/demo/nodes/1/watch?after=3&x=%41 HTTP/1.1\r\nHost: rdzv.internal\r\n"
    b"Accept: */*\r\nAccept-Encoding: gzip\r\nConnection: keep-alive\r\nUser-Agent: a/1\r\n"
    b"Authorization: Bearer n.1.1.abc"
)
POST = b"POST /v1/runs/demo/nodes HTTP/1.1\r\nhost: a\r\nContent-Length: 12\r\nEXPECT: 100-Continue"
TO_A_PROXY = b"PUT http://a/b HTTP/1.0\r\nConnection: keep-alive, Close\r\nX_y.z~!: \xe9 \t"
SEEDS = (USUAL, POST, TO_A_PROXY)


def made(**changes: object) -> dict[str, object]:
    """The head of `GET /` to a host `a`, with these differences."""
    usual: dict[str, object] = {"method": "GET", "path": "/", "raw_path": b"/", "query": b""}
    usual |= {"headers": [(b"host", b"a")], "length": 0, "awaits_continue": False}
    return usual | {"version": "1.1", "keeps_open": True} | changes


def told(head: Head) -> dict[str, object]:
    """All of a head that is used."""
    found = asdict(head)
    fields = found.pop("fields")
    return found | {name: fields[name] for name in ("headers", "length", "awaits_continue")}


def test_a_usual_head_is_told_in_the_words_of_asgi() -> None:
    assert told(read_head(USUAL)) == made(
        path="/v1/runs/demo/nodes/1/watch",
        raw_path=b"/v1/runs/demo/nodes/1/watch",
        query=b"after=3&x=%41",
        headers=[
            (b"host", b"rdzv.internal"),
            (b"accept", b"*/*"),
            (b"accept-encoding", b"gzip"),
            (b"connection", b"keep-alive"),
            (b"user-agent", b"a/1"),
            (b"authorization", b"Bearer n.1.1.abc"),
        ],
    )


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (b"GET / HTTP/1.1\r\nHost: a", {}),
        (b"GET / HTTP/1.1\r\nhOsT:a", {}),
        (b"GET / HTTP/1.1\r\nHost:  \ta\t ", {}),
        (b"DELETE / HTTP/1.1\r\nHost: a", {"method": "DELETE"}),
        (b"OPTIONS * HTTP/1.1\r\nHost: a", {"method": "OPTIONS", "path": "*", "raw_path": b"*"}),
        (b"GET /a%2fb%C3%A9?%2f HTTP/1.1\r\nHost: a",
         {"path": "/a/b\u00e9", "raw_path": b"/a%2fb%C3%A9", "query": b"%2f"}),
        (b"GET /??a HTTP/1.1\r\nHost: a", {"query": b"?a"}),
        (b"GET / HTTP/1.0", {"version": "1.0", "headers": [], "keeps_open": False}),
    ],
)  # fmt: skip
def test_what_is_asked_for(data: bytes, changes: dict[str, object]) -> None:
    assert told(read_head(data)) == made(**changes)


@pytest.mark.parametrize(
    ("header", "changes"),
    [
        (b"Content-Length: 0", {}),
        (b"Content-Length: 007", {"length": 7}),
        (b"Connection: close", {"keeps_open": False}),
        (b"Connection: x,\tCLOSE ", {"keeps_open": False}),
        (b"Connection: x\r\nConnection: close", {"keeps_open": False}),
        (b"Connection: closed", {}),
        (b"Expect: 100-continue", {"awaits_continue": True}),
        (b"Expect: 200-ok", {}),
        (b"Accept: a\r\nAccept: b", {}),
        (b"X: ", {}),
    ],
)
def test_what_a_header_changes(header: bytes, changes: dict[str, object]) -> None:
    found = told(read_head(b"GET / HTTP/1.1\r\nHost: a\r\n" + header))
    assert found | {"headers": []} == made(**changes, headers=[])


def test_the_fields_of_the_head_before_count_only_where_they_are_the_same() -> None:
    former = read_head(USUAL).fields
    again = read_head(USUAL.replace(b"after=3", b"after=4"), former)
    assert (again.fields is former, again.query) == (True, b"after=4&x=%41")
    other = read_head(USUAL.replace(b"n.1.1.abc", b"n.1.1.abd"), former)
    assert other.fields.headers[-1] == (b"authorization", b"Bearer n.1.1.abd")
    assert read_head(b"GET / HTTP/1.0", former).fields.headers == NO_FIELDS.headers == []


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\r\n", b"GET", b"GET /", b"GET / HTTP/1.1 \r\nHost: a", b" GET / HTTP/1.1"),
        *(
            b"GET  / HTTP/1.1\r\nHost: a",
            b"GET / HTTP/2.0\r\nHost: a",
            b"GET / http/1.1\r\nHost: a",
        ),
        *(b"GET /a b HTTP/1.1\r\nHost: a", b"G(T / HTTP/1.1\r\nHost: a", b"GET /\xe9 HTTP/1.1"),
        *(b"GET / HTTP/1.1", b"GET / HTTP/1.1\nHost: a", b"GET / HTTP/1.1\r\nHost: a\nX: b"),
        b"\r\nGET / HTTP/1.1\r\nHost: a",
    ],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(BadHead):
        read_head(data)


@pytest.mark.parametrize(
    "header",
    [
        *(b"X", b": b", b" X: b", b"X : b", b"X\t: b", b"X y: b", b"X(: b", b"\xe9: b", b"Host"),
        *(b"X: \x00", b"X: a\x01b", b"X: \x7f", b"X: a\rb", b"X: a\nb", b"X: a\r\n b", b"X: \x0b"),
        *(b"Host: a", b"HOST: b", b"Authorization: a\r\nauthorization: b"),
        *(b"Content-Length: 1\r\nContent-Length: 1", b"Content-Length: 1\r\nContent-Length: 2"),
        *(b"Content-Length: 1, 1", b"Content-Length: ", b"Content-Length: -1"),
        *(b"Content-Length: +1", b"Content-Length: 1_0", b"Content-Length: 0x1"),
        *(b"Content-Length: 1 1", b"Content-Length: \xb2", b"Content-Length: 1" + b"0" * 15),
        *(b"Transfer-Encoding: chunked", b"transfer-encoding: identity", b"Transfer-Encoding:"),
        b"\r\n".join([b"X: a"] * MAX_HEADERS),
    ],
)
def test_a_header_that_could_be_read_in_two_ways_is_refused(header: bytes) -> None:
    with pytest.raises(BadHead):
        read_head(b"GET / HTTP/1.1\r\nHost: a\r\n" + header)


def by_h11(data: bytes) -> tuple[str, bytes, list[tuple[bytes, bytes]], int, bool]:
    """What h11 makes of it; raises h11.RemoteProtocolError."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(data + b"\r\n\r\n")
    asked = server.next_event()
    assert isinstance(asked, h11.Request)
    body = server.next_event()
    missing = getattr(server._reader, "_remaining", 0) if body is h11.NEED_DATA else 0
    keeps_open = server.their_state is not h11.MUST_CLOSE
    return asked.method.decode(), asked.target, [*asked.headers], missing, keeps_open


@FEW
@given(number=st.integers(0, 2**32), noise=st.binary(max_size=4))
def test_what_is_taken_h11_takes_too_and_reads_alike(number: int, noise: bytes) -> None:
    dice = random.Random(number)
    seed = dice.choice(SEEDS)
    at = dice.randrange(len(seed))
    for data in (mangled_text(dice, seed), seed[:at] + noise + seed[at + dice.randrange(3) :]):
        try:
            found = read_head(data)
        except BadHead:
            continue
        if b"\r\n\r\n" in data:
            pytest.fail(f"an empty line is the end of a head: {data!r}")
        target = found.raw_path + (b"?" * (b"?" in data.split(b" ")[1])) + found.query
        fields = found.fields
        own = found.method, target, fields.headers, fields.length, found.keeps_open
        assert own == by_h11(data), data
        assert read_head(data, fields).fields is fields
