"""The images that are made of the wheel, by BuildKit: what is in them, and how large they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docker.compose import ROOT
from tests.docker.engine import TOOLS, base_image, engine
from tests.docker.fetched import fetching, plugin, smallest
from tests.support.venvs import build

pytestmark = [
    pytest.mark.schedulers(*TOOLS),
    pytest.mark.netns,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("docker"),
]

LARGEST_MB = 150


def test_the_slim_image_is_rdzv_alone_and_small(place: Path) -> None:
    build(str(ROOT / "constraints.txt"), "--out-dir", str(place / "context" / "dist"), str(ROOT))
    context = place / "context"
    for name in ("Dockerfile", ".dockerignore", "constraints.txt"):
        shutil.copy(ROOT / name, context)
    shutil.copytree(ROOT / "specs", context / "specs")
    with engine(place / "engine-of-images", networked=True) as up:
        plugins = up.config / "cli-plugins"
        plugins.mkdir(exist_ok=True)
        with fetching() as kept:
            shutil.copy(plugin(kept, "buildx"), plugins)
            base = base_image(up, smallest(kept), "rdzv-test-smallest")
        words = ("--network=host", "--target=slim", f"--build-arg=SLIM={base}", "--tag=rdzv-slim")
        up.docker("buildx", "build", *words, str(context))
        version = up.docker("run", "--rm", "--network=none", "rdzv-slim", "--version")
        assert version.startswith("rdzv ")
        assert version.endswith("the launcher's packages)")
        run = ("run", "--rm", "--network=none", "rdzv-slim", "launch", "--nnodes=2")
        said = up.docker(
            *run, "--framework=command", "--", "sh", "-c", "echo $NODE_RANK of $NNODES"
        )
        assert sorted(said.splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]
        size = up.look_at_image("rdzv-slim")["Size"] / 1e6
    print(f"slim: {size:.1f} MB")
    assert size < LARGEST_MB
