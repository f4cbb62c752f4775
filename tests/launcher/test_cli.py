"""The command line: help, errors of two lines with their exit code, secrets, missing packages."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner, Result

import launcher
from launcher.cli import main
from launcher.cli.process import secret_text
from launcher.plan.plan import WorkerRun
from launcher.run.registry_process import last_words, listen, write_config
from launcher.schedulers.catalog import known_schedulers
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.secret_variables import anonymous_file, path_of
from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    group_token_text,
    parse_group_token,
)
from rendezvous.wire.errors import (
    ExitCode,
    Fenced,
    JoinTimeout,
    NodeLost,
    RdzvError,
    UsageError,
)
from tests.support.registry import running

RUN_VARIABLES = ("NUM_NODES", "GPUS_PER_NODE", "NODE_RANK", "MASTER_ADDR", "ROLE")
LAUNCHER_PACKAGES = ("cryptography", "fastapi", "rich", "uvicorn", "uvloop", "yaml")

# In an interpreter that has none of the launcher's packages: what each command line says.
BARE = """
import json, sys
packages, lines = json.loads(sys.argv[1])
for name in packages:
    sys.modules[name] = None
from click.testing import CliRunner
from launcher.cli import main
found = []
for line in lines:
    result = CliRunner().invoke(main, line, prog_name="rdzv")
    found.append([result.exit_code, result.stderr, isinstance(result.exception, Exception)])
print(json.dumps(found))
"""
SECRET = b"s" * 32
KNOWN = ", ".join(known_schedulers())


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of ours is set where the tests run, runs live in a folder of the test, and what a
    command does to logging ends with it."""
    for name in [name for name in os.environ if name.startswith("RDZV_") or name in RUN_VARIABLES]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RDZV_STATE_DIR", str(tmp_path / "state"))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def rdzv(*words: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, words, prog_name="rdzv", env=env)


def commands(group: click.Group = main, *before: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*before, name)
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)


def run_without_launcher(
    tmp_path: Path, name: str = "llama", *, port: int = 0, owns_registry: bool = True
) -> StateDir:
    """The folder of a run whose launcher was killed; nobody listens, unless a port is given."""
    state = StateDir(tmp_path / "state", name)
    state.acquire()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        place = RegistryPlace(("127.0.0.1",), port or server.getsockname()[1])
    state.write_record("k7f2a9c1xy", "local", place, owns_registry=owns_registry)
    state.secret()
    state.release()
    return state


# ---- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    for flag in ("--help", "-h"):
        result = rdzv(*words, flag)
        assert result.exit_code == 0
        assert result.stdout.startswith(f"Usage: {' '.join(('rdzv', *words))} ")
        assert result.stderr == ""


@pytest.mark.parametrize("words", [(), ("launch",), ("worker",), ("serve",)], ids=" ".join)
def test_the_help_of_what_runs_lists_every_exit_code(words: tuple[str, ...]) -> None:
    said = rdzv(*words, "--help").stdout
    for code in ExitCode:
        assert f"  {code.value:>3}  {code.help}\n" in said


def test_without_a_command_the_help_is_shown() -> None:
    result = rdzv()
    assert result.exit_code == 2
    assert result.output.startswith("Usage: rdzv [OPTIONS] COMMAND")


def test_the_version_is_told() -> None:
    folder = re.escape(str(Path(launcher.__file__).parent.parent))
    line = rf"rdzv \d+\.\d+\.\d+ from {folder} \(Python 3\.[0-9.]+, the launcher's packages\)\n"
    assert re.fullmatch(line, rdzv("--version").stdout)


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "launch --nnodes 2",
            "no COMMAND was given",
            "put it after '--': rdzv launch --nnodes 4 -- train.py --epochs 3",
        ),
        (
            "launch -- train.py",
            "the number of nodes is missing",
            "give --nnodes 4, or --nnodes 2:4 for at least 2 and at most 4 (or NUM_NODES)",
        ),
        (
            "launch train.py --nnodes 4 --nproc-per-node 8",
            (
                "the number of nodes is missing: --nnodes stands behind 'train.py', and so "
                "belongs to it"
            ),
            "rdzv's options come before COMMAND: rdzv launch --nnodes 4 -- train.py",
        ),
        (
            "launch -- train.py --nnodes=4",
            (
                "the number of nodes is missing: --nnodes stands behind 'train.py', and so "
                "belongs to it"
            ),
            "rdzv's options come before COMMAND: rdzv launch --nnodes 4 -- train.py",
        ),
        (
            "worker --nnodes x -- train.py",
            "--nnodes cannot be 'x': a size is N or MIN:MAX, for example 4 or 2:4",
            "--nnodes: Number of nodes, or MIN:MAX, as torchrun writes it.",
        ),
        (
            "launch --nnodes 2 --scheduler sge -- train.py",
            "there is no scheduler 'sge'",
            f"known are: {KNOWN}; another one is a file: --scheduler-profile FILE",
        ),
    ],
)
def test_a_wrong_command_line_is_two_lines_and_exit_code_2(
    line: str, message: str, hint: str
) -> None:
    result = rdzv(*line.split())
    assert result.stderr == f"rdzv: {message}\n      {hint}\n"
    assert (result.stdout, result.exit_code) == ("", 2)


