"""`rdzv.launch` and `rdzv.attach`, with real runs on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

import rdzv
from launcher.cli import launch as command
from rdzv.arguments import FLAGS, option_words
from rdzv.command import error_of
from rdzv.run import state_home
from tests.support.launching import environment, processes_with, shell
from tests.support.nightly import but_at_night
from tests.support.waiting import until
from worker.program.state_home import usual_home as of_the_command

SECONDS = 40.0
SH: Mapping[str, Any] = {"nnodes": 2, "framework": "command"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all runs, in an environment without anything of a launch's."""
    for name in set(os.environ) - environment(tmp_path).keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("RDZV_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "s"


def until_file(path: Path) -> list[str]:
    """COMMAND that ends well once there is this file."""
    return shell(f"until [ -e {path} ]; do sleep 0.2; done")


def open_files() -> set[str]:
    return {f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}" for fd in _descriptors()}


def _descriptors() -> list[str]:
    found = os.listdir("/proc/self/fd")
    return [fd for fd in found if os.path.lexists(f"/proc/self/fd/{fd}")]  # not that of the list


# ---- a run, from its launch to its end ----------------------------------------------------------


@pytest.mark.real_time
def test_a_run_is_launched_followed_and_leaves_nothing(tmp_path: Path, state: Path) -> None:
    files, threads = open_files(), set(threading.enumerate())
    events: list[Mapping[str, Any]] = []
    output: list[str] = []
    script = f"echo hi $NODE_RANK; until [ -e {tmp_path}/go ]; do sleep 0.2; done; echo bye"
    run = rdzv.launch(
        shell(script), **SH, rdzv_id="r", on_event=events.append, on_output=output.append
    )
    assert (run.name, run.folder, repr(run)) == ("r", str(state / "r"), "<rdzv.Run 'r'>")
    assert not run.done
    until(lambda: {"[0] hi 0", "[1] hi 1"} <= set(output))
    stands = run.status()
    assert (stands.phase, stands.epoch, stands.result) == ("running", 1, None)
    assert len(stands.details["slots"]) == 2
    assert list(run.logs(node=1)) == ["hi 1"]
    assert sorted(run.logs()) == ["[node 0] hi 0", "[node 1] hi 1"]
    with pytest.raises(ValueError, match="not both"):
        run.logs(rank=0, node=1)
    table = run.table()
    assert [(node.node, node.nproc_per_node) for node in table] == [(0, 1), (1, 1)]
    assert [node.address for node in table] == ["127.0.0.1", "127.0.0.2"]
    with pytest.raises(TimeoutError, match=r"^run 'r' has not ended after 0.01 s; it continues$"):
        run.wait(0.01)

    lines = run.logs(node=0, follow=True)  # of a run that is in progress
    assert next(lines) == "hi 0"
    (tmp_path / "go").touch()
    assert list(lines) == ["bye"]
    result = run.wait(check=True)
    assert (result.ok, result.exit_code, result.exit_code_of) == (True, 0, "program")
    assert (run.done, run.status().phase, run.status().result) == (True, "finished", result)
    run.cancel()  # of a run that has ended: nothing
    kinds = [event["kind"] for event in events]
    assert (kinds[0], kinds[-1]) == ("launch", "result")
    assert kinds.count("joined") == 2
    assert output[0].startswith("rdzv: launching run 'r' on 2 nodes")
    assert output[-1].startswith("rdzv: run 'r' ok")
    until(lambda: set(threading.enumerate()) <= threads)
    del lines, run
    assert open_files() <= files


@pytest.mark.real_time
def test_variables_reach_the_programs_and_no_command_line_has_their_values(tmp_path: Path) -> None:
    env = {"API_KEY": "canary-5", "LR": 0.1}
    output: list[str] = []
    script = f"echo $(printenv API_KEY | wc -c) $LR; until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    run = rdzv.launch(shell(script), **SH, env=env, on_output=output.append)
    until(lambda: {"[0] 9 0.1", "[1] 9 0.1"} <= set(output))
    assert processes_with("canary-5") == []
    (tmp_path / "go").touch()
    assert run.wait(SECONDS).ok
    assert "API_KEY" not in os.environ


@pytest.mark.real_time
@pytest.mark.parametrize("seconds", but_at_night([0.0, 0.1, 0.3], 0.0))
@pytest.mark.faults
def test_a_run_is_cancelled_however_soon(seconds: float) -> None:
    run = rdzv.launch(["sleep", "99"], **SH, on_output=lambda _: None)
    with pytest.raises(TimeoutError):
        run.wait(seconds)
    run.cancel()
    result = run.wait(SECONDS)
    assert (result.status, result.code) == ("cancelled", "cancelled")
    assert result.exit_code in (84, 143)  # as `rdzv cancel`, or as SIGTERM before that is possible


@pytest.mark.real_time
@pytest.mark.nightly
def test_no_output_is_lost_and_a_listener_that_raises_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    output: list[str] = []
    run = rdzv.launch(
        shell("printf '1 %%\\r2 %%\\n'; seq 100000 300000"),  # more than any pipe holds
        nnodes=1,
        framework="command",
        on_event=lambda event: sys.exit("nobody exits here"),
        on_output=output.append,
    )
    with run:  # which ends without an exception
        pass
    assert run.wait(SECONDS).ok
    assert output[1] == "1 %\r2 %"
    assert [line for line in output if line.isdigit()] == [str(n) for n in range(100_000, 300_001)]
    assert "failed; the run continues" in caplog.text


# ---- what is refused, and what is killed --------------------------------------------------------


def test_a_launch_that_is_refused_says_what_the_command_says(
    capfd: pytest.CaptureFixture[str], state: Path
) -> None:
    with pytest.raises(rdzv.RdzvError) as raised:
        rdzv.launch("train.py", nnodes=2, options={"join_time_out": 3})
    error = raised.value
    assert error.message == "No such option '--join-time-out'"
    assert error.hint.startswith("did you mean '--join-timeout'")
    assert (error.exit_code, str(error)) == (64, f"{error.message}\n{error.hint}")
    with pytest.raises(rdzv.RdzvError, match="started no run"):
        rdzv.launch("train.py", nnodes=1, options=["--dry-run"])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        rdzv.launch("train.py", nnodes=1, cwd="nowhere")
    assert capfd.readouterr() == ("", "")  # the exception has it all
    assert not list(state.glob("*"))


@pytest.mark.real_time
@pytest.mark.faults
def test_a_launcher_that_is_killed_is_no_reason_to_wait_for_ever(tmp_path: Path) -> None:
    run = rdzv.launch(until_file(tmp_path / "go"), **SH, rdzv_id="r", on_output=lambda _: None)
    until(run.table)
    lock = Path(run.folder, "lock").read_text()
    os.kill(int(lock.split()[1]), signal.SIGKILL)
    result = run.wait(SECONDS)
    assert (result.status, result.exit_code) == ("failed", 137)
    assert result.message == "run 'r' has ended without a result: its launcher was killed"
    assert result.hint == "clean up with: rdzv cancel r"
    assert rdzv.attach("r").wait().message == result.message
    until(lambda: not processes_with(str(tmp_path / "go")))


# ---- with the end of the process that launched it, the run ends --------------------------------

LAUNCHES = """
import rdzv, sys, threading, time
said = []
def start():
    global run
    run = rdzv.launch(
        sys.argv[1:], nnodes=2, framework="command", rdzv_id="r", on_output=said.append
    )
thread = threading.Thread(target=start)  # the run does not end with the thread that launched it
thread.start()
thread.join()
while len({"[0] ready", "[1] ready"} & set(said)) < 2:
    time.sleep(0.1)
"""
RUNNING = "print('running', flush=True)"


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("then", "number"),
    [
        (f"{RUNNING}; time.sleep(99)", signal.SIGKILL),
        (f"with run: {RUNNING}; run.wait()", signal.SIGINT),
        (f"{RUNNING}; sys.exit(3)", None),
    ],
    ids=["killed", "Ctrl-C", "exits"],
)
@pytest.mark.faults
def test_no_run_outlives_the_process_that_launched_it(
    tmp_path: Path, state: Path, then: str, number: signal.Signals | None
) -> None:
    saves = f"trap 'sleep 0.3; touch {tmp_path}/saved-$NODE_RANK; exit 1' TERM; echo ready"
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHES + then, *shell(f"{saves}; while :; do sleep 0.1; done")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    assert processes_with(str(tmp_path))
    if number is not None:
        os.killpg(process.pid, number)  # as a terminal does
    _, err = process.communicate(timeout=SECONDS)
    if number is signal.SIGKILL:  # the launch ends its run in order, which takes a moment
        until(lambda: (state / "r" / "result.json").exists())
        until(lambda: not processes_with(str(tmp_path)))
    assert processes_with(str(tmp_path)) == []
    assert process.returncode == (3 if number is None else -number)
    result = rdzv.attach("r").wait(SECONDS)
    assert result.status == "cancelled"
    reason = "KeyboardInterrupt in the program" if number is signal.SIGINT else "SIGTERM"
    assert reason in result.message, err
    assert len(list(tmp_path.glob("saved-*"))) == 2  # each program had its grace


