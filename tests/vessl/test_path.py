"""The whole path on VESSL: the runs that the service starts form one run, and all of them end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.vessl.place import serving

DATA = Path(__file__).parent / "data"

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]


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
    assert sorted(run.name[-4:] for run in workers) == ["-1-1", "-2-1"]
    lines = [line for run in (launcher, *workers) for _, line in run.lines]
    assert sorted(line for line in lines if " of 3 at " in line) == [
        f"launcher 0 of 3 at {master}: some_uniq_id, no secret",
        f"worker 1 of 3 at {master}: some_uniq_id, no secret",
        f"worker 2 of 3 at {master}: some_uniq_id, no secret",
    ]
