"""The real network: sockets, TLS, name look-up. The only module that names httpx."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import ipaddress
import random
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from rendezvous.background import in_background
from rendezvous.compat import BaseExceptionGroup, timeout
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.talk.failures import Fault, NetworkFailure
from rendezvous.talk.http_stream import HttpStream, streaming
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.network import HEADERS, Answer, Line, Request
from rendezvous.talk.other_program import HTTP_REQUEST, MOST_BYTES, recognise
from rendezvous.talk.retry import RANDOM
from rendezvous.wire.words import bracketed

# With httpx comes its command line, and with that rich, click and pygments where they are
# installed: 5 MB of each agent. It does without what cannot be imported.
sys.modules.setdefault("httpx._main", cast(Any, None))
import anyio  # noqa: E402, F401 (httpx and httpcore would import these while a registry waits)
import h11  # noqa: E402, F401
import httpcore  # noqa: E402
import httpx  # noqa: E402

# httpcore asks for it four times a request, and where it is not installed Python looks through all
# folders each time. Where it is, anyio has imported it.
sys.modules.setdefault("sniffio", cast(Any, None))

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME; the ssl module has no name for it

_LOOK_SECONDS = 0.5
"""For each step of a look at another program."""
_FIRST_HOLD_SECONDS = 0.25
_LONGEST_HOLD_SECONDS = 2.0
_FORGET_SECONDS = 10.0
"""Who asks after so long has not been waiting for it."""


def hold_seconds(times: int, draw: random.Random) -> float:
    """For how long an answer is used that has come so many times in a row."""
    most = _FIRST_HOLD_SECONDS * 2.0 ** min(times, 16)
    return min(most, _LONGEST_HOLD_SECONDS) * draw.uniform(0.75, 1.0)


@dataclass(slots=True)
class _Resolved:
    addresses: list[str]
    failure: NetworkFailure | None
    at: float
    times: int
    until: float

    def get(self) -> list[str]:
        if self.failure is not None:
            raise self.failure.again()
        return list(self.addresses)


class Names:
    """The last answers of a resolver; that for a name which is asked for repeatedly is used for a
    growing while.

    A node asks for its registry every 0.2 to 0.5 s until that is there, and each look-up is two
    queries for each search domain: of a thousand nodes a name server would hear nothing else.

    Args:
        clock: Seconds.
        draw: Of how long an answer is used.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, draw: random.Random = RANDOM
    ) -> None:
        self._clock = clock
        self._draw = draw
        self._known: dict[str, _Resolved] = {}

    async def addresses_of(
        self, name: str, look_up: Callable[[str], Awaitable[list[str]]]
    ) -> list[str]:
        """The addresses of a name, by `look_up` or as it said last; raises NetworkFailure."""
        last = self._known.get(name)
        if last is not None and self._clock() < last.until:
            return last.get()
        failure, found = None, list[str]()
        try:
            found = await look_up(name)
        except NetworkFailure as exc:
            failure = exc
        now, times = self._clock(), 0
        if last is not None and now - last.at < _FORGET_SECONDS and found == last.addresses:
            times = last.times + 1
        answer = _Resolved(found, failure, now, times, now + hold_seconds(times, self._draw))
        self._known[name] = answer
        return answer.get()


_NAMES = Names()
"""Of this process, whoever asks: clients come and go while one name is waited for."""


