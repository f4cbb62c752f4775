"""The whole path on VESSL: the runs that the service starts form one run, and all of them end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder
from tests.support.launching import BIN
from tests.support.listening import listen_on
from tests.support.netlab import Host, Lab
from tests.support.vendors import vessl_folder
from tests.support.venvs import build
from tests.support.waiting import until
from tests.vessl.service import FINAL, QUIET, Cluster, Vessl, environment_of

pytestmark = [pytest.mark.netns, pytest.mark.timeout(500)]

LIMIT_SECONDS = 100.0
DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
YOURS = {
    "your-cluster": "gpu-cluster",
    'NUM_NODES: "2"': 'NUM_NODES: "3"',
    'GPUS_PER_NODE: "8"': 'GPUS_PER_NODE: "1"',
    "-- /code/train.py": "--framework command -- sh /code/train.sh",
}


@dataclass
class Place:
    """The service, its cluster, and the host of the person who submits."""

    vessl: Vessl
    person: Host

    def told(self) -> str:
        """All that the runs have said, for a test that has failed."""
        runs = self.vessl.runs.values()
        lines = [f"{run.name} {run.status}: {line}" for run in runs for _, line in run.lines]
        return "\n".join(lines)

    def finish(self) -> list[str]:
        """Wait until all runs are over; their statuses, the launcher's first."""
        runs = self.vessl.runs
        until(lambda: all(run.status in FINAL for run in list(runs.values())), LIMIT_SECONDS)
        return [run.status for run in runs.values()]


def launcher_spec(folder: Path, script: str, **changes: str) -> Path:
    """The shipped launcher spec as a person has filled it in, and the program that it runs."""
    (folder / "code").mkdir()
    (folder / "code" / "train.sh").write_text(script)
    text = (specs_folder() / "launcher.yaml").read_text()
    for old, new in {**YOURS, **changes}.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "launcher.yaml").write_text(text)
    return folder / "launcher.yaml"


@contextlib.contextmanager
def serving(
    folder: Path, nodes: int, mounts: dict[str, Path] | None = None, *, path: str = "", **more: str
) -> Iterator[Place]:
    """A cluster of so many nodes, the API, and a person.

    The folder's `code` is imported as /code/; mounts are further ones, by their place in the run.
    """
    imported = {"/code/": f"{folder}/code/"}
    imported |= {mount: f"{place}/" for mount, place in (mounts or {}).items()}
    with Lab(["api", "person", *(f"n{number}" for number in range(nodes))]) as lab:
        environ = {
            "PATH": ":".join(filter(None, (path, str(BIN), os.environ["PATH"]))),
            "LC_ALL": "C.UTF-8",
            **more,
        }
        cluster = Cluster(folder / "cluster", environ, imported, lab.hosts[2:])
        cluster.folder.mkdir()
        with Vessl(cluster=cluster, listener=listen_on(lab.hosts[0])) as vessl:
            environ["VESSL_API_HOST"] = vessl.host
            yield Place(vessl, lab.hosts[1])


# ---- launches -----------------------------------------------------------------------------------


@pytest.mark.schedulers
@pytest.mark.nightly
def test_specs_in_the_form_of_the_public_example_run(tmp_path: Path) -> None:
    repository = tmp_path / "training"
    shutil.copytree(DATA, repository / "specs")
    (repository / "train.sh").write_text(
        'echo "$ROLE $NODE_RANK of $NNODES at $MASTER_ADDR: $RDZV_ID, ${RDZV_JOIN-no secret}"\n'
    )
    spec = (DATA / "launcher.yaml").read_text()
    with serving(tmp_path, 3, {"/repo/": repository}) as place:
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
    changes["RDZV_SCHEDULER: vessl-http"] = "RDZV_SCHEDULER: vessl"
    script = 'echo "node $NODE_RANK of $NNODES, $NCCL_IB_HCA"\n'
    argv = ["vessl", "run", "create", "-f", str(launcher_spec(tmp_path, script, **changes))]
    with serving(tmp_path, 3, path=commands) as place:
        own = {"HOME": str(tmp_path), "PATH": f"{commands}:/usr/bin:/bin:/usr/sbin:/sbin"}
        env = place.vessl.environ() | QUIET | own
        said = place.person.run(argv, env=env, timeout=LIMIT_SECONDS).stdout
        assert f"https://app.vessl.ai/acme/runs/llama/{min(place.vessl.runs)}" in said
        assert place.finish() == ["completed"] * 3, place.told()
        launcher, *workers = place.vessl.runs.values()
    lines = [line for run in (launcher, *workers) for _, line in run.lines]
    found = sorted(line for line in lines if line.startswith("node "))
    assert found == [f"node {rank} of 3, mlx5" for rank in range(3)]
    assert launcher.lines[-1][1].startswith("rdzv: run 'job1' ok: all 3 nodes ended")
    assert [set(environment_of(run.spec)) for run in workers] == [{"RDZV_JOIN", "INSTALL"}] * 2
    for field in ("resources", "image", "import"):  # each stands once in the launcher's file
        assert [run.spec[field] for run in workers] == [launcher.spec[field]] * 2


@pytest.mark.schedulers
def test_an_image_without_rdzv_gets_that_of_a_wheel_by_its_url(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    build(str(ROOT / "constraints.txt"), "--out-dir", str(wheels), str(ROOT))
    (wheel,) = wheels.glob("*.whl")
    pins = ["--constraint", str(ROOT / "constraints.txt"), "--dest", str(wheels)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", *pins, f"{wheel}[launcher]"]
    subprocess.run(pip, check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    changes = {
        "rdzv[launcher]==0.1.0": f"rdzv[launcher] @ {wheel.as_uri()}",
        "/opt/rdzv": "$HOME/own",  # a container has a file system of its own
        "/usr/local/bin/rdzv": "$HOME/rdzv",
    }
    spec = launcher_spec(tmp_path, 'echo "node $NODE_RANK of $NNODES"\n', **changes)
    path = f".:{tmp_path}/bin:/usr/bin:/bin:/usr/sbin:/sbin"  # a run begins in its home
    more = {
        "PATH": path,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
    }
    with serving(tmp_path, 3, None, **more) as place:
        place.vessl.create("llama", spec.read_text())
        assert place.finish() == ["completed"] * 3, place.told()
        said = place.told()
        homes = [place.vessl.cluster.folder / str(run) for run in place.vessl.runs]  # type: ignore[union-attr]
    assert [f"node {rank} of 3" in said for rank in range(3)] == [True] * 3
    assert [(home / "rdzv").resolve() for home in homes] == [
        home / "own/bin/rdzv" for home in homes
    ]


@pytest.mark.nightly
@pytest.mark.schedulers
@pytest.mark.torch
def test_the_shipped_launcher_trains_as_it_is(tmp_path: Path) -> None:
    text = (specs_folder() / "launcher.yaml").read_text()
    for old in ("your-cluster", 'GPUS_PER_NODE: "8"'):
        text = text.replace(old, YOURS[old])
    (tmp_path / "code").mkdir()
    shutil.copy(EXAMPLES / "digits.py", tmp_path / "code" / "train.py")
    with serving(tmp_path, 2, OMP_NUM_THREADS="1") as place:
        place.vessl.create("llama", text)
        assert place.finish() == ["completed"] * 2, place.told()
        said = place.told()
    assert "digits: accuracy 0.9" in said
    assert "on 2 processes (2 nodes)" in said
