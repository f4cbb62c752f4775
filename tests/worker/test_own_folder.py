"""What a node has on disk: folders among the temporary files, and its files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.missing import need
from worker.agent.environment import write_files
from worker.program import own_folder
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
    need("unshare")
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


def test_what_another_start_has_just_removed_and_made_anew_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has removed it while this one waited for the lock, and a process has the name again."""
    folder = tmp_path / "rdzv-abcdefgh"
    folder.mkdir()
    (folder / "lock").touch()

    def locks(fd: int, how: int) -> None:
        (folder / "lock").unlink()
        (folder / "lock").write_text("another one's")

    monkeypatch.setattr("worker.program.own_folder.fcntl.flock", locks)
    remove_left([str(tmp_path)])
    assert (folder / "lock").read_text() == "another one's"


# --- the folder of a node's files -----------------------------------------------------------------


def test_files_are_the_owners_alone_replace_older_ones_and_follow_no_link(tmp_path: Path) -> None:
    folder, victim = tmp_path / "logs/node-0", tmp_path / "victim"
    victim.write_text("mine")
    write_files(folder, {"hostfile": "10.0.0.1 slots=2\n", "table.json": "{}"})
    (folder / "table.json").unlink()
    for name in (".hostfile.new", ".table.json.new", "table.json"):  # as an interrupted one left it
        (folder / name).symlink_to(victim)
    write_files(folder, {"hostfile": "10.0.0.2 slots=2\n", "table.json": "[]"})
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert found == {"hostfile": "10.0.0.2 slots=2\n", "table.json": "[]"}
    assert victim.read_text() == "mine"
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in folder.iterdir()}
    assert (modes, stat.S_IMODE(folder.stat().st_mode)) == ({0o600}, 0o700)


def test_a_folder_that_cannot_be_made_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        write_files(tmp_path / "file/node-0", {"hostfile": ""})


def test_a_folder_without_a_lock_goes_with_its_process_and_stays_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that takes no file in it, or that knows no locks."""

    def fails(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    for name in ("open", "flock"):
        opened = {*os.listdir("/proc/self/fd")}
        with monkeypatch.context() as patch:
            module = own_folder.os if name == "open" else own_folder.fcntl  # type: ignore[attr-defined]
            patch.setattr(module, name, fails)
            folder = OwnFolder(str(tmp_path))
        assert folder.path.is_dir()
        assert {*os.listdir("/proc/self/fd")} == opened
        assert not (folder.path / "lock").exists()
        remove_left([str(tmp_path)])
        assert folder.path.is_dir()
        folder.remove()
        folder.remove()
        assert [*tmp_path.iterdir()] == []
