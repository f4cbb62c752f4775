"""The last block of a terminal: who, why, how certain, and what to do fit into six lines of 80."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launcher.show.last_line import hint_of, last_line
from launcher.state.state_dir import StateDir
from rendezvous.cause.judge import judge
from rendezvous.cause.seen import NodeSeen
from rendezvous.cause.sentences import sentence_of
from rendezvous.run.first_cause import FirstCause
from rendezvous.wire.run import Phase, Result
from tests.rendezvous.cause.corpus import ENTRIES, FAULTS, Seeing, seen
from tests.rendezvous.cause.public import PUBLIC, SEEDS, WAYS, entries_in
from tests.support.driver import Drive, in_phase

SHARES = 8
RUN = "llama-70b-finetune-3"


def failures(share: int) -> Iterator[tuple[str, Sequence[NodeSeen]]]:
    """How the nodes of each stored failure were seen."""
    older = [(entry.id, seen(entry, Seeing())) for entry in ENTRIES[share::SHARES]]
    later = [(fault.name, fault.nodes()) for fault in FAULTS[share::SHARES]]
    public = [*entries_in(SEEDS), *entries_in(PUBLIC)][share::SHARES]
    yield from [*older, *later]
    yield from ((one.name, one.nodes(WAYS[0])) for one in public)


def found_in(nodes: Sequence[NodeSeen], drive: Drive) -> FirstCause | None:
    """Its first cause, of a run with as many nodes."""
    if (judged := judge(nodes)) is None:
        return None
    cause, first = judged.cause, judged.first
    of_cause, slots = next(one for one in nodes if one.slot == cause.slot), drive.run.slots
    failed = cause.slot if cause.code is not None or of_cause.report is None else first.slot
    report = next(one.report for one in nodes if one.slot == failed)
    return FirstCause(slots[cause.slot], slots[failed], report, judged, sentence_of(judged))


def test_a_path_that_does_not_fit_into_a_line_is_not_broken(tmp_path: Path) -> None:
    result = Result(
        status="failed", exit_code=1, message="it failed", log=f"/{'x' * 80}/rank-1.log"
    )
    rows = last_line(RUN, result, StateDir(tmp_path, RUN), width=80).splitlines()
    assert rows[1:] == [f"rdzv:   exit code 1 (rdzv's); more: rdzv status {RUN}"]


def test_a_long_name_of_a_run_costs_no_row_and_a_rank_is_asked_for_once(tmp_path: Path) -> None:
    run, message = (
        "a-long-name-of-32-characters-xyz",
        "node 0 (h0) failed first: " + "y " * 200,
    )
    hint = "see first what rank 0 did: rdzv logs RUN --rank 0; or: rdzv logs RUN"
    result = Result(status="failed", exit_code=134, message=message, hint=hint, rank=1)
    result = result.model_copy(update={"exit_code_of": "program"})
    rows = last_line(run, result, StateDir(tmp_path, run), width=80).splitlines()
    assert rows[-1] == f"rdzv:   exit code 134; more: rdzv status {run}"
    assert hint_of(run, hint, 1).endswith(f"--rank 0; or: rdzv logs {run} --rank 1")


def rows_of(found: FirstCause, state: StateDir, more: str = "") -> list[str]:
    """What a terminal shows."""
    result = Result(status="failed", exit_code=1, message=found.words(more), hint=found.said.hint)
    return last_line(RUN, result.model_copy(update=found.fields()), state, width=80).splitlines()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("share", range(SHARES))
def test_who_why_how_certain_and_the_step_fit_into_six_lines_of_each_failure(
    share: int, tmp_path: Path
) -> None:
    drive, state = in_phase(Phase.RUNNING, 16), StateDir(tmp_path, RUN)
    for name, nodes in failures(share):
        if (found := found_in(nodes, drive)) is None:
            continue
        rows = rows_of(found, state)
        shown = " ".join(row.strip() for row in rows)
        assert len(rows) <= 6, (name, rows)
        assert max(map(len, rows)) <= 80, (name, rows)
        assert ("is not known" in shown) is not found.judged.blames, (name, rows)
        assert ("; others name rank" in found.said.clause) is ("; others name rank" in shown), rows
        why = found.said.brief or found.said.quote
        assert "".join(why[:60].split()) in "".join(shown.split()), (name, rows)
        assert ("rdzv:   next: " in "\n".join(rows)) is bool(found.said.hint), (name, rows)
        assert "its last" not in found.said.clause
