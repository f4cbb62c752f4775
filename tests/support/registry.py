"""A real registry for tests, and nodes that take part in its runs.

    with running(folder) as registry:
        launch = Launch("run")
        await registry.create(launch, nodes=2)
        async with Node(registry.place, launch, 0) as node:
            ...

The registry is the process that a launcher starts, on a socket that is kept here: it can be killed
and started again, and is found at the same place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rendezvous.compat import timeout
from rendezvous.door import own_command
from rendezvous.talk.certificate import make_certificate, public_key_pin
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential, RunKeys, hkdf, new_secret, registry_credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.macs import sign_join
from rendezvous.talk.retry import retry_pause, until_answered
from rendezvous.wire.errors import RegistryError
from rendezvous.wire.node import Candidate, Facts, Job, JoinReply, JoinRequest, LinkKind
from rendezvous.wire.peers import peers_of
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport
from rendezvous.wire.run import EventLine, Phase, RunSpec, RunStatus
from rendezvous.wire.verify import ProbeReport
from rendezvous.wire.watch import NodeView
from tests.support.driver import make_probe, make_spec

LIMIT_SECONDS = 30.0
REQUEST_SECONDS = 10.0
START_SECONDS = 40.0


async def is_waiting(task: asyncio.Task[Any]) -> bool:
    """Whether the task has not ended, though it had a moment for it."""
    _, waiting = await asyncio.wait({task}, timeout=0.05)
    return bool(waiting)


def all_reached(view: NodeView, slot: int) -> ProbeReport:
    """The report of a node that has reached every peer of its plan."""
    listening = [] if view.plan is None else sorted(peer.slot for peer in view.plan.peers)
    peers = peers_of(listening, slot, view.epoch) if slot in listening else []
    return make_probe(view.epoch, slot, peers)


class Launch:
    """The maker of a run: its keys, and what it says about the run and its nodes."""

    def __init__(self, run: str, launch_id: str = "launch01", secret: bytes | None = None) -> None:
        self.run = run
        self.keys = RunKeys(secret or new_secret(), run, launch_id)

    def spec(self, nodes: int = 2, **changes: Any) -> RunSpec:
        """A run of `nodes` nodes; see `make_spec`."""
        values: dict[str, Any] = {
            "launch_id": self.keys.launch_id,
            "loopback": True,
            "token_sha256": [
                self.token(slot).sha256() for slot in range(nodes + changes.get("spares", 0))
            ],
            "read_sha256": self.keys.read.sha256(),
            "admin_sha256": self.keys.admin.sha256(),
        }
        return make_spec(nodes, **(values | changes))

    def token(self, slot: int, generation: int = 1) -> Credential:
        """The join token of a worker run."""
        return self.keys.join_token(slot, generation)

    def join(self, slot: int, attempt: int = 1, **changes: Any) -> JoinRequest:
        """The join of a slot's node; another `attempt` is another process with the same token."""
        values: dict[str, Any] = {
            "protocol": PROTOCOL,
            "job": Job(),
            "facts": Facts(),
            "slot": slot,
            "generation": 1,
            "join_id": f"join-{slot}-{attempt:012d}",
            "hostname": f"host{slot}",
            "nproc_per_node": 1 + slot % 2,
            "probe_port": 7_000 + slot % 1_000,
        } | changes
        offered = Candidate(
            interface="lo",
            address=f"127.0.{1 + slot // 250}.{1 + slot % 250}",
            prefix_length=8,
            kind=LinkKind.LOOPBACK,
        )
        join = JoinRequest(**({"candidates": [offered]} | values))
        return sign_join(join, self.keys.row_key, run=self.run, launch_id=self.keys.launch_id)


