"""How the machines of one run stand: the newest sample of each node, in memory alone.

Neither the journal nor the run's state machine knows of it: a registry that is started again is
told all of it within a while.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rendezvous.run.state import Node, Run
from rendezvous.serving.answers import Body
from rendezvous.wire.errors import TooLarge
from rendezvous.wire.machine import MachineSample, NodeMachine
from rendezvous.wire.node import Facts, RdmaPort

MOST_BYTES = 32 << 20
"""What the samples of a run may take: a node of eight GPUs takes 1 KB."""


class _Kept(NamedTuple):
    """A sample as JSON, whose it is, and when it came."""

    incarnation: int
    at: float
    written: bytes


class Machines:
    """Those of one run."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._bytes = 0
        self._about: dict[int, tuple[int, bytes]] = {}
        """Of each slot the incarnation, and what does not change about its machine, as JSON."""

    def take(
        self, run: Run, slot: int, incarnation: int, sample: MachineSample, now: float
    ) -> None:
        """Keep what a node says of its machine in place of what it has said before.

        Raises TooLarge.
        """
        written = sample.model_dump_json(exclude_defaults=True).encode()
        before = self._kept.get(slot)
        grown = self._bytes + len(written) - (len(before.written) if before is not None else 0)
        if grown > MOST_BYTES:
            raise TooLarge(f"the machines of this run have said more than {MOST_BYTES >> 20} MiB")
        self._kept[slot], self._bytes = _Kept(incarnation, now, written), grown
        if (node := run.slots[slot].node) is not None:
            self._about_node(slot, node)  # who reads finds it written: all at once take long

    def written(self, run: Run, now: float) -> Body:
        """A RunMachines of the nodes that are in the run, and of those that have left it."""
        nodes = ((slot.index, slot.node) for slot in run.slots if slot.node is not None)
        machines = (self._machine(slot, node, now) for slot, node in nodes)
        return Body(b'{"machines":[' + b",".join(machines) + b"]}")

    def _machine(self, slot: int, node: Node, now: float) -> bytes:
        """A NodeMachine; what is not known has its default, and is left out."""
        parts = [b'"slot":%d' % slot, self._about_node(slot, node)]
        if node.number is not None:
            parts.append(b'"node":%d' % node.number)
        kept = self._kept.get(slot)
        if kept is not None and kept.incarnation == node.incarnation:  # not of a node before it
            parts += [b'"age":%.1f' % max(0.0, now - kept.at), b'"sample":' + kept.written]
        return b"{" + b",".join(filter(None, parts)) + b"}"

    def _about_node(self, slot: int, node: Node) -> bytes:
        known, written = self._about.get(slot, (0, b""))
        if known != node.incarnation:
            about = NodeMachine(slot=slot, hostname=node.join.hostname, facts=_shown(node))
            shown = about.model_dump_json(include={"hostname", "facts"}, exclude_defaults=True)
            written = shown.encode()[1:-1]
            self._about[slot] = node.incarnation, written
        return written


def _shown(node: Node) -> Facts:
    """The facts that describe a machine, without those that tell it from others or are compared."""
    facts = node.join.facts
    ports = [
        RdmaPort(
            device=port.device,
            port=port.port,
            link_layer=port.link_layer,
            state=port.state,
            rate_gbps=port.rate_gbps,
            problem=port.problem,
            chosen=port.chosen,
        )
        for port in facts.rdma
    ]
    return replace(facts, gpu_uuids=[], boot_id="", machine_id="", script_digest="", rdma=ports)
