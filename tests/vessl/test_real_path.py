"""The headline: `vessl run create -f specs/launcher.yaml`, with VESSL's own command."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder
from tests.support.vendors import vessl_folder
from tests.support.waiting import until
from tests.vessl.place import LIMIT_SECONDS, TOOLS, YOURS, Place, launcher_spec, serving
from tests.vessl.service import environment_of

pytestmark = [pytest.mark.schedulers, pytest.mark.netns, pytest.mark.timeout(500)]


def vessl(place: Place, commands: str, *words: str) -> str:
    """What a person who types this is told."""
    env = place.environ(PATH=f"{commands}:{TOOLS}")
    done = place.person.run(["vessl", "run", *words], env=env, timeout=LIMIT_SECONDS)
    return done.stdout + done.stderr


def test_the_shipped_launcher_starts_a_run_for_each_further_node_and_all_end(
    tmp_path: Path,
) -> None:
    commands = vessl_folder()
    changes = {"ROLE: launcher": "ROLE: launcher\n  NCCL_IB_HCA: mlx5"}
    script = 'echo "node $NODE_RANK of $NNODES, $NCCL_IB_HCA"\n'
    spec = launcher_spec(tmp_path, script, **changes)
    with serving(tmp_path, 3, path=commands) as place:
        said = vessl(place, commands, "create", "-f", str(spec))
        assert f"https://app.vessl.ai/acme/runs/llama/{min(place.vessl.runs)}" in said
        assert place.finish() == ["completed"] * 3, place.told()
        launcher, *workers = place.vessl.runs.values()
    lines = [line for run in (launcher, *workers) for _, line in run.lines]
    found = sorted(line for line in lines if line.startswith("node "))
    assert found == [f"node {rank} of 3, mlx5" for rank in range(3)]
    assert launcher.lines[-1][1].startswith("rdzv: run 'digits' ok: all 3 nodes ended")
    assert [set(environment_of(run.spec)) for run in workers] == [{"RDZV_JOIN"}] * 2


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


def test_a_launcher_that_is_terminated_leaves_no_run(tmp_path: Path) -> None:
    commands = vessl_folder()
    script = "echo training; trap 'exit 0' TERM; while :; do sleep 0.05; done\n"
    spec = launcher_spec(tmp_path, script)
    with serving(tmp_path, 3, path=commands) as place:
        launcher = place.vessl.create("llama", spec.read_text())
        until(lambda: place.told().count(": training") == 3, LIMIT_SECONDS)
        said = vessl(place, commands, "terminate", str(launcher.id))
        assert f"Terminated '#{launcher.id}'." in said
        assert place.finish()[0] == "terminated"
        assert len(place.vessl.runs) == 3
