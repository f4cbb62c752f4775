"""Messages about the machines of a run: what each is, and how busy it is. Pure.

Amounts are bytes; 0 of both an amount and its whole: that could not be found out.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rendezvous.wire.node import Facts
from rendezvous.wire.types import ShortWords, SlotIndex, Wire, Words

MAX_GPUS = 64

Bytes = Annotated[int, Field(ge=0, lt=1 << 62)]


class GpuSample(Wire):
    """One GPU of those that the program may use; what its driver does not tell is none."""

    index: Annotated[int, Field(ge=0, lt=1 << 16)] = Field(description="As NVML counts.")
    memory_used: Bytes = 0
    memory_total: Bytes = 0
    utilisation: Annotated[int, Field(ge=0, le=100)] | None = Field(
        None, description="Percent of the time in which it computed, just before."
    )
    temperature: Annotated[int, Field(ge=-273, le=1_000)] | None = Field(
        None, description="Degrees Celsius."
    )
    problem: ShortWords = Field("", description="Why its driver cannot use it; empty when it can.")


class MachineSample(Wire):
    """The state of this node's machine."""

    load: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0, description="Threads that run or wait to run, in the mean of the last minute."
    )
    memory_used: Bytes = Field(
        0,
        description="Of the control group, without the files that the kernel can drop at any "
        "time; where it has no limit, of the machine.",
    )
    memory_limit: Bytes = Field(0, description="The control group's; 0: it has none.")
    memory_total: Bytes = Field(0, description="Of the machine.")
    memory_available: Bytes = Field(0, description="Of the machine.")
    disk_free: Bytes = Field(0, description="Where the logs are.")
    disk_total: Bytes = 0
    shm_free: Bytes = Field(0, description="Of /dev/shm.")
    shm_total: Bytes = 0
    gpus: Annotated[list[GpuSample], Field(max_length=MAX_GPUS)] = []
    gpu_problem: Words = Field("", description="Why the driver says nothing of the GPUs.")


class NodeMachine(Wire):
    """The machine of one node, as the registry knows it."""

    slot: SlotIndex
    node: int | None = None
    hostname: ShortWords = ""
    facts: Facts = Field(
        Facts(), description="Those that describe the machine; the others are left out."
    )
    sample: MachineSample | None = Field(None, description="The newest; none: it has sent none.")
    age: float = Field(0.0, ge=0, allow_inf_nan=False, description="Of the sample, in seconds.")


class RunMachines(Wire):
    """The nodes' machines, by slot: what each is, and its newest state."""

    machines: list[NodeMachine] = []
