"""How to talk to a registry: the only module that names httpx.

A registry has several addresses; they are dialled side by side, and the first of them that proves
itself is kept. Every failure of the network becomes `Unavailable`, with what happened at each
address; every refusal becomes the error that its code names.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import hmac
import ipaddress
import json
import random
import socket
import ssl
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from rendezvous.compat import BaseExceptionGroup, timeout
from rendezvous.errors import Mismatch, RdzvError, Unavailable, error_from_code
from rendezvous.schema import (
    RELAY_POLL_SECONDS,
    EndpointTable,
    EventLine,
    ExitReport,
    JoinReply,
    JoinRequest,
    MetricBatch,
    MetricReply,
    NodeView,
    Parcel,
    Problem,
    Refusal,
    RelayMail,
    RelayPost,
    RelayReply,
    Report,
    ReportReply,
    RunList,
    RunMetrics,
    RunReport,
    RunSpec,
    RunStatus,
    SlotNews,
    canonical_json,
    printable,
)
from rendezvous.security import SERVER_NAME, Credential, RegistryPlace, client_context

# With httpx comes its command line, and with that rich, click and pygments where they are
# installed: 5 MB of each agent. It does without what cannot be imported.
sys.modules.setdefault("httpx._main", cast(Any, None))
import httpx  # noqa: E402

_HEAD_START_SECONDS = 0.25  # as long as one connection attempt has before the next, RFC 8305
REQUEST_SECONDS = 2.0
"""Seconds. A short time-out with a new connection beats the kernel's retries, which double."""

_MAX_TRIES_AT_ONCE = 3
_CLOSED = "it closed the connection without an answer"
_OPEN_PORT = (
    "check that this node can open that port on rank 0's node, and that the registry has it there"
)
_NO_NAME = "its name cannot be resolved"
_NO_SERVER = "no name server has told its address"
_WAIT_FOR_NAME = (
    "nobody here knows the name of rank 0's node: check MASTER_ADDR, and on Kubernetes the "
    "headless service (with publishNotReadyAddresses) and the pods' subdomain; with Slurm, that "
    "'scontrol show node' tells its address here"
)
_NO_TLS = f"{_CLOSED}; it may not speak TLS 1.3"
_NOT_PROVEN = "it does not hold this run's certificate"
_OTHER_JOIN = (
    "somebody else listens there, or a newer launch: start this node with the RDZV_JOIN of the "
    "launch that runs now"
)

Model = TypeVar("Model")


def retry_pause(draw: random.Random | None = None) -> float:
    """Seconds before the next try: steady, with jitter.

    Exponential backoff would cost a quarter of a registry's lateness."""
    return (draw or random).uniform(0.2, 0.5)  # type: ignore[attr-defined]


def aged(report: Report, seconds: float) -> Report:
    """The report as it is told so much later: the registry judges by age who failed first."""
    if not isinstance(report, ExitReport):
        return report
    return report.model_copy(update={"age_seconds": report.age_seconds + seconds})


