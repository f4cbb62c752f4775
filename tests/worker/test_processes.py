"""The starter of the processes of one node: ranks, output, ends, and Horovod's store."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.waiting import until
from worker.contracts.framework import PROGRAMS
from worker.programs.processes import FILLED, await_store, filled, serve_store

RANKS = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"]
TELL = "import os, sys; print(*sys.argv[1:], *(os.environ.get(n, '-') for n in {names!r}))"

# Ends when a file is there; the first argument names it.
WAIT = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""

# The starter, which waits long for the rest of a line: a busy machine may stop who writes it.
PATIENT = "import sys; from worker.programs import processes; processes._IDLE_SECONDS = 60; "
PATIENT += "sys.exit(processes.main(sys.argv[1:]))"


def start(
    *command: str,
    rank: int = 0,
    processes: int = 2,
    options: tuple[str, ...] = (),
    starter: tuple[str, ...] = ("-I", "-S", f"{PROGRAMS}/processes.py"),
    **environ: str,
) -> subprocess.Popen[str]:
    """The starter of a command's processes."""
    own = ["--rank", str(rank), "--processes", str(processes), "--world", "5", "--node", "1"]
    argv = [sys.executable, *starter, *own, "--grace", "20", *options, "--", *command]
    env, pipe = {"PATH": os.environ["PATH"], **environ}, subprocess.PIPE
    return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True, bufsize=1)


def read(process: subprocess.Popen[str], count: int) -> list[str]:
    """So many lines of its output."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Exit code, lines of output in order, and what went to standard error."""
    out, err = process.communicate(timeout=50)
    return process.returncode, sorted(out.splitlines()), err


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


# ---- ranks and output ---------------------------------------------------------------------------


def test_each_process_is_given_its_ranks_and_they_are_filled_in_where_it_asks_for_them() -> None:
    tell = python(TELL.format(names=[*RANKS, "X", "HOME"]))
    options = ("--set", "X=$RANK/$WORLD_SIZE=$Y")
    given: Any = {"HOME": "/h", "MASTER_ADDR": "::1", "MASTER_PORT": "7"}
    given |= dict.fromkeys(("RANK", "LOCAL_RANK"), "9")
    command = (*tell, "a$LOCAL_RANK", "${RANK}b", "$HOME", "$MASTER_ADDR:$MASTER_PORT")
    assert ended(start(*command, rank=3, options=options, **given)) == (
        0,
        ["a0 3b $HOME ::1:7 3 0 5 2 1 1 3/5=$Y /h", "a1 4b $HOME ::1:7 4 1 5 2 1 1 4/5=$Y /h"],
        "",
    )
    assert [name for name in FILLED if not name.startswith("MASTER")] == RANKS


def test_only_what_belongs_to_a_process_is_filled_in() -> None:
    values = dict.fromkeys((*FILLED, "HOME"), "v")
    assert filled("$RANKS $RANK_ $HOME $$RANK ${RANK $ {RANK}", values) == (
        "$RANKS $RANK_ $HOME $v ${RANK $ {RANK}"
    )


def test_lines_of_two_processes_stay_whole_however_they_are_written() -> None:
    script = "import os\nfor number in range(50):\n"
    script += "  for word in (f\"{os.environ['RANK']}-\", str(number), '.\\n'):\n"
    script += "    os.write(1, word.encode())\n    os.write(2, word.encode())\n"
    code, lines, err = ended(start(*python(script), starter=("-c", PATIENT)))
    expected = sorted(f"{rank}-{number}." for rank in (0, 1) for number in range(50))
    assert (code, lines, sorted(err.splitlines())) == (0, expected, expected)


# ---- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("sys.exit(7)", 7, "exit code 7"), ("os.kill(os.getpid(), 9)", 137, "signal 9")],
)
def test_when_one_process_fails_the_others_are_ended_and_its_code_is_the_code(
    end: str, code: int, said: str
) -> None:
    script = f"import os, sys, signal\nif os.environ['RANK'] == '1':\n  {end}\nsignal.pause()\n"
    first = f"rdzv: process 1 (local rank 1) failed first, with {said}"
    told = f"{first}; ending the others of this node\n"
    assert ended(start(*python(script))) == (code, [], told)


