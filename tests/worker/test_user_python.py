"""Which Python the user's program runs on, found by reading, and programs of ours aside."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import psutil
import pytest

from worker.machine.aside import Answer, ask
from worker.machine.user_python import UserPython, look_user_python

TORCH = "__version__ = '{}'\ndebug = False\ncuda: Optional[str] = {}\n"
CUDA_TORCH, CPU_TORCH = TORCH.format("2.9.0+cu128", "'12.8'"), TORCH.format("2.13.0+cpu", "None")


def interpreter(prefix: Path, version: str = "3.12", config: str = "") -> Path:
    """An installed Python: a file that is no script, and a folder for packages."""
    binary = prefix / f"bin/python{version}"
    (prefix / f"lib/python{version}/site-packages").mkdir(parents=True)
    binary.parent.mkdir()
    binary.write_bytes(b"\x7fELF")
    binary.chmod(0o755)
    (prefix / "bin/python3").symlink_to(binary)
    if config:
        (prefix / "pyvenv.cfg").write_text(config)
    return prefix / "bin/python3"


def torch(folder: Path, words: str = CUDA_TORCH) -> None:
    """The packages of this folder have it."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/version.py").write_text(words)


def with_torch(prefix: Path, words: str = CUDA_TORCH, nccl: str = "", conda: str = "") -> Path:
    """An installed Python with torch, and with NCCL as pip, or conda, installs it."""
    python = interpreter(prefix)
    packages = prefix / "lib/python3.12/site-packages"
    torch(packages, words)
    if nccl:
        (packages / f"nvidia_nccl_cu12-{nccl}.dist-info").mkdir()
    if conda:
        library(prefix / "lib", conda)
    return python


def library(folder: Path, version: str) -> None:
    """NCCL's library, installed as its makers do."""
    (folder / f"libnccl.so.{version}").touch()
    (folder / "libnccl.so.2").symlink_to(f"libnccl.so.{version}")


def script(path: Path, first: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{first}\nimport sys\n")
    path.chmod(0o755)
    return path


def found(*folders: Path, program: str = "torchrun", **environ: str) -> UserPython:
    path = ":".join(str(folder) for folder in folders)
    return look_user_python(program, {"PATH": path, **environ})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"nccl": "2.27.3"}, ("2.9.0+cu128", "12.8", "2.27.3")),
        ({"conda": "2.27.5"}, ("2.9.0+cu128", "12.8", "2.27.5")),
        ({"words": CPU_TORCH}, ("2.13.0+cpu", "", "")),
    ],
)
def test_torchrun_tells_the_interpreter_and_that_one_the_versions(
    tmp_path: Path, options: dict[str, str], expected: tuple[str, ...]
) -> None:
    python = with_torch(tmp_path / "env", **options)
    script(tmp_path / "env/bin/torchrun", f"#!{python}")
    assert found(tmp_path / "env/bin") == UserPython(str(python), "3.12", *expected)


def test_without_any_python_nothing_is_known(tmp_path: Path) -> None:
    script(tmp_path / "torchrun", "#!/bin/bash")
    script(tmp_path / "python3", "#!/usr/bin/env bash")
    assert found(tmp_path) == UserPython()
    assert found() == UserPython()


@pytest.mark.parametrize(
    ("folder", "first"),
    [
        ("a b", "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''"),  # as pip writes odd paths
        ("x" * 200, "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''"),
        ("env", "#!/usr/bin/env -S python3 -u"),
    ],
)
def test_the_first_line_of_a_program_leads_to_its_python(
    tmp_path: Path, folder: str, first: str
) -> None:
    python = interpreter(tmp_path / folder)
    script(tmp_path / "bin/torchrun", first.format(python))
    assert found(tmp_path / "bin", tmp_path / folder / "bin").executable == str(python)


def test_a_command_that_names_its_python_runs_on_that_one(tmp_path: Path) -> None:
    other = interpreter(tmp_path / "other", "3.10")
    interpreter(tmp_path / "env")
    assert found(tmp_path / "env/bin", program=str(other)).version == "3.10"
    assert found(tmp_path / "env/bin", program="./run.sh").version == "3.12"


