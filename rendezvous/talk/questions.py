"""The calls of a question: to ask it, to answer it, and to read the answers."""

from __future__ import annotations

from typing import Any

from rendezvous.channel import Asked
from rendezvous.talk.client import REQUEST_SECONDS, RegistryClient
from rendezvous.wire.question import Answer, QuestionCall
from rendezvous.wire.reports import ReportReply


async def ask_nodes(client: RegistryClient, topic: Asked, run: str) -> QuestionCall:
    """Ask all nodes of a run."""
    return await client.ask(QuestionCall, "POST", f"/v1/runs/{run}/{topic.name}")


async def answers(client: RegistryClient, topic: Asked, run: str, number: int, wait: float) -> Any:
    """The answers until now, as the topic's `response`; waits so many seconds for the rest."""
    return await client.ask(
        topic.response.load(),
        "GET",
        f"/v1/runs/{run}/{topic.name}",
        params={"number": number, "wait": wait},
        seconds=wait + 2 * REQUEST_SECONDS,
    )


async def answer(client: RegistryClient, topic: str, run: str, slot: int, response: Answer) -> None:
    """Send a node's answer; what is lost on the way is not sent again."""
    body = response.model_dump(mode="json", exclude_defaults=True)
    await client.ask(ReportReply, "POST", f"/v1/runs/{run}/nodes/{slot}/{topic}", body)
