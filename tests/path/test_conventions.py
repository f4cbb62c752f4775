"""What people rely on unsaid: other users, homes that cannot be written, terminals and pipes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.launching import RDZV, Outcome, environment, launch, launching, shell
from tests.support.nightly import but_at_night
from tests.support.terminals import on_terminal
from tests.support.users import User, make_users

TWO = ("--nnodes", "2", "--framework", "command")
ONE = ("--nnodes", "1", "--framework", "command")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3|4|9|10)[0-9](?:;\d+)*m")
NO_FOLDER = "choose another one with --state-dir or RDZV_STATE_DIR"

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(60)]


def ask(env: dict[str, str], *words: str, by: Sequence[str] = ()) -> Outcome:
    """An `rdzv` command, in no terminal and a folder that everyone may enter."""
    argv = [*by, RDZV, *words]
    done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=40)
    return Outcome(done.returncode, done.stdout, done.stderr)


def refusal(outcome: Outcome, folder: Path | str, reason: str = "Permission denied") -> bool:
    """Whether that is all it said: which folder, why, and the options that help."""
    message, hint = outcome.err.splitlines()
    assert (outcome.code, outcome.out, hint.strip()) == (64, "", NO_FOLDER), outcome.err
    what = re.fullmatch(r"rdzv: the state directory (\S+) cannot be used: (.+)", message)
    assert what is not None, message
    return what[1].startswith(str(folder)) and what[2] == reason


# --- users and homes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that everyone may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="conventions-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def users(place: Path) -> list[User]:
    return make_users(place, 2)


def test_a_run_of_another_user_in_a_shared_folder_is_refused_by_its_name(
    users: list[User], place: Path
) -> None:
    shared = place / "shared"
    (shared / "r").mkdir(parents=True)
    (shared / "r" / "journal.sqlite").touch()
    (shared / "r").chmod(0o700)
    shared.chmod(0o1777)
    env = environment(shared, HOME=str(users[0].home))
    for words in (("replay", "r"), ("status", "r"), ("launch", "--rdzv-id", "r", *TWO, "--", "ls")):
        assert refusal(ask(env, *words, by=users[0].by), shared / "r")


@pytest.mark.parametrize("home", but_at_night(["none", "read-only", "missing"], "none"))
def test_without_a_home_that_can_be_written_a_launch_keeps_its_run_among_temporary_files(
    users: list[User], place: Path, home: str
) -> None:
    user = users[0]
    folder = Path("/.local") if home == "none" else place / home
    env = environment(Path(), **user.environment(HOME=str(folder)), TMPDIR=str(user.home))
    if home == "none":
        del env["HOME"]
    elif home == "read-only":
        folder.mkdir(mode=0o555)
    told = ask(env, "launch", "--rdzv-id", "r", *ONE, "--", "true", by=user.by)
    assert (told.code, told.err.count(f"{folder}/")) == (0, 1), told.err
    assert "cannot be used" in told.err
    assert f"rdzv-state-{user.uid}" in told.err
    assert "r" in ask(env, "status", "r", by=user.by).out


@pytest.mark.nightly
def test_a_home_on_a_read_only_disk_is_named_also_to_root(users: list[User], place: Path) -> None:
    home = place / "disk"
    home.mkdir()
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    by = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(home))
    env = environment(Path(), RDZV_STATE_DIR="", XDG_STATE_HOME="", HOME=str(home))
    env["TMPDIR"] = str(place)
    told = ask(env, "launch", *ONE, "--", "true", by=by)
    assert (told.code, told.err.count(f"{home} is on a read-only file system")) == (0, 1), told.err
    given = {**env, "RDZV_STATE_DIR": str(home)}
    assert refusal(ask(given, "launch", *TWO, "--", "true", by=by), home, "Read-only file system")


@pytest.mark.nightly
def test_two_users_without_names_launch_one_run_id_at_the_same_time(
    users: list[User], place: Path
) -> None:
    """They share the ports and the folder for temporary files, and leave nothing there; each has
    the session folder of somebody else, as `su` leaves it; and no file that another user reads."""
    temporary, closed, end = place / "tmp", place / "closed", place / "end"
    temporary.mkdir()
    temporary.chmod(0o1777)
    closed.mkdir(mode=0o700)
    told = '[ -S "$RDZV_SOCKET" ] && echo $(id -u) $RDZV_SOCKET'
    command = shell(f"{told}; while [ ! -e {end} ]; do sleep 0.2; done")
    with contextlib.ExitStack() as stack:
        runs = []
        for user in users:
            env = user.environment(TMPDIR=str(temporary), XDG_RUNTIME_DIR=str(closed))
            run = launching(
                user.state, *TWO, command=command, run="both", env=env, by=user.by, cwd=place
            )
            runs.append(stack.enter_context(run))
        for one in runs:
            one.wait_for_phase("running")
        end.touch()
        outcomes = [one.finish() for one in runs]
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    said = [line.split() for outcome in outcomes for line in outcome.out.splitlines()]
    assert sorted((rank, int(uid)) for rank, uid, _ in said) == sorted(
        (f"[{rank}]", user.uid) for user in users for rank in range(2)
    )
    assert len({socket for *_, socket in said if socket.startswith(f"{temporary}/")}) == 4
    assert not list(temporary.iterdir())
    for user in users:
        found = [path.lstat() for path in (user.home / ".local").rglob("*")]
        assert len(found) > 10
        assert {(about.st_uid, stat.S_IMODE(about.st_mode) & 0o077) for about in found} == {
            (user.uid, 0)
        }
    look = environment(users[0].state, HOME=str(users[1].home))
    assert refusal(ask(look, "status", "both", by=users[1].by), users[0].state)


# --- terminals and pipes --------------------------------------------------------------------------

LONG = "a-run-with-a-name-of-many-words"
WORDS = "a line of a program that is longer than the terminal is wide, and must stay as it is"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The runs of one who has a run that ended, and one that goes on."""
    folder = tmp_path_factory.mktemp("state")
    env = {"TERM": "xterm-256color"}
    one = launch(folder, *TWO, run=LONG, command=shell(f"echo {WORDS}"), env=env)
    assert one.code == 0, one.err
    assert "\x1b" not in one.err + one.out  # in pipes
    end = folder / "end"
    command = shell(f"while [ ! -e {end} ]; do sleep 0.2; done")
    with launching(folder, *ONE, run="lives", command=command) as lives:
        lives.wait_for_phase("running")
        yield folder
        end.touch()
        assert lives.finish().code == 0


