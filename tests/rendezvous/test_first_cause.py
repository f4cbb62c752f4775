"""The first cause of a run: whose it is, whose exit code counts, and what is said of both."""

from __future__ import annotations

from typing import Any

from rendezvous.run.first_cause import first_cause
from rendezvous.run.state import Run
from rendezvous.wire.evidence import Clue, Evidence, RankEnd
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import Phase
from tests.support.driver import in_phase

WAITED = "RuntimeError: [/t/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation"


def waited(rank: int) -> Evidence:
    clue = Clue(id="waited", line=WAITED, rank=rank, at=0.0, raised=True, last=True)
    return Evidence(ranks=[RankEnd(rank=rank, exit_code=1, ended=0.0)], clues=[clue])


def run_of(*reports: dict[str, Any]) -> Run:
    drive = in_phase(Phase.RUNNING, len(reports))
    for slot, said in enumerate(reports):
        if said:
            drive.report(slot, ExitReport(epoch=drive.run.epoch, **said))
    return drive.run


def test_who_was_missed_is_the_cause_and_who_failed_has_the_exit_code() -> None:
    stopped = {"exit_code": 143, "stopped": True}
    failed = {"exit_code": 1, "rank": 0, "evidence": waited(0)}
    found = first_cause(run_of(failed, stopped))
    assert found is not None
    assert (found.row, found.slot.index, found.failed.index, found.exit_code) == (
        "absent_rank",
        1,
        0,
        1,
    )
    assert found.words() == (
        "node 1 (host1): rank 1: it did not take part in a collective in which the others "
        "waited; rank 0 said 'RuntimeError: Timed out waiting 6000ms for recv operation'; "
        "then node 0 (host0) failed: rank 0 ended with exit code 1"
    )
    assert found.fields()["rank"] == 1


def test_where_all_waited_nobody_is_blamed() -> None:
    reports = [{"exit_code": 1, "rank": n, "evidence": waited(n)} for n in (0, 1)]
    found = first_cause(run_of(*reports))
    assert found is not None
    known = found.fields()
    assert (known["cause"], known["certain"], known["rank"]) == ("desync", False, None)
    assert found.words() == (
        "node 0 (host0) failed first: rank 0 ended with exit code 1: all ranks waited for each "
        "other; which rank is the cause is not known; rank 0 said 'RuntimeError: Timed out waiting "
        "6000ms for recv operation'"
    )


def test_a_run_in_which_nothing_has_failed_has_no_cause() -> None:
    assert first_cause(run_of({"exit_code": 0}, {})) is None


def test_an_error_of_all_ranks_is_told_of_all_and_who_was_first() -> None:
    line = "ValueError: the learning rate must be positive"
    clues = [
        Clue(id="exception", line=line, rank=rank, at=0.0, raised=True, last=True)
        for rank in range(2)
    ]
    ends = [RankEnd(rank=rank, exit_code=1, ended=0.0) for rank in range(2)]
    found = first_cause(
        run_of(
            *(
                {"exit_code": 1, "rank": n, "evidence": Evidence(ranks=[ends[n]], clues=[clues[n]])}
                for n in range(2)
            )
        )
    )
    assert found is not None
    words = f"both ranks failed alike, rank 0 of node 0 (host0) first: {line}"
    assert found.words() == words
    assert "only some ranks" not in found.said.hint
    assert "all ranks fail alike: " in found.said.hint


def test_a_long_quote_stands_behind_what_else_is_known() -> None:
    line = f"OSError: [Errno 28] No space left on device: '/{'x' * 200}'"
    clue = Clue(id="disk_full", line=line, rank=0, at=0.0, raised=True, last=True)
    evidence = Evidence(ranks=[RankEnd(rank=0, exit_code=1, ended=0.0)], clues=[clue])
    found = first_cause(run_of({"exit_code": 1, "rank": 0, "evidence": evidence}, {}))
    assert found is not None
    start = "node 0 (host0) failed: rank 0 ended with exit code 1: a file system is full"
    assert found.words("; node 1 was lost") == (
        f"{start}; node 1 was lost; rank 0 said '{line[:239]}…'"
    )
