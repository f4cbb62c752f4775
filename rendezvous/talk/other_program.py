"""Which program answers where a registry should be, by the first bytes that it sends. Pure."""

from __future__ import annotations

import re
from typing import Final

from rendezvous.frozen import frozen
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.wire.words import printable

MOST_BYTES: Final = 2048
"""Of an answer: enough for the head of an HTTP server's."""
HTTP_REQUEST: Final = (
    f"GET /healthz HTTP/1.1\r\nhost: {SERVER_NAME}\r\nconnection: close\r\n\r\n"
).encode()
"""For programs that wait to be spoken to."""

_MOST_SHOWN = 40
_HTTP = re.compile(rb"HTTP/[0-9.]+ ([0-9]{3})")
_SERVER = re.compile(rb"^server:[ \t]*([^\r\n]+)", re.IGNORECASE | re.MULTILINE)
_RDZV = re.compile(rb"^x-rdzv:", re.IGNORECASE | re.MULTILINE)
_OF_PROXIES = re.compile(rb"^(?:via|x-envoy[\w-]*):|^server:[^\r\n]*envoy", re.I | re.M)
_SERVER_ERROR = 500
_BANNERS: Final = (
    (re.compile(rb"SSH-[0-9.]+-"), "an SSH server"),
    (re.compile(rb"RFB [0-9.]+"), "a VNC server"),
    (re.compile(rb"[0-9]{3}[ -].*(?:SMTP|mail)", re.IGNORECASE), "a mail server"),
    (re.compile(rb"220[ -]"), "an FTP or mail server"),
    (re.compile(rb"[+-](?:OK|ERR|NOAUTH|DENIED|PONG)\b"), "a Redis or POP3 server"),
    (re.compile(rb"...\x00(?:\x0a[0-9]|\xff)", re.DOTALL), "a MySQL server"),
    (re.compile(rb"\* OK"), "an IMAP server"),
)


@frozen
class OtherProgram:
    """A program that is no registry.

    Attributes:
        name: As a sentence names it, such as "an SSH server (SSH-2.0-OpenSSH_9.2)".
        is_firm: It serves that port itself. A proxy may answer for a registry that is not up yet.
    """

    name: str
    is_firm: bool


def recognise(first: bytes) -> OtherProgram | None:
    """The program that begins with these bytes; None where there are none."""
    if not first:
        return None
    if found := _HTTP.match(first):
        if _RDZV.search(first) is not None:
            return OtherProgram("an rdzv registry without TLS", False)
        server = _SERVER.search(first)
        of_proxy = int(found[1]) >= _SERVER_ERROR or _OF_PROXIES.search(first) is not None
        shown = _shown(server[1] if server else b"status " + found[1])
        return OtherProgram(f"an HTTP server ({shown})", not of_proxy)
    for banner, name in _BANNERS:
        if banner.match(first):
            is_text = b"\x00" not in first[:4]
            return OtherProgram(f"{name} ({_shown(first)})" if is_text else name, True)
    shown = _shown(first)
    return OtherProgram(f"a program whose first words are '{shown}'", False)


def _shown(text: bytes) -> str:
    line = text.splitlines()[0] if text.splitlines() else b""
    return printable(line.decode("latin-1").strip(), _MOST_SHOWN)
