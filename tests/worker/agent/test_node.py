"""The machine as a whole: one life from the join to the end, and the sentences of its notices."""

from __future__ import annotations

import ast
import string
from pathlib import Path
from typing import Any

import pytest

import worker.agent
from tests.worker.agent.drive import TAKEN, in_words, m, to
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.notices import Note, notice, text_of
from worker.agent.own_words import own_word, shown_word
from worker.program.ending import Ending

LIFE: list[tuple[Any, str]] = [
    (m.verify(), "RUN_WAITS Watch Visit"),
    (m.visited(), "PEERS_ANSWER Tell:Probe"),
    (TAKEN, ""),
    (m.arm(), "Watch Arm"),
    (m.readied(), "Tell:Ack"),
    (TAKEN, ""),
    (m.go(), "Watch StopListening STARTS Start"),
    (m.started(), ""),
    (m.stop(), "Watch Stop"),
    (m.gone(Ending(143, 0.0)), "TOLD Flush"),
    (m.answer(do.Flush), "Tell:Exit(143,stopped)@0"),
    (TAKEN, ""),
    (m.result(), "Watch Drop:Watch RUN_OVER Leave"),
    (m.answer(do.CloseSocket), "SendWords"),
    (m.answer(do.SendWords), "Tell:Leave:last"),
    (m.answer(do.Tell), "CloseClient"),
    (m.answer(do.CloseClient), "RemoveHosts"),
    (m.answer(do.RemoveHosts), "End:3"),
]


def test_a_life_in_order() -> None:
    drive = to("joined")
    for step, does in LIFE:
        assert in_words(step(drive)) == does
    assert not drive.node.effects


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        ("joined", do.Watch),
        ("verifying", do.Visit),
        ("arming", do.Arm),
        ("running", do.Start),
        ("joining", do.Join),
    ],
)
def test_an_answer_that_fits_no_question_ends_nothing_and_begins_nothing(
    begin: str, kind: Any
) -> None:
    drive = to(begin)
    assert drive.answer(kind) == ()
    assert drive.node.ends is None


def test_what_is_said_of_an_effect_that_nobody_waits_for_changes_nothing() -> None:
    drive = to("running")
    drive.gone(Ending(143, 0.0))
    before = drive.node
    assert drive.feed(inputs.ProgramGone(drive.program, Ending(0, 0.0))) == ()
    assert drive.feed(inputs.Late(2)) == ()
    assert drive.feed(inputs.Done(999)) == ()
    assert drive.node == before


def test_the_time_alone_changes_nothing_while_nothing_is_due() -> None:
    drive = to("running")
    before = drive.node
    assert (drive.due, drive.after(10_000.0)) == (None, ())
    assert drive.node == before


# --- sentences ------------------------------------------------------------------------------------

CHOSEN = {Note.TOLD, Note.WARNED, Note.RUN_ENDING, Note.AGENT_ENDING, Note.FENCE_ENDING}
"""Notes that are also chosen first and filled in later; the other tests render them."""


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


def test_every_sentence_is_used_and_given_the_values_that_it_names() -> None:
    found = uses()
    assert {note for note, _, _ in found} | CHOSEN == set(Note)
    assert [(note, place) for note, given, place in found if given != fields(note)] == []
    assert len(Note) == len(Note.__members__)  # none stands twice under one level


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


# --- what is shown of a word of COMMAND -----------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("train.py --lr 0.1", "'0.1'"),
        ("train.py --pad-tokens=3", "'--pad-tokens=3'"),
        ("train.py --tokenizer llama", "'llama'"),
        ("train.py --api-key", "'--api-key'"),
        ("train.py --api-key abc", "(hidden)"),
        ("train.py --api_key=abc", "'--api_key=(hidden)'"),
        ("env WANDB_API_KEY=abc", "'WANDB_API_KEY=(hidden)'"),
        ("train.py --password=a=b", "'--password=(hidden)'"),
        ("train.py s3://me:secret@host/x", "'s3://me:(hidden)@host/x'"),
        ("train.py hf_abcdefghijkl", "'(hidden)'"),
        ("train.py rdzv1-abcdef", "'(hidden)'"),
        ("bash -c run|TOKEN=abc;|LR=1|x.py", "'run TOKEN=(hidden); LR=1 x.py'"),
        ("a\x1b[0m", "'a?[0m'"),
    ],
)
def test_a_word_is_shown_without_what_may_be_a_secret(words: str, shown: str) -> None:
    command = [word.replace("|", " ") for word in words.split()]
    assert shown_word(command, len(command) - 1) == shown


def test_a_word_is_said_with_its_place_and_how_many_there_are() -> None:
    assert own_word(["a", "b"], 2) == "word 2 of 2 of COMMAND is 'b' here"
    assert own_word(["a", "b"], 3) == "COMMAND has 2 words here, so it has no word 3"
    assert own_word(["a"] * 200, 129) == "COMMAND has 200 words here and differs after word 128"
    assert len(shown_word(["a" * 5000], 0)) < 300


def test_the_longest_words_are_looked_through_at_once() -> None:
    for word in ("a" * 100_000, "a-" * 50_000, "a://" * 20_000):
        assert len(shown_word([word], 0)) < 300
