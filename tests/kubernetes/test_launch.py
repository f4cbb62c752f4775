"""`rdzv launch --scheduler kubernetes` with the real kubectl; the pods are processes on hosts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes_specs import FOLDER, UGLY
from tests.support.launching import RDZV, Outcome, environment
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers("kubectl"),
    pytest.mark.netns,
    pytest.mark.timeout(240),
]

LIMIT_SECONDS = 90.0
NOTHING: dict[str, Any] = {"secrets": [], "living": []}
NOTE = (
    "import json, os, pathlib, socket, sys; "
    "pathlib.Path(sys.argv[1], os.environ['NODE_RANK'])"
    ".write_text(json.dumps([socket.gethostname(), sys.argv[2:]]))"
)
WAIT = "import time; time.sleep(1000)"


@dataclass
class Kubernetes:
    """A launcher's host and a small cluster beside it."""

    lab: Lab
    folder: Path

    def objects(self) -> dict[str, Any]:
        """The names of the Secrets that there are, and of the Jobs that have not ended."""
        found: dict[str, Any] = json.loads((self.folder / "objects.json").read_text())
        return found

    def is_empty(self) -> bool:
        """Whether there is nothing left, now or when that is next written down."""
        return until(lambda: self.objects() == NOTHING)

    def start(self, *words: str) -> Launch:
        """Launch a run of three nodes: one here, two in pods."""
        output = self.folder / "output"
        options = ["--rdzv-id", "r", "--nnodes", "3", "--framework", "command", "--hosts", "off"]
        argv = [RDZV, "launch", "--scheduler", "kubernetes", *options]
        with output.open("w") as file:
            process = self.lab.hosts[0].start(
                [*argv, "--set", "IMAGE=image", "--set", "GPUS=0", *words],
                env=self.environment(),
                stdout=file,
            )
        return Launch(process, output)

    def allow_pods(self, count: int) -> None:
        """Let there be this many pods."""
        new = self.folder / "quota.new"
        new.write_text(str(count))
        new.rename(self.folder / "quota")

    def shell(self, line: str) -> str:
        """What a line prints that a person types on the launcher's host."""
        return self.lab.hosts[0].run(["sh", "-ec", line], env=self.environment()).stdout

    def environment(self) -> dict[str, str]:
        """The environment of the launcher."""
        return environment(self.folder / "state", KUBECONFIG=str(self.folder / "kubeconfig"))


@dataclass
class Launch:
    """A launch, and what it prints."""

    process: subprocess.Popen[str]
    output: Path

    def wait_for(self, words: str) -> None:
        """Until it has printed what matches."""
        until(lambda: re.search(words, self.output.read_text()), LIMIT_SECONDS)

    def finish(self) -> Outcome:
        """Wait for the end."""
        code = self.process.wait(LIMIT_SECONDS)
        return Outcome(code, "", self.output.read_text())


@contextmanager
def cluster(folder: Path, *pods: str) -> Iterator[Kubernetes]:
    """A host for the launcher, and hosts for pods."""
    with Lab(["h0", *pods]) as lab:
        listed = [
            {"name": host.name, "address": host.address, "namespace": host.namespace}
            for host in lab.hosts[1:]
        ]
        (folder / "hosts.json").write_text(json.dumps(listed))
        up = Kubernetes(lab, folder)
        with (folder / "kubelet.log").open("w") as log:
            argv = [sys.executable, "-m", "tests.kubernetes.kubelet", str(folder)]
            env = environment(folder / "state", LC_ALL="C.UTF-8")
            kubelet = lab.hosts[0].start(argv, env=env, stdout=log)
        until((folder / "objects.json").exists, LIMIT_SECONDS)
        try:
            yield up
        finally:
            assert kubelet.poll() is None, (folder / "kubelet.log").read_text()


