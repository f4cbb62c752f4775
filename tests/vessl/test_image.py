"""An image on Python 3.10 that holds rdzv: the shipped spec runs there without a package index."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import tests.pythons
from tests.vessl.place import TOOLS, launcher_spec, serving

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "image-3.10"
"""Kept between runs of the tests: what an image's build has made."""

pytestmark = [pytest.mark.schedulers, pytest.mark.netns, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def path() -> str:
    """The image's PATH: its own Python as `python3`, and `rdzv` as its build has put it there."""
    (HOME / "bin").mkdir(parents=True, exist_ok=True)
    link = HOME / "bin" / "python3"
    link.unlink(missing_ok=True)
    link.symlink_to(tests.pythons.needed("3.10"))
    env = os.environ | {"PATH": f"{HOME}/bin:{TOOLS}", "RDZV_VENV": str(HOME)}
    argv = ["sh", str(ROOT / "specs" / "install.sh")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    command = done.stdout.strip()
    said = subprocess.run([f"{command}/rdzv", "--version"], capture_output=True, text=True)
    assert "(Python 3.10." in said.stdout
    return f"{HOME}/bin:{command}:{TOOLS}"


def test_the_shipped_launcher_runs_where_nothing_can_be_installed(
    path: str, tmp_path: Path
) -> None:
    spec = launcher_spec(tmp_path, 'echo "node $NODE_RANK: $(python3 --version)"\n')
    home = tmp_path / "home"
    with serving(tmp_path, 3, PATH=path, RDZV_VENV=str(home)) as place:
        place.vessl.create("llama", spec.read_text())
        assert place.finish() == ["completed"] * 3, place.told()
        said = place.told()
    assert "installing" not in said
    assert [f"node {rank}: Python 3.10." in said for rank in range(3)] == [True] * 3
    assert not list(home.glob("venv"))
