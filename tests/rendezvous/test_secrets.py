"""Sealed variables at a registry: asked for, held in memory, passed on, and never written down."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from rendezvous.registry.app import make_app
from rendezvous.talk.credentials import SERVER_NAME, Credential, parse_credential
from tests.support.registry import Launch
from tests.support.served import Answer, Served, ask, serving

DEMO = Launch("demo")
SEALED = "AQID"
LIMIT = 87_384

served = pytest.fixture(serving)


async def call(
    served: Served, method: str, path: str, shown: Credential | None, body: Any = b""
) -> Answer:
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    return await functools.partial(ask, app)(method, f"/v1/runs/demo{path}", shown, body)


async def send(served: Served, sealed: str = SEALED) -> int:
    answer = await call(served, "PUT", "/secrets", DEMO.keys.admin, {"sealed": sealed})
    return answer.status


async def test_a_registry_wants_them_passes_them_on_and_has_lost_them_after_a_restart(
    served: Served,
) -> None:
    status = await served.create(DEMO, 2, secrets=["HF_TOKEN"])
    assert status.wants_secrets
    reply = await served.join(DEMO, 0)
    node = parse_credential(reply.credential)
    assert reply.secrets == ["HF_TOKEN"]
    for sealed in ("", SEALED, "BBBB"):
        if sealed:
            assert await send(served, sealed) == 200
        found = await call(served, "GET", "/nodes/0/secrets", node)
        assert (found.status, found.json) == (200, {"sealed": sealed})
    assert not (await served.service.status(served.host(DEMO))).wants_secrets
    assert SEALED not in repr(vars(served.journal))
    assert "BBBB" not in repr(vars(served.journal))
    await served.restart()
    assert (await served.service.status(served.host(DEMO))).wants_secrets
    assert (await call(served, "GET", "/nodes/0/secrets", node)).json == {"sealed": ""}
    assert await send(served) == 200
    assert (await call(served, "GET", "/nodes/0/secrets", node)).json == {"sealed": SEALED}


async def test_of_a_run_without_them_nothing_is_asked(served: Served) -> None:
    status = await served.create(DEMO, 2)
    assert not status.wants_secrets
    assert (await served.join(DEMO, 0)).secrets == []


@pytest.mark.parametrize(
    ("sealed", "status"),
    [("A" * LIMIT, 200), ("A" * (LIMIT + 4), 400), ("A" * 200_000, 413), ("!", 400), ("AAA", 400)],
)
async def test_what_is_held_is_bounded_and_base64(served: Served, sealed: str, status: int) -> None:
    await served.create(DEMO, 2, secrets=["HF_TOKEN"])
    assert await send(served, sealed) == status
    assert served.host(DEMO).sealed == (sealed if status == 200 else "")
