"""`rdzv launch --scheduler kubernetes` with the real kubectl; the pods are processes on hosts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kubernetes.api import Cluster, Object
from tests.kubernetes.kubelet import Kubelet, working
from tests.support.kubernetes_specs import FOLDER, UGLY, rules
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

    def shell(self, line: str) -> str:
        """What a line prints that a person types on the launcher's host."""
        return self.lab.hosts[0].run(["sh", "-ec", line], env=self.environment).stdout

    def noted(self) -> dict[str, list[object]]:
        """What each node has written of itself, by rank."""
        return {path.name: json.loads(path.read_text()) for path in self.notes.iterdir()}


@contextmanager
def cluster(folder: Path, role: list[Object], *pods: str) -> Iterator[Kubernetes]:
    """A host for the launcher, and hosts for pods."""
    with Lab(["h0", *pods]) as lab:
        up = Cluster(role)
        with working(up, folder, listen_on(lab.hosts[0]), lab.hosts[1:]) as kubelet:
            yield Kubernetes(lab, kubelet, folder)


def test_a_run_forms_in_pods_and_leaves_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path, rules(), "h1", "h2") as up:
        words = [value for value in UGLY if "\n" not in value]
        done = up.finish(up.start(sys.executable, "-c", NOTE, str(up.notes), *words))
        assert done.code == 0, done.err
        up.wait_until_empty()
        found = up.noted()
    assert found["0"][0] == "h0"
    assert sorted(map(str, found.values())) == [str([host, words]) for host in ("h0", "h1", "h2")]


def test_a_launcher_that_is_killed_while_pods_wait_submits_nothing_twice(tmp_path: Path) -> None:
    with cluster(tmp_path, rules(), "h1", "h2") as up:
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


def test_the_symmetric_job_forms_as_its_first_lines_say(tmp_path: Path) -> None:
    resources = ["jobs", "pods", "secrets", "services", "pods/log"]
    anything = {"verbs": ["create", "get", "list", "delete"], "resources": resources}
    text = (FOLDER / "symmetric.yaml").read_text(encoding="utf-8")
    said = re.findall(r"^#     (.*)$", text, re.MULTILINE)
    names = [f"job1-{index}" for index in range(4)]
    with cluster(tmp_path, [anything], *names) as up:
        program = json.dumps([sys.executable, "-c", NOTE, str(up.notes), *UGLY[:12]])
        wanted = f"[{RDZV}, launch, --framework=command, --hosts=off, --, {program[1:]}"
        text = text.replace("[rdzv, launch, --, train.py, --epochs=3]", wanted)
        (tmp_path / "symmetric.yaml").write_text(text)
        # What the kubelet writes, and what the cluster's name server answers for rank 0.
        full = {pod.address: f"{pod.name}.job1.default.svc.cluster.local" for pod in up.lab.hosts}
        for host in up.lab.hosts[1:]:
            lines = ["127.0.0.1 localhost", f"{host.address} {full[host.address]} {host.name}"]
            lines += [f"{address} {name}" for address, name in full.items() if "job1-0" in name]
            host.hosts_file.write_text("\n".join([*lines, ""]))
        # This one kubectl would send in protobuf, which the stand-in does not read.
        up.shell(f"{said[0]} --dry-run=client --output=json | kubectl create --filename=-")
        up.shell(f"cd {tmp_path}; {said[1]}")
        until(lambda: len(up.noted()) == 4 and not up.kubelet.living(), LIMIT_SECONDS)
        log = tmp_path / "job1-0-x7k2p" / "log"  # the Job counts as over with its first pod
        until(lambda: "run 'job1' ok" in log.read_text(), LIMIT_SECONDS)
        up.shell(f"cd {tmp_path}; {said[3].replace('delete', 'delete --wait=false')}")
        up.wait_until_empty()
        assert up.noted() == {str(rank): [name, UGLY[:12]] for rank, name in enumerate(names)}
