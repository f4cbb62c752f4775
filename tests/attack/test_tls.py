"""Ways in which TLS goes wrong, or its surroundings do: what a person reads, what is sent.

Whoever has not proven to be the registry gets no byte of a request, and so no token. Both proofs
are tried: the certificate that a join string carries, and the key that a group token yields.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from rendezvous.talk.certificate import (
    Certificate,
    key_from_secret,
    make_certificate,
    public_key_pin,
)
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import SERVER_NAME, Credential, new_secret
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.node import Job
from rendezvous.wire.run import Phase
from tests.attack.server import Request, serving, tls
from tests.support.launching import RDZV, environment
from tests.support.registry import Launch, Registry, by_public_key, running

pytestmark = pytest.mark.real_time

COMMAND = Job(framework="command")
TOKEN = Credential("join", new_secret(), 1, 1)
PROOFS = ("certificate", "public_key")
CERTIFICATE_WORDS = "it does not hold this run's certificate"
KEY_WORDS = "another launch answers there, with another key"


@dataclass(frozen=True)
class Identity:
    """A secret, with the certificate that is made from it."""

    secret: bytes
    certificate: Certificate

    def place(self, port: int, proof: str, address: str = "127.0.0.1") -> RegistryPlace:
        """A registry of this identity."""
        if proof == "certificate":
            return RegistryPlace((address,), port, "certificate", self.certificate.der)
        return RegistryPlace((address,), port, "public_key", public_key_pin(self.secret))


def identity() -> Identity:
    """A new one."""
    secret = new_secret()
    return Identity(secret, make_certificate(secret))


OURS = identity()


def certificate_of(
    secret: bytes, *, name: str = SERVER_NAME, years: tuple[int, int] = (2000, 2099)
) -> Certificate:
    """A certificate with another name or other dates on the secret's key."""
    key = key_from_secret(secret)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begin, end = (datetime.datetime(year, 1, 1, tzinfo=datetime.timezone.utc) for year in years)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, der = serialization.Encoding.PEM, serialization.Encoding.DER
    return Certificate(
        make_certificate(secret).key_pem, made.public_bytes(pem), made.public_bytes(der)
    )


def healthy(request: Request) -> tuple[int, bytes]:
    """A registry that knows no run."""
    return (200, b"ok") if request.path == "/healthz" else (200, b'{"runs": []}')


async def complaint(place: RegistryPlace) -> RdzvError:
    """How a client with a token complains about whoever is at that place."""
    async with RegistryClient(place, TOKEN, request_seconds=10.0) as client:
        with pytest.raises(Unavailable) as refusal:
            await client.runs()
    return refusal.value


# another certificate, with another key, or with the same name


@pytest.mark.parametrize("name", [SERVER_NAME, "registry.example"])
@pytest.mark.parametrize("proof", PROOFS)
async def test_another_key_gets_nothing_whatever_name_it_has(name: str, proof: str) -> None:
    other = certificate_of(new_secret(), name=name)
    async with serving(healthy, context=tls(other)) as server:
        error = await complaint(OURS.place(server.port, proof))
    assert server.everything == b""
    if proof == "certificate":
        assert CERTIFICATE_WORDS in error.message
        assert "start this node with the RDZV_JOIN of the launch that runs now" in error.hint
    else:
        assert KEY_WORDS in error.message
        assert "RDZV_TOKEN must be the same on every node" in error.message


async def test_another_certificate_of_the_right_key_is_not_the_one_that_was_shipped() -> None:
    async with serving(healthy, context=tls(certificate_of(OURS.secret))) as server:
        error = await complaint(OURS.place(server.port, "certificate"))
        assert CERTIFICATE_WORDS in error.message
        assert server.everything == b""
        async with RegistryClient(OURS.place(server.port, "public_key"), TOKEN) as client:
            assert await client.runs() == []


async def test_the_right_key_under_another_name_is_refused() -> None:
    named = certificate_of(OURS.secret, name="registry.example")
    async with serving(healthy, context=tls(named)) as server:
        for place in (
            replace(OURS.place(server.port, "certificate"), proof=named.der),
            OURS.place(server.port, "public_key"),
        ):
            assert CERTIFICATE_WORDS in (await complaint(place)).message
    assert server.everything == b""


# dates


@pytest.mark.parametrize("years", [(2000, 2001), (2098, 2099)], ids=["expired", "not yet valid"])
@pytest.mark.parametrize("proof", PROOFS)
async def test_no_clock_keeps_a_node_from_the_certificate_that_it_knows(
    years: tuple[int, int], proof: str
) -> None:
    """A machine without a battery begins at 1970; the trust lies in the bytes, not in the date."""
    dated = certificate_of(OURS.secret, years=years)
    async with serving(healthy, context=tls(dated)) as server:
        place = OURS.place(server.port, proof)
        if proof == "certificate":
            place = replace(place, proof=dated.der)
        async with RegistryClient(place, TOKEN) as client:
            assert await client.runs() == []


# plain text, stripped, an old version


