"""The later corpora, as their nodes have seen them: who is named, and why.

Nothing is run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile

import pytest

from rendezvous.cause.clues import Line, find_clues
from rendezvous.cause.judge import judge
from rendezvous.cause.seen import NodeSeen, ended_by_itself
from rendezvous.cause.sentences import sentence_of
from rendezvous.run.ends import words_of_end
from tests.causes import fourth_ends, second_ends, third_ends
from tests.causes.second import Fault
from tests.causes.second_record import OUTPUTS, marks_of, output_of, read, seen_of
from tests.causes.test_outputs import OURS

_OF_TORCHRUN = re.compile(r"[WE]\d{4} \S+ \d+ (\S*/)?torch/")
_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
each_fault = pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.name) for fault in OUTPUTS]
)
each_told = pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.name, marks=marks_of(fault)) for fault in OUTPUTS]
)


def objections(fault: Fault, nodes: list[NodeSeen]) -> list[str]:
    judged = judge(nodes)
    assert judged is not None
    cause, clause = judged.cause, sentence_of(judged).clause
    end = f"rank {cause.rank}" if cause.code is None else words_of_end(cause.code, cause.rank)
    message = f"{end}: {clause}"
    return fault.objections(cause.slot, cause.rank, certain=judged.blames, message=message)


def read_again(fault: Fault, node: NodeSeen, *, bare: bool = False) -> NodeSeen:
    """The node, with the clues that its output has today.

    Whose a line without a rank is counts as known where one rank has failed, or where the report
    has it among the last ones of a rank; `bare`, of none.
    """
    if not node.failed:
        return node
    assert node.report is not None
    assert node.report.evidence is not None
    text = output_of(fault, node.slot).read_text()
    lines = (_PREFIX.sub("", text) if bare else text).split("\n")
    failed = ended_by_itself(node.report.evidence.ranks)
    rank = failed[0].rank if len(failed) == 1 and not bare else None
    own = [*takewhile(lambda line: not _OF_TORCHRUN.match(line), lines)]
    of_tail = set() if bare or rank is not None else last_of_its_rank(own, node.report.tail)
    ranks = [node.report.worker_rank if n in of_tail else rank for n in range(len(own))]
    found = find_clues([*map(Line, own, ranks), *map(Line, lines[len(own) :])])
    evidence = node.report.evidence.model_copy(update={"clues": found})
    return replace(node, report=node.report.model_copy(update={"evidence": evidence}))


def last_of_its_rank(lines: list[str], tail: list[str]) -> set[int]:
    """Where the report's last lines stand, which are those of the rank that failed first."""
    said = [number for number, line in enumerate(lines) if line.strip()]
    for begin in range(len(said) - len(tail) + 1):
        found = said[begin : begin + len(tail)]
        if [lines[number].rstrip() for number in found] == tail:
            return {*found}
    return set()


@each_told
def test_the_sentence_names_who_and_why_in_any_order_of_arrival(fault: Fault) -> None:
    nodes = read(fault)
    assert objections(fault, nodes) == objections(fault, nodes[::-1]) == []


@each_told
def test_it_does_so_from_what_was_printed(fault: Fault) -> None:
    assert objections(fault, [read_again(fault, node) for node in read(fault)]) == []


@each_fault
def test_words_without_a_rank_blame_no_other(fault: Fault) -> None:
    nodes = [read_again(fault, node, bare=True) for node in read(fault)]
    judged = judge(nodes)
    assert judged is not None
    found = objections(fault, nodes)
    whom = [one for one in found if one.startswith(("slot", "rank"))]
    assert not judged.blames or not whom or whom == ["rank None is blamed"], found


def test_all_is_recorded_and_nothing_of_a_machine() -> None:
    expected = {seen_of(fault) for fault in OUTPUTS}
    expected |= {
        output_of(fault, node.slot) for fault in OUTPUTS for node in read(fault) if node.failed
    }
    assert {path for folder in {*OUTPUTS.values()} for path in folder.iterdir()} == expected
    for path in expected:
        text = path.read_text().replace("site-packages/torch/_", "")
        assert [line for line in text.splitlines() if OURS.search(line)] == [], path.name


@pytest.mark.parametrize(
    ("faults", "counts"),
    [
        (second_ends.FAULTS, {"right": 24, "unknown": 5, "wrong": 1}),
        (third_ends.FAULTS, {"right": 23, "unknown": 5, "wrong": 2}),
        (fourth_ends.FAULTS, {"right": 26, "unknown": 2, "wrong": 2}),
    ],
    ids=["second", "third", "fourth"],
)
def test_how_it_did_at_first_is_not_forgotten(
    faults: tuple[Fault, ...], counts: dict[str, int]
) -> None:
    told = [fault.at_first for fault in faults]
    assert {name: told.count(name) for name in told} == counts
