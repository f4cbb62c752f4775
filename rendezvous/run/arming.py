"""The table is made, sealed, and acknowledged by every node before any of them starts. Pure.

Rules of the nodes' numbers: slot 0 is node 0. A requested number is honoured. The others follow in
a stable topology order: nodes of one subnet stand together (slot 0's subnet first), within it in
natural order of the hostname, then by slot. With min:max the numbers are closed up in that order.
When the programs start again, each slot keeps its number; a node in another slot than a lost one's
has the lowest that is free.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.rdma import RdmaExpectation, rdma_of
from rendezvous.run import events, fences
from rendezvous.run.decision import Outcome
from rendezvous.run.moves import enter, failure, finish
from rendezvous.run.placement import with_go
from rendezvous.run.places import settle, standbys
from rendezvous.run.replacing import give_up, outlives, why_not
from rendezvous.run.rounds import joins_of
from rendezvous.run.state import (
    NOT_NEEDED,
    LeftOut,
    Run,
    all_nodes,
    names_of,
    who,
    words_of_network,
)
from rendezvous.run.tracked import TrackedDict
from rendezvous.wire.errors import Cause
from rendezvous.wire.node import Candidate, JoinRequest
from rendezvous.wire.run import DEFAULT_MASTER_PORT, NodeState, Phase
from rendezvous.wire.table import EndpointTable, digest_of
from rendezvous.wire.types import subnet_of, subnet_text
from rendezvous.wire.words import natural_key

_MAX_PORT_TRIES = 32
_MAX_PORT = 65_535


def with_surplus(run: Run) -> dict[int, LeftOut]:
    """Those that the table goes without, with those for whom it has no room: whoever has had a
    number is in before anybody else."""
    had = run.starts.numbers
    there = sorted(run.taking_part(), key=lambda slot: (slot.index not in had, slot.index))
    surplus = there[run.spec.max_nodes :]
    return {**run.attempt.left_out, **{slot.index: NOT_NEEDED for slot in surplus}}


def plan_without(run: Run, guilty: dict[int, LeftOut]) -> dict[int, LeftOut] | None:
    """Without whom a table goes on without nodes that cannot start: a spare steps in for each.

    None when too few others are there that have gathered for this table: who has come since, to
    stand by, has been compared with nobody.
    """
    for_cause = {slot: why for slot, why in run.attempt.left_out.items() if why != NOT_NEEDED}
    if not run.with_left_out(for_cause).can_go_without(guilty):
        return None
    return with_surplus(run.with_left_out(for_cause | guilty))


def seal_without(
    run: Run, guilty: Collection[int], left_out: dict[int, LeftOut], now: float
) -> str:
    """Seal again on the verified network. Returns a clause that says so."""
    run.attempt.left_out = left_out
    for index in guilty:
        if (node := run.slots[index].node) is not None:
            node.state, node.number = NodeState.JOINED, None
    run.epoch += 1
    seal_table(run, now, None)
    return f"; the run continues without {'it' if len(guilty) == 1 else 'them'}"


def seal_table(run: Run, now: float, port: int | None) -> None:
    """Choose ranks, make the table, and ask every node to arm."""
    assert run.network is not None
    joins = joins_of(run)
    former = run.starts.port
    other = next_port(former) if former else None
    port = port or run.spec.master_port or other or joins[0].master_port or DEFAULT_MASTER_PORT
    table = make_table(
        run.id,
        run.spec.launch_id,
        run.epoch,
        joins,
        run.network,
        rdma_of(joins),
        port,
        run.starts.numbers,
        of_generations=run.spec.outlives_nodes,
    )
    _ask_to_arm(run, now, table, former="")


def renew_table(run: Run, now: float) -> None:
    """Seal the table of the same nodes again, for the next epoch: the master has another port."""
    assert run.table is not None
    port = run.spec.master_port or next_port(run.table.master_port)
    run.epoch += 1
    _ask_to_arm(run, now, run.table.renewed(run.epoch, port), former=run.digest)


def _ask_to_arm(run: Run, now: float, table: EndpointTable, former: str) -> None:
    run.attempt.table, run.attempt.written = table, table.canonical()
    run.attempt.digest, run.attempt.former = digest_of(run.attempt.written), former
    run.attempt.warm = False
    # A torchrun waits for that of every other node.
    run.attempt.mixed = len({slot.its_node.join.needs_torchrun for slot in run.of_table()}) > 1
    numbers = {row.slot: row.node for row in table.rows}
    for slot in run.taking_part():
        node = slot.its_node
        node.state, node.number = NodeState.VERIFIED, numbers[slot.index]
    enter(run, Phase.ARMING, now)


def acked(run: Run, event: events.Acked, now: float) -> Outcome:
    """One node is ready; with the last one comes the go."""
    slot = run.slots[event.slot]
    slot.its_node.state = NodeState.ARMED
    if event.report.warm:
        run.attempt.warm = True
    run.waiting_for.discard(slot.index)
    if run.waiting_for:
        return Outcome(f"{who(slot)} is ready", slot.index, usual=True)
    went = go_if_ready(run, now).removeprefix("; ")
    return Outcome(went or f"{all_nodes(run)} ready", slot.index)


def go_if_ready(run: Run, now: float) -> str:
    """Let the programs go once all nodes are ready and nothing of older ones is left. Returns a
    clause describing it; empty where that is not so."""
    if run.phase is not Phase.ARMING or run.waiting_for or fences.holding(run):
        return ""
    assert run.table is not None
    starts, former = run.starts, len(run.starts.numbers)
    starts.went_at = now
    starts.port = run.table.master_port
    if run.attempt.warm and starts.warm is None:
        starts.warm = run.epoch
    starts.numbers = {row.slot: row.node for row in run.table.rows}
    for member in run.members():
        node, left_out = member.its_node, run.attempt.left_out.get(member.index)
        node.state = NodeState.RELEASED if left_out else NodeState.RUNNING
        if left_out:
            member.problem = left_out.words
    if run.spec.outlives_nodes:
        settle(run, former)
    incarnations = {slot: run.slots[slot].its_node.incarnation for slot in starts.numbers}
    starts.placements = with_go(starts.placements, run.table, incarnations)
    run.port_tries, run.notes, run.stop_asked = 0, {}, None
    run.worlds, run.world = TrackedDict(), None
    enter(run, Phase.RUNNING, now)
    said = f"; {_how_ready(run, is_first=not former)}; starting {_program(run)}"
    by = {slot.index for slot in standbys(run)}
    if without := run.attempt.left_out.keys() - by:
        said += f", without {names_of(run, without)}"
    return said + (f"; standby: {names_of(run, by)}" if by else "")


def _how_ready(run: Run, *, is_first: bool) -> str:
    """Return a clause on the nodes of the go; with the first one, by which network they meet."""
    if is_first and len(run.of_table()) > 1:
        return words_of_network(run)
    return f"{all_nodes(run)} ready"


_UNNAMED = ("command", "env", "bench", "plugin")
"""Frameworks of which a program's own command is what starts."""


