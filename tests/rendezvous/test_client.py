"""The client, against real registries and against servers that behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import json
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from rendezvous.talk import dialling
from rendezvous.talk.certificate import make_certificate, public_key_pin
from rendezvous.talk.client import RegistryClient, aged
from rendezvous.talk.credentials import new_secret
from rendezvous.talk.failures import Fault, NetworkFailure
from rendezvous.talk.http_network import HttpNetwork
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.network import Answer, Line, Network, Request
from rendezvous.wire import errors
from rendezvous.wire.errors import (
    Fenced,
    NotFound,
    RdzvError,
    RequestError,
    Unauthorized,
    Unavailable,
)
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport
from rendezvous.wire.run import Phase
from rendezvous.wire.table import EndpointTable, TableRow, canonical_json
from rendezvous.wire.watch import NodeView
from tests.support.registry import Launch, Node, Registry, by_public_key, running
from tests.support.waiting import soon

WIRE = Path(__file__).parent.parent / "wire"

# Servers that behave badly


@dataclass
class ServerLine:
    """One connection of a client, as the server sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    received: bytes = b""
    is_open: bool = True

    async def request(self) -> str:
        """The next request's path; empty at the end."""
        head = b""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await self.reader.readuntil(b"\r\n\r\n")
        self.received += head
        return head.split(b" ")[1].decode() if head else ""

    def answer(self, body: Any, status: int = 200, headers: str = "x-rdzv: test\r\n") -> None:
        """Answer with JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\n{headers}content-length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)


Script = Callable[[ServerLine], Awaitable[None]]


@dataclass
class FakeRegistry:
    """A server that answers health checks and leaves the rest to a script for each connection."""

    script: Script
    lines: list[ServerLine] = field(default_factory=list)
    server: asyncio.Server | None = None
    port: int = 0

    async def start(self, address: str = "127.0.0.1", port: int = 0, **options: Any) -> None:
        """Listen."""
        self.server = await asyncio.start_server(self._serve, address, port, **options)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = ServerLine(reader, writer)
        self.lines.append(line)
        try:
            await self.script(line)
        except ConnectionError:
            pass
        finally:
            line.is_open = False
            writer.close()

    @property
    def place(self) -> RegistryPlace:
        """Where it is."""
        return RegistryPlace(("127.0.0.1",), self.port)

    async def refuse(self) -> None:
        """Take no more connections; those that are open stay."""
        assert self.server is not None
        self.server.close()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def fake(script: Script, **options: Any) -> AsyncIterator[FakeRegistry]:
    """A server on loopback with this script."""
    made = FakeRegistry(script)
    await made.start(**options)
    try:
        yield made
    finally:
        assert made.server is not None
        made.server.close()
        for line in made.lines:
            line.writer.transport.abort()
        await soon(lambda: not any(line.is_open for line in made.lines))


async def healthy(line: ServerLine) -> str:
    """Answer health checks; the first other path."""
    while (path := await line.request()) == "/healthz":
        line.answer("ok")
    return path


async def until_closed(line: ServerLine) -> None:
    """Say nothing until the client closes."""
    while piece := await line.reader.read(65536):
        line.received += piece


async def silent(line: ServerLine) -> None:
    """Accept and say nothing."""
    await until_closed(line)


def replies(*answers: tuple[int, Any]) -> Script:
    """Give these answers, one for each request of any connection, then none."""
    left = list(answers)

    async def script(line: ServerLine) -> None:
        while await healthy(line) and left:
            status, body = left.pop(0)
            line.answer(body, status)

    return script


def make_view(**changes: Any) -> dict[str, Any]:
    """A view with a table of two rows, as a registry sends it."""
    rows = [
        TableRow(
            rank=rank,
            slot=rank,
            hostname=f"host{rank}",
            address=f"10.0.0.{rank + 1}",
            interface="eth0",
            prefix_length=24,
            nproc_per_node=1,
            mac="0" * 64,
        )
        for rank in (0, 1)
    ]
    table = EndpointTable(
        run="r", launch_id="l", epoch=1, master_address="10.0.0.1", master_port=29500, rows=rows
    )
    view = NodeView(
        seq=3, phase=Phase.ARMING, epoch=1, reason="x", digest=table.digest(), table=table
    )
    sent: dict[str, Any] = view.model_dump(mode="json", exclude_none=True)
    return sent | changes


def client_of(place: RegistryPlace, seconds: float = 1.0) -> RegistryClient:
    """A client of whoever is at that place."""
    return RegistryClient(place, "r." + "A" * 43, request_seconds=seconds)


@contextlib.asynccontextmanager
async def connected(place: RegistryPlace, seconds: float) -> AsyncIterator[RegistryClient]:
    """A client that has found its registry, and has little patience from now on."""
    async with client_of(place, 10.0) as client:
        await client.connect()
        client._seconds = seconds
        yield client


async def failure(place: RegistryPlace, seconds: float = 10.0) -> str:
    """The sentence about a registry that cannot be reached; seconds, where that takes them all."""
    async with client_of(place, seconds) as client:
        with pytest.raises(Unavailable) as refusal:
            await client.connect()
        proven_wrong = "another launch" in refusal.value.message or "hold this run's" in (
            refusal.value.message
        )
        asks_for_port = refusal.value.hint.startswith("check that this node can open that port")
        assert asks_for_port != proven_wrong
        return refusal.value.message


# Dialling


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


async def test_addresses_that_do_not_answer_do_not_delay_the_one_that_does(
    registry: Registry,
) -> None:
    port = registry.port
    with black_hole("127.77.0.2", port):
        async with fake(silent, address="127.77.0.3", port=port):
            place = RegistryPlace(("127.77.0.2", "127.77.0.3", "127.77.0.4", "127.0.0.1"), port)
            async with RegistryClient(place, registry.operator, request_seconds=10) as client:
                started = time.monotonic()
                assert await client.connect() == f"http://127.0.0.1:{port}"
                assert time.monotonic() - started < 8
                assert await client.runs() is not None


@pytest.mark.parametrize(("moment", "kept"), [(30.0, "127.0.0.1"), (None, "127.77.0.2")])
async def test_the_first_address_of_the_list_is_kept_unless_it_is_much_later(
    monkeypatch: pytest.MonkeyPatch, moment: float | None, kept: str
) -> None:
    answered = asyncio.Event()

    async def after_the_other(line: ServerLine) -> None:
        await answered.wait()
        if moment is not None:
            await asyncio.sleep(0.1)
            await healthy(line)
        await until_closed(line)

    async def at_once(line: ServerLine) -> None:
        assert await line.request() == "/healthz"
        line.answer("ok")
        answered.set()
        await until_closed(line)

    if moment is not None:
        monkeypatch.setattr(dialling, "HEAD_START_SECONDS", moment)
    async with (
        fake(after_the_other) as first,
        fake(at_once, address="127.77.0.2", port=first.port),
    ):
        addresses = ("127.77.0.3", "127.0.0.1", "127.77.0.2")
        async with client_of(RegistryPlace(addresses, first.port), 20.0) as client:
            assert await client.connect() == f"http://{kept}:{first.port}"


async def test_a_name_that_cannot_be_resolved_is_told_with_where_it_comes_from() -> None:
    name = "a" * 64 + ".example"  # no name server is asked: no label is as long
    async with client_of(RegistryPlace((name,), 29600)) as client:
        with pytest.raises(Unavailable) as refusal:
            await client.connect()
    assert f"({name}: its name cannot be resolved (" in refusal.value.message
    assert "check MASTER_ADDR" in refusal.value.hint


async def test_each_address_that_failed_is_named_with_its_reason() -> None:
    async with fake(silent) as server:
        port = server.port
        with black_hole("127.77.0.2", port):
            place = RegistryPlace(("127.0.0.1", "127.77.0.2", "127.77.0.3"), port)
            words = await failure(place, 2.0)
    assert words.startswith(f"no registry at port {port} of 127.0.0.1, 127.77.0.2, 127.77.0.3 (")
    for part in (
        "127.0.0.1: it accepted the connection and did not answer",
        "127.77.0.2: no answer (filtered, or the host is down)",
        "127.77.0.3: connection refused (no registry is listening)",
    ):
        assert part in words


def says(data: bytes) -> Script:
    """Send this at once and close."""

    async def script(line: ServerLine) -> None:
        await line.request()
        line.writer.write(data)
        await line.writer.drain()

    return script


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (says(b"220 mail ESMTP\r\n\r\n"), "it does not speak HTTP"),
        (says(b""), "it closed the connection without an answer; it may speak TLS"),
        (
            says(b"HTTP/1.1 200 OK\r\nserver: nginx\r\ncontent-length: 2\r\n\r\nhi"),
            "something else than an rdzv registry answers there",
        ),
        (
            says(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
            "something else than an rdzv registry answers there",
        ),
    ],
)
async def test_a_server_that_is_no_registry_is_told_as_such(script: Script, words: str) -> None:
    async with fake(script) as server:
        assert words in await failure(server.place)


async def test_an_address_that_cannot_be_reached_is_told_in_the_systems_words() -> None:
    assert "255.255.255.255: Network is unreachable" in await failure(
        RegistryPlace(("255.255.255.255",), 9)
    )


async def test_a_host_that_its_neighbours_do_not_find_is_told_as_one_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise OSError(errno.EHOSTUNREACH, "Connect call failed ('10.77.0.10', 9)")

    monkeypatch.setattr("anyio.connect_tcp", connect)
    assert "10.77.0.10: no answer (filtered, or the host is down)" in await failure(
        RegistryPlace(("10.77.0.10",), 9)
    )


async def test_of_two_addresses_that_answer_one_is_kept_and_the_other_closed() -> None:
    async with fake(replies((200, {"runs": []}))) as server:
        async with client_of(RegistryPlace(("127.0.0.1",) * 3, server.port)) as client:
            assert await client.runs() == []
            await soon(lambda: len([line for line in server.lines if line.is_open]) == 1)
        await soon(lambda: not any(line.is_open for line in server.lines))


async def test_dialling_that_is_given_up_leaves_no_connection_behind() -> None:
    async with fake(silent) as server:
        async with client_of(server.place, 20) as client:
            dialling = asyncio.create_task(client.connect())
            await soon(lambda: len(server.lines) == 1)
            dialling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dialling
        await soon(lambda: not server.lines[0].is_open)


async def test_a_registry_that_answers_at_another_address_is_found_again() -> None:
    async with fake(replies((200, {"runs": []}))) as first:
        port = first.port
        async with client_of(RegistryPlace(("127.0.0.1", "127.77.0.2"), port)) as client:
            assert await client.runs() == []
            assert client.base == f"http://127.0.0.1:{port}"
            await first.refuse()
            for line in first.lines:
                line.writer.close()
            await asyncio.sleep(0.05)
            async with fake(replies((200, {"runs": []})), address="127.77.0.2", port=port):
                with pytest.raises(Unavailable, match=r"127.0.0.1:.*connection refused"):
                    await client.runs()
                assert await client.runs() == []
                assert client.base == f"http://127.77.0.2:{port}"


# TLS


async def test_a_pinned_certificate_is_enough_whatever_the_address_is(
    tls_registry: Registry,
) -> None:
    place = replace(tls_registry.place, addresses=("localhost",))
    async with RegistryClient(place, tls_registry.operator) as client:
        assert await client.runs() == []
        assert client.base == f"https://127.0.0.1:{tls_registry.port}"


async def test_the_public_key_alone_is_enough(tls_registry: Registry) -> None:
    async with RegistryClient(by_public_key(tls_registry), tls_registry.operator) as client:
        assert await client.runs() == []


@contextlib.asynccontextmanager
async def impostor(**changes: Any) -> AsyncIterator[tuple[FakeRegistry, RegistryPlace]]:
    """A server with a certificate of its own for the same name, and the place it pretends to be."""
    real, own = make_certificate(new_secret()), make_certificate(new_secret())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(own.pem + own.key_pem)
        file.flush()
        context.load_cert_chain(file.name)
    for name, value in changes.items():
        setattr(context, name, value)
    async with fake(silent, ssl=context) as server:
        yield server, RegistryPlace(("127.0.0.1",), server.port, "certificate", real.der)


async def test_another_certificate_is_refused_before_anything_is_sent() -> None:
    async with impostor() as (server, place):
        assert "127.0.0.1: it does not hold this run's certificate" in await failure(place)
        assert [line.received for line in server.lines if line.received] == []


async def test_another_public_key_is_refused_before_anything_is_sent() -> None:
    async with impostor() as (server, place):
        pinned = replace(place, trust="public_key", proof=public_key_pin(new_secret()))
        assert "another launch answers there, with another key" in await failure(pinned)
        assert [line.received for line in server.lines if line.received] == []


async def test_a_server_that_changes_its_certificate_after_the_pin_was_checked_is_refused() -> None:
    """The pin is checked on the bytes that are then trusted: there is no gap between the two."""
    async with impostor() as (server, place):
        pinned = replace(place, trust="public_key", proof=b"x" * 32)
        async with RegistryClient(pinned, network=OutOfDate()) as client:
            with pytest.raises(Unavailable, match="it does not hold this run's certificate"):
                await client.connect()
        assert [line.received for line in server.lines if line.received] == []


class OutOfDate(HttpNetwork):
    """Finds a certificate that is another one a moment later."""

    async def _fetch_certificate(self, *_: object) -> bytes:
        return make_certificate(new_secret()).der


async def test_an_old_version_of_tls_is_refused() -> None:
    async with impostor(maximum_version=ssl.TLSVersion.TLSv1_2) as (server, place):
        assert "it may not speak TLS 1.3" in await failure(place)
        assert [line.received for line in server.lines if line.received] == []


async def test_http_and_tls_that_meet_are_told_apart(
    registry: Registry, tls_registry: Registry
) -> None:
    plain_to_tls = RegistryPlace(("127.0.0.1",), tls_registry.port)
    assert "without an answer; it may speak TLS" in await failure(plain_to_tls)
    certificate = replace(tls_registry.place, port=registry.port)
    assert "it does not speak TLS 1.3 (WRONG_VERSION_NUMBER)" in await failure(certificate)
    public_key = replace(by_public_key(tls_registry), port=registry.port)
    assert "it does not speak TLS 1.3 (WRONG_VERSION_NUMBER)" in await failure(public_key)


async def test_a_silent_server_is_told_with_tls_too() -> None:
    async with fake(silent) as server:
        for place in (
            replace(server.place, trust="certificate", proof=make_certificate(new_secret()).der),
            replace(server.place, trust="public_key", proof=bytes(32)),
        ):
            assert "127.0.0.1: no answer" in await failure(place, 0.3)


def test_no_clock_is_wrong_enough_for_the_certificate(tls_registry: Registry) -> None:
    pem = ssl.get_server_certificate(("127.0.0.1", tls_registry.port), timeout=5)
    made = x509.load_pem_x509_certificate(pem.encode())
    assert (made.not_valid_before_utc.year, made.not_valid_after_utc.year) == (2000, 2099)


async def test_the_environment_changes_nothing(
    tls_registry: Registry, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with fake(silent) as proxy:
        for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
        for place in (tls_registry.place, by_public_key(tls_registry)):
            async with RegistryClient(place, tls_registry.operator) as client:
                assert await client.runs() == []
        async with RegistryClient(registry.place, registry.operator) as client:
            assert isinstance(await client.runs(), list)
        assert proxy.lines == []
        assert not (tmp_path / "keys").exists()


# Watching: a new connection before the old one is given up


async def poll_once(client: RegistryClient) -> Any:
    return await client.watch("r", 0, 0, 0.1)


async def join_once(client: RegistryClient) -> Any:
    return await client.join("r", Launch("r").join(0))


async def leave(client: RegistryClient) -> Any:
    return await client.report("r", 0, LeaveReport())


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (poll_once, make_view()),
        (join_once, json.loads((WIRE / "JoinReply.json").read_text())),
        (leave, {"seq": 3}),
    ],
)
async def test_a_nodes_stalled_request_is_sent_again_on_a_second_connection_first(
    ask: Callable[[RegistryClient], Awaitable[Any]], answer: dict[str, Any]
) -> None:
    """The old connection is given up only once the new one has been answered."""
    old_was_open: list[bool] = []

    async def script(line: ServerLine) -> None:
        await healthy(line)
        if line in server.lines[1:2]:
            old_was_open.append(server.lines[0].is_open)
            await asyncio.sleep(0.1)
            old_was_open.append(server.lines[0].is_open)
            line.answer(answer)
        await until_closed(line)

    async with fake(script) as server, connected(server.place, 0.5) as client:
        reply = await asyncio.wait_for(ask(client), 10)
        assert (reply.seq, old_was_open) == (3, [True, True])
        assert len(server.lines) <= 3
        await soon(lambda: not server.lines[0].is_open)


async def test_a_poll_outlives_refused_connections_and_does_not_hammer() -> None:
    answer = asyncio.Event()

    async def script(line: ServerLine) -> None:
        await healthy(line)
        await answer.wait()
        line.answer(make_view())
        await until_closed(line)

    async with fake(script) as server, connected(server.place, 1.0) as client:
        poll = asyncio.create_task(client.watch("r", 0, 0, 0.1))
        await soon(lambda: len(server.lines) == 1)
        await server.refuse()
        dialled: list[float] = []

        class Counted(HttpNetwork):
            async def open(self, place: RegistryPlace, address: str, seconds: float) -> Line:
                dialled.append(asyncio.get_running_loop().time())
                return await super().open(place, address, seconds)

        client._network = Counted()
        await soon(lambda: len(dialled) == 3)
        assert not poll.done()
        assert server.lines[0].is_open
        assert min(later - one for one, later in itertools.pairwise(dialled)) > 0.19
        answer.set()
        assert (await asyncio.wait_for(poll, 10)).seq == 3


async def test_after_a_new_dial_the_old_connection_is_kept_until_the_new_one_has_answered() -> None:
    seen: list[tuple[str, bool]] = []

    async def script(line: ServerLine) -> None:
        while path := await line.request():
            if line is not server.lines[0]:
                seen.append((path.partition("?")[0], server.lines[0].is_open))
            line.answer("ok" if path == "/healthz" else {"runs": []})

    async with fake(script) as server, client_of(server.place, 10) as client:
        assert await client.runs() == []
        client._dial_again = True
        assert await client.runs() == []
        assert seen == [("/healthz", True), ("/v1/runs", True)]
        await soon(lambda: not server.lines[0].is_open)


async def test_an_address_where_an_answer_is_late_is_left_for_another() -> None:
    """Small messages may pass there, as those that are dialled with, and large ones vanish."""

    async def vanishing(line: ServerLine) -> None:
        await healthy(line)
        await until_closed(line)

    async def busy(line: ServerLine) -> None:
        await asyncio.sleep(0.1)
        await replies((200, make_view()))(line)

    async with fake(vanishing) as first:
        again = fake(busy, address="127.77.0.2", port=first.port)
        async with again, connected(first.place, 1.0) as client:
            client.place = replace(first.place, addresses=("127.0.0.1", "127.77.0.2"))
            view = await client.watch("r", 0, 0, 0.1)
            assert (view.seq, client.base) == (3, f"http://127.77.0.2:{first.port}")


async def test_a_refusal_ends_the_poll_though_an_older_try_still_waits() -> None:
    problem = {"code": "fenced", "message": "replaced"}

    async def script(line: ServerLine) -> None:
        await healthy(line)
        if line is not server.lines[0]:
            line.answer(problem, 409)
        await until_closed(line)

    async with fake(script) as server, connected(server.place, 0.5) as client:
        with pytest.raises(Fenced, match="replaced"):
            await asyncio.wait_for(client.watch("r", 0, 0, 0.1), 10)


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_is_as_old_as_it_is_when_it_is_told(code: int) -> None:
    report = ExitReport(epoch=1, exit_code=code, age_seconds=0.5)
    assert aged(report, 2.0) == ExitReport(epoch=1, exit_code=code, age_seconds=2.5)


def test_other_reports_have_no_age() -> None:
    report = AckReport(epoch=1, digest="0" * 64)
    assert aged(report, 2.0) is report


async def test_an_exit_that_is_told_again_is_older_then() -> None:
    """Else a failure whose first report was lost would count as later than what it caused."""
    ages: list[float] = []

    async def script(line: ServerLine) -> None:
        await healthy(line)
        length = line.received.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
        body = await line.reader.readexactly(int(length))
        ages.append(ExitReport.model_validate_json(body).age_seconds)
        if line is not server.lines[0]:
            line.answer({"seq": 3})
        await until_closed(line)

    async with fake(script) as server, connected(server.place, 0.5) as client:
        await client.report("r", 0, ExitReport(epoch=1, exit_code=3, age_seconds=1.0))
        assert ages[0] >= 1.0
        assert ages[1] - ages[0] > 0.25


async def test_a_failed_try_is_followed_by_another_as_long_as_the_first_is_waited_for() -> None:
    late, began = 1.2, asyncio.get_running_loop().time()

    async def script(line: ServerLine) -> None:
        await healthy(line)
        if line in server.lines[:2]:
            await until_closed(line)  # forgotten on the way
        elif asyncio.get_running_loop().time() > began + 3 * late:
            line.answer(make_view())

    async with fake(script) as server, connected(server.place, 0.4) as client:
        view = await client.watch("r", 0, 0, late - 0.4)
        assert view.seq == 3


async def test_a_poll_on_a_connection_that_ends_fails_at_once() -> None:
    async def script(line: ServerLine) -> None:
        await healthy(line)

    async with fake(script) as server, client_of(server.place, 5) as client:
        with pytest.raises(Unavailable, match="it closed the connection without an answer"):
            await asyncio.wait_for(client.watch("r", 0, 0, 20), 10)


async def test_a_poll_that_is_cancelled_leaves_no_connection_waiting() -> None:
    async def script(line: ServerLine) -> None:
        await healthy(line)
        await until_closed(line)

    async with fake(script) as server, connected(server.place, 0.5) as client:
        poll = asyncio.create_task(client.watch("r", 0, 0, 0.1))
        await soon(lambda: sum(b"/watch" in line.received for line in server.lines) >= 2)
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        await soon(lambda: not any(line.is_open for line in server.lines))


# Answers


class Scripted(Network):
    """A registry without a socket: it gives this answer to everything."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def addresses_of(self, name: str, seconds: float) -> list[str]:
        """See the protocol."""
        return [name]

    async def open(self, place: RegistryPlace, address: str, seconds: float) -> Line:
        """See the protocol."""
        return ScriptedLine(self._answer)


