"""Which requests come in: by the page that made them, and by session. Pure.

A browser that is led here by a stranger's page brings that page's Origin, or the stranger's name
as Host; and no other page can read the session's key, or send it in a header.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.types import Scope

from rendezvous.wire.errors import Forbidden, RdzvError

SESSION_HEADER = b"x-rdzv-session"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_OWN_SITES = (b"same-origin", b"none")


def own_pages(names: Collection[str]) -> Callable[[Scope], RdzvError | None]:
    """A rule for requests that a browser makes for a page.

    Args:
        names: Host names that a person has given: a proxy in front may have another one than this
            process is asked under.
    """
    known = frozenset(name.lower() for name in names)

    def refusal(scope: Scope) -> RdzvError | None:
        headers = dict(scope["headers"])
        origin, host = headers.get(b"origin"), headers.get(b"host", b"")
        site = headers.get(b"sec-fetch-site", b"same-origin")
        if origin is not None and not _is_own(origin, host, known):
            return Forbidden("Another page made this request; only the page itself may.")
        opens = headers.get(b"sec-fetch-mode") == b"navigate" and scope["method"] == "GET"
        if site not in _OWN_SITES and not opens:  # a link to the page may stand anywhere
            return Forbidden("Another page made this request; only the page itself may.")
        return None

    return refusal


def _is_own(origin: bytes, host: bytes, known: Collection[str]) -> bool:
    try:
        parts = urlsplit(origin.decode("latin-1"))
        name = parts.hostname or ""
    except ValueError:
        return False
    own = parts.netloc.lower() == host.decode("latin-1").lower()
    return parts.scheme in ("http", "https") and (own or name in known)


def session_of(scope: Scope) -> str:
    """The session's key as the request has it; empty: it has none."""
    for name, value in scope["headers"]:
        if name == SESSION_HEADER:
            return str(value.decode("latin-1"))
    return ""
