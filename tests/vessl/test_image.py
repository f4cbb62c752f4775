"""An image on Python 3.10 that holds rdzv: the shipped spec runs there without a package index."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import tests.pythons
from tests.vessl.place import Place, serving
from tests.vessl.service import Run
from tests.vessl.test_real_path import YOURS, finish

ROOT = Path(__file__).parent.parent.parent
HOME = ROOT / "build" / "image-3.10"
"""Kept between runs of the tests: what an image's build has made."""
INSTALL = ROOT / "specs" / "install.sh"
TOOLS = "/usr/bin:/bin:/usr/sbin:/sbin"
BARE_ENVIRON = {"PATH": TOOLS, "LC_ALL": "C.UTF-8"}

pytestmark = [pytest.mark.schedulers, pytest.mark.netns, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def python() -> str:
    """The folder with the image's own Python, which is `python3` there."""
    folder = HOME / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "python3"
    link.unlink(missing_ok=True)
    link.symlink_to(tests.pythons.needed("3.10"))
    return str(folder)


@pytest.fixture(scope="module")
def command(python: str) -> Path:
    """The folder with the image's `rdzv`, as its build has put it there."""
    done = subprocess.run(
        ["sh", INSTALL],
        env={**os.environ, "PATH": f"{python}:{TOOLS}", "RDZV_VENV": str(HOME)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    said = subprocess.run([HOME / "command" / "rdzv", "--version"], capture_output=True, text=True)
    assert "(Python 3.10." in said.stdout
    return Path(done.stdout.strip())


def create(place: Place, folder: Path) -> Run:
    """Submit the shipped launcher spec, as a person has filled it in."""
    code = folder / "code"
    code.mkdir()
    (code / "train.sh").write_text('echo "node $NODE_RANK: $(python3 --version)"\n')
    text = (ROOT / "specs" / "launcher.yaml").read_text()
    for old, new in YOURS.items():
        assert old in text
        text = text.replace(old, new)
    return place.vessl.create("llama", text)


@pytest.mark.parametrize("where", ["its place", "the PATH"])
def test_the_shipped_launcher_runs_where_nothing_can_be_installed(
    python: str, command: Path, tmp_path: Path, where: str
) -> None:
    in_place = where == "its place"
    path = f"{python}:{TOOLS}" if in_place else f"{python}:{command}:{TOOLS}"
    home = HOME if in_place else tmp_path / "home"
    mounts = {"/code/": tmp_path / "code"}
    with serving(tmp_path, 3, mounts=mounts, PATH=path, RDZV_VENV=str(home)) as place:
        cluster = place.vessl.cluster
        assert cluster is not None
        assert [h.run(["ip", "route", "show", "default"]).stdout for h in cluster.hosts] == [""] * 3
        create(place, tmp_path)
        assert finish(place) == ["completed"] * 3, place.told()
        said = place.told()
    assert "installing" not in said
    for rank in range(3):
        assert f"node {rank}: Python 3.10." in said
    assert in_place or not list(home.glob("venv"))


def test_an_image_with_another_rdzv_and_no_index_says_what_to_do(
    python: str, command: Path, tmp_path: Path
) -> None:
    source = tmp_path / "rdzv"
    for name in ("rendezvous", "worker", "launcher", "specs"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("rdzv_command.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (source / "worker" / "changed.py").touch()
    done = subprocess.run(
        ["unshare", "--net", "sh", source / "specs" / "install.sh"],
        env={
            **BARE_ENVIRON,
            "PATH": f"{python}:{command}:{TOOLS}",
            "RDZV_VENV": str(tmp_path / "home"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_RETRIES": "0",
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert f"the one at {command}/rdzv has other code or worker specs" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("install.sh: rdzv could not be installed from ")
