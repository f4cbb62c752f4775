"""Reads how this node's machine is while a program runs on it, and publishes that.

A machine that cannot be read is left alone from then on. Nobody waits for what is read: the newest
counts, and what the registry does not take is replaced the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from features.machines import TOPIC
from features.machines.reader import MachineReader
from features.machines.wire import MachineSample
from worker.agent import NodePort


class Reader(Protocol):
    """What is needed of `features.machines.reader.MachineReader`."""

    def read(self) -> MachineSample:
        """Read the state of this machine; called in a thread."""


async def run(
    port: NodePort, make: Callable[[Path, Mapping[str, str]], Reader] = MachineReader
) -> None:
    """Publish samples of this machine beside each program, unless observation is off."""
    if not port.observes:
        return
    port.activity = "reading this machine"
    reader = make(port.log_folder, port.environ)
    await port.every(TOPIC, lambda: port.in_thread(reader.read))
