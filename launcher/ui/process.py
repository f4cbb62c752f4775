"""The process that serves the page: `rdzv ui`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import click
import uvloop

from launcher.state.find_run import unknown_run
from launcher.state.state_dir import StateDir
from launcher.ui.app import HEADERS, Served, make_app
from launcher.ui.ground import Ground
from launcher.ui.page import load, saved_page
from launcher.ui.runs import Runs
from launcher.ui.save import saved_of
from launcher.ui.scraped import metrics_key
from launcher.ui.sessions import LEAST_KEY_LETTERS, Sessions
from rendezvous.compat import timeout
from rendezvous.frozen import frozen
from rendezvous.serving.connection_rules import ConnectionRules
from rendezvous.serving.room import Room
from rendezvous.serving.uvicorn_server import GuardedServer
from rendezvous.wire.errors import RdzvError, UsageError
from rendezvous.wire.types import is_loopback
from rendezvous.wire.words import bracketed
from worker.program.process import die_with_parent

DEFAULT_PORT = 29_610
_PORT_TRIES = 50
_MOST_CONNECTIONS = 512
_NICE = 5
_FAREWELL_SECONDS = 2.0


@frozen
class UiSettings:
    """How the page is served.

    Attributes:
        run: The run that is shown; None: the list of runs.
        listen: The address.
        port: The first port that is tried; with `exact`, the only one.
        hosts: Host names beside those of this machine's loopback.
        actions: Whether the page may act.
        behind_ingress: Whether a proxy in front speaks TLS.
        parent: The launch whose page it is; it ends soon after that.
    """

    run: str | None = None
    listen: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    exact: bool = False
    hosts: Sequence[str] = ()
    actions: bool = False
    behind_ingress: bool = False
    parent: int | None = None


def check(settings: UiSettings, key: str) -> None:
    """Raises UsageError for what would show a run to strangers, or could be guessed."""
    if not is_loopback(settings.listen) and not settings.behind_ingress:
        raise UsageError(
            f"the page is served as plain HTTP, and every machine on the path to {settings.listen} "
            "could read it",
            hint="leave --ui-listen out and use 'ssh -L', or add --ui-behind-ingress where a proxy "
            "in front of it speaks TLS",
        )
    if key and len(key) < LEAST_KEY_LETTERS:
        raise UsageError(
            f"RDZV_UI_KEY has {len(key)} characters, and could be guessed",
            hint=f"take at least {LEAST_KEY_LETTERS}, such as what this prints: "
            "openssl rand -hex 16",
        )


def listen(settings: UiSettings) -> socket.socket:
    """A listening socket, on the next free port unless one was asked for. Raises UsageError."""
    last = settings.port if settings.exact else settings.port + _PORT_TRIES
    for port in range(settings.port, last + 1):
        try:
            family = socket.AF_INET6 if ":" in settings.listen else socket.AF_INET
            return socket.create_server((settings.listen, port), family=family, backlog=128)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE and port < last:
                continue
            reason = os.strerror(exc.errno) if exc.errno else str(exc)
            raise UsageError(
                f"the page cannot be served on port {port} of {settings.listen}: {reason}",
                hint="choose another port with --ui-port, or another address with --ui-listen",
            ) from exc
    raise AssertionError("a range of ports is never empty")


def serve(here: Ground, settings: UiSettings, key: str, say: Callable[[str], None]) -> int:
    """Serve the page until told to end; returns the exit code.

    Args:
        here: Where runs are read from.
        settings: How it is served.
        key: That a person chose to open sessions with; empty: none.
        say: Shows a line to the person; the links among them.

    Raises:
        UsageError: It cannot be served so.
    """
    if settings.parent is not None:
        die_with_parent(signal.SIGUSR1, settings.parent)
        os.nice(_NICE)
    sock = listen(settings)
    if settings.parent is None:  # a launch writes its record while its page starts
        _check_known(here, settings.run)
    try:
        uvloop.run(_serve(here, settings, key, say, sock))
    except KeyboardInterrupt:  # the server has closed, and raised the signal again
        return 128 + signal.SIGINT
    return 0


def _check_known(here: Ground, run: str | None) -> None:
    """Refuse a run that was not launched here, which no page would ever show; raises UsageError."""
    if run is None or here.elsewhere is not None:
        return
    if StateDir(here.root, run).record() is None:
        raise unknown_run(here.root, run)


def save(here: Ground, run: str, path: Path) -> None:
    """Write all of a run into one file that a browser shows. Raises RdzvError."""
    _check_known(here, run)
    page = asyncio.run(_saved(here, run))
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o600)  # there may have been such a file
            file.write(page)
    except OSError as exc:
        raise RdzvError(f"{path} cannot be written: {exc.strerror}") from exc


async def _saved(here: Ground, run: str) -> bytes:
    runs = Runs(here.root, here.clerk)
    async with _kept_up_to_date(here):
        try:
            return saved_page(await saved_of(runs.viewed(run)))
        finally:
            await runs.close()


@contextlib.asynccontextmanager
async def _kept_up_to_date(here: Ground) -> AsyncIterator[None]:
    if here.elsewhere is None:
        yield
        return
    following = asyncio.create_task(here.elsewhere.follow())
    try:
        yield
    finally:
        following.cancel()


async def _serve(
    here: Ground,
    settings: UiSettings,
    key: str,
    say: Callable[[str], None],
    sock: socket.socket,
) -> None:
    sessions = Sessions(secrets.token_urlsafe, key)
    runs = Runs(here.root, here.clerk)
    served = Served(runs, sessions, load(), metrics_key(here.root), settings.run, settings.actions)
    app = make_app(served, settings.hosts)
    rules = ConnectionRules(Room(_MOST_CONNECTIONS))
    server = GuardedServer(app, rules, closing=served.closing, headers=HEADERS)
    loop = asyncio.get_running_loop()
    port = sock.getsockname()[1]
    base = f"http://{bracketed(settings.listen)}:{port}/"

    def show_link() -> None:
        say(f"{base}#t={sessions.ticket(loop.time())}")

    if settings.run is not None:
        with contextlib.suppress(Exception):
            runs.viewed(settings.run)  # what is known is read before somebody asks
    show_link()
    if sys.stdin is not None and sys.stdin.isatty():
        say("the link opens the page once, within 2 minutes; press Enter for another one")
        loop.add_reader(sys.stdin.fileno(), _on_enter(show_link))
    farewell: list[asyncio.Task[None]] = []

    def launch_ended() -> None:
        farewell.append(asyncio.create_task(_say_farewell(runs)))

    loop.add_signal_handler(signal.SIGUSR1, launch_ended)
    async with _kept_up_to_date(here):
        await server.serve(sockets=[sock])


async def _say_farewell(runs: Runs) -> None:
    """Show those who look how the run has ended, and how they see it again; then end."""
    with contextlib.suppress(TimeoutError):
        async with timeout(_FAREWELL_SECONDS):
            await runs.say_farewell()
    os.kill(os.getpid(), signal.SIGTERM)


def _on_enter(show_link: Callable[[], None]) -> Callable[[], None]:
    def entered() -> None:
        if os.read(sys.stdin.fileno(), 1_024):
            show_link()
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    return entered


def print_line(text: str) -> None:
    """For a person who has started it: on standard output."""
    click.echo(text)
    sys.stdout.flush()
