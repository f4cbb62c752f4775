"""One contract for everything that starts worker runs, with behaving fakes of their commands."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from launcher.plan.plan import HIDDEN
from launcher.schedulers.catalog import SCHEDULERS
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.profile_file import read_profile
from launcher.schedulers.shipped import PROFILES as PROFILES_FOLDER
from rendezvous.wire.errors import SchedulerError, TemplateError
from rendezvous.wire.run import SlotState
from tests.schedulers.behaving import DOWN, LOST, ODD_WORD, REFUSAL
from tests.support.bed import FAKES, OWN, SHIPPED, Bed, join_text

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
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> MadeBed:
    """A bed of each profile in turn, with faults."""
    return lambda *faults: Bed(request.param, tmp_path, set(faults))


async def described(bed: Bed, handle: str, *wanted: SlotState) -> Description:
    """What the scheduler says, as soon as it is one of these states."""
    scheduler = bed.scheduler()
    while (found := await scheduler.describe(bed.run(), handle)).state not in wanted:
        await asyncio.sleep(0.02)
    return found


# ---- every scheduler ----------------------------------------------------------------------------


def test_every_shipped_profile_is_tried_with_a_behaving_fake() -> None:
    assert {*OWN, *SHIPPED} <= {path.stem for path in FAKES.glob("*.py")}


def test_preparing_does_nothing_and_shows_no_secret(bed: Bed) -> None:
    scheduler, run = bed.scheduler(), bed.run()
    before = copy.deepcopy(run)
    hidden = scheduler.prepare(run, HIDDEN)
    with_secret = scheduler.prepare(run, join_text())
    assert hidden == with_secret.replace(join_text(), HIDDEN) == scheduler.prepare(run, HIDDEN)
    assert join_text() not in hidden
    assert run == before
    assert not bed.submissions.exists()
    assert bed.calls() == []
    assert scheduler.name == bed.name
    assert scheduler.poll_seconds > 0


async def test_worker_runs_are_submitted_described_found_and_cancelled(bed: Bed) -> None:
    before = psutil.Process().children(recursive=True)
    scheduler = bed.scheduler()
    handles = [await scheduler.submit(bed.run(slot), join_text(slot)) for slot in (1, 2)]
    assert handles[0] != handles[1]
    other = bed.scheduler() if isinstance(scheduler, ProfileScheduler) else scheduler
    assert await other.find(bed.run()) == (handles[0] if other.finds else None)
    await other.cancel(bed.run(), handles[0], grace_seconds=5.0)
    await other.cancel(bed.run(), handles[0], grace_seconds=5.0)
    await described(bed, handles[0], *OVER)
    assert (await scheduler.describe(bed.run(2), handles[1])).state in LIVING
    await scheduler.cancel(bed.run(2), handles[1], grace_seconds=5.0)
    after = psutil.Process().children(recursive=True)
    new = [child for child in after if child not in before]
    assert [child for child in new if child.parent() not in before] == []  # not another test's
    texts = [path.read_text() for path in bed.files()]
    assert [text for text in texts if join_text() in text or join_text(2) in text] == []


async def test_the_newest_lines_of_the_logs_come_where_there_are_any(bed: Bed) -> None:
    scheduler = bed.scheduler()
    handle = await scheduler.submit(bed.run(), join_text())
    lines = [line async for line in scheduler.logs(bed.run(), handle, lines=2, follow=False)]
    assert bool(lines) is scheduler.keeps_logs
    await scheduler.cancel(bed.run(), handle, grace_seconds=5.0)


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


async def test_a_handle_that_the_scheduler_never_had_is_over_and_can_be_cancelled(bed: Bed) -> None:
    scheduler, never = bed.scheduler(), str(bed.folder / "4999999")
    await scheduler.cancel(bed.run(), never, grace_seconds=0.0)
    assert (await scheduler.describe(bed.run(), never)).state is SlotState.ENDED


def test_the_command_that_ends_a_worker_run_by_hand_names_it(bed: Bed) -> None:
    words = bed.scheduler().cancel_words(bed.run(), "4711")
    assert "4711" in words or words == ""
    by_name = bed.scheduler().cancel_words(bed.run(), None)
    assert bed.run().name in by_name if bed.name == "ssh" else by_name == ""


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


def known_states() -> list[tuple[str, str]]:
    """Each profile with each state that it has words for."""
    return [
        (name, state)
        for name in PROFILES
        for state, words in read_profile(OWN.get(name, PROFILES_FOLDER / f"{name}.toml")).states
        if words and state not in ("submitted", "preempted")
    ]


@pytest.mark.parametrize(("faulty", "state"), known_states(), indirect=["faulty"])
async def test_the_schedulers_words_become_our_states(faulty: MadeBed, state: str) -> None:
    bed = faulty()
    handle = await bed.scheduler().submit(bed.run(), join_text())
    bed.turn(state)
    assert (await bed.scheduler().describe(bed.run(), handle)).state == state


@pytest.mark.parametrize(
    ("faults", "states", "words"),
    [
        ("colours", LIVING, ""),
        ("warning", LIVING, ""),
        ("lost", LIVING, ""),
        ("hangs-after", LIVING, ""),
        ("lost late", LIVING, ""),
        ("late", (SlotState.UNKNOWN, *LIVING), ""),
        ("no-word", (SlotState.UNKNOWN,), ODD_WORD),
    ],
)
async def test_whatever_else_happens_one_worker_run_is_made_and_its_id_is_read(
    faulty: MadeBed, faults: str, states: tuple[SlotState, ...], words: str
) -> None:
    bed = faulty(*faults.split())
    scheduler = bed.scheduler()
    handle = await scheduler.submit(bed.run(), join_text())
    assert [run["name"] for run in bed.made()] == [bed.run().name]
    assert handle in (str(bed.made()[0]["id"]), bed.made()[0]["name"])
    found = await scheduler.describe(bed.run(), handle)
    assert found.state in states
    assert words in found.detail


NOT_KNOWN = "rdzv does not know whether worker run rdzv-k7f2a9c1xy-1-1 was made"


@pytest.mark.parametrize(
    ("faults", "words", "made"),
    [
        ("refuses", REFUSAL, 0),
        ("nothing", "gave no id of a worker run", 0),
        ("hangs", "did not answer in time", 0),
        ("lost down", f"{LOST}; {NOT_KNOWN}", 1),
    ],
)
async def test_a_submit_that_comes_to_nothing_is_an_error_with_the_schedulers_own_words(
    faulty: MadeBed, faults: str, words: str, made: int
) -> None:
    bed = faulty(*faults.split())
    with pytest.raises(SchedulerError) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert words in caught.value.message
    assert caught.value.hint
    assert len(bed.made()) == made


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
