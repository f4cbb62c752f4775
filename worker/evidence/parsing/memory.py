"""Whether the kernel has killed for memory, and where: groups, the machine, its log. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rendezvous.cause.facts import FactKind
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Fact
from worker.evidence.parsing.kernel_log import Killed
from worker.evidence.parsing.telling import fact
from worker.machine.groups import Rise


@frozen
class Machine:
    """What the machine as a whole has counted since; `memory` is its size in bytes."""

    kills: int = 0
    memory: int = 0


def killed_facts(
    rises: Sequence[Rise], machine: Machine, killed: Sequence[Killed], ranks: Mapping[int, int]
) -> list[Fact]:
    """The kills for memory: of the program's groups, else of its processes, else of the machine.

    Args:
        rises: The program's groups that have counted some.
        machine: The machine's count, of all groups on it.
        killed: Those that the kernel's log names.
        ranks: By pid.
    """
    own = [one for one in killed if one.pid in ranks]
    rank = ranks[own[0].pid] if own else None
    if rises:
        return [
            fact(
                FactKind.OOM_KILL,
                path=rise.folder,
                value=rise.times,
                limit=rise.limit,
                words=_line(own, killed, in_group=rise.limit > 0) or _peak(rise),
                rank=rank,
            )
            for rise in rises
        ]
    if own and own[-1].in_group:
        return [fact(FactKind.OOM_KILL, value=len(own), words=own[-1].line, rank=rank)]
    times = machine.kills or len(own)
    if not times:
        return []
    words = _line(own, killed, in_group=False)
    kind = FactKind.OOM_MACHINE
    return [fact(kind, value=times, limit=machine.memory, words=words, rank=rank)]


def _line(own: Sequence[Killed], killed: Sequence[Killed], *, in_group: bool) -> str:
    """The kernel's line that is most likely about it."""
    alike = [one for one in killed if one.in_group == in_group]
    told = own or alike or killed
    return told[-1].line if told else ""


def _peak(rise: Rise) -> str:
    return f"peak {rise.peak}" if rise.peak else ""


def pids_facts(rises: Sequence[Rise]) -> list[Fact]:
    """The limits of processes that were met."""
    return [
        fact(FactKind.PIDS, path=rise.folder, value=rise.times, limit=rise.limit) for rise in rises
    ]
