"""The first cause among all nodes, by value."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rendezvous.cause import seen
from rendezvous.cause.clues import LAST_LINE, LOGGED
from rendezvous.cause.facts import FactKind
from rendezvous.cause.judge import Judged, judge
from rendezvous.cause.seen import NodeSeen
from rendezvous.cause.sentences import sentence_of
from rendezvous.wire.evidence import Clue, Evidence, Fact, RankEnd
from rendezvous.wire.reports import ExitReport
from tests.rendezvous.cause.verdicts import judged_of

CLOSED = "RuntimeError: gloo/transport: Connection closed by peer [10.0.0.1]"
TIMED_OUT = "RuntimeError: gloo/transport/unbound_buffer: Timed out waiting 6000ms for recv"
AT_START = "DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//cpu//0/"


def lives(rank: int, state: str = "S") -> RankEnd:
    return RankEnd(rank=rank, state=state)


def ended(rank: int, code: int, at: float = 0.0) -> RankEnd:
    return RankEnd(rank=rank, exit_code=code, ended=at)


def said(rank: int | None, row: str, line: str = "words", at: float | None = None) -> Clue:
    return Clue(id=row, line=line, rank=rank, at=at, raised=True, last=True)


def waited(*ranks: int, line: str = TIMED_OUT) -> list[Clue]:
    return [said(rank, "waited", line) for rank in ranks]


def lost(*ranks: int) -> list[Clue]:
    return [said(rank, "peer_gone", CLOSED) for rank in ranks]


def node(
    slot: int, ends: Sequence[RankEnd], clues: Sequence[Clue] = (), began_at: float = 100.0
) -> NodeSeen:
    """One that failed where a rank of it did."""
    code = max((end.exit_code or 0 for end in ends), default=0)
    evidence = Evidence(ranks=list(ends), clues=list(clues))
    report = ExitReport(epoch=1, exit_code=code, evidence=evidence)
    ranks = range(ends[0].rank, ends[-1].rank + 1)
    return NodeSeen(slot, began_at, report, code > 0, ranks)


def verdict(*nodes: NodeSeen) -> tuple[str, int, int | None, bool]:
    judged = judged_of(nodes)
    assert judge(nodes[::-1]) == judged
    return judged.cause.row, judged.cause.slot, judged.cause.rank, judged.blames


def together(*nodes: NodeSeen) -> tuple[int | None, ...]:
    judged = judged_of(nodes)
    return (judged.cause.rank, *judged.together)


def test_nothing_is_said_where_nothing_failed() -> None:
    assert judge([]) is None
    assert judge([NodeSeen(0), node(1, [ended(0, 0)])]) is None


@pytest.mark.parametrize(("later", "row"), [(0.0, "killed"), (30.0, "killed"), (30.1, "peer_gone")])
def test_a_consequence_is_no_cause_for_thirty_seconds(later: float, row: str) -> None:
    suffers = node(0, [ended(0, 1)], lost(0))
    killed = node(1, [ended(1, 137)], began_at=100.0 + later)
    assert verdict(suffers, killed)[0] == row
    assert verdict(suffers, killed)[3] is (row == "killed")


def test_of_causes_the_first_counts_whoever_was_heard_of_first() -> None:
    full = node(0, [ended(0, 1)], [said(0, "disk_full", "OSError", at=-0.2)], began_at=100.3)
    killed = node(1, [ended(1, 137)], began_at=100.2)
    assert verdict(killed, full) == ("disk_full", 0, 0, True)


def test_between_two_ranks_nobody_is_blamed() -> None:
    nodes = [node(0, [ended(0, 134)], [said(0, "size_mismatch")]), node(1, [ended(1, 1)], lost(1))]
    assert verdict(*nodes) == ("size_mismatch", 0, 0, False)


def test_how_many_nodes_failed_of_the_same_is_counted() -> None:
    nodes = [node(n, [ended(n, 1)], [said(n, "import_error")]) for n in range(3)]
    judged = judged_of([*nodes, node(3, [ended(3, 0)])])
    assert (judged.cause.slot, judged.alike, judged.others) == (0, 2, 3)


def stopped(slot: int, *clues: Clue) -> NodeSeen:
    one = node(slot, [lives(slot)], clues)
    assert one.report is not None
    return replace(one, report=one.report.model_copy(update={"stopped": True, "exit_code": 143}))


def test_nodes_are_compared_where_it_is_known_how_all_ended() -> None:
    first = node(0, [ended(0, 1)], [said(0, "import_error")])
    well, alike = node(1, [ended(1, 0)]), stopped(1, said(1, "import_error", "of node 1", at=0.2))
    assert "the other node did not fail in this way" in clause(first, well)
    # It was stopped, or has not told yet: it may fail of the same a moment later.
    for other in (stopped(1), NodeSeen(1, ranks=range(1, 2))):
        assert "other node" not in clause(first, other)
    assert "the other node failed in the same way" in clause(first, alike)
    assert "other 2 nodes" not in clause(first, alike, stopped(2))


@pytest.mark.parametrize("known", [True, False])
def test_no_early_end_is_certain_while_a_code_is_unknown(known: bool) -> None:
    unread = RankEnd(rank=1, exit_code=0 if known else None, ended=-2.0)
    suffers = node(0, [ended(0, 134), unread], lost(0))
    goes_on = [lives(rank) for rank in range(2, 6)]
    assert verdict(suffers, node(1, goes_on))[3] is known
    # Whoever it is, most may have ended well: then who went on is the odd one.
    early = node(1, [ended(2, 0), ended(3, 0)], began_at=98.0)
    assert verdict(suffers, early) == ("peer_gone", 0, 0, False)


def test_an_early_end_needs_the_codes_of_all_ranks_of_its_node() -> None:
    suffers = node(0, [ended(0, 1), *map(lives, range(1, 6))], lost(0))
    for code, row in ((0, "early_end"), (None, "peer_gone")):
        other = [ended(6, 0), RankEnd(rank=7, exit_code=code, ended=0.0)]
        assert verdict(suffers, node(1, other, began_at=98.0))[0] == row


@pytest.mark.parametrize("later", [-0.3, 0.1, 1.9])
def test_an_early_end_is_named_though_it_closed_its_connections_first(later: float) -> None:
    suffers = node(0, [ended(0, 1)], lost(0))
    early = node(1, [ended(1, 0)], began_at=100.0 + later)
    assert verdict(suffers, early) == ("early_end", 1, 1, True)


def test_who_ended_with_0_long_after_is_not_early() -> None:
    nodes = node(0, [ended(0, 1)], lost(0)), node(1, [ended(1, 0)], began_at=103.0)
    assert verdict(*nodes) == ("peer_gone", 0, 0, False)


def test_who_ended_with_0_has_suffered_nothing() -> None:
    suffers = node(0, [ended(0, 1)], lost(0), began_at=100.3)
    assert verdict(suffers, node(1, [ended(1, 0)], lost(1))) == ("early_end", 1, 1, True)


def test_an_end_shortly_after_is_no_early_one_while_a_node_is_silent() -> None:
    suffers, silent = node(0, [ended(0, 1)], lost(0)), NodeSeen(2, ranks=range(2, 3))
    assert verdict(suffers, node(1, [ended(1, 0)], began_at=100.1), silent)[3] is False
    assert verdict(suffers, node(1, [ended(1, 0)], began_at=99.0), silent)[0] == "early_end"


@pytest.mark.parametrize("later", [-1.0, 0.4])
def test_who_ended_with_0_is_not_missed_where_nobody_is_known_to_have_waited(later: float) -> None:
    silent = [node(0, [ended(0, 1), ended(1, 143, 0.1)]), node(1, [ended(2, 1)], began_at=100.1)]
    early = node(2, [ended(3, 0)], began_at=100.0 + later)
    assert verdict(*silent, early) == ("exit_code", 0, 0, False)
    assert verdict(*silent, early, node(3, [lives(4)], lost(4))) == ("early_end", 2, 3, True)
    shared = node(3, [ended(4, 1, 0.2), ended(5, 1, 0.2)], [said(None, "peer_gone", CLOSED)])
    assert verdict(*silent, early, shared) == ("early_end", 2, 3, True)


def test_of_several_early_ends_the_first_is_the_cause() -> None:
    ends = [ended(0, 0, -0.5), ended(1, 0, -0.7), ended(2, 1), ended(3, 143, 0.01)]
    assert together(node(0, ends, lost(2, 3))) == (1, 0)


def test_where_most_ended_well_nobody_is_blamed_for_it() -> None:
    ends = [ended(0, 0, -0.5), ended(1, 0, -0.7), ended(2, 1)]
    assert verdict(node(0, ends, lost(2))) == ("peer_gone", 0, 2, False)


@pytest.mark.parametrize(
    "after", [lives(1, "T"), RankEnd(rank=1, exit_code=137, ended=30.1, state="T")]
)
def test_a_stopped_process_is_named_even_once_its_launcher_killed_it(after: RankEnd) -> None:
    assert verdict(node(0, [ended(0, 1), after], waited(0))) == ("stopped_process", 0, 1, True)


@pytest.mark.parametrize("end", [lives(2), ended(2, 143, 0.1)], ids=["lives", "told"])
def test_the_one_that_did_not_wait_is_missed(end: RankEnd) -> None:
    ends = [ended(0, 1), ended(1, 1, 0.01), end, ended(3, 1, 0.02)]
    assert verdict(node(0, ends, waited(0, 1, 3))) == ("absent_rank", 0, 2, True)
    started = waited(0, 1, 3, line="DistStoreError: wait timeout after 6000ms")
    assert verdict(node(0, ends, started)) == ("late_rank", 0, 2, True)


def test_of_several_that_did_not_wait_nobody_is_blamed() -> None:
    ends = [ended(0, 1), ended(1, 1, 0.01), lives(2), lives(3)]
    assert verdict(node(0, ends, waited(0, 1)))[3] is False


def test_of_a_whole_node_that_did_not_wait_either_may_be_missed() -> None:
    nodes = node(0, [ended(0, 1), ended(1, 1)], waited(0, 1)), node(1, [lives(2), lives(3)])
    assert verdict(*nodes) == ("waited", 0, 0, False)
    judged = judged_of(nodes)
    assert judged.apart == ((3, ""), (2, ""))


def test_nobody_is_missed_while_a_node_is_silent() -> None:
    nodes = [node(0, [ended(0, 1), lives(1)], waited(0)), NodeSeen(1, ranks=range(2, 3))]
    assert verdict(*nodes) == ("waited", 0, 0, False)
    judged = judged_of(nodes)
    assert (judged.silent, judged.waiting, judged.of) == ((1,), 1, 3)


def test_an_exception_after_which_a_rank_hangs_is_the_cause() -> None:
    clues = [*waited(0), said(1, "exception", "KeyError: 1", at=-300.0)]
    assert verdict(node(0, [ended(0, 1), lives(1)], clues)) == ("lookup", 0, 1, True)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (
            "RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 4000 ms",
            "absent_rank",
        ),
        (f"{AT_START}2", "late_rank"),
    ],
)
def test_a_line_may_name_who_is_missed(line: str, row: str) -> None:
    ends = [ended(0, 1), lives(1), lives(2), lives(3)]
    nodes = node(0, ends, waited(0, line=line))
    assert verdict(nodes) == (row, 0, 2, True)
    assert verdict(node(0, ends, [said(None, "waited", line)]))[2] == 2
    assert together(nodes) == ((2, 3) if row == "absent_rank" else (2,))
    assert (
        verdict(node(0, ends, waited(0, line=line.replace("2", "9").replace("3", "9"))))[3] is False
    )


def test_who_is_named_by_a_line_but_had_ended_is_an_early_end() -> None:
    ends = [ended(0, 1), lives(1), ended(2, 0, -6.0)]
    assert verdict(node(0, ends, waited(0, line=f"{AT_START}2"))) == ("early_end", 0, 2, True)


def test_where_all_wait_nobody_is_blamed() -> None:
    nodes = [node(n, [ended(n, 1)], waited(n)) for n in range(4)]
    assert verdict(*nodes) == ("desync", 0, None, False)
    mixed = [*nodes, node(4, [ended(4, 1)], lost(4))]
    assert verdict(*mixed) == ("waited", 0, 0, False)


def test_a_lost_node_is_the_cause_of_what_the_others_suffer() -> None:
    gone = NodeSeen(1, ranks=range(1, 2), lost_at=110.0)
    assert verdict(node(0, [ended(0, 1)], lost(0)), gone) == ("node_lost", 1, None, True)


def test_what_a_node_says_of_ranks_of_another_does_not_count() -> None:
    foreign = node(1, [lives(2)])
    assert foreign.report is not None
    evidence = Evidence(ranks=[lives(2), lives(0, "T")])
    foreign = replace(foreign, report=foreign.report.model_copy(update={"evidence": evidence}))
    nodes = node(0, [ended(0, 1), ended(1, 1)], waited(0, 1)), foreign
    assert verdict(*nodes) == ("absent_rank", 1, 2, True)


def _many(count: int, each: int) -> list[NodeSeen]:
    found = []
    for slot in range(count):
        ranks = range(slot * each, (slot + 1) * each)
        ends = [ended(rank, 1, (rank % each) / 100) for rank in ranks]
        found.append(node(slot, ends, waited(*ranks), began_at=100.0 + slot / 1000))
    return found


@pytest.mark.nightly
def test_the_largest_run_is_judged_soon() -> None:
    nodes = _many(2048, 8)
    began = time.perf_counter()
    judged: Judged | None = judge(nodes)
    print(f"2,048 nodes x 8 ranks: {time.perf_counter() - began:.2f} s")
    assert judged is not None
    assert (judged.cause.row, judged.blames, judged.of) == ("desync", False, 16384)


UNREACHED = (
    "The client socket has timed out after 10000ms while trying to connect to (10.0.0.9, 9)."
)
RETRIES = "[W1125 1:2:3.4 socket.cpp:764] [c10d] The client socket has failed to connect to [h]:9"


def clause(*nodes: NodeSeen) -> str:
    judged = judged_of(nodes)
    return sentence_of(judged).clause


@pytest.mark.parametrize("name", ["waited", "store_unreachable of a newer worker"])
def test_who_could_not_reach_the_store_is_why_others_waited(name: str) -> None:
    waits = waited(0, 1, 2, line=f"{AT_START}3")
    first = node(0, [ended(0, 1), ended(1, 1)], waits[:2])
    lost = Clue(id=name, line=RETRIES if name != "waited" else UNREACHED, rank=3)
    second = node(1, [ended(2, 1), lives(3)], [waits[2], lost])
    assert verdict(first, second) == ("store_unreachable", 1, 3, True)
    assert "9" in clause(first, second)
    # It may fail of it itself, before the others or after them.
    for at in (-5.0, 5.0):
        failed = said(3, "waited", f"torch.distributed.DistNetworkError: {UNREACHED}", at)
        second = node(1, [ended(2, 1), ended(3, 1, at)], [waits[2], failed])
        assert verdict(first, second) == ("store_unreachable", 1, 3, True)
        assert "(10.0.0.9, 9)" in clause(first, second)


def test_a_launcher_that_could_not_reach_the_store_is_told_without_a_rank() -> None:
    first = node(0, [ended(0, 1), ended(1, 1)], waited(0, 1, line="waiting for clients"))
    evidence = Evidence(clues=[said(None, "waited", f"DistNetworkError: {UNREACHED}")])
    report = ExitReport(epoch=1, exit_code=1, evidence=evidence)
    second = NodeSeen(1, 100.0, report, failed=True, ranks=range(2, 4))
    assert verdict(first, second) == ("store_unreachable", 1, None, True)


def test_where_most_could_not_reach_the_store_none_of_them_is_blamed() -> None:
    unreached = [said(rank, "waited", f"DistNetworkError: {UNREACHED}") for rank in (1, 2, 3)]
    first = node(0, [lives(0), ended(1, 1)], unreached[:1])
    second = node(1, [ended(2, 1), ended(3, 1)], unreached[1:])
    assert verdict(first, second) == ("late_rank", 0, 0, True)


def test_who_reached_the_store_later_is_not_blamed_for_a_warning() -> None:
    warned = [Clue(id="waited", line=UNREACHED, rank=2), *waited(2, line=AT_START + "1")]
    first = node(0, [ended(0, 1), lives(1)], waited(0, line=AT_START + "1"))
    assert verdict(first, node(1, [ended(2, 1)], warned))[2] == 1


def test_who_fails_alike_without_what_that_came_of_is_not_the_first() -> None:
    last = "RuntimeError: Parent directory /out/{} does not exist"
    first = node(0, [ended(0, 1)], [said(0, "exception", last.format(0), -1.0)])
    root = "ValueError: label 17 (train.py:3); then " + last.format(1)
    second = node(1, [ended(1, 1)], [said(1, "exception", root, 0.0)])
    assert verdict(first, second) == ("exception", 1, 1, True)
    assert verdict(first, node(1, [ended(1, 0)])) == ("file_missing", 0, 0, True)


def test_of_watchdogs_the_one_elsewhere_is_the_cause() -> None:
    def dog(rank: int, where: str, at: float) -> Clue:
        clue = said(rank, "own_watchdog", "Timeout (0:00:04)!", at)
        return clue.model_copy(update={"where": where})

    usual = [dog(0, "a.py:9", -0.3), dog(1, "a.py:9", -0.2), dog(3, "a.py:9", -0.1)]
    first = node(0, [ended(0, 1), ended(1, 1)], usual[:2])
    second = node(1, [ended(2, 1), ended(3, 1)], [dog(2, "a.py:4 in read", 0.0), usual[2]])
    assert verdict(first, second) == ("own_watchdog", 1, 2, True)
    assert verdict(first)[2] == 0


def test_who_wrote_an_error_and_lives_is_shown_and_not_blamed() -> None:
    """An error may be got over, and nobody knows whether this one was."""
    error = Clue(id="logged", line="ERROR label 17 is bad", rank=2, at=-1.0)
    first = node(0, [ended(0, 1), lives(1)], lost(0))
    second = node(1, [lives(2), lives(3)], [error])
    assert not verdict(first, second)[3]
    assert "; rank 2 said 'ERROR label 17 is bad'; " in clause(first, second)


def test_who_did_not_wait_is_shown_with_its_last_line_where_nobody_can_be_named() -> None:
    last = [Clue(id=LAST_LINE, line=f"shard {n}", rank=n, at=n - 9.0) for n in (2, 3)]
    first = node(0, [ended(0, 134), ended(1, 143)], [said(0, "watchdog_stuck")])
    second = node(1, [lives(2), lives(3)], last)
    assert not verdict(first, second)[3]
    told = clause(first, second)
    assert "; ranks 1, 2, 3 are not known to have waited; rank 3 said 'sh" in told
    assert told.endswith("'shard 3'; rank 2 said 'shard 2'; rank 0 said 'words'")


def test_what_a_rank_raised_before_the_time_out_is_shown_and_not_what_good_ones_said_last() -> None:
    bad = Clue(id="exception", line="KeyError: 'labels'", rank=1, at=-9.0, raised=True)
    last = [Clue(id=LAST_LINE, line=f"step {n}", rank=n, at=-1.0) for n in (1, 2, 3)]
    first = node(0, [ended(0, 134), lives(1)], [said(0, "watchdog_stuck"), bad, last[0]])
    told = clause(first, node(1, [lives(2), lives(3)], last[1:]))
    assert "; rank 1 said 'KeyError: 'labels''; rank 0 said 'words'" in told
    assert "step" not in told


@pytest.mark.parametrize("row", ["exception", "import_error"])
def test_what_all_ranks_have_raised_is_told_of_all(row: str) -> None:
    ends = [[ended(0, 1), RankEnd(rank=1, ended=0.1)], [ended(2, 1), lives(3)]]
    line = "ImportError: libx.so.{}: version `GLIBCXX_3.4.29' not found"
    clues = [said(rank, row, line.format(rank)) for rank in range(4)]
    nodes = [node(0, ends[0], clues[:2]), node(1, ends[1], clues[2:])]
    assert judged_of(nodes).everyone == 4
    assert "; " not in clause(*nodes)
    assert judged_of([nodes[0], node(1, ends[1], clues[2:3])]).everyone == 0
    printed = [clue.model_copy(update={"raised": False}) for clue in clues]
    assert judged_of([node(0, ends[0], printed[:2]), node(1, ends[1], printed[2:])]).everyone == 0
    assert judged_of([node(0, [ended(0, 1)], clues[:1])]).everyone == 0
    words = "t.py: error: unrecognized arguments: --x"
    update = {"id": "arguments", "line": words, "raised": False}
    usage = [one.model_copy(update=update) for one in clues]
    ends[0][0], ends[1][0] = ended(0, 2), ended(2, 2)
    assert judged_of([node(0, ends[0], usage[:2]), node(1, ends[1], usage[2:])]).everyone == 4


@pytest.mark.parametrize(
    "line", ["F0926 1 agent.cc:1] unhealthy: /job:x/replica:0/task:1", "dump signal from  rank 1"]
)
def test_a_rank_that_others_name_is_shown_and_not_blamed(line: str) -> None:
    first = node(0, [ended(0, 134), lives(1), lives(2)], [said(0, "others_ended", line)])
    assert not verdict(first)[3]
    assert "; others name rank 1; ranks 1, 2 are not known" in clause(first)
    both = [said(0, "others_ended", line), said(1, "peer_gone", "Rank 1 lost rank 0")]
    assert "names" not in clause(node(0, [ended(0, 134), ended(1, 1), lives(2)], both))


def test_what_a_device_said_of_a_rank_that_lives_is_its_failure() -> None:
    full = Clue(id="cuda_memory", line="NCCL WARN Cuda failure 'out of memory'", rank=3, at=-1.0)
    first = node(0, [ended(0, 1), lives(1)], [said(0, "communication")])
    assert verdict(first, node(1, [lives(2), lives(3)], [full])) == ("cuda_memory", 1, 3, True)
    stopped = [RankEnd(rank=2, ended=0.3), RankEnd(rank=3, ended=0.3)]
    assert verdict(first, node(1, stopped, [full])) == ("cuda_memory", 1, 3, True)
    before = [RankEnd(rank=2, ended=-0.3), RankEnd(rank=3, ended=-0.3)]
    assert not verdict(first, node(1, before, [full]))[3]
    went_on = [full, Clue(id=LAST_LINE, line="step 2", rank=3)]
    assert not verdict(first, node(1, [lives(2), lives(3)], went_on))[3]


def test_of_two_that_were_found_in_one_look_who_was_told_has_not_failed_first() -> None:
    ends = [ended(0, 143), ended(1, 1)]
    assert verdict(node(0, ends, [said(1, "exception")])) == ("exception", 0, 1, True)


def test_who_ended_early_after_an_error_is_told_with_it() -> None:
    first = node(0, [ended(0, 1), lives(1)], lost(0))
    error = said(2, "exception", "ValueError: label 17", -2.0)
    second = node(1, [ended(2, 0, -1.0), lives(3)], [error])
    assert verdict(first, second) == ("early_end", 1, 2, True)
    assert clause(first, second).endswith(
        ": ValueError: label 17"
    )  # and no victim's lost connection


OF_ALL = "CheckpointException ranks:dict_keys([3]): (RANK 3) {}"


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ("RuntimeError: Missing key", "exception"),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
    ],
)
def test_of_what_all_say_of_one_rank_that_rank_is_the_cause(words: str, row: str) -> None:
    told = [said(rank, "told_of_rank", OF_ALL.format(words)) for rank in range(4)]
    aborted = node(0, [ended(0, 134), ended(1, 143)], told[:2])
    lived = replace(node(1, [lives(2), lives(3)], told[2:]), failed=False)
    assert verdict(aborted, lived) == (row, 1, 3, True)
    judged = judged_of([aborted, node(1, [lives(2), lives(3)])])
    assert sentence_of(judged).clause.endswith(words)
    assert verdict(node(1, [lives(2), ended(3, 1)], told[2:]), aborted) == (row, 1, 3, True)


def test_what_is_said_of_a_rank_that_only_follows_blames_nobody() -> None:
    told = [said(rank, "told_of_rank", OF_ALL.format(CLOSED)) for rank in range(4)]
    all_of_it = [ended(0, 1), ended(1, 1), ended(2, 1), ended(3, 1)]
    assert verdict(node(0, all_of_it, told))[3] is False


def test_a_rank_that_is_named_without_its_words_is_the_cause_and_one_elsewhere_is_not() -> None:
    told = [said(rank, "told_of_rank", OF_ALL.format("")[:-11]) for rank in range(2)]
    aborted = node(0, [ended(0, 1), ended(1, 1)], told)
    assert verdict(aborted, node(1, [lives(2), lives(3)])) == ("exception", 1, 3, True)
    busy = node(1, [lives(2), lives(3)], lost(3))
    assert verdict(aborted, busy)[2:] != (3, True)


def test_a_crash_without_a_reason_is_none_where_another_rank_has_one() -> None:
    crashed = node(0, [ended(0, 139), lives(1)])
    assert verdict(crashed) == ("segfault", 0, 0, True)
    failed = node(1, [ended(2, 1), lives(3)], [said(2, "exception", "ValueError: no")], 101.0)
    assert verdict(crashed, failed) == ("exception", 1, 2, True)
    failing = [said(3, "exception", "ValueError: no", -0.5)]
    assert verdict(crashed, node(1, [lives(2), lives(3)], failing)) == ("exception", 1, 3, True)
    later = [said(3, "exception", "ValueError: no", 0.5)]
    assert verdict(crashed, node(1, [lives(2), lives(3)], later)) == ("segfault", 0, 0, True)


@pytest.mark.parametrize(
    ("code", "at", "row"),
    [(143, -1.0, "time_limit"), (137, 4.0, "time_limit"), (143, 6.0, "terminated")],
)
def test_whom_somebody_outside_ended_is_told_with_the_schedulers_word(
    code: int, at: float, row: str
) -> None:
    word = Clue(id="time_limit", line="CANCELLED DUE TO TIME LIMIT", rank=2, at=at)
    other = node(1, [lives(2)], [word, Clue(id="job_cancelled", line="CANCELLED AT", at=at)])
    assert verdict(node(0, [ended(0, code)]), other) == (row, 0, 0, True)
    assert verdict(node(0, [ended(0, 1)], [said(0, "exception")]), other)[0] == "exception"


def test_a_mismatch_names_all_that_it_concerns() -> None:
    line = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"
    nodes = node(0, [ended(0, 1), lives(1)], [said(0, "gpu_shared", line)]), node(1, [lives(2)])
    assert verdict(*nodes) == ("gpu_shared", 0, 0, False)
    assert clause(*nodes).endswith(f"; it concerns ranks 0, 1; rank 0 said '{line}'")


def test_what_ranks_waited_in_is_told_where_it_differs() -> None:
    form = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType={}, "
    calls = ["ALLREDUCE", "ALLREDUCE", "BROADCAST"]
    clues = [
        said(rank, "watchdog_timeout", form.format(rank, call) + "NumelIn=1, NumelOut=1)")
        for rank, call in enumerate(calls)
    ]
    waited_all = node(0, [ended(rank, 134) for rank in range(3)], clues)
    assert verdict(waited_all)[0] == "desync"
    differ = "rank 2 calls BROADCAST where ranks 0, 1 call ALLREDUCE"
    assert clause(waited_all).endswith(f": {differ}; which rank is the cause is not known")


def test_why_a_rank_did_not_come_is_told_where_its_node_shows_it() -> None:
    first = node(0, [ended(0, 1)], waited(0))
    error = Clue(id=LOGGED, line="ERROR shapes differ", rank=1, at=-1.0)
    assert verdict(first, node(1, [lives(1)], [error]))[0] == "absent_rank"
    told = clause(first, node(1, [lives(1)], [error]))
    assert "; rank 0 said 'RuntimeError: gloo/" in told
    assert told.endswith("'; rank 1's last error was 'ERROR shapes differ'")
    sick = node(1, [lives(1)])
    assert sick.report is not None
    xid = Fact(kind=FactKind.KERNEL, words="NVRM: Xid (PCI:0000:4b:00): 79, pid=1")
    report = sick.report.model_copy(update={"evidence": Evidence(ranks=[lives(1)], facts=[xid])})
    assert verdict(first, replace(sick, report=report)) == ("gpu_xid", 1, 1, True)


def test_a_mismatch_that_one_rank_tells_outweighs_what_others_suffered() -> None:
    told = Clue(id="gpu_shared", line="Duplicate GPU: rank 1 and rank 3", rank=0, at=-1.0)
    nodes = node(0, [lives(0), ended(1, 1)], [told, *lost(1)]), node(1, [lives(2), lives(3)])
    assert verdict(*nodes) == ("gpu_shared", 0, 1, False)
    assert "; it concerns ranks 0, 1, 3; rank 0 said 'Dup" in clause(*nodes)


def test_who_ended_unread_after_another_one_of_its_node_was_ended_for_that() -> None:
    unread = RankEnd(rank=1, ended=0.1)
    clues = [*lost(0), said(1, "exception", "ValueError: no", -0.5)]
    nodes = node(0, [ended(0, 1), unread], clues), node(1, [lives(2)])
    assert verdict(*nodes) == ("exception", 0, 1, True)


def test_a_mismatch_that_a_living_rank_has_raised_blames_nobody() -> None:
    told = said(1, "ranks_differ", "rank 0 and rank 1 differ", -0.5)
    found = verdict(node(0, [ended(0, 1)], lost(0)), node(1, [lives(1)], [told]))
    assert (found[0], found[3]) == ("ranks_differ", False)


def test_a_kill_for_memory_on_another_node_is_not_this_ones() -> None:
    word = Clue(id="memory_limit", line="Detected 1 oom_kill event", rank=1, at=1.0)
    told = node(0, [ended(0, 143)]), node(1, [lives(1)], [word])
    assert verdict(*told) == ("terminated", 0, 0, True)


def test_what_an_absent_rank_had_got_over_is_not_why_it_is_absent() -> None:
    old = Clue(id="file_missing", line="WARNING [Errno 2] no tuning file", rank=1, at=-3000.0)
    last = Clue(id=LAST_LINE, line="step 60", rank=1, at=-1.0)
    told = node(0, [ended(0, 1)], waited(0)), node(1, [lives(1)], [old, last])
    assert verdict(*told) == ("absent_rank", 1, 1, True)
    assert "; rank 0 said 'RuntimeError: gloo/" in clause(*told)
    assert clause(*told).endswith("'; rank 1's last line was 'step 60'")


def test_the_last_lines_of_a_node_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[object]()

    def find_clues(lines: object) -> list[Clue]:
        reads.append(lines)
        return []

    monkeypatch.setattr(seen, "find_clues", find_clues)
    report = ExitReport(epoch=1, exit_code=1, rank=0, tail=["no"])
    ranks = [range(2 * n, 2 * n + 2) for n in range(9)]
    judge([NodeSeen(n, 100.0, report, failed=True, ranks=own) for n, own in enumerate(ranks)])
    assert len(reads) == 9


@pytest.mark.parametrize(
    ("why", "row", "says", "step"),
    [
        (
            "PREEMPTION",
            "preempted",
            "the scheduler preempted its worker run",
            "--on-node-loss replace",
        ),
        (
            "JOB REQUEUE",
            "requeued",
            "the scheduler put its job back into the queue",
            "--on-node-loss replace",
        ),
        ("TIME LIMIT", "time_limit", "the scheduler ended it at the job's time limit", "more time"),
        ("NODE FAILURE", "node_failure", "a node of its job failed", "--on-node-loss replace"),
    ],
)
def test_slurms_reason_is_told_as_it_says_it(why: str, row: str, says: str, step: str) -> None:
    line = f"slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO {why} ***"
    report = ExitReport(epoch=1, exit_code=143, rank=0, tail=[line])
    judged = judged_of([NodeSeen(0, 100.0, report, failed=True, ranks=range(1))])
    said_of, cause = sentence_of(judged), judged.cause
    assert (cause.row, cause.rank, judged.blames) == (row, 0, True)
    assert says in said_of.brief
    assert line in said_of.clause
    assert step in said_of.hint


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("KeyError: 'SLURM_PROCID'", "variable_removed"),
        ("ValueError: environment variable SLURM_PROCID expected, but not set", "variable_removed"),
        ("KeyError: 'MY_SLURM_PROCID'", "variable_missing"),
        ("ValueError: SLURM_PROCID is no number", "exception"),
    ],
)
def test_a_variable_that_rdzv_took_out_is_told_where_the_node_says_so(line: str, row: str) -> None:
    fact = Fact(kind=FactKind.REMOVED, path="SLURM_PROCID")
    raised = said(0, "not_initialized" if "expected" in line else "exception", line)
    evidence = Evidence(ranks=[ended(0, 1)], clues=[raised], facts=[fact])
    report = ExitReport(epoch=1, exit_code=1, evidence=evidence)
    judged = judged_of([NodeSeen(0, 100.0, report, failed=True, ranks=range(1))])
    found = sentence_of(judged)
    assert judged.cause.row == row
    is_its = row == "variable_removed"
    assert ("rdzv took out of its environment: SLURM_PROCID" in found.evidence) == is_its
    assert ("env SLURM_PROCID=VALUE python" in found.hint) == is_its
