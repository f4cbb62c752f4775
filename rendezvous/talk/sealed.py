"""The calls about sealed variables: the launcher sends them, and each node fetches them."""

from __future__ import annotations

from rendezvous.talk.client import RegistryClient
from rendezvous.wire.reports import ReportReply
from rendezvous.wire.sealed import SealedVariables


async def send_secrets(client: RegistryClient, run: str, sealed: str) -> None:
    """Send the sealed variables of a run; of these, the last ones count."""
    body = SealedVariables(sealed=sealed)
    await client.ask(ReportReply, "PUT", f"/v1/runs/{run}/secrets", body)


async def fetch_secrets(client: RegistryClient, run: str, slot: int) -> str:
    """The sealed variables of a run; empty: its launcher has not sent them yet."""
    path = f"/v1/runs/{run}/nodes/{slot}/secrets"
    return (await client.ask(SealedVariables, "GET", path)).sealed
