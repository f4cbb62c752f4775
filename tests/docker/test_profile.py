"""The docker scheduler with a real engine: worker runs are containers that the launcher starts."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*TOOLS),
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("docker"),
]

LIMIT_SECONDS = 100.0
WAIT = "trap 'exit 0' TERM; echo begun; while :; do sleep 0.1; done"


@pytest.fixture
def engine(docker: Engine) -> Iterator[Engine]:
    """The engine, without containers before and after."""
    yield docker
    docker.remove_all()


@contextmanager
def launching(
    engine: Engine, *options: str, image: str = IMAGE, script: str
) -> Iterator[subprocess.Popen[str]]:
    """A launch on the engine's own host: rank 0 is there, the others are containers."""
    words = [RDZV, "launch", "--rdzv-id", "r", "--nnodes", "3", "--framework", "command"]
    words += ["--scheduler", "docker", "--set", f"IMAGE={image}", *options]
    process = subprocess.Popen(
        engine.inside([*words, "--", "sh", "-c", script]),
        env=engine.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def launch(engine: Engine, *options: str, image: str = IMAGE, script: str) -> Outcome:
    """A launch, seen to its end."""
    with launching(engine, *options, image=image, script=script) as process:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        return Outcome(process.returncode, out, err)


def test_a_run_of_a_launcher_and_two_containers_ends_well_and_leaves_none_running(
    engine: Engine,
) -> None:
    options = ("--set", "OPTIONS=--memory 1g --env GREETING='good day'")
    outcome = launch(engine, *options, script='echo "$GREETING from node $NODE_RANK"')
    assert outcome.code == 0, outcome.err
    assert engine.docker("ps", "--quiet") == ""
    containers = engine.containers("label=rdzv.run=r")
    said = [line for one in containers for line in engine.logs(one) if line.startswith("good")]
    assert sorted(said) == ["good day from node 1", "good day from node 2"]
    assert {engine.look(one)["HostConfig"]["Memory"] for one in containers} == {1 << 30}


def test_a_launcher_told_to_end_stops_its_containers(engine: Engine) -> None:
    with launching(engine, script=WAIT) as process:
        wait_until_all_have_begun(engine, process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    assert engine.docker("ps", "--quiet") == ""


def test_containers_end_when_their_launcher_is_killed(engine: Engine) -> None:
    with launching(engine, script=WAIT) as process:
        wait_until_all_have_begun(engine, process)
        process.kill()
        until(lambda: engine.docker("ps", "--quiet") == "", LIMIT_SECONDS)


def wait_until_all_have_begun(engine: Engine, launcher: subprocess.Popen[str]) -> None:
    def is_so() -> bool:
        assert launcher.poll() is None, launcher.communicate()
        found = engine.containers()
        return len(found) == 2 and all("begun" in engine.logs(one) for one in found)

    until(is_so, LIMIT_SECONDS)


def test_an_image_without_rdzv_fails_the_run_at_once_with_the_reason(engine: Engine) -> None:
    outcome = launch(engine, "--submit-retries", "0", image="rdzv-test-base", script="true")
    assert outcome.code == 83
    assert "a command was not found: has the image rdzv in it?" in outcome.last_line


def test_an_image_that_is_not_there_fails_the_run_at_once_with_the_engines_words(
    engine: Engine,
) -> None:
    outcome = launch(engine, "--submit-retries", "0", image="no-such-image", script="true")
    assert outcome.code == 83
    assert "Unable to find image 'no-such-image:latest' locally" in outcome.last_line


# --- the contract, with the real thing ------------------------------------------------------------


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
    own: dict[str, str | int | list[str]] = {
        "IMAGE": IMAGE,
        "PASS_ENV": [],
        "WORKER_OPTIONS": words,
        "COMMAND": ["true"],
    }
    return Submission(
        made.slot,
        made.generation,
        made.name,
        made.variables | own,
        made.source,
        made.template,
    )


async def test_a_container_is_submitted_found_described_and_cancelled(
    scheduler: Scheduler, run: Submission
) -> None:
    assert await scheduler.find(run) is None
    handle = await scheduler.submit(run, join_text())
    assert await scheduler.find(run) == handle
    assert (await scheduler.describe(run, handle)).state is SlotState.RUNNING
    while not any("cannot join yet" in line for line in await lines(scheduler, run, handle)):
        await asyncio.sleep(0.1)
    await scheduler.cancel(run, handle, grace_seconds=20.0)
    found = await scheduler.describe(run, handle)
    assert found.state in (SlotState.ENDED, SlotState.FAILED)
    assert "exit code 143" in found.detail
    await scheduler.cancel(run, handle, grace_seconds=0.0)


async def lines(scheduler: Scheduler, run: Submission, handle: str) -> list[str]:
    return [line async for line in scheduler.logs(run, handle, lines=5, follow=False)]


async def test_a_container_that_was_removed_has_ended(
    engine: Engine, scheduler: Scheduler, run: Submission
) -> None:
    handle = await scheduler.submit(run, join_text())
    engine.docker("rm", "--force", handle)
    await scheduler.cancel(run, handle, grace_seconds=0.0)
    assert (await scheduler.describe(run, handle)).state is SlotState.ENDED


def test_the_scheduler_proves_itself_live(engine: Engine) -> None:
    argv = [RDZV, "schedulers", "check", "docker", "--set", f"IMAGE={IMAGE}"]
    done = subprocess.run(
        engine.inside(argv),
        env=engine.environ(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
