"""How an endpoint table is made: one address for each node, one rank for each node. Pure.

Rank rules: slot 0 is rank 0. A requested rank is honoured. The others follow in a stable topology
order: nodes of one subnet stand together (slot 0's subnet first), within it in natural order of the
hostname, then by slot. With min:max the ranks are closed up in that order.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections import Counter
from dataclasses import dataclass

from rendezvous.schema import Candidate, EndpointTable, JoinRequest, TableRow, natural_key
from rendezvous.state import listed


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No choice of addresses works for all nodes; `reason` says whose fault it is."""

    slots: tuple[int, ...]
    reason: str
    hint: str


def choose_addresses(joins: list[JoinRequest]) -> dict[int, Candidate] | Unreachable:
    """Each slot's candidate: its first one in a family that all nodes have.

    An address that two nodes offer proves nothing (each host has the same docker0) and is dropped
    for both.
    """
    offered = Counter(a for join in joins for a in {c.address for c in join.candidates})
    usable = {join.slot: [c for c in join.candidates if offered[c.address] == 1] for join in joins}
    bare = [join for join in joins if not usable[join.slot]]
    if bare:
        return _all_shared(bare, joins)
    common = set.intersection(*({c.family for c in cs} for cs in usable.values()))
    if not common:
        return _no_common_family(usable)
    first = usable[min(usable)][0].family
    family = first if first in common else min(common)
    return {slot: next(c for c in cs if c.family == family) for slot, cs in usable.items()}


def _all_shared(bare: list[JoinRequest], joins: list[JoinRequest]) -> Unreachable:
    first = bare[0]
    address = first.candidates[0].address
    others = [
        join
        for join in joins
        if join is not first and any(c.address == address for c in join.candidates)
    ]
    boots = {join.facts.boot_id for join in (first, *others)}
    same_machine = len(boots) == 1 and "" not in boots
    who = listed(f"slot {join.slot} ({join.hostname})" for join in others)
    return Unreachable(
        tuple(join.slot for join in bare),
        f"slot {first.slot} ({first.hostname}) has no address of its own: "
        f"{address} is also the address of {who}",
        "two nodes of this run are on one machine; ask the scheduler for one node a machine"
        if same_machine
        else "name the interface or network that differs, with --interface or --network",
    )


def _no_common_family(usable: dict[int, list[Candidate]]) -> Unreachable:
    only = {
        family: sorted(slot for slot, cs in usable.items() if {c.family for c in cs} == {family})
        for family in (4, 6)
    }
    fewest = min(only.values(), key=len)
    return Unreachable(
        tuple(fewest),
        f"slots {listed(map(str, only[4]))} offer IPv4 addresses only "
        f"and slots {listed(map(str, only[6]))} IPv6 addresses only",
        "give every node an address of one family, or choose it with --network",
    )


def blame(unreachable: dict[int, list[int]]) -> Unreachable:
    """Whose fault it is that peers cannot be reached: the slot that stands in most failed pairs."""
    pairs = [(one, other) for one, others in sorted(unreachable.items()) for other in others]
    count = Counter(slot for pair in pairs for slot in pair)
    guilty = min(count, key=lambda slot: (-count[slot], slot))
    return Unreachable(
        (guilty,),
        f"slots cannot reach each other: {listed(f'{one} -> {other}' for one, other in pairs)}",
        f"slot {guilty} stands in {count[guilty]} of {len(pairs)} failed pairs: "
        "look at its network, or choose another with --network",
    )


def assign_ranks(joins: list[JoinRequest], chosen: dict[int, Candidate]) -> dict[int, int]:
    """The rank of each slot: 0 .. n-1, each once. Requested ranks must not clash."""
    home = _network(chosen[min(chosen)])

    def order(join: JoinRequest) -> tuple[object, ...]:
        network = _network(chosen[join.slot])
        return (network != home, str(network), natural_key(join.hostname), join.slot)

    requested = {0: 0} | {
        join.slot: join.requested_rank
        for join in joins
        if join.slot != 0 and join.requested_rank is not None
    }
    place = {rank: slot for slot, rank in requested.items()}
    free = (rank for rank in itertools.count() if rank not in place)
    for join in sorted(joins, key=order):
        if join.slot not in requested:
            place[next(free)] = join.slot
    return {slot: rank for rank, (_, slot) in enumerate(sorted(place.items()))}


def _network(candidate: Candidate) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network((candidate.address, candidate.prefix_length), strict=False)


def make_table(
    run: str,
    launch_id: str,
    epoch: int,
    joins: list[JoinRequest],
    chosen: dict[int, Candidate],
    master_port: int,
) -> EndpointTable:
    """The table of an epoch, rows in order of rank; the master is rank 0."""
    ranks = assign_ranks(joins, chosen)
    rows = [
        TableRow(
            rank=ranks[join.slot],
            slot=join.slot,
            hostname=join.hostname,
            address=chosen[join.slot].address,
            interface=chosen[join.slot].interface,
            prefix_length=chosen[join.slot].prefix_length,
            nproc_per_node=join.nproc_per_node,
            mac=chosen[join.slot].mac,
        )
        for join in joins
    ]
    rows.sort(key=lambda row: row.rank)
    return EndpointTable(
        run=run,
        launch_id=launch_id,
        epoch=epoch,
        master_address=rows[0].address,
        master_port=master_port,
        rows=rows,
    )
