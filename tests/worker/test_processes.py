"""The starter of the processes of one node: ranks, output, ends, and Horovod's store."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import until
from worker.contracts.framework import PROGRAMS
from worker.programs.processes import FILLED, await_store, filled, serve_store

pytestmark = pytest.mark.real_time

TELL = "import os, sys; print(*sys.argv[1:], *(os.environ.get(n, '-') for n in {names!r}))"


# Ends when a file is there; the first argument names it.
WAIT = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""


# The starter, which waits long for the rest of a line: a busy machine may stop who writes it.
PATIENT = (
    "-c",
    """
import sys
from worker.programs import processes
processes._IDLE_SECONDS = 60
sys.exit(processes.main(sys.argv[1:]))
""",
)


def words(
    *command: str,
    rank: int = 0,
    processes: int = 2,
    grace: float = 20,
    options: tuple[str, ...] = (),
    starter: tuple[str, ...] = ("-I", "-S", f"{PROGRAMS}/processes.py"),
) -> list[str]:
    own = ["--rank", str(rank), "--processes", str(processes), "--world", "5", "--node", "1"]
    argv = [sys.executable, *starter, *own, "--grace", str(grace), *options]
    return [*argv, "--", *command]


def start(*argv: str, **environ: str) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], **environ}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True, bufsize=1)


def run(*argv: str, **environ: str) -> tuple[int, list[str], str]:
    """Exit code, lines of output in order, and what went to standard error."""
    process = start(*argv, **environ)
    out, err = process.communicate(timeout=50)
    return process.returncode, sorted(out.splitlines()), err


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


# ---- ranks --------------------------------------------------------------------------------------


def test_each_process_is_given_its_ranks_in_place_of_what_was_there() -> None:
    names = [name for name in FILLED if not name.startswith("MASTER")]
    found = run(*words(*python(TELL.format(names=names)), rank=3), RANK="9", LOCAL_RANK="9")
    assert names == [
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
    ]
    assert found == (0, ["3 0 5 2 1 1", "4 1 5 2 1 1"], "")


def test_arguments_and_settings_are_filled_in_for_each_process() -> None:
    tell = python(TELL.format(names=["X", "HOME"]))
    command = (*tell, "a$LOCAL_RANK", "${RANK}b", "$HOME", "$LOCAL", "$MASTER_ADDR:$MASTER_PORT")
    options = ("--set", "X=$RANK/$WORLD_SIZE=$Y")
    found = run(
        *words(*command, rank=3, options=options), HOME="/h", MASTER_ADDR="::1", MASTER_PORT="7"
    )
    assert found == (
        0,
        ["a0 3b $HOME $LOCAL ::1:7 3/5=$Y /h", "a1 4b $HOME $LOCAL ::1:7 4/5=$Y /h"],
        "",
    )


def test_only_what_belongs_to_a_process_is_filled_in() -> None:
    values = dict.fromkeys((*FILLED, "HOME"), "v")
    assert filled("$RANKS $RANK_ $HOME $$RANK ${RANK $ {RANK}", values) == (
        "$RANKS $RANK_ $HOME $v ${RANK $ {RANK}"
    )


# ---- output -------------------------------------------------------------------------------------


def test_lines_of_two_processes_stay_whole_however_they_are_written() -> None:
    script = """
import os
for number in range(50):
    for word in (f"{os.environ['RANK']}-", str(number), ".\\n"):
        os.write(1, word.encode())
        os.write(2, word.encode())
"""
    code, lines, err = run(*words(*python(script), starter=PATIENT))
    expected = sorted(f"{rank}-{number}." for rank in (0, 1) for number in range(50))
    assert (code, lines, sorted(err.splitlines())) == (0, expected, expected)


def test_an_unfinished_line_is_shown_before_its_process_goes_on(tmp_path: Path) -> None:
    """A progress bar, or a question."""
    end = tmp_path / "end"
    process = start(
        *words(*python("print('ready', end='', flush=True)" + WAIT), str(end), processes=1)
    )
    assert process.stdout is not None
    assert process.stdout.read(5) == "ready"
    end.touch()
    process.communicate(timeout=50)
    assert process.returncode == 0


def test_a_last_line_without_an_end_is_kept() -> None:
    assert run(*words(*python("import os; os.write(1, b'last')"), processes=1)) == (0, ["last"], "")


# ---- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("sys.exit(7)", 7, "exit code 7"), ("os.kill(os.getpid(), 9)", 137, "signal 9")],
)
def test_when_one_process_fails_the_others_are_ended_and_its_code_is_the_code(
    end: str, code: int, said: str
) -> None:
    script = f"""