class RegistryClient:
    """A client of one registry.

    Args:
        place: Where the registry is and how it proves itself.
        credential: Sent with every request; may be set later.
        request_seconds: Time-out of one request that does not wait on purpose.
    """

    def __init__(
        self,
        place: RegistryPlace,
        credential: Credential | str | None = None,
        *,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.place = place
        self.credential = credential.text() if isinstance(credential, Credential) else credential
        self._seconds = request_seconds
        self._http: httpx.AsyncClient | None = None
        self._former: list[httpx.AsyncClient] = []
        self._dial_again = False
        self._dialling = asyncio.Lock()
        self._address = ""
        self._late: set[str] = set()
        self.base = ""

    async def __aenter__(self) -> RegistryClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            self._former.append(self._http)
            self._http = None
        await self._close_former()

    async def _close_former(self) -> None:
        former, self._former = self._former, []
        for client in former:
            await client.aclose()

    # --- dialling -----------------------------------------------------------------------------

    async def connect(self) -> str:
        """Dial all addresses side by side; returns the base URL of the one that is used.

        It is the first of the list among those that prove themselves within a moment of each
        other: which network a node joins from must not depend on how busy its machine is. Those on
        which an answer was late start later: small messages may pass there, as these do, and large
        ones vanish.

        Raises:
            Unavailable: None did; the message says what happened at each address.
        """
        # Those that start later have no head start over the others, too.
        addresses = sorted(self.place.addresses, key=self._late.__contains__)
        tasks = [asyncio.create_task(self._dial(address)) for address in addresses]
        try:
            number = await _first_in_order(tasks)
            if number is not None:
                self._address = addresses[number]
                self._keep(tasks.pop(number).result())
                return self.base
            errors = zip(addresses, [task.exception() for task in tasks], strict=True)
            failures = {address: _words(error) for address, error in errors if error is not None}
        finally:
            await _give_up(set(tasks))
        # In the order of the addresses, not of the answers: the same state is the same sentence.
        words = "; ".join(f"{a}: {failures[a]}" for a in self.place.addresses)
        unknown = all(words.startswith((_NO_NAME, _NO_SERVER)) for words in failures.values())
        raise Unavailable(
            f"no registry at port {self.place.port} of {', '.join(self.place.addresses)} ({words})",
            hint=_WAIT_FOR_NAME if unknown else _hint_for(words),
        )

    def _keep(self, client: httpx.AsyncClient) -> None:
        """Use this client from now on.

        The former one is closed once a request has been answered on the new one: to the registry
        a node whose last connection is closed is gone.
        """
        if self._http is not None:
            self._former.append(self._http)
        self._http, self._dial_again = client, False
        self.base = str(client.base_url).rstrip("/")

    async def _ready(self) -> httpx.AsyncClient:
        async with self._dialling:
            if self._http is None or self._dial_again:
                await self.connect()
        assert self._http is not None
        return self._http

    async def _dial(self, name: str) -> httpx.AsyncClient:
        """Dial an address, or those of a name one after another."""
        if name in self._late:
            await asyncio.sleep(self._seconds / 4)
        *others, last = await _addresses_of(name, self._seconds)
        for address in others:
            with contextlib.suppress(httpx.TransportError, RdzvError, OSError):
                return await self._dial_address(address)
        return await self._dial_address(last)

    async def _dial_address(self, address: str) -> httpx.AsyncClient:
        scheme = "http" if self.place.trust == "plain" else "https"
        host = f"[{address}]" if ":" in address else address
        client = httpx.AsyncClient(
            base_url=f"{scheme}://{host}:{self.place.port}",
            verify=await self._context(address),
            trust_env=False,
            headers={"host": SERVER_NAME, "accept-encoding": "gzip"},
            timeout=httpx.Timeout(self._seconds),
            limits=httpx.Limits(max_connections=8, keepalive_expiry=60.0),
        )
        try:
            answer = await client.get("/healthz", extensions={"sni_hostname": SERVER_NAME})
            if answer.headers.get("x-rdzv") is None:
                raise Unavailable("something else than an rdzv registry answers there")
        except (httpx.RemoteProtocolError, httpx.ReadError) as exc:
            await client.aclose()
            if scheme == "https":
                raise
            raise Unavailable(f"{_words(exc)}; it may speak TLS") from exc
        except BaseException:
            await client.aclose()
            raise
        return client

    async def _context(self, address: str) -> ssl.SSLContext | bool:
        """What must be proven at this address, before anything is sent."""
        if self.place.trust == "plain":
            return False
        if self.place.trust == "certificate":
            return client_context(self.place.proof)
        return client_context(await self._fetch_certificate(address))

    async def _fetch_certificate(self, address: str) -> bytes:
        """The certificate at the address, if it holds the public key that is expected.

        Nothing is sent on this connection; the next one trusts exactly these bytes.
        """
        from rendezvous.certificate import pin_of_certificate

        try:
            async with timeout(self._seconds):
                _, writer = await asyncio.open_connection(
                    address, self.place.port, ssl=_unverified_context(), server_hostname=SERVER_NAME
                )
        except ConnectionResetError as exc:
            raise Unavailable(_NO_TLS) from exc
        try:
            der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.transport.abort()
        if not hmac.compare_digest(pin_of_certificate(der), self.place.proof):
            raise Unavailable(
                "another launch answers there, with another key; RDZV_TOKEN must be the same "
                "on every node"
            )
        return bytes(der)

    # --- requests -----------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        params: dict[str, Any] | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """Send one request; returns the body of the answer.

        Raises:
            Unavailable: The network failed. If no connection could be opened, the next call dials
                all addresses again.
            RdzvError: The registry refused; the class is the one its code names.
        """
        http = await self._ready()
        try:
            answer = await http.request(
                method,
                path,
                content=None if body is None else body.model_dump_json().encode(),
                headers=self._headers(),
                params=params,
                timeout=httpx.Timeout(seconds or self._seconds, connect=self._seconds),
                extensions={"sni_hostname": SERVER_NAME},
            )
        except (httpx.TransportError, ssl.SSLError) as exc:
            # A time-out may be a lost packet: what else to dial is the only reason for doing so.
            elsewhere = len(self.place.addresses) > 1 and isinstance(exc, httpx.ConnectTimeout)
            self._dial_again |= elsewhere or isinstance(exc, httpx.ConnectError)
            raise Unavailable(f"{self.base}: {_words(exc)}") from exc
        if http is self._http:
            await self._close_former()
        if answer.status_code >= 400:
            raise _refusal(answer.status_code, answer.content)
        return answer.content

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if self.credential is not None:
            headers["authorization"] = f"Bearer {self.credential}"
        return headers

    # --- what a node says ---------------------------------------------------------------------

    async def join(self, run: str, request: JoinRequest) -> JoinReply:
        """Ask for the slot; the credential of the answer is used from then on."""
        path = f"/v1/runs/{run}/nodes"
        data = await self._persistently("POST", path, lambda: request, late=self._seconds)
        reply = _parse(JoinReply, data)
        self.credential = reply.credential
        return reply

    async def refuse(self, run: str, slot: int, refusal: Refusal) -> ReportReply:
        """Tell why this node does not join."""
        data = await self.request("POST", f"/v1/runs/{run}/slots/{slot}/refusal", refusal)
        return _parse(ReportReply, data)

    async def watch(self, run: str, slot: int, after: int, poll: float) -> NodeView:
        """The next news, or the present reason when there is none."""
        path = f"/v1/runs/{run}/nodes/{slot}/watch"
        late = poll + self._seconds
        return _parse_view(
            await self._persistently("GET", path, late=late, params={"after": after})
        )

    async def report(self, run: str, slot: int, report: Report) -> ReportReply:
        """Tell something of this node."""
        path = f"/v1/runs/{run}/nodes/{slot}/reports"
        clock = asyncio.get_running_loop().time
        began = clock()

        def now() -> Report:
            return aged(report, clock() - began)

        data = await self._persistently("POST", path, now, late=self._seconds)
        return _parse(ReportReply, data)

    async def send_metrics(self, run: str, slot: int, batch: MetricBatch) -> MetricReply:
        """Tell how this node's processes get on; what is lost on the way may be sent again."""
        path = f"/v1/runs/{run}/nodes/{slot}/metrics"
        return _parse(MetricReply, await self.request("POST", path, batch))

    async def relay_give(self, run: str, slot: int, parcels: list[Parcel]) -> RelayReply:
        """Send frames of remote commands to other nodes."""
        path = f"/v1/runs/{run}/nodes/{slot}/relay"
        return _parse(RelayReply, await self.request("POST", path, RelayPost(parcels=parcels)))

    async def relay_take(self, run: str, slot: int, after: int, session: str) -> RelayMail:
        """The frames of remote commands for this node after those that it has; waits for one."""
        data = await self.request(
            "GET",
            f"/v1/runs/{run}/nodes/{slot}/relay",
            params={"after": after, "session": session},
            seconds=RELAY_POLL_SECONDS + self._seconds,
        )
        return _parse(RelayMail, data)

    async def _persistently(
        self,
        method: str,
        path: str,
        body: Callable[[], BaseModel] | None = None,
        *,
        late: float,
        params: dict[str, Any] | None = None,
    ) -> bytes:
        """Send a node's request, and again on other connections when its answer is late.

        They are opened before the first is given up: a closed connection tells the registry that
        the node is gone. Two follow soon upon each other, as a network that lost one may well lose
        the next. While the first is waited for, one that failed is followed by another: those that
        still wait may be on connections that nobody knows any more. What a node says may arrive
        twice: it counts once.
        """
        patience, longest = late, 4 * late
        give_up_at = asyncio.get_running_loop().time() + longest

        def start() -> asyncio.Task[bytes]:
            now = body and body()
            sent = self.request(method, path, now, params=params, seconds=longest)
            return asyncio.create_task(sent)

        tries = {start()}
        try:
            while True:
                done, tries = await asyncio.wait(
                    tries, timeout=patience, return_when="FIRST_COMPLETED"
                )
                for task in sorted(done, key=_is_unavailable):
                    if not tries or not _is_unavailable(task):
                        return task.result()
                if done:  # refused at once, while an older try still waits
                    await asyncio.sleep(retry_pause())
                elif len(self.place.addresses) > 1:
                    # Large messages may vanish on this way, or answers go to another machine that
                    # has this node's address there.
                    self._late.add(self._address)
                    self._dial_again = True
                in_time = asyncio.get_running_loop().time() < give_up_at
                if in_time and len(tries) < _MAX_TRIES_AT_ONCE:
                    tries.add(start())
                    patience = self._seconds / 2
        finally:
            await _give_up(tries)

    # --- what a launcher or a person says -----------------------------------------------------

    async def create(self, run: str, spec: RunSpec) -> RunStatus:
        """Make a run."""
        return _parse(RunStatus, await self.request("PUT", f"/v1/runs/{run}", spec))

    async def cancel(self, run: str, reason: str) -> RunStatus:
        """End a run."""
        data = await self.request("DELETE", f"/v1/runs/{run}", params={"reason": reason})
        return _parse(RunStatus, data)

    async def slot_news(self, run: str, slot: int, news: SlotNews) -> RunStatus:
        """Tell what the scheduler says of a slot."""
        data = await self.request("POST", f"/v1/runs/{run}/slots/{slot}", news)
        return _parse(RunStatus, data)

    async def status(self, run: str, *, after: int = -1, wait: float = 0.0) -> RunStatus:
        """The run's state; with `wait`, once its version is above `after`."""
        data = await self.request(
            "GET",
            f"/v1/runs/{run}",
            params={"after": after, "wait": wait},
            seconds=wait + self._seconds,
        )
        return _parse(RunStatus, data)

    async def checks(self, run: str) -> RunReport:
        """What was checked before the go, and what was found."""
        return _parse(RunReport, await self.request("GET", f"/v1/runs/{run}/report"))

    async def metrics(self, run: str, after: int | None = None) -> RunMetrics:
        """The newest row of each process; with `after`, the rows numbered above it."""
        params = None if after is None else {"after": after}
        data = await self.request("GET", f"/v1/runs/{run}/metrics", params=params)
        return _parse(RunMetrics, data)

    async def table(self, run: str, digest: str) -> EndpointTable:
        """The run's endpoint table with this digest."""
        return _parse(EndpointTable, await self.request("GET", f"/v1/runs/{run}/tables/{digest}"))

    async def runs(self) -> list[RunStatus]:
        """All runs of the registry."""
        return _parse(RunList, await self.request("GET", "/v1/runs")).runs

    async def events(self, run: str, after: int = 0) -> AsyncGenerator[EventLine, None]:
        """The run's events as they happen, until the run is over."""
        http = await self._ready()
        path = f"/v1/runs/{run}/events"
        try:
            async with http.stream(
                "GET",
                path,
                params={"after": after},
                headers=self._headers(),
                timeout=httpx.Timeout(self._seconds, read=30.0),
                extensions={"sni_hostname": SERVER_NAME},
            ) as answer:
                if answer.status_code >= 400:
                    raise _refusal(answer.status_code, await answer.aread())
                async for line in answer.aiter_lines():
                    if line:
                        yield _parse(EventLine, line.encode())
        except httpx.TransportError as exc:
            raise Unavailable(f"{self.base}: {_words(exc)}") from exc


async def _addresses_of(name: str, seconds: float) -> list[str]:
    """The addresses of a name; an address is its own.

    A thread of its own looks them up. A name server that is silent would hold up the event loop's
    threads for many seconds, and the end of this process with them.
    """
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return [name]
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def tell(found: list[str] | Unavailable) -> None:
        if answer.done():
            return
        if isinstance(found, Unavailable):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def look() -> None:
        found = _look_up(name)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=look, name="look-up", daemon=True).start()
    try:
        async with timeout(seconds):
            return await answer
    except TimeoutError as exc:
        raise Unavailable(f"{_NO_SERVER} within {seconds:.0f} s") from exc


