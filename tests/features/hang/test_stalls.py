"""A run in which nothing moves: what it says, what ends it, and what it starts again for."""

from __future__ import annotations

from typing import Any

import pytest

from features.hang.rules import Verdict
from features.hang.stall import (
    again_seconds,
    found_in,
    is_overdue,
    noted,
    stop_asked,
)
from rendezvous.run import events
from rendezvous.run.views import event_line
from rendezvous.wire.evidence import Clue, Evidence, RankEnd
from rendezvous.wire.run import Phase, Standing, Suspect
from tests.features.hang.driving import Judged, running
from tests.features.hang.runs import REDUCE, One, late, waits
from tests.support.driver import OF_RANKS, Drive, skewed

SENTENCE = "1 of 2 ranks waits in all_reduce #26; rank 1 has not called it"


def find(run: Judged, *, at_work: bool = False) -> str:
    """Looks have found what all wait for; what is said of it."""
    assert run.quiet_since is not None
    verdict = Verdict(
        "behind", SENTENCE, next_step="see what it does", certain=True, odd=(1,), odd_count=1
    )
    drive = run.drive
    return drive.apply(noted(drive.run, run.silences, verdict, at_work, drive.now)).reason


def overdue_now(run: Judged, worked_at: float | None = None) -> bool:
    """Whether the programs are to be ended, if a look finds what they wait for."""
    return is_overdue(run.drive.run, run.silences, run.drive.now, worked_at)


def reason(run: Judged) -> str:
    """What the run says that it does."""
    return run.status().reason


def stopped(drive: Drive) -> None:
    """All programs have been ended."""
    for slot in sorted(drive.run.waiting_for):
        drive.exit(slot, 143, stopped=True)


def test_a_run_is_quiet_when_nothing_moves_on_any_node() -> None:
    run = running()
    run.quiet(0)
    assert run.quiet_since is None
    assert reason(run) == "running on 2 nodes"
    run.wait(10)
    run.quiet(1, seconds=125.0)
    assert run.quiet_since == run.drive.now - 125.0
    words = (
        "running on 2 nodes; nothing has moved for 2 min; 'rdzv look r' shows where each rank is"
    )
    assert reason(run) == words.replace("look r'", f"look {run.drive.run.id}'")
    run.quiet(0, seconds=None)
    assert run.quiet_since is None


def unjudged(run: Judged, passed: str) -> str:
    name = run.drive.run.id
    return f"no output and no collective for {passed}; 'rdzv look {name}' shows where each rank is"


def test_a_silence_before_the_first_collectives_is_said_once_and_judged_by_nobody() -> None:
    run = running()
    run.quiet(0, early=True)
    assert run.drive.outcomes[-1].usual
    assert reason(run) == "running on 2 nodes"
    run.wait(10)
    run.quiet(1, early=True)
    assert run.drive.reasons[-1] == unjudged(run, "2 min")
    assert not run.drive.outcomes[-1].usual
    assert run.quiet_since is None
    run.wait(120)
    status = run.status()
    assert status.reason == f"running on 2 nodes; {unjudged(run, '4 min')}"
    assert (status.silence, status.finding) == (unjudged(run, "4 min"), "")
    run.quiet(0, seconds=None)
    assert run.drive.outcomes[-1].usual
    status = run.status()
    assert (status.reason, status.silence) == ("running on 2 nodes", "")


def test_an_early_silence_is_judged_when_every_node_says_so_and_not_said_again() -> None:
    run = running(ends=200.0)
    run.quiet(0, 1, early=True)
    said = len([one for one in run.drive.outcomes if not one.usual])
    run.wait(80)
    run.quiet(0, seconds=200.0)
    assert run.quiet_since is None
    assert not overdue_now(run)
    run.quiet(1, seconds=200.0)
    assert run.quiet_since == run.drive.now - 200.0
    assert overdue_now(run)
    assert len([one for one in run.drive.outcomes if not one.usual]) == said


def test_nodes_that_have_ended_are_not_asked_and_of_a_led_run_only_the_first_one() -> None:
    run = running(3)
    run.drive.exit(2, 0)
    run.quiet(0, 1)
    assert run.quiet_since is not None
    led = running(2, led=True)
    led.quiet(0)
    assert led.quiet_since is not None


def test_nothing_is_quiet_while_the_programs_are_being_stopped() -> None:
    run = running()
    run.quiet(0, 1)
    run.drive.exit(0, 3)
    assert run.quiet_since is None


def test_what_was_found_is_said_once_and_shown_while_it_lasts() -> None:
    run = running()
    run.quiet(0, 1)
    run.wait(10)
    assert find(run) == f"nothing has moved for 2 min 10 s: {SENTENCE}; try: see what it does"
    assert not run.drive.outcomes[-1].usual
    assert reason(run) == f"running on 2 nodes; nothing has moved for 2 min: {SENTENCE}"
    run.wait(60)
    run.quiet(0, seconds=None)
    assert run.drive.reasons[-1] == "the ranks move again, after 3 min 10 s in which nothing did"
    assert reason(run) == "running on 2 nodes"
    run.quiet(1, seconds=None)
    assert run.drive.outcomes[-1].usual


