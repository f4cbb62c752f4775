"""The registry's application from its start to its end, as a server runs it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp

from rendezvous.registry.app import make_app
from rendezvous.registry.service import Service
from rendezvous.talk.credentials import SERVER_NAME
from tests.support.registry import Launch
from tests.support.served import FakeClock, Served, TroubledJournal

DEMO = Launch("demo")


@asynccontextmanager
async def lives(app: ASGIApp) -> AsyncIterator[list[str]]:
    """An application between its start and its end; what it says of these."""
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: list[str] = []
    heard = asyncio.Event()

    async def send(message: Any) -> None:
        said.append(message["type"])
        heard.set()

    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    task = asyncio.ensure_future(app(scope, inbox.get, send))
    inbox.put_nowait({"type": "lifespan.startup"})
    await asyncio.wait_for(heard.wait(), 5)
    yield said
    inbox.put_nowait({"type": "lifespan.shutdown"})
    await asyncio.wait_for(task, 5)


async def test_it_is_served_from_its_start_to_its_end() -> None:
    served = Served(TroubledJournal(), FakeClock())
    service = served.service
    async with lives(make_app(service, allowed_hosts=[SERVER_NAME])) as said:
        assert said == ["lifespan.startup.complete"]
        assert service.sequencer.ready.is_set()
        await served.create(DEMO)
        before = asyncio.all_tasks()
    assert said[-1] == "lifespan.shutdown.complete"
    await asyncio.sleep(0)
    [gone] = [task for task in before if "Service.serve" in repr(task.get_coro())]
    assert gone.done()


async def test_a_registry_that_cannot_go_on_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *of: killed.append(of))

    async def fails(_: Service) -> None:
        raise LookupError("a fault in the sequencer")

    monkeypatch.setattr(Service, "serve", fails)
    service = Served(TroubledJournal(), FakeClock()).service
    lived = lives(make_app(service, allowed_hosts=[SERVER_NAME]))
    with caplog.at_level(logging.CRITICAL):
        await lived.__aenter__()
        await asyncio.sleep(0)
    assert killed == [(os.getpid(), signal.SIGTERM)]
    with pytest.raises(LookupError):
        await lived.__aexit__(None, None, None)
    assert "the registry's sequencer failed" in caplog.text
    assert len(killed) == 1
