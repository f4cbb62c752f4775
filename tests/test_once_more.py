"""What the second run of a failed test forgives, and what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.once_more import MOST, Failed

ROOT = Path(__file__).parent.parent
CONFTEST = """
import pytest
from tests.once_more import note_marks

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    note_marks(items)
    for item in items:
        item.add_marker(pytest.mark.xdist_group("a group"))
"""
LUCKLESS = """
import pathlib, pytest

@pytest.mark.{mark}
def test_it():
    seen = pathlib.Path("seen")
    there = seen.exists()
    seen.touch()
    assert there
"""


def report(name: str, *, marked: bool, outcome: str = "failed") -> pytest.TestReport:
    properties = [("once_more", name)] if marked else []
    return pytest.TestReport(
        name,
        ("test_it.py", 1, name),
        {},
        outcome,  # type: ignore[arg-type]
        None,
        "call",
        user_properties=properties,
    )


MANY = [report(f"a{number}", marked=True) for number in range(MOST + 1)]


@pytest.mark.parametrize(
    ("reports", "again"),
    [
        ([report("a", marked=True), report("b", marked=True)], ["a", "b"]),
        ([report("a", marked=True), report("a", marked=True)], ["a"]),
        ([report("a", marked=True), report("pure", marked=False)], []),
        ([report("a", marked=True, outcome="passed")], []),
        (MANY, []),  # so many at once were not the machine
    ],
)
def test_only_marked_tests_run_again_where_no_other_has_failed(
    reports: list[pytest.TestReport], again: list[str]
) -> None:
    failed = Failed()
    for one in reports:
        failed.pytest_runtest_logreport(one)
    assert failed.second_run == again


@pytest.mark.parametrize(("mark", "code"), [("real_time", 0), ("pure", 1)])
def test_what_passes_alone_is_printed_as_unstable_and_nothing_else_is(
    mark: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    real_time\n    pure\n")
    (tmp_path / "test_it.py").write_text(LUCKLESS.format(mark=mark))
    done = subprocess.run(
        [sys.executable, "-m", "tests.once_more", "told", "-q", "-n2", "--dist=loadgroup"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout
    line = "unstable: test_it.py::test_it\n"
    assert (line in done.stdout) is (code == 0)
    assert (tmp_path / "told").exists() is (code == 0)