WAITS, LATE = [waits(), waits()], [waits(), late()]


def looked_at(run: Judged, *nodes: list[One]) -> None:
    """A person has looked, and all nodes have answered."""
    run.looks.ask(run.drive.run, run.drive.now)
    run.answer(*(nodes or (WAITS, LATE)))
    run.sweep()


def hangs(run: Judged, seconds: float = 0.0) -> None:
    """The registry's own looks find the same rank for so long."""
    for _ in range(3):
        run.answer(WAITS, LATE)
        run.wait(10)
        run.sweep()
    run.wait(seconds)


def test_a_hang_before_the_first_collectives_names_the_rank_and_is_no_stall() -> None:
    run = running(ends=1_000.0)
    run.quiet(0, 1, early=True)
    hangs(run, 90.0)
    assert run.drive.reasons[-1].startswith("no output and no collective for 2 min 20 s: 3 of 4")
    assert "rank 3 (node 1, host1) has not called it: it is in load_batch" in run.drive.reasons[-1]
    status = run.status()
    assert status.finding == ""
    assert status.silence.startswith("no output and no collective for 4 min: 3 of 4 ranks have")
    assert not run.drive.run.stop
    run.quiet(0, 1)
    run.answer(WAITS, LATE)
    run.sweep()
    assert run.drive.reasons[-1].startswith("nothing has moved for 4 min: 3 of 4 ranks have waited")


def found_at_its_end(run: Judged) -> Standing | None:
    """What the result of the run says, which a person ends now."""
    run.drive.cancelled()
    result = run.drive.run.result
    assert result is not None
    return result.finding


def test_what_was_found_and_is_not_over_is_in_the_result_of_a_run_that_a_person_ends() -> None:
    run = running()
    run.quiet(0, 1)
    hangs(run, 60.0)
    found = found_at_its_end(run)
    assert found is not None
    assert found.words == (
        "until then nothing had moved for 3 min 30 s: 3 of 4 ranks wait in all_reduce #21; "
        "rank 3 (node 1, host1) has not called it: it is in "
        "load_batch (hang.py:3)"
    )
    assert found.next_step.startswith("see what this rank does there")
    assert run.drive.run.result is not None
    assert run.drive.run.result.hint.endswith(f"rdzv logs {run.drive.run.id} --rank 3")
    assert found.stacks[0] == "rank 3: load_batch (hang.py:3), <module> (hang.py:30)"
    assert len(found.stacks) == 2


def test_a_failure_that_blames_nobody_has_what_was_found_before() -> None:
    run = running()
    run.quiet(0, 1)
    hangs(run)
    line = "RuntimeError: Connection closed by peer"
    for slot in (0, 1):
        clue = Clue(id="peer_gone", line=line, rank=2 * slot, raised=True, last=True)
        end = RankEnd(rank=2 * slot, exit_code=1, ended=0.1)
        run.drive.exit(slot, 1, evidence=Evidence(ranks=[end], clues=[clue]))
    result = run.drive.wait(3.0).result
    assert (result.status, result.certain) == ("failed", False)
    assert result.finding is not None
    assert "rank 3 (node 1, host1) has not called it" in result.finding.words


def test_a_look_of_a_person_is_in_the_result_with_its_age() -> None:
    run = running()
    looked_at(run)
    run.wait(20)
    found = found_at_its_end(run)
    assert found is not None
    assert found.words.startswith(
        "a look 20 s before had found: 3 of 4 ranks have waited 4 min in all"
    )


def test_two_looks_of_a_person_show_together_that_a_rank_has_ended() -> None:
    run, gone = running(), One((), None, "absent", "")
    seen = One((), REDUCE, "none", stage="unknown")
    for _ in range(2):
        looked_at(run, [seen, seen], [seen, gone])
        run.wait(10)
    found = found_at_its_end(run)
    assert found is not None
    assert (
        "had found: rank 3 (node 1, host1) has ended; 3 of 4 ranks wait for others" in found.words
    )


def test_what_is_over_is_in_no_result() -> None:
    run = running()
    looked_at(run)
    run.quiet(0, 1)
    run.quiet(0, seconds=None)
    assert found_at_its_end(run) is None
    run = running()
    looked_at(run)
    run.wait(200)
    run.sweep()
    assert found_at_its_end(run) is None
    run = running()
    run.looks.ask(run.drive.run, run.drive.now)
    run.answer(WAITS, WAITS)
    run.sweep()
    run.drive.exit(0, 0)
    run.drive.exit(1, 0)
    assert run.drive.run.result is not None
    assert run.drive.run.result.finding is None


def test_whom_the_others_wait_for_is_told_apart_from_the_sentence() -> None:
    run = running()

    def suspect() -> Suspect | None:
        return run.status().suspect

    assert suspect() is None
    run.quiet(0, 1)
    assert suspect() is None  # it is not looked into yet
    find(run)
    assert suspect() == Suspect(slot=1, rank=1)
    run.quiet(0, seconds=None)
    assert suspect() is None