@pytest.mark.parametrize("proof", PROOFS)
async def test_an_answer_in_plain_text_is_no_registry(proof: str) -> None:
    answer = b"HTTP/1.1 200 OK\r\nx-rdzv: 1\r\ncontent-length: 2\r\n\r\nok"
    async with serving(answer) as server:
        error = await complaint(OURS.place(server.port, proof))
    assert "it does not speak TLS 1.3" in error.message
    assert server.handshakes >= 1
    assert all(data[:1] == b"\x16" for data in server.received if data), "a TLS handshake"
    assert not any(word.encode() in server.everything for word in (TOKEN.text()[4:20], "Bearer"))


async def test_a_proven_registry_that_sends_elsewhere_is_not_followed() -> None:
    async with serving(healthy) as elsewhere:

        def moved(request: Request) -> tuple[int, bytes]:
            if request.path == "/healthz":
                return 200, b"ok"
            target = f"http://127.0.0.1:{elsewhere.port}/".encode()
            return 307, b"\r\nlocation: " + target

        async with serving(moved, context=tls(OURS.certificate)) as server:
            error = await complaint(OURS.place(server.port, "certificate"))
        assert "the registry's answer is no RunList" in error.message
    assert elsewhere.handshakes == 0


@pytest.mark.parametrize("proof", PROOFS)
async def test_tls_1_2_is_not_spoken(proof: str) -> None:
    old = tls(OURS.certificate)
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(healthy, context=old) as server:
        error = await complaint(OURS.place(server.port, proof))
    assert "TLS 1.3" in error.message
    assert server.everything == b""


# the environment; with the real worker and the real registry


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry with TLS of the test's own."""
    (tmp_path / "registry").mkdir()
    with running(tmp_path / "registry", tls=True) as made:
        yield made


def join_text(launch: Launch, slot: int, place: RegistryPlace) -> str:
    """RDZV_JOIN of a slot."""
    keys = launch.keys
    token = launch.token(slot)
    return JoinString(
        place, keys.run, keys.launch_id, slot, 1, token, keys.row_key, keys.probe_key
    ).text()


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
    proxy = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    proxies = {n: proxy for name in names for n in (name, name.lower())}
    (folder / "netrc").write_text("machine rdzv.internal login a password b\n")
    return proxies | {
        "SSLKEYLOGFILE": str(folder / "keys"),
        "SSL_CERT_FILE": str(folder / "none.pem"),
        "SSL_CERT_DIR": str(folder),
        "NETRC": str(folder / "netrc"),
        "FORWARDED_ALLOW_IPS": "*",
        "WEB_CONCURRENCY": "no number",
    }


@pytest.mark.parametrize("proof", PROOFS)
async def test_the_environment_leads_a_worker_nowhere_and_writes_no_keys(
    tmp_path: Path, registry: Registry, proof: str
) -> None:
    launch = Launch("r")
    await registry.create(launch, 1, job=COMMAND)
    place = registry.place if proof == "certificate" else by_public_key(registry)
    async with serving(healthy) as proxy:
        env = hostile_environment(proxy.port, tmp_path)
        ended = await worker(tmp_path, join_text(launch, 0, place), **env)
        assert ended.code == 0, ended.said
        assert proxy.handshakes == 0
    assert not (tmp_path / "keys").exists()
    status = await registry.wait_for_phase(launch, Phase.FINISHED)
    assert status.result is not None
    assert status.result.status == "ok"


# A rotated key


@pytest.mark.parametrize("proof", PROOFS)
async def test_a_key_that_changes_under_a_client_is_told_nothing(proof: str) -> None:
    async with serving(healthy, context=tls(OURS.certificate)) as first:
        client = RegistryClient(OURS.place(first.port, proof), TOKEN, request_seconds=2.0)
        assert await client.runs() == []
        assert TOKEN.text().encode() in first.everything, "a proven registry is told"
    async with (
        client,
        serving(healthy, context=tls(identity().certificate), port=first.port) as other,
    ):
        errors = []
        for _ in range(3):
            with pytest.raises(Unavailable) as refusal:
                await client.runs()
            errors.append(refusal.value.message)
        words = CERTIFICATE_WORDS if proof == "certificate" else KEY_WORDS
        assert words in errors[-1]
        assert other.everything == b""


# What a person reads, from the processes themselves


async def test_a_worker_that_meets_a_stranger_says_what_it_is_and_what_to_do(
    tmp_path: Path,
) -> None:
    launch = Launch("r")
    async with serving(healthy, context=tls(identity().certificate)) as server:
        join = join_text(launch, 1, OURS.place(server.port, "certificate"))
        ended = await worker(tmp_path, join, "--join-timeout", "1")
    *_, told, hint = ended.said.splitlines()
    assert ended.code == 80
    assert f"no registry at port {server.port} of 127.0.0.1 (127.0.0.1: " in told
    assert CERTIFICATE_WORDS in told
    assert hint.strip()
    assert server.everything == b""
    assert join not in ended.said


async def test_the_client_and_the_registry_speak_the_newest_version_and_nothing_else(
    registry: Registry,
) -> None:
    """Seen from outside, with the system's own client."""
    for version, spoken in (("-tls1_3", True), ("-tls1_2", False)):
        process = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", version, "-connect", f"127.0.0.1:{registry.port}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 20)
        assert (b"Cipher is TLS_" in out) == spoken, out
