"""What it costs to prove every address: real probes among nodes that all live on this machine."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection

from bench.children import forked, heard
from bench.offer import make_join
from bench.registry import Registry, raise_file_limit, serving
from bench.rows import Row, row
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.macs import sign_join
from rendezvous.wire.node import Candidate, JoinRequest, LinkKind
from rendezvous.wire.peers import peers_of
from rendezvous.wire.reports import AckReport
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import ProbePlan, ProbeReport
from rendezvous.wire.watch import NodeView
from worker.probe.listener import ProbeListener
from worker.probe.mesh import Pace, probe_peers
from worker.probe.packets import Identity

_LIMIT_SECONDS = 120.0
_MTU = 1_500
_SETTLE_SECONDS = 0.3
# Here all nodes share few cores: who is slow is not silent. A round's real limits change nothing.
_PATIENT = Pace(quick_seconds=60, round_seconds=60, datagram_seconds=60)


def make_mesh_join(keys: RunKeys, slot: int, port: int) -> JoinRequest:
    """A node of a usual cluster, but for its one address: loopback, where it can be probed."""
    usual = make_join(keys, slot)
    candidate = Candidate(
        interface="lo",
        address=f"127.1.{slot // 250}.{slot % 250 + 1}",
        prefix_length=8,
        kind=LinkKind.LOOPBACK,
        mtu=_MTU,
        speed_mbps=0,
        reason="all nodes live on one machine",
    )
    join = replace(usual, candidates=[candidate], probe_port=port)
    return sign_join(join, keys.row_key, run=keys.run, launch_id=keys.launch_id)


class _Node:
    """Joins, probes its peers, reports, acknowledges; as an agent does."""

    def __init__(self, place: RegistryPlace, keys: RunKeys, slot: int) -> None:
        self._keys = keys
        self.slot = slot
        self._identity = Identity(keys.probe_key, keys.run, keys.launch_id, slot)
        self._listener = ProbeListener(self._identity)
        self._client = RegistryClient(
            place, keys.join_token(slot, 1), request_seconds=_LIMIT_SECONDS
        )

    async def join(self) -> None:
        join = make_mesh_join(self._keys, self.slot, self._listener.port)
        self._poll = (await self._client.join(self._keys.run, join)).poll_seconds

    async def meet(self) -> float:
        """Until it has the table and all have acknowledged; when it had the table."""
        after, table_at, probed = 0, 0.0, 0
        while True:
            view = await self._watch(after)
            after = view.seq
            if view.phase is Phase.VERIFYING and view.plan is not None and view.epoch > probed:
                probed = view.epoch
                await self._prove(view.epoch, view.plan)
            elif view.phase is Phase.ARMING and not table_at:
                table_at = time.monotonic()
                ack = AckReport(epoch=view.epoch, digest=view.digest)
                await self._client.report(self._keys.run, self.slot, ack)
            elif view.phase in (Phase.RUNNING, Phase.FINISHED):
                if view.result is not None:
                    raise RuntimeError(view.result.message)
                return table_at

    async def _watch(self, after: int) -> NodeView:
        return await self._client.watch(self._keys.run, self.slot, after, self._poll)

    async def _prove(self, epoch: int, plan: ProbePlan) -> None:
        share = peers_of([peer.slot for peer in plan.peers], self.slot, epoch)
        pairs = await probe_peers(self._identity, plan, share, pace=_PATIENT)
        report = ProbeReport(epoch=epoch, pairs=pairs)
        await self._client.report(self._keys.run, self.slot, report)


def _live(control: Connection, place: RegistryPlace, keys: RunKeys, slots: Sequence[int]) -> None:
    """Some of the nodes, in a process of their own."""
    raise_file_limit()
    gc.disable()  # so many nodes in one process give it far more to look through than one has
    asyncio.run(_act(control, place, keys, slots))


async def _act(
    control: Connection, place: RegistryPlace, keys: RunKeys, slots: Sequence[int]
) -> None:
    """All join, slot 0 not before it is told to; then each does what an agent does."""
    nodes = [_Node(place, keys, slot) for slot in slots]
    early = [node for node in nodes if node.slot != 0]
    await asyncio.gather(*(node.join() for node in early))
    meetings = [asyncio.create_task(node.meet()) for node in early]
    control.send_bytes(b"gathered")
    await asyncio.to_thread(control.recv_bytes)
    began, cpu = time.monotonic(), time.process_time()
    if len(early) < len(nodes):
        await nodes[0].join()
        meetings.append(asyncio.create_task(nodes[0].meet()))
    had = await asyncio.gather(*meetings)
    told = {"began": began, "table": max(had), "cpu": time.process_time() - cpu}
    control.send_bytes(json.dumps(told).encode())
    await asyncio.to_thread(control.recv_bytes)  # what is open stays so while others are measured


def _round(registry: Registry, number: int, nodes: int, *, verify: bool) -> tuple[float, float]:
    """Milliseconds from the last node's arrival until all have the table; CPU seconds of all."""
    keys = registry.keys(f"mesh-{number}", f"mesh{number:08d}")
    registry.create(keys, nodes, verify=verify, loopback=True)
    count = min(2, nodes)
    each = [(registry.place, keys, range(number, nodes, count)) for number in range(count)]
    with forked(_live, each) as controls:
        for control in controls:
            heard(control, _LIMIT_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        before = registry.cpu_seconds()
        for control in controls:
            control.send_bytes(b"go")
        said = [json.loads(heard(control, _LIMIT_SECONDS)) for control in controls]
        of_registry = registry.cpu_seconds() - before
    registry.cancel(keys)
    began = min(one["began"] for one in said)
    cpu = of_registry + sum(one["cpu"] for one in said)
    return 1000 * (max(one["table"] for one in said) - began), cpu


def verify(nodes: int, rounds: int) -> Iterator[Row]:
    """The last of so many nodes comes, until all have a table of proven addresses."""
    with serving(tls=False, journal="sqlite") as registry:
        plain = [_round(registry, n, nodes, verify=False) for n in range(rounds)]
        proven = [_round(registry, n + rounds, nodes, verify=True) for n in range(rounds)]
    without = statistics.median(milliseconds for milliseconds, _ in plain)
    pairs = sum(len(peers_of(range(nodes), slot, 1)) for slot in range(nodes))
    note = f"{pairs} probes, CPU of nodes and registry; {without:.0f} ms with --verify off"
    yield row(
        "rdzv",
        nodes,
        "verify",
        [milliseconds for milliseconds, _ in proven],
        journal="sqlite",
        cpu_seconds=[cpu for _, cpu in proven],
        note=note,
    )