class ScriptedLine(Line):
    """See `Scripted`."""

    base = "http://registry"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def request(self, request: Request, seconds: float) -> Answer:
        """See the protocol."""
        if request.target == "/healthz":
            return Answer(200, {"x-rdzv": "test"}, b"ok")
        return self._answer

    def stream(self, request: Request, quiet: float) -> Any:
        """See the protocol."""
        raise NetworkFailure(Fault.CLOSED)

    async def aclose(self) -> None:
        """See the protocol."""


def answered(status: int, body: Any) -> RegistryClient:
    """A client of a registry that answers this to everything."""
    place = RegistryPlace(("127.0.0.1",), 29600)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return RegistryClient(place, "r." + "A" * 43, network=Scripted(Answer(status, {}, data)))


def _wire_errors() -> list[type[RdzvError]]:
    found, classes = [], [RdzvError]
    while classes:
        made = classes.pop()
        found.append(made)
        classes += made.__subclasses__()
    return [made for made in found if made.__module__ == errors.__name__]


@pytest.mark.parametrize("made", _wire_errors(), ids=lambda made: made.code)
async def test_a_refusal_is_the_error_that_its_code_names(made: type[RdzvError]) -> None:
    body = {
        "code": made.code,
        "message": "what happened",
        "hint": "what to try",
        "retryable": made.retryable,
        "colour": "new",
    }
    with pytest.raises(made) as refusal:
        await answered(made.status, body).runs()
    assert type(refusal.value) is made
    assert (refusal.value.message, refusal.value.hint) == ("what happened", "what to try")


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (418, {"code": "teapot", "message": "short"}, RequestError, "short"),
        (425, {"code": "early", "message": "wait", "retryable": True}, Unavailable, "wait"),
        (
            502,
            b"<html>Bad\x1b[0m Gateway</html>",
            Unavailable,
            "the registry answered 502: b'<html>",
        ),
        (500, b"", Unavailable, "the registry answered 500"),
        (200, b"<html>", Unavailable, "the registry's answer is no RunList"),
        (200, {"runs": [{"run": 1}]}, Unavailable, "the registry's answer is no RunList"),
    ],
)
async def test_an_answer_that_is_not_known_is_told(
    status: int, body: Any, error: type[RdzvError], words: str
) -> None:
    with pytest.raises(RdzvError) as refusal:
        await answered(status, body).runs()
    assert type(refusal.value) is error
    assert refusal.value.message.startswith(words)
    assert "\x1b" not in refusal.value.message