class HttpNetwork:
    """See `network.Network`."""

    async def addresses_of(self, name: str, seconds: float) -> list[str]:
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return [name]

        async def look_up(name: str) -> list[str]:
            try:
                async with timeout(seconds):
                    return await in_background(_look_up, name)
            except TimeoutError as exc:
                raise NetworkFailure(Fault.NO_NAME_SERVER, f"{seconds:.0f}") from exc

        return await _NAMES.addresses_of(name, look_up)

    async def open(self, place: RegistryPlace, address: str, seconds: float) -> Line:
        at = place.host_and_port(address)
        async with _recognised(*at):
            with _translated():
                verify = await self._context(place, address, seconds)
                return HttpLine(*at, verify, seconds)

    async def _context(
        self, place: RegistryPlace, address: str, seconds: float
    ) -> ssl.SSLContext | None:
        """What must be proven at this address, before anything is sent."""
        if place.trust == "plain":
            return None
        if place.trust == "certificate":
            return client_context(place.proof)
        return client_context(await self._fetch_certificate(place, address, seconds))

    async def _fetch_certificate(self, place: RegistryPlace, address: str, seconds: float) -> bytes:
        """The certificate at the address, if it holds the public key that is expected.

        Nothing is sent on this connection; the next one trusts exactly these bytes.
        """
        from rendezvous.talk.certificate import pin_of_certificate

        to, context = place.host_and_port(address), _unverified_context()
        try:
            async with timeout(seconds):
                _, writer = await asyncio.open_connection(
                    *to, ssl=context, server_hostname=SERVER_NAME
                )
        except ConnectionResetError as exc:
            raise NetworkFailure(Fault.NO_TLS) from exc
        try:
            der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.transport.abort()
        if not hmac.compare_digest(pin := pin_of_certificate(der), place.proof):
            raise NetworkFailure(Fault.OTHER_KEY, pin.hex())
        return bytes(der)


class HttpLine:
    """See `network.Line`."""

    def __init__(
        self, address: str, port: int, verify: ssl.SSLContext | None, seconds: float
    ) -> None:
        self._address = address
        self._port = port
        self._verify = verify
        self._seconds = seconds
        scheme = "http" if verify is None else "https"
        self._http = httpx.AsyncClient(
            base_url=f"{scheme}://{bracketed(address)}:{port}",
            verify=verify or False,
            trust_env=False,
            headers=HEADERS,
            timeout=httpx.Timeout(seconds),
            limits=httpx.Limits(max_connections=8, keepalive_expiry=60.0),
        )
        self.base = str(self._http.base_url).rstrip("/")

    async def request(self, request: Request, seconds: float) -> Answer:
        opening = _Opening()
        with_tls = {"sni_hostname": SERVER_NAME, "trace": opening.trace}
        try:
            async with _recognised(self._address, self._port):
                with _translated():
                    answer = await self._http.request(
                        request.method,
                        request.target,
                        content=request.body,
                        headers=request.headers,
                        timeout=httpx.Timeout(seconds, connect=self._seconds),
                        extensions=with_tls if self._verify else {},
                    )
        except asyncio.CancelledError:
            await opening.give_up()
            raise
        return Answer(answer.status_code, answer.headers, answer.content)

    @contextlib.asynccontextmanager
    async def stream(self, request: Request, quiet: float) -> AsyncIterator[HttpStream]:
        with _translated():
            connection = await self._connect()
            async with streaming(*connection, request, quiet) as stream:
                yield stream

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Another connection than those of httpx."""
        name = None if self._verify is None else SERVER_NAME
        try:
            async with timeout(self._seconds):
                return await asyncio.open_connection(
                    self._address, self._port, ssl=self._verify, server_hostname=name
                )
        except TimeoutError as exc:
            raise httpx.ConnectTimeout("") from exc
        except OSError as exc:
            raise httpx.ConnectError(str(exc)) from exc

    def anew(self) -> HttpLine:
        return HttpLine(self._address, self._port, self._verify, self._seconds)

    async def aclose(self) -> None:
        await self._http.aclose()


class _Opening:
    """The connection of a request whose TLS handshake is under way: httpcore forgets to close it
    where the request is cancelled meanwhile (seen in 1.0.9)."""

    def __init__(self) -> None:
        self._stream: httpcore.AsyncNetworkStream | None = None

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """See https://www.encode.io/httpcore/extensions/#trace."""
        if event == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif event == "connection.start_tls.complete":
            self._stream = None

    async def give_up(self) -> None:
        """Close it."""
        if self._stream is not None:
            await self._stream.aclose()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Every failure of httpx, TLS and the system becomes a NetworkFailure."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as exc:
        fault, detail = _fault_of(exc)
        opened = not isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout)
        raise NetworkFailure(fault, detail, opened=opened) from exc


