"""Where the tests of VESSL happen: a cluster of emulated hosts with the API on one of them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rdzv_command
from launcher.schedulers.shipped import specs_folder
from tests.support.launching import BIN
from tests.support.listening import listen_on
from tests.support.netlab import Host, Lab
from tests.support.waiting import until
from tests.vessl.service import FINAL, Cluster, Vessl

LIMIT_SECONDS = 100.0
QUIET = {"VESSL_DATA_COLLECTION_OPT_OUT": "true", "ENABLE_SENTRY": "false"}
TOOLS = "/usr/bin:/bin:/usr/sbin:/sbin"
EXAMPLES = Path(__file__).parents[2] / "examples"
YOURS = {
    "your-cluster": "gpu-cluster",
    'NUM_NODES: "2"': 'NUM_NODES: "3"',
    'GPUS_PER_NODE: "8"': 'GPUS_PER_NODE: "1"',
    "launch -- /rdzv/examples/digits.py": "launch --framework command -- sh /code/train.sh",
}


@dataclass
class Place:
    """The service, its cluster, and the host of the person who submits."""

    vessl: Vessl
    person: Host
    folder: Path

    def environ(self, **more: str) -> dict[str, str]:
        """The person's environment."""
        home = self.folder / "person"
        home.mkdir(exist_ok=True)
        return self.vessl.environ() | QUIET | {"HOME": str(home)} | more

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


def checkout(folder: Path) -> Path:
    """A checkout of rdzv as an import leaves it; the image has the same rdzv on its PATH."""
    place, installed = folder / "rdzv", Path(rdzv_command.__file__).parent
    shutil.copytree(specs_folder(), place / "specs")
    shutil.copytree(EXAMPLES, place / "examples")
    shutil.copy(installed / "rdzv_command.py", place)
    without = shutil.ignore_patterns("__pycache__", "specs")
    for package in ("rendezvous", "worker", "launcher"):
        shutil.copytree(installed / package, place / package, ignore=without)
    return place


@contextlib.contextmanager
def serving(
    folder: Path, nodes: int, *, path: str = "", mounts: dict[str, Path] | None = None, **more: str
) -> Iterator[Place]:
    """A cluster of so many nodes, the API, and a person.

    The folder's `code` is imported as /code/; mounts are further ones, by their place in the run.
    """
    imported = {"/rdzv/": f"{checkout(folder)}/", "/code/": f"{folder}/code/"}
    imported |= {mount: f"{place}/" for mount, place in (mounts or {}).items()}
    with Lab(["api", "person", *(f"n{number}" for number in range(nodes))]) as lab:
        environ = {
            "PATH": ":".join(filter(None, (path, str(BIN), os.environ["PATH"]))),
            "RDZV_VENV": str(folder / "installed"),
            "LC_ALL": "C.UTF-8",
            **more,
        }
        cluster = Cluster(folder / "cluster", environ, imported, lab.hosts[2:])
        cluster.folder.mkdir()
        with Vessl(cluster=cluster, listener=listen_on(lab.hosts[0])) as vessl:
            environ["VESSL_API_HOST"] = vessl.host
            yield Place(vessl, lab.hosts[1], folder)
