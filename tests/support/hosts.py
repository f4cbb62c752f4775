"""A network that is made up, for the client that ships: hosts that answer, fail or are late."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.failures import Fault, NetworkFailure
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.network import Answer, Line, Request, Stream
from rendezvous.wire.protocol import HEADER
from tests.support.virtual_time import run_virtually

HEALTHY = Answer(200, {"x-rdzv": "test"}, b"ok\n")
NEVER = 1e6


def raw(status: int, body: Any) -> Answer:
    """An answer with this body, as JSON unless it is bytes."""
    return Answer(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


@dataclass
class Host:
    """An address: answers after so many seconds, or fails; the first requests find it `deaf`.

    On the first lines to it, so many as are `forgotten`, nothing passes any more. What is `held` is
    answered when it is so no longer. A list of answers is given one by one, its last one for ever.
    """

    seconds: float = 0.0
    fault: Fault | None = None
    answer: Any = None
    deaf: int = 0
    lines: int = 0
    forgotten: int = 0
    refuses: bool = False
    dialled_at: list[float] = field(default_factory=list)
    asked: list[tuple[Request, int]] = field(default_factory=list)
    closed: int = 0
    held: set[str] = field(default_factory=set)
    speaks: str = ""
    """What it says of its protocol; empty: nothing."""
    sent: list[tuple[float, float]] = field(default_factory=list)
    """Of each request but those that dial: when it was sent, and how long its answer may take."""

    async def take(self, request: Request) -> Answer:
        """Answer a request."""
        if self.refuses:
            raise NetworkFailure(Fault.REFUSED, opened=False)
        self.asked.append((request, self.closed))
        if request.target != "/healthz":
            if self.deaf > 0:
                self.deaf -= 1
                await asyncio.sleep(NEVER)
            while self.answer is None or request.target in self.held:
                await asyncio.sleep(0.05)
            return self._next_answer()
        await asyncio.sleep(self.seconds)
        if self.fault is not None:
            raise NetworkFailure(self.fault)
        return replace(HEALTHY, headers={**HEALTHY.headers, HEADER: self.speaks})

    def _next_answer(self) -> Answer:
        answer = self.answer
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer if isinstance(answer, Answer) else raw(200, answer)

    @property
    def heard(self) -> list[str]:
        """The targets of the requests that came with a credential."""
        return [asked.target for asked in self.asked_for_runs]

    @property
    def asked_for_runs(self) -> list[Request]:
        """The requests that came with a credential."""
        return [asked for asked, _ in self.asked if "authorization" in asked.headers]


class _Stream:
    """See the protocol `Stream`."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self._body = answer.body

    async def read(self) -> bytes:
        return self._body

    async def lines(self) -> AsyncIterator[str]:
        for line in self._body.decode().splitlines():
            yield line


class _Line:
    def __init__(self, address: str, host: Host) -> None:
        self.base = f"http://{address}"
        self._address, self._host, self._number = address, host, host.lines
        self._is_closed = False
        host.lines += 1

    async def request(self, request: Request, seconds: float) -> Answer:
        assert not self._is_closed
        if request.target != "/healthz":
            self._host.sent.append((asyncio.get_running_loop().time(), seconds))
        if self._number < self._host.forgotten:
            await asyncio.sleep(seconds)
            raise NetworkFailure(Fault.SILENT)
        return await self._host.take(request)

    @asynccontextmanager
    async def stream(self, request: Request, quiet: float) -> AsyncIterator[Stream]:
        assert not self._is_closed
        yield _Stream(await self._host.take(request))

    def anew(self) -> Line:
        return _Line(self._address, self._host)

    async def aclose(self) -> None:
        self._is_closed = True
        self._host.closed += 1


@dataclass
class Hosts:
    """A network of these hosts; a name is that of all whose address begins with it."""

    hosts: Mapping[str, Host]

    async def addresses_of(self, name: str, seconds: float) -> list[str]:
        """See the protocol."""
        known = [address.partition(":")[0] for address in self.hosts]
        return [address for address in known if address.startswith(name)]

    async def open(self, place: RegistryPlace, address: str, seconds: float) -> Line:
        """See the protocol."""
        self.hosts[address].dialled_at.append(asyncio.get_running_loop().time())
        return _Line(address, self.hosts[address])


Work = Callable[[RegistryClient], Coroutine[Any, Any, Any]]


def with_client(
    hosts: Mapping[str, Host], work: Work, *names: str, **place_has: Any
) -> tuple[Any, str, float]:
    """What comes of it, the address that is used then, and when it is over.

    The place has these names, or the addresses of all hosts; and what else is said of it.
    """

    async def run() -> tuple[Any, str, float]:
        place = RegistryPlace(names or tuple(hosts), 29600, **place_has)
        client = RegistryClient(
            place, "r." + "A" * 43, request_seconds=1.0, network=Hosts(hosts), draw=random.Random(7)
        )
        told = await work(client)
        return told, client.base, asyncio.get_running_loop().time()

    return run_virtually(run())
