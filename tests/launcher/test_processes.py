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
from tests.support.nightly import at_night
from tests.support.waiting import SECONDS, until


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The launcher of `forking`, with its output."""
    argv = [sys.executable, "-E", forking.DOOR, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)


def run_each(*lines: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of launchers that one process is, one after the other."""
    done = run("each", json.dumps(lines))
    assert (done.returncode, done.stderr) == (0, "")
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


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


@pytest.mark.parametrize(
    "ways",
    [
        ("7", "words", "error", "signal"),
        at_night(("0", "300", "returns")),
    ],
)
def test_a_fork_ends_as_a_command_would(ways: tuple[str, ...]) -> None:
    for how, (code, out, err) in zip(
        ways, run_each(*(("ends", "_end", how) for how in ways)), strict=True
    ):
        assert code == 0, err
        fork, command = [line.removeprefix("an unfinished line") for line in out.split("\n")][:2]
        assert fork == command, how
        assert out.count("an unfinished line") == (0 if how == "signal" else 2)
        assert err.count("why it ends\n") == (2 if how == "words" else 0)
        assert err.count("ValueError: what went wrong\n") == (2 if how == "error" else 0)


def test_a_fork_that_cannot_be_what_it_shall_says_so_where_the_command_would() -> None:
    done = run("ends", "_absent", "")
    assert (done.returncode, done.stdout) == (0, "1\n1\n")
    assert done.stderr.count("ImportError: no such part\n") == 2


def test_what_a_fork_cannot_be_is_started_as_a_command(tmp_path: Path) -> None:
    fit = ("not at all", "one for programs")
    changed = ("another variable", "one variable less")
    ways = (*fit, "it ended", *changed, "one for programs that is read at the start")
    lines = [("spoiled", how, str(tmp_path / how)) for how in ways]
    for how, (code, out, err) in zip(ways, run_each(*lines), strict=True):
        assert (code, out) == (0, f"{how in fit}\n"), how + err
        assert json.loads((tmp_path / how).read_text())[0]["leads"][1]


def test_nothing_is_forked_where_it_could_do_harm() -> None:
    refused = ("a thread", "no exit codes", "no pidfd", "no room")
    counts = {"": 1, **dict.fromkeys(refused, 0), "few files": 3, "many nodes": 16}
    said = run_each(*(("refused", why) for why in counts))
    for (why, count), (code, out, err) in zip(counts.items(), said, strict=True):
        assert (code, out) == (0, f"{count}\n"), why + err


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
            launcher.stdin.close()  # one that comes just before a read is heard once that returns
            assert launcher.wait(SECONDS) == -end
        until(lambda: not any(map(lives, forks)))
        launcher.kill()


@pytest.mark.real_time
def test_the_registry_and_the_nodes_of_a_launch_are_forks_of_it(tmp_path: Path) -> None:
    options = ["--state-dir", str(tmp_path), "--framework", "command", "--nnodes", "2"]
    argv = [str(Path(sys.executable).parent / "rdzv"), "launch", *options, "--", "sleep", "1000"]
    with subprocess.Popen(argv, stderr=-1, text=True) as launcher:
        assert launcher.stderr is not None
        assert any("; starting " in line for line in launcher.stderr)
        words = [shown(process) for process in psutil.Process(launcher.pid).children()]
        assert sorted(word.split("\0")[3] for word in words) == ["_registry", "worker", "worker"]
        # A command shows all of its words, a fork has the room that its launcher's words had.
        assert {len(word) for word in words} == {len(shown(psutil.Process(launcher.pid)))}
        launcher.terminate()
        launcher.communicate(timeout=SECONDS)


def shown(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_text()
