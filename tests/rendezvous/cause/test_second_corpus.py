"""The later corpora, as their nodes have seen them: who is named, and why.

Nothing is run.
"""

from __future__ import annotations

import pytest

from tests.rendezvous.cause.corpus import FAULTS, LATER, Fault
from tests.rendezvous.cause.verdicts import INNOCENT, RIGHT, told_of, verdict

each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@each_fault
def test_the_sentence_names_who_and_why_in_any_order_of_arrival(fault: Fault) -> None:
    nodes = fault.nodes()
    told = told_of(nodes)
    assert told == told_of(nodes[::-1])
    assert verdict(fault.expected, told) == RIGHT, told


@each_fault
def test_it_does_so_from_what_was_printed(fault: Fault) -> None:
    told = told_of(fault.nodes_again())
    assert verdict(fault.expected, told) == RIGHT, told


@each_fault
def test_words_without_a_rank_blame_no_other(fault: Fault) -> None:
    told = told_of(fault.nodes_again(bare=True))
    assert told is not None
    assert verdict(fault.expected, told) != INNOCENT, told


def test_all_is_recorded() -> None:
    expected = {fault.seen_in for fault in FAULTS}
    expected |= {fault.folder / "index.toml" for fault in FAULTS}
    expected |= {
        fault.output_of(node.slot) for fault in FAULTS for node in fault.nodes() if node.failed
    }
    assert {path for folder in {fault.folder for fault in FAULTS} for path in folder.iterdir()} == (
        expected
    )
    assert len(FAULTS) == 30 * len(LATER)
