"""Failures of public threads: the verdict of each sentence, and how much of the certain is right.

Nothing is run. `python -m tests.causes.score` shows the sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rendezvous.cause.seen import NodeSeen
from tests.causes.score import of_old, of_public
from tests.rendezvous.cause.public import NOT_YET, PUBLIC, SEEDS, WAYS, Public, entries_in
from tests.rendezvous.cause.verdicts import INNOCENT, RIGHT, WRONG, Expected

ENTRIES = [*entries_in(SEEDS), *entries_in(PUBLIC)]
LEAST_RIGHT = 0.98
"""Of what is told as certain."""
MOST_UNCERTAIN = 0.2
"""Of all, those of which nobody is held to be the cause; some of them may not be known at all."""


def test_the_corpus_is_large() -> None:
    assert len(entries_in(PUBLIC)) >= 500


@pytest.mark.timeout(240)
def test_each_is_told_as_well_as_it_was_and_what_is_certain_is_right(
    record_property: Callable[[str, object], None],
) -> None:
    public = [*of_public(SEEDS), *of_public(PUBLIC)]
    assert {name: found for name, found, _ in public if found != RIGHT} == NOT_YET
    scored = [*of_old(), *public]
    certain = [one for one in scored if one[2] is not None and one[2].certain]
    wrong = [one for one in certain if one[1] in WRONG]
    uncertain = 1 - len(certain) / len(scored)
    words = f"{len(wrong)} of {len(certain)} are wrong, {uncertain:.1%} of all are not certain"
    record_property("certain", words)
    print(words)
    assert [one for one in wrong if one[1] == INNOCENT] == []
    assert len(wrong) <= (1 - LEAST_RIGHT) * len(certain), wrong
    assert uncertain <= MOST_UNCERTAIN


def made(**more: object) -> Public:
    """Rank 0 fails at 2 s, rank 1 of its node at 2.05 s, rank 2 of the other one at 3 s."""
    said = {"stream": "stderr", "text": "ValueError: bad\n"}
    ends: list[tuple[int, float, dict[str, Any]]]
    ends = [(0, 2.0, {"code": 3}), (1, 2.05, {"signal": "SIGABRT"}), (2, 3.0, {"code": 1})]
    table = {
        "nodes": 2,
        "each": 2,
        "said": [{"rank": rank, "at": at - 0.01, **said} for rank, at, _ in ends],
        "ended": [{"rank": rank, "at": at, **how} for rank, at, how in ends],
    }
    return Public("made", Expected(2, (0,)), {**table, **more})


def ends_of(node: NodeSeen) -> list[tuple[int | None, float | None]]:
    return [(one.exit_code, one.ended) for one in node.evidence().ranks]


def test_what_a_launcher_ends_first_has_not_ended_by_itself() -> None:
    env, torchrun = WAYS
    first, second = made().nodes(env)
    assert (first.failed, first.began_at, second.failed) == (True, 1002.0, False)
    assert ends_of(first) == [(3, 0.0), (143, 0.01)]
    assert ends_of(second) == [(None, None), (None, None)]
    assert first.report is not None
    assert (first.report.rank, first.report.tail) == (0, ["ValueError: bad"])
    first, second = made().nodes(torchrun)
    assert ends_of(first) == [(3, 0.0), (134, pytest.approx(0.05))]
    assert (second.failed, ends_of(second)) == (True, [(1, 0.0), (None, 0.11)])


def test_a_node_without_an_end_of_which_a_scheduler_speaks_is_lost() -> None:
    told = made(ended=[], scheduler=[{"node": 1, "text": "OOMKilled"}]).nodes(WAYS[0])
    assert [(node.failed, node.lost_at) for node in told] == [(False, None), (True, 1003.49)]


def test_a_node_whose_ranks_all_end_well_has_not_failed() -> None:
    well = [{"rank": rank, "at": 1.0, "code": 0} for rank in (2, 3)]
    bad = {"rank": 0, "at": 2.0, "code": 1}
    first, second = made(ended=[*well, bad]).nodes(WAYS[0])
    assert second.report is not None
    assert (first.failed, second.failed, second.report.exit_code) == (True, False, 0)


def test_the_kernels_lines_become_the_facts_that_a_look_makes_of_them() -> None:
    killed = "Memory cgroup out of memory: Killed process 71 (python) total-vm:9kB"
    lines = [killed, "NVRM: Xid (PCI:0000:4b:00): 79, pid=9004, GPU has fallen off the bus."]
    ended = [{"rank": 1, "at": 2.0, "signal": "SIGKILL"}]
    kernel = [{"node": 0, "text": line} for line in lines]
    first, second = made(kernel=kernel, ended=ended).nodes(WAYS[0])
    facts = {fact.kind: fact for fact in first.evidence().facts}
    assert facts["oom_kill"].words == killed
    assert facts["oom_kill"].rank == 1
    assert facts["kernel"].words == lines[1]
    assert not {"oom_kill", "kernel"} & {fact.kind for fact in second.evidence().facts}
