"""Programs that do not want to end, and rdzv as the first process of a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.launching import (
    RDZV,
    Launched,
    Outcome,
    environment,
    launch,
    launching,
    processes_with,
    shell,
)
from tests.support.nightly import but_at_night
from tests.support.record import record
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
    " done' >/dev/null 2>&1 & done; touch {mark}.$$; while :; do sleep 0.05; done"
)
STOPPED = (
    "trap 'echo woken; exit 0' TERM; touch {mark}.$$; kill -STOP $$; while :; do sleep 0.05; done"
)
BOTH_STOPPED_AND_DEAF = "trap '' TERM; touch {mark}.$$; kill -STOP $$; while :; do sleep 0.05; done"


def mark_in(folder: Path) -> str:
    """The mark of a launch's processes, with which the names of their files begin."""
    return f"{folder}/mark"


def ready(folder: Path) -> int:
    """How many of the programs' processes have become what they are."""
    return len(list(folder.glob("mark.*")))


@contextmanager
def running(
    folder: Path, script: str, *options: str, count: int = 2
) -> Iterator[tuple[Launched, str]]:
    """A launch on two nodes, so many processes of its programs ready; and the mark of all."""
    mark = mark_in(folder)
    command = shell(script.format(mark=mark))
    state = folder / "s"
    with launching(state, "--nnodes", "2", *options, *COMMAND, command=command) as launched:
        until(lambda: ready(folder) == count)
        yield launched, mark


@pytest.mark.parametrize(
    ("script", "what", "grace"),
    [
        (DEAF, "the program ignores SIGTERM", 1.0),
        (DAEMONS, "the program has daemons in sessions of their own, deaf to TERM and HUP", 1.0),
        (STOPPED, "the program has stopped itself (SIGSTOP)", 30.0),
        (BOTH_STOPPED_AND_DEAF, "the program has stopped itself and ignores SIGTERM", 1.0),
    ],
    ids=["deaf", "daemons", "stopped", "stopped-and-deaf"],
)
def test_whatever_the_program_does_nothing_of_it_is_left(
    tmp_path: Path, script: str, what: str, grace: float
) -> None:
    count = 8 if script is DAEMONS else 2
    with running(tmp_path, script, "--grace", str(grace), count=count) as (launched, mark):
        started = time.monotonic()
        launched.signal(signal.SIGTERM)
        outcome = launched.finish()
        seconds = time.monotonic() - started
    assert outcome.code == 143
    assert "SIGTERM at the launcher" in outcome.last_line
    assert not processes_with(mark)
    record(f"TERM at the launcher; {what} (grace {grace:.0f} s)", outcome, seconds)
    if grace == 1.0:
        assert seconds > grace
    assert seconds < 15


def test_a_failed_nodes_deaf_sibling_is_killed_after_the_grace(tmp_path: Path) -> None:
    mark = mark_in(tmp_path)
    fails = f"until ls {mark}.* >/dev/null 2>&1; do sleep 0.05; done; exit 3"
    script = f"if test $NODE_RANK = 1; then {fails}; fi; {DEAF.format(mark=mark)}"
    options = ("--nnodes", "2", "--grace", "1", *COMMAND)
    outcome = launch(tmp_path / "s", *options, command=shell(script))
    assert outcome.code == 3
    assert "node 1" in outcome.last_line
    assert not processes_with(mark)
    record("a node fails, the other's program ignores SIGTERM (grace 1 s)", outcome)


# The first process of a container


