"""The command of a benchmark, as a person types it."""

from __future__ import annotations

import pytest

from launcher.settings import BenchSettings
from launcher.state.bench_command import bench_command


@pytest.mark.parametrize(
    ("words", "nodes", "line"),
    [
        ("", "", "rdzv bench"),
        ("--slow-below 0.5", "2", "rdzv bench --nnodes 2"),
        ("--slow-below 0.8", "2:4", "rdzv bench --nnodes 2:4 --slow-below 0.8"),
        (
            "--size 4096 --size 16777216 --size 1073741824 --size 77 --slow-below 0.5",
            "2",
            "rdzv bench --nnodes 2 --sizes 4K,16M,1G,77",
        ),
    ],
)
def test_it_has_what_was_given(words: str, nodes: str, line: str) -> None:
    assert " ".join(bench_command(words.split(), nodes)) == line


def test_of_what_nobody_gave_nothing_is_told() -> None:
    usual = BenchSettings.model_fields["slow_below"].default
    assert bench_command(["--slow-below", str(usual)], "2") == ["rdzv", "bench", "--nnodes", "2"]
