"""`rdzv launch --scheduler kubernetes` with the real kubectl; the pods are processes on hosts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api import Cluster
from tests.kubernetes.kubelet import Kubelet, working
from tests.support.kubernetes_specs import UGLY, rules
from tests.support.launching import RDZV, Outcome, environment
from tests.support.listening import listen_on
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.schedulers("kubectl"), pytest.mark.netns, pytest.mark.timeout(240)]

LIMIT_SECONDS = 90.0
NOTE = (
    "import json, os, pathlib, socket, sys; "
    "pathlib.Path(sys.argv[1], os.environ['NODE_RANK'])"
    ".write_text(json.dumps([socket.gethostname(), sys.argv[2:]]))"
)


class Kubernetes:
    """A launcher's host and a small cluster beside it."""

    def __init__(self, lab: Lab, kubelet: Kubelet, folder: Path) -> None:
        self.lab, self.kubelet, self.cluster = lab, kubelet, kubelet.cluster
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.output = folder / "output"
        config = str(folder / "kubeconfig")
        self.environment = environment(folder / "state", KUBECONFIG=config)

    def wait_until_empty(self) -> None:
        """Until there is no Secret, and no Job that has not ended."""
        until(lambda: not self.cluster.names("secrets") and not self.kubelet.living())

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Launch a run of three nodes: one here, two in pods."""
        options = ["--rdzv-id", "r", "--nnodes", "3", "--framework", "command", "--hosts", "off"]
        options += ["--scheduler", "kubernetes", "--set", "IMAGE=image", "--set", "GPUS=0"]
        with self.output.open("w") as file:
            argv = [RDZV, "launch", *options, "--", *command]
            return self.lab.hosts[0].start(argv, env=self.environment, stdout=file)

    def finish(self, process: subprocess.Popen[str]) -> Outcome:
        """Wait for the end."""
        return Outcome(process.wait(LIMIT_SECONDS), "", self.output.read_text())

    def noted(self) -> dict[str, list[Any]]:
        """What each node has written of itself, by rank."""
        return {path.name: json.loads(path.read_text()) for path in self.notes.iterdir()}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Kubernetes]:
    """A host for the launcher, and two for pods."""
    with Lab(3) as lab:
        listener = listen_on(lab.hosts[0])
        with working(Cluster(rules()), tmp_path, listener, lab.hosts[1:]) as kubelet:
            yield Kubernetes(lab, kubelet, tmp_path)


def test_a_run_forms_in_pods_and_leaves_nothing(up: Kubernetes) -> None:
    words = [value for value in UGLY if "\n" not in value]
    done = up.finish(up.start(sys.executable, "-c", NOTE, str(up.notes), *words))
    assert done.code == 0, done.err
    up.wait_until_empty()
    found = up.noted()
    assert found["0"][0] == "h0"
    assert sorted(found.values()) == [[host, words] for host in ("h0", "h1", "h2")]


def test_a_launcher_that_is_killed_while_pods_wait_submits_nothing_twice(up: Kubernetes) -> None:
    up.cluster.quota = 1
    first = up.start("true")
    until(lambda: re.search("queued.*exceeded quota: gpus", up.output.read_text()))
    until(lambda: len(up.kubelet.living()) == 2)
    before = up.kubelet.living()
    first.kill()
    first.wait()
    up.cluster.quota = 2
    done = up.finish(up.start("true"))
    assert done.code == 0, done.err
    assert "resuming launch" in done.err
    up.wait_until_empty()
    assert {pod.removesuffix("-x7k2p") for pod in up.kubelet.running} == set(before)
