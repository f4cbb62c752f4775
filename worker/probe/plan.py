"""Whom of a plan a node does not visit: its rows are not signed, and the registry may lie. Pure.

No honest plan has such rows: nodes answer at ports that need no privilege, loopback is for runs on
one machine, and an address that two nodes offer is none of a plan's. Without these rules a node
could be made to knock at services of its own machine, or at all ports of one other. Link-local
addresses (a cloud's metadata service), groups and 0.0.0.0 are none that a plan can hold at all.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable

from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan

_FIRST_PORT = 1_024


def unfit_peers(plan: ProbePlan, slots: Iterable[int], *, loopback: bool) -> list[PairProbe]:
    """What is to be reported of those among these slots that no node should visit.

    Args:
        plan: As the registry sent it.
        slots: Whom this node is to visit.
        loopback: All nodes of the run live on this machine.
    """
    known = {peer.slot: peer for peer in plan.peers}
    times = Counter(peer.address for peer in plan.peers)
    found = []
    for peer in (known[slot] for slot in slots if slot in known):
        if problem := _problem_of(peer, times[peer.address], loopback=loopback):
            words = f"not visited: {peer.address} port {peer.probe_port} {problem}"
            found.append(PairProbe(slot=peer.slot, outcome="error", detail=words))
    return found


def _problem_of(peer: ProbePeer, times: int, *, loopback: bool) -> str:
    if peer.probe_port < _FIRST_PORT:
        return "needs privileges, and no node answers there"
    if ipaddress.ip_address(peer.address).is_loopback != loopback:
        return "is not loopback" if loopback else "is loopback"
    return "is said to be the address of several nodes" if times > 1 else ""
