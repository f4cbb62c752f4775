"""Everybody who may wait at a run, and what each of them is answered when, whatever ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rendezvous.registry.caller import Caller
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.routes.readers import event_lines
from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.log_view import ViewRequest
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import Phase
from tests.support.registry import Launch
from tests.support.served import Served, TroubledJournal
from tests.support.topics import WEATHER
from tests.support.virtual_time import run_virtually

DEMO = Launch("demo")
LONG = 3_000.0
BEGAN = 1.0
Told = dict[str, tuple[float, str]]
"""By who waits: after how many seconds it is answered, and how."""


async def waiting(served: Served, host: LiveRun) -> dict[str, Awaitable[Any]]:
    """Of each kind, at a run that goes; the nodes have read all that there is."""
    service, now = served.service, served.service.now
    questions = host.questions(WEATHER)
    number = questions.ask(host.run, now()).number
    limits = service.sequencer.view_limits
    other, view = (host.open_view(ViewRequest(follow=True), now(), limits).view for _ in range(2))
    session = (await service.relay_take(host, 2, 0, "")).session
    return {
        "watch": service.watch(host, host.news_seq, None, number, view),
        "status": service.wait_status(host, host.version, LONG),
        "events": service.event_lines(host, host.number),
        "answers": questions.wait(number, LONG, now()),
        "view": host.views.wait(host.run, view, 0, LONG, now()),
        "frames": service.relay_take(host, 2, 0, session),
        "other view": host.views.wait(host.run, other, 0, LONG, now()),
        "other frames": service.relay_take(host, 1, 0, session),
    }


def answered(what: Callable[[Served, LiveRun], Awaitable[object]]) -> Told:
    """How everybody is answered who waits when this happens."""
    found: Told = {}

    async def wait(name: str, work: Awaitable[Any]) -> None:
        began = asyncio.get_running_loop().time()
        try:
            told = type(await work).__name__
        except RdzvError as exc:
            told = exc.message
        found[name] = round(asyncio.get_running_loop().time() - began, 1), told

    async def go() -> None:
        served = Served(TroubledJournal(), asyncio.get_running_loop().time)
        served.start()
        await served.bring_to(Phase.RUNNING, DEMO, 3, allow_exec=True)
        served.poll_long(DEMO)
        host = served.host(DEMO)
        tasks = [asyncio.create_task(wait(*one)) for one in (await waiting(served, host)).items()]
        await asyncio.sleep(BEGAN)
        for slot in range(3):
            served.service.heard(host, slot, 1, None)
        assert found == {}
        await what(served, host)
        await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        await served.end()

    run_virtually(go())
    return found


async def leaves(served: Served, host: LiveRun) -> None:
    host.leave(Unavailable("it is elsewhere"))


async def closes(served: Served, host: LiveRun) -> None:
    served.service.closing.set()


async def a_program_fails(served: Served, host: LiveRun) -> None:
    await served.report(DEMO, 1, ExitReport(epoch=1, exit_code=3))


async def is_cancelled(served: Served, host: LiveRun) -> None:
    await served.service.cancel(host, "enough")


async def is_looked_at(served: Served, host: LiveRun) -> None:
    limits = served.service.sequencer.view_limits
    host.open_view(ViewRequest(rank=0), served.service.now(), limits)


async def nothing(served: Served, host: LiveRun) -> None:
    """Only time passes."""


AWAY, CLOSING = "it is elsewhere", "the registry is closing"
NAMES = ("watch", "status", "events", "answers", "view", "frames")
OTHERS = ("other view", "other frames")


@pytest.mark.parametrize(
    ("what", "seconds", "told"),
    [
        (leaves, (1, 1, 1, 1, 1, 1), (AWAY, AWAY, "list", "NoneType", "NoneType", "RelayMail")),
        (closes, (1, 1, 1, 1, 1, 1), (CLOSING, CLOSING, *("NoneType",) * 3, CLOSING)),
        (a_program_fails, (1, 1, 1, 5, 1, 10), ()),
        (is_cancelled, (1.1, 1.1, 1.1, 5, 1.1, 1.1), ()),
        (is_looked_at, (1, 31, 10, 5, 15, 10), ()),
        (nothing, (31, 31, 10, 5, 15, 10), ()),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_everybody_who_waits_is_answered(
    what: Callable[[Served, LiveRun], Awaitable[object]],
    seconds: tuple[float, ...],
    told: tuple[str, ...],
) -> None:
    """A look is over after 5 s, a view after 15 s without a word; the nodes, which say nothing, are
    lost after 31 s."""
    told = told or ("Body", "RunStatus", "list", "NoneType", "NoneType", "RelayMail")
    found = answered(what)
    assert [found.pop(name) for name in OTHERS] == [found["view"], found["frames"]]
    assert found == dict(zip(NAMES, zip(seconds, told, strict=True), strict=True))


def test_who_follows_what_happens_hears_it_in_order_and_a_sign_of_life_while_nothing_does() -> None:
    """Each chunk: after how many seconds it comes, and the numbers of the lines in it."""
    chunks = list[tuple[float, list[int]]]()

    async def go() -> None:
        clock = asyncio.get_running_loop().time
        served = Served(TroubledJournal(), clock)
        served.start()
        await served.bring_to(Phase.RUNNING, DEMO, 3)
        host = served.host(DEMO)
        last, began = host.number, clock()
        scope = {"headers": [], "state": {}, "path_params": {"run": DEMO.run}}
        caller = Caller(served.service, scope)
        caller.live = host

        async def follow() -> None:
            async for chunk in event_lines(caller, last - 2):
                *lines, end = chunk.split(b"\n")
                numbers = [json.loads(line)["number"] - last for line in lines if line]
                assert end == b""
                assert all(lines) == bool(numbers)
                chunks.append((round(clock() - began, 1), numbers))

        task = asyncio.create_task(follow())
        for _ in range(3):
            await asyncio.sleep(8.0)
            for slot in range(3):
                served.service.heard(host, slot, 1, None)
        await served.report(DEMO, 1, ExitReport(epoch=1, exit_code=3))
        await asyncio.sleep(8.0)
        served.service.closing.set()
        await task
        await served.end()

    run_virtually(go())
    assert chunks == [(0.0, [-1, 0]), (10.0, []), (20.0, []), (24.0, [1])]
