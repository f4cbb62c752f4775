"""Whether the ranks of a run are in one world: by value, and in a run from the first report on."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from rendezvous.run import worlds
from rendezvous.wire.errors import Cause, ExitCode
from rendezvous.wire.reports import WorldReport
from rendezvous.wire.run import Phase
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.world import RankWorld, WorldFound
from tests.support.driver import Drive, in_phase


def world(rank: int, size: int, *places: int, library: str = "torch", whole: bool = False) -> Any:
    """A rank that has been in worlds of a size, with these places."""
    whole = whole or size == 1
    return RankWorld(rank=rank, library=library, size=size, places=list(places), whole=whole)


def running(nproc: int = 1, nodes: int = 2, **changes: Any) -> Drive:
    """A run that goes, of so many processes on each node."""
    drive = in_phase(Phase.RUNNING, nodes, **changes)
    rows = [replace(row, nproc_per_node=nproc) for row in drive.table.rows]
    drive.run.attempt.table = drive.table.model_copy(update={"rows": rows})
    return drive


@cache
def table(nproc: int, nodes: int = 2) -> EndpointTable:
    """Of nodes with so many processes."""
    return running(nproc, nodes).table


def judged(nproc: int, *told: RankWorld, nodes: int = 2) -> WorldFound | None:
    """What these worlds show, in a table of nodes with so many processes."""
    known = {slot: [w for w in told if w.rank // nproc == slot] for slot in range(nodes)}
    return worlds.judge(table(nproc, nodes), known)


def words(found: WorldFound | None) -> str:
    """What is said of it at the end; empty: nothing."""
    return worlds.words_of(found, over=True) if found is not None else ""


# --- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nproc", "told", "said"),
    [
        (
            1,
            [world(0, 1, 0), world(1, 1, 0)],
            (
                "each node was alone: it formed a TORCH world of 1 process, and the run "
                "has 2 processes on 2 nodes"
            ),
        ),
        (
            2,
            [world(rank, 1, 0) for rank in range(4)],
            (
                "each process was alone: it formed a TORCH world of 1 process, and the "
                "run has 4 processes on 2 nodes"
            ),
        ),
        (
            2,
            [world(rank, 2, rank % 2) for rank in range(4)],
            (
                "each node was alone: its processes formed a TORCH world of 2 processes, "
                "and the run has 4 processes on 2 nodes"
            ),
        ),
        (
            1,
            [world(rank, 8, *range(8), whole=True) for rank in range(2)],
            (
                "each node was alone: it formed a TORCH world of 8 processes that are all "
                "its own, and the run has 2 processes on 2 nodes"
            ),
        ),
        (
            2,
            [world(rank, 2, rank // 2, library="jax") for rank in range(4)],
            (
                "the ranks were not in one world: ranks 0-3 formed jax.distributed worlds of 2 "
                "processes, and the run has 4 processes on 2 nodes"
            ),
        ),
        (
            2,
            [world(0, 1, 0), *(world(rank, 3, rank - 1) for rank in (1, 2, 3))],
            (
                "the ranks were not in one world: rank 0 formed a TORCH world of 1 "
                "process, ranks 1-3 formed TORCH worlds of 3 processes, and the run has "
                "4 processes on 2 nodes"
            ),
        ),
        (
            1,
            [world(0, 2, 0), world(1, 2, 0)],
            (
                "the ranks were not in one world: ranks 0 and 1 of the run both were rank 0 of a "
                "TORCH world of 2 processes"
            ),
        ),
        (
            1,
            [world(0, 1, 0), world(0, 1, 0, library="jax"), world(1, 1, 0)],
            (
                "each node was alone: it formed a TORCH world of 1 process, and the run "
                "has 2 processes on 2 nodes"
            ),
        ),
    ],
)
def test_what_is_not_one_world_is_said(nproc: int, told: list[RankWorld], said: str) -> None:
    assert words(judged(nproc, *told)) == said.replace("TORCH", "torch.distributed")
    found = judged(nproc, *told)
    assert found is not None
    assert found.next_step
    for but in range(len(told)):  # and of nothing less
        if sum(one.rank == told[but].rank for one in told) == 1:
            assert judged(nproc, *told[:but], *told[but + 1 :]) is None


@pytest.mark.parametrize(
    ("nproc", "told"),
    [
        (1, []),
        (1, [world(0, 2, 0), world(1, 2, 1)]),
        (1, [world(0, 2, 1), world(1, 2, 0)]),  # in another order
        (2, [world(rank, 4, rank) for rank in range(4)]),
        # It came to be, before or after something else.
        (1, [world(0, 1, 0), world(0, 2, 0), world(1, 1, 0), world(1, 2, 1)]),
        (1, [world(0, 2, 0), world(1, 2, 1), world(1, 1, 0)]),
        # Ranks have changed their places since, as when torchrun has started them again.
        (1, [world(0, 2, 0, 1), world(1, 2, 0, 1)]),
        (1, [world(0, 2, 0, 1), world(1, 2, 0)]),
        # Each rank starts processes that take part.
        (1, [world(0, 4, 0, 1), world(1, 4, 2, 3)]),
        (1, [world(0, 1, 0), world(0, 4, 0, 1), world(1, 4, 2, 3)]),
        # Some have told what the others will tell in a moment, or there is more than is seen.
        (1, [world(0, 1, 0), world(1, 2, 1)]),
        (1, [world(0, 2, 0), world(1, 3, 1)]),
        (1, [world(0, 2, 0), world(1, 2, 0, library="jax")]),
        (1, [world(0, 1, 0)]),  # a rank that cannot be seen
        (2, [world(rank, 1, 0) for rank in range(3)]),
    ],
)
def test_what_may_be_one_world_is_not_judged(nproc: int, told: list[RankWorld]) -> None:
    assert judged(nproc, *told) is None


def test_a_table_of_one_process_is_always_one_world() -> None:
    assert judged(1, world(0, 1, 0), nodes=1) is None
    assert words(judged(2, world(0, 1, 0), world(1, 1, 0), nodes=1)) == (
        "each process was alone: it formed a torch.distributed world of 1 process, and the run "
        "has 2 processes on 1 node"
    )


def test_nothing_is_said_of_any_history_with_one_world_in_it() -> None:
    """Whatever three ranks have formed besides, in whichever places they were in that world."""
    others = [[], [(1, 0)], [(2, 1)], [(3, 0)], [(3, 0), (3, 2)], [(5, 4)]]
    for places in itertools.permutations(range(3)):
        for more in itertools.product(others, repeat=3):
            told = []
            for rank, (place, besides) in enumerate(zip(places, more, strict=True)):
                sizes: dict[int, set[int]] = {3: {place}}
                for size, other in besides:
                    sizes.setdefault(size, set()).add(other)
                told += [world(rank, size, *sorted(found)) for size, found in sizes.items()]
            assert judged(1, *told, nodes=3) is None


def test_ranks_that_are_not_in_the_table_say_nothing() -> None:
    told = [world(0, 1, 0), world(1, 1, 0)]
    assert judged(1, *told, world(7, 1, 0)) == judged(1, *told)
    assert worlds.judge(table(1), {0: [told[0]], 1: [told[0]]}) is None


# --- in a run -------------------------------------------------------------------------------------

ALONE = "each node {} alone: it formed a torch.distributed world of 1 process, and the run has 2"


def report(drive: Drive, slot: int, *told: RankWorld) -> Any:
    """What comes of a node's report before its end."""
    return drive.report(slot, WorldReport(epoch=drive.run.epoch, worlds=list(told)))


