"""The search for failing schedules goes on where it ended, and forgets no seed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation import __main__ as command
from tests.simulation.history import Violation
from tests.simulation.planted import BUGS
from tests.simulation.progress import FILE, Kept, Progress, Totals, digest, kept_in
from tests.simulation.search import stored
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
FOLDER = Path("build/simulate")
FAILED = Totals(2, failed=[(0, Violation("a_rule", "it does not hold", 1.0))])


def test_chunk_after_chunk_is_counted_on_each_version_of_the_code() -> None:
    progress = Progress().after(range(3), Totals(3), "v1").after(range(3, 5), Totals(2), "v2")
    progress = progress.after(range(5, 6), Totals(1), "v1")
    assert progress == Progress(6, 6, {"v2": 2, "v1": 4})
    assert list(progress.versions) == ["v2", "v1"]


@pytest.mark.parametrize("chunk", [range(4, 7), range(2, 5), range(3, 7)])
def test_no_seed_is_left_out_or_counted_twice(chunk: range) -> None:
    with pytest.raises(ValueError, match="do not follow 2"):
        Progress(next_seed=3).after(chunk, Totals(3), "v1")


def test_a_version_is_another_with_every_source_but_those_of_tests(tmp_path: Path) -> None:
    seen = [digest([tmp_path])]
    (tmp_path / "b").mkdir()
    for name, text in [("a.py", ""), ("a.py", "x"), ("b/c.py", "x")]:
        (tmp_path / name).write_text(text)
        seen.append(digest([tmp_path]))
    assert len(set(seen)) == len(seen)
    (tmp_path / "test_a.py").write_text("x")
    (tmp_path / "seeds.json").write_text("x")
    assert digest([tmp_path]) == seen[-1]


def test_what_could_not_be_written_whole_leaves_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, "v1")
    kept.take(range(2), FAILED)

    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:20])
        raise OSError("no space")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space"):
        kept.take(range(2, 4), Totals(2))
    whole = Progress(2, 2, {"v1": 2}, {0: "a_rule"})
    assert Kept(tmp_path, "v1").progress == kept.progress == whole


@pytest.mark.parametrize("text", ["{", '{"next_seed": "many"}'])
def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(SystemExit, match="delete it"), kept_in(tmp_path, "v1"):
        pass
    assert (tmp_path / FILE).read_text() == text


def test_two_searches_do_not_go_on_at_the_same_time(tmp_path: Path) -> None:
    refused = pytest.raises(SystemExit, match="another search")
    with kept_in(tmp_path, "v1"), refused, kept_in(tmp_path, "v1"):
        pass
    with kept_in(tmp_path, "v1") as kept:
        assert kept.progress == Progress()


# --- the command ----------------------------------------------------------------------------------


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


@pytest.mark.planted
def test_the_next_search_goes_on_and_one_from_a_seed_leaves_what_is_kept(
    search: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    assert "\nin all 3 schedules" in search("--schedules", "3")[1]
    code, said = search("--schedules", "2", "--jobs", "2", "--chunk", "1")
    assert (code, said[:14], "\nin all 5 schedules" in said) == (0, "2 schedules in", True)
    kept = progress_in(tmp_path)
    assert (kept.next_seed, kept.schedules, list(kept.versions.values())) == (5, 5, [5])
    assert "in all" not in search("--schedules", "1", "--seed", "0")[1]
    assert progress_in(tmp_path) == kept


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


@pytest.mark.real_time
@pytest.mark.planted
def test_a_search_that_is_broken_off_goes_on(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", "--schedules=100000", "--chunk=2", "--jobs=2"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    until(lambda: (tmp_path / FOLDER / FILE).exists(), 40.0)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=50)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "in all" in said
    kept = progress_in(tmp_path)
    assert kept.next_seed == kept.schedules >= 2
    with kept_in(tmp_path / FOLDER, "v1") as again:
        again.take(range(kept.next_seed, kept.next_seed + 1), Totals(1))
