"""Which address of a registry is used: all are dialled side by side.

It is the first of the list among those that prove themselves within a moment of each other: which
network a node joins from must not depend on how busy its machine is. Those on which an answer was
late start later: small messages may pass there, as these do, and large ones vanish.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

from rendezvous.frozen import frozen
from rendezvous.talk.failures import Fault, NetworkFailure, unreachable
from rendezvous.talk.join_string import RegistryPlace, own_port, with_port
from rendezvous.talk.network import Line, Network, Request

HEAD_START_SECONDS = 0.25
"""As long as one connection attempt has before the next, RFC 8305."""

_CLOCK_SECONDS = 0.001
"""What is shorter is over: a timer for less than a clock can tell rings before its time."""

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
    late: Collection[str],
    seconds: float,
) -> None:
    """Dial all addresses side by side, those that are `late` a little later.

    Args:
        network: Where they are dialled.
        place: Whose addresses.
        use: Called with the address that is taken and its line, which is the caller's from then on.
        late: On these an answer was late.
        seconds: Time-out of each step at each address.

    Raises:
        Unavailable: No address has proven itself; the message says what happened at each.
    """
    # Those that start later have no head start over the others, too.
    addresses = sorted(place.addresses, key=late.__contains__)
    delays = [seconds / 4 if address in late else 0.0 for address in addresses]
    tasks = [
        asyncio.create_task(_dial_name(network, place, address, delay, seconds))
        for address, delay in zip(addresses, delays, strict=True)
    ]
    try:
        taken = await _first_in_order(tasks)
        if taken is not None:
            use(addresses[taken], tasks.pop(taken).result())
            return
        failures = dict(zip(addresses, map(_failure, tasks), strict=True))
    finally:
        await _give_up(tasks)
    raise unreachable(place, failures)


async def _dial_name(
    network: Network, place: RegistryPlace, name: str, delay: float, seconds: float
) -> Line:
    """Dial an address, or those of a name one after another."""
    if delay:
        await asyncio.sleep(delay)
    host, port = place.host_and_port(name)
    found = await network.addresses_of(host, seconds)
    *others, last = [with_port(one, port) if own_port(name) else one for one in found]
    for address in others:
        with contextlib.suppress(NetworkFailure):
            return await _dial_address(network, place, address, seconds)
    return await _dial_address(network, place, last, seconds)


async def _dial_address(
    network: Network, place: RegistryPlace, address: str, seconds: float
) -> Line:
    line = await network.open(place, address, seconds)
    try:
        answer = await line.request(_ARE_YOU_THERE, seconds)
        if "x-rdzv" not in answer.headers:
            raise NetworkFailure(Fault.NOT_RDZV)
    except BaseException:
        await line.aclose()
        raise
    return line


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