def nothing_known(drive: Drive) -> bool:
    """Whether the run knows of no world."""
    return drive.run.world is None and not drive.run.worlds


def test_it_is_said_once_all_have_told_and_shown_while_it_is_so() -> None:
    drive = running()
    first = report(drive, 0, world(0, 1, 0))
    assert first.usual
    assert report(drive, 0, world(0, 1, 0)) is None  # it was said before
    outcome = report(drive, 1, world(1, 1, 0))
    assert not outcome.usual
    assert outcome.reason.startswith(ALONE.format("is"))
    assert "init_process_group()" in outcome.reason
    assert drive.status().reason.startswith(f"running on 2 nodes; {ALONE.format('is')}")
    drive.exit(0, 0, worlds=[world(0, 1, 0)])
    drive.exit(1, 0)  # an agent that could not look any more
    assert (drive.result.status, drive.result.exit_code) == ("ok", 0)
    assert drive.result.warning == Cause.WRONG_WORLD
    assert drive.result.message.startswith(ALONE.format("was"))
    assert drive.result.message.endswith("; both nodes ended with exit code 0")
    assert drive.result.hint


def test_of_a_short_program_it_is_said_with_its_end() -> None:
    drive = running()
    assert drive.exit(0, 0, worlds=[world(0, 1, 0)]).usual  # type: ignore[union-attr]
    outcome = drive.exit(1, 0, worlds=[world(1, 1, 0)])
    assert outcome is not None
    assert not outcome.usual
    assert f"ended with exit code 0; {ALONE.format('is')}" in outcome.reason
    assert drive.result.warning == Cause.WRONG_WORLD


