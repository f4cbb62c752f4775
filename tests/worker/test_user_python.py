"""Which Python the user's program runs on, and what is installed for it, found by reading."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from worker.machine.user_python import UserPython, look_user_python

TORCH = "__version__ = '2.9.0+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\n"
CPU_TORCH = '__version__ = "2.13.0+cpu"\ncuda: Optional[str] = None\nhip = None\n'


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


def packages(prefix: Path, version: str = "3.12", torch: str = TORCH, nccl: str = "") -> None:
    folder = prefix / f"lib/python{version}/site-packages"
    (folder / "torch").mkdir()
    (folder / "torch/version.py").write_text(torch)
    if nccl:
        (folder / f"nvidia_nccl_cu12-{nccl}.dist-info").mkdir()


def script(path: Path, first: str) -> Path:
    path.write_text(f"{first}\nimport sys\n")
    path.chmod(0o755)
    return path


def found(*folders: Path, program: str = "torchrun", **environ: str) -> UserPython:
    path = ":".join(str(folder) for folder in folders)
    return look_user_python(program, {"PATH": path, **environ})


def test_torchrun_tells_the_interpreter_and_that_one_the_versions(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env")
    packages(tmp_path / "env", nccl="2.27.3")
    script(tmp_path / "env/bin/torchrun", f"#!{python}")
    expected = UserPython(str(python), "3.12", "2.9.0+cu128", "12.8", "2.27.3")
    assert found(tmp_path / "env/bin") == expected


def test_a_cpu_build_of_torch_has_no_cuda_and_loads_no_nccl(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env")
    packages(tmp_path / "env", torch=CPU_TORCH)
    assert found(tmp_path / "env/bin") == UserPython(str(python), "3.12", "2.13.0+cpu", "", "")


def test_a_python_without_torch_is_told_all_the_same(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", "3.11")
    assert found(tmp_path / "env/bin") == UserPython(str(python), "3.11")


def test_without_any_python_nothing_is_known(tmp_path: Path) -> None:
    script(tmp_path / "torchrun", "#!/bin/bash")
    script(tmp_path / "python3", "#!/usr/bin/env bash")
    assert found(tmp_path) == UserPython()
    assert found() == UserPython()


@pytest.mark.parametrize("folder", ["a b", "x" * 200])
def test_the_form_that_pip_writes_for_odd_paths_is_understood(tmp_path: Path, folder: str) -> None:
    python = interpreter(tmp_path / folder)
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/torchrun", f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''")
    assert found(tmp_path / "bin").executable == str(python)


def test_env_in_the_first_line_is_looked_up_on_the_path(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env")
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/torchrun", "#!/usr/bin/env -S python3 -u")
    assert found(tmp_path / "bin", tmp_path / "env/bin").executable == str(python)


def test_a_command_that_names_its_python_runs_on_that_one(tmp_path: Path) -> None:
    other = interpreter(tmp_path / "other", "3.10")
    interpreter(tmp_path / "env")
    assert found(tmp_path / "env/bin", program=str(other)).version == "3.10"
    assert found(tmp_path / "env/bin", program="./run.sh").version == "3.12"


def test_a_virtual_environment_sees_the_packages_below_it_when_it_shares_them(
    tmp_path: Path,
) -> None:
    interpreter(tmp_path / "base")
    packages(tmp_path / "base", nccl="2.21.5")
    config = f"home = {tmp_path}/base/bin\nversion = 3.12.4\n"
    interpreter(tmp_path / "alone", config=config)
    interpreter(tmp_path / "shared", config=config + "include-system-site-packages = true\n")
    assert found(tmp_path / "alone/bin").torch == ""
    assert found(tmp_path / "shared/bin").nccl == "2.21.5"


def test_what_stands_first_on_pythons_path_counts(tmp_path: Path) -> None:
    interpreter(tmp_path / "env")
    packages(tmp_path / "env")
    own = tmp_path / "own"
    (own / "torch").mkdir(parents=True)
    (own / "torch/version.py").write_text("__version__ = '3.0'\n")
    assert found(tmp_path / "env/bin", PYTHONPATH=f":{own}").torch == "3.0"


def test_packages_of_the_users_home_count_outside_of_a_virtual_environment(tmp_path: Path) -> None:
    interpreter(tmp_path / "env")
    packages(tmp_path / "env")
    home = tmp_path / "home"
    own = home / ".local/lib/python3.12/site-packages/torch"
    own.mkdir(parents=True)
    (own / "version.py").write_text("__version__ = '3.0'\n")
    assert found(tmp_path / "env/bin", HOME=str(home)).torch == "3.0"
    (tmp_path / "env/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    assert found(tmp_path / "env/bin", HOME=str(home)).torch == "2.9.0+cu128"


def library(folder: Path, version: str) -> None:
    """NCCL's library, installed as its makers do."""
    (folder / f"libnccl.so.{version}").touch()
    (folder / "libnccl.so.2").symlink_to(f"libnccl.so.{version}")


def test_the_torch_of_conda_takes_the_nccl_of_its_environment(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "conda")
    packages(tmp_path / "conda")
    script(tmp_path / "conda/bin/torchrun", f"#!{python}")
    library(tmp_path / "conda/lib", "2.27.5")
    assert found(tmp_path / "conda/bin").nccl == "2.27.5"


def test_a_virtual_environment_sees_the_nccl_of_conda_when_it_shares_it(tmp_path: Path) -> None:
    interpreter(tmp_path / "conda")
    packages(tmp_path / "conda")
    library(tmp_path / "conda/lib", "2.27.5")
    home = f"home = {tmp_path}/conda/bin\nversion = 3.12.1\n"
    interpreter(tmp_path / "shared", config=f"{home}include-system-site-packages = true\n")
    assert found(tmp_path / "shared/bin").nccl == "2.27.5"


def test_the_version_of_the_systems_nccl_is_not_taken_for_torchs(tmp_path: Path) -> None:
    interpreter(tmp_path / "env")
    packages(tmp_path / "env")
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
