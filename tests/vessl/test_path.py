"""The whole path on VESSL: the runs that the service starts form one run, and all of them end."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import BIN
from tests.support.waiting import until
from tests.vessl.place import LIMIT_SECONDS, Place, living, outcome_of, serving
from tests.vessl.service import Run, environment_of

DATA = Path(__file__).parent / "data"
SETTINGS = (
    "REPOSITORY=git://github.com/acme/rdzv.git",
    "CLUSTER=gpu-cluster",
    "PRESET=gpu-h100-80g-xlarge",
    "IMAGE=registry/image:tag",
)
SCHEDULER = ("--scheduler", "vessl-http", *(word for each in SETTINGS for word in ("--set", each)))
WAITING = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done")

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]


def start(place: Place, *options: str, command: tuple[str, ...]) -> subprocess.Popen[str]:
    """A launcher on the person's machine."""
    argv = [str(BIN / "rdzv"), "launch", "--rdzv-id", "r", *SCHEDULER, "--framework", "command"]
    return place.person.start(
        [*argv, *options, "--", *command],
        env=place.environ(),
        stdout=subprocess.PIPE,
    )


def statuses(place: Place) -> list[tuple[str, str]]:
    """Name and status of every run, without the launch id."""
    return [("-".join(run.name.split("-")[-2:]), run.status) for run in place.vessl.runs.values()]


def over(place: Place) -> list[tuple[str, str]]:
    """The same, once nothing lives."""
    until(lambda: not living(place.vessl))
    return statuses(place)


