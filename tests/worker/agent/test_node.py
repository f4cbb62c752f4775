"""The machine as a whole: one life from the join to the end, and the sentences of its notices."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

import worker.agent
from rendezvous.wire.reports import ExitReport
from tests.worker.agent.drive import OK, PROGRAM, arming, joined, joining, running, verifying
from worker.agent.actions import (
    Action,
    Arm,
    CloseClient,
    CloseSocket,
    End,
    Flush,
    Join,
    RemoveHosts,
    Start,
    Tell,
    Visit,
    Watch,
)
from worker.agent.inputs import Armed, Late, ProgramGone, Started, Visited
from worker.agent.notices import Note, notice, text_of
from worker.program.ending import Ending


def names(actions: tuple[Action, ...]) -> list[str]:
    """The actions by their kinds."""
    return [type(action).__name__ for action in actions]


def test_a_life_in_order() -> None:
    drive = joined()
    assert names(drive.verify()) == ["Say", "Watch", "Visit"]
    assert names(drive.answer(Visit, Visited, (OK,), 0.1)) == ["Say", "Tell"]
    assert names(drive.taken()) == []
    assert names(drive.arm()) == ["Watch", "Arm"]
    assert names(drive.answer(Arm, Armed, PROGRAM)) == ["Tell"]
    assert names(drive.taken()) == []
    assert names(drive.go()) == ["Watch", "StopListening", "SendMetrics", "Say", "Start"]
    assert names(drive.feed(Started(drive.program))) == []
    assert names(drive.stop()) == ["Watch", "Stop"]
    assert names(drive.answer(Start, ProgramGone, Ending(143, 0.0))) == ["Say", "Flush"]
    assert names(drive.answer(Flush)) == ["Tell"]
    assert names(drive.taken()) == []
    assert names(drive.result()) == ["Watch", "Drop", "Say", "StopListening", "CloseSocket"]
    assert names(drive.answer(CloseSocket)) == ["Tell"]
    assert names(drive.answer(Tell)) == ["CloseClient"]
    assert names(drive.answer(CloseClient)) == ["RemoveHosts"]
    assert drive.answer(RemoveHosts) == (End(3),)
    assert not drive.node.effects


def test_an_input_of_an_effect_that_is_over_or_was_dropped_is_ignored() -> None:
    drive = running()
    drive.stop()
    drive.gone(Ending(143, 0.0))
    before = drive.node
    assert drive.feed(ProgramGone(drive.program, Ending(0, 0.0))) == ()
    assert drive.feed(Late(2)) == ()
    assert drive.node == before


def test_an_answer_that_fits_no_question_ends_nothing_and_begins_nothing() -> None:
    for kind, drive in [
        (Watch, joined()),
        (Visit, verifying()),
        (Arm, arming()),
        (Start, running()),
        (Join, joining()),
    ]:
        assert drive.answer(kind) == ()
        assert drive.node.ends is None


def test_the_time_alone_changes_nothing_while_nothing_is_due() -> None:
    drive = running()
    assert drive.due is None
    before = drive.node
    assert drive.after(10_000.0) == ()
    assert drive.node == before


def test_of_what_is_due_the_first_counts() -> None:
    drive = running()
    drive.gone(Ending(1, 0.0))
    drive.answer(Flush)
    (tell,) = drive.all(Tell)
    assert isinstance(tell.report, ExitReport)
    drive.now = 5.0
    drive.result()
    drive.now = 6.0
    assert drive.due == 8.0


# --- sentences ------------------------------------------------------------------------------------

CHOSEN = {Note.TOLD, Note.WARNED, Note.RUN_ENDING, Note.AGENT_ENDING}
"""Notes that are also chosen first and filled in later; the other tests render them."""


def _id_of(value: object) -> str:
    return " ".join(sorted(value)) if isinstance(value, frozenset) else str(value)[:40]


def uses() -> list[tuple[Note, frozenset[str], str]]:
    """Where a note is named together with its values: which, their names, and the place."""
    found = []
    for file in sorted(Path(worker.agent.__path__[0]).glob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if not isinstance(call, ast.Call):
                continue
            given = frozenset(keyword.arg or "**" for keyword in call.keywords)
            found += [
                (Note[arg.attr], given, f"{file.name}:{call.lineno}")
                for arg in call.args
                if isinstance(arg, ast.Attribute) and ast.unparse(arg.value) == "Note"
            ]
    return found


def fields(note: Note) -> set[str]:
    """The names of the values in a sentence."""
    return {name for _, name, _, _ in string.Formatter().parse(note.words) if name}


@pytest.mark.parametrize(("note", "given", "place"), uses(), ids=_id_of)
def test_a_sentence_is_given_the_values_that_it_names(
    note: Note, given: frozenset[str], place: str
) -> None:
    assert given == fields(note), place


def test_every_sentence_is_used() -> None:
    assert {note for note, _, _ in uses()} | CHOSEN == set(Note)


def test_no_sentence_stands_twice_under_one_level() -> None:
    assert len(Note) == len(Note.__members__)


@pytest.mark.parametrize("note", Note)
def test_every_sentence_can_be_said_and_has_a_level(note: Note) -> None:
    numbers = {"left", "seconds"}
    given = {name: 1.5 if name in numbers else f"<{name}>" for name in fields(note)}
    said = text_of(notice(note, **given))
    assert all(f"<{name}>" in said for name in fields(note) - numbers)
    assert note.level in (10, 20, 30)


def test_a_value_may_be_a_notice_itself() -> None:
    inner = notice(Note.RUN_WAITS, reason="2 of 2 nodes run")
    assert text_of(notice(Note.RUN_ENDING, said=inner)) == "the run is ending: 2 of 2 nodes run"


def test_a_notice_is_the_same_when_only_the_time_in_it_has_passed() -> None:
    one = notice(Note.CANNOT_JOIN_YET, left=5.0, problem="yes")
    assert one.same_but_for_times(notice(Note.CANNOT_JOIN_YET, left=4.0, problem="yes"))
    assert not one.same_but_for_times(notice(Note.CANNOT_JOIN_YET, left=5.0, problem="no"))
    assert not one.same_but_for_times(notice(Note.REGISTRY_SILENT, left=5.0, problem="yes"))
    assert not one.same_but_for_times(None)
    waits = notice(Note.RUN_WAITS, 7, reason="waiting, 9 s left")
    assert waits.same_but_for_times(notice(Note.RUN_WAITS, 7, reason="waiting, 8 s left"))
    assert not waits.same_but_for_times(notice(Note.RUN_WAITS, 8, reason="waiting, 9 s left"))
