"""The command `rdzv metrics`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from features.metrics import view
from tests.launcher.command import launched, rdzv


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("", {"as_json": False, "plot": None}),
        ("--json", {"as_json": True, "plot": None}),
        ("--plot loss.svg", {"as_json": False, "plot": Path("loss.svg")}),
    ],
)
def test_it_shows_a_run_that_a_part_of_its_id_names(
    line: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def show(root: Path, run: str, **how: Any) -> int:
        asked.append((root, run, how))
        return 5

    launched(tmp_path)
    monkeypatch.setattr(view, "show_metrics", show)
    done = rdzv("metrics", "ama", *line.split(), state=tmp_path)
    assert (done.exit_code, done.stderr) == (5, "rdzv: run 'llama'\n")
    assert asked == [(tmp_path, "llama", more)]


def test_it_stands_first_under_its_heading() -> None:
    lines = rdzv("--help").stdout.splitlines()
    after = lines[lines.index("Look closer:") + 1]
    assert after.split(maxsplit=1) == [
        "metrics",
        "Show the values that a run's program has sent, such as its loss.",
    ]