LISTS: dict[str, tuple[str, ...]] = {
    " ".join(words): words
    for words in [
        ("status",),
        ("logs", LONG),
        ("replay", LONG),
        ("schedulers",),
        ("docs", "options"),
    ]
}


@pytest.mark.parametrize("name", but_at_night(LISTS, f"logs {LONG}"))
def test_a_reader_that_closes_the_pipe_ends_a_command_silently(state: Path, name: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv, env = [RDZV, *LISTS[name]], environment(state)
    try:
        done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, env=env, timeout=40)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


FOLDED: dict[str, tuple[str, ...]] = {
    " ".join(words): words
    for words in [
        ("status", LONG),
        ("status", LONG, "--checks"),
        ("schedulers",),
        ("doctor",),
        ("doctor", "--env"),
        ("cancel", LONG),
        ("docs", "guarantees"),
    ]
}


@pytest.mark.parametrize("name", but_at_night(FOLDED, f"status {LONG} --checks", "docs guarantees"))
def test_a_narrow_terminal_gets_every_word_whole(state: Path, name: str) -> None:
    """In lines that fit, but for a word that is longer; a pipe gets lines to grep in."""
    words = FOLDED[name]
    env = environment(state, TERM="xterm", NO_COLOR="1")
    argv = [RDZV, *words]
    _, text = on_terminal(argv, env, columns=60)
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 60 and len(line.split()) > 1] == []
    piped = ask(env, *words).out
    assert len(lines) > len(piped.splitlines())
    # Seconds and what is free on disks differ from one time to the next.
    same = [re.sub(r"[0-9.]+", "0", shown).split() for shown in (text, piped)]
    assert same[0] == same[1]


def test_a_narrow_terminal_cuts_the_list_of_runs_and_keeps_a_programs_lines(state: Path) -> None:
    env = environment(state, TERM="xterm")
    _, runs = on_terminal([RDZV, "status"], env, columns=60)
    assert all(len(line) <= 60 for line in runs.splitlines())
    assert sum(line.startswith((LONG, "lives")) for line in runs.splitlines()) == 2
    _, logs = on_terminal([RDZV, "logs", LONG], env, columns=60)
    assert logs.splitlines().count(WORDS) == 2
