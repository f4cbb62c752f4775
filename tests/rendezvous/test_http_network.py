"""The client on real sockets: what their failures are called, TLS, and every call once."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from rendezvous.compat import BaseExceptionGroup
from rendezvous.talk.certificate import make_certificate, public_key_pin
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import new_secret
from rendezvous.talk.failures import Fault, NetworkFailure
from rendezvous.talk.http_network import HttpNetwork, _fault_of
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.network import Request
from rendezvous.wire.errors import NotFound, Unavailable
from rendezvous.wire.reports import ExitReport, LeaveReport
from rendezvous.wire.run import Phase
from tests.attack.server import tls
from tests.support.registry import (
    REQUEST_SECONDS,
    Launch,
    Node,
    Registry,
    by_public_key,
    running,
)
from tests.support.waiting import soon

HERE = "127.0.0.1"
OK = b"HTTP/1.1 200 OK\r\nx-rdzv: test\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class ServerLine:
    """One connection of a client, as the server sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    received: bytes = b""
    is_open: bool = True


Script = Callable[[ServerLine], Awaitable[None]]


@dataclass
class FakeRegistry:
    """A server with a script for each connection."""

    script: Script
    lines: list[ServerLine] = field(default_factory=list)
    place: RegistryPlace = field(init=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        self.lines.append(line := ServerLine(reader, writer))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.script(line)
        line.is_open = False
        writer.close()

    @property
    def received(self) -> list[bytes]:
        """What came on those connections on which anything came."""
        return [line.received for line in self.lines if line.received]


@contextlib.asynccontextmanager
async def fake(script: Script, **options: Any) -> AsyncIterator[FakeRegistry]:
    """A server on loopback with this script."""
    made = FakeRegistry(script)
    server = await asyncio.start_server(made.serve, HERE, 0, **options)
    made.place = RegistryPlace((HERE,), server.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        server.close()
        for line in made.lines:
            line.writer.transport.abort()
        await soon(lambda: not any(line.is_open for line in made.lines))


async def silent(line: ServerLine) -> None:
    """Say nothing until the client closes."""
    while piece := await line.reader.read(65536):
        line.received += piece


def says(data: bytes) -> Script:
    """Send this at once and close."""

    async def script(line: ServerLine) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        line.writer.write(data)
        await line.writer.drain()

    return script


async def deaf(line: ServerLine) -> None:
    """Answer the health check, and nothing else."""
    await says(OK)(line)
    await silent(line)


def client_of(place: RegistryPlace, seconds: float = 10.0) -> RegistryClient:
    """A client of whoever is at that place."""
    return RegistryClient(place, "r." + "A" * 43, request_seconds=seconds)


async def failure(place: RegistryPlace, seconds: float = 10.0) -> str:
    """The sentence about a registry that cannot be reached; seconds, where that takes them all."""
    async with client_of(place, seconds) as client:
        with pytest.raises(Unavailable) as refusal:
            await client.connect()
        return refusal.value.message


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry without TLS."""
    with running(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def tls_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry with TLS."""
    with running(tmp_path_factory.mktemp("registry"), tls=True) as made:
        yield made


# What happened at an address


@contextlib.contextmanager
def black_hole(address: str, port: int) -> Iterator[None]:
    """An address at which connecting takes for ever: a listener whose queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((address, listener.getsockname()[1]))
        yield


@pytest.mark.real_time
async def test_each_address_that_failed_is_named_with_its_reason() -> None:
    async with fake(silent) as server:
        with black_hole("127.77.0.2", server.place.port):
            addresses = (HERE, "127.77.0.2", "127.77.0.3", "255.255.255.255")
            words = await failure(replace(server.place, addresses=addresses), 2.0)
    for part in (
        "127.0.0.1: it accepted the connection but did not answer",
        "127.77.0.2: no answer (filtered, or the host is down)",
        "127.77.0.3: connection refused (no registry is listening)",
        "255.255.255.255: Network is unreachable",
    ):
        assert part in words


async def test_a_name_that_cannot_be_resolved_is_told_with_where_it_comes_from() -> None:
    name = "a" * 64 + ".example"  # no name server is asked: no label is as long
    async with client_of(RegistryPlace((name,), 29600)) as client:
        with pytest.raises(Unavailable) as refusal:
            await client.connect()
    assert f"({name}: its name cannot be resolved (" in refusal.value.message
    assert "check MASTER_ADDR" in refusal.value.hint


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"220 mail ESMTP\r\n\r\n", "it does not speak HTTP"),
        (b"", "it closed the connection without an answer; it may speak TLS"),
        (OK.replace(b"x-rdzv", b"server"), "it answered, but it is not an rdzv registry"),
    ],
)
async def test_a_server_that_is_no_registry_is_told_as_such(data: bytes, words: str) -> None:
    async with fake(says(data)) as server:
        assert words in await failure(server.place)


async def test_a_host_that_its_neighbours_do_not_find_is_told_as_one_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise OSError(errno.EHOSTUNREACH, "Connect call failed ('10.77.0.10', 9)")

    monkeypatch.setattr("anyio.connect_tcp", connect)
    words = await failure(RegistryPlace(("10.77.0.10",), 9))
    assert "10.77.0.10: no answer (filtered, or the host is down)" in words


# Connections


async def test_a_poll_that_is_cancelled_leaves_no_connection_waiting() -> None:
    async def script(line: ServerLine) -> None:
        await (deaf if line is server.lines[0] else silent)(line)

    async with fake(script) as server, client_of(server.place) as client:
        await client.connect()
        client._seconds = 0.2
        poll = asyncio.create_task(client.watch("r", 0, 0, 0.2))
        await soon(lambda: sum(b"/watch" in received for received in server.received) >= 2)
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        await soon(lambda: not any(line.is_open for line in server.lines))


async def test_a_line_anew_uses_no_connection_of_the_former_one(tls_registry: Registry) -> None:
    asked = Request("GET", "/healthz", {})
    for place in (tls_registry.place, by_public_key(tls_registry)):
        line = await HttpNetwork().open(place, HERE, 10.0)
        await line.request(asked, 10.0)
        another = line.anew()
        await line.aclose()
        answer = await another.request(asked, 10.0)
        await another.aclose()
        assert (another.base, answer.status) == (line.base, 200)


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "it closed the connection without an answer"),
        (HEAD[:20], "it closed the connection without an answer"),
        (HEAD + b"1\r\n\n\r\n", "it closed the connection without an answer"),
        (b"220 mail.example ESMTP\r\n\r\n", "it does not speak HTTP"),
        (HEAD + b"no number\r\n", "it does not speak HTTP"),
        (HEAD + b"3\r\n{}\n\r\n", "not a valid EventLine"),
        (HEAD.replace(b"200 OK", b"503 No") + b"0\r\n\r\n", "the registry answered 503"),
    ],
    ids=["nothing", "half a head", "half a body", "another head", "no chunk", "no event", "503"],
)
async def test_a_stream_of_events_that_breaks_off_is_told(answer: bytes, words: str) -> None:
    async def script(line: ServerLine) -> None:
        await says(OK if line is server.lines[0] else answer)(line)

    async with fake(script) as server, client_of(server.place) as client:
        with pytest.raises(Unavailable, match=words):
            async for _ in client.events("r"):
                pass


async def test_a_stream_of_events_for_which_there_is_nobody_is_told() -> None:
    async with fake(says(OK)) as server, client_of(server.place) as client:
        await client.connect()
        line = client.lines.used
        assert line is not None
    refused = Request("GET", "/v1/runs/r/events", {})
    with pytest.raises(NetworkFailure) as raised:
        async with line.stream(refused, 1.0):
            pass
    assert (raised.value.fault, raised.value.opened) == (Fault.REFUSED, False)


async def test_a_stream_that_is_quiet_for_too_long_is_told_and_its_connection_closed() -> None:
    async def script(line: ServerLine) -> None:
        await (says(OK) if line is server.lines[0] else silent)(line)

    async with fake(script) as server, client_of(server.place) as client:
        await client.connect()
        assert client.lines.used is not None
        asked = Request("GET", "/v1/runs/r/events", {})
        with pytest.raises(NetworkFailure) as raised:
            async with client.lines.used.stream(asked, 0.1):
                pass
        assert raised.value.fault is Fault.SILENT
        await soon(lambda: not server.lines[1].is_open)


# TLS


async def test_a_pinned_certificate_or_the_public_key_is_enough_whatever_the_address_is(
    tls_registry: Registry,
) -> None:
    for place in (tls_registry.place, by_public_key(tls_registry)):
        async with client_of(replace(place, addresses=("localhost",))) as client:
            assert await client.connect() == f"https://127.0.0.1:{tls_registry.port}"


class OutOfDate(HttpNetwork):
    """Finds a certificate that is another one a moment later."""

    async def _fetch_certificate(self, *_: object) -> bytes:
        return make_certificate(new_secret()).der


REAL = make_certificate(new_secret()).der
CERTIFICATE = {"trust": "certificate", "proof": REAL}
OTHER_PIN = {"trust": "public_key", "proof": public_key_pin(new_secret())}


@pytest.mark.parametrize(
    ("trusted", "network", "newest", "words"),
    [
        (CERTIFICATE, HttpNetwork(), "TLSv1_3", "it does not hold this run's certificate"),
        (OTHER_PIN, HttpNetwork(), "TLSv1_3", "it has another key: another RDZV_TOKEN"),
        # The pin is checked on the bytes that are then trusted: there is no gap between the two.
        (OTHER_PIN, OutOfDate(), "TLSv1_3", "it does not hold this run's certificate"),
        (CERTIFICATE, HttpNetwork(), "TLSv1_2", "it might not speak TLS 1.3"),
        (OTHER_PIN, HttpNetwork(), "TLSv1_2", "it might not speak TLS 1.3"),
    ],
    ids=["certificate", "public key", "changes after the check", "TLS 1.2", "TLS 1.2 with a key"],
)
async def test_an_impostor_is_refused_before_anything_is_sent(
    trusted: dict[str, Any], network: HttpNetwork, newest: str, words: str
) -> None:
    context = tls(make_certificate(new_secret()), ssl.TLSVersion[newest])
    async with fake(silent, ssl=context) as server:
        place = replace(server.place, **trusted)
        async with RegistryClient(place, network=network) as client:
            with pytest.raises(Unavailable, match=words):
                await client.connect()
        assert server.received == []


def answers(status: str, body: bytes) -> Script:
    """Answer the health check, and then this to all that comes."""

    async def script(line: ServerLine) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        line.writer.write(OK)
        while head := await line.reader.readuntil(b"\r\n\r\n"):
            line.received += head
            line.writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (
                status.encode(), len(body)) + body)  # fmt: skip

    return script


@pytest.mark.parametrize("by_key", [False, True], ids=["certificate", "public key"])
@pytest.mark.parametrize("is_replica", [False, True], ids=["an impostor", "a replica"])
async def test_who_names_another_replica_sends_no_credential_to_an_impostor(
    by_key: bool, is_replica: bool
) -> None:
    secret = new_secret()
    mine = make_certificate(secret)
    theirs = mine if is_replica else make_certificate(new_secret())
    here, there = (tls(one, ssl.TLSVersion.TLSv1_3) for one in (mine, theirs))
    trusted = {"trust": "certificate", "proof": mine.der}
    if by_key:
        trusted = {"trust": "public_key", "proof": public_key_pin(secret)}
    async with fake(answers("200 OK", b'{"runs": []}'), ssl=there) as target:
        address = f"{HERE}:{target.place.port}"
        told = b'{"code": "moved", "message": "there", "address": "%s"}' % address.encode()
        async with fake(answers("421 Misdirected Request", told), ssl=here) as first:
            place = replace(first.place, addresses=(f"{HERE}:{first.place.port}",), port=1)
            async with client_of(replace(place, **trusted)) as client:  # type: ignore[arg-type]
                if is_replica:
                    assert await client.runs() == []
                    assert client.base == f"https://{address}"
                else:
                    with pytest.raises(Unavailable, match=f"no registry at port .* of {HERE}"):
                        await client.runs()
        assert [b"authorization" in heard for heard in target.received] == [True] * is_replica


async def test_http_and_tls_that_meet_are_told_apart(
    registry: Registry, tls_registry: Registry
) -> None:
    plain_to_tls = RegistryPlace((HERE,), tls_registry.port)
    assert "without an answer; it may speak TLS" in await failure(plain_to_tls, 2.0)
    for place in (tls_registry.place, by_public_key(tls_registry)):
        words = await failure(replace(place, port=registry.port))
        assert "an rdzv registry without TLS answers there" in words


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"SSH-2.0-OpenSSH_9.2p1\r\n",
            "an SSH server (SSH-2.0-OpenSSH_9.2p1) answers there",
        ),
        (b"\x00\x01\x02hello", "a program whose first words are '???hello' answers there"),
    ],
)
async def test_a_program_that_speaks_first_is_named(answer: bytes, words: str) -> None:
    async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            await reader.read()
        writer.close()

    server = await asyncio.start_server(speaks, HERE, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for trusted in (CERTIFICATE, OTHER_PIN):
            place = RegistryPlace((HERE,), port, **trusted)  # type: ignore[arg-type]
            assert words in await failure(place)


async def test_a_silent_server_is_told_with_tls_too() -> None:
    async with fake(silent) as server:
        for trusted in (CERTIFICATE, OTHER_PIN):
            words = await failure(replace(server.place, **trusted), 0.3)  # type: ignore[arg-type]
            assert "127.0.0.1: no answer" in words


async def test_who_gives_up_in_a_tls_handshake_leaves_no_connection_open() -> None:
    """Not until Python collects it: the registry would take it for one that may still speak."""
    async with fake(silent) as server:
        for trusted in (CERTIFICATE, OTHER_PIN):
            place = replace(server.place, **trusted)  # type: ignore[arg-type]
            gc.disable()
            try:
                dialling = asyncio.ensure_future(failure(place))
                await soon(lambda: server.received != [])
                dialling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await dialling
                await soon(lambda: not any(line.is_open for line in server.lines))
            finally:
                gc.enable()
            server.lines.clear()


async def test_the_environment_changes_nothing(
    tls_registry: Registry, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with fake(silent) as proxy:
        for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.place.port}")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
        for place in (tls_registry.place, by_public_key(tls_registry), registry.place):
            shown = (registry if place is registry.place else tls_registry).operator
            async with RegistryClient(place, shown, request_seconds=REQUEST_SECONDS) as client:
                assert await client.runs() == []
        assert proxy.lines == []
        assert not (tmp_path / "keys").exists()


# The calls, on a real registry


async def test_every_call_of_a_launcher_and_a_node(tls_registry: Registry) -> None:
    launch = Launch("calls")
    async with tls_registry.client() as operator:
        assert (await operator.create("calls", launch.spec(1))).phase is Phase.GATHERING
        assert "calls" in [status.run for status in await operator.runs()]
    async with Node(tls_registry.place, launch, 0) as node:
        token = node.client.credential
        reply = await node.join()
        assert (node.client.credential, token) == (reply.credential, launch.token(0).text())
        await node.run()
        async with tls_registry.client(launch.keys.read) as reader:
            status = await reader.status("calls")
            assert (await reader.checks("calls")).hostnames == {0: "host0"}
            assert (await reader.table("calls", status.digest)).digest() == status.digest
            later = asyncio.create_task(reader.status("calls", after=status.version, wait=5))
            await node.report(ExitReport(epoch=1, exit_code=0))
            assert (await later).version > status.version
            await node.report(LeaveReport())
            kinds = [line.kind async for line in reader.events("calls")]
            assert kinds == ["created", "joined", "probed", "acked", "exited", "left"]
            rest = [line.number async for line in reader.events("calls", after=4)]
            assert rest == [5, 6]
    async with tls_registry.client(launch.keys.admin) as admin:
        result = (await admin.cancel("calls", "too late")).result
        assert result is not None
        assert result.status == "ok"
        with pytest.raises(NotFound):
            async for _ in admin.events("nosuch"):
                pass


# --- what an error of the network means ----------------------------------------------------------


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "x")
    error.reason = reason
    return error


def caused(error: Exception, *causes: BaseException) -> Exception:
    """An error that was raised from others, as libraries do."""
    last: BaseException = error
    for cause in causes:
        last.__cause__ = cause
        last = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault", "detail"),
    [
        (httpx.ReadTimeout("x"), Fault.SILENT, ""),
        (httpx.ConnectTimeout("x"), Fault.FILTERED, ""),
        (caused(httpx.ConnectError("x"), OSError(113, "no route")), Fault.HOST_DOWN, ""),
        (caused(httpx.ConnectTimeout("x"), OSError(113, "no route")), Fault.HOST_DOWN, ""),
        (caused(httpx.ConnectError("x"), ConnectionRefusedError(111, "x")), Fault.REFUSED, ""),
        (caused(httpx.WriteError("x"), BrokenPipeError(32, "x")), Fault.CLOSED, ""),
        (httpx.ReadError("x"), Fault.CLOSED, ""),
        (httpx.ConnectError("x"), Fault.OTHER, "x"),
        (httpx.RemoteProtocolError("Server disconnected"), Fault.CLOSED, ""),
        (httpx.RemoteProtocolError("illegal status line"), Fault.NOT_HTTP, ""),
        (caused(httpx.ConnectError("x"), ssl.SSLEOFError(8, "eof")), Fault.NO_TLS, ""),
        (
            caused(httpx.ConnectError("x"), ssl.SSLCertVerificationError(1, "bad")),
            Fault.NOT_PROVEN,
            "",
        ),
        (caused(httpx.ConnectError("x"), tls_error("NO_CIPHER")), Fault.TLS, "NO_CIPHER"),
        (
            caused(httpx.ConnectError("x"), LookupError(), OSError(101, "unreachable")),
            Fault.OTHER,
            "unreachable",
        ),
        (
            BaseExceptionGroup("all", [ConnectionResetError(104, "x"), OSError(113, "y")]),
            Fault.CLOSED,
            "",
        ),
        (LookupError(), Fault.OTHER, "LookupError"),
    ],
)
def test_what_an_error_says_of_the_way(error: Exception, fault: Fault, detail: str) -> None:
    assert _fault_of(error) == (fault, detail)
