"""The docker scheduler with a real engine: worker runs are containers that the launcher starts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from launcher.plan.plan import Submission
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import Scheduler, SchedulerContext
from rendezvous.wire.run import SlotState
from tests.docker.compose import IMAGE
from tests.docker.engine import TOOLS, Engine
from tests.support.bed import Bed, join_text
from tests.support.launching import RDZV, Outcome
from tests.support.nightly import at_night
from tests.support.waiting import soon

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


def launch(engine: Engine, *options: str, image: str = IMAGE, script: str) -> Outcome:
    """A launch on the engine's own host: rank 0 is there, the others are containers."""
    words = [RDZV, "launch", "--rdzv-id", "r", "--nnodes", "3", "--framework", "command"]
    words += ["--scheduler", "docker", "--set", f"IMAGE={image}", *options, "--", "sh", "-c"]
    argv = engine.inside([*words, script])
    done = subprocess.run(argv, env=engine.environ(), capture_output=True, text=True, timeout=100)
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_a_run_of_a_launcher_and_two_containers_leaves_none_running(engine: Engine) -> None:
    options = ("--set", "OPTIONS=--memory 1g --env GREETING='good day'")
    outcome = launch(engine, *options, script='echo "$GREETING from node $NODE_RANK"')
    assert outcome.code == 0, outcome.err
    assert engine.docker("ps", "--quiet") == ""
    containers = engine.containers("label=rdzv.run=r")
    said = [line for one in containers for line in engine.logs(one) if line.startswith("good")]
    assert sorted(said) == ["good day from node 1", "good day from node 2"]
    assert {engine.look(one)["HostConfig"]["Memory"] for one in containers} == {1 << 30}


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("rdzv-test-base", "a command was not found: is rdzv in the image?"),
        at_night("no-such-image", "Unable to find image 'no-such-image:latest' locally"),
    ],
)
def test_an_image_without_rdzv_fails_the_run_at_once_with_the_reason(
    engine: Engine, image: str, words: str
) -> None:
    outcome = launch(engine, "--submit-retries", "0", image=image, script="true")
    assert outcome.code == 83
    assert words in outcome.last_line


@pytest.fixture
def scheduler(engine: Engine, tmp_path: Path) -> Scheduler:
    """The docker scheduler, as a launcher makes it."""
    context = SchedulerContext(tmp_path / "submissions", engine.environ())
    return scheduler_entry("docker").make(context)


@pytest.fixture
def run(tmp_path: Path) -> Submission:
    """A worker run that looks for a registry where none is."""
    made = Bed("docker", tmp_path).run()
    words = [*cast(list[str], made.variables["WORKER_OPTIONS"]), "--framework", "command"]
    own: dict[str, str | int | list[str]] = {"IMAGE": IMAGE, "PASS_ENV": [], "COMMAND": ["true"]}
    return replace(made, variables=made.variables | own | {"WORKER_OPTIONS": words})


async def test_a_container_is_submitted_found_described_cancelled_and_removed(
    engine: Engine, scheduler: Scheduler, run: Submission
) -> None:
    assert await scheduler.find(run) is None
    handle = await scheduler.submit(run, join_text())
    assert await scheduler.find(run) == handle
    assert (await scheduler.describe(run, handle)).state is SlotState.RUNNING
    await soon(lambda: any("cannot join yet" in line for line in engine.logs(handle)))
    logs = scheduler.logs(run, handle, lines=5, follow=False)
    assert any(["cannot join yet" in line async for line in logs])
    await scheduler.cancel(run, handle, grace_seconds=20.0)
    found = await scheduler.describe(run, handle)
    assert found.state in (SlotState.ENDED, SlotState.FAILED)
    assert "exit code 143" in found.detail
    engine.docker("rm", "--force", handle)
    await scheduler.cancel(run, handle, grace_seconds=0.0)
    assert (await scheduler.describe(run, handle)).state is SlotState.ENDED
