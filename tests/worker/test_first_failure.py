"""Which of a program's children failed first, as the kernel shows them."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import soon, until
from tests.worker.programs.started import PYTHON, Start, is_dead, is_gone, until_there
from worker.program.family import Child, Family, certain_failure, failed_rank
from worker.program.process import Program

TORCHRUN_LIKE = """
import os, subprocess, sys, time
kept, reaps, names = [], int(sys.argv[2]), sys.argv[3].split()  # Popen reaps the forgotten
for n, words in enumerate(sys.argv[4:]):
    ranks = {"RANK": str(4 + n), "LOCAL_RANK": str(n), "LOCAL_WORLD_SIZE": str(len(sys.argv) - 4)}
    env = {**os.environ, **{name: ranks[name] for name in names}}
    kept += [subprocess.Popen(["sh", "-c", words], env=env, start_new_session=True)]
for _ in range(reaps):
    os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os._exit(1)
"""
ALL_RANKS = "RANK LOCAL_RANK LOCAL_WORLD_SIZE"


def torchrun(folder: Path, *workers: str, names: str = ALL_RANKS, reaps: int = 0) -> list[str]:
    """A parent that starts workers, each with ranks, reaps them late, and fails when it is told.

    Worker 0 does its words once there is a file `0` in the folder; the parent's is `end`.
    """
    told = [until_there(folder / str(n), words) for n, words in enumerate(workers)]
    return [*PYTHON, "-c", TORCHRUN_LIKE, str(folder / "end"), str(reaps), names, *told]


def watched(program: Program) -> list[Child]:
    """The children that are watched and live."""
    return [child for child in program.family.children if child.ended_at is None]


async def known(program: Program, workers: int) -> None:
    """Wait until the ranks of so many are known: of a dead one they cannot be read."""
    await soon(lambda: sum(child.ranks is not None for child in watched(program)) == workers)


async def failed(program: Program, children: int) -> None:
    """Wait until so many have been seen to fail."""
    await soon(lambda: sum(bool(c.exit_code) for c in program.family.children) == children)


@pytest.mark.real_time
@pytest.mark.parametrize("pidfds", [True, False])
async def test_the_first_failure_is_told_with_its_rank_and_when_it_was(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pidfds: bool
) -> None:
    """Without pidfds (an old kernel, a strict sandbox) it is seen by looking."""
    program = await start(*torchrun(tmp_path, "", "kill -KILL $$", "exit 1"), RANK="9")
    assert program.main_pid is None
    if not pidfds:
        monkeypatch.delattr(os, "pidfd_open")
    seen: list[Family] = []
    program.changed = lambda: seen.append(program.family)
    certain = partial(certain_failure, ends_all=True)
    await known(program, 3)
    begun = time.monotonic()
    (tmp_path / "1").touch()
    await soon(lambda: bool(seen))
    noticed = time.monotonic()
    warned = failed_rank(seen[0])
    assert warned is not None
    assert (certain(seen[0]), warned.exit_code, warned.rank) == (None, 137, 5)
    (tmp_path / "2").touch()
    await soon(lambda: certain(seen[-1]) is not None)
    assert certain(seen[-1]) == warned
    assert program.main_ended is None
    (tmp_path / "end").touch()
    ending = await program.wait()
    assert (ending.exit_code, ending.first_failure) == (1, warned)
    assert begun <= warned.ended_at == ending.began_to_fail_at <= noticed


@pytest.mark.parametrize(("is_stopped", "code"), [(True, None), (False, 6)])
async def test_a_child_without_ranks_is_a_guess_that_counts_where_nobody_asked_for_the_end(
    start: Start, tmp_path: Path, is_stopped: bool, code: int | None
) -> None:
    (tmp_path / "0").touch()
    program = await start(*torchrun(tmp_path, "exit 6", names="RANK"))
    await failed(program, 1)
    assert failed_rank(program.family) is None
    if not is_stopped:
        (tmp_path / "end").touch()
    first = (await (program.stop() if is_stopped else program.wait())).first_failure
    assert (first.exit_code if first else None) == code


@pytest.mark.parametrize("order", ["01", "10"])
async def test_who_was_told_to_end_is_not_taken_for_the_first_by_an_agent_that_was_held_up(
    start: Start, tmp_path: Path, order: str
) -> None:
    program = await start(*torchrun(tmp_path, "kill -TERM $$", "exit 3"))
    await known(program, 2)
    numbers = {child.ranks.local_rank: child.pid for child in watched(program) if child.ranks}
    for local_rank in order:
        (tmp_path / local_rank).touch()
        until(partial(is_dead, numbers[int(local_rank)]))
    await failed(program, 2)
    first = failed_rank(program.family)
    assert first is not None
    assert (first.rank, first.exit_code) == (5, 3)


async def test_nobody_is_blamed_when_a_worker_had_ended_unseen_before(
    start: Start, tmp_path: Path
) -> None:
    program = await start(*torchrun(tmp_path, "exit 7", "exit 3", reaps=1))
    await known(program, 2)
    (gone,) = (child for child in watched(program) if child.ranks and child.ranks.rank == 4)
    (tmp_path / "0").touch()
    while not is_gone(gone.pid):  # this process is held up, and torchrun reaps the worker meanwhile
        time.sleep(0.01)
    await soon(lambda: gone not in watched(program))
    (tmp_path / "1").touch()
    await failed(program, 1)
    (tmp_path / "end").touch()
    assert (await program.wait()).first_failure is None
