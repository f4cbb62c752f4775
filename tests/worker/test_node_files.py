"""The folder of a node's files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from worker.agent.node_files import write_files


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
