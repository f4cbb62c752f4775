"""The looks and silences of a run at its registry, over HTTP: who may ask, and what is taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rendezvous.registry.app import make_app
from rendezvous.talk.credentials import SERVER_NAME, Credential
from rendezvous.wire.run import Phase
from tests.support.registry import Launch
from tests.support.served import OPERATOR, Answer, Served, ask, serving

DEMO = Launch("demo")

served = pytest.fixture(serving)


async def running(served: Served) -> None:
    """A run of two nodes that goes."""
    await served.bring_to(Phase.RUNNING, DEMO, 2)


async def call(
    served: Served, method: str, path: str, shown: Credential, body: object = b""
) -> Answer:
    """A request of somebody with this credential."""
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    return await ask(app, method, f"/v1/runs/demo/{path}", shown, body)


async def test_who_may_only_look_looks_and_does_nothing_else(served: Served) -> None:
    await running(served)
    shown = DEMO.keys.look
    assert shown.text().startswith("l.")
    number = (await call(served, "POST", "looks", shown)).json["number"]
    assert served.service.counters["looks"] == 1
    node = served.service.access.node_credential(served.host(DEMO), 0, 1)
    said = {"number": number, "epoch": 1, "ranks": [{"rank": 0, "state": "S"}]}
    assert (await call(served, "POST", "nodes/0/looks", node, said)).status == 200
    seen = (await call(served, "GET", f"looks?number={number}", shown)).json
    assert ["report" in node for node in seen["nodes"]] == [True, False]
    for method, path in (("GET", "events"), ("GET", "report"), ("POST", "restart")):
        body = {"reason": ""} if method == "POST" else b""
        answer = await call(served, method, path, shown, body)
        assert answer.problem == (403, "forbidden"), path
    for other in (DEMO.keys.read, node):
        answer = await call(served, "POST", "looks", other)
        assert answer.problem == (403, "forbidden")
        assert "cannot look at the program of a run" in answer.json["message"]


async def test_there_is_nothing_to_see_before_the_programs_run(served: Served) -> None:
    await served.bring_to(Phase.VERIFYING, DEMO, 2)
    answer = await call(served, "POST", "looks", DEMO.keys.look)
    assert answer.problem == (403, "forbidden")
    assert answer.json["hint"] == "'rdzv status demo' shows what it waits for"


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 0, "epoch": 1},
        {"number": 1},
        {"number": 1, "epoch": 1, "ranks": [{"rank": -1}]},
        {"number": 1, "epoch": 1, "ranks": [{"rank": 0}] * 65},
        {"number": 1, "epoch": 1, "ranks": [{"rank": 0, "stack": 512}]},
        {"number": 1, "epoch": 1, "ranks": [{"rank": 0, "stage": "asleep"}]},
        {"number": 1, "epoch": 1, "stacks": [{"frames": [["f", "x.py", 1]] * 129}]},
        {"number": 1, "epoch": 1, "stacks": [{"frames": [["f\x1b[2J", "x.py", 1]]}]},
        {"number": 1, "epoch": 1, "stacks": [{"frames": [["f", "x.py"]]}]},
        {"number": 1, "epoch": 1, "words": "\x07"},
    ],
)
async def test_what_a_node_answers_is_bounded_and_plain(
    served: Served, wrong: dict[str, Any]
) -> None:
    await running(served)
    node = served.service.access.node_credential(served.host(DEMO), 0, 1)
    answer = await call(served, "POST", "nodes/0/looks", node, wrong)
    assert answer.problem == (400, "bad_request")


async def test_a_registry_that_closes_answers_who_waits(served: Served) -> None:
    await running(served)
    await call(served, "POST", "looks", DEMO.keys.look)
    waits = asyncio.create_task(call(served, "GET", "looks?wait=20", DEMO.keys.look))
    await asyncio.sleep(0.01)
    served.service.closing.set()
    assert not (await asyncio.wait_for(waits, 5)).json["over"]


async def test_a_node_says_that_nothing_moves_and_no_reader_is_told_what_is_kept_of_it(
    served: Served,
) -> None:
    await running(served)
    host = served.host(DEMO)
    for slot in (0, 1):
        node = served.service.access.node_credential(host, slot, 1)
        said = {"epoch": 1, "seconds": 120.0}
        assert (await call(served, "POST", f"nodes/{slot}/quiet", node, said)).status == 200
    status = await served.service.status(host)
    assert (
        status.finding == "nothing has moved for 2 min; 'rdzv look demo' shows where each rank is"
    )
    assert (await call(served, "GET", "quiet", OPERATOR)).status == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"epoch": -1},
        {"epoch": 1, "seconds": -1.0},
        {"epoch": 1, "seconds": 1e10},
        {"epoch": 1, "seconds": "long"},
        {"epoch": 1, "early": "yes, it is"},
    ],
)
async def test_what_a_node_says_of_a_silence_is_bounded(
    served: Served, wrong: dict[str, Any]
) -> None:
    await running(served)
    node = served.service.access.node_credential(served.host(DEMO), 0, 1)
    answer = await call(served, "POST", "nodes/0/quiet", node, wrong)
    assert answer.problem == (400, "bad_request")
