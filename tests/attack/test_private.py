"""What is private stays private: folders, memory, logs; as root and as anybody else."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cli.process import log_to_file, log_to_stderr
from launcher.prepare.registry_process import server_command
from launcher.processes import OWN_COMMAND
from launcher.state.state_dir import StateDir
from rendezvous.door import own_command
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import UsageError
from tests.support.bed import join_text
from tests.support.canaries import loose
from tests.support.launching import environment
from tests.support.missing import need
from worker.program.output import make_private

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")


# Folders


@needs_root
def test_a_state_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Root could write there all the same, and would read the secret that the other one wrote."""
    (tmp_path / "r").mkdir(mode=0o777)
    (tmp_path / "r" / "secret").write_text("00" * 32)
    os.chown(tmp_path / "r", NOBODY, NOBODY)
    with pytest.raises(UsageError, match="is somebody else's") as refusal:
        StateDir(tmp_path, "r").acquire()
    assert "--state-dir" in refusal.value.hint
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["secret"]


def test_a_state_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "r").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link"):
        StateDir(tmp_path, "r").acquire()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.fixture
def no_umask() -> Iterator[None]:
    """A user without a umask: everything would be open to everybody."""
    former = os.umask(0)
    yield
    os.umask(former)


@pytest.mark.usefixtures("no_umask")
def test_folders_are_private_with_all_that_is_missing_above_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o750)
    make_private(tmp_path / "a" / "b" / "c")
    modes = {p: (tmp_path / p).stat().st_mode & 0o777 for p in ("a", "a/b", "a/b/c")}
    assert modes == {"a": 0o750, "a/b": 0o700, "a/b/c": 0o700}


# Memory


# The training program tries to read what each of the processes above it was given, and remembers.
CURIOUS = r"""
import os, pathlib
pid = os.getpid()
while pid > 1:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    pid = int(stat.rpartition(")")[2].split()[1])
    words = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    try:
        os.listdir(f"/proc/{pid}/fd")
        open(f"/proc/{pid}/mem", "rb").close()
        seen = open(f"/proc/{pid}/environ").read(1)
    except PermissionError:
        seen = ""
    for word in ("/keeper.py", "\0worker", "\0launch"):
        if f"{word}\0" in words:
            print(word[1:], "seen" if seen else "hidden")
            break
"""


def without_rights() -> list[str]:
    """What a command line begins with to have no more rights than any user, or a container."""
    if os.geteuid() != 0:
        return []
    need("setpriv")
    return ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]


@pytest.mark.real_time
def test_a_training_program_cannot_look_into_its_agent_and_all_that_is_left_is_private(
    tmp_path: Path,
) -> None:
    """Root in a container, or any user: not even a program of the same user can; also under -O."""
    (tmp_path / "curious.py").write_text(CURIOUS)
    (tmp_path / "curious.py").chmod(0o600)
    home = tmp_path / "home"
    python, *words = own_command("launch", "--nnodes", "1", "--rdzv-id", "r")
    command = [*without_rights(), python, "-O", *words, "--framework", "command"]
    done = subprocess.run(
        [*command, "--", sys.executable, f"{tmp_path}/curious.py"],
        env=environment(home / "state", PYTHONOPTIMIZE="2"),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        umask=0,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["keeper.py seen", "worker hidden", "launch hidden"]
    assert (home / "state" / "r" / "journal.sqlite").exists()
    assert loose(tmp_path) == []


def test_our_processes_obey_no_variable_of_the_users(tmp_path: Path) -> None:
    for command in (OWN_COMMAND, server_command(StateDir(tmp_path, "r"), 3)):
        assert command[1] == "-E"
        assert command[2].endswith("/rdzv_command.py")


# What others say


def test_an_agents_log_that_goes_on_says_whose_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    for generation in (1, 2):
        handler = log_to_file(tmp_path, JoinString.parse(join_text(1, generation)))
        assert handler is not None
        handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "joined", (), None))
        handler.close()
    lines = (tmp_path / "agent-1.log").read_text().splitlines()
    said = [line.partition(" INFO ")[2] for line in lines]
    divider = "--- run 'llama', launch k7f2a9c1xy, generation 2"
    assert said == ["joined", divider, "joined"]


def test_what_a_peer_has_said_does_not_move_the_cursor_of_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    for place, name, value in (
        (root, "handlers", []),
        (root, "level", root.level),
        (logging, "raiseExceptions", True),
    ):
        monkeypatch.setattr(place, name, value)
    log_to_stderr("info")
    handler = log_to_file(tmp_path, JoinString.parse(join_text(1)))
    assert handler is not None
    root.warning("\x1b[2J\x1b]0;owned\x07 \u202e\nall is well")
    handler.close()
    for said in (capsys.readouterr().err, (tmp_path / "agent-1.log").read_text()):
        assert said.rstrip("\n").endswith("all is well")
        assert said.rstrip("\n").isprintable()
