"""One contract for everything that starts worker runs, with behaving fakes of their commands."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.plan.plan import HIDDEN
from launcher.schedulers.catalog import SCHEDULERS, known_schedulers, scheduler_entry
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.profile_file import read_profile
from launcher.schedulers.shipped import PROFILES as PROFILES_FOLDER
from rendezvous.wire.errors import SchedulerError, TemplateError, UsageError
from rendezvous.wire.run import SlotState
from tests.schedulers.behaving import DOWN, LOST, ODD_WORD, REFUSAL
from tests.support.bed import FAKES, LIMIT_SECONDS, OWN, SHIPPED, Bed, join_text

pytestmark = pytest.mark.real_time

LIVING = (SlotState.SUBMITTED, SlotState.QUEUED, SlotState.RUNNING)
OVER = (SlotState.ENDED, SlotState.FAILED)
PROFILES = [*OWN, *SHIPPED]
MadeBed = Callable[..., Bed]


@pytest.fixture(params=[*SCHEDULERS, *PROFILES])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    """Each scheduler in turn."""
    with contextlib.closing(Bed(request.param, tmp_path)) as made:
        yield made


@pytest.fixture(params=PROFILES)
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MadeBed]:
    """A bed of each profile in turn, with faults."""
    with contextlib.ExitStack() as stack:

        def make(*faults: str, installed: bool = True) -> Bed:
            bed = Bed(request.param, tmp_path, set(faults), installed=installed)
            return stack.enter_context(contextlib.closing(bed))

        yield make


async def described(bed: Bed, handle: str, *wanted: SlotState) -> Description:
    """What the scheduler says, as soon as it is one of these states."""
    scheduler, deadline = bed.scheduler(), time.monotonic() + LIMIT_SECONDS
    while (found := await scheduler.describe(bed.run(), handle)).state not in wanted:
        assert time.monotonic() < deadline, f"still {found}"
        await asyncio.sleep(0.02)
    return found


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


# ---- every scheduler ----------------------------------------------------------------------------


def test_every_shipped_profile_is_tried_with_a_behaving_fake() -> None:
    assert {*OWN, *SHIPPED} <= {path.stem for path in FAKES.glob("*.py")}


def test_the_table_holds_each_scheduler_under_its_own_name(bed: Bed) -> None:
    scheduler = bed.scheduler()
    assert scheduler.name == bed.name
    assert bed.name in known_schedulers() or bed.name in OWN
    assert scheduler.poll_seconds > 0


def test_an_unknown_scheduler_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        scheduler_entry("locale")
    assert caught.value.message == "there is no scheduler 'locale'"
    known = ", ".join(known_schedulers())
    assert caught.value.hint.startswith(f"known are: {known}; ")


def test_preparing_does_nothing_and_shows_no_secret(bed: Bed) -> None:
    scheduler, run = bed.scheduler(), bed.run()
    before = copy.deepcopy(run)
    hidden = scheduler.prepare(run, HIDDEN)
    with_secret = scheduler.prepare(run, join_text())
    assert hidden == with_secret.replace(join_text(), HIDDEN)
    assert join_text() not in hidden
    assert hidden == scheduler.prepare(run, HIDDEN)
    assert run == before
    assert not bed.submissions.exists()
    assert bed.calls() == []


async def test_a_worker_run_is_submitted_described_and_cancelled(bed: Bed) -> None:
    before = children()
    scheduler = bed.scheduler()
    handle = await scheduler.submit(bed.run(), join_text())
    assert (await scheduler.describe(bed.run(), handle)).state in LIVING
    await scheduler.cancel(bed.run(), handle, grace_seconds=5.0)
    await scheduler.cancel(bed.run(), handle, grace_seconds=5.0)
    await described(bed, handle, *OVER)
    assert [child for child in children() if child not in before] == []
    assert [path for path in bed.files() if join_text() in path.read_text()] == []


async def test_two_worker_runs_have_two_handles(bed: Bed) -> None:
    scheduler = bed.scheduler()
    handles = [await scheduler.submit(bed.run(slot), join_text(slot)) for slot in (1, 2)]
    await scheduler.cancel(bed.run(1), handles[0], grace_seconds=5.0)
    assert handles[0] != handles[1]
    assert (await scheduler.describe(bed.run(2), handles[1])).state in LIVING
    await scheduler.cancel(bed.run(2), handles[1], grace_seconds=5.0)


async def test_only_a_worker_run_of_exactly_that_name_is_found(bed: Bed) -> None:
    scheduler = bed.scheduler()
    handle = await scheduler.submit(bed.run(1, 12), join_text(1, 12))
    assert await scheduler.find(bed.run(1, 12)) in (handle, None)
    assert await scheduler.find(bed.run(1, 1)) is None
    assert await scheduler.find(bed.run(2, 12)) is None
    await scheduler.cancel(bed.run(1, 12), handle, grace_seconds=5.0)


async def test_a_spec_that_cannot_be_filled_is_not_submitted(bed: Bed) -> None:
    scheduler, run = bed.scheduler(), bed.run(template="argv: [<<COMAND>>]\n")
    with pytest.raises(TemplateError, match="<<COMAND>>"):
        scheduler.prepare(run, HIDDEN)
    with pytest.raises(TemplateError, match="did you mean <<COMMAND>>"):
        await scheduler.submit(run, join_text())
    assert not bed.submissions.exists()
    assert bed.calls() == []


async def test_a_handle_that_the_scheduler_never_had_is_not_running_and_can_be_cancelled(
    bed: Bed,
) -> None:
    scheduler, never = bed.scheduler(), str(bed.folder / "4999999")
    await scheduler.cancel(bed.run(), never, grace_seconds=0.0)
    assert (await scheduler.describe(bed.run(), never)).state is SlotState.ENDED


def test_the_command_that_ends_a_worker_run_by_hand_names_it(bed: Bed) -> None:
    words = bed.scheduler().cancel_words(bed.run(), "4711")
    assert "4711" in words or words == ""
    assert bed.scheduler().cancel_words(bed.run(), None) == ""


async def test_the_newest_lines_of_the_logs_come_where_there_are_any(bed: Bed) -> None:
    scheduler = bed.scheduler()
    handle = await scheduler.submit(bed.run(), join_text())
    lines = [line async for line in logs(bed, handle, follow=False)]
    assert bool(lines) is scheduler.keeps_logs
    await scheduler.cancel(bed.run(), handle, grace_seconds=5.0)


def logs(bed: Bed, handle: str, *, follow: bool) -> Any:
    return bed.scheduler().logs(bed.run(), handle, lines=2, follow=follow)


# ---- profiles -----------------------------------------------------------------------------------


async def test_the_secret_goes_where_the_profile_says_and_nowhere_else(faulty: MadeBed) -> None:
    bed = faulty()
    os.umask(old := os.umask(0o000))
    try:
        await bed.scheduler().submit(bed.run(), join_text())
    finally:
        os.umask(old)
    call = bed.calls()[0]
    assert join_text() not in str(call["argv"]) + str(call["environ"])
    assert not {"RDZV_TOKEN", "RDZV_NNODES"} & set(call["environ"])
    secret = [path for path in bed.files() if join_text() in path.read_text()]
    assert {path.stat().st_mode & 0o777 for path in secret} <= {0o600}
    assert bool(secret) is not (join_text() in call["stdin"])


async def test_another_launcher_finds_a_worker_run_by_its_name_and_cancels_it(
    faulty: MadeBed,
) -> None:
    bed = faulty()
    handle = await bed.scheduler().submit(bed.run(), join_text())
    assert await bed.scheduler().find(bed.run()) == handle
    await bed.scheduler().cancel(bed.run(), handle, grace_seconds=0.0)
    await described(bed, handle, *OVER)


def known_states() -> list[tuple[str, str]]:
    """Each profile with each state that it has words for."""
    return [
        (name, state)
        for name in PROFILES
        for state, words in read_profile(OWN.get(name, PROFILES_FOLDER / f"{name}.toml")).states
        if words and state != "submitted"
    ]


@pytest.mark.parametrize(("faulty", "state"), known_states(), indirect=["faulty"])
async def test_the_schedulers_words_become_our_states(faulty: MadeBed, state: str) -> None:
    bed = faulty()
    handle = await bed.scheduler().submit(bed.run(), join_text())
    bed.turn(state)
    assert (await bed.scheduler().describe(bed.run(), handle)).state == state


async def test_a_word_that_the_profile_does_not_know_is_unknown_and_is_told(
    faulty: MadeBed,
) -> None:
    bed = faulty("no-word")
    handle = await bed.scheduler().submit(bed.run(), join_text())
    found = await bed.scheduler().describe(bed.run(), handle)
    assert found.state is SlotState.UNKNOWN
    assert ODD_WORD in found.detail


@pytest.mark.parametrize("fault", ["colours", "warning", "slow"])
async def test_the_id_is_read_whatever_else_is_printed(faulty: MadeBed, fault: str) -> None:
    bed = faulty(fault)
    handle = await bed.scheduler().submit(bed.run(), join_text())
    assert len(bed.made()) == 1
    assert handle in (str(bed.made()[0]["id"]), bed.made()[0]["name"])
    assert (await described(bed, handle, *LIVING)).state in LIVING


async def test_a_worker_run_whose_answer_was_lost_is_found_and_not_made_twice(
    faulty: MadeBed,
) -> None:
    bed = faulty("lost")
    handle = await bed.scheduler().submit(bed.run(), join_text())
    assert [run["name"] for run in bed.made()] == [bed.run().name]
    assert handle in (str(bed.made()[0]["id"]), bed.made()[0]["name"])


async def test_a_worker_run_that_is_listed_late_is_found_and_not_made_twice(
    faulty: MadeBed,
) -> None:
    bed = faulty("lost", "late")
    scheduler = bed.scheduler()
    handle = await scheduler.submit(bed.run(), join_text())
    assert [run["name"] for run in bed.made()] == [bed.run().name]
    assert (await scheduler.describe(bed.run(), handle)).state in LIVING


async def test_a_worker_run_that_is_not_listed_yet_is_not_gone(faulty: MadeBed) -> None:
    bed = faulty("late")
    scheduler = bed.scheduler()
    handle = await scheduler.submit(bed.run(), join_text())
    assert (await scheduler.describe(bed.run(), handle)).state in (SlotState.UNKNOWN, *LIVING)


async def test_a_refused_worker_run_is_an_error_with_the_schedulers_own_words(
    faulty: MadeBed,
) -> None:
    bed = faulty("refuses")
    with pytest.raises(SchedulerError) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert REFUSAL in caught.value.message
    assert caught.value.hint
    assert bed.made() == []


async def test_a_command_that_ends_with_0_and_makes_nothing_has_submitted_nothing(
    faulty: MadeBed,
) -> None:
    bed = faulty("nothing")
    with pytest.raises(SchedulerError) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert bed.run().name in caught.value.message
    assert bed.made() == []


async def test_a_command_that_is_missing_is_named(faulty: MadeBed) -> None:
    bed = faulty(installed=False)
    with pytest.raises(SchedulerError) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    program = profile_of(bed).commands()[0]
    assert caught.value.message == f"slot 1: the command '{program}' is not on this machine"
    assert str(bed.bin) in caught.value.hint


async def test_a_scheduler_that_does_not_answer_says_nothing_of_its_runs(faulty: MadeBed) -> None:
    bed = faulty()
    handle = await bed.scheduler().submit(bed.run(), join_text())
    bed.faults.add("down")
    for work in (
        bed.scheduler().describe(bed.run(), handle),
        bed.scheduler().find(bed.run()),
        bed.scheduler().cancel(bed.run(), handle, grace_seconds=0.0),
    ):
        with pytest.raises(SchedulerError) as caught:
            await work
        assert DOWN in caught.value.message


async def test_a_submit_whose_outcome_nobody_tells_is_said_to_be_unknown(faulty: MadeBed) -> None:
    bed = faulty("lost", "down")
    with pytest.raises(SchedulerError) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert LOST in caught.value.message
    assert f"whether worker run {bed.run().name} was made is not known" in caught.value.message
    assert len(bed.made()) == 1


async def test_a_submit_that_is_given_up_leaves_no_process(faulty: MadeBed) -> None:
    before = children()
    bed = faulty("hangs")
    work = asyncio.create_task(bed.scheduler().submit(bed.run(), join_text()))
    deadline = time.monotonic() + LIMIT_SECONDS
    while not bed.calls():
        assert time.monotonic() < deadline, "the command was not called"
        await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert [child for child in children() if child not in before] == []


def profile_of(bed: Bed) -> Any:
    scheduler = bed.scheduler()
    assert isinstance(scheduler, ProfileScheduler)
    return scheduler.profile
