"""A run in which nothing moves: what it says, what ends it, and what it starts again for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rendezvous.hang import Verdict
from rendezvous.pace import Straggler
from rendezvous.run import events, stragglers
from rendezvous.run.stalls import (
    again_seconds,
    found_in,
    is_overdue,
    noted,
    quiet_since,
    stop_asked,
)
from rendezvous.run.views import run_status
from rendezvous.wire.reports import QuietReport
from rendezvous.wire.run import Phase, Suspect
from tests.support.driver import Drive, in_phase, make_spec

SENTENCE = "1 of 2 ranks waits in all_reduce #26; rank 1 has not called it"


def running(nodes: int = 2, **changes: Any) -> Drive:
    """A run that goes."""
    return in_phase(Phase.RUNNING, nodes, **changes)


def quiet(drive: Drive, *slots: int, seconds: float | None = 120.0, early: bool = False) -> None:
    """Nothing moves on these nodes, or something does again."""
    for slot in slots:
        drive.report(slot, QuietReport(epoch=drive.run.epoch, seconds=seconds, early=early))


def find(drive: Drive, *, at_work: bool = False) -> str:
    """Looks have found what all wait for; what is said of it."""
    assert quiet_since(drive.run) is not None
    verdict = Verdict(
        "behind", SENTENCE, next_step="see what it does", certain=True, odd=(1,), odd_count=1
    )
    return drive.apply(noted(drive.run, verdict, at_work, drive.now)).reason


def reason(drive: Drive) -> str:
    """What the run says that it does."""
    return run_status(drive.run, drive.now, drive.leases).reason


def stopped(drive: Drive) -> None:
    """All programs have been ended."""
    for slot in sorted(drive.run.waiting_for):
        drive.exit(slot, 143, stopped=True)


def test_a_run_is_quiet_when_nothing_moves_on_any_node() -> None:
    drive = running()
    quiet(drive, 0)
    assert quiet_since(drive.run) is None
    assert reason(drive) == "running on 2 nodes"
    drive.wait(10)
    quiet(drive, 1, seconds=125.0)
    assert quiet_since(drive.run) == drive.now - 125.0
    words = (
        "running on 2 nodes; nothing has moved for 2 min; 'rdzv look r' shows where each rank is"
    )
    assert reason(drive) == words.replace("look r'", f"look {drive.run.id}'")
    quiet(drive, 0, seconds=None)
    assert quiet_since(drive.run) is None


def unjudged(drive: Drive, passed: str) -> str:
    return (
        f"no output and no collective for {passed}; 'rdzv look {drive.run.id}' shows where each "
        "rank is"
    )


def test_a_silence_before_the_first_collectives_is_said_once_and_judged_by_nobody() -> None:
    drive = running()
    quiet(drive, 0, early=True)
    assert drive.outcomes[-1].usual
    assert reason(drive) == "running on 2 nodes"
    drive.wait(10)
    quiet(drive, 1, early=True)
    assert drive.reasons[-1] == unjudged(drive, "2 min")
    assert not drive.outcomes[-1].usual
    assert quiet_since(drive.run) is None
    drive.wait(120)
    status = run_status(drive.run, drive.now, drive.leases)
    assert status.reason == f"running on 2 nodes; {unjudged(drive, '4 min')}"
    assert (status.silence, status.stall) == (unjudged(drive, "4 min"), "")
    quiet(drive, 0, seconds=None)
    assert drive.outcomes[-1].usual
    status = run_status(drive.run, drive.now, drive.leases)
    assert (status.reason, status.silence) == ("running on 2 nodes", "")


def test_an_early_silence_is_judged_when_every_node_says_so_and_not_said_again() -> None:
    drive = running(stall_timeout_seconds=200.0)
    quiet(drive, 0, 1, early=True)
    said = len([one for one in drive.outcomes if not one.usual])
    drive.wait(80)
    quiet(drive, 0, seconds=200.0)
    assert quiet_since(drive.run) is None
    assert not is_overdue(drive.run, drive.now, None)
    quiet(drive, 1, seconds=200.0)
    assert quiet_since(drive.run) == drive.now - 200.0
    assert is_overdue(drive.run, drive.now, None)
    assert len([one for one in drive.outcomes if not one.usual]) == said


def test_one_node_that_moves_is_enough_not_to_say_it() -> None:
    drive = running(3)
    quiet(drive, 0, 1, early=True)
    assert all(
        one.usual for one in drive.outcomes if "quiet" in one.reason or "moved" in one.reason
    )
    assert run_status(drive.run, drive.now, drive.leases).silence == ""


def test_what_a_node_says_again_changes_nothing() -> None:
    drive = running()
    quiet(drive, 0)
    number = drive.run.version
    quiet(drive, 0)
    quiet(drive, 1, seconds=None)
    assert drive.run.version == number


def test_nodes_that_have_ended_are_not_asked_and_of_a_led_run_only_the_first_one() -> None:
    drive = running(3)
    drive.exit(2, 0)
    quiet(drive, 0, 1)
    assert quiet_since(drive.run) is not None
    led = running(2, led=True)
    quiet(led, 0)
    assert quiet_since(led.run) is not None


def test_nothing_is_quiet_while_the_programs_are_being_stopped() -> None:
    drive = running()
    quiet(drive, 0, 1)
    drive.exit(0, 3)
    assert quiet_since(drive.run) is None


def test_what_was_found_is_said_once_and_shown_while_it_lasts() -> None:
    drive = running()
    quiet(drive, 0, 1)
    drive.wait(10)
    assert find(drive) == f"nothing has moved for 2 min 10 s: {SENTENCE}; try: see what it does"
    assert not drive.outcomes[-1].usual
    assert reason(drive) == f"running on 2 nodes; nothing has moved for 2 min: {SENTENCE}"
    drive.wait(60)
    quiet(drive, 0, seconds=None)
    assert drive.reasons[-1] == "the ranks move again, after 3 min 10 s in which nothing did"
    assert reason(drive) == "running on 2 nodes"
    quiet(drive, 1, seconds=None)
    assert drive.outcomes[-1].usual


def test_whom_the_others_wait_for_is_told_apart_from_the_sentence() -> None:
    drive = running()

    def suspect() -> Suspect | None:
        return run_status(drive.run, drive.now, drive.leases).suspect

    assert suspect() is None
    slow = Straggler(slot=0, rank=None, cost=1.0, step=2.0, last=9, of=10)
    drive.apply(stragglers.noted(drive.run, slow))
    assert suspect() == Suspect(slot=0, rank=None, slow=True)
    quiet(drive, 0, 1)
    assert suspect() is None  # that nothing moves is worse, and not looked into yet
    find(drive)
    assert suspect() == Suspect(slot=1, rank=1)
    quiet(drive, 0, seconds=None)
    assert suspect() == Suspect(slot=0, rank=None, slow=True)
    drive.apply(stragglers.noted(drive.run, None))
    assert suspect() is None


def test_who_is_at_work_is_no_stall() -> None:
    drive = running()
    quiet(drive, 0, 1)
    assert find(drive, at_work=True) == f"nothing has moved for 2 min: {SENTENCE}"
    assert drive.outcomes[-1].usual


def test_no_run_is_overdue_for_which_nobody_has_given_a_time() -> None:
    drive = running()
    quiet(drive, 0, 1, seconds=9_000.0)
    assert not is_overdue(drive.run, drive.now, None)


def test_the_time_counts_from_the_last_movement_and_the_last_work() -> None:
    drive = running(stall_timeout_seconds=300.0)
    quiet(drive, 0, 1)
    drive.wait(179.75)
    assert not is_overdue(drive.run, drive.now, None)
    drive.wait(0.25)
    assert is_overdue(drive.run, drive.now, None)
    worked_at = drive.now
    drive.wait(299.75)
    assert not is_overdue(drive.run, drive.now, worked_at)
    drive.wait(0.25)
    assert is_overdue(drive.run, drive.now, worked_at)


def test_the_second_look_comes_sooner_where_the_time_is_short() -> None:
    times = [None, 600.0, 16.0, 4.0]
    runs = [running(stall_timeout_seconds=seconds).run for seconds in times]
    assert [again_seconds(run, 5.0) for run in runs] == [10.0, 10.0, 8.0, 5.0]


def overdue(**changes: Any) -> Drive:
    """A run whose programs are being ended for a stall."""
    drive = running(stall_timeout_seconds=120.0, **changes)
    quiet(drive, 0, 1)
    find(drive)
    drive.apply(stop_asked(drive.run.notes["hang"], drive.now))
    return drive


def test_a_stall_that_lasts_too_long_ends_the_run_with_its_sentence() -> None:
    drive = overdue()
    assert drive.run.stop
    words = "the programs are stopped, because nothing has moved for 2 min"
    assert drive.reasons[-1] == f"{words}: {SENTENCE}"
    assert reason(drive) == f"stalled: {SENTENCE}; the programs are being stopped"
    stopped(drive)
    result = drive.result
    assert (result.status, result.exit_code, result.code) == ("failed", 89, "stalled")
    assert result.message == f"stalled: {SENTENCE}"
    assert (result.cause, result.certain, result.rank) == ("stalled", True, 1)
    assert (result.slot, result.node, result.hostname) == (1, 1, "host1")
    assert result.hint == "see what it does"


def test_a_node_that_moves_while_it_is_being_stopped_takes_nothing_back() -> None:
    drive = overdue()
    quiet(drive, 0, seconds=None)
    stopped(drive)
    assert drive.result.code == "stalled"


def test_a_stall_counts_as_a_failure_for_restarts() -> None:
    drive = overdue(max_restarts=1)
    stopped(drive)
    assert drive.phase is Phase.ARMING
    (end,) = drive.run.starts.ended
    assert (end.code, end.message, end.exit_code) == ("stalled", f"stalled: {SENTENCE}", 89)
    assert (end.cause, end.rank, end.hostname) == ("stalled", 1, "host1")
    assert end.then == "restart 1 of 1 at once"
    drive.arm()
    assert quiet_since(drive.run) is None
    assert (drive.run.notes, drive.run.stop_asked) == ({}, None)
    quiet(drive, 0, 1)
    find(drive)
    drive.apply(stop_asked(drive.run.notes["hang"], drive.now))
    stopped(drive)
    assert drive.result.message == f"stalled: {SENTENCE}; the only restart is used up"


def test_no_restart_follows_on_nodes_that_are_gone() -> None:
    drive = overdue(max_restarts=3)
    drive.exit(0, 143, stopped=True, leaves=True)
    stopped(drive)
    assert drive.result.code in ("stalled", "node_lost")


def test_a_program_that_fails_by_itself_meanwhile_is_the_cause() -> None:
    drive = overdue()
    drive.exit(1, 3, rank=1)
    drive.exit(0, 143, stopped=True)
    assert drive.result.code == "program_failed"


def test_what_another_version_has_noted_is_nothing_that_is_known() -> None:
    drive = running()
    quiet(drive, 0, 1)
    note = events.Noted(feature="hang", words="something was found", data={"where": "rank 1"})
    drive.apply(note)
    assert found_in(drive.run) is None
    assert run_status(drive.run, drive.now, drive.leases).features == {"hang": note.data}


@pytest.mark.parametrize("data", [{"words": "x" * 6_200}, ["\U0001f525" * 1_600]])
def test_a_feature_notes_no_more_than_its_share(data: Any) -> None:
    with pytest.raises(ValidationError, match="at most 6144 bytes of JSON"):
        events.Noted(feature="hang", words="something was found", data=data)


def test_what_features_say_of_a_run_is_bounded() -> None:
    many = {f"feature{number}": "x" * 1_000 for number in range(9)}
    with pytest.raises(ValidationError, match="at most 8192 bytes of JSON"):
        make_spec(2, features=many)
    with pytest.raises(ValidationError, match="at most 16 items"):
        make_spec(2, features={f"feature{number}": 1 for number in range(17)})
    with pytest.raises(ValidationError, match="pattern"):
        make_spec(2, features={"Hang": 1})
