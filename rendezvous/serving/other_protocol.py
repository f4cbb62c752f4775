"""Clients that speak another protocol than this server, by the header of their requests."""

from __future__ import annotations

from starlette.types import Scope

from rendezvous.version import rdzv_version
from rendezvous.wire.protocol import HEADER, PROTOCOL, Speaker, other_protocol

REGISTRY = Speaker("this registry", PROTOCOL, rdzv_version())
_HEADER, _OWN = HEADER.encode(), b"%d " % PROTOCOL


def refuse_other_protocol(scope: Scope, us: Speaker = REGISTRY, *, hint: str = "") -> None:
    """Raise OtherProtocol for a client of another protocol; one that names none is a person's.

    Args:
        scope: Of the request.
        us: The server.
        hint: What to do, where that is not to install the same rdzv.
    """
    for name, value in scope["headers"]:
        if name == _HEADER and not value.startswith(_OWN):
            error = other_protocol(Speaker.from_header(value.decode("latin-1")), us)
            error.hint = hint or error.hint
            raise error
