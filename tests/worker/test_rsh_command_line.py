"""`rdzv rsh` reads ssh's command line, and says why it cannot do what was asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from worker.programs import rsh
from worker.programs.rsh import RefusedError, parse
from worker.rsh.shims import write_shims


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        (["h1", "true"], "h1", "true"),
        (["h1", "echo", "a  b", "'c d'"], "h1", "echo a  b 'c d'"),
        (["user@h1", "true"], "h1", "true"),
        (["-l", "root", "h1", "true"], "h1", "true"),
        (["-lroot", "-p22", "-p", "22", "h1", "true"], "h1", "true"),
        (["-x", "h1", "/bin/hydra", "--port", "h0:1"], "h1", "/bin/hydra --port h0:1"),
        (["-q", "-x", "h1", "cmd", "-x"], "h1", "cmd -x"),
        (["-oConnectTimeout=10", "-2", "-a", "-x", "h1", "cd /;", "ls"], "h1", "cd /; ls"),
        (["-o", "A=b", "-o", "C=d", "h1", "-o", "ConnectTimeout=10", "true"], "h1", "true"),
        (["-nTq", "h1", "true"], "h1", "true"),
        (["h1", "--", "-x"], "h1", "-x"),
        (["--", "h1", "true"], "h1", "true"),
        (["h1", " orted", "-mca", "ess", '"env"'], "h1", ' orted -mca ess "env"'),
        (["h1", "A=/b:$A ; export A ;", "orted"], "h1", "A=/b:$A ; export A ; orted"),
        (["h1", "echo", "[a-z]*", "\n", "ü"], "h1", "echo [a-z]* \n ü"),
    ],
)
def test_the_host_is_found_and_the_words_are_joined_as_ssh_joins_them(
    words: list[str], host: str, command: str
) -> None:
    assert parse(words) == (host, command)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no HOST: rdzv rsh"),
        (["-x"], "no HOST: rdzv rsh"),
        (["h1"], "no COMMAND, and there is no shell to type into: rdzv rsh"),
        (["--", "h1"], "no COMMAND"),
        (["h1", "-p"], "-p needs a value"),
        (["-L", "80:h2:80", "h1", "true"], "ssh's option -L asks for what rdzv rsh cannot do"),
        (["-xN", "h1", "true"], "ssh's option -N asks"),
        (["--help"], "ssh's option -- asks"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(words: list[str], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        parse(words)


def run(*words: str, **env: str) -> tuple[int, str]:
    """The program as it is started by mpirun: exit code, and what it says on standard error."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", rsh.__file__, *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "socket_at", "why"),
    [
        (["h1"], "", "RDZV_SOCKET is not set: it is for the program of a node of a run"),
        (["h1"], "/no/agent", "no agent of a node at /no/agent: No such file or directory"),
        *(
            ([host], "/no", f"{host!a} is no name of a host")
            for host in ('a"b', "a\\b", "ä", "a\nb")
        ),
        (
            ["h1", *["x" * 100_000] * 2],
            "/no",
            "COMMAND has 200006 bytes; at most 131071 can be run",
        ),
    ],
)
def test_what_cannot_be_asked_is_said_and_ends_as_with_ssh(
    words: list[str], socket_at: str, why: str
) -> None:
    env = {"RDZV_SOCKET": socket_at} if socket_at else {}
    assert run(*words, "true", **env) == (255, f"rdzv rsh: {why}\n")


@pytest.mark.parametrize("last", [b"", b'{"exit": 1', b'{"stdout": "eA'])
def test_an_agent_that_is_gone_in_the_middle_is_no_exit_code(tmp_path: Path, last: bytes) -> None:
    path = str(tmp_path / "agent")
    with socket.socket(socket.AF_UNIX) as agent, ThreadPoolExecutor() as thread:
        agent.bind(path)
        agent.listen()
        outcome = thread.submit(run, "h1", "true", RDZV_SOCKET=path)
        with agent.accept()[0] as caller:
            caller.recv(4096)
            caller.sendall(last)
    gone = "rdzv rsh: this node's agent has gone before the command ended\n"
    assert outcome.result() == (255, gone)


def test_it_imports_next_to_nothing() -> None:
    """Each of these would cost every process that mpirun starts elsewhere several milliseconds."""
    shown = (
        f"exec(compile(open({rsh.__file__!r}).read(), 'rsh', 'exec'), {{'__name__': 'rsh'}}); "
        "import sys; heavy = {'json', 'socket', 're', 'enum', 'collections', 'typing'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    lean = [sys.executable, "-I", "-S", "-c", shown]
    done = subprocess.run(lean, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_scripts_that_programs_find_call_it_with_the_agents_socket(tmp_path: Path) -> None:
    folder = tmp_path / "a folder's" / "bin"
    write_shims(folder, "/no where/agent")
    write_shims(folder, "/no where/agent")
    assert sorted(path.name for path in folder.iterdir()) == ["rdzv-rsh", "ssh"]
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("rdzv-rsh", "ssh"):
        done = subprocess.run(
            [folder / name, "h1", "true"],
            env={"PATH": os.environ["PATH"], "RDZV_SOCKET": "/another"},
            capture_output=True,
            text=True,
            check=False,
        )
        why = "no agent of a node at /no where/agent: No such file or directory"
        assert (done.returncode, done.stderr) == (255, f"rdzv rsh: {why}\n")
