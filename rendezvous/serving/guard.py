"""Hardens an application: size limit, host names, no strangers' web pages, one error format."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from rendezvous.serving.answers import send_problem
from rendezvous.wire.errors import BadRequest, Forbidden, InternalError, RdzvError, TooLarge
from rendezvous.wire.words import printable

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024

_ANY_HOST = ("/healthz", "/readyz", "/metrics")
"""Paths of machines that name a host as they dial it, by its address: probes, and Prometheus, which
has no setting for it. A web page that has had a name resolve to us gets nothing there: the first
two tell nothing, and the last one needs a credential in a header that no browser sends by itself.
"""


class PeerGone(Exception):
    """The peer closed its connection in the middle of a request; nobody waits for an answer."""


def no_web_pages(scope: Scope) -> RdzvError | None:
    """The registry has none: whatever a browser sends on a page's behalf is a stranger's."""
    return Forbidden("The registry does not answer requests made by web pages.")


class Guard:
    """ASGI middleware in front of everything: size, host name, web pages, errors in one shape.

    Args:
        app: May raise any `RdzvError`; it is answered as its Problem.
        allowed_hosts: The names under which clients may call, without port.
        max_body_bytes: The longest body that any request may have; `read_body` is stricter.
        of_web_page: Asked about each request that a browser sends on behalf of a web page: why it
            is refused, or None.
        name: Of what is hardened, for people.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: Collection[str],
        max_body_bytes: int = MAX_BODY_BYTES,
        of_web_page: Callable[[Scope], RdzvError | None] = no_web_pages,
        name: str = "registry",
    ) -> None:
        self._app = app
        self._allowed_hosts = frozenset(name.lower().encode() for name in allowed_hosts)
        self._max_body_bytes = max_body_bytes
        self._of_web_page = of_web_page
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await send_problem(send, refusal, close=True)
            return
        try:
            await self._app(scope, receive, send)
        except PeerGone:
            return
        except RdzvError as error:
            await send_problem(send, error)
        except Exception:
            logger.exception("%s %s failed", scope["method"], printable(scope["path"], 200))
            await send_problem(send, InternalError(f"The {self._name} failed; see its log."))

    def _refusal(self, scope: Scope) -> RdzvError | None:
        length, host, is_of_page = 0, b"", False
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = int(value)
            elif name == b"host":
                host = value
            elif name == b"origin" or (name == b"sec-fetch-site" and value != b"none"):
                is_of_page = True
        if is_of_page and (refusal := self._of_web_page(scope)) is not None:
            return refusal
        if length > self._max_body_bytes:
            return _too_large(length, self._max_body_bytes)
        if host in self._allowed_hosts or scope["path"] in _ANY_HOST:
            return None
        if _host_name(host) in self._allowed_hosts:
            return None
        return BadRequest(
            f"The {self._name} does not have the host name "
            f"{printable(host.decode('latin-1'), 100)!r}.",
            hint=f"Send the host name with which the {self._name} was started.",
        )


def _host_name(host: bytes) -> bytes:
    """The Host header without its port, lower-case: `[::1]:80` is `[::1]`."""
    name, colon, port = host.rpartition(b":")
    return (name if colon and port.isdigit() else host).lower()


def _too_large(length: int, limit: int) -> TooLarge:
    return TooLarge(f"The request body has {length} bytes; the limit here is {limit}.")


async def read_body(scope: Scope, receive: Receive, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The whole body. Raises TooLarge before any of it is read, PeerGone.

    Check the credential first.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > max_bytes:
            raise _too_large(int(value), max_bytes)
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise PeerGone
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)
