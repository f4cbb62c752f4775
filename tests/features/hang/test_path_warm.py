"""A real launch whose ranks are forked: hangs are found, and end it, as with torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.hang.test_path_hangs import looked, train
from tests.path.test_warm import forked
from tests.support.launching import launching, rdzv
from tests.support.waiting import until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.real_time,
    pytest.mark.torch,
    pytest.mark.timeout(120),
]


@pytest.mark.nightly
def test_a_look_names_the_rank_that_all_wait_for(tmp_path: Path) -> None:
    size = ("--nnodes", "2", "--nproc-per-node", "2", "--warm", "on")
    with launching(tmp_path / "s", *size, command=train(tmp_path, "hangs")) as launched:
        until((tmp_path / "hangs").exists)
        verdict = looked(launched, "--again", "6")["verdict"]
        assert isinstance(verdict, dict)
        assert (verdict["rule"], verdict["odd"], verdict["certain"]) == ("behind", [1], True)
        assert "load_batch (train.py:11)" in verdict["sentence"]
        assert "rank 1 (node 0, " in rdzv(launched.state, "look", "r")


@pytest.mark.nightly
def test_a_stall_ends_the_run_and_names_the_rank(tmp_path: Path) -> None:
    size = ("--nnodes", "2", "--warm", "on", "--stall", "end", "--stall-timeout", "5")
    with launching(tmp_path / "s", *size, command=train(tmp_path, "hangs")) as launched:
        outcome = launched.finish()
    assert outcome.code == 89, outcome.err
    assert "stalled: rank 0 has waited" in outcome.last_line
    assert "load_batch (train.py:11)" in outcome.last_line
    assert forked(launched) == []
