"""specs/install.sh puts rdzv beside the user's packages, and moves none of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.docker.compose import PIN, ROOT
from tests.support.launching import environment

# What a training program of the user sees: its own interpreter, and its own old pydantic.
PROGRAM = """
import os, sys, pydantic
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {size}: {pydantic.VERSION} in {sys.prefix}")
"""
# What torchrun does of its work here: one worker, with its rank, by the user's interpreter.
TORCHRUN = """#!{python}
import os, runpy, sys
words = iter(sys.argv[1:])
for word in words:
    if not word.startswith("--"):
        break
    flags = locals().setdefault("flags", {{}})
    flags[word] = next(words)
os.environ.update(RANK=flags["--node-rank"], WORLD_SIZE=flags["--nnodes"])
runpy.run_path(word, run_name="__main__")
"""

pytestmark = [pytest.mark.schedulers("flock"), pytest.mark.timeout(300)]


def run(*argv: str | Path, **env: str) -> str:
    """What a command prints, in the user's environment."""
    done = subprocess.run(
        argv, env=os.environ | env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a user's environment with an old pydantic, and a torchrun."""
    home = tmp_path_factory.mktemp("user")
    run(sys.executable, "-m", "venv", home)
    run(home / "bin" / "pip", "install", "--quiet", PIN)
    torchrun = home / "bin" / "torchrun"
    torchrun.write_text(TORCHRUN.format(python=home / "bin" / "python"))
    torchrun.chmod(0o755)
    return home / "bin"


def test_the_users_pins_stay_and_the_child_is_the_torchrun_on_the_users_path(
    user: Path, tmp_path: Path
) -> None:
    (tmp_path / "constraints").write_text(f"{PIN}\n")
    (tmp_path / "train.py").write_text(PROGRAM)
    path = f"{user}:/usr/bin:/bin"
    image = {"PIP_CONSTRAINT": str(tmp_path / "constraints"), "PYTHONPATH": str(ROOT)}
    before = run(user / "pip", "freeze", "--all")
    folder = run(
        "sh", ROOT / "specs/install.sh", RDZV_VENV=str(tmp_path / "own"), PATH=path, **image
    )
    assert folder == f"{tmp_path}/own/command\n"
    assert os.listdir(folder.strip()) == ["rdzv"]
    env = environment(tmp_path / "state", **image) | {"PATH": f"{path}:{folder.strip()}"}
    launched = subprocess.run(
        ["rdzv", "launch", "--nnodes", "2", "--", "train.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert launched.returncode == 0, launched.stderr
    said = [f"[{rank}] rank {rank} of 2: 1.10.24 in {user.parent}" for rank in range(2)]
    assert sorted(launched.stdout.splitlines()) == said
    assert run(user / "pip", "freeze", "--all") == before
    assert PIN in before.splitlines()


def test_several_tasks_install_once_and_what_is_different_is_installed_anew(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    run(*pip, "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("rdzv-*.whl")
    argv = ["sh", str(ROOT / "specs/install.sh"), str(wheel)]
    more = {"RDZV_VENV": str(tmp_path / "own")}
    with ThreadPoolExecutor() as pool:
        tasks = [pool.submit(run, *argv, **more) for _ in range(3)]
    assert [task.result() for task in tasks] == [f"{tmp_path}/own/command\n"] * 3
    command = tmp_path / "own/command/rdzv"
    made = command.lstat().st_mtime_ns
    wheel.touch()
    assert run(*argv, **more) == f"{tmp_path}/own/command\n"
    assert command.lstat().st_mtime_ns == made
    with zipfile.ZipFile(wheel, "a") as parts:
        parts.writestr("rendezvous/more.py", "")
    run(*argv, **more)
    assert command.lstat().st_mtime_ns > made
    assert command.resolve() == tmp_path / "own/venv/bin/rdzv"


def test_an_old_python_alone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    old = bin_folder / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for tool in ("sh", "id", "mkdir", "dirname", "flock", "rm"):
        (bin_folder / tool).symlink_to(str(shutil.which(tool)))
    done = subprocess.run(
        ["sh", ROOT / "specs/install.sh"],
        env={"PATH": str(bin_folder), "RDZV_VENV": str(tmp_path / "own")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "rdzv needs Python 3.10 or later, and finds none here" in done.stderr
    assert "RDZV_PYTHON" in done.stderr
