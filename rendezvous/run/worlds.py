"""Judgement on whether the ranks of a run are in one world, by those that they have formed. Pure.

The table promises one world, and a program may form others: a configuration of one node, ranks that
come from somewhere else, a launcher in a launcher. What each rank has formed, its hook has noted:
every world in which it took part, by its size and its own rank there.

- Nothing is found before every rank of the table has told of a world: a program without process
  groups, or a rank that cannot be seen, is no evidence.
- The ranks were in one world if all of them were in worlds of one size, of one library, which is
  not smaller than the table, and no two of them had only the same place there. It may be larger:
  ranks start processes of their own. Once they were, nothing that they form later is of interest.
- If not, and every rank's largest world is too small to have all of them, they are in several. The
  same holds where each rank fills its largest world with the processes that it has started.
- Of anything between nothing is said: some have told what others will tell in a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rendezvous.run import events
from rendezvous.run.decision import Outcome
from rendezvous.run.state import Run, who
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.words import listed, printable, spans_text
from rendezvous.wire.world import RankWorld, WorldFound

Worlds = Sequence[RankWorld]

_LIBRARIES = {"torch": "torch.distributed", "jax": "jax.distributed"}
_NEXT_STEPS = {
    "torch": "if they were meant to be in one world, call init_process_group() without rank and "
    "world_size, and see that nothing changes the RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT "
    "that rdzv sets",
    "jax": "if they were meant to be in one world, give jax.distributed.initialize() the "
    "WORLD_SIZE that rdzv sets as num_processes, and its RANK as process_id",
}
_HEADS = {"node_alone": "each node {} alone: ", "process_alone": "each process {} alone: "}
_HEAD = "the ranks {} not in one world: "
_MOST_SIZES = 3


# --- the judgement --------------------------------------------------------------------------------


def judge(table: EndpointTable, known: Mapping[int, Worlds]) -> WorldFound | None:
    """Judge the worlds of all ranks; None where they may be in one, or not all are known.

    Args:
        table: What they were started on.
        known: By slot, what its ranks have formed.
    """
    rows = list(table.processes())
    if any(row.slot not in known for row, _ in rows):
        return None
    by_rank: dict[int, list[RankWorld]] = {rank: [] for _, ranks in rows for rank in ranks}
    for row, ranks in rows:
        for each in known[row.slot]:
            if each.rank in ranks:
                by_rank[each.rank].append(each)
    total = len(by_rank)
    if total < 2 or not all(by_rank.values()):
        return None
    if any(_may_be_one(each) for each in _common(by_rank, total)):
        return None
    largest = {rank: max(worlds, key=_by_size) for rank, worlds in by_rank.items()}
    return _found(table, largest, total)


def _by_size(world: RankWorld) -> tuple[int, str]:
    return world.size, world.library


def _common(by_rank: Mapping[int, Worlds], total: int) -> list[list[RankWorld]]:
    """Reports on each size of world that may have all ranks, and in which all have been."""
    kinds: dict[tuple[str, int], list[RankWorld]] = {}
    for worlds in by_rank.values():
        for each in worlds:
            if each.size >= total:
                kinds.setdefault((each.library, each.size), []).append(each)
    return [worlds for worlds in kinds.values() if {each.rank for each in worlds} == set(by_rank)]


def _may_be_one(worlds: Worlds) -> bool:
    """Return whether one world can have all of these ranks."""
    return not all(each.whole for each in worlds) and _twice(worlds) is None


def _twice(worlds: Worlds) -> tuple[RankWorld, RankWorld] | None:
    """Two ranks that have only ever had the same place in a world of one size."""
    holders: dict[int, RankWorld] = {}
    for each in worlds:
        if len(each.places) == 1:
            other = holders.setdefault(each.places[0], each)
            if other is not each:
                return other, each
    return None


def _found(table: EndpointTable, largest: Mapping[int, RankWorld], total: int) -> WorldFound | None:
    """Describe the worlds of ranks that are not in one."""
    worlds = list(largest.values())
    library, size = worlds[0].library, max(each.size for each in worlds)
    name, has = _LIBRARIES.get(library, library), _table_words(table, total)
    of = f"formed a {name} world of {_sizes(each.size for each in worlds)}"
    kinds = {(each.library, each.size) for each in worlds}
    pair = _twice(worlds) if len(kinds) == 1 and size >= total else None
    if all(each.whole for each in worlds):
        is_node = all(row.nproc_per_node == 1 for row in table.rows)
        rule = "node_alone" if is_node else "process_alone"
        own = " that are all its own" if size > 1 else ""
        return _made(rule, size, total, f"it {of}{own}, {has}", library)
    if pair is not None:
        ranks = " and ".join(str(each.rank) for each in pair)
        detail = f"ranks {ranks} of the run both were rank {pair[0].places[0]} of a {name} world"
        return _made("twice", size, total, f"{detail} of {_processes(size)}", library)
    if size >= total:
        return None
    if _by_node(table, largest):
        return _made("node_alone", size, total, f"its processes {of}, {has}", library)
    return _made("several", size, total, f"{_groups(largest)}, {has}", library)


def _made(rule: str, size: int, total: int, detail: str, library: str) -> WorldFound:
    return WorldFound.model_validate(
        {
            "rule": rule,
            "size": size,
            "total": total,
            "detail": printable(detail, 600),
            "next_step": _NEXT_STEPS.get(library, ""),
        }
    )


def _by_node(table: EndpointTable, largest: Mapping[int, RankWorld]) -> bool:
    """Return whether each node's processes are in a world of that node's, in their order there."""
    return all(
        largest[rank].size == row.nproc_per_node and largest[rank].places == [rank - ranks.start]
        for row, ranks in table.processes()
        for rank in ranks
    )


def _groups(largest: Mapping[int, RankWorld]) -> str:
    """`ranks 0-2 formed torch.distributed worlds of 3 processes`, and so on."""
    groups: dict[tuple[str, int], list[int]] = {}
    for rank, world in sorted(largest.items()):
        groups.setdefault((world.library, world.size), []).append(rank)
    words = []
    for (library, size), ranks in groups.items():
        name = _LIBRARIES.get(library, library)
        who, what = ("rank", f"a {name} world") if len(ranks) == 1 else ("ranks", f"{name} worlds")
        words.append(f"{who} {spans_text(ranks)} formed {what} of {_processes(size)}")
    return listed(words, _MOST_SIZES)


def _sizes(sizes: Iterable[int]) -> str:
    """`1 process`, or `2 or 4 processes`."""
    found = sorted(set(sizes))
    return _processes(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]} processes"


def _processes(count: int) -> str:
    return f"{count} process{'es' * (count != 1)}"


def _table_words(table: EndpointTable, total: int) -> str:
    nodes = len(table.rows)
    return f"and the run has {_processes(total)} on {nodes} node{'s' * (nodes != 1)}"


# --- the run --------------------------------------------------------------------------------------


def _found_with(run: Run, slot: int, report: Worlds) -> WorldFound | None:
    """Judge again once a node reports its ranks' worlds; as before, where it reports none.

    As before also where programs are being stopped, or where one leads all others.
    """
    before = run.worlds.get(slot, ())
    if run.table is None or run.stop or run.spec.led or not report or report == before:
        return run.world
    if len(run.worlds) + (slot not in run.worlds) < len(run.table.rows):
        return None
    return judge(run.table, {**run.worlds, slot: report})


def take(run: Run, slot: int, report: Worlds) -> str:
    """Keep what a node has told, and what is found of it. Returns a clause that says what is new;
    empty where that is nothing."""
    found = _found_with(run, slot, tuple(report))
    if report:
        run.worlds[slot] = tuple(report)
    before, run.world = run.world, found
    if found == before:
        return ""
    if found is None:
        return "the ranks have formed larger worlds since, which may be one"
    return words_of(found, over=False)


def reported(run: Run, event: events.WorldsReported, now: float) -> Outcome:
    """Take in which worlds the ranks of a node have formed."""
    if clause := take(run, event.slot, event.report.worlds):
        hint = run.world.next_step if run.world is not None else ""
        return Outcome(clause + (f"; {hint}" if hint else ""), event.slot)
    words = f"{who(run.slots[event.slot])}: its ranks formed worlds that lack ranks of the run"
    return Outcome(words, event.slot, usual=True)


def words_of(found: WorldFound, *, over: bool) -> str:
    """Sentence on the finding, while the programs run or once they are over."""
    head = _HEADS.get(found.rule, _HEAD)
    is_one = found.rule in _HEADS
    verb = ("was" if over else "is") if is_one else ("were" if over else "are")
    return head.format(verb) + found.detail
