"""Containers of a run are killed on a real engine: others take their place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docker.compose import IMAGE
from tests.docker.engine import TOOLS, Engine
from tests.support.launching import Launched, launching
from tests.support.losses import (
    REPLACE,
    SOON,
    check_end,
    end,
    wait_for_first,
    wait_for_second,
    waiting,
)
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*TOOLS),
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("docker"),
]


@pytest.fixture
def engine(docker: Engine) -> Iterator[Engine]:
    """The engine, without containers before and after."""
    yield docker
    docker.remove_all()


@contextmanager
def running(engine: Engine, folder: Path, *options: str) -> Iterator[Launched]:
    """Three nodes whose programs have started."""
    words = ["--nnodes", "3", "--framework", "command", "--scheduler", "docker", *REPLACE]
    words += ["--set", f"IMAGE={IMAGE}", "--set", f"OPTIONS=--volume {folder}:{folder}"]
    by, env = tuple(engine.inside([])), engine.environ()
    place = {name: env[name] for name in ("DOCKER_HOST", "DOCKER_CONFIG")}
    command = waiting(folder)
    with launching(folder / "s", *words, *options, command=command, env=place, by=by) as launched:
        wait_for_first(folder)
        yield launched


def container(engine: Engine, slot: int, generation: int) -> str:
    """The container of a worker run; waits for it."""
    [found] = until(lambda: engine.containers(f"name=-{slot}-{generation}$"))
    return found


def kill(engine: Engine, slot: int) -> float:
    """Kill a container; returns when."""
    victim, at = container(engine, slot, 1), time.monotonic()
    engine.docker("kill", victim)
    return at


def stand(engine: Engine, slot: int, generation: int) -> dict[str, Any]:
    """How a container stands, or ended."""
    state: dict[str, Any] = engine.look(container(engine, slot, generation))["State"]
    return state


def test_a_killed_container_is_submitted_again(engine: Engine, tmp_path: Path) -> None:
    with running(engine, tmp_path) as launched:
        wait_for_second(tmp_path, kill(engine, 1), "docker kill, submitted again")
        older, newer = stand(engine, 1, 1), stand(engine, 1, 2)
        end(tmp_path)
        outcome = launched.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert "slot 1 is submitted again (replacement 1 of 3)" in outcome.err
    assert older["Status"] == "exited"
    assert older["FinishedAt"].rstrip("Z") < newer["StartedAt"].rstrip("Z")
    assert engine.docker("ps", "--quiet") == ""


@pytest.mark.nightly
def test_a_standby_steps_in_for_a_killed_container(engine: Engine, tmp_path: Path) -> None:
    with running(engine, tmp_path, "--standby", "1") as launched:
        wait_for_second(tmp_path, kill(engine, 1), "docker kill, a standby there")
        until(lambda: stand(engine, 1, 2)["Status"] == "running")  # the next standby
        end(tmp_path)
        outcome = launched.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert "takes the place of node" in outcome.err
    assert engine.docker("ps", "--quiet") == ""


@pytest.mark.nightly
def test_the_container_of_rank_0_is_submitted_again(engine: Engine, tmp_path: Path) -> None:
    """The launcher and the registry are beside it on the engine's host."""
    with running(engine, tmp_path, "--no-local-node") as launched:
        wait_for_second(tmp_path, kill(engine, 0), "docker kill of rank 0, submitted again")
        end(tmp_path)
        outcome = launched.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert engine.docker("ps", "--quiet") == ""


@pytest.mark.nightly
def test_a_container_that_is_paused_is_ended_and_submitted_again(
    engine: Engine, tmp_path: Path
) -> None:
    with running(engine, tmp_path, *SOON) as launched:
        older, lost = container(engine, 1, 1), time.monotonic()
        engine.docker("pause", older)
        wait_for_second(tmp_path, lost, "docker pause, submitted again")
        assert engine.look(older)["State"]["Status"] == "exited"
        end(tmp_path)
        outcome = launched.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert engine.docker("ps", "--quiet") == ""
