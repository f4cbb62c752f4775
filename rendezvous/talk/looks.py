"""The calls of a look: to ask for one, to answer it, and to see what has come of it."""

from __future__ import annotations

from rendezvous.talk.client import REQUEST_SECONDS, RegistryClient
from rendezvous.wire.look import LookCall, LookReport, RunLook
from rendezvous.wire.pace import ClockReply
from rendezvous.wire.reports import ReportReply


async def begin_look(client: RegistryClient, run: str) -> LookCall:
    """Ask all nodes where their ranks are."""
    return await client.ask(LookCall, "POST", f"/v1/runs/{run}/looks")


async def look_so_far(client: RegistryClient, run: str, look: int, wait: float) -> RunLook:
    """What has come of a look; waits for the rest, at most so many seconds."""
    return await client.ask(
        RunLook,
        "GET",
        f"/v1/runs/{run}/looks",
        params={"look": look, "wait": wait},
        seconds=wait + 2 * REQUEST_SECONDS,
    )


async def registry_clock(client: RegistryClient, run: str, slot: int) -> float:
    """The registry's clock, in seconds, at a moment between the question and the answer."""
    found = await client.ask(ClockReply, "GET", f"/v1/runs/{run}/nodes/{slot}/clock")
    return found.now


async def answer_look(client: RegistryClient, run: str, slot: int, report: LookReport) -> None:
    """Tell where the ranks of this node are; what is lost on the way is not sent again."""
    said = report.model_dump(mode="json", exclude_defaults=True)
    await client.ask(ReportReply, "POST", f"/v1/runs/{run}/nodes/{slot}/looks", said)
