"""The silences that the registry keeps of nodes, and the lines that it writes of them."""

from __future__ import annotations

from typing import Any

import pytest

from features.hang.wire import QuietReport
from rendezvous.run.events import Event, Noted
from rendezvous.wire.run import Phase
from tests.features.hang.driving import Judged, report_of, running
from tests.features.hang.runs import late, waits

WAITS, LATE = [waits(), waits()], [waits(), late()]


def silent(run: Judged, *slots: int, seconds: float = 120.0, early: bool = False) -> None:
    """Nothing moves on these nodes, which tell it between two sweeps."""
    for slot in slots:
        epoch = run.drive.run.epoch
        run.send(slot, QuietReport(epoch=epoch, seconds=seconds, early=early))


def moves(run: Judged, *slots: int) -> None:
    """Something moves on these nodes again, which tell it between two sweeps."""
    for slot in slots:
        run.send(slot, QuietReport(epoch=run.drive.run.epoch))


def lines(run: Judged) -> list[str]:
    """What the next sweep says, where a person is to read it with a ! before it."""
    return ["!" * (not one.usual) + one.words for one in run.sweep() if isinstance(one, Noted)]


def found(*, nodes: int = 2, **changes: Any) -> Judged:
    """A run in which looks have found what all wait for."""
    run = running(nodes, **changes)
    silent(run, *range(nodes))
    for _ in range(12):
        run.sweep()
        run.answer(WAITS, LATE)
        run.wait(1.0)
    assert "hang" in run.drive.run.notes
    return run


# --- what is kept ---------------------------------------------------------------------------------


def test_what_is_sent_anew_began_when_it_began_however_long_it_was_on_its_way() -> None:
    run = running()
    silent(run, 0, 1)
    since = run.quiet_since
    for late_by in (4.0, 0.0, 9.0, 40.0, -20.0):  # the registry's clock may have stood still
        run.wait(60.0 + late_by)
        silent(run, 0, 1, seconds=run.drive.now - (since or 0.0) - late_by)
        assert run.quiet_since == since


def test_a_silence_that_began_later_is_another_one_also_where_the_movement_was_not_heard_of() -> (
    None
):
    run = running()
    silent(run, 0, 1)
    run.wait(300.0)
    run.send(0, QuietReport(epoch=run.drive.run.epoch, seconds=130.0, number=1))
    silent(run, 1, seconds=420.0)
    assert run.quiet_since == run.drive.now - 130.0


def test_a_node_that_says_nothing_any_more_is_not_silent_for_ever() -> None:
    run = found()
    run.sweep()
    run.wait(60.0)
    run.drive.wait(121.0)
    run.send(1, QuietReport(epoch=run.drive.run.epoch, seconds=300.0))
    assert lines(run) == ["node 0 (host0): it is not known any more whether anything moves"]
    assert set(run.silences) == {1}
    assert (run.status().finding, run.quiet_since) == ("", None)
    assert lines(run) == []
    run.wait(300.0)
    assert lines(run) == []
    run.send(0, QuietReport(epoch=run.drive.run.epoch, seconds=900.0))
    assert run.quiet_since is not None


def test_what_an_epoch_before_sends_late_counts_for_nothing() -> None:
    run = running(max_restarts=1)
    silent(run, 0, 1)
    run.sweep()
    for slot in (0, 1):
        run.drive.exit(slot, 3)
    run.drive.arm()
    assert run.drive.phase is Phase.RUNNING
    assert run.silences == {}
    assert lines(run) == []
    silent(run, 0, 1)
    assert set(run.silences) == {0, 1}
    for seconds in (None, 500.0):
        run.send(0, QuietReport(epoch=1, seconds=seconds))
        assert run.silences[0].since == run.drive.now - 120.0


# --- the lines that are written -------------------------------------------------------------------


def test_nodes_that_say_so_together_are_one_line() -> None:
    run = running(5)
    silent(run, 0, 1, 2, 3)
    assert lines(run) == [
        "node 0 (host0), node 1 (host1), node 2 (host2) and 1 more: nothing has moved for 2 min"
    ]
    assert run.drive.outcomes[-1].slot is None
    moves(run, 1)
    assert lines(run) == ["node 1 (host1): its ranks move again"]
    assert run.drive.outcomes[-1].slot == 1
    moves(run, 0, 3)
    assert lines(run) == ["node 0 (host0), node 3 (host3): their ranks move again"]
    assert lines(run) == []


def test_a_node_that_sends_anew_is_no_news() -> None:
    run = running()
    silent(run, 0)
    assert len(lines(run)) == 1
    run.wait(30.0)
    silent(run, 0, seconds=150.0)
    assert lines(run) == []