@pytest.mark.parametrize(
    ("line", "word", "command"),
    [
        ("--bogus", "--bogus", "rdzv"),
        ("nosuch", "nosuch", "rdzv"),
        ("launch --bogus", "--bogus", "rdzv launch"),
        ("launch --port", "--port", "rdzv"),
        ("worker --prefer fast -- x", "'auto', 'ib', 'fastest'", "rdzv worker"),
        ("token new x", "x", "rdzv token new"),
        ("logs", "RUN", "rdzv logs"),
        ("logs x --lines -1", "--lines", "rdzv logs"),
    ],
)
def test_what_click_refuses_is_two_lines_as_well(line: str, word: str, command: str) -> None:
    result = rdzv(*line.split())
    message, hint = result.stderr.splitlines()
    assert message.startswith("rdzv: ")
    assert word in message
    assert hint == f"      see {command} --help"
    assert (result.stdout, result.exit_code) == ("", 2)


@pytest.mark.parametrize("line", ["worker -- train.py", "launch --nnodes 2 -- train.py"])
def test_a_worker_without_a_join_string_says_where_it_comes_from(line: str) -> None:
    result = rdzv(*line.split(), env={"ROLE": "Worker"})
    message, hint = result.stderr.splitlines()
    assert message == "rdzv: RDZV_JOIN is not set: this worker does not know which run to join"
    assert "RDZV_JOIN_FILE" in hint
    assert "ROLE=worker" in hint
    assert result.exit_code == 2


def test_a_damaged_join_string_is_refused_and_not_shown() -> None:
    result = rdzv("worker", "--", "train.py", env={"RDZV_JOIN": "rdzv1-cut0ff"})
    assert result.exit_code == 2
    assert result.stderr.startswith("rdzv: RDZV_JOIN is damaged: 12 characters")
    assert "cut0ff" not in result.output


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        ("RDZV_ID", "RDZV_ID (--rdzv-id)"),
        ("MASTER_ADDR", "MASTER_ADDR (--master-addr)"),
        ("NUM_NODES", "NUM_NODES (--nnodes)"),
        ("NODE_RANK", "NODE_RANK (--node-rank)"),
    ],
)
def test_a_symmetric_start_names_the_variable_that_it_misses(missing: str, name: str) -> None:
    env = {
        "RDZV_TOKEN": group_token_text(new_secret()),
        "NUM_NODES": "4",
        "NODE_RANK": "1",
        "RDZV_ID": "llama",
        "MASTER_ADDR": "10.0.0.1",
    }
    del env[missing]
    result = rdzv("launch", "--", "train.py", env=env)
    message, hint = result.stderr.splitlines()
    assert message == f"rdzv: a symmetric start (RDZV_TOKEN) needs {name} on this node"
    assert "every node needs RDZV_TOKEN, RDZV_ID, NUM_NODES and MASTER_ADDR" in hint
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"NODE_RANK": "4"}, "NODE_RANK 4 is not in 0 to 3 (NUM_NODES is 4)"),
        ({"NODE_RANK": "0"}, "NODE_RANK is 0, but MASTER_ADDR 203.0.113.7 is no address of this"),
        ({"RDZV_TOKEN": ""}, "NODE_RANK is 1 and there is no RDZV_TOKEN: this node cannot find"),
    ],
)
def test_a_symmetric_start_that_cannot_meet_is_refused_at_once(
    changed: dict[str, str], words: str
) -> None:
    env = {
        "RDZV_TOKEN": group_token_text(new_secret()),
        "NUM_NODES": "4",
        "NODE_RANK": "1",
        "RDZV_ID": "llama",
        "MASTER_ADDR": "203.0.113.7",
    }
    result = rdzv("launch", "--", "train.py", env=env | changed)
    assert words in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize(("rank", "join"), [("0", None), ("2", 2)])
