"""Which of the kept last words of a run's ranks are shown where a log cannot be had."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from launcher.state.launch_record import KeptResult
from launcher.state.state_dir import StateDir
from rendezvous.wire.run import SlotStatus


def kept_words(
    state: StateDir,
    slots: Iterable[SlotStatus],
    *,
    node: int | None = None,
    rank: int | None = None,
    epoch: int | None = None,
) -> list[Path]:
    """The files of one rank, of all ranks of a node, or of the first cause.

    Args:
        state: Of the run.
        slots: With the numbers of their nodes.
        node: The node; with `rank`, that of its node.
        rank: The global rank.
        epoch: None: the newest of which something is kept.
    """
    epochs = state.last_words.epochs()
    if not epochs:
        return []
    files = state.last_words.files(epochs[-1] if epoch is None else epoch)
    if node is None and rank is None:
        result = state.result()
        return _of_first_cause(files, result) if result is not None else []
    ranks = [rank] if rank is not None else _ranks_of(node, slots)
    found = [files.get(("rank", one)) for one in ranks]
    if node is not None:
        found.append(files.get(("node", node)))
    return [path for path in found if path is not None]


def _of_first_cause(files: dict[tuple[str, int], Path], result: KeptResult) -> list[Path]:
    wanted = [("rank", result.rank), ("node", result.node)]
    named = ((what, number) for what, number in wanted if number is not None)
    return [files[key] for key in named if key in files][:1]


def _ranks_of(node: int | None, slots: Iterable[SlotStatus]) -> list[int]:
    """The global ranks of a node."""
    first = 0
    for number, count in sorted((s.node, s.nproc_per_node) for s in slots if s.node is not None):
        if number == node:
            return list(range(first, first + count))
        first += count
    return []
