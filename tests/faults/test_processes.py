"""Processes that stand still, and rdzv as a container's first one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support.launching import RDZV, environment, launch, launching, processes_with, shell
from tests.support.waiting import until
from worker.program import process_table

COMMAND = ("--framework", "command")
INIT = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

# A program that is deaf to TERM; it leaves a file when it has become so.
DEAF = "trap '' TERM; touch {mark}.$$; while :; do sleep 0.05; done"


def ready(folder: Path) -> int:
    """How many of the programs' processes have become what they are."""
    return len(list(folder.glob("mark.*")))


# Processes that stand still


def until_end(folder: Path) -> list[str]:
    """COMMAND: runs until the folder has the file `end`."""
    return shell(f"while [ ! -e {folder}/end ]; do sleep 0.05; done; echo done")


def test_a_launch_that_stood_still_as_a_whole_goes_on(tmp_path: Path) -> None:
    """As after `docker pause`, or on a laptop that was asleep."""
    options = ("--nnodes", "3", *COMMAND, "--lease", "2", "--orphan-timeout", "3")
    with launching(tmp_path / "s", *options, command=until_end(tmp_path)) as launched:
        launched.wait_for_phase("running")
        # The launcher, and of each node its keeper and its shell: an agent shows less of its words.
        until(lambda: len(processes_with(f"{tmp_path}/end")) >= 7)
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
def test_as_first_process_the_programs_exit_code_is_passed_on(tmp_path: Path) -> None:
    options = ("--nnodes", "2", *as_first_process(tmp_path), *COMMAND)
    command = shell("test $NODE_RANK = 0 || kill -SEGV $$; exit 0")
    outcome = launch(tmp_path / "s", *options, command=command)
    assert outcome.code == 139, outcome.err


def inside(agent: int) -> list[process_table.Process]:
    """Every process below the first one of the agent's namespace, itself included."""
    return [found for found in process_table.descendants(agent) if found.pid != agent]


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