@contextlib.asynccontextmanager
async def _recognised(host: str, port: int) -> AsyncIterator[None]:
    """Where a handshake fails, the failure names the program that answers."""
    try:
        yield
    except NetworkFailure as exc:
        if exc.fault not in (Fault.TLS, Fault.NO_TLS):
            raise
        found = recognise(await _first_bytes(host, port))
        if found is None:
            raise
        fault = Fault.OTHER_PROGRAM if found.is_firm else Fault.PROXY
        raise NetworkFailure(fault, found.name, opened=exc.opened) from exc


async def _first_bytes(host: str, port: int) -> bytes:
    """What a program says first, or to a request of HTTP; empty where it says nothing."""
    with contextlib.suppress(OSError, TimeoutError):
        async with timeout(_LOOK_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
        try:
            for words in (b"", HTTP_REQUEST):
                writer.write(words)
                with contextlib.suppress(TimeoutError):
                    async with timeout(_LOOK_SECONDS):
                        return await reader.read(MOST_BYTES)
        finally:
            writer.transport.abort()
    return b""


def _fault_of(error: Exception) -> tuple[Fault, str]:
    if isinstance(error, httpx.ReadTimeout):
        return Fault.SILENT, ""
    cause = _system_error(error)
    if cause is not None and cause.errno == errno.EHOSTUNREACH:
        return Fault.HOST_DOWN, ""
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return Fault.FILTERED, ""
    if cause is not None and (known := _known(cause)) is not None:
        return known
    if isinstance(error, httpx.NetworkError) and not isinstance(error, httpx.ConnectError):
        return Fault.CLOSED, ""
    if isinstance(error, httpx.RemoteProtocolError):
        return Fault.CLOSED if "disconnected" in str(error) else Fault.NOT_HTTP, ""
    return Fault.OTHER, (cause and cause.strerror) or str(error) or type(error).__name__


def _known(cause: OSError) -> tuple[Fault, str] | None:
    if isinstance(cause, ConnectionRefusedError):
        return Fault.REFUSED, ""
    if isinstance(cause, ConnectionResetError | BrokenPipeError):
        return Fault.CLOSED, ""
    if isinstance(cause, ssl.SSLEOFError):
        return Fault.NO_TLS, ""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Fault.NOT_PROVEN, ""
    if isinstance(cause, ssl.SSLError):
        return Fault.TLS, str(cause.reason)
    return None


def _system_error(error: BaseException | None) -> OSError | None:
    """The system's own error, behind those that libraries made of it."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif isinstance(error, OSError) and (error.errno or isinstance(error, ConnectionError)):
            return error
        else:
            error = error.__cause__ or error.__context__
    return None


def _look_up(name: str) -> list[str]:
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise NetworkFailure(Fault.NO_NAME, str(getattr(exc, "strerror", exc))) from exc
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def client_context(certificate: bytes) -> ssl.SSLContext:
    """A TLS 1.3 context that trusts exactly this certificate (DER) and nothing else.

    A plain SSLContext reads no default CAs and no SSLKEYLOGFILE. The trust lies in the bytes, so no
    date is looked at: a node whose clock stands at 1970 must be able to join.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= _NO_CHECK_TIME
    # Not as DER: how OpenSSL says that there is no more of it has changed (3.5.7, for one), and
    # CPython 3.11 takes that for a damaged certificate (NOT_ENOUGH_DATA).
    context.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(certificate))
    return context


def _unverified_context() -> ssl.SSLContext:
    """For a look at a certificate. A plain SSLContext reads no SSLKEYLOGFILE."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