def test_an_early_silence_that_is_judged_later_has_not_moved_in_between() -> None:
    run = running()
    silent(run, 0, 1, early=True)
    [words] = lines(run)
    assert words.startswith("!no output and no collective for 2 min; 'rdzv look ")
    run.wait(1_680.0)
    silent(run, 0, seconds=1_800.5)
    assert lines(run) == ["node 0 (host0): nothing has moved for 30 min"]
    assert run.quiet_since is None
    silent(run, 1, seconds=1_800.5)
    assert lines(run) == ["node 1 (host1): nothing has moved for 30 min"]
    assert run.quiet_since == run.drive.now - 1_800.0


def test_an_early_silence_of_all_after_a_movement_between_two_sweeps_is_said_again() -> None:
    run = running()
    silent(run, 0, 1, early=True)
    assert len(lines(run)) == 1
    run.wait(240.0)
    moves(run, 0)
    silent(run, 0, seconds=200.0, early=True)
    again, unjudged = lines(run)
    assert again == "node 0 (host0): its ranks move again"
    assert unjudged.startswith("!no output and no collective for 3 min")


def test_a_program_that_ends_has_not_moved_again() -> None:
    run = found()
    for slot in (0, 1):
        run.drive.exit(slot, 0)
        assert [words for words in lines(run) if "move" in words] == []
    assert not any("move again" in words for words in run.drive.reasons)


def test_the_end_of_the_programs_for_another_cause_is_no_movement() -> None:
    """Nor long after the registry was started, when nodes would have sent anew."""
    run = found()
    run.wait(300.0)
    run.drive.exit(0, 3)
    assert run.drive.run.stop
    assert run.status().finding == ""
    assert lines(run) == []
    assert "hang" in run.drive.run.notes


def test_of_a_led_run_the_nodes_that_run_no_program_take_nothing_back() -> None:
    run = running(2, led=True)
    silent(run, 0)
    for _ in range(12):
        run.sweep()
        run.answer(WAITS, LATE)
        run.wait(1.0)
    assert "hang" in run.drive.run.notes
    run.wait(300.0)
    assert lines(run) == []


@pytest.mark.parametrize("between", [False, True])
def test_a_movement_takes_back_what_was_found_also_where_another_node_is_silent_then(
    between: bool,
) -> None:
    run = found(nodes=2)
    moves(run, 0)
    if between:
        silent(run, 0, seconds=1.0)
    first, *more = lines(run)
    assert first == "!the ranks move again, after 2 min 12 s in which nothing did"
    assert more == ["node 0 (host0): nothing has moved for 1.0 s"] * between
    assert run.drive.run.notes == {}
    assert lines(run) == []


def test_what_was_found_is_left_by_what_is_said_beside_it() -> None:
    run = found(nodes=2, ends=1_000.0)
    noted = run.drive.run.notes["hang"].data
    run.drive.apply(Noted(feature="hang", words="beside", usual=True, data=noted))
    silent(run, 0, seconds=132.0, early=True)
    assert lines(run) == ["node 0 (host0): nothing has moved for 2 min 12 s"]
    assert run.drive.run.notes["hang"].data == noted


def test_a_finding_that_was_not_kept_is_noted_again() -> None:
    """The journal could not be written, and the same is found at the next look."""
    run = running()
    silent(run, 0, 1)
    dropped, kept = list[Event](), list[Event]()
    for _ in range(80):
        events = run.judge.events(run.drive.run, run.drive.now)
        if any("rank 3" in one.words for one in events if isinstance(one, Noted)):
            (kept if dropped else dropped).extend(events)
        run.answer(WAITS, LATE)
        run.wait(1.0)
    assert [one.kind for one in (*dropped, *kept)] == ["noted", "noted"]


# --- a registry that is started again -------------------------------------------------------------


def test_a_registry_that_is_started_again_knows_the_silences_once_they_are_sent_anew() -> None:
    run = found()
    words = run.status().reason
    assert "nothing has moved for 2 min: 3 of 4 ranks" in words
    after = run.restarted()
    assert lines(after) == []
    assert after.status().reason == "running on 2 nodes"
    after.wait(29.0)
    assert lines(after) == []
    silent(after, 0, 1, seconds=161.0)
    assert lines(after) == ["node 0 (host0), node 1 (host1): nothing has moved for 2 min 41 s"]
    assert after.quiet_since == run.quiet_since
    assert after.status().reason == words
    number = after.looks.open(after.drive.now)
    assert number is not None
    after.looks.take(0, report_of(0, WAITS, number.number), after.drive.now)


def test_what_was_found_before_is_taken_back_where_a_node_has_not_sent_anew() -> None:
    run = found().restarted()
    run.wait(30.0)
    silent(run, 0, seconds=162.0)
    assert lines(run) == ["node 0 (host0): nothing has moved for 2 min 42 s"]
    run.wait(89.5)
    assert lines(run) == []
    run.wait(0.5)
    assert lines(run) == ["!the ranks move again, after 4 min 12 s in which nothing did"]
    assert lines(run) == []
