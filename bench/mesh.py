"""What it costs to prove every address: real probes among nodes that all live on this machine."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

from bench.meeting import Registry, serving
from bench.process import forked, heard
from bench.rows import Row, row
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.peers import peers_of
from rendezvous.wire.reports import AckReport
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import ProbeReport
from tests.support.registry import Launch, Node
from worker.probe.listener import ProbeListener
from worker.probe.mesh import Pace, probe_peers
from worker.probe.packets import Identity

_LIMIT_SECONDS = 120.0
# Here all nodes share few cores: who is slow is not silent. A round's real limits change nothing.
_PATIENT = Pace(quick_seconds=60, round_seconds=60, datagram_seconds=60)


class _Node(Node):
    """Joins, probes its peers, reports, acknowledges; as an agent does."""

    request_seconds = _LIMIT_SECONDS

    def __init__(self, place: RegistryPlace, launch: Launch, slot: int) -> None:
        keys = launch.keys
        self._identity = Identity(keys.probe_key, keys.run, keys.launch_id, slot)
        self._listener = ProbeListener(self._identity)
        super().__init__(place, launch, slot, probe_port=self._listener.port)

    async def meet(self) -> float:
        """Until it has the table and all have acknowledged; when it had the table."""
        view = await self.follow(lambda view: bool(view.plan) or view.phase is Phase.ARMING)
        if view.plan is not None:
            share = peers_of([peer.slot for peer in view.plan.peers], self.slot, view.epoch)
            pairs = await probe_peers(self._identity, view.plan, share, pace=_PATIENT)
            await self.report(ProbeReport(epoch=view.epoch, pairs=pairs))
            view = await self.follow(lambda view: view.phase is Phase.ARMING)
        at = time.monotonic()
        await self.report(AckReport(epoch=view.epoch, digest=view.digest))
        await self.follow(lambda view: view.phase is Phase.RUNNING)
        return at


def _live(control: Connection, place: RegistryPlace, launch: Launch, slots: Sequence[int]) -> None:
    """Some of the nodes, in a process of their own."""
    gc.disable()  # so many nodes in one process give it far more to look through than one has
    asyncio.run(_act(control, place, launch, slots))


async def _act(
    control: Connection, place: RegistryPlace, launch: Launch, slots: Sequence[int]
) -> None:
    """All join, slot 0 not before it is told to; then each does what an agent does."""
    nodes = [_Node(place, launch, slot) for slot in slots]
    early = [node for node in nodes if node.slot != 0]
    await asyncio.gather(*(node.join() for node in early))
    meetings = [asyncio.create_task(node.meet()) for node in early]
    control.send_bytes(b"gathered")
    await asyncio.to_thread(control.recv_bytes)
    began = time.monotonic()
    meetings += [asyncio.create_task(node.meet()) for node in nodes if node.slot == 0]
    had = await asyncio.gather(*meetings)
    control.send_bytes(json.dumps({"began": began, "table": max(had)}).encode())
    await asyncio.to_thread(control.recv_bytes)  # what is open stays so while others are measured


def _round(registry: Registry, number: int, nodes: int, *, verify: bool) -> float:
    """Milliseconds from the last node's arrival until all have the table."""
    launch = Launch(f"mesh-{number}", f"mesh{number:08d}", registry.secret)
    registry.create(launch.keys, nodes, verify=verify, loopback=True)
    count = min(2, nodes)
    each = [(registry.place, launch, range(number, nodes, count)) for number in range(count)]
    with forked(_live, each) as controls:
        for control in controls:
            heard(control, _LIMIT_SECONDS)
        time.sleep(0.3)
        for control in controls:
            control.send_bytes(b"go")
        said = [json.loads(heard(control, _LIMIT_SECONDS)) for control in controls]
    registry.cancel(launch.keys)
    return float(1000 * (max(one["table"] for one in said) - min(one["began"] for one in said)))


def verify(nodes: int, rounds: int) -> Iterator[Row]:
    """The last of so many nodes comes, until all have a table, of proven addresses and without."""
    with serving(tls=False) as registry:
        plain = [_round(registry, n, nodes, verify=False) for n in range(rounds)]
        proven = [_round(registry, n + rounds, nodes, verify=True) for n in range(rounds)]
    pairs = sum(len(peers_of(range(nodes), slot, 1)) for slot in range(nodes))
    yield row("verify", nodes, proven, note=f"{pairs} probes")
    yield row("verify off", nodes, plain, note="nodes with a full client, all in 2 processes")