def test_09_with_a_token_every_node_above_rank_0_is_a_worker_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, rank: str, join: int | None
) -> None:
    began: list[int | None] = []

    def work(settings: object, command: object, join: JoinString) -> NoReturn:
        began.append(join.slot)
        raise SystemExit(7)

    async def launch(*_: object, **__: object) -> int:
        began.append(None)
        return 7

    monkeypatch.setattr("launcher.cli._work", work)
    monkeypatch.setattr("launcher.run.command.launch", launch)
    env = {
        "RDZV_TOKEN": group_token_text(new_secret()),
        "NUM_NODES": "4",
        "NODE_RANK": rank,
        "RDZV_ID": "llama",
        "MASTER_ADDR": "localhost",
    }
    assert rdzv("launch", "--", "train.py", env=env).exit_code == 7
    assert began == [join]


def test_a_fault_in_rdzv_itself_has_its_own_exit_code_and_shows_where() -> None:
    @click.command()
    def broken() -> None:
        raise ZeroDivisionError("by zero")

    group = type(main)(commands={"broken": broken})
    result = CliRunner().invoke(group, ["broken"], prog_name="rdzv")
    assert result.exit_code == ExitCode.INTERNAL
    assert "in broken" in result.stderr
    assert result.stderr.splitlines()[-2:] == [
        "ZeroDivisionError: by zero",
        "rdzv: this is a fault in rdzv itself; please report what it says",
    ]


@pytest.mark.parametrize("error", [RdzvError, UsageError, Fenced, JoinTimeout, NodeLost])
def test_an_error_has_its_own_exit_code_and_no_traceback(error: type[RdzvError]) -> None:
    @click.command()
    def refused() -> None:
        raise error("what happened", hint="what to try")

    result = CliRunner().invoke(type(main)(commands={"refused": refused}), ["refused"])
    assert result.stderr == "rdzv: what happened\n      what to try\n"
    assert result.exit_code == error.exit_code


def test_a_ctrl_c_before_anything_has_begun_is_silent_and_exit_code_130() -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    result = CliRunner().invoke(type(main)(commands={"interrupted": interrupted}), ["interrupted"])
    assert (result.output, result.exit_code) == ("", 128 + signal.SIGINT)


# ---- packages that are not there ----------------------------------------------------------------


def bare(packages: list[str], *lines: list[str]) -> list[tuple[int, str, bool]]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", BARE, json.dumps([packages, lines])],
        capture_output=True,
        text=True,
        check=True,
    )
    return [tuple(found) for found in json.loads(done.stdout)]


def test_where_only_a_worker_is_installed_the_other_commands_say_what_to_install() -> None:
    lines = [
        ["launch", "--nnodes", "2", "--", "train.py"],
        ["serve"],
        ["status"],
        ["cancel", "llama"],
        ["logs", "llama"],
        ["schedulers"],
        ["doctor", "--env"],
        ["bench", "--nnodes", "2"],
        ["metrics", "llama"],
    ]
    message = (
        "rdzv: this command needs the package 'cryptography', which is not installed\n"
        "      install the launcher's packages: pip install 'rdzv[launcher]'\n"
    )
    assert bare([*LAUNCHER_PACKAGES], *lines) == [(2, message, False)] * len(lines)


@pytest.mark.parametrize("package", LAUNCHER_PACKAGES)
def test_each_missing_package_is_named(package: str) -> None:
    [(code, said, _)] = bare([package], ["schedulers"])
    assert code == 2
    assert f"'{package}'" in said


