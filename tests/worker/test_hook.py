"""The hook in a Python process: what it leaves alone, and that the user's own still runs."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from worker.contracts.framework import HOOK
from worker.look.site import sitecustomize

SEES = """
import os, sys
site = sys.modules.get("sitecustomize")
path = [folder for folder in sys.path if folder]
print([path, os.path.dirname(site.__file__) if site else "", sorted(sys.modules)])
"""
PYTHONS = [found for n in range(8, 15) if (found := shutil.which(f"python3.{n}"))]


def run(
    *flags: str, python: str = sys.executable, code: str = SEES, **more: str
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_", "RDZV_"))}
    return subprocess.run(
        [python, *flags, "-c", code], capture_output=True, text=True, env={**kept, **more}
    )


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with a sitecustomize of the user's."""
    (tmp_path / "sitecustomize.py").write_text("mine = 1\n")
    return tmp_path


@pytest.mark.parametrize("flags", [(), ("-S",), ("-I",), ("-E",), ("-P",)])
def test_a_process_sees_no_difference(flags: tuple[str, ...], theirs: Path) -> None:
    """With and without the user's own sitecustomize, in a rank and elsewhere."""
    if flags == ("-P",) and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 has no -P")
    for rank in ({}, {"LOCAL_RANK": "0", "RDZV_LOOK_FOLDER": "/nowhere"}):
        for before in ("", str(theirs)):
            bare = run(*flags, PYTHONPATH=before)
            ours = run(*flags, PYTHONPATH=":".join(filter(None, (HOOK, before))), **rank)
            seen = ast.literal_eval(ours.stdout)
            if flags == ("-S",):  # then Python runs nothing that could take it off
                seen[0].remove(HOOK)
            assert seen == ast.literal_eval(bare.stdout)
            assert ours.stderr == ""
            if not flags:
                assert seen[1] == before


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_every_python_can_run_it(python: str, theirs: Path) -> None:
    if run(python=python, code="").returncode:
        pytest.skip("it is named, but not installed")
    rank = {"LOCAL_RANK": "0", "RDZV_LOOK_FOLDER": str(theirs / "nowhere")}
    done = run(
        python=python, code=f"{SEES}\nassert site.mine", PYTHONPATH=f"{HOOK}:{theirs}", **rank
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mine", ["raise ValueError(3)", "import nothing_of_this_name", "1 +"])
def test_what_is_wrong_with_the_users_own_is_said_as_without_the_hook(
    mine: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(mine)
    bare, ours = run(PYTHONPATH=str(tmp_path)), run(PYTHONPATH=f"{HOOK}:{tmp_path}")
    assert "sitecustomize" in bare.stderr
    assert (ours.stdout, ours.stderr) == (bare.stdout, bare.stderr)


def test_a_child_finds_it_again(theirs: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-v', '-c', ''])"
    found = run(code=child, PYTHONPATH=HOOK).stderr
    assert f"{HOOK}/sitecustomize.py" in found or f"{HOOK}/__pycache__/sitecustomize" in found


@pytest.mark.parametrize(
    "text", [None, "", "1:2", "1:2 3:4\n", "1:2 3:4\n\n", "\n\n", "\xff", "x" * 9_000]
)
@pytest.mark.parametrize("rank", ["0", "", "-1", "x", "../0", "99999", "\u0663"])
def test_what_it_does_not_understand_it_leaves(text: str | None, rank: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / sitecustomize.STREAMS_FILE).write_text(text)
    look = {"LOCAL_RANK": rank, "RDZV_LOOK_FOLDER": str(tmp_path)}
    for path, file in (("RDZV_LOOK_FOLDER", str(tmp_path)), ("RDZV_LOOK_FOLDER", "off")):
        done = run(code="print(1)", PYTHONPATH=HOOK, **{**look, path: file})
        assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_start_takes_hardly_longer(tmp_path: Path) -> None:
    """What takes time at a start is what is imported: in a rank that is one module in C."""
    (tmp_path / sitecustomize.STREAMS_FILE).write_text("1:2 3:4\nLOCAL_RANK\n")
    rank = {"LOCAL_RANK": "0", "RDZV_LOOK_FOLDER": str(tmp_path)}
    bare, ours = (run(**more).stdout for more in ({}, {"PYTHONPATH": HOOK, **rank}))
    assert (tmp_path / "0.stacks").exists()
    assert set(ast.literal_eval(ours)[2]) - set(ast.literal_eval(bare)[2]) == {"faulthandler"}