def test_how_those_ended_who_were_told_to_can_be_seen_until_the_last_has(tmp_path: Path) -> None:
    """Or an agent that was held up would find one failed, and another gone without a word."""
    script = "import os, signal\nrank = os.environ['LOCAL_RANK']\n"
    script += "if rank == '2':\n  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    script += "print(os.getpid(), rank, flush=True)\n"
    script += "if rank == '0':\n  signal.pause()\n" + WAIT + "sys.exit(3)\n"
    script = script.replace("sys.argv[1]", "sys.argv[1] + rank")
    process = start(*python(script), f"{tmp_path}/", processes=3)
    pids = {rank: psutil.Process(int(pid)) for pid, rank in map(str.split, read(process, 3))}
    (tmp_path / "1").touch()
    zombie = psutil.STATUS_ZOMBIE
    until(lambda: [pids[rank].status() for rank in "01"] == [zombie, zombie])
    assert pids["2"].status() != zombie
    (tmp_path / "2").touch()
    assert ended(process)[0] == 3
    assert not any(rank.is_running() for rank in pids.values())


def test_how_one_that_ended_well_ended_can_be_seen_until_the_last_has(tmp_path: Path) -> None:
    script = "import os\nprint(os.getpid(), flush=True)\n"
    script += "os.environ['LOCAL_RANK'] == '0' or os._exit(0)\n" + WAIT
    process = start(*python(script), str(tmp_path / "go"))
    pids = [psutil.Process(int(pid)) for pid in read(process, 2)]
    until(lambda: psutil.STATUS_ZOMBIE in [one.status() for one in pids])
    assert process.poll() is None
    (tmp_path / "go").touch()
    assert ended(process)[0] == 0


@pytest.mark.parametrize(
    ("program", "code", "why"),
    [("no-such-program", 127, "No such file or directory"), ("/", 126, "Permission denied")],
)
def test_a_program_that_cannot_be_started_is_named(program: str, code: int, why: str) -> None:
    said = f"rdzv: {program!r} cannot be started: {why}\n"
    assert ended(start(program)) == (code, [], said)


# ---- horovod's store ----------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which nobody listens, and which nobody else is given."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield int(held.getsockname()[1])


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> object:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_store_keeps_what_is_put_until_its_scope_is_deleted(port: int) -> None:
    serve_store(port)
    assert await_store("127.0.0.1", port, 20)
    assert ask(port, "GET", "/global/0") == (404, b"")
    assert ask(port, "PUT", "/global/0", b"\x00address") == (200, b"")
    assert ask(port, "GET", "/global/0") == (200, b"\x00address")
    assert ask(port, "DELETE", "/global") == (200, b"")
    assert ask(port, "GET", "/global/0") == (404, b"")
    too_much: Any = {"Content-Length": str(1 << 40)}
    assert str(ask(port, "PUT", "/global/0", **too_much)).startswith("(413,")


def test_processes_start_when_the_store_is_there_and_find_it(tmp_path: Path, port: int) -> None:
    script = "import http.client, os\nport = int(os.environ['PORT'])\n"
    script += "connection = http.client.HTTPConnection('127.0.0.1', port, timeout=20)\n"
    script += "connection.request('GET', '/a/b')\nprint(connection.getresponse().status)\n"
    place, end = ("--store", f"127.0.0.1:{port}"), tmp_path / "end"
    asking = start(*python(script), options=place, PORT=str(port))
    serving = start(*python(WAIT), str(end), options=(*place, "--serve"))
    assert ended(asking) == (0, ["404", "404"], "")
    end.touch()
    assert ended(serving)[0] == 0


def test_a_store_that_never_comes_is_not_waited_for_without_end(port: int) -> None:
    assert not await_store("127.0.0.1", port, seconds=0.05)