def test_a_worker_needs_no_package_of_the_launchers() -> None:
    help_, worker, token = bare(
        [*LAUNCHER_PACKAGES], ["launch", "--help"], ["worker", "--", "x"], ["token", "new"]
    )
    assert help_ == (0, "", False)
    assert worker[0] == 2
    assert worker[1].startswith("rdzv: RDZV_JOIN is not set")
    assert token == (0, "", False)


# ---- secrets ------------------------------------------------------------------------------------


def test_a_secret_comes_from_its_variable_before_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "join").write_text("from file\n")
    assert secret_text("RDZV_JOIN") is None
    monkeypatch.setenv("RDZV_JOIN_FILE", str(tmp_path / "join"))
    assert secret_text("RDZV_JOIN") == "from file\n"
    monkeypatch.setenv("RDZV_JOIN", "")
    assert secret_text("RDZV_JOIN") == "from file\n"
    monkeypatch.setenv("RDZV_JOIN", "from variable")
    assert secret_text("RDZV_JOIN") == "from variable"


def test_the_anonymous_file_of_a_secret_is_closed_once_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with anonymous_file("rdzv_join", b"secret") as file:
        fd = os.dup(file.fileno())
    monkeypatch.setenv("RDZV_JOIN_FILE", path_of(fd))
    assert secret_text("RDZV_JOIN") == "secret"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize("content", [None, b"\xff"], ids=["missing", "not text"])
def test_a_secrets_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("RDZV_TOKEN_FILE", str(path))
    with pytest.raises(UsageError) as caught:
        secret_text("RDZV_TOKEN")
    assert caught.value.message.startswith(f"RDZV_TOKEN_FILE names {path}, which cannot be read: ")


@pytest.mark.parametrize("content", ["", " \n"], ids=["nothing", "a blank line"])
def test_a_secrets_file_that_is_empty_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "join"
    path.write_text(content)
    result = rdzv("worker", "--", "train.py", env={"RDZV_JOIN_FILE": str(path)})
    assert result.stderr == f"rdzv: RDZV_JOIN_FILE names {path}, which is empty\n"
    assert result.exit_code == ExitCode.USAGE


def test_a_new_group_token_is_one_word_and_another_one_each_time() -> None:
    first, second = (rdzv("token", "new").stdout for _ in range(2))
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]+\n", first)
    assert len(parse_group_token(first)) == 32
    assert first != second


# ---- dry run ------------------------------------------------------------------------------------


def test_a_dry_run_shows_every_worker_run_and_leaves_nothing(tmp_path: Path) -> None:
    result = rdzv(
        *("launch", "--nnodes", "2", "--rdzv-id", "llama", "--scheduler", "manual", "--dry-run"),
        *("--set", "IMAGE=x", "--", "train.py", "two words"),
    )
    logs = tmp_path / "state" / "llama" / "logs"
    assert result.exit_code == 0
    runs, _, rest = result.stdout.partition("# each node then starts:\n")
    commands, mark, variables = rest.partition("# each node's program is given")
    assert mark
    flags = "--nnodes 2 --nproc-per-node 1 --rdzv-backend static --rdzv-id llama"
    master = "--master-addr <address of node 0> --master-port <port> train.py 'two words'"
    assert commands.splitlines() == [
        f"#   node {rank}: torchrun {flags} --node-rank {rank} {master}" for rank in range(2)
    ]
    assert "\n#   RDZV_ID=llama " in variables
    assert runs == (
        "# slot 0, by local: rdzv-to-be-made-0-1\n"
        "argv:\n- rdzv\n- worker\n"
        '- "--nnodes"\n- "2"\n- "--nproc-per-node"\n- "1"\n'
        f'- "--log-dir"\n- "{logs}"\n- "--log-level"\n- "warning"\n'
        '- --\n- "train.py"\n- "two words"\n'
        'env:\n  RDZV_JOIN: "RDZV_JOIN-hidden"\n'
        "\n"
        "# slot 1, by manual: rdzv-to-be-made-1-1\n"
        "#!/bin/sh\n"
        "# Worker run rdzv-to-be-made-1-1 of run llama, slot 1.\n"
        "# Copy this file to a machine that can reach rank 0, and start it with: sh FILE\n"
        "# It holds the slot's join token: keep it readable by you alone.\n"
        "export RDZV_JOIN=RDZV_JOIN-hidden\n"
        "exec env  rdzv worker --nnodes 2 --nproc-per-node 1 -- train.py 'two words'\n"
        "\n"
    )
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", ""),
        ("--hosts off --rdzv-backend c10d", ""),
        ("--scheduler manual --interface eth99 --hosts require", ""),
        (
            "--interface eth99",
            (
                "rdzv: --interface has no effect with --scheduler local: all nodes are on this "
                "machine, each at a loopback address\n"
            ),
        ),
        (
            "--address 10.0.0.1 --network 10.0.0.0/8 --hosts require",
            (
                "rdzv: --address and --network and --hosts require have no effect with --scheduler "
                "local: all nodes are on this machine, each at a loopback address\n"
            ),
        ),
        (
            "--framework env --rdzv-backend c10d",
            "rdzv: --rdzv-backend c10d has no effect with --framework env: it is torchrun's\n",
        ),
    ],
)
def test_an_option_that_changes_nothing_is_named(options: str, words: str) -> None:
    result = rdzv("launch", "--nnodes", "2", "--dry-run", *options.split(), "--", "train.py")
    assert (result.exit_code, result.stderr) == (0, words)


