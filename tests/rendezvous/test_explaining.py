"""What a scheduler says of a failed run's worker runs once they have ended, by value."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run.views import node_view, run_status
from rendezvous.wire.run import Result, SlotState
from tests.support.driver import Drive
from tests.support.stories import tell

LOST = "running 3; silent 17 1; stop 0 143; stop 2 143"
KILLED = "running 2; exit 1 137; stop 0 143"
FAILED = "running 2; exit 1 3; stop 0 143"
TWO_LOST = "running 3; exit 1 137; silent 30 2; stop 0 143"
PREEMPTED: dict[str, Any] = {"cause": "preempted", "detail": "spot reclaimed"}
TIMED_OUT: dict[str, Any] = {"detail": "TIMEOUT: n1"}
TAKEN = "; the scheduler preempted its worker run: spot reclaimed"


def after(story: str) -> Drive:
    """The run after these steps."""
    return tell(f"    {story}")


def explained(story: str, slot: int, said: dict[str, Any], generation: int = 1) -> Result | None:
    """The result that a status has; None where it is as it was."""
    drive = after(story)
    before = drive.result
    drive.news(slot, SlotState.FAILED, generation, explains=True, **said)
    assert drive.run.result == before  # as its nodes have learnt it
    assert node_view(drive.run, drive.now, 2.5).result == before
    shown = run_status(drive.run, drive.now, drive.leases).result
    return None if shown == before else shown


@pytest.mark.parametrize(
    ("story", "slot", "said", "words"),
    [
        (LOST, 1, PREEMPTED, TAKEN),
        (KILLED, 1, PREEMPTED, TAKEN),
        (FAILED, 1, PREEMPTED, TAKEN),
        (
            TWO_LOST,
            2,
            PREEMPTED,
            "; the scheduler preempted the worker run of slot 2: spot reclaimed",
        ),
        (LOST, 1, TIMED_OUT, "; the scheduler reports: TIMEOUT: n1"),
        (KILLED, 1, TIMED_OUT, "; the scheduler reports: TIMEOUT: n1"),
    ],
)
def test_late_words_complete_the_result(
    story: str, slot: int, said: dict[str, Any], words: str
) -> None:
    before, found = after(story).result, explained(story, slot, said)
    assert found is not None
    assert found.message == before.message + words
    preempted = "cause" in said
    assert (found.code == "preempted", found.exit_code == 88) == (preempted, preempted)
    assert (found.slot, found.status) == (before.slot, "failed")


@pytest.mark.parametrize(
    ("story", "slot", "said", "generation"),
    [
        (FAILED, 1, TIMED_OUT, 1),  # an exit code of its own leaves nothing open
        (KILLED, 0, TIMED_OUT, 1),  # it is not the slot that failed
        (KILLED, 0, PREEMPTED, 1),
        (KILLED, 1, {}, 1),
        (LOST, 1, PREEMPTED, 2),
        ("running 2; exit 0 0; exit 1 0", 1, PREEMPTED, 1),
        ("running 2; cancel; stop 0 143; stop 1 143", 1, PREEMPTED, 1),
        ("running 2", 1, PREEMPTED, 1),
    ],
)
def test_what_explains_nothing_changes_nothing(
    story: str, slot: int, said: dict[str, Any], generation: int
) -> None:
    drive = after(story)
    events = len(drive.journal)
    drive.news(slot, SlotState.FAILED, generation, explains=True, **said)
    assert len(drive.journal) == events
    assert drive.run.explained is None


def test_the_first_explanation_stays() -> None:
    drive = after(LOST)
    drive.news(1, SlotState.FAILED, explains=True, **PREEMPTED)
    drive.news(1, SlotState.FAILED, explains=True, **TIMED_OUT)
    assert run_status(drive.run, drive.now, drive.leases).result == drive.run.explained
    assert drive.run.explained is not None
    assert drive.run.explained.message.endswith(TAKEN)


def test_what_to_try_about_a_submission_that_failed_is_in_the_result() -> None:
    drive = after("new 2 submit_retries=0; gather 0; news 1 submitting")
    drive.news(1, SlotState.FAILED, detail="no such partition", hint="see sinfo")
    assert (drive.result.code, drive.result.hint) == ("scheduler_failed", "see sinfo")
