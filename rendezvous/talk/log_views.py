"""The calls of a view: to open one, to send lines for it, and to read what has come of it."""

from __future__ import annotations

from rendezvous.talk.client import REQUEST_SECONDS, RegistryClient
from rendezvous.wire.log_view import RunView, ViewCall, ViewPost, ViewReply, ViewRequest


async def open_view(client: RegistryClient, run: str, request: ViewRequest) -> ViewCall:
    """Ask the nodes that have these lines for them."""
    return await client.ask(ViewCall, "POST", f"/v1/runs/{run}/views", request)


async def read_view(
    client: RegistryClient, run: str, view: int, after: int, wait: float
) -> RunView:
    """What has come after that piece; waits for more, at most so many seconds."""
    return await client.ask(
        RunView,
        "GET",
        f"/v1/runs/{run}/views",
        params={"view": view, "after": after, "wait": wait},
        seconds=wait + 2 * REQUEST_SECONDS,
    )


async def serve_view(client: RegistryClient, run: str, slot: int, post: ViewPost) -> ViewReply:
    """Send lines of this node."""
    return await client.ask(ViewReply, "POST", f"/v1/runs/{run}/nodes/{slot}/views", post)
