"""The registry as a process: `rdzv_command.py _registry CONFIG --fd N`.

It is started by `rdzv launch` and `rdzv serve`, which hold the listening socket: a registry that
was killed is started again on the same socket and journal, and no client has to look for it
elsewhere.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import secrets
import signal
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from pydantic import BaseModel, ConfigDict

from rendezvous.registry.app import asks_what_is_wrong, make_app
from rendezvous.registry.bereft import launcher_ended
from rendezvous.registry.journal import Journal, MemoryJournal
from rendezvous.registry.options import Options
from rendezvous.registry.place import Place
from rendezvous.registry.service import Service
from rendezvous.serving.connection_rules import ConnectionRules
from rendezvous.serving.room import Room
from rendezvous.serving.uvicorn_server import GuardedServer
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.tasks import wait_for
from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.run import DEFAULT_MAX_RUNS

if TYPE_CHECKING:
    from rendezvous.registry.postgres_journal import PostgresJournal

logger = logging.getLogger("rendezvous.registry")

# A run of 2,000 nodes makes some 150,000 objects, and requests leave no cycles behind: a collection
# finds nothing, and takes 30 ms of the moment in which the table is sealed.
_GC_THRESHOLD = 100_000

_PR_SET_THP_DISABLE = 41

_LAUNCHER_ENDED = signal.SIGUSR1
# The same launch, started again, waits a little longer than this for the port.
_TELL_SECONDS = 7.0
_AGAIN_SECONDS = 0.5  # between two tries to open a journal that is not there
_LOOK_SECONDS = 0.02


class ServerConfig(BaseModel):
    """What a registry process is told; the file is readable by its owner alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    key: str
    admin_sha256: str
    journal: Path | None = None
    shared_journal: str | None = None
    """Of several replicas: where PostgreSQL is."""
    address: str = ""
    """Where others are told that this one is, as `host:port`."""
    announcement: str = ""
    """Written to standard error once the registry is ready."""
    certificate: Path | None = None
    certificate_key: Path | None = None
    hosts: list[str] = []
    trust_close: bool = True
    max_connections: int = 15_000
    max_runs: int = DEFAULT_MAX_RUNS


