"""Which of a program's children failed first, as the kernel shows them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import soon
from tests.worker.programs.started import PYTHON, Start, is_gone, starting, until_there
from worker.program.family import Child, Family, certain_failure, failed_rank
from worker.program.process import Program

FOR_EVER = "exec sleep 60"
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


class Files:
    """Files, not there yet, by which programs and their workers are told to end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.end = folder / "end"

    def worker(self, number: int, then: str) -> str:
        """A worker that does so once it is told."""
        return until_there(self._folder / str(number), then)

    def tell(self, number: int) -> None:
        """The worker of this number."""
        (self._folder / str(number)).touch()

    def torchrun(self, *workers: str, names: str = ALL_RANKS, reaps: int = 0) -> list[str]:
        """A parent that starts workers, each with ranks, reaps them late, and fails when told."""
        return [*PYTHON, "-c", TORCHRUN_LIKE, str(self.end), str(reaps), names, *workers]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as started:
        yield started


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


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
    start: Start, files: Files, monkeypatch: pytest.MonkeyPatch, pidfds: bool
) -> None:
    """Without pidfds (an old kernel, a strict sandbox) it is seen by looking."""
    workers = (FOR_EVER, files.worker(1, "kill -KILL $$"), files.worker(2, "exit 1"))
    program = await start(*files.torchrun(*workers), RANK="9")
    assert program.main_pid is None
    if not pidfds:
        monkeypatch.delattr(os, "pidfd_open")
    seen: list[Family] = []
    program.changed = lambda: seen.append(program.family)
    certain = partial(certain_failure, ends_all=True)
    await known(program, 3)
    begun = time.monotonic()
    files.tell(1)
    await soon(lambda: bool(seen))
    noticed = time.monotonic()
    warned = failed_rank(seen[0])
    assert warned is not None
    assert (certain(seen[0]), warned.exit_code, warned.worker_rank) == (None, 137, 5)
    files.tell(2)
    await soon(lambda: certain(seen[-1]) is not None)
    assert certain(seen[-1]) == warned
    assert program.main_ended is None
    files.end.touch()
    ending = await program.wait()
    assert (ending.exit_code, ending.first_failure) == (1, warned)
    assert begun <= warned.ended_at == ending.began_to_fail_at <= noticed


async def test_the_end_of_the_main_process_is_told_before_what_it_started_has_ended(
    start: Start,
) -> None:
    program = await start("sh", "-c", "(trap '' TERM; sleep 60) & exit 3", grace=3.0)
    told = asyncio.Event()
    program.changed = told.set
    await asyncio.wait_for(told.wait(), 30)
    assert program.main_ended is not None
    assert program.main_ended[0] == 3
    ending = asyncio.ensure_future(program.wait())
    await asyncio.sleep(0)
    assert not ending.done()
    program.kill_now()
    assert (await ending).exit_code == 3


@pytest.mark.parametrize(("is_stopped", "code"), [(True, None), (False, 6)])
async def test_a_child_without_ranks_is_a_guess_that_counts_where_nobody_asked_for_the_end(
    start: Start, files: Files, is_stopped: bool, code: int | None
) -> None:
    program = await start(*files.torchrun("exit 6", names="RANK"))
    await failed(program, 1)
    assert failed_rank(program.family) is None
    if not is_stopped:
        files.end.touch()
    first = (await (program.stop() if is_stopped else program.wait())).first_failure
    assert (first.exit_code if first else None) == code


async def test_nobody_is_blamed_when_a_worker_had_ended_unseen_before(
    start: Start, files: Files
) -> None:
    workers = (files.worker(0, "exit 7"), files.worker(1, "exit 3"))
    program = await start(*files.torchrun(*workers, reaps=1))
    await known(program, 2)
    (gone,) = (child for child in watched(program) if child.ranks and child.ranks.rank == 4)
    files.tell(0)
    while not is_gone(gone.pid):  # this process is held up, and torchrun reaps the worker meanwhile
        time.sleep(0.01)
    await soon(lambda: gone not in watched(program))
    files.tell(1)
    await failed(program, 1)
    files.end.touch()
    assert (await program.wait()).first_failure is None
