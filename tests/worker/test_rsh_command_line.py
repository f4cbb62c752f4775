"""`rdzv rsh` reads ssh's command line, finds the node, and says why it cannot do what was asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable
from tests.worker.test_hosts_plan import row
from tests.worker.test_hosts_plan import table as table_of
from worker.programs import rsh
from worker.programs.rsh import RefusedError, parse
from worker.rsh.names import row_of_host
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
        (["h1"], "no COMMAND; there is no interactive shell: rdzv rsh"),
        (["--", "h1"], "no COMMAND"),
        (["h1", "-p"], "-p needs a value"),
        (["-L", "80:h2:80", "h1", "true"], "rdzv rsh does not support ssh's option -L"),
        (["-xN", "h1", "true"], "rdzv rsh does not support ssh's option -N"),
        (["--help"], "rdzv rsh does not support ssh's option --"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(words: list[str], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        parse(words)


def run(*argv: str | Path, **env: str) -> tuple[int, str, str]:
    """A program as mpirun starts it: exit code, standard output and error."""
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout, done.stderr


RSH = (sys.executable, "-I", "-S", rsh.__file__)
NO_AGENT = "no agent of a node at {}: No such file or directory"
ODD = ('a"b', "a\\b", "ä", "a\nb")
LONG = ["h1", *["x" * 100_000] * 2]


@pytest.mark.parametrize(
    ("words", "socket_at", "why"),
    [
        (["h1"], "", "RDZV_SOCKET is not set: rdzv rsh works only in the program of a run's node"),
        (["h1"], "/no/agent", NO_AGENT.format("/no/agent")),
        *(([host], "/no", f"{host!a} is not a valid host name") for host in ODD),
        (LONG, "/no", "COMMAND has 200006 bytes; at most 131071 can be run"),
    ],
)
def test_what_cannot_be_asked_is_said_and_ends_as_with_ssh(
    words: list[str], socket_at: str, why: str
) -> None:
    env = {"RDZV_SOCKET": socket_at} if socket_at else {}
    assert run(*RSH, *words, "true", **env) == (255, "", f"rdzv rsh: {why}\n")


@pytest.mark.parametrize("last", [b"", b'{"exit": 1', b'{"stdout": "eA'])
def test_an_agent_that_is_gone_in_the_middle_is_no_exit_code(short_path: Path, last: bytes) -> None:
    path = str(short_path / "agent")
    with socket.socket(socket.AF_UNIX) as agent, ThreadPoolExecutor() as thread:
        agent.bind(path)
        agent.listen()
        outcome = thread.submit(run, *RSH, "h1", "true", RDZV_SOCKET=path)
        with agent.accept()[0] as caller:
            caller.recv(4096)
            caller.sendall(last)
    gone = "rdzv rsh: this node's agent ended before the command did\n"
    assert outcome.result() == (255, "", gone)


def test_it_imports_next_to_nothing() -> None:
    """Each of these would cost every process that mpirun starts elsewhere several milliseconds."""
    shown = (
        f"exec(compile(open({rsh.__file__!r}).read(), 'rsh', 'exec'), {{'__name__': 'rsh'}}); "
        "import sys; heavy = {'json', 'socket', 're', 'enum', 'collections', 'typing'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run(sys.executable, "-I", "-S", "-c", shown) == (0, "[]\n", "")


def test_the_scripts_that_programs_find_call_it_with_the_agents_socket(tmp_path: Path) -> None:
    folder = tmp_path / "a folder's" / "bin"
    write_shims(folder, "/no where/agent")
    write_shims(folder, "/no where/agent")
    assert sorted(path.name for path in folder.iterdir()) == ["rdzv-rsh", "ssh"]
    assert folder.stat().st_mode & 0o777 == 0o700
    env = {"PATH": os.environ["PATH"], "RDZV_SOCKET": "/another"}
    said = f"rdzv rsh: {NO_AGENT.format('/no where/agent')}\n"
    for name in ("rdzv-rsh", "ssh"):
        assert run(folder / name, "h1", "true", **env) == (255, "", said)


# --- which node is meant by HOST ------------------------------------------------------------------


def table(*nodes: tuple[str, str]) -> EndpointTable:
    """A table of nodes, by hostname and address."""
    rows = [row(rank, *node, slot=10 + rank) for rank, node in enumerate(nodes)]
    return table_of(*rows, run="r")


THREE = table(("h0", "10.0.0.10"), ("h1.a.local", "10.0.0.11"), ("H2", "fd77::12"))


@pytest.mark.parametrize(
    ("host", "rank"),
    [
        ("10.0.0.10", 0),
        ("h0", 0),
        ("node-0", 0),
        ("h0.b.local", 0),
        ("h1.a.local", 1),
        ("h1", 1),
        ("NODE-1", 1),
        ("h2", 2),
        ("fd77::12", 2),
        ("[fd77::12]", 2),
        ("fd77:0:0::12", 2),
    ],
)
def test_a_node_is_found_by_address_alias_and_hostname(host: str, rank: int) -> None:
    assert row_of_host(THREE, host).node == rank


@pytest.mark.parametrize(
    "host", ["h3", "10.0.0.1", "localhost", "127.0.0.1", "node-3", "", "h", "-"]
)
def test_a_host_outside_of_the_run_is_refused_with_those_inside(host: str) -> None:
    with pytest.raises(UsageError) as refused:
        row_of_host(THREE, host)
    assert refused.value.message == (
        f"{host!r} is not a node of run 'r', which has 10.0.0.10 (h0, node-0), 10.0.0.11 "
        "(h1.a.local, node-1), fd77::12 (H2, node-2)"
    )


def test_a_name_that_two_nodes_have_is_refused_and_their_aliases_are_not() -> None:
    twins = table(("vm", "10.0.0.10"), ("vm", "10.0.0.11"))
    with pytest.raises(UsageError, match="'vm' is the name of node-0, node-1: name one of these"):
        row_of_host(twins, "vm")
    assert row_of_host(twins, "node-1").node == 1


def test_a_whole_hostname_counts_before_one_that_is_cut() -> None:
    both = table(("h1", "10.0.0.10"), ("h1.a", "10.0.0.11"))
    assert [row_of_host(both, name).node for name in ("h1", "h1.a")] == [0, 1]


def test_of_many_nodes_the_first_are_named() -> None:
    many = table(*((f"h{i}", f"10.0.0.{i + 1}") for i in range(100)))
    with pytest.raises(UsageError, match=r"10.0.0.8 \(h7, node-7\) and 92 more"):
        row_of_host(many, "elsewhere")


class Answers(list[bytes]):
    """What an agent answers, and then goes away hard."""

    def __iter__(self) -> Iterator[bytes]:
        yield from super().__iter__()
        raise ConnectionResetError


def test_what_the_command_prints_goes_where_it_was_printed_and_its_end_is_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed: list[tuple[int, bytes]] = []

    def write(fd: int, data: memoryview) -> int:
        if len(printed) == 1:
            printed.append((fd, b"blocked"))
            raise BlockingIOError
        printed.append((fd, bytes(data[:3])))
        return min(3, len(data))

    waited: list[Any] = []
    monkeypatch.setattr(rsh.os, "write", write)  # type: ignore[attr-defined]
    monkeypatch.setattr(rsh.select, "select", lambda *fds: waited.append(fds))  # type: ignore[attr-defined]
    said = [b'{"stderr": "ZXJy"}\n', b'{"stdout": "b3V0cHV0"}\n', b'{"stderr": ""}\n']
    assert rsh._pass_on(Answers([*said, b'{"exit": 37}\n', b'{"exit": 1}\n'])) == 37
    assert printed == [(2, b"err"), (1, b"blocked"), (1, b"out"), (1, b"put")]
    assert waited == [([], [1], [])]
    with pytest.raises(RefusedError, match="no shell"):
        rsh._pass_on([*said, b'{"error": "no shell"}\n'])
    for gone in ([*said, b'{"exit": 37}'], Answers(said), []):
        with pytest.raises(RefusedError, match="ended before the command did"):
            rsh._pass_on(gone)
