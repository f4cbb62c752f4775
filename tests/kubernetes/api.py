"""A stand-in for the API server: what is made can be listed, and pods come from their Jobs.

It checks the permissions that a Role gives. What becomes of a pod is for the test to say.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
KINDS = {
    "secrets": ("v1", "Secret"),
    "pods": ("v1", "Pod"),
    "events": ("v1", "Event"),
    "jobs": ("batch/v1", "Job"),
}
VERBS = {"POST": "create", "DELETE": "delete"}
JOB_NAME = "batch.kubernetes.io/job-name"
NOW = "2026-01-01T00:00:00Z"
UNSCHEDULED = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
CONDITION = {"type": "PodScheduled", "status": "False", "message": UNSCHEDULED}
QUOTA = 'pods "POD" is forbidden: exceeded quota: gpus, requested: nvidia.com/gpu=8, used: 16'


class Refused(Exception):
    """An answer that is an error: its HTTP status, reason and words, and what is wrong where."""

    def __init__(self, status: int, reason: str, words: str, details: Object | None = None) -> None:
        super().__init__(words)
        self.status = status
        self.body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
        self.body |= {"reason": reason, "message": words, "details": details or {}}


@dataclass
class Cluster:
    """A namespace.

    Attributes:
        rules: The rules of a Role; each request must be allowed by one.
        no_pod: What an event says that there is in place of a pod.
        fails: By verb and resource: what the next requests are answered with.
        lost: What is created is created, and nobody is told.
        asked: Verb and resource of all requests so far.
    """

    rules: list[Object]
    no_pod: str = ""
    fails: dict[tuple[str, str], list[Refused]] = field(default_factory=dict)
    lost: bool = False
    asked: set[tuple[str, str]] = field(default_factory=set)
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def allow(self, verb: str, resource: str) -> None:
        """Raise Refused unless a rule of the Role allows it."""
        self.asked.add((verb, resource))
        if not any(verb in r["verbs"] and resource in r["resources"] for r in self.rules):
            words = f'User "launcher" cannot {verb} resource "{resource}"'
            raise Refused(403, "Forbidden", f"{_plural(resource)} is forbidden: {words}")
        if fails := self.fails.get((verb, resource)):
            raise fails.pop()

    def create(self, resource: str, made: Object) -> Object:
        """Keep an object; a Job gets its pod."""
        name = made["metadata"]["name"]
        if (resource, name) in self.objects:
            raise Refused(409, "AlreadyExists", f'{_plural(resource)} "{name}" already exists')
        made["metadata"] |= {"namespace": "default", "uid": f"uid-{resource}-{name}"}
        self.objects[resource, name] = made
        if resource == "jobs":
            made["status"] = {}
            made["spec"]["selector"] = {"matchLabels": {JOB_NAME: name}}
            self._make_pod(made, f"{name}-x7k2p")
        return made

    def _make_pod(self, job: Object, pod: str) -> None:
        if self.no_pod:
            self.objects["events", f"{pod}.1"] = {
                "metadata": {"name": f"{pod}.1", "namespace": "default"},
                "involvedObject": {"kind": "Job", "name": job["metadata"]["name"]},
                "reason": "FailedCreate",
                "message": "Error creating: " + self.no_pod.replace("POD", pod),
            }
            return
        template = copy.deepcopy(job["spec"]["template"])
        labels = template.get("metadata", {}).get("labels", {})
        metadata = {"name": pod, "namespace": "default"}
        metadata["labels"] = labels | {JOB_NAME: job["metadata"]["name"]}
        status = {"phase": "Pending", "conditions": [CONDITION]}
        found = {"metadata": metadata, "spec": template["spec"], "status": status}
        self.objects["pods", pod] = found

    def delete(self, resource: str, name: str) -> None:
        """Take an object away: a Job not before its pods."""
        found = self.get(resource, name)
        found["metadata"]["deletionTimestamp"] = NOW
        query = {"labelSelector": [f"{JOB_NAME}={name}"]}
        pods = self.listed("pods", query) if resource == "jobs" else []
        for pod in pods:
            pod["metadata"]["deletionTimestamp"] = NOW
            if pod["status"]["phase"] != "Running":
                self.end_grace(pod["metadata"]["name"])
        if not pods:
            del self.objects[resource, name]

    def end_grace(self, name: str) -> None:
        """A pod that is being deleted has ended, and its Job goes with it."""
        job = self.objects.pop(("pods", name))["metadata"]["labels"][JOB_NAME]
        del self.objects["jobs", job]

    def get(self, resource: str, name: str) -> Object:
        """An object by its name."""
        if (resource, name) not in self.objects:
            raise Refused(404, "NotFound", f'{_plural(resource)} "{name}" not found')
        return self.objects[resource, name]

    def listed(self, resource: str, query: Mapping[str, list[str]]) -> list[Object]:
        """What the label selector of a query chooses; field selectors choose events, and so all."""
        terms = query.get("labelSelector", [""])[0].split(",")
        wanted = dict(term.split("=") for term in terms if term).items()
        found = [item for (kind, _), item in self.objects.items() if kind == resource]
        return [item for item in found if wanted <= item["metadata"].get("labels", {}).items()]

    def names(self, resource: str) -> list[str]:
        """The names of what there is."""
        return [name for kind, name in self.objects if kind == resource]


def _plural(resource: str) -> str:
    return f"{resource}.batch" if resource == "jobs" else resource


class _Handler(BaseHTTPRequestHandler):
    """HTTP around the cluster."""

    protocol_version = "HTTP/1.1"
    cluster: ClassVar[Cluster]

    def log_message(self, *args: Any) -> None:
        """Silent."""

    def _do(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        status = 201 if self.command == "POST" else 200
        answer: Object | str
        try:
            with self.cluster.lock:
                answer = self._found(url.path.strip("/").split("/"), parse_qs(url.query), body)
        except Refused as exc:
            status, answer = exc.status, exc.body
        if status == 201 and self.cluster.lost:
            self.close_connection = True  # done, and nobody is told
            return
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        kind = "text/plain" if isinstance(answer, str) else "application/json"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _do

    def _found(self, path: list[str], query: Mapping[str, list[str]], body: Object) -> Object | str:
        if "namespaces" not in path:
            return _discovery(path)
        resource, *rest = path[path.index("namespaces") + 2 :]
        if len(rest) == 2:
            self.cluster.allow("get", f"{resource}/{rest[1]}")
            lines = [f"line {number} of {rest[0]}\n" for number in range(5)]
            return "".join(lines[-int(query["tailLines"][0]) :])
        verb = VERBS.get(self.command, "get" if rest else "list")
        self.cluster.allow(verb, resource)
        version, kind = KINDS[resource]
        if verb == "create":
            return self.cluster.create(resource, body)
        if verb == "delete":
            self.cluster.delete(resource, rest[0])
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if verb == "get":
            return {"apiVersion": version, "kind": kind} | self.cluster.get(resource, rest[0])
        items = self.cluster.listed(resource, query)
        return {"apiVersion": version, "kind": f"{kind}List", "metadata": {}, "items": items}


def _discovery(path: list[str]) -> Object | str:
    """What there is, as kubectl asks before anything else."""
    match path:
        case ["openapi", "v2"]:
            return ""  # a document without definitions, in protobuf: kubectl then checks nothing
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            version = {"groupVersion": "batch/v1", "version": "v1"}
            group = {"name": "batch", "versions": [version], "preferredVersion": version}
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}
        case ["api", "v1"] | ["apis", "batch", "v1"]:
            version_of = "/".join(path[1:])
            resources = [
                {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind}
                | {"verbs": ["create", "delete", "get", "list", "watch"]}
                for name, (version, kind) in KINDS.items()
                if version == version_of
            ]
            kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version_of}
            return kind | {"resources": resources}
    raise Refused(404, "NotFound", "the server could not find the requested resource")


@contextmanager
def serving(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Serve the cluster on loopback; gives the kubeconfig that names it."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    cluster_of = {"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "it", "context": {"cluster": "it", "user": ""}}
    config: Object = {"apiVersion": "v1", "kind": "Config", "current-context": "it"}
    config |= {"clusters": [cluster_of], "contexts": [context]}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        yield path
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
