"""Which lines a patch changes: a search tries the seeds that execute one of them."""

from __future__ import annotations

import pytest

from tests.simulation.executed import changed_lines
from tests.simulation.patching import Edit

SOURCE = """\
LIMIT = 3

class Table:
    size = 4

    def rows(self, count=2):
        if count > LIMIT:
            raise ValueError(
                "too many"
            )
        return list(
            range(count),
        )
"""


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("if count > LIMIT:", "if False:", {7}),
        ("range(count),", "range(1),", {12}),
        ('"too many"', '"too few"', {9}),
        ("        if count > LIMIT:\n            raise", "        raise", {7, 8}),
        ("        return list(\n", "        count += 1\n        return list(\n", {9, 11}),
        ("        if count > LIMIT:", "        count += 1\n        if count > LIMIT:", {7}),
        ("LIMIT = 3", "LIMIT = 4", None),
        ("size = 4", "size = 5", None),
        ("count=2", "count=3", None),
    ],
)
def test_the_lines_that_a_patch_changes(old: str, new: str, lines: set[int] | None) -> None:
    assert changed_lines(SOURCE, Edit("file.py", old, new)) == lines
