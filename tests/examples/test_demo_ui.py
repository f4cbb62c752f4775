"""`make demo UI=1`: how long the page stays, and what is left, with stand-ins for `rdzv`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples/demo_ui.py"
RDZV = """#!/bin/sh
echo "$@" >> calls
if [ "$1" = ui ]; then trap 'rm page; exit' TERM; echo http://127.0.0.1:1/#t=k; touch page
  while :; do sleep 0.02; done; fi
mkdir -p "$3/demo"; [ "$CODE" = 82 ] || touch "$3/demo/launch.json"
[ "$CODE" = 0 ] || exit "$CODE"
case "$*" in *--ui*) exit 0;; esac
while [ ! -e page ]; do sleep 0.02; done
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the demo runs, with an `rdzv` of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rdzv").write_text(RDZV)
    (tmp_path / "bin/rdzv").chmod(0o755)
    return tmp_path


def environment(folder: Path, code: int) -> dict[str, str]:
    path = f"{folder}/bin:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TMPDIR": str(folder), "CODE": str(code)}


@contextmanager
def on_a_terminal(folder: Path, code: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The demo, and our side of its terminal."""
    ours, its = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, DEMO], cwd=folder, env=environment(folder, code), stdin=its, stdout=its
    )
    os.close(its)
    try:
        yield demo, ours
    finally:
        demo.terminate()
        demo.wait()
        os.close(ours)


def test_on_a_terminal_the_page_stays_until_enter_and_no_folder_is_left(folder: Path) -> None:
    with on_a_terminal(folder, 0) as (demo, ours):
        shown = b""
        while b"press Enter" not in shown:
            shown += os.read(ours, 4_096)
        assert b"See the run at http://127.0.0.1:1/#t=k" in shown
        assert (demo.poll(), (folder / "page").exists()) == (None, True)
        os.write(ours, b"\n")
        assert demo.wait(20) == 0
    assert not (folder / "page").exists()
    assert not [*folder.glob("rdzv-demo-*")]
    assert "--ui" not in (folder / "calls").read_text().splitlines()[0]


@pytest.mark.parametrize("code", [0, 3, 82])
def test_elsewhere_the_page_is_the_launchs_and_a_failed_run_is_kept(
    folder: Path, code: int
) -> None:
    done = subprocess.run(
        [sys.executable, DEMO],
        cwd=folder,
        env=environment(folder, code),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=20,
    )
    assert done.returncode == code
    assert [line.split()[0] for line in (folder / "calls").read_text().splitlines()] == ["launch"]
    assert " --ui -- " in (folder / "calls").read_text()
    assert bool([*folder.glob("rdzv-demo-*")]) is (code != 0)
    assert ("The files of the run are in" in done.stdout) is (code != 0)
    assert "on a terminal it stays until you press Enter" in done.stdout


def test_a_launch_that_is_refused_has_no_page_to_wait_for(folder: Path) -> None:
    with on_a_terminal(folder, 82) as (demo, _):
        assert demo.wait(20) == 82
    assert (folder / "calls").read_text().startswith("launch ")
