"""The built wheel as people install it: one name in site-packages, beside whatever is theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.show.installation import commit
from tests.pythons import interpreter
from tests.support.launching import environment
from tests.support.missing import give_up
from tests.support.nightly import at_night
from tests.support.venvs import build, installed

pytestmark = [pytest.mark.wheel, pytest.mark.real_time, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
SOURCES = {
    *("rdzv", "rendezvous", "worker", "launcher", "features", "specs", "docs", "examples"),
    *("rdzv_command.py", "hatch_build.py", "pyproject.toml", ".gitignore"),
    *("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"),
}
PIPX = "pipx==1.18.4"
OURS = ("rendezvous", "worker", "launcher", "features")
USERS_PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "training"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["rendezvous", "worker", "launcher", "features"]
"""
TRAIN = """
import features, launcher, rdzv.metrics, rendezvous, worker
owners = {one.OWNER for one in (features, launcher, rendezvous, worker)}
print(*owners, rdzv.metrics.own_rank())
"""
USES = """
import sys
import rdzv
me = rdzv.current()
if me is not None:
    print("rank", me.rank, "of", me.world_size, "restarts", me.restarts)
    sys.exit()
output: list[str] = []
words = [sys.executable, __file__]
with rdzv.launch(words, nnodes=2, framework="command", on_output=output.append) as run:
    pass
result = run.wait(check=True)
code: int = result.exit_code
print(code, *sorted(run.logs()), *[node.address for node in run.table()], sep="\\n")
"""


def run(*words: str | Path, cwd: Path = Path("/"), env: Mapping[str, str] = {}) -> str:
    """Run a command to its end; returns what it printed."""
    environ = {**environment(cwd), **env}
    done = subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Built:
    """uv, and what it has built of the checkout."""

    uv: Path
    sdist: Path
    wheel: Path
    users: Path
    """A wheel of a user's, whose packages have the names of ours."""

    def venv(self, folder: Path, python: str | Path = sys.executable) -> Path:
        """A new environment; returns its folder of commands."""
        run(self.uv, "venv", "--quiet", "--python", python, folder)
        return folder / "bin"

    def install(self, bin_: Path, *what: str | Path) -> None:
        """Install into the environment with this folder of commands."""
        run(self.uv, "pip", "install", "--quiet", "--python", bin_ / "python", *what)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder, uv = tmp_path_factory.mktemp("built"), Path(sys.executable).parent / "uv"
    build(str(CONSTRAINTS), "--out-dir", str(folder), str(ROOT))  # the wheel is made of the sdist
    project = folder / "training"
    for name in OURS:
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("OWNER = 'user'\n")
    (project / "pyproject.toml").write_text(USERS_PROJECT)
    run(uv, "build", "--quiet", "--wheel", "--out-dir", folder, project)
    [sdist], [wheel] = folder.glob("rdzv-*.tar.gz"), folder.glob("rdzv-*.whl")
    yield Built(uv, sdist, wheel, next(folder.glob("training-*.whl")))
    shutil.rmtree(folder)


def train(folder: Path, *rdzv: str | Path, python: str | Path = sys.executable, **env: str) -> None:
    """Launch a program that imports the user's packages and the module that is for users."""
    (folder / "train.py").write_text(TRAIN)
    words = ("launch", "--nnodes", "2", "--framework", "command", "--", python, "train.py")
    out = run(*rdzv, *words, cwd=folder, env=env)
    said = sorted(line.partition("] ")[2] for line in out.splitlines())
    assert said == ["user 0", "user 1"]


def test_the_wheel_has_one_name(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"rdzv"}
    assert {name.split("/")[2] for name in names if name.startswith("rdzv/_app/")} == {
        *(*OURS, "commit", "docs", "rdzv_command.py", "specs"),
    }


def test_the_same_sources_become_the_same_files_elsewhere_and_later(
    tmp_path: Path, built: Built
) -> None:
    sources = tmp_path / "in another folder"
    sources.mkdir()
    for name in sorted(SOURCES, reverse=True):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, sources / name)
    (sources / "commit").write_text(commit(ROOT))  # it is no clone, and not of another commit
    for number, path in enumerate(sources.rglob("*")):
        os.utime(path, (10**9 + number, 10**9 + number))
        path.chmod(0o700 if path.is_dir() or path.stat().st_mode & 0o100 else 0o600)
    words = ("--build", CONSTRAINTS, "--out-dir", tmp_path / "dist", sources)
    argv = ["sh", "-c", 'umask 077 && exec "$0" -m tests.support.venvs "$@"', sys.executable]
    other = {"PYTHONHASHSEED": "7", "TZ": "Asia/Seoul", "LC_ALL": "C"}
    run(*argv, *words, cwd=ROOT, env=other)
    for one in (built.sdist, built.wheel):
        assert (tmp_path / "dist" / one.name).read_bytes() == one.read_bytes(), one.name


