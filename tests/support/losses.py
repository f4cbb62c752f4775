"""Runs that lose a node and go on: one contract, and what each scheduler gives for it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.epochs import program, starts_apart, starts_in
from tests.support.launching import Outcome
from tests.support.waiting import until

REPLACE = ("--on-node-loss", "replace")
SOON = ("--lease", "5", "--fence-timeout", "12", "--grace", "1")
"""A node that falls silent is lost after 5 s; after 12 s none of its programs can be alive."""
LIMIT_SECONDS = 100.0
# All wait, but in the last epoch of a test, which ends well.
WAITS = 'until(f"end-{epoch}")'
THREE = [(1, 0), (1, 1), (1, 2)]
SIX = [*THREE, (2, 0), (2, 1), (2, 2)]


def epochs_of(starts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Starts with their epochs numbered from 1: the registry's numbers leave some out."""
    numbers = sorted({epoch for epoch, _ in starts})
    return [(numbers.index(epoch) + 1, rank) for epoch, rank in starts]


def waiting(folder: Path) -> list[str]:
    """COMMAND, on the PATH of any node that sees the folder: ends well once it is told to."""
    return ["python3", *program(folder, WAITS)[1:]]


def wait_for_first(folder: Path) -> None:
    """Until all have started."""
    until(lambda: len(starts_in(folder)) == 3, LIMIT_SECONDS)


def wait_for_second(folder: Path, lost: float, how: str) -> None:
    """Until all have started again; prints how long after the loss that was."""
    until(lambda: len(starts_in(folder)) == 6, LIMIT_SECONDS)
    again = max(start.at for start in starts_in(folder)[3:]) - lost
    print(f"{how} -> first statement of all: {again:.2f} s")


def end(folder: Path) -> None:
    """Tell the programs of the newest epoch to end well."""
    (folder / f"end-{starts_in(folder)[-1].epoch}").touch()


class Run(Protocol):
    """A launch that runs."""

    def finish(self, seconds: float) -> Outcome:
        """Wait for the end."""


def finish(run: Run, folder: Path) -> str:
    """Let the run end; returns what its launcher has said.

    Each program has started once in each of two epochs, beside nobody of the older one.
    """
    end(folder)
    outcome = run.finish(LIMIT_SECONDS)
    said = outcome.out + outcome.err
    assert outcome.code == 0, said
    assert epochs_of(starts_apart(folder)) == SIX
    last_line = said.strip().splitlines()[-1]
    assert last_line.startswith("rdzv: run 'r' ok after 1 replacement: all 3 nodes"), last_line
    return said


class Nodes(ABC):
    """A scheduler that starts three nodes, of which a test ends one."""

    @abstractmethod
    def running(self, folder: Path, *options: str) -> AbstractContextManager[Run]:
        """Three nodes whose programs have started; at the end nothing of the run is left."""

    @abstractmethod
    def kill(self, slot: int) -> None:
        """End the first worker run of a slot, as a person or the scheduler would."""

    def silence(self, slot: int) -> None:
        """Have the node of a slot say nothing more."""
        pytest.skip("no node of this scheduler falls silent")

    def answer_again(self) -> None:  # noqa: B027 (most have nothing to do)
        """Let who was silent be reached again, where its scheduler cannot end it otherwise."""

    def check(self, slot: int, said: str) -> None:
        """Assert what this scheduler says of the slot's first worker run, and of the second."""
        assert said


class NodeLoss:
    """What holds of the nodes of every scheduler; a class of tests gives `nodes` as a fixture."""

    def test_a_killed_node_is_submitted_again(self, nodes: Nodes, tmp_path: Path) -> None:
        with nodes.running(tmp_path) as run:
            lost = time.monotonic()
            nodes.kill(1)
            wait_for_second(tmp_path, lost, "killed, submitted again")
            said = finish(run, tmp_path)
            nodes.check(1, said)
        assert "slot 1 is submitted again (replacement 1 of 3)" in said

    @pytest.mark.nightly
    def test_a_standby_steps_in_for_a_killed_node(self, nodes: Nodes, tmp_path: Path) -> None:
        with nodes.running(tmp_path, "--standby", "1") as run:
            lost = time.monotonic()
            nodes.kill(1)
            wait_for_second(tmp_path, lost, "killed, a standby there")
            said = finish(run, tmp_path)
        assert "takes the place of node" in said

    @pytest.mark.nightly
    def test_a_silent_node_is_submitted_again(self, nodes: Nodes, tmp_path: Path) -> None:
        with nodes.running(tmp_path, *SOON) as run:
            lost = time.monotonic()
            nodes.silence(1)
            wait_for_second(tmp_path, lost, "silent, submitted again")
            nodes.answer_again()
            said = finish(run, tmp_path)
            nodes.check(1, said)
        assert "slot 1 is submitted again (replacement 1 of 3)" in said

    @pytest.mark.nightly
    def test_rank_0_is_submitted_again_where_the_launcher_has_no_node(
        self, nodes: Nodes, tmp_path: Path
    ) -> None:
        with nodes.running(tmp_path, "--no-local-node") as run:
            lost = time.monotonic()
            nodes.kill(0)
            wait_for_second(tmp_path, lost, "rank 0 killed, submitted again")
            finish(run, tmp_path)
