"""What the registry keeps of a run's machines: the newest sample of each node."""

from __future__ import annotations

from dataclasses import replace

from features.machines.wire import MachineSample, NodeMachine
from rendezvous.registry.topics import NewestOfNodes, Node, Received, Run
from rendezvous.wire.node import Facts, RdmaPort

MOST_BYTES = 32 << 20
"""What the samples of a run may take: a node of eight GPUs takes 1 KB."""


class Store:
    """The machines of one run."""

    def __init__(self) -> None:
        self._samples = NewestOfNodes(MOST_BYTES)
        self._about: dict[int, tuple[int, bytes]] = {}
        """Of each slot, the incarnation, and what does not change about its machine, as JSON."""

    def receive(self, received: Received) -> tuple[None, int]:
        """Keep a sample in place of the one before. Raises TooLarge."""
        sample: MachineSample = received.message
        self._samples.put(received, sample.model_dump_json(exclude_defaults=True).encode())
        if (node := received.run.slots[received.slot].node) is not None:
            self._about_node(received.slot, node)  # readers find it written: all at once take long
        return None, 1

    def to_json(self, run: Run, query: object, now: float) -> bytes:
        """The machines of the nodes that are in the run, and of those that have left it."""
        nodes = ((slot.index, slot.node) for slot in run.slots if slot.node is not None)
        machines = (self._machine(slot, node, now) for slot, node in nodes)
        return b'{"machines":[' + b",".join(machines) + b"]}"

    def _machine(self, slot: int, node: Node, now: float) -> bytes:
        """A NodeMachine; what is not known has its default, and is left out."""
        parts = [b'"slot":%d' % slot, self._about_node(slot, node)]
        if node.number is not None:
            parts.append(b'"node":%d' % node.number)
        if (found := self._samples.get(slot, node, now)) is not None:
            sample, age = found
            parts += [b'"age":%.1f' % age, b'"sample":' + sample]
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
