"""The headline: `vessl run create -f specs/launcher.yaml`, with VESSL's own command."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder
from tests.support.notes import add_note
from tests.support.vendors import vessl_folder
from tests.support.waiting import until
from tests.vessl.place import LIMIT_SECONDS, Place, living, serving
from tests.vessl.service import environment_of
from tests.vessl.test_path import check_example, example

pytestmark = [pytest.mark.schedulers, pytest.mark.netns, pytest.mark.timeout(500)]

YOURS = {
    "your-cluster": "gpu-cluster",
    'NUM_NODES: "2"': 'NUM_NODES: "3"',
    'GPUS_PER_NODE: "8"': 'GPUS_PER_NODE: "1"',
    "launch -- /rdzv/examples/digits.py": "launch --framework command -- sh /code/train.sh",
}


def submit(place: Place, commands: str, spec: Path) -> str:
    """What a person types, and is told."""
    done = place.person.run(
        ["vessl", "run", "create", "-f", str(spec)],
        env=place.environ(PATH=f"{commands}:/usr/bin:/bin:/usr/sbin:/sbin"),
        timeout=LIMIT_SECONDS,
    )
    return done.stdout


def launcher_spec(folder: Path, **changes: str) -> Path:
    """The shipped launcher spec as a person has filled it in."""
    text = (specs_folder() / "launcher.yaml").read_text()
    for old, new in {**YOURS, **changes}.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "launcher.yaml"
    path.write_text(text)
    return path


def program(folder: Path, script: str) -> Path:
    """A folder with the user's program."""
    (folder / "code").mkdir()
    (folder / "code" / "train.sh").write_text(script)
    return folder / "code"


def finish(place: Place) -> list[str]:
    """Wait until all runs are over; their statuses, the launcher's first."""
    try:
        until(lambda: not living(place.vessl), seconds=LIMIT_SECONDS)
    except AssertionError as error:
        add_note(error, place.told())
        raise
    return [run.status for run in place.vessl.runs.values()]


def training(place: Place) -> int:
    """How many runs have started the program."""
    runs = place.vessl.runs.values()
    return sum(any(line == "training" for _, line in list(run.lines)) for run in list(runs))


def test_the_shipped_launcher_starts_a_run_for_each_further_node_and_all_end(
    tmp_path: Path,
) -> None:
    commands = vessl_folder()
    code = program(tmp_path, 'echo "node $NODE_RANK of $NNODES, $NCCL_IB_HCA"\n')
    spec = launcher_spec(tmp_path, **{"ROLE: launcher": "ROLE: launcher\n  NCCL_IB_HCA: mlx5"})
    with serving(tmp_path, 3, path=commands, mounts={"/code/": code}) as place:
        said = submit(place, commands, spec)
        assert f"https://app.vessl.ai/acme/runs/llama/{min(place.vessl.runs)}" in said
        assert finish(place) == ["completed"] * 3, place.told()
        launcher, *workers = place.vessl.runs.values()
        assert launcher.lines[-1][1] == (
            "rdzv: run 'digits' ok: all 3 nodes ended with exit code 0 after "
            + launcher.lines[-1][1].rpartition(" after ")[2]
        )
        assert sorted(
            line
            for run in place.vessl.runs.values()
            for _, line in run.lines
            if line.startswith("node ")
        ) == [f"node {rank} of 3, mlx5" for rank in range(3)]
        assert all(set(environment_of(run.spec)) == {"RDZV_JOIN"} for run in workers)


@pytest.mark.torch
def test_the_shipped_launcher_trains_as_it_is(tmp_path: Path) -> None:
    changes = {name: YOURS[name] for name in ("your-cluster", 'GPUS_PER_NODE: "8"')}
    text = (specs_folder() / "launcher.yaml").read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    (tmp_path / "launcher.yaml").write_text(text)
    commands = vessl_folder()
    # The image has no vessl command: start.sh lets the launcher use the API by itself.
    with serving(tmp_path, 2, OMP_NUM_THREADS="1") as place:
        submit(place, commands, tmp_path / "launcher.yaml")
        assert finish(place) == ["completed"] * 2, place.told()
        said = place.told()
        assert "digits: accuracy 0.9" in said
        assert "on 2 processes (2 nodes)" in said


@pytest.mark.nightly
def test_specs_in_the_form_of_the_public_example_run_with_their_run_line_changed(
    tmp_path: Path,
) -> None:
    commands = vessl_folder()
    repository = example(tmp_path, "--scheduler vessl")
    with serving(tmp_path, 3, path=commands, mounts={"/repo/": repository}) as place:
        submit(place, commands, repository / "specs" / "launcher.yaml")
        finish(place)
        check_example(place)


def test_a_launcher_that_is_terminated_leaves_no_run(tmp_path: Path) -> None:
    commands = vessl_folder()
    code = program(tmp_path, "echo training; trap 'exit 0' TERM; while :; do sleep 0.05; done\n")
    with serving(tmp_path, 3, path=commands, mounts={"/code/": code}) as place:
        submit(place, commands, launcher_spec(tmp_path))
        launcher = place.vessl.runs[min(place.vessl.runs)]
        until(lambda: training(place) == 3, seconds=LIMIT_SECONDS)
        done = place.person.run(
            ["vessl", "run", "terminate", str(launcher.id)],
            env=place.environ(PATH=f"{commands}:/usr/bin:/bin:/usr/sbin:/sbin"),
            timeout=LIMIT_SECONDS,
        )
        assert f"Terminated '#{launcher.id}'." in done.stdout + done.stderr
        assert finish(place)[0] == "terminated"
        assert len(place.vessl.runs) == 3


def test_runs_whose_launcher_is_gone_end_by_themselves(tmp_path: Path) -> None:
    code = program(tmp_path, "echo training; trap 'exit 0' TERM; while :; do sleep 0.05; done\n")
    spec = launcher_spec(tmp_path, **{"RDZV_SCHEDULER: vessl": "RDZV_SCHEDULER: vessl-http"})
    with serving(tmp_path, 3, mounts={"/code/": code}, RDZV_ORPHAN_TIMEOUT="3") as place:
        launcher = place.vessl.create("llama", spec.read_text())
        until(lambda: training(place) == 3, seconds=LIMIT_SECONDS)
        place.vessl.evict(launcher)
        assert len(finish(place)) == 3
        assert launcher.reason == "Preempted: the node was reclaimed"


def test_a_python_that_the_command_cannot_run_on_is_told_with_the_other_way(
    tmp_path: Path,
) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "vessl").write_text(
        "#!/bin/sh\necho 'Traceback (most recent call last):' >&2\n"
        "echo \"ModuleNotFoundError: No module named 'packaging'\" >&2\nexit 1\n"
    )
    (dead / "vessl").chmod(0o755)
    code = program(tmp_path, "exit 0\n")
    with serving(tmp_path, 1, path=str(dead), mounts={"/code/": code}) as place:
        place.vessl.create("llama", launcher_spec(tmp_path).read_text())
        assert finish(place) == ["failed"]
        said = place.told()
        assert "ModuleNotFoundError: No module named 'packaging'" in said
        assert "--scheduler vessl-http" in said
