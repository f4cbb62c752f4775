"""A small Kubernetes of emulated hosts: the API server, and pods that are processes on them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubernetes.api import Cluster, serving
from tests.support.launching import BIN
from tests.support.netlab import Host


@dataclass
class Kubelet:
    """Starts pods on hosts that are free, and ends those that are deleted."""

    cluster: Cluster
    folder: Path
    hosts: list[Host]
    running: dict[str, tuple[Host, subprocess.Popen[bytes]]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        """Do what there is to do, until it is over."""
        while not self.over.wait(0.05):
            with self.cluster.lock:
                self.cluster.make_pods()
                for pod in self.cluster.listed("pods", {}):
                    name = pod["metadata"]["name"]
                    if name in self.running:
                        self._look_after(name, pod)
                    elif pod["status"]["phase"] == "Pending":
                        self._start(name, pod)
        for _, process in self.running.values():
            process.kill()
            process.wait()

    def living(self) -> list[str]:
        """The names of the Jobs that have not ended."""
        with self.cluster.lock:
            pods = self.cluster.listed("pods", {})
            over = [pod for pod in pods if pod["status"]["phase"] in ("Succeeded", "Failed")]
            jobs = {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] for pod in over}
            return [name for name in self.cluster.names("jobs") if name not in jobs]

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        busy = [host for host, process in self.running.values() if process.poll() is None]
        host = next((host for host in self.hosts if host not in busy), None)
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        secret = self.cluster.objects.get(("secrets", volumes["rdzv"]["secret"]["secretName"]))
        if host is None or secret is None:
            return
        (container,) = pod["spec"]["containers"]
        (mount,) = (m["mountPath"] for m in container["volumeMounts"] if m["name"] == "rdzv")
        place = self.folder / name
        place.mkdir()
        for file, text in secret["stringData"].items():
            (place / file).write_text(text)
        # The machine is one for all hosts: the mount has another path on each.
        argv = [word.replace(mount, str(place)) for word in container["command"]]
        own = {entry["name"]: entry["value"] for entry in container["env"]}
        env = {key: value.replace(mount, str(place)) for key, value in own.items()}
        env |= {"PATH": f"{BIN}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
        env["RDZV_STATE_DIR"] = str(place / "state")
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                host.command(argv), env=env, stdout=log, stderr=log, cwd=place
            )
        self.running[name] = (host, process)
        pod["spec"]["nodeName"] = host.name
        pod["status"] = {"phase": "Running"}

    def _look_after(self, name: str, pod: dict[str, Any]) -> None:
        process, deleted = self.running[name][1], "deletionTimestamp" in pod["metadata"]
        if process.poll() is None:
            if deleted and not pod.setdefault("told", False):
                pod["told"] = True
                process.send_signal(signal.SIGTERM)
            return
        if deleted:
            self.cluster.end_grace(name)
        code = process.returncode
        ended = {"terminated": {"reason": "Error" if code else "Completed", "exitCode": code}}
        pod["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"state": ended}],
        }


@contextmanager
def working(
    cluster: Cluster, folder: Path, listener: socket.socket, hosts: list[Host]
) -> Iterator[Kubelet]:
    """The API server at this socket, and pods on these hosts."""
    kubelet = Kubelet(cluster, folder, hosts)
    thread = threading.Thread(target=kubelet.work)
    with serving(cluster, folder, listener):
        thread.start()
        try:
            yield kubelet
        finally:
            kubelet.over.set()
            thread.join()
