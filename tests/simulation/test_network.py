"""The simulated network, with the client and the registry's application that ship at its ends."""

from __future__ import annotations

import asyncio
import gzip
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from rendezvous.server.connection import CloseReason, Connection
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.network import Answer, Request
from rendezvous.wire.errors import NotFound, RdzvError, Unauthorized, Unavailable
from tests.simulation import asgi
from tests.simulation.generate import generate
from tests.simulation.network import ADDRESSES, place_of
from tests.simulation.schedule import Fault, Schedule
from tests.simulation.world import World
from tests.support.virtual_time import Machine, VirtualLoop, run_virtually

CALM = generate(3).without(())
Work = Callable[[World], Coroutine[Any, Any, Any]]


def with_two_addresses(*faults: Fault) -> Schedule:
    """A schedule without other faults, with two addresses of the registry."""
    launch = replace(CALM.launches[0], addresses=2, lease=15.0)
    return replace(CALM, launches=(launch,), faults=faults)


def beside(schedule: Schedule, work: Work, until: float = 60.0) -> tuple[Any, float]:
    """What a stranger's process beside a simulation comes to, and when; or its error's code."""
    world = World(schedule)
    world.start_registry()

    async def told() -> tuple[Any, float]:
        try:
            return await work(world), world.loop.time()
        except RdzvError as exc:
            return exc, world.loop.time()

    task = Machine(world.loop, "stranger").run(told())
    world.loop.drive(until)
    assert world.history.violation is None
    result: tuple[Any, float] = task.result()
    world.loop.dispose()
    return result


def client_of(world: World, **place: Any) -> Any:
    """A client at the address of slot 0, with the operator's credential."""
    path = world.network.path(0, 0)
    client = world.client(place_of(1), path, world.network.door(path), world.operator)
    client.place = replace(place_of(1), **place)
    return client


@pytest.mark.parametrize(("when", "count"), [("created 1 after", 1), ("acked 1 before", 2)])
def test_a_node_uses_the_address_that_is_left(when: str, count: int) -> None:
    cut = Fault(when, "address cut", slot=0, seconds=600.0, count=count)
    world = World(with_two_addresses(cut))
    report = world.run()
    assert (report.violation, report.faults["address cut"]) == (None, 1)
    [process] = [process for process in world.history.processes if process.slot == 0]
    assert (process.ended, process.result is not None) == (0, True)
    assert process.client is not None
    assert process.client.base == f"https://{ADDRESSES[2 - count]}:29600"


async def cut_off(world: World) -> None:
    world.network.path(0, 0).cut_up_until = 1e9
    await client_of(world).runs()


async def guess(world: World) -> None:
    client = client_of(world)
    client.credential = registry_credential(b"another secret").text()
    for _ in range(9):  # slowed down: the first two at once, then one a second
        with pytest.raises(Unauthorized):
            await client.runs()
    await client.runs()


@pytest.mark.parametrize(
    ("work", "error", "words", "after"),
    [
        (lambda world: client_of(world, proof=b"another").runs(), Unavailable, "certificate", 0.0),
        (lambda world: client_of(world, port=1).runs(), Unavailable, "refused", 0.0),
        (
            lambda world: client_of(world, addresses=("10.7.7.7",)).runs(),
            *(Unavailable, "its name cannot be resolved", 0.0),
        ),
        (cut_off, Unavailable, "filtered, or the host is down", 2.0),
        (lambda world: client_of(world).request("GET", "/v1/nothing"), NotFound, "no /v1", 0.0),
        (guess, Unauthorized, "", 8.0),
    ],
)
def test_a_stranger_is_refused_as_in_reality(
    work: Work, error: type[RdzvError], words: str, after: float
) -> None:
    failed, at = beside(CALM, work)
    assert type(failed) is error
    assert words in failed.message
    assert after <= at < after + 2.0


def test_a_compressed_answer_is_read() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (b"accept-encoding", b"gzip") in scope["headers"]
        headers = [(b"Content-Encoding", b"gzip")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": gzip.compress(b"much")})

    request = Request("GET", "/x?a=1", {})
    answer = run_virtually(asgi.serve(app, request, "10.9.0.1", None))
    assert answer == Answer(200, {"content-encoding": "gzip"}, b"much")


def test_who_waits_for_more_of_a_request_hears_that_its_connection_ended() -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(2):
            heard.append((await receive())["type"])

    async def work() -> None:
        connection = Connection("10.9.0.1")
        request = Request("POST", "/x", {}, b"body")
        serving = asyncio.ensure_future(asgi.serve(app, request, "10.9.0.1", connection))
        await asyncio.sleep(1.0)
        assert heard == ["http.request"]
        connection.end(CloseReason.FIN)
        await serving

    run_virtually(work())
    assert heard == ["http.request", "http.disconnect"]


# --- machines -------------------------------------------------------------------------------------


def test_a_signal_reaches_the_handler_of_its_own_machine() -> None:
    loop = VirtualLoop(pytest.fail)
    told: list[str] = []

    async def program(name: str) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.append, name)
        await asyncio.sleep(100)

    machines = {name: Machine(loop, name) for name in ("one", "other", "dead", "paused")}
    for name, machine in machines.items():
        machine.run(program(name))
    loop.drive(1.0)
    assert machines["one"].signal(signal.SIGTERM)
    assert not machines["one"].signal(signal.SIGHUP)
    machines["dead"].kill()
    assert not machines["dead"].signal(signal.SIGTERM)
    machines["paused"].pause()
    assert machines["paused"].signal(signal.SIGTERM)
    loop.drive(2.0)
    assert told == ["one"]
    machines["paused"].go_on()
    loop.drive(3.0)
    assert told == ["one", "paused"]
    loop.dispose()


def test_tasks_and_futures_stand_in_a_set_in_the_order_in_which_they_were_made() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(asyncio.sleep(1.0)) for _ in range(5)]
        made = [*tasks, *(loop.create_future() for _ in range(5))]
        hashes = [hash(one) for one in made]
        assert hashes == list(range(hashes[0], hashes[0] + 10))
        done, _ = await asyncio.wait(tasks)
        assert len(done) == 5

    run_virtually(work())


def test_what_asyncio_has_for_waiting_works_on_the_virtual_clock() -> None:
    async def work() -> float:
        lock, event, loop = asyncio.Lock(), asyncio.Event(), asyncio.get_running_loop()

        async def hold(seconds: float) -> None:
            async with lock:
                await asyncio.sleep(seconds)

        loop.call_later(2.0, event.set)
        await asyncio.gather(hold(1.0), hold(2.0), event.wait())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(9.0), 0.5)
        return loop.time()

    assert run_virtually(work()) == 3.5
