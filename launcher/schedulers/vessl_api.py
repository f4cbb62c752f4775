"""VESSL's HTTP API, as far as worker runs need it: one exchange for each call, with a time limit.

Unlike VESSL's own client it checks certificates, gives up in time, and tells three failures apart:
refused (an answer says so), not sent (no connection: it may be tried again), and lost (sent, and no
answer came that says what became of it).
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from launcher.schedulers.contract import SERVICE_FAILS
from launcher.schedulers.vessl_account import Account
from rendezvous.compat import timeout
from rendezvous.talk.join_string import without_secrets
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.words import printable

_MOST_BYTES = 8 << 20
_MOST_WORDS = 400
_BUSY = 429
_NO_ANSWER = (500, 502, 503, 504)
_TRIES = 3


class ApiRefused(SchedulerError):
    """The API answered that it does not do this."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message, hint=_HINTS.get(status, ""))
        self.http_status = status


class ApiNotSent(SchedulerError):
    """There was no connection: nothing was asked, so nothing was done."""


class ApiLost(SchedulerError):
    """It was asked, and there is no answer that tells what was done."""


class ApiFailed(ApiLost):
    """The answer is that something went wrong: most often nothing was done."""


_HINTS = {
    401: "VESSL refused the token: check VESSL_ACCESS_TOKEN, or run 'vessl configure'",
    403: "the account lacks permission in that organization or project",
    404: "check VESSL_DEFAULT_ORGANIZATION and VESSL_DEFAULT_PROJECT",
}


@dataclass(frozen=True, slots=True)
class Api:
    """The API, for one account.

    Args:
        account: Who asks, and where.
        timeout_seconds: Of each exchange, from the connection to the last byte.
        try_again_seconds: Before the second try of a question; twice as long before the third.
    """

    account: Account
    timeout_seconds: float
    try_again_seconds: float

    def url(self, path: str) -> str:
        """The address of something of the account's project."""
        return f"{self.account.host}{self._project}/{path}"

    @property
    def _organization(self) -> str:
        return f"/api/v1/organizations/{quote(self.account.organization, safe='')}"

    @property
    def _project(self) -> str:
        return f"{self._organization}/projects/{quote(self.account.project, safe='')}"

    async def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Ask for something of the project; tried again when it fails on the way."""
        words = f"?{urlencode(query)}" if query else ""
        return await self._get(f"{self._project}/{path}{words}")

    async def clusters(self) -> list[str]:
        """The names of the organization's clusters."""
        answer = await self._get(f"{self._organization}/clusters")
        return [str(cluster.get("name")) for cluster in rows_of(answer, "clusters")]

    async def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Have something done, once. Raises ApiRefused, ApiNotSent or ApiLost."""
        return await self._exchange("POST", f"{self._project}/{path}", body)

    async def _get(self, path: str) -> Any:
        for number in range(1, _TRIES):
            with contextlib.suppress(ApiNotSent, ApiLost):
                return await self._exchange("GET", path)
            await asyncio.sleep(self.try_again_seconds * number)
        return await self._exchange("GET", path)

    async def _exchange(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Any:
        what = f"VESSL's API ({self.account.host})"
        exchange = _Exchange(self.account, self.timeout_seconds)
        try:
            async with timeout(self.timeout_seconds):
                status, data = await asyncio.to_thread(exchange.run, method, path, body)
        except TimeoutError as exc:
            exchange.abort()  # from here on nothing is sent any more
            how = f"{what} did not answer within {self.timeout_seconds:g} s"
            raise (ApiLost if exchange.sent else ApiNotSent)(how) from exc
        except ssl.SSLCertVerificationError as exc:
            raise ApiNotSent(
                f"{what} cannot be trusted: {exc.verify_message}",
                hint="name your own certificate authority with SSL_CERT_FILE",
            ) from exc
        except (OSError, http.client.HTTPException) as exc:
            how = f"{what}: {str(exc) or type(exc).__name__}"
            raise (ApiLost if exchange.sent else ApiNotSent)(how) from exc
        finally:
            exchange.abort()
        return _read(what, status, data)


class _Exchange:
    """One request and its answer, in a thread; ended from outside by closing its socket."""

    def __init__(self, account: Account, timeout_seconds: float) -> None:
        self.sent = False
        self._given_up = False
        self._lock = threading.Lock()
        self._account = account
        place = urlsplit(account.host)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise SchedulerError(
                f"VESSL_API_HOST is '{account.host}', which is not the address of an API",
                hint="it must begin with https://; unset it to use https://api.vessl.ai",
            )
        self._base = place.path
        self._connection: http.client.HTTPConnection
        if place.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                place.netloc, timeout=timeout_seconds, context=_trust()
            )
        else:
            self._connection = http.client.HTTPConnection(place.netloc, timeout=timeout_seconds)

    def run(self, method: str, path: str, body: Mapping[str, object] | None) -> tuple[int, bytes]:
        """Do it; raises OSError or HTTPException."""
        self._connection.connect()
        headers = {
            "Authorization": f"Token {self._account.token}",
            "Accept": "application/json",
            "Connection": "close",
        }
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        with self._lock:
            if self._given_up:
                raise TimeoutError
            self.sent = True
        self._connection.request(method, self._base + path, body=data, headers=headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)

    def abort(self) -> None:
        """Send nothing any more, and close it, also while the thread waits for an answer."""
        with self._lock:
            self._given_up = True
        if (sock := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def _trust() -> ssl.SSLContext:
    """The system's authorities, for a host of the world; not `create_default_context`, which would
    write the session's keys where SSLKEYLOGFILE says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_default_certs()
    return context


def _read(what: str, status: int, data: bytes) -> Any:
    if 200 <= status < 300:
        try:
            return json.loads(data or b"{}")
        except ValueError as exc:
            raise ApiLost(f"{what} answered {status} with something that is not JSON") from exc
    words = f"{what} answered {status}{_words(data)}"
    if status in _NO_ANSWER:
        raise ApiFailed(words, hint=SERVICE_FAILS)
    if status == _BUSY:
        raise ApiNotSent(words, hint=SERVICE_FAILS)
    raise ApiRefused(status, words)


def _words(data: bytes) -> str:
    """What the API says of a refusal: code, message and fields."""
    try:
        body = json.loads(data)
        parts = [body.get("code"), body.get("message")]
        parts += [f"{f.get('name')}: {f.get('message')}" for f in body.get("fields") or []]
    except (ValueError, AttributeError, TypeError):
        return ""
    words = without_secrets(" ".join(str(part) for part in parts if part))
    return f": {printable(words, _MOST_WORDS)}" if words else ""


def rows_of(answer: Any, key: str) -> list[dict[str, Any]]:
    """The rows of a list in an answer; none where it has no such list."""
    found = answer.get(key) if isinstance(answer, dict) else None
    return [item for item in found or [] if isinstance(item, dict)]