def test_runs_that_are_submitted_join_and_end_with_the_launch(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as place:
        launcher = start(place, "--nnodes", "3", command=("sh", "-c", "echo rank $NODE_RANK"))
        code, said = outcome_of(launcher)
        assert code == 0, said + place.told()
        assert "run 'r' ok: all 3 nodes ended with exit code 0" in said
        assert sorted(over(place)) == [("1-1", "completed"), ("2-1", "completed")]
        lines = [line for run in place.vessl.runs.values() for _, line in run.lines]
        assert sorted(line for line in lines if line.startswith("rank ")) == ["rank 1", "rank 2"]
        for run in place.vessl.runs.values():
            assert set(environment_of(run.spec)) == {"RDZV_JOIN"}


def test_a_service_that_only_fails_is_named_at_its_first_answer_and_at_the_end(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, 2) as place:
        place.vessl.errors = [500] * 100
        launcher = start(place, "--nnodes", "2", "--submit-retries", "0", command=("true",))
        until(lambda: "answered 500" in str(_slot(place, 1).get("detail")))
        assert _slot(place, 1)["state"] == "submitting"
        code, said = outcome_of(launcher)
        assert code == 83, said
        assert "answered 500: InternalServerError" in said.splitlines()[-1]


@pytest.mark.schedulers
def test_a_launch_from_a_laptop_ends_its_runs_when_it_is_told_to_end(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as place:
        launcher = start(place, "--nnodes", "2", "--no-local-node", command=WAITING)
        until(lambda: sum(run.status == "running" for run in place.vessl.runs.values()) == 2)
        launcher.terminate()
        code, said = outcome_of(launcher)
        assert code == 143, said
        assert {name for name, _ in over(place)} == {"0-1", "1-1"}


@pytest.mark.schedulers
def test_a_run_that_stays_pending_is_named_and_ended_with_the_others(tmp_path: Path) -> None:
    with serving(tmp_path, 3) as place:
        place.vessl.pending = lambda run: run.name.endswith("-3-1")
        launcher = start(place, "--nnodes", "4", command=WAITING)
        until(lambda: _slot_state(place, 3) == "queued")
        launcher.terminate()
        code, said = outcome_of(launcher)
        assert code == 143, said
        assert dict(over(place))["3-1"] == "terminated"


def _slot_state(place: Place, slot: int) -> str | None:
    """What the registry has heard of a slot's run."""
    return _slot(place, slot).get("state")


def _slot(place: Place, slot: int) -> dict[str, Any]:
    slots = _status(place).get("slots", [])
    return next((dict(found) for found in slots if found["slot"] == slot), {})


def _status(place: Place) -> dict[str, Any]:
    argv = [str(BIN / "rdzv"), "status", "r", "--json"]
    done = place.person.run(argv, env=place.environ(), check=False)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


@pytest.mark.schedulers
def test_a_launcher_that_was_killed_finds_its_runs_again(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as place:
        place.vessl.pending = lambda run: True
        first = start(place, "--nnodes", "3", command=("sh", "-c", "exit 0"))
        until(lambda: len(place.vessl.runs) == 2)
        first.kill()
        first.wait()
        second = start(place, "--nnodes", "3", command=("sh", "-c", "exit 0"))
        place.vessl.pending = lambda run: False
        code, said = outcome_of(second)
        assert code == 0, said + place.told()
        assert sorted(over(place)) == [("1-1", "completed"), ("2-1", "completed")], said


@pytest.mark.schedulers
def test_two_launchers_of_one_name_leave_each_others_runs_alone(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as place:
        place.vessl.pending = lambda run: True
        launchers = [
            start(place, "--nnodes", "2", "--state-dir", str(tmp_path / name), command=WAITING)
            for name in ("one", "two")
        ]
        until(lambda: len(place.vessl.runs) == 2)
        launchers[0].terminate()
        assert outcome_of(launchers[0])[0] == 143
        assert sorted(run.status for run in place.vessl.runs.values()) == ["pending", "terminated"]
        launchers[1].terminate()
        assert outcome_of(launchers[1])[0] == 143
        assert {status for _, status in over(place)} == {"terminated"}


@pytest.mark.schedulers
def test_an_evicted_run_ends_the_job_and_no_other_run_is_left(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as place:
        launcher = start(place, "--nnodes", "3", "--lease", "3", command=WAITING)
        until(lambda: _status(place).get("phase") == "running", seconds=LIMIT_SECONDS)
        victim = place.vessl.named("-2-1")[0]
        place.vessl.evict(victim)
        code, said = outcome_of(launcher)
        assert code != 0
        assert "slot 2)" in said.strip().splitlines()[-1]
        over(place)
        assert victim.status == "failed"


def example(folder: Path, scheduler: str) -> Path:
    """A repository in the form of the public example, with the `run:` lines changed."""
    repository = folder / "training"
    shutil.copytree(DATA, repository / "specs")
    (repository / "train.sh").write_text(
        'echo "$ROLE $NODE_RANK of $NNODES at $MASTER_ADDR: $RDZV_ID, ${RDZV_JOIN-no secret}"\n'
    )
    launcher = repository / "specs" / "launcher.yaml"
    launcher.write_text(launcher.read_text().replace("--scheduler vessl ", f"{scheduler} "))
    return repository


def check_example(place: Place) -> None:
    """All runs are over, every node had its rank, and the worker runs can be told apart."""
    over(place)
    launcher, *workers = place.vessl.runs.values()
    assert [run.status for run in place.vessl.runs.values()] == ["completed"] * 3, place.told()
    assert launcher.name == "nccl-launcher"
    assert len({run.name for run in workers}) == 2
    assert all(run.name.startswith("rdzv-") for run in workers)
    master = "10.77.0.12"
    said = sorted(_said(run) for run in place.vessl.runs.values())
    assert said == [
        f"launcher 0 of 3 at {master}: some_uniq_id, no secret",
        f"worker 1 of 3 at {master}: some_uniq_id, no secret",
        f"worker 2 of 3 at {master}: some_uniq_id, no secret",
    ]


def _said(run: Run) -> str:
    return next((line for _, line in run.lines if " of 3 at " in line), "nothing")


def test_specs_in_the_form_of_the_public_example_run_with_their_run_line_changed(
    tmp_path: Path,
) -> None:
    repository = example(tmp_path, "--scheduler vessl-http")
    with serving(tmp_path, 3, mounts={"/repo/": repository}) as place:
        place.vessl.create("llama", (repository / "specs" / "launcher.yaml").read_text())
        until(lambda: not living(place.vessl), seconds=LIMIT_SECONDS)
        check_example(place)
