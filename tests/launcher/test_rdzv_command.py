"""The entry point in a folder of the user's: our code runs, the user's program sees the user's."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.cli import main
from rendezvous.security import JoinString, RegistryPlace, RunKeys

RDZV = Path(sys.executable).parent / "rdzv"
LIMIT_SECONDS = 30.0
KEYS = RunKeys(b"s" * 32, "llama", "k7f2a9c1xy")
JOIN = JoinString(
    RegistryPlace(("127.0.0.1",), 9),
    *(KEYS.run, KEYS.launch_id, 0, 1),
    KEYS.join_token(0, 1),
    KEYS.row_key,
    KEYS.probe_key,
).text()
USERS_MODULES = (
    "worker",
    "launcher",
    "rendezvous",
    "specs",
    "click",
    "httpx",
    "psutil",
    "pydantic",
    "yaml",
    "asyncio",
    "logging",
    "json",
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


def rdzv(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(RDZV), *words],
        cwd=folder,
        env=environment(folder.parent / "state", **env),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def until(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (found := check()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found


# ---- the user's modules -------------------------------------------------------------------------


def test_the_folder_would_disturb_a_plain_program(folder: Path) -> None:
    plain = [sys.executable, "-c", "import click"]
    done = subprocess.run(plain, cwd=folder, env={"PYTHONPATH": "."}, capture_output=True)
    assert done.stderr == b"of the user\n"


@pytest.mark.parametrize("name", [*main.commands])
def test_every_command_works_in_a_folder_with_modules_of_our_names(folder: Path, name: str) -> None:
    done = rdzv(folder, name, "--help")
    assert done.stderr == ""
    assert done.stdout.startswith(f"Usage: rdzv {name} ")
    assert done.returncode == 0


def test_a_command_that_loads_everything_works_there_as_well(folder: Path) -> None:
    done = rdzv(folder, "launch", "--nnodes", "2", "--dry-run", "--", "train.py")
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith("# slot 0, by local: ")


def test_replay_which_starts_another_module_works_there_as_well(folder: Path) -> None:
    done = rdzv(folder, "replay", "./nosuch")
    assert (done.stderr, done.returncode) == ("rdzv: there is no journal at nosuch\n", 2)


def test_the_program_sees_the_users_environment_and_modules(folder: Path) -> None:
    (folder / "seen.py").write_text(SEEN)
    words = ["two words", "", "--help", "$HOME", "it's"]
    extra = {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "MINE": "x\ny"}
    done = rdzv(
        folder,
        *("launch", "--nnodes", "1", "--framework", "command", "--rdzv-id", "llama"),
        *("--", sys.executable, "seen.py", "seen", *words),
        **extra,
    )
    assert done.returncode == 0, done.stderr
    seen, argv, launcher, worker = ast.literal_eval((folder / "seen").read_text())
    assert argv == words
    assert (launcher, worker) == (str(folder / "launcher.py"), str(folder / "worker.py"))
    given = environment(folder.parent / "state", **extra)
    assert {name: seen.get(name) for name in given} == given
    port, files = seen["MASTER_PORT"], folder.parent / "state" / "llama" / "logs" / "node-0"
    assert {name: value for name, value in seen.items() if name not in given} == {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "NODE_RANK": "0",
        "NNODES": "1",
        "NPROC_PER_NODE": "1",
        "RDZV_ID": "llama",
        "RDZV_SOCKET": seen["RDZV_SOCKET"],
        "RDZV_HOSTFILE": str(files / "hostfile"),
        "RDZV_HOSTFILE_MPICH": str(files / "hostfile.mpich"),
        "RDZV_TABLE": str(files / "table.json"),
        "GLOO_SOCKET_IFNAME": "lo",
        "TP_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "=lo",
        "NCCL_SOCKET_FAMILY": "AF_INET",
    }


# ---- secrets ------------------------------------------------------------------------------------


@pytest.fixture
def worker(folder: Path) -> Iterator[psutil.Popen]:
    """A worker that was given its join string in a variable, and looks for its registry."""
    log = folder.parent / "log"
    with (
        log.open("wb") as stderr,
        psutil.Popen(
            [
                str(RDZV),
                "worker",
                "--nnodes",
                "1",
                "--loopback",
                "--hosts",
                "off",
                "--",
                "train.py",
            ],
            cwd=folder,
            env=environment(folder.parent / "state", RDZV_JOIN=JOIN),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        ) as process,
    ):
        until(lambda: b"cannot join yet" in log.read_bytes() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield process
        process.terminate()
        process.wait(LIMIT_SECONDS)


def test_the_join_string_is_in_no_environment_and_on_no_command_line(worker: psutil.Popen) -> None:
    processes = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    for process in processes:
        folder = Path(f"/proc/{process.pid}")
        assert JOIN.encode() not in (folder / "environ").read_bytes()
        assert b"RDZV_JOIN=" not in (folder / "environ").read_bytes()
        assert JOIN.encode() not in (folder / "cmdline").read_bytes()


def test_the_file_that_carried_the_join_string_is_closed_once_it_is_read(
    worker: psutil.Popen,
) -> None:
    links = [os.readlink(path) for path in Path(f"/proc/{worker.pid}/fd").iterdir()]
    assert links
    assert not [link for link in links if "memfd:rdzv" in link]


def test_a_secret_that_is_set_to_nothing_is_not_set(folder: Path) -> None:
    join = folder.parent / "join"
    join.write_text("rdzv1-damaged")
    assert "RDZV_JOIN is not set" in rdzv(folder, "worker", "--", "x", RDZV_JOIN="").stderr
    done = rdzv(folder, "worker", "--", "x", RDZV_JOIN="", RDZV_JOIN_FILE=str(join))
    assert "RDZV_JOIN is damaged: 13 characters" in done.stderr
    done = rdzv(folder, "launch", "--nnodes", "1", "--dry-run", "--", "x", RDZV_TOKEN="")
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_variable_beats_its_file(folder: Path) -> None:
    env = {"RDZV_JOIN": "rdzv1-ten", "RDZV_JOIN_FILE": "/nonexistent"}
    done = rdzv(folder, "worker", "--", "x", **env)
    assert re.match(r"rdzv: RDZV_JOIN is damaged: 9 characters", done.stderr)
