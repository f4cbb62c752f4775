"""What NCCL's log lines say of the network it has chosen, against what was expected. Pure.

The lines are those of NCCL 2.4 to 2.30 at the level INFO, of its own networks and of the plugins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rendezvous.frozen import frozen
from rendezvous.wire.words import printable
from worker.nccl.env import NetworkKind, network_kind

_MOST_WORDS = 120

_MESSAGE = re.compile(r"NCCL (?:INFO|WARN) +(.*)")
_NETWORK = re.compile(r"Using network (.+)")
_SOCKETS = re.compile(r"NET/Socket ?: Using (.+)")
_PORTS = re.compile(r"NET/(?:IB|UCX|\w*IB\w*) ?: Using (\[0\].+)")
_NAMED = re.compile(r"\[\d+\]([^\s:]+)")
_UNOPENED = re.compile(r"NET/IB ?: Unable to open device ([^\s,]+)")
_CHANNEL = re.compile(r" via NET/(.+?)/\d+(?:\(\d+\))?(/GDRDMA)?(?:\W|$)")
_NONE = re.compile(r"Error: network .*not found|Failed to initialize any NET plugin")
_ASKED = re.compile(r"NCCL_NET set by environment to (.+?)\.?$")
_DISABLED = re.compile(r"NCCL_IB_DISABLE set by environment to [1-9]")
_GDR_OFF = re.compile(r"GPU Direct RDMA Disabled for HCA")

_EXPECTED = {"IB": "InfiniBand or RoCE", "Libfabric": "EFA"}


@dataclass(slots=True)
class Heard:
    """What the log of one process has said so far."""

    network: str = ""
    interfaces: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    unopened: str = ""
    no_library: bool = False
    no_device: bool = False
    disabled: bool = False
    asked: str = ""
    has_none: bool = False
    channels: int = 0
    direct_channels: int = 0
    direct_off: bool = False
    mixed_counts: bool = False

    @property
    def kind(self) -> NetworkKind:
        """The kind of network that it uses; empty when it has named none, or an unknown one."""
        return network_kind(self.network)


@frozen
class NetworkVerdict:
    """What is to be said of a node's NCCL, once.

    Attributes:
        kind: What it is about; the same is not said twice.
        level: `fail` ends the run.
        words: A clause that needs no node's name, with what to do.
    """

    kind: Literal["unusable", "fallback", "host_memory", "uneven", "as_expected"]
    level: Literal["ok", "warn", "fail"]
    words: str


def take_in(heard: Heard, line: str) -> None:
    """Add one line of a process's log."""
    match = _MESSAGE.search(line)
    if match is None:
        return
    message = match.group(1).rstrip()
    if found := _NETWORK.match(message):
        heard.network = printable(found.group(1), _MOST_WORDS)
    elif found := _SOCKETS.match(message):
        heard.interfaces = _names(found.group(1))
    elif found := _PORTS.match(message):
        heard.ports = _names(found.group(1))
    elif found := _UNOPENED.search(message):
        heard.unopened = printable(found.group(1), _MOST_WORDS)
    elif found := _CHANNEL.search(message):
        heard.channels += 1
        heard.direct_channels += found.group(2) is not None
    elif found := _ASKED.match(message):
        heard.asked = printable(found.group(1), _MOST_WORDS)
    else:
        heard.has_none |= _NONE.match(message) is not None
        heard.no_library |= "open libibverbs" in message
        heard.no_device |= "NET/IB : No device found" in message
        heard.disabled |= _DISABLED.match(message) is not None
        heard.direct_off |= _GDR_OFF.search(message) is not None
        heard.mixed_counts |= "mixed local Net device counts" in message


