"""The processes of rdzv that a launch starts: forks, which nobody can tell from commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.launcher import forking
from tests.support.launching import lives
from tests.support.waiting import SECONDS, until


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The launcher of `forking`, with its output."""
    argv = [sys.executable, "-E", forking.DOOR, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)


def test_a_fork_sees_what_a_command_would(tmp_path: Path) -> None:
    paths = [tmp_path / "1", tmp_path / "2"]
    done = run("launch", *map(str, paths))
    assert (done.returncode, done.stderr) == (0, "")
    seen: list[list[dict[str, Any]]] = [json.loads(path.read_text()) for path in paths]
    [fork, own], [command, its_own] = seen
    fork["argv"][2] = fork["orig_argv"][4] = command["argv"][2] = command["orig_argv"][4] = "PATH"
    flags = [int(one["files"][str(forking.GIVEN)].pop(), 8) for one in (fork, command)]
    assert flags[0] == flags[1] | os.O_CLOEXEC  # it is not passed on to what the fork starts
    assert fork == command
    assert fork["files"].keys() == {"0", "1", "2", str(forking.GIVEN)}
    assert own["random"] != its_own["random"]
    # `ps` shows the fork as its command, in the room that the launcher's command line had.
    shown, whole = own["shown"].rstrip("\0"), its_own["shown"]
    assert whole.replace(str(paths[1]), str(paths[0])).startswith(shown)
    assert "\0_look\0" in shown


@pytest.mark.parametrize("how", ["0", "7", "300", "words", "returns", "error", "signal"])
def test_a_fork_ends_as_a_command_would(how: str) -> None:
    done = run("ends", "_end", how)
    assert done.returncode == 0, done.stderr
    fork, command = [line.removeprefix("an unfinished line") for line in done.stdout.split("\n")][
        :2
    ]
    assert fork == command
    assert done.stdout.count("an unfinished line") == (0 if how == "signal" else 2)
    assert done.stderr.count("why it ends\n") == (2 if how == "words" else 0)
    assert done.stderr.count("ValueError: what went wrong\n") == (2 if how == "error" else 0)


def test_a_fork_that_cannot_be_what_it_shall_says_so_where_the_command_would() -> None:
    done = run("ends", "_absent", "")
    assert (done.returncode, done.stdout) == (0, "1\n1\n")
    assert done.stderr.count("ImportError: no such part\n") == 2


@pytest.mark.parametrize(
    ("how", "is_fork"),
    [
        ("not at all", True),
        ("it ended", False),
        ("another variable", False),
        ("one variable less", False),
    ],
)
def test_what_a_fork_cannot_be_is_started_as_a_command(
    tmp_path: Path, how: str, is_fork: bool
) -> None:
    done = run("spoiled", how, str(tmp_path / "seen"))
    assert (done.returncode, done.stdout) == (0, f"{is_fork}\n"), done.stderr
    assert json.loads((tmp_path / "seen").read_text())[0]["leads"][1]


@pytest.mark.parametrize(
    ("why", "count"),
    [
        ("", 1),
        ("a thread", 0),
        ("no exit codes", 0),
        ("no pidfd", 0),
        ("no room", 0),
        ("few files", 3),
        ("many nodes", 16),
    ],
)
def test_nothing_is_forked_where_it_could_do_harm(why: str, count: int) -> None:
    done = run("refused", why)
    assert (done.returncode, done.stdout) == (0, f"{count}\n"), done.stderr


@pytest.mark.parametrize("end", [None, signal.SIGKILL, signal.SIGINT])
def test_a_fork_that_gets_no_orders_ends_with_its_launcher(end: signal.Signals | None) -> None:
    argv = [sys.executable, "-E", forking.DOOR, "waits"]
    with subprocess.Popen(argv, text=True, stdin=-1, stdout=-1, stderr=-3) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdin is not None
        forks = [int(word) for word in launcher.stdout.readline().split()]
        assert len(forks) == 2
        if end is None:
            launcher.stdin.write("\n")
            launcher.stdin.flush()
            assert launcher.stdout.readline() == "0\n"
        else:
            launcher.send_signal(end)
        until(lambda: not any(map(lives, forks)))
        launcher.kill()


@pytest.mark.real_time
def test_the_registry_and_the_nodes_of_a_launch_are_forks_of_it(tmp_path: Path) -> None:
    options = ["--state-dir", str(tmp_path), "--framework", "command", "--nnodes", "2"]
    argv = [str(Path(sys.executable).parent / "rdzv"), "launch", *options, "--", "sleep", "1000"]
    with subprocess.Popen(argv, stderr=-1, text=True) as launcher:
        assert launcher.stderr is not None
        assert any("all nodes are ready: go" in line for line in launcher.stderr)
        words = [shown(process) for process in psutil.Process(launcher.pid).children()]
        assert sorted(word.split("\0")[3] for word in words) == ["_registry", "worker", "worker"]
        # A command shows all of its words, a fork has the room that its launcher's words had.
        assert {len(word) for word in words} == {len(shown(psutil.Process(launcher.pid)))}
        launcher.terminate()
        launcher.communicate(timeout=SECONDS)


def shown(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_text()
