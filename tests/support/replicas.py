"""Real replicas of one registry: processes on loopback sockets, on a real PostgreSQL.

with replicas(folder, postgres.dsn(database)) as cluster:
    async with cluster.client() as client:
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rendezvous.compat import timeout
from rendezvous.talk.certificate import make_shared_certificate
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential, hkdf, new_secret, registry_credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import RegistryError
from tests.support.registry import LIMIT_SECONDS, REQUEST_SECONDS, Registry


@dataclass
class Cluster:
    """Some replicas, by their number.

    Attributes:
        place: What clients are told of all of them.
    """

    folder: Path
    dsn: str
    secret: bytes
    place: RegistryPlace
    all: list[Registry] = field(default_factory=list)

    @property
    def operator(self) -> Credential:
        return registry_credential(self.secret)

    def client(self, credential: Credential | str | None = None) -> RegistryClient:
        """A client of whichever replica it finds; the operator's, if not told otherwise."""
        return RegistryClient(
            self.place, credential or self.operator, request_seconds=REQUEST_SECONDS
        )

    def client_of(self, number: int) -> RegistryClient:
        """The operator's, of one replica; it is sent on as all others are."""
        return self.all[number].client(self.operator)

    async def owner(self, run: str) -> int:
        """Which replica has the run; waits until one says so."""
        async with timeout(LIMIT_SECONDS):
            while True:
                for number, one in enumerate(self.all):
                    if one.process is not None and await self._has(number, run):
                        return number
                await asyncio.sleep(0.05)

    async def _has(self, number: int, run: str) -> bool:
        async with self.client_of(number) as client:
            with contextlib.suppress(RegistryError):
                return f'run="{run}"'.encode() in await client.request("GET", "/metrics")
        return False

    async def wait_until_ready(self, number: int) -> None:
        """Until the replica beats."""
        async with timeout(LIMIT_SECONDS), self.client_of(number) as client:
            while True:
                with contextlib.suppress(RegistryError):
                    await client.request("GET", "/readyz")
                    return
                await asyncio.sleep(0.05)

    def end(self, number: int, signal_number: int = signal.SIGKILL) -> int:
        """Signal a replica, and wait until it has ended; who calls it then is refused."""
        self.all[number].sock.close()
        return self.all[number].end(signal_number)

    def start(self, number: int) -> None:
        """Start a replica again where it was."""
        one = self.all[number]
        one.sock = socket.create_server(("127.0.0.1", one.port), backlog=512)
        one.start()
        one.wait_until_up()


def listening(count: int) -> list[socket.socket]:
    """A socket for each."""
    return [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(count)]


@contextlib.contextmanager
def replicas(
    folder: Path,
    dsn: str,
    count: int = 3,
    *,
    tls: bool = True,
    sockets: Sequence[socket.socket] = (),
    doors: Sequence[int] = (),
    dsns: Sequence[str] = (),
    **config: Any,
) -> Iterator[Cluster]:
    """Replicas that have been started; ended and forgotten afterwards.

    Args:
        folder: Of their files.
        dsn: Of their journal.
        count: How many.
        tls: Whether they have a certificate.
        sockets: Where they listen.
        doors: The ports at which nodes reach them, where something stands before those.
        dsns: The journal as each of them reaches it.
        config: More for their `ServerConfig`.
    """
    secret = new_secret()
    made = make_shared_certificate(secret)
    sockets = sockets or listening(count)
    ports = doors or [sock.getsockname()[1] for sock in sockets]
    addresses = tuple(f"127.0.0.1:{port}" for port in ports)
    trust = RegistryPlace(addresses, 1, "certificate", made.der, replicas=True)
    place = trust if tls else replace(trust, trust="plain", proof=b"")
    cluster = Cluster(folder, dsn, secret, place)
    with contextlib.ExitStack() as undo:
        for number, sock in enumerate(sockets):
            own = folder / str(number)
            own.mkdir()
            values: dict[str, Any] = {
                "key": hkdf(secret, "nodes").hex(),
                "admin_sha256": registry_credential(secret).sha256(),
                "shared_journal": dsns[number] if dsns else dsn,
                "address": addresses[number],
            }
            if tls:
                (own / "certificate.pem").write_bytes(made.pem)
                (own / "key.pem").write_bytes(made.key_pem)
                values["certificate"] = str(own / "certificate.pem")
                values["certificate_key"] = str(own / "key.pem")
            (own / "config.json").write_text(json.dumps(values | config))
            port = sock.getsockname()[1]
            alone = replace(place, addresses=("127.0.0.1",), port=port, replicas=False)
            one = Registry(own, sock, secret, alone)
            cluster.all.append(one)
            undo.callback(_kill, one)
            one.start()
        for one in cluster.all:
            one.wait_until_up()
        yield cluster


def _kill(one: Registry) -> None:
    one.sock.close()
    if one.process is not None:
        one.process.kill()
        one.process.wait()
