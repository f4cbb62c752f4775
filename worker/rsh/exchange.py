"""Frames of remote commands from node to node: the registry's relay, and this node itself."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rendezvous.client import retry_pause
from rendezvous.errors import RegistryError, TooManyRequests
from rendezvous.schema import (
    CommandFrame,
    CommandOutput,
    CommandStart,
    Parcel,
    RelayMail,
    RelayReply,
)

logger = logging.getLogger(__name__)

_POST_BYTES = 180 << 10
"""Below what the registry takes as a body; one frame always fits."""
_POST_PARCELS = 256
_FRAME_BYTES = 300


class Registry(Protocol):
    """What is needed of `rendezvous.client.RegistryClient`."""

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
        self._waiting: deque[Parcel] = deque()
        self._more = asyncio.Event()
        self._session = ""

    def send(self, peer: int, frame: CommandFrame) -> None:
        """Have a frame passed on, behind those for the same node before it."""
        if peer == self._slot:
            asyncio.get_running_loop().call_soon(self._receive, peer, frame)
            return
        self._waiting.append(Parcel(peer=peer, frame=frame))
        self._more.set()

    async def work(self) -> None:
        """Pass frames on until cancelled. Raises RdzvError when the registry refuses for good."""
        giving = asyncio.create_task(self._give())
        taking = asyncio.create_task(self._take())
        try:
            done, _ = await asyncio.wait({giving, taking}, return_when="FIRST_COMPLETED")
            for task in done:
                task.result()
        finally:
            giving.cancel()
            taking.cancel()
            await asyncio.gather(giving, taking, return_exceptions=True)

    async def _give(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                batch = self._batch()
                try:
                    await self._registry.relay_give(self._run, self._slot, batch)
                except (RegistryError, TooManyRequests) as exc:
                    logger.debug("frames of remote commands wait: %s", exc.message)
                    await asyncio.sleep(retry_pause())
                else:
                    for _ in batch:
                        self._waiting.popleft()

    def _batch(self) -> list[Parcel]:
        batch: list[Parcel] = []
        left = _POST_BYTES
        for parcel in self._waiting:
            left -= _size_of(parcel.frame)
            if batch and (left < 0 or len(batch) == _POST_PARCELS):
                break
            batch.append(parcel)
        return batch

    async def _take(self) -> None:
        after = 0
        while True:
            try:
                mail = await self._registry.relay_take(self._run, self._slot, after, self._session)
            except (RegistryError, TooManyRequests) as exc:
                logger.debug("frames of remote commands cannot be had now: %s", exc.message)
                await asyncio.sleep(retry_pause())
                continue
            after = mail.seq
            if mail.session != self._session:
                known, self._session = self._session, mail.session
                if known:
                    self._lost()
            for parcel in mail.parcels:
                self._receive(parcel.peer, parcel.frame)


def _size_of(frame: CommandFrame) -> int:
    if isinstance(frame, CommandStart):
        return len(frame.command) + _FRAME_BYTES
    if isinstance(frame, CommandOutput):
        return len(frame.data) + _FRAME_BYTES
    return _FRAME_BYTES