def test_with_strict_it_is_a_failure() -> None:
    drive = running(strict=True, max_restarts=2)
    drive.exit(0, 0, worlds=[world(0, 1, 0)])
    drive.exit(1, 0, worlds=[world(1, 1, 0)])
    result = drive.result
    assert (result.status, result.code, result.exit_code_of) == ("failed", "wrong_world", "rdzv")
    assert (result.exit_code, result.restarts) == (ExitCode.WRONG_WORLD, None)
    assert result.message.endswith("and '--strict' makes this a failure")


@pytest.mark.parametrize("strict", [False, True])
def test_a_run_in_one_world_is_ok(strict: bool) -> None:
    drive = running(strict=strict)
    drive.exit(0, 0, worlds=[world(0, 2, 0)])
    drive.exit(1, 0, worlds=[world(1, 2, 1)])
    assert (drive.result.status, drive.result.warning, drive.result.hint) == ("ok", "", "")
    assert "world" not in drive.reasons[-1]


def test_what_is_no_longer_so_is_taken_back() -> None:
    drive = running()
    report(drive, 0, world(0, 1, 0))
    report(drive, 1, world(1, 1, 0))
    outcome = report(drive, 0, world(0, 1, 0), world(0, 2, 0))
    assert outcome.reason == "the ranks have formed larger worlds since, which may be one"
    assert report(drive, 1, world(1, 1, 0), world(1, 2, 1)).usual
    drive.end_well(0, 1)
    assert (drive.result.status, drive.result.warning) == ("ok", "")


def test_a_failure_keeps_its_cause_and_takes_nothing_back() -> None:
    drive = running()
    report(drive, 0, world(0, 1, 0))
    report(drive, 1, world(1, 1, 0))
    for slot, code in ((0, 3), (1, 143)):
        told = [world(slot, 1, 0)] + [world(slot, 2, slot)] * slot
        drive.exit(slot, code, stopped=slot == 1, worlds=told)
        assert "world" not in drive.reasons[-1]
    drive.wait(60.0)
    assert (drive.result.status, drive.result.code) == ("failed", Cause.PROGRAM_FAILED)
    assert drive.result.warning == ""


def test_another_epoch_begins_without_and_an_old_one_says_nothing() -> None:
    drive = running(max_restarts=1)
    old = drive.run.epoch
    for slot in (0, 1):
        report(drive, slot, world(slot, 1, 0))
    assert drive.run.world is not None
    drive.restart("by hand")
    for slot in sorted(drive.run.waiting_for):
        drive.exit(slot, 143, stopped=True, worlds=[world(slot, 1, 0)])
    drive.arm()
    assert drive.run.phase is Phase.RUNNING
    assert nothing_known(drive)
    for slot in (0, 1):
        late = WorldReport(epoch=old, worlds=[world(slot, 1, 0)])
        assert drive.report(slot, late) is None
    assert nothing_known(drive)


def test_a_program_that_leads_is_not_judged() -> None:
    drive = running(led=True)
    report(drive, 0, world(0, 1, 0))
    report(drive, 1, world(1, 1, 0))
    assert drive.run.world is None
