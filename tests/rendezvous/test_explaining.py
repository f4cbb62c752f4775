"""What a scheduler says of a failed run's worker runs once they have ended, by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rendezvous.run.views import node_view
from rendezvous.wire.run import Phase, Result, SlotState
from tests.support.driver import Drive, in_phase, make_spec


def lost() -> Drive:
    drive = in_phase(Phase.RUNNING, 3).wait(17, silent=[1])
    drive.stop(0, 2)
    return drive


def killed() -> Drive:
    return failed(137)


def failed(code: int = 3) -> Drive:
    drive = in_phase(Phase.RUNNING, 2)
    drive.fail(1, code)
    return drive


def two_lost() -> Drive:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 137)
    drive.wait(30, silent=[2])
    drive.stop(0)
    return drive


def ended_well() -> Drive:
    drive = in_phase(Phase.RUNNING, 2)
    drive.end_well(0, 1)
    return drive


def cancelled() -> Drive:
    drive = in_phase(Phase.RUNNING, 2)
    drive.cancelled()
    drive.stop(0, 1)
    return drive


def running() -> Drive:
    return in_phase(Phase.RUNNING, 2)


PREEMPTED: dict[str, Any] = {"cause": "preempted", "detail": "spot reclaimed"}
TIMED_OUT: dict[str, Any] = {"detail": "TIMEOUT: n1"}
TAKEN = "; the scheduler preempted its worker run: spot reclaimed"


def explained(
    make: Callable[[], Drive], slot: int, said: dict[str, Any], generation: int = 1
) -> Result | None:
    """The result that a status has; None where it is as it was."""
    drive = make()
    before = drive.result
    drive.news(slot, SlotState.FAILED, generation, explains=True, **said)
    assert drive.run.result == before  # as its nodes have learnt it
    assert node_view(drive.run, drive.now, 2.5).result == before
    shown = drive.status().result
    return None if shown == before else shown


@pytest.mark.parametrize(
    ("make", "slot", "said", "words"),
    [
        (lost, 1, PREEMPTED, TAKEN),
        (killed, 1, PREEMPTED, TAKEN),
        (failed, 1, PREEMPTED, TAKEN),
        (
            two_lost,
            2,
            PREEMPTED,
            "; the scheduler preempted the worker run of slot 2: spot reclaimed",
        ),
        (lost, 1, TIMED_OUT, "; the scheduler reports: TIMEOUT: n1"),
        (killed, 1, TIMED_OUT, "; the scheduler reports: TIMEOUT: n1"),
    ],
)
def test_late_words_complete_the_result(
    make: Callable[[], Drive], slot: int, said: dict[str, Any], words: str
) -> None:
    before, found = make().result, explained(make, slot, said)
    assert found is not None
    assert found.message == before.message + words
    preempted = "cause" in said
    assert (found.code == "preempted", found.exit_code == 88) == (preempted, preempted)
    assert (found.slot, found.status) == (before.slot, "failed")


@pytest.mark.parametrize(
    ("make", "slot", "said", "generation"),
    [
        (failed, 1, TIMED_OUT, 1),  # an exit code of its own leaves nothing open
        (killed, 0, TIMED_OUT, 1),  # it is not the slot that failed
        (killed, 0, PREEMPTED, 1),
        (killed, 1, {}, 1),
        (lost, 1, PREEMPTED, 2),
        (ended_well, 1, PREEMPTED, 1),
        (cancelled, 1, PREEMPTED, 1),
        (running, 1, PREEMPTED, 1),
    ],
)
def test_what_explains_nothing_changes_nothing(
    make: Callable[[], Drive], slot: int, said: dict[str, Any], generation: int
) -> None:
    drive = make()
    events = len(drive.journal)
    drive.news(slot, SlotState.FAILED, generation, explains=True, **said)
    assert len(drive.journal) == events
    assert drive.run.explained is None


def test_the_first_explanation_stays() -> None:
    drive = lost()
    drive.news(1, SlotState.FAILED, explains=True, **PREEMPTED)
    drive.news(1, SlotState.FAILED, explains=True, **TIMED_OUT)
    assert drive.status().result == drive.run.explained
    assert drive.run.explained is not None
    assert drive.run.explained.message.endswith(TAKEN)


def test_what_to_try_about_a_submission_that_failed_is_in_the_result() -> None:
    drive = Drive(make_spec(2, submit_retries=0)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.FAILED, detail="no such partition", hint="see sinfo")
    assert (drive.result.code, drive.result.hint) == ("scheduler_failed", "see sinfo")
