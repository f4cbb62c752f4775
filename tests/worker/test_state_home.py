"""Where the state of runs is kept where the user's own folder is none, or cannot be had."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rdzv.run import state_home as of_the_api
from worker.program import state_home as module
from worker.program.state_home import home_with, state_home, usual_home, why_elsewhere

ROOT = Path(__file__).parents[2]
NOBODY = 1_000_670_000
OWN = f"rdzv-state-{os.geteuid()}"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose folders for temporary files are these."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(module, "_TEMPORARY", (str(tmp_path / "tmp"),))
    return tmp_path


def environ(places: Path, home: str) -> dict[str, str]:
    return {"HOME": home, "TMPDIR": str(places / "tmp")}


@pytest.mark.parametrize("home", ["/dev/null", "/etc/hostname/x"])
def test_a_home_that_cannot_be_used_is_one_among_temporary_files(places: Path, home: str) -> None:
    given = environ(places, home)
    found = state_home(given)
    assert found == places / "tmp" / OWN
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    why = why_elsewhere(given)
    assert why.startswith(f"the state directory {home}/.local/state/rdzv cannot be used (")
    assert why.endswith(f"using {found} instead; set RDZV_STATE_DIR to choose another one")


def test_a_home_that_can_be_used_is_used_and_nothing_is_made(places: Path) -> None:
    given = environ(places, f"{places}/home")
    assert state_home(given) == usual_home(given) == places / "home/.local/state/rdzv"
    assert not why_elsewhere(given)
    assert [path.name for path in places.iterdir()] == ["tmp"]


def test_what_a_person_has_named_has_nothing_in_its_place(places: Path) -> None:
    given = {**environ(places, "/"), "RDZV_STATE_DIR": "/proc/no"}
    assert state_home(given) == home_with(given, "r") == Path("/proc/no")
    assert not why_elsewhere(given)


def test_a_full_disk_has_no_room_for_a_run(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(places / "home")
    os.mkdir(home)
    whole = os.statvfs

    def statvfs(path: str | Path) -> os.statvfs_result:
        about = list(whole(path))
        if str(path).startswith(home):
            about[4] = 1  # free blocks for a user
        return os.statvfs_result(about)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert state_home(environ(places, home)) == places / "tmp" / OWN
    assert "its disk has 4 kB left, and a run needs 8 MB" in why_elsewhere(environ(places, home))


def test_a_folder_that_somebody_else_has_made_is_not_used(places: Path) -> None:
    given, own = environ(places, "/dev/null"), places / "tmp" / OWN
    own.symlink_to(places)
    assert state_home(given) == usual_home(given)  # refused by whoever uses it
    own.unlink()
    own.mkdir(mode=0o700)
    own.chmod(0o777)
    assert state_home(given) == usual_home(given)


def test_a_run_is_found_where_it_began(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = environ(places, f"{places}/home")
    monkeypatch.setenv("HOME", given["HOME"])
    usual, spare = usual_home(given), places / "tmp" / OWN
    for folder in (usual / "a", spare / "b"):
        folder.mkdir(parents=True)
    spare.chmod(0o700)
    os.utime(usual, (1, 1))
    assert [home_with(given, run) for run in ("a", "b", "c", None)] == [usual, spare, spare, spare]
    os.utime(usual)
    os.utime(spare, (1, 1))
    assert [home_with(given, run) for run in ("b", "c", None)] == [spare, usual, usual]
    of_others = [of_the_api(given, run) for run in ("b", "c", "")]
    assert of_others == [str(spare), str(usual), str(usual)]


def test_a_user_without_a_name_and_without_a_home_finds_a_folder() -> None:
    """As OpenShift starts a container: an arbitrary user id, HOME=/."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    program = (
        "import os, sys; sys.path.insert(0, os.getcwd())\n"
        "from worker.program.state_home import home_with, state_home, why_elsewhere\n"
        "os.setuid(int(sys.argv[1]))\n"
        "print(state_home(os.environ)); print(why_elsewhere(os.environ))\n"
        "print(home_with(os.environ, None))\n"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o777)
        for home in ({"HOME": "/"}, {"HOME": ""}, {"HOME": "/nonexistent"}, {}):
            told = subprocess.run(
                [sys.executable, "-S", "-c", program, str(NOBODY)],
                cwd=ROOT,
                env={"TMPDIR": folder, **home},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()
            spare = f"{folder}/rdzv-state-{NOBODY}"
            assert (told[0], told[2]) == (spare, spare)
            assert f"is not writable for user {NOBODY}): using {spare} instead" in told[1]


@pytest.mark.parametrize(
    ("flags", "blocks", "free", "access", "why"),
    [
        (0, 100, 2_048, True, ""),
        (0, 0, 0, True, ""),  # a file system that does not count them
        (os.ST_NOSUID | os.ST_RDONLY, 100, 9_999, True, "HOME is on a read-only file system"),
        (os.ST_NOSUID, 100, 9_999, False, f"HOME is not writable for user {os.geteuid()}"),
        (0, 100, 2_047, True, "its disk has 8188 kB left, and a run needs 8 MB"),
    ],
)
def test_why_a_folder_cannot_be_used_is_what_the_kernel_says_of_the_first_that_is_there(
    places: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: int,
    blocks: int,
    free: int,
    access: bool,
    why: str,
) -> None:
    def statvfs(path: Path) -> os.statvfs_result:
        assert path == places
        return os.statvfs_result((4096, 4096, blocks, free, free, 9, 9, 9, flags, 255))

    def may(path: Path, how: int) -> bool:
        assert (path, how) == (places, os.W_OK | os.X_OK)
        return access

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr(os, "access", may)
    assert module._problem(places / "a" / "b").replace(str(places), "HOME") == why


def test_a_file_is_no_folder_and_neither_are_anothers_or_one_that_is_open_to_others(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, own = places / "file", places / "own"
    file.touch(mode=0o600)
    assert module._problem(file) == f"{file} is not a folder"
    assert [module._is_made(own), module._is_own(file), module._is_own(places / "no")] == [1, 0, 0]
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    for mode in (0o710, 0o704):
        own.chmod(mode)
        assert not module._is_own(own)
    own.chmod(0o700)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert not module._is_own(own)
