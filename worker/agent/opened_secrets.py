"""The run's sealed variables on this node: fetched, opened, and held in memory for its programs."""

from __future__ import annotations

from collections.abc import Mapping

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.sealed import fetch_secrets
from rendezvous.talk.sealed_variables import NotSealedHere, unseal
from rendezvous.wire.errors import ArmingFailed
from worker.agent import inputs
from worker.agent.actions import FetchSecrets


class OpenedSecrets:
    """The values; none before they were fetched."""

    def __init__(self) -> None:
        self.values: Mapping[str, str] = {}

    async def fetch(
        self, asked: FetchSecrets, client: RegistryClient, join: JoinString
    ) -> inputs.Input:
        """Fetch and open them, once. Raises RdzvError."""
        launch = {"run": join.run, "launch_id": join.launch_id}
        sealed = await fetch_secrets(client, join.run, join.slot)
        if not sealed:
            return inputs.NotSent(asked.number)
        try:
            self.values = unseal(sealed, join.row_key, **launch, slot=join.slot)
        except NotSealedHere as exc:
            raise ArmingFailed(
                f"the registry's secret variables were not sent by this run's launcher: {exc}"
            ) from exc
        return inputs.Done(asked.number)
