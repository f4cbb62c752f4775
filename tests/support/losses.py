"""A run of three nodes that loses one and goes on, whatever its scheduler is."""

from __future__ import annotations

from pathlib import Path

from tests.faults.test_node_loss import SIX, WAITS, epochs_of
from tests.support.epochs import program, starts_apart, starts_in
from tests.support.waiting import until

REPLACE = ("--on-node-loss", "replace")
SOON = ("--lease", "5", "--fence-timeout", "12", "--grace", "1")
"""A node that falls silent is lost after 5 s; after 12 s none of its programs can be alive."""
LIMIT_SECONDS = 100.0


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


def end_second(folder: Path) -> None:
    """Tell the programs to end."""
    (folder / f"end-{starts_in(folder)[-1].epoch}").touch()


def check_end(folder: Path, code: int, said: str) -> None:
    """Each has started once in each of two epochs, beside nobody of the older one; all is well."""
    assert code == 0, said
    assert epochs_of(starts_apart(folder)) == SIX
    last_line = said.strip().splitlines()[-1]
    assert last_line.startswith("rdzv: run 'r' ok after 1 replacement: all 3 nodes"), last_line
