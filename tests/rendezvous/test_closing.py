"""How a guarded connection ends, and the server's process, on real uvicorn and sockets."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest

from rendezvous.serving.connection import CloseReason
from rendezvous.serving.http11 import GuardedProtocol
from tests.support.guarded import (
    MEGABYTE,
    PATIENT,
    App,
    Served,
    body_of,
    post,
    problem_of,
    read_to_end,
    request,
    say,
    serve,
)
from tests.support.waiting import until

in_time = pytest.mark.real_time
CHUNKED = "Transfer-Encoding: chunked"


# The end of a connection


def shut(client: socket.socket) -> None:
    """Close it without a word of TLS."""
    os.close(client.detach())


def reset(client: socket.socket) -> None:
    """Close it as a kernel does that has lost the process."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    shut(client)


def say_goodbye(client: socket.socket) -> None:
    """Close it by TLS's own rules."""
    assert isinstance(client, ssl.SSLSocket)
    client.unwrap().close()


@pytest.mark.parametrize(
    ("tls", "leave", "told"),
    [
        (False, reset, CloseReason.RST),
        (True, say_goodbye, CloseReason.FIN),
        (True, shut, CloseReason.FIN),
        (True, reset, CloseReason.RST),
    ],
    ids=["reset", "TLS with close_notify", "TLS without", "TLS reset"],
)
def test_how_a_peer_has_closed_an_idle_connection_is_told(
    tls: bool, leave: Callable[[socket.socket], None], told: CloseReason
) -> None:
    with serve(tls=tls) as served:
        client = served.connect(tls=tls)
        assert say(client, request("/watch", close=False)) == b"watch"
        leave(client)
        assert served.ended() == told


def test_a_parked_connection_closed_by_its_peer_is_told_as_fin() -> None:
    with serve() as served:
        with served.connect() as client:
            client.sendall(request("/park"))
            assert served.app.parked.wait(10)
        assert served.ended() == CloseReason.FIN


@in_time
def test_a_connection_that_the_server_closes_is_told_as_local() -> None:
    with serve() as served:
        served.ask(request("/watch"))
        assert served.ended() == CloseReason.LOCAL
        with served.connect() as client:
            say(client, request("/watch", close=False))
            served.hurry()
            client.sendall(b"GET /e")
            read_to_end(client)
            assert served.ended() == CloseReason.LOCAL


@in_time
def test_a_peer_that_never_reads_is_lost() -> None:
    deaf = replace(PATIENT, unacknowledged=0.5)
    with serve(timeouts=deaf) as served, served.connect() as client:
        say(client, request("/watch", close=False))
        client.sendall(request("/large", close=False))
        assert served.ended() == CloseReason.LOST


# A server process


@contextlib.contextmanager
def server_process(listener: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves on the listener, which stays open here."""
    fd = listener.fileno()
    command = [sys.executable, "-m", "tests.support.guarded", str(fd)]
    with subprocess.Popen(command, pass_fds=[fd], stderr=subprocess.PIPE) as program:
        try:
            yield program
        finally:
            program.kill()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listening socket, made here as the launcher makes it."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


@in_time
def test_sigterm_ends_parked_polls_and_the_process_and_the_port_stays(
    listener: socket.socket,
) -> None:
    served = Served(App(), listener.getsockname()[1])
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(server_process(listener))
        parked, idle, unfinished = (stack.enter_context(served.connect()) for _ in range(3))
        parked.sendall(request("/park", close=False))
        say(idle, request(close=False))
        unfinished.sendall(post(9, b"1"))
        served.ask(request())  # by now those before it have been read
        first.send_signal(signal.SIGTERM)
        assert body_of(read_to_end(parked)) == b"park"
        assert problem_of(read_to_end(unfinished)) == (503, "unavailable")
        assert first.wait(10) == -signal.SIGTERM
        assert first.stderr is not None
        assert first.stderr.read() == b""  # where it would say that it has waited in vain
        idle.close()
        stack.enter_context(server_process(listener))
        assert body_of(served.ask(request())) == b"0 bytes"


@in_time
def test_floods_are_cut_off_and_leave_no_memory_behind(listener: socket.socket) -> None:
    served = Served(App(), listener.getsockname()[1])
    floods = [
        post(100 * MEGABYTE),
        request("/echo", CHUNKED, method="POST"),
        request("/echo")[:-2] + b"a: ",
        post(100 * MEGABYTE, path="/early"),
    ]
    with server_process(listener) as program:
        served.ask(request())
        memory = psutil.Process(program.pid).memory_info
        before = memory().rss
        for flood in floods:
            assert _bytes_taken(served, flood) < 20 * MEGABYTE
            assert memory().rss - before < 20 * MEGABYTE


def _bytes_taken(served: Served, header: bytes) -> int:
    """How much of 100 MB after the header the server lets in before it closes."""
    piece = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
    sent = 0
    with served.connect() as client, contextlib.suppress(ConnectionError):
        client.sendall(header)
        while sent < 100 * MEGABYTE:
            client.sendall(piece)
            sent += len(piece)
    return sent


def test_a_connection_that_has_ended_is_let_go_without_the_garbage_collector() -> None:
    """Else each one keeps what it had read: a flood of bodies cost 90 kB a connection."""
    gc.collect()
    gc.disable()
    try:
        before = _protocols()
        with serve() as served:
            for asked in [request("/echo", CHUNKED), post(100 * MEGABYTE), request()] * 5:
                served.ask(asked)
            until(lambda: _protocols() == before)
    finally:
        gc.enable()


def _protocols() -> int:
    return sum(isinstance(thing, GuardedProtocol) for thing in gc.get_objects())