@pytest.mark.parametrize("how", [{"nccl": "2.21.5"}, {"conda": "2.27.5"}])
def test_a_virtual_environment_sees_the_packages_below_it_when_it_shares_them(
    tmp_path: Path, how: dict[str, str]
) -> None:
    with_torch(tmp_path / "base", **how)
    config = f"home = {tmp_path}/base/bin\nversion = 3.12.4\n"
    interpreter(tmp_path / "alone", config=config)
    interpreter(tmp_path / "shared", config=config + "include-system-site-packages = true\n")
    assert found(tmp_path / "alone/bin").torch == ""
    assert [found(tmp_path / "shared/bin").nccl] == list(how.values())


def test_what_stands_first_on_pythons_path_counts(tmp_path: Path) -> None:
    with_torch(tmp_path / "env")
    torch(tmp_path / "own", "__version__ = '3.0'\n")
    assert found(tmp_path / "env/bin", PYTHONPATH=f":{tmp_path}/own").torch == "3.0"


def test_packages_of_the_users_home_count_outside_of_a_virtual_environment(tmp_path: Path) -> None:
    with_torch(tmp_path / "env")
    torch(tmp_path / "home/.local/lib/python3.12/site-packages", "__version__ = '3.0'\n")
    home = str(tmp_path / "home")
    assert found(tmp_path / "env/bin", HOME=home).torch == "3.0"
    (tmp_path / "env/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    assert found(tmp_path / "env/bin", HOME=home).torch == "2.9.0+cu128"


def test_the_version_of_the_systems_nccl_is_not_taken_for_torchs(tmp_path: Path) -> None:
    with_torch(tmp_path / "env")
    library(tmp_path, "2.26.2")
    assert found(tmp_path / "env/bin", LD_LIBRARY_PATH=str(tmp_path)).nccl == ""


def test_the_running_interpreter_is_described_as_it_describes_itself() -> None:
    folder = Path(sys.executable).parent
    seen = look_user_python("python3", {"PATH": str(folder)})
    assert seen.version == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert os.path.samefile(Path(seen.executable).parent, folder)
    try:
        installed = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    assert seen.torch.partition("+")[0] == installed.partition("+")[0]


# --- small programs of ours that run in a process of their own ------------------------------------


KILL = "import os; os.kill(os.getpid(), {})"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("print(*sys.argv[1:], sep='|')", Answer("a b|-c\n", "")),
        ("sys.exit(3)", Answer("", "the query ended with 3")),
        ("print('so far', flush=True); 1 / 0", Answer("so far\n", "the query ended with 1")),
        (KILL.format(11), Answer("", "the query ended with SIGSEGV")),
        (KILL.format(40), Answer("", "the query ended with signal 40")),
        ("import pydantic", Answer("", "the query ended with 1")),  # but see below
    ],
)
def test_what_a_program_says_and_how_it_ends_is_told(
    tmp_path: Path, text: str, answer: Answer
) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"import sys; {text}")
    assert ask(path, "a b", "-c", limit_seconds=60) == answer


@pytest.mark.real_time
@pytest.mark.parametrize("child", ["os.fork()", "0"])
def test_a_program_that_does_not_end_is_killed_and_what_it_leaves_behind_not_waited_for(
    tmp_path: Path, child: str
) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        f"import os, signal, sys; signal.signal(15, signal.SIG_IGN); own = os.getpid(); {child}\n"
        "if own == os.getpid(): sys.stdout.buffer.write(b'so far\\xff'); sys.stdout.flush()\n"
        "signal.pause()"
    )
    answer = ask(path, limit_seconds=1.5)
    left = [each for each in psutil.process_iter() if str(path) in _arguments(each)]
    for each in left:  # which still holds the pipe
        each.kill()
    assert answer == Answer("so far�", "no answer within 1.5 s", is_late=True)
    assert len(left) == (child != "0")


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_without_a_process_there_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    problem = "no process can be started: No such file or directory"
    assert ask(tmp_path / "program.py", limit_seconds=60) == Answer("", problem)


def test_packages_are_there_where_they_are_asked_for_and_nothing_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("print('mine')\n")
    (tmp_path / "program.py").write_text("import json, pydantic")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert ask(tmp_path / "program.py", limit_seconds=60, site=True) == Answer("", "")
