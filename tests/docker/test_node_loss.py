"""Containers of a run are killed on a real engine: others take their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docker.compose import IMAGE
from tests.docker.engine import TOOLS, Engine
from tests.support.launching import Launched, launching
from tests.support.losses import REPLACE, NodeLoss, Nodes, wait_for_first, waiting
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*TOOLS),
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("docker"),
]


class Containers(Nodes):
    """Nodes are containers of a real engine; the launcher and rank 0 are on its host."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @contextmanager
    def running(self, folder: Path, *options: str) -> Iterator[Launched]:
        words = ["--nnodes", "3", "--framework", "command", "--scheduler", "docker", *REPLACE]
        words += ["--set", f"IMAGE={IMAGE}", "--set", f"OPTIONS=--volume {folder}:{folder}"]
        by, env = tuple(self.engine.inside([])), self.engine.environ()
        more = {name: env[name] for name in ("DOCKER_HOST", "DOCKER_CONFIG")}
        command = waiting(folder)
        with launching(folder / "s", *words, *options, command=command, env=more, by=by) as run:
            wait_for_first(folder)
            yield run
        assert self.engine.docker("ps", "--quiet") == ""

    def _container(self, slot: int, generation: int) -> str:
        [found] = until(lambda: self.engine.containers(f"name=-{slot}-{generation}$"))
        return found

    def kill(self, slot: int) -> None:
        self.engine.docker("kill", self._container(slot, 1))

    def silence(self, slot: int) -> None:
        self.engine.docker("pause", self._container(slot, 1))

    def check(self, slot: int, said: str) -> None:
        older, newer = (self.engine.look(self._container(slot, n))["State"] for n in (1, 2))
        assert older["Status"] == "exited"
        assert older["FinishedAt"].rstrip("Z") < newer["StartedAt"].rstrip("Z")


class TestContainers(NodeLoss):
    @pytest.fixture
    def nodes(self, docker: Engine) -> Iterator[Nodes]:
        """The engine, without containers before and after."""
        yield Containers(docker)
        docker.remove_all()
