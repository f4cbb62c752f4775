"""Looks at the ranks of a node: where each of them is, and whether it moves.

It looks twice, a moment apart, and never longer than the limits below. A rank whose thread answers
tells its stacks and its flight recorder by it. One that holds the GIL, or has no torch and so no
thread, is asked by a signal for the stack of its main thread, where that is safe. No rank is
stopped, and none waits for this. `families` looks at their children and launcher.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from features.hang.ranks import proc as processes
from features.hang.ranks.families import Families, family_of, rank_variables, use_of
from features.hang.ranks.fitting import Part, Seen, fitted
from features.hang.ranks.proc import Process, has_variable
from features.hang.ranks.process_groups import groups_in, moved
from features.hang.ranks.rank_process import Known, find
from features.hang.ranks.recorder import Progress, progress_in, recorders_in
from features.hang.ranks.signalling import Suspect, stacks_by_signal
from features.hang.ranks.stacks import Stacks, stacks_in
from features.hang.wire import MAX_LOOK_RANKS, RankLook
from worker.look.answer import Answer
from worker.look.asking import STATUS_SECONDS, Asked, ask
from worker.look.site.sitecustomize import STACKS

_ENTRIES_SECONDS = 0.5


def collect(
    folder: Path,
    ranks: Mapping[int, int | None],
    first_rank: int,
    launcher: int | None = None,
    proc: Path = Path("/proc"),
) -> Seen:
    """Look at the ranks of this node; takes about 0.25 s, and never more than 4 s.

    Args:
        folder: What RDZV_LOOK_FOLDER names for these ranks.
        ranks: The processes of the local ranks; None where nobody knows it.
        first_rank: The global rank of local rank 0.
        launcher: The process of the program, which may be a rank itself; None: not known.
        proc: Where /proc is.
    """
    began = time.monotonic()
    chosen = sorted(ranks.items())[:MAX_LOOK_RANKS]
    known = _known(folder, dict(chosen), launcher, proc)
    families = Families(folder, {rank: known[rank].pid for rank in known}, launcher, proc)
    before = _processes(proc, known)
    hooked = [rank for rank in known if known[rank].signal and before[rank].can_run]
    first = ask(folder, hooked, b"status", STATUS_SECONDS)
    suspects = {
        rank: Suspect(
            known[rank].pid,
            known[rank].signal,
            folder / f"{rank}{STACKS}",
            silent=rank in first.silent,
            proc=proc,
        )
        for rank in hooked
        if rank not in first.answers
    }
    time.sleep(max(0.0, began + STATUS_SECONDS - time.monotonic()))
    after = _processes(proc, known)
    use = {rank: use_of(proc, each.pid, before[rank], after[rank]) for rank, each in known.items()}
    second = ask(folder, first.answers, b"entries", _ENTRIES_SECONDS)
    by_signal = stacks_by_signal(suspects, proc)
    families.finish()
    parts = []
    for rank, each in known.items():
        family = families.of[rank]
        look = RankLook(
            rank=first_rank + rank,
            children_cpu_total=family.cpu,
            children_bytes_total=family.bytes,
            **use[rank],
        )
        part = _part(look, each, rank, first, second, by_signal.get(rank))
        parts.append(part._replace(children=families.children(rank)))
    seen = fitted(parts, families.launcher(), left_out=len(ranks) - len(chosen))
    return seen._replace(unstarted=[first_rank + rank for rank in families.unstarted()])


def work(
    folder: Path,
    ranks: Mapping[int, int | None],
    launcher: int | None,
    proc: Path = Path("/proc"),
) -> list[tuple[float, int]]:
    """The seconds of CPU, and the bytes read and written, of each rank with its children; and last
    of their launcher, where the process of a rank is not known.

    Args:
        folder: What RDZV_LOOK_FOLDER names for these ranks.
        ranks: The processes of the local ranks; None where nobody knows it.
        launcher: The process of the program; None: not known.
        proc: Where /proc is.
    """
    known = _known(folder, ranks, launcher, proc)
    pids = [each.pid for _, each in sorted(known.items())]
    above = None if all(pids) or launcher in pids else launcher
    return [*(family_of(proc, pid).work for pid in pids), family_of(proc, above, pids).work]


def sample(
    folder: Path, ranks: Mapping[int, int | None], proc: Path = Path("/proc")
) -> dict[int, Progress]:
    """Look at the ranks once and cheaply; those that do not answer cost 0.2 s together.

    Args:
        folder: What RDZV_LOOK_FOLDER names for these ranks.
        ranks: The processes of the local ranks; None where nobody knows it.
        proc: Where /proc is.
    """
    known = {rank: find(folder, rank, pid, proc) for rank, pid in ranks.items()}
    now = _processes(proc, known)
    hooked = [rank for rank in known if known[rank].signal and now[rank].can_run]
    asked = ask(folder, hooked, b"status", STATUS_SECONDS)
    return {rank: _sums(asked.answers.get(rank)) for rank in known}


def _known(
    folder: Path, ranks: Mapping[int, int | None], launcher: int | None, proc: Path
) -> dict[int, Known]:
    """The processes of the ranks; a launcher without a rank's number is not the only rank's."""
    found = {rank: find(folder, rank, pid, proc) for rank, pid in ranks.items()}
    is_taken = [rank for rank, one in found.items() if one == Known(launcher or 0)]
    if is_taken and launcher and not has_variable(proc, launcher, rank_variables(folder)):
        found |= dict.fromkeys(is_taken, Known(0))
    return found


def _processes(proc: Path, known: Mapping[int, Known]) -> dict[int, Process]:
    return {
        rank: processes.read_process(proc, each.pid) if each.pid else Process()
        for rank, each in known.items()
    }


def _sums(answer: Answer | None) -> Progress:
    found = progress_in(recorders_in(answer)) if answer else {}
    if not found:
        return Progress()
    called, ended = zip(*found.values(), strict=True)
    return Progress(sum(max(0, one) for one in called), sum(max(0, one) for one in ended))


def _part(
    look: RankLook, known: Known, rank: int, first: Asked, second: Asked, read: Stacks | None
) -> Part:
    """One rank, by what it has answered."""
    early, late = first.answers.get(rank), second.answers.get(rank)
    stacks = read or Stacks(None, [])
    found: dict[str, object] = {"recorder": "absent"}
    if known.signal:
        found["recorder"] = "none" if rank in first.without else "silent"
        found["stage"] = "starting" if rank in first.without else "unknown"
    if early is not None:
        found["stage"] = early.stage
    if late is not None:
        recorders = recorders_in(late)
        was = progress_in(recorders_in(early)) if early else {}
        found["recorder"] = "read" if any(recorders) else "none"
        found["stage"] = late.stage
        found["groups"] = groups_in(late, recorders)
        found["called"] = moved(was, progress_in(recorders)) if early else 0
        stacks = stacks_in(late.stacks)
    return Part(look.model_copy(update=found), stacks.main, stacks.others)