def _program(run: Run) -> str:
    """Return the name of what starts on the nodes: `torchrun`, or `the program`."""
    names = {slot.its_node.join.job.framework for slot in run.of_table()}
    return names.pop() if len(names) == 1 and not names & {*_UNNAMED} else "the program"


_OF_THE_RUN = ("port_taken", "bad_table")  # refusals that another node would not mend


def arm_refused(run: Run, event: events.ArmRefused, now: float) -> Outcome:
    """Try another port, or go without the node, or end the run."""
    slot, report = run.slots[event.slot], event.report
    assert run.table is not None
    reason = f"{who(slot)} cannot start: {report.reason}"
    may_move = report.code == "port_taken" and run.spec.master_port is None
    run.port_tries += 1
    if may_move and run.port_tries <= _MAX_PORT_TRIES:
        port = report.free_port or next_port(run.table.master_port)
        run.epoch += 1
        seal_table(run, now, port)
        return Outcome(f"{reason}; trying master port {port}", slot.index)
    guilty = {slot.index: LeftOut(Cause.ARMING_FAILED, reason)}
    of_the_run = report.code in _OF_THE_RUN
    left_out = None if of_the_run else plan_without(run, guilty)
    if left_out is not None:
        return Outcome(reason + seal_without(run, guilty, left_out, now), slot.index)
    if outlives(run) and not of_the_run and not why_not(run, guilty):
        return Outcome(f"{reason}; {give_up(run, guilty, now)}", slot.index)
    hint = "choose another with --master-port" if report.code == "port_taken" else ""
    finish(run, now, failure(Cause.ARMING_FAILED, reason, slot, hint))
    return Outcome(reason, slot.index)


def next_port(port: int) -> int:
    """Another port, close to this one."""
    return port + 1 if port < _MAX_PORT else DEFAULT_MASTER_PORT


def number_nodes(
    joins: list[JoinRequest], chosen: Mapping[int, Candidate], former: Mapping[int, int]
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
