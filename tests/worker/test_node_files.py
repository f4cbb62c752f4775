"""The folder of a node's files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from worker.agent.node_files import write_files


def test_files_are_the_owners_alone_and_replace_those_of_an_older_table(tmp_path: Path) -> None:
    folder = tmp_path / "logs/node-0"
    write_files(folder, {"hostfile": "10.0.0.1 slots=2\n", "table.json": "{}"})
    write_files(folder, {"hostfile": "10.0.0.2 slots=2\n"})
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "hostfile": "10.0.0.2 slots=2\n",
        "table.json": "{}",
    }
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert (modes, stat.S_IMODE(folder.stat().st_mode)) == ({0o600}, 0o700)


def test_what_an_interrupted_writer_left_is_no_obstacle_and_a_link_is_not_followed(
    tmp_path: Path,
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "node-0"
    folder.mkdir()
    (folder / ".hostfile.new").symlink_to(victim)
    (folder / "hostfile").symlink_to(victim)
    write_files(folder, {"hostfile": "new"})
    assert (victim.read_text(), (folder / "hostfile").read_text()) == ("mine", "new")
    assert not (folder / "hostfile").is_symlink()


def test_a_folder_that_cannot_be_made_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        write_files(tmp_path / "file/node-0", {"hostfile": ""})
