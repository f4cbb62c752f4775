"""Nodes of a run are lost, with real processes: it goes on with others, or with fewer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.path.test_local import standing_registry
from tests.support import losses
from tests.support.epochs import program, starts_apart, starts_in
from tests.support.launching import Launched, launching, processes_with, rdzv
from tests.support.losses import (
    THREE,
    WAITS,
    NodeLoss,
    Nodes,
    end,
    epochs_of,
    wait_for_first,
    waiting,
)
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

REPLACE = ("--framework", "command", *losses.REPLACE)


def started(folder: Path, count: int) -> None:
    until(lambda: len(starts_in(folder)) >= count)


def kill(launched: Launched, slot: int) -> None:
    """SIGKILL of a node's agent."""
    launched.child(" worker ", f"127.0.0.{slot + 1}").kill()


class Agents(Nodes):
    """Nodes are processes beside the launcher."""

    @contextmanager
    def running(self, folder: Path, *options: str) -> Iterator[Launched]:
        command, words = waiting(folder), ("--nnodes", "3", *REPLACE, *options)
        with launching(folder / "s", *words, command=command) as self.launched:
            wait_for_first(folder)
            yield self.launched
        until(lambda: not processes_with(str(folder)))

    def kill(self, slot: int) -> None:
        kill(self.launched, slot)


class TestAgents(NodeLoss):
    @pytest.fixture
    def nodes(self) -> Nodes:
        return Agents()


def test_a_run_that_may_shrink_goes_on_with_those_that_are_left(tmp_path: Path) -> None:
    command = program(tmp_path, WAITS)
    options = ("--nnodes", "2:3", "--framework", "command", "--on-node-loss", "shrink")
    with launching(tmp_path / "s", *options, command=command) as launched:
        started(tmp_path, 3)
        kill(launched, 1)
        started(tmp_path, 5)
        end(tmp_path)
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert epochs_of(starts_apart(tmp_path)) == [*THREE, (2, 0), (2, 1)]


@pytest.mark.nightly
def test_the_launchers_own_node_is_replaced_where_its_registry_is_elsewhere(tmp_path: Path) -> None:
    command = program(tmp_path, WAITS)
    with (
        standing_registry(tmp_path / "serve") as env,
        launching(tmp_path / "s", "--nnodes", "2", *REPLACE, command=command, env=env) as launched,
    ):
        started(tmp_path, 2)
        kill(launched, 0)
        started(tmp_path, 4)
        end(tmp_path)
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert epochs_of(starts_apart(tmp_path)) == [(1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.nightly
def test_a_standby_that_is_killed_disturbs_nobody_and_comes_again(tmp_path: Path) -> None:
    command = program(tmp_path, WAITS)
    options = ("--nnodes", "2", "--standby", "1", *REPLACE)
    with launching(tmp_path / "s", *options, command=command) as launched:
        started(tmp_path, 2)
        launched.wait_for_phase("running")
        kill(launched, 2)
        launched.wait_for("joined", 4)
        end(tmp_path)
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert epochs_of(starts_apart(tmp_path)) == [(1, 0), (1, 1)]


def test_a_node_that_is_drained_is_replaced_before_it_goes(tmp_path: Path) -> None:
    command = program(tmp_path, WAITS, before="hear(signal.SIGTERM, lambda: sys.exit(0))\n")
    options = ("--nnodes", "2", "--standby", "1", "--grace", "1", *REPLACE)
    with launching(tmp_path / "s", *options, command=command) as launched:
        started(tmp_path, 2)
        rdzv(tmp_path / "s", "drain", "r", "1", "--in", "7")
        started(tmp_path, 4)
        end(tmp_path)
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert epochs_of(starts_apart(tmp_path)) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert "leaves the run: drained" in outcome.last_line
