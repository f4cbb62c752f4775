"""The entry point in a folder of the user's: our code runs, the user's program sees the user's."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import JoinString, RegistryPlace
from tests.support.waiting import SECONDS, until

RDZV = str(Path(sys.executable).parent / "rdzv")
ATTEMPTS = 20
REPLAY = "_replay"
KEYS = RunKeys(b"s" * 32, "llama", "k7f2a9c1xy")
TOKEN = KEYS.join_token(0, 1)
PLACE = RegistryPlace(("127.0.0.1",), 9)
JOIN = JoinString(PLACE, "llama", "k7f2a9c1xy", 0, 1, TOKEN, KEYS.row_key, KEYS.probe_key).text()
USERS_MODULES = (
    *("worker", "launcher", "features", "rendezvous", "specs", "click", "httpx", "psutil"),
    *("pydantic", "yaml", "asyncio", "logging", "json"),
)
SEEN = """
import os, sys
import launcher, worker
with open(sys.argv[1], "w") as file:
    file.write(repr([dict(os.environ), sys.argv[2:], launcher.__file__, worker.__file__]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, whose modules bear the names of ours and of the packages that we use."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in USERS_MODULES:
        text = "" if name in ("worker", "launcher") else "raise SystemExit('of the user')\n"
        (folder / f"{name}.py").write_text(text)
    return folder


def environment(state: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RDZV_", "COV_", "PYTHON"))}
    for name in ("NUM_NODES", "GPUS_PER_NODE", "NODE_RANK", "MASTER_ADDR", "ROLE"):
        kept.pop(name, None)
    return {**kept, "RDZV_STATE_DIR": str(state), "PYTHONPATH": ".", **more}


def rdzv(
    folder: Path, *words: str, stdout: int = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[str]:
    environ = environment(folder.parent / "state", **env)
    return subprocess.run(
        [RDZV, *words],
        cwd=folder,
        env=environ,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
    )


# ---- the user's modules -------------------------------------------------------------------------


def test_what_loads_all_or_starts_a_module_works_in_a_folder_with_modules_of_our_names(
    folder: Path,
) -> None:
    plain = [sys.executable, "-c", "import click"]
    done = subprocess.run(plain, cwd=folder, env={"PYTHONPATH": "."}, capture_output=True)
    assert done.stderr == b"of the user\n"
    dry = rdzv(folder, "launch", "--nnodes", "2", "--dry-run=full", "--", "train.py", RDZV_TOKEN="")
    assert (dry.stderr, dry.returncode) == ("", 0)
    assert dry.stdout.startswith("# slot 0, by local: ")
    replayed = rdzv(folder, "replay", "./nosuch")
    assert (replayed.stderr, replayed.returncode) == ("rdzv: there is no journal at nosuch\n", 64)


@pytest.mark.real_time
def test_the_program_sees_the_users_environment_and_modules_though_our_output_has_no_room(
    folder: Path,
) -> None:
    (folder / "seen.py").write_text(SEEN)
    words = ["two words", "", "--help", "$HOME", "it's"]
    extra = {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "MINE": "x\ny"}
    run = ("launch", "--nnodes", "1", "--json", "--framework", "command", "--rdzv-id", "llama")
    with open("/dev/full", "wb") as output:
        program = ("--look", "off", "--", sys.executable, "seen.py", "seen", *words)
        done = rdzv(folder, *run, *program, stdout=output.fileno(), **extra)
    assert done.returncode == 0, done.stderr
    assert "ok: the node ended with exit code 0" in done.stderr
    seen, argv, launcher, worker = ast.literal_eval((folder / "seen").read_text())
    assert argv == words
    assert (launcher, worker) == (str(folder / "launcher.py"), str(folder / "worker.py"))
    given = environment(folder.parent / "state", **extra)
    assert {name: seen.get(name) for name in given} == given
    more = "MASTER_ADDR MASTER_PORT NODE_RANK NNODES NPROC_PER_NODE RDZV_ID RDZV_SOCKET RDZV_TABLE"
    more += " RDZV_NOTICE_FILE RDZV_HOSTFILE RDZV_HOSTFILE_MPICH RDZV_NODE_ADDRESS"
    more += " GLOO_SOCKET_IFNAME TP_SOCKET_IFNAME"
    more += " RDZV_EPOCH RDZV_RESTARTS RDZV_MAX_RESTARTS RDZV_REPLACEMENTS RDZV_LAST_FAILURE"
    more += " NCCL_SOCKET_IFNAME NCCL_SOCKET_FAMILY"  # their values: tests/worker/test_variables.py
    assert set(seen) - set(given) == set(more.split())


# ---- secrets ------------------------------------------------------------------------------------


@pytest.mark.real_time
def test_the_join_string_is_in_no_environment_on_no_command_line_and_in_no_open_file(
    folder: Path,
) -> None:
    words = "worker --nnodes 1 --loopback --hosts off --framework command -- true"
    with begun(folder, RDZV, *words.split(), RDZV_JOIN=JOIN) as process:
        assert "cannot join yet" in said(process)
        worker = psutil.Process(process.pid)
        for each in [worker, *worker.children(recursive=True)]:
            proc = Path(f"/proc/{each.pid}")
            for name in ("environ", "cmdline"):
                assert JOIN.encode() not in (proc / name).read_bytes()
            assert b"RDZV_JOIN=" not in (proc / "environ").read_bytes()
        links = []
        for path in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it tries to connect meanwhile
                links.append(os.readlink(path))
        assert links
        assert not [link for link in links if "memfd:rdzv" in link]


# ---- standard output ----------------------------------------------------------------------------


NO_ROOM = "rdzv: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", ["--help", "launch --nnodes 1 --dry-run -- x"])
def test_a_command_whose_output_has_no_room_says_so(folder: Path, words: str) -> None:
    with open("/dev/full", "wb") as output:
        done = rdzv(folder, *words.split(), stdout=output.fileno())
    assert (done.stderr, done.returncode) == (NO_ROOM, 1)


def test_a_command_whose_reader_has_seen_enough_is_silent(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as output:
        done = rdzv(folder, "--help", stdout=output.fileno())
    assert (done.stderr, done.returncode) == ("", 1)


# ---- Ctrl-C -------------------------------------------------------------------------------------


@contextlib.contextmanager
def begun(folder: Path, *words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on until it is ended."""
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment(folder.parent / "state", **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert process.stderr is not None
    return process.stderr.readline()


def is_loading(process: subprocess.Popen[str], word: str) -> bool:
    """Whether the interpreter that runs this part of rdzv is about half way through its imports."""
    proc = Path(f"/proc/{process.pid}")
    runs = f"rdzv_command.py\0{word}\0" in (proc / "cmdline").read_text()
    return runs and "pydantic_core" in (proc / "maps").read_text()


def is_loaded(process: subprocess.Popen[str]) -> bool:
    """Whether it has begun to import what comes last."""
    return "_sqlite3" in Path(f"/proc/{process.pid}/maps").read_text()


def interrupted(process: subprocess.Popen[str]) -> tuple[str, int]:
    """What it still says on Ctrl-C, and its exit code as a shell tells it."""
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=SECONDS)[1]
    return rest, process.returncode if process.returncode >= 0 else 128 - process.returncode


INTERRUPTED = """
import os, signal, sys, types
import rdzv_command

def begin(*_):  # and go on as the new interpreter does
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))

def command(prog_name, obj):
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    raise KeyboardInterrupt

os.execv = begin
sys.modules["launcher.cli"] = types.SimpleNamespace(main=command)
sys.modules["launcher.cli.streams"] = types.SimpleNamespace(name_standard_output=lambda: None)
rdzv_command.main()
"""


def test_ctrl_c_is_held_back_until_the_new_interpreter_is_here_and_then_the_commands_own() -> None:
    words = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert (done.stdout, done.stderr) == ("True\nTrue\n", "")
    assert done.returncode == 128 + signal.SIGINT


@pytest.mark.real_time
def test_ctrl_c_while_the_command_is_loaded_leaves_no_traceback(folder: Path) -> None:
    with begun(folder, RDZV, "worker", "--", "x", RDZV_JOIN_FILE=str(folder)) as process:
        until(lambda: is_loading(process, "worker"))
        rest, code = interrupted(process)
        assert rest in ("", f"rdzv: {folder} contains no join string yet\n")  # it was quick
        assert code == 128 + signal.SIGINT


@pytest.mark.real_time
def test_ctrl_c_ends_a_worker_that_waits_for_its_join_string(folder: Path) -> None:
    empty = {"RDZV_JOIN_FILE": str(folder)}
    with begun(folder, RDZV, "worker", "--", "x", **empty) as process:
        assert said(process) == f"rdzv: {folder} contains no join string yet\n"
        assert interrupted(process) == ("", 128 + signal.SIGINT)


@pytest.mark.real_time
def test_ctrl_c_ends_a_standing_registry_that_is_loaded(folder: Path) -> None:
    with begun(folder, RDZV, "serve", "--port", str(free_port())) as process:
        until(lambda: is_loading(process, "_registry"))
        rest, code = interrupted(process)
        assert code == 128 + signal.SIGINT
        assert rest == "" or rest.startswith("rdzv: registry on port ")  # it was quick


def test_ctrl_c_ends_a_standing_registry_that_is_ready(folder: Path) -> None:
    with begun(folder, RDZV, "serve", "--port", str(free_port())) as process:
        assert "launchers use it with RDZV_REGISTRY_FILE" in said(process)
        assert interrupted(process) == ("", 128 + signal.SIGINT)


@pytest.mark.real_time
def test_ctrl_c_while_a_replay_is_loaded_leaves_no_traceback(folder: Path) -> None:
    for _ in range(ATTEMPTS):
        with begun(folder, RDZV, "replay", "./nosuch") as process:
            until(lambda: process.poll() is not None or is_loading(process, REPLAY))
            process.send_signal(signal.SIGSTOP)
            if process.poll() is not None or is_loaded(process):  # it was quick
                continue
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGCONT)
            rest = process.communicate(timeout=SECONDS)[1]
            assert (rest, process.returncode) == ("", 128 + signal.SIGINT)
            return
    raise AssertionError("it was never met while it was loaded")


@pytest.mark.real_time
def test_ctrl_c_that_the_shell_has_turned_off_stays_off(folder: Path) -> None:
    """As `nohup`, and `&` in a script, have it."""
    shell = ("sh", "-c", "trap '' INT; exec \"$0\" worker -- x", RDZV)
    with begun(folder, *shell, RDZV_JOIN_FILE=str(folder)) as process:
        assert said(process) == f"rdzv: {folder} contains no join string yet\n"
        process.send_signal(signal.SIGINT)
        (folder / "new").write_text("rdzv1-damaged")
        (folder / "new").rename(folder / "1.join")  # whole, as it is looked for meanwhile
        assert said(process).startswith("rdzv: RDZV_JOIN is damaged")
        assert process.wait(SECONDS) == 64


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
