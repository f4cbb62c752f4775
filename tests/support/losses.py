"""Runs that lose a node and go on, whatever their scheduler is."""

from __future__ import annotations

from pathlib import Path

from tests.support.epochs import program, starts_apart, starts_in
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


def check_end(folder: Path, code: int, said: str) -> None:
    """Each has started once in each of two epochs, beside nobody of the older one; all is well."""
    assert code == 0, said
    assert epochs_of(starts_apart(folder)) == SIX
    last_line = said.strip().splitlines()[-1]
    assert last_line.startswith("rdzv: run 'r' ok after 1 replacement: all 3 nodes"), last_line