def test_who_is_at_work_is_no_stall() -> None:
    run = running()
    run.quiet(0, 1)
    assert find(run, at_work=True) == f"nothing has moved for 2 min: {SENTENCE}"
    assert run.drive.outcomes[-1].usual


def test_no_run_is_overdue_for_which_nobody_has_given_a_time() -> None:
    run = running()
    run.quiet(0, 1, seconds=9_000.0)
    assert not overdue_now(run)


def test_the_time_counts_from_the_last_movement_and_the_last_work() -> None:
    run = running(ends=300.0)
    run.quiet(0, 1)
    run.wait(179.75)
    assert not overdue_now(run)
    run.wait(0.25)
    assert overdue_now(run)
    worked_at = run.drive.now
    run.wait(299.75)
    assert not overdue_now(run, worked_at)
    run.wait(0.25)
    assert overdue_now(run, worked_at)


def test_the_second_look_comes_sooner_where_the_time_is_short() -> None:
    times = [None, 600.0, 16.0, 4.0]
    runs = [running(ends=seconds).drive.run for seconds in times]
    assert [again_seconds(run, 5.0) for run in runs] == [10.0, 10.0, 8.0, 5.0]


def overdue(**changes: Any) -> Judged:
    """A run whose programs are being ended for a stall."""
    run = running(ends=120.0, **changes)
    run.quiet(0, 1)
    find(run)
    run.drive.apply(stop_asked(run.drive.run.notes["hang"], run.drive.now))
    return run


def test_a_stall_that_lasts_too_long_ends_the_run_with_its_sentence() -> None:
    run = overdue()
    assert run.drive.run.stop
    words = "the programs are stopped, because nothing has moved for 2 min"
    assert run.drive.reasons[-1] == f"{words}: {SENTENCE}"
    assert reason(run) == f"stalled: {SENTENCE}; the programs are being stopped"
    stopped(run.drive)
    result = run.drive.result
    assert (result.status, result.exit_code, result.code) == ("failed", 89, "stalled")
    assert result.message == f"stalled: {SENTENCE}"
    assert (result.cause, result.certain, result.rank) == ("stalled", True, 1)
    assert (result.slot, result.node, result.hostname) == (1, 1, "host1")
    assert result.hint == "see what it does"


def test_a_node_that_moves_while_it_is_being_stopped_takes_nothing_back() -> None:
    run = overdue()
    run.quiet(0, seconds=None)
    stopped(run.drive)
    assert run.drive.result.code == "stalled"


def test_a_stall_counts_as_a_failure_for_restarts() -> None:
    run = overdue(max_restarts=1)
    stopped(run.drive)
    assert run.drive.phase is Phase.ARMING
    (end,) = run.drive.run.starts.ended
    assert (end.code, end.message, end.exit_code) == ("stalled", f"stalled: {SENTENCE}", 89)
    assert (end.cause, end.rank, end.hostname) == ("stalled", 1, "host1")
    assert end.then == "restart 1 of 1 at once"
    run.drive.arm()
    assert run.quiet_since is None
    assert (run.drive.run.notes, run.drive.run.stop_asked) == ({}, None)
    run.quiet(0, 1)
    find(run)
    run.drive.apply(stop_asked(run.drive.run.notes["hang"], run.drive.now))
    stopped(run.drive)
    assert run.drive.result.message == f"stalled: {SENTENCE}; the only restart is used up"


def test_no_restart_follows_on_nodes_that_are_gone() -> None:
    run = overdue(max_restarts=3)
    run.drive.exit(0, 143, stopped=True, leaves=True)
    stopped(run.drive)
    assert run.drive.result.code in ("stalled", "node_lost")


def test_a_program_that_fails_by_itself_meanwhile_is_the_cause() -> None:
    run = overdue()
    run.drive.exit(1, 3, rank=1)
    run.drive.exit(0, 143, stopped=True)
    assert run.drive.result.code == "program_failed"


def test_what_another_version_has_noted_is_nothing_that_is_known() -> None:
    run = running()
    run.quiet(0, 1)
    note = events.Noted(feature="hang", words="something was found", data={"where": "rank 1"})
    run.drive.apply(note)
    assert found_in(run.drive.run) is None
    assert run.status().features == {"hang": note.data}


@pytest.mark.parametrize("slot", range(1, 4))
def test_a_stall_is_at_the_node_of_its_rank(slot: int) -> None:
    run = Judged(skewed())
    run.quiet(*range(4))
    rank, drive = OF_RANKS[slot][-1], run.drive
    verdict = Verdict("behind", f"rank {rank} is behind", odd=(rank,), odd_count=1)
    found = noted(drive.run, run.silences, verdict, at_work=False, now=drive.now)
    drive.apply(found)
    stall = found_in(drive.run)
    assert stall is not None
    assert (stall.slot, stall.rank, drive.now - stall.since) == (slot, rank, 120.0)
    line = event_line(drive.run, 9, found, drive.outcomes[-1], drive.now)
    assert (line.slot, line.epoch) == (slot, 4)
