"""What is read of processes, of real ones."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.worker.programs.started import PYTHON
from worker.program import process_table
from worker.program.process_table import (
    Details,
    command_of,
    read_details,
    read_process,
    short_command,
)


@contextmanager
def called(name: bytes) -> Iterator[None]:
    """This process, by another name."""
    comm = Path("/proc/self/comm")
    before = comm.read_bytes()
    comm.write_bytes(name)
    try:
        yield
    finally:
        comm.write_bytes(before)


def test_a_process_is_read_whatever_its_name_looks_like() -> None:
    with called(b") Z 1 ("):
        found = read_process(os.getpid())
    assert found is not None
    assert (found.pid, found.parent, found.state) == (os.getpid(), os.getppid(), "R")


def test_a_process_is_looked_at_closely() -> None:
    code = "from signal import *; signal(SIGUSR1, SIG_IGN); signal(SIGTERM, print)"
    code += "; print(flush=True); pause()"
    argv = [*PYTHON, "-c", code, "", "two words"]
    env = {"NAME": "with\nline", "EMPTY": ""}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        found = read_details(process.pid)
        process.kill()
    assert found.words == tuple(map(os.fsencode, argv))
    assert {b"NAME=with\nline", b"EMPTY="} <= found.environment
    assert (signal.SIGUSR1 in found.ignored, signal.SIGUSR1 in found.caught) == (True, False)
    assert (signal.SIGTERM in found.ignored, signal.SIGTERM in found.caught) == (False, True)


@pytest.mark.parametrize("name", [b"a\rb", b"a:b", b"SigIgn:\t7", b"\xff\n\x0b"])
def test_a_process_may_be_called_anything(name: bytes) -> None:
    with called(name):
        assert read_details(os.getpid()).ignored >= {signal.SIGPIPE}


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert (read_details(process.pid), command_of(process.pid)) == (Details(), "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("/usr/bin/python3.11 -u /job/train.py --api-key s3cret", "python3.11 train.py"),
        ("python -m my.job --token=s3cret", "python -m my.job"),
        ("python -c import|os;|os.system('a.py')", "python"),
        ("bash /job/run.sh s3cret", "bash run.sh"),
        ("curl https://user:s3cret@host/a.py", "curl"),
        ("ray::IDLE|--key|s3cret", "ray::IDLE"),
        ("x\n\x1b[1m", "x"),
        ("/job/" + "x" * 99, "x" * 60),
        ("", "named"),
        ("env PASSWORD=s3cret.py", "env"),
    ],
)
def test_a_command_is_shown_without_the_arguments_that_may_hold_a_secret(
    words: str, shown: str
) -> None:
    argv = [word.replace("|", " ") for word in words.split(" ")]
    assert short_command([*argv, ""], "named") == shown


def test_the_age_of_a_process_is_the_time_since_its_start() -> None:
    own = process_table.read_process(os.getpid())
    assert own is not None
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    ticks = os.sysconf("SC_CLK_TCK")
    long_ago = own._replace(started=round((uptime - 5.0) * ticks))
    assert 4.9 <= long_ago.age_seconds() <= 60.0
