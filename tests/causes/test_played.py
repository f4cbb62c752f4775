"""Failures of public threads, played by real processes in `rdzv launch`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from tests.rendezvous.cause.public import NOT_YET, PUBLIC, SEEDS, Public, entries_in
from tests.rendezvous.cause.verdicts import BEST_FIRST, RIGHT, Expected, told_in, verdict
from tests.support.launching import launching
from tests.support.nightly import ROUNDS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

HERE = Path(__file__).parent
PLAY, OBSERVED = HERE / "play.py", HERE / "programs" / "observed.py"
QUICK = ("a1-nccl-internal", "b4-openblas", "c2-between-two")
"""They run whenever faults are tested; all others by night."""
_EACH = 24
"""Of the public ones that need no kernel or scheduler, by name, one of so many."""


def _cases() -> Iterator[ParameterSet]:
    for entry in entries_in(SEEDS):
        marks = [] if entry.name in QUICK else [pytest.mark.nightly]
        yield pytest.param(entry, "env", id=entry.name, marks=marks)
        marks = [pytest.mark.nightly, pytest.mark.torch]
        yield pytest.param(entry, "torchrun", id=f"{entry.name}.torchrun", marks=marks)
    by_output = [one for one in entries_in(PUBLIC) if not {"kernel", "scheduler"} & {*one.table}]
    for entry in by_output[::_EACH]:
        yield pytest.param(entry, "env", id=entry.name, marks=pytest.mark.nightly)


def result_of(folder: Path, *options: str, command: list[str], **env: str) -> dict[str, Any]:
    """The `result.json` of a launch, with what its program has printed aside."""
    state = folder / "state"
    env |= {"OMP_NUM_THREADS": "1", "PLAYED_IN": str(folder)}
    with launching(state, *options, command=command, env=env, cwd=folder) as launched:
        launched.finish(100.0)
    result: dict[str, Any] = json.loads((state / "r" / "result.json").read_text())
    return result


@pytest.mark.parametrize(("entry", "framework"), [*_cases()])
def test_the_sentence_is_as_right_as_that_of_what_was_seen(
    entry: Public, framework: str, tmp_path: Path
) -> None:
    folder = PUBLIC if (PUBLIC / f"{entry.name}.toml").exists() else SEEDS
    python = [] if framework == "torchrun" else [sys.executable]
    command = [*python, str(PLAY), str(folder / f"{entry.name}.toml")]
    nodes, each = (str(entry.table[key]) for key in ("nodes", "each"))
    options = ("--nnodes", nodes, "--nproc-per-node", each, "--framework", framework)
    expected = NOT_YET.get(entry.name, RIGHT)
    for count in range(ROUNDS):
        (own := tmp_path / str(count)).mkdir()
        result = result_of(own, *options, command=command)
        found = verdict(entry.expected, told_in(result))
        assert BEST_FIRST.index(found) <= BEST_FIRST.index(expected), result


@pytest.mark.nightly
def test_who_ends_its_others_is_not_named_for_the_one_that_raised(tmp_path: Path) -> None:
    (tmp_path / "lightning").mkdir()
    (tmp_path / "lightning" / "__init__.py").touch()
    options = ("--nnodes", "2", "--nproc-per-node", "2", "--framework", "lightning")
    command = ["python", str(OBSERVED)]
    result = result_of(tmp_path, *options, command=command, PYTHONPATH=str(tmp_path))
    expected = Expected(2, (2, 3), ("IndexError: index 1003 is out of bounds",), ranks_known=False)
    assert verdict(expected, told_in(result)) == RIGHT, result
