"""A small Kubernetes of emulated hosts: the API server, and pods that are processes on them.

    python -m tests.kubernetes.kubelet FOLDER

FOLDER/hosts.json lists the hosts for pods. FOLDER/objects.json tells which Secrets there are, and
which Jobs that have not ended. A test writes FOLDER/quota, the number of pods that there may be,
and FOLDER/rules.json: what may be asked, where that is not what the shipped Role allows.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubernetes.api import Cluster, serving
from tests.support.kubernetes_specs import shipped
from tests.support.netlab import Host

RULES = next(found for found in shipped("launcher.yaml") if found["kind"] == "Role")["rules"]


@dataclass
class Kubelet:
    """Starts pods on hosts that are free, and ends those that are deleted."""

    cluster: Cluster
    folder: Path
    hosts: list[Host]
    running: dict[str, tuple[Host, subprocess.Popen[bytes]]] = field(default_factory=dict)

    def look(self) -> None:
        """Do what there is to do now."""
        if (self.folder / "quota").exists():
            self.cluster.quota = int((self.folder / "quota").read_text())
        with self.cluster.lock:
            self.cluster.make_pods()
            for pod in self.cluster.listed("pods", {}):
                name = pod["metadata"]["name"]
                if name in self.running:
                    self._look_after(name, pod)
                elif pod["status"]["phase"] == "Pending":
                    self._start(name, pod)
            self._tell()

    def _tell(self) -> None:
        pods = self.cluster.listed("pods", {})
        over = [pod for pod in pods if pod["status"]["phase"] in ("Succeeded", "Failed")]
        jobs = {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] for pod in over}
        found = {
            "secrets": self.cluster.names("secrets"),
            "living": [name for name in self.cluster.names("jobs") if name not in jobs],
        }
        new = self.folder / "objects.new"
        new.write_text(json.dumps(found))
        new.rename(self.folder / "objects.json")

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        host = self._host_for(name)
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        secret = self.cluster.objects.get(("secrets", volumes["rdzv"]["secret"]["secretName"]))
        if host is None or secret is None:
            return
        (container,) = pod["spec"]["containers"]
        (mount,) = (m["mountPath"] for m in container["volumeMounts"] if m["name"] == "rdzv")
        place = self.folder / name
        place.mkdir()
        for file, content in _files(secret).items():
            (place / file).write_bytes(content)
        # The machine is one for all hosts: the mount has another path on each.
        argv = [word.replace(mount, str(place)) for word in container["command"]]
        own = {entry["name"]: entry["value"] for entry in container["env"]}
        env = {key: value.replace(mount, str(place)) for key, value in own.items()}
        if index := re.search(r"-(\d+)-x7k2p$", name) if host.name in name else None:
            env["JOB_COMPLETION_INDEX"] = index[1]
        env["RDZV_STATE_DIR"] = str(place / "state")
        kept = {key: os.environ[key] for key in ("PATH", "LC_ALL")}
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                host.command(argv), env=kept | env, stdout=log, stderr=log, cwd=place
            )
        self.running[name] = (host, process)
        pod["spec"]["nodeName"] = host.name
        pod["status"] = {"phase": "Running"}

    def _host_for(self, pod: str) -> Host | None:
        """A free host; for a pod of an Indexed Job the one with its name, JOB-INDEX."""
        busy = {host.name for host, _ in self.running.values()}
        free = [host for host in self.hosts if host.name not in busy]
        named = [host for host in free if pod == f"{host.name}-x7k2p"]
        return next(iter([*named, *free]), None)

    def _look_after(self, name: str, pod: dict[str, Any]) -> None:
        _, process = self.running[name]
        if process.poll() is None:
            if "deletionTimestamp" in pod["metadata"] and "told" not in pod:
                pod["told"] = True
                process.send_signal(signal.SIGTERM)
            return
        if "deletionTimestamp" in pod["metadata"]:
            self.cluster.end_grace(name)
        code = process.returncode
        reason = "Completed" if code == 0 else "Error"
        ended = {"terminated": {"reason": reason, "exitCode": code}}
        pod["status"] = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{"state": ended}],
        }
        self.running[name] = (Host("", "", ""), process)  # the host is free again


def _files(secret: dict[str, Any]) -> dict[str, bytes]:
    """What a Secret is when it is mounted."""
    written = {name: text.encode() for name, text in secret.get("stringData", {}).items()}
    coded = {name: base64.b64decode(text) for name, text in secret.get("data", {}).items()}
    return written | coded


def main(folder: Path) -> None:
    """Serve until a signal ends it."""
    hosts = [Host(**each) for each in json.loads((folder / "hosts.json").read_text())]
    rules = folder / "rules.json"
    cluster = Cluster(json.loads(rules.read_text()) if rules.exists() else RULES)
    kubelet = Kubelet(cluster, folder, hosts)
    with serving(cluster, folder):
        while True:
            kubelet.look()
            time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
