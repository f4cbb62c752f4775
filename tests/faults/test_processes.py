"""Programs that do not want to end, processes that stand still, rdzv as a container's first one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support.launching import (
    RDZV,
    environment,
    launch,
    launching,
    processes_with,
    shell,
)
from tests.support.waiting import until
from worker.program import keeper

COMMAND = ("--framework", "command")
INIT = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

# Programs of each kind, which wait for their end; `mark` is in the command line of all they start.
# Each process of them leaves a file when it has become what it is.
DEAF = "trap '' TERM; touch {mark}.$$; while :; do sleep 0.05; done"
DAEMONS = (
    'for i in 1 2 3; do setsid sh -c \'trap "" TERM HUP; touch {mark}.$$; while :; do sleep 0.05;'
    " done' >/dev/null 2>&1 & done; trap '' TERM; touch {mark}.$$; kill -STOP $$"
)


def ready(folder: Path) -> int:
    """How many of the programs' processes have become what they are."""
    return len(list(folder.glob("mark.*")))


def test_whatever_the_programs_are_nothing_of_them_is_left(tmp_path: Path) -> None:
    """They have daemons in sessions of their own, have stopped themselves, and are deaf to TERM."""
    mark = f"{tmp_path}/mark"
    options = ("--nnodes", "2", "--grace", "1", *COMMAND)
    command = shell(DAEMONS.format(mark=mark))
    with launching(tmp_path / "s", *options, command=command) as launched:
        until(lambda: ready(tmp_path) == 8)
        started = time.monotonic()
        launched.signal(signal.SIGTERM)
        outcome = launched.finish()
        seconds = time.monotonic() - started
    assert outcome.code == 143
    assert not processes_with(mark)
    assert 1.0 < seconds < 15


# Processes that stand still


def until_end(folder: Path) -> list[str]:
    """COMMAND: runs until the folder has the file `end`."""
    return shell(f"while [ ! -e {folder}/end ]; do sleep 0.05; done; echo done")


def test_a_launch_that_stood_still_as_a_whole_goes_on(tmp_path: Path) -> None:
    """As after `docker pause`, or on a laptop that was asleep."""
    options = ("--nnodes", "3", *COMMAND, "--lease", "2", "--orphan-timeout", "3")
    with launching(tmp_path / "s", *options, command=until_end(tmp_path)) as launched:
        launched.wait_for_phase("running")
        until(lambda: len(processes_with(f"{tmp_path}/end")) >= 10)
        everyone = [psutil.Process(launched.process.pid), *launched.children()]
        for number, seconds in ((signal.SIGSTOP, 5), (signal.SIGCONT, 3)):
            for process in everyone:
                with contextlib.suppress(psutil.NoSuchProcess):  # a short one of the programs'
                    process.send_signal(number)
            time.sleep(seconds)
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert "was lost" not in outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] done", "[1] done", "[2] done"]
    until(lambda: not processes_with(f"{tmp_path}/end"))


def test_a_node_whose_agent_stands_still_is_lost_and_ends_when_it_goes_on(tmp_path: Path) -> None:
    # The launcher kills an agent that does not end, not long after the grace.
    options = ("--nnodes", "3", *COMMAND, "--lease", "3", "--grace", "20")
    with launching(tmp_path / "s", *options, command=until_end(tmp_path)) as launched:
        launched.wait_for_phase("running")
        until(lambda: len(processes_with(f"{tmp_path}/end")) >= 10)
        agent = launched.child("worker", "127.0.0.3")
        agent.suspend()
        launched.wait_for_phase("finished")
        os.kill(agent.pid, signal.SIGCONT)
        outcome = launched.finish()
    assert outcome.code == 86
    assert "slot 2) was lost: it was silent for" in outcome.last_line
    until(lambda: not processes_with(str(tmp_path)))


# Two launchers at once


def test_of_two_launchers_that_start_at_once_one_owns_the_run(tmp_path: Path) -> None:
    command = shell(f"echo $MASTER_PORT; until [ -e {tmp_path}/end ]; do sleep 0.05; done")
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                launching(tmp_path / "s", "--nnodes", "2", *COMMAND, command=command)
            )
            for _ in range(2)
        ]
        until(lambda: any(one.process.poll() is not None for one in started))
        (tmp_path / "end").touch()
        owner, other = sorted((one.finish() for one in started), key=lambda end: end.code)
    assert (owner.code, other.code, other.out) == (0, 1, "")
    assert re.search(r"run 'r' is being launched by pid \d+ on .*, started \d+ s ago", other.err)
    assert len(set(owner.out.split())) == 3  # [0], [1] and one port: one table for both nodes
    until(lambda: not processes_with(str(tmp_path)))


# The first process of a container


def as_first_process(folder: Path) -> tuple[str, str]:
    """An option: slot 1's agent is PID 1 of a process namespace of its own."""
    spec = folder / "worker.yaml"
    spec.write_text(
        f'argv: [sh, -c, \'test <<SLOT>> = 1 && exec {" ".join(INIT)} rdzv worker "$@"; exec'
        ' rdzv worker "$@"\', sh, <<WORKER_OPTIONS>>, --, <<COMMAND>>]\n'
        "env: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    return "--worker-spec", str(spec)


@pytest.mark.netns
@pytest.mark.parametrize("code", [3, 139])
def test_as_first_process_the_programs_exit_code_is_passed_on(tmp_path: Path, code: int) -> None:
    fails = "kill -SEGV $$" if code == 139 else f"exit {code}"
    options = ("--nnodes", "2", *as_first_process(tmp_path), *COMMAND)
    command = shell(f"test $NODE_RANK = 0 || {fails}; exit 0")
    outcome = launch(tmp_path / "s", *options, command=command)
    assert outcome.code == code, outcome.err


def inside(agent: int) -> list[keeper.Process]:
    """Every process below the first one of the agent's namespace, itself included."""
    return [found for found in keeper.descendants(agent) if found.pid != agent]


@pytest.mark.netns
def test_as_first_process_the_launcher_ends_everything_on_term(tmp_path: Path) -> None:
    mark = f"{tmp_path}/mark"
    command = [RDZV, "launch", "--rdzv-id", "r", "--nnodes", "2", "--grace", "1", *COMMAND, "--"]
    with subprocess.Popen(
        [*INIT, *command, *shell(DEAF.format(mark=mark))],
        env=environment(tmp_path / "s"),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until(lambda: ready(tmp_path) == 2)
        launcher = inside(process.pid)[0].pid
        started = time.monotonic()
        os.kill(launcher, signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        seconds = time.monotonic() - started
    assert process.returncode == 143, err
    assert not processes_with(mark)
    assert seconds < 10
