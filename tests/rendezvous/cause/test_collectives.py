"""Who calls another collective than the other ranks, by value."""

from __future__ import annotations

import pytest

from rendezvous.cause.collectives import is_of_calls, odd_one
from rendezvous.cause.seen import NodeSeen
from rendezvous.cause.sentences import sentence_of
from rendezvous.wire.evidence import Clue, Evidence, RankEnd
from rendezvous.wire.reports import ExitReport
from tests.rendezvous.cause.verdicts import judged_of

SUM = "20, OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float, TensorDeviceTypes=x"
WIDE = SUM.replace("[8]", "[8, 2]")
HALF = SUM.replace("Float", "Half")
LATER = SUM.replace("20", "21")
BARRIER = "20OpType=BARRIER"
GARBAGE = "0OpType=REDUCE"


def says(rank: int, call: str, other: int = 9) -> str:
    one, two = (
        f"is running collective: CollectiveFingerPrint(SequenceNumber={x})" for x in (call, GARBAGE)
    )
    words = "RuntimeError: Detected mismatch between collectives on ranks."
    return f"{words} Rank {rank} {one}, but Rank {other} {two}."


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (BARRIER, "rank 1 calls BARRIER where ranks 0, 2 call ALLREDUCE"),
        (WIDE, "rank 1 calls ALLREDUCE with a tensor of size [8, 2] where ranks 0, 2 pass [8]"),
        (HALF, "rank 1 calls ALLREDUCE with a tensor of type Half where ranks 0, 2 pass Float"),
        (LATER, "rank 1 calls ALLREDUCE as number 21 where ranks 0, 2 are at number 20"),
    ],
)
def test_the_odd_one_of_three_is_named_with_what_differs(call: str, words: str) -> None:
    lines = [says(0, SUM, 1), says(1, call, 0), says(2, SUM, 1)]
    found = odd_one(lines)
    assert (found.ranks, found.words) == ((1,), words)
    assert odd_one(lines[::-1]) == found


def test_a_type_is_read_without_what_torch_says_of_devices() -> None:
    short, half = (call.replace(", TensorDeviceTypes=x", ")") for call in (SUM, HALF))
    found = odd_one([says(0, short, 1), says(1, half, 0), says(2, short, 1)])
    assert found.ranks == (1,)


def test_where_all_seem_to_call_the_same_nothing_is_said_of_it() -> None:
    found = odd_one([says(0, SUM, 1), says(1, SUM, 0)])
    assert (found.ranks, found.words) == ((), "")


def test_of_two_nobody_is_odd() -> None:
    found = odd_one([says(0, SUM, 1), says(1, BARRIER, 0)])
    assert found.ranks == ()
    assert found.words == "rank 1 calls BARRIER where rank 0 calls ALLREDUCE"


def test_whom_all_others_name_is_odd_though_it_has_said_nothing() -> None:
    assert odd_one([says(0, SUM, 3), says(1, SUM, 3)]).ranks == (3,)
    assert odd_one([says(0, SUM, 3)]).ranks == ()
    assert odd_one([says(0, SUM, 3), says(1, SUM, 2)]).ranks == ()
    assert not is_of_calls("RuntimeError: Detected mismatch between collectives on ranks.")


@pytest.mark.parametrize("row", ["collectives_differ", "size_mismatch"])
def test_it_is_blamed_whoever_failed_first(row: str) -> None:
    calls = {0: SUM, 1: SUM, 2: BARRIER, 3: SUM}
    nodes = []
    for slot, ranks in enumerate((range(2), range(2, 4))):
        clues = [
            Clue(
                id=row,
                line=says(r, calls[r], 0 if r == 2 else 2),
                rank=r,
                where=f"a.py:{r}",
                raised=True,
            )
            for r in ranks
        ]
        ends = [RankEnd(rank=r, exit_code=1, ended=r / 10) for r in ranks]
        report = ExitReport(epoch=1, exit_code=1, evidence=Evidence(ranks=ends, clues=clues))
        nodes.append(NodeSeen(slot, 100.0, report, failed=True, ranks=ranks))
    judged = judged_of(nodes)
    assert (judged.cause.row, judged.cause.rank, judged.blames) == ("collectives_differ", 2, True)
    clause = sentence_of(judged).clause
    assert clause.endswith(
        "differ: rank 2 calls BARRIER where ranks 0, 1, 3 call ALLREDUCE (a.py:2)"
    )
    assert "size" not in clause
    judged = judged_of(nodes[:1])
    assert not judged.blames or judged.cause.rank == 2