async def watch_answer(body: Any) -> NodeView:
    """What a client makes of this answer to a poll."""
    return await answered(200, body).watch("r", 0, 0, 1)


async def test_a_table_that_does_not_fit_its_digest_is_refused() -> None:
    good = make_view()
    assert (await watch_answer(good)).digest == good["digest"]
    for change in (
        {"master_port": 29501},
        {"rows": good["table"]["rows"][:1]},
        {"rows": good["table"]["rows"][::-1]},
        {"colour": "red"},
    ):
        bad = good | {"table": good["table"] | change}
        with pytest.raises(Unavailable, match=r"the table received has digest [0-9a-f]{12}, not "):
            await watch_answer(bad)
    with pytest.raises(Unavailable, match="the table received has digest"):
        await watch_answer(good | {"digest": ""})


async def test_keys_of_a_newer_registry_do_not_break_the_digest() -> None:
    view = make_view(colour="new")
    view["table"] |= {"fabric": {"kind": "ib"}, "alias": ["é", None]}
    view["table"]["rows"][0]["gpu"] = "H200"
    view["digest"] = hashlib.sha256(canonical_json(view["table"])).hexdigest()
    received = await watch_answer(view)
    assert received.digest == view["digest"]
    assert received.table is not None
    assert [row.hostname for row in received.table.rows] == ["host0", "host1"]


