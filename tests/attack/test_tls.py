"""What a worker or a client sends to whoever is not the registry, or sends it elsewhere: nothing.

How each kind of impostor is found is in rendezvous/test_http_network.py and test_certificate.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rendezvous.talk.certificate import make_certificate, public_key_pin
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential, new_secret
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.node import Job
from rendezvous.wire.run import Phase
from tests.attack.server import Request, serving, tls
from tests.support.launching import RDZV, environment
from tests.support.registry import Launch, running

in_time = pytest.mark.real_time

TOKEN = Credential("join", new_secret(), 1, 1)
SECRET = new_secret()
OURS, OTHER = make_certificate(SECRET), make_certificate(new_secret())
NOT_OURS = "it does not hold this run's certificate"
PROOFS = {
    "certificate": (OURS.der, NOT_OURS),
    "public_key": (public_key_pin(SECRET), "another launch answers there, with another key"),
}


def place(port: int, trust: str = "certificate") -> RegistryPlace:
    """Our registry, as somebody knows it who trusts this."""
    return RegistryPlace(("127.0.0.1",), port, trust, PROOFS[trust][0])  # type: ignore[arg-type]


def healthy(request: Request) -> tuple[int, bytes]:
    """A registry that knows no run."""
    return (200, b"ok") if request.path == "/healthz" else (200, b'{"runs": []}')


async def complaint(client: RegistryClient) -> RdzvError:
    """What is told of a request that fails."""
    with pytest.raises(Unavailable) as refusal:
        await client.runs()
    return refusal.value


async def test_a_proven_registry_that_sends_elsewhere_is_not_followed() -> None:
    async with serving(healthy) as elsewhere:

        def moved(request: Request) -> tuple[int, bytes]:
            target = f"\r\nlocation: http://127.0.0.1:{elsewhere.port}/".encode()
            return healthy(request) if request.path == "/healthz" else (307, target)

        async with (
            serving(moved, context=tls(OURS)) as server,
            RegistryClient(place(server.port), TOKEN) as client,
        ):
            assert "the registry's answer is no RunList" in (await complaint(client)).message
    assert elsewhere.received == []


@in_time
@pytest.mark.parametrize("trust", PROOFS)
async def test_a_key_that_changes_under_a_client_is_told_nothing(trust: str) -> None:
    async with serving(healthy, context=tls(OURS)) as first:
        client = RegistryClient(place(first.port, trust), TOKEN, request_seconds=2.0)
        assert await client.runs() == []
        assert TOKEN.text().encode() in first.everything, "a proven registry is told"
    async with client, serving(healthy, context=tls(OTHER), port=first.port) as other:
        errors = [await complaint(client) for _ in range(3)]
        assert PROOFS[trust][1] in errors[-1].message
        assert other.everything == b""


@pytest.mark.parametrize(("version", "refused"), [("TLSv1_3", False), ("TLSv1_2", True)])
def test_the_registry_speaks_the_newest_version_and_nothing_else(
    tmp_path: Path, version: str, refused: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion[version]
    with (
        running(tmp_path, tls=True) as registry,
        socket.create_connection(("127.0.0.1", registry.port), 20) as sock,
        pytest.raises(ssl.SSLError, match=r"(?i)protocol") if refused else contextlib.nullcontext(),
        context.wrap_socket(sock),
    ):
        pass


# With the real worker


def join_text(launch: Launch, slot: int, place: RegistryPlace) -> str:
    """RDZV_JOIN of a slot."""
    keys = launch.keys
    tokens = (launch.token(slot), keys.row_key, keys.probe_key)
    return JoinString(place, keys.run, keys.launch_id, slot, 1, *tokens).text()


@dataclass(frozen=True)
class Ended:
    """How a worker ended, and what it said."""

    code: int
    said: str


async def worker(folder: Path, join: str, *options: str, **env: str) -> Ended:
    """`rdzv worker` as a process, to its end."""
    command = [RDZV, "worker", "--loopback", "--framework", "command", "--hosts", "off", *options]
    process = await asyncio.create_subprocess_exec(
        *(*command, "--", "true"),
        env=environment(folder, RDZV_JOIN=join, **env),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode())


def hostile_environment(port: int, folder: Path) -> Mapping[str, str]:
    """Every variable that leads a library's connections or secrets elsewhere."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    (folder / "netrc").write_text("machine rdzv.internal login a password b\n")
    return {n: f"http://127.0.0.1:{port}" for name in names for n in (name, name.lower())} | {
        "SSLKEYLOGFILE": str(folder / "keys"),
        "SSL_CERT_FILE": str(folder / "none.pem"),
        "SSL_CERT_DIR": str(folder),
        "NETRC": str(folder / "netrc"),
        "FORWARDED_ALLOW_IPS": "*",
        "WEB_CONCURRENCY": "no number",
    }


async def test_the_environment_leads_a_worker_nowhere_and_writes_no_keys(tmp_path: Path) -> None:
    launch = Launch("r")
    (tmp_path / "registry").mkdir()
    with running(tmp_path / "registry", tls=True) as registry:
        await registry.create(launch, 1, job=Job(framework="command"))
        async with serving(healthy) as proxy:
            env = hostile_environment(proxy.port, tmp_path)
            ended = await worker(tmp_path, join_text(launch, 0, registry.place), **env)
        status = await registry.wait_for_phase(launch, Phase.FINISHED)
    assert ended.code == 0, ended.said
    assert proxy.received == []
    assert not (tmp_path / "keys").exists()
    assert status.result is not None
    assert status.result.status == "ok"


@in_time
async def test_a_worker_that_meets_a_stranger_says_what_it_is_and_what_to_do(
    tmp_path: Path,
) -> None:
    async with serving(healthy, context=tls(OTHER)) as server:
        join = join_text(Launch("r"), 1, place(server.port))
        ended = await worker(tmp_path, join, "--join-timeout", "1")
    *_, told, hint = ended.said.splitlines()
    assert ended.code == 80
    assert NOT_OURS in told
    assert hint.strip()
    assert server.everything == b""
    assert join not in ended.said
