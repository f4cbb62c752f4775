"""The whole path on VESSL: the runs that the service starts form one run, and all of them end."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.launching import RDZV
from tests.vessl.place import LIMIT_SECONDS, serving
from tests.vessl.service import environment_of

DATA = Path(__file__).parent / "data"
SETTINGS = (
    "REPOSITORY=git://github.com/acme/rdzv.git",
    "CLUSTER=gpu-cluster",
    "PRESET=gpu-h100-80g-xlarge",
    "IMAGE=registry/image:tag",
)
SCHEDULER = ("--scheduler", "vessl-http", *(word for each in SETTINGS for word in ("--set", each)))

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]


def test_runs_that_are_submitted_join_and_end_with_the_launch(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as place:
        words = [
            "--nnodes",
            "3",
            "--framework",
            "command",
            "--",
            "sh",
            "-c",
            "echo rank $NODE_RANK",
        ]
        launcher = place.person.start(
            [RDZV, "launch", "--rdzv-id", "r", *SCHEDULER, *words],
            env=place.environ(),
            stdout=subprocess.PIPE,
        )
        said, _ = launcher.communicate(timeout=LIMIT_SECONDS)
        assert launcher.returncode == 0, said + place.told()
        assert place.finish() == ["completed"] * 2
        runs = list(place.vessl.runs.values())
    assert sorted(run.name[-4:] for run in runs) == ["-1-1", "-2-1"]
    lines = [line for run in runs for _, line in run.lines]
    assert sorted(line for line in lines if line.startswith("rank ")) == ["rank 1", "rank 2"]
    assert [set(environment_of(run.spec)) for run in runs] == [{"RDZV_JOIN"}] * 2


def test_specs_in_the_form_of_the_public_example_run_with_their_run_line_changed(
    tmp_path: Path,
) -> None:
    repository = tmp_path / "training"
    shutil.copytree(DATA, repository / "specs")
    (repository / "train.sh").write_text(
        'echo "$ROLE $NODE_RANK of $NNODES at $MASTER_ADDR: $RDZV_ID, ${RDZV_JOIN-no secret}"\n'
    )
    spec = (
        (DATA / "launcher.yaml").read_text().replace("--scheduler vessl", "--scheduler vessl-http")
    )
    with serving(tmp_path, 3, mounts={"/repo/": repository}) as place:
        place.vessl.create("llama", spec)
        assert place.finish() == ["completed"] * 3, place.told()
        launcher, *workers = place.vessl.runs.values()
        master = place.vessl.cluster.hosts[0].address if place.vessl.cluster else ""
    assert launcher.name == "nccl-launcher"
    assert len({run.name for run in workers if run.name.startswith("rdzv-")}) == 2
    lines = [line for run in (launcher, *workers) for _, line in run.lines]
    assert sorted(line for line in lines if " of 3 at " in line) == [
        f"launcher 0 of 3 at {master}: some_uniq_id, no secret",
        f"worker 1 of 3 at {master}: some_uniq_id, no secret",
        f"worker 2 of 3 at {master}: some_uniq_id, no secret",
    ]
