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

INSTALL = ROOT / "specs" / "install.sh"
# What a training program of the user sees: its own interpreter, and its own old pydantic.
PROGRAM = "import os, sys, pydantic; print(os.environ['RANK'], pydantic.VERSION, sys.prefix)"
# What torchrun does of its work here: one worker, with its rank, by the user's interpreter.
TORCHRUN = """#!{python}
import os, runpy, sys
os.environ["RANK"] = sys.argv[sys.argv.index("--node-rank") + 1]
runpy.run_path(sys.argv[-1], run_name="__main__")
"""

pytestmark = [pytest.mark.schedulers("flock"), pytest.mark.timeout(300)]


def run(*argv: str | Path, **env: str) -> str:
    """What a command prints, in the user's environment."""
    done = subprocess.run(argv, env=os.environ | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(**env: str) -> str:
    """What is said where rdzv cannot be installed."""
    argv = ["unshare", "--net", "sh", str(INSTALL)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert (done.returncode == 0, done.stdout) == (False, "")
    return done.stderr


def test_the_users_pins_stay_and_the_child_is_the_torchrun_on_their_path(tmp_path: Path) -> None:
    home = tmp_path / "user"
    run(sys.executable, "-m", "venv", home)
    run(home / "bin" / "pip", "install", "--quiet", PIN)
    torchrun = home / "bin" / "torchrun"
    torchrun.write_text(TORCHRUN.format(python=home / "bin" / "python"))
    torchrun.chmod(0o755)
    (tmp_path / "constraints").write_text(f"{PIN}\n")
    (tmp_path / "train.py").write_text(PROGRAM)
    path = f"{home}/bin:/usr/bin:/bin"
    image = {"PIP_CONSTRAINT": str(tmp_path / "constraints"), "PYTHONPATH": str(ROOT)}
    before = run(home / "bin" / "pip", "freeze", "--all")
    folder = run("sh", INSTALL, RDZV_VENV=str(tmp_path / "own"), PATH=path, **image)
    assert folder == f"{tmp_path}/own/command\n"
    assert os.listdir(folder.strip()) == ["rdzv"]
    # An image that holds it needs no index, wherever another one would be put.
    held = {"PATH": f"{path}:{folder.strip()}:/usr/sbin", "RDZV_VENV": str(tmp_path / "other")}
    assert run("unshare", "--net", "sh", INSTALL, **held, **image) == folder
    assert os.listdir(tmp_path / "other") == ["lock"]
    env = environment(tmp_path / "state", **image) | {"PATH": held["PATH"]}
    argv = ["rdzv", "launch", "--nnodes", "2", "--", "train.py"]
    launched = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert launched.returncode == 0, launched.stderr
    said = [f"[{rank}] {rank} 1.10.24 {home}" for rank in range(2)]
    assert sorted(launched.stdout.splitlines()) == said
    assert run(home / "bin" / "pip", "freeze", "--all") == before
    assert PIN in before.splitlines()


@pytest.mark.nightly
def test_several_tasks_install_once_and_what_is_different_is_installed_anew(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    run(*pip, "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("rdzv-*.whl")
    argv = ["sh", str(INSTALL), str(wheel)]
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
        parts.writestr("rdzv/_app/rendezvous/more.py", "")
    run(*argv, **more)
    assert command.lstat().st_mtime_ns > made
    assert command.resolve() == tmp_path / "own/venv/bin/rdzv"
    # An image that holds this one, other sources, and no index.
    path = f"{command.parent}:{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin"
    alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
    said = refused(PATH=path, RDZV_VENV=str(tmp_path / "home"), **alone)
    assert f"the rdzv at {command} has different code or worker specs" in said
    assert said.splitlines()[-1].startswith("install.sh: rdzv could not be installed from ")


def test_an_old_python_alone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "python3").write_text("#!/bin/sh\nexit 1\n")
    (bin_folder / "python3").chmod(0o755)
    for tool in ("sh", "id", "mkdir", "dirname", "flock", "rm", "unshare"):
        (bin_folder / tool).symlink_to(str(shutil.which(tool)))
    said = refused(PATH=str(bin_folder), RDZV_VENV=str(tmp_path / "own"))
    assert "rdzv needs Python 3.10 or later, and found none here" in said
    assert "RDZV_PYTHON" in said