def main() -> None:
    """Read the config, recover from the journal, serve until told to end."""
    parser = argparse.ArgumentParser(prog="rdzv _registry", description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--fd", type=int, required=True, help="the listening socket")
    parser.add_argument("--parent", type=int, help="the launcher; the registry ends after it")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        _hear_of_end(arguments.parent)
    logging.raiseExceptions = False  # a log on a full disk loses lines, and is no traceback
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _raise_file_limit()
    _use_small_pages()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would hold every key
    config = ServerConfig.model_validate_json(arguments.config.read_bytes())
    sock = socket.socket(fileno=arguments.fd)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # `rdzv serve` holds it back
        uvloop.run(_serve(config, sock))
    except RdzvError as exc:
        logger.critical("%s", exc)
        raise SystemExit(int(exc.exit_code)) from None
    except KeyboardInterrupt:  # the server has closed, and raised the signal again
        raise SystemExit(128 + signal.SIGINT) from None


def _raise_file_limit() -> None:
    """Each node's connection is an open file, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _use_small_pages() -> None:
    """uvloop gives each TLS connection 256 KB, of which a few are used: where the kernel makes huge
    pages of memory (`always`, as some distributions have it), that would hold all of them."""
    ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


def _hear_of_end(parent: int) -> None:
    """Get a signal when the launcher ends, however it ends; until serving, it ends this process."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, _LAUNCHER_ENDED)
    if os.getppid() != parent:
        raise SystemExit("the launcher ended before its registry was up")


async def _opened(dsn: str, id: str) -> PostgresJournal:  # noqa: A002
    """The journal, which is waited for where it is not there yet. Raises UsageError."""
    from rendezvous.registry.postgres_journal import PostgresJournal
    from rendezvous.registry.shared_journal import Away

    loop, ends, said = asyncio.get_running_loop(), asyncio.Event(), ""
    loop.add_signal_handler(signal.SIGTERM, ends.set)  # a container's first process has none
    try:
        while not ends.is_set():
            try:
                journal = await PostgresJournal.open(dsn, id)
            except Away as exc:
                if said != (said := exc.one_line):
                    logger.warning("waiting for the database: %s", said)
                await wait_for(ends, _AGAIN_SECONDS)
            else:
                if not ends.is_set():
                    return journal
                await journal.close()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    raise SystemExit(128 + signal.SIGTERM)


async def _announce(words: str, server: GuardedServer, place: Place) -> None:
    """Say where the registry is, once it can be used there."""
    while not (server.started and _is_ready(place)):  # noqa: ASYNC110 (uvicorn tells nobody)
        await asyncio.sleep(_LOOK_SECONDS)
    with contextlib.suppress(OSError):  # nobody reads it any more
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()


def _is_ready(place: Place) -> bool:
    try:
        place.check_ready()
    except Unavailable:
        return False
    return True


async def _service(config: ServerConfig, options: Options) -> tuple[Service, Journal]:
    """The service with its runs, as far as they are this process's. Raises UsageError."""
    key, operator = bytes.fromhex(config.key), config.admin_sha256
    if config.shared_journal is not None:
        from rendezvous.registry.doors import Doors
        from rendezvous.registry.replica import Replica

        shared = await _opened(config.shared_journal, secrets.token_hex(16))
        service = Service(shared, key, operator, options=options)
        doors = Doors(key, operator, shared.read, time.monotonic, asyncio.sleep)
        service.place = Replica(shared, service.sequencer, doors, config.address)
        return service, shared
    journal: Journal = MemoryJournal()
    if config.journal is not None:
        from rendezvous.registry.sqlite_journal import SqliteJournal

        journal = SqliteJournal(config.journal)
    service = Service(journal, key, operator, options=options)
    if count := await service.sequencer.recover():
        logger.info("%d runs were recovered from the journal", count)
    return service, journal


def _boot_id() -> str:
    """By which a node on this machine is known; empty where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


async def _serve(config: ServerConfig, sock: socket.socket) -> None:
    room = Room(config.max_connections)
    options = Options(
        config.trust_close,
        config.max_runs,
        crowded=room.words,
        connections=lambda: len(server.server_state.connections),
        boot_id=_boot_id(),
    )
    service, journal = await _service(config, options)
    server = GuardedServer(
        make_app(service, allowed_hosts=[SERVER_NAME, *config.hosts]),
        ConnectionRules(room, may_pass=asks_what_is_wrong(service)),
        closing=service.closing,
        before_closing=service.place.drain,
        ssl_context=_tls(config),
    )
    # What was imported stays; without this each of the collector's full rounds looks at all of it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 50, 100)
    bereft = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(_LAUNCHER_ENDED, bereft.set)
    beside = [asyncio.create_task(_end_after_launcher(service, bereft))]
    if config.announcement:
        beside.append(asyncio.create_task(_announce(config.announcement, server, service.place)))
    # After `serve` uvicorn raises again the signal that ended it; here it waits for the journal.
    with server.capture_signals():
        try:
            await server.serve(sockets=[sock])
        finally:
            for task in beside:
                task.cancel()
            await journal.close()


async def _end_after_launcher(service: Service, bereft: asyncio.Event) -> None:
    """Tell the nodes of a run that has lost its launcher, and node 0 with it; then end."""
    await bereft.wait()
    try:
        await launcher_ended(service.sequencer, _TELL_SECONDS)
    except RdzvError as exc:
        logger.warning("could not notify the nodes that the launcher was killed: %s", exc.message)
    os.kill(os.getpid(), signal.SIGTERM)


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    if config.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody resumes a session, and two cost a tenth of a handshake
    context.load_cert_chain(config.certificate, config.certificate_key)
    return context
