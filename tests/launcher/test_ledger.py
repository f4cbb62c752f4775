"""What a launch knows of its worker runs stays on disk, whatever ends the launcher."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.plan.plan import WorkerRun
from launcher.plan.template import Value
from launcher.state.ledger import Ledger, LedgerEntry

VARIABLES: dict[str, Value] = {"COMMAND": ["a b", "한", "x\ny"], "NAME": "x", "ZERO": "007"}


def entry(slot: int, generation: int = 1, starter: str = "slurm") -> LedgerEntry:
    name = f"rdzv-k7f2-{slot}-{generation}"
    run = WorkerRun(slot, generation, name, VARIABLES | {"SLOT": slot}, "w.sh")
    return LedgerEntry(run, starter)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "worker-runs.jsonl")


def test_what_became_known_last_counts_and_what_is_gone_is_not_left(ledger: Ledger) -> None:
    assert (ledger.entries(), ledger.left()) == ([], [])
    first, second, third = entry(2), entry(1), entry(1, 2)
    for each in (first, second, third):
        ledger.begin(each)
    made = replace(second, handle="17")
    ledger.note(made)
    gone = replace(first, handle="16", gone=True)
    ledger.note(gone)
    assert ledger.entries() == [made, third, gone]
    assert ledger.left() == [made, third]


def test_a_worker_run_comes_back_as_its_scheduler_needs_it(ledger: Ledger) -> None:
    ledger.begin(entry(3))
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    [found] = ledger.entries()
    assert found.run == WorkerRun(3, 1, "rdzv-k7f2-3-1", VARIABLES | {"SLOT": 3}, "w.sh")


def test_what_the_last_release_has_written_is_read(ledger: Ledger) -> None:
    ledger.path.write_text(
        '{"name": "rdzv-k7f2-3-1", "slot": 3, "generation": 1, "starter": "slurm", "source": '
        '"w.sh", "variables": {"SLOT": 3, "COMMAND": ["x"]}, "handle": "", "gone": false, '
        '"former": true}\n{"name": "rdzv-k7f2-3-1", "handle": "17", "gone": false}\n'
    )
    run = WorkerRun(3, 1, "rdzv-k7f2-3-1", {"SLOT": 3, "COMMAND": ["x"]}, "w.sh")
    assert ledger.entries() == [LedgerEntry(run, "slurm", "17", former=True)]
    assert ledger.entries()[0].line() == (
        '{"slot": 3, "generation": 1, "name": "rdzv-k7f2-3-1", "variables": {"SLOT": 3, '
        '"COMMAND": ["x"]}, "source": "w.sh", "starter": "slurm", "handle": "17", "gone": false, '
        '"former": true}\n'
    )


def test_children_of_the_launcher_are_not_written_down(ledger: Ledger) -> None:
    ledger.begin(entry(0, starter="local"))
    ledger.note(entry(0, starter="local"))
    assert not ledger.path.exists()


@pytest.mark.parametrize("torn", [b'{"name": "rdzv-k7f2-2-1", "sl', b"\xff\xfe", b"[1]\n", b"7"])
def test_a_line_that_was_cut_short_spoils_no_other(ledger: Ledger, torn: bytes) -> None:
    ledger.begin(entry(1))
    with ledger.path.open("ab") as file:
        file.write(torn)
    ledger.begin(entry(3))
    assert [found.run.slot for found in ledger.entries()] == [1, 3]


def test_news_of_a_worker_run_whose_beginning_is_lost_are_no_entry(ledger: Ledger) -> None:
    ledger.note(replace(entry(1), handle="17"))
    assert ledger.entries() == []


def test_a_folder_that_is_gone_is_an_error_before_anything_is_submitted(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Ledger(tmp_path / "nowhere" / "worker-runs.jsonl").begin(entry(1))