async def test_a_view_of_an_unknown_phase_is_told_as_another_version() -> None:
    with pytest.raises(Unavailable, match="the registry's answer is no NodeView") as refusal:
        await watch_answer(make_view(phase="levitating"))
    assert refusal.value.hint.startswith("another version of rdzv")


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


async def test_events_of_a_run_that_is_not_there_are_refused(registry: Registry) -> None:
    async with registry.client(Launch("x").keys.read) as client:
        with pytest.raises(NotFound):
            async for _ in client.events("nosuch"):
                pass


async def test_a_stream_of_events_that_breaks_off_is_told() -> None:
    async def script(line: ServerLine) -> None:
        await healthy(line)
        line.writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\n\r\n")
        await line.writer.drain()

    async with fake(script) as server, client_of(server.place) as client:
        with pytest.raises(Unavailable):
            async for _ in client.events("r"):
                pass


async def test_a_wrong_token_is_refused_as_unauthorized(registry: Registry) -> None:
    launch = Launch("tokens")
    await registry.create(launch)
    async with Node(registry.place, Launch("tokens"), 0) as node:
        with pytest.raises(Unauthorized, match="this join token is not one of run 'tokens'"):
            await node.join()


async def test_the_credential_is_not_in_the_repr_of_a_client(registry: Registry) -> None:
    async with registry.client() as client:
        assert client.credential is not None
        assert client.credential not in repr(client)
