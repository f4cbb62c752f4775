"""Where a node answers its peers' visits, and its share of them in one round of a verification."""

from __future__ import annotations

import asyncio

from rendezvous.compat import timeout
from rendezvous.wire.peers import peers_of
from rendezvous.wire.types import is_loopback
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.words import printable
from worker.agent.actions import Visit
from worker.agent.arming import NodeSpec
from worker.agent.environment import AgentEnvironment, Listener
from worker.agent.faults import no_probe_port
from worker.agent.inputs import Visited
from worker.probe.names import with_names
from worker.probe.packets import Identity
from worker.probe.plan import unfit_peers

_NAMES_SECONDS = 1.0
_PROGRAM_PORTS = 64
"""From a given master port on: TensorFlow takes one for each node of a machine."""


def listen(
    spec: NodeSpec, identity: Identity, environment: AgentEnvironment, same: int | None = None
) -> Listener:
    """Answer visits, at the port that the peers know (`same`), if they know one.

    Raises:
        OSError: It cannot be had.
        UsageError: None of those can be had that a person lets through.
    """
    settings = spec.settings
    first = settings.master_port
    programs = range(first, first + _PROGRAM_PORTS) if first else ()
    try:
        return environment.listen(
            identity,
            loopback=settings.loopback,
            within=(same, same) if same is not None else settings.probes_at,
            avoid=() if same is not None else {spec.join.place.port, *programs},
        )
    except OSError as exc:
        if same is None and settings.probe_ports is not None:
            raise no_probe_port(settings.probe_ports, exc) from exc
        raise


async def visit(
    asked: Visit, identity: Identity, environment: AgentEnvironment, *, near: bool
) -> Visited:
    """Visit this node's share of its peers, and add what the hosts file says of them.

    Args:
        asked: The plan, and its epoch.
        identity: Who visits.
        environment: The outer world.
        near: Whether this node has offered a loopback address; its row in the plan
            says whether the run is to meet there.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    plan = asked.plan
    slots = [peer.slot for peer in plan.peers]
    # It stands in no plan when it found no port to answer at.
    own = next((peer for peer in plan.peers if peer.slot == identity.slot), None)
    share = peers_of(slots, own.slot, asked.epoch, plan.fresh) if own else []
    problem = environment.why_unusable(own.address, own.interface) if own else ""
    if problem:  # nothing is reached from a lost address
        detail = printable(problem, 120)
        pairs = [PairProbe(slot=slot, outcome="no_route", detail=detail) for slot in share]
    else:
        loopback = near and own is not None and is_loopback(own.address)
        pairs = unfit_peers(plan, share, loopback=loopback)
        unfit = {pair.slot for pair in pairs}
        pairs += await environment.probe(identity, plan, [s for s in share if s not in unfit])
    seconds = clock() - began
    return Visited(asked.number, tuple(await _named(pairs, asked, identity, environment)), seconds)


async def _named(
    pairs: list[PairProbe], asked: Visit, identity: Identity, environment: AgentEnvironment
) -> list[PairProbe]:
    """Add what the hosts file says of the peers, unless it hangs."""
    try:
        async with timeout(_NAMES_SECONDS):
            names = await environment.in_thread(
                environment.known_names, environment.hosts_file, identity.run
            )
    except TimeoutError:
        return pairs
    return with_names(pairs, asked.plan, identity.slot, names)
