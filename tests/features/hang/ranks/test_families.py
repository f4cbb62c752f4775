"""By which variables a rank is known, as the hook was told."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.hang.ranks.families import rank_variables
from worker.look.site.sitecustomize import RANK_VARIABLES, STREAMS_FILE


def test_the_variables_of_a_job_are_those_that_the_hook_was_told(tmp_path: Path) -> None:
    (tmp_path / STREAMS_FILE).write_text("1:2 3:4\nSLURM_LOCALID LOCAL_RANK\n")
    assert rank_variables(tmp_path) == ["SLURM_LOCALID", "LOCAL_RANK"]


@pytest.mark.parametrize("text", [None, b"1:2 3:4", b"\xff\n\n"])
def test_where_none_can_be_read_it_may_be_any(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / STREAMS_FILE).write_bytes(text)
    assert rank_variables(tmp_path) == [*RANK_VARIABLES]
