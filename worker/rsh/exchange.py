"""Frames of remote commands from node to node: the registry's relay, and this node itself."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from rendezvous.talk.retry import until_answered
from rendezvous.tasks import cancel_all
from rendezvous.wire.errors import RdzvError, UsageError
from rendezvous.wire.relay import (
    CommandEnd,
    CommandFrame,
    CommandStart,
    CommandTaken,
    Parcel,
    RelayMail,
    RelayReply,
    size_of,
)

logger = logging.getLogger(__name__)

_POST_BYTES = 180 << 10
"""Below what the registry takes as a body; one frame always fits."""
_POST_PARCELS = 256
MOST_QUEUED_BYTES = 8 << 20
"""Of what this node asks for: 500 commands of 12 KiB. What it answers is bounded by windows."""
_OF_CALLER = (CommandStart, CommandTaken, CommandEnd)
"""Their numbers are the caller's own; those of the others are their receiver's."""


class Registry(Protocol):
    """What is needed of `rendezvous.talk.client.RegistryClient`."""

    def pause(self) -> float:
        """Draw the seconds before a registry that did not answer is asked again."""

    async def relay_give(self, run: str, slot: int, parcels: list[Parcel]) -> RelayReply:
        """Send frames to other nodes."""

    async def relay_take(self, run: str, slot: int, after: int, session: str) -> RelayMail:
        """The frames for this node after those that it has; waits for one."""


class Exchange:
    """The frames of one node. None is doubled on purpose, and none lost but with the registry.

    Args:
        registry: Where other nodes are reached.
        run: The run id.
        slot: This node.
        receive: Called with each frame and the slot that it comes from; may not block.
        lost: Called when frames may have been lost: what is not acknowledged is to be told again.
    """

    def __init__(
        self,
        registry: Registry,
        run: str,
        slot: int,
        *,
        receive: Callable[[int, CommandFrame], None],
        lost: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._run = run
        self._slot = slot
        self._receive = receive
        self._lost = lost
        self._waiting: dict[int, Parcel] = {}  # by when they came
        self._places = itertools.count()
        self._begun: set[tuple[int, int]] = set()  # calls of which a target may have heard
        self._more = asyncio.Event()
        self._session = ""

    def send(self, peer: int, frame: CommandFrame) -> None:
        """Have a frame passed on, behind those for the same node before it.

        The start and the end of a call take the place of what waits of it; there is no end of one
        whose start was never on its way.

        Raises:
            UsageError: Too much waits already for one more call to start.
        """
        if peer == self._slot:
            asyncio.get_running_loop().call_soon(self._receive, peer, frame)
            return
        call = peer, frame.number
        if isinstance(frame, CommandStart | CommandEnd):
            took_start = self._take_back(call)
            known = call in self._begun
            if isinstance(frame, CommandEnd):
                self._begun.discard(call)
                if took_start and not known:
                    return
            elif not took_start and not known:
                self._check_room(frame)
        self._waiting[next(self._places)] = Parcel(peer=peer, frame=frame)
        self._more.set()

    def _take_back(self, call: tuple[int, int]) -> bool:
        """Remove what waits of a call of this node; whether its start was among it.

        What is on its way right now may arrive, but is not given again if it does not.
        """
        found = [
            (place, parcel.frame)
            for place, parcel in self._waiting.items()
            if (parcel.peer, parcel.frame.number) == call and isinstance(parcel.frame, _OF_CALLER)
        ]
        for place, _ in found:
            del self._waiting[place]
        return any(isinstance(frame, CommandStart) for _, frame in found)

    def _check_room(self, start: CommandStart) -> None:
        frames = (parcel.frame for parcel in self._waiting.values())
        queued = sum(size_of(frame) for frame in frames if isinstance(frame, _OF_CALLER))
        if queued + size_of(start) > MOST_QUEUED_BYTES:
            raise UsageError(
                f"slot {self._slot} already has {queued >> 10} KiB of remote commands "
                f"waiting, because the registry of run '{self._run}' does not accept them; "
                "try again later"
            )

    async def work(self) -> None:
        """Pass frames on until cancelled. Raises RdzvError when the registry refuses for good."""
        giving = asyncio.create_task(self._give())
        taking = asyncio.create_task(self._take())
        try:
            done, _ = await asyncio.wait({giving, taking}, return_when="FIRST_COMPLETED")
            for task in done:
                task.result()
        finally:
            await cancel_all([giving, taking])

    async def _give(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                for place in await until_answered(
                    self._give_batch, failed=_say_waits, pause=self._registry.pause
                ):
                    self._waiting.pop(place, None)  # it may have been taken back

    async def _give_batch(self) -> Collection[int]:
        """Give what is first in line by now; returns its places."""
        batch = self._batch()
        self._begun |= {
            (parcel.peer, parcel.frame.number)
            for parcel in batch.values()
            if isinstance(parcel.frame, CommandStart)
        }
        if batch:
            await self._registry.relay_give(self._run, self._slot, [*batch.values()])
        return batch

    def _batch(self) -> dict[int, Parcel]:
        """What is given next, by its place among those that wait."""
        batch: dict[int, Parcel] = {}
        left = _POST_BYTES
        for place, parcel in self._waiting.items():
            left -= size_of(parcel.frame)
            if batch and (left < 0 or len(batch) == _POST_PARCELS):
                break
            batch[place] = parcel
        return batch

    async def _take(self) -> None:
        after = 0
        while True:
            ask = functools.partial(
                self._registry.relay_take, self._run, self._slot, after, self._session
            )
            mail = await until_answered(ask, failed=_say_absent, pause=self._registry.pause)
            after = mail.seq
            if mail.session != self._session:
                known, self._session = self._session, mail.session
                if known:
                    self._lost()
            for parcel in mail.parcels:
                self._receive(parcel.peer, parcel.frame)


def _say_waits(failure: RdzvError) -> None:
    logger.debug("frames of remote commands are waiting: %s", failure.message)


def _say_absent(failure: RdzvError) -> None:
    logger.debug("frames of remote commands cannot be fetched now: %s", failure.message)
