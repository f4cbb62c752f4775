"""A program under an agent: how it starts, what it says, how it ends, and that nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.waiting import soon
from tests.worker.programs.started import (
    PROGRAMS,
    TWO_THAT_IGNORE_TERM,
    Recording,
    Start,
    is_dead,
    is_gone,
)
from worker.program import output as output_module
from worker.program import process_table
from worker.program.process import Program, end_descendants, reap_orphans


def is_stopped(pid: int) -> bool:
    found = process_table.read_process(pid)
    return found is not None and found.state == "T"


@pytest.mark.real_time
async def test_output_arrives_unchanged_while_the_program_runs_and_its_input_is_empty(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And a process elsewhere that holds the output open does not hold us up."""
    monkeypatch.setattr(output_module, "DRAIN_SECONDS", 0.05)
    output = Recording()
    script = r"cat; printf 'a\000\377\r'; printf x >&2; exec sleep 60"
    program = await start("sh", "-c", script, output=output)
    await soon(lambda: len(output.pieces) == 2)
    assert (output.of("stdout"), output.of("stderr")) == (b"a\x00\xff\r", b"x")
    with open(f"/proc/{program.main_pid}/fd/1", "wb"):
        await program.stop()
    assert caplog.records == []  # it is not for our own output that it waited


@pytest.mark.parametrize(("seconds", "said"), [(60.0, b"runs\n"), (-0.01, b"")])
async def test_what_would_start_too_late_is_not_started(seconds: float, said: bytes) -> None:
    output = Recording()
    program = await Program.start(
        ["echo", "runs"],
        os.environ,
        grace_seconds=5.0,
        output=output,
        until=time.monotonic() + seconds,
    )
    ending = await program.wait()
    assert (ending.exit_code, output.of("stdout")) == (0 if said else 137, said)


async def test_a_keeper_that_somebody_stopped_still_stops_its_program(start: Start) -> None:
    program = await start("sleep", "60")
    await soon(lambda: program.main_pid is not None)
    os.kill(program.pid, signal.SIGSTOP)
    await soon(lambda: is_stopped(program.pid))
    ending = await program.stop()
    assert (ending.exit_code, is_gone(program.main_pid or 0)) == (143, True)


async def test_no_file_or_thread_is_left_after_a_program(start: Start) -> None:
    def held() -> set[str | threading.Thread]:
        outputs = [thread for thread in threading.enumerate() if thread.name == "output"]
        return {*os.listdir("/proc/self/fd"), *outputs}

    await (await start("true")).wait()
    before = held()
    await (await start("sh", "-c", "sleep 0.1 & wait; exit 3")).wait()
    assert held() <= before  # what another test has left may be closed meanwhile


# --- whatever ends first, nothing is left, and no child's end is lost -----------------------------


AGENT = [sys.executable, str(PROGRAMS / "agent.py"), "0.3"]


class Agent:
    """A small agent (`programs/agent.py`) with two workers that ignore SIGTERM."""

    def __init__(self, *within: str) -> None:
        argv, pipe = [*within, *AGENT, *TWO_THAT_IGNORE_TERM], subprocess.PIPE
        self.process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True)
        self.facts = self.told()
        assert self.process.stderr is not None
        self.workers = [int(self.process.stderr.readline().split()[1]) for _ in range(2)]

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        facts: dict[str, Any] = json.loads(self.process.stdout.readline())
        return facts


@contextmanager
def agent(*within: str) -> Iterator[Agent]:
    """It runs; at the end nothing of it does."""
    started = Agent(*within)
    try:
        yield started
    finally:
        everyone = process_table.descendants(started.process.pid)
        started.process.kill()
        started.process.communicate()
        process_table.kill([found for found in everyone if not is_gone(found.pid)])


@pytest.mark.real_time
async def test_an_agent_killed_by_sigkill_takes_everything_with_it() -> None:
    with agent() as killed:
        killed.process.kill()
        await soon(lambda: all(map(is_dead, [killed.facts["keeper"], *killed.workers])))


@pytest.mark.real_time
def test_a_keeper_killed_by_sigkill_is_reported_and_nothing_is_left() -> None:
    with agent() as found:
        os.kill(found.facts["keeper"], signal.SIGKILL)
        told = found.told()
        assert (told["exit_code"], "keeper" in told["reason"]) == (137, True)
        assert found.process.wait(30) == 137
        assert all(map(is_gone, found.workers))


@pytest.mark.netns
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a process namespace")
async def test_as_pid_1_orphans_are_reaped_and_sigterm_ends_all() -> None:
    with agent("unshare", "-pf", "--kill-child", "--mount-proc") as found:
        # The agent, its keeper, the program and its two workers; its two orphans are reaped.
        await soon(lambda: len(process_table.descendants(found.process.pid)) == 5)
        os.kill(process_table.descendants(found.process.pid)[0].pid, signal.SIGTERM)
        assert (found.facts["agent"], found.told()["exit_code"]) == (1, 143)
        assert found.process.wait(30) == 143
        assert process_table.descendants(found.process.pid) == []


async def test_reaping_orphans_leaves_the_exit_codes_of_our_own_children_alone() -> None:
    reaping = asyncio.create_task(reap_orphans(0.1))
    orphan = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 1"], os.environ)
    children = [await asyncio.create_subprocess_exec("sh", "-c", "exit 5") for _ in range(5)]
    assert [await child.wait() for child in children] == [5] * 5
    await soon(lambda: is_gone(orphan))
    reaping.cancel()


async def test_a_child_that_has_just_ended_is_left_to_whoever_started_it() -> None:
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 5"], os.environ)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    reaping = asyncio.create_task(reap_orphans(3600))
    await asyncio.sleep(0)  # it has looked once
    assert os.waitstatus_to_exitcode(os.waitpid(child, os.WNOHANG)[1]) == 5
    reaping.cancel()


@pytest.mark.real_time
async def test_end_descendants_leaves_what_it_is_told_to_spare() -> None:
    of_others = {each.pid for each in process_table.descendants(os.getpid())}
    spared = await asyncio.create_subprocess_exec("sleep", "60")
    ended = await asyncio.create_subprocess_exec("sh", "-c", "trap '' TERM; sleep 60; sleep 60")
    await end_descendants(0.2, spare={spared.pid} | of_others)
    assert (is_gone(ended.pid), is_gone(spared.pid)) == (True, False)
    spared.kill()
    for each in (spared, ended):
        await each.wait()


def test_a_process_whose_parent_is_gone_already_is_signalled_at_once() -> None:
    script = "import time, worker.program.process as p; p.die_with_parent(15, 1); time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=50)
    assert done.returncode == -signal.SIGTERM


# A child is told that its parent dies, of which a thread lives on.
LOSES_PARENT = """
import os, signal
from worker.program.process import die_with_parent, parent_lives
parent = os.getppid()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
die_with_parent(signal.SIGTERM, parent)
print(parent_lives(parent), flush=True)
signal.sigwait([signal.SIGTERM])
print(os.getppid() == parent, parent_lives(parent), flush=True)
"""
LIVES_ON_IN_A_THREAD = """
import ctypes, subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline(), end="", flush=True)
threading.Thread(target=lambda: print(child.stdout.read(), end="", flush=True)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_is_told_that_its_parent_ends_although_a_thread_of_that_has_not_yet() -> None:
    command = [sys.executable, "-c", LIVES_ON_IN_A_THREAD, LOSES_PARENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.stdout.splitlines() == ["True", "True False"], done.stderr
