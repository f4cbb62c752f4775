"""One node's part of a run, from outside: with what its process ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rendezvous.wire.errors import Fenced
from tests.worker.agent.test_visiting import at_once
from tests.worker.test_table import join
from worker.agent import AgentEnvironment, take_part
from worker.settings import WorkerSettings


class Client:
    """A registry that has fenced this node off; its connections cannot be closed."""

    closed = 0

    @staticmethod
    def pause() -> float:
        """See `RegistryClient`."""
        return 0.0

    async def connect(self) -> str:
        """See `RegistryClient`."""
        raise Fenced("a newer node has the slot")

    async def close(self) -> None:
        """See `RegistryClient`."""
        self.closed += 1
        raise ValueError("not this way")


class Listener:
    """See `ProbeListener`."""

    port = 7_000

    def close(self) -> None:
        """See `ProbeListener`."""


def test_a_fault_in_closing_the_connections_does_not_hide_how_the_node_ends() -> None:
    client: Any = Client()
    environment = AgentEnvironment(
        environ={},
        in_thread=at_once,
        dial=lambda *args: client,
        listen=lambda *args, **options: Listener(),
        look_ahead=lambda *args: None,
    )
    settings = WorkerSettings(framework="command", hosts="off")
    with pytest.raises(Fenced):
        asyncio.run(take_part(settings, join(), ["train"], environment))
    assert client.closed
