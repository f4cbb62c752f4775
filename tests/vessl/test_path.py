"""The whole path on VESSL: the runs that the service starts form one run, and all of them end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder
from tests.support.vendors import vessl_folder
from tests.vessl.place import LIMIT_SECONDS, TOOLS, YOURS, launcher_spec, serving
from tests.vessl.service import environment_of

DATA = Path(__file__).parent / "data"

pytestmark = [pytest.mark.netns, pytest.mark.timeout(500)]


def test_specs_in_the_form_of_the_public_example_run(tmp_path: Path) -> None:
    repository = tmp_path / "training"
    shutil.copytree(DATA, repository / "specs")
    (repository / "train.sh").write_text(
        'echo "$ROLE $NODE_RANK of $NNODES at $MASTER_ADDR: $RDZV_ID, ${RDZV_JOIN-no secret}"\n'
    )
    spec = (DATA / "launcher.yaml").read_text()
    with serving(tmp_path, 3, mounts={"/repo/": repository}) as place:
        place.vessl.create("llama", spec.replace("--scheduler vessl", "--scheduler vessl-http"))
        assert place.finish() == ["completed"] * 3, place.told()
        launcher, *workers = place.vessl.runs.values()
        master = place.vessl.cluster.hosts[0].address if place.vessl.cluster else ""
    assert launcher.name == "nccl-launcher"
    assert sorted(run.name[-4:] for run in workers) == ["-1-1", "-2-1"]
    lines = [line for run in (launcher, *workers) for _, line in run.lines]
    assert sorted(line for line in lines if " of 3 at " in line) == [
        f"{role} {rank} of 3 at {master}: some_uniq_id, no secret"
        for rank, role in enumerate(("launcher", "worker", "worker"))
    ]


@pytest.mark.schedulers
def test_the_shipped_launcher_starts_a_run_for_each_other_node_and_all_end(tmp_path: Path) -> None:
    """The headline: `vessl run create -f specs/launcher.yaml`, with VESSL's own command."""
    commands = vessl_folder()
    changes = {"ROLE: launcher": "ROLE: launcher\n  NCCL_IB_HCA: mlx5"}
    script = 'echo "node $NODE_RANK of $NNODES, $NCCL_IB_HCA"\n'
    argv = ["vessl", "run", "create", "-f", str(launcher_spec(tmp_path, script, **changes))]
    with serving(tmp_path, 3, path=commands) as place:
        env = place.environ(PATH=f"{commands}:{TOOLS}")
        said = place.person.run(argv, env=env, timeout=LIMIT_SECONDS).stdout
        assert f"https://app.vessl.ai/acme/runs/llama/{min(place.vessl.runs)}" in said
        assert place.finish() == ["completed"] * 3, place.told()
        launcher, *workers = place.vessl.runs.values()
    lines = [line for run in (launcher, *workers) for _, line in run.lines]
    found = sorted(line for line in lines if line.startswith("node "))
    assert found == [f"node {rank} of 3, mlx5" for rank in range(3)]
    assert launcher.lines[-1][1].startswith("rdzv: run 'digits' ok: all 3 nodes ended")
    assert [set(environment_of(run.spec)) for run in workers] == [{"RDZV_JOIN"}] * 2


@pytest.mark.schedulers
@pytest.mark.torch
def test_the_shipped_launcher_trains_as_it_is(tmp_path: Path) -> None:
    text = (specs_folder() / "launcher.yaml").read_text()
    for old in ("your-cluster", 'GPUS_PER_NODE: "8"'):
        text = text.replace(old, YOURS[old])
    # The image has no vessl command: start.sh lets the launcher use the API by itself.
    with serving(tmp_path, 2, OMP_NUM_THREADS="1") as place:
        place.vessl.create("llama", text)
        assert place.finish() == ["completed"] * 2, place.told()
        said = place.told()
    assert "digits: accuracy 0.9" in said
    assert "on 2 processes (2 nodes)" in said
