"""Which address of a registry is used.

Those of one machine are dialled side by side. It is the first of the list among those that prove
themselves within a moment of each other: which network a node joins from must not depend on how
busy its machine is. Those on which an answer was late start later: small messages may pass there,
as these do, and large ones vanish.

Replicas are dialled one after another, each a moment after the one before or once all before it
have failed: 5,000 nodes must not open a connection to each of them. The first that proves itself
is used. One that was of no use comes last.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rendezvous.frozen import frozen
from rendezvous.talk.failures import Fault, NetworkFailure, unreachable
from rendezvous.talk.join_string import RegistryPlace, own_port, with_port
from rendezvous.talk.network import Line, Network, Request
from rendezvous.version import rdzv_version
from rendezvous.wire.protocol import HEADER, PROTOCOL, Speaker

HEAD_START_SECONDS = 0.25
"""As long as one connection attempt has before the next, RFC 8305."""

_CLOCK_SECONDS = 0.001
"""What is shorter is over: a timer for less than a clock can tell rings before its time."""

Dial = Callable[[], Coroutine[Any, Any, Line]]

_ARE_YOU_THERE = Request("GET", "/healthz", {})


@frozen
class WaitFor:
    """Wait for one of these; None: as long as it takes."""

    places: tuple[int, ...]
    seconds: float | None


def next_step(answers: Sequence[bool | None], since_first: float) -> int | WaitFor | None:
    """The place of the address to use, or whom to wait for; None when all have failed.

    Args:
        answers: By place in the list: whether it has proven itself, None while it has not answered.
        since_first: Seconds since the first of them did; only then it matters.
    """
    best = answers.index(True) if True in answers else None
    places = tuple(place for place, answer in enumerate(answers[:best]) if answer is None)
    if best is None:
        return WaitFor(places, None) if places else None
    left = HEAD_START_SECONDS - since_first
    return WaitFor(places, left) if places and left > _CLOCK_SECONDS else best


@frozen
class DialNext:
    """Dial the next one, beside those that have not answered."""


def next_step_of_replicas(
    answers: Sequence[bool | None], left: int, since_last: float
) -> int | DialNext | WaitFor | None:
    """As `next_step`, where one is dialled after another.

    Args:
        answers: Of those that were dialled.
        left: How many were not.
        since_last: Seconds since the last one was.
    """
    if True in answers:
        return answers.index(True)
    places = tuple(place for place, answer in enumerate(answers) if answer is None)
    head_start = HEAD_START_SECONDS - since_last
    if left and (not places or head_start <= _CLOCK_SECONDS):
        return DialNext()
    return WaitFor(places, head_start if left else None) if places else None


def dial_order(place: RegistryPlace, late: Sequence[str]) -> list[str]:
    """The addresses as they are dialled: those that were late last, and of replicas the one that
    was so last behind all others, so that no two are tried in turns while a third is there.

    Args:
        place: Whose addresses.
        late: On these an answer was late; the newest comes last.
    """
    if not place.replicas:  # those that start later have no head start over the others, too
        return sorted(place.addresses, key=late.__contains__)
    return sorted(place.addresses, key=lambda one: late.index(one) + 1 if one in late else 0)


def dials_again(failure: NetworkFailure, addresses: int) -> bool:
    """Whether the next request dials all addresses, after this failure of one on the line in use.

    A time-out may be a lost packet: what else to dial is the only reason for doing so.
    """
    return not failure.opened and (failure.fault is not Fault.FILTERED or addresses > 1)


async def dial(
    network: Network,
    place: RegistryPlace,
    use: Callable[[str, Line], None],
    *,
    late: Sequence[str],
    seconds: float,
) -> None:
    """Dial the addresses until one is taken.

    Args:
        network: Where they are dialled.
        place: Whose addresses.
        use: Called with the address that is taken and its line, which is the caller's from then on.
        late: On these an answer was late; the newest comes last.
        seconds: Time-out of each step at each address.

    Raises:
        Unavailable: No address has proven itself; the message says what happened at each.
    """
    addresses = dial_order(place, late)
    dials = [functools.partial(dial_name, network, place, one, seconds) for one in addresses]
    tasks: list[asyncio.Task[Line]] = []
    try:
        if place.replicas:
            taken = await _one_after_another(dials, tasks)
        else:
            delays = [seconds / 4 if address in late else 0.0 for address in addresses]
            tasks += map(asyncio.create_task, map(_later, dials, delays))
            taken = await _first_in_order(tasks)
        if taken is not None:
            use(addresses[taken], tasks.pop(taken).result())
            return
        failures = dict(zip(addresses, map(_failure, tasks), strict=True))
    finally:
        await _give_up(tasks)
    raise unreachable(place, failures)


async def _later(dial: Dial, delay: float) -> Line:
    if delay:
        await asyncio.sleep(delay)
    return await dial()


async def dial_name(network: Network, place: RegistryPlace, name: str, seconds: float) -> Line:
    """Dial an address of the place, or those of a name one after another.

    Raises NetworkFailure, that of the last one, where none has proven itself.
    """
    host, port = place.host_and_port(name)
    found = await network.addresses_of(host, seconds)
    *others, last = [with_port(one, port) if own_port(name) else one for one in found]
    for address in others:
        with contextlib.suppress(NetworkFailure):
            return await _dial_address(network, place, address, seconds)
    try:
        return await _dial_address(network, place, last, seconds)
    except NetworkFailure as exc:
        exc.resolved = tuple(sorted(found)) if found != [host] else ()
        raise


async def _dial_address(
    network: Network, place: RegistryPlace, address: str, seconds: float
) -> Line:
    line = await network.open(place, address, seconds)
    try:
        answer = await line.request(_ARE_YOU_THERE, seconds)
        if "x-rdzv" not in answer.headers:
            raise NetworkFailure(Fault.NOT_RDZV)
        them = Speaker.from_header(answer.headers.get(HEADER, ""))
        if place.replicas and them.protocol not in (None, PROTOCOL):
            us = Speaker("this rdzv", PROTOCOL, rdzv_version())
            raise NetworkFailure(Fault.OTHER_PROTOCOL, f"{them.says()}, {us.name} {us.says()}")
    except BaseException:
        await line.aclose()
        raise
    return line


async def _one_after_another(dials: Sequence[Dial], tasks: list[asyncio.Task[Line]]) -> int | None:
    """Add a task for each that is dialled; the place of the one to take, None when all failed."""
    clock, last_at = asyncio.get_running_loop().time, 0.0
    while True:
        answers = [task.exception() is None if task.done() else None for task in tasks]
        step = next_step_of_replicas(answers, len(dials) - len(tasks), clock() - last_at)
        if isinstance(step, DialNext):
            tasks.append(asyncio.create_task(dials[len(tasks)]()))
            last_at = clock()
        elif isinstance(step, WaitFor):
            waiting = [tasks[place] for place in step.places]
            await asyncio.wait(waiting, timeout=step.seconds, return_when="FIRST_COMPLETED")
        else:
            return step


async def _first_in_order(tasks: Sequence[asyncio.Task[Line]]) -> int | None:
    """The place of the task to take, None when all have failed."""
    clock, first_at = asyncio.get_running_loop().time, float("inf")
    while True:
        answers = [task.exception() is None if task.done() else None for task in tasks]
        if True in answers:
            first_at = min(first_at, clock())
        step = next_step(answers, clock() - first_at)
        if not isinstance(step, WaitFor):
            return step
        waiting = [tasks[place] for place in step.places]
        await asyncio.wait(waiting, timeout=step.seconds, return_when="FIRST_COMPLETED")


def _failure(task: asyncio.Task[Line]) -> NetworkFailure:
    error = task.exception()
    if isinstance(error, NetworkFailure):
        return error
    return NetworkFailure(Fault.OTHER, str(error) or type(error).__name__)


async def _give_up(tasks: Sequence[asyncio.Task[Line]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(result, BaseException):
            await result.aclose()