def as_first_process(folder: Path, slot: int) -> tuple[str, str]:
    """An option: this slot's agent is PID 1 of a process namespace of its own."""
    init = " ".join(INIT)
    spec = folder / "worker.yaml"
    spec.write_text(
        f'argv: [sh, -c, \'test <<SLOT>> = {slot} && exec {init} rdzv worker "$@"; exec rdzv'
        ' worker "$@"\', sh, <<WORKER_OPTIONS>>, --, <<COMMAND>>]\n'
        "env: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    return "--worker-spec", str(spec)


def launch_as_first_process(folder: Path, *options: str, command: list[str]) -> Outcome:
    """A launch whose launcher is PID 1 of a process namespace of its own."""
    done = subprocess.run(
        [*INIT, RDZV, "launch", "--rdzv-id", "r", *options, "--", *command],
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


CODES = {
    **{f"exit {code}": code for code in (0, 1, 3, 75, 137, 139, 143)},
    **{f"kill -{name} $$": 128 + signal.Signals[f"SIG{name}"] for name in ("KILL", "SEGV")},
}


@pytest.mark.netns
@pytest.mark.parametrize("script", but_at_night(CODES, "exit 3", "kill -SEGV $$"))
@pytest.mark.parametrize("first_process", ["the agent", "the launcher"])
def test_as_first_process_the_programs_exit_code_is_passed_on(
    tmp_path: Path, script: str, first_process: str
) -> None:
    code = CODES[script]
    if first_process == "the launcher":
        alone = ("--nnodes", "1", *COMMAND)
        outcome = launch_as_first_process(tmp_path / "s", *alone, command=shell(script))
    else:
        options = ("--nnodes", "2", *as_first_process(tmp_path, 1), *COMMAND)
        command = shell(f"test $NODE_RANK = 0 || {script}; exit 0")
        outcome = launch(tmp_path / "s", *options, command=command)
    assert outcome.code == code, outcome.err
    words = "ended with exit code 0" if code == 0 else f"the program ended with exit code {code}"
    assert words in outcome.last_line


ORPHANS = """
import os, sys, time
for _ in range(1000):
    if os.fork() == 0:  # its child is an orphan at once
        if os.fork() == 0:
            time.sleep(0.2)
        os._exit(0)
    os.wait()
print("orphans made", flush=True)
{then}
"""


def inside(agent: int) -> list[keeper.Process]:
    """Every process below the first one of the agent's namespace, itself included."""
    return [found for found in keeper.descendants(agent) if found.pid != agent]


def enter(first: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the namespace of that process, as `docker exec` does."""
    return subprocess.run(
        ["nsenter", "--target", str(first), "--pid", "--mount", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.netns
@pytest.mark.parametrize(
    "whose", but_at_night(["of the program", "of a docker exec"], "of the program")
)
def test_as_first_process_the_agent_reaps_1000_orphans_and_ends_on_term(
    tmp_path: Path, whose: str
) -> None:
    then = "time.sleep(600)"
    orphans = [sys.executable, "-I", "-S", "-c", ORPHANS.format(then=then)]
    command = orphans if whose == "of the program" else ["sleep", "600"]
    options = ("--nnodes", "2", "--submit-retries", "0", *as_first_process(tmp_path, 1), *COMMAND)
    with launching(tmp_path / "s", *options, command=command) as launched:
        launched.wait_for_phase("running")
        init = launched.child("unshare", "worker").pid
        agent = until(lambda: inside(init))[0].pid
        log = launched.folder / "logs" / "node-1.log"
        if whose == "of the program":
            until(lambda: log.exists() and log.read_text() == "orphans made\n", 60)
        else:
            enter(agent, sys.executable, "-I", "-S", "-c", ORPHANS.format(then=""))
        # The agent, its keeper, the program.
        until(lambda: len(inside(init)) == 3, 30)
        assert [found.state for found in inside(init) if found.state == "Z"] == []
        os.kill(agent, signal.SIGTERM)
        started = time.monotonic()
        until(lambda: not inside(init), 30)
        gone = time.monotonic() - started
        outcome = launched.finish()
    assert "node 1" in outcome.last_line
    assert "its agent was told to end (SIGTERM)" in outcome.last_line
    assert outcome.code == 143
    assert gone < 10
    record(f"agent as PID 1: 1,000 orphans {whose}", "nothing: no zombie is left")
    record("agent as PID 1: TERM until the last process is gone", outcome, gone)


@pytest.mark.netns
def test_as_first_process_the_launcher_ends_everything_on_term(tmp_path: Path) -> None:
    mark = mark_in(tmp_path)
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
    assert "SIGTERM at the launcher" in err
    assert not processes_with(mark)
    outcome = Outcome(143, "", err)
    record("launcher as PID 1: TERM, deaf programs (grace 1 s)", outcome, seconds)
    assert seconds < 10
