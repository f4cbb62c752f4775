"""By which variables a rank is known, as the hook was told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from features.hang.ranks.families import Families, rank_variables
from features.hang.ranks.proc import read_process
from tests.support.waiting import until
from worker.look.site.sitecustomize import RANK_VARIABLES, STREAMS_FILE


def test_the_variables_of_a_job_are_those_that_the_hook_was_told(tmp_path: Path) -> None:
    (tmp_path / STREAMS_FILE).write_text("1:2 3:4\nSLURM_LOCALID LOCAL_RANK\n")
    assert rank_variables(tmp_path) == ["SLURM_LOCALID", "LOCAL_RANK"]


@pytest.mark.parametrize("text", [None, b"1:2 3:4", b"\xff\n\n"])
def test_where_none_can_be_read_it_may_be_any(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / STREAMS_FILE).write_bytes(text)
    assert rank_variables(tmp_path) == [*RANK_VARIABLES]


def test_what_a_child_has_used_during_the_look_is_told(tmp_path: Path) -> None:
    proc = Path("/proc")
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) as child:
        try:
            found = Families(tmp_path, {0: os.getpid()}, None, proc)
            before = found.of[0].children[child.pid].cpu
            until(lambda: read_process(proc, child.pid).cpu > before + 0.05)
            found.finish()
        finally:
            child.kill()
        [look] = [one.look for one in found.children(0) if one.look.pid == child.pid]
    assert look.cpu > 0.05