def test_an_sdist_has_what_a_wheel_is_made_of_and_no_tests(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.split("/")[1] for name in sdist.getnames()}
    assert names == {*SOURCES, "commit", "PKG-INFO"}


@pytest.mark.parametrize(("first", "version"), [at_night("rdzv", "3.10"), ("user", "3.13")])
def test_it_lives_beside_packages_of_the_same_names_and_leaves_nothing(
    tmp_path: Path, built: Built, first: str, version: str
) -> None:
    python = interpreter(version)
    if python is None:
        give_up(f"Python {version} is not on PATH and not among pyenv's")
    commands = built.venv(tmp_path / "venv", python)
    both = [f"{built.wheel}[launcher]", str(built.users)]
    for each in both if first == "rdzv" else reversed(both):
        built.install(commands, each)
    own = commands / "python"
    train(tmp_path, commands / "rdzv", python=own, PYTHONPATH=".")
    # pip knows nothing of what -OO compiles, of whatever package.
    train(tmp_path, own, "-OO", "-m", "rdzv", python=own, PYTHONDONTWRITEBYTECODE="1")
    run(sys.executable, "-m", "pip", "--python", own, "uninstall", "--quiet", "--yes", "rdzv")
    [site] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    assert list(site.rglob("*rdzv*")) == []
    assert run(own, "-c", "import worker; print(worker.OWNER)") == "user\n"


@pytest.mark.nightly
def test_it_is_installed_from_an_sdist_in_an_environment_of_its_own(
    tmp_path: Path, built: Built
) -> None:
    users = built.venv(tmp_path / "users")
    built.install(users, built.users)
    tool = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    source = f"rdzv[launcher] @ {built.sdist.as_uri()}"
    run(built.uv, "tool", "install", "--quiet", source, env=tool)
    rdzv = tmp_path / "bin" / "rdzv"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    assert head.stdout[:7] in run(rdzv, "--version")  # "" where this is no clone
    assert run(rdzv, "docs", "checks") == (ROOT / "docs" / "checks.md").read_text("utf-8")
    program = (users / "python", "-c", "import worker; print(worker.OWNER)")
    words = ("launch", "--nnodes", "2", "--framework", "command", "--", *program)
    out = run(rdzv, *words, cwd=tmp_path)
    assert sorted(out.splitlines()) == ["[0] user", "[1] user"]
    run(built.uv, "tool", "uninstall", "--quiet", "rdzv", env=tool)
    assert not list(tmp_path.rglob("*rdzv_command*"))


def test_its_python_api_has_types_and_launches_beside_a_users_modules(
    tmp_path: Path, built: Built
) -> None:
    commands = built.venv(tmp_path / "venv")
    built.install(commands, f"{built.wheel}[launcher]")
    folder = tmp_path / "project"
    folder.mkdir()
    for name in OURS:
        (folder / f"{name}.py").write_text("raise SystemExit('of the user')\n")
    (folder / "uses.py").write_text(USES)
    own = commands / "python"
    words = ("-I", "-m", "mypy", "--strict", "--cache-dir", tmp_path, "--python-executable", own)
    run(sys.executable, *words, "uses.py", cwd=folder)
    out = run(own, "uses.py", cwd=folder, env={"PYTHONPATH": ".", "PATH": "/usr/bin:/bin"})
    ranks = [f"[node {node}] rank {node} of 2 restarts 0" for node in range(2)]
    assert out.splitlines() == ["0", *ranks, "127.0.0.1", "127.0.0.2"]


@pytest.mark.nightly
def test_pipx_installs_it(tmp_path: Path, built: Built) -> None:
    pipx = installed("pipx", PIPX) / "bin" / "pipx"
    home = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    run(pipx, "install", "--quiet", f"{built.wheel}[launcher]", env=home)
    words = ("launch", "--nnodes", "2", "--framework", "command", "--", "echo", "here")
    out = run(tmp_path / "bin" / "rdzv", *words, cwd=tmp_path)
    assert sorted(out.splitlines()) == ["[0] here", "[1] here"]


def test_the_file_to_copy_is_the_module_to_import() -> None:
    copied = ROOT / "examples" / "rdzv_metrics.py"
    assert copied.read_bytes() == (ROOT / "rdzv" / "metrics.py").read_bytes()