def test_a_run_forms_in_pods_and_leaves_nothing(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    with cluster(tmp_path, "h1", "h2") as up:
        words = [value for value in UGLY if "\n" not in value]
        program = [sys.executable, "-c", NOTE, str(notes), *words]
        done = up.start("--", *program).finish()
        assert done.code == 0, done.err
        assert up.is_empty()
    found = {path.name: json.loads(path.read_text()) for path in notes.iterdir()}
    assert {name for name, _ in found.values()} == {"h0", "h1", "h2"}
    assert found["0"][0] == "h0"
    assert all(said == words for _, said in found.values())


def test_what_a_quota_holds_back_is_said_and_a_cancelled_run_leaves_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "quota").write_text("1")
    with cluster(tmp_path, "h1", "h2") as up:
        launch = up.start("--", sys.executable, "-c", WAIT)
        launch.wait_for("queued.*exceeded quota: gpus")
        launch.process.send_signal(signal.SIGTERM)
        done = launch.finish()
        assert done.code == 128 + signal.SIGTERM, done.err
        assert "may still be there" not in done.err
        assert up.is_empty()


def test_a_pod_that_is_evicted_ends_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path, "h1", "h2") as up:
        launch = up.start("--", sys.executable, "-c", WAIT)
        launch.wait_for("all are: go")
        (job, _) = up.objects()["living"]
        up.shell(f"kubectl delete job/{job} --cascade=foreground --wait=false")
        done = launch.finish()
        assert done.code != 0
        assert "r' failed: node " in done.last_line
        assert up.is_empty()


def test_a_launcher_that_is_killed_and_started_again_submits_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "quota").write_text("1")
    with cluster(tmp_path, "h1", "h2") as up:
        first = up.start("--", "true")
        first.wait_for("queued.*exceeded quota: gpus")
        until(lambda: len(up.objects()["living"]) == 2, LIMIT_SECONDS)
        before = up.objects()
        first.process.kill()
        first.process.wait()
        up.allow_pods(2)
        second = up.start("--", "true")
        second.wait_for("resuming launch")
        done = second.finish()
        assert done.code == 0, done.err
        assert up.is_empty()
    made = {path.name.removesuffix("-x7k2p") for path in tmp_path.glob("rdzv-*-x7k2p")}
    assert made == set(before["living"])
    assert len(made) == 2


def test_the_symmetric_job_forms_as_its_first_lines_say(tmp_path: Path) -> None:
    anything = {"verbs": ["create", "get", "list", "delete"], "resources": ["jobs", "pods"]}
    anything["resources"] += ["secrets", "services", "pods/log"]
    (tmp_path / "rules.json").write_text(json.dumps([anything]))
    notes = tmp_path / "notes"
    notes.mkdir()
    program = json.dumps([sys.executable, "-c", NOTE, str(notes), *UGLY[:12]])
    text = (FOLDER / "symmetric.yaml").read_text(encoding="utf-8")
    said = re.findall(r"^#     (.*)$", text, re.MULTILINE)
    options = "--framework=command, --hosts=off"
    wanted = f"[{RDZV}, launch, {options}, --, {program[1:]}"
    text = text.replace("[rdzv, launch, --, train.py, --epochs=3]", wanted)
    (tmp_path / "symmetric.yaml").write_text(text)
    names = [f"job1-{index}" for index in range(4)]
    with cluster(tmp_path, *names) as up:
        for host in up.lab.hosts[1:]:
            # What the kubelet writes, and what the cluster's name server answers for rank 0.
            full = {
                pod.address: f"{pod.name}.job1.default.svc.cluster.local" for pod in up.lab.hosts
            }
            lines = [f"{host.address} {full[host.address]} {host.name}"]
            lines += [f"{address} {name}" for address, name in full.items() if "job1-0" in name]
            host.hosts_file.write_text("127.0.0.1 localhost\n" + "\n".join(lines) + "\n")
        # This one kubectl would send in protobuf, which the stand-in does not read.
        up.shell(f"{said[0]} --dry-run=client --output=json | kubectl create --filename=-")
        up.shell(f"cd {tmp_path}; {said[1]}")
        until(lambda: len(list(notes.iterdir())) == 4 and not up.objects()["living"], LIMIT_SECONDS)
        log = tmp_path / "job1-0-x7k2p" / "log"  # the Job counts as over with its first pod
        until(lambda: "run 'job1' ok" in log.read_text(), LIMIT_SECONDS)
        up.shell(f"cd {tmp_path}; {said[3].replace('delete', 'delete --wait=false')}")
        assert up.is_empty()
    found = {path.name: json.loads(path.read_text()) for path in notes.iterdir()}
    assert found == {str(rank): [name, UGLY[:12]] for rank, name in enumerate(names)}