def judge(processes: Sequence[Heard], expected: str, *, required: bool) -> Iterator[NetworkVerdict]:
    """What is to be said of a node, the gravest first.

    Args:
        processes: One for each process of the node that keeps a log.
        expected: The table's transport: IB, Libfabric, Socket; empty when nothing is expected.
        required: Whether a fall-back to sockets ends the run.
    """
    wanted = _EXPECTED.get(expected, _EXPECTED["IB"] if required else "")
    level: Literal["warn", "fail"] = "fail" if required else "warn"
    speaking = [one for one in processes if one.network]
    if lost := [one for one in processes if one.has_none and not one.network]:
        name = (
            f"{lost[0].asked}, the only network that it is allowed to use"
            if lost[0].asked
            else "any network"
        )
        yield NetworkVerdict("unusable", level, _sentence(f"NCCL cannot use {name}", lost))
    sockets = [one for one in speaking if one.kind == "Socket"]
    if wanted and sockets:
        on = f" ({', '.join(sockets[0].interfaces)})" if sockets[0].interfaces else ""
        share = "" if required else _share(sockets, speaking)
        words = f"NCCL uses sockets{on}{share}, but {wanted} was expected"
        yield NetworkVerdict("fallback", level, _sentence(words, sockets))
    if any(one.mixed_counts for one in processes):
        words = (
            "NCCL found different numbers of network devices on the nodes; compare the "
            "output of 'rdzv doctor' on the nodes"
        )
        yield NetworkVerdict("uneven", "warn", words)
    yield from _direct(speaking)
    if speaking and not (wanted and sockets):
        yield NetworkVerdict("as_expected", "ok", _praise(speaking))


def _direct(speaking: Sequence[Heard]) -> Iterator[NetworkVerdict]:
    """GPUDirect: without it what is sent goes through the host's memory."""
    over = [one for one in speaking if one.kind in ("IB", "Libfabric")]
    tells = any(one.channels or one.direct_off for one in over)
    if tells and not any(one.direct_channels for one in over):
        yield NetworkVerdict(
            "host_memory",
            "warn",
            f"NCCL uses {over[0].network} without GPUDirect: all data goes through the host's "
            "memory; load nvidia_peermem (modprobe nvidia_peermem), or a driver with DMA-BUF",
        )


def _praise(speaking: Sequence[Heard]) -> str:
    first = speaking[0]
    ports = f" ({', '.join(first.ports)})" if first.ports else ""
    direct = " with GPUDirect" if any(one.direct_channels for one in speaking) else ""
    return printable(f"NCCL uses {first.network}{ports}{direct}", 400)


def _share(some: Sequence[Heard], of: Sequence[Heard]) -> str:
    return "" if len(some) == len(of) else f" in {len(some)} of {len(of)} processes"


def _sentence(words: str, processes: Sequence[Heard]) -> str:
    """The words, with the likeliest cause and what to do."""
    return printable(f"{words}: {_cause(processes)}", 500)


def _cause(processes: Sequence[Heard]) -> str:
    if any(one.disabled for one in processes):
        return "NCCL_IB_DISABLE is set; unset it"
    if any(one.no_library for one in processes):
        return (
            "libibverbs cannot be loaded; install it in the image, with its providers "
            "(rdma-core: libibverbs1, ibverbs-providers)"
        )
    unopened = [one.unopened for one in processes if one.unopened]
    if unopened:
        return (
            f"it cannot open {unopened[0]}; give the container /dev/infiniband (for example "
            "--device /dev/infiniband) and unlimited memlock"
        )
    if any(one.no_device for one in processes):
        return "it found no usable RDMA port; run 'rdzv doctor' on that node to see why"
    return "it does not report why; see its log, and run 'rdzv doctor' on that node"


def _names(words: str) -> list[str]:
    """`eth0` of `[0]eth0:10.0.0.4<0>`, `mlx5_0` of `[0]mlx5_0:1/IB`; the first few."""
    found = [printable(name, 40) for name in _NAMED.findall(words)]
    return found if len(found) <= 8 else [*found[:7], f"{len(found) - 7} more"]
