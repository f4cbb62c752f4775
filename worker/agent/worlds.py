"""In which worlds this node's ranks are: told before their end where it is not the table's. Pure.

What is as it should be is told with the end of the program: a registry of many nodes is not asked
to write down of each of them that all is well.
"""

from __future__ import annotations

from collections.abc import Sequence

from rendezvous.wire.reports import WorldReport
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.world import RankWorld
from worker.agent import inputs, reports
from worker.agent.actions import Effect, Tell
from worker.agent.state import Turn


def seen(turn: Turn, said: inputs.WorldsSeen) -> None:
    """Tell of worlds that cannot be the table's; also how it went on after that was told."""
    node, program = turn.node, turn.node.program
    if program is None or program.number != said.number or program.gone or program.told:
        return
    agreed = node.agreed
    if node.member is None or agreed is None or program.stop_at is not None:
        return
    if said.worlds != program.worlds and (program.worlds or _too_small(said.worlds, agreed.table)):
        turn.drop(_reports_worlds)  # what it says is no longer so
        report = WorldReport(epoch=program.epoch, worlds=list(said.worlds))
        reports.tell(turn, report, needed=False)
        turn.set_program(worlds=said.worlds)


def _too_small(worlds: Sequence[RankWorld], table: EndpointTable) -> bool:
    """Return whether a rank has been in no world that may have all ranks of the table."""
    total = sum(row.nproc_per_node for row in table.rows)
    largest: dict[int, RankWorld] = {}
    for each in sorted(worlds, key=lambda one: one.size):
        largest[each.rank] = each
    return total > 1 and any(each.size < total or each.whole for each in largest.values())


def _reports_worlds(effect: Effect) -> bool:
    return isinstance(effect, Tell) and isinstance(effect.report, WorldReport)
