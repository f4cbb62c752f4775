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
from worker.program import failure, family
from worker.program.ending import Ending
from worker.program.family import Child, Family, Ranks, certain_failure, failed_rank
from worker.program.process import Program

pytestmark = pytest.mark.real_time

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


def first_of(ending: Ending) -> tuple[int, int | None] | None:
    """The exit code and the rank of the first failure."""
    first = ending.first_failure
    return None if first is None else (first.exit_code, first.worker_rank)


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


async def test_a_worker_that_failed_before_its_ranks_were_read_is_named_after_the_end(
    start: Start, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whom its siblings lack."""
    read = failure._ranks

    def too_late_for_one(pid: int) -> Ranks | None:
        found = read(pid)
        return None if found is None or found.rank == 5 else found

    monkeypatch.setattr(failure, "_ranks", too_late_for_one)
    monkeypatch.setattr(family, "_TOGETHER_SECONDS", 20.0)  # a busy machine starts them slowly
    program = await start(*files.torchrun(FOR_EVER, files.worker(1, "exit 3"), FOR_EVER))
    await known(program, 2)
    files.tell(1)
    await failed(program, 1)
    assert failed_rank(program.family) is None
    files.end.touch()
    assert first_of(await program.wait()) == (3, 5)


@pytest.mark.parametrize(("is_stopped", "first"), [(True, None), (False, (6, None))])
async def test_a_child_without_ranks_is_a_guess_that_counts_where_nobody_asked_for_the_end(
    start: Start, files: Files, is_stopped: bool, first: tuple[int, int | None] | None
) -> None:
    program = await start(*files.torchrun("exit 6", names="RANK"))
    await failed(program, 1)
    assert failed_rank(program.family) is None
    if not is_stopped:
        files.end.touch()
    assert first_of(await (program.stop() if is_stopped else program.wait())) == first


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


NOISY_LAUNCHER = """
import os, subprocess, sys, time
def start(words, own):
    return subprocess.Popen(["sh", "-c", words], env={**os.environ, **own})
def ranks(n):
    return {"RANK": str(4 + n), "LOCAL_RANK": str(n), "LOCAL_WORLD_SIZE": "2"}
workers = [start(words, ranks(n)) for n, words in enumerate(sys.argv[2:])]
helpers = [
    start("sleep 0.1 & echo mismatch; sleep 0.1; exit 18", {}),
    start("kill -KILL $$", {}),
    start("(sleep 0.2; exit 4) & exit 0", {}),
    start("sleep 0.1; exit 2", {"LOCAL_RANK": "1"}),
    start("sleep 0.1; exit 3", {"RANK": "4"}),
]
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.2)
    os._exit(5)
while not os.path.exists(sys.argv[1]):  # until then nobody reaps the helpers
    time.sleep(0.02)
for helper in helpers:
    helper.wait()
sys.exit(max(worker.wait() for worker in workers))
"""


async def test_helpers_that_fail_are_never_taken_for_ranks(start: Start, files: Files) -> None:
    """Beside real ranks, below a launcher that was itself given ranks."""
    workers = (files.worker(0, "exit 0"), files.worker(1, "exit 0"))
    argv = [*PYTHON, "-c", NOISY_LAUNCHER, str(files.end), *workers]
    program = await start(*argv, RANK="9", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    await soon(lambda: {2, 3, 5, 18, 137} <= {c.exit_code for c in program.family.children})
    seen = program.family
    assert certain_failure(seen, ends_all=True) is None
    # Two of them may have been seen with ranks that they gave themselves: a warning, and no end.
    warned = failed_rank(seen)
    assert warned is None or warned.exit_code in (2, 3)
    for number in range(2):
        files.tell(number)
    files.end.touch()
    assert (await program.wait()).exit_code == 0
    assert certain_failure(program.family, ends_all=True) is None
