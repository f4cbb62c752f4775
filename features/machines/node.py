"""Reads how this node's machine is while a program runs on it, and publishes that.

A machine that cannot be read is left alone from then on. Nobody waits for what is read: the newest
counts, and what the registry does not take is replaced the next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from features.machines import TOPIC
from features.machines.reader import MachineReader
from features.machines.wire import MachineSample
from rendezvous.wire.errors import RdzvError
from worker.agent import NodePort


class Reader(Protocol):
    """What is needed of `features.machines.reader.MachineReader`."""

    def read(self) -> MachineSample:
        """Read the state of this machine; called in a thread."""


async def run(
    port: NodePort, make: Callable[[Path, Mapping[str, str]], Reader] = MachineReader
) -> None:
    """Publish samples of this machine beside each program, where a person wants it."""
    if port.settings.stall == "off":
        return
    port.doing = "reading this machine"
    sampling = Sampling(port, make(port.log_folder, port.environ))
    await port.beside_programs(sampling.work)


class Sampling:
    """Samples of one machine: one reading is under way at a time, whatever hangs."""

    def __init__(self, port: NodePort, reader: Reader) -> None:
        self._port = port
        self._reader = reader
        self._reading: asyncio.Future[MachineSample] | None = None

    async def work(self) -> None:
        """Read it at this node's turn, and now and then after, until cancelled."""
        clock = asyncio.get_running_loop().time
        sending: asyncio.Task[None] | None = None
        await asyncio.sleep(TOPIC.turn(self._port.node))
        try:
            while True:
                due = clock() + TOPIC.pause(self._port.nodes)
                sample = await self._read()
                if sending is not None:
                    sending.cancel()
                sending = asyncio.create_task(self._publish(sample))
                await asyncio.sleep(due - clock())
        finally:
            if sending is not None:
                sending.cancel()

    async def _read(self) -> MachineSample:
        if self._reading is None:  # one of a program before may not have come back
            self._reading = asyncio.ensure_future(self._port.in_thread(self._reader.read))
        await asyncio.wait({self._reading})
        reading, self._reading = self._reading, None
        return reading.result()

    async def _publish(self, sample: MachineSample) -> None:
        try:
            await self._port.publish(TOPIC, sample)
        except RdzvError:
            pass
        except Exception as exc:  # noqa: BLE001 (the next one may be taken)
            self._port.failed(exc)
