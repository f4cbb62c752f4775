"""Where the executables lie by which launchers reach other nodes, where file systems run none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from worker.rsh import shims
from worker.rsh.shims import place_shims, write_shims

ROOT = Path(__file__).parents[2]
TRY = "--rdzv-try"


def test_they_lie_in_the_first_folder_in_which_they_can_be_executed(tmp_path: Path) -> None:
    found = place_shims([tmp_path / "a", tmp_path / "b"], "/agent", {})
    assert found == tmp_path / "a"
    assert not (tmp_path / "b").exists()
    for name in ("ssh", "rdzv-rsh"):
        subprocess.run([found / name, TRY], check=True)


def test_where_none_can_be_written_the_next_folder_is_tried(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert place_shims([tmp_path / "file" / "bin", tmp_path / "b"], "/agent", {}) == tmp_path / "b"


def test_what_runs_only_where_its_interpreter_is_found_is_tried_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, socket: str) -> None:
        write_shims(folder, socket)
        if folder.name == "a":
            (folder / "ssh").write_text("#!/bin/sh\necho no luck >&2\nexit 126\n")

    monkeypatch.setattr("worker.rsh.shims.write_shims", broken)
    assert place_shims([tmp_path / "a", tmp_path / "b"], "/agent", {}) == tmp_path / "b"


def test_a_folder_of_ours_in_which_they_cannot_be_executed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def problem_of(folder: Path, socket: str) -> str:
        assert (folder.parent.is_dir() or not tried, socket) == (True, "/agent")
        tried.append(folder)
        return "" if len(tried) == most else ("mounted noexec", "no luck")[len(tried) % 2]

    places = [str(tmp_path / name) for name in "abc"]
    for place in places:
        Path(place).mkdir()
    monkeypatch.setattr(shims, "_problem_of", problem_of)
    monkeypatch.setattr(shims, "shim_places", lambda environ: [*places, str(tmp_path / "none")])
    removed: list[Callable[[], None]] = []
    monkeypatch.setattr(shims, "atexit", SimpleNamespace(register=removed.append))
    for most in (9, 3):
        tried.clear()
        if most == 9:
            with pytest.raises(OSError, match="no luck") as found:
                place_shims([tmp_path / "log"], "/agent", {})
            shown = str(found.value.strerror).replace(str(tmp_path), "")
            assert shown == (
                "no luck (/log, /b); mounted noexec (/a, /c); No such file or directory (/none)"
            )
        else:
            assert place_shims([tmp_path / "log"], "/agent", {}) == tried[-1]
            assert tried[-1].parent.parent == tmp_path / "b"
            [remove] = removed
            remove()
        assert [one for place in places for one in Path(place).iterdir()] == []


PLACES = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from worker.rsh import shims
shims._MORE_PLACES = ()
shims.places = lambda environ: [environ["TMPDIR"]]
os.chdir(sys.argv[2])
try:
    print(shims.place_shims([Path(sys.argv[2], "log/bin")], "/agent", {"TMPDIR": sys.argv[3]}))
except OSError as exc:
    print(exc.strerror)
"""


@pytest.mark.netns
@pytest.mark.parametrize("options", ["mode=700", "noexec,mode=700"])
def test_a_folder_mounted_noexec_is_passed_over(tmp_path: Path, options: str) -> None:
    """With real mounts: as the last resort it lies among temporary files, while they run it."""
    log, other = tmp_path / "log", tmp_path / "other"
    log.mkdir()
    other.mkdir()
    mounts = f"mount -t tmpfs -o noexec x {log} && mount -t tmpfs -o {options} x {other}"
    words = [sys.executable, "-c", PLACES, str(ROOT), str(log), str(other)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mounts} && "$@" && ls {other}', "sh", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    said, *left = done.stdout.splitlines()
    if "noexec" in options:
        assert said == f"mounted noexec ({log}/log/bin, {other}, {log})"
    else:
        assert said.startswith(f"{other}/rdzv-")
        assert said.endswith("/bin")
    assert left == []


@pytest.mark.parametrize(
    ("outcome", "is_noexec", "why"),
    [
        (SimpleNamespace(returncode=0, stderr=b"noise"), False, ""),
        (
            SimpleNamespace(returncode=126, stderr=b" \xffno luck \n"),
            False,
            "\N{REPLACEMENT CHARACTER}no luck",
        ),
        (subprocess.TimeoutExpired("ssh", 1), False, ""),  # it runs: this machine is busy
        (PermissionError(13, "Permission denied"), True, "mounted noexec"),
        (PermissionError(13, "Permission denied"), False, "Permission denied"),
    ],
)
def test_a_shim_is_tried_and_why_it_does_not_run_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Any, is_noexec: bool, why: str
) -> None:
    def run(words: list[object], **_: object) -> Any:
        assert words == [tmp_path / "ssh", TRY]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(subprocess, "run", run)
    flags = os.ST_NOEXEC if is_noexec else os.ST_NODEV
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags))
    assert shims._why_not_run(tmp_path / "ssh") == why
