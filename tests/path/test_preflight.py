"""What the nodes' own checks do to a run: it ends before any program has started, or goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.launching import launch

pytestmark = pytest.mark.real_time

TWO_NODES = ("--framework", "command", "--nnodes", "2")


def test_a_node_that_could_not_train_ends_the_run_before_a_program_starts(tmp_path: Path) -> None:
    outcome = launch(
        tmp_path, *TWO_NODES, command=["echo", "started"], env={"GLOO_SOCKET_IFNAME": "ib7"}
    )
    assert outcome.code == 87
    assert "started" not in outcome.out
    assert "GLOO_SOCKET_IFNAME ib7" in outcome.last_line
    assert "no interface of this node that is up has this name" in outcome.last_line
    assert "unset GLOO_SOCKET_IFNAME" in outcome.last_line


def test_a_check_that_is_skipped_lets_the_run_start(tmp_path: Path) -> None:
    words = (*TWO_NODES, "--skip", "L17")
    outcome = launch(
        tmp_path, *words, command=["echo", "started"], env={"GLOO_SOCKET_IFNAME": "ib7"}
    )
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.split()) == ["[0]", "[1]", "started", "started"]
