"""What the second run of a failed test forgives, and what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.once_more import MOST, Failed, note_marks

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

@pytest.mark.real_time
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


class Item:
    """A test as pytest has collected it."""

    nodeid = "a"

    def __init__(self, *marks: str) -> None:
        self.marks = marks
        self.user_properties: list[tuple[str, object]] = []

    def get_closest_marker(self, name: str) -> bool:
        return name in self.marks


def test_a_test_without_a_mark_has_no_name_to_run_it_again() -> None:
    items = [Item("real_time", "other"), Item("planted"), Item("netns")]
    note_marks(items)  # type: ignore[arg-type]
    noted = [("once_more", "a")]
    assert [item.user_properties for item in items] == [noted, [], noted]


def test_what_passes_alone_is_printed_as_unstable(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    real_time\n")
    (tmp_path / "test_it.py").write_text(LUCKLESS)
    once_more = [sys.executable, "-m", "tests.once_more"]
    done = subprocess.run(
        # In a folder of its own pytest does not look for what runs before this one have left.
        [*once_more, "told", "-q", "-n2", "--dist=loadgroup", f"--basetemp={tmp_path / 'base'}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    line = "unstable: test_it.py::test_it\n"
    assert line in done.stdout
    assert (tmp_path / "told").read_text() == line
