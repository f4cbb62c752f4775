"""The head of an HTTP/1.1 request (RFC 9112): read strictly, and told in the words of ASGI. Pure.

Whatever two readers could understand in two ways is refused: a line that does not end in CR LF, a
folded header, a name that is no token, a header that says where the body ends and stands twice, and
every body without a length. A node sends the same eight headers with each request, so that their
names are looked up instead of being checked anew.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from urllib.parse import unquote

MAX_HEADER_BYTES = 16 * 1024
MAX_HEADERS = 100
END = b"\r\n\r\n"
"""What a head ends with."""

_TEXT = bytes([9, 10, 13, *range(32, 127), *range(128, 256)])
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FIRST_LINE = re.compile(rb"(%s) ([!-~]+) HTTP/1\.([01])" % _TOKEN)
_NAME = re.compile(_TOKEN)
_LENGTH = re.compile(rb"[0-9]{1,15}")
_USUAL = (
    *("Host", "Accept", "Accept-Encoding", "Connection", "User-Agent", "Content-Type"),
    *("Content-Length", "Authorization"),
)
_KNOWN = {form.encode(): name.lower().encode() for name in _USUAL for form in (name, name.lower())}
_ONCE = (b"host", b"content-length", b"authorization")


class BadHead(ValueError):
    """These bytes are not the head of a request that is served here."""


@dataclass(slots=True)
class Fields:
    """What stands below the first line.

    Attributes:
        block: The bytes of it.
        headers: In the order in which they came, names in small letters.
        length: Bytes of the body.
        has_host: Whether a host is named.
        closes: The connection is to end with the answer.
        awaits_continue: The peer sends the body once it is told to.
    """

    block: bytes
    headers: list[tuple[bytes, bytes]]
    length: int = 0
    has_host: bool = False
    closes: bool = False
    awaits_continue: bool = False


NO_FIELDS = Fields(b"", [])


@dataclass(slots=True)
class Head:
    """What is asked for.

    Attributes:
        path: Decoded; `raw_path` is what was sent.
        version: `1.0` or `1.1`.
        keeps_open: Whether the connection is to go on after the answer.
    """

    method: str
    path: str
    raw_path: bytes
    query: bytes
    version: str
    keeps_open: bool
    fields: Fields


def read_head(data: bytes, former: Fields = NO_FIELDS) -> Head:
    """The head in these bytes, which go up to the empty line and without it; raises BadHead.

    `former` is what the head before it on the same connection had: it is mostly the same again.
    """
    line, _, block = data.partition(b"\r\n")
    first = _FIRST_LINE.fullmatch(line)
    if first is None:
        raise BadHead("no request line")
    fields = former if block == former.block else _read_fields(block)
    method, target, minor = first.groups()
    is_new = minor == b"1"
    if is_new and not fields.has_host:
        raise BadHead("no Host")
    raw_path, _, query = target.partition(b"?")
    path = raw_path.decode("ascii")
    return Head(
        method.decode("ascii"),
        unquote(path) if "%" in path else path,
        raw_path,
        query,
        "1.1" if is_new else "1.0",
        is_new and not fields.closes,
        fields,
    )


def _read_fields(block: bytes) -> Fields:
    lines = block.split(b"\r\n") if block else []
    breaks = max(0, len(lines) - 1)
    if block.count(b"\r") != breaks or block.count(b"\n") != breaks or block.translate(None, _TEXT):
        raise BadHead("a control character")
    if len(lines) > MAX_HEADERS:
        raise BadHead("too many headers")
    headers = [_header(line) for line in lines]
    found = dict(headers)
    if len(found) < len(headers):
        names = [name for name, _ in headers]
        if any(names.count(name) > 1 for name in _ONCE):
            raise BadHead("a header twice")
    if b"transfer-encoding" in found:
        raise BadHead("a body without a length")
    return Fields(
        block,
        headers,
        _length(found.get(b"content-length", b"0")),
        b"host" in found,
        any(_closes(value) for name, value in headers if name == b"connection"),
        found.get(b"expect", b"").lower() == b"100-continue",
    )


@functools.lru_cache(64)  # nodes say the same, but for their credentials: it is kept once
def _header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    known = _KNOWN.get(name)
    if known is None:
        if not _NAME.fullmatch(name):
            raise BadHead("no header")
        known = name.lower()
    if not colon:
        raise BadHead("no header")
    return known, value.strip(b" \t")


def _length(text: bytes) -> int:
    if not _LENGTH.fullmatch(text):
        raise BadHead("no length")
    return int(text)


@functools.lru_cache(64)
def _closes(value: bytes) -> bool:
    """Whether this is one of the words of a Connection header."""
    return b"close" in {token.strip(b" \t").lower() for token in value.split(b",")}