def _look_up(name: str) -> list[str] | Unavailable:
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        return Unavailable(f"{_NO_NAME} ({getattr(exc, 'strerror', exc)})")
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def _hint_for(words: str) -> str:
    """What to do about the failures at all addresses."""
    if _NOT_PROVEN in words:
        return _OTHER_JOIN
    return "" if "another launch" in words else _OPEN_PORT


def _is_unavailable(task: asyncio.Task[bytes]) -> bool:
    return isinstance(task.exception(), Unavailable)


async def _first_in_order(tasks: Sequence[asyncio.Task[Any]]) -> int | None:
    """The place of the task to take, None when all have failed.

    Once one has succeeded, those before it have a moment left.
    """
    clock, until = asyncio.get_running_loop().time, float("inf")
    while True:
        good = [n for n, task in enumerate(tasks) if task.done() and task.exception() is None]
        if good:
            until = min(until, clock() + _HEAD_START_SECONDS)
        pending = [task for task in tasks[: good[0] if good else None] if not task.done()]
        if not pending or clock() >= until:
            return good[0] if good else None
        left = until - clock() if good else None
        await asyncio.wait(pending, timeout=left, return_when="FIRST_COMPLETED")


async def _give_up(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, httpx.AsyncClient):
            await result.aclose()


@functools.cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _parse(model: type[Model], data: bytes) -> Model:
    try:
        found: Model = _adapter(cast(Any, model)).validate_json(data)
    except ValidationError as exc:
        raise Unavailable(
            f"the registry's answer is no {model.__name__}: {exc.errors()[0]['msg']}",
            hint="another version of rdzv, or something else, answers there",
        ) from exc
    return found