# ---- COMMAND without --framework ----------------------------------------------------------------


def test_a_launcher_in_command_chooses_its_framework_for_every_node() -> None:
    words = "launch --scheduler manual --rdzv-id r --nnodes 2 --dry-run -- accelerate launch x.py"
    result = rdzv(*words.split())
    assert result.stderr == (
        "rdzv: COMMAND begins with 'accelerate launch': using --framework accelerate\n"
    )
    assert "#   node 0: accelerate launch --num_machines 2 " in result.stdout
    assert " --framework accelerate -- accelerate launch x.py" in result.stdout


@pytest.mark.parametrize(
    "words", [("launch", "--nnodes", "2", "--dry-run"), ("launch", "--role", "worker"), ("worker",)]
)
def test_a_command_that_torchrun_cannot_start_is_refused_before_all_else(
    words: tuple[str, ...],
) -> None:
    result = rdzv(*words, "--", "bash", "-c", "true", env={"RDZV_JOIN": "rdzv1-cut0ff"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rdzv: COMMAND's 'bash' is not a Python script")
    named = rdzv(*words, "--framework", "torchrun", "--", "bash", "x", env={"RDZV_JOIN": "rdzv1-x"})
    assert "COMMAND" not in named.stderr


def test_a_framework_that_is_named_is_named_to_the_workers_too() -> None:
    words = "launch --scheduler manual --rdzv-id r --nnodes 2 --dry-run --framework torchrun"
    assert " --framework torchrun -- ./x.sh" in rdzv(*words.split(), "--", "./x.sh").stdout


# ---- runs that were launched here ---------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "cancel", "logs", "replay"])
def test_a_run_that_was_not_launched_here_is_named_with_those_that_were(
    command: str, tmp_path: Path
) -> None:
    root = tmp_path / "state"
    nowhere = f"rdzv: no run 'x' was launched here (looked in {root})\n      known are: "
    assert rdzv(command, "x").stderr == f"{nowhere}none\n"
    run_without_launcher(tmp_path, "llama")
    result = rdzv(command, "x")
    assert (result.stderr, result.exit_code) == (f"{nowhere}llama\n", 2)


def test_without_runs_the_list_says_where_it_looked() -> None:
    result = rdzv("status")
    assert result.output.startswith("no runs in ")
    assert result.exit_code == 0


@pytest.mark.parametrize("root", ["afile", "afile/below"])
@pytest.mark.parametrize("words", [("status",), ("status", "x"), ("cancel", "x"), ("replay", "x")])
def test_a_state_directory_that_is_a_file_is_refused(
    words: tuple[str, ...], root: str, tmp_path: Path
) -> None:
    (tmp_path / "afile").write_text("")
    result = rdzv(*words, "--state-dir", str(tmp_path / root))
    assert (result.stdout, result.exit_code) == ("", 2)
    assert result.stderr == (
        f"rdzv: the state directory {tmp_path / root} cannot be used: Not a directory\n"
        "      name another one with --state-dir or RDZV_STATE_DIR\n"
    )


def killed_words(state: StateDir) -> str:
    return (
        "rdzv: the launcher of run 'llama' was killed, and its registry answers no more\n"
        f"      what happened is in its journal: rdzv replay {state.journal}\n"
    )


def test_a_run_whose_launcher_was_killed_says_so_and_where_its_journal_is(tmp_path: Path) -> None:
    state = run_without_launcher(tmp_path)
    result = rdzv("status", "llama")
    assert (result.stderr, result.exit_code) == (killed_words(state), ExitCode.REGISTRY_LOST)
    assert re.fullmatch(r"llama +its launcher was killed\n", rdzv("status").stdout)
    for view in ("--checks", "--matrix"):
        assert "the launcher of run 'llama' was killed" in rdzv("status", "llama", view).stderr
    left = WorkerRun(1, 1, "rdzv-k7f2-1-1", {}, "w.sh")
    state.ledger.begin(LedgerEntry(left, "manual"))
    end = "; what it has left is ended by: rdzv cancel llama\n"
    assert rdzv("status", "llama").stderr == killed_words(state).removesuffix("\n") + end


def test_a_killed_launchers_port_that_another_registry_has_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as other:
        state = run_without_launcher(tmp_path, port=other.port)
        result = rdzv("status", "llama")
        assert (result.stderr, result.exit_code) == (killed_words(state), ExitCode.REGISTRY_LOST)
        assert rdzv("cancel", "llama").exit_code == ExitCode.OK


def test_a_standing_registry_that_does_not_know_the_run_is_believed(tmp_path: Path) -> None:
    with running(tmp_path) as other:
        run_without_launcher(tmp_path, port=other.port, owns_registry=False)
        for command in ("status", "cancel"):
            result = rdzv(command, "llama")
            assert result.stderr == "rdzv: there is no run 'llama' here, or it is not yours\n"
            assert result.exit_code == ExitCode.REFUSED


def test_a_killed_run_of_which_nothing_is_left_is_cancelled_each_time_alike(
    tmp_path: Path,
) -> None:
    run_without_launcher(tmp_path)
    for _ in range(2):
        result = rdzv("cancel", "llama")
        assert result.output == (
            "the launcher of run 'llama' was killed; nothing that it started is left\n"
        )
        assert result.exit_code == ExitCode.OK


def test_a_run_whose_standing_registry_is_gone_cannot_be_cancelled(tmp_path: Path) -> None:
    run_without_launcher(tmp_path, owns_registry=False)
    result = rdzv("cancel", "llama")
    message, hint = result.stderr.splitlines()
    assert message.startswith("rdzv: run 'llama' cannot be cancelled, its registry does not answer")
    assert hint.strip() == "it has probably ended; see rdzv status"
    assert result.exit_code == ExitCode.REGISTRY_LOST
    status = rdzv("status", "llama")
    assert status.stderr.startswith(
        "rdzv: the registry of run 'llama' does not answer, and its launcher has ended: "
    )


def replayed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rdzv_command", "replay", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=50)


def test_a_run_is_replayed_by_its_id_whatever_has_its_name_where_the_command_stands(
    tmp_path: Path,
) -> None:
    kept = run_without_launcher(tmp_path).journal
    kept.write_bytes(b"the run's")
    root = ("--state-dir", str(kept.parent.parent))
    no_journal = "rdzv: the journal {} cannot be opened: file is not a database\n"
    assert replayed("llama", *root, cwd=tmp_path).stderr == no_journal.format(kept)
    (tmp_path / "llama").mkdir()
    assert replayed("llama", *root, cwd=tmp_path).stderr == no_journal.format(kept)
    (tmp_path / "llama").rmdir()
    (tmp_path / "llama").write_bytes(b"the file's")
    assert replayed("llama", *root, cwd=tmp_path).stderr == no_journal.format(kept)
    assert replayed("./llama", *root, cwd=tmp_path).stderr == no_journal.format("llama")
    kept.unlink()
    assert replayed("llama", *root, cwd=tmp_path).stderr == no_journal.format("llama")


def test_the_newest_lines_of_each_log_are_shown(tmp_path: Path) -> None:
    state = run_without_launcher(tmp_path)
    (state.logs / "node-0.log").write_bytes(b"1\n2\xff\n3\n")
    (state.logs / "node-1.log").write_text("a\n")
    first, second = (f"==> {state.logs / name}\n" for name in ("node-0.log", "node-1.log"))
    assert rdzv("logs", "llama", "--lines", "2").stdout == f"{first}2\ufffd\n3\n{second}a\n"
    assert rdzv("logs", "llama", "--node", "1").stdout == f"{second}a\n"
    result = rdzv("logs", "llama", "--node", "7")
    assert result.stderr == (
        f"rdzv: there is no node-7.log in {state.logs}\n"
        "      there are: node-0.log, node-1.log; a node on another machine keeps its log there\n"
    )
    assert result.exit_code == 2


# ---- ports and registries -----------------------------------------------------------------------


def test_a_registry_takes_the_next_port_when_its_own_is_busy() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as busy:
        port = busy.getsockname()[1]
        with closing(listen(port, address="127.0.0.1", exact=False)) as sock:
            assert port < sock.getsockname()[1] < port + 100


def test_a_registry_whose_port_is_known_to_its_workers_takes_no_other() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            listen(port, address="127.0.0.1", exact=True)
    message = f"the registry cannot listen on port {port} of 127.0.0.1: Address already in use"
    assert caught.value.message.startswith(message)
    assert caught.value.hint == "other programs hold them; choose another with --port"


def test_the_last_port_of_all_has_no_next_one() -> None:
    with closing(listen(65_535, address="127.0.0.1", exact=True)), pytest.raises(UsageError):
        listen(65_535, address="127.0.0.1", exact=False)


def test_an_address_of_another_machine_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"port 29600 of 192\.0\.2\.1: Cannot assign requested"):
        listen(29_600, address="192.0.2.1", exact=True)


def test_a_registry_listens_on_both_families() -> None:
    with closing(listen(0, exact=True)) as sock:
        port = sock.getsockname()[1]
        has_ipv6 = Path("/proc/net/if_inet6").exists()
        for address in ("127.0.0.1", "::1")[: 1 + has_ipv6]:
            socket.create_connection((address, port), timeout=5).close()


def test_what_a_registry_and_its_nodes_say_fits_into_the_packets_of_every_path() -> None:
    with closing(listen(0, exact=True)) as sock:
        port = sock.getsockname()[1]
        with (
            socket.create_connection(("127.0.0.1", port), timeout=5) as node,
            sock.accept()[0] as own,
        ):
            sizes = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for s in (node, own)]
    assert max(sizes) + 60 <= 1280  # with the headers of IPv6 and TCP