@dataclass
class Registry:
    """A registry process on a loopback socket that outlives it."""

    folder: Path
    sock: socket.socket
    secret: bytes
    place: RegistryPlace
    process: subprocess.Popen[bytes] | None = None

    @property
    def operator(self) -> Credential:
        """The credential of its operator."""
        return registry_credential(self.secret)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.place.port

    @property
    def journal(self) -> Path:
        """Its journal."""
        return self.folder / "journal.sqlite"

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self.folder / "log").read_text()

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self.process is not None
        return self.process.pid

    def start(self, *options: str) -> None:
        """Start the process; connections wait in the socket's queue until it serves."""
        fd = self.sock.fileno()
        command = own_command("_registry")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(self.folder / "config.json"), "--fd", str(fd), *options],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_until_up(self) -> None:
        """Until it serves: those who call it then need not wait for a Python that starts."""
        sock = socket.create_connection((self.place.addresses[0], self.port), START_SECONDS)
        with sock if self.place.trust == "plain" else unverified().wrap_socket(sock) as stream:
            stream.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert stream.recv(100).startswith(b"HTTP/1.1 200"), self.log

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal the process; returns how it ended."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(LIMIT_SECONDS)
        self.process = None
        return code

    def client(self, credential: Credential | str | None = None, **changes: Any) -> RegistryClient:
        """A client of this registry; the caller closes it. The operator's, if not told otherwise.

        Changes are those of its place.
        """
        shown = credential or self.operator
        return RegistryClient(
            replace(self.place, **changes), shown, request_seconds=REQUEST_SECONDS
        )

    async def create(self, launch: Launch, nodes: int = 2, **changes: Any) -> RunStatus:
        """Make a run."""
        async with self.client() as client:
            return await client.create(launch.run, launch.spec(nodes, **changes))

    async def status(self, launch: Launch) -> RunStatus:
        """The state of a run."""
        async with self.client() as client:
            return await client.status(launch.run)

    async def wait_for_phase(self, launch: Launch, phase: Phase) -> RunStatus:
        """Wait until the run has come to this phase."""
        async with self.client() as client:
            status = await client.status(launch.run)
            async with timeout(LIMIT_SECONDS):
                while status.phase is not phase:
                    status = await client.status(launch.run, after=status.version, wait=5.0)
            return status

    async def events(self, launch: Launch, last: str) -> list[EventLine]:
        """The events of a run up to one of this kind; waits for it."""
        lines: list[EventLine] = []
        async with timeout(LIMIT_SECONDS), self.client(launch.keys.read) as client:
            stream = client.events(launch.run)
            async with contextlib.aclosing(stream):
                async for line in stream:
                    lines.append(line)
                    if line.kind == last:
                        break
        return lines


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextlib.contextmanager
def running(
    folder: Path,
    *,
    tls: bool = False,
    journal: bool = True,
    address: str = "127.0.0.1",
    **config: Any,
) -> Iterator[Registry]:
    """A registry that has been started; ended and forgotten afterwards."""
    secret = new_secret()
    values: dict[str, Any] = {
        "key": hkdf(secret, "nodes").hex(),
        "admin_sha256": registry_credential(secret).sha256(),
    }
    if journal:
        values["journal"] = str(folder / "journal.sqlite")
    proof = b""
    if tls:
        made = make_certificate(secret)
        (folder / "certificate.pem").write_bytes(made.pem)
        (folder / "key.pem").write_bytes(made.key_pem)
        values["certificate"] = str(folder / "certificate.pem")
        values["certificate_key"] = str(folder / "key.pem")
        proof = made.der
    (folder / "config.json").write_text(json.dumps(values | config))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=512) as sock:
        port = sock.getsockname()[1]
        place = RegistryPlace((address,), port, "certificate" if tls else "plain", proof)
        registry = Registry(folder, sock, secret, place)
        registry.start()
        try:
            registry.wait_until_up()
            yield registry
        finally:
            if registry.process is not None:
                registry.process.kill()
                registry.process.wait()


def by_public_key(registry: Registry) -> RegistryPlace:
    """The place of a TLS registry for those who know the secret alone."""
    return replace(registry.place, trust="public_key", proof=public_key_pin(registry.secret))


class Node:
    """A node's agent without a program: it joins, probes, acknowledges and leaves."""

    request_seconds = REQUEST_SECONDS

    def __init__(self, place: RegistryPlace, launch: Launch, slot: int, **changes: Any) -> None:
        self.launch = launch
        self.slot = slot
        self.request = launch.join(slot, **changes)
        token = launch.token(slot, self.request.generation)
        self.client = RegistryClient(place, token, request_seconds=self.request_seconds)
        self.views: list[NodeView] = []
        self.reply: JoinReply | None = None

    async def __aenter__(self) -> Node:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    @property
    def view(self) -> NodeView:
        """What it was told last."""
        return self.views[-1]

    async def join(self) -> JoinReply:
        """Ask for the slot."""
        self.reply = await self.client.join(self.launch.run, self.request)
        return self.reply

    async def watch(self) -> NodeView:
        """One poll."""
        assert self.reply is not None
        after = self.views[-1].seq if self.views else 0
        poll = self.reply.poll_seconds
        self.views.append(await self.client.watch(self.launch.run, self.slot, after, poll))
        return self.view

    async def follow(self, end: Callable[[NodeView], bool]) -> NodeView:
        """Do what a node has to do until it is told what `end` waits for."""
        if self.reply is None:
            await self.join()
        async with timeout(2 * LIMIT_SECONDS):
            while True:
                try:
                    view = await self.watch()
                    if end(view):
                        return view
                    if self.slot in view.released:
                        continue
                    if view.phase is Phase.VERIFYING:
                        await self.tell(all_reached(view, self.slot))
                    elif view.phase is Phase.ARMING:
                        await self.tell(AckReport(epoch=view.epoch, digest=view.digest))
                except RegistryError:
                    await asyncio.sleep(retry_pause())

    async def tell(self, report: Any) -> None:
        """Report until it is taken in, as an agent does."""
        await until_answered(lambda: self.report(report))

    async def run(self) -> NodeView:
        """Come to the go."""
        return await self.follow(lambda view: view.phase is Phase.RUNNING)

    async def finish(self, code: int = 0) -> NodeView:
        """The program ends; wait for the result and leave."""
        await self.report(ExitReport(epoch=self.view.epoch, exit_code=code))
        view = await self.follow(lambda view: view.result is not None)
        await self.report(LeaveReport())
        return view

    async def report(self, report: Any) -> None:
        """Tell something."""
        await self.client.report(self.launch.run, self.slot, report)