# ---- runs that others have launched -------------------------------------------------------------


@pytest.mark.parametrize(
    "environ",
    [{"RDZV_STATE_DIR": "/a"}, {"XDG_STATE_HOME": "/b"}, {"RDZV_STATE_DIR": ""}, {}],
)
def test_runs_are_looked_for_where_the_command_keeps_them(environ: dict[str, str]) -> None:
    home = {"HOME": os.path.expanduser("~"), **environ}
    assert state_home(environ) == str(of_the_command(home))


API: Any = rdzv
"""For calls that a type checker refuses."""


# ---- words --------------------------------------------------------------------------------------


def test_options_become_words() -> None:
    given = {
        "join_timeout": 60,
        "--log-dir": Path("/logs"),
        "strict": True,
        "local_node": False,
        "port": None,
        "pass_env": ["A", "B"],
        "set": {"QUEUE": "a b", "N": -1},
    }
    assert option_words(given) == [
        *("--join-timeout=60", "--log-dir=/logs", "--strict", "--no-local-node"),
        *("--pass-env=A", "--pass-env=B", "--set=QUEUE=a b", "--set=N=-1"),
    ]


def test_the_options_without_a_value_are_those_of_the_command() -> None:
    flags = {p.opts[0] for p in command.params if isinstance(p, click.Option) and p.is_flag}
    assert {"--" + name.replace("_", "-") for name in FLAGS} == flags - {"--help-all"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: API.launch("t.py", nnode=2), "launch() has no keyword 'nnode'; did you mean 'nn"),
        (
            lambda: API.launch("t.py", nproc_per_nod=2),
            "launch() has no keyword 'nproc_per_nod'; did you mean 'nproc_per_node'?",
        ),
        (
            lambda: API.launch("t.py", join_timeout=2),
            "launch() has no keyword 'join_timeout'; other options of 'rdzv launch' go into opt",
        ),
        (
            lambda: API.attach("x", statedir="/"),
            "attach() has no keyword 'statedir'; did you mean",
        ),
        (lambda: API.Run("x", "/").wait(timeot=1), "wait() has no keyword 'timeot'; did you"),
        (
            lambda: API.Run("x", "/").cancel(why="x"),
            "cancel() has no keyword 'why'; it takes",
        ),
        (lambda: API.launch("t.py", nnodes=True), "nnodes cannot be True"),
        (
            lambda: API.launch("t.py", options={"log_dir": True, "dry_run": True}),
            "log_dir cannot be True: --log-dir takes a value",
        ),
        (
            lambda: API.launch("t.py", options="--strict"),
            "options are a mapping or a list of",
        ),
    ],
)
def test_a_wrong_keyword_names_the_nearest_one(call: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_a_wrong_name_names_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lauch'; did you mean 'launch'"):
        API.lauch  # noqa: B018
    with pytest.raises(rdzv.RdzvError, match="cannot be split as a shell does: No closing quot"):
        rdzv.launch("echo it's")


@pytest.mark.parametrize(
    ("said", "code", "message", "hint"),
    [
        ("rdzv: no run 'x'\n      the newest: y\n", 64, "no run 'x'", "the newest: y"),
        ("[0] hi\nrdzv: a\nrdzv: b\nand c\n", 1, "b\nand c", ""),
        ("python: no such file\n", 2, "python: no such file", ""),
        ("", 5, "the command ended with exit code 5", ""),
        (
            "Traceback\nKeyError\nrdzv: this is a bug\n",
            70,
            "Traceback\nKeyError\nrdzv: this is a bug",
            "",
        ),
    ],
)
def test_what_a_command_said_becomes_an_exception(
    said: str, code: int, message: str, hint: str
) -> None:
    error = error_of(said, code)
    assert (error.message, error.hint, error.exit_code) == (message, hint, code)
