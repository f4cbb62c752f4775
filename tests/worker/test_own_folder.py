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
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def left_by_a_killed_process(place: Path) -> Path:
    before = set(place.iterdir())
    with holder(place) as process:
        process.kill()
    (folder,) = set(place.iterdir()) - before
    return folder


def test_what_a_killed_process_has_left_is_removed_and_what_a_living_one_has_stays(
    tmp_path: Path,
) -> None:
    dead = left_by_a_killed_process(tmp_path)
    own = OwnFolder(str(tmp_path))
    with holder(tmp_path) as other:
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
    dead = left_by_a_killed_process(tmp_path)
    renamed = dead.rename(tmp_path / "rdzv-bench-abcd1234")
    without_lock = tmp_path / "rdzv-abcd1234"
    without_lock.mkdir()
    file = tmp_path / "rdzv-abcd1235"
    file.touch()
    link = tmp_path / "rdzv-abcd1236"
    link.symlink_to(renamed)
    remove_left([str(tmp_path)])
    assert sorted(tmp_path.iterdir()) == [without_lock, file, link, renamed]
    assert (renamed / "agent").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_stays(tmp_path: Path) -> None:
    dead = left_by_a_killed_process(tmp_path)
    os.chown(dead, 12345, -1)
    remove_left([str(tmp_path)])
    assert dead.exists()


def test_where_nothing_can_be_locked_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def refuse(fd: int, operation: int) -> None:
            raise OSError(37, "No locks available")

        patched.setattr("worker.program.own_folder.fcntl.flock", refuse)
        own = OwnFolder(str(tmp_path))
        remove_left([str(tmp_path)])
    remove_left([str(tmp_path)])
    assert own.path.exists()
    own.remove()
    assert list(tmp_path.iterdir()) == []
