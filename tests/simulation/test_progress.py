"""The search for failing schedules goes on where it ended, and forgets no seed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
WRONG = Violation("a_rule", "it does not hold", 1.0)


def failing(*seeds: int) -> Totals:
    return Totals(len(seeds), failed=[(seed, WRONG) for seed in seeds])


def test_chunk_after_chunk_is_counted_on_each_version_of_the_code() -> None:
    progress = Progress().after(range(3), Totals(3), "v1").after(range(3, 5), Totals(2), "v2")
    progress = progress.after(range(5, 6), Totals(1), "v1")
    assert progress == Progress(6, 6, {"v2": 2, "v1": 4})
    assert list(progress.versions) == ["v2", "v1"]
    assert progress.words("v1") == (
        "in all 6 schedules, 4 of them on this version of the code (v1); the next seed is 6"
    )


@pytest.mark.parametrize("chunk", [range(4, 7), range(2, 5), range(3, 7)])
def test_no_seed_is_left_out_or_counted_twice(chunk: range) -> None:
    with pytest.raises(ValueError, match="do not follow 2"):
        Progress(next_seed=3).after(chunk, Totals(3), "v1")


def test_a_failed_seed_stays_until_it_passes() -> None:
    progress = Progress().after(range(2), failing(0, 1), "v1").after(range(2, 3), Totals(1), "v1")
    assert progress.failed == {0: "a_rule", 1: "a_rule"}
    again = progress.replayed(failing(1))
    line = "seed 1 has failed (a_rule), and is run again first next time"
    assert again.words("v1").splitlines()[1:] == [line]
    assert again.replayed(Totals()).failed == {}
    assert (again.schedules, again.next_seed) == (progress.schedules, 3)


def test_a_version_is_another_with_every_source_but_those_of_tests(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    seen = [digest([folder])]
    for name, text in [("a.py", ""), ("a.py", "x"), ("b.py", "x"), ("b/c.py", "x")]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        seen.append(digest([folder]))
    assert len(set(seen)) == len(seen)
    (folder / "test_a.py").write_text("x")
    (folder / "seeds.json").write_text("x")
    assert digest([folder]) == seen[-1]


def test_what_could_not_be_written_whole_leaves_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, "v1")
    kept.take(range(2), failing(0, 1))
    kept.replayed(failing(1))
    assert (
        Kept(tmp_path, "v2").progress == kept.progress == Progress(2, 2, {"v1": 2}, {1: "a_rule"})
    )

    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:20])
        raise OSError("no space")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space"):
        kept.take(range(2, 4), Totals(2))
    assert (
        Kept(tmp_path, "v1").progress == kept.progress == Progress(2, 2, {"v1": 2}, {1: "a_rule"})
    )


@pytest.mark.parametrize("text", ["", "{", '{"next_seed": "many"}', "[]"])
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


def begin(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The command in this folder, in a session of its own, as a shell would start it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def said_by(process: subprocess.Popen[str], code: int = 0) -> str:
    said, _ = process.communicate(timeout=50)
    assert process.returncode == code, said
    return said


def progress_in(folder: Path) -> Progress:
    return Kept(folder / FOLDER, "").progress


@pytest.mark.real_time
def test_the_next_search_goes_on_and_one_from_a_seed_leaves_what_is_kept(tmp_path: Path) -> None:
    assert "\nin all 3 schedules" in said_by(begin(tmp_path, "--schedules", "3"))
    said = said_by(begin(tmp_path, "--schedules", "2", "--jobs", "2", "--chunk", "1"))
    assert said.startswith("2 schedules in ")
    assert "\nin all 5 schedules" in said
    kept = progress_in(tmp_path)
    assert (kept.next_seed, kept.schedules, list(kept.versions.values())) == (5, 5, [5])
    assert "in all" not in said_by(begin(tmp_path, "--schedules", "1", "--seed", "0"))
    assert progress_in(tmp_path) == kept


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_is_broken_off_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    process = begin(tmp_path, "--schedules", "100000", "--chunk", "2", "--jobs", "2")
    until(lambda: (tmp_path / FOLDER / FILE).exists(), 40.0)
    os.killpg(process.pid, number)
    said = said_by(process, 130 if number is signal.SIGINT else -number)
    assert "Traceback" not in said
    kept = progress_in(tmp_path)
    assert kept.next_seed == kept.schedules >= 2
    assert ("in all" in said) == (number is signal.SIGINT)
    with kept_in(tmp_path / FOLDER, "v1") as again:
        again.take(range(kept.next_seed, kept.next_seed + 1), Totals(1))


def test_a_seed_that_fails_is_run_again_first_until_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "live holders displaced"
    seed, invariant = stored()[name]
    monkeypatch.setattr(command, "_explain", lambda failed: len(failed))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["simulation", "--schedules", "1"])
    FOLDER.mkdir(parents=True)
    Path(FOLDER, FILE).write_text(f'{{"next_seed": {seed}, "schedules": {seed}}}')
    with BUGS[name].planted():
        assert command.main() == 1
        kept = progress_in(tmp_path)
        assert (kept.next_seed, kept.failed) == (seed + 1, {seed: invariant})
        capsys.readouterr()
        assert command.main() == 1
        assert capsys.readouterr().out.startswith("0 of 1 seeds that failed before pass now\n")
        assert progress_in(tmp_path) == kept
    assert command.main() == 0
    assert capsys.readouterr().out.startswith("1 of 1 seeds that failed before pass now\n")
    after = progress_in(tmp_path)
    assert (after.next_seed, after.failed) == (seed + 2, {})
