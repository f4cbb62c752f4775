"""Limits of the machine, each too low: a launch is not hurt by it, or names it; never a bug."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launching import RDZV, launching, shell
from tests.support.missing import give_up
from tests.support.nightly import at_night
from tests.support.users import User, make_users
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]

MIB = 1 << 20
NO_HARM = ""
OF_TASKS = r"may have \d+ processes and threads \(ulimit -u\)"


@pytest.fixture
def user() -> Iterator[User]:
    """Somebody for whom limits hold: the machine's root has none of processes."""
    with tempfile.TemporaryDirectory(prefix="rdzv-limits-") as name:
        place = Path(name)
        place.chmod(0o755)  # pytest's own folders are for their owner alone
        yield make_users(place)[0]


def launched(user: User, *before: str) -> subprocess.CompletedProcess[str]:
    """A launch of two nodes by this user."""
    words = [*user.by, *before, RDZV, "launch", "--nnodes", "2", "--scheduler", "local"]
    words += ["--framework", "command", "--join-timeout", "20", "--", "sh", "-c", "echo done"]
    environ = {"PATH": "/usr/bin:/bin", **user.environment()}
    return subprocess.run(
        words, capture_output=True, text=True, timeout=150, cwd=user.home, env=environ
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("--nproc=4", OF_TASKS),
        *(at_night(f"--nproc={count}", OF_TASKS) for count in (1, 9)),
        (f"--as={60 * MIB}", r"60 MiB of address space \(ulimit -v\)"),
        (f"--as={80 * MIB}", r"80 MiB of address space .*, but a registry needs 96 MiB"),
        (f"--data={40 * MIB}", r"40 MiB of data \(ulimit -d\)|cannot be loaded"),
        at_night(f"--data={20 * MIB}", r"MiB of data \(ulimit -d\)|cannot be loaded"),
        ("--fsize=1000", r"at most 1000 bytes \(ulimit -f\)"),
        ("--nofile=16", r"may open 16 files \(ulimit -n\)"),
        ("--memlock=0", NO_HARM),
        *(at_night(f"--{name}=0", NO_HARM) for name in ("core", "locks", "msgqueue", "nice")),
        *(at_night(f"--{name}=0", NO_HARM) for name in ("rtprio", "sigpending", "rss", "rttime")),
    ],
)
def test_a_limit_is_survived_or_named(user: User, limit: str, words: str) -> None:
    done = launched(user, "prlimit", limit, "--")
    told = done.stderr
    assert "Traceback" not in told, told
    assert "this is a bug" not in told, told
    if words:
        assert done.returncode in (82, 64), told
        assert re.search(words, told), told
    else:
        assert done.returncode == 0, told


def test_a_run_goes_on_where_its_folder_was_taken_from_its_user(user: User) -> None:
    state = user.home / "state"
    environ = {"PATH": "/usr/bin:/bin", **user.environment(RDZV_STATE_DIR=str(state))}
    words = [*user.by, RDZV, "launch", "--nnodes", "2", "--scheduler", "local"]
    program = f"touch {user.home}/begun; while [ ! -e {user.home}/end ]; do sleep 0.05; done"
    words += ["--framework", "command", "--", "sh", "-c", program]
    with subprocess.Popen(
        words, cwd=user.home, env=environ, stderr=subprocess.PIPE, text=True
    ) as process:
        until((user.home / "begun").exists, 60)
        subprocess.run(["chown", "-R", "0:0", str(state)], check=True)
        state.chmod(0o700)
        (user.home / "end").touch()
        _, told = process.communicate(timeout=100)
    assert process.returncode == 0, told
    assert "Traceback" not in told
    assert re.search(r"result\.json cannot be written: Permission denied", told), told


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of processes, of version 1 or 2."""
    places = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
    place = next((one for one in places if (one / "cgroup.procs").exists()), None)
    if place is None:
        give_up("no control groups here")
    folder = place / f"rdzv-test-limits-{os.getpid()}"  # tests beside it have theirs
    try:
        folder.mkdir(exist_ok=True)
        (folder / "pids.max").write_text("max")
    except OSError as exc:
        give_up(f"no control group can be made here: {exc}")
    yield folder
    until(lambda: not (folder / "cgroup.procs").read_text().strip())
    folder.rmdir()


@pytest.mark.parametrize("limit", [4, at_night(9)])
def test_the_control_groups_limit_of_processes_is_named(
    user: User, group: Path, limit: int
) -> None:
    (group / "pids.max").write_text(str(limit))
    inside = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    by = User(user.uid, user.home, (*inside, *user.by))
    done = launched(by)
    assert done.returncode == 82, done.stderr
    words = rf"the control group {group} may have {limit} processes and threads \(pids.max\)"
    assert re.search(words, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_a_registry_that_ends_goes_on_where_its_log_was_removed(tmp_path: Path) -> None:
    command = shell(f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; echo ended")
    with launching(
        tmp_path / "state", "--nnodes", "2", "--framework", "command", command=command
    ) as one:
        one.wait_for_phase("running")
        # A node may make a file there while the folder is emptied: a single try can fail.
        logs = one.folder / "logs"
        while logs.exists():
            shutil.rmtree(logs, ignore_errors=True)
        one.child("_registry").send_signal(signal.SIGKILL)
        until(lambda: (one.folder / "logs/registry.log").exists())
        (tmp_path / "end").touch()
        outcome = one.finish()
    assert outcome.code == 0, outcome.err
    assert "Traceback" not in outcome.err
