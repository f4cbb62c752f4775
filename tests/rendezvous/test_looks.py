"""The looks of a run in its registry: who is asked, what is kept, and who may ask."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rendezvous.registry import looks
from rendezvous.registry.app import make_app
from rendezvous.registry.looks import LOOK_SECONDS, REST_SECONDS
from rendezvous.run.state import Run
from rendezvous.talk.credentials import SERVER_NAME, Credential
from rendezvous.wire.errors import NotFound, TooLarge, TooManyRequests
from rendezvous.wire.look import LookReport, RankLook, RunLook
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.support.registry import Launch
from tests.support.served import Answer, Served, ask, serving

DEMO = Launch("demo")

served = pytest.fixture(serving)


def report(look: int, *ranks: int, **more: Any) -> LookReport:
    """What a node with these ranks answers."""
    return LookReport(look=look, epoch=1, ranks=[RankLook(rank=rank) for rank in ranks], **more)


async def running(served: Served, nodes: int = 2) -> Run:
    """A run that goes."""
    await served.bring_to(Phase.RUNNING, DEMO, nodes)
    return served.host(DEMO).run


async def begin(served: Served) -> int:
    """Somebody looks."""
    return served.host(DEMO).begin_look(served.service.now()).look


async def answer(served: Served, slot: int, said: LookReport) -> None:
    """A node answers."""
    served.host(DEMO).looks.take(slot, said, served.service.now())


async def found(served: Served, look: int = 0) -> RunLook:
    """What has come of it until now."""
    body = served.host(DEMO).looks.written(look, served.service.now())
    return RunLook.model_validate_json(body.plain)


async def waited(served: Served, look: int) -> RunLook:
    """What has come of it, once that is all."""
    path = f"looks?look={look}&wait=20"
    return RunLook.model_validate_json((await call(served, "GET", path, DEMO.keys.look)).body)


async def watched(served: Served, look: int) -> NodeView:
    """What a node is told that knows all news, and this look."""
    host = served.host(DEMO)
    body = await served.service.watch(host, host.news_seq, None, look)
    return NodeView.model_validate_json(body.plain)


async def test_every_node_is_asked_and_what_they_answer_is_kept(served: Served) -> None:
    await running(served)
    number = await begin(served)
    first = await found(served, number)
    assert [(node.slot, node.node, node.hostname) for node in first.nodes] == [
        (0, 0, "host0"),
        (1, 1, "host1"),
    ]
    assert (first.look, first.epoch, first.over) == (number, 1, False)
    await answer(served, 1, report(number, 1))
    await answer(served, 1, report(number, 5))  # again: the first counts
    await answer(served, 0, report(number, 0))
    last = await found(served)
    assert last.over
    assert {node.slot: node.report for node in last.nodes} == {
        slot: report(number, slot) for slot in (0, 1)
    }


async def test_a_watch_is_answered_early_and_once(served: Served) -> None:
    await running(served)
    served.poll_long(DEMO)
    waits = asyncio.create_task(watched(served, 0))
    await asyncio.sleep(0.01)
    number = await begin(served)
    assert (await asyncio.wait_for(waits, 5)).look == number
    assert (await asyncio.wait_for(watched(served, number - 1), 5)).look == number
    knows = asyncio.create_task(watched(served, number))
    await asyncio.sleep(0.01)
    assert not knows.done()
    for slot in (0, 1):
        await answer(served, slot, report(number, slot))
    late = asyncio.create_task(watched(served, 0))  # it is over: no node is asked any more
    await asyncio.sleep(0.01)
    assert not late.done()
    for task in (knows, late):
        task.cancel()


async def test_who_looks_while_a_look_is_under_way_gets_that_one(served: Served) -> None:
    await running(served)
    number = await begin(served)
    assert await begin(served) == number
    for slot in (0, 1):
        await answer(served, slot, report(number, slot))
    with pytest.raises(TooManyRequests, match="look at run 'demo' is 0 s old"):
        await begin(served)
    served.let_pass(REST_SECONDS)
    assert await begin(served) != number


async def test_a_node_that_does_not_answer_is_not_waited_for_for_long(served: Served) -> None:
    await running(served)
    number = await begin(served)
    await answer(served, 0, report(number, 0))
    assert not (await found(served)).over
    served.let_pass(LOOK_SECONDS + 0.1)
    await answer(served, 1, report(number, 1))  # too late
    seen = await found(served)
    assert seen.over
    assert [node.report is None for node in seen.nodes if node.slot == 1] == [True]


async def test_who_waits_is_answered_with_the_last_node(served: Served) -> None:
    await running(served)
    number = await begin(served)
    waits = asyncio.create_task(waited(served, number))
    await asyncio.sleep(0.01)
    for slot in (0, 1):
        assert not waits.done()
        await answer(served, slot, report(number, slot))
    assert (await asyncio.wait_for(waits, 5)).over


async def test_the_newest_three_are_kept(served: Served) -> None:
    await running(served)
    numbers = []
    for _ in range(4):
        numbers.append(await begin(served))
        served.let_pass(LOOK_SECONDS + REST_SECONDS)
    assert [(await found(served, number)).look for number in numbers[1:]] == numbers[1:]
    with pytest.raises(NotFound, match=f"no look {numbers[0]}"):
        await found(served, numbers[0])


async def test_the_pause_is_counted_from_the_newest_look(served: Served) -> None:
    await running(served)
    for _ in range(3):
        await begin(served)
        served.let_pass(LOOK_SECONDS + 0.5)
        with_a_pause = REST_SECONDS - LOOK_SECONDS - 0.5
        served.let_pass(max(0.0, with_a_pause))
    number = await begin(served)
    for slot in (0, 1):
        await answer(served, slot, report(number, slot))
    with pytest.raises(TooManyRequests, match="is 0 s old"):
        await begin(served)


async def test_the_answers_of_all_nodes_together_are_bounded_and_one_more_is_not_kept(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(served, 4)
    number = await begin(served)
    await answer(served, 2, report(number, *range(30)))
    size = served.host(DEMO).looks._kept[-1].size
    assert size > 300
    monkeypatch.setattr(looks, "MOST_BYTES", int(2.5 * size))
    await answer(served, 3, report(number, *range(30)))
    with pytest.raises(TooLarge):
        await answer(served, 1, report(number, *range(30)))
    await answer(served, 0, report(number, 0))
    answered = [node.slot for node in (await found(served, number)).nodes if node.report]
    assert answered == [2, 3, 0]


async def test_answers_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "MOST_BYTES", 400)
    await running(served)
    number = await begin(served)
    with pytest.raises(TooLarge):
        await answer(served, 0, report(number, *range(30)))
    await answer(served, 1, report(number, 1))
    assert [node.slot for node in (await found(served)).nodes if node.report] == [1]


async def test_a_registry_that_closes_answers_who_waits(served: Served) -> None:
    await running(served)
    number = await begin(served)
    waits = asyncio.create_task(waited(served, number))
    await asyncio.sleep(0.01)
    served.service.closing.set()
    await asyncio.wait_for(waits, 5)


async def test_nobody_has_looked(served: Served) -> None:
    await running(served)
    assert await found(served) == RunLook(look=0)


# --- over HTTP ------------------------------------------------------------------------------------


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
    number = (await call(served, "POST", "looks", shown)).json["look"]
    node = served.service.access.node_credential(served.host(DEMO), 0, 1)
    said = {"look": number, "epoch": 1, "ranks": [{"rank": 0, "state": "S"}]}
    assert (await call(served, "POST", "nodes/0/looks", node, said)).status == 200
    seen = (await call(served, "GET", f"looks?look={number}", shown)).json
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
    await served.service.cancel(served.host(DEMO), "enough")
    answer = await call(served, "POST", "looks", DEMO.keys.look)
    assert answer.problem == (410, "run_over")


@pytest.mark.parametrize(
    "wrong",
    [
        {"look": 0, "epoch": 1},
        {"look": 1},
        {"look": 1, "epoch": 1, "ranks": [{"rank": -1}]},
        {"look": 1, "epoch": 1, "ranks": [{"rank": 0}] * 65},
        {"look": 1, "epoch": 1, "ranks": [{"rank": 0, "stack": 512}]},
        {"look": 1, "epoch": 1, "ranks": [{"rank": 0, "stage": "asleep"}]},
        {"look": 1, "epoch": 1, "stacks": [{"frames": [["f", "x.py", 1]] * 129}]},
        {"look": 1, "epoch": 1, "stacks": [{"frames": [["f\x1b[2J", "x.py", 1]]}]},
        {"look": 1, "epoch": 1, "stacks": [{"frames": [["f", "x.py"]]}]},
        {"look": 1, "epoch": 1, "words": "\x07"},
    ],
)
async def test_what_a_node_answers_is_bounded_and_plain(
    served: Served, wrong: dict[str, Any]
) -> None:
    await running(served)
    node = served.service.access.node_credential(served.host(DEMO), 0, 1)
    answer = await call(served, "POST", "nodes/0/looks", node, wrong)
    assert answer.problem == (400, "bad_request")


async def test_who_waits_for_one_of_several_looks_is_told_of_that_one(served: Served) -> None:
    await running(served)
    numbers = []
    for rank in (4, 5):
        numbers.append(look := await begin(served))
        await answer(served, 0, report(look, rank))
        await served.clock.move(REST_SECONDS + LOOK_SECONDS)
    for number, rank in zip(numbers, (4, 5), strict=True):
        [of_first, _] = (await found(served, number)).nodes
        assert of_first.report is not None
        assert [one.rank for one in of_first.report.ranks] == [rank]


async def test_each_look_that_is_asked_for_is_counted(served: Served) -> None:
    await running(served)
    for count in (1, 2):
        assert (await call(served, "POST", "looks", DEMO.keys.look)).status == 200
        assert served.service.counters["looks"] == count
        await served.clock.move(REST_SECONDS + LOOK_SECONDS)
