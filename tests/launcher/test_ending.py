"""Worker runs are told to end, told again, and gone only when their scheduler says so."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from launcher.ending import Ending, Submission, end_left
from launcher.ledger import Ledger, LedgerEntry
from launcher.plan import WorkerRun
from launcher.schedulers import SchedulerContext
from launcher.schedulers.manual import ManualScheduler
from rendezvous.schema import SlotState
from tests.launcher.fleet import Fleet

GRACE = 12.0  # ten of the run's, and what the agent needs beyond


def worker_run(slot: int = 1, generation: int = 1) -> WorkerRun:
    return WorkerRun(slot, generation, f"rdzv-k7f2-{slot}-{generation}", {}, "spec.sh", "")


async def submitted(fleet: Fleet, slot: int = 1, *, answered: bool = True) -> Submission:
    """A worker run that the fleet has; its answer may have got lost."""
    run = worker_run(slot)
    handle = await fleet.submit(run, "")
    entry = LedgerEntry.of(run, "fleet.toml")
    return Submission(entry.model_copy(update={"handle": handle if answered else ""}), fleet)


def ending(*, hurry: bool = False, limit_seconds: float = 10.0) -> Ending:
    event = asyncio.Event()
    if hurry:
        event.set()
    return Ending(GRACE - 2, event, limit_seconds=limit_seconds)


async def test_each_is_told_once_with_the_grace_and_gone_when_the_scheduler_says_so() -> None:
    fleet = Fleet()
    runs = [await submitted(fleet, slot) for slot in (1, 2, 3)]
    assert await ending().end_all(runs) == []
    assert fleet.told == [("100", GRACE), ("101", GRACE), ("102", GRACE)]
    assert all(run.gone for run in runs)


async def test_one_that_is_over_is_not_told_anything() -> None:
    fleet = Fleet(begins=SlotState.FAILED)
    run = await submitted(fleet)
    assert await ending().end(run) == ""
    assert (run.gone, fleet.told) == (True, [])


async def test_one_that_runs_may_end_by_itself_and_one_that_is_queued_is_told_at_once() -> None:
    fleet = Fleet()
    runs = [await submitted(fleet, slot) for slot in (1, 2)]
    fleet.made[runs[1].run.name].state = SlotState.QUEUED
    work = asyncio.create_task(ending().end_all(runs, by_itself_seconds=60))
    while not runs[1].gone:
        await asyncio.sleep(0.01)
    assert not runs[0].gone
    fleet.made[runs[0].run.name].state = SlotState.ENDED
    assert await work == []
    assert fleet.told == [("101", GRACE)]


async def test_one_whose_submission_was_not_answered_is_looked_for_twice() -> None:
    fleet = Fleet(late=1)
    run = await submitted(fleet, answered=False)
    assert await ending().end(run) == ""
    assert (run.handle, run.gone, fleet.told) == ("100", True, [("100", GRACE)])


async def test_one_that_was_never_made_is_gone() -> None:
    fleet = Fleet()
    run = Submission(LedgerEntry.of(worker_run(), "fleet.toml"), fleet)
    assert await ending().end_all([run]) == []
    assert (run.gone, fleet.told, fleet.asked) == (True, [], 2)


async def test_where_nobody_can_look_for_it_an_unanswered_submission_is_listed() -> None:
    fleet = Fleet(finds=False)
    run = await submitted(fleet, answered=False)
    [left] = await ending().end_all([run])
    assert left == (
        "worker run rdzv-k7f2-1-1 (slot 1) may still be there: its submission was not answered, "
        "and this scheduler cannot look for it; look for a run of that name"
    )
    assert not run.gone


async def test_one_that_cannot_be_ended_is_listed_with_the_words_and_the_command() -> None:
    fleet = Fleet(stays=True)
    runs = [await submitted(fleet)]
    [left] = await ending(limit_seconds=1 - GRACE).end_all(runs)
    assert left == (
        "worker run rdzv-k7f2-1-1 (slot 1, id 100) may still be there: "
        "you may not end this run; end it with: fleet end 100"
    )
    assert len(fleet.told) > 1


async def test_one_that_does_not_end_is_listed_with_its_state() -> None:
    fleet = Fleet(hears=False)
    runs = [await submitted(fleet)]
    fleet.made[runs[0].run.name].detail = "on n17"
    [left] = await ending(limit_seconds=0.5 - GRACE).end_all(runs)
    assert left == (
        "worker run rdzv-k7f2-1-1 (slot 1, id 100) may still be there: it is running: on n17; "
        "end it with: fleet end 100"
    )
    assert fleet.told == [("100", GRACE)]


async def test_a_scheduler_that_does_not_answer_for_a_while_is_asked_again() -> None:
    fleet = Fleet(down=5)
    run = await submitted(fleet)
    assert await ending().end(run) == ""
    assert fleet.told == [("100", GRACE)]


@pytest.mark.parametrize(("listed", "told"), [(True, [("100", GRACE)]), (False, [])])
async def test_one_in_no_known_state_is_gone_only_if_it_is_not_listed_either(
    listed: bool, told: list[tuple[str, float]]
) -> None:
    fleet = Fleet(begins=SlotState.UNKNOWN, late=0 if listed else 1000)
    run = await submitted(fleet)
    assert await ending().end(run) == ""
    assert fleet.told == told


async def test_where_nobody_can_look_for_it_no_known_state_is_not_the_end() -> None:
    fleet = Fleet(begins=SlotState.UNKNOWN, finds=False)
    run = await submitted(fleet)
    assert await ending().end(run) == ""
    assert fleet.told == [("100", GRACE)]


async def test_a_hurry_tells_it_again_without_any_grace() -> None:
    fleet, hurry = Fleet(hears=False), asyncio.Event()
    run = await submitted(fleet)
    work = asyncio.create_task(Ending(GRACE - 2, hurry).end(run, by_itself_seconds=0))
    while not fleet.told:
        await asyncio.sleep(0.01)
    hurry.set()
    assert await asyncio.wait_for(work, 5) == ""
    assert fleet.told == [("100", GRACE), ("100", 0.0)]


async def test_in_a_hurry_nothing_is_waited_for() -> None:
    fleet = Fleet()
    run = await submitted(fleet)
    assert await ending(hurry=True).end(run, by_itself_seconds=60) == ""
    assert fleet.told == [("100", 0.0)]


# ---- what a former launch has left --------------------------------------------------------------


async def left_by_manual(tmp_path: Path) -> tuple[Ledger, SchedulerContext, Path]:
    """A script that the manual scheduler wrote for a launcher that was killed."""
    context = SchedulerContext(tmp_path / "submissions", {})
    run = WorkerRun(1, 1, "rdzv-k7f2-1-1", {"NAME": "rdzv-k7f2-1-1"}, "w.sh", "# <<NAME>> it is\n")
    handle = await ManualScheduler(context).submit(run, "")
    ledger = Ledger(tmp_path / "worker-runs.jsonl")
    entry = LedgerEntry.of(run, "manual")
    ledger.begin(entry)
    ledger.note(entry.model_copy(update={"handle": handle}))
    return ledger, context, Path(handle)


async def test_what_a_former_launch_has_left_is_ended_and_noted(tmp_path: Path) -> None:
    ledger, context, script = await left_by_manual(tmp_path)
    said: list[str] = []
    assert await end_left(ledger, context, said.append, grace=0.0)
    assert not script.exists()
    assert said == ["1 worker run of the former launch may be left: ending what is there"]
    assert ledger.left() == []
    assert await end_left(ledger, context, said.append, grace=0.0)
    assert len(said) == 1


async def test_what_was_left_at_a_scheduler_that_is_no_longer_known_is_listed(
    tmp_path: Path,
) -> None:
    profile = str(tmp_path / "gone.toml")
    ledger = Ledger(tmp_path / "worker-runs.jsonl")
    ledger.begin(LedgerEntry.of(worker_run(), profile))
    said: list[str] = []
    began = time.monotonic()
    assert not await end_left(ledger, SchedulerContext(tmp_path, {}), said.append, grace=0.0)
    assert time.monotonic() - began < 5
    assert len(said) == 1
    assert said[0].startswith("worker run rdzv-k7f2-1-1 may still be there: ")
    assert profile in said[0]
    assert len(ledger.left()) == 1
