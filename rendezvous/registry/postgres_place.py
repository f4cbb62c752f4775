"""Where a PostgreSQL database is, and one new connection to it.

A DSN has a password: no text that is made here has any part of one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from typing import Any
from urllib.parse import SplitResult, urlsplit

from rendezvous.registry import postgres_trouble
from rendezvous.registry.postgres_trouble import DSN_HINT, Trouble, asyncpg, trouble_of
from rendezvous.wire.errors import Unavailable, UsageError

logger = logging.getLogger(__name__)

NAME = "rdzv"
"""Of all our sessions; of a new connection, poolers know no other setting."""
DEAD_SECONDS = 3
"""After so long without an answer the other end of a connection is gone."""
_SOCKET = {
    "TCP_KEEPIDLE": 1,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": DEAD_SECONDS,
    "TCP_USER_TIMEOUT": DEAD_SECONDS * 1000,
}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[\w.%-]*)(:\d+)?", re.ASCII)
_UNREADABLE = "postgresql://..."


class Place:
    """Where the database is, by its DSN; as text it has no password.

    Attributes:
        is_refused: The last try failed for a reason that time does not mend.

    Raises UsageError where the DSN is not a URL of PostgreSQL.
    """

    def __init__(self, dsn: str) -> None:
        self.text = without_password(dsn)
        self._dsns = _by_host(dsn)
        self._is_concealed = False
        self._logged = ""
        self.is_refused = False
        named = "target_session_attrs=" in dsn or "PGTARGETSESSIONATTRS" in os.environ
        self._primary = {} if named else {"target_session_attrs": "primary"}

    def __repr__(self) -> str:
        return f"Place({self.text})"

    def conceal(self) -> None:
        """From now on what goes wrong is told to nodes and teams, whom it does not concern where
        the database is: the log has that."""
        self.text, self._is_concealed = "of this registry", True

    async def connect(self) -> Any:
        """A new connection, by the first host that gives one.

        Raises Unavailable where none does, with what to do about it.
        """
        failures: dict[str, Trouble] = {}
        for host, dsn in self._dsns.items():
            try:
                return await self._connected(host, dsn)
            except (
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,
                asyncio.TimeoutError,
                OSError,
                ValueError,
            ) as exc:
                failures[host] = trouble_of(exc, dsn)
        # Outside of the handler: what asyncpg says of a DSN that it cannot read may have parts of
        # the password, and must not be shown as the cause.
        shown = {host: host if _HOST.fullmatch(host) else "..." for host in failures}
        words = postgres_trouble.words_of(failures, shown)
        hint = postgres_trouble.hint_of(failures.values())
        self.is_refused = any(one.lasts for one in failures.values())
        if not self._is_concealed:
            raise Unavailable(f"the journal {self.text} cannot be reached: {words}", hint=hint)
        if words != self._logged:
            logger.warning("the journal cannot be reached: %s; %s", words, hint)
            self._logged = words
        raise Unavailable(f"the journal {self.text} cannot be reached")

    async def _connected(self, host: str, dsn: str) -> Any:
        connection = await asyncpg.connect(
            dsn,
            timeout=postgres_trouble.CONNECT_SECONDS,
            server_settings={"application_name": NAME},
            **self._primary,
        )
        _notice_death(connection)
        self._dsns = {host: dsn, **self._dsns}  # the first one to ask next time
        self._logged = ""
        return connection


def without_password(dsn: str) -> str:
    """The user, hosts and database of a DSN; less where it is not certain what its password is."""
    parts = _split(dsn)
    if parts is None:
        return _UNREADABLE
    user, at, hosts = parts.netloc.rpartition("@")
    user = user.partition(":")[0]
    # An '@' further on: a password with a '/', '?' or '#' of its own seems to be host and path.
    beyond = f"{parts.path}{parts.query}{parts.fragment}"
    if "@" in beyond or not all(map(_HOST.fullmatch, hosts.split(","))):
        return _UNREADABLE
    return f"postgresql://{user}{at}{hosts}{parts.path}"


def _split(dsn: str) -> SplitResult | None:
    try:
        return urlsplit(dsn)
    except ValueError:
        return None


def _by_host(dsn: str) -> dict[str, str]:
    """A DSN of each host, by its name."""
    parts = _split(dsn)
    if parts is None or parts.scheme not in ("postgresql", "postgres"):
        raise UsageError("the journal's address is not a PostgreSQL URL", hint=DSN_HINT)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return {hosts: dsn}
    return {host: parts._replace(netloc=f"{user}{at}{host}").geturl() for host in hosts.split(",")}


def _notice_death(connection: Any) -> None:
    """A server that was cut off is noticed within seconds, not after the system's 15 minutes."""
    made = connection._transport.get_extra_info("socket")
    if made is None or made.family == socket.AF_UNIX:
        return
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SOCKET.items():
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
