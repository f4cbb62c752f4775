"""What a node sends of its ranks' last words: when, of whom, and how much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic_core import to_json

from rendezvous.serving.guard import MAX_BODY_BYTES
from rendezvous.wire.errors import NotFound, RdzvError
from rendezvous.wire.last_words import (
    LAST_LINES,
    MOST_PIECES,
    WHOLE_BYTES,
    LastWords,
    LastWordsReply,
    RankText,
)
from rendezvous.wire.run import RestartFacts
from tests.worker.agent.drive import RESULT, RULES, SLOT, TAKEN, TERM, m, table, to, virtually
from tests.worker.test_table import join
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.last_words import SEND_SECONDS, Printed, last_lines, whole_text
from worker.agent.words_sender import send_last_words
from worker.program.ending import Ending
from worker.program.family import Failure
from worker.program.rank_words import KEPT_BYTES, RankWords

FAILED = Ending(1, 0.0, Failure(0.0, 9, 1, rank=3))
STOPPED = Ending(143, 0.0, was_told=True)
OF_HERE = RESULT.model_copy(update={"slot": SLOT})
WELL = RESULT.model_copy(update={"status": "ok", "exit_code": 0})
CANCELLED = RESULT.model_copy(update={"status": "cancelled"})
AGAIN = m.arm(table(2, 29_501), restarts=RestartFacts(restarts=1, max_restarts=3))
BY_HAND = m.arm(table(2, 29_501), restarts=RestartFacts(restarts=0, max_restarts=3))


def sent(begin: str, *steps: Any) -> list[do.SendWords]:
    """What is sent in the course of these steps."""
    drive, done = to(begin), list[do.Action]()
    feed = drive.feed

    def noted(said: inputs.Input) -> tuple[do.Action, ...]:
        done.extend(actions := feed(said))
        return actions

    drive.feed = noted  # type: ignore[method-assign]
    for step in steps:
        step(drive)
    return [action for action in done if isinstance(action, do.SendWords)]


# --- when -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "steps", "count"),
    [
        ("running", [m.ended(STOPPED), TAKEN, m.result(), m.closes()], 1),
        ("running", [m.result(), m.ended(STOPPED), TAKEN, m.closes()], 1),
        ("running", [m.ended(Ending(0, 0.0)), TAKEN, m.result(), m.closes()], 1),
        ("running", [TERM, m.ended(STOPPED), m.result(), TAKEN, m.closes()], 1),
        # A run that ended well, or was cancelled, is nobody's failure.
        ("running", [m.ended(STOPPED), TAKEN, m.result(WELL), m.closes()], 0),
        ("running", [m.ended(STOPPED), TAKEN, m.result(CANCELLED), m.closes()], 0),
        # Nor is there anything to say where no program ran here.
        ("armed", [m.result(), m.closes()], 0),
        ("serving", [m.gone(), m.result(), m.closes()], 0),
        # Who does not know that it failed does not send, nor who was replaced.
        ("running", [TERM, m.ended(STOPPED), TAKEN, m.closes()], 0),
        ("running", [m.breaks(do.Watch), m.gone(STOPPED), m.closes()], 0),
        # Between two epochs it is sent beside all else, where a failure was counted.
        ("running", [m.ended(FAILED), TAKEN, AGAIN], 1),
        ("running", [m.stop(), m.ended(STOPPED), TAKEN, BY_HAND], 0),
        ("running", [m.ended(FAILED), TAKEN, AGAIN, m.result(), m.closes()], 1),
    ],
)
def test_when_they_are_sent(begin: str, steps: list[Any], count: int) -> None:
    assert len(sent(begin, *steps)) == count


def test_the_node_of_the_first_cause_sends_at_once_and_each_other_in_its_turn() -> None:
    ends = (m.ended(FAILED), TAKEN)
    (first,) = sent("running", *ends, m.result(OF_HERE), m.closes())
    (other,) = sent("running", *ends, m.result(), m.closes())
    (between,) = sent("running", *ends, AGAIN)
    assert [one.wait for one in (first, other, between)] == [0.0, 0.002, 0.008]
    for one in (first, other, between):
        assert one.limit - one.wait == pytest.approx(SEND_SECONDS)
    assert {(one.epoch, one.rank, one.program) for one in (first, other)} == {
        (1, 3, first.program),
    }


def test_no_node_of_many_waits_so_long_that_it_counts_as_lost() -> None:
    for slot in (799, 800, 19_999):
        drive = to("running")
        drive.node = replace(drive.node, rules=replace(RULES, slot=slot))
        drive.ended(FAILED)
        drive.taken()
        drive.result()
        drive.answer(do.CloseSocket)
        assert drive.the(do.SendWords).wait < 1.0


@pytest.mark.parametrize("answer", [m.late, m.fails, m.breaks])
def test_whatever_comes_of_it_the_node_leaves(answer: Any) -> None:
    drive = to("running")
    for step in (m.ended(STOPPED), TAKEN, m.result(), m.answer(do.CloseSocket)):
        step(drive)
    answer(do.SendWords)(drive)
    assert drive.the(do.Tell).is_last_word


def test_a_node_that_leaves_meanwhile_sends_no_more_of_an_epoch_before() -> None:
    drive = to("running")
    for step in (m.ended(FAILED), TAKEN, AGAIN):
        step(drive)
    number = drive.the(do.SendWords).number
    assert do.Drop(number) in drive.result()


# --- what -----------------------------------------------------------------------------------------


def ranks(count: int, *lines: str) -> Printed:
    """Of so many ranks that have all printed the same."""
    return Printed(0, {rank: list(lines) for rank in range(count)})


def told(*lines: str, rank: int | None = 3) -> Printed:
    return Printed(1, {rank: list(lines)})


def body(said: LastWords) -> int:
    return len(to_json(said))


def test_each_rank_has_its_last_lines_without_blank_ones_and_each_is_cut() -> None:
    long = [f"step {n}" for n in range(30)] + ["", "x" * 500, "\t\x1bend  "]
    (said,) = last_lines(2, Printed(1, {None: ["torchrun"], 2: long, 3: ["", " "]}))
    assert (said.epoch, said.node) == (2, 1)
    assert [text.rank for text in said.texts] == [None, 2]
    lines = said.texts[1].text.split("\n")
    assert len(lines) == LAST_LINES
    assert lines[0] == "step 12"
    assert (len(lines[-2]), lines[-1]) == (400, "    ?end")
    assert not any(text.whole for text in said.texts)


@pytest.mark.parametrize("line", ['"\\' * 200, "é" * 400, "\U0001f600" * 400, "a" * 400])
def test_no_message_is_larger_than_the_registry_takes(line: str) -> None:
    printed = ranks(64, *[line] * 300)
    for said in [*last_lines(1, printed), *whole_text(1, printed, 3)]:
        assert body(said) < MAX_BODY_BYTES
        LastWords.model_validate_json(to_json(said))


def test_a_node_of_many_ranks_sends_a_bounded_number_of_messages() -> None:
    said = list(last_lines(1, ranks(600, *["x" * 399] * 20)))
    assert len(said) == 4
    assert sum(map(body, said)) < 4 * MAX_BODY_BYTES
    assert [len(one.texts) for one in last_lines(1, ranks(600, "x"))] == [512, 88]


def test_all_that_is_kept_of_a_rank_is_sent_in_parts_that_make_it_whole() -> None:
    words = RankWords()
    words.take(0, b"".join(b"line %05d: %s\n" % (n, b"x" * 80) for n in range(1_000)))
    lines = [text for _, text, _ in words.lines(0, 10_000)]
    parts = [one.texts[0] for one in whole_text(1, told(*lines), 3)]
    assert [(part.rank, part.whole, part.part) for part in parts] == [(3, True, 0), (3, True, 1)]
    text = "\n".join(part.text for part in parts)
    assert text.endswith("line 00999: " + "x" * 80)
    assert KEPT_BYTES - 200 < len(text) <= WHOLE_BYTES
    assert text.split("\n")[1:] == lines[1:]


def test_of_what_cannot_be_sent_in_so_many_parts_the_newest_is() -> None:
    lines = [f"{n} " + "\U0001f600" * 4_000 for n in range(40)]
    parts = [one.texts[0] for one in whole_text(1, told(*lines), 3)]
    assert [part.part for part in parts] == list(range(MOST_PIECES))
    assert parts[-1].text.split("\n")[-1].startswith("39 ")


def test_a_rank_that_shares_its_output_is_sent_with_the_others() -> None:
    (said,) = whole_text(1, told("all of them", rank=None), 3)
    assert said.texts == [RankText(rank=None, text="all of them", whole=True)]
    assert list(whole_text(1, told("another", rank=7), 3)) == []


# --- sending --------------------------------------------------------------------------------------


class Taking:
    """A registry that takes them, and wants all of a rank; or refuses."""

    def __init__(self, *, wants: int | None = None, error: RdzvError | None = None) -> None:
        self.said: list[LastWords] = []
        self._reply = LastWordsReply(wants=wants is not None, rank=wants or None)
        self._error = error

    async def request(self, method: str, path: str, said: LastWords) -> bytes:
        assert (method, path) == ("POST", f"/v1/runs/{join().run}/nodes/{join().slot}/words")
        self.said.append(LastWords.model_validate_json(to_json(said)))
        if self._error is not None:
            raise self._error
        return self._reply.model_dump_json().encode()


ASKED = do.SendWords(7, program=4, epoch=1, rank=3, wait=0.5, limit=2.5)
MANY = ranks(64, *["x" * 399] * 20)
PRINTED = Printed(1, {2: ["two"], 3: ["x" * 399] * 100, None: ["y" * 399] * 20})


def sent_to(registry: Any, printed: Printed = PRINTED) -> list[tuple[int | None, bool]]:
    virtually(send_last_words(ASKED, printed, registry, join()))
    return [(text.rank, text.whole) for said in registry.said for text in said.texts]


def test_the_first_cause_is_sent_where_the_registry_asks_for_it_and_only_once() -> None:
    few = [(2, False), (3, False), (None, False)]
    assert sent_to(Taking()) == few
    assert sent_to(Taking(wants=2)) == [*few, (2, True)]
    assert sent_to(Taking(wants=0)) == [*few, (3, True)]  # it knows no rank: this node's own
    found = sent_to(Taking(wants=3), MANY)
    assert found[4:6] == [(4, False), (3, True)]  # before the last lines of the others
    assert found.count((3, True)) == 1


def test_a_registry_that_refuses_is_not_asked_again() -> None:
    older = Taking(error=NotFound("no such path"))
    sent_to(older, MANY)
    assert len(older.said) == 1


def test_a_program_that_has_printed_nothing_asks_nothing() -> None:
    assert sent_to(Taking(), Printed(1, {})) == []
