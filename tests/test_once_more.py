"""What the second run of a failed test forgives, and what it does not."""

from __future__ import annotations

import pytest

from tests.once_more import MOST, Failed, note_marks


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