def _parse_view(data: bytes) -> NodeView:
    """The view, after its table has been checked against its digest.

    The digest is taken over what was received, keys that this version does not know included.
    """
    view = _parse(NodeView, data)
    if view.table is not None:
        received = hashlib.sha256(canonical_json(json.loads(data)["table"])).hexdigest()
        if received != view.digest:
            raise Unavailable(f"the table received has digest {received[:12]}, not {view.digest}")
    return view


def _refusal(status: int, body: bytes) -> RdzvError:
    try:
        problem = Problem.model_validate_json(body)
    except ValidationError:
        return Unavailable(f"the registry answered {status}: {printable(repr(body), 200)}")
    error = error_from_code(problem.code, problem.message, problem.hint)
    if isinstance(error, Mismatch):
        error.command_word = problem.command_word
    if problem.retryable and not error.retryable:  # a code of a newer registry
        return Unavailable(problem.message, hint=problem.hint)
    return error


def _unverified_context() -> ssl.SSLContext:
    """For a look at a certificate. A plain SSLContext reads no SSLKEYLOGFILE."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _words(error: BaseException) -> str:
    """What a failed connection means, in words."""
    if isinstance(error, RdzvError):
        return error.message
    if isinstance(error, httpx.ReadTimeout):
        return "it accepted the connection and did not answer"
    cause = _system_error(error)
    no_host = cause is not None and cause.errno == errno.EHOSTUNREACH
    if no_host or isinstance(error, httpx.TimeoutException | TimeoutError):
        return "no answer (filtered, or the host is down)"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused (no registry is listening)"
    if isinstance(cause, ConnectionResetError | BrokenPipeError):
        return _CLOSED
    if isinstance(cause, ssl.SSLEOFError):
        return _NO_TLS
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _NOT_PROVEN
    if isinstance(cause, ssl.SSLError):
        return f"it does not speak TLS 1.3 ({cause.reason})"
    if isinstance(error, httpx.NetworkError) and not isinstance(error, httpx.ConnectError):
        return _CLOSED
    if isinstance(error, httpx.RemoteProtocolError):
        return _CLOSED if "disconnected" in str(error) else "it does not speak HTTP"
    return (cause and cause.strerror) or str(error) or type(error).__name__


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
