"""How an endpoint table is made: an address and a number for each node. Pure.

Rules: slot 0 is node 0. A requested number is honoured. The others follow in a stable topology
order: nodes of one subnet stand together (slot 0's subnet first), within it in natural order of the
hostname, then by slot. With min:max the numbers are closed up in that order. When the programs
start again, each slot keeps its number; a node in another slot than a lost one's has the lowest
that is free.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.rdma import RdmaExpectation
from rendezvous.wire.node import Candidate, JoinRequest
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.types import subnet_of, subnet_text
from rendezvous.wire.words import natural_key


def number_nodes(
    joins: list[JoinRequest], chosen: dict[int, Candidate], former: Mapping[int, int]
) -> dict[int, int]:
    """The number of each slot's node: 0 .. n-1, each once. Requested ones must not clash.

    `former` are the numbers of the table that the programs have run on; empty: there was none.
    """
    subnets = {slot: subnet_of(c.address, c.prefix_length) for slot, c in chosen.items()}
    texts = {subnet: subnet_text(subnet) for subnet in set(subnets.values())}
    home = subnets[min(subnets)]

    def order(join: JoinRequest) -> tuple[object, ...]:
        subnet = subnets[join.slot]
        return (subnet != home, texts[subnet], natural_key(join.hostname), join.slot)

    requested = {0: 0} | {
        join.slot: join.requested_node
        for join in joins
        if join.slot != 0 and join.requested_node is not None
    }
    if former:
        requested = {join.slot: former[join.slot] for join in joins if join.slot in former}
    place = {number: slot for slot, number in requested.items()}
    free = (number for number in itertools.count() if number not in place)
    for join in sorted(joins, key=order):
        if join.slot not in requested:
            place[next(free)] = join.slot
    return {slot: number for number, (_, slot) in enumerate(sorted(place.items()))}


def make_table(
    run: str,
    launch_id: str,
    epoch: int,
    joins: list[JoinRequest],
    network: NetworkClass,
    rdma: RdmaExpectation,
    master_port: int,
    former: Mapping[int, int],
    *,
    of_generations: bool = False,
) -> EndpointTable:
    """The table of an epoch, rows in order of number; the master is node 0.

    Of a run that outlives its nodes, the MACs of the rows are those `of_generations`.
    """
    chosen = {join.slot: network.members[join.slot] for join in joins}
    numbers = number_nodes(joins, chosen, former)
    rows = [
        join.row(
            chosen[join.slot],
            numbers[join.slot],
            rdma.hcas.get(join.slot, ()),
            of_generation=of_generations,
        )
        for join in joins
    ]
    rows.sort(key=lambda row: row.node)
    generations = {join.slot: join.generation for join in joins}
    return EndpointTable(
        run=run,
        launch_id=launch_id,
        epoch=epoch,
        generations=[generations[row.slot] for row in rows] if of_generations else None,
        master_address=rows[0].address,
        master_port=master_port,
        network=network.words,
        transport=rdma.transport,
        rows=rows,
    )