def test_30_a_registrys_certificate_is_made_once_and_lives_as_long_as_its_launch(
    tmp_path: Path,
) -> None:
    state = StateDir(tmp_path, "llama")
    state.acquire()
    first, resumed = (write_config(state, SECRET, tls=True, hosts=[]) for _ in range(2))
    config = json.loads((state.path / "registry.json").read_text())
    assert first == resumed
    assert first.trust == "certificate"
    assert first.proof == (state.path / "certificate.der").read_bytes()
    assert (config["journal"], config["certificate"]) == (
        str(state.journal),
        str(state.path / "certificate.pem"),
    )
    state.forget_launch()
    alone = write_config(state, SECRET, tls=False, hosts=[])
    assert (alone.trust, alone.proof) == ("plain", b"")
    assert "certificate" not in json.loads((state.path / "registry.json").read_text())
    assert write_config(state, SECRET, tls=True, hosts=[]).proof != first.proof
    state.release()


def test_the_last_words_of_a_registry_are_the_end_of_what_it_said(tmp_path: Path) -> None:
    log = tmp_path / "registry.log"
    log.write_text("")
    assert last_words(log) == "none"
    log.write_text("first\nthe port is taken\n")
    assert last_words(log) == "the port is taken"
    log.write_text(f"first\n{'/folder' * 100} cannot be opened\n")
    said = last_words(log)
    assert said.startswith("…")
    assert said.endswith("/folder/folder cannot be opened")
    assert len(said) == 301


def test_a_second_standing_registry_in_one_folder_is_refused(tmp_path: Path) -> None:
    state = StateDir(tmp_path, "registry")
    state.acquire()
    result = rdzv("serve", "--state-dir", str(tmp_path))
    assert result.stderr == (
        f"rdzv: a registry already uses {tmp_path / 'registry'}\n"
        "      end it, or choose another --state-dir\n"
    )
    assert result.exit_code == ExitCode.FAILED
    state.release()