import os, sys, signal
if os.environ["RANK"] == "1":
    {end}
signal.pause()
"""
    words_of_failure = f"rdzv: process 1 (local rank 1) failed first, with {said}; "
    found = run(*words(*python(script)))
    assert found == (code, [], words_of_failure + "ending the others of this node\n")


def test_who_does_not_end_within_the_grace_is_killed(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"asked\\n"))
os.write(1, b"ready\\n")  # the signal may come before a print returns, which is not entered twice
if os.environ["RANK"] == "0":
    while True:
        signal.pause()
{WAIT}
sys.exit(3)
"""
    end = tmp_path / "end"
    process = start(*words(*python(script), str(end), grace=3))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
    end.touch()
    out, _ = process.communicate(timeout=50)
    assert (process.returncode, out) == (3, "asked\n")


def test_who_is_killed_after_the_grace_of_an_ending_that_was_asked_for_has_not_failed(
    tmp_path: Path,
) -> None:
    script = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""
    process = start(*words(*python(script), grace=0.2))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
    process.terminate()
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out, err) == (128 + signal.SIGKILL, "", "")


def test_who_fails_while_another_failure_is_not_seen_yet_changes_nothing(tmp_path: Path) -> None:
    """The starter is stopped meanwhile, finds two dead, and signals before it has looked."""
    script = f"""
import os, sys, signal
print(os.getpid(), flush=True)
if os.environ["LOCAL_RANK"] == "2":
    signal.pause()
{WAIT}
sys.exit(3)
"""
    end = tmp_path / "end"
    process = start(*words(*python(script), str(end), processes=3))
    assert process.stdout is not None
    ranks = [psutil.Process(int(process.stdout.readline())) for _ in range(3)]
    starter = psutil.Process(process.pid)
    starter.suspend()
    until(lambda: starter.status() == psutil.STATUS_STOPPED)
    end.touch()
    until(lambda: [rank.status() for rank in ranks].count(psutil.STATUS_ZOMBIE) == 2)
    starter.resume()
    _, err = process.communicate(timeout=50)
    said = "rdzv: process 0 (local rank 0) failed first, with exit code 3; "
    assert (process.returncode, err) == (3, said + "ending the others of this node\n")
    assert not any(rank.is_running() for rank in ranks)


def test_a_program_that_is_not_there_is_127_and_named() -> None:
    code, out, err = run(*words("no-such-program"))
    assert (code, out) == (127, [])
    assert err == "rdzv: 'no-such-program' cannot be started: No such file or directory\n"


def test_a_users_signal_reaches_every_process() -> None:
    script = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    signal.pause()
"""
    process = start(*words(*python(script)))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=50)
    assert process.returncode == 0


# ---- horovod's store ----------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which nobody listens, and which nobody else is given."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield int(held.getsockname()[1])


@pytest.fixture
def store(port: int) -> int:
    """The port of a store of this process."""
    serve_store(port)
    assert await_store("127.0.0.1", port, 20)
    return port


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_store_keeps_what_is_put_until_its_scope_is_deleted(store: int) -> None:
    assert ask(store, "GET", "/global/0") == (404, b"")
    assert ask(store, "PUT", "/global/0", b"\x00address") == (200, b"")
    assert ask(store, "GET", "/global/0") == (200, b"\x00address")
    assert ask(store, "DELETE", "/global") == (200, b"")
    assert ask(store, "GET", "/global/0") == (404, b"")


def test_the_store_takes_no_value_without_bounds(store: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", store, timeout=20)
    connection.putrequest("PUT", "/global/0")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_processes_start_when_the_store_is_there_and_find_it(tmp_path: Path, port: int) -> None:
    end = tmp_path / "end"
    script = """
import http.client, os
connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=20)
connection.request("GET", "/a/b")
print(connection.getresponse().status)
"""
    place = ("--store", f"127.0.0.1:{port}")
    asking = start(*words(*python(script), options=place), PORT=str(port))
    serving = start(*words(*python(WAIT), str(end), options=(*place, "--serve")))
    out, _ = asking.communicate(timeout=50)
    end.touch()
    serving.communicate(timeout=50)
    assert (asking.returncode, out, serving.returncode) == (0, "404\n404\n", 0)


def test_a_store_that_never_comes_is_not_waited_for_without_end(port: int) -> None:
    assert not await_store("127.0.0.1", port, seconds=0.2)
