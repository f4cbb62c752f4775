"""Folders among the temporary files: who is killed leaves one, and the next start removes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.program.own_folder import OwnFolder, remove_left

HOLDS = """
import sys
from worker.program.own_folder import OwnFolder
folder = OwnFolder(sys.argv[1])
(folder.path / "agent").touch()
print("ready", flush=True)
sys.stdin.read()
"""


def holder(place: Path) -> subprocess.Popen[str]:
    """A process that has a folder in this place, with a file in it."""
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", HOLDS, str(place)]
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def left(place: Path) -> Path:
    """What a process has left that was killed: nobody holds its lock any more."""
    folder = OwnFolder(str(place))
    (folder.path / "agent").touch()
    os.close(folder._lock)
    return folder.path


def test_what_a_killed_process_has_left_is_removed_and_what_a_living_one_has_stays(
    tmp_path: Path,
) -> None:
    own = OwnFolder(str(tmp_path))
    with holder(tmp_path) as other:
        dead = left(tmp_path)
        remove_left([str(tmp_path), str(tmp_path / "none")])
        assert not dead.exists()
        assert len(list(tmp_path.iterdir())) == 2
        other.kill()
    remove_left([str(tmp_path)])
    assert list(tmp_path.iterdir()) == [own.path]
    own.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_seen_from_other_process_namespaces(tmp_path: Path) -> None:
    own = OwnFolder(str(tmp_path))
    sweeps = f"from worker.program.own_folder import remove_left; remove_left(['{tmp_path}'])"
    namespace = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    subprocess.run([*namespace, sys.executable, "-c", sweeps], check=True)
    assert own.path.exists()
    own.remove()


def test_what_is_somebody_elses_stays(tmp_path: Path) -> None:
    renamed = left(tmp_path).rename(tmp_path / "rdzv-bench-abcd1234")
    without_lock = tmp_path / "rdzv-abcd1234"
    without_lock.mkdir()
    file = tmp_path / "rdzv-abcd1235"
    file.touch()
    link = tmp_path / "rdzv-abcd1236"
    link.symlink_to(renamed)
    kept = [without_lock, file, link, renamed]
    if os.geteuid() == 0:  # only root can give a folder away
        kept.append(left(tmp_path))
        os.chown(kept[-1], 12345, -1)
    remove_left([str(tmp_path)])
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    assert (renamed / "agent").exists()


def test_where_nothing_can_be_locked_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr("worker.program.own_folder.fcntl.flock", refuse)
        own = OwnFolder(str(tmp_path))
        remove_left([str(tmp_path)])
    remove_left([str(tmp_path)])
    assert own.path.exists()
    own.remove()
    assert list(tmp_path.iterdir()) == []
