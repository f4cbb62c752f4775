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
        "node 0 (host0) failed: rank 0 ended with exit code 1: all ranks waited for each "
        "other: RuntimeError: Timed out waiting 6000ms for recv operation"
    )


def test_a_run_in_which_nothing_has_failed_has_no_cause() -> None:
    assert first_cause(run_of({"exit_code": 0}, {})) is None
