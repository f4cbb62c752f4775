"""One engine and one image for all tests of this folder."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.compose import IMAGE, PIN, Compose, copy_checkout
from tests.docker.engine import Engine, base_image, engine, user_mounts, users_image
from tests.docker.fetched import debian, fetching, plugin_of_version_2


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder with a short path, for sockets; in memory, since images are many small files."""
    folder = Path(tempfile.mkdtemp(prefix="rdzvdocker"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8g", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


@pytest.fixture(scope="session")
def checkout(place: Path) -> Path:
    """A copy of this checkout, with the image built in it by docker-compose."""
    folder = place / "checkout"
    copy_checkout(folder)
    with engine(place / "engine", networked=True) as up:
        with fetching() as kept:
            packed = debian(kept)
        base = users_image(up, base_image(up, packed), PIN)
        compose = Compose(up, ("docker-compose",), folder, [])
        compose.adapt_build(base)
        built = compose.run("build", "launcher")
        assert built.code == 0, built.out + built.err
    return folder


@pytest.fixture(scope="session")
def docker(place: Path, checkout: Path) -> Iterator[Engine]:
    """An engine in a network of its own, which has the image."""
    with engine(place / "engine") as up:
        assert IMAGE in up.docker("images", "--format={{.Repository}}")
        yield up


@pytest.fixture(scope="session")
def mounts(place: Path) -> list[str]:
    """What gives a container this environment's torchrun."""
    return user_mounts(place / "user")


@pytest.fixture
def compose(docker: Engine, checkout: Path, mounts: list[str]) -> Iterator[Compose]:
    """docker compose of Debian 12, version 1."""
    made = Compose(docker, ("docker-compose",), checkout, mounts)
    yield made
    made.remove()


@pytest.fixture
def compose_2(docker: Engine, compose: Compose) -> Compose:
    """docker compose, version 2."""
    plugins = docker.config / "cli-plugins"
    if not plugins.exists():
        plugins.mkdir()
        with fetching() as kept:
            shutil.copy(plugin_of_version_2(kept), plugins)
    return Compose(docker, ("docker", "compose"), compose.folder, compose.mounts)
