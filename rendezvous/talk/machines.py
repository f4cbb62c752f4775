"""The calls about machines: a node tells how its own stands, and anyone reads those of a run."""

from __future__ import annotations

from rendezvous.talk.client import RegistryClient
from rendezvous.wire.machine import MachineSample, RunMachines
from rendezvous.wire.reports import ReportReply


async def post_machine(client: RegistryClient, run: str, slot: int, sample: MachineSample) -> None:
    """Tell how this node's machine stands; what is lost on the way is not sent again."""
    said = sample.model_dump(mode="json", exclude_defaults=True)
    await client.ask(ReportReply, "POST", f"/v1/runs/{run}/nodes/{slot}/machine", said)


async def run_machines(client: RegistryClient, run: str) -> RunMachines:
    """The machines of a run's nodes, each as it stood when it was last told of."""
    return await client.ask(RunMachines, "GET", f"/v1/runs/{run}/machines")
