"""A search for failing schedules ends with 1 where one fails, and forgets no seed that has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation import __main__ as command
from tests.simulation.planted import BUGS
from tests.simulation.progress import FILE, Kept, Progress
from tests.simulation.search import stored

FOLDER = Path("build/simulate")


def progress_in(folder: Path) -> Progress:
    return Kept(folder / FOLDER, "").progress


@pytest.fixture
def search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """The command in a folder of its own: its exit code, and what it says."""
    monkeypatch.setattr(command, "_explain", lambda failed: len(failed))
    monkeypatch.chdir(tmp_path)

    def begin(*options: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["simulation", *options])
        return command.main(), capsys.readouterr().out

    return begin


def test_a_seed_that_fails_is_run_again_first_until_it_passes(
    search: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    name = "live holders displaced"
    seed, invariant = stored()[name]
    FOLDER.mkdir(parents=True)
    Path(FOLDER, FILE).write_text(f'{{"next_seed": {seed}, "schedules": {seed}}}')
    with BUGS[name].planted():
        code, said = search("--schedules", "1")
        assert code == 1
        assert f"\nseed {seed} has failed ({invariant}), and is run again first next time" in said
        kept = progress_in(tmp_path)
        assert (kept.next_seed, kept.failed) == (seed + 1, {seed: invariant})
        code, said = search("--schedules", "1")
        assert (code, said) == (1, "0 of 1 seeds that failed before pass now\n")
        assert progress_in(tmp_path) == kept
    code, said = search("--schedules", "1")
    assert code == 0
    assert said.startswith("1 of 1 seeds that failed before pass now\n")
    after = progress_in(tmp_path)
    assert (after.next_seed, after.failed) == (seed + 2, {})
