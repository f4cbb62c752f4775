"""Which commit rdzv is, and the command that installs an extra of it, without a package index."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from launcher.show.installation import commit, how_to_install


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_commit_of_a_checkout_is_the_one_that_git_says(tmp_path: Path) -> None:
    checkout, worktree = tmp_path / "checkout", tmp_path / "worktree"
    checkout.mkdir()
    assert commit(checkout) == ""
    git(checkout, "init", "-q")
    assert commit(checkout) == ""
    git(checkout, "commit", "-q", "--allow-empty", "-m", "one")
    head = git(checkout, "rev-parse", "HEAD")
    assert commit(checkout) == head
    git(checkout, "worktree", "add", "-q", "-b", "other", str(worktree))
    assert commit(worktree) == head
    git(checkout, "pack-refs", "--all")
    assert commit(checkout) == commit(worktree) == head
    git(checkout, "checkout", "-q", "--detach")
    assert commit(checkout) == head


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"url": "file://{}", "dir_info": {"editable": True}}, ["-e", "{}[plot]"]),
        ({"url": "file://{}", "archive_info": {}}, ["{}[plot]"]),
        ({"url": "file:///nowhere/rdzv.whl"}, ["PATH[plot],"]),
        ({"url": "https://example.com/rdzv.whl"}, ["PATH[plot],"]),
        ({}, ["PATH[plot],"]),
    ],
)
def test_an_extra_is_installed_from_where_rdzv_was(
    record: dict[str, object], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a folder"
    source.mkdir()
    text = json.dumps(record).replace("{}", str(source).replace(" ", "%20"), 1)
    found = SimpleNamespace(read_text=lambda _: text)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: found)
    said = shlex.split(how_to_install("plot").replace("rdzv's", "its"))
    assert said[1:4] == ["-m", "pip", "install"]
    assert said[4 : 4 + len(words)] == [word.replace("{}", str(source)) for word in words]
