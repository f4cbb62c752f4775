"""What a client tells whoever is not the registry, or sends it elsewhere: nothing.

How each kind of impostor is found is in rendezvous/test_http_network.py and test_certificate.py.
"""

from __future__ import annotations

import pytest

from rendezvous.talk.certificate import make_certificate, public_key_pin
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential, new_secret
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import RdzvError, Unavailable
from tests.attack.server import Request, serving, tls

TOKEN = Credential("join", new_secret(), 1, 1)
SECRET = new_secret()
OURS, OTHER = make_certificate(SECRET), make_certificate(new_secret())
NOT_OURS = "it does not hold this run's certificate"
PROOFS = {
    "certificate": (OURS.der, NOT_OURS),
    "public_key": (public_key_pin(SECRET), "it has another key: another RDZV_TOKEN"),
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
            assert (
                "the registry's answer is not a valid RunList" in (await complaint(client)).message
            )
    assert elsewhere.received == []


@pytest.mark.real_time
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
