"""What is not enough to hold a rank to be the cause, by value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rendezvous.cause.clues import LAST_LINE, LOGGED
from rendezvous.cause.facts import FactKind
from rendezvous.wire.evidence import Clue, Fact
from tests.rendezvous.cause.test_judge import ended, lives, lost, node, said, verdict
from tests.rendezvous.cause.verdicts import judged_of


def printed(rank: int, row: str, line: str, at: float | None = None) -> Clue:
    return Clue(id=row, line=line, rank=rank, at=at)


@pytest.mark.parametrize(
    ("clue", "certain"),
    [
        (printed(0, "port_taken", "bind: Address already in use", -0.1), False),
        (printed(0, "port_taken", "WARNING: bind: Address already in use", -0.1), True),
        (printed(0, LOGGED, "ERROR: no data", -0.1), False),
        (printed(0, LOGGED, "no data was lost", -0.1), True),
        (printed(0, "peer_gone", "Connection closed by peer", -1.5), False),
        (printed(0, "peer_gone", "Connection closed by peer", -0.5), True),
        (printed(0, "time_limit", "DUE TO TIME LIMIT", -9.0), True),
        (said(0, "exception", "KeyboardInterrupt", at=-0.1), True),
        (printed(0, "port_taken", "bind: Address already in use", 0.1), True),
    ],
)
def test_who_was_told_to_end_is_no_cause_where_anything_had_failed(
    clue: Clue, certain: bool
) -> None:
    nodes = node(0, [lives(0)], [clue]), node(1, [ended(1, 143)])
    if clue.id == "time_limit":
        assert verdict(*nodes)[0] == "time_limit"
    else:
        assert verdict(*nodes)[3] is certain


def test_a_silent_exit_code_that_another_rank_has_too_blames_nobody() -> None:
    silent = node(0, [ended(0, 16)], [printed(0, LAST_LINE, "saved")])
    assert verdict(silent, node(1, [lives(1)])) == ("exit_code", 0, 0, True)
    assert verdict(silent, node(1, [ended(1, 16)])) == ("exit_code", 0, 0, False)
    told = node(1, [ended(1, 16, 0.1)], [printed(1, LOGGED, "ERROR: the loss is nan")])
    assert verdict(silent, told) == ("not_finite", 1, 1, True)


def test_a_silent_end_after_one_that_only_lost_another_is_alike() -> None:
    first = node(0, [ended(0, 134)], lost(0), began_at=99.0)
    assert verdict(first, node(1, [ended(1, 134)])) == ("peer_gone", 0, 0, False)
    assert verdict(first, node(1, [ended(1, 139)])) == ("segfault", 1, 1, True)


@pytest.mark.parametrize(
    ("line", "certain"),
    [
        ("RuntimeError: it failed with 7", False),
        ("ValueError: it failed with 7", True),
        ("RuntimeError: /data/7 is not a checkpoint", True),
    ],
)
def test_what_some_but_not_all_raise_alike_may_be_of_another_one(line: str, certain: bool) -> None:
    nodes = [node(rank, [ended(rank, 1)], [said(rank, "exception", line)]) for rank in range(2)]
    assert verdict(*nodes)[3] is True
    assert verdict(*nodes, node(2, [lives(2)]))[3] is certain


def test_what_was_raised_long_before_another_rank_was_lost_was_got_over() -> None:
    over = said(0, "sample", "x.DecodeError: no frame", at=-2.0).model_copy(update={"last": False})
    clues = [over, printed(0, "peer_gone", "Connection closed by peer", -0.2)]
    nodes = node(0, [ended(0, 134)], clues), node(1, [ended(1, 1)], [said(1, "exception", "x: no")])
    assert verdict(*nodes)[2] == 1
    assert verdict(nodes[0])[:3] == ("sample", 0, 0)


def test_of_a_write_that_was_cut_off_others_tell_what_it_met() -> None:
    clues = [said(0, "write_failed", "RuntimeError: unexpected pos 704 vs 598")]
    full = [printed(1, "disk_full", "OSError: [Errno 28] No space left on device", 0.0)]
    assert verdict(node(0, [ended(0, 1)], clues), node(1, [lives(1)], full))[0] == "disk_full"
    assert verdict(node(0, [ended(0, 1)], clues), node(1, [lives(1)]))[0] == "write_failed"


def test_what_a_device_told_both_ranks_of_a_node_is_of_that_node() -> None:
    line = "NCCL WARN NET/IB : Got async event : local catastrophic error"
    sick = node(1, [lives(2), lives(3)], [printed(rank, "net_adapter", line) for rank in (2, 3)])
    assert verdict(node(0, [ended(0, 1)], lost(0)), sick) == ("net_adapter", 1, 2, True)


def test_between_two_ranks_it_concerns_both() -> None:
    nodes = [
        node(0, [lives(0)], lost(0)),
        node(1, [ended(1, 134)], [printed(1, "size_mismatch", "op.preamble")]),
    ]
    judged = judged_of(nodes)
    assert (judged.blames, judged.named) == (False, (0, 1))


@pytest.mark.parametrize(
    ("lines", "row"),
    [
        (("NCCL error: no 7", "NCCL error: no 8"), "all_alike"),
        (("NCCL error: no 7", "NCCL error: nothing"), "communication"),
        (("NCCL error: timed out", "NCCL error: timed out"), "communication"),
        (("NCCL error: Connection refused", "NCCL error: Connection refused"), "communication"),
        (("NCCL error of rank 1", "NCCL error of rank 1"), "communication"),
        (("no such thing", "no such thing"), "communication"),
    ],
)
def test_what_a_library_tells_all_ranks_alike_is_common_to_them(
    lines: tuple[str, str], row: str
) -> None:
    each = [
        node(rank, [ended(rank, 1)], [said(rank, "communication", line)])
        for rank, line in enumerate(lines)
    ]
    assert verdict(*each) == (row, 0, 0, row == "all_alike")
    assert verdict(*each, node(2, [lives(2)]))[3] is False
    logged = [
        node(rank, [ended(rank, 134)], [printed(rank, "communication", line)])
        for rank, line in enumerate(lines)
    ]
    assert verdict(*logged)[0] == ("abort" if row == "all_alike" else row)


def test_what_is_raised_after_a_wait_may_have_come_of_it() -> None:
    clues = [
        printed(0, "watchdog_timeout", "Watchdog caught collective operation timeout", -0.2),
        said(0, "file_missing", "FileNotFoundError: /data/made-by-rank-1", at=-0.1),
    ]
    nodes = node(0, [ended(0, 1)], clues), node(1, [lives(1)])
    assert verdict(*nodes) == ("absent_rank", 1, 1, True)
    own = clues[1].model_copy(update={"id": "cuda_fault"})
    assert verdict(node(0, [ended(0, 1)], [clues[0], own]), nodes[1])[:3] == ("cuda_fault", 0, 0)


def test_of_who_waited_the_kernels_log_names_no_rank() -> None:
    clues = [printed(0, "watchdog_timeout", "Watchdog caught collective operation timeout", -0.2)]
    fact = Fact(kind=FactKind.KERNEL, words="NVRM: Xid (PCI:0000:81:00): 79, GPU is off the bus")
    for ends, rank in (([ended(0, 134), ended(1, 143)], None), ([ended(0, 134)], 0)):
        seen = node(0, ends, clues)
        assert seen.report is not None
        evidence = seen.evidence().model_copy(update={"facts": [fact]})
        report = seen.report.model_copy(update={"evidence": evidence})
        assert verdict(replace(seen, report=report)) == ("gpu_xid", 0, rank, True)


def test_a_device_that_failed_goes_before_a_mismatch() -> None:
    path = [printed(0, "ib_path", "Got completion from peer x with status=12", -0.2)]
    broken = [printed(2, "net_adapter", "Got async event : local catastrophic error", -1.0)]
    nodes = node(0, [ended(0, 1)], path), node(1, [lives(2)], broken)
    assert verdict(*nodes) == ("net_adapter", 1, 2, True)
    assert verdict(nodes[0], node(1, [lives(2)])) == ("ib_path", 0, 0, False)


def test_a_crash_without_words_is_not_explained_by_what_another_rank_logs_of_it() -> None:
    crash = node(0, [ended(0, 139)])
    logs = node(1, [ended(1, 1, 0.1)], [printed(1, LOGGED, "ERROR: the booster was not updated")])
    assert verdict(crash, logs) == ("segfault", 0, 0, True)
    raises = node(1, [ended(1, 1, 0.1)], [said(1, "sample", "x.DecodeError: no frame")])
    assert verdict(crash, raises) == ("sample", 1, 1, True)


def test_of_several_last_errors_one_that_tells_of_others_counts() -> None:
    clues = [
        printed(0, LOGGED, "ERROR: the connection was lost", -0.2),
        printed(0, LOGGED, "RuntimeError: the engine did not start", -0.1),
    ]
    assert verdict(node(0, [ended(0, 1)], clues))[0] == "communication"
    own = clues[1].model_copy(update={"line": "ERROR: CUDA failure in the engine"})
    assert verdict(node(0, [ended(0, 1)], [clues[0], own]))[0] == "exit_code"


def test_who_was_ended_after_a_stall_that_another_told_of_is_no_cause() -> None:
    stall = printed(0, "waited", "WARNING: submitted to be reduced by subset of ranks", -1.4)
    assert verdict(node(0, [ended(0, 143)], [stall]), node(1, [ended(1, 143)]))[3] is False
    other = stall.model_copy(update={"id": "port_taken"})
    assert verdict(node(0, [ended(0, 143)], [other]), node(1, [ended(1, 143)]))[3] is True
